"""What attacks from inside share: estimators for many runs, and taps on the gate.

**Privacy.** None: a tap sees sums before noise. It is for made-up tables, and undone when its block ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.base import clone

from dpsep.privacy.gate import Gate, Reader


def seeded(estimator: Any, seed: int) -> Any:
    """Return a copy with this seed, which charges no ledger and keeps no checkpoint.

    Examples
    --------
    >>> from dpsep import LinearRegression
    >>> seeded(LinearRegression(ledger="study.db", checkpoint="run"), 3).ledger is None
    True
    """
    copy: Any = clone(estimator)
    return copy.set_params(random_state=seed, ledger=None, checkpoint=None)


@contextmanager
def tapped(
    *, sums: Callable[..., Any], release: Callable[..., Any], noised: Callable[..., Any] | None = None
) -> Iterator[None]:
    """Put functions in the place of the gate's while the block runs.

    Parameters
    ----------
    sums, release, noised
        Instead of `Reader.sums`, `Gate.release` and, if given, `Gate._noised`; they call those themselves.
    """
    honest = Reader.sums, Gate.release, Gate._noised
    Reader.sums, Gate.release, Gate._noised = sums, release, noised or Gate._noised
    try:
        yield
    finally:
        Reader.sums, Gate.release, Gate._noised = honest
