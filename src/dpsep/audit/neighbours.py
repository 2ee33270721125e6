"""Neighbouring tables: the same table with one record changed, in the ways that break careless code.

A neighbour under zero-out has one record that contributes nothing (all of its cells are NaN); under
replace-one it has another record in its place: an ordinary one, one with a missing, infinite, huge or tiny
cell, one whose cells are all the same, one with an outcome that was never declared. Where groups are units
(`group_neighbours_of`), one group's rows are changed all together, and there may be fewer or more of them.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

OUTCOMES = (np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 7.0, 1e300, -1.7e308, 5e-324)
"""Outcomes that some likelihood cannot have, or that are hard to compute with."""
CELLS = (1e300, -1e300, 1.7e308, -1.7e308, 1e160, 5e-324, -0.0, 2.0**53 + 1)
"""Cells that overflow, underflow or round."""


class Neighbour(NamedTuple):
    """A table that differs from another in one record.

    Attributes
    ----------
    kind
        What was done to the record.
    row
        Which record.
    X, y
        The table.
    zeroed
        Whether the record contributes nothing: a neighbour under zero-out, too.
    groups
        Group of each row, where groups are units.

    Examples
    --------
    >>> first = next(iter(neighbours_of(np.ones((4, 2)), np.ones(4), count=3)))
    >>> first.kind, first.zeroed, first.X[first.row]
    ('zeroed', True, array([nan, nan]))
    """

    kind: str
    row: int
    X: Array
    y: Array
    zeroed: bool
    groups: NDArray[np.int64] | None = None

    @property
    def hops(self) -> int:
        """How many clips apart the sums of the two tables may be."""
        return 1 if self.zeroed else 2


def neighbours_of(X: Array, y: Array, count: int, seed: int = 0) -> Iterator[Neighbour]:
    """Generate neighbours, the kinds in turn, of records drawn at random.

    Parameters
    ----------
    X, y
        The table; doubles.
    count
        How many.
    seed
        Of the choice of records and values; tests repeat.

    Examples
    --------
    >>> table = np.zeros((4, 2)), np.ones(4)
    >>> [neighbour.kind for neighbour in neighbours_of(*table, count=3)]
    ['zeroed', 'replaced', 'NaN cell']
    """
    generator = np.random.default_rng(seed)
    kinds = list(_CHANGES.items())
    for number in range(count):
        kind, change = kinds[number % len(kinds)]
        row = int(generator.integers(len(X)))
        record, outcome = change(X[row].copy(), float(y[row]), X, y, generator)
        changed_X, changed_y = X.copy(), y.copy()
        changed_X[row], changed_y[row] = record, outcome
        yield Neighbour(kind, row, changed_X, changed_y, kind == "zeroed")


def group_neighbours_of(
    X: Array, y: Array, groups: NDArray[np.int64], declared: int, count: int, seed: int = 0
) -> Iterator[Neighbour]:
    """Generate neighbours that differ in all rows of one group, the kinds in turn.

    Parameters
    ----------
    X, y, groups
        The table, its groups coded 0, 1, ...
    declared
        Number of declared groups.
    count, seed
        As in `neighbours_of`.

    Examples
    --------
    >>> table = np.zeros((4, 2)), np.ones(4), np.array([0, 0, 1, 1])
    >>> [(one.kind, len(one.X)) for one in group_neighbours_of(*table, declared=2, count=3)]
    [('removed', 2), ('blanked', 4), ('undeclared', 4)]
    """
    generator = np.random.default_rng(seed)
    kinds = list(_GROUP_CHANGES.items())
    for number in range(count):
        kind, change = kinds[number % len(kinds)]
        group = int(generator.choice(groups))
        own, others = groups == group, groups != group
        cells, outcomes, label = change(X[own].copy(), y[own].copy(), X, y, generator)
        labels = np.full(len(cells), declared + 5 if label == "undeclared" else group)
        # The group's rows come somewhere else in the table: others keep their order, which is all they may.
        place = int(generator.integers(others.sum() + 1))
        yield Neighbour(
            kind,
            group,
            np.concatenate([X[others][:place], cells, X[others][place:]]),
            np.concatenate([y[others][:place], outcomes, y[others][place:]]),
            kind in ("removed", "blanked", "undeclared"),
            np.concatenate([groups[others][:place], labels, groups[others][place:]]),
        )


GroupChange = Callable[[Array, Array, Array, Array, np.random.Generator], tuple[Array, Array, str]]


def _group(rows: int | None, wild: bool) -> GroupChange:
    def change(
        x: Array, y: Array, X: Array, Y: Array, generator: np.random.Generator
    ) -> tuple[Array, Array, str]:
        size = len(x) if rows is None else rows
        cells = (
            generator.choice(CELLS, (size, x.shape[1]))
            if wild
            else generator.uniform(-2, 2, (size, x.shape[1]))
        )
        outcomes = generator.choice(OUTCOMES, size) if wild else generator.choice(Y, size)
        return cells, outcomes, ""

    return change


_GROUP_CHANGES: dict[str, GroupChange] = {
    "removed": lambda x, y, X, Y, generator: (x[:0], y[:0], ""),
    "blanked": lambda x, y, X, Y, generator: (np.full_like(x, np.nan), np.full_like(y, np.nan), ""),
    "undeclared": lambda x, y, X, Y, generator: (x, y, "undeclared"),
    "replaced": _group(None, wild=False),
    "one row": _group(1, wild=False),
    "many rows": _group(300, wild=False),
    "wild": _group(None, wild=True),
    "many wild rows": _group(60, wild=True),
}


Change = Callable[[Array, float, Array, Array, np.random.Generator], tuple[Array, float]]


def _zeroed(x: Array, y: float, X: Array, Y: Array, generator: np.random.Generator) -> tuple[Array, float]:
    return np.full_like(x, np.nan), np.nan


def _replaced(x: Array, y: float, X: Array, Y: Array, generator: np.random.Generator) -> tuple[Array, float]:
    return generator.uniform(-2.0, 2.0, x.shape), float(generator.choice(Y))


def _cell(values: tuple[float, ...]) -> Change:
    def change(x: Array, y: float, X: Array, Y: Array, generator: np.random.Generator) -> tuple[Array, float]:
        x[generator.integers(len(x))] = generator.choice(values)
        return x, y

    return change


def _row(values: tuple[float, ...]) -> Change:
    def change(x: Array, y: float, X: Array, Y: Array, generator: np.random.Generator) -> tuple[Array, float]:
        return generator.choice(values, x.shape), y

    return change


def _constant(x: Array, y: float, X: Array, Y: Array, generator: np.random.Generator) -> tuple[Array, float]:
    return np.full_like(x, X[0, 0]), y


def _outcome(x: Array, y: float, X: Array, Y: Array, generator: np.random.Generator) -> tuple[Array, float]:
    return x, float(generator.choice(OUTCOMES))


_CHANGES: dict[str, Change] = {
    "zeroed": _zeroed,
    "replaced": _replaced,
    "NaN cell": _cell((np.nan,)),
    "infinite cell": _cell((np.inf, -np.inf)),
    "huge cell": _cell(CELLS),
    "huge row": _row(CELLS),
    "constant row": _constant,
    "wrong outcome": _outcome,
}
