"""The accelerator's part of the speed benchmark keeps what it has, whatever breaks."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from dpsep_lab.bench import speed_ours
from dpsep_lab.bench.speed_peers import Way

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(name="tool")
def _tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("speed_gpu", TOOLS / "speed_gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.frontier_remote, "make_importable", lambda _: None)
    return module


def test_rows_are_written_after_each_part_and_a_broken_one_says_so(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    seen: list[int] = []

    def good(small: bool) -> list[dict[str, Any]]:
        assert small
        path = tmp_path / "speed_gpu.json"
        seen.append(len(json.loads(path.read_text())) if path.exists() else 0)
        return [tool._row("good", "someone", "speed", 1.0)]

    def broken(small: bool) -> list[dict[str, Any]]:
        raise RuntimeError("broken on purpose")

    for name, part in {"whole_fits": good, "rates": broken, "year": good, "growth": good}.items():
        part.__name__ = name
        monkeypatch.setattr(tool, name, part)
    assert tool.main(["run", str(tmp_path), "--out", str(tmp_path), "--small"]) == 1
    rows = json.loads((tmp_path / "speed_gpu.json").read_text())
    assert seen[0] == 0 < seen[1] < seen[2]
    (lost,) = [row for row in rows if row["metric"] == "failed"]
    assert lost["note"] == "RuntimeError: broken on purpose"
    assert sum(row["case"] == "speed/gpu, good" for row in rows) == 3
    assert any(row["metric"] == "device" for row in rows)


def test_growth_has_a_row_a_batch_and_a_width(tool: Any, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[tuple[int, ...], int]] = []

    def way(x: Any, y: Any, *, hidden: tuple[int, ...], batch: int, digits: int) -> Way:
        asked.append((hidden, batch))
        return Way(lambda: None, len(x), "", digits)

    monkeypatch.setattr(speed_ours, "batch_way", way)
    rows = tool.growth(True)
    assert [(row["metric"], row["size"]) for row in rows] == [
        *(("batch", 64), ("batch", 256), ("width", 8), ("width", 16))
    ]
    assert asked == [((8,), 64), ((8,), 256), ((8,), 256), ((16,), 256)]
