"""Fuzz every file that the program reads.

``python tools/fuzz/run.py --inputs N --target all --seed S --out DIR``

Each target runs in a process of its own that this one watches over: what kills it, or keeps it from going on,
is an input that failed like any other.
"""

import argparse
import faulthandler
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.fuzz.engine import HANG, Failure, Limits, keep, make_input, try_input, work  # noqa: E402
from tools.fuzz.targets import TARGETS  # noqa: E402

SHARES = {
    "csv": 7,
    "gzip": 2,
    "stored": 5,
    "schema": 34,
    "settings": 10,
    "posterior": 18,
    "predict": 2,
    "ledger": 8,
    "checkpoint": 14,
}
"""Hundredths of all inputs that each target gets: quick ones get more, so that each gets some of the time."""


def main() -> int:
    """Run what the command line asks for; 0 where nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all targets together")
    parser.add_argument("--target", default="all", help=f"all, or some of {', '.join(TARGETS)}, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"), help="folder for failures and counts")
    parser.add_argument("--replay", type=Path, help="read one kept input again, and show what it does")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay is not None:
        return replay(given.replay)
    if given.worker is not None:
        label, first, last, folder = given.worker.split(":", 3)
        faulthandler.enable()
        work(label, given.seed, int(first), int(last), Path(folder), given.out)
        return 0
    names = list(TARGETS) if given.target == "all" else given.target.split(",")
    given.out.mkdir(parents=True, exist_ok=True)
    whole = sum(SHARES[name] for name in names)
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=room) as scratch:
        counts = {name: given.inputs * SHARES[name] // whole for name in names}
        rows = [watch(name, counts[name], given.seed, Path(scratch), given.out) for name in names]
    (given.out / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["failures"] for row in rows))


def watch(label: str, inputs: int, seed: int, scratch: Path, out: Path) -> dict[str, Any]:
    """Run one target in workers until all inputs were tried."""
    began = time.monotonic()
    total = {"read": 0, "refused": 0, "peak": 0}
    first = 0
    folder = scratch / label
    while first < inputs:
        last = min(inputs, first + 50_000)  # a new process now and then, as memory that leaks adds up
        done, died = _one_worker(label, seed, first, last, folder, out)
        if done is not None:
            total = {key: total[key] + done[key] for key in ("read", "refused")} | {
                "peak": max(total["peak"], done["peak"])
            }
            first = last
            continue
        if died is None:
            raise SystemExit(f"{label}: the worker does not start; see {out / label}.err")
        index, failure = died
        keep(out, label, *make_input(TARGETS[label](folder), seed, label, index), failure, index)
        first = index + 1
    failures = len({path.name[:12] for path in (out / "failures" / label).glob("*.json")})
    row = {"target": label, "inputs": inputs, **total, "failures": failures}
    row["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(row), flush=True)
    return row


def _one_worker(
    label: str, seed: int, first: int, last: int, folder: Path, out: Path
) -> tuple[dict[str, int] | None, tuple[int, Failure] | None]:
    """Return the counts of a worker that came to its end, or the input that it died of."""
    note = out / f"{label}.at"
    note.write_bytes((2**63).to_bytes(8, "little"))
    command = [sys.executable, __file__, "--out", str(out), "--seed", str(seed)]
    command += ["--worker", f"{label}:{first}:{last}:{folder}"]
    with (out / f"{label}.err").open("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        seen, since = b"", time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = note.read_bytes()
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > (3 * HANG if seen[:8] != (2**63).to_bytes(8, "little") else 300):
                process.kill()
                process.wait()
        told = process.stdout.read() if process.stdout else ""
        errors.seek(0)
        place = re.findall(r'dpsep/(\S+\.py)", line (\d+) in (\w+)', errors.read())
    if process.returncode == 0:
        return json.loads(told.splitlines()[-1]), None
    index = int.from_bytes(note.read_bytes(), "little")
    if index == 2**63:
        return None, None
    where = "{}:{} {}".format(*place[0]) if place else "unknown"
    return None, (index, Failure(f"died ({process.returncode})", where, "the process ended or stood still"))


def replay(path: Path) -> int:
    """Read one kept input with its target, which its folder names, and show the whole error."""
    _, _, name = path.name.partition("--")
    with tempfile.TemporaryDirectory() as scratch:
        target = TARGETS[path.parent.name](Path(scratch) / path.parent.name)
        failure, outcome, growth = try_input(target, name, path.read_bytes(), Limits(HANG, 2**62))
        print(outcome, failure, f"{growth / 2**20:.0f} MiB")
        if failure is not None:
            target.read(name, path.read_bytes())
    return int(failure is not None)


if __name__ == "__main__":
    raise SystemExit(main())
