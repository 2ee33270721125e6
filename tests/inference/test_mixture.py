"""Every algorithm on the paper's mixture of Gaussians, against the posterior that knows the labels."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import GaussianSet
from dpsep.inference import adf, ep, nuts, sep
from dpsep.models import KnownMixture, labelled_posterior

VARIANCE = 0.25


def mixture(components: int) -> KnownMixture:
    return KnownMixture((1.0 / components,) * components, VARIANCE)


def data(seed: int, count: int, components: int = 4, dimension: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Records and labels of the paper's first experiment, at any size."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(components, dimension)) + rng.normal(size=(components, dimension))
    labels = rng.integers(components, size=count)
    return means[labels] + math.sqrt(VARIANCE) * rng.normal(size=(count, dimension)), labels


def wide_prior(components: int = 4, dimension: int = 4) -> GaussianSet:
    """Precision 0.1, with different means, by which the components find different records."""
    means = np.random.default_rng(0).normal(size=(components, dimension))
    precision = np.tile(0.1 * np.eye(dimension), (components, 1, 1))
    return GaussianSet(jnp.asarray(0.1 * means), jnp.asarray(precision))


def errors(q: GaussianSet, truth: GaussianSet) -> tuple[float, float]:
    """Squared error of means and covariances, averaged over components, in the order that fits best."""
    mean, covariance = np.asarray(q.mean), np.asarray(q.covariance)
    exact, spread = np.asarray(truth.mean), np.asarray(truth.covariance)
    orders = map(list, itertools.permutations(range(len(mean))))
    best = min(orders, key=lambda order: np.sum((mean[order] - exact) ** 2))
    count = len(mean)
    return float(np.sum((mean[best] - exact) ** 2)) / count, float(
        np.sum((covariance[best] - spread) ** 2)
    ) / count


def test_sequential_expectation_propagation_finds_the_labelled_posterior_at_the_papers_size():
    model = mixture(4)
    with jax.enable_x64(True):
        prior = wide_prior()
        run = jax.jit(lambda x: ep.run(model, prior, x, max_iter=30))
        found = []
        for seed in range(5):
            x, labels = data(seed, 1000)
            state = run(jnp.asarray(x))
            assert float(state.change) <= 1e-8
            found.append(errors(state.posterior, labelled_posterior(prior, x, labels, VARIANCE)))
        mean, covariance = np.median(found, 0)
        assert mean < 0.001
        assert covariance < 1e-6


def test_stochastic_and_filtered_posteriors_are_near_it_too():
    model, count = mixture(3), 300
    with jax.enable_x64(True):
        prior = wide_prior(3, 2)
        settings = sep.Settings(prior, count, gamma=float(count))
        order = np.concatenate([np.random.default_rng(p).permutation(count) for p in range(20)])
        filtered = jax.jit(lambda x: adf.run(model, prior, x)[0].posterior)
        found = []
        for seed in range(6):
            x, labels = data(seed, count, 3, 2)
            truth = labelled_posterior(prior, x, labels, VARIANCE)
            q = sep.posterior(settings, sep.run(model, settings, jnp.asarray(x), order))
            found.append([errors(q, truth), errors(filtered(jnp.asarray(x)), truth)])
        medians = np.median(found, 0)
        assert np.all(medians[:, 0] < 0.01)  # a component's posterior deviation is about 0.05 in a coordinate
        assert np.all(medians[:, 1] < 1e-5)


def test_components_far_apart_make_every_algorithm_exact():
    rng = np.random.default_rng(1)
    centres, labels = np.array([[-20.0, 0.0], [20.0, 0.0]]), rng.integers(2, size=40)
    x = centres[labels] + 0.5 * rng.normal(size=(40, 2))
    model = mixture(2)
    with jax.enable_x64(True):
        prior = GaussianSet.from_moments(centres / 2, 10.0 * np.eye(2))
        truth = labelled_posterior(prior, x, labels, VARIANCE)
        settings = sep.Settings(prior, 40, gamma=2.0)
        order = np.concatenate([rng.permutation(40) for _ in range(400)])
        for q in (
            ep.run(model, prior, jnp.asarray(x)).posterior,
            ep.run(model, prior, jnp.asarray(x), mode="parallel").posterior,
            adf.run(model, prior, jnp.asarray(x))[0].posterior,
        ):
            np.testing.assert_allclose(q.eta, truth.eta, rtol=1e-10, atol=1e-8)
            np.testing.assert_allclose(q.precision, truth.precision, rtol=1e-10, atol=1e-8)
        # Here the one factor of SEP is a moving average of the records' own, over N^2 / gamma = 800 of them.
        q = sep.posterior(settings, sep.run(model, settings, x, order))
        np.testing.assert_allclose(q.precision, truth.precision, rtol=0.05, atol=1e-8)
        np.testing.assert_allclose(q.mean, truth.mean, atol=0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_record_with_a_bad_cell_is_passed_over(bad):
    x, _ = data(0, 60, 2, 2)
    spoiled = np.insert(x, 17, [bad, 0.0], axis=0)
    model = mixture(2)
    with jax.enable_x64(True):
        prior = wide_prior(2, 2)
        for run in (
            lambda rows: ep.run(model, prior, rows).posterior,
            lambda rows: adf.run(model, prior, rows)[0].posterior,
        ):
            clean, other = run(jnp.asarray(x)), run(jnp.asarray(spoiled))
            np.testing.assert_allclose(other.eta, clean.eta, rtol=1e-10)
            np.testing.assert_allclose(other.precision, clean.precision, rtol=1e-10, atol=1e-10)
        settings = sep.Settings(prior, 60, gamma=60.0, clip=(50.0, 50.0))
        state = sep.run(model, settings, spoiled, np.arange(61))
        assert bool(sep.posterior(settings, state).is_proper)


def test_noise_that_breaks_positive_definiteness_leaves_a_proper_mixture_posterior():
    x, _ = data(0, 50, 3, 2)
    model = mixture(3)
    with jax.enable_x64(True):
        settings = sep.Settings(wide_prior(3, 2), 50, clip=(10.0, 10.0), floor=0.05)
        for steps in (1, 2, 3):
            state = sep.simulate(model, settings, x, np.arange(steps), jax.random.key(0), (0.5, 0.5))
            least = np.linalg.eigvalsh(sep.posterior(settings, state).precision)[:, 0]
            assert np.all(least > 0.05 - 1e-9)
            assert np.any(least < 0.05 + 1e-9)
            assert np.all(np.isfinite(state.factor.eta))


def test_monte_carlo_with_labels_has_the_moments_of_the_closed_form():
    x, labels = data(3, 60, 3, 2)
    with jax.enable_x64(True):
        prior = wide_prior(3, 2)
        draws = nuts.run_mixture(
            mixture(3), prior, x, jax.random.key(0), start=prior.mean, labels=labels, draws=2000, warmup=300
        )
        truth = labelled_posterior(prior, x, labels, VARIANCE)
        deviation = np.sqrt(truth.variance)
        assert draws.means.shape == (4000, 3, 2)
        assert int(draws.diverging) == 0
        np.testing.assert_array_less(np.abs(draws.mean - truth.mean), 0.1 * deviation)
        scale = deviation[:, :, None] * deviation[:, None, :]
        np.testing.assert_allclose(draws.covariance / scale, truth.covariance / scale, atol=0.12)


def test_monte_carlo_without_labels_agrees_with_quadrature_in_one_dimension():
    # Two overlapping components; the prior sets them apart, so that there is one mode.
    x = np.array([[-1.0], [-0.6], [-0.2], [0.3], [0.5], [1.1]])
    model = KnownMixture((0.4, 0.6), VARIANCE)
    side = np.linspace(-3.0, 3.0, 401)
    left, right = np.meshgrid(side, side, indexing="ij")
    logs = -0.5 * 4.0 * ((left + 1.0) ** 2 + (right - 1.0) ** 2)
    for value in x[:, 0]:
        parts = 0.4 * np.exp(-((value - left) ** 2) / 0.5) + 0.6 * np.exp(-((value - right) ** 2) / 0.5)
        logs = logs + np.log(parts)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = np.array([np.sum(mass * left), np.sum(mass * right)])
    variance = np.array([np.sum(mass * left**2), np.sum(mass * right**2)]) - mean**2
    with jax.enable_x64(True):
        prior = GaussianSet.from_moments(np.array([[-1.0], [1.0]]), 0.25 * np.eye(1))
        draws = nuts.run_mixture(
            model, prior, x, jax.random.key(1), start=prior.mean, draws=4000, warmup=500, chains=2
        )
        np.testing.assert_allclose(draws.mean[:, 0], mean, atol=0.08 * math.sqrt(variance.max()))
        np.testing.assert_allclose(draws.covariance[:, 0, 0], variance, rtol=0.1)
        with pytest.raises(ValueError, match="one mean for each component"):
            nuts.run_mixture(model, prior, x, jax.random.key(1), start=np.zeros((3, 1)))
