r"""Defaults from public quantities: how many steps, which clips, how the budget is shared.

One configuration for every data set, a function of N, the dimension d, epsilon, delta and the model only.

*Clips.* In coordinates whitened by the posterior, a record's mean part has norm about sqrt(d / N) and its
precision part about d / N when records weigh alike. Clips are multiples of these. A larger multiple c loses
less to clipping, which no interval accounts for, and costs noise, which the intervals know. The noise of the
final mean is sigma_1 c sqrt(d / N) posterior standard deviations in each direction (sigma_1: all of the
budget's share in one release), so c is the largest multiple, within [1.5, 12 reach], that keeps this below
`reach`: 0.85, and 2 for counts, whose residuals have tails far beyond what the model expects of them. The
noise of the final precision has spectral norm about sigma_1 c (d / N) sqrt(2 d) relative to the truth; it is
kept below 0.15, within [1, 10].

*Steps.* Sixteen full passes, of which the first seven are forgotten (`dpsep.inference.stable`): enough for
the geometry to tighten by several orders of magnitude, few enough for the noise of each to leave a direction.

*Where the numbers come from.* A search over steps, shares, floors and clips on made data (one-hot with rare
categories, collinear, heavy-tailed, small, wide). Adult and five UCI sets were looked at beside it, so their
figures in the benchmark are not those of untouched data. The optimum is flat in all constants but the floor,
below 0.3 of which rare categories are lost to noise.

**Privacy.** Public numbers in, public numbers out.
"""

import math
import warnings
from typing import NamedTuple

from dpsep.privacy.accounting import gaussian_mu
from dpsep.privacy.mechanism import Mechanism

STEPS = 16
WARMUP = 7
NOISE_CLIP = 6.0
"""Clip of the noise-precision part, whose mean is one half."""
WEAK = 1.0
"""Largest noise of the released precision, relative to it, that intervals can be relied on with."""
SCALING_SHARE = 0.1
"""Share of the budget for private scaling, where it is needed."""


class Plan(NamedTuple):
    """Public constants of a private fit.

    Attributes
    ----------
    steps, warmup
        Releases, and how many of the first are forgotten.
    mean_clip, precision_clip, noise_clip
        Clips of the blocks, in whitened units.
    mean_share, precision_share, noise_share
        How each release's budget is shared; they sum to one.
    """

    steps: int
    warmup: int
    mean_clip: float
    precision_clip: float
    noise_clip: float
    mean_share: float
    precision_share: float
    noise_share: float


def plan(
    records: int,
    dimension: int,
    epsilon: float,
    delta: float,
    *,
    learned_noise: bool = False,
    sensitivity: float = 1.0,
    budget: float = 1.0,
    reach: float = 0.85,
    steps: int | None = None,
    clip: float | None = None,
    room: float = 1.0,
) -> Plan:
    """Return the default plan of a private fit.

    Parameters
    ----------
    records, dimension
        N, and the number of weights with the intercept.
    epsilon, delta
        The target.
    learned_noise
        Whether a noise precision is learned too.
    sensitivity
        1 under zero-out, 2 under replace-one.
    budget
        Share of the budget left for the fit.
    reach
        Most noise of the final mean, in posterior standard deviations, that a larger clip may cost.
    steps
        Another number of releases.
    clip
        Another multiple for both clips.
    room
        Least multiple for the precision's clip. Whitened parts sum to d, so at one a clip can bite into its
        own geometry: what it takes off makes the next parts larger, and intervals end up too wide.

    Examples
    --------
    >>> plan(32561, 85, 1.0, 1e-5).steps
    16
    """
    shares = (0.6, 0.35, 0.05) if learned_noise else (0.7, 0.3, 0.0)
    sigma = sensitivity / (gaussian_mu(epsilon, delta) * math.sqrt(budget))
    load = dimension / records
    if clip is None:
        mean = _within(reach * math.sqrt(shares[0]) / (sigma * math.sqrt(load)), 1.5, 12.0 * reach)
        precision = _within(
            0.15 * math.sqrt(shares[1]) / (sigma * load * math.sqrt(2 * dimension)), room, 10.0
        )
    else:
        mean = precision = clip
    steps = STEPS if steps is None else steps
    warmup = round(steps * WARMUP / STEPS)
    return Plan(steps, warmup, mean * math.sqrt(load), precision * load, NOISE_CLIP, *shares)


class WeakBudgetWarning(UserWarning):
    """The budget is too small for a posterior that can be relied on; from public numbers alone."""


def warn_if_weak(chosen: Plan, mechanism: Mechanism, dimension: int, unit: str = "record") -> None:
    """Warn where the noise of the released precision is about as large as the precision itself.

    In whitened coordinates the precision is one in every direction. Its noise has a spectral norm of sqrt(2
    d) standard deviations of one entry, less by averaging over the releases that count. Where that is not
    small the widths of intervals are noise, too, which nothing accounts for.
    """
    kept = max(chosen.steps - chosen.warmup, 1)
    rate = mechanism.sampling.expected_batch(mechanism.records) / mechanism.records
    deviation = mechanism.sigma * chosen.precision_clip / (math.sqrt(chosen.precision_share) * rate)
    ratio = deviation * math.sqrt(2 * dimension / kept)
    if ratio > WEAK:
        warnings.warn(
            f"the noise of privacy is {ratio:.2g} times what {mechanism.records} {unit}s say of {dimension} "
            f"weights at this epsilon and delta (it should be below {WEAK:g}): intervals may be far too "
            f"narrow. Use a larger epsilon, more {unit}s or fewer weights.",
            WeakBudgetWarning,
            stacklevel=4,
        )


def _within(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
