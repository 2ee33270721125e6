"""What an algorithm sees of a gate, private or open."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.grid import Block, Contribution

Array = NDArray[np.float64]


class Summed(Protocol):
    """What an algorithm sees of a gate."""

    @property
    def records(self) -> int:
        """Public number of records."""
        ...

    @property
    def expected_batch(self) -> float:
        """Expected rows of a step."""
        ...

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise."""
        ...

    def release(self, public: Any) -> dict[str, Array]:
        """Return one step's sums, by block name."""
        ...


Opened = Callable[[Sequence[Block], Contribution], Summed]
"""Opens a gate of a stage's part of the schedule to the arrays that the stage reads."""
