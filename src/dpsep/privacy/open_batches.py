"""Mini-batches without privacy: the same clip and the same sums over shuffled batches, and no noise.

A pass puts the records in a new order, drawn from a seed, and each release sums the next batch of it, so that
every record is read once a pass (the last batch of a pass takes the records that are left). This is what
stochastic gradient methods do where nothing is private; a private fit samples as its accountant assumes, in
`dpsep.privacy.gate`.

**Privacy.** None. Nothing here may be called private, and what it returns must never be reported beside an
epsilon as if it were.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.gate import Reader, Records, capacity_of
from dpsep.privacy.grid import Block, Contribution


class OpenBatches:
    """Exact sums over shuffled batches, by the interface of `dpsep.privacy.gate.Gate`; see the module.

    Sums over the short batch that ends a pass are scaled up to a whole one, so that every release is an
    unbiased estimate of ``expected_batch`` records.

    Parameters
    ----------
    records
        Arrays of floats with one row a record.
    blocks
        The parts of a sum; a clip may be infinite.
    contribution
        What each record adds.
    size
        Records of a batch; at most all of them.
    seed
        Of the orders.
    """

    secure = False

    def __init__(
        self, records: Records, blocks: Sequence[Block], contribution: Contribution, size: int, seed: int
    ) -> None:
        if size < 1 or int(size) != size:
            raise ValueError(f"size must be a whole number of records, at least 1, not {size}.")
        self.blocks = tuple(blocks)
        self.records = len(records[0])
        self.size = min(int(size), self.records)
        self._contribution = contribution
        # A chunk is padded to its capacity: no more room than a batch needs.
        capacity = min(capacity_of(self.blocks, contribution), -(-self.size // 8) * 8)
        self._reader = Reader(records, capacity, private=False)
        self._generator = np.random.default_rng(seed)
        self._order = np.empty(0, np.int64)

    @property
    def expected_batch(self) -> float:
        """Rows of a step."""
        return float(self.size)

    @property
    def steps_per_pass(self) -> int:
        """Releases in which every record is read once."""
        return -(-self.records // self.size)

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise: zero."""
        return {block.name: 0.0 for block in self.blocks}

    def release(self, public: Any) -> dict[str, NDArray[np.float64]]:
        """Return the sums of the next batch, by block name."""
        if not len(self._order):
            self._order = self._generator.permutation(self.records)
        rows, self._order = self._order[: self.size], self._order[self.size :]
        sums = self._reader.sums(self._contribution, self.blocks, public, rows)
        scale = self.size / len(rows)
        return {
            block.name: block.assemble(scale * total * (1.0 if np.isinf(block.clip) else block.unit))
            for block, total in zip(self.blocks, sums, strict=True)
        }
