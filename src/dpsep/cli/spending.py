"""What a fit has spent so far, for the words behind its progress bar.

The whole budget is charged before the first release and stays spent. What is shown is what a reader of the
releases made by now could learn: it grows to the charge.

**Privacy.** Computed from the schedule, which is public, and from how many releases were made.
"""

import math
from collections.abc import Callable

from dpsep.fit import Watcher
from dpsep.privacy.curve import spent_so_far
from dpsep.privacy.mechanism import Schedule

__all__ = ["Spending"]


class Spending(Watcher):
    """An ``on_step`` that passes reports on and knows the epsilon of the releases made.

    Examples
    --------
    >>> from dpsep.privacy.mechanism import Mechanism
    >>> from dpsep.privacy.sampling import FullBatch
    >>> spending = Spending()
    >>> schedule = Schedule((Mechanism(FullBatch(), "zero-out", 100, 37.4, 1000),))
    >>> spending.begin(schedule, 1e-5, schedule.epsilon(1e-5), lost=0)
    >>> spending.words(25), spending.words(100)
    ('0.47 of epsilon 1 released', '1 of epsilon 1 released')
    """

    def __init__(self) -> None:
        self._spent: Callable[[int], float] | None = None
        self._charged = 0.0
        self._lost = 0
        self.report: Callable[[int, int], None] = lambda done, total: None

    def begin(self, schedule: Schedule, delta: float, epsilon: float, lost: int) -> None:
        """Take what was charged, and how many releases of a run that died may have been made and not kept."""
        self._spent, self._charged, self._lost = spent_so_far(schedule, delta), epsilon, lost

    def __call__(self, done: int, total: int) -> None:
        """Pass on how many releases were made."""
        self.report(done, total)

    def words(self, done: int) -> str:
        """Say what they have spent, rounded up; nothing of a fit without privacy."""
        if self._spent is None:
            return ""
        spent = min(self._spent(done + self._lost), self._charged)
        return f"{_rounded_up(spent):g} of epsilon {_rounded_up(self._charged):g} released"


def _rounded_up(value: float) -> float:
    """Round up to two decimals, but for the rounding of doubles.

    Examples
    --------
    >>> _rounded_up(0.4612), _rounded_up(0.99999999999), _rounded_up(1.0)
    (0.47, 1.0, 1.0)
    """
    return math.ceil(100.0 * value - 1e-6) / 100.0
