r"""The least time a record can take on this machine: operations counted, over rates measured in the same run.

*Operations.* Counted by formula for a network of rectifiers, layer by layer, with closed-form local factors
and nothing computed twice. A *slot* is one vector instruction's worth of one number: a multiply-add, a
multiplication, an addition, a comparison or a selection. Divisions, exponentials and roots are counted apart,
for they are several times slower. With n the inputs of a layer (bias included), h its units, k = n h its
weights, and p the terms of the rectifier's polynomial (14 in single precision, 28 in double):

    moments in                2 k + n (first layer, inputs known)     3 k + 2 n (others)
    rectifier, a unit         p + 32 slots, 1 division, 1 exponential, 1 root
    derivatives down          0 (first layer)                         3 k, and 20 slots a unit below
    factor, a weight          8 slots (10 beyond the first layer, whose derivatives are outer products),
                              1 division
    clip, a weight            2 slots for the norms; the scale goes into the sum's multiply-add
    batch, a weight           2 slots to whiten, 2 to sum
    one record a step         6 slots and 1 division a weight: cavity, its moments, the update
    filtering, a weight       instead of factors: 7 slots (9), no division
    Kronecker basis           a layer: 7 k + h^2 + n^2, beyond the first k more; means alone are propagated
    gradient                  a layer: 2 k + n + h, beyond the first k more; the same
    output and noise          40 slots, 5 divisions

*Rates.* Slots: half the floating-point operations a second of a product of matrices that fit the cache, which
is as many multiply-adds as the machine can do. Divisions, exponentials and roots: NumPy's vectorised ones on
arrays in the cache. Bytes: a copy of an array that fits no cache. The floor is the larger of the time of all
operations and that of the bytes: a record's own numbers, read once from memory.

It is a floor of arithmetic, not of a program: no instruction waits for another, no number is moved within the
cache, random numbers cost nothing.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Kind = Literal["sequential", "sequential clipped", "batch", "filtering", "kronecker", "gradient"]
_TERMS = {32: 14, 64: 28}


class Count(NamedTuple):
    """Operations and bytes of one record."""

    slots: float
    divisions: float
    exponentials: float
    roots: float
    bytes: float


class Rates(NamedTuple):
    """Operations and bytes a second."""

    slots: float
    divisions: float
    exponentials: float
    roots: float
    bytes: float


def count(widths: tuple[int, ...], kind: Kind, digits: int) -> Count:
    """Count the operations of one record.

    Parameters
    ----------
    widths
        Inputs, hidden units of each layer, and the one output.
    kind
        ``"sequential"`` (SEP, one record a step), ``"sequential clipped"``, ``"batch"`` (clipped, whitened
        and summed), ``"filtering"``, ``"kronecker"`` (the default private fit's factors, clipped and summed)
        or ``"gradient"`` (of a point estimate, clipped and summed).
    digits
        32 or 64 bits a number.

    Examples
    --------
    >>> found = count((8, 50, 1), "batch", 32)
    >>> round(found.slots), found.divisions, found.exponentials
    (11773, 556.0, 50.0)
    """
    slots, divisions, exponentials, roots = 40.0, 5.0, 0.0, 0.0
    pairs = list(itertools.pairwise(widths))
    for place, (inputs, units) in enumerate(pairs):
        n, first = inputs + 1, place == 0
        k = n * units
        if kind in ("kronecker", "gradient"):
            slots += 7 * k + units**2 + n**2 if kind == "kronecker" else 2 * k + n + units
            slots += 0 if first else k
            continue
        slots += 2 * k + n if first else 3 * k + 2 * n
        slots += 0 if first else 3 * k + 20 * inputs
        if place < len(pairs) - 1:
            slots += units * (_TERMS[digits] + 32)
            divisions += units
            exponentials += units
            roots += units
        more = 0 if first else 2
        if kind == "filtering":
            slots += k * (7 + more)
            continue
        slots += k * (8 + more)
        divisions += k
        if kind == "batch":
            slots += 4 * k
        else:
            slots += 6 * k
            divisions += k
        if kind in ("batch", "sequential clipped"):
            slots += 2 * k
    return Count(slots, divisions, exponentials, roots, digits / 8 * (widths[0] + 1))


def seconds(found: Count, rates: Rates) -> float:
    """Least seconds of a record.

    Examples
    --------
    >>> seconds(Count(100.0, 10.0, 0.0, 0.0, 40.0), Rates(1e9, 1e8, 1e8, 1e8, 1e10))
    2e-07
    """
    arithmetic = sum(each / rate for each, rate in zip(found[:-1], rates[:-1], strict=True))
    return max(arithmetic, found.bytes / rates.bytes)


def measure(digits: int, *, repeats: int = 100) -> Rates:
    """Measure the machine's rates with numbers of so many bits, on the cores this process may use."""
    kind: Any = np.float32 if digits == 32 else np.float64
    generator = np.random.default_rng(0)
    size = 256
    left, right = (generator.standard_normal((size, size)).astype(kind) for _ in range(2))
    out = np.empty_like(left)
    products = size**3 / _best(lambda: np.matmul(left, right, out=out), repeats)
    some = (1.0 + generator.uniform(size=8192)).astype(kind)
    place, times = np.empty_like(some), 16

    def rate(function: Callable[[], Any]) -> float:
        def often() -> None:
            for _ in range(times):
                function()

        return len(some) * times / _best(often, repeats)

    large = np.ones(2**25 // (digits // 8), kind)
    other = np.zeros_like(large)
    moved = 2 * large.nbytes / _best(lambda: np.copyto(other, large), max(repeats // 10, 3))
    return Rates(
        slots=products,
        divisions=rate(lambda: np.divide(some, some, out=place)),
        exponentials=rate(lambda: np.exp(some, out=place)),
        roots=rate(lambda: np.sqrt(some, out=place)),
        bytes=moved,
    )


def best(first: Rates, second: Rates) -> Rates:
    """Return the better of two measurements, rate by rate."""
    return Rates(*(max(pair) for pair in zip(first, second, strict=True)))


def _best(function: Callable[[], Any], repeats: int) -> float:
    """Least seconds of a call: a peak is what the machine can do."""
    least = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        least = min(least, time.perf_counter() - start)
    return float(least)
