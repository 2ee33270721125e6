"""Accuracy on public tables: private and open fits of dpsep beside scikit-learn, AdaSSP and diffprivlib.

All peers see the same rows and the same public bounds; a row says which bounds, and privacy under which
relation. Test errors are averaged over splits, and for what adds noise also over draws of it; everything but
that noise is deterministic. The defaults of `dpsep.theory.glm_defaults` were looked at on these very tables,
so the figures here are not untouched.

**Privacy.** Public tables; ours is (epsilon, delta) under zero-out, AdaSSP (epsilon, delta) under add or
remove, diffprivlib pure epsilon: similar promises, not the same one.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from dpsep.data import encode, encode_target, encoded_bounds
from dpsep.estimators import LinearRegression, LogisticRegression
from dpsep.privacy.scaling import within
from dpsep_lab.bench import peers
from dpsep_lab.bench.table import Row, row, skipped, spread
from dpsep_lab.data import ADULT_SCHEMA, DataError, load_adult, load_uci, splits

Array = NDArray[np.float64]
Split = tuple[NDArray[np.int64], NDArray[np.int64]]

EPSILON, DELTA = 1.0, 1e-5
LINEAR = ("naval", "kin8nm", "power", "wine", "protein")
ZERO_OUT, OPEN = "zero-out", "none (not private)"
ADD_REMOVE = "add or remove one record"
PURE = "pure epsilon (diffprivlib's claim)"


class Peer(NamedTuple):
    """Who is measured: a fit and its test metrics, its relation, and whether it adds noise."""

    who: str
    relation: str
    scaling: str
    score: Callable[[Split], dict[str, float]]

    @property
    def noisy(self) -> bool:
        """Whether repeating a fit changes its result."""
        return self.relation != OPEN


def adult(quick: bool = False) -> list[Row]:
    """Logistic regression on Adult at epsilon 1: the official split and five random ones."""
    try:
        X, y, official = adult_table()
    except DataError as error:
        return [skipped("adult", "everyone", str(error))]
    chosen = [official]
    for k in range(0 if quick else 5):
        order = np.random.default_rng([7, k]).permutation(len(y))
        cut = round(2 * len(y) / 3)
        chosen.append((np.sort(order[:cut]), np.sort(order[cut:])))
    # A row has one cell in [-1, 1] a number and at most one 1 a category: a public bound of its norm.
    norm = math.sqrt(len(ADULT_SCHEMA.features))
    bounds = encoded_bounds(ADULT_SCHEMA)
    return classification("adult", X, y, bounds, chosen, norm=norm, draws=1 if quick else 3)


def linear(quick: bool = False) -> list[Row]:
    """Linear regression on five UCI sets at epsilon 1, five of the customary splits each."""
    rows: list[Row] = []
    for name in LINEAR:
        try:
            table, chosen = load_uci(name), splits(name)[: 1 if quick else 5]
        except DataError as error:
            rows.append(skipped(f"linear/{name}", "everyone", str(error)))
            continue
        rows += regression(f"linear/{name}", table.X, table.y, chosen, draws=1 if quick else 3)
    return rows


def adult_table() -> tuple[Array, Array, Split]:
    """Return Adult's encoded rows, train before test, its labels 0 and 1, and the official split."""
    parts = [load_adult("train"), load_adult("test")]
    X = np.concatenate([encode(part, ADULT_SCHEMA)[0] for part in parts])
    y = np.concatenate([encode_target(part, ADULT_SCHEMA) for part in parts])
    return X, y, (np.arange(parts[0].height), np.arange(parts[0].height, len(y)))


def classification(
    case: str,
    X: Array,
    y: Array,
    bounds: tuple[Array, Array],
    chosen: Sequence[Split],
    *,
    norm: float,
    draws: int = 1,
) -> list[Row]:
    """Return rows of accuracy and mean test log-likelihood of all classifiers.

    Parameters
    ----------
    case
        Name of the rows.
    X, y
        Features and labels 0 and 1.
    bounds
        Public bounds of the columns.
    chosen
        Train and test row numbers.
    norm
        Public bound of the norm of a row scaled onto [-1, 1] (numbers) and {0, 1} (categories).
    draws
        Fits for each split of what adds noise.
    """
    scale = within_unit(bounds)

    def ours(**parameters: Any) -> Callable[[Split], dict[str, float]]:
        def score(split: Split) -> dict[str, float]:
            train, test = split
            model = LogisticRegression(EPSILON, DELTA, classes=[0, 1], **parameters).fit(X[train], y[train])
            right = float(np.mean(model.predict(X[test]) == y[test]))
            density = model.log_predictive_density(X[test], y[test])
            return {"accuracy": right, "log-likelihood": float(np.mean(density))}

        return score

    def theirs(fit: Callable[[Array, Array], Array]) -> Callable[[Split], dict[str, float]]:
        def score(split: Split) -> dict[str, float]:
            train, test = split
            margin = peers.linear_predictor(fit(scale(X[train]), y[train]), scale(X[test]))
            signed = np.where(y[test] == 1, margin, -margin)
            right = float(np.mean((margin > 0) == (y[test] == 1)))
            return {"accuracy": right, "log-likelihood": float(np.mean(log_expit(signed)))}

        return score

    public = "public bounds of the declared schema"
    people = [
        Peer("scikit-learn", OPEN, public, theirs(_scikit_logistic)),
        Peer("dpsep, private=False", OPEN, public, ours(private=False, bounds=bounds)),
        Peer("dpsep private", ZERO_OUT, public, ours(bounds=bounds)),
        Peer("dpsep private, private scaling", ZERO_OUT, "private, inside epsilon", ours()),
        Peer("diffprivlib", PURE, public, theirs(lambda a, b: peers.logistic_objective(a, b, EPSILON, norm))),
    ]
    return compare(case, people, chosen, draws, ("accuracy", "log-likelihood"))


def regression(case: str, X: Array, y: Array, chosen: Sequence[Split], *, draws: int = 1) -> list[Row]:
    """Return rows of test RMSE of all linear regressions, and of our test log-likelihood.

    Parameters
    ----------
    case
        Name of the rows.
    X, y
        The whole table; the extremes of its columns serve everyone as public bounds.
    chosen
        Train and test row numbers.
    draws
        Fits for each split of what adds noise.
    """
    bounds, target = (X.min(axis=0), X.max(axis=0)), (float(y.min()), float(y.max()))
    scale = peers.Unit(*bounds)
    unit = peers.Unit(np.asarray(target[0]), np.asarray(target[1]))

    def ours(**parameters: Any) -> Callable[[Split], dict[str, float]]:
        def score(split: Split) -> dict[str, float]:
            train, test = split
            model = LinearRegression(EPSILON, DELTA, **parameters).fit(X[train], y[train])
            density = float(np.mean(model.log_predictive_density(X[test], y[test])))
            return {"rmse": _rmse(model.predict(X[test]), y[test]), "log-likelihood": density}

        return score

    def theirs(fit: Callable[[Array, Array], Array]) -> Callable[[Split], dict[str, float]]:
        def score(split: Split) -> dict[str, float]:
            train, test = split
            weights = fit(scale(X[train]), unit(y[train]))
            return {"rmse": _rmse(unit.back(peers.linear_predictor(weights, scale(X[test]))), y[test])}

        return score

    rng = np.random.default_rng()
    public = "public bounds: each column's extremes over the whole table"
    declared: dict[str, Any] = {"bounds": bounds, "target_bounds": target}
    people = [
        Peer("least squares", OPEN, public, theirs(peers.least_squares)),
        Peer("dpsep, private=False", OPEN, public, ours(private=False, **declared)),
        Peer("dpsep private", ZERO_OUT, public, ours(**declared)),
        Peer("dpsep private, private scaling", ZERO_OUT, "private, inside epsilon", ours()),
        Peer("AdaSSP", ADD_REMOVE, public, theirs(lambda a, b: peers.adassp(a, b, EPSILON, DELTA, rng=rng))),
        Peer("diffprivlib", PURE, public, theirs(lambda a, b: peers.functional_linear(a, b, EPSILON))),
    ]
    people += _standardised(X, y, ours, rng)
    return compare(case, people, chosen, draws, ("rmse",))


def _standardised(
    X: Array, y: Array, ours: Callable[..., Callable[[Split], dict[str, float]]], rng: np.random.Generator
) -> list[Peer]:
    """AdaSSP in the scaling that suits it (mean and standard deviation as public) and ours beside it."""
    centre, sd = X.mean(axis=0), X.std(axis=0)
    sd = np.where(sd > 1e-12 * np.maximum(1.0, np.abs(centre)), sd, 1.0)
    middle, spread_y = float(y.mean()), float(y.std())
    public = "public mean and standard deviation of each column of the whole table"

    def adassp(multiple: float) -> Callable[[Split], dict[str, float]]:
        norm = multiple * math.sqrt(X.shape[1] + 1)

        def score(split: Split) -> dict[str, float]:
            train, test = split
            Z, reach = (X - centre) / sd, 2.0 * spread_y
            target = np.clip((y[train] - middle) / reach, -1.0, 1.0)
            weights = peers.adassp(Z[train], target, EPSILON, DELTA, rng=rng, norm=norm)
            return {"rmse": _rmse(middle + reach * peers.linear_predictor(weights, Z[test]), y[test])}

        return score

    bounds, target = (centre - 4 * sd, centre + 4 * sd), (middle - 4 * spread_y, middle + 4 * spread_y)
    return [
        Peer("dpsep private, standardised", ZERO_OUT, public, ours(bounds=bounds, target_bounds=target)),
        Peer("AdaSSP, standardised", ADD_REMOVE, public, adassp(1.0)),
        Peer("AdaSSP, standardised, wider", ADD_REMOVE, public, adassp(1.5)),
    ]


def compare(
    case: str, people: Iterable[Peer], chosen: Sequence[Split], draws: int, compared: tuple[str, ...]
) -> list[Row]:
    """Measure everyone; the first is what the others are compared with.

    Parameters
    ----------
    case
        Name of the rows.
    people
        Who is measured. A peer that does not run is a row that says so; a failure of our own is an error.
    chosen
        Train and test row numbers.
    draws
        Fits for each split of what adds noise.
    compared
        The metrics for which a ratio to the first is given.
    """
    rows: list[Row] = []
    base: dict[str, float] = {}
    first = ""
    for peer in people:
        first = first or peer.who
        try:
            scores = [peer.score(split) for split in chosen for _ in range(draws if peer.noisy else 1)]
        except Exception as error:
            if peer.who.startswith("dpsep"):
                raise
            # A peer that does not run beside today's scikit-learn is a row, not the end of the benchmark.
            rows.append(skipped(case, peer.who, f"does not run here ({type(error).__name__}: {error})"))
            continue
        for metric in scores[0]:
            values = [score[metric] for score in scores]
            mean = float(np.mean(values))
            if peer.who == first:
                base[metric] = mean
            against = (first, base[metric]) if metric in compared and metric in base else None
            public = {"splits": len(chosen), "scaling": peer.scaling, "relation": peer.relation}
            if peer.noisy:
                public |= {"epsilon": EPSILON, "delta": 0.0 if peer.relation == PURE else DELTA}
            unit = "nats a row" if metric == "log-likelihood" else ""
            rows.append(row(case, peer.who, metric, mean, unit, against=against, **spread(values), **public))
    return rows


def within_unit(bounds: tuple[Array, Array]) -> Callable[[Array], Array]:
    """Map columns by public bounds as our own fits do: 0 stays 0 where it lies within."""
    scaling = within(*bounds)
    return lambda X: (np.clip(X, scaling.low, scaling.high) - scaling.centre) / scaling.scale


def _scikit_logistic(X: Array, y: Array) -> Array:
    from sklearn.linear_model import LogisticRegression as Scikit

    model = Scikit(max_iter=1000).fit(X, y)
    return np.concatenate([model.intercept_, model.coef_[0]])


def _rmse(predicted: Array, y: Array) -> float:
    return float(np.sqrt(np.mean((predicted - y) ** 2)))
