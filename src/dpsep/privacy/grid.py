r"""Clipping and exact sums on an integer grid: the arithmetic inside the gate.

A release is a sum over records of several blocks, each clipped to a norm of its own. Here one padded chunk of
records becomes exact integer sums. Three shapes of block exist: `flat`, a vector a record; `outer`, the
symmetric matrix u u^T of a vector u a record (the precision part of a rank-one local factor), which counts
as its upper triangle with sqrt(2) off the diagonal, so that its norm is |u|^2; and `count`, a histogram a
column, to which a record adds one in one bin of each.

**Privacy.** Let K be a block's public number of grid units. A `flat` row is scaled to norm at most K -
sqrt(size)/2 and rounded to the nearest integers, which moves it by at most sqrt(size)/2; an `outer` row u
likewise, with its norm squared bounded by K^2 = C/g. After rounding, sum k_i^2 <= K^2 is checked in integers
(exact in doubles below 2^53) and a row that fails, or holds a value that is not finite in any block,
contributes zero to every block; rows are selected, never multiplied by zero. All partial sums are integers
below 2^53 in magnitude (a `count` row has `size` ones, so its norm is sqrt(size) by construction), so doubles
add them without rounding, in any order, by any matrix kernel, on any number of devices: no bit of the result
depends on the data but through the integer sum itself. The proof is in docs/proofs/gate.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

FLAT_UNITS = 2**20
"""Grid units in the clip of a flat block."""
OUTER_UNITS = 2**15
"""Grid units in the norm of the vector of an outer block; its products have the square of this."""
MAX_ROWS = 2**22
"""Most rows in one chunk: their products of at most 2^30 units sum below 2^53."""


@dataclass(frozen=True)
class Block:
    """One part of a release: its shape, its clip norm and its share of the noise budget.

    Parameters
    ----------
    name
        How the released part is called.
    size
        Length of a flat vector, or of the vector whose outer product is summed, or number of histograms.
    clip
        Norm that a record's part is clipped to; infinite only where nothing is private.
    share
        Share of the release's privacy budget; the shares of a release sum to one. The noise's standard
        deviation is ``sigma * clip / sqrt(share)``.
    kind
        ``"flat"``, ``"outer"`` or ``"count"``.
    bins
        Bins of each histogram of a ``count`` block, whose rows hold bin numbers; its clip is sqrt(size).
    """

    name: str
    size: int
    clip: float
    share: float = 1.0
    kind: Literal["flat", "outer", "count"] = "flat"
    bins: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or not self.clip >= 0 or not 0 < self.share <= 1:
            raise ValueError(
                f"block {self.name!r} needs a positive size, a clip of at least 0 and a share in (0, 1], not "
                f"{self.size}, {self.clip} and {self.share}."
            )
        if self.kind == "count" and (self.bins < 1 or self.clip != math.sqrt(self.size)):
            raise ValueError(f"count block {self.name!r} needs bins, and sqrt(size) as its clip.")
        if self.kind != "count" and math.sqrt(self.size) / 2 >= self.norm_units:
            raise ValueError(f"block {self.name!r} of size {self.size} is too large for its grid.")

    @property
    def norm_units(self) -> int:
        """Grid units in the norm of the vector that is rounded."""
        return FLAT_UNITS if self.kind == "flat" else OUTER_UNITS

    @property
    def unit(self) -> float:
        """One unit of the released integers, in the block's own units."""
        if self.kind == "count":
            return 1.0
        return self.clip / (FLAT_UNITS if self.kind == "flat" else OUTER_UNITS**2)

    @property
    def clip_units(self) -> float:
        """The clip in units of the released integers, by construction and not by division."""
        if self.kind == "count":
            return math.sqrt(self.size)
        return float(FLAT_UNITS if self.kind == "flat" else OUTER_UNITS**2)

    def noise_units(self, sigma: float) -> NDArray[np.float64]:
        """Noise standard deviation of each coordinate, in units of the released integers.

        A clip so small that its grid's unit is no normal number must not change it, so no clip is in here.
        """
        return sigma * self.clip_units / math.sqrt(self.share) * self.deviations()

    def deviation(self, sigma: float) -> float:
        """Noise standard deviation in the block's own units (of an outer block: of its diagonal)."""
        return sigma * self.clip / math.sqrt(self.share)

    @property
    def coordinates(self) -> int:
        """Number of released coordinates."""
        if self.kind == "count":
            return self.size * self.bins
        return self.size if self.kind == "flat" else self.size * (self.size + 1) // 2

    def deviations(self) -> NDArray[np.float64]:
        """Noise standard deviation of each coordinate, in units of that of a diagonal coordinate."""
        if self.kind != "outer":
            return np.ones(self.coordinates)
        row, column = np.triu_indices(self.size)
        return np.where(row == column, 1.0, math.sqrt(0.5))

    def assemble(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the vector, the symmetric matrix or the histograms that released coordinates stand for."""
        if self.kind == "count":
            return coordinates.reshape(self.size, self.bins)
        if self.kind == "flat":
            return coordinates
        matrix = np.zeros((self.size, self.size))
        matrix[np.triu_indices(self.size)] = coordinates
        return matrix + np.triu(matrix, 1).T


class Contribution(Protocol):
    """What each record adds: a frozen, hashable function of public values and a chunk of records.

    Returns one array (rows, size) a block; row i may depend on record i and on ``public`` only. The gate does
    not take that on trust: `dpsep.privacy.isolation` proves it of the traced program.
    """

    def __call__(self, public: Any, chunk: Any, /) -> tuple[jax.Array, ...]:
        """Return one array a block."""
        ...


def contributions(
    contribution: Contribution, blocks: tuple[Block, ...], public: Any, chunk: Any
) -> tuple[jax.Array, ...]:
    """Return what the records of a chunk add: what `dpsep.privacy.isolation` traces and proves."""
    rows = contribution(public, chunk)
    length = len(jax.tree.leaves(chunk)[0])
    for block, part in zip(blocks, rows, strict=True):
        if part.shape != (length, block.size):
            # A narrower part would be broadcast by the sum, and its norm would grow.
            raise ValueError(
                f"the contribution to block {block.name!r} has shape {part.shape}; a chunk of {length} "
                f"records needs {(length, block.size)}."
            )
    return tuple(rows)


def rows_on_grid(
    blocks: tuple[Block, ...], parts: tuple[jax.Array, ...]
) -> tuple[tuple[jax.Array, jax.Array], ...]:
    """Clip contributions and round them to the grid; return integer rows, and which were finite, by block.

    Blocks with an infinite clip (nothing private) are left as they are. Row by row: every operation here is
    elementwise or a sum over a row's own numbers.
    """
    return _rows_on_grid(_forms(blocks), tuple(map(_scale, blocks)), parts)


def chunk_sums(blocks: tuple[Block, ...], parts: Sequence[tuple[Any, Any]]) -> tuple[jax.Array, ...]:
    """Check rows on the grid and sum those that pass: integers as doubles, one array a block.

    A computation of its own, apart from `rows_on_grid`: a compiler that sees both makes the rows twice, once
    for the check and once for the sum, and may round the two differently. Here both read the same numbers in
    memory.
    """
    return _chunk_sums(_forms(blocks), tuple(parts))


class _Form(NamedTuple):
    """A block as compiled programs know it: its scale is their argument, so that one serves every clip."""

    kind: str
    size: int
    bins: int
    norm_units: int
    coordinates: int
    clipped: bool  # False: the clip is infinite, and nothing is private
    closed: bool  # the clip is zero
    scale: Any = None  # grid units in one unit of the vector that is rounded


def _scale(block: Block) -> float:
    """Grid units in one unit of the vector that is rounded, by the host: a compiler may divide otherwise."""
    clip = float(block.clip)
    if block.kind == "count" or clip == 0 or math.isinf(clip):
        return 1.0
    return block.norm_units / (math.sqrt(clip) if block.kind == "outer" else clip)


def _forms(blocks: tuple[Block, ...]) -> tuple[_Form, ...]:
    return tuple(
        _Form(b.kind, b.size, b.bins, b.norm_units, b.coordinates, not math.isinf(b.clip), b.clip == 0)
        for b in blocks
    )


@partial(jax.jit, static_argnames="forms")
def _rows_on_grid(
    forms: tuple[_Form, ...], scales: tuple[float, ...], parts: tuple[jax.Array, ...]
) -> tuple[tuple[jax.Array, jax.Array], ...]:
    blocks = (form._replace(scale=scale) for form, scale in zip(forms, scales, strict=True))
    return tuple(_to_grid(block, part) for block, part in zip(blocks, parts, strict=True))


@partial(jax.jit, static_argnames="forms")
def _chunk_sums(
    forms: tuple[_Form, ...], parts: tuple[tuple[jax.Array, jax.Array], ...]
) -> tuple[jax.Array, ...]:
    usable = jnp.all(
        jnp.stack([_passes(block, *part) for block, part in zip(forms, parts, strict=True)]), axis=0
    )
    return tuple(_sum_rows(block, rows, usable) for block, (rows, _) in zip(forms, parts, strict=True))


def forget() -> None:
    """Drop what was compiled here."""
    for compiled in (_rows_on_grid, _chunk_sums):
        cast(Any, compiled).clear_cache()


def compilations() -> int:
    """How many programs that sum chunks were compiled so far."""
    return cast(Any, _chunk_sums)._cache_size()


def _to_grid(block: _Form, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return clipped integer rows, and which rows were finite."""
    rows = rows.astype(jnp.float64)
    finite = jnp.all(jnp.isfinite(rows), axis=1)
    if block.kind == "count":
        return jnp.where(finite[:, None], jnp.floor(rows), -1.0), finite
    rows = jnp.where(finite[:, None], rows, 0.0)
    if not block.clipped:
        return rows, finite
    if block.closed:
        return jnp.zeros_like(rows), finite
    norm = jnp.linalg.norm(rows, axis=1)
    # The room left for rounding: half a unit in each coordinate.
    room = block.norm_units - math.sqrt(block.size) / 2
    scale = jnp.minimum(block.scale, room / jnp.maximum(norm, jnp.finfo(jnp.float64).tiny))
    return jnp.round(rows * scale[:, None]), finite & jnp.isfinite(norm)


def _passes(block: _Form, rows: jax.Array, finite: jax.Array) -> jax.Array:
    """Which rows are finite and within the block's norm, checked in integers."""
    if block.kind == "count":
        return finite & jnp.all((rows >= 0) & (rows < block.bins), axis=1)
    if not block.clipped:
        return finite
    return finite & (jnp.sum(rows**2, axis=1) <= float(block.norm_units) ** 2)


def _sum_rows(block: _Form, rows: jax.Array, usable: jax.Array) -> jax.Array:
    if block.kind == "count":
        cell = jnp.arange(block.size) * block.bins + rows.astype(jnp.int32)
        # Unusable rows go to a bin behind the last, which is cut off.
        cell = jnp.where(usable[:, None], cell, block.coordinates)
        return jnp.zeros(block.coordinates + 1).at[cell.ravel()].add(1.0)[:-1]
    rows = jnp.where(usable[:, None], rows, 0.0)
    if block.kind == "flat":
        return jnp.sum(rows, axis=0)
    # HIGHEST: no reduced-precision products on an accelerator; the sum must be exact.
    return jnp.matmul(rows.T, rows, precision=jax.lax.Precision.HIGHEST)


def coordinates_of(block: Block, total: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coordinates of a summed block: itself, or its upper triangle."""
    return total[np.triu_indices(block.size)] if block.kind == "outer" else total
