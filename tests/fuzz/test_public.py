"""Every public function under odd arguments: a result, or an error of a kind that says what is wrong.

Allowed are ValueError, TypeError, the errors of this library, and of functions that take a path those of the
operating system; all with words. Never another kind, never a wait.
"""

import signal
import warnings
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .calls import ELSEWHERE, MODULES, Call, calls, public_names

ALLOWED = (ValueError, TypeError, OSError)
SMALL: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, float("nan"), float("inf"), -float("inf"), 1e-320, "", "x", "\u202e\0é"),
    *(b"x", [], [1, 2], [[1, 2], [3]], {}, {"a": [1]}, (), set(), object(), len, 1j, date(2000, 1, 1)),
    *(Fraction(1, 3), Path("/dev/null/x"), np.float32("nan"), np.int64(-1), np.array(["a"])),
    *(np.zeros((0, 2)), np.zeros((2, 0)), np.zeros((1, 1, 1)), np.array([None, "x"], object)),
)
"""Values of types, sizes and shapes that a caller may mistake for right ones."""
ODD: tuple[Any, ...] = (
    *(*SMALL, 10**400, -(10**400), 2**63, 1e308, -1e308, "x" * 100_000, np.array([1e308, np.inf, np.nan])),
    *(np.full((3, 2), np.nan), np.array([[1 + 2j]]), [float("nan")] * 3, [["a", None], [1]], ["a", 1, None]),
)
TABLES: tuple[Any, ...] = (
    *({"a": [1, 2], "b": [1]}, {"a": "x"}, {1: [2]}, {"a": [[1], [2]], "b": [object(), 1]}, {"a": None}),
    *(pl.DataFrame(), pl.DataFrame({"a": [date(2000, 1, 1)]}), pd.DataFrame(), pd.DataFrame({"a": ["x"]})),
    *(pl.DataFrame({"a": [[1]], "b": ["x"]}), pl.DataFrame({"a": [b"x"], "b": [None]}), pl.Series([1])),
    *(pd.DataFrame([[1, 2]], columns=["a", "a"]), pa.table({"a": [b"x"]}), pl.LazyFrame({"a": [1]})),
    *({"a": [2**70], "b": ["x"]}, pa.table({"a": [1], "b": [None]}), np.ma.masked_all((2, 2))),
)
"""Odd tables, for arguments that are tables."""
NUMBERS = st.floats() | st.integers(-(10**30), 10**30)
KNOWN: dict[tuple[str, str], str] = {
    ("dpsep.Ledger", "epsilon"): "OverflowError",
    ("dpsep.Ledger", "delta"): "OverflowError",
    ("dpsep.Ledger.charge", "epsilon"): "OverflowError",
    ("dpsep.Ledger.charge", "delta"): "OverflowError",
    ("dpsep.calibration", "y"): "IndexError",
    ("dpsep.calibration", "levels"): "OverflowError",
    ("dpsep.calibration", "bins"): "OverflowError",
    ("audit.lower_bound", "delta"): "OverflowError",
    ("audit.lower_bound", "confidence"): "OverflowError",
    ("audit.one_run_bound", "delta"): "OverflowError",
    ("report.plots.plot_pit", "bins"): "ZeroDivisionError",
    ("report.plots.plot_predictive", "X"): "IndexError",
    ("report.plots.plot_predictive", "y"): "IndexError",
    ("report.plots.plot_predictive", "level"): "OverflowError",
    ("report.plots.plot_predictive", "draws"): "OverflowError",
    ("privacy.accounting.Mechanism", "steps"): "OverflowError",
    ("privacy.accounting.Mechanism", "sigma"): "OverflowError",
    ("privacy.accounting.calibrate", "target_epsilon"): "OverflowError",
    ("privacy.accounting.calibrate", "steps"): "OverflowError",
    ("privacy.accounting.calibrate_schedule", "target_epsilon"): "OverflowError",
    ("privacy.accounting.gaussian_delta", "epsilon"): "OverflowError",
    ("privacy.accounting.gaussian_delta", "mu"): "OverflowError",
    ("privacy.accounting.gaussian_epsilon", "mu"): "OverflowError",
    ("privacy.accounting.gaussian_event", "sigma"): "OverflowError",
    ("privacy.accounting.gaussian_mu", "epsilon"): "OverflowError",
    ("privacy.accounting.rdp_to_delta", "curve"): "OverflowError",
    ("privacy.accounting.rdp_to_delta", "epsilon"): "OverflowError",
    ("privacy.accounting.rdp_to_epsilon", "curve"): "OverflowError",
    ("privacy.checkpoint.Checkpoint.save", "arrays"): "AttributeError",
    ("privacy.noise.SeededStream", "seed"): "OverflowError",
    ("privacy.noise.float_gaussian", "sd"): "OverflowError",
    ("privacy.noise.rounded_gaussian", "sd"): "OverflowError",
    ("privacy.sampling.FixedSizeSampling", "size"): "OverflowError",
    ("privacy.sampling.ShuffledEpochs", "size"): "OverflowError",
    ("privacy.sampling.permutation", "n"): "IndexError",
    ("privacy.sampling.uniform_integers", "bound"): "AttributeError",
}
"""Arguments whose refusal is still Python's own, in words that do not name them; none may be added."""
METHODS = ("dpsep.Ledger.charge", "data.Schema.from_dict", "privacy.checkpoint.Checkpoint.save")
NAMES = sorted({name for name, _ in public_names()} - set(ELSEWHERE)) + list(METHODS)


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, Call]]:
    plt.switch_backend("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield calls()


def test_every_public_name_is_fuzzed(table: dict[str, Call]) -> None:
    named = {name for name, _ in public_names()}
    missing = named - set(table) - set(ELSEWHERE)
    assert not missing, f"no odd arguments are tried on {sorted(missing)}: add a call to tests/fuzz/calls.py"
    assert set(ELSEWHERE) <= named
    assert len(named) > 60
    assert len(MODULES) == 13


def attempt(call: Call, arguments: dict[str, Any]) -> str | None:
    """Call a function; return the kind of an error that is not allowed."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 5.0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.function(**arguments)
    except TimeoutError:
        return "more than five seconds"
    except BaseException as error:
        ours = type(error).__module__.split(".")[0] == "dpsep"
        if not ours and not isinstance(error, ALLOWED):
            return type(error).__name__
        return None if str(error) else "an error without words"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        plt.close("all")
    return None


def values(call: Call, argument: str) -> st.SearchStrategy[Any]:
    """Return odd values for an argument."""
    if argument in call.few:
        return st.sampled_from(SMALL)
    if argument in ("X", "y", "table", "declaration", "arrays"):
        return st.sampled_from(ODD + TABLES)
    return st.sampled_from(ODD) | NUMBERS | st.text(max_size=20) | st.lists(NUMBERS, max_size=4)


@pytest.mark.parametrize("name", NAMES)
def test_odd_arguments_give_a_result_or_words(
    name: str, table: dict[str, Call], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # an odd text may be a path
    call = table[name]
    assert attempt(call, call.right) is None

    @settings(max_examples=14, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(call.odd), min_size=1, max_size=2, unique=True))
        changed = {argument: data.draw(values(call, argument)) for argument in chosen}
        kind = attempt(call, call.right | changed)
        assert kind is None or kind in {KNOWN.get((name, argument)) for argument in chosen}

    if call.odd:
        holds()


def test_what_is_not_allowed_is_seen() -> None:
    def broken(a: Any) -> None:
        raise KeyError(a)

    def silent(a: Any) -> None:
        raise ValueError

    assert attempt(Call(broken, {}, ("a",)), {"a": 1}) == "KeyError"
    assert attempt(Call(silent, {}, ("a",)), {"a": 1}) == "an error without words"
