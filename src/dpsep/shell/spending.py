"""What a fit has spent so far, for the words behind its progress bar.

The whole budget is charged before the first release and stays spent. What is shown is what a reader of the
releases made by now could learn: it grows to the charge.

**Privacy.** Computed from the schedule, which is public, and from how many releases were made.
"""

from collections.abc import Callable

from dpsep.privacy.curve import spent_so_far
from dpsep.privacy.mechanism import Schedule

__all__ = ["Spending"]


class Spending:
    """An ``on_step`` that passes reports on and knows the epsilon of the releases made.

    Parameters
    ----------
    charged
        Epsilon of the whole fit; None of a fit without privacy.

    Examples
    --------
    >>> from dpsep.privacy.mechanism import Mechanism
    >>> from dpsep.privacy.sampling import FullBatch
    >>> spending = Spending(1.0)
    >>> spending.begin(Schedule((Mechanism(FullBatch(), "zero-out", 100, 37.3, 1000),)), 1e-5)
    >>> spending.words(25), spending.words(100)
    ('0.47 of epsilon 1 released', '1 of epsilon 1 released')
    """

    def __init__(self, charged: float | None) -> None:
        self._charged = charged
        self._spent: Callable[[int], float] | None = None
        self.report: Callable[[int, int], None] = lambda done, total: None

    def begin(self, schedule: Schedule, delta: float) -> None:
        """Take what was charged for."""
        self._spent = spent_so_far(schedule, delta)

    def __call__(self, done: int, total: int) -> None:
        """Pass on how many releases were made."""
        self.report(done, total)

    def words(self, done: int) -> str:
        """Say what they have spent; nothing of a fit without privacy."""
        if self._spent is None or self._charged is None:
            return ""
        return f"{min(self._spent(done), self._charged):.2g} of epsilon {self._charged:g} released"
