"""Metrics on public rows and, for a charge, on rows held out."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from dpsep.cli.metrics import hold_out
from dpsep.cli.overlay import Leaks
from dpsep.cli.table import read_inputs
from dpsep.estimators.row_scores import row_scores
from dpsep.privacy.ledger import Ledger
from dpsep.registry import named

from .help import BOUNDED, assert_refused, call, some, with_cells, write_csv

KINDS = {"linear": "y", "logistic": "ill", "probit": "ill", "poisson": "visits", "gamma": "cost"}
ROWS = 3000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for model, target in KINDS.items():
        frame = pl.DataFrame(some(f"a b {target}", rows=ROWS))
        frame.write_parquet(folder / f"{model}.parquet")
    return folder


def options(model: str) -> list[Any]:
    target = KINDS[model]
    classes = ["--classes", "no,yes"] if target == "ill" else []
    bounds = ["--bounds", "y=-4:4"] if target == "y" else []
    return ["--target", target, "--model", model, "--bounds=-1:1", *bounds, *classes]


def fitted(tables: Path, model: str) -> tuple[Any, Any]:

    inputs = read_inputs(
        str(tables / f"{model}.parquet"),
        Leaks(private=False, strict=False),
        target=KINDS[model],
        model=model,
        classes="no,yes" if KINDS[model] == "ill" else None,
    )
    settings: dict[str, Any] = {} if inputs.classes is None else {"classes": inputs.classes}
    estimator = named(model).load()(private=False, **settings)
    return estimator.fit(inputs.features, inputs.target), inputs


def test_public_metrics_are_what_the_predictions_give(tables: Path, tmp_path: Path) -> None:
    table = tables / "linear.parquet"
    done = call(
        *("fit", table, *options("linear"), "--no-private", "--public-test", table),
        *("--out", tmp_path / "run", "--json"),
    )
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert document == json.loads(done.stdout)["metrics"]
    assert document["rows"] == document["scored"] == ROWS
    rows = json.loads(call("predict", tmp_path / "run", table, "--json").stdout)
    truth = some("y", rows=ROWS)["y"]
    mean, sd, low, high = (np.array([row[name] for row in rows]) for name in ("mean", "sd", "low", "high"))
    assert document["metrics"]["rmse"] == pytest.approx(np.sqrt(np.mean((mean - truth) ** 2)))
    assert document["metrics"]["coverage_90"] == np.mean((low <= truth) & (truth <= high))
    # The predictive is a Student t with thousands of degrees of freedom: a normal but for rounding.
    expected = stats.norm.logpdf(truth, mean, sd).mean()
    assert document["metrics"]["log_density"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("model", KINDS)
def test_private_metrics_are_charged_and_near_the_public_ones(
    tables: Path, tmp_path: Path, model: str
) -> None:
    table = tables / f"{model}.parquet"
    ledger = Ledger.create(tmp_path / "study.db", epsilon=20.0, delta=1e-4)
    done = call(
        *("fit", table, *options(model), "--epsilon", 8, "--ledger", ledger.path, "--metrics-epsilon", 8),
        *("--out", tmp_path / "run", "--json"),
    )
    assert done.exit_code == 0, done.output
    charges = [row for row in ledger.rows() if row.kind == "charge"]
    assert [row.event["purpose"] for row in charges] == ["fit", "metrics on held-out rows"]
    assert 15.9 < ledger.spent().epsilon <= 16.0
    document = json.loads((tmp_path / "run" / "metrics.json").read_text())
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["metrics"] == document["privacy"]
    assert statement["metrics"]["run"] == charges[1].run
    assert document["rows"] == round(0.2 * ROWS)
    assert "600 held-out records" in (tmp_path / "run" / "privacy.txt").read_text()
    estimator, inputs = fitted(tables, model)
    scores = row_scores(estimator, *inputs.cells())
    columns: dict[str, str] = {"rmse": "squared_error", "coverage_90": "covered", "accuracy": "correct"}
    metrics: dict[str, float] = document["metrics"]
    for name, value in metrics.items():
        score = scores[columns.get(name, name)]
        expected, drawn = score.mean(), score.std() / math.sqrt(document["rows"])
        if name == "rmse":
            expected, drawn = math.sqrt(expected), drawn / (2 * math.sqrt(expected))
        # The private posterior, which rows were drawn, and the noise each make a small difference.
        assert abs(value - expected) < 0.06 + 4 * (drawn + document["noise_sd"][name])
        assert document["noise_sd"][name] < 0.05


@pytest.mark.parametrize("model", KINDS)
def test_a_rows_scores_do_not_depend_on_other_rows(tables: Path, model: str) -> None:
    estimator, inputs = fitted(tables, model)
    before = row_scores(estimator, *inputs.cells())
    frame, target, _ = inputs.cells()
    matrix, target = frame.to_numpy().copy(), target.copy()
    matrix[7] = 1e6  # a predictor far away with a large variance
    matrix[11] = np.nan
    target[13] = "" if inputs.classes else np.nan
    changed = pl.DataFrame(matrix, schema=frame.columns)
    after = row_scores(estimator, changed, target)
    same = np.setdiff1d(np.arange(ROWS), [7, 11, 13])
    for name in before:
        np.testing.assert_array_equal(after[name][same], before[name][same])
        assert np.isnan(after[name][[11, 13]]).all()


def test_rows_are_held_out_by_their_number_only(tables: Path) -> None:
    _, inputs = fitted(tables, "linear")
    fit, held = hold_out(inputs, 0.25)
    assert (len(fit.features), len(held.features)) == (2250, 750)
    features, target, _ = inputs.cells()
    other = with_cells(inputs, features * 0.0, np.arange(ROWS))
    again = hold_out(other, 0.25)[1].cells()[1]
    np.testing.assert_array_equal(target[again], held.cells()[1])


def test_bad_rows_change_no_word_of_a_private_call(tmp_path: Path, tables: Path) -> None:
    frame = pl.read_parquet(tables / "logistic.parquet")
    odd = frame.with_columns(ill=pl.lit("perhaps"), a=pl.lit(float("nan")))
    told = []
    for name, table in (("good", frame), ("odd", odd)):
        table.write_parquet(tmp_path / "t.parquet")
        done = call(
            *("fit", tmp_path / "t.parquet", *options("logistic"), "--epsilon", 1, "--metrics-epsilon", 1),
            *("--out", tmp_path / name),
        )
        assert done.exit_code == 0, done.output
        told.append([line for line in done.stderr.splitlines() if "rows could be used" not in line])
        document = json.loads((tmp_path / name / "metrics.json").read_text())
        assert all(math.isfinite(value) for value in document["metrics"].values())
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--metrics-epsilon", 0], "--metrics-epsilon must be a positive number"),
        (["--metrics-epsilon", 1, "--holdout", 1], "--holdout must lie between 0 and 1"),
        (["--metrics-epsilon", 1, "--holdout", 1e-9], "too few"),
        (["--holdout", 0.5], "--metrics-epsilon"),
        (["--metrics-epsilon", 1, "--public-test", "t.csv"], "choose one"),
        (["--metrics-epsilon", 1, "--no-private"], "--public-test"),
        (["--public-test", "none.csv"], "there is no file none.csv"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_spent(
    tmp_path: Path, arguments: list[Any], words: str
) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    done = call(
        *("fit", table, "--target", "y", *BOUNDED, "--epsilon", 1, "--out", tmp_path / "run", *arguments)
    )
    assert_refused(done, words)
    assert not (tmp_path / "run.partial").exists()


def test_what_cannot_be_paid_for_or_has_no_range_is_refused_first(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    ledger = Ledger.create(tmp_path / "study.db", epsilon=1.5, delta=1e-4)
    options = ("fit", table, "--target", "y", "--epsilon", 1, "--out", tmp_path / "run")
    done = call(*options, *BOUNDED, "--metrics-epsilon", 1, "--ledger", ledger.path)
    assert_refused(done, "together need epsilon 2", "No record was read")
    assert ledger.spent().epsilon == 0.0
    mixture = ("fit", table, "--model", "mixture", "--components", 2, "--epsilon", 1, "--out", tmp_path / "r")
    assert_refused(call(*mixture, "--metrics-epsilon", 1), "mixture")


def test_a_run_that_dies_before_its_metrics_goes_on_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    ledger = Ledger.create(tmp_path / "study.db", epsilon=2.0, delta=1e-4)
    command = (
        *("fit", table, "--target", "y", "--epsilon", 1, *BOUNDED, "--out", tmp_path / "run"),
        *("--ledger", ledger.path, "--metrics-epsilon", 1),
    )

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.cli.fit.private_metrics", fail)
        assert call(*command).exit_code == 1
    assert 0.99 < ledger.spent().epsilon <= 1.0
    done = call(*command, "--resume")
    assert done.exit_code == 0, done.output
    assert 1.99 < ledger.spent().epsilon <= 2.0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["rows"] == 80


def test_a_public_table_needs_the_target_and_a_row_that_can_be_scored(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    options = ("fit", table, "--target", "y", "--epsilon", 1, *BOUNDED, "--out", tmp_path / "run")
    bare = write_csv(tmp_path / "bare.csv", some("a b"))
    assert_refused(call(*options, "--public-test", bare), "no column 'y'")
    (tmp_path / "empty.csv").write_text("a,b,y\n,1,2\n1,,2\n")
    assert_refused(call(*options, "--public-test", tmp_path / "empty.csv"), "nothing to score")


def test_a_mixture_is_scored_by_its_density(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b"))
    done = call(
        *("fit", table, "--model", "mixture", "--components", 2, "--no-private", "--public-test", table),
        *("--out", tmp_path / "run", "--json"),
    )
    assert done.exit_code == 0, done.output
    metrics = json.loads(done.stdout)["metrics"]["metrics"]
    rows = json.loads(call("predict", tmp_path / "run", table, "--json").stdout)
    assert metrics == {"log_density": pytest.approx(np.mean([row["log_density"] for row in rows]))}
