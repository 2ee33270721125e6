"""Where the time of the test suite goes: a plugin of pytest, and the table that is made of what it wrote.

    PYTHONPATH=. pytest -p tools.test_times ...  # one line of JSON a test, in build/test-times
    python tools/test_times.py                    # seconds by file and by cause, slowest first
    python tools/test_times.py --tests 40         # the slowest tests

Causes: *compile* is the backend's work on programs that the cache did not have (*spared*: what it saved),
*trace* tracing and lowering of JAX programs, *processes* processor seconds of child processes (shells,
servers, browsers), *rest* everything else: fits and statistics.
"""

import argparse
import json
import os
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "build" / "test-times"
EVENTS = {
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "trace",
    "/jax/compilation_cache/compile_time_saved_sec": "spared",
}
KEPT = 3600.0
"""Seconds after which results belong to an earlier run."""
_spent: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    """Listen to JAX, and begin with no results."""
    import jax

    jax.monitoring.register_event_duration_secs_listener(_listen)
    FOLDER.mkdir(parents=True, exist_ok=True)
    # `make test` calls pytest twice: what the first call wrote is kept for an hour.
    if not hasattr(config, "workerinput"):
        for old in FOLDER.glob("*.jsonl"):
            if time.time() - old.stat().st_mtime > KEPT:
                old.unlink()


def _listen(event: str, seconds: float, **_: Any) -> None:
    if event in EVENTS:
        _spent[EVENTS[event]] += seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write down what a test took, its fixtures included."""
    _spent.clear()
    before, began = _clocks(), time.monotonic()
    result = yield
    own, children, peak = _clocks()
    line = {"test": item.nodeid, "wall": time.monotonic() - began, **_spent}
    line |= {"own": own - before[0], "processes": children - before[1], "peak": peak}
    with (FOLDER / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl").open("a") as file:
        file.write(
            json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in line.items()}) + "\n"
        )
    return result


def _clocks() -> tuple[float, float, int]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime, own.ru_maxrss // 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Where the time of the last run went.")
    parser.add_argument("--tests", type=int, default=0, metavar="N", help="also the N slowest tests")
    parser.add_argument("--files", type=int, default=25, metavar="N", help="the N slowest files")
    asked = parser.parse_args()
    lines = [json.loads(line) for path in FOLDER.glob("*.jsonl") for line in path.read_text().splitlines()]
    files: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        files["all"].update(_causes(line))
        files[line["test"].split("::")[0]].update(_causes(line))
    print(f"{'file':58s} tests   wall compile  trace  procs   rest  spared")
    for name, sums in sorted(files.items(), key=lambda one: -one[1]["wall"])[: asked.files + 1]:
        values = (sums[key] for key in ("wall", "compile", "trace", "processes", "rest", "spared"))
        print(f"{name:58s} {sums['tests']:5d} " + " ".join(f"{value:6.0f}" for value in values))
    print(f"peak memory of a worker: {max((line['peak'] for line in lines), default=0)} MiB")
    for line in sorted(lines, key=lambda one: -one["wall"])[: asked.tests]:
        print(f"{line['wall']:6.1f} s  {line['test']}")


def _causes(line: dict[str, Any]) -> dict[str, Any]:
    found = {key: line.get(key, 0.0) for key in ("wall", "compile", "trace", "spared", "processes")}
    known = found["compile"] + found["trace"] + found["processes"]
    return found | {"tests": 1, "rest": max(0.0, found["wall"] - known)}


if __name__ == "__main__":
    main()
