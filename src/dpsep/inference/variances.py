r"""How much groups differ: standard deviations of random effects from what was released of their likelihood.

The likelihood sees weights c = M u, where u are fixed effects and random effects: a group's coefficient is
the sum of both (M is of zeros and ones), so that no direction of c is left to the prior alone. With the
likelihood approximated as Gaussian in c (precision Lambda, mean part eta), and eta known up to the gate's
noise of covariance E, the evidence of prior variances P of u is that of

    eta ~ N( 0,  Lambda M P M^T Lambda + Lambda + E ),

so noise of privacy is not mistaken for differences between groups. The logarithms of the random effects'
standard deviations have Gaussian priors; their posterior is approximated at its mode. The posterior of the
weights averages over it by 2 r + 1 sigma points: what is not known of the spread widens what is said of the
fixed effects.

**Privacy.** Post-processing of released quantities: no record is seen here.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from dpsep.inference.threads import one_thread

Array = NDArray[np.float64]

PRIOR_MEAN, PRIOR_SD = -1.0, 1.0
"""Prior of the logarithm of a random effect's standard deviation, per scaled unit of its column."""
_BOUNDS = (-7.0, 4.0)


class Known(NamedTuple):
    """What is known of the weights c from the likelihood.

    Attributes
    ----------
    precision
        Lambda.
    mean_part
        eta.
    noise
        E, covariance of the gate's noise in eta; zero without privacy.
    """

    precision: Array
    mean_part: Array
    noise: Array


class Spread(NamedTuple):
    """Posterior of the logarithms of the random effects' standard deviations: Gaussian, shape (r,)."""

    mean: Array
    covariance: Array


class Prior(NamedTuple):
    """The prior of the effects u: fixed ones first, then the random ones group by group; means are zero.

    Attributes
    ----------
    fixed
        Variances of the fixed effects.
    groups
        Number of groups.
    sums
        M, which makes weights of effects.
    """

    fixed: Array
    groups: int
    sums: Array

    def variances(self, log_sd: Array) -> Array:
        """Return the prior variances of all effects."""
        return np.concatenate([self.fixed, np.tile(np.exp(2.0 * log_sd), self.groups)])

    def covariance(self, log_sd: Array) -> Array:
        """Return the prior covariance of the weights."""
        return (self.sums * self.variances(log_sd)) @ self.sums.T


def learn(known: Known, prior: Prior, start: Array) -> Spread:
    """Return the posterior of the spread of random effects, from its mode."""
    with one_thread():
        found = minimize(
            lambda log_sd: -_log_posterior(known, prior, log_sd),
            np.clip(start, *_BOUNDS),
            method="L-BFGS-B",
            bounds=[_BOUNDS] * len(start),
            options={"maxiter": 40},
        )
        bend = _curvature(lambda log_sd: -_log_posterior(known, prior, log_sd), found.x)
    values, vectors = np.linalg.eigh(bend)
    # The prior's own curvature is the least there can be near a mode.
    values = np.maximum(values, PRIOR_SD**-2.0)
    return Spread(np.asarray(found.x, np.float64), (vectors / values) @ vectors.T)


def effects(known: Known, prior: Prior, spread: Spread) -> tuple[Array, Array, Array]:
    """Return mean, covariance and noise covariance of the effects u, averaged over the spread's posterior."""
    likelihood = prior.sums.T @ known.precision @ prior.sums
    mean_part = prior.sums.T @ known.mean_part
    size = len(spread.mean)
    reach = np.linalg.cholesky(spread.covariance) * math.sqrt(size + 0.5)
    points = [spread.mean, *(spread.mean + reach.T), *(spread.mean - reach.T)]
    shares = np.array([0.5 / (size + 0.5)] + [0.5 / (size + 0.5)] * (2 * size))
    means, covariances = [], []
    for log_sd in points:
        covariance = np.linalg.inv(likelihood + np.diag(1.0 / prior.variances(np.clip(log_sd, *_BOUNDS))))
        covariances.append((covariance + covariance.T) / 2)
        means.append(covariance @ mean_part)
    mean = np.einsum("p,pi->i", shares, np.asarray(means))
    away = np.asarray(means) - mean
    covariance = np.einsum("p,pij->ij", shares, np.asarray(covariances))
    covariance += np.einsum("p,pi,pj->ij", shares, away, away)
    spread_out = covariances[0] @ prior.sums.T
    noise = spread_out @ known.noise @ spread_out.T
    return mean, covariance, (noise + noise.T) / 2


def _log_posterior(known: Known, prior: Prior, log_sd: Array) -> float:
    precision = known.precision
    total = precision @ prior.covariance(log_sd) @ precision + precision + known.noise
    # A group without rows has an empty row here; it says nothing and must not break the factorisation.
    total[np.diag_indices_from(total)] += 1e-10 * np.trace(total) / len(total)
    factor: Any = cho_factor(total, lower=True)
    square = known.mean_part @ cho_solve(factor, known.mean_part)
    log_det = 2.0 * np.sum(np.log(np.diagonal(factor[0])))
    return float(-0.5 * (square + log_det) - 0.5 * np.sum(((log_sd - PRIOR_MEAN) / PRIOR_SD) ** 2))


def _curvature(value: Any, at: Array, step: float = 0.05) -> Array:
    size = len(at)
    bend = np.zeros((size, size))
    shifts = step * np.eye(size)
    for i in range(size):
        for j in range(i + 1):
            corners = [value(at + a * shifts[i] + b * shifts[j]) * a * b for a in (1, -1) for b in (1, -1)]
            bend[i, j] = bend[j, i] = sum(corners) / (4 * step**2)
    return bend
