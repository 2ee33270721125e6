r"""Settings of private fits of linear weights, from public quantities: steps, clips, shares of the budget.

One configuration for every data set, a function of N, the dimension d, epsilon, delta and the model only.
The estimators fit by it and the planner (`dpsep.theory.planner`) forecasts by it.

*Clips.* In coordinates whitened by the posterior, a record's mean part has norm about sqrt(d / N) and its
precision part about d / N when records weigh alike. Clips are multiples of these. A larger multiple c loses
less to clipping, which no interval accounts for, and costs noise, which the intervals know: the final mean
has noise of r posterior standard deviations in each direction, r proportional to c sqrt(d / N). Up to c = 3
(`TAILS`), beyond which few records of a well-chosen model lie, c is as large as keeps the noise of one
release with all of the budget's share below `reach`: 0.85, and 2 for counts, whose residuals have tails far
beyond what the model expects of them. From there on it grows only as far as `spare` times that noise, within
[1.5, 12 reach]: beyond, intervals would pay for tails that hardly any table has. A probit is an exception:
labels that it has wrong speak against it the longer the surer it is, and cutting them makes it surer still
(at c = 3 coefficients were 0.2 standard deviations too large). The noise of the final precision has spectral
norm about sigma_1 c (d / N) sqrt(2 d) relative to the truth; it is kept below 0.15, within [1, 10].

*Steps.* Sixteen full passes, of which the first seven are forgotten (`dpsep.inference.sep_newton`): enough
for the geometry to tighten by several orders of magnitude, few enough for the noise of each to leave a
direction.

*Drawing.* Where even the least clip leaves noise of more than `HIDDEN` times the precision, the released
precision is drawn towards its public guess by as much as its noise says (`dpsep.inference.sep_newton`).

*Where the numbers come from.* A search over steps, shares, floors and clips on made data (one-hot with rare
categories, collinear, heavy-tailed, small, wide). Adult and five UCI sets were looked at beside it, so their
figures in the benchmark are not those of untouched data. The optimum is flat in all constants but the floor,
below 0.3 of which rare categories are lost to noise. `TAILS`, `SPARE` and `HIDDEN` came later, from the
planner's forecasts on made data, with the same real sets beside them (docs/planning.md).

**Privacy.** Public numbers in, public numbers out. The proof is in docs/proofs/glm.md.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy import scaling as private_scaling
from dpsep.privacy.accounting import calibrate_schedule, gaussian_mu
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.sampling import FullBatch, Sampling

STEPS = 16
WARMUP = 7
NOISE_CLIP = 6.0
"""Clip of the noise-precision part, whose mean is one half."""
WEAK = 1.0
"""Largest noise of the released precision, relative to it, that intervals can be relied on with."""
HIDDEN = 0.7
"""Noise of the released precision, relative to it, beyond which it is drawn towards its guess."""
SCALING_SHARE = 0.1
"""Share of the budget for private scaling, where it is needed."""
REACH, COUNT_REACH = 0.85, 2.0
"""Most noise that a clip up to `TAILS` may cost: of most likelihoods, and of counts."""
TAILS = 3.0
"""Multiple of a typical record's norm that a clip should reach (at `REACH`; in proportion for counts)."""
SPARE, PROBIT_SPARE = 0.47, 1.0
"""Share of `reach` that a clip beyond `TAILS` may cost: of most likelihoods, and of the probit."""


def _even(predictor: NDArray[np.float64], cut: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A score that is cut alike at every predictor, in units of the noise."""
    return np.full_like(predictor, cut), np.ones_like(predictor)


class Defaults(NamedTuple):
    """What a regression declares of its fits, for the estimator and for the planner.

    Attributes
    ----------
    reach
        Most noise, in posterior standard deviations, that a larger clip may cost.
    spare
        Share of `reach` that a clip beyond `TAILS` may cost.
    learned_noise, dispersed
        Whether a noise precision is learned too.
    size
        Bound and expected curvature of a score at each predictor, for a cut in deviations: what a record
        weighs in the planner's reference table.
    cut
        Least number of standard deviations at which a score that nothing bounds is cut.
    """

    reach: float = REACH
    spare: float = SPARE
    learned_noise: bool = False
    dispersed: bool = False
    size: Callable[[NDArray[np.float64], float], tuple[NDArray[np.float64], NDArray[np.float64]]] = _even
    cut: float = 3.0


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


def weights_plan(
    records: int,
    dimension: int,
    epsilon: float,
    delta: float,
    *,
    learned_noise: bool = False,
    sensitivity: float = 1.0,
    budget: float = 1.0,
    reach: float = REACH,
    spare: float = 1.0,
    steps: int | None = None,
    clip: float | None = None,
    room: float = 1.0,
    excess: float = 1.0,
) -> Plan:
    """Return the plan of a private fit.

    Parameters
    ----------
    records, dimension
        N, and the number of weights with the intercept.
    epsilon, delta
        The target.
    learned_noise, dispersed
        Whether a noise precision is learned too.
    sensitivity
        1 under zero-out, 2 under replace-one.
    budget
        Share of the budget left for the fit.
    reach
        Most noise of the final mean, in posterior standard deviations, that a larger clip may cost.
    spare
        Share of `reach` that a clip beyond `TAILS` may cost; one for no difference.
    steps
        Another number of releases.
    clip
        Another multiple for both clips.
    room
        Least multiple for the precision's clip. Whitened parts sum to d, so at one a clip can bite into its
        own geometry: what it takes off makes the next parts larger, and intervals end up too wide.
    excess
        Noise of a release, scaled up to all records, over what the budget needs: above one where several
        sites add noise, or take turns (`dpsep.federated`). It asks for smaller clips.

    Examples
    --------
    >>> weights_plan(32561, 85, 1.0, 1e-5).steps
    16
    """
    shares = (0.6, 0.35, 0.05) if learned_noise else (0.7, 0.3, 0.0)
    sigma = excess * sensitivity / (gaussian_mu(epsilon, delta) * math.sqrt(budget))
    load = dimension / records
    if clip is None:
        full = reach * math.sqrt(shares[0]) / (sigma * math.sqrt(load))
        tails = math.inf if spare == 1.0 else TAILS * reach / REACH
        mean = _within(max(min(full, tails), spare * full), 1.5, 12.0 * reach)
        precision = _within(
            0.15 * math.sqrt(shares[1]) / (sigma * load * math.sqrt(2 * dimension)), room, 10.0
        )
    else:
        mean = precision = clip
    steps = STEPS if steps is None else steps
    warmup = round(steps * WARMUP / STEPS)
    return Plan(steps, warmup, mean * math.sqrt(load), precision * load, NOISE_CLIP, *shares)


def weights_schedule(
    records: int,
    dimension: int,
    epsilon: float,
    delta: float,
    relation: Relation,
    sampling: Sampling,
    *,
    scaled: bool,
    learned_noise: bool = False,
    reach: float = REACH,
    spare: float = 1.0,
    steps: int | None = None,
    clip: float | None = None,
    room: float = 1.0,
    excess: float = 1.0,
) -> tuple[Schedule, Plan]:
    """Calibrate the releases of a fit, and of private scaling before it where that is needed.

    Parameters
    ----------
    relation, sampling
        Whose privacy, and which rows a release reads.
    scaled
        Whether columns are scaled privately first, for want of declared bounds.

    The other parameters are those of `weights_plan`.
    """
    budget = 1.0 - SCALING_SHARE if scaled else 1.0
    chosen = weights_plan(
        records,
        dimension,
        epsilon,
        delta,
        learned_noise=learned_noise,
        sensitivity=1.0 if relation == "zero-out" else 2.0,
        budget=budget,
        reach=reach,
        spare=spare,
        steps=steps,
        clip=clip,
        room=room,
        excess=excess,
    )
    # Only ratios matter here: budgets of the parts in proportion to releases over sigma^2.
    fit = Mechanism(sampling, relation, chosen.steps, math.sqrt(chosen.steps / budget), records)
    parts = [fit]
    if scaled:
        releases = private_scaling.RELEASES
        sigma = math.sqrt(releases / SCALING_SHARE)
        parts.insert(0, Mechanism(FullBatch(), relation, releases, sigma, records))
    return calibrate_schedule(epsilon, delta, parts), chosen


def weights_blocks(chosen: Plan, dimension: int, *, learned_noise: bool) -> list[Block]:
    """Return the parts of a release."""
    blocks = [
        Block("mean", dimension, chosen.mean_clip, chosen.mean_share),
        Block("precision", dimension, chosen.precision_clip, chosen.precision_share, "outer"),
    ]
    if learned_noise:
        blocks.append(Block("noise", 2, chosen.noise_clip, chosen.noise_share))
    return blocks


def precision_noise(chosen: Plan, mechanism: Mechanism, dimension: int) -> float:
    """Spectral norm of the final precision's noise, relative to the precision.

    In whitened coordinates the precision is one in every direction. Its noise has a spectral norm of sqrt(2
    d) standard deviations of one entry, less by averaging over the releases that count.
    """
    kept = max(chosen.steps - chosen.warmup, 1)
    return _deviation(mechanism, chosen.precision_clip, chosen.precision_share) * math.sqrt(
        2 * dimension / kept
    )


class WeakBudgetWarning(UserWarning):
    """The budget is too small for a posterior that can be relied on; from public numbers alone."""


def doubt_of(chosen: Plan, mechanism: Mechanism, dimension: int, unit: str = "record") -> str:
    """Say so where the noise of the released precision is about as large as the precision itself.

    Where that is not small the widths of intervals are noise, too, which nothing accounts for.
    """
    ratio = precision_noise(chosen, mechanism, dimension)
    if ratio <= WEAK:
        return ""
    return (
        f"the noise of privacy is {ratio:.2g} times what {mechanism.records} {unit}s say of {dimension} "
        f"weights at this epsilon and delta (it should be below {WEAK:g}): intervals may be far too "
        f"narrow. Use a larger epsilon, more {unit}s or fewer weights."
    )


def _deviation(mechanism: Mechanism, clip: float, share: float) -> float:
    """Deviation of the noise of a block, for sums scaled up to all records."""
    rate = mechanism.sampling.expected_batch(mechanism.records) / mechanism.records
    return mechanism.sigma * clip / (math.sqrt(share) * rate)


def _within(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
