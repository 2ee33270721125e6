"""The claims of sections 3 and 4 as experiments, all of them, as one list of rows.

Every row has ``claim``, ``case``, ``quantity``, ``value``, ``standard_error`` and ``n``, and what else tells
it apart; numbers are plain floats or None, ready for JSON. None as a value stands for one that is not finite.

What the experiments found with their default sizes and seeds, in double precision on one core:

- *Proposition 1 holds and is tight.* Replacing a record moved one step's theta by up to 1.000 of 2 gamma C /
  N (linear, mixture), 0.997 (learned noise) and 0.77 to 0.97 (probit, C from 3 to 0.3). Without the clip it
  was 5e4 times or more where factors are unbounded. With each natural parameter clipped to C, up to 1.34
  times for the mixture and 2.0 times for the four parameters of a linear model with learned noise; leaving a
  record out reached the root of two, and two, of gamma C / N. Noise for epsilon 1 in each spends 1.47, and
  2.15. After two steps without noise theta had moved by 1.53 times the claim (mixture), after eight by 4.79.
- *1/N does not beat 1/B.* Signal over noise of a step is that of a noisy sum of B records for DP-SEP and for
  DP-SGD alike, at every N. At epsilon 1 and ten passes, runs of one record a step hold 0.83, 0.50, 0.21 and
  0.08 of the signal over noise of full batches at N = 100, 1000, 10 000 and 100 000.
- *Sigma.* Over N = 100 to 1 000 000 the fitted exponent of sigma is -0.13 (Poisson, rate 1/N), 0 (a
  permutation a pass) and -0.15 (a fresh record a step, Rényi). By their formulas that of one step's noise
  lies 1 below it, that of the noise a whole run leaves in theta 1/2 below it.
- *Clipping did not stabilise SEP here.* With gamma = N none of 80 runs lost positive definiteness, clipped or
  not, and C of 10 or less raised the median error of all four problems. At gamma = 25 N, far too fast, C =
  0.3 did lower it for the mixture (13 to 1.5) and heavy tails (18 to 6), not for the other two; with the
  paper's gamma = 1 for heavy tails (5.8 to 4.9). Networks did not diverge either way. With gamma = N a clip
  made them worse without outliers (median test error 0.46 to 0.75 at C = 1) and better with outliers in
  training (0.96 to 0.72): more robust, not more stable.
"""

import math
from collections.abc import Callable
from typing import Any

from dpsep_lab.paper import (
    claims_budget,
    claims_network,
    claims_noise,
    claims_rates,
    claims_sensitivity,
    claims_stability,
)

__all__ = ["rows"]

Row = dict[str, Any]


def rows(*, quick: bool = False, on_step: Callable[[int, int], None] | None = None) -> list[Row]:
    """Return the rows of every experiment.

    Parameters
    ----------
    quick
        Small sizes and short searches, for a glance.
    on_step
        Called with the number of experiments done and their total.
    """
    table: list[Row] = []
    experiments = _quick() if quick else _full()
    for done, experiment in enumerate(experiments, 1):
        table += experiment()
        if on_step is not None:
            on_step(done, len(experiments))
    return table


def _full() -> list[Callable[[], list[Row]]]:
    return [
        claims_sensitivity.rows,
        claims_noise.per_step,
        claims_budget.per_budget,
        claims_budget.averaged_error,
        claims_rates.rates,
        claims_stability.rows,
        claims_network.rows,
    ]


def _quick() -> list[Callable[[], list[Row]]]:
    sizes, some = (100, 1_000), (math.inf, 1.0)
    small = {"seeds": 2, "records": 40, "passes": 2}
    return [
        lambda: claims_sensitivity.rows(claims_sensitivity.CASES[:1], (1.0,), claims_sensitivity.QUICK),
        lambda: claims_noise.per_step(sizes, (1, 10), 200),
        lambda: claims_budget.per_budget(sizes, (1, 10)),
        lambda: claims_budget.averaged_error(100, (1, 10), 5),
        lambda: claims_rates.rates(sizes),
        lambda: claims_stability.rows(("probit, separable",), some, (1.0,), **small),
        lambda: claims_network.rows(claims_network.CASES[:1], some, **small),
    ]
