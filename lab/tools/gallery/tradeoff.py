"""Privacy against accuracy: what four models lose as epsilon falls, between the prior and no privacy at all.

Test log density of a logistic regression on Adult, error of the means of a made mixture, and test error of a
linear regression and of a network on the same public table, so that these two can be compared.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import BLUE, GREY, Measured, Picture, epsilon_axis, main, new_figure, plain, save, say, seeded
from made import CLUSTER_BOUND, clusters, error_of_means

from dpsep import GaussianMixture, LinearRegression, LogisticRegression, NetworkRegressor
from dpsep.data import encode, encode_target, encoded_bounds
from dpsep.privacy.scaling import within
from dpsep_lab.data import ADULT_SCHEMA, load_adult, load_uci, splits

PICTURE = Picture(
    name="tradeoff",
    title="What privacy costs",
    see=(
        "Four models between the prior (dashed: no data used) and no privacy (solid). On "
        "Adult, epsilon {budget:g} gives a test log density of {private:.3f} nats a row; without privacy it "
        "is {free:.3f}. On the table power, a linear regression at epsilon {budget:g} has a test error of "
        "{linear:.2f} MW and a network {network:.2f} MW."
    ),
    made=(
        "Adult ({adult:,} rows to fit, {adult_test:,} to test, declared schema as bounds); power ({power:,} "
        "and {power_test:,} rows of the first customary split, the columns' extremes as bounds); a made "
        "mixture of four clusters, {clusters:,} records. Lines are medians over seeds of the noise, bands "
        "reach over all of them: {seeds}. delta 1e-5, zero-out, defaults else."
    ),
    alt=(
        "Four line charts against epsilon from 0.1 to 10: test log density of a logistic regression, error "
        "of a mixture's means, and test error of a linear regression and of a network. All reach the line "
        "without privacy as epsilon grows. The linear regression is there at 0.1 already, the logistic "
        "regression is close to it from 1 on, mixture and network from 1 or 2 on."
    ),
    still="tradeoff.png",
)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TICKS = (0.1, 0.3, 1.0, 3.0, 10.0)
SHOWN = 1.0

Score = Callable[[float | None, int], float]
"""The score of a fit at this epsilon (None: without privacy) with this seed of the noise."""


def measure(quick: bool, folder: Path) -> Measured:
    """Fit every model at every budget, with several seeds of the noise."""
    del folder
    makers = (_logistic, _mixture, _linear, _network)
    seeds = (1, 1, 1, 1) if quick else (4, 4, 8, 3)
    panels, sizes = [], {}
    for make, count in zip(makers, seeds, strict=True):
        panel, score, shape = make(quick)
        sizes |= shape
        chosen = (SHOWN,) if quick else TICKS if make is _network else EPSILONS
        panel["free"] = score(None, 0)
        panel["epsilon"] = chosen
        panel["scores"] = [[score(epsilon, seed) for seed in range(count)] for epsilon in chosen]
        panels.append(panel)
        say(f"  {panel['title']}: {_middle(panel, SHOWN):.3f} at epsilon {SHOWN:g}, {panel['free']:.3f} free")
    names = ("logistic", "mixture", "linear", "network")
    words = ", ".join(f"{name} {count}" for name, count in zip(names, seeds, strict=True))
    return {
        "panels": panels,
        "caption": sizes
        | {
            "budget": SHOWN,
            "private": _middle(panels[0], SHOWN),
            "free": panels[0]["free"],
            "linear": _middle(panels[2], SHOWN),
            "network": _middle(panels[3], SHOWN),
            "seeds": words,
        },
    }


def draw(found: Measured, folder: Path) -> None:
    """Draw the four charts."""
    figure, axes = new_figure(2, 2, size=(8.0, 6.2))
    for ax, panel in zip(axes.flat, found["panels"], strict=True):
        scores = np.asarray(panel["scores"])
        low, high = scores.min(axis=1), scores.max(axis=1)
        ax.axhline(panel["free"], color=GREY, linewidth=1.4, zorder=2, label="no privacy")
        ax.axhline(panel["prior"], color=GREY, linewidth=1.4, linestyle="--", zorder=2, label="prior")
        ax.fill_between(panel["epsilon"], low, high, color=BLUE, alpha=0.25, linewidth=0, zorder=3)
        middle = np.median(scores, axis=1)
        ax.plot(panel["epsilon"], middle, "o-", color=BLUE, markersize=5, zorder=4, label="private")
        ax.set_title(panel["title"])
        ax.set_ylabel(panel["metric"])
        ax.set_xlim(0.085, 11.8)
        epsilon_axis(plain(ax), TICKS)
    axes[0, 1].set_yscale("log")
    axes[0, 1].yaxis.set_major_formatter("{x:g}")
    _zoom(axes[1], found["panels"][2:])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    save(figure, folder / PICTURE.still)


def _zoom(axes: Any, panels: Sequence[Measured]) -> None:
    """Give both errors one scale, on which their differences show; the prior lies above and is told."""
    values = [value for panel in panels for row in [*panel["scores"], [panel["free"]]] for value in row]
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_ylim(min(values) - 0.15, max(values) + 0.3)
        words = f"prior: {panel['prior']:.1f}, above"
        place = {"xycoords": "axes fraction", "ha": "right", "va": "top", "color": GREY, "fontsize": 9}
        ax.annotate(words, (0.98, 0.98), **place)


def _middle(panel: Measured, epsilon: float) -> float:
    return float(np.median(panel["scores"][list(panel["epsilon"]).index(epsilon)]))


def _first(quick: bool, limit: int, *tables: Any) -> Sequence[Any]:
    """The first rows of tables where it shall be quick."""
    return [table[:limit] if quick else table for table in tables]


def _logistic(quick: bool) -> tuple[Measured, Score, dict[str, int]]:
    parts = [load_adult("train"), load_adult("test")]
    X, rows = (encode(part, ADULT_SCHEMA)[0] for part in parts)
    y, labels = (encode_target(part, ADULT_SCHEMA) for part in parts)
    X, y = _first(quick, 3000, X, y)
    bounds = encoded_bounds(ADULT_SCHEMA)

    def score(epsilon: float | None, seed: int) -> float:
        model = LogisticRegression(**_budget(epsilon, seed), classes=[0, 1], bounds=bounds)
        return float(np.mean(_fit(model, X, y).log_predictive_density(rows, labels)))

    # Under a prior that is symmetric about zero, both labels have probability one half.
    panel = {"title": "logistic regression, Adult", "metric": "test log density, nats a row"}
    return panel | {"prior": -float(np.log(2))}, score, {"adult": len(y), "adult_test": len(labels)}


def _mixture(quick: bool) -> tuple[Measured, Score, dict[str, int]]:
    x, truth = clusters(600 if quick else 3000)

    def score(epsilon: float | None, seed: int) -> float:
        model = GaussianMixture(len(truth), **_budget(epsilon, seed), bounds=(-CLUSTER_BOUND, CLUSTER_BOUND))
        with seeded():
            return error_of_means(model.fit(x).means_, truth)

    panel = {"title": "mixture, four made clusters", "metric": "error of the means"}
    return panel | {"prior": error_of_means(np.zeros_like(truth), truth)}, score, {"clusters": len(x)}


def _linear(quick: bool) -> tuple[Measured, Score, dict[str, int]]:
    return _power("linear regression, power", lambda **settings: LinearRegression(**settings), quick)


def _network(quick: bool) -> tuple[Measured, Score, dict[str, int]]:
    more: dict[str, Any] = {"hidden": 3, "steps": 2} if quick else {}
    return _power("network, power", lambda **settings: NetworkRegressor(**settings, **more), quick)


def _power(title: str, estimator: Callable[..., Any], quick: bool) -> tuple[Measured, Score, dict[str, int]]:
    table = load_uci("power")
    train, test = splits("power")[0]
    (train,) = _first(quick, 1000, train)
    declared = {
        "bounds": (table.X.min(axis=0), table.X.max(axis=0)),
        "target_bounds": (float(table.y.min()), float(table.y.max())),
    }

    def score(epsilon: float | None, seed: int) -> float:
        model = _fit(estimator(**_budget(epsilon, seed), **declared), table.X[train], table.y[train])
        return float(np.sqrt(np.mean((model.predict(table.X[test]) - table.y[test]) ** 2)))

    middle = float(within(*declared["target_bounds"]).centre)
    prior = float(np.sqrt(np.mean((middle - table.y[test]) ** 2)))
    panel = {"title": title, "metric": "test error (RMSE), MW", "prior": prior}
    return panel, score, {"power": len(train), "power_test": len(test)}


def _budget(epsilon: float | None, seed: int) -> dict[str, Any]:
    return {"private": False} if epsilon is None else {"epsilon": epsilon, "random_state": seed}


def _fit(model: Any, X: Any, y: Any) -> Any:
    with seeded():
        return model.fit(X, y)


if __name__ == "__main__":
    main(PICTURE, measure, draw)
