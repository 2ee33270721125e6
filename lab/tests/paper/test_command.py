import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep_lab.data import UCI, DataError
from dpsep_lab.paper import accounting, figure1, network_written, networks, table1, theorem, theorem_report
from dpsep_lab.paper.clusters import Experiment, truth
from dpsep_lab.paper.networks import Loaded, Scores, Split

from ..calls import assert_refused, call

Fit = Callable[[Experiment, int], tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epsilon, and our own fits (which have tests of their own) replaced by what is next to the truth."""

    def ours(method: str, epsilon: float | None, *_: Any, **__: Any) -> Fit:
        def fit(experiment: Experiment, seed: int) -> tuple[np.ndarray, np.ndarray]:
            means, covariances = truth(experiment)
            return means + (0.1 if epsilon is None else 0.2), covariances

        return fit

    monkeypatch.setattr(table1, "EPSILONS", (50.0,))
    monkeypatch.setattr(figure1, "EPSILONS", (50.0,))
    monkeypatch.setattr(table1, "ours", ours)


def _strict(constant: str) -> None:
    pytest.fail(f"{constant} is not JSON")


def test_a_table_of_the_paper_is_printed_and_written_as_one_json_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "SETTINGS", accounting.SETTINGS[:1])
    path = tmp_path / "rows.json"
    done = call("paper", "accounting", "--json", path)
    assert done.exit_code == 0, done.output
    assert "as written" in done.stdout
    rows = json.loads(path.read_text())
    assert {row["source"] for row in rows} == {"as accounted", "as written", "ours"}


@pytest.mark.usefixtures("quick")
def test_a_quick_first_table_is_printed_and_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = call("paper", "table1", "--quick", "--seeds", 1, "--json", path)
    assert done.exit_code == 0, done.output
    rows = json.loads(path.read_text(), parse_constant=_strict)
    assert {row["source"] for row in rows} == {
        *("printed", "as written", "as accounted", "authors' noise", "ours")
    }
    ours = [row for row in rows if row["source"] == "ours" and row["metric"] == "F-norm, mean"]
    assert {row["n"] for row in ours} == {1}
    for row in ours:  # four coordinates are off by 0.1 or 0.2
        assert row["mean"] == pytest.approx(0.04 if row["epsilon"] is None else 0.16)
    pairs = [row for row in rows if "paired" in row["metric"]]
    assert {(row["low"], row["high"]) for row in pairs} == {(None, None)}  # one seed has no interval
    lines = [line.split() for line in done.stdout.splitlines()]
    assert any(line[:2] == ["EP", "ours"] and "0.04" in line for line in lines)
    assert any("DP-SEP minus DP-EM" in line for line in done.stdout.splitlines())
    assert "1 data sets and 5 passes" in done.stderr


@pytest.mark.usefixtures("quick")
def test_a_quick_first_figure_is_drawn_into_the_folder(tmp_path: Path) -> None:
    done = call("paper", "figure1", "--quick", "--out", tmp_path, "--json", tmp_path / "rows.json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    rows = json.loads((tmp_path / "rows.json").read_text(), parse_constant=_strict)
    assert len(rows) == 9
    assert "DP-SEP (ours), epsilon = 50" in done.stdout
    assert str(tmp_path / "figure1.png") in done.stderr


def test_the_report_of_the_theorem_is_written_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [{"row": "bounds", "mean": 1.0}]
    monkeypatch.setattr(theorem, "rows", lambda **_: given)
    monkeypatch.setattr(theorem_report, "summary", lambda _: ["a finding"])
    monkeypatch.setattr(theorem_report, "write", lambda folder, rows, quick: [folder / "theorem.md"])
    done = call("paper", "theorem", "--quick", "--out", tmp_path, "--json", tmp_path / "rows.json")
    assert done.exit_code == 0, done.output
    assert "- a finding" in done.stdout
    assert f"written: {tmp_path / 'theorem.md'}" in done.stderr
    assert json.loads((tmp_path / "rows.json").read_text()) == given


def test_an_unknown_table_is_a_wrong_call() -> None:
    words = ("no table 'table99'", "accounting, table1, figure1, table2", "table9", "theorem")
    assert_refused(call("paper", "table99"), *words)


def test_no_data_sets_are_a_wrong_call() -> None:
    assert_refused(call("paper", "table1", "--seeds", 0), "--seeds must be at least 1")


@pytest.fixture
def small_networks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Power alone is there, with ten records; fits are made up, and the list says which were done."""
    done: list[str] = []

    def load(name: str) -> Loaded:
        if name != "power":
            raise DataError(f"{name} is not on this machine")
        X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
        return Loaded(UCI(X, y, ("a", "b"), name), [(np.arange(8), np.arange(8, 10))] * 3)

    def made(level: float) -> Callable[[Split], Scores]:
        def fit(split: Split) -> Scores:
            done.append(split.dataset)
            return Scores(level + split.number, -level)

        return fit

    monkeypatch.setattr(networks, "load", load)
    levels = {"sep": 4.125, "vi": 4.5}
    monkeypatch.setattr(networks, "ours", lambda **given: made(levels.get(given["method"], 4.25)))
    monkeypatch.setattr(network_written, "written", lambda passes, **given: made(17.0))
    return done


def _line(text: str, *start: str) -> list[str]:
    (found,) = [line.split() for line in text.splitlines() if line.split()[: len(start)] == list(start)]
    return found


def test_a_network_table_has_the_four_sources_side_by_side_and_is_written(
    tmp_path: Path, small_networks: list[str]
) -> None:
    out, path = tmp_path / "made" / "here", tmp_path / "rows.json"
    chosen = ("--datasets", "power,year", "--splits", 2, "--out", out, "--json", path)
    done = call("paper", "table3", *chosen)
    assert done.exit_code == 0, done.output
    line = _line(done.stdout, "power", "DP-SEP", "replace-one", "4.032")
    assert line == [
        "power",
        "DP-SEP",
        "replace-one",
        *["4.032", "±", "0.14", "17.5", "±", "0.71", "17.5", "±", "0.71", "4.625", "±", "0.71"],
    ]
    assert _line(done.stdout, "power", "zero-out") == ["power", "zero-out", "-0.375", "-0.375", "-0.375", "2"]
    assert "warning: year was left out: year is not on this machine" in done.stderr
    rows = json.loads(path.read_text(), parse_constant=_strict)
    assert rows == json.loads((out / "table3.json").read_text())
    text = (out / "table3.md").read_text()
    assert (
        "| power | DP-SEP | replace-one | 4.032 ± 0.14 | 17.5 ± 0.71 | 17.5 ± 0.71 | 4.625 ± 0.71 |" in text
    )
    assert "- year was left out: year is not on this machine" in text
    assert "quick" not in text


def test_finished_fits_of_a_folder_are_not_done_again(tmp_path: Path, small_networks: list[str]) -> None:
    chosen = ("--datasets", "power", "--splits", 2, "--out", tmp_path)
    assert call("paper", "table3", *chosen).exit_code == 0
    first = len(small_networks)
    assert first > 0
    assert call("paper", "table4", *chosen).exit_code == 0
    assert len(small_networks) == first


@pytest.mark.parametrize("table", [f"table{number}" for number in range(2, 10)])
def test_every_network_table_can_be_made_quickly_without_a_folder(
    table: str, small_networks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("paper", table, "--quick", "--datasets", "power")
    assert done.exit_code == 0, done.output
    assert "Table " + table.removeprefix("table") in done.stdout
    assert ("A quick run" in done.stderr) == (table not in ("table2", "table6", "table7"))
    assert not list(tmp_path.iterdir())


def test_unknown_sets_and_no_splits_are_wrong_calls() -> None:
    assert_refused(call("paper", "table3", "--datasets", "power,iris"), "no data set 'iris'", "naval, kin8nm")
    assert_refused(call("paper", "table3", "--datasets", ","), "no data set ''")
    assert_refused(call("paper", "table3", "--splits", 0), "--splits must be at least 1")
