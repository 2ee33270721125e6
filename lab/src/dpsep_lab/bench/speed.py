"""Speed and cost: records a second against other packages and the machine's floor, fits, start, growth.

`speed` is what ``dpsep bench speed`` calls. Its parts run one after the other, each in a process of its own
that is held to one or two cores: `dpsep_lab.bench.speed_rates` (everyone in turn),
`dpsep_lab.bench.speed_shares` (where a step's time goes), `dpsep_lab.bench.speed_fits` (whole private fits;
error reached in what time), `dpsep_lab.bench.speed_startup` (imports and the command line) and
`dpsep_lab.bench.speed_growth`. Ratios are of the same run. ``lab/tools/docs/speed.py`` lays the rows beside
the project's targets, in docs/speed.md.

    python -m dpsep_lab.bench.speed FOLDER [--quick]

keeps the rows of each part in a folder and all of them in its ``speed.json``; a run that was stopped goes on.

**Privacy.** Made or public data; nothing printed is a private release.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dpsep_lab.bench import speed_startup
from dpsep_lab.bench.speed_child import ask
from dpsep_lab.bench.table import Row, about, row, write

PACKAGES = ("torch", "opacus", "jax-privacy", "jaxlib", "scipy", "numba")
"""Versions that are told beside those of every benchmark."""


def speed(quick: bool = False, folder: Path | None = None) -> list[Row]:
    """Run every part; one that fails is a row, and the others go on.

    Parameters
    ----------
    quick
        A short run.
    folder
        Where to keep the rows of each part; parts that are there already are not run again.
    """
    rows = machine()
    for name, measure in parts(quick).items():
        path = None if folder is None else folder / f"{name}.json"
        if path is not None and path.exists():
            rows += json.loads(path.read_text(encoding="utf-8"))
            continue
        found = part(name, measure)
        if path is not None and all(one["metric"] != "failed" for one in found):
            write(found, path)
        rows += found
    return rows


def parts(quick: bool) -> dict[str, Callable[[], list[Row]]]:
    """Return the parts of a run, in their order."""
    two = min(available(), 2)
    repeats = 3 if quick else 11
    found: dict[str, Callable[[], list[Row]]] = {
        "startup": lambda: speed_startup.measure(repeats=2 if quick else 7),
        "rates-1": lambda: ask("rates", 1, repeats=repeats),
        "shares": lambda: ask("shares", 1, turns=2 if quick else 5),
        "fit-1": lambda: ask("fits", 1, repeats=1 if quick else 3),
        "fit-2": lambda: ask("fits", two, repeats=1 if quick else 3),
        "growth": lambda: ask("growth", 1, quick=quick),
    }
    if not quick:
        found["fit-private-scaling"] = lambda: ask("fits", two, repeats=3, declared=False)
        found["reached"] = lambda: ask("reached", 1)
        found["rates-2"] = lambda: ask("rates", two, repeats=repeats)
    if two == 1:
        found = {name: measure for name, measure in found.items() if not name.endswith("-2")}
    return found


def part(name: str, measure: Callable[[], Any]) -> list[Row]:
    """Return a part's rows, or one that says why there are none."""
    try:
        return measure()
    except Exception as error:  # one broken part must not lose the rows of the others
        return [row(f"speed/{name}", "dpsep bench", "failed", None, note=f"{type(error).__name__}: {error}")]


def machine() -> list[Row]:
    """Return rows on the processor, its cores and load, and on further packages."""
    rows = [row("speed/about", "machine", "processor", processor())]
    rows.append(row("speed/about", "machine", "cores that may be used", available()))
    if hasattr(os, "getloadavg"):
        rows.append(row("speed/about", "machine", "load when the run began", round(os.getloadavg()[0], 2)))
    for package in PACKAGES:
        try:
            rows.append(row("speed/about", package, "version", version(package)))
        except PackageNotFoundError:
            rows.append(row("speed/about", package, "version", None, note="not installed"))
    return rows


def processor() -> str:
    """Return what the system calls its processor."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def main() -> None:
    """Run with the parts kept in a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write([*about(given.quick), *speed(given.quick, given.folder)], given.folder / "speed.json")


if __name__ == "__main__":
    main()
