"""Fits by weighted scores: caps, geometry, shrinkage, and the root and widths that they end at."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import root
from scipy.special import expit

from dpsep import LinearRegression, LogisticRegression, PoissonRegression
from dpsep.estimators.input_checks import Structure
from dpsep.estimators.run import _weighted_settings
from dpsep.families.columns import Columns
from dpsep.inference import caps, leverage, shrinkage, weighted
from dpsep.inference.caps import Sizes
from dpsep.models.base import Unit
from dpsep.models.weighted import CELLS
from dpsep.privacy.open_gate import OpenGate
from dpsep.theory.weighted_defaults import WeightedPlan, open_weighted_plan

ROWS = 4000


def made(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A plain column, a skewed one, one that is 1 in a fiftieth of the rows; labels by a logistic model."""
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        [rng.uniform(-1, 1, ROWS), np.minimum(rng.lognormal(size=ROWS) / 10, 1.0), rng.random(ROWS) < 0.02]
    )
    u = -0.5 + x @ [1.0, 2.0, 1.5]
    return x.astype(float), np.where(rng.random(ROWS) < expit(u), 1.0, -1.0)


def columns(width: int) -> Columns:
    return Columns(-np.ones(width), np.ones(width), np.zeros(width), np.ones(width))


class Noisy:
    """Opens gates that add seeded noise of one size to exact sums, relative to clips."""

    def __init__(self, sigma: float, *arrays: np.ndarray) -> None:
        self.sigma, self.arrays, self.rng = sigma, arrays, np.random.default_rng(5)

    def __call__(self, blocks: Any, contribution: Any) -> Any:
        gate: Any = OpenGate(self.arrays, blocks, contribution)
        noise = {block.name: self.sigma * block.clip / np.sqrt(block.share) for block in blocks}
        outer = self

        class Gate:
            records, expected_batch, deviations = gate.records, gate.expected_batch, noise

            def release(self, public: Any) -> dict[str, np.ndarray]:
                found = gate.release(public)
                for name, value in found.items():
                    extra = noise[name] * outer.rng.standard_normal(value.shape)
                    found[name] = value + ((extra + extra.T) / 2 if value.ndim == 2 else extra)
                return found

        return Gate()


# Geometry.


def test_without_noise_the_geometry_is_that_of_the_columns_down_to_rare_ones() -> None:
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.uniform(-1, 1, 20_000), rng.random(20_000) < 0.005]).astype(float)
    found = leverage.run(
        partial(OpenGate, (x, np.zeros(len(x)))), columns(2), columns(1), 3, intercept=True, bounded=True
    )
    full = np.column_stack([np.ones(len(x)), x])
    truth = full.T @ full / len(x)
    lower = np.linalg.inv(np.linalg.cholesky(truth))
    assert np.linalg.eigvalsh(lower @ found.second @ lower.T).min() > 0.99
    np.testing.assert_allclose(found.deviation[1:], x.std(axis=0), rtol=1e-3)
    assert not found.hidden.any()
    # A = R^-1/4 D^-1/4
    size = np.diag(truth)
    value, vectors = np.linalg.eigh(truth / np.sqrt(np.outer(size, size)))
    np.testing.assert_allclose(
        found.map, (vectors * value**-0.25) @ vectors.T * size**-0.25, rtol=1e-3, atol=1e-4
    )


def test_a_scale_that_noise_hides_is_said_to_be_hidden_and_not_invented() -> None:
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.uniform(-1, 1, 500), rng.random(500) < 0.004, np.full(500, 0.2)]).astype(float)
    noisy = Noisy(30.0, x, np.zeros(500))
    found = leverage.run(noisy, columns(3), columns(1), 4, intercept=True, bounded=True)
    assert found.hidden.tolist() == [False, False, True, True]
    assert found.deviation[1] == pytest.approx(x[:, 0].std(), rel=0.3)
    assert (found.deviation[2:] < 0.6).all(), "no more than the noise would have shown"


def test_a_record_far_outside_moves_nothing_but_its_own_weight() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (5000, 1))
    far = x.copy()
    far[0] = 1e6
    wide = columns(1)._replace(low=np.full(1, -np.inf), high=np.full(1, np.inf))
    geometries = [
        leverage.run(Noisy(3.0, table, np.zeros(5000)), wide, wide, 2, intercept=True, bounded=False)
        for table in (x, far)
    ]
    np.testing.assert_allclose(geometries[1].second, geometries[0].second, rtol=0.01, atol=0.01)


# Caps.


def test_caps_open_as_noise_vanishes() -> None:
    sizes = Sizes(np.array([900.0, 300.0, 80.0, 6.0, 1.0]), 2.0 ** np.arange(5.0))
    unit = Unit(1.0, 0.25)
    score = [caps.score_cap(sizes, hidden, unit, 4) ** 2 for hidden in (0.0, 10.0, 1000.0)]
    curvature = [caps.curvature_cap(sizes, hidden, 4) for hidden in (0.0, 1.0, 1000.0)]
    assert score[0] == curvature[0] == 16.0
    assert score == sorted(score, reverse=True)
    assert curvature == sorted(curvature, reverse=True)
    assert score[-1] == curvature[-1] == 1.0


@pytest.mark.parametrize("noise", [0.0, 5.0, 40.0])
def test_the_highest_half_octave_that_stands_out_leaves_next_to_no_one_out(noise: float) -> None:
    rng = np.random.default_rng(3)
    size = rng.chisquare(3, 3000)
    top = 2.0**6
    place = np.clip(CELLS - 1 - np.floor(2 * np.log2(top / size)), 0, CELLS - 1).astype(int)
    counts = np.bincount(place, minlength=CELLS)
    for _ in range(50):
        cap = caps.highest(counts + noise * rng.standard_normal(CELLS), noise, top)
        assert np.mean(size > cap) < 0.02 + noise / 400
        assert cap <= 2 * top if noise else cap <= 2 * size.max()


def test_the_middle_of_residuals_is_their_deviation() -> None:
    residuals = np.abs(0.3 * np.random.default_rng(4).standard_normal(20_000))
    place = np.clip(CELLS - 1 - np.floor(2 * np.log2(4.0 / residuals)), 0, CELLS - 1).astype(int)
    found = caps.deviation(np.bincount(place, minlength=CELLS).astype(float), 1.0, 4.0)
    assert 0.3 <= found <= 0.3 * 2**0.5


# Shrinkage.


def test_shrinkage_is_none_without_noise_and_all_where_noise_hides() -> None:
    rng = np.random.default_rng(5)
    half = rng.standard_normal((4, 4))
    truth, promise = half @ half.T + np.eye(4), 4.0 * np.eye(4)
    kept, blur = shrinkage.shrunk(truth, 0.0, promise, np.zeros((4, 4)), (0.5, 0.1), 1.0)
    np.testing.assert_allclose(kept, truth, rtol=1e-12)
    assert not blur.any()
    drowned, blur = shrinkage.shrunk(truth, 1e6, promise, np.zeros((4, 4)), (0.5, 0.1), 1.0)
    np.testing.assert_allclose(drowned, promise, atol=1e-3)
    assert blur.max() < 10.0, "what is promised is not worse than promised"


def test_shrunk_is_nearer_than_either() -> None:
    rng = np.random.default_rng(6)
    promise, errors = 4.0 * np.eye(6), []

    def symmetric(size: float) -> np.ndarray:
        draw = rng.standard_normal((6, 6))
        return size * (draw + draw.T) / 2

    for _ in range(200):
        truth = promise + symmetric(1.0)
        noisy = truth + symmetric(1.5)
        found, _ = shrinkage.shrunk(noisy, 1.5, promise, np.zeros((6, 6)), (0.01, 0.01), 1.0)
        errors.append([np.sum((each - truth) ** 2) for each in (found, noisy, promise)])
    ours, released, promised = np.mean(errors, axis=0)
    assert ours < 0.9 * min(released, promised)


# The root.


def settings_of(model: Any, x: np.ndarray, plan: WeightedPlan, clip: float | None = None) -> Any:
    model.classes_ = np.array([-1, 1])
    task = model._task(Structure(len(x), x.shape[1], None))._replace(clip=clip)
    geometry = leverage.run(
        partial(OpenGate, (x, np.zeros(len(x)))), columns(3), columns(1), 4, intercept=True, bounded=True
    )
    outcome = Columns(*(np.asarray(part) for part in (-np.inf, np.inf, 0.0, 1.0)))
    return _weighted_settings(task, plan, columns(3), outcome, geometry), task


@pytest.mark.parametrize("clip", [None, 0.7])
def test_with_normal_errors_it_ends_at_weighted_least_squares(clip: float | None) -> None:
    x, _ = made()
    y = x @ [1.0, 2.0, 1.5] + np.random.default_rng(1).standard_normal(ROWS) / 2
    model = LinearRegression(bounds=(-1, 1), noise_precision=4.0)
    settings, _ = settings_of(model, x, open_weighted_plan(), clip)
    opened = partial(OpenGate, (x, y))
    with jax.enable_x64(True):
        state = weighted.approach(opened, settings, ROWS, 3)
        found = weighted.fit(opened, settings, state, 1)
    z = np.column_stack([np.ones(ROWS), x])
    length = np.linalg.norm(z @ settings.geometry.map.T, axis=1)
    w = np.minimum(1.0, np.minimum(state.caps[0] / length, state.caps[1] / length**2))
    g = settings.prior_precision + 4.0 * (z.T * w) @ z
    np.testing.assert_allclose(found.mean, np.linalg.solve(g, 4.0 * (z.T * w) @ y), rtol=1e-6, atol=1e-4)
    assert (w.min() < 0.5) == (clip is not None)


@pytest.mark.parametrize("clip", [None, 0.7])
def test_it_ends_at_the_root_of_the_weighted_scores_with_their_sandwich(clip: float | None) -> None:
    x, y = made()
    plan = open_weighted_plan()
    settings, _ = settings_of(LogisticRegression(bounds=(-1, 1), classes=[-1, 1]), x, plan, clip)
    opened = partial(OpenGate, (x, y))
    with jax.enable_x64(True):
        state = weighted.approach(opened, settings, ROWS, 30)
        found = weighted.fit(opened, settings, state, 6)
    z = np.column_stack([np.ones(ROWS), x])
    length = np.linalg.norm(z @ settings.geometry.map.T, axis=1)
    prior = settings.prior_precision

    def weights(theta: np.ndarray) -> np.ndarray:
        chance = expit(z @ theta)
        cap = state.caps[0]
        return np.minimum(1.0, cap / (np.maximum(chance, 1 - chance) * length))

    def score(theta: np.ndarray) -> np.ndarray:
        return (weights(theta) * ((y > 0) - expit(z @ theta))) @ z - prior @ theta

    exact = root(score, found.mean).x
    chance = expit(z @ exact)
    w, bend = weights(exact), chance * (1 - chance)
    j = (z.T * (w**2 * bend)) @ z
    g = (z.T * (w * bend)) @ z
    sandwich = np.linalg.inv(prior + g @ np.linalg.solve(j, g))
    # The fixed point is that of scores averaged over the cavity: a mean, not a mode.
    off = (found.mean - exact) / np.sqrt(np.diag(sandwich))
    assert np.abs(off[:3]).max() < 0.05
    assert 0 < off[3] < 0.3, "of a rare column, whose posterior is skewed"
    np.testing.assert_allclose(np.diag(found.covariance), np.diag(sandwich), rtol=0.1)
    assert (w.min() < 0.5) == (clip is not None)
    assert np.abs(np.linalg.eigvalsh(found.noise_covariance)).max() < 0.1 * np.diag(sandwich).max()


def test_scores_that_were_cut_elsewhere_do_not_count() -> None:
    """Where residuals show that the noise was far off, scores were cut elsewhere: of another equation."""
    x, _ = made()
    y = x @ [0.3, 0.4, 0.2] + 0.05 * np.random.default_rng(2).standard_normal(ROWS)
    model = LinearRegression(bounds=(-1, 1), target_bounds=(-2, 2))
    settings, _ = settings_of(model, x, open_weighted_plan(more=True))
    settings = settings._replace(hidden=(1.0, 1.0), cut=3.0)
    opened = Noisy(1.0, x, y)
    with jax.enable_x64(True):
        first = weighted.look(opened, settings, weighted.init(settings, ROWS))
        state = weighted.step(opened, settings, first, near=False)
        assert len(state.scores) == len(state.curvatures) == 1
        seen = weighted.look(opened, settings, state)
        right = weighted.look(opened, settings, state._replace(noise=seen.noise))
        far = weighted.look(opened, settings, state._replace(noise=weighted._gamma(100.0, 1e-3)))
    assert far.scores == far.curvatures == far.squares == ()
    assert float(far.noise.mean) == float(seen.noise.mean)
    assert len(right.scores) == len(right.curvatures) == len(right.squares) == 1


@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning", "ignore::dpsep.WeakBudgetWarning")
def test_a_correction_that_overshoots_leaves_a_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the dispersion adds to the covariance of scores is an estimate, and may be far below zero."""
    correction = weighted.dispersion.correction

    def wild(*arguments: Any, **more: Any) -> Any:
        found = correction(*arguments, **more)
        return found._replace(spread=-1e6 * np.eye(len(found.ratio)))

    monkeypatch.setattr(weighted.dispersion, "correction", wild)
    x, _ = made()
    y = np.random.default_rng(3).poisson(np.exp(x @ [0.3, 0.4, 0.2])).astype(float)
    model = PoissonRegression(epsilon=3.0, delta=1e-5, bounds=(-1, 1), random_state=0).fit(x, y)
    assert np.linalg.eigvalsh(model.posterior_.covariance).min() > 0
    assert len(model.summary()) == 4
