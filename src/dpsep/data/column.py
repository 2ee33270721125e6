"""What can be declared of one column: its kind, its range or its values, and what a missing cell means.

A number may have public bounds; a category lists every value it can take. A missing cell (nothing, or one of
the schema's ``na`` texts) makes its record count for nothing unless another rule is declared: a level of its
own, or a constant that is put in its place. What contradicts itself is refused at once, with the column's
name.

**Privacy.** A rule is a constant of the schema. A mean or a most frequent value would be learned from records
and is therefore not offered.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["MISSING_LEVEL", "Column", "Fill", "SchemaError", "as_label", "first_repeated", "shown"]

MISSING_LEVEL = "missing"
"""Name of the level of a category's missing cells, and of the column that marks them."""
LONGEST_SHOWN = 200
"""Characters of a value that a message repeats."""


class SchemaError(ValueError):
    """A declared structure contradicts itself."""


class Fill(NamedTuple):
    """A declared value that stands in the place of missing cells."""

    value: float | str


@dataclass(frozen=True)
class Column:
    """One declared column.

    Parameters
    ----------
    name
        The column's name in the table.
    kind
        ``"number"`` or ``"category"``.
    bounds
        Of a number: the lowest and the highest value it can take. None leaves it unbounded.
    categories
        Of a category: every value it can take; the first is the reference when encoded.
    missing
        What a missing cell means. ``"drop"``: its record contributes nothing. ``"category"``: the level
        ``missing`` of a category. ``Fill(value)``, in TOML ``{ fill = 3.5 }`` or a number alone: a constant.
    indicator
        With a fill: add a column of zeros and ones that marks the cells that were filled.

    Examples
    --------
    >>> column = Column("age", "number", bounds=(17, 90), missing=40)
    >>> column.bounds, column.missing
    ((17.0, 90.0), Fill(value=40.0))
    """

    name: str
    kind: Literal["number", "category"]
    bounds: tuple[float, float] | None = None
    categories: tuple[str, ...] | None = None
    missing: Any = "drop"
    indicator: bool = False

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a column's name is a text that is not empty, got {shown(self.name)}")
        if not isinstance(self.kind, str) or self.kind not in ("number", "category"):
            raise self._error(f"has kind {shown(self.kind)}; allowed are 'number' and 'category'; say which")
        if self.kind == "number":
            self._check_bounds()
        else:
            self._check_categories()
        self._check_missing()

    @property
    def levels(self) -> tuple[str, ...]:
        """The values a category is encoded by: those declared, and the missing cells' own if it has one."""
        values = self.categories or ()
        if self.missing != "category" or MISSING_LEVEL in values:
            return values
        return (*values, MISSING_LEVEL)

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration of this column, without what was left at its default."""
        entry: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.bounds is not None:
            entry["bounds"] = list(self.bounds)
        if self.categories is not None:
            entry["categories"] = list(self.categories)
        if self.missing != "drop":
            filled = isinstance(self.missing, Fill)
            entry["missing"] = {"fill": self.missing.value} if filled else self.missing
        if self.indicator:
            entry["indicator"] = True
        return entry

    def _check_bounds(self) -> None:
        if self.categories is not None:
            raise self._error("is a number and declares categories; remove them or use kind 'category'")
        if self.bounds is None:
            return
        try:
            lower, upper = (float(bound) for bound in self.bounds)
        except (TypeError, ValueError, OverflowError):
            raise self._error(f"has bounds {shown(self.bounds)}; give two numbers, lowest first") from None
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise self._error(f"has bounds {lower:g}, {upper:g}; give two finite numbers, lowest first")
        object.__setattr__(self, "bounds", (lower, upper))

    def _check_categories(self) -> None:
        if self.bounds is not None:
            raise self._error("is a category and declares bounds; remove them or use kind 'number'")
        listed = list(self.categories) if isinstance(self.categories, Iterable) else []
        if isinstance(self.categories, str | bytes | Mapping) or not listed:
            raise self._error("is a category without categories; list every value it can take")
        values = tuple(as_label(value) for value in listed)
        blank = [value for value in values if not value or value != value.strip()]
        if blank:
            raise self._error(
                f"has the category {shown(blank[0])}; categories are not empty and not padded by spaces"
            )
        repeated = first_repeated(values)
        if repeated is not None:
            raise self._error(f"lists the category {shown(repeated)} more than once; list each value once")
        object.__setattr__(self, "categories", values)

    def _check_missing(self) -> None:
        rule = self.missing
        if isinstance(rule, Mapping) and list(rule) == ["fill"]:
            rule = Fill(rule["fill"])
        elif isinstance(rule, int | float) and not isinstance(rule, bool):
            rule = Fill(rule)
        if isinstance(rule, Fill):
            rule = Fill(self._checked_fill(rule.value))
        elif not isinstance(rule, str) or rule not in ("drop", "category")[: 1 + (self.kind == "category")]:
            allowed = '"drop", "category" or' if self.kind == "category" else '"drop" or'
            raise self._error(
                f"has missing = {shown(rule)}; allowed for a {self.kind} are {allowed} {{ fill = VALUE }} "
                "with a value that you know without the data"
            )
        if not isinstance(self.indicator, bool):
            raise self._error(f"has indicator = {shown(self.indicator)}; allowed are true and false")
        if self.indicator and not isinstance(rule, Fill):
            raise self._error(
                "has an indicator, which marks cells that were filled; declare missing = { fill = VALUE }"
            )
        object.__setattr__(self, "missing", rule)

    def _checked_fill(self, value: Any) -> float | str:
        if self.kind == "category":
            label = as_label(value)
            if label not in (self.categories or ()):
                raise self._error(
                    f"fills missing cells by {shown(label)}, which is not one of its categories"
                )
            return label
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self._error(f"fills missing cells by {shown(value)}; give a finite number")
        if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:
            raise self._error(f"fills missing cells by {value:g}, which is outside its bounds")
        return float(value)

    def _error(self, what: str) -> SchemaError:
        return SchemaError(f"column {shown(self.name)} {what}")


def as_label(value: Any) -> str:
    """Return a category as text; TOML's booleans and integers are taken as they are written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) or (isinstance(value, int) and abs(value) < 2**64):
        return str(value)
    raise SchemaError(f"{shown(value)} cannot be a category; write it as text, a whole number or a boolean")


def shown(value: Any) -> str:
    """Write a value for a message: not longer than a line or two, and whatever it is.

    Examples
    --------
    >>> shown("age"), shown(10**5000)
    ("'age'", 'a value of type int')
    """
    try:
        text = repr(value)
    except Exception:  # a whole number of more digits than Python writes; an object that cannot
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name in the alphabet that occurs more than once, None where all differ."""
    return min((name for name, count in Counter(names).items() if count > 1), default=None)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no double can hold
        return False
