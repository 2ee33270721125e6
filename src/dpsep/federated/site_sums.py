r"""The sums of a site: its table as the gate reads it, clipped and added on the grid, with its own noise.

**Privacy.** `packed_sums` is the gate's release with another ending: rows drawn by the mechanism's sampling,
contributions clipped and rounded by `dpsep.privacy.gate.Reader`, and then, instead of all of the noise, the
noise that the site's mode asks of it, a rounded Gaussian of exact law (`dpsep.privacy.noise`), or none where
the server is trusted with exact sums. Coins and noise are drawn afresh for every answer; the caller keeps the
answer and never asks twice. An error before anything was drawn (`Drawn`) depends on public values and on the
site's machine, and leaves a round open. An error after that may depend on what was drawn, so that asking
until none happens would be a release without a charge: it is the round's answer, kept like any other. Public
values must have the shapes of the table
(`dpsep.federated.public_value_checks`): that is checked before a coin is drawn. The proof is in
docs/proofs/federated.md.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.federated import packing
from dpsep.federated.distributed import check_deviation
from dpsep.federated.public_value_checks import check_contribution, check_public
from dpsep.federated.terms import Terms, Work, typed
from dpsep.privacy.gate import Reader, capacity_for, check_blocks, is_sampled
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import WordStream, rounded_gaussian
from dpsep.privacy.record_sources import Part, Records

_BLOCK_KINDS = ("flat", "outer", "count")


class Drawn:
    """A stream that knows whether anything was drawn from it.

    Parameters
    ----------
    stream
        Where words come from.
    """

    def __init__(self, stream: WordStream) -> None:
        self._stream, self.secure, self.drawn = stream, stream.secure, False

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` words."""
        self.drawn = True
        return self._stream.words(n)


class Table:
    """A site's rows as arrays: features, and the target coded as the terms say.

    Parameters
    ----------
    records
        Features and target.
    shape
        Public number of rows and columns, which the arrays must have.
    classes
        How labels are coded; None for numbers.
    coded
        Whether the target is coded already.
    """

    def __init__(
        self, records: Sequence[Any], shape: tuple[int, int], classes: Any, *, coded: bool = False
    ) -> None:
        features, target = records
        if not isinstance(features, Part):
            from dpsep.data import as_matrix

            features = as_matrix(features)[0]
        if isinstance(target, Part):
            if classes is not None and not coded:
                raise ValueError("a target that is read as it goes must be coded beforehand.")
        elif not coded:
            from dpsep.estimators.input_checks import numbers, signs

            target = numbers(target) if classes is None else signs(target, np.asarray(classes))
        if features.shape != shape or target.shape != shape[:1]:
            raise ValueError("the table does not have the shape that the site told.")
        self._arrays: Records = (features, target)
        self._readers: dict[Any, Reader] = {}

    def arrays(self, which: tuple[int, ...]) -> "Arrays":
        """Return some of the arrays of a record, with the readers made for them so far."""
        return Arrays(tuple(self._arrays[index] for index in which), which, self._readers)


class Arrays:
    """Arrays of a record; readers of them are kept, and with them what was moved to the device."""

    def __init__(self, records: Records, which: tuple[int, ...], readers: dict[Any, Reader]) -> None:
        self._records, self._which, self._readers = records, which, readers

    def columns(self) -> tuple[int, ...]:
        """Return the public number of columns of each array; 0 for a vector."""
        return tuple(0 if len(array.shape) == 1 else int(array.shape[1]) for array in self._records)

    def reader(self, capacity: int, *, sampled: bool) -> Reader:
        """Return a reader with chunks of this many rows."""
        key = (self._which, capacity, sampled)
        if key not in self._readers:
            self._readers[key] = Reader(self._records, capacity, sampled=sampled)
        return self._readers[key]


def check_work(work: Any, parts: Sequence[Mechanism], terms: Terms) -> None:
    """Raise ValueError where what is asked of records is no release of the terms."""
    what = "what is asked of records is not of its types"
    work = typed(work, Work, what)
    arrays = work.arrays in ((0,), (1,), (0, 1))
    if not (arrays and work.part < len(parts) and all(map(_is_block, work.blocks))):
        raise ValueError(f"{what}.")
    check_contribution(work.contribution, work.arrays, work.blocks)
    if sum(block.coordinates for block in work.blocks) > terms.coordinates:
        raise ValueError(f"a release has more numbers than the {terms.coordinates} of the terms.")
    mechanism = parts[work.part]
    check_blocks(mechanism, work.blocks)
    if terms.mode == "sites":
        for block in work.blocks:
            check_deviation(float(block.noise_units(mechanism.sigma).min()), block.name)


def packed_sums(arrays: Arrays, begun: Any, work: Work, public: Any, stream: WordStream) -> bytes:
    """Return a site's sums of one release, with its noise, as they travel."""
    rows, sigma = begun.parts[work.part].records, begun.price.sigmas[work.part]
    bounds = answer_bounds(work.blocks, rows, sigma)
    return packing.pack(noisy_sums(arrays, begun, work, public, stream), bounds)


def noisy_sums(
    arrays: Arrays, begun: Any, work: Work, public: Any, stream: WordStream
) -> list[NDArray[np.int64]]:
    """Return a site's sums of one release, with its noise, in grid units.

    Parameters
    ----------
    begun
        The charged run.
    work
        What is asked of records, checked.
    public
        Public values of the release.
    stream
        Where coins and noise come from.

    Raises
    ------
    WireError
        Public values are not of the shapes that the contribution and the table need; nothing was drawn.
    """
    check_public(work.contribution, arrays.columns(), public)
    mechanism: Mechanism = begun.parts[work.part]
    rows = mechanism.records
    sampler = mechanism.sampling.start(stream, rows)
    # Chunks of the size that a gate of this table would have, whose program a pooled fit proves.
    capacity = capacity_for(mechanism, work.blocks, work.contribution)
    reader = arrays.reader(capacity, sampled=is_sampled(mechanism))
    totals = reader.sums(work.contribution, work.blocks, public, sampler.next())
    sigma = begun.price.sigmas[work.part]
    if sigma == 0:
        return totals
    return [
        packing.clamp(total + rounded_gaussian(stream, block.noise_units(sigma), block.coordinates), bounds)
        for block, total, bounds in zip(
            work.blocks, totals, answer_bounds(work.blocks, rows, sigma), strict=True
        )
    ]


def answer_bounds(blocks: Sequence[Block], rows: int, sigma: float) -> list[packing.Bounds]:
    """Return public bounds of a site's sums; sigma is the noise that it adds, zero for none."""
    return [
        packing.bounds_of(block, rows, block.noise_units(sigma) if sigma > 0 else None) for block in blocks
    ]


def _is_block(block: Any) -> bool:
    return (
        isinstance(block, Block)
        and isinstance(block.name, str)
        and isinstance(block.kind, str)
        and all(type(value) is int for value in (block.size, block.bins))
        and all(type(value) is float for value in (block.clip, block.share))
        and block.kind in _BLOCK_KINDS
        and block.size < 1 << 24
        and 0 <= block.bins < 1 << 20
    )
