r"""Do the planner's forecasts come true? Private fits beside fits without privacy, on made and real tables.

*Widening*: the width of a coefficient's interval over its width without privacy, the median over coefficients
of a fit, averaged over fits.

*Excess risk*, in two ways. The quadratic one is (m_p - m)^T Lambda (m_p - m) / 2N, with m and Lambda of the
fit without privacy: what the private mean loses where the model is right, and steady enough to be measured by
a few fits. The other is the loss of test log predictive density; for made tables on fresh records, for real
ones on the first of the customary splits. It holds the private fit's other errors as well, and chance.

Made regressions have standard normal columns clamped to declared bounds and a predictor whose variance does
not grow with the number of columns. Their seeds are not those that settings were chosen with. Real tables are
Adult and five UCI sets with their own ranges as public bounds; these had been looked at.

**Privacy.** Made or public data; the noise is seeded, so nothing here is for release.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.data import encoded_bounds
from dpsep.estimators import (
    GaussianMixture,
)
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.registry import regressions
from dpsep.theory.forecast import Forecast
from dpsep.theory.planner import Planned, plan
from dpsep_lab.bench.accuracy import LINEAR, adult_table
from dpsep_lab.bench.coverage_kinds import REACH, TARGET
from dpsep_lab.bench.mixture import clusters
from dpsep_lab.bench.table import Row, row, skipped, spread
from dpsep_lab.data import ADULT_SCHEMA, DataError, load_uci, splits

Array = NDArray[np.float64]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SHAPES = ((1000, 4), (5000, 5), (5000, 24), (20_000, 10), (20_000, 84))
"""Records and features of the made regressions."""
SEED = 20_261
"""Of the made tables; settings were chosen with others."""


class Table(NamedTuple):
    """A table to fit and to test on.

    Attributes
    ----------
    train, test
        Features and target of each.
    declared
        What is public of it, as parameters of the estimator.
    levels
        Of its categories.
    """

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    declared: dict[str, Any]
    levels: tuple[int, ...] = ()


MAKERS: dict[str, Callable[..., Any]] = {entry.name: entry.load() for entry in regressions()}


def planning(quick: bool = False) -> list[Row]:
    """Return forecasts and measurements of everything that can be forecast."""
    rows: list[Row] = []
    epsilons = (1.0,) if quick else EPSILONS
    for model in tuple(MAKERS)[:2] if quick else MAKERS:
        for records, features in SHAPES[1:2] if quick else SHAPES:
            name = f"plan/{model}, N {records}, {features} features"
            rows += regression(
                name,
                model,
                lambda k, m=model, n=records, f=features: made(m, n, f, k),
                epsilons,
                fits=2 if quick else 6,
            )
    if not quick:
        rows += _real(epsilons)
    rows += mixture(epsilons[-1:] if quick else epsilons, fits=1 if quick else 6)
    return [*rows, network()]


def made(model: str, records: int, features: int, number: int) -> Table:
    """Draw a regression whose predictor has a variance of about 1.25, whatever the number of columns."""
    rng = np.random.default_rng([SEED, number, records, features])
    # A linear model's predictive density takes an integral a row.
    tests = 4000 if model == "linear" else 20_000
    x = np.clip(rng.standard_normal((records + tests, features)), -REACH, REACH)
    truth = rng.standard_normal(features)
    u = 0.5 * rng.standard_normal() + x @ (truth / np.linalg.norm(truth))
    declared: dict[str, Any] = {"bounds": (-REACH, REACH)}
    if model == "linear":
        y = u + 0.5 * rng.standard_normal(len(u))
        declared["target_bounds"] = (-TARGET, TARGET)
    elif model == "gamma":
        y = rng.exponential(np.exp(u))
        declared["target_bounds"] = (1e-2, 1e2)
    elif model == "poisson":
        y = rng.poisson(np.exp(u)).astype(np.float64)
    else:
        draw = rng.logistic(size=len(u)) if model == "logistic" else rng.standard_normal(len(u))
        y = np.where(draw < u, 1.0, -1.0)
        declared["classes"] = [-1.0, 1.0]
    return Table((x[:records], y[:records]), (x[records:], y[records:]), declared)


def regression(
    case: str, model: str, tables: Callable[[int], Table], epsilons: Sequence[float], *, fits: int
) -> list[Row]:
    """Measure private fits of tables 0, 1, ... against fits without privacy.

    Parameters
    ----------
    case
        Name of the rows.
    model
        Which regression.
    tables
        Gives the table of a fit's number.
    epsilons
        Budgets; each sees the same tables.
    fits
        Private fits at each budget.
    """
    widths: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
    squares: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
    losses: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
    table = tables(0)
    for number in range(fits):
        table = tables(number)
        plain = MAKERS[model](private=False, **table.declared).fit(*table.train)
        width, precision = np.sqrt(np.diag(plain.posterior_.covariance)), plain.posterior_.covariance
        best = float(np.mean(plain.log_predictive_density(*table.test)))
        for epsilon in epsilons:
            private = _seeded(
                MAKERS[model](epsilon=epsilon, random_state=number, **table.declared), table.train
            )
            found = private.posterior_
            move = found.mean - plain.posterior_.mean
            widths[epsilon].append(float(np.median(np.sqrt(np.diag(found.covariance)) / width)))
            squares[epsilon].append(
                float(move @ np.linalg.solve(precision, move)) / (2 * len(table.train[0]))
            )
            losses[epsilon].append(best - float(np.mean(private.log_predictive_density(*table.test))))
    rows: list[Row] = []
    for epsilon in epsilons:
        shape = table.train[0].shape
        answer = plan(model, *shape, epsilon=epsilon, levels=table.levels, curve=False)  # pyright: ignore
        rows += _rows(case, answer, widths[epsilon], squares[epsilon], losses[epsilon])
    return rows


def mixture(epsilons: Sequence[float], *, fits: int, records: int = 5000) -> list[Row]:
    """Measure the widening of a mixture's means: four clusters of unequal shapes in four columns."""
    widths: dict[float, list[float]] = {epsilon: [] for epsilon in epsilons}
    shape = {"n_components": 4, "bounds": (-15.0, 15.0)}
    for number in range(fits):
        table, _ = clusters(SEED + number, records, 4, 4)
        plain = GaussianMixture(private=False, **shape).fit(table).posterior_
        usual = float(np.median(np.sqrt(np.diagonal(plain.mean_covariances, axis1=1, axis2=2))))
        for epsilon in epsilons:
            found = _seeded(
                GaussianMixture(epsilon=epsilon, random_state=number, **shape), (table,)
            ).posterior_
            width = np.sqrt(np.diagonal(found.mean_covariances, axis1=1, axis2=2))
            widths[epsilon].append(float(np.median(width)) / usual)
    rows: list[Row] = []
    for epsilon in epsilons:
        answer = plan("mixture", records, 4, epsilon=epsilon, components=4, curve=False)
        rows += _rows(f"plan/mixture, N {records}", answer, widths[epsilon])
    return rows


def network() -> Row:
    """Return what the planner says of a network, which it does not forecast."""
    answer = plan("network", 7372, 8, epsilon=1.0)
    assert answer.forecast is None
    return row("plan/network", "dpsep plan", "forecast", None, note=answer.reasons[0])


def _real(epsilons: Sequence[float]) -> list[Row]:
    rows: list[Row] = []
    for name in LINEAR:
        try:
            found, (train, test) = load_uci(name), splits(name)[0]
        except DataError as error:
            rows.append(skipped(f"plan/{name}", "everyone", str(error)))
            continue
        declared = {
            "bounds": (found.X.min(axis=0), found.X.max(axis=0)),
            "target_bounds": (found.y.min(), found.y.max()),
        }
        table = Table((found.X[train], found.y[train]), (found.X[test], found.y[test]), declared)
        rows += regression(f"plan/{name}", "linear", lambda _, t=table: t, epsilons, fits=6)
    try:
        X, y, (train, test) = adult_table()
    except DataError as error:
        return [*rows, skipped("plan/adult", "everyone", str(error))]
    levels = tuple(len(part.categories) - 1 for part in ADULT_SCHEMA.features if part.categories)
    declared = {"bounds": encoded_bounds(ADULT_SCHEMA), "classes": [0.0, 1.0]}
    table = Table((X[train], y[train]), (X[test], y[test]), declared, levels)
    return rows + regression("plan/adult", "logistic", lambda _: table, epsilons, fits=4)


def _rows(
    case: str,
    answer: Planned,
    widths: Sequence[float],
    squares: Sequence[float] = (),
    losses: Sequence[float] = (),
) -> list[Row]:
    """Rows of one budget: each measurement, with the forecast beside it."""
    forecast = answer.forecast
    assert isinstance(forecast, Forecast)
    noise = forecast.noise_share / (1.0 - forecast.noise_share)
    mean_part = noise * answer.request.dimension / (2.0 * answer.request.records)
    public = {"epsilon": answer.request.epsilon, "verdict": answer.verdict, "relation": "zero-out"}
    measured = [
        ("interval widening", forecast.widening, widths),
        ("excess risk, quadratic", mean_part, squares),
        ("excess risk, test records", forecast.excess_risk, losses),
    ]
    return [
        row(
            case,
            "dpsep private",
            f"{metric}, epsilon {answer.request.epsilon:g}",
            math.fsum(values) / len(values),
            "nats a record" if "risk" in metric else "",
            against=("forecast", expected),
            forecast=expected,
            **public,
            **spread(values),
        )
        for metric, expected, values in measured
        if len(values)
    ]


def _seeded(estimator: Any, arrays: Sequence[Array]) -> Any:
    with warnings.catch_warnings():
        # The seed is meant: this is an experiment on made or public data.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return estimator.fit(*arrays)
