import sys

import jax
import numpy as np
import pytest

from dpsep.families import Gaussian
from dpsep.inference import nuts
from dpsep.models import GaussianLikelihood


def test_draws_have_the_moments_of_the_conjugate_posterior():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = x @ [1.0, 0.0, -1.0] + 0.5 * rng.normal(size=80)
    with jax.enable_x64(True):
        prior = Gaussian.from_moments(np.array([0.5, 0.0, 0.0]), np.eye(3))
        draws = nuts.run(
            GaussianLikelihood(4.0), prior, (x, y), jax.random.key(1), draws=4000, warmup=300, chains=2
        )
        exact = Gaussian(prior.eta + 4 * x.T @ y, prior.precision + 4 * x.T @ x)
        deviation = np.sqrt(exact.variance)
        np.testing.assert_array_less(np.abs(draws.mean - exact.mean), 0.08 * deviation)
        np.testing.assert_allclose(np.sqrt(np.diag(draws.covariance)), deviation, rtol=0.05)
    assert draws.weights.shape == (8000, 3)
    assert int(draws.diverging) == 0
    assert 0.6 < float(draws.acceptance) <= 1.0


def test_a_single_chain_in_float32_works():
    x, y = np.ones((20, 1), np.float32), np.ones(20, np.float32)
    draws = nuts.run(
        GaussianLikelihood(1.0), Gaussian.isotropic(1), (x, y), jax.random.key(0), 500, 200, chains=1
    )
    assert draws.weights.shape == (500, 1)
    assert float(draws.mean[0]) == pytest.approx(20 / 21, abs=0.1)


def test_without_numpyro_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro.infer", None)
    with pytest.raises(ImportError, match=r"dpsep\[truth\]"):
        nuts.run(
            GaussianLikelihood(1.0), Gaussian.isotropic(1), (np.ones((2, 1)), np.ones(2)), jax.random.key(0)
        )
