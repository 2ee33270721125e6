import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dpsep.privacy.accounting import Mechanism
from dpsep.privacy.sampling import FullBatch, ShuffledEpochs
from dpsep_lab.paper import (
    claims_all,
    claims_budget,
    claims_noise,
    theorem,
    theorem_cases,
    theorem_plots,
    theorem_report,
)
from dpsep_lab.paper.theorem import Point
from dpsep_lab.paper.theorem_rows import only, theorem_row

Row = dict[str, Any]
KEYS = [
    *("table", "row", "source", "dataset", "method", "epsilon", "relation"),
    *("metric", "mean", "median", "sd", "n", "setting"),
]


def _point(**changes: Any) -> Point:
    return Point(2, 1_000, 10.0, 0.5)._replace(**changes)


def _claims(claim: str, **setting: Any) -> Row:
    return {
        "claim": claim,
        "quantity": "signal over noise",
        "value": 1.0,
        "standard_error": 0.5,
        "n": 4,
        **setting,
    }


@pytest.fixture(scope="module")
def quick() -> list[Row]:
    """A small run without its claims, which have tests of their own, but for made-up ones."""
    points = theorem.grid((2,), (100, 10_000, 1_000_000), (1.0, 10.0), epsilons=())
    found = theorem.grid_rows(points, 500)
    found += theorem.rate_rows(found)
    found += theorem_cases.search_rows(2, "shift", 40, climbs=0, draws=100)
    found += theorem_cases.known_rows(200)
    found += theorem_cases.check_rows(((2, 60, 200),))
    found += theorem_cases.literal_rows((4_000,), 3)
    found += theorem_cases.clipping_rows(7)
    return found + _made_claims()


def _made_claims() -> list[Row]:
    def row(
        claim: str, metric: str, value: float, method: str = "m", relation: str = "none", **setting: Any
    ) -> Row:
        given = {"claim": claim, "quantity": metric, "value": value, "standard_error": None, "n": 1}
        return given | {"method": method, "relation": relation, **setting}

    step, whole = "1/N beats 1/B, one step", "1/N beats 1/B, whole run"
    rate, stable = "sigma_1 = sigma_2 = 2 C sigma / N", "clipping stabilises SEP"
    names = ("sigma", "C sigma / N, noise of one step", "C sigma sqrt(T / N), noise of a run")
    made = [
        row(
            "Proposition 1",
            "largest move",
            value,
            "x",
            "replace-one",
            case="x",
            what="one step",
            clipping=kind,
        )
        for kind, value in (("joint", 0.75), ("each", 1.25), ("none", 40.0))
    ]
    made += [
        row(step, "signal over noise", float(batch), method, case="linear", records=100, batch=batch)
        for method in ("DP-SEP", "DP-SGD")
        for batch in (1, 10)
    ]
    share = "signal over noise, as a share of full batches'"
    made += [row(whole, share, v, case="linear", records=100, batch=b) for b, v in ((1, 0.25), (100, 1.0))]
    made += [
        row(rate, f"exponent in N of {name}", -0.5 * place, "zero-out", "zero-out", case="made")
        for place, name in enumerate(names)
    ]
    for clip, error in ((None, 2.0), (1.0, 0.5)):
        setting = {"case": "made", "clip": clip, "gamma_over_n": 1.0}
        made += [row(stable, "error, median", error, **setting)]
        made += [row(stable, "share of runs that lose positive definiteness", 0.0, **setting)]
    return [theorem._claim(one) for one in made]  # pyright: ignore[reportPrivateUsage]


@pytest.mark.deep
def test_every_row_has_the_keys_of_the_paper_s_tables_and_is_json(quick: list[Row]) -> None:
    assert all(list(row) == KEYS for row in quick)
    json.dumps(quick, allow_nan=False)
    assert {row["source"] for row in quick} == {"printed", "corrected", "simulated", "exact", "definition"}


def test_a_pass_of_one_record_a_step_spends_the_target_and_is_one_release() -> None:
    for epsilon in (0.5, 8.0):
        sigma = 1_000 * theorem.noise_of_a_step(1_000, epsilon)
        found = Mechanism(ShuffledEpochs(1), "replace-one", 1_000, sigma, 1_000).epsilon(1e-5)
        once = Mechanism(FullBatch(), "replace-one", 1, sigma, 1_000).epsilon(1e-5)
        assert epsilon * 0.999 <= found <= epsilon
        assert found == pytest.approx(once, rel=1e-9)
    assert theorem.noise_of_a_step(10**6, 1.0) == pytest.approx(theorem.noise_of_a_step(100, 1.0) / 1e4)


def test_a_posterior_has_the_spectrum_and_the_mean_it_is_said_to_have() -> None:
    for growth, scale in (("fixed", 1.0), ("grows", 10.0)):
        eta, precision = theorem.posterior(_point(d=4, growth=growth))
        values = np.linalg.eigvalsh(precision)
        assert values == pytest.approx(scale * np.geomspace(1.0, 10.0, 4))
        assert np.linalg.norm(np.linalg.solve(precision, eta)) == pytest.approx(1.0)


@pytest.mark.deep
def test_where_noise_is_small_the_simulation_is_the_second_order_formula(quick: list[Row]) -> None:
    point = _point(N=10**6)
    eta, precision = theorem.posterior(point)
    sigma = theorem.noise_of_a_step(point.N, 1.0)
    S = np.linalg.inv(precision)
    a = S @ eta
    M = sigma**2 * (S + np.trace(S) * np.eye(2) - np.diag(np.diag(S)))
    expected = 0.5 * (0.5 * np.trace(S @ M) + sigma**2 * np.trace(S) + a @ M @ a)
    rows = only(quick, "bounds", N=point.N, condition=10.0, floor=0.5, growth="fixed")
    (floor,) = only(rows, source="simulated", method="floor")
    assert abs(floor["mean"] - expected) < 4.0 * floor["sd"] / math.sqrt(floor["n"])
    assert floor["mean"] == pytest.approx(expected, rel=0.2)
    assert only(rows, source="corrected")[0]["mean"] == pytest.approx(expected, rel=1e-3)


def test_rates_are_those_of_powers_and_undefined_bounds_have_none() -> None:
    def bound(n: int, floor: float, value: float | None) -> Row:
        setting = {"d": 2, "N": n, "floor": floor}
        row = theorem_row("bounds", "printed", "shift", "expected KL", 0.0, setting=setting)
        return row | {"epsilon": 1.0, "mean": value}

    sizes = (100, 1_000, 10_000, 100_000)
    rows = [bound(n, 1.0, 50.0 if n == 100 else 3.0 * n**-1.5) for n in sizes]
    rows += [bound(n, 0.5, 7.0 if n == 100_000 else None) for n in sizes]
    found = theorem.rate_rows(rows)
    assert [row["setting"]["floor"] for row in found] == [1.0, 0.5]
    assert found[0]["mean"] == pytest.approx(-1.5)
    assert found[1]["mean"] is None


def test_the_printed_bound_falls_as_one_over_n_and_the_truth_and_the_corrected_one_as_its_square(
    quick: list[Row],
) -> None:
    rates = only(quick, "rate", growth="fixed", floor=1.0, condition=10.0)
    slopes = {(row["source"], row["method"]): row["mean"] for row in rates}
    assert slopes["printed", "shift"] == pytest.approx(-1.0, abs=0.05)
    assert slopes["simulated", "shift"] == pytest.approx(-2.0, abs=0.05)
    assert slopes["corrected", "floor"] == pytest.approx(-2.0, abs=0.1)


def test_the_case_of_small_rho_is_undefined_and_that_of_the_smallest_eigenvalue_is_not(
    quick: list[Row],
) -> None:
    known = only(quick, "known case", source="printed")
    assert [row["mean"] is None for row in known] == [True, False, False]
    assert known[2]["mean"] == pytest.approx(0.24, abs=0.01)
    assert only(quick, "known case", source="simulated", method="shift")[0]["mean"] > 1e9


def test_the_example_by_hand_fails_with_coordinates_and_holds_in_the_eigenbasis(quick: list[Row]) -> None:
    hand = only(quick, "example", case="by hand")
    truth = only(hand, source="simulated")[0]["mean"]
    bounds = {row["setting"]["reading"]: row["mean"] for row in only(hand, source="printed")}
    assert bounds["ascending"] < truth < bounds["eigenbasis"]


def test_a_corrected_bound_that_is_too_small_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    full = theorem_cases.check_corrected
    monkeypatch.setattr(theorem_cases, "check_corrected", lambda *a, **k: full(*a, factor=0.5, **k))
    (row,) = only(theorem_cases.check_rows(((2, 60, 200),)), metric="violations")
    assert row["mean"] > 0
    assert row["n"] == 60


def test_the_divergence_without_small_precisions_grows_as_the_closed_form(quick: list[Row]) -> None:
    expected = norm.pdf(0.0, loc=1.0) * 0.5 * (1.0 + 1.0)
    (growth,) = only(quick, "step 10", metric="growth with log(1/c)")
    assert growth["mean"] == pytest.approx(expected, rel=1e-6)


def test_the_truncated_mean_is_that_of_a_sample() -> None:
    w = 1.0 + np.random.default_rng(0).normal(size=400_000)
    p = np.where(w > 0.0, w, 0.1)
    kl = 0.5 * (p - 1.0 - np.log(p) + (1.0 + (p - 1.0) ** 2) / p)
    kept = np.where((w > 0.0) & (w < 0.01), 0.0, kl)
    error = kept.std() / math.sqrt(len(w))
    assert abs(kept.mean() - theorem_cases.truncated_mean(0.01)) < 4.0 * error


def test_a_claim_becomes_a_row_with_its_error_as_a_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [_claims("1/N beats 1/B, whole run", case="linear", method="zero-out", batch=1)]
    given.append(_claims("Proposition 1", case="linear", relation="replace-one") | {"value": None})
    monkeypatch.setattr(claims_all, "rows", lambda **_: given)
    whole, move = theorem.claims_rows()
    assert (whole["sd"], whole["n"], whole["epsilon"], whole["relation"]) == (1.0, 4, 1.0, "zero-out")
    assert whole["setting"] == {"case": "linear", "batch": 1}
    assert (move["mean"], move["epsilon"], move["relation"]) == (None, None, "replace-one")


def test_progress_reaches_the_end_and_every_part_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [lambda place=place: [{"row": place}] for place in range(3)]
    monkeypatch.setattr(theorem, "_quick", lambda: jobs)
    monkeypatch.setattr(claims_noise, "per_step", lambda *_: [])
    monkeypatch.setattr(claims_budget, "per_budget", lambda *_: [])
    monkeypatch.setattr(claims_budget, "averaged_error", lambda *_: [_claims("made", case="linear")])
    steps: list[tuple[int, int]] = []
    found = theorem.rows(quick=True, on_step=lambda done, total: steps.append((done, total)))
    assert [row["row"] for row in found] == [0, 1, 2, "made"]
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_full_run_has_ten_thousand_cases_and_the_whole_grid() -> None:
    assert sum(count for _, count, _ in theorem_cases.CHECKED) >= 10_000
    points = theorem.grid()
    assert {point.d for point in points} == {2, 4, 10, 30}
    assert {point.epsilon for point in points} == {0.5, 1.0, 2.0, 4.0, 8.0}
    assert len(set(points)) == len(points)


@pytest.mark.deep
def test_the_report_and_its_pictures_are_written_whole(tmp_path: Path, quick: list[Row]) -> None:
    paths = theorem_report.write(tmp_path / "made" / "here", quick, quick=True)
    text = paths[0].read_text()
    assert json.loads(paths[1].read_text()) == quick
    assert [path.name for path in paths[2:]] == list(theorem_plots.PICTURES)
    for path in paths[2:]:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert f"]({path.name})" in text
    assert "A quick run" in text
    assert "Only in the full run" not in text
    assert {path.name for path in paths[0].parent.iterdir()} == {path.name for path in paths}


def test_the_report_says_what_the_rows_say(quick: list[Row]) -> None:
    text = theorem_report.text(quick)
    assert "A quick run" not in text
    assert "violated in 0 of 60 random cases" in text
    assert "was 0.750 of 2 gamma C / N: the claim held in every search" in text
    assert "lowered the median error in 1 of 1 cases" in text
    assert "| 100 | 0.250 | 1.000 |" in text
    worse = [row | {"mean": 2.0} if row["metric"] in ("violations", "largest move") else row for row in quick]
    changed = theorem_report.text(worse)
    assert "violated in 2 of 60 random cases" in changed
    assert "the claim does not hold" in changed


def test_a_report_without_a_claim_says_so(quick: list[Row]) -> None:
    text = theorem_report.text([row for row in quick if row["row"] != "Proposition 1"])
    assert "### Proposition 1\n\nOnly in the full run." in text
