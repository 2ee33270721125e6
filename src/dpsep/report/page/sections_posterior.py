"""What was found: the posterior as a forest plot, components of a mixture, or layers of a network."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.report.page.contents import Run, Value, kind_of, learned
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.forest import DRAWN, FIRST, REACH, Forest, forest_axis, reach_of, skewed
from dpsep.report.page.priors import Prior, priors, reaches
from dpsep.report.page.svg import Axis, Mark, axis_of, drawable
from dpsep.report.page.words import clean, number, percent, unit_words

__all__ = ["posterior"]

MOST_COMPARED = 200
"""Rows of the comparison of runs."""
MOST_COLUMNS = 40
"""Columns of a mixture that are drawn."""
MOST_UNITS = 12
"""Units of a layer that are drawn."""


def posterior(ctx: Context) -> Value:
    """Return what was found, beside runs of the same model alone."""
    alike = ctx.alike
    others = [run for run in ctx.beside if all(run is not one for one in alike)]
    ctx, rows = ctx._replace(beside=alike), ctx.run.rows
    if isinstance(rows, Absent):
        found: Value = {"shape": "none", "why": rows.why}
    elif "layer" in rows[0]:
        found = {"shape": "layers", **_layers(ctx, rows)}
    elif "component" in rows[0]:
        found = {"shape": "components", **_components(ctx, rows)}
    else:
        found = {"shape": "coefficients", **_coefficients(ctx, rows), "compared": _comparison(ctx)}
    return found | {"alike": alike, "others": others, "first": FIRST}


def _coefficients(ctx: Context, rows: list[Value]) -> Value:
    units = reaches(ctx.run)
    known = priors(ctx.run)
    before = {} if isinstance(known, Absent) else known
    rows = [{**row, "place": place} for place, row in enumerate(rows)]
    order = sorted(rows, key=lambda row: -_size(row)) if len(rows) > FIRST else rows
    drawn = order[:DRAWN]
    others = [_by_name(run) for run in ctx.beside]
    together = [*drawn, *(row for other in others for row in other.values())]
    noise = ctx.verdict.private and any(row.get("noise_share", 0.0) > 0 for row in together)
    axis = forest_axis(together)
    scaled = forest_axis(together, units) if _any_reach(drawn, units) else None
    data: Value = {"forest": "forest", "first": FIRST}
    if before:
        data |= _range("prior", _wider(axis, drawn, before, {}))
    if scaled is not None:
        data |= _range("scaled", scaled)
        if before:
            data |= _range("both", _wider(scaled, drawn, before, units))
    return {
        "data": data,
        "drawn": Forest(drawn, axis, before, others, units, noise),
        "runs": [(f"middle run{place % 4}", clean(run.name)[:40]) for place, run in enumerate(ctx.runs)],
        "count": len(rows),
        "skewed": noise and any(map(skewed, rows)),
        "intercept": any(row.get("name") == "intercept" for row in rows),
        "prior": bool(before),
        "no_prior": known.why if isinstance(known, Absent) else "",
        "scaled": scaled is not None,
    }


def _wider(
    axis: Axis, rows: Sequence[Value], before: Mapping[str, Prior], units: Mapping[str, float]
) -> Axis:
    """Return an axis that also holds the priors of all but the intercept, each times its reach."""
    ends = [axis.low, axis.high]
    for row in rows:
        name = str(row.get("name"))
        prior = before.get(name)
        if prior is not None and name != "intercept":
            reach = reach_of(name, units)
            ends += [reach * (prior.mean - REACH * prior.sd), reach * (prior.mean + REACH * prior.sd)]
    return axis_of(drawable(ends))


def _range(name: str, axis: Axis) -> Value:
    return {f"{name}-low": f"{axis.low:.9g}", f"{name}-high": f"{axis.high:.9g}"}


def _any_reach(rows: Sequence[Value], units: Mapping[str, float]) -> bool:
    """Whether scaled effects differ from coefficients."""
    return any(reach_of(str(row.get("name")), units) != 1.0 for row in rows)


def _size(row: Value) -> float:
    size = abs(row.get("mean", math.nan))
    return size if size == size else -1.0


def _by_name(run: Run) -> dict[str, Value]:
    if isinstance(run.rows, Absent):
        return {}
    return {str(row["name"]): row for row in run.rows if "name" in row}


def _comparison(ctx: Context) -> Value:
    """Return means and intervals of all runs, coefficient by coefficient, and the distances of the means."""
    runs = [_by_name(run) for run in ctx.runs]
    names = list(dict.fromkeys(name for rows in runs for name in rows)) if ctx.beside else []
    rows = []
    for name in names[:MOST_COMPARED]:
        cells = ["—" if name not in found else _mean_and_interval(found[name]) for found in runs]
        rows.append((name, [*cells, *(_distance(runs[0].get(name), other.get(name)) for other in runs[1:])]))
    return {"rows": rows, "count": len(names), "mixed": len({kind_of(run) for run in ctx.runs}) > 1}


def _mean_and_interval(row: Value) -> str:
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    return f"{number(mean)} [{number(low)}, {number(high)}]"


def _distance(one: Value | None, other: Value | None) -> str:
    if one is None or other is None:
        return "—"
    spread = math.hypot(one.get("sd", math.nan), other.get("sd", math.nan))
    gap = abs(one.get("mean", math.nan) - other.get("mean", math.nan))
    return number(gap / spread, 2) if spread > 0 else "—"


def _components(ctx: Context, rows: list[Value]) -> Value:
    """Return weights of the components, and their means column by column."""
    known = priors(ctx.run)
    before = {} if isinstance(known, Absent) else known
    columns: dict[str, list[Value]] = {}
    for row in rows:
        columns.setdefault(str(row.get("column", "")), []).append(row)
    noise = ctx.verdict.private and any(row.get("noise_share", 0.0) > 0 for row in rows)
    found = []
    room = DRAWN
    for name, own in list(columns.items())[:MOST_COLUMNS]:
        own = [{**row, "name": f"component {clean(row.get('component', ''))[:20]}"} for row in own[:room]]
        room -= len(own)
        if own:
            found.append((name, *_column(own, before.get(name), noise=noise)))
    return {
        "weights": _weights(ctx),
        "columns": found,
        "cut": room <= 0 or len(columns) > MOST_COLUMNS,
        "prior": bool(before),
        "no_prior": known.why if isinstance(known, Absent) else "",
    }


def _column(rows: list[Value], prior: Prior | None, *, noise: bool) -> tuple[Forest, Value]:
    """Return what is drawn of one column, and the range that also holds its prior if there is one."""
    axis = axis_of([end for row in rows for end in drawable([row.get("low", 0.0), row.get("high", 0.0)])])
    if prior is None:
        return Forest(rows, axis, noise=noise, first="component"), {}
    ends = drawable([axis.low, axis.high, prior.mean - REACH * prior.sd, prior.mean + REACH * prior.sd])
    each = {str(row["name"]): prior for row in rows}
    return Forest(rows, axis, each, noise=noise, first="component"), _range("prior", axis_of(ends))


def _weights(ctx: Context) -> Value | None:
    """Return the components' weights, and how many records that is; None where they cannot be read."""
    weights = learned(ctx.run, "weights_")
    if weights is None or np.asarray(weights).ndim != 1:
        return None
    values = [float(weight) for weight in np.asarray(weights, np.float64)[:DRAWN]]
    records = ctx.records if all(map(math.isfinite, values)) else None
    counts = [None if records is None else f"{weight * records:,.0f}" for weight in values]
    return {
        "rows": [
            (_width(weight), percent(weight), count) for weight, count in zip(values, counts, strict=True)
        ],
        "unit": None if records is None else unit_words(ctx.verdict.stated[0].fit.unit),
    }


def _width(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.1f}%" if math.isfinite(share) else "0%"


def _layers(ctx: Context, rows: list[Value]) -> Value:
    """Return a network's structure, and size and uncertainty of each layer."""
    found = learned(ctx.run, "posterior_")
    widths, activation = [], ""
    if isinstance(found, FittedNetwork):
        widths, activation = list(found.widths), found.activation
    return {
        "structure": _structure(widths),
        "activation": clean(activation)[:40],
        "rows": [
            (
                f"layer {clean(row.get('layer', ''))[:10]}",
                [number(row.get(key, math.nan)) for key in ("weights", "size", "sd")],
                percent(row.get("noise_share", math.nan)),
                _width(row.get("noise_share", math.nan)),
            )
            for row in rows[:DRAWN]
        ],
        "most_units": MOST_UNITS,
    }


def _structure(widths: list[Any]) -> Value | None:
    """Return a network's layers in words and as a picture; None where they cannot be read."""
    if len(widths) < 2 or not all(isinstance(width, int) and 0 < width < 10**7 for width in widths):
        return None
    words = f"{widths[0]} inputs, " + "".join(f"{width} hidden units, " for width in widths[1:-1])
    axis = Axis(-0.5, min(len(widths), 12) - 0.5)
    marks: list[Mark] = []
    places = [_heights(width) for width in widths[:12]]
    for layer, (one, other) in enumerate(pairwise(places)):
        ends = {"x1": axis.percent(layer), "x2": axis.percent(layer + 1)}
        marks += [
            Mark("line", {"class": "wire", "y1": f"{start:.0f}", "y2": f"{end:.0f}", **ends})
            for start in one
            for end in other
        ]
    for layer, heights in enumerate(places):
        x = axis.percent(layer)
        marks += [Mark("circle", {"class": "dot-run", "cx": x, "cy": f"{h:.0f}", "r": 5}) for h in heights]
        below = {"class": "tick", "x": x, "y": 176, "text-anchor": "middle"}
        marks.append(Mark("text", below, text=number(widths[layer])))
    return {"words": f"{words}{widths[-1]} output", "marks": marks, "folded": max(widths) > MOST_UNITS}


def _heights(width: int) -> list[float]:
    drawn = min(width, MOST_UNITS)
    return [80 + 13 * (place - (drawn - 1) / 2) for place in range(drawn)]
