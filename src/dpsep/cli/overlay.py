"""A call's options laid over a schema, and the leaks that options and schema announce.

**Privacy.** Options, declared structure and nothing of the table.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dpsep.cli.errors import CallError
from dpsep.data import Column, Schema
from dpsep.data.frames import unknown_column
from dpsep.privacy.leaks import PrivacyLeakError

__all__ = ["Leaks", "note_schema", "parse_bounds", "parse_classes", "with_target"]


@dataclass
class Leaks:
    """What a call gives away besides its result.

    Attributes
    ----------
    found
        As the result's statement tells it.
    warnings
        As the user is told, with what to do about it.
    room
        Raises where the budget does not suffice for what a look at the table is to prepare.
    """

    private: bool
    strict: bool
    found: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    room: Callable[[], None] | None = None

    def add(self, what: str, advice: str) -> None:
        """Note a leak; an error under ``strict``, nothing without privacy."""
        if not self.private:
            return
        message = f"outside the privacy guarantee: {what}. {advice}"
        if self.strict:
            raise PrivacyLeakError(message)
        self.found.append(what)
        self.warnings.append(message)

    def look(self, what: str, advice: str) -> None:
        """Note that the table is to be looked at before its charge; refuse where that may be for nothing."""
        self.add(what, advice)
        if self.private and self.room is not None:
            self.room()


def parse_bounds(texts: Sequence[str], schema: Schema) -> Schema:
    """Lay ``COLUMN=LOW:HIGH`` (or ``LOW:HIGH`` for every number column but the target) over a schema.

    Examples
    --------
    >>> schema = Schema((Column("age", "number"), Column("pay", "number")), "pay")
    >>> parse_bounds(["age=0:120", "pay=-5:5"], schema)["pay"].bounds
    (-5.0, 5.0)
    """
    found: dict[str, tuple[float, float]] = {}
    for text in sorted(texts, key=lambda item: "=" in item):  # one column's bounds win over everybody's
        name, _, span = text.rpartition("=")
        low, _, high = span.partition(":")
        try:
            pair = (float(low), float(high))
        except ValueError:
            pair = (math.nan, math.nan)
        if not (math.isfinite(pair[0]) and math.isfinite(pair[1]) and pair[0] < pair[1]):
            raise CallError(
                f"--bounds {text} is not COLUMN=LOW:HIGH, or LOW:HIGH for all columns, with LOW below HIGH."
            )
        names = [column.name for column in schema.features if column.kind == "number"] if not name else [name]
        for one in names:
            if schema[one].kind != "number":
                raise CallError(f"--bounds {text}: column {one!r} is a category; only numbers have bounds.")
            found[one] = pair
    return schema.with_columns(*(replace(schema[name], bounds=pair) for name, pair in found.items()))


def parse_classes(classes: str) -> tuple[str, str]:
    """Take ``NEGATIVE,POSITIVE`` apart."""
    parts = [part.strip() for part in classes.split(",")]
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise CallError(f"--classes {classes} is not two different labels, NEGATIVE,POSITIVE.")
    return parts[0], parts[1]


def with_target(schema: Schema, target: str | None, labels: tuple[str, str] | None) -> Schema:
    """Lay --target and --classes over the user's schema."""
    name = target or schema.target
    if name is None:
        raise CallError("nothing says what to predict; give --target COLUMN, or a target in the schema.")
    if name not in _names(schema):
        raise CallError(f"the schema does not declare the target: {unknown_column(name, _names(schema))}")
    if labels is not None:
        schema = schema.with_columns(Column(name, "category", categories=labels))
    return replace(schema, target=name)


def _names(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns]


def note_schema(schema: Schema, leaks: Leaks) -> None:
    """Warn of what a schema says about itself."""
    if schema.looked:
        leaks.add(
            "the schema was drafted by looking at the table's values",
            "Write into it what you know without the data and take 'looked' out, or draft it privately with "
            "'dpsep schema TABLE --epsilon E'.",
        )
