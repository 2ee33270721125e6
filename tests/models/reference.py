"""Slow, plain references for tilted moments: dense panels in extended precision, and mpmath."""

from typing import NamedTuple

import mpmath
import numpy as np
import scipy.special

LONG = np.longdouble
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


class Reference(NamedTuple):
    log_z: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray
    shrinkage: np.ndarray


def logistic_terms(u, y):
    z = y * u
    small = np.exp(-np.abs(z))
    value = np.minimum(z, 0) - np.log1p(small)
    down = np.where(z > 0, small, 1) / (1 + small)
    return value, y * down, -small / (1 + small) ** 2


def poisson_terms(u, y):
    rate = np.exp(np.minimum(u, LONG(11000)))
    return y * u - rate - scipy.special.gammaln(np.asarray(y, float) + 1.0), y - rate, -rate


def tilted(terms, mean, variance, y) -> Reference:
    """Tilted moments with about 3000 nodes a cavity, in extended precision, by Price's theorem.

    The range covers twelve cavity deviations around the tilted mode and around the places that multiplying
    the density by exp(u), exp(2 u) or exp(-u) moves it to, where the derivatives of these likelihoods have
    their weight.
    """
    mean, variance, y = (np.asarray(part, LONG) for part in (mean, variance, y))
    deviation = np.sqrt(variance)
    modes = [_mode(terms, mean + tilt * variance, variance, y) for tilt in (0, 1, 2, -1)]
    mode = modes[0]
    low = np.minimum.reduce(modes) - 12 * deviation
    high = np.maximum.reduce(modes) + 12 * deviation
    width = 1 / np.sqrt(1 / variance - terms(mode, y)[2])
    points = [low + (high - low) * k / 50 for k in range(51)]
    for k in range(-2, 8):
        points += [mode + width * LONG(2) ** k, mode - width * LONG(2) ** k]
    points += [np.full_like(mode, k) for k in range(-40, 41, 2)]
    points += [np.log(np.abs(y) + 1) + k / LONG(2) for k in range(-8, 9)]
    ends = np.sort(np.clip(np.stack(points, -1), low[:, None], high[:, None]), -1)
    half = np.diff(ends)[..., None] / 2
    u = (ends[:, :-1, None] + half * (NODES.astype(LONG) + 1)).reshape(len(mean), -1)
    weights = (half * WEIGHTS.astype(LONG)).reshape(len(mean), -1)
    value, first, second = terms(u, y[:, None])
    log_density = value - (u - mean[:, None]) ** 2 / (2 * variance[:, None])
    top = log_density.max(-1)
    mass = weights * np.exp(log_density - top[:, None])
    total = mass.sum(-1)
    mass /= total[:, None]
    gradient = (mass * first).sum(-1)
    curvature = -(mass * second).sum(-1) - (mass * (first - gradient[:, None]) ** 2).sum(-1)
    shift = (mass * (u - mode[:, None])).sum(-1)
    spread = (mass * (u - (mode + shift)[:, None]) ** 2).sum(-1)
    log_z = np.log(total) + top - np.log(2 * LONG(np.pi) * variance) / 2
    return Reference(log_z, gradient, curvature, spread / variance)


def _mode(terms, mean, variance, y):
    """Bisection: u - mean - variance * l'(u) increases in u."""
    low, high = mean - 60 * np.sqrt(variance) - 60, mean + variance * (np.abs(y) + 1) + 1
    for _ in range(20):
        low = np.where(low - mean - variance * terms(low, y)[1] > 0, low - 2 * (high - low), low)
    for _ in range(120):
        middle = (low + high) / 2
        above = middle - mean - variance * terms(middle, y)[1] > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def mp_log_z(log_likelihood, mean, variance, around) -> mpmath.mpf:
    """Log normaliser by adaptive quadrature in the working precision of mpmath."""
    deviation = mpmath.sqrt(variance)
    points = [around + k * deviation for k in (-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16)]

    def density(u):
        return mpmath.exp(log_likelihood(u) - (u - mean) ** 2 / (2 * variance))

    return mpmath.log(mpmath.quad(density, points) / mpmath.sqrt(2 * mpmath.pi * variance))


def mp_derivatives(log_z_of_mean, mean) -> tuple[float, float, float]:
    """Log normaliser, gradient and curvature by fourth-order differences in 50 digits."""
    h = mpmath.mpf("1e-8")
    far, near, here, after, beyond = (log_z_of_mean(mean + k * h) for k in (-2, -1, 0, 1, 2))
    first = (far - 8 * near + 8 * after - beyond) / (12 * h)
    second = (-far + 16 * near - 30 * here + 16 * after - beyond) / (12 * h * h)
    return float(here), float(first), float(-second)
