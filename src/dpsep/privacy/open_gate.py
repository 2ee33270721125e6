"""The gate without privacy: the same clip and the same sums, and no noise.

Stochastic EP, clipped SEP and DP-SEP are one algorithm; what differs is the gate. With a finite clip this
gate makes the very integers that the private gate adds its noise to, so `private=False` with a clip is
clipped SEP; with an infinite clip it sums contributions as they are.

**Privacy.** None. Nothing here may be called private, and what it returns must never be reported beside an
epsilon as if it were.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.gate import Records
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.reader import Readers, capacity_of


class OpenGate:
    """Exact sums over all records, by the interface of `dpsep.privacy.gate.Gate`; see the module.

    Parameters
    ----------
    records
        Arrays of floats with one row a record.
    blocks
        The parts of a sum; a clip may be infinite.
    contribution
        What each record adds.
    readers
        What the gates of a fit share, so that a table is cut once.
    """

    secure = False

    def __init__(
        self,
        records: Records,
        blocks: Sequence[Block],
        contribution: Contribution,
        readers: Readers | None = None,
    ) -> None:
        self.blocks = tuple(blocks)
        self.records = len(records[0])
        self._contribution = contribution
        capacity = capacity_of(self.blocks, contribution)
        self._reader = (readers or Readers()).reader(records, capacity, private=False, sampled=False)

    @property
    def expected_batch(self) -> float:
        """Rows of a step: all of them."""
        return float(self.records)

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise: zero."""
        return {block.name: 0.0 for block in self.blocks}

    def release(self, public: Any) -> dict[str, NDArray[np.float64]]:
        """Return the sums of one step, by block name."""
        rows = np.arange(self.records)
        sums = self._reader.sums(self._contribution, self.blocks, public, rows)
        return {
            block.name: block.assemble(total * (1.0 if np.isinf(block.clip) else block.unit))
            for block, total in zip(self.blocks, sums, strict=True)
        }
