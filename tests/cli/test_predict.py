import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpsep.estimators.store import load

from .help import call, columns, some, write_csv


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run of each kind, without privacy so that expected values are known well."""
    place = tmp_path_factory.mktemp("runs")
    for target, model in (("y", "linear"), ("visits", "poisson"), ("ill", "probit")):
        table = write_csv(place / f"{model}.csv", some(f"a b {target}"))
        done = call(
            *("fit", table, "--target", target, "--model", model, "--no-private"),
            *("--out", place / model, "--quiet"),
        )
        assert done.exit_code == 0, done.output
    return place


def read(text: str) -> dict[str, np.ndarray]:
    rows = list(csv.DictReader(io.StringIO(text)))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def test_numbers_get_mean_sd_and_a_normal_interval(runs: Path) -> None:
    done = call("predict", runs / "linear", runs / "linear.csv")
    assert done.exit_code == 0, done.output
    got = read(done.stdout)
    mean, sd, low, high = (got[name].astype(float) for name in ("mean", "sd", "low", "high"))
    truth = columns()
    assert np.abs(mean - (1 + truth["a"] - 2 * truth["b"])).max() < 0.05  # noise of 0.1 over 400 rows
    np.testing.assert_allclose(high - low, 2 * stats.norm.ppf(0.95) * sd)
    inside = (low < truth["y"]) & (truth["y"] < high)
    assert 0.85 < inside.mean() < 0.95


def test_counts_get_an_interval_of_counts(runs: Path) -> None:
    done = call("predict", runs / "poisson", runs / "poisson.csv")
    got = read(done.stdout)
    low, high = got["low"].astype(float), got["high"].astype(float)
    assert (low == low.round()).all()
    inside = (low <= columns()["visits"]) & (columns()["visits"] <= high)
    assert inside.mean() > 0.88  # discrete: at least 90 %, but for chance
    mean = got["mean"].astype(float)
    assert np.abs(np.log(mean) - (0.5 + columns()["a"])).max() < 0.5


def test_answers_get_a_probability_between_its_bounds(runs: Path, tmp_path: Path) -> None:
    done = call("predict", runs / "probit", runs / "probit.csv", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0
    assert done.stdout == ""
    got = read((tmp_path / "p.csv").read_text())
    chance, low, high = (got[name].astype(float) for name in ("probability", "low", "high"))
    assert ((low < chance) & (chance < high)).all()
    assert set(got["prediction"]) == {"no", "yes"}
    np.testing.assert_array_equal(got["prediction"] == "yes", chance > 0.5)
    assert np.abs(chance - 1 / (1 + np.exp(-4 * columns()["a"]))).max() < 0.2


def test_another_place_needs_the_folder_and_nothing_else(runs: Path, tmp_path: Path) -> None:
    here = call("predict", runs / "linear", runs / "linear.csv").stdout
    moved = shutil.copytree(runs / "linear", tmp_path / "elsewhere")
    table = write_csv(tmp_path / "t.csv", some("b a"))  # the target is not there, the order is another
    assert call("predict", moved, table).stdout == here


def test_rows_that_cannot_be_predicted_are_left_empty(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n0.5,0.5\n?,0.5\n0.5,0.5\n")
    done = call("predict", runs / "linear", tmp_path / "t.csv", "--json")
    rows = json.loads(done.stdout)
    assert [row["row"] for row in rows] == [1, 2, 3]
    assert rows[1] == {"row": 2, "mean": None, "sd": None, "low": None, "high": None}
    assert rows[0]["mean"] == rows[2]["mean"]
    assert "1 of 3 rows" in done.stderr
    (tmp_path / "t.csv").write_text("a,b\n?,0.5\n")
    assert call("predict", runs / "linear", tmp_path / "t.csv").stdout == "row,mean,sd,low,high\n1,,,,\n"


def test_changed_or_foreign_folders_are_refused(runs: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(runs / "linear", tmp_path / "run")
    text = (moved / "schema.toml").read_text()
    (moved / "schema.toml").write_text(text.replace('"a"', '"b"'))
    for folder, word in (
        (moved, "was changed"),
        (tmp_path, "no manifest.json"),
        (tmp_path / "x", "no folder"),
    ):
        done = call("predict", folder, runs / "linear.csv")
        assert done.exit_code == 2
        assert word in done.stderr
        assert done.stdout == ""


def test_a_table_without_the_columns_is_refused(runs: Path, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", some("a"))
    done = call("predict", runs / "linear", table)
    assert done.exit_code == 2
    assert "there is no column 'b'" in done.stderr


def test_the_stored_run_is_the_estimator(runs: Path) -> None:
    assert type(load(runs / "probit")).__name__ == "ProbitRegression"


def test_predictions_for_the_fitted_table_are_said_to_be_about_its_records(tmp_path: Path) -> None:
    """By its size and its columns, held-out rows counted; of other tables nothing is said."""
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    bounds = ("--bounds", "a=-1:1", "--bounds", "b=-1:1", "--bounds", "y=-4:4")
    for name, more in {"run": (), "held": ("--metrics-epsilon", "1")}.items():
        words = ("fit", table, "--target", "y", "--epsilon", "2", "--delta", "1e-4", *bounds, *more)
        done = call(*words, "--out", tmp_path / name, "--quiet")
        assert done.exit_code == 0, done.output
        done = call("predict", tmp_path / name, table)
        assert "these predictions are about its records and NOT PRIVATE" in done.stderr
    cells = some("a b y")
    shorter = write_csv(tmp_path / "s.csv", {key: values[:-1] for key, values in cells.items()})
    without = write_csv(tmp_path / "w.csv", some("a b"))
    for other in (shorter, without):
        done = call("predict", tmp_path / "run", other)
        assert done.exit_code == 0
        assert "NOT PRIVATE" not in done.stderr
