import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.paper import accounting, figure1, table1
from dpsep.paper.clusters import Experiment, truth

from .help import assert_refused, call

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


def test_an_unknown_table_is_a_wrong_call() -> None:
    assert_refused(call("paper", "table99"), "no table 'table99'", "accounting, table1, figure1")


def test_no_data_sets_are_a_wrong_call() -> None:
    assert_refused(call("paper", "table1", "--seeds", 0), "--seeds must be at least 1")
