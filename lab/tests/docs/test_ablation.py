"""The page of the ablation is what its kept results make it; verdicts follow from paired differences."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpsep_lab.bench.levers import DEFAULT, LEVERS
from dpsep_lab.bench.levers_results import ALONE, REAL, Change, Results, held_table, table_of, verdict

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "lab" / "tools" / "ablation.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("ablation", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _line(lever: str, table: str, ll: list[float], rmse: list[float] | None = None) -> dict[str, Any]:
    return {"lever": lever, "table": table, "log_likelihood": ll, "rmse": rmse or [1.0] * len(ll)}


def _change(results: Results, lever: str, metric: str = "log_likelihood", without: str = "") -> Change:
    found = results.change(lever, metric, without)
    assert found is not None
    return found


def test_the_page_is_rendered_from_the_results_that_are_kept() -> None:
    command = [sys.executable, str(TOOL), "render", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_lever_has_a_place_on_the_page(tool: Any) -> None:
    assert {lever.group for lever in LEVERS[1:]} == set(tool.GROUPS)
    assert set(tool.UNDONE) <= {lever.name for lever in LEVERS}
    page = tool.PAGE.read_text("utf-8")
    for name in ("settings", "held", "tables", "undone", "better", *tool.GROUPS):
        assert f"<!-- made: {name} -->" in page


def test_differences_are_paired_by_table_and_seed(tool: Any) -> None:
    name = LEVERS[1].name
    lines = [
        _line(DEFAULT.name, "a", [-1.0, -2.0], [1.0, 2.0]),
        _line(DEFAULT.name, "b", [-1.0, -1.0]),
        _line(name, "a", [-0.9, -1.9], [0.5, 1.0]),
        _line(name, "b", [-0.7, -0.7]),
    ]
    results = Results(lines)
    change = _change(results, name)
    assert change.mean == pytest.approx(0.2)
    assert change.error == pytest.approx((0.04 / 3) ** 0.5 / 2)
    assert change.tables == pytest.approx({"a": 0.1, "b": 0.3})
    assert change.clear == "better"
    assert _change(results, name, "rmse").tables["a"] == pytest.approx(-0.6931472)


@pytest.mark.parametrize(("values", "words"), [([0.2, -0.2, 0.1], ""), ([-0.2, -0.21, -0.2], "worse")])
def test_a_verdict_needs_two_standard_errors(tool: Any, values: list[float], words: str) -> None:
    lines = [_line(DEFAULT.name, "a", [0.0] * 3), _line("other", "a", values)]
    assert _change(Results(lines), "other").clear == words


def test_one_table_does_not_hide_what_the_others_say(tool: Any) -> None:
    lines = [_line(DEFAULT.name, table, [0.0, 0.0]) for table in ("a", ALONE)]
    lines += [_line("other", "a", [0.1, 0.11]), _line("other", ALONE, [-2.0, 2.0])]
    results = Results(lines)
    both = _change(results, "other"), _change(results, "other", without=ALONE)
    assert verdict(*both) == f"better without {ALONE}"
    assert both[1].tables == pytest.approx({"a": 0.105})


def test_fits_that_are_not_finite_are_counted_and_named(tool: Any) -> None:
    lever = LEVERS[1]
    lines = [
        _line(DEFAULT.name, "a", [0.0, 0.0, 0.0]),
        _line(lever.name, "a", [0.1, float("nan"), 0.3]),
    ]
    results = Results(lines)
    assert _change(results, lever.name).failed == 1
    text = table_of(results, [lever, LEVERS[2]])
    assert "not finite in 1 fits" in text
    assert f"| {LEVERS[2].name} | not measured |" in text


def test_private_fits_stand_beside_simulated_ones() -> None:
    lines = [
        _line(DEFAULT.name, "a", [0.0, 0.2]),
        _line(REAL, "a", [0.1, 0.1]),
        _line(DEFAULT.name, "b", [1, 1]),
    ]
    text = held_table(Results(lines))
    assert "| a | 0.100 ± 0.000 | 0.100 ± 0.100 | 1.000 ± 0.000 | 1.000 ± 0.000 |" in text
    assert "| b |" not in text


def test_lines_of_many_processes_are_kept_once(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines.jsonl"
    for value in (-1.0, -2.0):
        tool.append(path, _line(DEFAULT.name, "arm", [value, float("nan")]))
    with path.open("a") as file:
        file.write('{"lever": "cut o')
    monkeypatch.setattr(tool, "KEPT", tmp_path / "kept.json")
    tool.keep(tmp_path)
    document = json.loads((tmp_path / "kept.json").read_text())
    kept = document["lines"]
    assert document["about"]["committed"]["damping"] == DEFAULT.numbers_of(100)[0].damping
    assert [line["log_likelihood"] for line in kept] == [[-2.0, None]]
