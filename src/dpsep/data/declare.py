"""What can be declared of a table: its columns, their kinds, and which of them is predicted.

A number may have public bounds; a category lists every value it can take. What contradicts itself is
refused at once, with the column's name, so that a schema that exists is a schema that holds together. On
disk a schema is TOML: ``target = "income"`` and one ``[[columns]]`` table for each column, in order.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpsep.data.frames import unknown_column

__all__ = ["Column", "Schema", "SchemaError"]


class SchemaError(ValueError):
    """A declared structure contradicts itself."""


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

    Examples
    --------
    >>> Column("age", "number", bounds=(17, 90))
    Column(name='age', kind='number', bounds=(17.0, 90.0), categories=None)
    """

    name: str
    kind: Literal["number", "category"]
    bounds: tuple[float, float] | None = None
    categories: tuple[str, ...] | None = None

    def __post_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a column's name is a text that is not empty, got {self.name!r}")
        if self.kind not in ("number", "category"):
            raise self._error(f"has kind {self.kind!r}; allowed are 'number' and 'category'")
        if self.kind == "number":
            self._check_bounds()
        else:
            self._check_categories()

    def _check_bounds(self) -> None:
        if self.categories is not None:
            raise self._error("is a number and declares categories; remove them or use kind 'category'")
        if self.bounds is None:
            return
        try:
            lower, upper = (float(bound) for bound in self.bounds)
        except (TypeError, ValueError):
            raise self._error(f"has bounds {self.bounds!r}; give two numbers, lowest first") from None
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise self._error(f"has bounds {lower:g}, {upper:g}; give two finite numbers, lowest first")
        object.__setattr__(self, "bounds", (lower, upper))

    def _check_categories(self) -> None:
        if self.bounds is not None:
            raise self._error("is a category and declares bounds; remove them or use kind 'number'")
        if isinstance(self.categories, str) or not self.categories:
            raise self._error("is a category without categories; list every value it can take")
        values = tuple(_category(value) for value in self.categories)
        blank = [value for value in values if not value or value != value.strip()]
        if blank:
            raise self._error(
                f"has the category {blank[0]!r}; categories are not empty and not padded by spaces"
            )
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            raise self._error(f"lists the category {repeated[0]!r} more than once; list each value once")
        object.__setattr__(self, "categories", values)

    def _error(self, what: str) -> SchemaError:
        return SchemaError(f"column {self.name!r} {what}")


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table, in order, and which of them is predicted.

    Parameters
    ----------
    columns
        The columns that are used; a table's other columns are ignored.
    target
        The name of the predicted column, itself declared among the columns; None where there is none.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", (17, 90)), Column("sex", "category", None, ("F", "M"))))
    >>> Schema.from_toml(schema.to_toml()) == schema
    True
    """

    columns: tuple[Column, ...]
    target: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("a schema declares at least one column")
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"column {name!r} is declared more than once; declare it once")
        if self.target is not None and self.target not in names:
            raise SchemaError(f"target {self.target!r} is not declared; the columns are {', '.join(names)}")

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that are not predicted."""
        return tuple(column for column in self.columns if column.name != self.target)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(unknown_column(name, [column.name for column in self.columns]))

    def drop(self, *names: str) -> "Schema":
        """Return the schema without some columns (a dropped target leaves none)."""
        gone = {self[name].name for name in names}
        target = None if self.target in gone else self.target
        return Schema(tuple(column for column in self.columns if column.name not in gone), target)

    @classmethod
    def from_dict(cls, declaration: Mapping[str, Any]) -> "Schema":
        """Make a schema from ``{"target": name, "columns": [{"name": ..., "kind": ..., ...}, ...]}``."""
        _refuse_unknown(declaration, ("target", "columns"), "the schema")
        columns = declaration.get("columns")
        if not isinstance(columns, list | tuple) or not all(isinstance(entry, Mapping) for entry in columns):
            raise SchemaError("the schema needs 'columns', a list of tables; in TOML: one [[columns]] each")
        for place, entry in enumerate(columns, start=1):
            where = f"column {entry.get('name', place)!r}"
            _refuse_unknown(entry, ("name", "kind", "bounds", "categories"), where)
            for key in ("name", "kind"):
                if key not in entry:
                    raise SchemaError(f"{where} declares no {key!r}; every column has a name and a kind")
        return cls(tuple(Column(**entry) for entry in columns), declaration.get("target"))

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Make a schema from TOML text."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"the schema is not valid TOML: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Read a schema from a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemaError(f"the schema file {path} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise SchemaError(f"the schema file {path} is not UTF-8 text; save it as UTF-8") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration that `from_dict` takes."""
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            entry: dict[str, Any] = {"name": column.name, "kind": column.kind}
            if column.bounds is not None:
                entry["bounds"] = list(column.bounds)
            if column.categories is not None:
                entry["categories"] = list(column.categories)
            columns.append(entry)
        return {"columns": columns} if self.target is None else {"target": self.target, "columns": columns}

    def to_toml(self) -> str:
        """Return the schema as TOML text."""
        declaration = self.to_dict()
        lines = [f"target = {_toml(self.target)}"] if self.target is not None else []
        for entry in declaration["columns"]:
            lines += ["", "[[columns]]", *(f"{key} = {_toml(value)}" for key, value in entry.items())]
        return "\n".join(lines).lstrip("\n") + "\n"


def _category(value: Any) -> str:
    """Return a category as text; TOML's booleans and integers are taken as they are written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise SchemaError(f"{value!r} cannot be a category; write it as text, a whole number or a boolean")


def _refuse_unknown(entry: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in allowed:
            raise SchemaError(f"{where} has the key {key!r}; allowed are {', '.join(allowed)}")


def _toml(value: Any) -> str:
    """Write a text, a number or a list of them; JSON's notation is TOML's, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
