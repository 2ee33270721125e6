r"""Rényi privacy curves on one fixed public grid of orders, and their conversion to (epsilon, delta).

Curves of Poisson-sampled and without-replacement Gaussians come from dp-accounting (Mironov, Talwar and
Zhang, 2019; Wang, Balle and Kasiviswanathan, 2019); the conversion is that of Canonne, Kamath and Steinke
(2020).

**Privacy.** Curves add, also when later mechanisms are chosen by earlier results (Feldman and Zrnic, 2021),
which is why a ledger may use them as a filter where privacy loss distributions may not be used.
dp-accounting takes, in this calculus, the noise in units of the *sensitivity* under every relation. Its
curves are computed in logarithms near zero and may come out a rounding too low, even negative; a safe
allowance a step is added, and what is not a number counts as infinite.
"""

import math
from collections.abc import Sequence

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray

from dpsep.privacy.pld import AccountingRefused

RDP_ORDERS: tuple[float, ...] = (
    *(1.1, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 3.75, 4.0, 4.25, 4.5, 4.75, 5.0, 5.5),
    *(float(order) for order in range(6, 65)),
    *(72.0, 80.0, 96.0, 112.0, 128.0, 160.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0),
)
"""The orders at which every curve of a ledger is kept."""

_ROUNDING = 1e-13  # of log A a step: a thousand terms added in logarithms


def event_curve(
    event: dpa.DpEvent,
    relation: dpa.NeighboringRelation,
    releases: int,
    orders: Sequence[float] = RDP_ORDERS,
) -> NDArray[np.float64]:
    """Return the curve of one event repeated ``releases`` times.

    Parameters
    ----------
    event
        One release, its noise in units of the sensitivity.
    relation
        The relation in dp-accounting's terms.
    releases
        How often it happens.
    orders
        Orders above 1.
    """
    try:
        curve = RdpAccountant(list(orders), relation).compose(event).rdp
    except (ValueError, OverflowError) as error:
        raise AccountingRefused(
            "the Rényi accountant cannot compute this run: its noise is too large or too small for doubles. "
            "Use another epsilon, or full batches or Poisson sampling."
        ) from error
    curve = np.maximum(curve, 0.0) + _ROUNDING / (np.asarray(orders) - 1)
    return np.where(np.isnan(curve), math.inf, curve * releases)


def rdp_to_epsilon(curve: Sequence[float] | NDArray[np.float64], delta: float) -> float:
    """Return the epsilon at ``delta`` that a curve over `RDP_ORDERS` gives.

    Parameters
    ----------
    curve
        One value an order of `RDP_ORDERS`.
    delta
        In (0, 1).

    Examples
    --------
    >>> round(rdp_to_epsilon([order / 2 for order in RDP_ORDERS], 1e-5), 2)  # mu = 1; exactly 4.38
    4.73
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, not {delta}.")
    orders, values = _checked(curve)
    bounds = values + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(np.min(bounds)))


def rdp_to_delta(curve: Sequence[float] | NDArray[np.float64], epsilon: float) -> float:
    """Return the delta at ``epsilon`` that a curve over `RDP_ORDERS` gives.

    Parameters
    ----------
    curve
        One value an order of `RDP_ORDERS`.
    epsilon
        Not negative.

    Examples
    --------
    >>> curve = [order / (2 * 5.0**2) for order in RDP_ORDERS]  # one Gaussian release, sigma 5
    >>> f"{rdp_to_delta(curve, 1.0):.1e}"
    '8.9e-08'
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must not be negative, not {epsilon}.")
    orders, values = _checked(curve)
    logs = (orders - 1) * (values - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return math.exp(min(0.0, float(np.min(logs))))


def _checked(curve: Sequence[float] | NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    orders, values = np.asarray(RDP_ORDERS), np.asarray(curve, dtype=np.float64)
    if values.shape != orders.shape or not np.all(values >= 0):
        raise ValueError(
            f"a curve has {orders.size} values, not negative, one for each of RDP_ORDERS; this one has shape "
            f"{values.shape}. Take it from rdp_curve()."
        )
    return orders, values
