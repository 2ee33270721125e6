import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.inference import sep
from dpsep_lab.paper import claims_all, claims_network
from dpsep_lab.paper.claims_network import made_split
from dpsep_lab.paper.claims_stability import problem, rows, summary
from dpsep_lab.paper.networks import Scores

Row = dict[str, Any]
LOST = "share of runs that lose positive definiteness"


@pytest.fixture(scope="module")
def mixture() -> list[Row]:
    return rows(("mixture",), (math.inf, 1e6, 1.0), (1.0, 25.0), seeds=4, records=100, passes=4)


@pytest.fixture(scope="module")
def probit() -> list[Row]:
    return rows(("probit, separable",), (math.inf, 0.3), (1.0, 25.0), seeds=3, records=60, passes=10)


def _value(table: list[Row], quantity: str, clip: float | None, speed: float) -> float:
    found = [r for r in table if (r["quantity"], r["clip"], r["gamma_over_n"]) == (quantity, clip, speed)]
    assert len(found) == 1
    return found[0]["value"]


def test_a_clip_that_nothing_reaches_changes_nothing(mixture: list[Row]) -> None:
    for speed in (1.0, 25.0):
        assert _value(mixture, "error, median", 1e6, speed) == _value(mixture, "error, median", None, speed)
        for side in ("smaller", "larger"):
            share = _value(mixture, f"share of runs with a {side} error than without a clip", 1e6, speed)
            assert share == 0.0


def test_sep_keeps_its_precision_and_a_run_that_is_far_too_fast_loses_it(mixture: list[Row]) -> None:
    assert _value(mixture, LOST, None, 1.0) == 0.0
    assert _value(mixture, LOST, None, 25.0) == 1.0
    assert _value(mixture, "updates skipped, mean of runs", None, 25.0) > 1


def test_a_small_clip_hurts_at_the_speed_of_sep(mixture: list[Row], probit: list[Row]) -> None:
    for table, clip in ((mixture, 1.0), (probit, 0.3)):
        plain = _value(table, "error, median", None, 1.0)
        assert _value(table, "error, median", clip, 1.0) > 10 * plain


def test_a_log_concave_likelihood_never_loses_positive_definiteness(probit: list[Row]) -> None:
    assert {row["value"] for row in probit if row["quantity"] == LOST} == {0.0}


def test_runs_are_those_of_sep_and_errors_are_divergences_from_expectation_propagation() -> None:
    small = {"seeds": 1, "records": 30}
    table = rows(("probit, heavy tails",), (math.inf,), (1.0,), **small, passes=3)
    data = problem("probit, heavy tails", **small)
    generator = np.random.default_rng([0, 1])
    order = np.concatenate([generator.permutation(30) for _ in range(3)])
    with jax.enable_x64(True):
        settings = sep.Settings(data.prior, 30, 30.0)
        first = jax.tree.map(lambda leaf: leaf[0], data.records)
        q = sep.posterior(settings, sep.run(data.model, settings, first, order))
        assert _value(table, "error, median", None, 1.0) == pytest.approx(data.error(0, q), rel=1e-9)
        assert data.error(0, q) > 1e-4
        assert not math.isfinite(data.error(0, q._replace(precision=-jnp.eye(3))))


def test_a_summary_counts_what_diverged_and_compares_run_by_run() -> None:
    skipped, plain = np.array([0.0, 3.0, 0.0, 1.0]), np.array([1.0, 2.0, np.nan, 3.0])
    found = {row["quantity"]: row for row in summary({}, skipped, np.array([0.5, 2.0, 9.0, np.inf]), plain)}
    assert found[LOST]["value"] == 0.5
    assert found[LOST]["standard_error"] == pytest.approx(0.25)
    assert found["updates skipped, mean of runs"]["value"] == 1.0
    assert found["error, median"]["value"] == 5.5
    assert found["error, worst"]["value"] is None
    assert found["share of runs with a smaller error than without a clip"]["value"] == 0.5
    assert found["share of runs with a larger error than without a clip"]["value"] == 0.25


def test_outliers_are_in_the_training_part_alone() -> None:
    plain, wild = (made_split(0, case) for case in claims_network.CASES)
    assert np.array_equal(plain.y_test, wild.y_test)
    assert np.abs(wild.y).max() > 2 * np.abs(plain.y).max()


def test_a_network_run_that_diverges_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(passes: int, *, gamma: Any, clip: float) -> Any:
        bad = Scores(math.nan, math.nan) if clip == math.inf else Scores(0.5, -1.0)
        return lambda split: bad if split.number else Scores(0.6, -1.1)

    monkeypatch.setattr(claims_network, "written", broken)
    table = claims_network.rows(("network",), (math.inf, 1.0), seeds=2, records=30)
    assert _value(table, "share of runs that diverge", None, 1.0) == 0.5
    assert _value(table, "share of runs that diverge", 1.0, 1.0) == 0.0
    assert _value(table, "share of runs with a smaller error than without a clip", 1.0, 1.0) == 0.5
    assert _value(table, "test error, worst", None, 1.0) is None


@pytest.mark.deep
def test_all_claims_together_are_rows_ready_for_json() -> None:
    calls: list[tuple[int, int]] = []
    table = claims_all.rows(quick=True, on_step=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 7) for done in range(1, 8)]
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    for row in table:
        assert set(row) >= {"claim", "case", "quantity", "value", "standard_error", "n"}
        assert row["value"] is None or math.isfinite(row["value"])
    assert len({row["claim"] for row in table}) == 5


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: problem("poisson"), "name must be one of 'mixture'"),
        (lambda: rows(("mixture",), (1.0,)), "clips must begin with infinity"),
        (lambda: claims_network.rows(("network",), ()), "clips must begin with infinity"),
        (lambda: made_split(0, "circle"), "case must be one of 'network'"),
    ],
    ids=["problem", "clips", "no clips", "case"],
)
def test_what_makes_no_sense_is_refused(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()
