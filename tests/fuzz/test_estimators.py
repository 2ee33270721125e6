"""Estimators under odd parameters and on odd tables: words, before anything is compiled or read.

A ledger without budget ends every fit that passes the checks of public structure: its refusal comes after all
of them and before the first record. So what a message says was said without a record.
"""

import signal
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import dpsep
from dpsep import Ledger, Linear
from dpsep.privacy.sampling import PoissonSampling

from .calls import ESTIMATORS
from .test_public import ALLOWED, ODD

ROWS = 12
X = np.linspace(-1, 1, 2 * ROWS).reshape(ROWS, 2)
BINARY = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
COUNTS = np.arange(ROWS) % 4.0
GROUPS = np.arange(ROWS) % 3


def log_likelihood(params: Any, record: Any) -> Any:
    return jax.nn.log_sigmoid(record.y * params["u"])


PLAIN: dict[str, Any] = {"bounds": (-1.0, 1.0), "delta": 1e-3}
CLASSES: dict[str, Any] = PLAIN | {"classes": [-1.0, 1.0]}
MIXED: dict[str, Any] = {"groups": 3, "rows_per_group": 4}
RIGHT: dict[str, dict[str, Any]] = {
    "BayesianModel": CLASSES | {"log_likelihood": log_likelihood, "links": {"u": Linear()}},
    "GaussianMixture": PLAIN | {"n_components": 2},
    "GammaRegression": PLAIN | {"target_bounds": (0.5, 2.0)},
    "LinearRegression": PLAIN | {"target_bounds": (-1.0, 1.0)},
    "LogisticRegression": CLASSES,
    "MixedClassifier": CLASSES | MIXED,
    "MixedRegressor": PLAIN | MIXED,
    "NegativeBinomialRegression": PLAIN,
    "NetworkClassifier": CLASSES,
    "NetworkRegressor": PLAIN | {"target_bounds": (-1.0, 1.0)},
    "PoissonRegression": PLAIN,
    "ProbitRegression": CLASSES,
    "StudentRegression": PLAIN | {"target_bounds": (-1.0, 1.0)},
}
"""Parameters with which each estimator can be fitted."""
HOST = ("ledger", "checkpoint", "random_state", "log_likelihood", "mean", "sample", "prior", "links")
"""Parameters that are places, generators or a user's own functions: not made odd here."""
KNOWN: dict[str, tuple[str, ...]] = {}
"""Parameters whose refusal is still Python's own, in words that do not name them; none may be added."""


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ledger]:
    """Ledgers without room for a fit, by unit."""
    place = tmp_path_factory.mktemp("spent")
    units = ("record", "group")
    return {unit: Ledger.create(place / unit, epsilon=1e-300, delta=1e-300, unit=unit) for unit in units}


def answer(name: str) -> Any:
    if name == "GaussianMixture":
        return None
    if name in ("PoissonRegression", "NegativeBinomialRegression", "GammaRegression"):
        return COUNTS + (name == "GammaRegression")
    return BINARY


def said(name: str, spent: dict[str, Ledger], table: Any = X, y: Any = ..., **odd: Any) -> tuple[str, str]:
    """Fit; return the kind of error and its words."""
    parameters = RIGHT[name] | {"ledger": spent["record"], "epsilon": 1.0} | odd
    by_group = {"groups": GROUPS} if "Mixed" in name else {}

    def late(*_: object) -> None:
        raise AssertionError(f"{name} with {list(odd)} does not come to an end")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 120.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(dpsep, name)(**parameters).fit(table, answer(name) if y is ... else y, **by_group)
    except AssertionError:
        raise
    except BaseException as error:
        ours = type(error).__module__.split(".")[0] == "dpsep"
        kind = type(error).__name__
        return (kind if ours or isinstance(error, ALLOWED) else f"NOT ALLOWED: {kind}"), str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return "fitted", ""


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_right_fit_ends_at_the_ledger(name: str, spent: dict[str, Ledger]) -> None:
    kind, words = said(name, spent)
    assert kind == "OverBudget", words


PARAMETERS = [
    (name, parameter)
    for name in ESTIMATORS
    for parameter in getattr(dpsep, name)().get_params(deep=False)
    if parameter not in HOST and parameter != "private"
]


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_odd_parameters_are_refused_in_words(name: str, parameter: str, spent: dict[str, Ledger]) -> None:
    start = len(name) + len(parameter)  # a part of the values each, and all of them over all estimators
    for value in ODD[start % 6 :: 6]:
        kind, words = said(name, spent, **{parameter: value})
        assert kind != "fitted", f"{parameter} = {value!r:.60} reached the records"
        wrong = kind.removeprefix("NOT ALLOWED: ")
        assert wrong == kind or wrong in KNOWN.get(parameter, ()), (
            f"{parameter} = {value!r:.60}: {kind} {words}"
        )
        assert words, f"{parameter} = {value!r:.60}"


STRUCTURES: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "text": "x",
    "a dictionary": {"a": [1.0] * ROWS},
    "one dimension": X[:, 0],
    "three dimensions": X[None],
    "no rows": X[:0],
    "no columns": X[:, :0],
    "one row": X[:1],
    "complex numbers": X + 1j,
    "texts": X.astype(str),
    "days": np.array(["2000-01-01"] * 2 * ROWS, "M8[D]").reshape(ROWS, 2),
    "fields": np.zeros(ROWS, [("a", float), ("b", float)]),
    "bytes": b"x" * ROWS,
    "a sparse matrix": sparse.csr_matrix(X),
    "a first row that is none": [5, *X[1:].tolist()],
    "an empty list": [],
    "a generator": (row for row in X),
    "a text column": pl.DataFrame({"a": X[:, 0], "b": ["x"] * ROWS}),
    "a name twice": pd.DataFrame(X, columns=["a", "a"]),
    "an object column": pd.DataFrame({"a": X[:, 0], "b": [object()] * ROWS}),
    "lists in cells": pl.DataFrame({"a": [[1.0]] * ROWS}),
    "bytes in cells": pa.table({"a": [b"x"] * ROWS}),
    "another number of rows": X[:5],
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_odd_structures_are_refused_in_words(name: str, structure: str, spent: dict[str, Ledger]) -> None:
    kind, words = said(name, spent, STRUCTURES[structure])
    assert not kind.startswith(("NOT", "fitted")), f"{kind}: {words}"
    assert words


def replaced(value: Any) -> np.ndarray:
    table = X.astype(float if isinstance(value, float) else object)
    table[7, 1] = value
    return table


CELLS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "not a number": (lambda: X, lambda: replaced(np.nan)),
    "infinite": (lambda: X, lambda: replaced(-np.inf)),
    "far outside": (lambda: X, lambda: replaced(1e300)),
    "a text among objects": (lambda: X.astype(object), lambda: replaced("a secret")),
    "nothing among objects": (lambda: X.astype(object), lambda: replaced(None)),
    "a list among objects": (lambda: X.astype(object), lambda: replaced([1, 2])),
    "a text in a list": (X.tolist, lambda: [*X[1:].tolist(), ["a secret", 1.0]]),
    "a short row": (X.tolist, lambda: [*X[1:].tolist(), [1.0]]),
    "a row that is none": (X.tolist, lambda: [*X[1:].tolist(), 5]),
    "a null": (
        lambda: pl.DataFrame(X),
        lambda: pl.DataFrame(X).with_columns(column_1=pl.lit(None, pl.Float64)),
    ),
    "a pandas cell": (lambda: pd.DataFrame(X), lambda: pd.DataFrame(replaced(np.nan))),
    "all the same": (lambda: X, lambda: np.zeros_like(X)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("cell", CELLS)
def test_no_cell_changes_what_is_said(name: str, cell: str, spent: dict[str, Ledger]) -> None:
    table, neighbour = CELLS[cell]
    assert said(name, spent, table()) == said(name, spent, neighbour())


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "GaussianMixture"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300, 7.5, -1.0])
def test_no_target_changes_what_is_said(name: str, value: float, spent: dict[str, Ledger]) -> None:
    y = np.array(answer(name), copy=True)
    y[7] = value
    assert said(name, spent, y=y) == said(name, spent)
    texts = np.array(answer(name), object)
    neighbour = texts.copy()
    neighbour[7] = "a secret"
    assert said(name, spent, y=neighbour) == said(name, spent, y=texts)


def test_a_sampling_scheme_is_refused_before_the_table_is_read(spent: dict[str, Ledger]) -> None:
    kind, words = said("LogisticRegression", spent, sampling=PoissonSampling(0.5), relation="nobody")
    assert kind == "ValueError"
    assert "relation" in words
