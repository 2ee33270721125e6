"""Networks by the command line: fit and predict."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.estimators.store import load

from .help import assert_refused, call, write_csv


def table_of(rows: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (rows, 2)).round(4)
    y = (2.0 * x[:, 0] - x[:, 1] + 0.1 * rng.standard_normal(rows)).round(4)
    return {"a": x[:, 0], "b": x[:, 1], "y": y, "label": np.where(y > 0, "yes", "no")}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", table_of())


def test_a_private_network_is_fitted_stored_and_predicts(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    bounds = ("--bounds", "a=-1:1", "--bounds", "b=-1:1", "--bounds", "y=-4:4")
    done = call(
        *("fit", table, "--target", "y", "--drop", "label", "--model", "network", "--hidden", "3"),
        *("--epsilon", 20, *bounds, "--out", run, "--json"),
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["model"] == "network"
    assert told["privacy"]["epsilon"] <= 20
    assert [row["weights"] for row in told["summary"]] == [9, 6]  # two columns reach the output directly
    assert load(run).hidden_ == (3,)  # pyright: ignore[reportAttributeAccessIssue]
    rows = list(csv.DictReader(io.StringIO(call("predict", run, table).stdout)))
    assert len(rows) == 400
    assert all(float(row["low"]) < float(row["mean"]) < float(row["high"]) for row in rows)


def test_a_classifier_without_hidden_units_is_fitted_and_shown(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = call(
        *("fit", table, "--target", "label", "--drop", "y", "--model", "network-classifier", "--hidden", "0"),
        *("--classes", "no,yes", "--no-private", "--out", run),
    )
    assert done.exit_code == 0, done.output
    assert "NetworkClassifier of label" in done.stdout
    rows = list(csv.DictReader(io.StringIO(call("predict", run, table).stdout)))
    right = np.mean(
        [row["prediction"] == label for row, label in zip(rows, table_of()["label"], strict=True)]
    )
    assert right > 0.9


def test_hidden_layers_that_are_none_or_of_no_network_are_refused(table: Path, tmp_path: Path) -> None:
    start = ("fit", table, "--target", "y", "--epsilon", 1, "--out", tmp_path / "run")
    assert_refused(call(*start, "--model", "network", "--hidden", "3,x"), "names no layers")
    assert_refused(call(*start, "--model", "linear", "--hidden", "3"), "is for --model network")
