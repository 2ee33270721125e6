"""From a file and a call's options to what an estimator takes: a schema, features, target, bounds.

There is always a schema in the end: the user's file with the call's options laid over it, or one made from
the table's column types. It is stored with the result, so that `dpsep predict` reads new tables the same way.

**Privacy.** Everything is decided by declared structure: options, schema, column names and types; rows are
counted, and their cells are read by the fit, after its charge (`dpsep.data.later`). Where declarations do not
suffice (types of a CSV file, classes that nobody declared) the table is looked at beforehand, and each such
look is a leak that is warned of and written into the result's statement; ``--strict`` makes it an error.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.cli.errors import CallError
from dpsep.cli.large import open_large, refuse_whole
from dpsep.cli.overlay import Leaks, note_schema, parse_bounds, parse_classes, with_target
from dpsep.cli.units import settle_unit
from dpsep.data import Column, Schema, encoded_bounds, read_table
from dpsep.data.files import find_source
from dpsep.data.frames import as_frame, from_arrow, unknown_column
from dpsep.data.large import LargeColumn, LargeColumns, LargeTable
from dpsep.data.large_encoded import EncodedTable
from dpsep.data.later import open_later, read_now
from dpsep.data.table import settled_format
from dpsep.registry import names

__all__ = ["Inputs", "Leaks", "read_inputs"]

CLASSIFIERS = names("label")


class Inputs(NamedTuple):
    """What an estimator takes.

    Attributes
    ----------
    model
        Its name in `dpsep.registry`.
    schema
        The declared structure, target included.
    features
        The encoded columns, doubles, of a table whose rows are read by the fit.
    target
        Numbers, or labels that are missing where they are not declared; None of a mixture.
    bounds, target_bounds
        Declared; None where any is missing.
    unbounded
        The number columns without bounds.
    left_out
        The target of the user's schema, where a mixture leaves it out.
    unit
        Of a mixed model: whose privacy is counted, ``"record"`` or ``"group"``; None of other models.
    groups
        Of a mixed model: the label of each row, missing or -1 where it is not declared.
    """

    model: str
    schema: Schema
    features: LargeColumns
    target: LargeColumn | None
    bounds: tuple[Any, Any] | None
    target_bounds: tuple[float, float] | None
    unbounded: tuple[str, ...]
    left_out: str | None = None
    unit: str | None = None
    groups: LargeColumn | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the encoded columns."""
        return list(self.features.column_names)

    def some(self, rows: NDArray[np.int64]) -> "Inputs":
        """The same of some rows."""
        table = self.features.table.rows(rows)
        target = None if self.target is None else table[self.target.name]
        return self._replace(features=table[self.columns], target=target)

    def cells(self) -> tuple[pl.DataFrame, Any, Any]:
        """Read all rows: features; numbers, or labels with an empty text for what cannot be used; groups."""
        features = from_arrow(self.features.read(slice(None)))
        target = groups = None
        if self.target is not None:
            answers = self.target.read(slice(None))
            target = answers.to_numpy()
            if self.classes is not None:
                target = np.array(["" if label is None else label for label in answers.to_pylist()])
        if self.groups is not None:
            groups = np.array(self.groups.read(slice(None)).to_pylist(), object)
        return features, target, groups

    @property
    def classes(self) -> list[str] | None:
        """The target's two labels, the negative one first; None for a number and without a target."""
        if self.schema.target is None:
            return None
        categories = self.schema[str(self.schema.target)].categories
        return None if categories is None else list(categories)


def read_inputs(
    table: str,
    leaks: Leaks,
    *,
    target: str | None,
    model: str = "auto",
    schema: Path | None = None,
    bounds: Sequence[str] = (),
    classes: str | None = None,
    drop: Sequence[str] = (),
    format: str | None = None,
    unit: str | None = None,
    memory: int | None = None,
) -> Inputs:
    """Open a table and settle what is predicted from what, and how.

    With ``memory``, bytes that may be held for rows, the fit reads them as it goes, else all at once.
    """
    labels = None if classes is None else parse_classes(classes)
    mixture = model == "mixture"
    if mixture:
        _refuse_target(target, classes)
    left_out = None
    if schema is None:
        opened = _open(table, format, memory, None, leaks)
        empty = as_frame(opened.schema.empty_table())
        declared = _number_types(empty, drop) if mixture else _from_types(empty, target, labels, drop, model)
        chosen = _model(model, declared)
        counted = settle_unit(declared, chosen, unit, leaks)
    else:
        declared = Schema.read(schema)
        declared = declared.drop(*drop) if drop else declared
        left_out = declared.target if mixture else None
        declared = _numbers_of(declared) if mixture else with_target(declared, target, labels)
        note_schema(declared, leaks)
        chosen = _model(model, declared)
        counted = settle_unit(declared, chosen, unit, leaks)
        opened = _open(table, format, memory, declared, leaks)
        for name in (declared.target, declared.unit):
            if name is not None and name not in opened.names:
                raise CallError(f"{opened.label}: {unknown_column(name, opened.names)}")
    if memory is not None:
        refuse_whole(declared, counted, labelled=chosen in CLASSIFIERS)
    if chosen in CLASSIFIERS:
        declared = _with_classes(declared, opened, leaks)
    declared = parse_bounds(bounds, declared)
    encoded = EncodedTable(opened, declared, by_unit=counted is not None)
    low, high = encoded_bounds(declared)
    bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
    outcome = None if declared.target is None else declared[declared.target]
    return Inputs(
        model=chosen,
        schema=declared,
        features=encoded.features,
        target=encoded.target,
        bounds=(low.tolist(), high.tolist()) if bounded else None,
        target_bounds=None if outcome is None else outcome.bounds,
        unbounded=tuple(
            column.name for column in declared.features if column.kind == "number" and column.bounds is None
        ),
        left_out=left_out,
        unit=counted,
        groups=encoded.groups,
    )


def _open(
    table: str, format: str | None, memory: int | None, schema: Schema | None, leaks: Leaks
) -> LargeTable:
    """Open a table; of a private one the cells are left for the fit, unless its types have to be guessed."""
    if memory is not None:
        return open_large(table, format, memory)
    source = find_source(table)
    if not leaks.private:
        return read_now(read_table(source, format, schema=schema), source.label)
    kind = settled_format(source, format)
    if schema is None and kind == "csv":
        leaks.look(
            "the column types of the text file were guessed from its values",
            f"Declare them: 'dpsep schema {table} --out schema.toml' drafts a schema for --schema.",
        )
    return open_later(source, kind, schema)


def _refuse_target(target: str | None, classes: str | None) -> None:
    for option, value in (("--target", target), ("--classes", classes)):
        if value is not None:
            raise CallError(
                f"a mixture predicts nothing, so {option} {value} has no meaning for it; leave {option} out "
                "(and --drop a column that is not to be clustered)."
            )


def _numbers_of(schema: Schema) -> Schema:
    """Take a schema's columns for a mixture: all but the target, and numbers only."""
    _refuse_text([column.name for column in schema.features if column.kind == "category"])
    if not schema.features:
        raise CallError("the schema declares no column besides its target; there is nothing to cluster.")
    return replace(schema, columns=schema.features, target=None)


def _number_types(frame: pl.DataFrame, drop: Sequence[str]) -> Schema:
    """Make a schema for a mixture of a table's columns, which must be numbers."""
    for name in drop:
        if name not in frame.columns:
            raise CallError(unknown_column(name, frame.columns))
    kept = [name for name in frame.columns if name not in drop]
    _refuse_text([name for name in kept if not _numeric(frame[name])])
    if not kept:
        raise CallError("no column is left to cluster; --drop fewer.")
    return Schema(tuple(Column(name, "number") for name in kept))


def _refuse_text(names: Sequence[str]) -> None:
    if names:
        raise CallError(
            f"a mixture is of numbers, and {_listed(names)} {'are' if len(names) > 1 else 'is'} not; leave "
            f"{'them' if len(names) > 1 else 'it'} out with {' '.join(f'--drop {name}' for name in names)}."
        )


def _listed(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _from_types(
    frame: pl.DataFrame,
    target: str | None,
    labels: tuple[str, str] | None,
    drop: Sequence[str],
    model: str,
) -> Schema:
    """Make a schema of a table's number columns; text that nobody declared is an error."""
    if target is None:
        raise CallError("nothing says what to predict; give --target COLUMN, or a target in the schema.")
    for name in (target, *drop):
        if name not in frame.columns:
            raise CallError(unknown_column(name, frame.columns))
    kept = [name for name in frame.columns if name not in drop or name == target]
    text = [name for name in kept if name != target and not _numeric(frame[name])]
    if text:
        raise CallError(
            f"{_listed(text)} {'hold' if len(text) > 1 else 'holds'} no numbers, and no categories are "
            "declared. Declare them in a schema ('dpsep schema TABLE --out schema.toml' drafts one for "
            f"--schema), or leave out what is not used with {' '.join(f'--drop {name}' for name in text)}."
        )
    if kept == [target]:
        raise CallError(
            f"the table has no column besides the target {target!r}; there is nothing to predict from."
        )
    outcome = Column(target, "number")
    if labels is not None:
        outcome = Column(target, "category", categories=labels)
    elif frame[target].dtype == pl.Boolean:
        outcome = Column(target, "category", categories=("false", "true"))
    elif not _numeric(frame[target]):
        if model not in ("auto", *CLASSIFIERS):
            raise CallError(f"the target {target!r} holds no numbers, so --model {model} cannot predict it.")
        outcome = Column(target, "category", categories=("?",))  # to be filled in by `_with_classes`
    return Schema(tuple(outcome if name == target else Column(name, "number") for name in kept), target)


def _model(model: str, schema: Schema) -> str:
    if model == "mixture":
        return model
    outcome = schema[str(schema.target)]
    if model == "auto":
        return "logistic" if outcome.kind == "category" else "linear"
    if outcome.kind == "category" and model not in CLASSIFIERS:
        raise CallError(
            f"the target {outcome.name!r} is a category, which --model {model} cannot predict; "
            f"use {', '.join(CLASSIFIERS[:-1])} or {CLASSIFIERS[-1]}, or declare it a number."
        )
    return model


def _with_classes(schema: Schema, table: LargeTable, leaks: Leaks) -> Schema:
    """Make sure that a yes/no target has two classes; read them off the table if nobody declared any."""
    outcome = schema[str(schema.target)]
    categories = outcome.categories
    if categories is None or categories == ("?",):
        leaks.look(
            f"the classes of {outcome.name!r} were read off the table",
            "Declare them: --classes NEGATIVE,POSITIVE.",
        )
        cells = as_frame(table.read(slice(None), [outcome.name]))[outcome.name]
        found = cells.drop_nulls().unique().sort()
        labels = dict.fromkeys(_label(value) for value in found.to_list())
        categories = tuple(label for label in labels if label)
    if len(categories) != 2:
        raise CallError(
            f"the target {outcome.name!r} must have exactly two classes for a yes/no model; declare them "
            "with --classes NEGATIVE,POSITIVE."
        )
    return schema.with_columns(Column(outcome.name, "category", categories=categories))


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.17g}" if isinstance(value, float) else str(value).strip()


def _numeric(series: pl.Series) -> bool:
    return series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)
