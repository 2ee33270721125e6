"""The accuracy benchmark: scores by closed forms, fits that are kept, found again and never lost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dpsep_lab.bench import frontier, frontier_people
from dpsep_lab.bench.frontier import Job, chunks, jobs, kept, main, measure, run
from dpsep_lab.bench.frontier_data import MADE, Split, export, split, split_of
from dpsep_lab.bench.frontier_people import PEOPLE, Person
from dpsep_lab.bench.frontier_scores import METRICS, Prediction, gaussian, score
from dpsep_lab.bench.peers_network import DEFAULTS, Settings, dp_adam
from dpsep_lab.data import DataError


def _split(number: int = 0, records: int = 400) -> Split:
    """Return a made split whose target is 5 + 2 x - z + noise of 0.5, in units of its own."""
    rng = np.random.default_rng([9, number])
    X = np.stack([3 + 2 * rng.standard_normal(records), 10 * rng.standard_normal(records)], axis=1)
    y = 5 + 2 * X[:, 0] - 0.1 * X[:, 1] + 0.5 * rng.standard_normal(records)
    cut = records // 4
    return split_of("made", number, (X[cut:], y[cut:]), (X[:cut], y[:cut]))


def _answers(value: float) -> Person:
    """Return a person who always predicts a number."""
    return Person(
        "made",
        "open",
        "made",
        "",
        lambda data, _: gaussian(np.full(len(data.y_test), value), 1.0, data.y_test),
    )


def test_a_right_distribution_has_its_entropy_its_coverage_and_no_calibration_error() -> None:
    y = 3 + 2 * norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = score(gaussian(np.full(4000, 3.0), 2.0, y), y)
    assert found.rmse == pytest.approx(2.0, rel=1e-3)
    assert found.log_likelihood == pytest.approx(-0.5 * np.log(2 * np.pi * np.e * 4), abs=1e-3)
    assert found.coverage == pytest.approx(0.9, abs=1e-3)
    assert found.calibration == pytest.approx(0.0, abs=1e-3)


def test_a_distribution_that_is_too_narrow_covers_as_the_closed_form_says() -> None:
    y = norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = score(gaussian(np.zeros(4000), 0.5, y), y)
    level = np.arange(1, 10) / 10
    observed = 2 * norm.cdf(0.5 * norm.ppf(0.5 + level / 2)) - 1
    assert found.coverage == pytest.approx(observed[-1], abs=1e-3)
    assert found.calibration == pytest.approx(float(np.mean(level - observed)), abs=1e-3)


def test_a_density_that_is_not_a_number_counts_as_the_worst() -> None:
    found = Prediction(np.zeros(2), np.array([np.nan, -np.inf]), np.full(2, 0.5))
    assert score(found, np.zeros(2)).log_likelihood == -1e6


def test_private_people_have_a_fit_for_each_epsilon_and_the_others_one() -> None:
    found = jobs(["wine"], [0, 3], ["ours", "pbp"], [0.25, 1.0])
    assert [(job.split, job.who, job.epsilon) for job in found] == [
        *((0, "ours", 0.25), (0, "ours", 1.0), (0, "pbp", None)),
        *((3, "ours", 0.25), (3, "ours", 1.0), (3, "pbp", None)),
    ]
    assert len({job.name for job in found}) == len(found)


@pytest.mark.parametrize("who", ["gate", "linear", "adassp", "least-squares"])
def test_everyone_who_needs_no_further_package_predicts_in_the_targets_own_units(who: str) -> None:
    data = _split()
    found = PEOPLE[who].fit(data, 8.0 if PEOPLE[who].private else None)
    scores = score(found, data.y_test)
    assert scores.rmse < 2.0  # the target's standard deviation is 4.2, its noise 0.5
    assert -3.0 < scores.log_likelihood < 0.0
    assert scores.coverage > 0.6


def test_ours_is_the_estimator_with_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    class Recorded:
        def __init__(self, **parameters: Any) -> None:
            seen.append(parameters)
            raise InterruptedError

    monkeypatch.setattr("dpsep.estimators.NetworkRegressor", Recorded)
    data = _split(number=3)
    for epsilon in (0.5, None):
        with pytest.raises(InterruptedError):
            PEOPLE["ours"].fit(data, epsilon)
    common = {"public_scaling": data.scaling, "random_state": 3}
    assert seen == [{"epsilon": 0.5, "delta": 1e-5, **common}, {"private": False, **common}]


def test_a_peer_without_a_distribution_gets_that_of_its_training_residuals() -> None:
    data = _split(records=4000)
    found = PEOPLE["least-squares"].fit(data, None)
    expected = norm.logpdf(data.y_test, found.mean, 0.5)
    assert np.mean(found.log_density) == pytest.approx(float(np.mean(expected)), abs=0.02)


def test_the_same_fit_is_not_made_twice_and_another_process_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(PEOPLE, "zero", _answers(0.0))
    work = jobs(["made:wages"], [0, 1], ["zero"], [1.0])
    first = run(work, tmp_path, show=False)
    assert [line["split"] for line in first] == [0, 1]
    assert all(line["rmse"] > 0 for line in first)
    monkeypatch.setitem(PEOPLE, "zero", _answers(100.0))
    assert run(work, tmp_path, show=False) == first
    (tmp_path / work[1].name).unlink()
    again = run(work, tmp_path, show=False)
    assert again[0] == first[0]
    assert again[1]["rmse"] > 50


def test_a_process_makes_fits_of_one_person_to_one_table_in_a_row(tmp_path: Path) -> None:
    todo = [(job, tmp_path, None) for job in jobs(["wine", "power"], [0, 1, 2], ["linear", "pbp"], [1.0])]
    found = chunks(todo, 2)
    shown = [[(job.dataset, job.who, job.split) for job, _, _ in group] for group in found]
    assert shown[:3] == [
        [("wine", "linear", 0), ("wine", "linear", 1)],
        [("wine", "linear", 2)],
        [("wine", "pbp", 0), ("wine", "pbp", 1)],
    ]
    assert sorted(task[0].name for group in found for task in group) == sorted(task[0].name for task in todo)


def test_a_fit_that_breaks_is_a_line_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: Split, epsilon: float | None) -> Prediction:
        raise FloatingPointError("far away")

    monkeypatch.setitem(PEOPLE, "broken", Person("made", "open", "made", "", broken))
    line = measure(Job("made:wages", 0, "broken", None))
    assert line["failed"] == "FloatingPointError: far away"
    assert all(line[name] is None for name in METRICS)


def test_a_prediction_that_is_not_finite_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEOPLE, "endless", _answers(np.inf))
    assert "not finite" in measure(Job("made:wages", 0, "endless", None))["failed"]


def test_packed_lines_are_read_as_single_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PEOPLE, "zero", _answers(0.0))
    single, joined = tmp_path / "single", tmp_path / "joined"
    joined.mkdir()
    options = ["--datasets", "made:wages", "--splits", "0-1", "--who", "zero", "--out", str(single)]
    assert main([*options, "--pack", str(joined / "fits.jsonl")]) == 0
    assert [json.dumps(line) for line in kept(joined)] == [json.dumps(line) for line in kept(single)]
    assert len(kept(single)) == 2


def test_names_that_are_not_known_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no 'nobody'"):
        main(["--who", "nobody", "--out", str(tmp_path)])


def test_an_exported_table_gives_the_same_splits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dpsep_lab.bench import frontier_data

    X, y = np.arange(60.0).reshape(30, 2), np.arange(30.0)
    tests = np.arange(3)[None]
    monkeypatch.setattr(frontier_data, "_table", lambda name, folder: (X, y, tests))
    export(["wine", "made:arm"], tmp_path)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["wine.npz"]
    customary, seeded = split("wine", 0, tmp_path), split("wine", 1, tmp_path)
    np.testing.assert_array_equal(customary.y_test, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(customary.X, X[3:])
    assert len(seeded.y_test) == 3
    assert not set(seeded.y_test) & set(seeded.y)


def test_the_scaling_is_that_of_the_training_part() -> None:
    data = _split()
    Z = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    np.testing.assert_allclose(data.standard(data.X), np.clip(Z, -4, 4))
    np.testing.assert_allclose(data.own_units(data.standard_target(data.y_test)), data.y_test)


def test_the_case_skips_what_is_not_there_and_measures_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    people = {"zero": _answers(0.0), "far": _answers(0.0)._replace(needs="no-such-package")}
    monkeypatch.setattr(frontier, "PEOPLE", people)
    monkeypatch.setattr(frontier, "QUICK", (("made:wages",), ("zero", "far")))
    rows = frontier.frontier(quick=True)
    assert [row["metric"] for row in rows] == [*METRICS, "skipped"]
    assert "no-such-package" in rows[-1]["note"]
    assert rows[0]["case"] == "frontier/made:wages"

    def nowhere(*_: object) -> Split:
        raise DataError("not on this machine")

    monkeypatch.setattr(frontier, "split", nowhere)
    assert frontier.frontier(quick=True)[0]["note"] == "not on this machine"


def test_opacus_noise_is_of_our_accountant_and_its_fit_learns() -> None:
    pytest.importorskip("opacus")
    data = _split(records=2000)
    Z, t = data.standard(data.X), data.standard_target(data.y)
    settings = Settings(rate=0.05, steps=200, learning_rate=0.03, clip=0.3, cosine=True)
    error = {}
    for epsilon in (0.01, 50.0):
        fit = dp_adam(Z, t, hidden=10, epsilon=epsilon, delta=1e-5, seed=0, settings=settings)
        error[epsilon] = float(np.sqrt(np.mean((fit(Z) - t) ** 2)))
    assert error[50.0] < 0.4 < error[0.01]


def test_the_setting_of_opacus_is_the_best_of_those_that_were_searched() -> None:
    path = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "frontier_search.json"
    rows = json.loads(path.read_text("utf-8"))
    best = min(rows, key=lambda row: row["loss"])
    assert best["settings"] == DEFAULTS._asdict()
    assert best["tables"] == list(MADE)
    assert all(np.isclose(row["loss"], np.mean(np.log(row["rmse"]))) for row in rows)


def test_the_private_tree_predicts_within_the_public_bounds_of_the_target() -> None:
    pytest.importorskip("interpret")
    data = _split(records=2000)
    found = frontier_people.PEOPLE["dp-ebm"].fit(data, 8.0)
    assert score(found, data.y_test).rmse < 3.0
