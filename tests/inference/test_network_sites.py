"""EP and sequential SEP on networks: where they start, that they forget it, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, Gaussian
from dpsep.inference import ep, sep
from dpsep.models import GLM, GaussianLikelihood
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_model import NetworkClassification, NetworkRegression

NOISE = 0.2


def bend(records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a function that no line follows, with known noise."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2, 2, (records, 1))
    return x, np.abs(x[:, 0]) - 1.0 + NOISE * generator.standard_normal(records)


MODEL = NetworkRegression((1, 12, 1), noise_model=ConcentratedNoise())


def started(model: NetworkRegression, seed: int = 0):
    prior, means = model.start(seed)
    weights = DiagonalGaussian.from_moments(means, jnp.ones(model.size))
    return model.layered(prior), model.layered(prior._replace(weights=weights))


def error(posterior) -> float:
    x, y = bend(1000, seed=5)
    return float(jnp.sqrt(jnp.mean((MODEL.predictive(posterior, x).mean - y) ** 2)))


def same(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def test_ep_starts_from_the_given_posterior_and_its_sites_hold_what_the_prior_does_not():
    with jax.enable_x64(True):
        prior, start = started(MODEL)
        state = ep.init(MODEL, prior, bend(50), start)
        same(state.posterior, start)
        total = jax.tree.map(lambda leaf, site: leaf + jnp.sum(site, 0), prior, state.sites)
        same(total, start, rtol=1e-12, atol=1e-12)


def test_ep_learns_a_bend_and_its_noise():
    with jax.enable_x64(True):
        prior, start = started(MODEL)
        state = ep.run(MODEL, prior, bend(300), max_iter=25, start=start)
        assert error(state.posterior) < 1.15 * NOISE
        # The prior Gamma(6, 6) counts as twelve records of unit noise; with known weights it is conjugate.
        conjugate = (6 + 300 * NOISE**2 / 2) / (6 + 300 / 2)
        assert 1 / float(state.posterior.noise.mean) == pytest.approx(conjugate, rel=0.2)


def test_with_all_means_zero_the_hidden_units_would_never_differ():
    """Every unit gets the same factors, by symmetry; the random start is what tells them apart."""
    with jax.enable_x64(True):
        prior, _ = started(MODEL)
        state = ep.run(MODEL, prior, bend(100), max_iter=2)
        hidden = state.posterior.weights.layers[0].mean
        np.testing.assert_allclose(hidden, jnp.broadcast_to(hidden[0], hidden.shape), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_the_start_is_forgotten_where_the_fixed_point_is_one(mode):
    """Without hidden units the posterior is unique, so that two starts must end in it."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((60, 2))
    records = (x, x @ [1.0, -1.0] + 0.5 * generator.standard_normal(60))
    model = NetworkRegression((2, 1), noise_model=ConcentratedNoise())
    with jax.enable_x64(True):
        prior, start = started(model)
        damping = 0.5 if mode == "parallel" else 0.0
        settings = {"mode": mode, "damping": damping, "max_iter": 400, "tol": 1e-10}
        plain = ep.run(model, prior, records, **settings)
        moved = ep.run(model, prior, records, **settings, start=start)
        assert float(plain.change) <= 1e-10
        assert float(moved.change) <= 1e-10
        same(plain.posterior, moved.posterior, rtol=1e-6)


def test_sites_that_need_too_much_memory_are_refused_before_they_are_made():
    model = NetworkRegression((9, 100, 1))
    rows = jax.eval_shape(lambda: jnp.zeros((41157, 9)))
    with jax.enable_x64(True):
        prior, _ = model.start(0)
        with pytest.raises(ValueError, match=r"692 MiB; at most 512.*float32.*sep"):
            ep.init(model, prior, (rows, rows))


def test_a_linear_model_with_scalar_sites_refuses_a_start():
    prior = Gaussian.isotropic(1)
    with pytest.raises(ValueError, match="two numbers a record"):
        ep.init(GLM(GaussianLikelihood()), prior, (jnp.ones((2, 1)), jnp.ones(2)), start=prior)


def test_sequential_sep_learns_the_bend_and_layers_give_what_one_vector_gives():
    records = bend(300)
    order = np.concatenate([np.random.default_rng(k).permutation(300) for k in range(30)])
    with jax.enable_x64(True):
        prior, start = started(MODEL)
        settings = sep.Settings(prior, 300, gamma=300.0)
        layered = sep.posterior(settings, sep.run(MODEL, settings, records, order, start))
        assert error(layered) < 1.3 * NOISE
        few = order[:300]
        flat = settings._replace(prior=MODEL.flat(prior))
        one = sep.run(MODEL, settings, records, few, start)
        other = sep.run(MODEL, flat, records, few, MODEL.flat(start))
        same(MODEL.flat(one.factor), other.factor, rtol=1e-6, atol=1e-12)


def test_no_clip_is_the_same_as_a_clip_that_is_never_reached():
    records = bend(40)
    with jax.enable_x64(True):
        prior, start = started(MODEL)
        settings = sep.Settings(prior, 40, gamma=40.0)
        free = sep.run(MODEL, settings, records, np.arange(40), start)
        none = sep.run(MODEL, settings._replace(clip=None), records, np.arange(40), start)
        wide = sep.run(MODEL, settings._replace(clip=1e12), records, np.arange(40), start)
        same(free.factor, wide.factor, rtol=0)
        same(free.factor, none.factor, rtol=1e-9, atol=1e-15)
        assert not sep.prior_exceeds(settings._replace(clip=None))


def test_sep_starts_from_the_given_posterior():
    with jax.enable_x64(True):
        prior, start = started(MODEL)
        settings = sep.Settings(prior, 7)
        same(sep.posterior(settings, sep.init(settings, start)), start, rtol=1e-12, atol=1e-12)


def test_a_classifier_runs_under_ep():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (150, 1))
    y = np.where(x[:, 0] > 0.5, 1.0, -1.0)
    model = NetworkClassification((1, 6, 1))
    with jax.enable_x64(True):
        prior, means = model.start(0)
        start = DiagonalGaussian.from_moments(means, jnp.ones(model.size))
        state = ep.run(model, prior, (x, y), max_iter=10, start=start)
        low, high = model.probability(state.posterior, np.array([[-1.5], [1.9]]))
        assert float(low) < 0.2
        assert float(high) > 0.8
