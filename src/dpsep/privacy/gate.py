r"""The gate: the one place where a private fit reads records.

A step of any private method is a *contribution* (what each record adds, given public values) and an *update*
(what is done with the released sum). Between the two stands this file: it samples rows, asks for their
contributions, clips, sums, adds noise and returns the release

    S_t = sum_{n in B_t} clip( contribution(public_t, record_n) ) + noise.

**Privacy.** The proof is in docs/proofs/gate.md.

*What is released.* The blocks of S_t, at most ``mechanism.steps`` times, and nothing else: row indices, batch
sizes, chunk counts, clip fractions and the number of unusable rows stay in here.

*Sensitivity.* In units in which block b is divided by ``clip_b / sqrt(share_b)``, one record's contribution
has squared norm at most sum_b share_b = 1 after clipping and rounding (`dpsep.privacy.grid` proves and checks
it in integers). The noise has standard deviation ``sigma`` in every coordinate of these units. So a step is
the Gaussian release that `dpsep.privacy.mechanism.Mechanism` accounts: sensitivity 1 under zero-out, 2 under
replace-one, sampled as ``mechanism.sampling`` says. Sampler, clip, noise and event are one object: this gate
takes all of them from the mechanism and the blocks, whose shares must sum to one.

*Adaptivity.* ``public`` may depend on earlier releases and on declared constants only; that is the caller's
duty, and what the record/replay harness checks.

*Only that record.* Before the first row is read, and as a rule before the charge
(`dpsep.privacy.rehearsal`), the program that computes contributions is proved to keep records apart
(`dpsep.privacy.isolation`). A contribution for which there is no proof is not run.

*Charge before touch.* A gate cannot be built without a `Permit`, and a permit is made by `authorise`, which
has durably charged the ledger by then (`dpsep.privacy.permit`). The permit counts the releases of all gates
that share it and refuses one more than was charged.

*Unusable records* (a NaN, an infinity, an undeclared label: whatever the contribution marks by a value that
is not finite) contribute zero to every block. An error would tell on them.

*Sums.* `dpsep.privacy.reader` makes them, chunk by chunk, on as many devices and processes as there are.

*A device at fault.* Sums that no clipped rows can have (not finite, not integers, beyond rows times the clip)
raise `DeviceError`, after the charge. On a device that computes as it should this cannot happen for any
records, so that the error tells nothing of them.

*Numerics.* Sums are exact integers on a public grid and the noise is a Gaussian rounded to that grid, from an
operating-system-seeded ChaCha20 stream (`dpsep.privacy.noise`): rounding after adding is post-processing, so
the Gaussian accountants hold as they stand. ``noise="float"`` or a seeded stream is for experiments:
``secure`` is then False and results are marked not for release.

*Assumed.* Time and memory use are not hidden: chunks follow the batch size, which the coins decide and the
values of records do not.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy import hosts
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.isolation import program_of
from dpsep.privacy.leaks import float_noise, warn_leak
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import MAX_SD, MIN_SD, SecureStream, WordStream, float_gaussian, rounded_gaussian
from dpsep.privacy.permit import NotCharged, Permit, authorise, describe
from dpsep.privacy.reader import DeviceError, Reader, Readers, capacity_of, chunk_size, round_up
from dpsep.privacy.record_sources import Part, Records
from dpsep.privacy.sampling import FullBatch, RowNumbers, Sampler

__all__ = [
    "DeviceError",
    "Gate",
    "NotCharged",
    "Permit",
    "Reader",
    "Records",
    "authorise",
    "capacity_for",
    "capacity_of",
    "check_blocks",
    "describe",
    "is_sampled",
    "make_gate",
    "prove_release",
]


LEAST_CLIP = 1e-100
"""Least clip of a private release, and inverse of the greatest: their grids are made of normal numbers."""


class Gate:
    """Noisy sums over records, as one charged mechanism; see the module for what is guaranteed.

    Parameters
    ----------
    records
        Arrays of floats with one row a record. Their number of rows is public.
    mechanism
        Sampling, relation, steps and noise: one of the parts that ``permit`` was charged for.
    blocks
        The parts of a release.
    contribution
        What each record adds.
    permit
        From `authorise`.
    stream
        Source of coins and noise; a fresh secure stream by default.
    readers
        What the gates of a run share, so that a table is cut once.
    noise
        ``"rounded"`` (exact, default) or ``"float"`` (for experiments; a `PrivacyLeakWarning` says so).
    strict
        Whether that warning is an error.
    """

    def __init__(
        self,
        records: Records,
        mechanism: Mechanism,
        blocks: Sequence[Block],
        contribution: Contribution,
        permit: Permit,
        *,
        stream: WordStream | None = None,
        readers: Readers | None = None,
        noise: Literal["rounded", "float"] = "rounded",
        strict: bool = False,
    ) -> None:
        check_blocks(mechanism, blocks)
        if noise == "float":
            warn_leak(float_noise(), strict=strict)
        if mechanism.records != len(records[0]):
            raise ValueError(
                f"the mechanism was accounted for {mechanism.records} records; the table has "
                f"{len(records[0])}."
            )
        self.mechanism = mechanism
        self.blocks = tuple(blocks)
        self.secure = noise == "rounded" and (stream is None or stream.secure)
        self._stream = SecureStream() if stream is None else stream
        self._noise = noise
        self._contribution = contribution
        self._permit = permit
        self._ticket = permit.claim(mechanism)
        capacity = capacity_for(mechanism, self.blocks, contribution)
        self._reader = (readers or Readers()).reader(records, capacity, sampled=is_sampled(mechanism))
        hosts.agree("gate", mechanism, self.blocks, type(contribution).__name__, self._reader.layout())

    @property
    def records(self) -> int:
        """Public number of records."""
        return self.mechanism.records

    @property
    def expected_batch(self) -> float:
        """Expected rows of a step: the public constant that updates divide by."""
        return self.mechanism.sampling.expected_batch(self.mechanism.records)

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise (of an outer block: of its diagonal), in its own units."""
        return {block.name: block.deviation(self.mechanism.sigma) for block in self.blocks}

    def release(self, public: Any) -> dict[str, NDArray[np.float64]]:
        """Release one step's noisy sums, by block name.

        Parameters
        ----------
        public
            What the contribution may depend on besides the record: constants and earlier releases.
        """
        sampler = self._permit.sampler(self.mechanism, self._start, secure=self._stream.secure)
        self._permit.take(self.mechanism, self._ticket)
        with hosts.together():
            rows = self._drawn(sampler)
            sums = self._reader.sums(self._contribution, self.blocks, public, rows)
            if not hosts.leads():
                return hosts.tell(None)
            return hosts.tell(
                {
                    block.name: block.assemble(self._noised(block, total) * block.unit)
                    for block, total in zip(self.blocks, sums, strict=True)
                }
            )

    def _start(self, step: int) -> Sampler:
        return self.mechanism.sampling.start(self._stream, self.mechanism.records, step)

    def _drawn(self, sampler: Sampler) -> RowNumbers:
        """Rows of the step; of several processes the leader draws them, where there is anything to draw."""
        if not hosts.several() or isinstance(self.mechanism.sampling, FullBatch):
            return sampler.next()
        drawn = {"rows": np.asarray(sampler.next())} if hosts.leads() else None
        return hosts.tell(drawn)["rows"]

    def _noised(self, block: Block, total: NDArray[np.int64]) -> NDArray[np.float64]:
        units = block.noise_units(self.mechanism.sigma)
        if self._noise == "float":
            return total + float_gaussian(self._stream, units, block.coordinates)
        return (total + rounded_gaussian(self._stream, units, block.coordinates)).astype(np.float64)


def make_gate(
    records: Records,
    mechanism: Mechanism,
    blocks: Sequence[Block],
    contribution: Contribution,
    permit: Permit,
    *,
    stream: WordStream | None = None,
    readers: Readers | None = None,
) -> Gate:
    """Return the gate to these records: this file's, or that of the federation that holds them."""
    first = records[0]
    given = (records, mechanism, blocks, contribution, permit)
    elsewhere = first.source.gate(*given, stream=stream) if isinstance(first, Part) else None
    return Gate(*given, stream=stream, readers=readers) if elsewhere is None else elsewhere


def check_blocks(mechanism: Mechanism, blocks: Sequence[Block]) -> None:
    """Raise ValueError where blocks are no release of a mechanism; a caller can do this before the charge."""
    if abs(math.fsum(block.share for block in blocks) - 1.0) > 1e-12:
        raise ValueError("the shares of the blocks of a release must sum to one.")
    if any(not LEAST_CLIP <= block.clip <= 1 / LEAST_CLIP for block in blocks):
        raise ValueError(
            f"a private release needs a positive, finite clip in every block, of at least {LEAST_CLIP:g} and "
            f"at most {1 / LEAST_CLIP:g}."
        )
    if len({block.name for block in blocks}) < len(blocks):
        raise ValueError("the blocks of a release need different names: noise is looked up by them.")
    for block in blocks:
        largest = block.norm_units ** (2 if block.kind == "outer" else 1)
        if mechanism.records * largest >= 2**62:
            raise ValueError(
                f"sums over {mechanism.records} records in block {block.name!r} do not fit 64 bits; at most "
                f"{2**62 // largest} records do."
            )
        units = block.noise_units(mechanism.sigma)
        if units.min() < MIN_SD or units.max() > MAX_SD:
            raise ValueError(
                f"the noise of block {block.name!r}, {mechanism.sigma:.3g} times its clip, does not fit the "
                f"grid of a release; it can be {MIN_SD:.3g} to {MAX_SD:.3g} units. Ask for another epsilon."
            )


def capacity_for(mechanism: Mechanism, blocks: Sequence[Block], contribution: Contribution) -> int:
    """Most rows of a chunk: no more room than a usual batch needs, since chunks are padded."""
    expected = mechanism.sampling.expected_batch(mechanism.records)
    room = expected + 4.0 * math.sqrt(expected)
    return min(capacity_of(blocks, contribution), round_up(math.ceil(room)))


def is_sampled(mechanism: Mechanism) -> bool:
    """Whether a release draws records, so that a record's slot depends on who else was drawn."""
    return not isinstance(mechanism.sampling, FullBatch)


def prove_release(
    mechanism: Mechanism,
    blocks: Sequence[Block],
    contribution: Contribution,
    public: Any,
    shapes: Sequence[tuple[int, ...]],
) -> None:
    """Prove, before anything is charged, that the program of a release keeps records apart.

    A gate proves what it runs in any case; what was proved once is not proved again.

    Parameters
    ----------
    public
        Values such as the release will have.
    shapes
        Of one record in each array.
    """
    capacity = capacity_for(mechanism, blocks, contribution)
    rows = chunk_size(mechanism.records, capacity, sampled=is_sampled(mechanism))
    program = program_of(contribution, blocks, public, [(rows, *shape) for shape in shapes])
    program.prove(public, sampled=is_sampled(mechanism))
