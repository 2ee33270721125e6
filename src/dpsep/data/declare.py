"""What can be declared of a table: its columns, what is predicted, whose rows belong together.

A schema that exists is a schema that holds together: what contradicts itself is refused at once. On disk it
is TOML: ``target = "income"`` and other keys of the whole table first, then one ``[[columns]]`` table for
each column, in order.

Why not msgspec: users make these classes in Python, too, where msgspec checks no types, so that every check
below would stay. Of 40 wrong declarations and columns in the tests its types refuse 19, none in words that
name the column and what is allowed. 24 lines (unknown and missing keys) would go; two structs and a
translation of msgspec's words would come. 30,000 columns take 0.15 s here and 0.006 s there, after 0.9 s in
`tomllib`, by which msgspec reads TOML.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpsep.data.column import Column, SchemaError, as_label, first_repeated, shown
from dpsep.data.frames import unknown_column

__all__ = ["NA", "Column", "Schema", "SchemaError"]

NA = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Texts that count as missing unless a schema lists others; a declared category is never one of them."""


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table, in order, which of them is predicted, and whose rows they are.

    Parameters
    ----------
    columns
        The columns that are used; a table's other columns are ignored.
    target
        The name of the predicted column, itself declared among the columns; None where there is none.
    unit
        The name of a column that says whose rows belong together (a patient's visits). It is no feature,
        and need not be declared among the columns.
    groups
        With a unit: how many there are, or their labels. Public, and not looked up in the table.
    rows_per_unit
        With a unit: at most how many of its rows a fit that protects whole units is to use.
    na
        The texts that stand for a missing cell; an empty cell always does.
    looked
        Whether values of the table were looked at to write this: a fit then warns that they count as
        published.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", (17, 90)), Column("sex", "category", None, ("F", "M"))))
    >>> Schema.from_toml(schema.to_toml()) == schema
    True
    """

    columns: tuple[Column, ...]
    target: str | None = None
    unit: str | None = None
    groups: int | tuple[str, ...] | None = None
    rows_per_unit: int | None = None
    na: tuple[str, ...] = NA
    looked: bool = False

    def __post_init__(self):
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("a schema declares at least one column")
        for column in self.columns:
            if not isinstance(column, Column):
                raise SchemaError(f"the columns of a schema are Column, not {type(column).__name__}")
        names = [column.name for column in self.columns]
        repeated = first_repeated(names)
        if repeated is not None:
            raise SchemaError(f"column {shown(repeated)} is declared more than once; declare it once")
        if self.target is not None and self.target not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise SchemaError(f"target {shown(self.target)} is not declared; the columns are {listed}")
        if self.target is not None and self[self.target].missing != "drop":
            raise SchemaError(
                f"the target {self.target!r} has a rule for missing cells; a record without a target says "
                "nothing about it, so remove 'missing' from this column"
            )
        self._check_unit()
        listed = isinstance(self.na, list | tuple)
        if not listed or not all(isinstance(text, str) for text in self.na):
            raise SchemaError(f'na is a list of texts, such as ["", "NA"], not {shown(self.na)}')
        object.__setattr__(self, "na", tuple(text.strip() for text in self.na))
        if not isinstance(self.looked, bool):
            raise SchemaError(f"looked is true or false, not {shown(self.looked)}")

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that are neither predicted nor say whose a row is."""
        return tuple(column for column in self.columns if column.name not in (self.target, self.unit))

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(unknown_column(name, [column.name for column in self.columns]))

    def drop(self, *names: str) -> "Schema":
        """Return the schema without some columns (a dropped target leaves none; the unit stays)."""
        gone = {self[name].name for name in names}
        columns = tuple(column for column in self.columns if column.name not in gone)
        return replace(self, columns=columns, target=None if self.target in gone else self.target)

    def with_columns(self, *columns: Column) -> "Schema":
        """Return the schema with other declarations of some of its columns."""
        new = {column.name: column for column in columns}
        return replace(self, columns=tuple(new.get(column.name, column) for column in self.columns))

    @classmethod
    def from_dict(cls, declaration: Mapping[str, Any]) -> "Schema":
        """Make a schema from ``{"target": name, "columns": [{"name": ..., "kind": ..., ...}, ...]}``."""
        if not isinstance(declaration, Mapping):
            raise SchemaError(f"a schema is declared by a table of keys, not by {type(declaration).__name__}")
        _refuse_unknown(declaration, (*_TABLE_KEYS, "columns"), "the schema")
        columns = declaration.get("columns")
        if not isinstance(columns, list | tuple) or not all(isinstance(entry, Mapping) for entry in columns):
            raise SchemaError("the schema needs 'columns', a list of tables; in TOML: one [[columns]] each")
        for place, entry in enumerate(columns, start=1):
            where = f"column {shown(entry.get('name', place))}"
            _refuse_unknown(entry, _COLUMN_KEYS, where)
            for key in ("name", "kind"):
                if key not in entry:
                    raise SchemaError(f"{where} declares no {key!r}; every column has a name and a kind")
        whole = {key: declaration[key] for key in _TABLE_KEYS if key in declaration}
        return cls(tuple(Column(**entry) for entry in columns), **whole)

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Make a schema from TOML text."""
        try:
            declaration = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"the schema is not valid TOML: {error}") from None
        except (ValueError, RecursionError):  # thousands of digits, or of brackets
            raise SchemaError(
                "the schema is no TOML that can be read: a number or a nesting is too long"
            ) from None
        return cls.from_dict(declaration)

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Read a schema from a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemaError(f"the schema file {path} cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise SchemaError(f"the schema file {path} is not UTF-8 text; save it as UTF-8") from None
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration that `from_dict` takes, without what was left at its default."""
        whole: dict[str, Any] = {}
        for key in _TABLE_KEYS:
            value = getattr(self, key)
            if value != getattr(Schema, key):
                whole[key] = list(value) if isinstance(value, tuple) else value
        return whole | {"columns": [column.to_dict() for column in self.columns]}

    def to_toml(self) -> str:
        """Return the schema as TOML text."""
        declaration = self.to_dict()
        columns = declaration.pop("columns")
        lines = [f"{key} = {_toml(value)}" for key, value in declaration.items()]
        for entry in columns:
            lines += ["", "[[columns]]", *(f"{key} = {_toml(value)}" for key, value in entry.items())]
        return "\n".join(lines).lstrip("\n") + "\n"

    def _check_unit(self) -> None:
        if self.unit is None:
            for key in ("groups", "rows_per_unit"):
                if getattr(self, key) is not None:
                    raise SchemaError(f"{key} says something of units, and no unit is declared; add unit = ")
            return
        if not isinstance(self.unit, str) or not self.unit:
            raise SchemaError(f"unit is the name of a column, not {shown(self.unit)}")
        if self.unit == self.target:
            raise SchemaError(f"{self.unit!r} is the target and the unit; it can be one of them")
        cap = self.rows_per_unit
        if cap is not None and not _is_count(cap):
            raise SchemaError(f"rows_per_unit is a whole number of at least 1, not {shown(cap)}")
        groups = self.groups
        if isinstance(groups, list | tuple):
            labels = tuple(as_label(label) for label in groups)
            if not labels or len(set(labels)) < len(labels):
                raise SchemaError("groups lists no label, or one more than once; list each unit once")
            object.__setattr__(self, "groups", labels)
        elif groups is not None and not _is_count(groups):
            raise SchemaError(f"groups is a number of units or a list of their labels, not {shown(groups)}")


_TABLE_KEYS = ("target", "unit", "groups", "rows_per_unit", "na", "looked")
_COLUMN_KEYS = ("name", "kind", "bounds", "categories", "missing", "indicator")


def _is_count(value: Any) -> bool:
    """Say whether a value is a whole number of at least 1, and one that TOML can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63


def _refuse_unknown(entry: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in allowed:
            raise SchemaError(f"{where} has the key {shown(key)}; allowed are {', '.join(allowed)}")


def _toml(value: Any) -> str:
    """Write a text, a number, a list of them or a table of one; JSON's notation is nearly TOML's."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
