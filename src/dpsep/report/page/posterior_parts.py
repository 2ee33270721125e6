"""Posteriors that are no list of coefficients: components of a mixture, layers of a network."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.report.page.contents import Value, learned
from dpsep.report.page.context import Context, records_of
from dpsep.report.page.figure import absent, check, figure, legend
from dpsep.report.page.files import Absent
from dpsep.report.page.forest import DRAWN, REACH, Forest, forest
from dpsep.report.page.markup import Markup, clean, number, percent, table, tag
from dpsep.report.page.priors import Prior, priors
from dpsep.report.page.svg import Axis, axis_of, drawable
from dpsep.report.page.words import unit_words

__all__ = ["components", "layers"]

MOST_COLUMNS = 40
"""Columns of a mixture that are drawn."""
MOST_UNITS = 12
"""Units of a layer that are drawn."""


def components(ctx: Context, rows: list[Value]) -> list[Any]:
    """Return weights of the components, and their means column by column."""
    known = priors(ctx.run)
    before = {} if isinstance(known, Absent) else known
    columns: dict[str, list[Value]] = {}
    for row in rows:
        columns.setdefault(str(row.get("column", "")), []).append(row)
    noise = ctx.verdict.private and any(row.get("noise_share", 0.0) > 0 for row in rows)
    found: list[Any] = [_weights(ctx)]
    room = DRAWN
    for place, (name, own) in enumerate(list(columns.items())[:MOST_COLUMNS]):
        own = [{**row, "name": f"component {clean(row.get('component', ''))[:20]}"} for row in own[:room]]
        room -= len(own)
        if own:
            found.append(_column(place, name, own, before.get(name), noise=noise))
    if room <= 0 or len(columns) > MOST_COLUMNS:
        found.append(absent("Not all columns and components are drawn; summary.csv has all."))
    if not before:
        found.append(absent("The prior is not drawn.", known.why if isinstance(known, Absent) else ""))
    if ctx.beside:
        found.append(
            absent("Components have no order that two runs share, so runs are not laid over each other.")
        )
    return found


def _column(place: int, name: str, rows: list[Value], prior: Prior | None, *, noise: bool) -> Markup:
    axis = axis_of([end for row in rows for end in drawable([row.get("low", 0.0), row.get("high", 0.0)])])
    each = {} if prior is None else {str(row["name"]): prior for row in rows}
    keys = [
        ("middle run0", "posterior mean"),
        ("whole run0" if noise else "whole plain run0", "90 % interval"),
    ]
    controls, attributes = [], {}
    if noise:
        keys.append(("own run0", "without the noise of privacy"))
        controls.append(check("part without noise", "own"))
    if prior is not None:
        ends = drawable([axis.low, axis.high, prior.mean - REACH * prior.sd, prior.mean + REACH * prior.sd])
        wide = axis_of(ends)
        attributes = {"data_prior_low": f"{wide.low:.9g}", "data_prior_high": f"{wide.high:.9g}"}
        keys.append(("prior", "the prior's 90 % interval"))
        controls.append(check("prior", "prior", on=False))
    return figure(
        f"fig-column-{place}",
        f"Means of {clean(name)[:60]}",
        "One row a component, in the column's own units.",
        forest(f"column-{place}", Forest(rows, axis, each, noise=noise, first="component")),
        None,
        axis=axis,
        controls=controls,
        keys=legend(*keys),
        **attributes,
    )


def _weights(ctx: Context) -> Markup:
    weights = learned(ctx.run, "weights_")
    if weights is None or np.asarray(weights).ndim != 1:
        return absent("The weights of the components cannot be read from the posterior.")
    values = [float(weight) for weight in np.asarray(weights, np.float64)[:DRAWN]]
    rows = [[f"component {place}", _gauge(weight), percent(weight)] for place, weight in enumerate(values)]
    header = ["component", "drawn", "weight"]
    records = records_of(ctx)
    if records is not None and all(map(math.isfinite, values)):
        header.append(f"{unit_words(ctx.verdict.stated[0].fit.unit)}s, about")
        rows = [[*row, f"{weight * records:,.0f}"] for row, weight in zip(rows, values, strict=True)]
    return tag(
        "div",
        tag("h3", "How large the components are"),
        table("Share of records in each component", header, rows, numeric=2),
        class_="weights",
    )


def _gauge(share: float, class_: str = "bar-run") -> Markup:
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}%" if math.isfinite(share) else "0%"
    bars = [
        tag("rect", class_="bar-rest", x=0, y=0, width="100%", height=10),
        tag("rect", class_=class_, x=0, y=0, width=width, height=10),
    ]
    return tag("svg", bars, class_="gauge", height=10, aria_hidden="true")


def layers(ctx: Context, rows: list[Value]) -> list[Any]:
    """Return a network's structure, and size and uncertainty of each layer."""
    found = learned(ctx.run, "posterior_")
    noise = ctx.verdict.private
    widths, activation = [], ""
    if isinstance(found, FittedNetwork):
        widths, activation = list(found.widths), found.activation
    cells = [
        [
            f"layer {clean(row.get('layer', ''))[:10]}",
            number(row.get("weights", math.nan)),
            number(row.get("size", math.nan)),
            number(row.get("sd", math.nan)),
            *(_noise_cells(row.get("noise_share", math.nan)) if noise else ()),
        ]
        for row in rows[:DRAWN]
    ]
    return [
        _structure(widths, activation),
        tag("h3", "Weights, layer by layer"),
        tag(
            "p",
            "Size is the root mean square of a layer's weights, sd that of their uncertainty: where sd is "
            "the smaller, the layer has learned something.",
            " The last columns are the part of the variance that is noise of privacy." if noise else None,
        ),
        table(
            "Layers of the network",
            ["layer", "weights", "size", "sd", *(["DP noise", "drawn"] if noise else [])],
            cells,
        ),
        absent(
            "There is no list of coefficients: single weights of a network can change places without "
            "changing what it predicts. Neither is the prior drawn."
        ),
    ]


def _noise_cells(share: float) -> list[Any]:
    return [percent(share), _gauge(share, "bar-noise")]


def _structure(widths: list[Any], activation: str) -> Markup:
    if len(widths) < 2 or not all(isinstance(width, int) and 0 < width < 10**7 for width in widths):
        return absent("The network's structure cannot be read from the posterior.")
    words = f"{widths[0]} inputs, " + "".join(f"{width} hidden units, " for width in widths[1:-1])
    words += f"{widths[-1]} output"
    axis = Axis(-0.5, min(len(widths), 12) - 0.5)
    marks: list[Any] = []
    places = [_heights(width) for width in widths[:12]]
    for layer, (one, other) in enumerate(pairwise(places)):
        for start in one:
            for end in other:
                ends = {"x1": axis.percent(layer), "x2": axis.percent(layer + 1)}
                marks.append(tag("line", class_="wire", y1=f"{start:.0f}", y2=f"{end:.0f}", **ends))
    for layer, heights in enumerate(places):
        marks += [
            tag("circle", class_="dot-run", cx=axis.percent(layer), cy=f"{h:.0f}", r=5) for h in heights
        ]
        shown = number(widths[layer])
        marks.append(tag("text", shown, class_="tick", x=axis.percent(layer), y=176, text_anchor="middle"))
    picture = tag("svg", marks, class_="area", height=184, role="img", aria_label=f"A network with {words}.")
    note = f" At most {MOST_UNITS} units of a layer are drawn." if max(widths) > MOST_UNITS else ""
    return tag(
        "div",
        tag("h3", "Structure"),
        tag("p", f"{words}; activation: {clean(activation)[:40] or 'not known'}.{note}"),
        tag("div", picture, class_="structure"),
    )


def _heights(width: int) -> list[float]:
    drawn = min(width, MOST_UNITS)
    return [80 + 13 * (place - (drawn - 1) / 2) for place in range(drawn)]
