r"""Noise that several sites add, each a rounded Gaussian: how far their sum is from one Gaussian, rounded.

A sum of rounded Gaussians is not a rounded Gaussian. With :math:`K_i = \mathrm{round}(X_i)`, :math:`X_i \sim
N(0, s_i^2)` independent and :math:`S = \sum s_i^2`, the law of :math:`\sum K_i` is that of
:math:`\mathrm{round}(Y + I)` up to less than :math:`\beta` at every integer, where :math:`Y \sim N(0, S)`,
:math:`I` is a sum of n - 1 uniform numbers on (-1/2, 1/2) that has nothing to do with the data, and, with s
the least of the :math:`s_i`,

.. math:: \beta = \exp(-\pi^2 s^2 (1 - s^2 / S)) \prod_i (1 - e^{-\pi^2 s_i^2 / 4})^{-1}.

**Privacy.** For an integer a, round(a + Y + I) is a function of the Gaussian release a + Y, the same for all
data. So the sum of h honest sites' noises of deviation sigma C / sqrt(h) is the Gaussian mechanism with noise
sigma C, post-processed, but for a total variation of at most :math:`\beta (M + 2)` a coordinate and release,
:math:`M = h/2 + (2 S \log(1/\beta))^{1/2}`. All coordinates of all releases together cost
:math:`(1 + e^\epsilon)` times the sum of these, as delta. What other sites add, honest or not, is their
own: it may cancel their noise, and it cannot take any of the honest ones'. That an honest answer is moved to
its bounds (`dpsep.federated.packing`) has a probability below anything that delta holds; `less` leaves room
for it. The proof is in docs/proofs/distributed-noise.md.
"""

import math
from collections.abc import Sequence

from dpsep.privacy.shown import up

LEAST_DEVIATION = 4.0
"""Least noise of one site in a coordinate, in grid units. What rounding adds to delta is then below 1e-20 for
a thousand releases of a hundred thousand numbers (from 16 units on below 1e-500); at 2 it would be about as
large as deltas are."""
MOST_HONEST = 1_000_000
"""Most honest sites that a run may count on."""


def log_gap(deviations: Sequence[float]) -> float:
    """Return the logarithm of beta: how far two laws differ at an integer, at most.

    Parameters
    ----------
    deviations
        Of the Gaussians that are rounded and added, in grid units.

    Examples
    --------
    >>> log_gap([16.0])
    -inf
    >>> round(log_gap([16.0, 16.0]))
    -1263
    """
    if len(deviations) < 2:
        return -math.inf  # one rounded Gaussian is one
    squares = [float(one) ** 2 for one in deviations]
    rest = math.fsum(_log_rest(one) for one in squares)
    return _log_gap(min(squares), math.fsum(squares), rest)


def log_variation(deviations: Sequence[float]) -> float:
    """Return the logarithm of the most total variation between the two laws, in one coordinate."""
    total = math.fsum(float(one) ** 2 for one in deviations)
    return _log_variation(log_gap(deviations), total, len(deviations))


def log_variation_of_equal(deviation: float, count: int) -> float:
    """Return `log_variation` of so many equal deviations, in time and room that do not grow with them.

    Examples
    --------
    >>> round(log_variation_of_equal(4.0, 3) / log_variation([4.0] * 3), 12)
    1.0
    """
    if count < 2:
        return -math.inf
    square = float(deviation) ** 2
    gap = _log_gap(square, count * square, count * _log_rest(square))
    return _log_variation(gap, count * square, count)


def extra_delta(honest: int, deviation: float, coordinates: int, releases: int, epsilon: float) -> float:
    """Return what rounding at the sites adds to delta, at most.

    Parameters
    ----------
    honest
        How many honest sites add noise.
    deviation
        The least of one site's noise, in grid units, over all coordinates.
    coordinates, releases
        Numbers of a release, and how many releases there are.
    epsilon
        At which the guarantee holds.

    Examples
    --------
    >>> extra_delta(2, LEAST_DEVIATION, 100_000, 1000, 5.0) < 1e-20
    True
    """
    variation = log_variation_of_equal(deviation, honest)
    if variation == -math.inf:
        return 0.0
    twice = epsilon + math.log1p(math.exp(-epsilon))
    return math.exp(min(variation + math.log(coordinates) + math.log(releases) + twice, 0.0))


def less(delta: float, extra: float) -> float:
    """Return a delta that leaves room for more, rounded down: never the same number.

    Examples
    --------
    >>> less(1e-5, 1e-300) < 1e-5
    True
    """
    left = math.nextafter(delta - extra, 0.0)
    if not left > 0:
        raise ValueError(
            f"rounding at the sites adds {extra:.3g} to delta, which leaves nothing of {up(delta)}; use a "
            "larger delta."
        )
    return left


def check_deviation(deviation: float, name: str) -> None:
    """Raise ValueError where a site's noise in a block is too little for the bounds of this file."""
    if deviation < LEAST_DEVIATION:
        raise ValueError(
            f"a site's noise in block {name!r} is {deviation:.3g} grid units; in mode 'sites' it must be at "
            f"least {LEAST_DEVIATION:g}. Use a smaller epsilon, fewer honest sites, declared bounds, or "
            "another mode."
        )


def _log_rest(square: float) -> float:
    """Logarithm of one site's factor in the sum over all shifts, negated."""
    return math.log(-math.expm1(-(math.pi**2) * square / 4))


def _log_gap(least: float, total: float, rest: float) -> float:
    return -(math.pi**2) * least * (1.0 - least / total) - rest


def _log_variation(gap: float, total: float, count: int) -> float:
    if gap == -math.inf:
        return gap
    if gap >= 0:
        return 0.0  # no bound: two laws never differ by more than one
    reach = count / 2 + math.sqrt(2.0 * total * -gap)
    return min(0.0, gap + math.log(reach + 2.0))
