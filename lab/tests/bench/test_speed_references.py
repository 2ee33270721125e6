"""The slow references of the speed benchmark take the library's own steps."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import DiagonalGaussian, Gamma
from dpsep.inference import sep
from dpsep.models.base import Tilted
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.linear import LearnedNoise
from dpsep.models.network_model import NetworkRegression
from dpsep_lab.bench import reference_sep
from dpsep_lab.bench.reference_sep import AuthorsSep, NumpySep, Theta


@dataclass(frozen=True)
class MatchedNoise(LearnedNoise):
    """The noise of probabilistic backpropagation: moments through Z at shapes a, a + 1 and a + 2."""

    def tilted(self, mean: Any, variance: Any, noise: Gamma, y: Any) -> tuple[Tilted, Gamma]:
        a, b = noise.shape, noise.rate
        totals = [variance + b / (a - 1.0 + more) for more in range(3)]
        logs = [-0.5 * ((y - mean) ** 2 / total + jnp.log(total)) for total in totals]
        first = a / b * jnp.exp(logs[1] - logs[0])
        second = a * (a + 1.0) / b**2 * jnp.exp(logs[2] - logs[0])
        shape = first**2 / (second - first**2)
        k = 1.0 / totals[0]
        tilt = Tilted(logs[0], (y - mean) * k, k, 1.0 - variance * k)
        return tilt, Gamma(shape - 1.0 - noise.shape_minus_one, shape / first - b)


def _case(noise_model: LearnedNoise, widths: tuple[int, ...], records: int = 40) -> tuple[Any, ...]:
    model = NetworkRegression(widths, noise_model=noise_model)
    prior, means = model.start(seed=3)
    start = prior._replace(weights=DiagonalGaussian.from_moments(means, 0.2 + jnp.zeros(model.size)))
    generator = np.random.default_rng(0)
    x = generator.standard_normal((records, widths[0]))
    y = np.sin(x[:, 0]) + 0.2 * generator.standard_normal(records)
    order = generator.permutation(records)
    return model, model.layered(prior), model.layered(start), x, y, order


def _same(found: Theta, posterior: Any, tolerance: float = 1e-8) -> None:
    wanted = Theta.of(posterior)
    for mine, theirs in zip(
        (*found.etas, *found.precisions), (*wanted.etas, *wanted.precisions), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
    assert found.shape_minus_one == pytest.approx(wanted.shape_minus_one, rel=tolerance)
    assert found.rate == pytest.approx(wanted.rate, rel=tolerance)


@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("widths", [(3, 6, 1), (2, 5, 4, 1)])
def test_numpy_s_run_is_the_library_s(clip: float | None, widths: tuple[int, ...]):
    with jax.enable_x64(True):
        model, prior, start, x, y, order = _case(ConcentratedNoise(), widths)
        settings = sep.Settings(prior, len(x), gamma=float(len(x)), clip=clip)
        state = sep.run(model, settings, (x, y), order, start)
        wanted = sep.posterior(settings, state)
        found = NumpySep(Theta.of(prior), len(x), clip=clip).run(x, y, order, Theta.of(start))
        _same(found, wanted)
        assert not np.allclose(found.etas[0], Theta.of(start).etas[0])


def test_a_clip_changes_the_run():
    with jax.enable_x64(True):
        _, prior, start, x, y, order = _case(ConcentratedNoise(), (3, 6, 1))
    runs = [
        NumpySep(Theta.of(prior), len(x), clip=clip).run(x, y, order, Theta.of(start)) for clip in (None, 0.7)
    ]
    assert not np.allclose(runs[0].etas[0], runs[1].etas[0])


def test_the_authors_path_takes_the_library_s_steps_with_their_noise():
    with jax.enable_x64(True):
        model, prior, start, x, y, order = _case(MatchedNoise(), (3, 6, 1))
        settings = sep.Settings(prior, len(x), gamma=float(len(x)), clip=None)
        wanted = sep.posterior(settings, sep.run(model, settings, (x, y), order, start))
        found = AuthorsSep(Theta.of(prior), len(x)).run(x, y, order, Theta.of(start))
        _same(found, wanted)


def test_the_two_references_differ_only_in_the_noise_s_rule():
    with jax.enable_x64(True):
        _, prior, start, x, y, _ = _case(ConcentratedNoise(), (3, 6, 1))
        known = Theta.of(start)._replace(shape_minus_one=1e6 - 1.0, rate=1e6)
        factors = [
            kind(Theta.of(prior), len(x)).local_factor(known, x[0], float(y[0]))
            for kind in (NumpySep, AuthorsSep)
        ]
    for mine, theirs in zip(factors[0].etas, factors[1].etas, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_graph_is_compiled_once():
    assert reference_sep._graph() is reference_sep._graph()
