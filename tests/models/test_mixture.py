import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.stats

from dpsep.families import GaussianSet
from dpsep.inference import sep
from dpsep.models import KnownMixture, labelled_posterior
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

WEIGHTS, VARIANCE = (0.2, 0.3, 0.5), 0.3
MODEL = KnownMixture(WEIGHTS, VARIANCE)


def cavity(seed: int, dimension: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Eta and precisions of three components, the precisions about `scale` over the noise variance."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, dimension, dimension))
    precision = root @ root.swapaxes(1, 2) / dimension + 0.3 * np.eye(dimension)
    precision *= scale / VARIANCE
    return np.einsum("jik,jk->ji", precision, rng.normal(size=(3, dimension))), precision


def factor(eta, precision, x) -> GaussianSet:
    return MODEL.local_factor(GaussianSet(jnp.asarray(eta), jnp.asarray(precision)), jnp.asarray(x))


def by_moments(eta, precision, x) -> tuple[np.ndarray, np.ndarray]:
    """Tilted minus cavity from the moment formulas, inverse for inverse, with 60 digits."""
    with mp.workdps(60):
        one, point = mp.eye(len(x)), mp.matrix(x.tolist())
        parts, logs = [], []
        for j, weight in enumerate(WEIGHTS):
            covariance = mp.matrix(precision[j].tolist()) ** -1
            mean = covariance * mp.matrix(eta[j].tolist())
            away, total = point - mean, covariance + mp.mpf(VARIANCE) * one
            square = (away.T * total**-1 * away)[0]
            logs.append(mp.log(weight) - (square + mp.log(mp.det(total))) / 2)
            parts.append((mean, covariance, covariance * total**-1, away))
        top = sum(mp.exp(log) for log in logs)
        etas, precisions = [], []
        for j, (mean, covariance, gain, away) in enumerate(parts):
            r = mp.exp(logs[j]) / top
            move = gain * away
            tilted = (covariance - r * gain * covariance + r * (1 - r) * move * move.T) ** -1
            etas.append(tilted * (mean + r * move) - mp.matrix(eta[j].tolist()))
            precisions.append(tilted - mp.matrix(precision[j].tolist()))
        return (
            np.array([[float(v) for v in e] for e in etas]),
            np.array([np.array(p.tolist(), float) for p in precisions]),
        )


@pytest.mark.parametrize("dimension", [1, 2, 4, 9])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4, 1e8])
def test_the_factor_keeps_its_digits_against_any_cavity(dimension, scale):
    eta, precision = cavity(int(math.log10(scale)) + 10, dimension, scale)
    x = np.random.default_rng(0).normal(size=dimension)
    expected_eta, expected_precision = by_moments(eta, precision, x)
    with jax.enable_x64(True):
        f = factor(eta, precision, x)
        for j in range(3):
            error = np.linalg.norm(f.eta[j] - expected_eta[j]) / np.linalg.norm(expected_eta[j])
            assert error < 1e-11
            size = np.linalg.norm(expected_precision[j])
            assert np.linalg.norm(f.precision[j] - expected_precision[j]) < 1e-11 * size
        np.testing.assert_array_equal(f.precision, np.swapaxes(f.precision, 1, 2))


def test_in_single_precision_the_factor_has_single_precision():
    for scale in (1e-2, 1.0, 1e5):
        eta, precision = cavity(3, 4, scale)
        x = np.random.default_rng(1).normal(size=4)
        _, expected = by_moments(eta, precision, x)
        f = factor(eta.astype(np.float32), precision.astype(np.float32), x.astype(np.float32))
        assert f.precision.dtype == jnp.float32
        for j in range(3):
            assert np.linalg.norm(f.precision[j] - expected[j]) < 1e-3 * np.linalg.norm(expected[j])


@pytest.mark.parametrize("dimension", [1, 2])
def test_cavity_times_factor_has_the_moments_of_the_tilted_density_by_quadrature(dimension):
    eta, precision = cavity(4, dimension)
    x = np.array([0.4, -0.7])[:dimension]
    covariance = np.linalg.inv(precision)
    mean = np.einsum("jik,jk->ji", covariance, eta)
    # The marginal of mu_j under cavity times likelihood: its own term, and the others integrated.
    side = np.linspace(-12.0, 12.0, 601)
    grid = np.stack(np.meshgrid(*[side] * dimension, indexing="ij"), -1).reshape(-1, dimension)
    evidence = [
        w * scipy.stats.multivariate_normal(m, c + VARIANCE * np.eye(dimension)).pdf(x)  # pyright: ignore
        for w, m, c in zip(WEIGHTS, mean, covariance, strict=True)
    ]
    with jax.enable_x64(True):
        f = factor(eta, precision, x)
        tilted = GaussianSet(jnp.asarray(eta) + f.eta, jnp.asarray(precision) + f.precision)
        for j in range(3):
            noise = scipy.stats.multivariate_normal(x, VARIANCE * np.eye(dimension))  # pyright: ignore
            likelihood = WEIGHTS[j] * noise.pdf(grid) + sum(evidence) - evidence[j]
            prior = scipy.stats.multivariate_normal(mean[j], covariance[j])  # pyright: ignore
            mass = prior.pdf(grid) * likelihood
            mass = mass / mass.sum()
            first = mass @ grid
            second = (grid - first).T @ (mass[:, None] * (grid - first))
            np.testing.assert_allclose(tilted.mean[j], first, atol=1e-9)
            np.testing.assert_allclose(tilted.covariance[j], second, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e8])
def test_with_one_component_the_factor_is_the_conjugate_update_exactly(scale):
    with jax.enable_x64(True):
        x = jnp.array([1.0, -2.0, 0.5])
        q = GaussianSet(
            jnp.ones((1, 3)), scale * jnp.array([[[2.0, 0.3, 0], [0.3, 1.0, 0.1], [0, 0.1, 3.0]]])
        )
        f = KnownMixture((1.0,), 0.25).local_factor(q, x)
        np.testing.assert_array_equal(f.eta[0], 4.0 * x)
        np.testing.assert_array_equal(f.precision[0], 4.0 * np.eye(3))


def test_permuting_the_components_permutes_the_factors():
    eta, precision = cavity(5, 3)
    x, turn = np.array([0.1, 0.7, -0.2]), [2, 0, 1]
    with jax.enable_x64(True):
        f = factor(eta, precision, x)
        turned = KnownMixture(tuple(WEIGHTS[j] for j in turn), VARIANCE)
        g = turned.local_factor(GaussianSet(jnp.asarray(eta[turn]), jnp.asarray(precision[turn])), x)
        np.testing.assert_allclose(g.eta, f.eta[np.array(turn)], rtol=1e-12)
        np.testing.assert_allclose(g.precision, f.precision[np.array(turn)], rtol=1e-12, atol=1e-13)


def test_a_component_far_from_the_record_learns_nothing():
    with jax.enable_x64(True):
        q = GaussianSet.from_moments(np.array([[0.0, 0.0], [200.0, 0.0], [0.0, -200.0]]), 0.1 * np.eye(2))
        f = MODEL.local_factor(q, jnp.array([0.3, 0.1]))
        np.testing.assert_allclose(f.eta, [[1.0, 1.0 / 3.0], [0, 0], [0, 0]], rtol=1e-12, atol=1e-300)
        np.testing.assert_array_equal(f.precision[1:], 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dimension", [2, 9])
def test_a_record_with_a_bad_cell_gives_nan_throughout_and_nothing_behind_a_gate(bad, dimension):
    with jax.enable_x64(True):
        q = GaussianSet(*map(jnp.asarray, cavity(6, dimension)))
        x = np.zeros((2, dimension))
        x[0, 1] = bad
        f = MODEL.local_factor(q, jnp.asarray(x[0]))
        assert np.all(np.isnan(f.eta))
        assert np.all(np.isnan(f.precision))
        blocks = [Block("factor", 3 * (dimension + dimension * (dimension + 1) // 2), 5.0)]
        contribution: Any = sep.FactorContribution(MODEL)
        both = OpenGate((x,), blocks, contribution).release(q)["factor"]
        one = OpenGate((x[1:],), blocks, contribution).release(q)["factor"]
        np.testing.assert_array_equal(both, one)
        assert np.any(one != 0)
        row = MODEL.responsibilities(q, x)
        assert np.all(np.isnan(row[0]))
        assert np.all(np.isfinite(row[1]))


def test_a_cavity_that_is_no_density_gives_nan():
    q = GaussianSet.isotropic(3, 2)
    f = MODEL.local_factor(GaussianSet(q.eta, q.precision.at[0, 0, 0].set(-1.0)), jnp.zeros(2))
    assert np.all(np.isnan(f.precision[0]))


def test_responsibilities_and_predictive_density_are_those_of_the_mixture_of_predictives():
    with jax.enable_x64(True):
        q = GaussianSet(*map(jnp.asarray, cavity(7, 2)))
        x = np.random.default_rng(2).normal(size=(5, 2))
        dense = np.stack(
            [
                w * scipy.stats.multivariate_normal(m, c + VARIANCE * np.eye(2)).pdf(x)  # pyright: ignore
                for w, m, c in zip(WEIGHTS, np.asarray(q.mean), np.asarray(q.covariance), strict=True)
            ],
            1,
        )
        np.testing.assert_allclose(MODEL.log_predictive(q, x), np.log(dense.sum(1)), rtol=1e-10)
        r = MODEL.responsibilities(q, x)
        np.testing.assert_allclose(r, dense / dense.sum(1, keepdims=True), rtol=1e-10)
        assert MODEL.components == 3


def test_with_labels_the_posterior_is_the_product_of_the_factors_of_one_component_each():
    rng = np.random.default_rng(3)
    x, labels = rng.normal(size=(7, 2)), np.array([0, 2, 2, 0, 0, 2, 0])
    with jax.enable_x64(True):
        prior = GaussianSet(
            jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(np.tile(0.5 * np.eye(2), (3, 1, 1)))
        )
        q = labelled_posterior(prior, x, labels, 0.25)
        for j, count in enumerate([4, 0, 3]):
            np.testing.assert_allclose(q.precision[j], (0.5 + 4.0 * count) * np.eye(2), rtol=1e-13)
            own = np.asarray(prior.eta[j]) + 4.0 * x[labels == j].sum(0)
            np.testing.assert_allclose(q.eta[j], own, rtol=1e-12)


def test_weights_and_variance_are_checked():
    for weights in ((), (0.5, -0.5, 1.0), (0.5, 0.0, 0.5), (math.nan, 0.5), [0.5, 0.5]):
        with pytest.raises(ValueError, match="tuple of positive numbers"):
            KnownMixture(weights, 1.0)  # pyright: ignore
    with pytest.raises(ValueError, match="sum to one"):
        KnownMixture((0.5, 0.4), 1.0)
    for variance in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive finite"):
            KnownMixture((0.5, 0.5), variance)
    with pytest.raises(ValueError, match="positive finite"):
        labelled_posterior(GaussianSet.isotropic(2, 1), np.ones((1, 1)), np.array([0]), 0.0)
    for labels in ([2], [-1], [0.0]):
        with pytest.raises(ValueError, match="from 0 to 1"):
            labelled_posterior(GaussianSet.isotropic(2, 1), np.ones((1, 1)), np.array(labels), 1.0)
    with pytest.raises(ValueError, match="one weight for each component"):
        MODEL.local_factor(GaussianSet.isotropic(2, 1), jnp.ones(1))


def test_weights_are_used_normalised():
    with jax.enable_x64(True):
        rough = KnownMixture((0.2 + 5e-7, 0.8), 1.0)
        q = GaussianSet.isotropic(2, 1)
        # Both components are alike, so the predictive density is a single N(0; 0, 2).
        expected = -0.5 * math.log(4 * math.pi)
        assert float(rough.log_predictive(q, np.zeros((1, 1)))[0]) == pytest.approx(expected, abs=1e-12)
    assert hash(rough) == hash(KnownMixture((0.2 + 5e-7, 0.8), 1.0))
