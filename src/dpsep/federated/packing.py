r"""Integer sums in the fewest bits that their public bounds allow.

A site with n rows sends, for each coordinate of a release, an integer between public bounds: a flat block's
within n K, an outer block's diagonal between 0 and n K^2 and the rest within n K^2 / 2 (|u_i u_j| is at most
half of |u|^2), a count between 0 and n (`dpsep.privacy.grid`; K are its grid units). Where the site added
noise the bounds are wider by `TAIL` standard deviations. Each integer takes as many bits as its bounds need,
and an answer's length follows from public numbers alone.

**Privacy.** A noisy sum beyond its bounds is moved to the bound before it is sent: a public function of a
release, so post-processing. `within` refuses what no rows can have made, as the gate does with a device.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.federated.codec import WireError
from dpsep.privacy.grid import Block

TAIL = 64.0
"""Standard deviations of noise that an answer has room for; a draw beyond has probability below 1e-800."""
_MOST_BITS = 62


class Bounds(NamedTuple):
    """Least and greatest integer of each coordinate of a block."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]


def bounds_of(block: Block, rows: int, deviations: NDArray[np.float64] | None = None) -> Bounds:
    """Return the bounds of a block's sums over so many rows.

    Parameters
    ----------
    deviations
        Of the noise in each coordinate, in grid units; None where there is none.
    """
    count = block.coordinates
    if block.kind == "count":
        low, high = np.zeros(count, np.int64), np.full(count, rows, np.int64)
    else:
        largest = rows * block.norm_units ** (2 if block.kind == "outer" else 1)
        if largest >= 1 << (_MOST_BITS - 2):
            raise WireError(f"sums over {rows} rows do not fit the integers of an answer.")
        low, high = np.full(count, -largest, np.int64), np.full(count, largest, np.int64)
        if block.kind == "outer":
            row, column = np.triu_indices(block.size)
            low = np.where(row == column, 0, -(largest // 2))
            high = np.where(row == column, largest, largest // 2)
    if deviations is not None:
        room = np.ceil(TAIL * deviations)
        if not room.max() < 2.0 ** (_MOST_BITS - 2):
            raise WireError("the noise does not fit the integers of an answer.")
        low, high = low - room.astype(np.int64), high + room.astype(np.int64)
    return Bounds(low, high)


def packed_size(bounds: Sequence[Bounds]) -> int:
    """Return the bytes that sums within these bounds take."""
    return sum(math.ceil(int(_widths(part).sum()) / 8) for part in bounds)


def pack(totals: Sequence[NDArray[np.int64]], bounds: Sequence[Bounds]) -> bytes:
    """Return sums as bytes, each block on its own.

    Examples
    --------
    >>> bounds = [Bounds(np.array([-3, 0]), np.array([3, 1000]))]
    >>> pack([np.array([-1, 7])], bounds).hex(), packed_size(bounds)
    ('4038', 2)
    """
    return b"".join(_pack(total, part) for total, part in zip(totals, bounds, strict=True))


def unpack(content: bytes, bounds: Sequence[Bounds]) -> list[NDArray[np.int64]]:
    """Return the sums that bytes stand for; raise `WireError` where they are none within their bounds."""
    if len(content) != packed_size(bounds):
        raise WireError(f"sums take {packed_size(bounds)} bytes, not {len(content)}.")
    totals, at = [], 0
    for part in bounds:
        size = packed_size([part])
        totals.append(_unpack(content[at : at + size], part))
        at += size
    return totals


def clamp(total: NDArray[np.int64], bounds: Bounds) -> NDArray[np.int64]:
    """Move noisy sums to their bounds where they lie beyond."""
    return np.clip(total, bounds.low, bounds.high)


def within(block: Block, total: NDArray[np.int64], rows: int) -> bool:
    """Say whether so many clipped rows can have made these exact sums; for sums without noise."""
    if block.kind == "count":
        sums = total.reshape(block.size, block.bins).sum(axis=1)
        # A row counts in every column or in none.
        return bool((sums == sums[0]).all() and sums[0] <= rows)
    if block.kind == "flat":
        length = math.sqrt(float(np.sum(total.astype(np.float64) ** 2)))
        return length <= rows * block.norm_units * (1 + 1e-9)
    row, column = np.triu_indices(block.size)
    diagonal = total[row == column].astype(np.float64)
    if diagonal.sum() > rows * float(block.norm_units) ** 2 * (1 + 1e-9):
        return False
    # A sum of squares is a positive matrix: no entry exceeds the mean of its two diagonal ones.
    return bool((2.0 * np.abs(total) <= diagonal[row] + diagonal[column]).all())


def _widths(part: Bounds) -> NDArray[np.int64]:
    span = part.high - part.low
    return np.array([int(value).bit_length() for value in span.tolist()], np.int64)


def _pack(total: NDArray[np.int64], part: Bounds) -> bytes:
    if total.shape != part.low.shape or (total < part.low).any() or (total > part.high).any():
        raise WireError("a sum lies beyond its bounds.")
    bits = np.unpackbits((total - part.low).astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
    return np.packbits(bits[_mask(part)]).tobytes()


def _unpack(content: bytes, part: Bounds) -> NDArray[np.int64]:
    mask = _mask(part)
    found = np.unpackbits(np.frombuffer(content, np.uint8))
    used = int(mask.sum())
    if found[used:].any():
        raise WireError("bits are left over after sums.")
    bits = np.zeros(mask.shape, np.uint8)
    bits[mask] = found[:used]
    total = np.packbits(bits, axis=1).reshape(-1).view(">u8").astype(np.int64)
    if (total > part.high - part.low).any():
        raise WireError("a sum lies beyond its bounds.")
    return total + part.low


def _mask(part: Bounds) -> NDArray[np.bool_]:
    """Which of 64 bits of each coordinate travel."""
    return np.arange(64)[None, :] >= 64 - _widths(part)[:, None]
