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
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators.inference_data import inference_data
from dpsep.estimators.private import PrivateEstimator
from dpsep.estimators.summary import LEFT_OUT, Summary, interval_row

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
    noise_aware
        Whether the covariances include the noise of privacy.

    Examples
    --------
    >>> known = {"weights": np.full(2, 0.5), "weight_concentration": None, "variance_shape": None}
    >>> spread = {"mean_covariances": np.zeros((2, 3, 3)), "noise_covariances": np.zeros((2, 3, 3))}
    >>> found = {"means": np.zeros((2, 3)), "variances": np.ones((2, 3)), "spherical": False}
    >>> posterior = MixturePosterior(**found, **spread, **known)
    >>> posterior.means.shape, posterior.noise_aware
    ((2, 3), True)
    """

    means: Array
    mean_covariances: Array
    noise_covariances: Array
    weights: Array
    weight_concentration: Array | None
    variances: Array
    variance_shape: Array | None
    spherical: bool
    noise_aware: bool = True

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

    def draw_parameters(self, draws: int, generator: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw means (draws, J, D), weights (draws, J) and variances (draws, J, D) from their posteriors."""
        means = self.draw_means(draws, generator)
        weights = np.broadcast_to(self.weights, (draws, len(self.weights)))
        if self.weight_concentration is not None:
            weights = generator.dirichlet(self.weight_concentration, draws)
        components = np.broadcast_to(np.arange(len(self.weights)), (draws, len(self.weights)))
        return means, weights, self._draw_variances(components, generator)

    def draw(self, size: int, generator: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Draw new records and their components from the posterior predictive distribution."""
        labels = generator.choice(len(self.weights), size, p=self.weights)
        means = self.draw_means(size, generator)[np.arange(size), labels]
        variances = self._draw_variances(labels, generator)
        return means + np.sqrt(variances) * generator.standard_normal(means.shape), labels

    def summary(self, level: float = 0.9, names: list[str] | None = None) -> Summary:
        """Return one row a component and column: mean, sd, interval, and how much of it is noise.

        Parameters
        ----------
        level
            Of the intervals.
        names
            Of the columns; their numbers by default.
        """
        rows = [
            {"component": j, "column": d if names is None else names[d]}
            | interval_row(
                float(centre),
                self.mean_covariances[j, d, d],
                self.noise_covariances[j, d, d] if self.noise_aware else 0.0,
                level,
            )
            for j, mean in enumerate(self.means)
            for d, centre in enumerate(mean)
        ]
        noisy = bool(np.any(np.diagonal(self.noise_covariances, axis1=1, axis2=2) > 0))
        return Summary(
            rows, level=level, noise=noisy, note=LEFT_OUT if noisy and not self.noise_aware else ""
        )

    def _draw_variances(self, components: NDArray[np.intp], generator: np.random.Generator) -> Array:
        """Draw the variances of components, in an array of any shape: (..., D)."""
        variances = self.variances[components]
        if self.variance_shape is None:
            return variances
        shape = self.variance_shape[components][..., None]
        width = shape.shape if self.spherical else variances.shape
        return variances * shape / generator.gamma(np.broadcast_to(shape, width))

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


class MixtureDraws(PrivateEstimator):
    """What a statistician asks the posterior of a mixture for; new rows are drawn by `sample`."""

    posterior_: MixturePosterior

    def summary(self, level: float = 0.9) -> Summary:
        """Return one row a component and column: mean, sd, interval, and how much of it is noise of privacy.

        Parameters
        ----------
        level
            Of the central intervals.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        return self.posterior_.summary(level, [str(name) for name in names])

    def to_arviz(
        self,
        X: Any = None,
        y: Any = None,
        *,
        draws: int = 1000,
        random_state: int | np.random.Generator | None = 0,
    ) -> Any:
        """Return draws as ArviZ inference data (extra ``truth``).

        The group ``posterior`` holds ``means``, and ``weights`` and ``variances`` where they are learned.
        With rows X there are ``posterior_predictive`` (as many new rows for each draw), ``log_likelihood``
        and ``observed_data`` too. X is the caller's own: it and its log-likelihoods stand in the result as
        they are, without noise. Under privacy give rows that are public.

        Parameters
        ----------
        X
            Rows; may be left out.
        y
            Not used; here because scikit-learn passes it.
        draws
            Number of draws from the posterior.
        random_state
            A seed or a generator, of these draws only.
        """
        del y
        check_is_fitted(self)
        generator = np.random.default_rng(random_state)
        found = self.posterior_
        means, weights, variances = found.draw_parameters(draws, generator)
        groups = {"posterior": {"means": means[None]}}
        if found.weight_concentration is not None:
            groups["posterior"]["weights"] = weights[None]
        if found.variance_shape is not None:
            groups["posterior"]["variances"] = variances[None]
        if X is not None:
            rows = self._new_rows(X)
            new, density = np.empty((draws, *rows.shape)), np.empty((draws, len(rows)))
            for place, (mean, weight, variance) in enumerate(zip(means, weights, variances, strict=True)):
                labels = generator.choice(len(weight), len(rows), p=weight)
                noise = generator.standard_normal(rows.shape)
                new[place] = mean[labels] + np.sqrt(variance[labels]) * noise
                square = (rows[:, None] - mean) ** 2 / variance + np.log(2 * np.pi * variance)
                density[place] = logsumexp(-0.5 * square.sum(axis=2), b=weight, axis=1)
            groups |= {
                "posterior_predictive": {"x": new[None]},
                "log_likelihood": {"x": density[None]},
                "observed_data": {"x": rows},
            }
        return inference_data(groups, {"means": ["component", "column"], "weights": ["component"]})


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
