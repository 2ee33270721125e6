"""The peers do what their papers say: closed forms where there are any."""

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from dpsep_lab.bench import peers

DIFFPRIVLIB = pytest.mark.skipif(find_spec("diffprivlib") is None, reason="diffprivlib is not installed")


class Silent:
    """A generator whose noise is zero."""

    def standard_normal(self, size: Any = None) -> Any:
        return 0.0 if size is None else np.zeros(size)


def _made(records: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (records, 3))
    y = 0.2 + X @ [0.3, -0.2, 0.1] + 0.05 * rng.standard_normal(records)
    return X, np.clip(y, -1, 1)


def test_least_squares_agrees_with_the_normal_equations():
    X, y = _made()
    A = np.column_stack([np.ones(len(X)), X])
    np.testing.assert_allclose(peers.least_squares(X, y), np.linalg.solve(A.T @ A, A.T @ y), rtol=1e-10)


def test_adassp_with_a_huge_epsilon_is_least_squares():
    X, y = _made()
    weights = peers.adassp(X, y, 1e9, 1e-5, rng=np.random.default_rng(1))
    np.testing.assert_allclose(weights, peers.least_squares(X, y), atol=1e-6)


def test_adassp_without_noise_is_ridge_regression_with_the_ridge_of_its_paper():
    X, y = _made(300)
    epsilon, delta, d = 0.5, 1e-5, 4
    rows = np.column_stack([np.ones(len(X)), X]) / 2.0
    log6 = math.log(6 / delta)
    smallest = max(np.linalg.eigvalsh(rows.T @ rows)[0] - log6 / (epsilon / 3), 0.0)
    ridge = max(0.0, math.sqrt(d * log6 * math.log(2 * d**2 / 0.05)) / (epsilon / 3) - smallest)
    assert ridge > 0
    expected = np.linalg.solve(rows.T @ rows + ridge * np.eye(d), rows.T @ y) / 2.0
    silent: Any = Silent()
    np.testing.assert_allclose(peers.adassp(X, y, epsilon, delta, rng=silent), expected, rtol=1e-10)


def test_adassp_at_epsilon_one_predicts_better_than_the_mean():
    X, y = _made(20000)
    errors = []
    for seed in range(5):
        weights = peers.adassp(X, y, 1.0, 1e-5, rng=np.random.default_rng(seed))
        errors.append(np.sqrt(np.mean((peers.linear_predictor(weights, X) - y) ** 2)))
    assert 0.049 < np.mean(errors) < 0.5 * np.std(y)


def test_columns_are_mapped_onto_the_unit_interval_and_back_and_constant_ones_to_zero():
    unit = peers.Unit(np.array([0.0, 3.0]), np.array([4.0, 3.0]))
    values = np.array([[1.0, 3.0], [9.0, 3.0]])
    np.testing.assert_allclose(unit(values), [[-0.5, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(unit.back(unit(values)), [[1.0, 3.0], [4.0, 3.0]])


@DIFFPRIVLIB
def test_diffprivlibs_logistic_objective_with_a_huge_epsilon_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    X, _ = _made(3000)
    y = (np.random.default_rng(2).uniform(size=len(X)) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)
    ours = peers.logistic_objective(X, y, 1e6, math.sqrt(3))
    model = LogisticRegression(tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours, np.concatenate([model.intercept_, model.coef_[0]]), atol=0.02)


@DIFFPRIVLIB
def test_diffprivlibs_linear_regression_with_a_huge_epsilon_is_least_squares():
    X, y = _made()
    np.testing.assert_allclose(peers.functional_linear(X, y, 1e9), peers.least_squares(X, y), atol=1e-3)
