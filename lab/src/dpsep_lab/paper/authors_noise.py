r"""For the record: the noise that the reference code gives DP-SEP on the mixture, and what it buys.

The public repository mvinaroz/stochastic-EP (``MoG_code/demo_dpsep.py`` and ``mog.py`` at commit d700bb3, by
reading them) releases two arrays a step, the mean part and the precision part of all components, each clipped
to norm C and each moved by one record at most :math:`2 C \gamma / N`. It gives 4/5 of epsilon and of delta to
the mean part and 1/5 to the precision part, and calibrates each by
``autodp.privacy_calibrator.gaussian_mech(epsilon, delta, prob=1/N, k=N*T)``: N T steps on one fresh record of
N. The noise added to theta has standard deviation :math:`2 C (\gamma / N) \sigma`. `SIGMAS` holds these
:math:`\sigma`, computed by that call (autodp 0.2.3.1) at N = 1000, T = 100, delta = 1e-5. The one of 8130.86
is what that bound gives for its share; a tighter Rényi bound for the same sampling (dp-accounting's) asks for
12.6 there.

**Privacy.** The records are visited in their stored order, in every pass the same, so nothing is amplified:
each record is read by one step of a pass, and what it shows in are that step's two releases. `real_epsilon`
accounts for that under replace-one: T Gaussian releases for each part, composed exactly. It takes every step
to add its noise; the code leaves a step out, before noise, where the precision would not be positive
definite. That depends on the record and no figure here covers it: `real_epsilon` is what the noise alone
gives.
"""

from typing import NamedTuple

from dpsep.privacy.accounting import Mechanism, Schedule
from dpsep.privacy.sampling import ShuffledEpochs
from dpsep_lab.paper.accounting import DELTA

__all__ = ["MEAN_SHARE", "PASSES", "RECORDS", "SIGMAS", "PartNoise", "noise", "real_epsilon", "schedule"]

RECORDS = 1000
PASSES = 100
MEAN_SHARE = 4 / 5
"""What part of epsilon and delta goes to the mean part; the precision part has the rest."""


class PartNoise(NamedTuple):
    """One number for the mean part and one for the precision part."""

    mean: float
    precision: float


SIGMAS = {
    1.0: PartNoise(4.13329, 8130.86),
    5.0: PartNoise(0.972398, 3.47487),
    50.0: PartNoise(0.449414, 0.631581),
}
"""By printed epsilon: noise over each part's sensitivity, 2C, as autodp calibrates it."""


def noise(epsilon: float, clip: float = 1.0, gamma: float = 1.0) -> PartNoise:
    """Return the standard deviation of the noise that the reference code adds to each part of theta.

    Parameters
    ----------
    epsilon
        One of Table 1's.
    clip
        C; 1 in the paper.
    gamma
        The damping; 1 in the paper.
    """
    mean, precision = _sigmas(epsilon)
    scale = 2 * clip * gamma / RECORDS
    return PartNoise(scale * mean, scale * precision)


def schedule(epsilon: float, passes: int = PASSES) -> Schedule:
    """Return what the reference code's noise does in the order in which it visits records.

    `Mechanism` measures noise over C, the reference code over 2C: hence the factor 2. A fixed order costs as
    much as a fresh permutation a pass: one release a pass in either.

    Parameters
    ----------
    epsilon
        One of Table 1's: which of the `SIGMAS`.
    passes
        T.
    """
    parts = (
        Mechanism(ShuffledEpochs(1), "replace-one", passes * RECORDS, 2 * sigma, RECORDS)
        for sigma in _sigmas(epsilon)
    )
    return Schedule(tuple(parts))


def real_epsilon(epsilon: float, delta: float = DELTA, passes: int = PASSES) -> float:
    """Return the epsilon, under replace-one, of the reference code's noise in the order it visits records.

    Parameters
    ----------
    epsilon
        The printed one, of Table 1.
    delta
        At which to answer.
    passes
        T; the noise stays that of 100.

    Examples
    --------
    >>> round(real_epsilon(1.0), 1)
    12.7
    """
    return schedule(epsilon, passes).epsilon(delta)


def _sigmas(epsilon: float) -> PartNoise:
    if epsilon not in SIGMAS:
        raise ValueError(
            f"there is no noise on record for epsilon {epsilon:g}; there is for "
            f"{', '.join(f'{known:g}' for known in SIGMAS)}."
        )
    return SIGMAS[epsilon]
