"""Theorem 4.1 as it is printed, term by term: where it is defined, what it gives, where it goes.

With `s = sqrt(2 v log d)`, `v = d sigma_2^2`, `l_i` the eigenvalues of Lambda and `l_1` the smallest,

    h_i = 1 + (-2 M - l_1 + rho) / l_i        H_i = 1 + (2 M - l_1 + rho) / l_i
    K_i = (h_i + H_i - 1 + (l_1 + s - rho) / l_i) / (h_i H_i)

    E KL <= (T1 + T2 + T3 - T4 + T5 + T6) / 2   "with probability at least 1 - d exp(-M^2 / (2 v))"
    T1 = (rho - l_1 + s) Tr Lambda^-1     T2 = sigma_1^2 lambda_max(Sigma) sum_i K_i    T3 = sum_i b_i^2 K_i
    T4 = eta' Lambda^-1 eta               T5 = |a|^2 (rho - l_1 + s)                    T6 = sum_i log K_i

with `b = Lambda^(-1/2) eta` and `a = Lambda^-1 eta`. The text prints `a a'` in T5; its proof has the sum of
squares.

The text leaves two things open. It does not say how coordinate i of b goes with eigenvalue i: `eigenbasis`
takes b in the eigenvectors of Lambda, the only reading in which the two belong together; `ascending` and
`descending` take the coordinates of the symmetric root, as the formula for b says, with the eigenvalues in
that order. And the expected divergence is a number, which a statement "with probability p > 0" either fits or
does not: if the theorem holds it holds for each M with a positive probability, so the best one is the infimum
`sqrt(2 v log d)` (`best_M`).

Contract: nothing is mended here. Where some h_i is not above zero (which is 2 M >= rho) the bound is
undefined and `total` is NaN; at the best M that is `rho <= 2 sqrt(2 d log d) sigma_2`.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from dpsep.families import Gaussian
from dpsep_lab.theorem.corrected_bound import check_rho
from dpsep_lab.theorem.expected_kl import Array, Setting, read_setting
from dpsep_lab.theorem.noise_matrix import variance_statistic

Reading = Literal["eigenbasis", "ascending", "descending"]
READINGS = get_args(Reading)


class PrintedBound(NamedTuple):
    """The printed bound at one M.

    Attributes
    ----------
    terms
        The six terms as printed, without their signs and the factor one half.
    total
        `(T1 + T2 + T3 - T4 + T5 + T6) / 2`, NaN where undefined.
    probability
        `1 - d exp(-M^2 / (2 v))`, which may be negative.
    defined
        Whether every h_i is above zero.
    reason
        Why it is undefined, or an empty string.
    h, H
        The two bounds of `1 + lambda_i(P)`, by ascending eigenvalue.
    """

    terms: tuple[float, float, float, float, float, float]
    total: float
    probability: float
    defined: bool
    reason: str
    h: Array
    H: Array


def printed_bound(
    q: Gaussian, sigma_1: float, sigma_2: float, *, rho: float, M: float, reading: Reading = "eigenbasis"
) -> PrintedBound:
    """The right side of Theorem 4.1 at this M.

    Examples
    --------
    >>> q = Gaussian.isotropic(4, 2.0)
    >>> bound = printed_bound(q, 1e-3, 1e-3, rho=2.0, M=best_M(4, 1e-3))
    >>> bound.defined, bool(0.0 < bound.total < 0.05)
    (True, True)
    >>> printed_bound(q, 1e-3, 1e-3, rho=1e-3, M=1e-2).reason
    'h is -0.00950 at eigenvalue 2: 2 M = 0.02 is not below rho = 0.001'
    """
    setting = read_setting(q, sigma_1, sigma_2)
    check_rho(rho)
    if not 0.0 <= M < np.inf:
        raise ValueError(f"M is {M}; it must be a finite number, zero or above")
    values, d = setting.values, len(setting.eta)
    variance = variance_statistic(d, sigma_2)
    spread = best_M(d, sigma_2)
    shift = rho - values[0]
    h, H = 1.0 + (shift - 2.0 * M) / values, 1.0 + (shift + 2.0 * M) / values
    probability = 1.0 - d * float(np.exp(-(M**2) / (2.0 * variance))) if variance else float(M > 0.0)
    a, b = setting.mean, _roots(setting, reading)
    fixed = (float((shift + spread) * np.sum(1.0 / values)), float((shift + spread) * (a @ a)))
    size = float(setting.eta @ a)
    if rho <= 2.0 * M:
        reason = (
            f"h is {h[0]:.5f} at eigenvalue {values[0]:.6g}: 2 M = {2 * M:.6g} is not below rho = {rho:.6g}"
        )
        terms = (fixed[0], np.nan, np.nan, size, fixed[1], np.nan)
        return PrintedBound(terms, np.nan, probability, False, reason, h, H)
    K = (h + H - 1.0 + (spread - shift) / values) / (h * H)
    terms = (
        fixed[0],
        float(sigma_1**2 / values[0] * K.sum()),
        float(b**2 @ K),
        size,
        fixed[1],
        float(np.log(K).sum()),
    )
    return PrintedBound(terms, _total(terms), probability, True, "", h, H)


def best_M(dimension: int, sigma_2: float, confidence: float = 0.0) -> float:
    """Smallest M whose printed probability is at least `confidence`; at zero, the infimum of the useful ones.

    Examples
    --------
    >>> best_M(1, 0.5)
    0.0
    """
    if not 0.0 <= confidence < 1.0:
        raise ValueError(f"confidence is {confidence}; it must be at least zero and below one")
    variance = variance_statistic(dimension, sigma_2)
    return float(np.sqrt(2.0 * variance * np.log(dimension / (1.0 - confidence))))


def limits(q: Gaussian, *, rho: float, reading: Reading = "eigenbasis") -> PrintedBound:
    """The printed bound in the limit of infinitely many records: sigma_1, sigma_2 and M go to zero.

    With c = rho - lambda_min: `T1 = c Tr Lambda^-1`, `T2 = 0`, `T3 = sum_i b_i^2 / (1 + c / l_i)`, `T5 = c
    |a|^2`, `T6 = -sum_i log(1 + c / l_i)`. In the eigenbasis the total is KL(q || p) for the precision
    `Lambda + c I`, which is zero only if c = 0.

    Examples
    --------
    >>> q = Gaussian.isotropic(4, 2.0)
    >>> [round(limits(q, rho=rho).total, 3) for rho in (2.0, 0.2)]
    [0.0, 2.805]
    """
    setting = read_setting(q, 0.0, 0.0)
    check_rho(rho)
    shift = rho - setting.values[0]
    ratio = 1.0 + shift / setting.values
    a, b = setting.mean, _roots(setting, reading)
    terms = (
        float(shift * np.sum(1.0 / setting.values)),
        0.0,
        float(np.sum(b**2 / ratio)),
        float(setting.eta @ a),
        float(shift * (a @ a)),
        float(-np.log(ratio).sum()),
    )
    return PrintedBound(terms, _total(terms), 1.0, True, "", ratio, ratio)


def _total(terms: tuple[float, float, float, float, float, float]) -> float:
    return 0.5 * (terms[0] + terms[1] + terms[2] - terms[3] + terms[4] + terms[5])


def _roots(setting: Setting, reading: Reading) -> Array:
    """b, ordered to stand beside the ascending eigenvalues."""
    if reading not in READINGS:
        raise ValueError(f"reading {reading!r} is unknown; use one of {', '.join(map(repr, READINGS))}")
    inside = (setting.vectors.T @ setting.eta) / np.sqrt(setting.values)
    if reading == "eigenbasis":
        return inside
    coordinates = setting.vectors @ inside
    return coordinates if reading == "ascending" else coordinates[::-1]
