"""How an amount of privacy is written: what was spent never smaller than it is, what is left never larger.

Every epsilon, delta and e^epsilon that a reader sees goes through here; files for machines hold the numbers
themselves. A statement that says (1, 1e-5) of epsilon 1.00049 promises what does not hold.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

__all__ = ["down", "rounded", "up"]

ROUNDINGS = 2.0**-50
"""Relative excess that is put down to a few roundings of doubles: 0.1 + 0.2 is shown as 0.3."""


def up(value: float, digits: int = 4) -> str:
    """Write what was spent, or a bound, in so many digits: the number is not below it.

    Examples
    --------
    >>> up(1.00049), up(1.0449e-5), up(0.1 + 0.2), up(2.0), up(2.71828, 3)
    ('1.001', '1.045e-05', '0.3', '2', '2.72')
    """
    return f"{rounded(value, digits):.{digits}g}"


def down(value: float, digits: int = 4) -> str:
    """Write what is left, or allowed, in so many digits: the number is not above it.

    Examples
    --------
    >>> down(0.99999), down(9.9999e-6), down(0.3 - 0.1), down(0.5)
    ('0.9999', '9.999e-06', '0.2', '0.5')
    """
    return f"{rounded(value, digits, upwards=False):.{digits}g}"


def rounded(value: float, digits: int, *, upwards: bool = True) -> float:
    """Return the next number of so many digits, above or below.

    Examples
    --------
    >>> rounded(1.23456, 3), rounded(1.23456, 3, upwards=False), rounded(0.0, 3)
    (1.24, 1.23, 0.0)
    """
    if value == 0 or not math.isfinite(value):
        return value
    exact = Decimal(value * (1 - ROUNDINGS if upwards == (value > 0) else 1 + ROUNDINGS))
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return float(exact.quantize(step, ROUND_CEILING if upwards else ROUND_FLOOR))
