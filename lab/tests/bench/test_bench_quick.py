"""The benchmark runs from end to end on small made tables and writes what it promises."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.data import encoded_bounds
from dpsep_lab import bench
from dpsep_lab.bench import accuracy, cost, table
from dpsep_lab.data import ADULT_SCHEMA, UCI, DataError

from ..calls import call

KEYS = {"case", "who", "metric", "value", "unit", "ratio_to", "ratio"}


def _regression(name: str) -> UCI:
    rng = np.random.default_rng(len(name))
    X = rng.uniform(-1, 1, (600, 2))
    y = 3 + X @ [1.0, -2.0] + 0.3 * rng.standard_normal(600)
    return UCI(X, y, ("a", "b"), name)


def _classes() -> tuple[np.ndarray, np.ndarray, accuracy.Split]:
    """Return 1500 rows with Adult's columns, whose label follows the first."""
    rng = np.random.default_rng(0)
    low, high = encoded_bounds(ADULT_SCHEMA)
    X = np.where(rng.uniform(size=(1500, len(low))) < 0.1, high, low)
    X[:, 0] = rng.uniform(low[0], high[0], 1500)
    chance = 1 / (1 + np.exp(-(X[:, 0] - X[:, 0].mean()) / 5))
    return X, (rng.uniform(size=1500) < chance).astype(float), (np.arange(1000), np.arange(1000, 1500))


def _read(path: Path) -> list[dict[str, Any]]:
    rows = json.loads(path.read_text())
    assert all(set(row) >= KEYS for row in rows)
    return rows


def test_linear_rows_compare_everyone_with_least_squares(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(accuracy, "LINEAR", ("power",))
    monkeypatch.setattr(accuracy, "load_uci", _regression)
    monkeypatch.setattr(accuracy, "splits", lambda name: [(np.arange(540), np.arange(540, 600))] * 2)
    assert bench.run(["linear"], True, tmp_path / "rows.json") == 0
    rows = [row for row in _read(tmp_path / "rows.json") if row["case"] == "linear/power"]
    rmse = {row["who"]: row for row in rows if row["metric"] == "rmse"}
    assert {"least squares", "AdaSSP", "dpsep private", "dpsep private, private scaling"} <= set(rmse)
    assert rmse["least squares"]["value"] == pytest.approx(0.3, rel=0.2)  # the noise of the made target
    ours = rmse["dpsep private"]
    assert ours["ratio"] == pytest.approx(ours["value"] / rmse["least squares"]["value"])
    assert ours["ratio_to"] == "least squares"
    assert ours["relation"] == "zero-out"
    assert ours["epsilon"] == 1.0
    assert rmse["AdaSSP"]["relation"] == "add or remove one record"
    assert any(row["metric"] == "log-likelihood" for row in rows)
    assert "linear/power" in capsys.readouterr().out


@pytest.mark.deep
def test_adult_rows_hold_accuracy_and_log_likelihood_of_everyone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(accuracy, "adult_table", _classes)
    assert bench.run(["adult"], True, tmp_path / "rows.json") == 0
    rows = [row for row in _read(tmp_path / "rows.json") if row["case"] == "adult"]
    found = {(row["who"], row["metric"]): row["value"] for row in rows}
    for who in ("scikit-learn", "dpsep, private=False", "dpsep private", "dpsep private, private scaling"):
        assert 0 <= found[who, "accuracy"] <= 1
        assert found[who, "log-likelihood"] < 0
    assert found["dpsep, private=False", "accuracy"] > 0.8  # the label follows one column closely


def test_missing_tables_are_skipped_and_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def nowhere(*_: object) -> Any:
        raise DataError("not on this machine")

    monkeypatch.setattr(accuracy, "load_uci", nowhere)
    monkeypatch.setattr(accuracy, "adult_table", nowhere)
    assert bench.run(["adult", "linear", "cost"], True, tmp_path / "rows.json") == 0
    rows = [row for row in _read(tmp_path / "rows.json") if row["metric"] == "skipped"]
    assert [row["case"] for row in rows] == ["adult", *(f"linear/{name}" for name in accuracy.LINEAR), "cost"]
    assert all(row["note"] == "not on this machine" for row in rows)


def test_a_case_that_breaks_is_a_row_and_an_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def broken(*_: object) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(accuracy, "adult", broken)
    assert bench.run(["adult"], True, tmp_path / "rows.json") == 1
    assert _read(tmp_path / "rows.json")[-1]["note"] == "RuntimeError: broken on purpose"


def test_a_peer_that_does_not_run_is_a_row_and_our_own_failure_is_an_error():
    def broken(_: object) -> Any:
        raise TypeError("an argument too many")

    split = (np.arange(2), np.arange(2, 4))
    good = accuracy.Peer("least squares", accuracy.OPEN, "none", lambda _: {"rmse": 2.0})
    peer = accuracy.Peer("diffprivlib", accuracy.PURE, "none", broken)
    rows = accuracy.compare("x", [good, peer], [split], draws=3, compared=("rmse",))
    assert [(row["who"], row["metric"], row["value"]) for row in rows] == [
        ("least squares", "rmse", 2.0),
        ("diffprivlib", "skipped", None),
    ]
    assert "TypeError: an argument too many" in rows[1]["note"]
    with pytest.raises(TypeError, match="too many"):
        accuracy.compare("x", [peer._replace(who="dpsep private")], [split], draws=1, compared=())


def test_means_are_taken_over_splits_and_draws_of_noise():
    values = iter([1.0, 2.0, 3.0, 6.0])
    noisy = accuracy.Peer("someone", accuracy.ZERO_OUT, "none", lambda _: {"rmse": next(values)})
    split = (np.arange(2), np.arange(2, 4))
    (row,) = accuracy.compare("x", [noisy], [split, split], draws=2, compared=("rmse",))
    assert (row["value"], row["median"], row["n"], row["splits"]) == (3.0, 2.5, 4, 2)
    assert row["sd"] == pytest.approx(math.sqrt(14 / 3))


def test_an_unknown_case_is_a_wrong_call(capsys: pytest.CaptureFixture[str]):
    assert bench.run(["weather"], True, None) == 2
    assert "adult, linear, cost, coverage" in capsys.readouterr().err


@pytest.mark.deep
def test_cost_counts_one_compilation_and_measures_memory():
    X, y, _ = _classes()
    rows = cost.measure("cost/made", X, y, encoded_bounds(ADULT_SCHEMA), repeats=1)
    values = {(row["who"], row["metric"]): row["value"] for row in rows}
    assert values["dpsep private", "kernels compiled, second fit"] == 0
    assert values["dpsep private", "kernels compiled, first fit"] >= 1
    assert values["table", "bytes"] == X.nbytes + y.nbytes
    peaks = [row["value"] for row in rows if row["metric"].startswith("peak")]
    assert peaks[0] >= peaks[1] > 0


def test_numbers_that_are_not_finite_become_null(tmp_path: Path):
    table.write([table.row("a", "b", "c", math.inf)], tmp_path / "rows.json")
    assert _read(tmp_path / "rows.json")[0]["value"] is None


def test_bench_gets_its_cases_and_gives_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def run(cases: list[str], quick: bool, json_path: Path | None, **_: object) -> int:
        seen.extend([cases, quick, json_path])
        return 1

    monkeypatch.setattr("dpsep_lab.bench.run", run)
    assert call("bench", "--quick", "--json", "rows.json", "linear").exit_code == 1
    assert seen == [["linear"], True, Path("rows.json")]
