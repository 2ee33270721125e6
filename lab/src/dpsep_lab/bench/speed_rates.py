"""Records a second of everyone, in one process, in turn: this library, slow references, other packages.

A turn runs every way once; the figures are medians over turns, so that a slow minute of the machine hits all
ways alike. On one core the seconds are those that the process had the core for, so that other work on the
machine does not count; on several they are the clock's. A first call of each, which compiles, is timed apart.
The machine's own rates are measured before and after, and the better ones make the floor
(`dpsep_lab.bench.speed_floor`).

**Privacy.** Made data only; nothing printed is a private release.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsep_lab.bench import speed_fast, speed_floor, speed_ours, speed_peers
from dpsep_lab.bench.reference_sep import AuthorsSep, NumpySep, Theta
from dpsep_lab.bench.speed_ours import BATCH_GATE, BATCH_OPEN, DEFAULT, FILTERING, SEQUENTIAL, SEQUENTIAL_CLIP
from dpsep_lab.bench.speed_peers import Way
from dpsep_lab.bench.table import Row, row, skipped, spread

SHAPE, HIDDEN, BATCH = (7372, 8), 50, 368
"""Records and inputs of kin8nm, the paper's hidden units, and a twentieth of the records."""
OPACUS = "Opacus, index batches"
HIPS = 1.9
"""How many times the rate of the HIPS C code of probabilistic backpropagation, which is not packaged, Opacus
with index batches had where both were measured on one core."""
FLOORS: dict[str, speed_floor.Kind] = {
    FILTERING: "filtering",
    SEQUENTIAL: "sequential",
    SEQUENTIAL_CLIP: "sequential clipped",
    speed_ours.FLOAT_NOISE: "sequential clipped",
    speed_ours.SECURE_NOISE: "sequential clipped",
    BATCH_OPEN: "batch",
    BATCH_GATE: "batch",
    speed_fast.BATCH_SECURE: "batch",
    speed_fast.ONE_SECURE: "sequential clipped",
    DEFAULT: "kronecker",
    speed_ours.KRONECKER: "kronecker",
    speed_ours.POINT: "gradient",
    "NumPy SEP": "sequential",
    "the authors' code path": "sequential",
    OPACUS: "gradient",
    "Opacus, Poisson loader": "gradient",
    "jax_privacy, DP-SGD": "gradient",
}
"""What is counted for each way."""


def measure(
    cores: int,
    *,
    repeats: int,
    shape: tuple[int, int] = SHAPE,
    hidden: int = HIDDEN,
    batch: int = BATCH,
    slow: int = 1000,
) -> list[Row]:
    """Time everyone; return a row a way with its floor, and rows of the machine's rates.

    Parameters
    ----------
    cores
        Cores that this process was given; it is for the rows' names, and for PyTorch.
    repeats
        Number of turns.
    shape, hidden, batch
        Of the made table, the network and its batches.
    slow
        Records of a turn of the slow references.
    """
    x, y = speed_ours.table(shape)
    before = {digits: speed_floor.measure(digits) for digits in (32, 64)}
    ways, close = everyone(x, y, hidden=hidden, batch=batch, turns=repeats + 1, cores=cores, slow=slow)
    try:
        clock = time.process_time if cores == 1 else time.perf_counter
        first = {name: _seconds(way, clock) for name, way in ways.items()}
        rates: dict[tuple[str, int], list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                rates[name].append(way.records / _seconds(way, clock))
    finally:
        close()
    after = {digits: speed_floor.measure(digits) for digits in (32, 64)}
    peaks = {digits: speed_floor.best(before[digits], after[digits]) for digits in (32, 64)}
    case = f"speed/{cores} core{'s' * (cores > 1)}"
    widths = (shape[1], hidden, 1)
    rows = [_rate_row(case, name, ways[name], rates, first[name], widths, peaks) for name in ways]
    for who in speed_peers.NEEDED:
        lacking = speed_peers.missing(who)
        if lacking is not None:
            rows.append(skipped(case, who, f"{lacking} is not installed; the extra 'peers' has it."))
    if not speed_fast.available():
        rows.append(skipped(case, "compiled kernels", "numba is not installed; the extra 'fast' has it."))
    return rows + _peak_rows(case, peaks)


def everyone(
    x: np.ndarray, y: np.ndarray, *, hidden: int, batch: int, turns: int, cores: int, slow: int
) -> tuple[dict[tuple[str, int], Way], Any]:
    """Return all ways by name and bits, and what ends the private fits among them."""
    found: dict[tuple[str, int], Way] = {}
    for digits in (32, 64):
        for who, way in speed_ours.open_ways(x, y, hidden=hidden, batch=batch, digits=digits).items():
            found[who, digits] = way
        kernels = speed_fast.fast_ways(x, y, hidden=hidden, batch=batch, digits=digits, slow=slow)
        found |= {(who, digits): way for who, way in kernels.items()}
    fits, close = speed_ours.private_ways(x, y, hidden=hidden, batch=batch, turns=turns)
    found |= {(who, 64): way for who, way in fits.items()}
    found[speed_ours.SECURE_NOISE, 64] = speed_ours.one_record_way(x, y, hidden=hidden, turns=turns)
    found[speed_ours.LINEAR, 64] = speed_ours.linear_way(x, y)
    found |= {(who, 64): way for who, way in _references(x, y, hidden, min(slow, len(x))).items()}
    others = speed_peers.peers(x, y, hidden=hidden, batch=batch, threads=cores)
    return found | {(who, way.digits): way for who, way in others.items()}, close


def _references(x: np.ndarray, y: np.ndarray, hidden: int, slow: int) -> dict[str, Way]:
    """The plain NumPy form, and the authors' code path, on the first records."""
    import jax
    import jax.numpy as jnp

    from dpsep.families import DiagonalGaussian
    from dpsep.models.network_model import NetworkRegression

    with jax.enable_x64(True):
        model = NetworkRegression((x.shape[1], hidden, 1))
        prior, means = model.start(seed=0)
        start = prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.ones(model.size)))
        theta, first = Theta.of(model.layered(prior)), Theta.of(model.layered(start))
    few = max(slow // 4, 1)
    plain, authors = NumpySep(theta, len(x)), AuthorsSep(theta, len(x))
    return {
        "NumPy SEP": Way(lambda: plain.run(x, y, range(slow), first), slow, "", 64),
        "the authors' code path": Way(
            lambda: authors.run(x, y, range(few), first), few, "automatic derivatives a record", 64
        ),
    }


def _rate_row(
    case: str,
    name: tuple[str, int],
    way: Way,
    rates: dict[tuple[str, int], list[float]],
    first: float,
    widths: tuple[int, ...],
    peaks: dict[int, speed_floor.Rates],
) -> Row:
    who, digits = name
    each = rates[name]
    value = statistics.median(each)
    base = rates.get((OPACUS, 32))
    against = None if base is None or who == OPACUS else (OPACUS, statistics.median(base))
    more: dict[str, Any] = {"digits": digits, "first_call": first, "note": way.note}
    if base is not None:
        more["hips"] = HIPS * value / statistics.median(base)
    counted = who if who in FLOORS else who.removesuffix(speed_fast.KERNEL)
    if counted in FLOORS:
        found = speed_floor.count(widths, FLOORS[counted], digits)
        floor = 1.0 / speed_floor.seconds(found, peaks[digits])
        more |= {"floor": floor, "over_floor": floor / value, "slots": found.slots, "bytes": found.bytes}
    return row(case, who, "speed", value, "records/s", against=against, **spread(each), **more)


def _peak_rows(case: str, peaks: dict[int, speed_floor.Rates]) -> list[Row]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        row(case, f"machine, {digits} bits", name, value, "1/s", cores=cores)
        for digits, found in peaks.items()
        for name, value in found._asdict().items()
    ]


def _seconds(way: Way, clock: Callable[[], float]) -> float:
    start = clock()
    with speed_peers.quietly():
        way.action()
    return clock() - start
