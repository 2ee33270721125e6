r"""What dpsep is measured against: least squares, AdaSSP, and diffprivlib's regressions.

AdaSSP is written here from Y.-X. Wang, "Revisiting differentially private linear regression" (2018),
Algorithm 2: with ||x|| <= 1 and |y| <= 1 (rows are scaled into the unit ball by public bounds),

    lambda_min~ = max(lambda_min(X'X) + s Z - s^2 epsilon / 3, 0),    s = 3 sqrt(log(6 / delta)) / epsilon,
    X'X~ = X'X + s Z_sym,    X'y~ = X'y + s z,
    lambda = max(0, s sqrt(d log(2 d^2 / rho)) - lambda_min~),
    theta = (X'X~ + lambda I)^{-1} X'y~,

each of the three releases with a third of epsilon and of delta.

diffprivlib 0.6.6 does not load beside scikit-learn 1.9 as it is; `logistic_objective` and `_diffprivlib` say
what is done about that.

**Privacy.** AdaSSP: add or remove one record, sensitivity 1 in each of the three releases after the scaling,
(epsilon, delta) by the Gaussian mechanism and composition as in its paper; the noise here is NumPy's, for
measurements only and not for release. diffprivlib: pure epsilon, its own claims and its own noise.
"""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Unit(NamedTuple):
    """Public map of columns onto [-1, 1]; a column whose bounds coincide maps to zero."""

    low: Array
    high: Array

    def __call__(self, values: Array) -> Array:
        """Scale values, clamped to the bounds."""
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        clamped = np.clip(values, self.low, self.high)
        return np.where(self.high > self.low, 2 * (clamped - self.low) / width - 1, 0.0)

    def back(self, values: Array) -> Array:
        """Undo the map."""
        return self.low + (values + 1) / 2 * (self.high - self.low)


def least_squares(X: Array, y: Array) -> Array:
    """Return the weights of least squares, the intercept first; the shortest where several serve.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> least_squares(X, 1 + 2 * X[:, 0]).round(6)
    array([1., 2.])
    """
    return np.asarray(np.linalg.lstsq(_with_ones(X), y, rcond=None)[0], np.float64)


def adassp(
    X: Array,
    y: Array,
    epsilon: float,
    delta: float,
    *,
    rng: np.random.Generator,
    norm: float | None = None,
    rho: float = 0.05,
) -> Array:
    """Return AdaSSP's weights, the intercept first, for a target within [-1, 1].

    Parameters
    ----------
    X, y
        Scaled by public numbers.
    epsilon, delta
        The budget, split in three.
    rng
        Source of the noise.
    norm
        Rows, the intercept's 1 included, are clipped to this norm; sqrt(d + 1) by default, which columns
        within [-1, 1] never exceed.
    rho
        Probability with which the ridge may be too small, 0.05 as in the paper.
    """
    size = math.sqrt(X.shape[1] + 1) if norm is None else norm
    A = _with_ones(X)
    A = A / np.maximum(size, np.linalg.norm(A, axis=1))[:, None]
    d = A.shape[1]
    sd = 3 * math.sqrt(math.log(6 / delta)) / epsilon
    gram = A.T @ A
    smallest = np.linalg.eigvalsh(gram)[0] + sd * rng.standard_normal() - sd**2 * epsilon / 3
    upper = np.triu(rng.standard_normal((d, d)))
    noisy = gram + sd * (upper + np.triu(upper, 1).T)
    cross = A.T @ y + sd * rng.standard_normal(d)
    ridge = max(0.0, sd * math.sqrt(d * math.log(2 * d**2 / rho)) - max(smallest, 0.0))
    return np.linalg.solve(noisy + ridge * np.eye(d), cross) / size


def logistic_objective(X: Array, y: Array, epsilon: float, data_norm: float) -> Array:
    """Return diffprivlib's private logistic weights, the intercept first.

    Its class hands scikit-learn an argument (``multi_class``) that scikit-learn 1.9 no longer takes, so this
    calls what the class's ``fit`` calls: rows clipped to the norm, then its objective perturbation.

    Parameters
    ----------
    X, y
        Features scaled by public bounds, and labels 0 and 1.
    data_norm
        Public bound of a row's norm.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its dependencies; not ours to mend
        models = _diffprivlib()
        path: Any = models.logistic_regression._logistic_regression_path
        norms = np.linalg.norm(X, axis=1)
        clipped = X / np.maximum(1.0, norms / data_norm)[:, None]
        weights = path(clipped, y, epsilon=epsilon, data_norm=data_norm, Cs=[1.0], max_iter=1000)[0][0]
    return np.concatenate([weights[-1:], weights[:-1]])


def functional_linear(X: Array, y: Array, epsilon: float) -> Array:
    """Return the weights of diffprivlib's linear regression, the intercept first, for data within [-1, 1].

    Its means and its objective (the functional mechanism) are perturbed with Laplace noise, and the noisy
    quadratic may have no minimum: then its optimiser stops somewhere far away, and so do its errors.
    """
    ones = np.ones(X.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = _diffprivlib()
        model = models.LinearRegression(epsilon=epsilon, bounds_X=(-ones, ones), bounds_y=(-1.0, 1.0)).fit(
            X, y
        )
    return np.concatenate([[float(model.intercept_)], np.asarray(model.coef_, np.float64).ravel()])


def linear_predictor(weights: Array, X: Array) -> Array:
    """Return the intercept plus the weighted columns of each row."""
    return weights[0] + X @ weights[1:]


def _with_ones(X: Array) -> Array:
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


def _diffprivlib() -> Any:
    """Import diffprivlib's models past two names that scikit-learn 1.9 no longer has.

    Its decision trees, which nothing here uses, import them when the package is loaded: they are names of
    NumPy's types.
    """
    import sklearn.tree._tree as tree

    for name, kind in (("DOUBLE", np.float64), ("DTYPE", np.float32)):
        if not hasattr(tree, name):
            setattr(tree, name, kind)
    import diffprivlib.models as models

    return models
