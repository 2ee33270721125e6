"""Updates of a mixture's components: fixed points by other routes, noise, and what noise must not break."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from dpsep.families import GaussianSet
from dpsep.inference import mixture_update
from dpsep.inference.mixture_update import Settings, State, init, public_of, run, step, weights_of
from dpsep.models import KnownMixture
from dpsep.models.glm import Columns
from dpsep.models.mixture_factors import ExpectedStatistics, LocalFactors, VariationalFactors
from dpsep.privacy.gate import Gate, authorise
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.open_gate import OpenGate
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling
from dpsep.theory.mixtures import mixture_blocks

WEIGHTS = np.array([0.35, 0.65])
MEANS = np.array([[-1.0, 0.5], [1.2, 0.2]])
RECORDS = 120


class Posterior(NamedTuple):
    mean: np.ndarray
    precision: np.ndarray


def table(seed: int = 0, records: int = RECORDS, apart: float = 1.4) -> np.ndarray:
    """Two clusters of deviation one that overlap, so that much is in doubt, or lie further apart."""
    rng = np.random.default_rng(seed)
    labels = rng.random(records) < WEIGHTS[1]
    return apart * MEANS[labels.astype(int)] + rng.normal(size=(records, 2))


def settings(**more: Any) -> Settings:
    edge = np.full(2, np.inf)
    columns: Any = (-edge, edge, np.zeros(2), np.ones(2))
    known = {
        "columns": Columns(*columns),
        "prior_mean": np.array([[0.2, 0.0], [0.0, -0.1]]),
        "prior_precision": 0.5,
        "weights": WEIGHTS,
        "concentration": 1.0,
        "variances": "known",
        "cavity": True,
    }
    return Settings(**(known | more))


def open_gate(x: np.ndarray, kind: Any, variances: Any = "known") -> OpenGate:
    blocks = mixture_blocks(2, x.shape[1], variances, missing=kind.missing, margin=3.0, clip=math.inf)
    return OpenGate((x,), blocks, kind(variances))


def start(chosen: Settings, records: int = RECORDS, deviation: float = 1.0) -> State:
    zero = np.zeros((2, 2, 2))
    return init(chosen, records, MEANS.copy(), np.full((2, 2), deviation**2), WEIGHTS, zero)


def parallel_sep(x: np.ndarray, chosen: Settings) -> Posterior:
    """SEP's fixed point by damped parallel updates of natural parameters (gamma = N, all records)."""
    with jax.enable_x64(True):
        model = KnownMixture(tuple(WEIGHTS.tolist()), 1.0)
        precision = chosen.prior_precision * jnp.eye(2)
        prior = GaussianSet(
            jnp.asarray(chosen.prior_precision * chosen.prior_mean), jnp.tile(precision, (2, 1, 1))
        )
        counts = len(x) * WEIGHTS[:, None]
        q = GaussianSet(
            prior.eta + jnp.asarray(counts * MEANS), prior.precision + counts[..., None] * jnp.eye(2)
        )

        @jax.jit
        def sweep(q: GaussianSet) -> GaussianSet:
            cavity = jax.tree.map(lambda now, before: now - (now - before) / len(x), q, prior)
            factors = jax.vmap(lambda record: model.local_factor(cavity, record))(jnp.asarray(x))
            target = jax.tree.map(lambda before, parts: before + jnp.sum(parts, 0), prior, factors)
            return jax.tree.map(lambda now, then: now + 0.3 * (then - now), q, target)

        for _ in range(400):
            q = sweep(q)
        moved = jax.tree.map(lambda now, then: float(jnp.abs(then - now).max()), q, sweep(q))
        assert max(moved) < 1e-10
        return Posterior(np.asarray(q.mean), np.asarray(q.precision))


def test_at_the_fixed_point_of_sep_the_update_stands_still() -> None:
    x, chosen = table(), settings()
    fixed = parallel_sep(x, chosen)
    whole = np.linalg.eigvalsh(fixed.precision - 0.5 * np.eye(2))
    state = start(chosen)._replace(mean=fixed.mean, precision=fixed.precision)
    after = step(open_gate(x, LocalFactors), chosen, state, 1.0)
    assert after.moved < 1e-9
    np.testing.assert_allclose(after.mean, fixed.mean, atol=1e-9)
    np.testing.assert_allclose(after.precision, fixed.precision, rtol=1e-9)
    # Something is missing, and not so much that precisions are kept from falling.
    assert (whole < 0.95 * after.counts[:, None]).any()
    assert (whole > 0.5 * after.counts[:, None]).all()


def test_without_noise_the_run_ends_at_the_fixed_point_of_sep() -> None:
    x, chosen = table(), settings()
    fixed = parallel_sep(x, chosen)
    state = run(open_gate(x, LocalFactors), chosen, start(chosen), 500, 1e-10)
    assert state.moved <= 1e-10
    assert state.step < 500
    np.testing.assert_allclose(state.mean, fixed.mean, atol=1e-8)
    np.testing.assert_allclose(state.precision, fixed.precision, rtol=1e-7)


def em(x: np.ndarray, chosen: Settings, *, uncertain: bool) -> tuple[np.ndarray, ...]:
    """EM for the posterior mode, or mean-field VI where shares see the means' `uncertain`ty; plain loops."""
    mean, variance, weights = MEANS.copy(), np.ones((2, 2)), WEIGHTS
    width = np.zeros((2, 2))
    counts = np.zeros(2)
    for _ in range(1000):
        logits = np.log(weights) - 0.5 * ((x[:, None] - mean) ** 2 / variance + np.log(variance)).sum(-1)
        if uncertain:
            logits = logits - 0.5 * (width / variance).sum(-1)
        shares = softmax(logits, axis=1)
        counts = shares.sum(0)
        width = 1.0 / (chosen.prior_precision + counts[:, None] / variance)
        mean = width * (chosen.prior_precision * chosen.prior_mean + shares.T @ x / variance)
        if chosen.variances != "known":
            squares = np.einsum("nj,njd->jd", shares, (x[:, None] - mean) ** 2) + counts[:, None] * width
            each = 1
            if chosen.variances == "spherical":
                squares, each = np.tile(squares.sum(1, keepdims=True), 2), 2
            # The prior: two records with a variance of 0.01.
            variance = (squares + 2 * 0.01) / (each * counts[:, None] + 2)
        if chosen.weights is None:
            weights = (counts + chosen.concentration) / (len(x) + 2 * chosen.concentration)
    return mean, width, variance, weights, counts


@pytest.mark.parametrize("variances", ["known", "spherical", "diag"])
@pytest.mark.parametrize("weights", [WEIGHTS, None], ids=["known weights", "learned weights"])
@pytest.mark.parametrize("kind", [ExpectedStatistics, VariationalFactors])
def test_em_and_variational_bayes_end_where_plain_loops_do(kind: Any, weights: Any, variances: Any) -> None:
    x = table(3, 400) * [1.0, 0.8]
    chosen = settings(weights=weights, variances=variances, cavity=False)
    mean, width, variance, learned, counts = em(x, chosen, uncertain=kind is VariationalFactors)
    state = run(open_gate(x, kind, variances), chosen, start(chosen, 400), 3000, 1e-10)
    np.testing.assert_allclose(state.mean, mean, atol=1e-6)
    np.testing.assert_allclose(state.deviation**2, variance, rtol=1e-6)
    np.testing.assert_allclose(weights_of(chosen, state), learned, rtol=1e-6)
    np.testing.assert_allclose(state.counts, counts, rtol=1e-6)
    inverse = np.linalg.inv(state.precision)
    np.testing.assert_allclose(np.diagonal(inverse, axis1=1, axis2=2), width, rtol=1e-5)


def test_the_cavity_is_the_posterior_without_one_factor() -> None:
    chosen = settings()
    root = np.random.default_rng(0).normal(size=(2, 2, 2))
    precision = root @ root.transpose(0, 2, 1) + 3 * np.eye(2)
    deviation = np.array([[0.5, 2.0], [1.0, 0.25]])
    state = start(chosen)._replace(precision=precision, deviation=deviation)
    public = public_of(chosen, state, 40)
    factor = (precision - 0.5 * np.eye(2)) / 40
    eta = (np.einsum("jde,je->jd", precision, MEANS) - 0.5 * chosen.prior_mean) / 40
    cavity = precision - factor
    mean = np.linalg.solve(cavity, (np.einsum("jde,je->jd", precision, MEANS) - eta)[..., None])[..., 0]
    np.testing.assert_allclose(public.centre, mean, rtol=1e-12)
    rotation, information = np.asarray(public.rotation), np.asarray(public.information)
    again = np.einsum("jdk,jk,jek->jde", rotation, information, rotation)
    np.testing.assert_allclose(again, cavity * deviation[:, :, None] * deviation[:, None], rtol=1e-10)
    np.testing.assert_array_equal(public.mean, MEANS)
    plain = public_of(settings(cavity=False), state, 40)
    np.testing.assert_array_equal(plain.centre, MEANS)


class Scripted:
    """A gate that hands out what it is told to."""

    def __init__(self, releases: list[dict[str, np.ndarray]], records: int = RECORDS) -> None:
        self.records = records
        self.expected_batch = float(records)
        self.deviations = {"count": 1.0, "mean": 1.0, "missing": 1.0, "scatter": 1.0}
        self._releases = iter(releases)

    def release(self, public: Any) -> dict[str, np.ndarray]:
        assert all(np.isfinite(part).all() for part in jax.tree.leaves(public[1:]))
        return next(self._releases)


def noise(rng: np.random.Generator, scale: float, variances: str) -> dict[str, np.ndarray]:
    sizes = {"count": 2, "mean": 4, "missing": 6, "scatter": 4 if variances == "diag" else 2}
    if variances == "known":
        del sizes["scatter"]
    return {name: scale * rng.standard_normal(size) for name, size in sizes.items()}


@pytest.mark.parametrize("variances", ["known", "spherical", "diag"])
@pytest.mark.parametrize("scale", [1e2, 1e6, 1e12])
def test_releases_of_noise_alone_leave_a_proper_posterior(scale: float, variances: Any) -> None:
    rng = np.random.default_rng(int(math.log10(scale)))
    for trial in range(20):
        chosen = settings(weights=None if trial % 2 else WEIGHTS, variances=variances)
        gate = Scripted([noise(rng, scale, variances) for _ in range(8)])
        state = start(chosen)
        for number in range(8):
            before = state
            state = step(gate, chosen, state, 1.0 / (number + 2))
            moved = np.linalg.norm((state.mean - before.mean) / before.deviation, axis=1)
            assert (moved <= 2.0 / (number + 2) * (1 + 1e-12)).all(), "a step is at most two deviations long"
            assert (state.deviation <= math.sqrt(2) * before.deviation * (1 + 1e-12)).all()
        for part in state:
            assert np.isfinite(part).all()
        assert (state.deviation**2 >= mixture_update.LEAST_VARIANCE * (1 - 1e-12)).all()
        assert np.linalg.eigvalsh(state.precision).min() >= 0.5
        weights = weights_of(chosen, state)
        assert weights.sum() == pytest.approx(1.0)
        assert (weights > 0).all()
        assert np.linalg.eigvalsh(state.noise).min() >= 0


def test_a_component_that_vanishes_stays_where_it_was_with_a_wide_posterior() -> None:
    chosen = settings(weights=None)
    empty = {"count": np.array([-50.0, 170.0]), "mean": np.zeros(4), "missing": np.zeros(6)}
    state = run(Scripted([empty] * 8), chosen, start(chosen), 8)
    assert state.counts[0] < 0
    floor = RECORDS / (20 * 2)
    np.testing.assert_allclose(state.precision[0], (floor + 0.5) * np.eye(2), rtol=1e-12)
    # The prior alone pulls, against a precision of the floor and itself: it stays between the two.
    start_to_prior = chosen.prior_mean[0] - MEANS[0]
    assert (np.abs(state.mean[0] - MEANS[0]) <= np.abs(start_to_prior)).all()
    assert weights_of(chosen, state)[0] == pytest.approx(1.0 / (1.0 + state.counts[1] + 1.0))


def test_precisions_stay_within_half_and_the_whole_of_a_count() -> None:
    chosen = settings()
    released = {"count": np.array([40.0, 80.0]), "mean": np.zeros(4), "missing": np.zeros(6)}
    released["missing"][:3] = [1000.0, 0.0, -1000.0]  # more missing than there is, and less than nothing
    state = step(Scripted([released]), chosen, start(chosen), 1.0)
    np.testing.assert_allclose(state.precision[0], np.diag([20.5, 40.5]), rtol=1e-12)
    np.testing.assert_allclose(state.precision[1], np.diag([80.5, 80.5]), rtol=1e-12)


def test_counts_and_means_are_running_means_of_releases() -> None:
    chosen = settings(weights=None, prior_precision=1e-12)
    rng = np.random.default_rng(5)
    counts = rng.uniform(30, 60, (6, 2))
    gate = Scripted([{"count": count, "mean": np.zeros(4)} for count in counts])
    state = run(gate, chosen, start(chosen), 6)
    first = RECORDS * WEIGHTS
    np.testing.assert_allclose(state.counts, (first + counts.sum(0)) / 7, rtol=1e-12)
    assert state.step == 6


@pytest.mark.filterwarnings("ignore:noise='float':dpsep.PrivacyLeakWarning")
@pytest.mark.parametrize("sampling", [FullBatch(), PoissonSampling(0.5)], ids=["full", "Poisson"])
def test_noise_that_is_carried_is_the_covariance_of_the_mean_over_seeds(
    sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, chosen = table(1, 400, apart=2.5), settings(variances="spherical")
    blocks = mixture_blocks(2, 2, "spherical", missing=True, margin=3.0, clip=2.0)
    gate: Any = OpenGate((x,), blocks, LocalFactors("spherical"))
    exact = run(gate, chosen, start(chosen, 400), 500, 1e-10)
    spread = np.array([[[0.02, 0.005], [0.005, 0.01]], [[0.01, 0.0], [0.0, 0.02]]])
    part = Mechanism(sampling, "zero-out", 8, 3.0, len(x))
    states = []
    for seed in range(240):
        permit = authorise(None, Schedule((part,)), 1e-3)
        gate = Gate(
            (x,), part, blocks, LocalFactors("spherical"), permit, stream=SeededStream(seed), noise="float"
        )
        rng = np.random.default_rng(seed)
        moved = np.stack([rng.multivariate_normal(np.zeros(2), one) for one in spread])
        begin = init(chosen, 400, exact.mean + moved, exact.deviation**2, WEIGHTS, spread)
        states.append(run(gate, chosen, begin, 8))
    errors = np.stack([state.mean for state in states]) - exact.mean
    found = np.einsum("sjd,sje->jde", errors, errors) / len(errors)
    carried = np.mean([state.noise for state in states], axis=0)
    for one, other in zip(found, carried, strict=True):
        values = np.linalg.eigvals(np.linalg.solve(other, one)).real
        assert np.mean(values) == pytest.approx(1.0, abs=0.25)
    counts = np.stack([state.counts for state in states])
    if isinstance(sampling, FullBatch):
        assert counts.var(0).mean() == pytest.approx(states[0].count_noise, rel=0.25)
    relative = np.stack([state.deviation[:, 0] ** 2 for state in states]) / exact.deviation[:, 0] ** 2
    scatter = np.mean([state.scatter_noise for state in states], axis=0)
    assert (relative.var(0) / scatter).mean() == pytest.approx(1.0, abs=0.35)


@pytest.mark.parametrize("variances", ["known", "spherical", "diag"])
@pytest.mark.parametrize("missing", [True, False])
def test_blocks_share_one_budget_and_hold_a_typical_record(missing: bool, variances: Any) -> None:
    blocks = {
        block.name: block for block in mixture_blocks(3, 4, variances, missing=missing, margin=1.0, clip=1.0)
    }
    assert math.fsum(block.share for block in blocks.values()) == pytest.approx(1.0, abs=1e-12)
    names = ["count", "mean"] + ["missing"] * missing + ["scatter"] * (variances != "known")
    assert list(blocks) == names
    assert (blocks["count"].size, blocks["mean"].size) == (3, 12)
    assert blocks["mean"].clip == pytest.approx(3.0)
    assert blocks["count"].clip == pytest.approx(1.0, abs=1e-3)
    assert blocks["count"].clip > 1.0
    if missing:
        assert blocks["missing"].size == 3 * 10
    if variances != "known":
        assert blocks["scatter"].size == 3 * (4 if variances == "diag" else 1)
    wide = mixture_blocks(3, 4, variances, missing=missing, margin=1.0, clip=5.0)
    tight = mixture_blocks(3, 4, variances, missing=missing, margin=1.0, clip=0.1)
    for block, far, near in zip(blocks.values(), wide, tight, strict=True):
        assert far.clip == pytest.approx(block.clip * (1.0 if block.name == "count" else 5.0))
        assert near.clip == pytest.approx(0.1 * block.clip)
