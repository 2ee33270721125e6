"""What a network fit releases: sampling, blocks and contributions, by method, from public numbers alone.

**Privacy.** Shares of the blocks of a release sum to one, which the gate checks before the charge. Clips are
constants; whatever scales a contribution to its clip is a function of earlier releases.
The proof is in docs/proofs/network-factors.md.
"""

from typing import NamedTuple

from dpsep.estimators.network_task import Task
from dpsep.inference import descent
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_diagonal import DiagonalFactors
from dpsep.models.network_factors import NetworkFactors
from dpsep.models.network_gradients import PointGradient, VariationalGradient
from dpsep.models.network_model import Network, NetworkClassification, NetworkRegression
from dpsep.models.probit import ProbitLikelihood
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.sampling import PoissonSampling, Sampling
from dpsep.theory.networks import (
    DIAGONAL_NOISE_CLIP,
    MOMENT_SHARE,
    STANDARD_LOOKS,
    STANDARD_SHARE,
    default_sampling,
    diagonal_plan,
    gradient_clip,
    moment_looks,
    noise_clip,
    noise_share,
    sep_plan,
)


class Release(NamedTuple):
    """The releases of a fit: how many, their blocks, what each record adds."""

    steps: int
    blocks: list[Block]
    contribution: Contribution


def sampling_of(task: Task, wanted: Sampling | None, relation: Relation) -> Sampling:
    """Sampling of the fit's releases: gradients read a few records, factors as many as is feasible."""
    if wanted is not None:
        return wanted
    if task.method == "sep":
        return default_sampling(task.records, task.size, relation)
    rate = descent.PRIVATE_DEFAULTS[gradient_method(task)].rate
    assert rate is not None
    return PoissonSampling(rate)


def gradient_method(task: Task) -> descent.Method:
    """Name of the method among the gradients'."""
    return "variational" if task.method == "vi" else "point"


def release_of(task: Task) -> Release:
    """Blocks and contribution of a private fit."""
    regression = task.outcome == "regression"
    if task.method != "sep":
        defaults = descent.PRIVATE_DEFAULTS[gradient_method(task)]
        return gradient_release(task, defaults, gradient_clip(task, defaults.clip))
    share = noise_share(task.records) if regression else 0.0
    rest = 1.0 - share
    if task.covariance == "kronecker":
        noise = [Block("noise", 1, noise_clip(task.records), share)] if regression else []
        likelihood = ConcentratedNoise() if regression else ProbitLikelihood()
        factors = NetworkFactors(likelihood, task.activation)
        return Release(sep_plan(task).steps, [Block("mean", task.size, 1.0, rest), *noise], factors)
    noise = [Block("noise", 2, DIAGONAL_NOISE_CLIP, share)] if regression else []
    plan = diagonal_plan(task)
    part = plan.mean_share / (plan.mean_share + plan.precision_share)
    blocks = [
        Block("mean", task.size, plan.mean_clip, rest * part),
        Block("precision", task.size, plan.precision_clip, rest * (1.0 - part)),
    ]
    return Release(plan.steps, [*blocks, *noise], DiagonalFactors(model_of(task)))


def model_of(task: Task) -> Network:
    """The network as a model for records."""
    if task.outcome == "regression":
        return NetworkRegression(task.widths, task.activation, ConcentratedNoise())
    return NetworkClassification(task.widths, task.activation)


def gradient_release(task: Task, defaults: descent.Defaults, clip: float) -> Release:
    """Blocks and contribution of gradients; an infinite clip where nothing is private."""
    kind = VariationalGradient if task.method == "vi" else PointGradient
    contribution = kind(task.widths, task.activation, task.outcome)
    blocks = descent.blocks_of(contribution.sizes, clip, defaults.noise_clip, defaults.noise_share)
    return Release(task.steps or defaults.steps, blocks, contribution)


def moment_plan(task: Task) -> tuple[float, int]:
    """Share of the budget and number of the looks at the moments; none where nothing needs them."""
    if task.method == "sep":
        return MOMENT_SHARE, moment_looks(task.records)
    return (0.0, 0) if task.standard else (STANDARD_SHARE, STANDARD_LOOKS)
