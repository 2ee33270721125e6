"""What a mixed model says in public: its groups, its effects and whose privacy is counted.

**Privacy.** Everything here is decided by declarations, shapes and types. Under privacy groups are never read
off a table; with ``unit="group"`` the number of rows decides nothing, and no message tells it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.data.large import LargeColumn
from dpsep.estimators.input_checks import (
    Structure,
    declared_labels,
    places,
    structure_of,
    structure_of_groups,
    table_shape,
    target_shape,
)
from dpsep.estimators.large import refuse_large
from dpsep.estimators.mixed_predict import Groups, MixedPredictions, slope_columns
from dpsep.models.mixed import MOST_RANDOM, Effects

Array = NDArray[np.float64]
MOST_WEIGHTS = 600
"""Most weights with records as units: all random effects are among them, and their precision is whole."""


class MixedStructure(MixedPredictions):
    """The public side of a mixed model."""

    method = "sep"
    _methods = ("sep",)
    _families: tuple[str, ...] = ()

    family: str
    groups: Any
    rows_per_group: int | None
    fit_intercept: bool
    prior_scale: float

    def _learned_noise(self) -> bool:
        """Whether there is a noise standard deviation to learn."""
        return False

    def _check_parameters(self) -> None:
        self._check_privacy()
        if self.family not in self._families:
            raise ValueError(f"family must be one of {', '.join(self._families)}, not {self.family!r}.")
        if self.unit not in ("record", "group"):
            raise ValueError(f"unit must be 'record' or 'group', not {self.unit!r}.")
        if not float(self.prior_scale) > 0:
            raise ValueError(f"prior_scale must be positive, not {self.prior_scale!r}.")
        if self.unit == "record" and self.correlated:
            raise ValueError("correlated random effects are for unit='group'; leave correlated out.")
        if self.rows_per_group is not None and (
            int(self.rows_per_group) != self.rows_per_group or self.rows_per_group < 1
        ):
            raise ValueError(f"rows_per_group must be a whole number above 0, not {self.rows_per_group!r}.")

    def _structure(self, X: Any, y: Any, groups: Groups) -> Structure:
        """Return the table's shape, with units as records, and settle the groups."""
        refuse_large("a mixed model, which gathers the rows of each group,", X, y, groups)
        read = structure_of if self.unit == "record" else structure_of_groups
        shape = read(X, y, private=self.private)
        rows = table_shape(X)[0]
        if groups is not None and _length(groups) != rows:
            raise ValueError("groups and X differ in their number of rows; groups must hold one label a row.")
        self.groups_ = self._labels(groups, rows)
        if self.unit == "record":
            return shape
        if self.rows_per_group is None and groups is not None:
            raise ValueError("unit='group' needs rows_per_group, a public cap on the rows of a group.")
        return shape._replace(records=len(self.groups_))

    def _rows(self) -> int:
        return 1 if self.rows_per_group is None else int(self.rows_per_group)

    def _labels(self, groups: Groups, rows: int) -> NDArray[Any]:
        if groups is None:
            if self.unit == "group" and self.private:
                raise ValueError(
                    "unit='group' protects whole groups, and fit was not told which rows belong together: "
                    "give fit(X, y, groups=labels). Where each row is its own group, number the rows."
                )
            return np.arange(1 if self.unit == "record" else rows)
        if self.groups is None:
            if self.private:
                raise ValueError(
                    "groups are not declared; under privacy give groups=[labels], or their number for codes "
                    "0, 1, ..., to the estimator: who is in the table is not to be read off it."
                )
            return np.unique(np.asarray(groups))
        if isinstance(self.groups, int | np.integer):
            if self.groups < 1:
                raise ValueError(f"groups must be a list of labels or a positive number, not {self.groups}.")
            return np.arange(int(self.groups))
        return declared_labels(self.groups)

    def _codes(self, groups: Groups, rows: int) -> Array:
        if groups is None:
            return np.zeros(rows) if self.unit == "record" else np.arange(rows, dtype=np.float64)
        if isinstance(groups, LargeColumn):
            groups = groups.read(slice(None))
        return places(groups, self.groups_)

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
        if self.unit == "group" and effects.random > MOST_RANDOM:
            raise ValueError(
                f"{effects.random} random effects a group; at most {MOST_RANDOM} are integrated out."
            )
        size = effects.fixed + len(self.groups_) * effects.random
        if self.unit == "record" and size > MOST_WEIGHTS:
            raise ValueError(
                f"{len(self.groups_)} groups make {size} weights; at most {MOST_WEIGHTS} fit. Use "
                "unit='group', which integrates random effects out, or fewer groups."
            )
        return effects


def _length(groups: Groups) -> int:
    """Number of labels; of a list without a look at its cells."""
    shape = target_shape(groups, private=True)
    return shape[0] if shape[1:] in ((), (1,)) else -1
