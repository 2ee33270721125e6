r"""The noise that valid accounting demands of the paper's own algorithm.

Algorithm 3 moves theta by one record a step, :math:`\theta \leftarrow \theta + (\gamma/N)(\theta_{f_n} -
\theta_f)`, and then adds noise. Theta has L leaves, each clipped to norm C on its own, as in the reference
code: two for the mixture (the mean part eta and the precision, what is meant where no number is given), four
for a network with learned noise (these two of the weights, and the two of the noise precision's Gamma). How
much noise?

The record enters by :math:`(\gamma/N) \theta_{f_n}` alone: :math:`\theta` and :math:`\theta_f` were released
before. All leaves are released together, so what counts is the norm of all, at most
:math:`\sqrt{L C^2} = \sqrt L C`. That is the clip norm of a sum over one record in the sense of
`dpsep.privacy.mechanism`, whose sigma is the noise over it under either relation (the sensitivity, once or
twice the clip norm, is in the relation): noise of :math:`\sigma \sqrt L C` in every coordinate of
:math:`\theta_{f_n}`. Theta gets :math:`\gamma/N` of it:

.. math:: \text{sd} = (\gamma / N) \, \sigma \, \sqrt L \, C, \quad \text{the same for all leaves.}

The coordinates are those whose Euclidean norm was clipped: a symmetric matrix counts as its upper triangle
with :math:`\sqrt 2` off the diagonal, so an entry off the diagonal gets :math:`\text{sd} / \sqrt 2` and its
mirror image the same draw.

Beside the paper: its sensitivity :math:`2 \gamma C / N` is that of one vector clipped to C, and its sigma is
the noise over it, so under replace-one its sigma is half of ours.

**Privacy.** *As written*: a permutation a pass, one record a step, N T steps. A record is in one step of each
pass, so a run is T Gaussian releases, composed exactly, with no amplification; either relation. *As
accounted*: the sampling that the text assumes, a fresh record without replacement at every step, by Rényi
curves (Wang, Balle and Kasiviswanathan, 2019); replace-one only. The noise of the second is valid for a run
that samples afresh and not for one that goes through permutations.
"""

import math
from functools import cache

from dpsep.privacy.accounting import Mechanism, Relation, calibrate
from dpsep.privacy.sampling import FixedSizeSampling, Sampling, ShuffledEpochs
from dpsep_lab.paper.accounting import DELTA, SETTINGS

__all__ = ["accounted", "as_accounted", "as_written", "noise_in_theta", "written"]

_MIXTURE = next(setting for setting in SETTINGS if setting.dataset == "mixture")
_LEAVES = 2


def as_written(
    epsilon: float,
    relation: Relation,
    clip: float = 1.0,
    gamma: float = 1.0,
    *,
    records: int = _MIXTURE.records,
    passes: int = _MIXTURE.passes,
    leaves: int = _LEAVES,
) -> float:
    """Return the standard deviation of the noise in each leaf of theta, for a permutation a pass.

    Parameters
    ----------
    epsilon
        Target of the whole run at the paper's delta.
    relation
        The neighbouring relation; the paper's is ``"replace-one"``.
    clip
        C, the clip norm of each leaf.
    gamma
        The damping.
    records, passes
        N and T; the mixture experiment's by default.
    leaves
        Number of leaves of theta.
    """
    return noise_in_theta(written(epsilon, relation, records, passes), clip, gamma, leaves)


def as_accounted(
    epsilon: float,
    clip: float = 1.0,
    gamma: float = 1.0,
    *,
    records: int = _MIXTURE.records,
    passes: int = _MIXTURE.passes,
    leaves: int = _LEAVES,
) -> float:
    """Return the standard deviation of the noise in each leaf of theta, for a fresh record at every step.

    Parameters
    ----------
    epsilon, clip, gamma, records, passes, leaves
        As in `as_written`; the relation is replace-one.
    """
    return noise_in_theta(accounted(epsilon, records, passes), clip, gamma, leaves)


def noise_in_theta(mechanism: Mechanism, clip: float, gamma: float = 1.0, leaves: int = _LEAVES) -> float:
    """Return the standard deviation of the noise in each leaf of theta that a mechanism stands for.

    Parameters
    ----------
    mechanism
        Its sigma is the noise over the joint clip norm of all leaves, their number's root times ``clip``.
    clip
        C, the clip norm of each leaf.
    gamma
        The damping.
    leaves
        Number of leaves of theta.
    """
    if not (0 < clip < math.inf and 0 < gamma < math.inf):
        raise ValueError(f"clip and gamma must be positive and finite, not {clip} and {gamma}.")
    if leaves < 1:
        raise ValueError(f"leaves must be at least 1, not {leaves}.")
    return gamma / mechanism.records * mechanism.sigma * math.sqrt(leaves) * clip


@cache
def written(
    epsilon: float, relation: Relation, records: int = _MIXTURE.records, passes: int = _MIXTURE.passes
) -> Mechanism:
    """Return the calibrated run that Algorithm 3 describes: a permutation a pass, one record a step.

    Parameters
    ----------
    epsilon, relation, records, passes
        As in `as_written`.
    """
    return _calibrated(epsilon, ShuffledEpochs(1), relation, records, passes)


@cache
def accounted(epsilon: float, records: int = _MIXTURE.records, passes: int = _MIXTURE.passes) -> Mechanism:
    """Return the calibrated run that the text accounts for: a fresh record at every step, replace-one.

    Parameters
    ----------
    epsilon, records, passes
        As in `as_written`.
    """
    return _calibrated(epsilon, FixedSizeSampling(1), "replace-one", records, passes)


def _calibrated(
    epsilon: float, sampling: Sampling, relation: Relation, records: int, passes: int
) -> Mechanism:
    steps = records * passes
    sigma = calibrate(epsilon, DELTA, sampling, relation, steps, records)
    return Mechanism(sampling, relation, steps, sigma, records)
