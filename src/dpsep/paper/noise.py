r"""The noise that valid accounting demands of the paper's own algorithm on the mixture.

Algorithm 3 moves theta by one record a step, :math:`\theta \leftarrow \theta + (\gamma/N)(\theta_{f_n} -
\theta_f)`, and then adds noise. Here theta has two leaves, the mean part eta and the precision, and each of
the local factor's leaves is clipped to norm C on its own, as in the reference code. How much noise?

The record enters by :math:`(\gamma/N) \theta_{f_n}` alone: :math:`\theta` and :math:`\theta_f` were released
before. Both leaves are released together, so what counts is the norm of the pair, at most
:math:`\sqrt{C^2 + C^2} = \sqrt 2 C`. That is the clip norm of a sum over one record in the sense of
`dpsep.privacy.mechanism`, whose sigma is the noise over it under either relation (the sensitivity, once or
twice the clip norm, is in the relation): noise of :math:`\sigma \sqrt 2 C` in every coordinate of
:math:`\theta_{f_n}`. Theta gets :math:`\gamma/N` of it:

.. math:: \text{sd} = (\gamma / N) \, \sigma \, \sqrt 2 \, C, \quad \text{the same for both leaves.}

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

from dpsep.paper.accounting import DELTA, SETTINGS
from dpsep.privacy.accounting import Mechanism, Relation, calibrate
from dpsep.privacy.sampling import FixedSizeSampling, Sampling, ShuffledEpochs

__all__ = ["accounted", "as_accounted", "as_written", "noise_in_theta", "written"]

_MIXTURE = next(setting for setting in SETTINGS if setting.dataset == "mixture")


def as_written(epsilon: float, relation: Relation, clip: float = 1.0, gamma: float = 1.0) -> float:
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
    """
    return noise_in_theta(written(epsilon, relation), clip, gamma)


def as_accounted(epsilon: float, clip: float = 1.0, gamma: float = 1.0) -> float:
    """Return the standard deviation of the noise in each leaf of theta, for a fresh record at every step.

    Parameters
    ----------
    epsilon, clip, gamma
        As in `as_written`; the relation is replace-one.
    """
    return noise_in_theta(accounted(epsilon), clip, gamma)


def noise_in_theta(mechanism: Mechanism, clip: float, gamma: float = 1.0) -> float:
    """Return the standard deviation of the noise in each leaf of theta that a mechanism stands for.

    Parameters
    ----------
    mechanism
        Its sigma is the noise over the joint clip norm of two leaves, the square root of 2 times ``clip``.
    clip
        C, the clip norm of each leaf.
    gamma
        The damping.
    """
    if not (0 < clip < math.inf and 0 < gamma < math.inf):
        raise ValueError(f"clip and gamma must be positive and finite, not {clip} and {gamma}.")
    return gamma / mechanism.records * mechanism.sigma * math.sqrt(2) * clip


@cache
def written(epsilon: float, relation: Relation) -> Mechanism:
    """Return the calibrated run that Algorithm 3 describes: a permutation a pass, one record a step.

    Parameters
    ----------
    epsilon, relation
        As in `as_written`.
    """
    return _calibrated(epsilon, ShuffledEpochs(1), relation)


@cache
def accounted(epsilon: float) -> Mechanism:
    """Return the calibrated run that the text accounts for: a fresh record at every step, replace-one.

    Parameters
    ----------
    epsilon
        As in `as_written`.
    """
    return _calibrated(epsilon, FixedSizeSampling(1), "replace-one")


def _calibrated(epsilon: float, sampling: Sampling, relation: Relation) -> Mechanism:
    records, steps = _MIXTURE.records, _MIXTURE.records * _MIXTURE.passes
    sigma = calibrate(epsilon, DELTA, sampling, relation, steps, records)
    return Mechanism(sampling, relation, steps, sigma, records)
