"""The speed benchmark's part on an accelerator, on a machine that has Python, JAX, NumPy and SciPy only.

    python lab/tools/speed_gpu.py prepare build/speed                  # here: wheels into a folder
    python lab/tools/speed_gpu.py run build/speed --out OUT            # there: writes OUT/speed_gpu.json
    python lab/tools/speed_gpu.py run build/speed --out OUT --small  # anywhere: a few seconds, to see it run

Measured: a default private fit of kin8nm's shape (first, then compiled), Year's shape with 40 expected
passes, records a second of DP-SEP through the gate and of batches without one, and growth with batch and
width. The wheels that `prepare` fetches hold the accountant and the secure noise, so that fits are those a
user gets; where a folder has none, the packages must be installed. Rows are written after each part: a run
that is cut off keeps what it has. ``lab/tools/docs/speed.py --gpu OUT/speed_gpu.json`` puts them on the page.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import frontier_remote

ROOT = Path(__file__).resolve().parents[2]
STANDARD = ((0.0, 1.0), (0.0, 1.0))
YEAR, YEAR_HIDDEN, PASSES = (463_715, 90), 100, 40
KIN8NM = (7372, 8)

Row = dict[str, Any]


def prepare(folder: Path, python: str) -> None:
    """Fetch the wheels that private fits need, for a version of Python."""
    pins = {line.split("==")[0]: line.split(";")[0].strip() for line in _constraints()}
    wanted = [pins.get(name, name) for name in frontier_remote.WHEELS if name != "opacus"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--dest", str(folder / "wheels"), *wanted]
    subprocess.run(command, check=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


def run(folder: Path, out: Path, small: bool) -> int:
    """Measure every part and write the rows after each; the exit code is 1 where a part failed."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    frontier_remote.make_importable(folder)
    out.mkdir(parents=True, exist_ok=True)
    import jax
    import numpy as np

    device = f"{jax.devices()[0].device_kind} ({jax.default_backend()})"
    rows: list[Row] = [
        _row("about", "machine", "device", device),
        _row("about", "machine", "cores", os.cpu_count()),
        _row("about", "python", "version", sys.version.split()[0]),
        _row("about", "jax", "version", jax.__version__),
        _row("about", "numpy", "version", np.__version__),
        _row("about", "lab/tools/speed_gpu.py", "size", "small" if small else "full"),
    ]
    failed = False
    for part in (whole_fits, rates, year, growth):
        start = time.perf_counter()
        try:
            rows += part(small)
        except Exception as error:  # one broken part must not lose the rows of the others
            failed = True
            note = f"{type(error).__name__}: {error}"[:500]
            rows.append(_row(part.__name__, "lab/tools/speed_gpu.py", "failed", None, note=note))
        rows.append(_row("about", part.__name__, "seconds", time.perf_counter() - start, "s"))
        (out / "speed_gpu.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(part.__name__, round(time.perf_counter() - start, 1), "s", flush=True)
    return int(failed)


def whole_fits(small: bool) -> list[Row]:
    """A default private fit of kin8nm's shape: the first, which compiles, and four later ones."""
    start = time.perf_counter()
    from dpsep import NetworkRegressor
    from dpsep_lab.bench import speed_ours

    imports = time.perf_counter() - start
    x, y = speed_ours.table((300, 2) if small else KIN8NM)
    more: dict[str, Any] = {"steps": 3} if small else {}
    times, model = [], None
    for _ in range(5):
        start = time.perf_counter()
        model = NetworkRegressor(public_scaling=STANDARD, **more).fit(x, y)
        times.append(time.perf_counter() - start)
    assert model is not None
    assert model.privacy_ is not None
    later = sorted(times[1:])[1]
    steps, secure = model.privacy_.steps, model.privacy_.secure
    case, who = "fit, kin8nm's shape", "dpsep private, defaults"
    return [
        _row(case, who, "imports", imports, "s"),
        _row(case, who, "first fit", times[0], "s", steps=steps, secure=secure),
        _row(case, who, "later fits", later, "s", n=4, steps=steps, secure=secure),
        _row(case, who, "compile and start", max(times[0] - later, 0.0), "s"),
    ]


def rates(small: bool) -> list[Row]:
    """Records a second: DP-SEP in batches through the gate, the default release, batches without a gate."""
    from dpsep_lab.bench import speed_ours

    shape, hidden, batch = ((400, 2), 4, 40) if small else (KIN8NM, 50, 368)
    x, y = speed_ours.table(shape)
    rows = []
    for who in (speed_ours.BATCH_GATE, speed_ours.DEFAULT):
        ways, close = speed_ours.private_ways(x, y, hidden=hidden, batch=batch, turns=8, only=who)
        seconds = _median(ways[who].action, 5, warm=2)
        close()
        rows.append(_row("rates", who, "speed", ways[who].records / seconds, "records/s", digits=64))
    for digits in (32, 64):
        for size in (batch, shape[0]):
            way = speed_ours.batch_way(x, y, hidden=(hidden,), batch=size, digits=digits)
            seconds = _median(way.action, 5)
            who = f"SEP clipped, batches of {size}, no gate"
            rows.append(_row("rates", who, "speed", way.records / seconds, "records/s", digits=digits))
    return rows


def year(small: bool) -> list[Row]:
    """Year's shape, 100 hidden units, 40 expected passes at the default rate of sampling."""
    from dpsep import NetworkRegressor
    from dpsep.theory.networks import default_sampling
    from dpsep_lab.bench import speed_ours

    shape, hidden, passes = ((2000, 4), 5, 2) if small else (YEAR, YEAR_HIDDEN, PASSES)
    x, y = speed_ours.table(shape)
    size = hidden * (shape[1] + 1) + hidden + 1
    batch = default_sampling(shape[0], size, "zero-out").expected_batch(shape[0])
    steps = math.ceil(passes * shape[0] / batch)
    case = f"year, {shape[0]} x {shape[1]}, {hidden} hidden, {passes} expected passes"
    rows = []
    for name in ("first fit", "second fit"):
        start = time.perf_counter()
        model = NetworkRegressor(hidden=(hidden,), steps=steps, public_scaling=STANDARD).fit(x, y)
        seconds = time.perf_counter() - start
        assert model.privacy_ is not None
        rows.append(
            _row(
                case,
                "dpsep private",
                name,
                seconds,
                "s",
                steps=steps,
                batch=batch,
                sampling=model.privacy_.sampling,
                secure=model.privacy_.secure,
                rate=passes * shape[0] / seconds,
            )
        )
        print(case, name, round(seconds, 1), "s", flush=True)
        if seconds > 150:
            break
    return rows


def growth(small: bool) -> list[Row]:
    """Microseconds a record of batches without a gate, in single precision, by batch and by width."""
    from dpsep_lab.bench import speed_ours

    records = 2048 if small else 2**17
    batches = (64, 256) if small else tuple(4**power for power in range(3, 9))
    widths = (8, 16) if small else (25, 50, 100, 200, 400, 800, 1600)
    x, y = speed_ours.table((records, 8))
    rows = []
    for batch in batches:
        way = speed_ours.batch_way(x, y, hidden=(8 if small else 50,), batch=batch, digits=32)
        seconds = _median(way.action, 3) / way.records
        rows.append(_row("growth", "batches, no gate", "batch", 1e6 * seconds, "us/record", size=batch))
    for width in widths:
        way = speed_ours.batch_way(x, y, hidden=(width,), batch=records // 8, digits=32)
        seconds = _median(way.action, 3) / way.records
        rows.append(_row("growth", "batches, no gate", "width", 1e6 * seconds, "us/record", size=width))
    return rows


def _median(action: Callable[[], Any], repeats: int, warm: int = 1) -> float:
    for _ in range(warm):
        action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def _row(case: str, who: str, metric: str, value: Any, unit: str = "", **more: Any) -> Row:
    row = {"case": f"speed/gpu, {case}", "who": who, "metric": metric, "value": value, "unit": unit}
    return row | {"ratio_to": None, "ratio": None} | more


def _constraints() -> list[str]:
    return [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("prepare", help="fetch wheels")
    first.add_argument("folder", type=Path)
    first.add_argument("--python", default="3.12", help="version of the other machine's Python")
    second = verbs.add_parser("run", help="measure")
    second.add_argument("folder", type=Path)
    second.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    second.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    given = parser.parse_args(arguments)
    if given.verb == "prepare":
        prepare(given.folder, given.python)
        return 0
    return run(given.folder, given.out, given.small)


if __name__ == "__main__":
    raise SystemExit(main())
