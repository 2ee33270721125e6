"""Black-box audit: membership inference on what a user is handed, the released posterior.

The attacker sees a fitted estimator's numbers (posterior, coefficients, everything learned) and wants to know
whether one record, the worst of several that he can think of, was in the table. He knows the rest of the
table and can run the code as often as he likes, so he learns from runs of his own: the linear discriminant
between the two worlds, and its best threshold. Other runs, which he has not learned from, are then guessed.

**Privacy.** None: this is for made-up tables. The bound holds for whatever produced the posterior and assumes
nothing of the mechanism (`Bound.epsilon`). It is far below the claim as a rule: an attacker who sees only the
end of a run knows less than the accountant allows him. A bound above the claim is proof of a leak anywhere in
the estimator, beside the gate as well as through it.
"""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.audit.bounds import counts_at, lower_bound
from dpsep.audit.canary import Audit
from dpsep.audit.replay import arrays_of
from dpsep.audit.taps import seeded
from dpsep.models.frozen import same_functions

Array = NDArray[np.float64]


@same_functions()
def membership_audit(
    estimator: Any,
    X: Array,
    y: Array | None = None,
    *,
    runs: int = 200,
    confidence: float = 0.999,
    seed: int = 0,
) -> Audit:
    """Guess from released posteriors whether a worst-case record was in the table.

    Parameters
    ----------
    estimator
        A private estimator; it is cloned and seeded for every run.
    X, y
        A made-up table. A row is added: the canary in one world, a row with no value in it in the other.
    runs
        Fits in each world: half to learn from, half to be guessed.
    confidence, seed
        Of the bound, and where the seeds of the runs begin.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> X, y = np.linspace(-1, 1, 20).reshape(10, 2), np.linspace(-1, 1, 10)
    >>> model = LinearRegression(epsilon=1.0, delta=1e-2, bounds=(-1, 1), target_bounds=(-1, 1), steps=2)
    >>> membership_audit(model, X, y, runs=20).caught
    False
    """
    few = max(4, runs // 20)
    blank = np.full(X.shape[1], np.nan)
    spread: list[float] = []
    worlds: list[tuple[Array, float]] = [(blank, math.nan), *worst_records(X, y)]
    alone = released(estimator, X, y, *worlds[0], runs=few, seed=seed + 10**6)
    for record in worlds[1:]:
        there = released(estimator, X, y, *record, runs=few, seed=seed + 10**6)
        spread.append(float(np.linalg.norm(_direction(there, alone)[1])))
    canary = worlds[1 + int(np.argmax(spread))]
    inside = released(estimator, X, y, *canary, runs=runs, seed=seed)
    outside = released(estimator, X, y, *worlds[0], runs=runs, seed=seed + runs)
    half = runs // 2
    direction, _ = _direction(inside[:half], outside[:half])
    scores, others = inside @ direction, outside @ direction
    counts = counts_at(scores[half:], others[half:], _threshold(scores[:half], others[:half]))
    claim = _fit(estimator, X, y, *canary, seed=seed).privacy_
    return Audit(
        f"membership of one record by the posterior of {2 * half} runs",
        claim.epsilon,
        claim.delta,
        lower_bound(counts, claim.delta, confidence),
        counts,
        2 * runs,
        math.nan,
        math.nan,
        False,
        (scores[half:], others[half:]),
    )


def worst_records(X: Array, y: Array | None) -> list[tuple[Array, float]]:
    """Return records at corners of what the table holds, with outcomes far from what they should have."""
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    signs = np.where(np.arange(X.shape[1]) % 2, low, high)
    outcomes = (0.0,) if y is None else (float(np.nanmin(y)), float(np.nanmax(y)))
    return [(cells, outcome) for cells in (high, low, signs) for outcome in outcomes]


def released(
    estimator: Any, X: Array, y: Array | None, record: Array, outcome: float, *, runs: int, seed: int
) -> Array:
    """Fit a table with one more record many times; return everything learned, one row a run."""
    rows = []
    for run in range(seed, seed + runs):
        learned = arrays_of(_fit(estimator, X, y, record, outcome, seed=run))
        rows.append(np.concatenate([np.ravel(learned[name]).astype(float) for name in sorted(learned)]))
    return np.stack(rows)


def _fit(estimator: Any, X: Array, y: Array | None, record: Array, outcome: float, *, seed: int) -> Any:
    fitted = seeded(estimator, seed)
    table = np.concatenate([X, record[None]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted.fit(table, *(() if y is None else (np.append(y, outcome),)))


def _direction(inside: Array, outside: Array) -> tuple[Array, Array]:
    """Return the regularised linear discriminant of two samples, and their standardised difference."""
    centred = np.concatenate([inside - inside.mean(axis=0), outside - outside.mean(axis=0)])
    scale = centred.std(axis=0)
    scale = np.where(scale > 0, scale, np.inf)
    apart = (inside.mean(axis=0) - outside.mean(axis=0)) / scale
    correlation = (centred / scale).T @ (centred / scale) / len(centred)
    ridge = correlation + np.eye(len(apart)) * (0.1 + len(apart) / len(centred))
    return np.linalg.solve(ridge, apart) / scale, apart


def _threshold(inside: Array, outside: Array) -> float:
    """Return the threshold at which most of both samples are guessed rightly."""
    places = np.sort(np.concatenate([inside, outside]))
    right = [(inside > place).sum() + (outside <= place).sum() for place in places]
    return float(places[int(np.argmax(right))])
