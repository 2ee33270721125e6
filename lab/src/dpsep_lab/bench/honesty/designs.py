"""Designs of the survey: made columns of known law, each with what makes a kind of real table hard.

A design draws columns and says what is public of them (bounds), which coefficients are true, and of which
class each is: ``common``, ``rare`` (a 0/1 column that few rows have), ``hard`` (what the design is about
where it is not rarity), ``intercept``. Coefficients are in units of the table. Cells lie within the bounds
before outcomes are drawn, so that bounds cut nothing off.

`CHOOSE` are the designs on which constants of the library may be chosen. `JUDGE` are those that were named
beforehand for the report alone: nothing may be tuned on them.

Designs have four columns or seven, so that fits share few compiled programs.

**Privacy.** Made data only.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHOOSE", "DESIGNS", "JUDGE", "Class", "Design", "Made"]

REACH = 3.0
"""Normal columns are clamped to plus and minus this many standard deviations, which are their bounds."""
RARE = 0.015
"""Share of rows that a rare 0/1 column has."""
RARE_EFFECT = -0.8
"""True coefficient of a rare column."""
ROWS = 4
"""Rows of each person where persons are repeated."""
MONEY = 20.0
"""Upper bound of a skewed column, whose median is one."""
CATEGORIES = (0.3, 0.22, 0.17, 0.12, 0.085, 0.055, 0.032, 0.018)
"""Shares of the eight categories; the first is the one that the others are compared with."""

Array = NDArray[np.float64]
Class = Literal["common", "rare", "hard", "intercept"]


class Made(NamedTuple):
    """Made columns.

    Attributes
    ----------
    columns
        Shape (rows, columns).
    low, high
        Declared bounds of each column.
    effects
        True coefficients.
    classes
        Class of each coefficient.
    centre
        Where the predictor has its base: the mean of each column by its law, not of this table.
    """

    columns: Array
    low: Array
    high: Array
    effects: Array
    classes: tuple[Class, ...]
    centre: Array


class Design(NamedTuple):
    """A design.

    Attributes
    ----------
    draw
        Draws columns from a number of rows and a generator.
    about
        What is hard about it.
    law
        Law of the outcomes, where it is the design's and not the target's.
    base
        Predictor at the centre, where it is the design's and not the target's.
    persons
        Whether rows are of persons, `ROWS` of each, one after another.
    random
        Whether coefficients are drawn anew for every table.
    like
        Design whose tables these are, with other bounds.
    """

    draw: Callable[[int, np.random.Generator], Made]
    about: str
    law: str = ""
    base: float | None = None
    persons: bool = False
    random: bool = False
    like: str = ""


def plain(rows: int, rng: np.random.Generator) -> Made:
    """Three normal columns and a 0/1 column of 40 %."""
    return _join(_normal(rng, rows, (0.4, -0.3, 0.2)), _marks(rng, rows, ((0.4, 0.5, "common"),)))


def rare(rows: int, rng: np.random.Generator) -> Made:
    """Two normal columns, a 0/1 column of 40 %, and one of 1.5 %."""
    marks = _marks(rng, rows, ((0.4, 0.5, "common"), (RARE, RARE_EFFECT, "rare")))
    return _join(_normal(rng, rows, (0.4, -0.3)), marks)


def one_hot(rows: int, rng: np.random.Generator) -> Made:
    """One variable of eight categories as seven 0/1 columns; those of below 5 % are rare."""
    place = rng.choice(len(CATEGORIES), size=rows, p=CATEGORIES)
    columns = (place[:, None] == np.arange(1, len(CATEGORIES))).astype(np.float64)
    shares = CATEGORIES[1:]
    classes: tuple[Class, ...] = tuple("rare" if share < 0.05 else "common" for share in shares)
    return _indicators(columns, (0.3, -0.3, 0.5, -0.5, 0.4, -0.4, RARE_EFFECT), classes, shares)


def skewed(rows: int, rng: np.random.Generator) -> Made:
    """Money: a lognormal column, clamped at twenty times its median, beside three common columns."""
    return _join(
        _normal(rng, rows, (0.4, -0.3)),
        _marks(rng, rows, ((0.4, 0.5, "common"),)),
        _money(rng, rows, 0.15),
    )


def loose(rows: int, rng: np.random.Generator) -> Made:
    """The plain columns, with bounds ten times as wide as they need be."""
    made = plain(rows, rng)
    middle, half = (made.low + made.high) / 2, (made.high - made.low) / 2
    return made._replace(low=middle - 10 * half, high=middle + 10 * half)


def collinear(rows: int, rng: np.random.Generator) -> Made:
    """Two columns with a correlation of 0.98, beside two common ones."""
    first = rng.standard_normal(rows)
    second = 0.98 * first + np.sqrt(1 - 0.98**2) * rng.standard_normal(rows)
    pair = _wide(np.clip(np.column_stack([first, second]), -REACH, REACH), (0.4, -0.3), "hard", REACH)
    return _join(pair, _normal(rng, rows, (0.3,)), _marks(rng, rows, ((0.4, 0.5, "common"),)))


def persons(rows: int, rng: np.random.Generator) -> Made:
    """Columns of persons and of visits: one is the person's own, two are half so, one is the visit's."""
    count = -(-rows // ROWS)
    own = np.repeat(rng.standard_normal((count, 3)), ROWS, axis=0)[:rows]
    fresh = rng.standard_normal((rows, 2))
    columns = np.column_stack([own[:, 0], 0.7 * own[:, 1:] + np.sqrt(0.51) * fresh])
    made = _wide(np.clip(columns, -REACH, REACH), (0.4, -0.3, 0.2), "common", REACH)
    return _join(made, _marks(rng, rows, ((0.4, 0.5, "common"),)))


def drawn(rows: int, rng: np.random.Generator) -> Made:
    """Four normal columns whose coefficients are drawn, no wider than a prior: for ranks of the truth."""
    effects = rng.normal(0.0, 0.5, 4)
    return _normal(rng, rows, tuple(effects.tolist()))


def interactions(rows: int, rng: np.random.Generator) -> Made:
    """Three 0/1 columns, their products in pairs (12, 6 and 3 % of the rows), and a normal column."""
    first, second, third = (rng.uniform(size=rows) < share for share in (0.4, 0.3, 0.1))
    columns = np.column_stack([first, second, third, first & second, first & third, second & third])
    classes: tuple[Class, ...] = ("common", "common", "common", "hard", "rare", "rare")
    shares = (0.4, 0.3, 0.1, 0.12, 0.04, 0.03)
    effects = (0.4, -0.3, 0.5, 0.5, -0.6, 0.6)
    return _join(
        _indicators(columns.astype(np.float64), effects, classes, shares), _normal(rng, rows, (0.3,))
    )


def nested(rows: int, rng: np.random.Generator) -> Made:
    """0/1 columns each within the last (50, 20, 6 and 2 % of the rows), and three normal columns."""
    draw = rng.uniform(size=rows)
    shares = (0.5, 0.2, 0.06, 0.02)
    columns = (draw[:, None] < np.asarray(shares)).astype(np.float64)
    classes: tuple[Class, ...] = ("common", "common", "hard", "rare")
    made = _indicators(columns, (0.3, -0.4, 0.5, RARE_EFFECT), classes, shares)
    return _join(made, _normal(rng, rows, (0.4, -0.3, 0.2)))


def zero_inflated(rows: int, rng: np.random.Generator) -> Made:
    """A column that is zero in 90 % of the rows and exponential in the others, beside three common ones."""
    column = np.minimum(rng.exponential(size=rows), 5.0) * (rng.uniform(size=rows) < 0.1)
    made = Made(column[:, None], np.zeros(1), np.full(1, 5.0), np.array([0.4]), ("hard",), np.array([0.1]))
    return _join(_normal(rng, rows, (0.4, -0.3)), _marks(rng, rows, ((0.4, 0.5, "common"),)), made)


def mixed_scales(rows: int, rng: np.random.Generator) -> Made:
    """An age in years, an income in tens of thousands, a share in thousandths, a mark."""
    age = rng.uniform(18, 90, rows)
    income = np.minimum(40000 * np.exp(0.6 * rng.standard_normal(rows)), 400000)
    share = np.clip(0.002 + 0.0005 * rng.standard_normal(rows), 0.0, 0.004)
    columns = np.column_stack([age, income, share])
    effects = np.array([0.02, 1e-5, 400.0])
    low, high = np.array([18.0, 0.0, 0.0]), np.array([90.0, 400000.0, 0.004])
    centre = np.array([54.0, 47000.0, 0.002])
    made = Made(columns, low, high, effects, ("common", "hard", "common"), centre)
    return _join(made, _marks(rng, rows, ((0.4, 0.5, "common"),)))


def ordinal(rows: int, rng: np.random.Generator) -> Made:
    """Small whole numbers: marks of 1 to 5, numbers of children (0 to 6), and one that is nearly always 1."""
    mark = rng.choice(5, size=rows, p=(0.05, 0.15, 0.4, 0.3, 0.1)) + 1.0
    children = np.minimum(rng.poisson(0.9, rows), 6).astype(np.float64)
    number = 1.0 + rng.choice(3, size=rows, p=(0.93, 0.05, 0.02))
    made = Made(
        np.column_stack([mark, children, number]).astype(np.float64),
        np.array([1.0, 0.0, 1.0]),
        np.array([5.0, 6.0, 3.0]),
        np.array([0.3, -0.25, 0.5]),
        ("common", "common", "hard"),
        np.array([3.25, 0.9, 1.09]),
    )
    return _join(made, _normal(rng, rows, (0.4,)))


def two_rare(rows: int, rng: np.random.Generator) -> Made:
    """Two 0/1 columns of 2 % of which a quarter of the rows are both, and two normal columns."""
    draw = rng.uniform(size=rows)
    columns = np.column_stack([draw < 0.02, (draw >= 0.015) & (draw < 0.035)]).astype(np.float64)
    made = _indicators(columns, (RARE_EFFECT, 0.6), ("rare", "rare"), (0.02, 0.02))
    return _join(_normal(rng, rows, (0.4, -0.3)), made)


CHOOSE: dict[str, Design] = {
    "plain": Design(plain, "nothing"),
    "rare": Design(rare, "a 0/1 column of 1.5 %"),
    "one-hot": Design(one_hot, "eight categories, the rarest of 1.8 %"),
    "skewed": Design(skewed, "a lognormal column"),
    "loose": Design(loose, "bounds ten times too wide", like="plain"),
    "collinear": Design(collinear, "two columns with a correlation of 0.98"),
    "few-positives": Design(plain, "3 % of the labels are positive", base=-3.7),
    "overdispersed": Design(plain, "counts of variance mu + mu^2 / 0.7", law="negative-binomial"),
    "heavy-tails": Design(plain, "errors with the tails of a Student t of 4", law="student"),
    "persons": Design(persons, "four rows a person", persons=True),
    "drawn": Design(drawn, "coefficients drawn for every table", random=True),
}
"""Designs on which constants may be chosen."""
JUDGE: dict[str, Design] = {
    "interactions": Design(interactions, "products of 0/1 columns"),
    "nested": Design(nested, "0/1 columns each within the last, down to 2 %"),
    "zero-inflated": Design(zero_inflated, "a column that is zero in 90 % of the rows"),
    "mixed-scales": Design(mixed_scales, "years, incomes and thousandths side by side"),
    "ordinal": Design(ordinal, "small whole numbers"),
    "two-rare": Design(two_rare, "two columns of 2 % that overlap"),
}
"""Designs for the report alone."""
DESIGNS = CHOOSE | JUDGE
"""All designs by name."""


def _normal(rng: np.random.Generator, rows: int, effects: tuple[float, ...]) -> Made:
    columns = np.clip(rng.standard_normal((rows, len(effects))), -REACH, REACH)
    return _wide(columns, effects, "common", REACH)


def _wide(columns: Array, effects: tuple[float, ...], kind: Class, reach: float) -> Made:
    """Columns of mean zero within plus and minus a reach."""
    count = len(effects)
    bound = np.full(count, reach)
    return Made(columns, -bound, bound, np.asarray(effects), (kind,) * count, np.zeros(count))


def _marks(rng: np.random.Generator, rows: int, marks: tuple[tuple[float, float, Class], ...]) -> Made:
    """0/1 columns: the share of each, its coefficient and its class."""
    shares = tuple(share for share, _, _ in marks)
    columns = (rng.uniform(size=(rows, len(marks))) < np.asarray(shares)).astype(np.float64)
    return _indicators(
        columns, tuple(effect for _, effect, _ in marks), tuple(kind for _, _, kind in marks), shares
    )


def _indicators(
    columns: Array, effects: tuple[float, ...], classes: tuple[Class, ...], shares: tuple[float, ...]
) -> Made:
    count = len(effects)
    return Made(columns, np.zeros(count), np.ones(count), np.asarray(effects), classes, np.asarray(shares))


def _money(rng: np.random.Generator, rows: int, effect: float) -> Made:
    column = np.minimum(np.exp(rng.standard_normal(rows)), MONEY)[:, None]
    return Made(column, np.zeros(1), np.full(1, MONEY), np.array([effect]), ("hard",), np.array([1.6]))


def _join(*parts: Made) -> Made:
    """Put columns side by side."""
    return Made(
        np.column_stack([part.columns for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.effects for part in parts]),
        tuple(kind for part in parts for kind in part.classes),
        np.concatenate([part.centre for part in parts]),
    )
