"""Keep what seeded fits give now: `python tests/net/keep.py [WORD]`, all or those whose name holds a word."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from net.test_net import KEPT, PARTS


def main(only: str) -> None:
    """Write the file anew."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for part, (names, work) in PARTS.items():
        before = kept.get(part, {})
        kept[part] = {name: before[name] for name in names if name in before}
        for name in names:
            if only in f"{part} {name}":
                with tempfile.TemporaryDirectory() as folder:
                    kept[part][name] = work(name, Path(folder))
                    print(part, name, flush=True)
        KEPT.write_text(_lines(kept), "utf-8")


def _lines(kept: dict[str, dict[str, Any]]) -> str:
    """One line a fit, so that a change shows which moved."""
    parts = []
    for part, found in sorted(kept.items()):
        rows = [f"  {_plain(name)}: {_plain(value)}" for name, value in sorted(found.items())]
        parts.append(f" {_plain(part)}: {{\n" + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
