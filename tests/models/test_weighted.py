"""What records add to fits by weighted scores: bounded by weights that no outcome moves, and centred."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats as scipy_stats

from dpsep.estimators.gamma import GammaLikelihood
from dpsep.estimators.student import StudentNoise
from dpsep.families import Gamma
from dpsep.models import LearnedNoise, LogisticLikelihood, PoissonLikelihood, ProbitLikelihood
from dpsep.models.base import At
from dpsep.models.glm import Columns
from dpsep.models.linear import GaussianLikelihood
from dpsep.models.poisson import NegativeBinomialLikelihood, count_response, coupling
from dpsep.models.weighted import (
    CELLS,
    Leverages,
    Reaches,
    SecondMoments,
    Seen,
    Steered,
    UnitFactors,
    UnitLeverages,
    UnitMoments,
    UnitReaches,
    WeightedFactors,
    unpacked,
)

stats: Any = scipy_stats
RNG = np.random.default_rng(0)
LABELS, NUMBERS = RNG.choice([-1.0, 1.0], 500), 3.0 * RNG.standard_normal(500)
COUNTS, TIMES = RNG.negative_binomial(1, 0.1, 500).astype(float), RNG.exponential(9.0, 500)
LIKELIHOODS: Any = {
    "logistic": (LogisticLikelihood(), LABELS),
    "probit": (ProbitLikelihood(), LABELS),
    "poisson": (PoissonLikelihood(), COUNTS),
    "negative binomial": (NegativeBinomialLikelihood(), COUNTS),
    "gamma": (GammaLikelihood(shape=2.0), TIMES),
    "linear, known noise": (GaussianLikelihood(0.7), NUMBERS),
    "linear": (LearnedNoise(), NUMBERS),
    "student": (StudentNoise(4.0), NUMBERS),
}


@pytest.fixture(autouse=True)
def _double() -> Any:
    with jax.enable_x64(True):
        yield


EVERY = pytest.mark.parametrize("name", LIKELIHOODS)


def steered(dimension: int = 4, *, caps: tuple[float, ...] = (0.5, 0.3), variance: float = 0.05) -> Steered:
    """Public values of a fit under way; caps that many records exceed."""
    rng = np.random.default_rng(1)
    features = Columns(*(jnp.full(dimension - 1, part) for part in (-2.0, 3.0, 0.5, 2.5)))
    outcome = Columns(*(jnp.asarray(part) for part in (-jnp.inf, jnp.inf, 0.0, 1.0)))
    map_ = np.eye(dimension) + 0.2 * rng.standard_normal((dimension, dimension))
    half = np.sqrt(variance) * np.tril(rng.uniform(0.2, 1.0, (dimension, dimension)))
    place = 0.3 * rng.standard_normal(dimension)
    noise = Gamma(jnp.asarray(19.0), jnp.asarray(12.0))
    values: Any = (features, outcome, map_, half, half, place, place + 1e-4, noise)
    how: Any = (*map(jnp.asarray, (2.0, 4.0, 0.3)), jnp.asarray(caps))
    return Steered(*values, *how)


def parts_of(name: str, *, caps: tuple[float, ...] = (0.5, 0.3), order: Any = None) -> tuple[Any, ...]:
    likelihood, y = LIKELIHOODS[name]
    x = 2.0 * np.random.default_rng(2).standard_normal((len(y), 3))
    y = y if order is None else y[order]
    found = WeightedFactors(likelihood)(steered(caps=caps), (jnp.asarray(x), jnp.asarray(y)))
    return tuple(np.asarray(part) for part in found)


@EVERY
def test_a_score_and_its_curvature_never_exceed_what_their_weight_supposes(name: str) -> None:
    mean, precision, square, *_ = parts_of(name)
    # A logistic score averaged over the cavity exceeds its bound by less than two thousandths.
    assert np.linalg.norm(mean, axis=1).max() <= 0.5 * (1.002 if name == "logistic" else 1 + 1e-9)
    assert np.sum(precision**2, axis=1).max() <= 0.3 * 1.1
    steepest = LIKELIHOODS[name][0].steepest(2.0)
    assert np.sum(square**2, axis=1).max() <= 1.03 * min(0.3, 0.25 * steepest)
    # The caps do bite: with wide ones many are larger.
    wide, *_ = parts_of(name, caps=(1e9, 1e9))
    assert np.mean(np.linalg.norm(wide, axis=1) > 0.5) > 0.05


@EVERY
def test_no_outcome_moves_a_weight(name: str) -> None:
    found = []
    for order in (None, np.random.default_rng(3).permutation(500)):
        tight = parts_of(name, order=order)[0]
        wide = np.linalg.norm(parts_of(name, caps=(1e9, 1e9), order=order)[0], axis=1)
        found.append(np.where(wide > 1e-12, np.linalg.norm(tight, axis=1) / np.maximum(wide, 1e-300), np.nan))
    one, other = found
    seen = np.isfinite(one) & np.isfinite(other)
    assert seen.mean() > 0.9
    np.testing.assert_allclose(one[seen], other[seen], rtol=1e-9)
    assert np.nanmin(one) < 0.5 * np.nanmax(one)


@pytest.mark.parametrize("u", [-1.5, 0.3, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("efficient", [False, True])
@pytest.mark.parametrize("cut", [0.5, 1.5, 30.0])
def test_the_score_of_a_count_is_centred_at_every_dispersion(
    u: float, alpha: float, efficient: bool, cut: float
) -> None:
    rate = np.exp(u)
    law = stats.poisson(rate) if alpha == 0 else stats.nbinom(1 / alpha, 1 / (1 + alpha * rate))
    counts = np.arange(5000.0)
    mass = law.pmf(counts)

    def at(u: Any) -> Any:
        return count_response(
            jnp.exp(u) * jnp.ones(5000),
            jnp.asarray(counts),
            At(cut=cut, dispersion=alpha),
            efficient=efficient,
        )

    found = at(u)
    slopes = jax.jacfwd(lambda v: at(v).slope)(u)
    slope, spread = np.asarray(found.slope), np.asarray(found.spread)[0]
    size = float(found.size[0])
    assert abs(mass @ slope) < 1e-6 * size**0.5
    assert mass @ -np.asarray(slopes) == pytest.approx(size, rel=1e-4), "its curvature is the expected one"
    assert mass @ slope**2 == pytest.approx(spread * size, rel=1e-4), "and its variance"
    assert np.abs(slope).max() <= float(found.bound[0]) * (1 + 1e-9)
    assert abs(mass @ np.asarray(found.statistic)) < 1e-6, "the statistic of the dispersion is centred, too"
    wrong = stats.poisson(1.2 * rate).pmf(counts)
    assert abs(wrong @ slope) > 0.02 * size


@pytest.mark.parametrize("efficient", [False, True])
def test_the_coupling_of_score_and_dispersion_is_their_derivatives(efficient: bool) -> None:
    rate, alpha, cut, step = 2.3, 0.7, 1.5, 1e-5
    counts = np.arange(3000.0)

    def expected(own: float, other: float) -> tuple[float, float]:
        """Expectations under one dispersion of score and statistic made for another."""
        mass = stats.nbinom(1 / own, 1 / (1 + own * rate)).pmf(counts)
        at = At(cut=cut, dispersion=other)
        found = count_response(jnp.full(3000, rate), jnp.asarray(counts), at, efficient=efficient)
        return float(mass @ np.asarray(found.slope)), float(mass @ np.asarray(found.statistic))

    score, statistic = np.subtract(expected(alpha + step, alpha), expected(alpha - step, alpha)) / (2 * step)
    found = coupling(np.array([rate]), alpha, cut, efficient=efficient)
    assert found.own.item() == pytest.approx(statistic, rel=1e-4)
    assert -found.pull.item() == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize("u", [-1.0, 0.7])
def test_the_score_of_a_gamma_time_is_centred(u: float) -> None:
    shape, scale = 2.0, np.exp(u) / 2.0
    y = stats.gamma(shape, scale=scale).ppf((np.arange(200_000) + 0.5) / 200_000)
    found = GammaLikelihood(shape=shape).response(u, 0.0, jnp.asarray(y), At(cut=2.0))
    slope = np.asarray(found.slope)
    assert abs(slope.mean()) < 1e-3
    assert np.mean(slope**2) == pytest.approx(float((found.spread * found.size)[0]), rel=5e-3)
    assert np.abs(slope).max() <= float(found.bound[0])


@pytest.mark.parametrize("likelihood", [LogisticLikelihood(), ProbitLikelihood()], ids=["logistic", "probit"])
@pytest.mark.parametrize("u", [-3.0, 0.4])
def test_the_score_of_a_label_is_centred_and_bounded(likelihood: Any, u: float) -> None:
    chance = stats.logistic.cdf(u) if isinstance(likelihood, LogisticLikelihood) else stats.norm.cdf(u)
    found = likelihood.response(u, 1e-9, jnp.array([-1.0, 1.0]), At())
    slope = np.asarray(found.slope)
    assert slope @ [1 - chance, chance] == pytest.approx(0.0, abs=1e-6)
    assert np.abs(slope).max() <= float(np.max(found.bound)) <= 1.01 * np.abs(slope).max()


def test_scores_of_numbers_are_symmetric_and_a_students_is_that_of_its_density() -> None:
    noise = Gamma(jnp.asarray(1e9), jnp.asarray(1e9 / 2.0))  # precision two, known well
    y = jnp.linspace(-9.0, 9.0, 41)
    linear, _ = LearnedNoise().response(0.0, 0.0, noise, y, At(cut=3.0))
    student, factor = StudentNoise(4.0).response(0.0, 0.0, noise, y, At())
    for found in (linear, student):
        slope = np.asarray(found.slope)
        np.testing.assert_allclose(slope, -slope[::-1], atol=1e-9)
        assert np.abs(slope).max() <= float(found.bound[0]) * (1 + 1e-9)
    exact = -np.gradient(stats.t(4, scale=2.0**-0.5).logpdf(np.asarray(y)), np.asarray(y))
    np.testing.assert_allclose(np.asarray(student.slope)[20:23], exact[20:23], rtol=0.3, atol=1e-9)
    assert np.asarray(factor.rate).max() <= 0.5 * 5.0 / 2.0


def test_a_bad_cell_spoils_its_own_record_and_no_other() -> None:
    x = np.random.default_rng(3).standard_normal((3, 3))
    spoiled = x.copy()
    spoiled[1, 2] = np.nan
    values = steered(caps=(1.0, 1.0, 1.0))
    for likelihood, y in LIKELIHOODS.values():
        for contribution in (WeightedFactors(likelihood), Reaches(likelihood)):
            outcome = jnp.asarray(np.abs(y[:3]) if (y > 1.5).any() else y[:3])
            clean, parts = (contribution(values, (jnp.asarray(cells), outcome)) for cells in (x, spoiled))
            usable = np.all([np.isfinite(part).all(axis=1) for part in parts], axis=0)
            np.testing.assert_array_equal(usable, [True, False, True])
            for part, good in zip(parts, clean, strict=True):
                np.testing.assert_array_equal(np.asarray(part)[[0, 2]], np.asarray(good)[[0, 2]])


@pytest.mark.parametrize(
    ("name", "y"), [("logistic", 0.0), ("probit", 2.0), ("poisson", -1.0), ("gamma", 0.0)]
)
def test_an_outcome_outside_the_support_marks_the_record(name: str, y: float) -> None:
    found = WeightedFactors(LIKELIHOODS[name][0])(steered(), (jnp.zeros((1, 3)), jnp.array([y])))
    assert np.isnan(found[0]).all()


def test_leverages_are_told_by_half_octaves() -> None:
    values = steered()
    seen = Seen(values.features, values.outcome, jnp.eye(4), jnp.asarray(16.0))
    # The intercept's one, and a cell that adds to it: |z|^2 of 1, just below and above 2, and beyond the top.
    cells = np.zeros((4, 3))
    cells[:, 0] = 2.5 * np.sqrt([0.0, 0.99, 1.01, 0.9]) + 0.5
    (found,) = Leverages()(seen, (jnp.asarray(cells), jnp.zeros(4)))
    # 16 / 2^(k / 2) for the k-th cell from the last
    place = np.asarray(found).argmax(axis=1)
    size = 1.0 + np.minimum(((cells[:, 0].clip(-2, 3) - 0.5) / 2.5) ** 2, 1.0)
    size += 2 * ((0.0 - 0.5) / 2.5) ** 2
    np.testing.assert_array_equal(place, CELLS - 1 - np.floor(2 * np.log2(16.0 / size)))
    np.testing.assert_array_equal(np.asarray(found).sum(axis=1), 1.0)


def test_second_moments_are_of_records_within_the_cap() -> None:
    values = steered()
    x = np.random.default_rng(4).uniform(-2, 3, (50, 3))
    seen = Seen(values.features, values.outcome, jnp.asarray(values.map), jnp.asarray(1.2))
    (found,) = SecondMoments()(seen, (jnp.asarray(x), jnp.zeros(50)))
    size = np.sum(np.asarray(found) ** 2, axis=1)
    z = np.column_stack([np.ones(50), (x - 0.5) / 2.5]) @ np.asarray(values.map).T
    np.testing.assert_allclose(size, np.minimum(np.sum(z**2, axis=1), 1.2), rtol=1e-9)
    assert 0 < np.mean(size > 1.2 - 1e-9) < 1


PLACES, PERSONS = 4, 120


def unit_parts(name: str, *, caps: tuple[float, ...] = (0.5, 0.3), spoil: Any = None) -> tuple[Any, ...]:
    """Blocks of persons with one to four rows, and of these rows as records."""
    likelihood, y = LIKELIHOODS[name]
    x = 2.0 * np.random.default_rng(2).standard_normal((PERSONS, PLACES, 3))
    y = y[: PERSONS * PLACES].reshape(PERSONS, PLACES).copy()
    y[np.arange(PLACES) > np.arange(PERSONS)[:, None] % PLACES] = np.nan
    if spoil is not None:
        x[spoil] = np.nan
    public = steered(caps=caps)
    whole = UnitFactors(likelihood)(public, (jnp.asarray(x), jnp.asarray(y)))
    flat = jnp.asarray(x.reshape(-1, 3)), jnp.asarray(y.reshape(-1))
    rows = WeightedFactors(likelihood)(steered(caps=(1e9, 1e9)), flat)
    return tuple(map(np.asarray, whole)), tuple(np.nan_to_num(np.asarray(part)) for part in rows)


@EVERY
def test_a_unit_has_one_weight_and_its_caps_hold(name: str) -> None:
    whole, rows = unit_parts(name)
    mean, precision, square, *_ = whole
    assert np.linalg.norm(mean, axis=1).max() <= 0.5 * 1.002
    assert np.linalg.norm(precision, axis=1).max() <= 0.3 * 1.1
    np.testing.assert_array_equal(square, mean)
    scores = rows[0].reshape(PERSONS, PLACES, -1).sum(axis=1)
    roots = rows[1].reshape(PERSONS, PLACES, -1)
    matrices = np.einsum("nri,nrj->nij", roots, roots)
    weights = np.linalg.norm(mean, axis=1) / np.maximum(np.linalg.norm(scores, axis=1), 1e-300)
    assert weights.max() <= 1 + 1e-9
    assert weights[np.linalg.norm(scores, axis=1) > 1e-9].min() < 0.7
    for person in range(PERSONS):
        np.testing.assert_allclose(mean[person], weights[person] * scores[person], atol=1e-12)
        found = unpacked(precision[person], 4)
        expected = weights[person] * matrices[person]
        if np.linalg.norm(scores[person]) > 1e-9:
            np.testing.assert_allclose(found, expected, atol=1e-9)
        assert np.linalg.norm(precision[person]) == pytest.approx(np.linalg.norm(found), rel=1e-9)


@EVERY
def test_a_bad_cell_spoils_its_row_of_its_unit_and_nothing_else(name: str) -> None:
    wide = (1e9, 1e9)
    good, _ = unit_parts(name, caps=wide)
    spoilt, rows = unit_parts(name, caps=wide, spoil=(7, 0, 1))
    others = np.arange(PERSONS) != 7
    for one, other in zip(good, spoilt, strict=True):
        np.testing.assert_array_equal(one[others], other[others])
    np.testing.assert_allclose(spoilt[0][7], rows[0].reshape(PERSONS, PLACES, -1)[7].sum(axis=0), atol=1e-12)
    assert not np.array_equal(spoilt[0][7], good[0][7])
    alone, _ = unit_parts(name, spoil=(4, 0, 1))  # the person's only row
    assert all(np.isnan(part[4]).all() for part in alone)


def test_sizes_of_units_are_those_of_all_their_rows() -> None:
    x = 0.5 * np.random.default_rng(2).standard_normal((PERSONS, PLACES, 3))
    y = np.where(np.arange(PLACES) > np.arange(PERSONS)[:, None] % PLACES, np.nan, 1.0)
    public = steered(caps=(1e3, 1e3))
    seen = Seen(public.features, public.outcome, jnp.eye(4), jnp.asarray(100.0))
    z = np.concatenate([np.ones((PERSONS, PLACES, 1)), (np.clip(x, -2.0, 3.0) - 0.5) / 2.5], axis=2)
    z = np.where(np.isnan(y)[:, :, None], 0.0, z)
    size = (z**2).sum(axis=(1, 2))
    (cells,) = UnitLeverages()(seen, (jnp.asarray(x), jnp.asarray(y)))
    edges = 100.0 * 2.0 ** (0.5 * (np.asarray(cells).argmax(axis=1) + 1 - CELLS))
    assert ((size <= edges * (1 + 1e-9)) & (size > edges / np.sqrt(2.0) * (1 - 1e-9))).all()
    second, rows = UnitMoments(True, PLACES)(seen, (jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(np.asarray(rows)[:, 0] * PLACES, np.isfinite(y).sum(axis=1))
    matrices = np.einsum("nri,nrj->nij", z, z)
    np.testing.assert_allclose(unpacked(np.asarray(second)[5], 4), matrices[5], rtol=1e-12)
    small = UnitMoments(True, PLACES)(seen._replace(cap=jnp.asarray(0.5)), (jnp.asarray(x), jnp.asarray(y)))[
        0
    ]
    assert np.linalg.norm(small, axis=1).max() <= 0.5 * (1 + 1e-9)
    score, curvature = UnitReaches(LogisticLikelihood())(public, (jnp.asarray(x), jnp.asarray(y)))
    assert np.asarray(score).sum() == np.asarray(curvature).sum() == PERSONS
