"""The page's top: the tiles, and what was asked of the data."""

import inspect
import math
import statistics
from typing import Any

from dpsep.data.column import Column
from dpsep.estimators.store import KINDS
from dpsep.report.page.contents import Run, Value, kind_of, parameters
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.words import clean, number, number_up, one_in, percent, unit_words

__all__ = ["asked", "noise_shares", "setting", "tiles"]

MOST_COLUMNS = 300
"""Columns of a schema that are listed."""
BUDGET = ("epsilon", "delta", "private", "relation", "noise_aware")
"""Parameters that speak of privacy: not shown on a page that makes no statement."""


def tiles(ctx: Context) -> Value:
    """Return the numbers to see first: name, value and a word on each."""
    verdict = ctx.verdict
    found: list[tuple[str, str, str]] = []
    if verdict.private:
        first = verdict.stated[0]
        total = first.total
        whose = "the smaller, the safer" if first.metrics is None else "fit and metrics"
        whose = "of this run alone" if ctx.beside else whose
        unit = unit_words(first.fit.unit)
        found += [
            ("Epsilon ε", number_up(total.epsilon), whose),
            ("Delta δ", number_up(total.delta), f"no promise in {one_in(total.delta)}"),
            ("Protected", f"each {unit}", f"relation: {first.fit.relation}"),
            ("Releases", number(first.fit.steps), "noisy sums of the fit"),
        ]
        records = ctx.records
        if records is not None:
            name = f"{unit[:1].upper()}{unit[1:]}s in the fit"
            found.append((name, f"{records:,}", "their number is public"))
    shares = noise_shares(ctx.run)
    if verdict.private and shares:
        found.append(("DP noise", percent(statistics.median(shares)), "of the variance, median"))
    if not verdict.private and not isinstance(ctx.run.rows, Absent):
        found.append(("Rows", f"{len(ctx.run.rows):,}", "in the posterior's summary"))
    return {"items": found}


def noise_shares(run: Run) -> list[float]:
    """Return the shares of noise in the variances, those that are numbers."""
    if isinstance(run.rows, Absent):
        return []
    shares = [row.get("noise_share") for row in run.rows]
    return [share for share in shares if isinstance(share, float) and math.isfinite(share)]


def asked(ctx: Context) -> Value:
    """Return what was declared, and what was set otherwise than by default."""
    schema = ctx.run.schema
    columns = () if isinstance(schema, Absent) else schema.columns
    shown = columns[:MOST_COLUMNS]
    kind = kind_of(ctx.run)
    return {
        "meaning": KINDS[kind].words.coefficient if kind else "",
        "schema": schema,
        "columns": [(column, _declared(column), _missing(column)) for column in shown],
        "left_out": len(columns) - len(shown),
        "rules": any(column.missing != "drop" for column in shown),
        "looked": [run for run in ctx.runs if not isinstance(run.schema, Absent) and run.schema.looked],
        "changed": _changed(ctx),
    }


def _declared(column: Column) -> str:
    """The range of a column that is no category."""
    if column.bounds is None:
        return "no bounds: found by the fit"
    return f"{number(column.bounds[0])} to {number(column.bounds[1])}"


def _missing(column: Column) -> str:
    """What becomes of missing cells, where they are not filled."""
    return "a level of their own" if column.missing == "category" else "the record counts for nothing"


def _changed(ctx: Context) -> list[tuple[str, str, str]] | None:
    """Settings that are not the defaults; None where the model is not known."""
    kind = kind_of(ctx.run)
    if kind is None:
        return None
    defaults = inspect.signature(KINDS[kind].__init__).parameters
    rows = []
    for name, value in parameters(ctx.run).items():
        if name in BUDGET or name in ("bounds", "target_bounds", "classes") or name not in defaults:
            continue
        here, default = setting(value), setting(defaults[name].default)
        if here != default:
            rows.append((name, here, default))
    return rows


def setting(value: Any) -> str:
    """Return a parameter's value as short text.

    Examples
    --------
    >>> setting(None), setting((1.0, 2.5)), setting("full")
    ('none', '(1, 2.5)', 'full')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return number(value, 6)
    if isinstance(value, list | tuple) and len(value) <= 24:
        return "(" + ", ".join(setting(part) for part in value) + ")"
    return clean(value)[:200]
