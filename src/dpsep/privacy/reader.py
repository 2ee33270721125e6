r"""Sums over rows: padded chunks of one compiled shape, on every device and in every process there is.

**Privacy.** Called by gates (`dpsep.privacy.gate`), which add the noise; what is returned here is secret. The
sums are exact integers on the grid of `dpsep.privacy.grid`, whatever the number of chunks, devices or
processes. Before the first row is read the program that is to run on rows is proved to keep them apart
(`dpsep.privacy.isolation`). Sums that no clipped rows can have raise `DeviceError`. The proof is in
docs/proofs/gate.md.
"""

import math
import operator
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dpsep.privacy import hosts
from dpsep.privacy.grid import MAX_ROWS, Block, Contribution, chunk_sums, coordinates_of, rows_on_grid
from dpsep.privacy.isolation import Program, arrays_of, program_of
from dpsep.privacy.record_sources import Ahead, Part, Records, Rows, fetch, in_memory, size_of
from dpsep.privacy.sampling import RowNumbers

CAPACITY = 2048
"""Rows of a compiled chunk on a processor, where a chunk should stay in its cache."""
ACCELERATOR_CAPACITY = 2**20
"""Rows of a compiled chunk on an accelerator, where each chunk costs a launch."""


CHUNK_NUMBERS, ACCELERATOR_NUMBERS = 2**20, 2**25
"""Most numbers in the contributions of one chunk, on a processor and on an accelerator."""
LEAST_CAPACITY = 256
"""Rows below which a chunk is not cut further where memory is short."""
READ_AHEAD = 4
"""Chunks of a table on a disk that are read ahead."""
KEPT_BYTES = 2**30
"""Most bytes of a table that are kept as chunks beside it, on a processor."""


class DeviceError(RuntimeError):
    """The device returned sums that no records can have; what was charged stays spent."""


def _check_device(block: Block, total: NDArray[np.float64], rows: int) -> None:
    """Refuse a chunk's sums that are no integers, or larger than this many clipped rows can make them.

    A device that works never comes here with such sums, whatever the records: `dpsep.privacy.grid` says why.
    One that does not could return a NaN, and the integer that a NaN is cast to would be released.
    """
    if math.isinf(block.clip):
        return
    largest = 1 if block.kind == "count" else block.norm_units ** (2 if block.kind == "outer" else 1)
    smallest = 0 if block.kind == "count" else -rows * largest
    # A NaN fails every comparison.
    if not np.all((total >= smallest) & (total <= rows * largest) & (total == np.rint(total))):
        raise DeviceError(
            f"the device ({jax.default_backend()}) returned sums that no records can have, whatever is in "
            "them: it, its memory or its driver is at fault, not the table. This step released nothing; what "
            "was charged stays spent. Check the device, or run on another one (JAX_PLATFORMS=cpu)."
        )


def capacity_of(blocks: Sequence[Block], contribution: Any = None) -> int:
    """Return rows of a chunk: as many as suit the device, fewer where a record's contribution is large.

    A contribution may say itself how many rows it takes at the most, by an attribute ``most_rows``.
    """
    processor = jax.default_backend() == "cpu"
    capacity = CAPACITY if processor else ACCELERATOR_CAPACITY
    numbers = CHUNK_NUMBERS if processor else ACCELERATOR_NUMBERS
    width = sum(1 if block.kind == "count" else block.size for block in blocks)
    most = getattr(contribution, "most_rows", capacity)
    return max(8, min(capacity, most, numbers // width // 8 * 8))


def round_up(rows: int) -> int:
    """Round a number of rows up to one of few: 8, 16, 24, 32, 48, 64, 96, ...

    Tables and batches of similar size share their compiled programs by that; what is missing is padded.
    """
    power = 1 << max(3, (rows - 1).bit_length())
    return power * 3 // 4 if power >= 32 and rows <= power * 3 // 4 else power


def chunk_size(records: int, capacity: int, *, sampled: bool) -> int:
    """Rows of the chunks that records are cut into: of one size, filling the table evenly if all are read."""
    most = min(capacity, MAX_ROWS)
    if sampled or records <= most:
        return min(most, round_up(records))
    chunks = -(-records // most)
    return min(most, -(-records // (8 * chunks)) * 8)


class Reader:
    """Padded chunks of one compiled shape, and exact sums over them.

    Chunks go to the local devices in turn, and to the processes in turn where there are several
    (`dpsep.privacy.hosts`): the same rows pass through the same compiled program wherever that is, and their
    sums are integers, so that neither number shows in the result. Rows of a table that is not in memory are
    read ahead while devices compute. A device that is short of memory gets chunks of half the size; how much
    a chunk takes follows from shapes, not from what is in it.

    Parameters
    ----------
    records
        Arrays of floats with one row a record.
    capacity
        Most rows of a chunk.
    private
        Whether programs must be proved to keep records apart before they run.
    sampled
        Whether a record's slot depends on which others were drawn, so that it must not matter either.
    """

    def __init__(
        self, records: Records, capacity: int = CAPACITY, *, private: bool = True, sampled: bool = True
    ) -> None:
        self._records = records
        self._count = len(records[0])
        self._capacity = chunk_size(self._count, capacity, sampled=sampled)
        self._made_for = (self._capacity, private, sampled)
        self._private, self._sampled = private, sampled
        self._whole: list[Any] | None = None

    def serves(self, records: Records, capacity: int, *, private: bool, sampled: bool) -> bool:
        """Whether it reads these very arrays in this way."""
        asked = (chunk_size(self._count, capacity, sampled=sampled), private, sampled)
        same = len(records) == len(self._records) and all(map(operator.is_, records, self._records))
        return same and asked == self._made_for

    def layout(self) -> tuple[Any, ...]:
        """How rows are cut, and of which table: what processes that sum together must have alike."""
        identities = [array.source.identity if isinstance(array, Part) else "" for array in self._records]
        return self._capacity, [array.shape for array in self._records], identities

    def sums(
        self, contribution: Contribution, blocks: tuple[Block, ...], public: Any, rows: RowNumbers
    ) -> list[NDArray[Any]]:
        """Sum the clipped contributions of these rows: integers, or floats in a block without a clip."""
        while True:
            try:
                return hosts.total(self._own_sums(contribution, blocks, public, rows))
            except jax.errors.JaxRuntimeError as error:
                # Several processes must cut the rows alike, so none of them may shrink its chunks alone.
                short = "RESOURCE_EXHAUSTED" in str(error) and not hosts.several()
                if not short or self._capacity <= LEAST_CAPACITY:
                    raise
                self._capacity = max(LEAST_CAPACITY, self._capacity // 16 * 8)
                self._whole = None

    def _own_sums(
        self, contribution: Contribution, blocks: tuple[Block, ...], public: Any, rows: RowNumbers
    ) -> list[NDArray[Any]]:
        """Sum the chunks that are this process's."""
        public = arrays_of(public)
        program = self._program(contribution, blocks, public)
        kinds = [np.float64 if math.isinf(block.clip) else np.int64 for block in blocks]
        totals = [np.zeros(block.coordinates, kind) for block, kind in zip(blocks, kinds, strict=True)]
        devices = local_devices()
        under_way: deque[Any] = deque()

        def add(sums: Any) -> None:
            for total, block, part, kind in zip(totals, blocks, sums, kinds, strict=True):
                found = coordinates_of(block, np.asarray(part))
                _check_device(block, found, self._capacity)
                total += found.astype(kind)

        # Debugging switches would turn a record's NaN into an error.
        with jax.enable_x64(True), jax.debug_nans(False), jax.debug_infs(False):
            public_at = [public] if len(devices) == 1 else [jax.device_put(public, one) for one in devices]
            for place, chunk in self._chunks(rows, devices):
                on_grid = rows_on_grid(blocks, program(public_at[place], chunk))
                under_way.append(chunk_sums(blocks, on_grid))
                # Devices compute while the next chunks are made ready.
                if len(under_way) > len(devices):
                    add(under_way.popleft())
            for sums in under_way:
                add(sums)
        return totals

    def _program(self, contribution: Contribution, blocks: tuple[Block, ...], public: Any) -> Program:
        """The program for chunks of this size, proved where it must be: no row was read yet."""
        shapes = [(self._capacity, *array.shape[1:]) for array in self._records]
        program = program_of(contribution, blocks, public, shapes)
        if self._private:
            program.prove(public, sampled=self._sampled)
        return program

    def _chunks(self, rows: RowNumbers, devices: list[Any]) -> Iterator[tuple[int, Any]]:
        """Make the chunks that are this process's, each with the number of the device it lies on."""
        every_row = len(rows) == self._count
        if every_row and self._whole is not None:
            yield from self._whole
            return
        starts = enumerate(range(0, len(rows), self._capacity))
        mine = (slice(start, start + self._capacity) for number, start in starts if hosts.turn(number))
        made = (partial(self._pad, part if every_row else np.asarray(rows[part])) for part in mine)
        padded: Any = (job() for job in made) if in_memory(self._records) else Ahead(made, READ_AHEAD)
        # Every row takes part (full batch): the chunks are the same at every step, and kept if there is room.
        room = min(_room_to_keep(devices), *(_allowed(array) for array in self._records))
        keep = every_row and size_of(self._records) <= room
        kept = []
        for number, chunk in enumerate(padded):
            place = number % len(devices)
            if keep or len(devices) > 1:
                # Where there is one device chunks are not tied to it: programs were compiled for such arrays.
                chunk = jax.device_put(chunk, devices[place] if len(devices) > 1 else None)
            if keep:
                kept.append((place, chunk))
            yield place, chunk
        if keep:
            self._whole = kept

    def _pad(self, rows: Rows) -> tuple[NDArray[np.float64], ...]:
        chunk = []
        for part in fetch(self._records, rows):
            missing = self._capacity - len(part)
            if missing:
                part = np.concatenate([part, np.full((missing, *part.shape[1:]), np.nan)])
            chunk.append(part)
        return tuple(chunk)


class Readers:
    """The reader of a run's gates, one after another: a table is cut into chunks, and kept, once."""

    def __init__(self) -> None:
        self._last: Reader | None = None

    def reader(self, records: Records, capacity: int, *, private: bool = True, sampled: bool) -> Reader:
        """Return the last gate's reader where it serves this one, too, or a new one."""
        how = {"private": private, "sampled": sampled}
        if self._last is None or not self._last.serves(records, capacity, **how):
            self._last = None  # what it kept makes room
            self._last = Reader(records, capacity, **how)
        return self._last


def local_devices() -> list[Any]:
    """Return the devices of this process that chunks go to: all, or the one that JAX was told to use."""
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is not None and not isinstance(chosen, str):
        return [chosen]
    return jax.local_devices()


def _allowed(array: Any) -> float:
    """Bytes of chunks that the source of an array lets stay: half of what it may hold."""
    return array.source.memory / 2 if isinstance(array, Part) else math.inf


def _room_to_keep(devices: list[Any]) -> int:
    """Bytes of chunks that may stay on the devices between releases: half of all accelerators' memory."""
    stats = devices[0].memory_stats() if devices[0].platform != "cpu" else None
    room = int(stats["bytes_limit"]) // 2 * len(devices) if stats and "bytes_limit" in stats else KEPT_BYTES
    return room * hosts.count()
