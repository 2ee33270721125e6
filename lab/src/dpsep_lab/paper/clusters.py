r"""The mixture experiment of Table 1 and Figure 1: made data, the posterior that knows the labels, errors.

A thousand records from four Gaussians in four dimensions, :math:`x \mid h = j \sim N(\mu_j, 0.5^2 I)`, labels
:math:`h` uniform. The posterior of the means given the labels is Gaussian in closed form, so it needs no
sampler: with :math:`n_j` records of component :math:`j`, noise :math:`s` and a prior
:math:`N(0, \lambda_0^{-1} I)`,

.. math:: \Lambda_j = \lambda_0 + n_j / s^2, \qquad
          m_j = \Lambda_j^{-1} s^{-2} \sum_{n: h_n = j} x_n.

The paper fits a Gaussian to NUTS draws from this same posterior, so its truth carries sampling error.

*Where the components lie.* The text has :math:`\mu_j \sim N(m, I)` and leaves :math:`m` open. The public code
draws an :math:`m` for each component from a standard normal and multiplies the spread about it by
:math:`|N(0, 1)|`, coordinate by coordinate. `make` follows the text with an :math:`m_j \sim N(0, I)` for each
component; ``centred=True`` reads it as :math:`m = 0`, which puts the components closer together and is
harder.

*Which component is which.* Components are matched to the truth by the assignment of least total squared
distance. The public code takes the nearest component still free, one true component after another, whose
result depends on their order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

__all__ = ["Errors", "Experiment", "Posterior", "errors", "make", "match", "truth"]

Array = NDArray[np.float64]


class Experiment(NamedTuple):
    """Made data and what they were made from.

    Attributes
    ----------
    means
        Of the components, (J, D).
    labels
        The component of each record, (N,).
    x
        The records, (N, D).
    noise
        Standard deviation of a record about its component's mean.
    """

    means: Array
    labels: NDArray[np.int64]
    x: Array
    noise: float = 0.5


class Posterior(NamedTuple):
    """Gaussians over the components' means: their means (J, D) and covariances (J, D, D)."""

    means: Array
    covariances: Array


class Errors(NamedTuple):
    """How far an estimate lies from the truth, components matched.

    Attributes
    ----------
    mean, covariance
        Squared Euclidean (Frobenius) distance averaged over components: what the reference code computes for
        Table 1 under the name of F-norm.
    average
        The mean of these two.
    plain_mean, plain_covariance
        The distance itself, with its root, averaged over components.
    wrong
        Whether two components have the same nearest true mean: a wrong assignment.
    """

    mean: float
    covariance: float
    average: float
    plain_mean: float
    plain_covariance: float
    wrong: bool


def make(
    seed: int,
    records: int = 1000,
    components: int = 4,
    dimension: int = 4,
    noise: float = 0.5,
    centred: bool = False,
) -> Experiment:
    """Draw an experiment; see the module's notes for what the paper says and what its code does.

    Parameters
    ----------
    seed
        The same seed gives the same data; ``centred`` changes the means and nothing else about them.
    records, components, dimension
        N, J and D.
    noise
        Standard deviation of a record about its component's mean.
    centred
        Whether every mean is drawn about zero rather than about a centre of its own.

    Examples
    --------
    >>> data = make(seed=0)
    >>> data.means.shape, data.labels.shape, data.x.shape
    ((4, 4), (1000,), (1000, 4))
    """
    if min(records, components, dimension) < 1 or not 0 < noise < np.inf:
        raise ValueError(
            "records, components and dimension must be at least 1 and noise positive and finite, "
            f"not {records}, {components}, {dimension} and {noise}."
        )
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((components, dimension))
    means = generator.standard_normal((components, dimension)) + (0.0 if centred else centres)
    labels = generator.integers(components, size=records)
    x = means[labels] + noise * generator.standard_normal((records, dimension))
    return Experiment(means, labels, x, noise)


def truth(experiment: Experiment, prior_precision: float = 0.1) -> Posterior:
    """Return the posterior of the components' means given the labels, under a prior of mean zero.

    Parameters
    ----------
    experiment
        As `make` gives it.
    prior_precision
        Of every coordinate of every mean; the reference code has 1/10.
    """
    if not 0 < prior_precision < np.inf:
        raise ValueError(f"prior_precision must be positive and finite, not {prior_precision}.")
    components, dimension = experiment.means.shape
    members = np.arange(components)[:, None] == experiment.labels
    precision = prior_precision + members.sum(axis=1) / experiment.noise**2
    means = (members @ experiment.x) / experiment.noise**2 / precision[:, None]
    return Posterior(means, np.eye(dimension) / precision[:, None, None])


def match(truth_means: ArrayLike, means: ArrayLike) -> NDArray[np.int64]:
    """Return, for each true component, the index of the component that is matched to it.

    ``means[match(truth_means, means)]`` are in the order of the truth.

    Parameters
    ----------
    truth_means, means
        Both (J, D).

    Examples
    --------
    >>> match([[0.0], [5.0], [9.0]], [[8.0], [0.1], [5.2]])
    array([1, 2, 0])
    """
    distances = _squared_distances(_finite("truth_means", truth_means), _finite("means", means))
    _, order = linear_sum_assignment(distances)
    return order.astype(np.int64)


def errors(
    truth_means: ArrayLike, truth_covariances: ArrayLike, means: ArrayLike, covariances: ArrayLike
) -> Errors:
    """Return how far Gaussians over the components' means lie from the true ones, in any order of components.

    Parameters
    ----------
    truth_means, truth_covariances
        (J, D) and (J, D, D), as `truth` gives them.
    means, covariances
        Those of the estimate, of the same shapes. What is not finite raises an error: such a fit has no
        errors to average and is to be counted on its own.
    """
    true_means, estimate = _finite("truth_means", truth_means), _finite("means", means)
    distances = _squared_distances(true_means, estimate)
    order = match(true_means, estimate)
    widths = _finite("truth_covariances", truth_covariances), _finite("covariances", covariances)
    if {width.shape for width in widths} != {(*true_means.shape, true_means.shape[1])}:
        raise ValueError(
            f"covariances must be of shape {(*true_means.shape, true_means.shape[1])} beside means of shape "
            f"{true_means.shape}, not {widths[0].shape} and {widths[1].shape}."
        )
    squared_mean = ((true_means - estimate[order]) ** 2).sum(axis=1)
    squared_covariance = ((widths[0] - widths[1][order]) ** 2).sum(axis=(1, 2))
    mean, covariance = float(squared_mean.mean()), float(squared_covariance.mean())
    nearest = distances.argmin(axis=0)
    return Errors(
        mean,
        covariance,
        (mean + covariance) / 2,
        float(np.sqrt(squared_mean).mean()),
        float(np.sqrt(squared_covariance).mean()),
        len(set(nearest.tolist())) < len(nearest),
    )


def _squared_distances(truth_means: Array, means: Array) -> Array:
    """Squared distances, true components down and estimated ones across."""
    if truth_means.ndim != 2 or truth_means.shape != means.shape:
        raise ValueError(
            "truth_means and means must both be of shape (components, dimension), not "
            f"{truth_means.shape} and {means.shape}."
        )
    return ((truth_means[:, None] - means[None]) ** 2).sum(axis=2)


def _finite(name: str, values: ArrayLike) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; count a fit that is not as failed, apart from the errors.")
    return array
