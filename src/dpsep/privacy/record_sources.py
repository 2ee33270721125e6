r"""Where a gate's rows come from: arrays in memory, or parts of a table that is read as it goes.

A record of a gate is one row of each of several arrays. An array may be NumPy's own, or a `Part` of a source
that holds more than memory does (`dpsep.data.scan`) or holds nothing here at all (`dpsep.federated`). `fetch`
reads rows of all arrays, each source once; `Ahead` does so in a thread of its own, a few chunks ahead of
whoever computes with them.

**Privacy.** Rows go to the gate that asked for them and nowhere else. Which rows are asked for is secret (it
is the sample); a source must not write it down. How long reading takes is not hidden.
The proof is in docs/proofs/gate.md.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64] | slice
"""Which rows: numbers in rising order, or a slice with step one."""
Item = TypeVar("Item")


class Source:
    """A table of several arrays that are not in memory.

    Attributes
    ----------
    memory
        Bytes that it may hold.
    identity
        What tells it from another table: public.
    """

    memory: float = math.inf
    identity: Any = ""

    def __len__(self) -> int:
        """Return the number of rows, which is public."""
        raise NotImplementedError

    def take(self, rows: Rows, parts: Sequence[int]) -> list[NDArray[np.float64]]:
        """Read rows of some of the arrays."""
        raise NotImplementedError

    def gate(self, *arguments: Any, **more: Any) -> Any:
        """Return a gate to rows that cannot be read here, by the arguments of `Gate`; None where they can."""
        del arguments, more


@dataclass(frozen=True, eq=False)
class Part:
    """One array of a source, as far as its shape goes.

    Parameters
    ----------
    source
        Where its rows are.
    part
        Which array of the source it is.
    shape
        As a NumPy array's.
    """

    source: Source
    part: int
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> NDArray[np.float64]:
        return self.source.take(rows, (self.part,))[0]


Records = tuple[Any, ...]
"""Arrays of floats with one row a record: NumPy's, or a `Part` each."""


def in_memory(records: Records) -> bool:
    """Say whether all arrays are NumPy's own."""
    return not any(isinstance(array, Part) for array in records)


def size_of(records: Records) -> int:
    """Bytes that all rows take as doubles."""
    return 8 * sum(int(np.prod(array.shape, dtype=object)) for array in records)


def fetch(records: Records, rows: Rows) -> list[NDArray[np.float64]]:
    """Read these rows of every array, as doubles."""
    parts = [array for array in records if isinstance(array, Part)]
    if len(parts) == len(records) and all(part.source is parts[0].source for part in parts):
        return parts[0].source.take(rows, tuple(part.part for part in parts))
    return [np.asarray(array[rows], np.float64) for array in records]


class Ahead:
    """Items made in a thread, so many ahead of whoever takes them.

    Parameters
    ----------
    jobs
        Functions that make the items, in order.
    depth
        How many are made ahead; each holds its memory until it is taken.
    """

    def __init__(self, jobs: Iterator[Callable[[], Item]], depth: int) -> None:
        self._jobs = jobs
        self._depth = depth

    def __iter__(self) -> Iterator[Any]:
        waiting: list[Future[Any]] = []
        with ThreadPoolExecutor(1, thread_name_prefix="dpsep-rows") as pool:
            try:
                for job in self._jobs:
                    waiting.append(pool.submit(job))
                    if len(waiting) > self._depth:
                        yield waiting.pop(0).result()
                while waiting:
                    yield waiting.pop(0).result()
            finally:
                for one in waiting:
                    one.cancel()
