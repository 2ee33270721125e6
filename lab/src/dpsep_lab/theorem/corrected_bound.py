"""A bound of the expected divergence that holds for every dimension, rho and scale: Theorem 4.1, corrected.

For the rule `floor` (eigenvalues of `W = Lambda + E` below rho become rho). The space of noise matrices is
cut in two by a threshold t on the whitened noise `P = S^(1/2) E S^(1/2)`, `S = Lambda^-1`; both parts are
unchanged when E becomes -E. The full proof is in docs/theory.md.

- Inside, `|P| <= t`. *Clear*: if `(1 - t) lambda_min >= rho`, nothing is raised; pairing E with -E gives

      2 E[KL; inside] <= (Tr(S M) / 2 + sigma_1^2 Tr S + a' M a) / (1 - t^2),

  `M = E[E S E] = sigma_2^2 (S + Tr(S) I - diag(S))`. *Raised*: for any rho the lift has at most the Frobenius
  norm of `(rho - Lambda)_+` plus that of `(-E)_+`; Minkowski's inequality adds it to the same terms, and the
  divisor is `1 - t`.
- Outside, 2 KL is at most a nondecreasing function phi of `|E|` (Weyl's and von Neumann's inequalities), and
  `E[phi(|E|); outside] <= phi(0) p + integral of phi'(u) min(p, P(|E| > u)) du` where p bounds the
  probability of the outside. The integral is taken as an upper sum, with the tail at the left end of each
  cell.

Contract: `total` is a number, not a random variable, and is at least the expectation; the least over
thresholds is taken, which is allowed because each threshold gives a bound. If rho < lambda_min, total /
expectation goes to one as the noise goes to zero, so the bound falls as N^-2 when sigma_1 and sigma_2 fall as
1/N; if rho = lambda_min it falls as N^-2 with a larger constant.
"""

from typing import Literal, NamedTuple

import numpy as np

from dpsep.families import Gaussian
from dpsep_lab.theorem.expected_kl import Array, Setting, read_setting
from dpsep_lab.theorem.noise_matrix import mean_bound, second_moment, tail, whitened_tail

Inside = Literal["clear", "raised", "nothing"]

_CELLS = 3_000
_REACH = 56.0  # in units of sigma_2 above the mean: there the tail is below the smallest double
_ROUNDING = 1e-11


class CorrectedBound(NamedTuple):
    """The bound and its parts.

    Attributes
    ----------
    total
        Upper bound of the expected divergence: `good + bad`.
    threshold
        The t that gives the least bound; zero where the outside is everything.
    good, bad
        Bounds of the two parts, inside and outside the threshold.
    probability
        Lower bound of the probability of the inside.
    inside
        How the inside was bounded: `clear`, `raised`, or `nothing` where the outside is everything.
    """

    total: float
    threshold: float
    good: float
    bad: float
    probability: float
    inside: Inside


class GoodPart(NamedTuple):
    """Upper bound of E[KL; |P| <= t] and lower bound of the probability of that event."""

    value: float
    probability: float


def corrected_bound(q: Gaussian, sigma_1: float, sigma_2: float, *, rho: float) -> CorrectedBound:
    """Upper bound of the expected KL(q || p) under the rule `floor`.

    Parameters
    ----------
    q
        Posterior of SEP.
    sigma_1, sigma_2
        Standard deviations of the noise on eta and on the upper triangle of the precision.
    rho
        Floor of the eigenvalues of the private precision, above zero.

    Examples
    --------
    >>> q = Gaussian.isotropic(3, 10.0)
    >>> first, second = (corrected_bound(q, s, s, rho=1.0).total for s in (1e-3, 1e-4))
    >>> round(first / second)
    100
    """
    setting = read_setting(q, sigma_1, sigma_2)
    check_rho(rho)
    slack = 1.0 - rho / setting.values[0]
    clear = min(slack, 1.0 - 1e-6) * _fractions() if slack > 0.0 else np.zeros(0)
    raised = (1.0 - 1e-6) * _fractions()
    thresholds = np.concatenate([[0.0], clear, raised])
    good = np.concatenate([[0.0], _clear(setting) / (1.0 - clear**2), _raised(setting, rho) / (1.0 - raised)])
    outside = np.concatenate([[1.0], whitened_tail(setting.covariance, sigma_2, thresholds[1:])])
    bad = _outside(setting, rho, outside)
    best = int(np.argmin(good + bad))
    inside: Inside = "nothing" if best == 0 else "clear" if best <= len(clear) else "raised"
    # Doubled in the sums above; the factor covers their rounding.
    inner, outer = (0.5 * (1.0 + _ROUNDING) * float(part[best]) for part in (good, bad))
    certain = 1.0 - float(outside[best])
    return CorrectedBound(inner + outer, float(thresholds[best]), inner, outer, certain, inside)


def good_part(q: Gaussian, sigma_1: float, sigma_2: float, *, threshold: float) -> GoodPart:
    """Bound of E[KL; |P| <= threshold], and how probable that event is at least.

    Under `literal` any threshold below one is allowed: nothing is moved there. Under `floor` nothing is moved
    if `(1 - threshold) lambda_min >= rho`, which is the caller's to see to.

    Examples
    --------
    >>> part = good_part(Gaussian.isotropic(3, 10.0), 1e-2, 1e-2, threshold=0.5)
    >>> part.value < 1e-4, part.probability > 0.999
    (True, True)
    """
    if not 0.0 <= threshold < 1.0:
        raise ValueError(f"threshold is {threshold}; it must be at least zero and below one")
    setting = read_setting(q, sigma_1, sigma_2)
    probability = 1.0 - float(whitened_tail(setting.covariance, sigma_2, threshold))
    return GoodPart(0.5 * (1.0 + _ROUNDING) * _clear(setting) / (1.0 - threshold**2), probability)


def check_rho(rho: float) -> None:
    """Refuse a rho that is not a finite number above zero."""
    if not 0.0 < rho < np.inf:
        raise ValueError(f"rho is {rho}; it must be a finite number above zero")


def _fractions() -> Array:
    return np.concatenate([np.geomspace(1e-9, 0.02, 60), np.linspace(0.025, 1.0, 40)])


def _clear(setting: Setting) -> float:
    """Twice the divergence to second order in the noise: the braces of the clear part."""
    matrix, quadratic = _moments(setting)
    return 0.5 * matrix + setting.sigma_1**2 * float(np.sum(1.0 / setting.values)) + quadratic


def _raised(setting: Setting, rho: float) -> float:
    """The same with a lift: |(-E)_+|_F has the mean square sigma_2^2 d^2 / 2, half of that of E."""
    matrix, quadratic = _moments(setting)
    least, start = setting.values[0], np.linalg.norm(np.maximum(rho - setting.values, 0.0))
    lift = start + setting.sigma_2 * len(setting.eta) / np.sqrt(2.0)
    length = float(np.linalg.norm(setting.mean))
    first = 0.5 * (np.sqrt(matrix) + lift / least) ** 2
    last = (np.sqrt(quadratic) + length * lift / np.sqrt(least)) ** 2
    return float(first + setting.sigma_1**2 * np.sum(1.0 / setting.values) + last)


def _moments(setting: Setting) -> tuple[float, float]:
    """`E Tr P^2` and `E a' E S E a`, exactly."""
    moment = second_moment(setting.covariance, setting.sigma_2)
    return float(np.sum(setting.covariance * moment)), float(setting.mean @ moment @ setting.mean)


def _outside(setting: Setting, rho: float, probability: Array) -> Array:
    """Upper bounds of 2 E[KL; B] for events B, unchanged under E -> -E, of at most these probabilities."""
    d, sigma = len(setting.eta), setting.sigma_2
    edges = np.linspace(0.0, mean_bound(d, sigma) + _REACH * sigma, _CELLS + 1)
    phi = _growth(setting, rho, edges)
    survival = tail(d, sigma, edges[:-1])
    survival[0] = 1.0
    cells = np.diff(phi) * survival
    rest = np.append(np.cumsum(cells[::-1])[::-1], 0.0)
    # The first cell whose tail is at or below p: before it, p times the growth; from it on, the tail times
    # it.
    place = np.searchsorted(-survival, -probability, side="left")
    return phi[place] * probability + rest[place]


def _growth(setting: Setting, rho: float, norm: Array) -> Array:
    """phi: bounds 2 KL for a noise matrix of this norm, up to terms odd in E; nondecreasing."""
    values, least, u = setting.values, setting.values[0], norm
    lift = np.maximum(rho - values + u[:, None], 0.0)
    lowest = np.maximum(rho, values - u[:, None])
    # Either Tr(D S) - log det, term by term, or x^2 / 2 over the smallest 1 + x, which is better when u is
    # small.
    split = np.sum(lift / values + np.log(values / lowest), 1)
    square = (u * np.sqrt(np.sum(values**-2.0)) + np.sqrt(np.sum((lift / values) ** 2, 1))) ** 2
    remaining = 1.0 - u / least
    second = np.full_like(square, np.inf)
    np.divide(0.5 * square, remaining, out=second, where=remaining > 1e-12)
    # a' D Lambda_p^-1 D a, either by the norm of D or as a' D a + eta' (Lambda_p^-1 - S) eta without its odd
    # part.
    length, size = setting.mean @ setting.mean, setting.eta @ setting.eta
    by_norm = length * (u + lift[:, 0]) ** 2 / lowest[:, 0]
    by_parts = length * lift[:, 0] + size / lowest[:, 0] - setting.eta @ setting.mean
    return (
        np.minimum(split, second)
        + setting.sigma_1**2 * np.sum(1.0 / lowest, 1)
        + np.minimum(by_norm, by_parts)
    )
