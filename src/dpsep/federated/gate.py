r"""The gate of a federation: the releases of `dpsep.privacy.gate`, from sums that sites made.

Algorithms see no difference: they hand over public values and get noisy sums by name. In mode ``"server"``
the exact sums of the sites are added and the noise is the gate's own, drawn here once; with the same stream
it is the release of one table that holds all rows. In the other modes the sites' answers hold the noise and
none is added; `deviations` are then those of the sum of the answers.

**Privacy.** Releases are counted by the permit, as everywhere, and by each site on its own. What is public:
the rows of the sites in the run, who took part in a round, and, in mode ``"own"``, each site's sigma.
`records` and `expected_batch` follow the sites that are left; both are public numbers.
The proof is in docs/proofs/federated.md.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.federated.session import Session, plain_block
from dpsep.federated.terms import Work
from dpsep.privacy.gate import Gate, check_blocks
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import SecureStream, WordStream
from dpsep.privacy.permit import Permit


class FederatedGate(Gate):
    """Noisy sums over the rows of sites; see `dpsep.privacy.gate.Gate` for the parameters.

    Parameters
    ----------
    session
        The run, begun.
    arrays
        Which arrays of a record are read.
    """

    def __init__(
        self,
        session: Session,
        arrays: tuple[int, ...],
        mechanism: Mechanism,
        blocks: Sequence[Block],
        contribution: Contribution,
        permit: Permit,
        *,
        stream: WordStream | None = None,
    ) -> None:
        check_blocks(mechanism, blocks)
        self.mechanism = mechanism
        self.blocks = tuple(plain_block(block) for block in blocks)
        self._session = session
        self._stream = SecureStream() if stream is None else stream
        self._noise = "rounded"
        self._permit = permit
        self._ticket = permit.claim(mechanism)
        part = permit.schedule.parts.index(mechanism)
        self._last = part == len(permit.schedule.parts) - 1
        self._work = Work(part, arrays, self.blocks, contribution)
        self.secure = stream is None or stream.secure
        number = min(permit.made(mechanism), mechanism.steps - 1)
        self._members = session.members(part, number, last=self._last)

    @property
    def records(self) -> int:
        """Public number of records of the sites in the run."""
        return self._session.rows

    @property
    def expected_batch(self) -> float:
        """Expected rows of the last release (before the first one: of that)."""
        rows = [self._session.hellos[name].rows for name in self._members]
        return math.fsum(self.mechanism.sampling.expected_batch(count) for count in rows)

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise in the last release (before the first one: in that)."""
        sigma = self.mechanism.sigma
        if self._session.settings.mode != "server":
            prices = (self._session.prices[name] for name in self._members)
            sigma = math.hypot(*(price.sigmas[self._work.part] for price in prices))
        return {block.name: block.deviation(sigma) for block in self.blocks}

    def release(self, public: Any) -> dict[str, NDArray[np.float64]]:
        """Release one step's noisy sums, by block name; raise `RoundFailed` where sites fail.

        Parameters
        ----------
        public
            What the contribution may depend on besides the record: constants and earlier releases.
        """
        number = self._permit.made(self.mechanism)
        self._permit.take(self.mechanism, self._ticket)
        found = self._session.sums(self._work, number, public, last=self._last)
        self._members = found.sites
        self.secure = self.secure and found.secure
        self._session.secure = self._session.secure and found.secure
        return {
            block.name: block.assemble(self._finished(block, total) * block.unit)
            for block, total in zip(self.blocks, found.totals, strict=True)
        }

    def _finished(self, block: Block, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Add the noise where that is the server's part; elsewhere the sum holds it."""
        if self._session.settings.mode == "server":
            return self._noised(block, total)
        return total.astype(np.float64)
