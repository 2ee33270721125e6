r"""What privacy will cost, before any record is read: widths, divergence and risk from public numbers.

*Linear weights.* The private fit's own algebra (`dpsep.inference.weighted`) is done on a reference table:
standard normal columns, indicators whose prevalences fall as 1 / k^2 (`levels`; the exponent was chosen with
Adult in view), and a predictor with standard deviation 1.1. In its coordinates z, with w = min(1, R / (b
|z|)) and the caps that a fit would choose, a coefficient has information G = sum w k z^2, scores of variance
J = sum w^2 k z^2 and noise of known deviation c. Its variance is (J + c^2) / G^2, a little more where noise
hides G, and no more than the prior's. Then

    widening of intervals     square root of that over the variance without privacy; the median coefficient's,
    excess risk, nats/record  sum (variance - variance without privacy) F / 2N,  F = sum k z^2,
    KL[q || p]                1/2 sum log (variance / variance without privacy),

where q is the posterior without privacy and p the noise-aware private one. The excess is over the risk of the
fit without privacy, which itself is d / 2N above the best possible. A linear model's noise precision is
released, too: with a relative error of standard deviation e it costs another e^2 / 4.

*Mixtures.* Eight releases and a start are averaged; a component has N / J records. With well separated
components the noise of a mean is r posterior standard deviations, r^2 = T s^2 J / (N (T + 1)^2), s the noise
of a release. Overlap makes it more.

*What is not in it.* Directions in which columns are nearly collinear, indicators that are rarer than the
reference table's, bounds that are far too wide. None of these can be known from public numbers;
docs/planning.md has what they came to on real tables. Networks are not forecast: what noise does to their
predictions is not known in closed form.

**Privacy.** Public numbers in, public numbers out.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism
from dpsep.registry import named
from dpsep.theory.mixtures import START_WEIGHT
from dpsep.theory.weighted_defaults import WeightedPlan

Array = NDArray[np.float64]

ROUGH = 0.45
"""Noise of the curvature, relative to it, beyond which forecasts are rough."""
WEAK, HOPELESS = 0.25, 0.5
"""Posterior over prior standard deviation of a typical coefficient from which on the prior is heard, and
speaks."""
DRAWS = 6_000
"""Records of the reference table."""
PREDICTOR = math.sqrt(1.25)
"""Standard deviation of the reference table's predictor."""
RARITY = 2.0
"""Prevalences of a category's levels in the reference table fall as this power of their rank."""
PRIOR = 2.5
"""Prior standard deviation of an effect of one standard deviation of a column, by default."""
NOISE = 0.25
"""Standard deviation of a number about its mean in the reference table, over the reach of its bounds."""
CANDIDATES = 40
"""Caps that are tried."""


class Forecast(NamedTuple):
    """What a private fit is expected to be.

    Attributes
    ----------
    widening
        Width of an interval over its width without privacy.
    noise_share
        Share of an interval's variance that is noise of privacy.
    kl
        Expected divergence KL[q || p] of the private posterior from the one without privacy, in nats.
    excess_risk
        Expected loss of log predictive density, in nats a record, against the fit without privacy.
    hidden
        Noise of the released curvature relative to it; where it is large forecasts are rough.
    left
        Share of the information that the records' weights leave.
    of_prior
        Posterior standard deviation over the prior's; where it is near one the data do not speak.

    Examples
    --------
    >>> from dpsep import plan
    >>> forecast = plan("logistic", 20_000, 10, epsilon=1.0).forecast
    >>> 1.0 < forecast.widening < 1.2, 0.0 < forecast.noise_share < 0.3
    (True, True)
    """

    widening: float
    noise_share: float
    kl: float
    excess_risk: float
    hidden: float
    left: float = 1.0
    of_prior: float = 0.0

    @property
    def is_rough(self) -> bool:
        """Whether noise takes so much that forecasts are rough, or the prior is heard."""
        return self.hidden > ROUGH or self.of_prior > WEAK


class _Reference(NamedTuple):
    """Records of a reference table.

    Attributes
    ----------
    bound, curvature
        Of each record's score.
    square
        |z|^2 of each record.
    parts
        z^2 of kinds of coefficients: the intercept, all numbers alike, then each indicator.
    counts
        How many coefficients are of each kind.
    variances
        Of the column of each kind.
    shown
        Kinds that are told of: numbers, or indicators where there are no others.
    """

    bound: Array
    curvature: Array
    square: Array
    parts: Array
    counts: Array
    variances: Array
    shown: slice


def weights_forecast(
    model: str, chosen: WeightedPlan, mechanism: Mechanism, dimension: int, levels: tuple[int, ...] = ()
) -> Forecast:
    """Forecast a fit of linear weights.

    Parameters
    ----------
    model
        A regression of `dpsep.registry`.
    chosen, mechanism
        Settings of the fit, and the releases of its last stage.
    dimension
        Number of weights d, with the intercept.
    levels
        Indicators of each category among the columns (its values less one); other columns are numbers.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> from dpsep.theory.weighted_defaults import weighted_schedule
    >>> task = (20000, 11, 1.0, 1e-5, "zero-out", FullBatch())
    >>> schedule, chosen = weighted_schedule(*task, scaled=False)
    >>> 1.0 < weights_forecast("logistic", chosen, schedule.parts[-1], 11).widening < 1.2
    True
    """
    records = mechanism.records
    table = _reference(model, dimension, levels, round(chosen.cut, 3))
    scale = records / DRAWS
    size = table.bound * np.sqrt(table.square)
    cap = _score_cap(size, table, chosen.hidden[0], dimension, scale)
    steep = table.curvature * table.square
    largest = _curvature_cap(steep, chosen.hidden[1], dimension, scale)
    weight = np.minimum(np.minimum(1.0, cap / size), largest / steep)
    known = table.curvature * scale
    whole, left, own = (table.parts @ (known * part) for part in (1.0, weight, weight**2))
    rate = mechanism.sampling.expected_batch(records) / records
    own = own * (1.0 + (1.0 / rate - 1.0) / chosen.fit)
    relative = np.minimum(largest * chosen.hidden[1] / left, 1.0)
    noise = (own + (cap * chosen.hidden[0]) ** 2) / left**2 * (1.0 + 3.0 * relative**2)
    learned = named(model).load().defaults.learned_noise
    prior = (PRIOR / (NOISE if learned else 1.0)) ** 2 / np.sqrt(table.variances)
    total, alone = 1.0 / (1.0 / noise + 1.0 / prior), 1.0 / (whole + 1.0 / prior)
    total = np.maximum(total, alone)
    shown, place = table.shown, np.median
    error = 0.0
    if learned:
        error = chosen.cut**2 * chosen.hidden[0] * math.sqrt(chosen.shares[0] / chosen.shares[-1]) / records
    return Forecast(
        widening=float(place(np.sqrt(total / alone)[shown])),
        noise_share=float(place((1.0 - alone / total)[shown])),
        kl=float(0.5 * np.sum(table.counts * np.log(total / alone))),
        excess_risk=float(np.sum(table.counts * (total - alone) * whole)) / (2.0 * records) + error**2 / 4.0,
        hidden=float(place((largest * chosen.hidden[1] / left)[shown])),
        left=float(np.sum(table.counts * left) / np.sum(table.counts * whole)),
        of_prior=float(place(np.sqrt(total / prior)[shown])),
    )


def _score_cap(size: Array, table: _Reference, hidden: float, dimension: int, scale: float) -> float:
    """Cap of the scores, chosen as `dpsep.inference.caps.score_cap` does."""
    rate = scale * table.curvature * table.square / dimension

    def variance(cap: float) -> float:
        weight = np.minimum(1.0, cap / size)
        return (float(rate @ weight**2) + (cap * hidden) ** 2) / float(rate @ weight) ** 2

    return min(_candidates(size), key=variance)


def _curvature_cap(steep: Array, hidden: float, dimension: int, scale: float) -> float:
    """Cap of the curvatures, chosen as `dpsep.inference.caps.curvature_cap` does."""
    whole = scale * float(steep.sum())

    def loss(cap: float) -> float:
        left = scale * float(np.minimum(steep, cap).sum()) / whole
        return 1.0 - left + (cap * hidden * dimension / (0.2 * left * whole)) ** 2

    return min(_candidates(steep), key=loss)


def _candidates(size: Array) -> list[float]:
    return [float(each) for each in np.quantile(size, np.linspace(0.02, 1.0, CANDIDATES))]


def mixture_forecast(
    blocks: list[Block], mechanism: Mechanism, steps: int, components: int, features: int
) -> Forecast:
    """Forecast the means of a mixture whose components lie well apart.

    Parameters
    ----------
    blocks, mechanism, steps
        The releases of the fit.
    components, features
        J and D.
    """
    records = mechanism.records
    block = next(part for part in blocks if part.name == "mean")
    rate = mechanism.sampling.expected_batch(records) / records
    count = records / components
    deviation = mechanism.sigma * block.clip / (math.sqrt(block.share) * rate)
    averaged = steps / (steps + START_WEIGHT) ** 2
    noise = averaged * (deviation**2 / count + (1.0 / rate - 1.0))
    return _forecast(noise, 1.0, components * features, records, deviation / count)


def _forecast(noise: float, left: float, dimension: int, records: int, hidden: float) -> Forecast:
    square = (1.0 + noise) / left
    divergence = 0.5 * dimension * (1.0 / square - 1.0 + math.log(square) + noise / square)
    excess = noise * dimension / (2.0 * records)
    return Forecast(math.sqrt(square), noise / (1.0 + noise), divergence, excess, hidden, left)


@lru_cache(maxsize=64)
def _reference(model: str, dimension: int, levels: tuple[int, ...], cut: float) -> _Reference:
    """Records of a reference table in half-whitened coordinates: columns are divided by variance^(1/4)."""
    rng = np.random.default_rng(0)
    predictor = PREDICTOR * rng.standard_normal(DRAWS)
    bound, curvature = named(model).load().defaults.size(predictor, cut)
    numbers = dimension - 1 - sum(levels)
    square = np.ones(DRAWS)
    parts, counts, variances = [np.ones(DRAWS)], [1], [1.0]
    if numbers:
        parts.append(rng.chisquare(1, DRAWS))
        counts.append(numbers)
        variances.append(1.0)
        square += parts[-1] + (rng.chisquare(numbers - 1, DRAWS) if numbers > 1 else 0.0)
    for count in levels:
        prevalence = np.arange(1.0, count + 2) ** -RARITY
        prevalence /= prevalence.sum()
        place = rng.choice(count + 1, size=DRAWS, p=prevalence)
        for level in range(1, count + 1):
            variance = prevalence[level] * (1.0 - prevalence[level])
            parts.append(np.where(place == level, variance**-0.5, 0.0))
            square += parts[-1]
            counts.append(1)
            variances.append(variance)
    ones = np.ones(DRAWS)
    shown = slice(1, 2) if numbers else slice(1 if levels else 0, None)
    kinds = (np.array(parts), np.array(counts), np.array(variances), shown)
    return _Reference(bound * ones, curvature * ones, square, *kinds)
