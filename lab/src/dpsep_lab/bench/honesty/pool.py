"""Work of the survey in several processes: one thread each, one cell after another, lines kept at once.

A piece of work is a cell on up to `PIECE` seeds. A process that is free takes the next seeds of the cell that
it had, then a cell that shares its compiled programs, then whatever has most left to do: so programs compile
once, and no process waits while there is work. Lines are appended to a file when a piece is done. A run that
was stopped goes on where it was; seeds that are there are not done again unless the library has changed.
"""

import json
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from dpsep_lab.bench.honesty.cells import Cell, named_cell

__all__ = ["PIECE", "Todo", "kept", "reporter", "run"]

PIECE = 10
"""Most seeds of a piece of work."""
THREADS = {
    **{f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMEXPR")},
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Environment of a process of the pool."""

Line = dict[str, Any]


def kept(path: Path, code: str | None = None) -> list[Line]:
    """Return the lines of a file; those of another version of the code are left out if one is given.

    A last line that was cut off is left out, too.
    """
    if not path.exists():
        return []
    found = []
    for text in path.read_text("utf-8").splitlines():
        try:
            item = json.loads(text)
        except json.JSONDecodeError:
            continue
        if code is None or item["code"] == code:
            found.append(item)
    return found


class Todo:
    """What is left to do.

    Parameters
    ----------
    cells
        Which cells.
    seeds
        How many tables each.
    lines
        What is there already.
    program
        What cells that share compiled programs have in common.
    piece
        Most seeds of a piece of work.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        seeds: int,
        lines: Iterable[Line],
        program: Callable[[Cell], Any],
        piece: int = PIECE,
    ) -> None:
        there: dict[str, set[int]] = {}
        absent = set()
        for line in lines:
            done = there.setdefault(line["cell"], set())
            done |= {fit["seed"] for fit in line["fits"]} | {int(seed) for seed in line["failed"]}
            if "absent" in line:
                absent.add(line["cell"])
        self._left: dict[str, list[range]] = {}
        self._program = {cell.name: program(cell) for cell in cells}
        for cell in cells:
            missing = sorted(set(range(seeds)) - there.get(cell.name, set()))
            if missing and cell.name not in absent:
                self._left[cell.name] = _pieces(missing, piece)
        self._begun: Counter[Any] = Counter()

    def take(self, last: str | None) -> tuple[str, range] | None:
        """Return the next piece of work for a process whose last cell this was; None where none is left."""
        if not self._left:
            return None
        name = last if last in self._left else None
        if name is None and last is not None:
            alike = [name for name in self._left if self._program[name] == self._program[last]]
            name = alike[0] if alike else None
        if name is None:
            # The most work of one kind, of a kind that fewest processes have taken up.
            size: Counter[Any] = Counter()
            for cell, parts in self._left.items():
                size[self._program[cell]] += sum(map(len, parts))
            largest = max(size, key=lambda kind: size[kind] / (1 + self._begun[kind]))
            self._begun[largest] += 1
            name = next(cell for cell in self._left if self._program[cell] == largest)
        piece = self._left[name].pop(0)
        if not self._left[name]:
            del self._left[name]
        return name, piece

    def drop(self, name: str) -> int:
        """Leave the rest of a cell out, as where the library has no such estimator; return how many fits."""
        return sum(map(len, self._left.pop(name, [])))

    @property
    def left(self) -> int:
        """Number of fits that no process has taken."""
        return sum(len(part) for parts in self._left.values() for part in parts)


def _pieces(seeds: Sequence[int], most: int) -> list[range]:
    """Runs of successive seeds."""
    found: list[range] = []
    for seed in seeds:
        if found and found[-1].stop == seed and len(found[-1]) < most:
            found[-1] = range(found[-1].start, seed + 1)
        else:
            found.append(range(seed, seed + 1))
    return found


def run(
    todo: Todo,
    path: Path,
    jobs: int,
    on_piece: Callable[[int, int, str], None] | None = None,
    minutes: float = math.inf,
    serve: Callable[[Connection, int, int], None] | None = None,
) -> None:
    """Do what is left, in several processes, and append the lines to a file.

    Parameters
    ----------
    todo
        What is left to do.
    path
        Of the lines.
    jobs
        Number of processes.
    on_piece
        Called with the number of fits done, their total and the cell after each piece.
    minutes
        After which no more work is begun.
    serve
        What a process does; `_serve` if left out.
    """
    end = time.monotonic() + 60 * minutes
    for name, value in THREADS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(path.resolve().parent / "compiled"))
    context = multiprocessing.get_context("spawn")
    total, done = todo.left, 0
    path.parent.mkdir(parents=True, exist_ok=True)
    workers: dict[Connection, tuple[Any, int, str, range]] = {}

    def take(last: str | None) -> tuple[str, range] | None:
        return todo.take(last) if time.monotonic() < end else None

    def start(number: int, last: str | None) -> None:
        piece = take(last)
        if piece is None:
            return
        ours, theirs = cast("tuple[Connection, Connection]", context.Pipe())
        process = context.Process(target=serve or _serve, args=(theirs, number, jobs), daemon=True)
        process.start()
        theirs.close()
        ours.send(piece)
        workers[ours] = (process, number, *piece)

    with path.open("a", encoding="utf-8") as file:
        if file.tell() and not path.read_bytes().endswith(b"\n"):
            file.write("\n")  # a line that was cut off must not spoil the next one
        for number in range(jobs):
            start(number, None)
        while workers:
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                process, number, name, seeds = workers.pop(ready)
                try:
                    line: Line = ready.recv()
                except EOFError:  # the process died: say so, and go on with a new one
                    process.join()
                    why = f"the process ended with code {process.exitcode}"
                    line = {"cell": name, "code": _code(), "fits": []}
                    line["failed"] = {str(seed): why for seed in seeds}
                    start(number, None)
                    ready.close()
                else:
                    if "absent" in line:
                        total -= todo.drop(name)
                    piece = take(name)
                    if piece is None:
                        ready.send(None)
                        process.join()
                        ready.close()
                    else:
                        ready.send(piece)
                        workers[ready] = (process, number, *piece)
                file.write(json.dumps(line) + "\n")
                file.flush()
                done += len(seeds)
                if on_piece is not None:
                    on_piece(done, total, name)


def _code() -> str:
    from dpsep_lab.bench.honesty.work import code

    return code()


def _serve(pipe: Connection, number: int, jobs: int) -> None:
    """Work of one process: pieces come by the pipe, lines go back."""
    if hasattr(os, "sched_setaffinity"):
        # XLA takes as many threads as there are cores to it: each process has its share of them.
        os.sched_setaffinity(0, cores_of(number, jobs, sorted(os.sched_getaffinity(0))))
    from dpsep_lab.bench.honesty.work import line

    while (piece := pipe.recv()) is not None:
        pipe.send(line(named_cell(piece[0]), piece[1]))


def cores_of(number: int, jobs: int, cores: Sequence[int]) -> set[int]:
    """Return the cores of one of several processes.

    Examples
    --------
    >>> [cores_of(number, 2, (0, 1, 2, 3)) for number in range(2)], cores_of(2, 3, (0, 1))
    ([{0, 1}, {2, 3}], {0})
    """
    if jobs >= len(cores):
        return {cores[number % len(cores)]}
    return set(cores[number * len(cores) // jobs : (number + 1) * len(cores) // jobs])


def reporter() -> Callable[[int, int, str], None]:
    """Return a function that says now and then, on standard error, how far a run is."""
    begun = time.monotonic()
    last = [0.0]

    def report(done: int, total: int, name: str) -> None:
        now = time.monotonic()
        if now - last[0] < 5.0 and done < total:
            return
        last[0] = now
        rest = (now - begun) / max(done, 1) * (total - done)
        print(f"{done} of {total} fits, {rest / 60:.1f} minutes left, {name}", file=sys.stderr, flush=True)

    return report
