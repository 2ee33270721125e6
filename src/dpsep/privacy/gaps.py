r"""Gaps between the rows that a Poisson sample draws, with their exact law.

**Privacy.** Secret, as the sample is: `dpsep.privacy.sampling` says who may see it. No record is looked at.
The proof is in docs/proofs/gate.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.noise import WordStream, thread_precision

_LOG_ERROR = 2.0**-48  # of a computed logarithm x and of its quotient, in units of max(1, |x|)


def gaps(stream: WordStream, rate: float, count: int) -> NDArray[np.float64]:
    r"""Draw how many coins of probability ``rate`` fail before the next one that does not, exactly.

    For :math:`U` uniform on (0, 1), :math:`G = \lfloor \log U / \log(1 - r) \rfloor` has
    :math:`P(G \ge g) = P(U \le (1 - r)^g) = (1 - r)^g`. A word gives :math:`U` to 64 bits and doubles give
    the quotient with a known error; where that leaves two integers possible, more bits of the same :math:`U`
    are read and the quotient is computed in multiple precision.

    Parameters
    ----------
    stream
        Source of words; one word a draw, and more for the few draws that need refining.
    rate
        In (0, 1), taken as an exact real number.
    count
        How many to draw.

    Returns
    -------
    Whole numbers, as doubles; those beyond 2^52 are lower bounds, longer than any table.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie between 0 and 1, not {rate}.")
    words = stream.words(count)
    # k = 0 is never decided here; one stands in for it so that no logarithm is infinite.
    upper = np.maximum(words, np.uint64(1)).astype(np.float64)
    exponent = math.log1p(-rate)
    log = np.log((upper + 0.5) * 2.0**-64)
    place = log / exponent
    # Unread bits move log U by at most 1/k; the word's own rounding is within the logarithm's error.
    error = (_LOG_ERROR * np.maximum(1.0, np.abs(log)) + 1.0 / upper) / -exponent
    low, high = np.floor(np.maximum(place - error, 0.0)), np.floor(place + error)
    undecided = (words == 0) | ((low != high) & (low < 2.0**52))
    for index in np.flatnonzero(undecided):
        low[index] = _exact_gap(stream, rate, int(words[index]))
    return low


def _exact_gap(stream: WordStream, rate: float, word: int) -> float:
    """Read further bits of one uniform number until its gap is certain."""
    bits = 64
    while bits < 64 * 64:
        word, bits = (word << 64) + int(stream.words(1)[0]), bits + 64
        # Both logarithms lose as many bits as they have leading zeros: room for a rate of 2^-64 and more.
        exact = thread_precision(bits + 256)
        if word > 0:
            exponent = exact.log1p(-exact.mpf(rate))
            ends = [exact.log(exact.mpf(end) / (1 << bits)) for end in (word, word + 1)]
            slack = exact.mpf(2) ** -(bits + 64)
            most, least = (
                int(exact.floor(end / exponent + sign * slack))
                for end, sign in zip(ends, (1, -1), strict=True)
            )
            if most == least:
                return float(min(most, 1 << 53))
    raise RuntimeError("the random stream repeats itself: the operating system's generator is at fault.")
