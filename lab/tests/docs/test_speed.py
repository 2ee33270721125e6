"""The page of speeds is what its kept rows make it, and names every target."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "speed.md"
TARGETS = (
    *("sequential SEP, times HIPS C", "batch DP-SEP, exact factors, clip, secure noise, times HIPS C"),
    *("times Opacus with index batches", "floor over measured", "secure noise, share of a batch step"),
    *("one-record private mode, float noise", "one-record private mode, secure noise"),
    *("full private kin8nm fit (defaults) after import, 2 cores", "after import, H200"),
    *("Year's shape, 40 expected passes, H200", "`import dpsep`", "`dpsep --help`"),
    *("cost a record flat from N = 10^3 to 10^7", "time against width", "time against depth"),
    *("time against features", "time against batch"),
)


@pytest.fixture(name="speed")
def _speed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "lab" / "tools" / "docs"))
    spec = importlib.util.spec_from_file_location("docs_speed", ROOT / "lab" / "tools" / "docs" / "speed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "docs_speed", module)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_rendered_from_the_rows_that_are_kept(speed: Any) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert speed.render(text) == text


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_line(target: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("<!-- made: targets -->")[1].split("<!-- end -->")[0]
    (line,) = [line for line in table.splitlines() if target in line][:1]
    assert line.count("|") == 5
    assert not line.endswith("|  |")


def test_every_block_of_the_page_is_made_and_every_picture_is_there(speed: Any) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {match[2] for match in speed.BLOCK.finditer(text)} == set(speed.MADE)
    for name in ("speed_rates.png", "speed_growth.png"):
        assert f"(benchmarks/{name})" in text
        assert (ROOT / "docs" / "benchmarks" / name).exists()


def _rows(**changed: Any) -> list[dict[str, Any]]:
    rate = {"case": "speed/1 core", "metric": "speed", "unit": "records/s", "digits": 32, "first_call": 1.0}
    values = {
        "SEP, one record a step": {"value": 3e5, "hips": 3.5, "ratio": 1.9, "over_floor": 7.0},
        "DP-SEP, batches, secure noise, gate": {"value": 1e5, "hips": 7.9, "ratio": 4.1, "over_floor": 3.6},
    }
    rows = [rate | {"who": who} | row | changed for who, row in values.items()]
    start = {"case": "speed/startup", "metric": "seconds", "who": "dpsep --help", "value": 0.6, "cpu": 0.4}
    fit = {"case": "speed/fit, 2 cores, declared scaling", "who": "dpsep private, defaults", "unit": "s"}
    rows += [start, fit | {"metric": "first fit", "value": 9.0}, fit | {"metric": "later fits", "value": 2.0}]
    grown = {"case": "speed/growth, 1 core", "metric": "records", "who": "full release", "unit": "us/record"}
    return rows + [grown | {"size": size, "value": value} for size, value in ((10**3, 2.0), (10**7, 2.5))]


def test_verdicts_follow_the_figures(speed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(speed, "KEPT", tmp_path)
    (tmp_path / "speed.json").write_text(json.dumps(_rows()))
    lines = {line.split(" | ")[0].strip("| "): line for line in speed.targets().splitlines()}

    def verdict(start: str) -> str:
        (line,) = [line for name, line in lines.items() if name.startswith(start)]
        return line.split(" | ")[-1].strip(" |")

    assert verdict("sequential SEP") == "met"
    assert verdict("batch DP-SEP") == "**not met**"
    assert verdict("the same, times Opacus") == "met"
    assert verdict("the same, floor") == "**not met**"
    assert verdict("`dpsep --help`") == "**not met**"
    assert verdict("`import dpsep`") == speed.MISSING
    assert verdict("full private kin8nm fit (defaults) after import, 2 cores") == "once compiled only"
    assert verdict("cost a record flat from N = 10^3 to 10^7, full") == "met"
    assert verdict("Year's shape") == speed.MISSING


def test_a_growth_that_stops_short_is_not_called_flat(
    speed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(speed, "KEPT", tmp_path)
    rows = [row for row in _rows() if row.get("size") != 10**7]
    (tmp_path / "speed.json").write_text(json.dumps(rows))
    (line,) = [line for line in speed.targets().splitlines() if "full release" in line]
    assert "only" in line
