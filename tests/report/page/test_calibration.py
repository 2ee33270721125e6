"""The plain answer on calibration: made-up histograms whose answer is known."""

import math
from typing import Any

import numpy as np
import pytest

from dpsep.report.page.calibration import answer, explained

EDGES = np.linspace(0.0, 1.0, 11).round(1).tolist()


def numbers(
    spread: float, shift: float = 0.0, rows: int = 5000, noise: float | None = None
) -> dict[str, Any]:
    """Targets whose true spread and place are so much off from N(0, 1), by exact probabilities."""
    inner = [_quantile(edge) for edge in EDGES[1:-1]]
    below = [0.0, *(_normal((z - shift) / spread) for z in inner), 1.0]
    share = np.diff(below).tolist()
    inside = [sum(share[5 - k : 5 + k]) for k in range(1, 6)]
    return {
        "source": "public",
        "pit": {"edges": EDGES, "share": share, "noise_sd": noise, "rows": rows},
        "coverage": {
            "level": [0.2, 0.4, 0.6, 0.8, 1.0],
            "share": inside,
            "noise_sd": None if noise is None else [noise] * 5,
            "rows": rows,
        },
    }


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _quantile(p: float) -> float:
    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _normal(middle) < p else (low, middle)
    return low


def labels(slope: float, shift: float = 0.0, rows: int = 1000) -> dict[str, Any]:
    """Chances 0.05 to 0.95, of which happens what lies slope times as far from one half."""
    said = [0.05 + 0.1 * place for place in range(10)]
    came = [min(max(0.5 + slope * (p - 0.5) + shift, 0.0), 1.0) for p in said]
    part = {"predicted": said, "observed": came, "rows": [rows] * 10, "noise_sd": None}
    return {"source": "public", "reliability": part}


@pytest.mark.parametrize(
    ("spread", "shift", "word"),
    [
        (1.0, 0.0, "good"),
        (2.0, 0.0, "too narrow"),
        (0.5, 0.0, "too wide"),
        (1.0, 0.6, "shifted: targets lie too high"),
        (2.5, -1.0, "too narrow, and shifted: targets lie too low"),
    ],
)
def test_intervals_are_judged_by_their_width_and_place(spread: float, shift: float, word: str) -> None:
    found = answer(numbers(spread, shift))
    assert found is not None
    assert found.word == word


def test_the_numbers_stand_in_the_answer() -> None:
    found = answer(numbers(2.0))
    assert found is not None
    inside = _normal(_quantile(0.9) / 2) - _normal(_quantile(0.1) / 2)  # 48 % of N(0, 4) in the 80 % interval
    assert f"{100 * inside:.0f} % of the targets lie inside their 80 % interval" in found.sentence


def test_few_rows_or_much_noise_leave_the_answer_open() -> None:
    for given in (numbers(1.5, rows=20), numbers(1.5, noise=0.1)):
        found = answer(given)
        assert found is not None
        assert found.word == "cannot be told"
    found = answer(numbers(1.15, rows=60))  # a difference that chance explains
    assert found is not None
    assert found.word in ("good", "cannot be told")


@pytest.mark.parametrize(
    ("slope", "shift", "word"),
    [
        (1.0, 0.0, "good"),
        (0.5, 0.0, "too sure"),
        (1.5, 0.0, "too timid"),
        (1.0, 0.2, "shifted: the second class is given too little"),
        (1.0, -0.2, "shifted: the second class is given too much"),
    ],
)
def test_chances_are_judged_by_how_sure_they_are_and_by_their_place(
    slope: float, shift: float, word: str
) -> None:
    found = answer(labels(slope, shift))
    assert found is not None
    assert word in found.word


def test_bins_that_say_nothing_are_left_out() -> None:
    given = labels(0.5)
    part = given["reliability"]
    part["observed"] = [None, *part["observed"][1:]]
    part["noise_sd"] = [None, *[0.001] * 9]
    found = answer(given)
    assert found is not None
    assert found.word.startswith("too sure")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"pit": 1, "coverage": 2},
        {"reliability": {}},
        {"reliability": {"predicted": [0.5], "observed": [None], "rows": [1]}},
        numbers(1.0, rows=0),
        numbers(math.nan),
    ],
)
def test_a_histogram_that_is_none_gets_no_answer(given: dict[str, Any]) -> None:
    assert answer(given) is None


def test_only_counts_are_said_to_come_in_jumps() -> None:
    assert "jumps" in explained("PoissonRegression")
    assert explained("LinearRegression") == ""
