r"""The posterior of a mixture in the table's units, and the predictive density that follows from it.

Component means have a full covariance each; weights are known or Dirichlet; variances are known or have Gamma
precisions. The predictive density of a component integrates them: a Gaussian where variances are known; with
a learned spherical variance a multivariate Student-t, with one a column a product of Student-t densities,
both with the mean's uncertainty added to the scale.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, softmax

Array = NDArray[np.float64]


class MixturePosterior(NamedTuple):
    """Posterior of J components in D columns, in the table's units.

    Attributes
    ----------
    means
        Posterior means of the component means, (J, D).
    mean_covariances
        Their posterior covariances, (J, D, D); widened by the noise of privacy where that was asked for.
    noise_covariances
        The part of them that is the noise of privacy, (J, D, D).
    weights
        Known, or the posterior means, (J,).
    weight_concentration
        Of the Dirichlet posterior, (J,); None where weights are known.
    variances
        Within components, (J, D): known, or the posterior rate over shape of the precision.
    variance_shape
        Shape of the Gamma posterior of the precisions, (J,); None where variances are known.
    spherical
        Whether a component has one variance for all columns.
    """

    means: Array
    mean_covariances: Array
    noise_covariances: Array
    weights: Array
    weight_concentration: Array | None
    variances: Array
    variance_shape: Array | None
    spherical: bool

    def log_joint(self, x: Array) -> Array:
        """Log of weight times predictive density, for each row and component, (n, J)."""
        columns = [np.log(self.weights[j]) + self._log_density(j, x) for j in range(len(self.means))]
        return np.stack(columns, axis=1)

    def log_density(self, x: Array) -> Array:
        """Log posterior predictive density of each row."""
        return np.asarray(logsumexp(self.log_joint(x), axis=1))

    def probabilities(self, x: Array) -> Array:
        """Posterior probability of each component for each row, (n, J)."""
        joint = self.log_joint(x)
        return np.asarray(softmax(joint, axis=1))

    def draw_means(self, draws: int, generator: np.random.Generator) -> Array:
        """Draw component means from their posterior, (draws, J, D)."""
        values, vectors = np.linalg.eigh(self.mean_covariances)
        half = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        normal = generator.standard_normal((draws, *self.means.shape))
        return self.means + np.einsum("jdk,njk->njd", half, normal)

    def draw(self, size: int, generator: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Draw new records and their components from the posterior predictive distribution."""
        labels = generator.choice(len(self.weights), size, p=self.weights)
        means = self.draw_means(size, generator)[np.arange(size), labels]
        variances = self.variances[labels]
        if self.variance_shape is not None:
            shape = self.variance_shape[labels][:, None]
            width = (size, 1) if self.spherical else variances.shape
            variances = variances * shape / generator.gamma(np.broadcast_to(shape, width))
        return means + np.sqrt(variances) * generator.standard_normal(means.shape), labels

    def summary(self, level: float) -> list[dict[str, Any]]:
        """Return one row a component and column: mean, sd, interval, share of the variance that is noise."""
        from scipy.stats import norm

        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), not {level!r}.")
        reach = float(norm.ppf(0.5 + level / 2))
        rows = []
        for j, mean in enumerate(self.means):
            for d, centre in enumerate(mean):
                variance, noise = self.mean_covariances[j, d, d], self.noise_covariances[j, d, d]
                deviation = math.sqrt(variance)
                rows.append(
                    {
                        "component": j,
                        "column": d,
                        "mean": float(centre),
                        "sd": deviation,
                        "low": float(centre - reach * deviation),
                        "high": float(centre + reach * deviation),
                        "noise_share": float(min(noise / variance, 1.0)),
                    }
                )
        return rows

    def _log_density(self, component: int, x: Array) -> Array:
        mean, own = self.means[component], self.mean_covariances[component]
        variance = self.variances[component]
        if self.variance_shape is None:
            return _gaussian(x - mean, own + np.diag(variance))
        freedom = 2.0 * float(self.variance_shape[component])
        if self.spherical:
            return _student(x - mean, own + np.diag(variance), freedom)
        scale = variance + np.diagonal(own)
        ratio = (x - mean) ** 2 / scale
        one = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * math.pi * scale)
        return np.sum(one - (freedom + 1) / 2 * np.log1p(ratio / freedom), axis=1)


def _distance(offset: Array, covariance: Array) -> tuple[Array, float]:
    factor = np.linalg.cholesky(covariance)
    half = np.linalg.solve(factor, offset.T)
    return np.sum(half**2, axis=0), 2.0 * float(np.sum(np.log(np.diagonal(factor))))


def _gaussian(offset: Array, covariance: Array) -> Array:
    distance, log_determinant = _distance(offset, covariance)
    return -0.5 * (distance + log_determinant + offset.shape[1] * math.log(2 * math.pi))


def _student(offset: Array, scale: Array, freedom: float) -> Array:
    distance, log_determinant = _distance(offset, scale)
    size = offset.shape[1]
    constant = float(gammaln((freedom + size) / 2) - gammaln(freedom / 2))
    constant -= 0.5 * (size * math.log(freedom * math.pi) + log_determinant)
    return constant - (freedom + size) / 2 * np.log1p(distance / freedom)
