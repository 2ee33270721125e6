"""Calibration of a run: exact on public rows, noisy counts in one charged release on rows held out."""

import json
import math
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

import dpsep
from dpsep.audit.replay import Release, distance
from dpsep.cli import calibration, metrics
from dpsep.cli.calibration import bin_numbers, calibration_of_counts, calibration_of_rows, histogram_blocks
from dpsep.cli.metrics import private_metrics, public_metrics
from dpsep.cli.overlay import Leaks
from dpsep.cli.table import read_inputs
from dpsep.estimators.row_scores import row_scores
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError
from dpsep.privacy.gate import Reader
from dpsep.privacy.ledger import Ledger
from dpsep.registry import named

from .help import BOUNDED, call, some, with_cells, write_csv

TARGETS = {"linear": "y", "poisson": "visits", "logistic": "ill", "network": "y", "network-classifier": "ill"}
NUMBERS = ("linear", "poisson", "network")
ROWS = 600
HIGH, DELTA = 8.0, 1e-5
Case = tuple[Any, Any]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Fitted estimators and their tables, each made once."""
    folder, made = tmp_path_factory.mktemp("tables"), {}

    def case(model: str) -> Case:
        if model not in made:
            path = folder / f"{model}.parquet"
            pl.DataFrame(some(f"a b {TARGETS[model]}", rows=ROWS)).write_parquet(path)
            labels = "no,yes" if TARGETS[model] == "ill" else None
            leaks = Leaks(private=False, strict=False)
            inputs = read_inputs(
                *(str(path), leaks), target=TARGETS[model], model=model, classes=labels, bounds=("-1:1",)
            )
            settings: dict[str, Any] = {"bounds": inputs.bounds}
            if labels is not None:
                settings["classes"] = inputs.classes
            if model.startswith("network"):
                settings |= {"hidden": (3,), "steps": 20}
            estimator = named(model).load()(private=False, **settings)
            made[model] = estimator.fit(inputs.features, inputs.target), inputs
        return made[model]

    return case


def changed(inputs: Any, row: int, features: float | None = None, target: Any = None) -> Any:
    """The table with one row's features or target replaced."""
    frame, truth, _ = inputs.cells()
    matrix, truth = frame.to_numpy().copy(), truth.copy()
    if features is not None:
        matrix[row] = features
    if target is not None:
        truth[row] = target
    return with_cells(inputs, pl.DataFrame(matrix, schema=frame.columns), truth)


def missing(inputs: Any, row: int) -> Any:
    return changed(inputs, row, features=math.nan)


def sums_of(case: Case, monkeypatch: pytest.MonkeyPatch) -> Release:
    """What a private release sums up, before noise."""
    seen: list[Release] = []
    sums = Reader.sums

    def tapped(self: Any, contribution: Any, blocks: Any, public: Any, rows: Any) -> Any:
        totals = sums(self, contribution, blocks, public, rows)
        seen.append(Release(blocks, (), np.empty(0), 0, tuple(total.copy() for total in totals), {}))
        return totals

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "sums", tapped)
        private_metrics(*case, HIGH, DELTA, "zero-out", None)
    (release,) = seen
    return release


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(stream: Any, units: Any, size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("dpsep.privacy.gate.rounded_gaussian", zeros)


@pytest.mark.parametrize("model", NUMBERS)
def test_public_numbers_are_calibrated_as_the_library_says(cases: Any, model: str) -> None:
    estimator, inputs = cases(model)
    found = public_metrics(estimator, inputs).document["calibration"]
    features, target, _ = inputs.cells()
    other = dpsep.calibration(estimator, features, target, calibration.LEVELS.tolist())
    assert found["source"] == "public"
    assert found["coverage"]["level"] == pytest.approx(np.arange(1, 20) / 20)
    np.testing.assert_allclose(found["coverage"]["share"], other.coverage, atol=1e-12)
    expected = np.histogram(other.pit, 10, (0, 1))[0] / ROWS
    np.testing.assert_allclose(found["pit"]["share"], expected, atol=1e-12)
    mean, sd = estimator.predict(inputs.features, return_std=True)
    residual = np.clip((inputs.cells()[1] - mean) / sd, -3.99, 3.99)
    expected = np.histogram(residual, 16, (-4, 4))[0] / ROWS
    np.testing.assert_allclose(found["residuals"]["share"], expected, atol=1e-12)
    assert {found[name]["rows"] for name in ("pit", "coverage", "residuals")} == {ROWS}
    assert {found[name]["noise_sd"] for name in ("pit", "coverage", "residuals")} == {None}
    assert "reliability" not in found


@pytest.mark.parametrize("model", ["logistic", "network-classifier"])
def test_public_labels_are_calibrated_as_the_library_says(cases: Any, model: str) -> None:
    estimator, inputs = cases(model)
    found = public_metrics(estimator, inputs).document["calibration"]
    assert list(found) == ["source", "reliability"]
    other = dpsep.calibration(estimator, *inputs.cells()[:2]).reliability
    assert other is not None
    held = np.array(found["reliability"]["rows"]) > 0
    part = {
        name: np.array(found["reliability"][name], dtype=float)[held] for name in ("predicted", "observed")
    }
    np.testing.assert_array_equal(np.array(found["reliability"]["rows"])[held], other.rows)
    np.testing.assert_allclose(part["observed"], other.observed)
    np.testing.assert_allclose(part["predicted"], other.predicted, atol=1e-6)


def test_empty_bins_of_public_rows_have_no_observed_share() -> None:
    scores = {"probability": np.array([0.42, 0.48, np.nan]), "second": np.array([1.0, 0.0, np.nan])}
    found = calibration_of_rows(scores)
    assert found is not None
    part = found["reliability"]
    assert part["rows"] == [0, 0, 0, 0, 2, 0, 0, 0, 0, 0]
    assert part["observed"] == [None, None, None, None, 0.5, None, None, None, None, None]
    assert part["predicted"] == pytest.approx([0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95])


def test_a_mixture_and_rows_without_targets_have_no_calibration(cases: Any) -> None:
    assert calibration_of_rows({"log_density": np.zeros(3)}) is None
    estimator, inputs = cases("linear")
    found = public_metrics(estimator, with_cells(inputs, inputs.cells()[0], np.full(ROWS, np.nan)))
    assert "calibration" not in found.document
    assert found.sentence(None) == "Its metrics were computed on another table, declared public."


@pytest.mark.parametrize("model", TARGETS)
@pytest.mark.usefixtures("without_noise")
def test_without_noise_charged_histograms_are_the_exact_ones(cases: Any, model: str) -> None:
    estimator, inputs = cases(model)
    inputs = changed(missing(inputs, 3), 5, target="" if model not in NUMBERS else math.nan)
    exact = public_metrics(estimator, inputs).document["calibration"]
    document = private_metrics(estimator, inputs, HIGH, DELTA, "zero-out", None).document
    found = document["calibration"]
    assert found["source"] == "charged"
    if model not in NUMBERS:
        rows, first = exact["reliability"]["rows"], found["reliability"]
        assert first["rows"] == rows
        assert sum(rows) == ROWS - 2
        shown = [place for place, share in enumerate(first["observed"]) if share is not None]
        assert len(shown) > 3
        for place in shown:
            assert first["observed"][place] == pytest.approx(exact["reliability"]["observed"][place])
        return
    for name in ("pit", "residuals"):
        # The count of rows is rounded with the scores: one part in a million.
        np.testing.assert_allclose(found[name]["share"], exact[name]["share"], atol=1e-6)
        assert found[name]["edges"] == exact[name]["edges"]
        assert found[name]["rows"] == ROWS
    assert found["coverage"]["level"] == [0.2, 0.4, 0.6, 0.8, 1.0]
    pit = np.array(exact["pit"]["share"])
    inside = [pit[5 - reach : 5 + reach].sum() for reach in range(1, 6)]
    np.testing.assert_allclose(found["coverage"]["share"], inside, atol=1e-6)
    assert found["coverage"]["noise_sd"][-1] == 0.0


def farthest_rows(model: str, inputs: Any) -> list[Any]:
    """Neighbours of a table in row 0: of features and targets near, far and absurd."""
    targets: list[Any] = [0.0, 40.0, 1e6] if model in NUMBERS else ["no", "yes"]
    return [changed(inputs, 0, features, target) for features in (0.0, 1.0, -1e300) for target in targets]


@pytest.mark.parametrize("model", TARGETS)
def test_one_row_moves_the_release_by_at_most_its_clip(
    cases: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances are exact and in units of the clip: all blocks together at most 1, or 2 of two rows."""
    estimator, inputs = cases(model)
    none = sums_of((estimator, missing(inputs, 0)), monkeypatch)
    others = [sums_of((estimator, other), monkeypatch) for other in farthest_rows(model, inputs)]
    slack = 1e-12
    zeroed = [float(distance(none, other)) for other in others]
    assert max(zeroed) <= 1 + slack
    # The declared clip is reached, so that no smaller one would do: all scores of a row at their ends.
    assert max(zeroed) > (0.99 if model in NUMBERS else 0.8)
    # A row is in every histogram, which have a third of the budget.
    assert min(zeroed) > 1 / 3
    replaced = [float(distance(one, other)) for one in others for other in others[:3]]
    assert 1 < max(replaced) <= 4 + slack
    for other in others:
        for block, before, after in zip(none.blocks[1:], none.sums[1:], other.sums[1:], strict=True):
            assert block.clip == 1.0
            assert sorted(after - before)[-2:] == [0, 1]
            assert (after - before).sum() == 1


@pytest.mark.parametrize("model", TARGETS)
def test_a_bad_row_counts_nowhere(cases: Any, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator, inputs = cases(model)
    bad = changed(inputs, 4, target="perhaps" if model not in NUMBERS else math.inf)
    bad = missing(bad, 9)
    found, whole = sums_of((estimator, bad), monkeypatch), sums_of((estimator, inputs), monkeypatch)
    for block, total, before in zip(found.blocks, found.sums, whole.sums, strict=True):
        if block.kind == "count":
            assert (total.sum(), before.sum()) == (ROWS - 2, ROWS)
        else:
            assert (before[-1] - total[-1]) * block.unit == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize("labels", [False, True])
def test_old_metrics_keep_their_noise_within_a_quarter(labels: bool) -> None:
    blocks = histogram_blocks(labels=labels)
    left = 1 - math.fsum(block.share for block in blocks)
    assert left == pytest.approx(calibration.SCORES_SHARE)
    assert 1 / math.sqrt(left) < 1.25


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_everything_is_charged_before_a_row_is_scored(
    cases: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=1.0, delta=1e-4)
    spent: list[float] = []

    def tapped(*arguments: Any) -> Any:
        spent.append(ledger.spent().epsilon)
        return row_scores(*arguments)

    monkeypatch.setattr(metrics, "row_scores", tapped)
    estimator, inputs = cases(model)
    found = private_metrics(estimator, inputs, 1.0, DELTA, "zero-out", ledger)
    assert len(spent) == 1
    assert 0.99 < spent[0] <= 1.0
    assert ledger.spent().epsilon == spent[0]
    assert [row.kind for row in ledger.rows()].count("charge") == 1
    assert found.privacy is not None
    # One release of full batches is a Gaussian mechanism: its epsilon from the closed form of Balle and Wang.
    sigma = found.privacy["sigma"]
    at = (0.5 / sigma - spent[0] * sigma, -0.5 / sigma - spent[0] * sigma)
    delta = stats.norm.cdf(at[0]) - math.exp(spent[0]) * stats.norm.cdf(at[1])
    assert delta <= DELTA * 1.001


def test_a_kept_release_serves_its_own_fit_and_ranges_only(cases: Any, tmp_path: Path) -> None:
    estimator, inputs = cases("poisson")
    held, kept = inputs._replace(target_bounds=(0.0, 10.0)), Checkpoint(tmp_path)
    own, other = copy(estimator), copy(estimator)
    own.privacy_, other.privacy_ = SimpleNamespace(run="a"), SimpleNamespace(run="b")
    budget = (HIGH, DELTA, "zero-out", None, kept)
    first = private_metrics(own, held, *budget)
    assert private_metrics(own, held, *budget).document == first.document
    for fit, rows in ((other, held), (own, held._replace(target_bounds=(0.0, 20.0)))):
        with pytest.raises(CheckpointError, match="other settings"):
            private_metrics(fit, rows, *budget)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_noise_that_is_stated_is_the_noise_that_is_there(
    cases: Any, relation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator, inputs = cases("linear")
    exact = public_metrics(estimator, inputs).document["calibration"]
    scores = row_scores(estimator, *inputs.cells())
    monkeypatch.setattr(metrics, "row_scores", lambda *_: scores)  # scored once, released often
    found = [
        private_metrics(estimator, inputs, HIGH, DELTA, relation, None).document["calibration"]
        for _ in range(200)
    ]
    for name in ("pit", "coverage"):
        shares = np.array([one[name]["share"] for one in found])
        truth = np.array(exact["pit"]["share"])
        if name == "coverage":
            truth = np.array([truth[5 - reach : 5 + reach].sum() for reach in range(1, 6)])
        stated = np.mean([one[name]["noise_sd"] for one in found], axis=0)
        seen = np.sqrt(np.mean((shares - truth) ** 2, axis=0))
        if name == "pit":  # one number, that of the bin where it is largest
            assert 0.8 < seen.max() / stated < 1.3
            assert 0.8 < seen.mean() / stated < 1.1
        else:
            assert np.all(np.abs(seen[:-1] / stated[:-1] - 1) < 0.25)
            assert seen[-1] == stated[-1] == 0


@pytest.mark.parametrize("deviation", [0.01, 2.0, 20.0, 200.0])
@pytest.mark.parametrize("one_sided", [False, True])
def test_shares_err_by_no_more_than_their_stated_noise(deviation: float, one_sided: bool) -> None:
    """Where noise is small the statement is right; where it drowns the counts it is on the safe side."""
    rng = np.random.default_rng(3)
    truth = np.array([0, 0, 0, 0, 0, 0, 0, 0, 20, 480.0]) if one_sided else np.full(10, 50.0)
    errors, stated = [], []
    for _ in range(400):
        noisy = {"pit": truth + deviation * rng.standard_normal(10)}
        usable = max(500 + deviation * rng.standard_normal(), 50.0)
        part = calibration_of_counts(noisy, {"pit": deviation, "scores": deviation}, usable, 500)["pit"]
        assert sum(part["share"]) == pytest.approx(1)
        assert min(part["share"]) >= 0
        errors.append(np.array(part["share"]) - truth / 500)
        stated.append(part["noise_sd"])
    seen = np.sqrt(np.mean(np.square(errors), axis=0))
    assert seen.max() < 1.1 * np.mean(stated)
    if deviation < 10:
        assert seen.max() > 0.85 * np.mean(stated)


def test_labels_share_is_left_out_where_noise_drowns_its_bin() -> None:
    noisy = np.array([[-3, 2], [40, 60], [0, 0], [5, 0], [100, -2], *([[0, 0]] * 5)], dtype=float)
    found = calibration_of_counts({"reliability": noisy.ravel()}, {"reliability": 2.0}, 200.0, 200)
    part = found["reliability"]
    assert part["observed"] == [None, 0.6, None, None, 0.0, *([None] * 5)]
    assert part["rows"] == [2, 100, 0, 5, 100, 0, 0, 0, 0, 0]
    # A quotient's deviation to first order: 2 sqrt(0.4^2 + 0.6^2) / 100.
    assert part["noise_sd"][1] == pytest.approx(0.02 * math.hypot(0.4, 0.6))
    assert part["noise_sd"][4] == pytest.approx(0.02)
    assert part["noise_sd"][0] is None
    assert "NaN" not in json.dumps(found)


def test_bins_take_their_lower_edge_and_the_ends_all_beyond() -> None:
    pit = np.array([0.0, 0.1, 0.0999, 1.0, np.nan, 0.5])
    residual = np.array([-np.inf, -4.0, 0.0, np.inf, np.nan, 3.4999])
    found = bin_numbers({"pit": pit, "residual": residual})
    np.testing.assert_array_equal(found["pit"], [0, 1, 0, 9, np.nan, 5])
    np.testing.assert_array_equal(found["residuals"], [0, 0, 8, 15, np.nan, 14])
    chances = {"probability": np.array([0.0, 1.0, 0.35, np.nan]), "second": np.array([1.0, 0, 1, np.nan])}
    np.testing.assert_array_equal(bin_numbers(chances)["reliability"], [1, 18, 7, np.nan])


def test_a_counts_place_belongs_to_the_number_of_its_row(cases: Any) -> None:
    estimator, inputs = cases("poisson")
    whole = row_scores(estimator, *inputs.cells())["pit"]
    part = row_scores(estimator, *inputs.some(np.arange(50)).cells())["pit"]
    np.testing.assert_allclose(part, whole[:50], rtol=1e-12)
    again = row_scores(estimator, *inputs.cells())["pit"]
    np.testing.assert_array_equal(again, whole)
    below, upto = estimator.predictive_cdf(*inputs.cells()[:2])
    assert np.all((below <= whole) & (whole <= upto))
    # Uniform where the model is right, with a variance of 1/12; middles of the ranges are not.
    assert stats.kstest(whole, "uniform").pvalue > 0.01
    assert abs(np.var(whole) - 1 / 12) < 0.01
    assert np.var((below + upto) / 2) < 0.079


@pytest.mark.parametrize("model", ["network", "network-classifier"])
def test_a_networks_row_is_scored_by_itself(cases: Any, model: str) -> None:
    estimator, inputs = cases(model)
    before = row_scores(estimator, *inputs.cells())
    other = changed(missing(inputs, 11), 7, features=1e6)
    after = row_scores(estimator, *other.cells())
    same = np.setdiff1d(np.arange(ROWS), [7, 11])
    for name in before:
        np.testing.assert_array_equal(after[name][same], before[name][same])
        assert np.isnan(after[name][11])


def test_a_large_table_is_integrated_in_pieces(cases: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for model in ("linear", "poisson"):
        estimator, inputs = cases(model)
        whole = row_scores(estimator, *inputs.cells())["pit"]
        with monkeypatch.context() as patch:
            patch.setattr("dpsep.estimators.row_scores.PIECE", 7)
            pieces = row_scores(estimator, *inputs.cells())["pit"]
        np.testing.assert_allclose(pieces, whole, rtol=1e-12)


def test_rows_of_known_groups_are_calibrated_by_their_own_effects() -> None:
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(20), 20)
    x = rng.uniform(-1, 1, (400, 1))
    y = x[:, 0] + rng.standard_normal(20)[group] + 0.2 * rng.standard_normal(400)
    model = dpsep.MixedRegressor(private=False, groups=20, unit="record").fit(x, y, groups=group)
    frame = pl.DataFrame({"x": x[:, 0]})
    known, new = (row_scores(model, frame, y, labels) for labels in (group, None))
    assert stats.kstest(known["pit"], "uniform").pvalue > 0.01
    assert np.std(known["residual"]) == pytest.approx(1, abs=0.15)
    # Rows of one group are off together where its effect is not used.
    centres = [
        np.array([scores["residual"][group == one].mean() for one in range(20)]) for scores in (known, new)
    ]
    assert np.std(centres[1]) > 3 * np.std(centres[0])


def test_the_statement_tells_of_histograms_and_a_resumed_run_scores_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    command = (
        *("fit", table, "--target", "y", "--epsilon", 1, *BOUNDED, "--out", tmp_path / "run"),
        *("--metrics-epsilon", 1),
    )
    held: list[Any] = []

    def stop(estimator: Any, inputs: Any, *_: Any) -> None:
        held.append(inputs)
        raise KeyboardInterrupt

    def go_on(estimator: Any, inputs: Any, *rest: Any) -> Any:
        held.append(inputs)
        return private_metrics(estimator, inputs, *rest)

    for action, more in ((stop, ()), (go_on, ("--resume",))):
        with monkeypatch.context() as patch:
            patch.setattr("dpsep.cli.fit.private_metrics", action)
            done = call(*command, *more)
    assert done.exit_code == 0, done.output
    first, second = held[0].cells(), held[1].cells()
    np.testing.assert_array_equal(first[1], second[1])
    assert first[0].equals(second[0])
    document = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert document["calibration"]["pit"]["rows"] == document["rows"] == 80
    text = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert (
        "Its metrics and histograms of calibration come from one noisy sum over 80 held-out records" in text
    )
