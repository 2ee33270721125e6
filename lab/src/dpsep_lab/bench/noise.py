"""How fast noise is drawn: the rounded Gaussian with its exact law, against numpy's normals.

Both fill arrays of the same size in turn, in one thread, after a first call of each; the seconds are those
that the thread had a core for, so that other work on the machine does not count. The scales are those of a
release with noise multiplier 1: a flat block has 2^20 grid units in its clip, an outer block 2^30. The larger
the scale, the more draws rounding leaves undecided, and each of those is settled in multiple precision.

**Privacy.** No data are read. Times are those of this machine.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from dpsep.privacy.grid import FLAT_UNITS, OUTER_UNITS
from dpsep.privacy.noise import SecureStream, rounded_gaussian
from dpsep_lab.bench.table import Row, row, spread

SIZES = (10**3, 10**5, 10**7)
DRAWS, MOST_REPEATS = 2 * 10**7, 2000
QUICK_SIZES, QUICK_DRAWS = (10**3, 10**5), 10**6
SCALES = {"flat block": float(FLAT_UNITS), "outer block": float(OUTER_UNITS) ** 2}
STEP, COORDINATES = 0.5e-3, 1000
"""Seconds of a small release, and how many numbers it holds: what the share of noise is told of."""


def noise(quick: bool = False) -> list[Row]:
    """Return draws a second of both, and the share of a small release that its noise takes."""
    generator, stream = np.random.default_rng(), SecureStream()
    rows = []
    for size in QUICK_SIZES if quick else SIZES:
        case = f"noise/{size} draws"
        repeats = max(3, min(MOST_REPEATS, (QUICK_DRAWS if quick else DRAWS) // size))
        ways: dict[str, Callable[[], object]] = {"numpy normals": partial(generator.standard_normal, size)}
        for name, sd in SCALES.items():
            ways[f"dpsep, {name}"] = partial(rounded_gaussian, stream, sd, size)
        times = in_turn(ways, repeats)
        base = size / statistics.median(times["numpy normals"])
        for who, seconds in times.items():
            rate = size / statistics.median(seconds)
            rates = spread([size / second for second in seconds])
            rows.append(row(case, who, "draws", rate, "1/s", against=("numpy normals", base), **rates))
            if size == COORDINATES:
                share = statistics.median(seconds) / STEP
                rows.append(row(case, who, "share of a step of 0.5 ms", share, n=repeats))
    return rows


def in_turn(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time each way in turn, so that a slow spell of the machine meets all; a first call is not counted.

    Parameters
    ----------
    ways
        What to time, by name.
    repeats
        How often.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for count in range(repeats + 1):
        for name, way in ways.items():
            start = time.thread_time()
            way()
            if count:
                times[name].append(time.thread_time() - start)
    return times
