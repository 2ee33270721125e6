"""Rows that belong together: whose privacy a fit counts, the group of each row, and the ledger that suits.

A schema with a ``unit`` turns a regression into the mixed model of its family, where there is one. By default
whole units are protected; ``--unit record`` protects single rows and learns each declared group's own
effects. Other regressions protect whole units, too, where the schema declares them, without such effects.

**Privacy.** What is decided here is decided by options and the schema. A row's label is a function of that
row's cell: one that was not declared, or makes no sense, is nobody's, and its row counts nowhere.
"""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.cli.errors import CallError
from dpsep.cli.overlay import Leaks
from dpsep.data import Schema
from dpsep.data.frames import unknown_column
from dpsep.data.large_encoded import unit_labels
from dpsep.registry import regressions

__all__ = ["MIXED", "check_ledger", "labels_of", "parse_slopes", "settle_unit"]

MIXED = tuple(entry.name for entry in regressions() if entry.mixed)
"""Models that have a mixed form."""
PLAIN = tuple(entry.name for entry in regressions() if not entry.mixed)
"""Regressions that have none, and protect units all the same."""


def settle_unit(schema: Schema, model: str, wanted: str | None, leaks: Leaks) -> str | None:
    """Return whose privacy a mixed model is to count; None where the model is no mixed one.

    Parameters
    ----------
    schema
        The declared structure.
    model
        Its name in `dpsep.registry`.
    wanted
        ``"record"``, ``"group"``, or None for the default.
    leaks
        Where a unit whose rows together are not protected is noted.
    """
    if schema.unit is None:
        if wanted is not None:
            raise CallError(
                f"--unit {wanted} is for rows that belong together, and no schema says which do; give "
                '--schema FILE with a line unit = "COLUMN", or leave --unit out.'
            )
        return None
    declared = schema.groups is not None and schema.rows_per_unit is not None
    if model in PLAIN and (wanted == "group" or (wanted is None and declared)):
        _check_declared(schema, "group")
        return "group"
    if model not in MIXED:
        if wanted == "group":
            raise CallError(
                f"--model {model} protects rows, not whole units; leave --unit out, or use one of "
                f"{', '.join((*MIXED, *PLAIN))}."
            )
        _note_rows(schema, leaks, "keep one row of each")
        return None
    unit = wanted or "group"
    _check_declared(schema, unit)
    if unit == "record":
        _note_rows(schema, leaks, "leave out --unit record, so that whole units are protected")
    return unit


def _check_declared(schema: Schema, unit: str) -> None:
    needed = {"groups": "groups = NUMBER (of units, with codes 0, 1, ...) or groups = [their labels]"}
    if unit == "group":
        needed["rows_per_unit"] = "rows_per_unit = NUMBER (at most how many rows of one are used)"
    missing = [text for key, text in needed.items() if getattr(schema, key) is None]
    if missing:
        raise CallError(
            f"the schema's unit {schema.unit!r} makes a model that knows which rows belong together, which "
            f"needs more to be declared. Add to the schema: {'; '.join(missing)}. Or take 'unit' out for a "
            "model of single rows."
        )


def _note_rows(schema: Schema, leaks: Leaks, advice: str) -> None:
    leaks.add(
        f"what all rows of one {schema.unit!r} tell together (each row alone is protected)",
        f"One with k rows has k times this epsilon: {advice}, or take 'unit' out of the schema if each has "
        "one.",
    )


def labels_of(frame: pl.DataFrame, schema: Schema) -> NDArray[Any]:
    """Return the group of each row of a table, as the mixed models take it."""
    labels = unit_labels(frame, schema)
    return labels.to_numpy() if isinstance(schema.groups, int) else np.array(labels.to_pylist(), object)


def parse_slopes(text: str | None, unit: str | None, columns: list[str]) -> tuple[str, ...]:
    """Take ``COLUMN,COLUMN`` apart: the encoded columns whose slopes vary by unit."""
    if text is None:
        return ()
    if unit is None:
        raise CallError(
            f"--slopes is for models with effects by unit: {', '.join(MIXED[:-1])} or {MIXED[-1]} with a "
            "schema that declares a unit; leave it out."
        )
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in columns:
            raise CallError(f"--slopes {text}: {unknown_column(name, columns)}")
        if names.count(name) > 1:
            raise CallError(f"--slopes {text} names {name!r} twice; name each column once.")
    return names


def check_ledger(ledger: Any, unit: str) -> None:
    """Refuse a ledger that counts other units than the fit, with what to do about it."""
    if ledger is None or ledger.unit == unit:
        return
    if unit == "group":
        raise CallError(
            f"the ledger {ledger.path} counts single rows, and this fit protects whole units. Make a ledger "
            "for them with 'dpsep ledger create PATH --unit group --epsilon E --delta D', or protect rows "
            "with --unit record. Nothing was charged."
        )
    raise CallError(
        f"the ledger {ledger.path} counts whole units (--unit group), and this command protects single rows. "
        f"Use a ledger made with --unit record, or a fit that protects units: {', '.join(MIXED[:-1])} or "
        f"{MIXED[-1]} with a schema that declares a unit. Nothing was charged."
    )
