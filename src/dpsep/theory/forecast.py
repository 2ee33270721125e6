r"""What privacy will cost, before any record is read: widths, divergence and risk from public numbers.

*Linear weights.* In coordinates whitened by the posterior without privacy, N(m, Lambda^-1), the private mean
is m plus noise of standard deviation r in every direction (`dpsep.theory.glm_defaults.mean_noise`): the
released mean parts have noise of known size, and the kept ones are averaged. Then

    widening of intervals     w = f^-1/2 sqrt(1 + r^2),
    excess risk, nats/record  r^2 d / 2N      (a quadratic loss whose Hessian is Lambda / N),
    KL[q || p]                (d / 2) ( 1/w^2 - 1 + log w^2 + r^2 / w^2 ),

where q is the posterior without privacy and p the noise-aware private one. The excess is over the risk of
the fit without privacy, which itself is d / 2N above the best possible. A linear model's noise precision is
released, too: with a relative error of standard deviation e it costs another e^2 / 4. The share f of the
precision that its clip leaves solves

    f = E min( W, c f ),

W a record's share of the precision (mean one) and c the clip's multiple: a clip that bites makes the
geometry wider, which makes whitened records larger. W depends on the data; here it is that of a reference
table: standard normal columns, indicators whose prevalences fall as 1 / k^2 (`levels`; the exponent was
chosen with Adult in view), and a predictor with standard deviation 1.1. The equation is iterated as often as
the fit takes steps.

*Mixtures.* Eight releases and a start are averaged; a component has N / J records. With well separated
components the noise of a mean is r posterior standard deviations, r^2 = T s^2 J / (N (T + 1)^2), s the noise
of a release. Overlap makes it more.

*What is not in it.* A clip's bias where records have longer tails than the model says; directions in which
columns are nearly collinear, which noise may hide; private scaling's rounding. None of these can be known
from public numbers; docs/planning.md has what they came to on real tables. Networks are not forecast: what
noise does to their predictions is not known in closed form.

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
from dpsep.theory.glm_defaults import Plan, mean_noise, noise_error, precision_noise
from dpsep.theory.mixtures import START_WEIGHT

Array = NDArray[np.float64]

ROUGH = 0.45
"""Noise of the precision, relative to it, beyond which forecasts are rough."""
LEFT = 0.4
"""Share of the precision that its clip must leave: below, forecasts are rough, and of risk too low."""
DRAWS = 20_000
"""Records of the reference table."""
PREDICTOR = math.sqrt(1.25)
"""Standard deviation of the reference table's predictor."""
RARITY = 2.0
"""Prevalences of a category's levels in the reference table fall as this power of their rank."""


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
        Noise of the released precision relative to it; above one, intervals are noise.
    left
        Share of the precision that its clip leaves.

    Examples
    --------
    >>> from dpsep import plan
    >>> forecast = plan("logistic", 20_000, 10, epsilon=1.0).forecast
    >>> round(forecast.widening, 2), round(forecast.noise_share, 2)
    (1.13, 0.22)
    """

    widening: float
    noise_share: float
    kl: float
    excess_risk: float
    hidden: float
    left: float = 1.0

    @property
    def is_rough(self) -> bool:
        """Whether noise or a clip takes so much off the precision that forecasts are rough."""
        return self.hidden > ROUGH or self.left < LEFT


def weights_forecast(
    model: str,
    chosen: Plan,
    mechanism: Mechanism,
    dimension: int,
    levels: tuple[int, ...] = (),
) -> Forecast:
    """Forecast a fit of linear weights.

    Parameters
    ----------
    model
        A regression of `dpsep.registry`.
    chosen, mechanism
        Settings and releases of the fit.
    dimension
        Number of weights d, with the intercept.
    levels
        Indicators of each category among the columns (its values less one); other columns are numbers.

    Examples
    --------
    >>> from dpsep.privacy.sampling import FullBatch
    >>> from dpsep.theory.glm_defaults import weights_schedule
    >>> task = (20000, 11, 1.0, 1e-5, "zero-out", FullBatch())
    >>> schedule, chosen = weights_schedule(*task, scaled=False, spare=0.47)
    >>> round(weights_forecast("logistic", chosen, schedule.parts[-1], 11).widening, 2)
    1.13
    """
    records = mechanism.records
    noise = mean_noise(chosen, mechanism) ** 2
    multiple = chosen.precision_clip * records / dimension
    left = clip_remainder(model, dimension, multiple, chosen.steps, levels)
    hidden = precision_noise(chosen, mechanism, dimension)
    found = _forecast(noise, left, dimension, records, hidden)
    error = noise_error(chosen, mechanism) if named(model).load().defaults.learned_noise else 0.0
    return found._replace(excess_risk=found.excess_risk + error**2 / 4.0)


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


@lru_cache(maxsize=256)
def clip_remainder(
    model: str, dimension: int, multiple: float, steps: int, levels: tuple[int, ...] = ()
) -> float:
    """Share of the precision that its clip leaves, f above.

    Parameters
    ----------
    model, dimension, levels
        As in `weights_forecast`.
    multiple
        The clip over a typical record's part, c.
    steps
        How often the geometry is renewed.

    Examples
    --------
    >>> clip_remainder("linear", 25, 10.0, 16)
    1.0
    >>> clip_remainder("logistic", 25, 1.0, 16) < 0.6
    True
    """
    weight = _reference(model, dimension, levels)
    left = 2.0
    for _ in range(steps):
        left = float(np.minimum(weight, multiple * left).mean())
    return min(left, 1.0)


def _forecast(noise: float, left: float, dimension: int, records: int, hidden: float) -> Forecast:
    square = (1.0 + noise) / left
    divergence = 0.5 * dimension * (1.0 / square - 1.0 + math.log(square) + noise / square)
    excess = noise * dimension / (2.0 * records)
    return Forecast(math.sqrt(square), noise / (1.0 + noise), divergence, excess, hidden, left)


@lru_cache(maxsize=64)
def _reference(model: str, dimension: int, levels: tuple[int, ...]) -> Array:
    """Shares of the precision of the records of a reference table, with mean one."""
    rng = np.random.default_rng(0)
    predictor = PREDICTOR * rng.standard_normal(DRAWS)
    curvature = named(model).load().defaults.curvature(predictor)
    numbers = dimension - 1 - sum(levels)
    leverage = np.ones(DRAWS)
    if numbers:
        leverage += rng.chisquare(numbers, DRAWS)
    for count in levels:
        # Beyond the intercept, an independent category with prevalences p adds 1 / p - 1.
        prevalence = np.arange(1.0, count + 2) ** -RARITY
        prevalence /= prevalence.sum()
        leverage += 1.0 / prevalence[rng.choice(count + 1, size=DRAWS, p=prevalence)] - 1.0
    share = curvature * leverage
    return share / share.mean()
