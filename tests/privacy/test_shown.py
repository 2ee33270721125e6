"""Amounts of privacy are never shown smaller than they are, wherever they are shown."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpsep
from dpsep.cli.metrics import Metrics
from dpsep.estimators.statement import PrivacyStatement
from dpsep.privacy.shown import down, up

AMOUNTS = st.floats(1e-290, 1e290)
STATEMENT = PrivacyStatement(
    *(1.00049, 1.0449e-5, "zero-out"),
    **{
        "unit": "record",
        "sampling": "full batch",
        "sigma": 15.5,
        "steps": 16,
        "accountant": "exact Gaussian",
    },
    **{"scaling": "declared bounds", "secure": True, "run": "a1"},
)


@given(value=AMOUNTS, digits=st.integers(1, 8))
def test_what_was_spent_is_rounded_up_and_what_is_left_down_to_the_next_number(
    value: float, digits: int
) -> None:
    tolerance = 1e-15 * value  # a few roundings of doubles
    assert value - tolerance <= float(up(value, digits)) <= value * (1 + 10.0 ** (1 - digits)) + tolerance
    assert value * (1 - 10.0 ** (1 - digits)) - tolerance <= float(down(value, digits)) <= value + tolerance


def test_numbers_that_fit_are_shown_as_they_are() -> None:
    assert [up(value) for value in (0.0, 0.1 + 0.2, 1.0, 8, 1e-5, math.inf)] == [
        *("0", "0.3", "1", "8", "1e-05", "inf")
    ]


def test_a_statement_does_not_promise_more_than_holds() -> None:
    """Epsilon 1.00049 and delta 1.0449e-5 were printed as 1 and 1e-05, in one sentence."""
    said = STATEMENT.sentence()
    assert "(1.001, 1.045e-05)-differentially private" in said
    assert "e^1.001 times as likely" in said
    assert "plus 1.045e-05" in said


def test_metrics_and_their_sum_with_the_fit_are_rounded_up() -> None:
    charged = {"epsilon": 0.50004, "delta": 1.0001e-6, "rows": 80}
    said = Metrics({"metrics": {}}, charged).sentence(STATEMENT)
    assert "(0.5001, 1.001e-06)-differentially private" in said
    assert "counts as (1.501, 1.145e-05)" in said


FORMATTED = re.compile(r"\{[^{}\"']*\b(epsilon|delta)[^{}\"']*:[^{}]*[gfe]\}")
ROOMS = ("cli", "data", "estimators", "federated", "privacy", "report", "theory")


@pytest.mark.parametrize("room", ROOMS)
def test_no_epsilon_or_delta_is_formatted_by_itself(room: str) -> None:
    """What bench and paper print are settings and figures of the paper."""
    place = Path(dpsep.__file__).parent / room
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORMATTED.search(line)
    ]
    assert found == []
