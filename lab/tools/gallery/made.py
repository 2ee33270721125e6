"""Made data that several pictures show: four clusters in the plane, and how far found means are from true."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Array = NDArray[np.float64]
CLUSTER_BOUND = 8.0
"""Declared bound of the clusters' two columns."""
MEANS = np.array([[-3.5, 2.5], [0.5, -3.0], [3.5, 2.0], [-0.5, 3.8]])
"""True means."""
DEVIATIONS = np.array([[0.9, 0.6], [1.1, 0.7], [0.7, 1.0], [0.8, 0.6]])
WEIGHTS = (0.25, 0.3, 0.2, 0.25)


def clusters(records: int, seed: int = 0) -> tuple[Array, Array]:
    """Draw a table of four clusters; return it and the true means."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(len(MEANS), records, p=WEIGHTS)
    x = MEANS[labels] + DEVIATIONS[labels] * generator.standard_normal((records, 2))
    return np.clip(x, -CLUSTER_BOUND, CLUSTER_BOUND), MEANS


def order_of_means(found: Array, truth: Array) -> NDArray[np.intp]:
    """Return which found mean belongs to each true one: the pairing with the least squared distance."""
    apart = ((truth[:, None] - found[None]) ** 2).sum(-1)
    return linear_sum_assignment(apart)[1]


def error_of_means(found: Array, truth: Array) -> float:
    """Root mean square distance of the found means from the true ones, matched."""
    offset = found[order_of_means(found, truth)] - truth
    return float(np.sqrt((offset**2).sum(-1).mean()))
