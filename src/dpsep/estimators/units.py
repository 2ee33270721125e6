"""Units of several rows: whose privacy a fit counts, and the arrays in which all rows of one lie together.

With ``unit="record"`` each row is protected by itself. With any other word, such as ``"person"``, all rows
that carry one label are: they are one row of the gate.

**Privacy.** Public are the declared groups, the cap on rows a group, and everything derived from them: the
arrays have one slot a declared group and one place a row up to the cap, whatever the table holds. A group's
slot is a function of that group's own rows, in the table's order; rows beyond the cap and rows of undeclared
groups are dropped. The number of rows of the table is not public then, and nothing depends on it: no error,
no shape. The proof is in docs/proofs/groups.md.
"""

from numbers import Integral, Real
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
from dpsep.privacy.gate import Records

Array = NDArray[np.float64]

RECORD = "record"
MOST_CELLS = 10**9
"""Most cells of all slots together: eight gigabytes."""


class Units:
    """The public side of an estimator that can protect units of several rows: parameters and their checks.

    Attributes
    ----------
    unit
        Whose privacy is counted: ``"record"``, or a word for what all rows of a group are of, ``"person"``.
    groups
        The declared groups: their labels in a list, or their number, for codes 0, 1, ...
    rows_per_group
        How many rows of a group take part, its first ones.
    groups_
        The labels, in the order of the slots.
    """

    unit: Any
    groups: Any
    rows_per_group: int | None
    private: bool

    @property
    def _by_record(self) -> bool:
        return self.unit == RECORD

    def _check_units(self) -> None:
        if not isinstance(self.unit, str) or not self.unit.isidentifier() or len(self.unit) > 40:
            raise ValueError(
                f"unit must be 'record', or a word for what all rows of a group are of, such as 'group' or "
                f"'person', not {self.unit!r}."
            )
        rows: Any = self.rows_per_group
        if rows is not None and not _whole(rows):
            raise ValueError(f"rows_per_group must be a whole number above 0, not {rows!r}.")

    def _structure(self, X: Any, y: Any, groups: Any, what: str) -> Structure:
        """Return the table's shape, with units as records, and settle the groups.

        Parameters
        ----------
        what
            What gathers the rows of each group, in words.
        """
        refuse_large(f"{what}, which gathers the rows of each group,", X, y, groups)
        shape = (structure_of if self._by_record else structure_of_groups)(X, y, private=self.private)
        rows = table_shape(X)[0]
        if groups is not None and _length(groups) != rows:
            raise ValueError("groups and X differ in their number of rows; groups must hold one label a row.")
        self.groups_ = self._labels(groups, rows)
        if self._by_record:
            return shape
        if self.rows_per_group is None and groups is not None:
            raise ValueError(
                f"unit={self.unit!r} needs rows_per_group, a public cap on the rows of a {self.unit}."
            )
        if len(self.groups_) * self._rows() * shape.features > MOST_CELLS:
            raise ValueError(
                f"{len(self.groups_)} groups of rows_per_group={self._rows()} rows of {shape.features} "
                f"columns are more than {MOST_CELLS:.0e} cells; declare fewer groups or rows."
            )
        return shape._replace(records=len(self.groups_))

    def _rows(self) -> int:
        return 1 if self.rows_per_group is None else int(self.rows_per_group)

    def _labels(self, groups: Any, rows: int) -> NDArray[Any]:
        if groups is None:
            if not self._by_record and self.private:
                raise ValueError(
                    f"unit={self.unit!r} protects all rows of a {self.unit} together, and fit was not told "
                    "which rows belong together: give fit(X, y, groups=labels). Where each row is its own "
                    f"{self.unit}, number the rows."
                )
            return np.arange(1 if self._by_record else rows)
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

    def _codes(self, groups: Any, rows: int) -> Array:
        if groups is None:
            return np.zeros(rows) if self._by_record else np.arange(rows, dtype=np.float64)
        if isinstance(groups, LargeColumn):
            groups = groups.read(slice(None))
        return places(groups, self.groups_)

    def _together(self, records: Records, groups: Any) -> Records:
        """Return the slots of a table's features and target."""
        matrix, target = records
        return slots(matrix, target, self._codes(groups, len(matrix)), len(self.groups_), self._rows())


def slots(X: Array, y: Array, codes: Array, groups: int, rows: int) -> Records:
    """Return cells (groups, rows, features) and outcomes (groups, rows) of each group, padded with NaN.

    Parameters
    ----------
    codes
        Each record's place among the declared groups; NaN where it has none.
    groups, rows
        Public numbers of groups and of places.

    Examples
    --------
    >>> X, y = np.arange(4.0)[:, None], np.arange(4.0)
    >>> slots(X, y, np.array([1.0, 0.0, 1.0, np.nan]), 2, 1)[1]      # one place a group: its first row
    array([[1.],
           [0.]])
    """
    cells = np.full((groups, rows, X.shape[1]), np.nan)
    outcomes = np.full((groups, rows), np.nan)
    known = np.flatnonzero(np.isfinite(codes))
    # A stable sort keeps the table's order within a group.
    order = known[np.argsort(codes[known], kind="stable")]
    member = codes[order].astype(int)
    first = np.searchsorted(member, np.arange(groups))
    place = np.arange(len(order)) - first[member]
    kept = place < rows
    cells[member[kept], place[kept]] = X[order[kept]]
    outcomes[member[kept], place[kept]] = y[order[kept]]
    return cells, outcomes


def first_rows(arrays: Records) -> Records:
    """What private scaling reads: the first row of each group, one contribution a group."""
    return arrays[0][:, 0], arrays[1][:, 0]


def _whole(rows: Any) -> bool:
    """Whether it is a whole number above zero."""
    if isinstance(rows, Integral):
        return int(rows) >= 1
    return isinstance(rows, Real) and float(rows).is_integer() and float(rows) >= 1.0


def _length(groups: Any) -> int:
    """Number of labels; of a list without a look at its cells."""
    shape = target_shape(groups, private=True)
    return shape[0] if shape[1:] in ((), (1,)) else -1
