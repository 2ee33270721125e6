"""Inputs without end, each tried under a limit of time and of memory; what fails is kept, once a place.

Input ``i`` of a target is a function of (seed, target, i). So a worker process that dies leaves only a number
behind, and the process that watches over it makes the input again, keeps it and starts the next worker after
it.

**What fails.** An error that the command line would not tell in one line with exit code 2 (it would be a
traceback in Python), an error without words or one that repeats a cell, an input that takes longer than
`HANG` seconds, one whose peak memory exceeds twice that of the valid files (and `FLOOR`, within which valid
files of a few kilobytes differ by chance), and the death of the process.
"""

import contextlib
import hashlib
import json
import os
import random
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from tools.fuzz.targets import TARGETS, Target

from dpsep.cli.errors import WRONG, explain

__all__ = ["Failure", "Limits", "Tally", "keep", "make_input", "measure", "try_input", "work"]

HANG = 5.0
"""Seconds that one input may take."""
FLOOR = 80 * 2**20
"""Bytes that any input may take: a block of CSV text and its copies."""
ROOM = 6 * 2**30
"""Bytes of address space that a worker may add, so that a huge allocation is refused by the system."""


class Hang(BaseException):
    """An input took too long; not an `Exception`, so that nothing under test takes it for its own."""


class Failure(NamedTuple):
    """What went wrong, and where in the library."""

    kind: str
    place: str
    message: str


class Limits(NamedTuple):
    """What one input may take."""

    seconds: float
    bytes: int


class Tally(NamedTuple):
    """How many inputs were read, how many refused, and the largest growth of memory, in bytes."""

    read: int
    refused: int
    peak: int


def make_input(target: Target, seed: int, label: str, index: int) -> tuple[str, bytes]:
    """Return the name of a seed file and the bytes made from it."""
    return target.input(random.Random(f"{seed}/{label}/{index}"))


def measure(target: Target) -> int:
    """Return the peak memory that the valid files take beyond what was there, warm."""
    peaks = []
    for _ in range(2):
        peaks = []
        for name, data in target.seeds.items():
            if name.startswith("bomb"):
                continue
            before = _resident()
            with contextlib.suppress(ValueError):  # a table that the schema of the others does not fit
                target.read(name, data)
            peaks.append(_peak() - before)
    return max(peaks)


def try_input(target: Target, name: str, data: bytes, limits: Limits) -> tuple[Failure | None, str, int]:
    """Read one input; return what failed, ``"read"`` or ``"refused"``, and the growth of memory."""
    before = _resident()
    ignored: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda said: ignored.append(type(said.exc_value).__name__)
    previous = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    failure, outcome = None, "read"
    try:
        target.read(name, data)
    except Hang as error:
        failure = Failure("hang", _place(error), f"more than {limits.seconds:g} s")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # polars' panics are no `Exception`
        outcome = "refused"
        failure = _judged(target, name, data, error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        sys.unraisablehook = hook
    if failure is None and ignored:
        failure = Failure("printed traceback", ignored[0], "an error in a callback, told on standard error")
    growth = _peak() - before
    if failure is None and growth > limits.bytes:
        failure = Failure("memory", name.split("-")[0], f"{growth / 2**20:.0f} MiB for {len(data)} bytes")
    return failure, outcome, growth


def work(label: str, seed: int, first: int, last: int, folder: Path, out: Path) -> None:
    """Try inputs from ``first`` to before ``last``; note each number before it is tried, keep failures."""
    target = TARGETS[label](folder)
    limits = Limits(HANG, max(FLOOR, 2 * measure(target)))
    resource.setrlimit(resource.RLIMIT_AS, (_virtual() + ROOM, resource.RLIM_INFINITY))
    counts = {"read": 0, "refused": 0}
    highest = 0
    with (out / f"{label}.at").open("r+b") as note:
        for index in range(first, last):
            note.seek(0)
            note.write(index.to_bytes(8, "little"))
            note.flush()
            name, data = make_input(target, seed, label, index)
            failure, outcome, growth = try_input(target, name, data, limits)
            if failure is not None and failure.kind == "memory":  # the allocator's own growth comes once
                failure, outcome, growth = try_input(target, name, data, limits)
            counts[outcome] += 1
            highest = max(highest, growth)
            if failure is not None:
                keep(out, label, name, data, failure, index)
    print(json.dumps(Tally(counts["read"], counts["refused"], highest)._asdict()))


def keep(out: Path, label: str, name: str, data: bytes, failure: Failure, index: int) -> None:
    """Write a failing input and what it did, unless this place has failed in this way before."""
    mark = hashlib.sha256(f"{failure.kind} {failure.place}".encode()).hexdigest()[:12]
    folder = out / "failures" / label
    told = folder / f"{mark}.json"
    folder.mkdir(parents=True, exist_ok=True)
    if told.exists():
        return
    path = folder / f"{mark}--{name}"
    path.write_bytes(data)
    content: dict[str, Any] = failure._asdict() | {"target": label, "index": index, "bytes": len(data)}
    content["replay"] = f"python tools/fuzz/run.py --replay {path}"
    told.write_text(json.dumps(content, indent=1) + "\n")


def _judged(target: Target, name: str, data: bytes, error: BaseException) -> Failure | None:
    code, line = explain(error)
    kind = type(error).__name__
    if code != WRONG:
        said = "".join(traceback.format_exception_only(error)).strip()
        return Failure(kind, _place(error), said[:300])
    wrong = target.told(name, data, line)
    return None if wrong is None else Failure(wrong, f"{kind} {_place(error)}", line[:300])


def _place(error: BaseException) -> str:
    """Return the innermost line of the library that an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}dpsep{os.sep}" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def _hang(*_: object) -> None:
    raise Hang


def _resident() -> int:
    """Return the bytes in memory now, and let the count of the peak begin anew."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def _peak() -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


def _virtual() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * 4096
