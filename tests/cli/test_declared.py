"""What a schema declares reaches fits and predictions: rules for missing cells, units, formats of tables."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dpsep.data import Schema
from dpsep.estimators.store import load

from .help import assert_refused, call, some, write_csv

RULES = """
target = "y"
na = ["-9"]
[[columns]]
name = "a"
kind = "number"
bounds = [-1, 1]
missing = { fill = 0 }
indicator = true
[[columns]]
name = "sex"
kind = "category"
categories = ["F", "M"]
missing = "category"
[[columns]]
name = "y"
kind = "number"
bounds = [-4, 4]
"""


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose missing cells, written in several ways, shift the target by known amounts."""
    cells: dict[str, Any] = some("a sex", rows=600)
    rng = np.random.default_rng(0)
    no_a, no_sex = rng.uniform(size=(2, 600)) < 0.3
    y = np.where(no_a, 1.0, cells["a"]) + np.where(no_sex, -1.0, 0.0) + 0.1 * rng.standard_normal(600)
    cells["a"] = np.where(no_a, rng.choice(["", "-9"], 600), cells["a"].astype(str))
    cells["sex"] = np.where(no_sex, rng.choice(["", "-9"], 600), cells["sex"])
    folder = tmp_path_factory.mktemp("gaps")
    (folder / "s.toml").write_text(RULES)
    write_csv(folder / "t.csv", cells | {"y": y.round(4)})
    return folder


def test_missing_cells_are_fitted_and_predicted_by_their_rules(gaps: Path, tmp_path: Path) -> None:
    done = call(
        *("fit", gaps / "t.csv", "--schema", gaps / "s.toml", "--no-private"),
        *("--out", tmp_path / "run", "--json"),
    )
    assert done.exit_code == 0, done.output
    means = {row["name"]: row["mean"] for row in json.loads(done.stdout)["summary"]}
    assert list(means) == ["intercept", "a", "a=missing", "sex=M", "sex=missing"]
    for name, truth in {"a": 1.0, "a=missing": 1.0, "sex=M": 0.0, "sex=missing": -1.0}.items():
        assert abs(means[name] - truth) < 0.05
    (tmp_path / "new.csv").write_text("a,sex\n-9,\n0.5,F\nold,F\n")
    rows = json.loads(call("predict", tmp_path / "run", tmp_path / "new.csv", "--json").stdout)
    assert abs(rows[0]["mean"] - 0.0) < 0.1
    assert abs(rows[1]["mean"] - 0.5) < 0.1
    assert rows[2]["mean"] is None


def test_the_shape_of_a_private_fit_does_not_depend_on_whether_cells_are_missing(
    gaps: Path, tmp_path: Path
) -> None:
    full = write_csv(tmp_path / "full.csv", some("a sex y", rows=600))
    names = []
    for table in (gaps / "t.csv", full):
        out = tmp_path / table.stem
        done = call("fit", table, "--schema", gaps / "s.toml", "--epsilon", 2, "--out", out, "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["warnings"] == []
        names.append([row["name"] for row in json.loads(done.stdout)["summary"]])
    assert names[0] == names[1]


def test_a_unit_is_left_out_of_the_features_and_warned_of(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", some("a y") | {"patient": np.arange(400) // 40})
    text = (
        'unit = "patient"\ngroups = 10\nrows_per_unit = 2\n'
        + RULES.replace('na = ["-9"]', "").split("[[columns]]")[0]
    )
    columns = '[[columns]]\nname = "{}"\nkind = "number"\nbounds = [-4, 4]\n'
    (tmp_path / "s.toml").write_text(text + columns.format("a") + columns.format("y"))
    options = ("--schema", tmp_path / "s.toml", "--epsilon", 1, "--unit", "record")
    done = call("fit", table, *options, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert [row["name"] for row in document["summary"]] == ["intercept", "a", "sd(intercept)"]
    warning = document["warnings"][0]
    assert "all rows of one 'patient' tell together" in warning
    assert "k times this epsilon" in warning
    assert "'patient'" in (tmp_path / "run" / "privacy.txt").read_text()
    stored = Schema.read(tmp_path / "run" / "schema.toml")
    assert (stored.unit, stored.groups, stored.rows_per_unit) == ("patient", 10, 2)
    assert_refused(call("fit", table, *options, "--out", tmp_path / "x", "--strict"), "patient")
    assert call("predict", tmp_path / "run", write_csv(tmp_path / "n.csv", some("a"))).exit_code == 0
    bare = write_csv(tmp_path / "bare.csv", some("a y"))
    assert_refused(call("fit", bare, *options, "--out", tmp_path / "x"), "no column 'patient'")


def test_a_target_that_the_schema_lacks_is_named(tmp_path: Path, gaps: Path) -> None:
    done = call(
        *("fit", gaps / "t.csv", "--schema", gaps / "s.toml", "--target", "age", "--epsilon", 1),
        *("--out", tmp_path / "run"),
    )
    assert_refused(done, "the schema does not declare the target", "no column 'age'")


def packed(kind: str) -> bytes:
    frame, buffer = pl.DataFrame(some("a b y")), io.BytesIO()
    oldest = pl.CompatLevel.oldest()
    if kind == "parquet":
        frame.write_parquet(buffer)
    elif kind == "arrow":
        frame.write_ipc(buffer, compat_level=oldest)
    elif kind == "stream":
        frame.write_ipc_stream(buffer, compat_level=oldest)
    else:
        frame.write_csv(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "stream"])
def test_standard_input_is_recognised(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(packed(kind))

    monkeypatch.setattr(sys, "stdin", Input())
    from dpsep.cli.overlay import Leaks
    from dpsep.cli.table import read_inputs

    leaks = Leaks(private=True, strict=False)
    inputs = read_inputs("-", leaks, target="y")
    assert inputs.columns == ["a", "b"]
    # Types are guessed of text only.
    assert len(leaks.found) == (1 if kind == "csv" else 0)


def test_a_pipe_goes_through_fit_and_predict(tmp_path: Path) -> None:
    def run(*arguments: Any) -> str:
        command = [sys.executable, "-m", "dpsep.cli", *map(str, arguments)]
        done = subprocess.run(command, input=packed("parquet"), capture_output=True, check=True)
        return done.stdout.decode()

    run("fit", "-", "--target", "y", "--no-private", "--quiet", "--out", tmp_path / "run")
    assert run("predict", tmp_path / "run", "-").count("\n") == 401
    assert load(tmp_path / "run")


def test_a_format_that_is_not_the_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.bin").write_bytes(packed("csv"))
    options = ("--target", "y", "--no-private", "--quiet", "--out", tmp_path / "run")
    assert_refused(call("fit", tmp_path / "t.bin", *options), "--format")
    assert_refused(call("fit", tmp_path / "t.bin", "--format", "parquet", *options), "Parquet")
    assert call("fit", tmp_path / "t.bin", "--format", "csv", *options).exit_code == 0
