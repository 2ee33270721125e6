r"""Closed forms for compositions of full-batch Gaussian releases: Gaussian differential privacy.

A release whose L2 sensitivity is :math:`\Delta` with noise :math:`s` is :math:`\mu`-GDP with
:math:`\mu = \Delta / s`, adaptively chosen compositions of such releases are again :math:`\mu`-GDP with
:math:`\mu = \sqrt{\sum \mu_i^2}`, and (Balle and Wang, 2018; Dong, Roth and Su, 2022)

.. math:: \delta(\epsilon) = \Phi(-u) - e^\epsilon \Phi(-v), \quad u, v = \epsilon / \mu \mp \mu / 2.

**Privacy.** The formula is exact, in both directions of a neighbouring relation, because the privacy loss
of the pair of Gaussians is the same either way. Since :math:`v^2 - u^2 = 2 \epsilon`, it equals
:math:`\tfrac12 e^{-u^2/2} (\mathrm{erfcx}(u/\sqrt2) - \mathrm{erfcx}(v/\sqrt2))`, which neither overflows
nor loses small values; results are rounded to the safe side by a relative 1e-9.
"""

import math
from collections.abc import Callable
from typing import cast

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

_SLACK = 1e-9  # relative; far above the rounding errors of the formulas below
_LOG_MU = (math.log(1e-9), math.log(1e4))
LEAST_DELTA = 1e-300
"""Smallest delta: below it doubles lose their digits."""


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the delta at ``epsilon`` of a release that is ``mu``-GDP.

    Parameters
    ----------
    epsilon
        Not negative.
    mu
        Sensitivity over noise standard deviation, of one release or (root of the sum of squares) of many.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    if not epsilon >= 0 or not mu >= 0:
        raise ValueError(f"epsilon and mu must not be negative, not {epsilon} and {mu}.")
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    u, v = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    scaled = math.exp(-u * u / 2) / 2  # e^epsilon Phi(-v) = scaled * erfcx(v / sqrt 2)
    if u > 0:
        delta = scaled * float(erfcx(u / math.sqrt(2)) - erfcx(v / math.sqrt(2)))
    else:
        delta = float(ndtr(-u)) - scaled * float(erfcx(v / math.sqrt(2)))
    return min(1.0, max(0.0, delta * (1 + _SLACK)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon at which a ``mu``-GDP release has delta at most ``delta``.

    Parameters
    ----------
    mu
        Sensitivity over noise standard deviation.
    delta
        In (0, 1).

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    _check_delta(delta)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if mu > math.exp(_LOG_MU[1]):
        return math.inf
    high = mu * mu / 2 + mu * 40  # u = 40 there: delta underflows
    if gaussian_delta(high, mu) > delta:
        raise ValueError(f"delta {delta} is too small to work with; use at least {LEAST_DELTA:g}.")
    return _to_safe_side(lambda x: gaussian_delta(x, mu) - delta, 0.0, high, up=True)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the greatest mu whose delta at ``epsilon`` is at most ``delta``.

    Parameters
    ----------
    epsilon
        Not negative.
    delta
        In (0, 1).

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 2)  # noise for one full-batch release
    3.73
    """
    _check_delta(delta)

    def excess(log_mu: float) -> float:
        return gaussian_delta(epsilon, math.exp(log_mu)) - delta

    low, high = _LOG_MU
    if excess(low) > 0 or excess(high) < 0:
        raise ValueError(f"no mu between 1e-9 and 1e4 gives epsilon {epsilon} at delta {delta}.")
    return math.exp(_to_safe_side(excess, low, high, up=False))


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta}.")
    if delta < LEAST_DELTA:
        raise ValueError(f"delta {delta} is too small to work with; use at least {LEAST_DELTA:g}.")


def _to_safe_side(excess: Callable[[float], float], low: float, high: float, up: bool) -> float:
    """Return the root of ``excess``, moved by roundings until the excess is not positive."""
    root = cast(float, brentq(excess, low, high, xtol=1e-15))
    step = 1e-15 * max(abs(root), 1e-15)
    while excess(root) > 0:
        root = root + step if up else root - step
        step *= 2
    return root
