"""Compiled loops over records: the same results as the JAX forms, with and without clips and noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian
from dpsep.inference import compiled, fast_sep, pbp, sep
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.linear import LearnedNoise
from dpsep.models.network_model import NetworkClassification, NetworkRegression

needs_numba = pytest.mark.skipif(not compiled.available(), reason="needs the extra 'fast'")
ROWS, INPUTS = 40, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, INPUTS))
Y = np.tanh(X[:, 0] * X[:, 1]) + 0.1 * RNG.normal(size=ROWS)
ORDER = np.concatenate([RNG.permutation(ROWS) for _ in range(3)])


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


def network(*hidden: int) -> NetworkRegression:
    return NetworkRegression((INPUTS, *hidden, 1), noise_model=ConcentratedNoise())


def start_of(model: NetworkRegression) -> tuple[Any, Any]:
    prior, means = model.start(seed=0)
    return prior, prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.ones(model.size)))


def agree(found: Any, wanted: Any, rtol: float) -> None:
    leaves = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * float(np.max(np.abs(other))))


@needs_numba
@pytest.mark.parametrize(
    ("hidden", "clip", "gamma"), [((), None, ROWS), ((5,), None, ROWS), ((5,), 0.3, ROWS), ((5, 3), 2.0, 7.0)]
)
def test_sequential_sep_is_that_of_jax(hidden: tuple[int, ...], clip: float | None, gamma: float) -> None:
    model = network(*hidden)
    prior, start = start_of(model)
    settings = sep.Settings(prior, ROWS, gamma=float(gamma), clip=clip)
    wanted = sep.run(model, settings, (X, Y), ORDER, start)
    found = fast_sep.sequential(model, settings, (X, Y), ORDER, start)
    agree(found.factor, wanted.factor, 1e-10)
    assert int(found.step) == len(ORDER)
    single = fast_sep.sequential(model, settings, (X, Y), ORDER, start, dtype=np.float32)
    agree(single.factor, wanted.factor, 1e-3)


@needs_numba
def test_a_long_run_is_compiled_and_has_the_form_of_its_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(5)
    prior, start = (model.layered(each) for each in start_of(model))
    settings = sep.Settings(prior, ROWS, gamma=float(ROWS))
    wanted = sep.run(model, settings, (X, Y), ORDER, start)
    called = []
    sequential = fast_sep.sequential
    monkeypatch.setattr(fast_sep, "sequential", lambda *a, **k: called.append(1) or sequential(*a, **k))
    monkeypatch.setattr(compiled, "WORTH", 0.0)
    found = sep.run(model, settings, (X, Y), ORDER, start)
    assert called
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    agree(found.factor, wanted.factor, 1e-10)
    sep.run(model, settings._replace(clip=(1.0,) * len(jax.tree.leaves(prior))), (X, Y), ORDER[:3], start)
    assert len(called) == 1  # a clip for each leaf has no compiled form


@needs_numba
def test_a_record_without_a_number_moves_nothing_under_a_clip() -> None:
    model = network(5)
    prior, start = start_of(model)
    settings = sep.Settings(prior, ROWS, gamma=float(ROWS), clip=1.0)
    bad = X.copy()
    bad[3, 1] = np.nan
    wanted = sep.run(model, settings, (bad, Y), ORDER, start)
    found = fast_sep.sequential(model, settings, (bad, Y), ORDER, start)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.factor))
    agree(found.factor, wanted.factor, 1e-10)


@needs_numba
@pytest.mark.parametrize("hidden", [(), (5,), (5, 3)])
def test_filtering_is_that_of_jax(hidden: tuple[int, ...]) -> None:
    model = network(*hidden)
    _, start = start_of(model)
    wanted = jax.jit(lambda posterior: pbp.multiply_in(model, posterior, (jnp.asarray(X), jnp.asarray(Y))))(
        start
    )
    agree(fast_sep.filtering(model, start, (X, Y)), wanted, 1e-10)


@needs_numba
def test_probabilistic_backpropagation_is_the_same_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, _ = pbp.run(network(5), (X, Y), passes=2)
    monkeypatch.setattr(compiled, "WORTH", 0.0)
    found, _ = pbp.run(network(5), (X, Y), passes=2)
    agree(found, wanted, 1e-10)


@needs_numba
@pytest.mark.parametrize("noise", ["float", "secure"])
def test_noise_of_every_step_has_its_deviation(noise: Any) -> None:
    model = network(60)
    prior, start = start_of(model)
    settings = sep.Settings(prior, ROWS, gamma=float(ROWS), clip=1e3)
    plain = sep.posterior(settings, fast_sep.sequential(model, settings, (X, Y), [0], start))

    def noisy() -> Any:
        found = fast_sep.noisy(model, settings, (X, Y), [0], start, deviation=0.01, noise=noise)
        return sep.posterior(settings, found)

    moved = noisy()
    for part in ("eta", "precision"):
        draws = np.asarray(getattr(moved.weights, part) - getattr(plain.weights, part)) / 0.01
        count = len(draws)
        assert abs(np.mean(draws**2) - 1.0) < 5.0 * np.sqrt(2.0 / count)
        assert abs(np.mean(draws)) < 5.0 / np.sqrt(count)
    # One number on the grid of secure noise stays where it is once in some thirty times.
    assert any(float(noisy().noise.rate) != float(plain.noise.rate) for _ in range(8))


@needs_numba
def test_noise_moves_a_posterior_by_steps_that_stay_proper() -> None:
    model = network(5)
    prior, start = start_of(model)
    settings = sep.Settings(prior, ROWS, gamma=float(ROWS), clip=1.0, floor=0.1)
    found = fast_sep.noisy(model, settings, (X, Y), np.tile(ORDER, 2), start, deviation=2.0)
    posterior = sep.posterior(settings, found)
    assert float(jnp.min(posterior.weights.precision)) > 0.1 - 1e-9
    assert float(sep.norm(found.factor)) <= 1.0 + 1e-9


def test_what_has_no_compiled_form_is_refused_or_left_to_jax() -> None:
    assert compiled.covers(network(5))
    others = [
        NetworkRegression((2, 3, 1), "sigmoid", ConcentratedNoise()),
        NetworkRegression((2, 3, 1), noise_model=LearnedNoise()),
        NetworkClassification((2, 3, 1)),
    ]
    for other in others:
        assert not compiled.covers(other)
        assert not compiled.worth(other, 10**12)
        with pytest.raises(ValueError, match="no compiled form"):
            fast_sep.filtering(other, None, (X, Y))
    assert not compiled.worth(network(5), 10)


def test_noise_needs_a_clip() -> None:
    model = network(5)
    settings = sep.Settings(model.start(seed=0)[0], ROWS, clip=None)
    with pytest.raises(ValueError, match="clip is not finite"):
        fast_sep.noisy(model, settings, (X, Y), [0], deviation=1.0)
