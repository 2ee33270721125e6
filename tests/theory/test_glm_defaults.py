"""Settings of linear weights: how far clips reach, and what is done where noise hides the precision."""

import math
from typing import Any

import pytest

from dpsep.estimators import run
from dpsep.theory.glm_defaults import REACH, SPARE, TAILS, weights_plan
from dpsep_lab.bench import planning


def multiple(epsilon: float, **more: Any) -> float:
    """Clip of the mean part, over the norm of a typical record."""
    return weights_plan(20_000, 8, epsilon, 1e-5, **more).mean_clip / math.sqrt(8 / 20_000)


def test_beyond_the_tails_a_clip_may_cost_less_noise() -> None:
    wide = [multiple(epsilon) for epsilon in (0.1, 0.5, 1.0, 30.0)]
    kept = [multiple(epsilon, spare=SPARE) for epsilon in (0.1, 0.5, 1.0, 30.0)]
    assert kept[0] == wide[0] < TAILS, "what noise leaves is taken whole"
    assert TAILS <= kept[1] < wide[1]
    assert kept[2] == pytest.approx(max(TAILS, SPARE * wide[2]))
    assert kept[3] == wide[3] == pytest.approx(12 * REACH), "with budget to spare both reach as far"


@pytest.mark.deep
def test_a_precision_that_noise_hides_is_drawn_towards_its_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    def losses() -> float:
        rows = planning.regression(
            "hidden", "linear", lambda k: planning.made("linear", 3000, 40, k), (0.5,), fits=3
        )
        return next(row["value"] for row in rows if "quadratic" in row["metric"])

    drawn = losses()
    monkeypatch.setattr(run, "HIDDEN", math.inf)
    assert drawn < 0.5 * losses()
