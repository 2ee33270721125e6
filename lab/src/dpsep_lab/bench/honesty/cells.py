"""The cells of the survey: a fixed list, each tagged before anything was run.

A cell is a target, a design, a number of rows, a budget, a relation, a sampling, whether bounds are
declared, and whose privacy is counted. Cells tagged ``choose`` may be looked at while constants of the
library are chosen; those tagged ``judge`` are for the report. Every cell with a budget has its twin without
privacy in the list (`open_twin`), on the same tables.
"""

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from dpsep_lab.bench.honesty.designs import DESIGNS, JUDGE

__all__ = ["CELLS", "QUICK", "Cell", "matching", "named_cell", "open_twin", "with_twins"]

Role = Literal["choose", "judge"]
Budgets = tuple[float | None, ...]
MAIN = ("linear", "logistic", "poisson")
RATE = 0.1
"""Rate of Poisson sampling in sampled cells."""
HUGE = 1000.0
"""A budget so large that a private fit must be the one without privacy."""


class Cell(NamedTuple):
    """A cell.

    Attributes
    ----------
    target, design
        Names out of the registers.
    records
        Number of rows.
    epsilon
        None without privacy.
    relation
        Of neighbouring data sets.
    sampling
        ``"full"`` or a rate.
    bounded
        Whether bounds are declared.
    by_person
        Whether persons are protected and not rows.
    who
        ``"dpsep"``, or a peer of `dpsep_lab.bench.honesty.others`.
    role
        ``"choose"`` or ``"judge"``.
    """

    target: str
    design: str
    records: int = 10_000
    epsilon: float | None = 1.0
    relation: Literal["zero-out", "replace-one"] = "zero-out"
    sampling: float | Literal["full"] = "full"
    bounded: bool = True
    by_person: bool = False
    who: str = "dpsep"
    role: Role = "choose"

    @property
    def name(self) -> str:
        """Name of the cell, without its role."""
        budget = "none" if self.epsilon is None else f"eps{self.epsilon:g}"
        parts = [self.who] if self.who != "dpsep" else []
        parts += [self.target, self.design, f"n{self.records}", budget]
        if self.epsilon is not None:
            parts += [self.relation, "full" if self.sampling == "full" else f"sampled{self.sampling:g}"]
        parts.append("bounds" if self.bounded else "no-bounds")
        return "/".join([*parts, "person"] if self.by_person else parts)

    @property
    def right(self) -> bool:
        """Whether the fitted model is the one that the table was made from."""
        law = DESIGNS[self.design].law
        return not law or self.target in (law, f"own-{law}")


def open_twin(cell: Cell) -> Cell:
    """Return the cell without privacy on the same tables."""
    return Cell(cell.target, cell.design, cell.records, None, bounded=cell.bounded, role=cell.role)


def matching(patterns: str, cells: Sequence[Cell] | None = None) -> list[Cell]:
    """Return the cells whose name or role one of the patterns, parted by commas, matches.

    A pattern matches a whole name (``*`` and ``?`` stand for anything), the beginning of one, or a role.

    Examples
    --------
    >>> [cell.name for cell in matching("logistic/rare/n10000/eps3,linear/plain/n300/none")][:2]
    ['logistic/rare/n10000/eps3/zero-out/full/bounds', 'logistic/rare/n10000/eps3/zero-out/full/no-bounds']
    """
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    found = []
    for cell in CELLS if cells is None else cells:
        name = cell.name
        for pattern in wanted:
            begins = fnmatch.fnmatchcase(name, pattern.rstrip("/") + "/*")
            if begins or fnmatch.fnmatchcase(name, pattern) or cell.role == pattern:
                found.append(cell)
                break
    return found


def with_twins(cells: Iterable[Cell]) -> list[Cell]:
    """Return cells and their twins without privacy, in the order of the list."""
    names = {name for cell in cells for name in (cell.name, open_twin(cell).name)}
    return [cell for cell in CELLS if cell.name in names]


def named_cell(name: str) -> Cell:
    """Return the cell of a name."""
    return _BY_NAME[name]


def _cross(
    targets: Sequence[str],
    designs: Sequence[str],
    budgets: Budgets,
    records: Sequence[int] = (10_000,),
    **more: object,
) -> Iterator[Cell]:
    for target in targets:
        for design in designs:
            for size in records:
                for epsilon in budgets:
                    role: Role = "judge" if design in JUDGE else "choose"
                    yield Cell(target, design, size, epsilon, **({"role": role} | more))  # pyright: ignore[reportArgumentType]


def _list() -> Iterator[Cell]:
    shared = ("plain", "rare", "one-hot", "skewed", "loose", "collinear")
    full: Budgets = (None, 0.25, 1.0, 3.0, 8.0, HUGE)
    some: Budgets = (None, 1.0, 8.0, HUGE)
    # The three main regressions on what every target shares; what is hard for one kind of target.
    yield from _cross(MAIN, shared, full)
    yield from _cross(("logistic",), ("few-positives",), full)
    yield from _cross(("poisson",), ("overdispersed",), (None, 1.0, 8.0))
    yield from _cross(("negative-binomial",), ("overdispersed", "rare"), some)
    yield from _cross(("linear",), ("heavy-tails",), (None, 1.0, 8.0))
    yield from _cross(("student",), ("heavy-tails", "rare"), some)
    yield from _cross(("own-student",), ("plain", "rare", "loose"), (None, 1.0, HUGE), (2_000,))
    yield from _cross(("own-student",), ("rare",), (None, 3.0, 20.0))
    # The other regressions, mixed models.
    yield from _cross(("probit", "gamma"), ("plain", "rare", "one-hot"), some)
    yield from _cross(
        ("mixed-linear", "mixed-logistic", "mixed-poisson"), ("plain", "rare"), (None, 1.0, 3.0)
    )
    yield from _cross(("mixed-linear", "mixed-logistic"), ("rare",), (HUGE,))
    yield from _cross(("grouped-linear", "grouped-logistic"), ("plain", "rare"), (None, 1.0, 8.0), (2_000,))
    # Without bounds; small and large tables; the other relation; sampling; persons.
    yield from _cross(MAIN, ("rare", "skewed"), (None, 1.0, 3.0, 8.0), bounded=False)
    yield from _cross(MAIN, ("rare", "skewed"), (None, 3.0, 8.0), (500,), bounded=False)
    yield from _cross(MAIN, ("rare", "skewed"), (None, 3.0, 8.0), (500,))
    yield from _cross(MAIN, ("plain",), (None, 1.0, 8.0), (300, 50_000))
    yield from _cross(MAIN, ("plain", "one-hot"), (None, 0.5, 2.0, 8.0), (2_000,))
    yield from _cross(MAIN, ("plain", "rare"), (1.0, 8.0), relation="replace-one")
    yield from _cross(MAIN, ("plain", "rare"), (1.0, 8.0), sampling=RATE)
    yield from _cross(("linear", "logistic", "poisson"), ("persons",), (None, 1.0))
    yield from _cross(("linear", "logistic", "poisson"), ("persons",), (1.0, 8.0), by_person=True)
    # Ranks of the truth among draws of the posterior.
    yield from _cross(MAIN, ("drawn",), (None, 0.5, 1.0, 3.0))
    # For the report alone.
    yield from _cross(MAIN, tuple(JUDGE), (None, 0.5, 2.0, 5.0))
    yield from _cross(MAIN, ("interactions", "ordinal", "two-rare"), (HUGE,))
    yield from _cross(MAIN, ("nested", "mixed-scales"), (None, 2.0, 5.0), bounded=False)
    yield from _cross(MAIN, ("zero-inflated", "two-rare"), (2.0,), relation="replace-one")
    yield from _cross(MAIN, ("interactions", "ordinal"), (2.0,), sampling=RATE)
    yield from _cross(MAIN, ("ordinal",), (None, 2.0, 5.0), (2_000,))
    yield from _cross(("probit", "gamma"), ("two-rare", "zero-inflated"), (None, 2.0))
    yield from _cross(("mixed-linear", "mixed-logistic"), ("two-rare", "zero-inflated"), (None, 2.0))
    yield from _cross(("negative-binomial",), ("nested",), (None, 2.0, 5.0))
    yield from _cross(("student",), ("interactions",), (None, 2.0, 5.0))
    # Peers, where they say an interval or an estimate.
    yield from _cross(("linear",), ("plain", "rare", "skewed"), (1.0, 8.0), who="adassp")
    yield from _cross(("linear", "logistic"), ("plain", "rare"), (1.0, 8.0), who="diffprivlib")


def _distinct(cells: Iterable[Cell]) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(cell.name, cell)
    return found


_BY_NAME = _distinct(_list())
CELLS: tuple[Cell, ...] = tuple(_BY_NAME.values())
"""All cells, in the order in which they are shown."""
QUICK = ",".join(
    (
        "logistic/rare/n10000/none/bounds",
        "logistic/rare/n10000/eps1/zero-out/full/bounds",
        "linear/plain/n10000/none/bounds",
        "linear/plain/n10000/eps1/zero-out/full/bounds",
    )
)
"""What a quick run does."""
