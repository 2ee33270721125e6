"""Table 1, small: two data sets, two passes and one epsilon."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import GaussianSet
from dpsep.inference import sep
from dpsep.models.mixture import KnownMixture
from dpsep_lab.paper import table1
from dpsep_lab.paper.clusters import Errors, make
from dpsep_lab.paper.printed import TABLE_1

KEYS = {
    *("table", "row", "source", "dataset", "method", "epsilon", "relation"),
    *("metric", "mean", "median", "sd", "n"),
}
Row = dict[str, Any]
Calls = list[tuple[int, int]]


@pytest.fixture(scope="module")
def small() -> tuple[list[Row], Calls]:
    """The table at epsilon 50, and what it reported as it went."""
    calls: Calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table1, "EPSILONS", (50.0,))
        rows = table1.rows(range(2), passes=2, on_step=lambda done, total: calls.append((done, total)))
    return rows, calls


def _fits(rows: list[Row]) -> list[Row]:
    """Rows of one fit each: neither printed ones nor differences."""
    return [row for row in rows if row["source"] != "printed" and "paired" not in row["metric"]]


@pytest.mark.deep
def test_every_case_has_its_source_and_its_relations(small: tuple[list[Row], Calls]) -> None:
    cases = {(row["row"], row["source"], row["relation"]) for row in _fits(small[0])}
    both = ("zero-out", "replace-one")
    expected = {("SEP", "as written", "none"), ("SEP", "ours", "none"), ("EP", "ours", "none")}
    expected |= {(f"SEP clipped, C = {clip}", "as written", "none") for clip in (20, 10, 1)}
    expected |= {("SEP clipped", "ours", "none")}
    for name in ("DP-EM", "DP-VI", "DP-SEP"):
        expected |= {(f"{name}, epsilon = 50", "ours", relation) for relation in both}
    private = "DP-SEP, epsilon = 50"
    expected |= {(private, "as written", relation) for relation in both}
    expected |= {(private, "as accounted", "replace-one"), (private, "authors' noise", "replace-one")}
    assert cases == expected
    assert {row["source"] for row in small[0]} == {
        *("printed", "as written", "as accounted", "authors' noise", "ours")
    }


@pytest.mark.deep
def test_every_row_has_the_usual_keys_and_numbers(small: tuple[list[Row], Calls]) -> None:
    wrong = {
        (row["source"], row["method"], row["relation"], row["row"]): row["count"] == row["n"]
        for row in small[0]
        if row["metric"] == "wrong assignments"
    }
    for row in small[0]:
        assert set(row) >= KEYS
        numbers = [row[key] for key in ("mean", "median", "sd", "worst") if row[key] is not None]
        all_wrong = wrong.get((row["source"], row["method"], row["relation"], row["row"]), False)
        if row["metric"] == "F-norm, average, correctly assigned" and all_wrong:
            assert math.isnan(row["mean"])  # of none there is no mean
        else:
            assert all(map(math.isfinite, numbers))
            assert row["mean"] is not None
    assert {row["n"] for row in small[0] if row["source"] == "printed"} == {5}
    fits = [row for row in _fits(small[0]) if "correctly" not in row["metric"]]
    assert {row["n"] for row in fits} == {2}
    assert all(row["worst"] >= row["mean"] >= 0 for row in fits)


@pytest.mark.deep
def test_the_average_is_that_of_the_two_parts(small: tuple[list[Row], Calls]) -> None:
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for row in small[0]:
        key = (row["row"], row["source"], row["method"], row["relation"])
        found.setdefault(key, {})[row["metric"]] = row["mean"]
    for parts in found.values():
        if "F-norm, mean" in parts:
            middle = (parts["F-norm, mean"] + parts["F-norm, covariance"]) / 2
            assert parts["F-norm, average"] == pytest.approx(middle, rel=2e-3, abs=1e-4)  # as printed


def test_the_printed_rows_are_the_papers(small: tuple[list[Row], Calls]) -> None:
    rows = [row for row in small[0] if row["source"] == "printed"]
    assert rows == table1.printed_rows()
    for place, line in enumerate(TABLE_1):
        three = rows[3 * place : 3 * place + 3]
        assert [row["metric"] for row in three] == ["F-norm, mean", "F-norm, covariance", "F-norm, average"]
        assert [row["mean"] for row in three] == [line.mean, line.covariance, line.average]
        assert {row["epsilon"] for row in three} == {line.epsilon}
        assert {row["relation"] for row in three} == {"none" if line.epsilon is None else "replace-one"}
    assert [row["row"] for row in rows[::3]] == [
        *("SEP", "SEP clipped, C = 20", "SEP clipped, C = 10", "SEP clipped, C = 1"),
        *("DP-EM, epsilon = 50", "DP-EM, epsilon = 5", "DP-EM, epsilon = 1"),
        *("DP-SEP, epsilon = 50", "DP-SEP, epsilon = 5", "DP-SEP, epsilon = 1"),
    ]


def test_our_fits_without_privacy_and_at_epsilon_50_find_the_truth(small: tuple[list[Row], Calls]) -> None:
    # What the paper prints there: 0.0012 for SEP, 3.3 for DP-EM and 1.1 for DP-SEP.
    ours = [row for row in _fits(small[0]) if row["source"] == "ours" and row["metric"] == "F-norm, average"]
    assert len(ours) == 3 + 3 * 2
    for row in ours:
        assert row["worst"] < 0.01


def test_the_table_is_one_json_document_and_reports_every_fit(small: tuple[list[Row], Calls]) -> None:
    rows, calls = small
    plain = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    total = 2 * len({(row["row"], row["source"], row["relation"]) for row in _fits(rows)})
    assert calls == [(done, total) for done in range(1, total + 1)]


def test_without_clip_and_noise_the_algorithm_as_written_is_sep_with_gamma_one() -> None:
    experiment = make(seed=3, records=15)
    means, covariances = table1.written(passes=2)(experiment, 3)
    generator = np.random.default_rng([3, 1])
    order = np.concatenate([generator.permutation(15) for _ in range(2)])
    with jax.enable_x64(True):
        centres = np.random.default_rng(0).standard_normal((4, 4))
        prior = GaussianSet.from_moments(jnp.asarray(centres), 10.0 * jnp.eye(4))
        settings = sep.Settings(prior, 15, gamma=1.0, floor=table1.PRIOR_PRECISION + table1.LEAST)
        model = KnownMixture((0.25,) * 4, 0.25)
        q = sep.posterior(settings, sep.run(model, settings, jnp.asarray(experiment.x), jnp.asarray(order)))
        np.testing.assert_allclose(means, q.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(covariances, q.covariance, rtol=1e-9, atol=1e-9)
    assert np.abs(means - centres).max() > 1e-3  # the records were read


def test_a_clip_bounds_what_a_run_can_move() -> None:
    experiment = make(seed=3, records=15)
    means, covariances = table1.written(passes=2, clip=0.01)(experiment, 3)
    precision = np.linalg.inv(covariances)
    centres = np.random.default_rng(0).standard_normal((4, 4))
    eta = np.einsum("jde,je->jd", precision, means)
    # theta = theta_0 + N theta_f with |theta_f| <= C, for each natural parameter.
    assert 0 < np.linalg.norm(eta - 0.1 * centres) <= 15 * 0.01 * (1 + 1e-9)
    assert 0 < np.linalg.norm(precision - 0.1 * np.eye(4)) <= 15 * 0.01 * (1 + 1e-9)


def test_noise_and_order_are_those_of_the_seed() -> None:
    experiment = make(seed=3, records=15)
    fit = table1.written(passes=2, clip=1.0, deviations=(0.01, 0.001))
    first, again, other = (fit(experiment, seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("order", ["permuted", "fresh", "cyclic"])
def test_records_are_visited_in_the_order_that_is_named(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    run = sep.run

    def spy(model: Any, settings: Any, records: Any, visits: Any) -> Any:
        seen.append(np.asarray(visits))
        return run(model, settings, records, visits)

    monkeypatch.setattr(sep, "run", spy)
    table1.written(passes=6, order=order)(make(seed=0, records=15), 0)
    passes = seen[0].reshape(6, 15)
    assert passes.min() >= 0
    assert passes.max() < 15
    whole = [sorted(one) == list(range(15)) for one in passes.tolist()]
    same = len({tuple(one) for one in passes.tolist()}) == 1
    # Six times fifteen draws with replacement are six permutations with a chance below 1e-30.
    assert (all(whole), same) == {
        "permuted": (True, False),
        "fresh": (False, False),
        "cyclic": (True, True),
    }[order]
    if order == "cyclic":
        assert passes[0].tolist() == list(range(15))


def test_private_lines_have_the_order_and_the_noise_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table1, "EPSILONS", (50.0,))
    monkeypatch.setattr(table1, "written", lambda passes, **settings: settings)
    found: dict[tuple[str, str], Any] = {
        (case.source, case.relation): case.fit
        for case in table1.all_cases()
        if case.row.startswith("DP-SEP") and case.source != "ours"
    }
    orders = {source: settings.get("order", "permuted") for (source, _), settings in found.items()}
    assert orders == {"as written": "permuted", "as accounted": "fresh", "authors' noise": "cyclic"}
    assert all(settings["clip"] == 1.0 for settings in found.values())
    zero_out, replace_one = (
        found["as written", relation]["deviations"][0] for relation in ("zero-out", "replace-one")
    )
    assert replace_one == pytest.approx(2 * zero_out, rel=2e-3)  # twice the sensitivity


def test_differences_are_dpsep_minus_the_peer_on_the_same_seeds() -> None:
    def made(*averages: float) -> list[Errors]:
        return [Errors(0.0, 0.0, average, 0.0, 0.0, False) for average in averages]

    def case(method: str, epsilon: float | None = 1.0, source: str = "ours") -> table1.Case:
        return table1.Case(method, source, method, epsilon, "zero-out", table1._no_fit)

    cases = [case("DP-EM"), case("DP-SEP"), case("SEP", None), case("DP-SEP", 1.0, "as written")]
    found = [made(2.0, 4.0, 6.0), made(1.0, 2.0, 3.0), made(0.0, 0.0, 0.0), made(9.0, 9.0, 9.0)]
    (row,) = table1.paired_rows(cases, found)
    assert row["row"] == "DP-SEP minus DP-EM"
    assert (row["mean"], row["sd"], row["n"]) == (-2.0, 1.0, 3)  # negative: DP-SEP is nearer to the truth
    reach = 4.302653 / math.sqrt(3)  # the 97.5 % point of Student's t with 2 degrees of freedom
    assert row["low"] == pytest.approx(-2.0 - reach, rel=1e-6)
    assert row["high"] == pytest.approx(-2.0 + reach, rel=1e-6)


def test_paired_rows_are_there_for_each_peer_and_relation(small: tuple[list[Row], Calls]) -> None:
    pairs = [row for row in small[0] if "paired" in row["metric"]]
    assert {(row["row"], row["relation"]) for row in pairs} == {
        (f"DP-SEP minus {peer}", relation)
        for peer in ("DP-EM", "DP-VI")
        for relation in ("zero-out", "replace-one")
    }
    assert all(row["low"] < row["mean"] < row["high"] for row in pairs)
