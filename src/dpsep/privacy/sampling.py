r"""Which records a step reads: the four sampling schemes that an accountant can answer for, and no others.

A scheme is public configuration (a frozen dataclass); `start` gives a `Sampler`, the mutable secret object
that draws the rows of each step from the same stream as the noise. Poisson sampling is the default.
Sampling without replacement is what Wang, Balle and Kasiviswanathan (2019) analyse; shuffled epochs are
what passes over the data really are.

**Privacy.** The rows drawn, their number and the permutation are secret: amplification by sampling assumes
that nobody learns them. So a sampler shows nothing in its representation, cannot be pickled, and must never
enter a state, an ``Info``, a log or a checkpoint. Draws are exact: a Poisson coin has probability
:math:`\lfloor r 2^{64} \rfloor / 2^{64} \le r`, and both directions of the subsampled Gaussian's privacy
loss grow with the rate, so that accounting at :math:`r` covers it; below `GAPS_BELOW` the gaps between the
rows drawn are drawn instead of a coin a row (`dpsep.privacy.gaps`), with the exact law that coins of
probability :math:`r` give, so that a step costs what its rows cost, however many records there are; integers
below a bound are drawn by rejection and permutations by sorting words without ties, so both are exactly
uniform. The draws never look at a record, only at the public number of records.
The proof is in docs/proofs/gate.md.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.gaps import gaps
from dpsep.privacy.noise import WordStream

GAPS_BELOW = 1 / 16
"""Rate below which Poisson sampling draws gaps; above it a coin a row costs no more."""
MOST_RECORDS = 1 << 44
"""Most records whose row numbers can be drawn."""
RowNumbers = NDArray[np.int64] | range
"""Rows of a step, in rising order."""

_CHUNK = 1 << 18
_WORD = 1 << 64


class Sampler(ABC):
    """Draws the rows of one step after another. Secret: see the module's notes."""

    def __init__(self, stream: WordStream, n_records: int) -> None:
        self._stream = stream
        self._n_records = n_records

    @abstractmethod
    def next(self) -> RowNumbers:
        """Return the rows of the next step, each at most once."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def __reduce_ex__(self, protocol: object) -> str | tuple[object, ...]:
        raise TypeError(
            "a sampler is secret and cannot be pickled or copied; start a new one from its scheme."
        )


class Sampling(ABC):
    """A sampling scheme: public, immutable, the same for every data set.

    Examples
    --------
    >>> [scheme.describe() for scheme in (FullBatch(), PoissonSampling(0.05))]
    ['full batch', 'Poisson sampling at rate 0.05']
    """

    def start(self, stream: WordStream, n_records: int, step: int = 0) -> Sampler:
        """Return a sampler whose first rows are those of ``step``.

        Parameters
        ----------
        stream
            Where the coins come from: the stream of the noise.
        n_records
            Public number of records.
        step
            The step to begin at, for a run that resumes. The sampler always draws afresh.
        """
        self.check(n_records)
        if step % self.restart_interval(n_records):
            raise ValueError(
                f"{self.describe()} cannot begin at step {step}: a fresh permutation in the middle of a pass "
                "could read a record twice in that pass, which is not what was accounted. Begin at a "
                f"multiple of {self.restart_interval(n_records)} and charge the steps that are done again."
            )
        return self._sampler(stream, n_records)

    @abstractmethod
    def check(self, n_records: int) -> None:
        """Raise ValueError where the scheme does not fit this number of records."""
        if not 1 <= n_records <= MOST_RECORDS:
            raise ValueError(f"n_records must be at least 1 and at most 2^44, not {n_records}.")

    @abstractmethod
    def expected_batch(self, n_records: int) -> float:
        """Return the expected number of rows of a step: the public constant that updates divide by."""

    def steps_per_pass(self, n_records: int) -> int:
        """Return how many steps read about as many rows as there are records (rounded up)."""
        return math.ceil(n_records / self.expected_batch(n_records))

    def restart_interval(self, n_records: int) -> int:
        """Return the number whose multiples are the steps at which a sampler may start afresh."""
        return 1

    @abstractmethod
    def describe(self) -> str:
        """Return the scheme in a few words."""

    @abstractmethod
    def _sampler(self, stream: WordStream, n_records: int) -> Sampler: ...


@dataclass(frozen=True)
class PoissonSampling(Sampling):
    """Every record joins every step independently with probability ``rate``.

    Parameters
    ----------
    rate
        In (0, 1]. From `GAPS_BELOW` on the realised probability is ``rate`` rounded down to a multiple of
        2^-64.

    Examples
    --------
    >>> PoissonSampling(0.05).expected_batch(1000), PoissonSampling(0.05).steps_per_pass(1000)
    (50.0, 20)
    """

    rate: float

    def __post_init__(self) -> None:
        if not 2.0**-64 <= self.rate <= 1:
            raise ValueError(f"rate must lie in (0, 1] and be at least 2^-64, not {self.rate}.")
        object.__setattr__(self, "rate", float(self.rate))

    def check(self, n_records: int) -> None:
        """Raise ValueError where the scheme does not fit this number of records."""
        super().check(n_records)

    def expected_batch(self, n_records: int) -> float:
        """Return the expected number of rows of a step."""
        return self.rate * n_records

    def describe(self) -> str:
        """Return the scheme in a few words."""
        return f"Poisson sampling at rate {self.rate:g}"

    def _sampler(self, stream: WordStream, n_records: int) -> Sampler:
        return _PoissonSampler(stream, n_records, self.rate)


@dataclass(frozen=True)
class FullBatch(Sampling):
    """Every step reads every record.

    Examples
    --------
    >>> FullBatch().expected_batch(1000), FullBatch().steps_per_pass(1000)
    (1000.0, 1)
    """

    def check(self, n_records: int) -> None:
        """Raise ValueError where the scheme does not fit this number of records."""
        super().check(n_records)

    def expected_batch(self, n_records: int) -> float:
        """Return the number of rows of a step."""
        return float(n_records)

    def describe(self) -> str:
        """Return the scheme in a few words."""
        return "full batch"

    def _sampler(self, stream: WordStream, n_records: int) -> Sampler:
        return _FullSampler(stream, n_records)


@dataclass(frozen=True)
class _Sized(Sampling):
    """A scheme with a batch size."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1 or int(self.size) != self.size:
            raise ValueError(f"size must be a whole number, at least 1, not {self.size}.")

    def check(self, n_records: int) -> None:
        """Raise ValueError where the scheme does not fit this number of records."""
        super().check(n_records)
        if self.size > n_records:
            raise ValueError(
                f"size {self.size} exceeds the number of records {n_records}; use at most {n_records}."
            )

    def expected_batch(self, n_records: int) -> float:
        """Return the number of rows of a step (of a full one: the last of an epoch may be shorter)."""
        return float(self.size)

    def steps_per_pass(self, n_records: int) -> int:
        """Return the number of batches of ``size`` that hold all records, the last one perhaps shorter."""
        return -(-n_records // self.size)


@dataclass(frozen=True)
class FixedSizeSampling(_Sized):
    """Every step reads a fresh uniform subset of ``size`` records, without replacement.

    Examples
    --------
    >>> FixedSizeSampling(50).describe()
    'fixed-size sampling of 50 without replacement, fresh at every step'
    """

    def describe(self) -> str:
        """Return the scheme in a few words."""
        return f"fixed-size sampling of {self.size} without replacement, fresh at every step"

    def _sampler(self, stream: WordStream, n_records: int) -> Sampler:
        return _FixedSizeSampler(stream, n_records, self.size)


@dataclass(frozen=True)
class ShuffledEpochs(_Sized):
    """Each pass takes a fresh uniform permutation and reads it in batches of ``size``, the last one shorter.

    Every record is read exactly once a pass; no amplification is claimed for it.

    Examples
    --------
    >>> ShuffledEpochs(4).steps_per_pass(10)
    3
    """

    def restart_interval(self, n_records: int) -> int:
        """Return the steps of a pass: a sampler may only start where a pass does."""
        return self.steps_per_pass(n_records)

    def describe(self) -> str:
        """Return the scheme in a few words."""
        return f"shuffled epochs in batches of {self.size}"

    def _sampler(self, stream: WordStream, n_records: int) -> Sampler:
        return _ShuffledSampler(stream, n_records, self.size)


class _PoissonSampler(Sampler):
    def __init__(self, stream: WordStream, n_records: int, rate: float) -> None:
        super().__init__(stream, n_records)
        self._rate = rate
        self._threshold = math.floor(Fraction(rate) * _WORD)

    def next(self) -> RowNumbers:
        if self._threshold == _WORD:
            return range(self._n_records)
        return self._by_gaps() if self._rate < GAPS_BELOW else self._by_coins()

    def _by_gaps(self) -> NDArray[np.int64]:
        last, rows = -1, [np.empty(0, np.int64)]
        while last < self._n_records:
            left = self._rate * (self._n_records - last)
            count = min(_CHUNK, math.ceil(left + 4.0 * math.sqrt(left)) + 8)
            # A gap beyond the table ends it, whatever its length.
            skipped = np.minimum(gaps(self._stream, self._rate, count), self._n_records).astype(np.int64)
            drawn = last + np.cumsum(skipped + 1)
            last = int(drawn[-1])
            rows.append(drawn[drawn < self._n_records])
        return np.concatenate(rows)

    def _by_coins(self) -> NDArray[np.int64]:
        rows = []
        for start in range(0, self._n_records, _CHUNK):
            words = self._stream.words(min(_CHUNK, self._n_records - start))
            rows.append(np.flatnonzero(words < np.uint64(self._threshold)).astype(np.int64) + start)
        return np.concatenate(rows)


class _FullSampler(Sampler):
    def next(self) -> RowNumbers:
        return range(self._n_records)


class _FixedSizeSampler(Sampler):
    def __init__(self, stream: WordStream, n_records: int, size: int) -> None:
        super().__init__(stream, n_records)
        self._size = size

    def next(self) -> NDArray[np.int64]:
        if 2 * self._size > self._n_records:
            return np.sort(permutation(self._stream, self._n_records)[: self._size])
        # The first distinct values of independent uniform draws are a uniform sample without replacement.
        distinct = np.empty(0, dtype=np.int64)
        while distinct.size < self._size:
            draws = np.concatenate([distinct, uniform_integers(self._stream, self._n_records, self._size)])
            _, first = np.unique(draws, return_index=True)
            distinct = draws[np.sort(first)]
        return np.sort(distinct[: self._size])


class _ShuffledSampler(Sampler):
    def __init__(self, stream: WordStream, n_records: int, size: int) -> None:
        super().__init__(stream, n_records)
        self._size = size
        self._rest = np.empty(0, dtype=np.int64)

    def next(self) -> NDArray[np.int64]:
        if self._rest.size == 0:
            self._rest = permutation(self._stream, self._n_records)
        rows, self._rest = self._rest[: self._size], self._rest[self._size :]
        return np.sort(rows)


def uniform_integers(stream: WordStream, bound: int, count: int) -> NDArray[np.int64]:
    """Draw integers, exactly uniform on 0 to ``bound`` - 1, by rejection.

    Parameters
    ----------
    stream
        Source of words.
    bound
        At least 1, at most 2^63.
    count
        How many to draw.
    """
    if not 1 <= bound <= 1 << 63:
        raise ValueError(f"bound must lie between 1 and 2^63, not {bound}.")
    if bound == 1:
        return np.zeros(count, dtype=np.int64)
    shift = np.uint64(64 - (bound - 1).bit_length())
    kept = np.empty(0, dtype=np.int64)
    while kept.size < count:
        draws = (stream.words(2 * (count - kept.size)) >> shift).astype(np.int64)
        kept = np.concatenate([kept, draws[draws < bound]])
    return kept[:count]


def permutation(stream: WordStream, n: int) -> NDArray[np.int64]:
    """Draw a uniform permutation of 0 to ``n`` - 1: the order of n random words, drawn again if any two tie.

    Parameters
    ----------
    stream
        Source of words.
    n
        How many items.
    """
    while True:
        words = stream.words(n)
        order = np.argsort(words)
        ordered = words[order]
        if not np.any(ordered[1:] == ordered[:-1]):
            return order.astype(np.int64)
