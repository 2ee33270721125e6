r"""Private fits of linear weights from weighted scores: Newton steps that the released noise is part of.

A release is S = sum w g' z (scores, z = A x, `dpsep.models.weighted`), G = sum w k z z^T (their curvature)
and J = sum w^2 k z z^T (their covariance), at a place m. Its noise is known. The root b of the weighted
scores is seen as

    m + G^-1 S = b + noise of covariance G^-1 (c^2 I) G^-1,     b ~ N(weights, G^-1 J G^-1),

so what was released says of the weights

    precision  K = G (J + c^2 I + C)^-1 G     at the point m + G^-1 S,

and the posterior is the prior times that: where noise hides a direction K is nothing and the prior speaks,
and no step can overshoot the prior. C is what noise in the released G does to the way that is left, E (dG
a)(dG a)^T with dG of known deviations and a of second moments V + a a^T; it holds the posterior covariance V,
which is iterated. Without noise and with w = 1, K is G, the posterior precision Lambda_0 + G, and the fixed
point solves sum g' + Lambda_0 (m_0 - m) = 0: that of `dpsep.inference.sep_newton`, hence SEP's.
docs/proofs/weighted.md derives all of this.

*Stages.* `approach` looks how large scores and curvatures are (`dpsep.inference.caps`), takes Newton steps
from the prior mean, each from its own release, and looks again. `fit` releases scores near the fixed point.
All scores count in the end: one that was taken far away is wrong by as much as a likelihood bends over the
way, and weighs that much less (`_combined`). G and J are averaged, and shrunk towards kappa E z z^T, the
second moments that were released before (`dpsep.inference.shrinkage`).

*A learned noise precision tau* (linear models) is one more released number; scores are cut at so many
deviations of what is known of an outcome, never beyond where residuals end. *The dispersion of counts* is
another (`dpsep.inference.dispersion`).

**Privacy.** Post-processing of what a gate released. This file sees no record.
The proof is in docs/proofs/weighted.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from dpsep.families import Gamma
from dpsep.inference import caps, dispersion, shrinkage
from dpsep.inference.dispersion import Couple, Law
from dpsep.inference.gate_protocol import Opened
from dpsep.inference.leverage import Geometry
from dpsep.inference.release_trace import Moments
from dpsep.inference.shrinkage import Released
from dpsep.inference.threads import one_thread
from dpsep.models.base import Unit
from dpsep.models.glm import Columns
from dpsep.models.weighted import (
    CELLS,
    Reaches,
    Steered,
    UnitFactors,
    UnitReaches,
    WeightedFactors,
    unpacked,
)
from dpsep.privacy.grid import Block

Array = NDArray[np.float64]

UNKNOWN = 1e6
"""Standard deviation of weights of which nothing is known."""
MOVES = 6
"""Places at which the last stage's scores are taken, one after another."""
PHASE = 3
"""Steps of the approach between two cuts of a learned noise."""
DISPERSION_STEPS = 12
"""Without privacy: steps in which the dispersion of counts settles."""
NEAR = 3
"""Last steps of the approach that estimate the dispersion of counts, too."""
STEP = 3.0
"""Longest step, as a change of the predictor of the record that counts most."""
DAMPING = 1.0
"""Steps are taken as if the curvature were larger by so many deviations of its noise."""
ROUNDS = 12
"""Iterations of the posterior covariance."""
BEND = 0.5
"""Variance, in squares of the length over which a likelihood bends, at which a posterior is half as wide
again."""
LEAST_SPREAD, MOST_DRAWN = (0.5, 0.1), 1.0
"""Least relative deviations of a curvature from what the columns' second moments promise, on the diagonal and
off it; most of them all."""
EVEN_SPREAD, EVEN_DRAWN = (0.15, 0.05), 0.3
"""The same of likelihoods whose curvature is that of every record alike."""
LEAST_LEVEL, LEAST_CURVATURE = 1e-2, 0.1
"""Least average curvature, relative to that of a record with the average predictor; least of a direction,
relative to the average."""
LEAST_LEFT = 0.1
"""Least of the covariance of scores that a correction for the dispersion, itself an estimate, may leave."""
LEAST_WEIGHT, MOST_SPREAD = 0.05, 10.0
"""Least weight of the records that speak of a direction, relative to the average one; most that the scores of
counts vary in a direction, relative to the average one."""
FARTHEST_RESIDUAL, USUAL_RESIDUAL = 4.0, 1.0
"""Largest residual that is told from larger ones, in units of the target's reach; the largest where noise
hides them."""
NEARLY, RATIO = 2.5, 20.0
"""Ratio of noise precisions within which a learned one is believed, and not the half octaves of residuals;
most that a learned one may change in a step."""
WORTH = 0.7
"""Ratio of bounds of scores from which on a nearer cut is worth averages that begin anew."""
LEAST_PRECISION, GUESSED = 1.0, 2.0
"""Least noise precision of a target that lies within [-1, 1]; weight of a guess of it, the inverse square of
its relative deviation."""
CLEARLY, LEAST_USED = 4.0, 0.01
"""Deviations of noise from which on records count as unusable; least share that counts as used."""
LEAST_UNIT, LEAST_CAP = 1e-9, 1e-30
"""Least curvature of a unit; least cap, and the inverse of the greatest."""


class Settings(NamedTuple):
    """Public constants of a run.

    Attributes
    ----------
    likelihood, intercept
        Of the contributions.
    features, outcome
        Maps of the columns.
    prior_mean, prior_precision
        The prior N(m_0, Lambda_0^-1) of scaled weights.
    geometry
        What was released of the columns.
    unit
        Bound and curvature of a score where the predictor and the dispersion have values.
    shares
        Of a release: scores, curvature, their covariance, and the noise or the dispersion where one is
        learned.
    cut
        Standard deviations at which unbounded scores are cut.
    hidden
        Deviations of the noise in all scores and all curvatures of the fit together, in units of their caps.
    steepest
        Largest variance of a score over the square of its bound.
    guess
        Public guess of the curvature; of the noise precision where it is learned.
    clip
        Cap of the scores as a multiple of a typical record's; None where it is chosen from releases.
    noise
        Prior of the noise precision where it is learned; None otherwise.
    couple
        How scores and the dispersion of counts move each other, where one is learned; None otherwise.
    places
        For how many rows of a unit there are places; none where records are the units.
    """

    likelihood: Any
    intercept: bool
    features: Columns
    outcome: Columns
    prior_mean: Array
    prior_precision: Array
    geometry: Geometry
    unit: Callable[[float, float], Unit]
    shares: tuple[float, ...]
    cut: float
    hidden: tuple[float, float]
    steepest: float
    guess: float
    clip: float | None = None
    noise: Gamma | None = None
    couple: Couple | None = None
    places: int = 0


class Score(NamedTuple):
    """Released scores at noise precision one, where they were taken, and the covariance of their noise.

    Attributes
    ----------
    dispersion, doubt
        Estimate of the dispersion of counts that goes with it, where one was made, and its variances: of the
        noise of privacy, and of the records themselves.
    """

    at: Array
    value: Array
    noise: Array
    dispersion: float | None = None
    doubt: tuple[float, float] = (0.0, 0.0)


class Usable(NamedTuple):
    """Released number of records that could be used, the variance of its noise, and of how many it is."""

    number: float = 0.0
    variance: float = 0.0
    records: int = 0


class State(NamedTuple):
    """What is carried from release to release, in coordinates z = A x: functions of released vectors only.

    Attributes
    ----------
    at
        Where the next scores are taken.
    mean, covariance
        Of the posterior with all noise of privacy.
    precision, spread
        G and J, at noise precision one.
    curvatures, squares, scores
        What they, and the mean, are averaged of.
    used
        Number of releases in `scores`.
    caps
        R and K, over those of a record with the average predictor.
    weight, left
        Average weight of a record's information, and the share of the information that weights leave.
    noise, noise_weight
        The noise precision, and the weight of its average: the inverse square of its relative deviation.
    doubt, widest
        Factor of the covariance that says how far a learned noise's scores are cut, and where they are cut at
        the farthest.
    dispersion
        Estimate of the dispersion of counts.
    usable, looks
        Average of the released numbers of usable records, and of how many histograms.
    """

    at: Array
    mean: Array
    covariance: Array
    precision: Array
    spread: Array
    noise: Gamma
    doubt: Array
    curvatures: tuple[Released, ...] = ()
    squares: tuple[Released, ...] = ()
    scores: tuple[Score, ...] = ()
    used: int = 0
    caps: tuple[float, float] = (math.inf, math.inf)
    weight: float = 1.0
    left: float = 1.0
    noise_weight: float = GUESSED
    widest: float = USUAL_RESIDUAL
    dispersion: float = 0.0
    usable: Usable = Usable()
    looks: int = 0

    @property
    def scale(self) -> float:
        """Expected noise precision."""
        return float(self.noise.mean)


class Result(NamedTuple):
    """A fit, in scaled units.

    Attributes
    ----------
    mean, covariance, noise_covariance
        Posterior moments without noise of privacy, and what that adds.
    noise
        Posterior of the noise precision.
    dispersion
        Of counts, and its standard deviation.
    usable
        Number of usable records.
    """

    mean: Array
    covariance: Array
    noise_covariance: Array
    noise: Gamma
    dispersion: tuple[float, float]
    usable: Usable


class _Sums(NamedTuple):
    """A release, scaled to all records, and the deviations of its noise."""

    values: dict[str, Array]
    deviations: dict[str, float]
    up: float
    records: int
    releases: int


def init(settings: Settings, records: int) -> State:
    """State before any release: the prior mean, and a curvature guessed from the columns' second moments."""
    mean = _start(settings)
    learned = settings.noise is not None
    precision = _structure(settings, records) * (1.0 if learned else settings.guess)
    return State(
        at=mean,
        mean=mean,
        covariance=_inverse(_prior(settings)),
        precision=precision,
        spread=precision,
        noise=_gamma(1.0, 1.0 / settings.guess if learned else 1.0),
        doubt=UNKNOWN * np.eye(len(mean)),
        dispersion=0.0 if settings.couple is None else dispersion.START,
    )


def approach(opened: Opened, settings: Settings, records: int, steps: int) -> State:
    """Look at sizes, take `steps` steps towards the fixed point, and look again: `steps` + 2 releases."""
    state = look(opened, settings, init(settings, records))
    for number in range(steps):
        if number and number % PHASE == 0:
            state = renewed(settings, state)
        state = step(opened, settings, state, near=number >= steps - NEAR)
    return look(opened, settings, renewed(settings, state))


def fit(
    opened: Opened,
    settings: Settings,
    state: State,
    releases: int,
    watch: Callable[[Callable[[], Moments]], None] | None = None,
) -> Result:
    """Release scores near the fixed point and average them, in `MOVES` moves of as many releases each."""
    if settings.couple is not None:
        # Corrections for a dispersion that was far off are rough.
        state = state._replace(scores=())
    for size in moves(releases):
        state = step(opened, settings, state, near=True, last=True, releases=size)
        if watch is not None:
            watch(lambda state=state: Moments(*result(settings, state)[:3]))
    return result(settings, state)


def moves(releases: int) -> list[int]:
    """Releases of each move.

    Examples
    --------
    >>> moves(6), moves(20), moves(2)
    ([1, 1, 1, 1, 1, 1], [4, 4, 3, 3, 3, 3], [1, 1])
    """
    count = min(MOVES, releases)
    return [releases // count + (number < releases % count) for number in range(count)]


def result(settings: Settings, state: State) -> Result:
    """The posterior in scaled units, and which part of it is noise of privacy."""
    map_ = settings.geometry.map
    # What records of weight w < 1 would say with weight one: G J^-1 G.
    whole = state.precision @ _solve(state.spread, state.precision)
    own = _inverse(_prior(settings) + whole * state.scale)
    alone = map_.T @ shrinkage.within(own, state.covariance, 0.0, 1.0) @ map_
    both = map_.T @ state.covariance @ map_
    extra = (both + both.T) / 2 - alone
    return Result(map_.T @ state.mean, alone, extra, state.noise, _dispersion(state), state.usable)


def _dispersion(state: State) -> tuple[float, float]:
    """The dispersion and its standard deviation; noise of privacy is averaged, the records' own is not."""
    found = [one.doubt for one in state.scores if one.dispersion is not None]
    if not found:
        return max(state.dispersion, 0.0), 0.0
    variance = float(np.mean([noise for noise, _ in found])) / len(found) + found[-1][1]
    return max(state.dispersion, 0.0), math.sqrt(variance)


def dispersed(
    opened: Opened, settings: Settings, records: int, mean: Array
) -> tuple[Array, tuple[float, float]]:
    """Without privacy: what overdispersion adds to the covariance of a fit, and the dispersion.

    Parameters
    ----------
    mean
        Of the fit, in scaled units.
    """
    place = _solve(settings.geometry.map.T, mean)
    state = look(opened, settings, init(settings, records)._replace(at=place, mean=place))
    for _ in range(DISPERSION_STEPS):
        state = step(opened, settings, state._replace(at=place, scores=()), near=True)
    plain = _inverse(_prior(settings) + state.precision)
    wider = shrinkage.within(state.covariance, plain, 1.0, math.inf) - plain
    return settings.geometry.map.T @ wider @ settings.geometry.map, _dispersion(state)


def renewed(settings: Settings, state: State) -> State:
    """Cut scores at what is known by now, where a noise precision is learned and that is worth it.

    They are cut at so many standard deviations of what is known of an outcome, so that none is cut for what
    is only not known yet. The cut is part of the weights. Averages are of releases with the same ones, so
    they begin anew.
    """
    if settings.noise is None:
        return state
    doubt = shrinkage.root(state.covariance).T
    nearer = state._replace(doubt=doubt)
    if _unit(settings, nearer).bound > WORTH * _unit(settings, state).bound:
        return state
    known = min(state.noise_weight, GUESSED)
    return nearer._replace(curvatures=(), squares=(), scores=(), noise_weight=known)


def look(opened: Opened, settings: Settings, state: State) -> State:
    """One release: how large scores and curvatures are, and the caps that follow.

    Where the noise precision is learned, how large residuals are: it is set by that where it was far off.
    """
    unit, size = _unit(settings, state), len(state.at)
    typical = float(np.trace(_second(settings)))
    tops = {"score": unit.bound**2 * typical, "curvature": unit.curvature * typical}
    # Scores of a unit's rows add up, and squares of their bounds by the square of their number.
    more = max(settings.places, 1)
    tops = {name: value * 2.0 ** (CELLS // 3) for name, value in tops.items()}
    tops = {"score": tops["score"] * more, "curvature": tops["curvature"] * math.sqrt(more)}
    if settings.noise is not None:
        tops["residual"] = FARTHEST_RESIDUAL
    blocks = [Block(name, CELLS, 1.0, 1.0 / len(tops)) for name in tops]
    reaches = UnitReaches if settings.places else Reaches
    gate = opened(blocks, reaches(settings.likelihood, settings.intercept))
    with one_thread():
        public = _publish(settings, state, gate.records, np.array(list(tops.values())))
    released = gate.release(public)
    found = {name: (released[name], gate.deviations[name], top) for name, top in tops.items()}
    squares, sizes = caps.seen(*found["score"]), caps.seen(*found["curvature"])
    rows = settings.geometry.rows
    # Of so many rows of a unit, information adds up as their number, and the square of the bound as its own.
    score = caps.score_cap(squares, settings.hidden[0], unit._replace(curvature=unit.curvature / rows), size)
    if settings.clip is not None:
        score = settings.clip * unit.bound * rows * math.sqrt(typical)
    curvature = caps.curvature_cap(sizes, settings.hidden[1], size)
    means = (caps.mean_weights(squares, score**2, 0.5), caps.mean_weights(sizes, curvature, 1.0))
    weight, left = (min(pair) for pair in zip(*means, strict=True))
    up = gate.records / gate.expected_batch
    state = state._replace(caps=(score / unit.bound, curvature / unit.curvature), weight=weight, left=left)
    for cells, noise, _ in found.values():
        drawn = gate.records * (up - 1.0)  # variance of a sampled number
        state = _counted(state, up * float(cells.sum()), CELLS * (up * noise) ** 2 + drawn, gate.records)
    if settings.noise is None:
        return state
    if not caps.clear(*found["residual"][:2], gate.records):
        return state
    state = state._replace(widest=caps.highest(*found["residual"]))
    typical = min(caps.deviation(*found["residual"]), LEAST_PRECISION**-0.5)
    if abs(math.log(typical**2 * state.scale)) < math.log(NEARLY):
        return state
    noise = _gamma(gate.records / 2, gate.records / 2 * typical**2)
    state = state._replace(noise=noise, noise_weight=GUESSED, doubt=0.0 * state.doubt)
    # Scores were cut elsewhere.
    return state._replace(curvatures=(), squares=(), scores=())


def _counted(state: State, count: float, variance: float, records: int) -> State:
    """Average in one more released number of usable records: each has a one in a cell of every histogram.

    Sites of a federation may leave; only numbers of the same records are averaged.
    """
    done, before = (state.looks, state.usable) if state.usable.records == records else (0, Usable())
    mean = (done * before.number + count) / (done + 1)
    variance = (done**2 * before.variance + variance) / (done + 1) ** 2
    return state._replace(usable=Usable(mean, variance, records), looks=done + 1)


def step(
    opened: Opened, settings: Settings, state: State, *, near: bool, last: bool = False, releases: int = 1
) -> State:
    """Releases of scores and curvature at one place, and the posterior that follows.

    Parameters
    ----------
    near
        Whether the fixed point is near enough for the dispersion of counts to be estimated.
    last
        Whether it belongs to the last stage: steps are shorter.
    releases
        How many: more than one only where rows are sampled, so that all rows are read several times.
    """
    unit = _unit(settings, state)
    both = np.array(state.caps) * (unit.bound, unit.curvature)
    both = np.clip(both, LEAST_CAP, 1.0 / LEAST_CAP)
    factors = UnitFactors if settings.places else WeightedFactors
    gate = opened(_blocks(settings, both, len(state.at)), factors(settings.likelihood, settings.intercept))
    with one_thread():
        public = _publish(settings, state, gate.records, both)
    made = [gate.release(public) for _ in range(releases)]
    if settings.places:
        size = len(state.at)
        made = [one | {"precision": unpacked(one["precision"], size)} for one in made]
    up = gate.records / gate.expected_batch
    sums = _Sums(
        {name: up * np.mean([one[name] for one in made], axis=0) for name in made[0]},
        {name: value * up / math.sqrt(releases) for name, value in gate.deviations.items()},
        up,
        gate.records,
        releases,
    )
    with one_thread():
        return _updated(settings, state, sums, unit, near=near, last=last)


def _blocks(settings: Settings, both: Array, size: int) -> list[Block]:
    # Without privacy weights do what they do, and sums are not rounded to a grid.
    score, curvature = (float(cap) if any(settings.hidden) else math.inf for cap in both)
    # w^2 v |z|^2 is at most R^2 v / b^2, v the variance of a score.
    square = score**2 if settings.places else min(curvature, score**2 * settings.steepest)
    precision = Block("precision", size, curvature, settings.shares[1], "outer")
    if settings.places:
        precision = Block("precision", size * (size + 1) // 2, curvature, settings.shares[1])
    blocks = [
        Block("mean", size, score, settings.shares[0]),
        precision,
        Block("square", size, max(square, LEAST_CAP), settings.shares[2], "outer"),
    ]
    if settings.noise is not None:
        most = settings.likelihood.noise_clip(settings.cut) if any(settings.hidden) else math.inf
        blocks.append(Block("noise", 2, most, settings.shares[3]))
    if settings.couple is not None:
        blocks.append(Block("dispersion", 1, 1.0, settings.shares[3]))
    return blocks


def _updated(settings: Settings, state: State, sums: _Sums, unit: Unit, *, near: bool, last: bool) -> State:
    scale, reach, identity = state.scale, _reach(unit, state), np.eye(len(state.at))
    score = Score(state.at, sums.values["mean"] / scale, (sums.deviations["mean"] / scale) ** 2 * identity)
    # Matrices are kept in units of a record's curvature, which moves with the place and the noise precision.
    size = unit.curvature
    curvature, square = (
        Released(state.at, sums.values[name] / size, sums.deviations[name] / size)
        for name in ("precision", "square")
    )
    curvatures, squares = (*state.curvatures, curvature), (*state.squares, square)
    precision, blur = _curvature(settings, curvatures, sums.records, reach)
    most = 1.0 if settings.couple is None else MOST_SPREAD * unit.spread
    spread = _covariance(settings, squares, precision, blur, state.weight * unit.spread, most, reach)
    precision, blur, spread = (part * size / scale for part in (precision, blur, spread))
    pure = precision
    # Of sampled rows, each sum has the spread of its draw besides.
    used = sums.releases + (state.used if state.scores else 0)
    own = (1.0 + (sums.up - 1.0) / used) * spread
    if settings.couple is not None:
        score, precision, added = _undispersed(settings, state, sums, score, precision, near=near)
        own = shrinkage.above(own + added, spread, LEAST_LEFT)
    scores = (*state.scores, score)
    noise, weight = _noise(settings, state, sums)
    scale = float(noise.mean)
    mean, covariance = _posterior(settings, precision, blur, scores, own / scale, reach)
    steep = precision + DAMPING * np.diag(np.sqrt((blur**2).sum(axis=1)))
    there, _ = _posterior(settings, steep, blur, scores, own / scale, reach)
    at = _moved(state.at, there, reach * (STEP / 2 if last else STEP))
    if settings.noise is not None:
        # Fitted values are no farther out, on average, than targets, which lie within [-1, 1].
        at = at / max(1.0, math.sqrt(float(at @ _second(settings) @ at)))
    return state._replace(
        at=at,
        mean=mean,
        covariance=covariance,
        precision=pure,
        spread=spread,
        noise=noise,
        noise_weight=weight,
        curvatures=curvatures,
        squares=squares,
        scores=scores,
        used=used,
        dispersion=dispersion.followed(
            state.dispersion, [one.dispersion for one in scores if one.dispersion is not None]
        ),
    )


def _moved(at: Array, there: Array, most: float) -> Array:
    """Step towards a place, of at most this length."""
    length = float(np.linalg.norm(there - at))
    return at + (there - at) * min(1.0, most / length) if length > 0 else at


def _reach(unit: Unit, state: State) -> float:
    """Change of the weights over which the likelihood of the record that counts most is about quadratic."""
    return unit.length / max(state.caps[0], 1e-3)


def _posterior(
    settings: Settings, precision: Array, blur: Array, scores: tuple[Score, ...], own: Array, reach: float
) -> tuple[Array, Array]:
    """Mean and covariance of the weights, given what was released.

    Parameters
    ----------
    precision, blur
        G, and the deviations of its entries.
    own
        Covariance of the scores themselves.
    """
    prior, start = _prior(settings), _start(settings)
    covariance, identity = _inverse(prior), np.eye(len(prior))
    mean = scores[-1].at
    exact = not scores[-1].noise.any()
    known = precision
    for _ in range(1 if exact else ROUNDS):
        point, noise, middle = _combined(precision, scores[-1:] if exact else scores, mean, reach)
        away = point - middle
        left, square = covariance + np.outer(away, away), blur**2  # of the way that is left
        hidden = np.diag(square @ np.diag(left)) + (square - np.diag(np.diag(square))) * left
        known = precision.T @ _solve(own + noise + hidden, precision)
        known = (known + known.T) / 2
        covariance = _inverse(prior + known)
        mean = covariance @ (known @ point + prior @ start)
    # A posterior as wide as a likelihood bends is wider on the side where the curvature falls.
    known = known @ _solve(known + BEND / reach**2 * identity, known)
    # Noise over a curvature that is off by a share e has 1 + 3 e^2 times its variance; `hidden` has one e^2.
    wider = 1.0 / np.sqrt(1.0 + 2.0 * (np.diag(blur) / np.diag(precision)) ** 2)
    covariance = _inverse(prior + (known + known.T) / 2 * np.outer(wider, wider))
    return mean, (covariance + covariance.T) / 2


def _combined(
    precision: Array, scores: tuple[Score, ...], mean: Array, reach: float
) -> tuple[Array, Array, Array]:
    """Where scores point to together, the covariance of what is wrong with it, and where they were taken.

    A score that was taken `away` from the mean is that of a likelihood which is not quadratic. Over a way of
    `reach` the curvature changes about as much as it is, so half of that share of the way is wrong with it,
    in any direction: so many standard deviations of a score without privacy.
    """
    size = len(precision)
    weights, sums, places, share = np.zeros((size, size)), np.zeros(size), np.zeros(size), 0.0
    for one in scores:
        if not one.noise.any():
            return one.at + _solve(precision, one.value), np.zeros_like(precision), one.at
        away = one.at - mean
        wrong = 0.25 * float(away @ away) / reach**2 * float(away @ precision @ away)
        weight = _inverse(one.noise + wrong * (precision + precision.T) / 2)
        weights += weight
        sums += weight @ (one.value + precision @ one.at)
        part = float(np.trace(weight))
        places, share = places + part * one.at, share + part
    noise = _inverse(weights)
    return _solve(precision, noise @ sums), (noise + noise.T) / 2, places / share


def _curvature(
    settings: Settings, curvatures: tuple[Released, ...], records: int, reach: float
) -> tuple[Array, Array]:
    """Average of released curvatures, shrunk to the columns' second moments; deviations of its entries."""
    average, noise = shrinkage.pooled(curvatures, reach)
    if noise == 0:
        return average, np.zeros_like(average)
    structure = _structure(settings, records)
    level = max(float(np.sum(average * structure)) / float(np.sum(structure**2)), LEAST_LEVEL)
    square = settings.geometry.map**2
    rows = records * settings.geometry.rows
    own = level * rows * np.sqrt(square @ settings.geometry.blur**2 @ square.T)
    spread, most = (EVEN_SPREAD, EVEN_DRAWN) if math.isinf(reach) else (LEAST_SPREAD, MOST_DRAWN)
    found, blur = shrinkage.shrunk(average, noise, level * structure, own, spread, most)
    return shrinkage.within(found, level * structure, LEAST_CURVATURE, math.inf), blur


def _covariance(
    settings: Settings,
    squares: tuple[Released, ...],
    precision: Array,
    blur: Array,
    weight: float,
    most: float,
    reach: float,
) -> Array:
    """Average of released covariances of scores, shrunk towards what the average weight promises.

    Parameters
    ----------
    weight, most
        Of the covariance relative to the curvature: the average, and the largest in any direction.
    """
    average, noise = shrinkage.pooled(squares, reach)
    least = LEAST_WEIGHT * weight
    if settings.places:
        # Rows of a unit are alike, or alternate: by how much scores vary more, or less, is seen.
        most = MOST_SPREAD * settings.places
        level = float(np.sum(average * precision)) / float(np.sum(precision**2))
        weight = float(np.clip(level, LEAST_WEIGHT, most))
    if noise > 0:
        average, _ = shrinkage.shrunk(
            average, noise, weight * precision, weight * blur, LEAST_SPREAD, MOST_DRAWN
        )
    return shrinkage.within(average, precision, least, most)


def _undispersed(
    settings: Settings, state: State, sums: _Sums, score: Score, precision: Array, *, near: bool
) -> tuple[Score, Array, Array]:
    """Scores and their curvature freed of the dispersion, and what that adds to their covariance."""
    assert settings.couple is not None
    whole = _used(state, sums.records) * state.left  # sum of the weights, and of their squares
    found = dispersion.correction(
        settings.couple,
        _law(settings, state.at),
        state.dispersion,
        precision,
        whole=whole,
        squares=whole * state.weight,
        noise=sums.deviations["dispersion"],
        estimates=sum(one.dispersion is not None for one in state.scores),
        rows=settings.geometry.rows,
    )
    statistic = float(sums.values["dispersion"][0])
    noise = sums.deviations["dispersion"] ** 2 * np.outer(found.ratio, found.ratio)
    score = score._replace(value=score.value + found.ratio * statistic, noise=score.noise + noise)
    precision = precision + np.outer(found.ratio, found.lean)
    if near:
        way = _solve(precision, score.value)
        score = score._replace(
            dispersion=found.dispersion(state.dispersion, statistic, way),
            doubt=(sums.deviations["dispersion"] ** 2 / found.own**2, found.scatter / found.own**2),
        )
    return score, precision, found.spread


def _law(settings: Settings, at: Array) -> Law:
    """Law of the predictor at a place, if columns were normal with the released moments."""
    second = _second(settings)
    start = np.zeros(len(at))
    if settings.intercept:
        start = settings.geometry.map @ _middle(settings)
    slope = (second - np.outer(start, start)) @ at
    return Law(float(start @ at), max(float(at @ slope), 0.0), start, slope)


def _noise(settings: Settings, state: State, sums: _Sums) -> tuple[Gamma, float]:
    """Noise precision where it is learned, averaged over releases and the guess, and the average's weight.

    A weight is the inverse square of a relative deviation. Logarithms are averaged: what noise hides moves
    the guess little, however far off it is.
    """
    if settings.noise is None:
        return state.noise, 0.0
    prior = settings.noise
    shape_part, rate_part = sums.values["noise"]
    half = _used(state, sums.records) / 2
    square = float(np.clip(rate_part / half, 1.0 / RATIO, RATIO))
    ratio = settings.likelihood.noise_ratio(square, settings.cut)
    if sums.deviations["noise"] == 0:
        shape = float(prior.shape) + half + float(np.clip(shape_part, -half / 2, half / 2))
        return _gamma(shape, float(prior.rate) + half * ratio / state.scale), math.inf
    weight = (half / sums.deviations["noise"]) ** 2
    known = state.noise_weight + weight
    scale = max(state.scale * ratio ** (-weight / known), LEAST_PRECISION)
    shape = float(prior.shape) + half
    return _gamma(shape, shape / scale), known


def _used(state: State, records: int) -> float:
    """Number of records that could be used: all of them, but for more than noise explains."""
    number, variance, of = state.usable
    clear = of == records and records - number > CLEARLY * math.sqrt(variance)
    return max(number, LEAST_USED * records) if clear else float(records)


def _second(settings: Settings) -> Array:
    """Second moments of z a record, positive definite."""
    map_, second, blur = settings.geometry.map, settings.geometry.second, settings.geometry.blur
    inner = map_ @ second @ map_.T
    value, vectors = np.linalg.eigh((inner + inner.T) / 2)
    lowest = max(0.3 * float(blur.max()), 1e-6 * float(value.max()), 1e-12)
    raised = (vectors * np.maximum(value, lowest)) @ vectors.T
    return (raised + raised.T) / 2


def _structure(settings: Settings, records: int) -> Array:
    """Second moments of z, of all rows."""
    return records * settings.geometry.rows * _second(settings)


def _middle(settings: Settings) -> Array:
    """Means of the scaled columns, the intercept's one first."""
    second = settings.geometry.second
    return second[0] / max(second[0, 0], 1e-12)


def _start(settings: Settings) -> Array:
    """The prior mean in coordinates z."""
    return _solve(settings.geometry.map.T, settings.prior_mean)


def _prior(settings: Settings) -> Array:
    """The prior precision in coordinates z."""
    map_ = settings.geometry.map
    return map_ @ settings.prior_precision @ map_.T


def _unit(settings: Settings, state: State) -> Unit:
    """Bound and curvature of the score of a record whose columns are at their means."""
    predictor = 0.0
    if settings.intercept:
        predictor = float((settings.geometry.map.T @ state.at) @ _middle(settings))
    if settings.noise is not None:
        doubt = float(np.sum((state.doubt.T @ state.doubt) * _second(settings)))
        found = settings.likelihood.noise_unit(state.scale, settings.cut, doubt, state.widest)
    else:
        farthest = dispersion.FARTHEST
        found = settings.unit(float(np.clip(predictor, -farthest, farthest)), state.dispersion)
    return found._replace(curvature=max(found.curvature, LEAST_UNIT))


def _publish(settings: Settings, state: State, records: int, both: Array) -> Steered:
    """What contributions may depend on."""
    prior, start = _prior(settings), _start(settings)
    added = state.scale * state.precision
    cavity = prior + added * (1.0 - 1.0 / records)
    eta_0, eta = prior @ start, (prior + added) @ state.at
    root = shrinkage.root(cavity)
    cavity_mean = _solve(cavity, eta - (eta - eta_0) / records)
    half = solve_triangular(root, np.eye(len(root)), lower=True)
    noise = state.noise
    if settings.noise is not None:
        shape, rate = float(noise.shape), float(noise.rate)
        own_shape, own_rate = float(settings.noise.shape), float(settings.noise.rate)
        noise = _gamma(shape - (shape - own_shape) / records, rate - (rate - own_rate) / records)
    public: Any = (settings.geometry.map, half, state.doubt, cavity_mean, state.at)
    how: Any = tuple(map(np.float64, (settings.cut, state.widest, max(state.dispersion, 0.0))))
    return Steered(settings.features, settings.outcome, *public, noise, *how, both)  # pyright: ignore


def _gamma(shape: float, rate: float) -> Gamma:
    return Gamma(np.asarray(shape - 1.0), np.asarray(rate))  # pyright: ignore[reportArgumentType]


def _inverse(matrix: Array) -> Array:
    return _solve(matrix, np.eye(len(matrix)))


def _solve(matrix: Array, right: Array) -> Array:
    """Solve; noise may make a matrix singular to all digits, which must not end a run that is paid for."""
    try:
        return np.asarray(np.linalg.solve(matrix, right), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0], np.float64)
