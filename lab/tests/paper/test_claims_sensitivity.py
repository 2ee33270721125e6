import math
from collections.abc import Callable
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from dpsep.models import GLM, GaussianLikelihood
from dpsep_lab.paper import claims_search, claims_sensitivity
from dpsep_lab.paper.claims_search import CASES, QUICK, Case, climb
from dpsep_lab.paper.claims_sensitivity import largest_move, path_move, rows

LINEAR, MIXTURE = CASES[0], CASES[3]


@pytest.mark.parametrize("case", [LINEAR, MIXTURE], ids=["linear", "mixture"])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize(("clip", "gamma", "records"), [(1.0, 1.0, 20), (0.3, 50.0, 50)])
def test_one_step_moves_theta_by_the_claim_and_no_more(
    case: Case, relation: Any, clip: float, gamma: float, records: int
) -> None:
    found = largest_move(case, clip, "joint", relation, gamma=gamma, records=records, effort=QUICK)
    assert 0.99 < found <= 1 + 1e-9


@pytest.mark.parametrize("case", [LINEAR, MIXTURE], ids=["linear", "mixture"])
def test_without_the_clip_a_record_moves_theta_far_beyond_the_claim(case: Case) -> None:
    assert largest_move(case, 1.0, "none", effort=QUICK) > 1e3


def test_a_clip_that_is_one_percent_too_wide_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = claims_search.clip_norm
    monkeypatch.setattr(claims_search, "clip_norm", lambda p, bound: right(p, 1.01 * bound))
    leaky = Case("leaky", GLM(GaussianLikelihood(1.0)), "number")  # another name: compiled anew
    assert 1.005 < largest_move(leaky, 1.0, effort=QUICK) <= 1.01 * (1 + 1e-9)


@pytest.mark.parametrize("case", [LINEAR, MIXTURE], ids=["linear", "mixture"])
def test_a_clip_of_each_natural_parameter_allows_up_to_root_two_of_the_claim(case: Case) -> None:
    zero_out = largest_move(case, 1.0, "each", "zero-out", effort=QUICK)
    assert zero_out == pytest.approx(math.sqrt(2), abs=1e-6)
    assert 1.05 < largest_move(case, 1.0, "each", effort=QUICK) <= math.sqrt(2) * (1 + 1e-9)


def test_precisions_of_a_linear_model_are_never_opposite_so_replacing_reaches_root_five_over_two() -> None:
    # Opposite mean parts, 2C apart; one precision at C and the other next to nothing.
    assert largest_move(LINEAR, 1.0, "each") == pytest.approx(math.sqrt(5) / 2, rel=1e-2)


def test_a_path_of_one_step_keeps_to_the_claim_and_one_of_two_steps_does_not() -> None:
    assert path_move(MIXTURE, 1.0, 1, effort=QUICK) <= 1 + 1e-9
    assert path_move(MIXTURE, 1.0, 2, effort=QUICK) > 1.2


def test_in_a_linear_model_the_first_move_only_fades() -> None:
    # Its factors do not depend on the cavity: a step of gamma = N keeps 1 - 1/N of what was.
    assert path_move(LINEAR, 1.0, 4, records=10, effort=QUICK) == pytest.approx(0.9**3, rel=1e-2)


def test_climbing_finds_the_top_and_passes_over_what_is_not_finite() -> None:
    def values(z: np.ndarray) -> np.ndarray:
        height = 3.0 - ((z - 2.0) ** 2).sum(axis=1)
        return np.where(z[:, 0] > 2.5, np.nan, np.where(z[:, 0] > 2.4, np.inf, height))

    assert climb(values, 3, QUICK) == pytest.approx(3.0, abs=0.05)
    assert climb(values, 3, QUICK, seed=1) == climb(values, 3, QUICK, seed=1)


def test_rows_tell_what_was_searched_and_what_two_noises_really_spend() -> None:
    table = rows((LINEAR,), (1.0,), QUICK)
    assert len(table) == 6 + len(claims_sensitivity.PATHS) + 1
    assert {row["n"] for row in table[:-1]} == {QUICK.points}
    for row in table:
        if row["clipping"] == "joint":
            assert row["value"] <= 1 + 1e-9
    mu = _root(lambda mu: _delta(1.0, mu) - 1e-5, 0.01, 5.0)
    spent = _root(lambda epsilon: _delta(epsilon, math.sqrt(2) * mu) - 1e-5, 0.1, 10.0)
    assert table[-1]["value"] == pytest.approx(spent, rel=1e-6)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return cast(float, brentq(function, low, high))


def _delta(epsilon: float, mu: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def test_records_of_the_search_have_the_cells_of_their_point() -> None:
    x, y = CASES[2].record(jnp.array([1.0, -1.0, 0.2]))
    assert np.allclose(x, np.sinh([1.0, -1.0]))
    assert float(y) == 1.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: largest_move(LINEAR, 0.0), "clip and gamma"),
        (lambda: largest_move(LINEAR, 1.0, records=1), "records at least 2"),
        (lambda: largest_move(LINEAR, 1.0, "some"), "clipping must be one of"),  # pyright: ignore[reportArgumentType]
        (lambda: path_move(LINEAR, 1.0, 9), "steps must lie between 1 and 8"),
    ],
    ids=["clip", "records", "clipping", "steps"],
)
def test_what_makes_no_sense_is_refused(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()
