"""Where a private batch step's time goes: sampling, factors, clip and grid, sums, secure noise, the update.

A real fit (`NetworkRegressor`) is let go some releases with clocks around the gate's own parts. What happens
inside a chunk is one compiled program there; so the same chunk's factors are computed alone once more, and
what clip and grid take is the difference.

**Privacy.** Made data only. Clocks around a gate would tell of batch sizes: nothing here is a release.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from dpsep.inference import fast_batches
from dpsep.privacy import gate as gates
from dpsep.privacy import reader
from dpsep.privacy.isolation import Program
from dpsep_lab.bench import speed_fast, speed_ours
from dpsep_lab.bench.speed_rates import BATCH, HIDDEN, SHAPE
from dpsep_lab.bench.table import Row, row

PARTS = {
    "coins of the sample": (gates.Gate, "_drawn"),
    "contributions, clip, grid and sum": (reader.Reader, "sums"),
    "secure noise": (gates.Gate, "_noised"),
    "the release as a whole": (gates.Gate, "release"),
}
"""What is timed within a fit: names, and the functions that do it."""


def measure(
    cores: int,
    *,
    turns: int,
    shape: tuple[int, int] = SHAPE,
    hidden: int = HIDDEN,
    batch: int = BATCH,
) -> list[Row]:
    """Return shares of a step of DP-SEP with independent weights, and of the default's, in batches.

    Parameters
    ----------
    turns
        Passes that are timed, each of as many releases as there are batches in the table.
    """
    x, y = speed_ours.table(shape)
    rows = []
    for who in (speed_ours.BATCH_GATE, speed_ours.DEFAULT):
        spent: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        kept: dict[str, Any] = {}
        with _clocks(spent, kept):
            ways, close = speed_ours.private_ways(x, y, hidden=hidden, batch=batch, turns=turns + 2, only=who)
            for _ in range(2):  # compiles
                ways[who].action()
            spent.update(dict.fromkeys(PARTS, 0.0))
            start = time.process_time()
            for _ in range(turns):
                ways[who].action()
            total = time.process_time() - start
            close()
        case = f"speed/shares, {cores} core{'s' * (cores > 1)}"
        note = f"of {total / turns:.4g} s a pass of {ways[who].records:.0f} records"
        spent["update and the rest"] = total - spent["the release as a whole"]
        rows += [row(case, who, name, value / total, "share", note=note) for name, value in spent.items()]
        inside = _within_a_chunk(kept)
        rows += [row(case, who, f"in a chunk: {name}", value, "s") for name, value in inside.items()]
    return rows + _kernel_rows(cores, x, y, hidden, batch, turns)


def _kernel_rows(cores: int, x: Any, y: Any, hidden: int, batch: int, turns: int) -> list[Row]:
    """The share of secure noise in a pass of the compiled kernel."""
    ways = speed_fast.fast_ways(x, y, hidden=hidden, batch=batch, digits=32, slow=1)
    if speed_fast.BATCH_SECURE not in ways:
        return []
    way, drawn = ways[speed_fast.BATCH_SECURE], fast_batches.rounded_gaussian
    way.action()
    spent = [0.0]

    def timed(*arguments: Any) -> Any:
        start = time.process_time()
        try:
            return drawn(*arguments)
        finally:
            spent[0] += time.process_time() - start

    setattr(fast_batches, "rounded_gaussian", timed)  # noqa: B010
    try:
        start = time.process_time()
        for _ in range(10 * turns):
            way.action()
        total = time.process_time() - start
    finally:
        setattr(fast_batches, "rounded_gaussian", drawn)  # noqa: B010
    case = f"speed/shares, {cores} core{'s' * (cores > 1)}"
    note = f"of {total / turns / 10:.4g} s a pass of {way.records:.0f} records"
    return [row(case, speed_fast.BATCH_SECURE, "secure noise", spent[0] / total, "share", note=note)]


def last_chunk(fit: Callable[[], Any]) -> tuple[Any, ...]:
    """Return program, public values and records of the last chunk that a fit asked for."""
    kept: dict[str, Any] = {}
    with _clocks(dict.fromkeys(PARTS, 0.0), kept):
        fit()
    return kept["chunk"]


@contextmanager
def _clocks(spent: dict[str, float], kept: dict[str, Any]) -> Iterator[None]:
    """Put clocks around the parts, and keep the arguments of a chunk's program."""
    before = {name: getattr(owner, function) for name, (owner, function) in PARTS.items()}
    rows = Program.__call__

    def timed(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return before[name](*arguments, **named)
            finally:
                spent[name] += time.process_time() - start

        return call

    def keep(self: Program, public: Any, chunk: Any) -> Any:
        kept["chunk"] = (self, public, chunk)
        return rows(self, public, chunk)

    for name, (owner, function) in PARTS.items():
        setattr(owner, function, timed(name))
    setattr(Program, "__call__", keep)  # noqa: B010
    try:
        yield
    finally:
        for name, (owner, function) in PARTS.items():
            setattr(owner, function, before[name])
        setattr(Program, "__call__", rows)  # noqa: B010


def _within_a_chunk(kept: dict[str, Any], repeats: int = 15) -> dict[str, float]:
    """Seconds of factors alone, of clip and grid, and of the check and sum, for the chunk that was kept."""
    if "chunk" not in kept:
        return {}
    program, public, chunk = kept["chunk"]
    with jax.enable_x64(True):
        factors = program(public, chunk)
        parts = reader.rows_on_grid(program.blocks, factors)
        ways: dict[str, Callable[[], Any]] = {
            "factors": lambda: program(public, chunk),
            "clip and grid": lambda: reader.rows_on_grid(program.blocks, factors),
            "check and sum": lambda: reader.chunk_sums(program.blocks, parts),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(repeats + 1):
            for name, way in ways.items():
                start = time.process_time()
                jax.block_until_ready(way())
                if turn:
                    times[name].append(time.process_time() - start)
    return {name: statistics.median(each) for name, each in times.items()}
