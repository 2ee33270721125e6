"""From a file and a call's options to what an estimator takes: a schema, features, target, bounds.

There is always a schema in the end: the user's file with the call's options laid over it, or one made from
the table's column types. It is stored with the result, so that `dpsep predict` reads new tables the same way.

**Privacy.** Everything is decided by declared structure: options, schema, column names and types. Where that
does not suffice (types of a CSV file, classes that nobody declared) the table is looked at, and each such
look is a leak that is warned of and written into the result's statement; ``--strict`` makes it an error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dpsep.data import Column, Schema, encode, encode_target, encoded_bounds, read_table
from dpsep.data.frames import unknown_column
from dpsep.data.schema import category_codes
from dpsep.data.table import FORMATS
from dpsep.privacy.leaks import PrivacyLeakError
from dpsep.shell.errors import CallError

__all__ = ["MODELS", "Inputs", "Leaks", "parse_bounds", "read_inputs"]

MODELS = {
    "linear": "LinearRegression",
    "logistic": "LogisticRegression",
    "probit": "ProbitRegression",
    "poisson": "PoissonRegression",
    "network": "NetworkRegressor",
    "network-classifier": "NetworkClassifier",
    "mixture": "GaussianMixture",
}
CLASSIFIERS = ("logistic", "probit", "network-classifier")


@dataclass
class Leaks:
    """What a call gives away besides its result.

    Attributes
    ----------
    found
        As the result's statement tells it.
    warnings
        As the user is told, with what to do about it.
    """

    private: bool
    strict: bool
    found: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, what: str, advice: str) -> None:
        """Note a leak; an error under ``strict``, nothing without privacy."""
        if not self.private:
            return
        message = f"{what}, outside the privacy guarantee. {advice}"
        if self.strict:
            raise PrivacyLeakError(message)
        self.found.append(what)
        self.warnings.append(message)


class Inputs(NamedTuple):
    """What an estimator takes.

    Attributes
    ----------
    model
        A key of `MODELS`.
    schema
        The declared structure, target included.
    features
        A frame of doubles with the encoded columns' names.
    target
        Numbers, or labels with an empty text for what is missing or undeclared; None of a mixture.
    bounds, target_bounds
        Declared; None where any is missing.
    unbounded
        The number columns without bounds.
    left_out
        The target of the user's schema, where a mixture leaves it out.
    """

    model: str
    schema: Schema
    features: pl.DataFrame
    target: Any
    bounds: tuple[Any, Any] | None
    target_bounds: tuple[float, float] | None
    unbounded: tuple[str, ...]
    left_out: str | None = None

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
) -> Inputs:
    """Read a table and settle what is predicted from what, and how."""
    labels = None if classes is None else _labels(classes)
    mixture = model == "mixture"
    if mixture:
        _refuse_target(target, classes)
    left_out = None
    if schema is not None:
        declared = Schema.read(schema)
        declared = declared.drop(*drop) if drop else declared
        left_out = declared.target if mixture else None
        declared = _numbers_of(declared) if mixture else _with_target(declared, target, labels)
        frame = read_table(table, schema=declared)
        if declared.target is not None and declared.target not in frame.columns:
            raise CallError(f"{table}: {unknown_column(declared.target, frame.columns)}")
    else:
        frame = read_table(table)
        declared = _number_types(frame, drop) if mixture else _from_types(frame, target, labels, drop, model)
        if _is_text(table):
            leaks.add(
                "the column types of the text file were guessed from its values",
                f"Declare them: 'dpsep schema {table} --out schema.toml' drafts a schema for --schema.",
            )
    chosen = model if mixture else _model(model, declared)
    if chosen in CLASSIFIERS:
        declared = _with_classes(declared, frame, leaks)
    declared = parse_bounds(bounds, declared)
    matrix, names = encode(frame, declared)
    low, high = encoded_bounds(declared)
    bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
    outcome = None if declared.target is None else declared[declared.target]
    return Inputs(
        model=chosen,
        schema=declared,
        features=pl.DataFrame(matrix, schema=list(names)),
        target=None if outcome is None else _target(frame, declared),
        bounds=(low.tolist(), high.tolist()) if bounded else None,
        target_bounds=None if outcome is None else outcome.bounds,
        unbounded=tuple(
            column.name for column in declared.features if column.kind == "number" and column.bounds is None
        ),
        left_out=left_out,
    )


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
    columns = [
        replace(column, bounds=found[column.name]) if column.name in found else column
        for column in schema.columns
    ]
    return Schema(tuple(columns), schema.target)


def _labels(classes: str) -> tuple[str, str]:
    parts = [part.strip() for part in classes.split(",")]
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise CallError(f"--classes {classes} is not two different labels, NEGATIVE,POSITIVE.")
    return parts[0], parts[1]


def _with_target(schema: Schema, target: str | None, labels: tuple[str, str] | None) -> Schema:
    """Lay --target and --classes over the user's schema."""
    name = target or schema.target
    if name is None:
        raise CallError("nothing says what to predict; give --target COLUMN, or a target in the schema.")
    column = schema[name]
    if labels is not None:
        column = Column(name, "category", categories=labels)
    return Schema(tuple(column if old.name == name else old for old in schema.columns), name)


def _refuse_target(target: str | None, classes: str | None) -> None:
    for option, value in (("--target", target), ("--classes", classes)):
        if value is not None:
            raise CallError(
                f"a mixture predicts nothing, so {option} {value} has no meaning for it; leave {option} out "
                "(and --drop a column that is not to be clustered)."
            )


def _numbers_of(schema: Schema) -> Schema:
    """Take a schema's columns for a mixture: all but the target, and numbers only."""
    _refuse_text([column.name for column in schema.features if column.kind == "category"], "is a category")
    if not schema.features:
        raise CallError("the schema declares no column besides its target; there is nothing to cluster.")
    return Schema(schema.features)


def _number_types(frame: pl.DataFrame, drop: Sequence[str]) -> Schema:
    """Make a schema for a mixture of a table's columns, which must be numbers."""
    for name in drop:
        if name not in frame.columns:
            raise CallError(unknown_column(name, frame.columns))
    kept = [name for name in frame.columns if name not in drop]
    _refuse_text([name for name in kept if not _numeric(frame[name])], "holds no numbers")
    if not kept:
        raise CallError("no column is left to cluster; --drop fewer.")
    return Schema(tuple(Column(name, "number") for name in kept))


def _refuse_text(names: Sequence[str], why: str) -> None:
    if names:
        raise CallError(
            f"column {', '.join(map(repr, names))} {why}, and a mixture is of numbers; leave the column out "
            f"with {' '.join(f'--drop {name}' for name in names)}."
        )


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
            f"column {', '.join(map(repr, text))} holds no numbers, and its categories are not declared. "
            "Declare them in a schema ('dpsep schema TABLE --out schema.toml' drafts one for --schema), or "
            f"leave the column out with {' '.join(f'--drop {name}' for name in text)}."
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
    outcome = schema[str(schema.target)]
    if model == "auto":
        return "logistic" if outcome.kind == "category" else "linear"
    if outcome.kind == "category" and model not in CLASSIFIERS:
        raise CallError(
            f"the target {outcome.name!r} is a category, which --model {model} cannot predict; "
            "use logistic, probit or network-classifier, or declare it a number."
        )
    return model


def _with_classes(schema: Schema, frame: pl.DataFrame, leaks: Leaks) -> Schema:
    """Make sure that a yes/no target has two classes; read them off the table if nobody declared any."""
    outcome = schema[str(schema.target)]
    categories = outcome.categories
    if categories is None or categories == ("?",):
        leaks.add(
            f"the classes of {outcome.name!r} were read off the table",
            "Declare them: --classes NEGATIVE,POSITIVE.",
        )
        found = frame[outcome.name].drop_nulls().unique().sort()
        labels = dict.fromkeys(_label(value) for value in found.to_list())
        categories = tuple(label for label in labels if label)
    if len(categories) != 2:
        raise CallError(
            f"the target {outcome.name!r} must have exactly two classes for a yes/no model; declare them "
            "with --classes NEGATIVE,POSITIVE."
        )
    settled = Column(outcome.name, "category", categories=categories)
    columns = (settled if column.name == outcome.name else column for column in schema.columns)
    return Schema(tuple(columns), schema.target)


def _target(frame: pl.DataFrame, schema: Schema) -> Any:
    outcome = schema[str(schema.target)]
    if outcome.categories is None:
        return encode_target(frame, schema)
    labels = np.array(["", *outcome.categories])
    return labels[category_codes(frame[outcome.name], outcome) + 1]


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.17g}" if isinstance(value, float) else str(value).strip()


def _numeric(series: pl.Series) -> bool:
    return series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)


def _is_text(table: str) -> bool:
    path = Path(table)
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    return table == "-" or FORMATS.get(suffix.lower()) == "csv"
