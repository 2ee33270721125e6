r"""Settings of private fits by weighted scores (`dpsep.inference.weighted`), from public quantities.

One configuration for every data set, a function of N, the dimension d, epsilon, delta and the model only. The
budget goes to three stages: second moments of the columns (`dpsep.inference.leverage`), the way to the fixed
point, and the scores near it, which are averaged. Only the last ones make the noise of the result, so they
have the most; the way is found with little.

*Cuts.* Where nothing bounds a score (numbers, counts), it is cut at `Defaults.cut` standard deviations, and
farther out as the budget grows: as far as the noise that this costs, c^2 d sigma^2 / N in variances of the
scores, stays below `OPEN`. So every fit becomes the uncut one with N mu^2.

*Where the numbers come from.* Shares, steps and thresholds were chosen on made tables (plain, a rare
indicator, eight categories, loose bounds, a skewed column, few positives, two collinear columns; logistic),
by simulations of the whole mechanism.

**Privacy.** Public numbers in, public numbers out. The proof is in docs/proofs/weighted.md.
"""

import math
from typing import Literal, NamedTuple

from dpsep.privacy import scaling as private_scaling
from dpsep.privacy.accounting import calibrate_schedule
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.sampling import FullBatch, Sampling
from dpsep.theory.glm_defaults import SCALING_SHARE

MOMENTS, APPROACH, FIT = "moments", "approach", "fit"
"""Names of the stages."""
MOMENTS_SHARE, APPROACH_SHARE = 0.18, 0.22
"""Shares of the budget that is left after scaling; the fit has the rest."""
MOMENTS_RELEASES = 4
APPROACH_STEPS, FIT_STEPS = 8, 6
LOOKS = 2
"""Releases of the approach beside its steps."""
SHARES, MORE_SHARES = (0.75, 0.2, 0.05), (0.7, 0.18, 0.05, 0.07)
"""Of a release: scores, curvature, covariance of scores; the same and the noise or dispersion that is
learned."""
UNIT_SHARES, MORE_UNIT_SHARES = (0.68, 0.2, 0.12), (0.64, 0.18, 0.11, 0.07)
"""The same where units have several rows: how these go together is not promised by anything."""
PASSES, MOST_FIT_STEPS = 12, 240
"""Times that the last stage reads every record where rows are sampled, in at most so many releases."""
OPEN, MOST_CUT = 0.0005, 30.0
"""Variance of the noise that a farther cut may cost, in variances of the scores; the farthest cut."""
OPEN_STEPS, FAR = 60, 1e5
"""Without privacy: steps of the approach, and a cut that cuts nothing."""


class WeightedPlan(NamedTuple):
    """Public constants of a private fit.

    Attributes
    ----------
    approach, fit
        Steps of the last two stages.
    shares
        How a release's budget is shared.
    cut
        Standard deviations at which unbounded scores are cut.
    hidden
        Deviations of the noise in all scores and all curvatures of the fit together, in units of their caps.
    """

    approach: int
    fit: int
    shares: tuple[float, ...]
    cut: float
    hidden: tuple[float, float]


def weighted_schedule(
    records: int,
    dimension: int,
    epsilon: float,
    delta: float,
    relation: Relation,
    sampling: Sampling,
    *,
    scaled: bool,
    more: bool = False,
    together: bool = False,
    cut: float = 3.0,
    steps: int | None = None,
) -> tuple[Schedule, WeightedPlan]:
    """Calibrate the releases of a fit, and of private scaling before it where that is needed.

    Parameters
    ----------
    records, dimension
        N, and the number of weights with the intercept.
    epsilon, delta, relation, sampling
        The target, whose privacy, and which rows a release reads.
    scaled
        Whether columns are scaled privately first, for want of declared bounds.
    more
        Whether a noise precision or a dispersion is learned, too.
    together
        Whether units have several rows.
    cut
        Least cut of an unbounded score, in standard deviations.
    steps
        Another number of steps of the fit; the approach has at most `APPROACH_STEPS`, fewer where it has few.

    Examples
    --------
    >>> schedule, plan = weighted_schedule(20_000, 6, 1.0, 1e-5, "zero-out", FullBatch(), scaled=False)
    >>> [part.steps for part in schedule.parts], plan.cut
    ([4, 10, 6], 3.0)
    """
    rate = sampling.expected_batch(records) / records
    near = FIT_STEPS if steps is None else steps
    way = min(APPROACH_STEPS, max(1, round(near * APPROACH_STEPS / FIT_STEPS)))
    if steps is None and rate < 1:
        near = int(min(max(near, math.ceil(PASSES / rate)), MOST_FIT_STEPS))
    budget = 1.0 - SCALING_SHARE if scaled else 1.0
    shares = (MOMENTS_SHARE, APPROACH_SHARE, 1.0 - MOMENTS_SHARE - APPROACH_SHARE)
    releases = (MOMENTS_RELEASES, way + LOOKS, near)
    # Only ratios matter here: budgets of the parts in proportion to releases over sigma^2.
    parts = [
        Mechanism(sampling, relation, count, math.sqrt(count / (share * budget)), records)
        for count, share in zip(releases, shares, strict=True)
    ]
    if scaled:
        count = private_scaling.RELEASES
        parts.insert(0, Mechanism(FullBatch(), relation, count, math.sqrt(count / SCALING_SHARE), records))
    schedule = calibrate_schedule(epsilon, delta, parts)
    last = schedule.parts[-1]
    sigma = last.sigma / (rate * math.sqrt(near))
    chosen = _shares(more=more, together=together)
    farther = math.sqrt(OPEN * records * chosen[0] / dimension) / sigma
    cut = min(max(cut, farther), max(cut, MOST_CUT))
    hidden = (sigma / math.sqrt(chosen[0]), sigma / math.sqrt(chosen[1]))
    return schedule, WeightedPlan(way, near, chosen, cut, hidden)


def _shares(*, more: bool, together: bool) -> tuple[float, ...]:
    if together:
        return MORE_UNIT_SHARES if more else UNIT_SHARES
    return MORE_SHARES if more else SHARES


def weighted_blocks(chosen: WeightedPlan, dimension: int) -> list[Block]:
    """Return the parts of a release of scores, at caps of one."""
    kinds: list[tuple[str, int, Literal["flat", "outer"]]] = [
        ("mean", dimension, "flat"),
        ("precision", dimension, "outer"),
        ("square", dimension, "outer"),
        ("more", 2, "flat"),
    ]
    return [
        Block(name, size, 1.0, share, kind)
        for (name, size, kind), share in zip(kinds, chosen.shares, strict=False)
    ]


def open_weighted_plan(
    steps: int | None = None, *, more: bool = False, together: bool = False
) -> WeightedPlan:
    """Plan without privacy: many steps, no cut, no noise.

    Examples
    --------
    >>> open_weighted_plan().approach
    60
    """
    near = FIT_STEPS if steps is None else min(FIT_STEPS, steps)
    way = OPEN_STEPS if steps is None else max(1, steps - near)
    return WeightedPlan(way, near, _shares(more=more, together=together), FAR, (0.0, 0.0))
