"""Record and replay over every estimator and every combination of options that can be private.

Options that change what is read, released or computed are crossed with each other. A combination that cannot
be private is refused by the estimator, from public structure, before anything is charged; that is an outcome
here, too. `covering` chooses few combinations in which every pair of values occurs; `combinations` gives all.

**Privacy.** None: for made-up tables, like `dpsep.audit.replay`.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations as choose
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.audit.neighbours import Neighbour, group_neighbours_of, neighbours_of
from dpsep.audit.replay import replay
from dpsep.audit.work import Row
from dpsep.privacy.gate import Reader
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.sampling import FixedSizeSampling, ShuffledEpochs
from dpsep.registry import regressions

Array = NDArray[np.float64]
RECORDS, COLUMNS, GROUPS = 24, 3, 6

FLOW: dict[str, tuple[Any, ...]] = {
    "relation": ("zero-out", "replace-one"),
    "sampling": ("full", 0.25, FixedSizeSampling(6), ShuffledEpochs(6)),
    "noise_aware": (True, False),
    "clip": (None, 0.5),
}
"""Options that every private fit has."""
BOUNDS: tuple[Any, ...] = ((-1.0, 1.0), None)
"""Declared, or found privately."""


class Kind(NamedTuple):
    """An estimator and the options that are crossed.

    Attributes
    ----------
    make
        Returns an estimator with these options.
    options
        Values of each option.
    table
        ``"number"``, ``"count"``, ``"label"`` or ``"none"``: what the outcome is.
    """

    make: Callable[..., Any]
    options: dict[str, tuple[Any, ...]]
    table: str


class Finding(NamedTuple):
    """What became of one combination.

    Attributes
    ----------
    kind, options
        Which.
    outcome
        ``"kept"`` (no difference), ``"refused"`` (not private, said before the charge) or ``"caught"``.
    evidence
        In words.
    """

    kind: str
    options: dict[str, Any]
    outcome: str
    evidence: str


def kinds() -> dict[str, Kind]:
    """Return all estimators that can be private, by name, and their options."""
    from dpsep.estimators import (
        BayesianModel,
        GaussianMixture,
        MixedClassifier,
        MixedRegressor,
        NetworkClassifier,
        NetworkRegressor,
    )
    from dpsep.models.custom import Linear, Normal

    glm = FLOW | {"bounds": BOUNDS, "update": ("stable", "natural"), "fit_intercept": (True, False)}
    bounded = {
        "number": glm | {"target_bounds": BOUNDS},
        "positive": glm | {"target_bounds": (None, (0.1, 9.0))},
    }
    network = FLOW | {
        "bounds": BOUNDS,
        "method": ("sep", "vi", "point"),
        "covariance": ("auto", "diagonal"),
        "activation": ("auto", "relu", "sigmoid", "sine"),
        "direct": (None, False),
        "hidden": (2, (2, 2)),
    }
    mixed = FLOW | {
        "bounds": BOUNDS,
        "unit": ("record", "group"),
        "slopes": ((), (0,)),
        "fit_intercept": (True, False),
    }
    mixture = FLOW | {
        "bounds": BOUNDS,
        "method": ("sep", "vi", "em"),
        "covariance_type": ("diag", "spherical"),
        "noise_scale": (None, 0.3),
        "weights": (None, (0.5, 0.5)),
    }
    labels: dict[str, Any] = {"classes": [-1.0, 1.0]}

    def regress(**options: Any) -> Any:
        options.setdefault("target_bounds", options["bounds"])
        return NetworkRegressor(**options)

    def of_groups(estimator: Any, family: str, **options: Any) -> Any:
        return estimator(family, GROUPS, rows_per_group=4 if options["unit"] == "group" else None, **options)

    def own(**options: Any) -> Any:
        prior = {"spread": Normal(0.0, 0.5)}
        return BayesianModel(_Robust(), prior, {"u": Linear()}, **options)

    return {
        **{
            entry.name: Kind(
                partial(entry.load(), **(labels if entry.target == "label" else {})),
                bounded.get(entry.target, glm),
                entry.target,
            )
            for entry in regressions()
        },
        "mixture": Kind(lambda **o: GaussianMixture(2, **o), mixture, "none"),
        "network": Kind(regress, network, "number"),
        "network classifier": Kind(lambda **o: NetworkClassifier(**labels, **o), network, "label"),
        "own model": Kind(own, FLOW | {"bounds": BOUNDS, "factors": ("quadrature", "laplace")}, "number"),
        "mixed linear": Kind(
            lambda **o: of_groups(MixedRegressor, "linear", **o), mixed | {"target_bounds": BOUNDS}, "number"
        ),
        "mixed poisson": Kind(lambda **o: of_groups(MixedRegressor, "poisson", **o), mixed, "count"),
        "mixed logistic": Kind(
            lambda **o: of_groups(MixedClassifier, "logistic", **labels, **o), mixed, "label"
        ),
    }


def combinations(options: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Generate all combinations.

    Examples
    --------
    >>> len(list(combinations({"a": (1, 2), "b": (1, 2, 3)})))
    6
    """
    for values in product(*options.values()):
        yield dict(zip(options, values, strict=True))


def covering(options: dict[str, tuple[Any, ...]], seed: int = 0) -> list[dict[str, Any]]:
    """Return few combinations in which every pair of values of two options occurs, chosen greedily.

    Examples
    --------
    >>> options = {"a": (1, 2), "b": (1, 2, 3), "c": (True, False), "d": (0, 1)}
    >>> len(covering(options)) < 24
    True
    """
    generator = np.random.default_rng(seed)
    names = list(options)

    def pairs(places: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
        return {(i, places[i], j, places[j]) for i, j in choose(range(len(names)), 2)}

    missing = set().union(
        *(
            {(i, a, j, b) for a in range(len(options[names[i]])) for b in range(len(options[names[j]]))}
            for i, j in choose(range(len(names)), 2)
        )
    )
    found = []
    while missing:
        tries = []
        for _ in range(60):
            i, a, j, b = sorted(missing)[int(generator.integers(len(missing)))]
            places = [int(generator.integers(len(options[name]))) for name in names]
            places[i], places[j] = a, b
            tries.append(tuple(places))
        best = max(tries, key=lambda places: len(pairs(places) & missing))
        missing -= pairs(best)
        found.append({name: options[name][place] for name, place in zip(names, best, strict=True)})
    return found


def try_combination(name: str, options: dict[str, Any], neighbours: int = 8) -> Finding:
    """Replay one combination over neighbours of all kinds.

    Examples
    --------
    >>> flow = {"relation": "zero-out", "sampling": "full", "noise_aware": True, "clip": None}
    >>> try_combination("probit", flow | {"bounds": (-1, 1), "fit_intercept": True}, 2).outcome
    'kept'
    >>> sampling = {"sampling": FixedSizeSampling(6), "bounds": (-1, 1)}
    >>> try_combination("probit", flow | sampling, 2).outcome
    'refused'
    """
    kind = kinds()[name]
    X, y, groups = _table(kind.table)

    def make() -> Any:
        return kind.make(epsilon=4.0, delta=1e-2, steps=4, random_state=1, **options)

    mixed = "unit" in options
    by_group = options.get("unit") == "group"
    refusal = _refusal(make(), X, y, **({"groups": groups} if mixed else {}))
    if refusal is not None:
        return Finding(name, options, *refusal)
    tables: Iterator[Neighbour]
    if by_group:
        tables = group_neighbours_of(X, y, groups, GROUPS, neighbours)
    else:
        tables = (one._replace(groups=groups if mixed else None) for one in neighbours_of(X, y, neighbours))
    report = replay(make, X, y, tables, groups=groups if mixed else None)
    if report.differences:
        first = report.differences[0]
        words = f"{len(report.differences)} differences, the first: {first.what} ({first.neighbour})"
        return Finding(name, options, "caught", words)
    words = f"{report.neighbours} neighbours, {report.releases} releases, farthest {report.farthest:.3f}"
    return Finding(name, options, "kept", words)


def work(which: str) -> list[Callable[[], Row]]:
    """Return replays, of ``"pairs"`` of values or ``"all"`` combinations, as calls that give their rows."""
    chosen = covering if which == "pairs" else combinations
    return [partial(row_of, name, one) for name, kind in kinds().items() for one in chosen(kind.options)]


def row_of(name: str, options: dict[str, Any]) -> Row:
    """Replay one combination and return its row."""
    found = try_combination(name, options)
    words = ", ".join(f"{option}={value}" for option, value in options.items())
    return {
        "target": f"{name}: {words}",
        "attack": "replay",
        "claimed": None,
        "lower_bound": None,
        "confidence": None,
        "caught": found.outcome == "caught",
        "evidence": found.evidence,
        "outcome": found.outcome,
    }


def _refusal(estimator: Any, X: Array, y: Array, **more: Any) -> tuple[str, str] | None:
    """Fit once; return how a combination was refused: in words, and before anything was charged or read."""
    sums, touched = Reader.sums, []

    def tapped(*arguments: Any) -> Any:
        touched.append("records were read")
        return sums(*arguments)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unit = "group" if getattr(estimator, "unit", "record") == "group" else "record"
        ledger = Ledger.create(
            Path(folder) / "ledger", epsilon=100.0, delta=0.5, relation=estimator.relation, unit=unit
        )
        estimator.set_params(ledger=ledger)
        try:
            with mock.patch.object(Reader, "sums", tapped):
                estimator.fit(X, y, **more)
        except ValueError as error:
            words = " ".join(str(error).split())
            if len(ledger.rows()) > 1 or touched:
                return "caught", f"refused after the charge: {words}"
            return "refused", words
    return None


@dataclass(frozen=True)
class _Robust:
    """A Student-t log-likelihood whose scale is learned: a model of one's own."""

    def __call__(self, params: Any, record: Any) -> Any:
        z = (record.y - params["u"]) * jax.numpy.exp(-params["spread"])
        return -params["spread"] - 2.5 * jax.numpy.log1p(z**2 / 4)


def _table(outcome: str) -> tuple[Array, Array, NDArray[np.int64]]:
    generator = np.random.default_rng(5)
    X = generator.uniform(-1.0, 1.0, (RECORDS, COLUMNS))
    y = 0.5 * X[:, 0] + 0.3 * generator.uniform(-1.0, 1.0, RECORDS)
    if outcome == "label":
        y = np.where(y > 0, 1.0, -1.0)
    elif outcome == "count":
        y = generator.poisson(np.exp(y)).astype(np.float64)
    elif outcome == "positive":
        y = np.exp(y)
    return X, y, np.repeat(np.arange(GROUPS), RECORDS // GROUPS)
