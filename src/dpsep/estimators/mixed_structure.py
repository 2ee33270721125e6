"""What a mixed model says in public: its groups, its effects and whose privacy is counted.

**Privacy.** Everything here is decided by declarations, shapes and types. Under privacy groups are never read
off a table; with ``unit="group"`` the number of rows decides nothing, and no message tells it.
"""

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.input_checks import (
    Structure,
)
from dpsep.estimators.mixed_predict import MixedPredictions, slope_columns
from dpsep.estimators.units import Units
from dpsep.models.mixed import MOST_RANDOM, Effects

Array = NDArray[np.float64]
MOST_WEIGHTS = 600
"""Most weights with records as units: all random effects are among them, and their precision is whole."""


class MixedStructure(Units, MixedPredictions):
    """The public side of a mixed model."""

    method = "sep"
    _methods = ("sep",)
    _families: tuple[str, ...] = ()

    family: str
    fit_intercept: bool
    prior_scale: float

    def _learned_noise(self) -> bool:
        """Whether there is a noise standard deviation to learn."""
        return False

    def _check_parameters(self) -> None:
        self._check_privacy()
        if self.family not in self._families:
            raise ValueError(f"family must be one of {', '.join(self._families)}, not {self.family!r}.")
        self._check_units()
        if not float(self.prior_scale) > 0:
            raise ValueError(f"prior_scale must be positive, not {self.prior_scale!r}.")
        if self._by_record and self.correlated:
            raise ValueError("correlated random effects are for unit='group'; leave correlated out.")

    def _effects(self, shape: Structure) -> Effects:
        effects = Effects(
            shape.features,
            bool(self.fit_intercept),
            slope_columns(self.slopes, shape),
            bool(self.random_intercept),
            bool(self.correlated),
            self._learned_noise(),
        )
        if effects.random < 1:
            raise ValueError("a mixed model needs a random intercept or a random slope; give one.")
        if not self._by_record and effects.random > MOST_RANDOM:
            raise ValueError(
                f"{effects.random} random effects a group; at most {MOST_RANDOM} are integrated out."
            )
        size = effects.fixed + len(self.groups_) * effects.random
        if self._by_record and size > MOST_WEIGHTS:
            raise ValueError(
                f"{len(self.groups_)} groups make {size} weights; at most {MOST_WEIGHTS} fit. Use "
                "unit='group', which integrates random effects out, or fewer groups."
            )
        return effects
