import math
from typing import Any

import numpy as np
import pytest

from dpsep_lab.paper.claims_budget import averaged_error, per_budget
from dpsep_lab.paper.claims_noise import CLIP, SIGMA, made, per_step
from dpsep_lab.paper.claims_rates import rates

Row = dict[str, Any]


@pytest.fixture(scope="module")
def steps() -> list[Row]:
    return per_step((100, 1_000), (1, 10), 1_000)


def _value(table: list[Row], quantity: str, **wanted: Any) -> Row:
    found = [r for r in table if r["quantity"] == quantity and all(r[key] == wanted[key] for key in wanted)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("kind", ["linear", "probit"])
@pytest.mark.parametrize("records", [100, 1_000])
@pytest.mark.parametrize("batch", [1, 10])
def test_signal_over_noise_is_that_of_a_noisy_sum_whatever_n_is(
    steps: list[Row], kind: Any, records: int, batch: int
) -> None:
    where = {"case": kind, "records": records, "batch": batch}
    sep = _value(steps, "signal over noise", method="DP-SEP", **where)
    sgd = _value(steps, "signal over noise", method="DP-SGD", **where)
    length = np.linalg.norm(made(records, kind).factors.mean(axis=0))
    expected = batch * length / (2 * CLIP * SIGMA)
    assert sep["value"] == pytest.approx(sgd["value"], rel=1e-9)
    assert abs(sep["value"] - expected) < 4.5 * sep["standard_error"]
    assert sep["standard_error"] < 0.05 * expected


def test_signal_and_noise_themselves_do_shrink_with_n(steps: list[Row]) -> None:
    for quantity in ("signal", "noise"):
        few, many = (
            _value(steps, quantity, case="linear", method="DP-SEP", records=n, batch=1)["value"]
            for n in (100, 1_000)
        )
        assert many / few == pytest.approx(0.1, rel=0.1)


def test_damping_scales_both_and_leaves_their_ratio(steps: list[Row]) -> None:
    faster = per_step((100,), (10,), 1_000, gamma=50.0)
    for quantity, times in (("signal", 50.0), ("signal over noise", 1.0)):
        where = {"case": "linear", "method": "DP-SEP", "records": 100, "batch": 10}
        one = _value(steps, quantity, **where)
        assert _value(faster, quantity, **where)["value"] == pytest.approx(times * one["value"], rel=0.1)


@pytest.mark.parametrize("kind", ["linear", "probit"])
def test_contributions_are_clipped_and_some_of_them_had_to_be(kind: Any) -> None:
    norms = np.linalg.norm(made(200, kind).factors, axis=1)
    assert norms.max() <= CLIP * (1 + 1e-12)
    assert np.isclose(norms, CLIP).sum() > 20


def test_at_the_same_budget_smaller_batches_tell_less_and_more_so_where_n_is_large() -> None:
    table = per_budget((100, 1_000), (1, 10))
    share = "signal over noise, as a share of full batches'"
    shares = {
        n: [_value(table, share, records=n, batch=batch)["value"] for batch in (1, 10, n)]
        for n in (100, 1_000)
    }
    for of_n in shares.values():
        assert of_n == sorted(of_n)
        assert of_n[-1] == pytest.approx(1.0)
    assert shares[1_000][0] < 0.6 < shares[100][0]


def test_the_error_of_drawn_runs_is_the_one_that_signal_over_noise_says() -> None:
    budget = per_budget((1_000,), (1, 10))
    for row in averaged_error(1_000, (1, 10), repeats=40):
        ratio = _value(budget, "signal over noise of the whole run", records=1_000, batch=row["batch"])
        factors = made(1_000).factors
        # Noise in every coordinate, and the batches' own scatter: Poisson sums over ten passes.
        noise = factors.shape[1] / ratio["value"] ** 2
        scatter = (factors**2).sum() / (10 * 1_000**2) / np.linalg.norm(factors.mean(axis=0)) ** 2
        assert abs(row["value"] - math.sqrt(noise + scatter)) < 5 * row["standard_error"]


@pytest.mark.deep
def test_a_permutation_a_pass_has_a_sigma_without_n() -> None:
    table = rates((1_000, 10_000))
    written = {"case": "a permutation a pass, as written", "method": "zero-out", "records": None}
    for quantity, slope in (
        ("sigma", 0.0),
        ("C sigma / N, noise of one step", -1.0),
        ("C sigma sqrt(T / N), noise of a run", -0.5),
    ):
        assert _value(table, f"exponent in N of {quantity}", **written)["value"] == pytest.approx(
            slope, abs=1e-9
        )
    both = [
        _value(table, "sigma", **(written | {"records": 1_000, "method": relation}))["value"]
        for relation in ("zero-out", "replace-one")
    ]
    assert both[1] == pytest.approx(2 * both[0], rel=1e-9)


@pytest.mark.deep
def test_sampling_at_rate_one_over_n_lets_sigma_fall_but_slowly() -> None:
    table = rates((1_000, 10_000))
    poisson = {"case": "Poisson sampling at rate 1/N"}
    few, many = (_value(table, "sigma", records=n, **poisson)["value"] for n in (1_000, 10_000))
    mu = (
        math.sqrt(10)
        / _value(table, "sigma", case="a permutation a pass, as written", method="zero-out", records=1_000)[
            "value"
        ]
    )
    # The central limit of the losses gives log(1 + mu^2 N / T)^(-1/2), a little too little noise.
    for n, sigma in ((1_000, few), (10_000, many)):
        limit = math.log1p(mu**2 * n / 10) ** -0.5
        assert limit < sigma < 1.25 * limit
    assert 0.5 < many / few < 0.9


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: made(0), "records must be at least 1"),
        (lambda: made(10, "poisson"), "kind 'linear' or 'probit'"),  # pyright: ignore[reportArgumentType]
        (lambda: per_budget((100,), (7,)), "not a whole number of steps of 7"),
        (lambda: rates((100,)), "at least two sizes"),
    ],
    ids=["records", "kind", "batch", "sizes"],
)
def test_what_makes_no_sense_is_refused(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()
