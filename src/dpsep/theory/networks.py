r"""Defaults of network fits from public quantities: steps, clips, shares of the budget.

One configuration for every data set, a function of N, the number of weights and the method.

*Budget.* A tenth for private scaling where it is needed; of the rest, `MOMENT_SHARE` for the inputs'
covariance in two to five looks of two releases each (`dpsep.inference.moments`), the remainder for the fit.
Inputs that are nearly collinear need several looks to be seen; others would do with fewer.

*Steps.* N / 20 within [50, 300], every record in each. With few records a step is capped shorter.

*Clips.* A record's mean part is clipped to half of what a typical record has in whitened coordinates: half of
them are clipped then, which costs little because residuals are symmetric, and halves the noise. Labels are
another matter: the few that a model has wrong speak against it with long gradients, and clipping those makes
it too sure of itself, so that their clip is four times as wide in the Kronecker basis (eight times for
gradients; both chosen on one made table, where the default for numbers lost 0.14 nats). The noise statistic
has a clip of its own (`noise_clip`).

*Where the numbers come from.* A random search on six made tables (arm kinematics, Friedman's first function,
a plant with correlated inputs and heavy tails, a six-valued target with 1439 records, an engine with 14
collinear columns and two constant ones, a bimodal target with 41157 records), at epsilon 1, three or four
seeds each. The optimum is flat: within a factor of two, damping, rate, clip and steps change RMSE by 1 or 2%.
The prototypes that led to whitening, one joint release and a clip of its own for the noise statistic had
looked at the paper's five UCI sets.

**Privacy.** Public numbers in, public numbers out.
"""

import math
from typing import Literal, NamedTuple, Protocol

from dpsep.privacy import scaling as private_scaling
from dpsep.privacy.accounting import calibrate_schedule
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling
from dpsep.theory.glm_defaults import SCALING_SHARE

MOMENT_SHARE = 0.2
STANDARD_SHARE, STANDARD_LOOKS = 0.1, 2
"""Share and looks of the moments where they only standardise columns: for gradients."""
LOOK = 2
"""Releases of a look at the moments."""
DIAGONAL_NOISE_CLIP = 4.0
"""Clip of the noise statistic with independent weights."""
MEAN_CLIP, LABEL_CLIP = 0.5, 2.0
"""Clip of the mean part, over the whitened norm of a typical record: of numbers, and of labels."""
LABEL_GRADIENT = 8.0
"""Clip of gradients of labels, over that of numbers."""
MOST_WEIGHTS = 2_000_000
"""Most weights of a network: beyond, one record's factor fills a cache many times over."""
MOST_WIDTH = 4000
"""Most inputs or units of a layer: beyond, its basis takes too long to find."""
MOST_NUMBERS, LEAST_RATE = 2e8, 0.01
"""Records times weights that a release reads by default; larger tables are sampled, at this rate at least."""


class NetworkTask(Protocol):
    """What settings depend on: the shape of a fit, and what its user asked for."""

    @property
    def records(self) -> int:
        """N."""
        ...

    @property
    def size(self) -> int:
        """Number of weights."""
        ...

    @property
    def outcome(self) -> Literal["regression", "classification"]:
        """What is predicted."""
        ...

    @property
    def steps(self) -> int | None:
        """Releases asked for."""
        ...

    @property
    def clip(self) -> float | None:
        """Multiple of the clips asked for."""
        ...


class SepPlan(NamedTuple):
    """Constants of a private fit with a Kronecker basis, named as in `dpsep.inference.network.Settings`."""

    steps: int
    clip: float
    damping: float = 4.0
    rate: float = 0.5
    last: float = 0.1
    cap: float = 1.0
    tail: float = 0.2
    start: float = 0.5

    def first_noise(self, left: float) -> float:
        """Noise variance to start from, where a linear model leaves `left`: hidden units are random yet."""
        return min(1.2 * max(left, 1e-3) + 0.05, 1.0)


class DiagonalPlan(NamedTuple):
    """Constants of a private fit with independent weights."""

    steps: int
    mean_clip: float
    precision_clip: float
    rate: float = 0.05
    mean_share: float = 0.65
    precision_share: float = 0.3


class OpenPlan(NamedTuple):
    """Constants of a fit without privacy: passes over the records, records of a batch, step size."""

    passes: int
    batch: int
    rate: float = 0.03

    def steps(self, records: int) -> int:
        """Number of batches."""
        return max(1, math.ceil(self.passes * records / self.batch))


def moment_looks(records: int) -> int:
    """Looks at the moments: several lenses where there are records enough for each.

    Examples
    --------
    >>> moment_looks(1439), moment_looks(7372), moment_looks(41157)
    (2, 4, 5)
    """
    return round(min(max(records / 2000.0, 2.0), 5.0))


def noise_share(records: int) -> float:
    """Share of a release for the noise statistic: more of it where few records tell of the noise.

    Examples
    --------
    >>> noise_share(7372)
    0.05
    """
    return min(max(250.0 / records, 0.05), 0.2)


def noise_clip(records: int) -> float:
    """Clip of the noise statistic, whose mean is one half: wider where the noise of a release allows.

    Residuals of heavy tails need a wide one, or the noise variance is underestimated.

    Examples
    --------
    >>> noise_clip(1439), noise_clip(41157)
    (8.0, 16.0)
    """
    return min(max(records / 1000.0, 8.0), 16.0)


def default_steps(records: int) -> int:
    """Releases of a private fit by SEP.

    Examples
    --------
    >>> default_steps(1439), default_steps(7372)
    (72, 300)
    """
    return round(min(max(records / 20.0, 50.0), 300.0))


def sep_plan(task: NetworkTask) -> SepPlan:
    """Plan of a private fit with a Kronecker basis."""
    steps = task.steps or default_steps(task.records)
    cap = min(max(task.records / 4000.0, 0.5), 1.0)
    clip = MEAN_CLIP if task.outcome == "regression" else LABEL_CLIP
    return SepPlan(steps, clip * (task.clip or 1.0), cap=cap)


def gradient_clip(task: NetworkTask, default: float) -> float:
    """Clip of gradients."""
    multiple = task.clip or 1.0
    return multiple * default * (1.0 if task.outcome == "regression" else LABEL_GRADIENT)


def diagonal_plan(task: NetworkTask) -> DiagonalPlan:
    """Plan of a private fit with independent weights."""
    load = task.size / task.records
    multiple = task.clip or 1.0
    steps = task.steps or default_steps(task.records)
    return DiagonalPlan(steps, multiple * math.sqrt(load), multiple * load)


def default_hidden(records: int, *, private: bool) -> tuple[int, ...]:
    """Hidden units from the number of records.

    Without privacy 50, as in the paper, and 100 from 40,000 records; under privacy a quarter of the root of N
    within [10, 100]: noise grows with the number of weights.

    Examples
    --------
    >>> default_hidden(7372, private=True), default_hidden(7372, private=False)
    ((21,), (50,))
    """
    if private:
        return (round(min(max(math.sqrt(records) / 4.0, 10.0), 100.0)),)
    return (100,) if records >= 40_000 else (50,)


def check_size(size: int, widths: tuple[int, ...]) -> None:
    """Raise ValueError where a network is too large to be fitted."""
    if size > MOST_WEIGHTS or max(widths) > MOST_WIDTH:
        raise ValueError(
            f"the network has {size} weights in layers of up to {max(widths)}; at most "
            f"{MOST_WEIGHTS} weights and layers of {MOST_WIDTH} can be fitted. Ask for fewer hidden units, "
            "or leave columns out."
        )


def default_sampling(records: int, size: int, relation: Relation) -> Sampling:
    """Return which records a release of factors reads: as many as is feasible."""
    rate = MOST_NUMBERS / (records * size)
    # Replace-one has no tight accountant of sampled batches: what sampling saves, it would cost.
    if rate >= 1.0 or relation == "replace-one":
        return FullBatch()
    return PoissonSampling(max(rate, LEAST_RATE))


def network_schedule(
    records: int,
    epsilon: float,
    delta: float,
    relation: Relation,
    sampling: Sampling,
    *,
    scaled: bool,
    moments: tuple[float, int],
    steps: int,
) -> Schedule:
    """Calibrate the releases: scaling where bounds are missing, moments, the fit.

    Parameters
    ----------
    scaled
        Whether columns are scaled privately first.
    moments
        Share of the rest of the budget, and looks, for the moments of the columns.
    steps
        Releases of the fit.
    """
    left = 1.0
    parts: list[Mechanism] = []

    # Only ratios matter here. A release of a sampled batch counts by the square of its rate, about.
    def part(kind: Sampling, releases: int, share: float) -> Mechanism:
        rate = kind.expected_batch(records) / records
        return Mechanism(kind, relation, releases, rate * math.sqrt(releases / share), records)

    if scaled:
        parts.append(part(FullBatch(), private_scaling.RELEASES, SCALING_SHARE))
        left -= SCALING_SHARE
    share, looks = moments
    if looks:
        parts.append(part(FullBatch(), LOOK * looks, left * share))
        left *= 1.0 - share
    parts.append(part(sampling, steps, left))
    return calibrate_schedule(epsilon, delta, parts)


def open_plan(task: NetworkTask) -> OpenPlan:
    """Plan of a fit without privacy: about a hundred batches a pass."""
    batch = 2 ** round(math.log2(max(task.records / 80.0, 1.0)))
    passes = task.steps or (60 if task.records <= 100_000 else 10)
    return OpenPlan(passes, min(max(batch, 32), 512, task.records))
