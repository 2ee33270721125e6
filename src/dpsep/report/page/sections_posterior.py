"""What was found: the posterior as a forest plot, components of a mixture, or layers of a network."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpsep.report.page.contents import Run, Value, kind_of
from dpsep.report.page.context import Context, section
from dpsep.report.page.figure import absent, check, figure, legend
from dpsep.report.page.files import Absent
from dpsep.report.page.forest import DRAWN, FIRST, REACH, Forest, forest, forest_axis, reach_of, skewed
from dpsep.report.page.markup import Markup, clean, label, number, table, tag
from dpsep.report.page.posterior_parts import components, layers
from dpsep.report.page.priors import Prior, priors, reaches
from dpsep.report.page.svg import Axis, axis_of, drawable

__all__ = ["comparison", "posterior"]

MOST_COMPARED = 200
"""Rows of the comparison of runs."""


def posterior(ctx: Context) -> Markup:
    """Return the section of the posterior."""
    title, rows = "What was found", ctx.run.rows
    if isinstance(rows, Absent):
        return section("posterior", title, absent("The posterior's summary is not there.", rows.why))
    if "layer" in rows[0]:
        return section("posterior", title, layers(ctx, rows))
    if "component" in rows[0]:
        return section("posterior", title, components(ctx, rows))
    return section("posterior", title, _coefficients(ctx, rows), comparison(ctx))


def _coefficients(ctx: Context, rows: list[Value]) -> list[Any]:
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
    picture = forest("forest", Forest(drawn, axis, before, others, units, noise))
    keys = [
        ("middle run0", "posterior mean"),
        ("whole run0" if noise else "whole plain run0", "90 % interval"),
    ]
    if noise:
        keys.append(("own run0", "the interval without the noise of privacy"))
    if before:
        keys.append(("prior", "the prior's 90 % interval"))
    runs = [
        (f"middle run{place % 4}", clean(run.name)[:40]) for place, run in enumerate(ctx.runs) if ctx.beside
    ]
    attributes: dict[str, Any] = {"data_forest": "forest", "data_first": FIRST}
    scaled = forest_axis(together, units) if _any_reach(drawn, units) else None
    if before:
        attributes |= _range("prior", _wider(axis, drawn, before, {}))
    if scaled is not None:
        attributes |= _range("scaled", scaled)
        if before:
            attributes |= _range("both", _wider(scaled, drawn, before, units))
    return [
        figure(
            "fig-forest",
            "Coefficients",
            _words(ctx, rows, noise=noise),
            picture,
            None,
            axis=axis,
            axis_words="in the units of the table",
            controls=_controls(rows, noise=noise, prior=bool(before), scaled=scaled is not None),
            keys=tag("div", legend(*keys), legend(*runs) if runs else None),
            **attributes,
        ),
        None if before else absent("The prior is not drawn.", known.why if isinstance(known, Absent) else ""),
    ]


def _words(ctx: Context, rows: Sequence[Value], *, noise: bool) -> list[Any]:
    words: list[Any] = [
        "One row a coefficient. With the model right, an interval holds the true value in nine cases of ten."
    ]
    if noise:
        words.append(
            " The thin bar is the whole interval; the thick one is what would be left without the noise of "
            "privacy. The last column is the part of the variance that is that noise."
        )
        if any(skewed(row) for row in rows):
            words.append(
                " Where an interval is not symmetric about its mean there is no thick bar: how wide it would "
                "be is known, and where it would lie is not."
            )
    words.append(" An arrow at the edge says that a bar goes on beyond it.")
    if any(row.get("name") == "intercept" for row in rows):
        words.append(" The intercept is not counted when the axis is chosen.")
    if len(rows) > DRAWN:
        words.append(f" Of {len(rows):,} coefficients the {DRAWN} largest are drawn; summary.csv has all.")
    if ctx.beside:
        words.append(" Further runs stand below each other in every row.")
    return words


def _controls(rows: Sequence[Value], *, noise: bool, prior: bool, scaled: bool) -> list[Markup]:
    orders = [("order", "as in the model"), ("size", "size"), ("name", "name"), ("width", "width")]
    if noise:
        orders.append(("share", "share of noise"))
    chosen = "size" if len(rows) > FIRST else "order"
    options = [tag("option", words, value=key, selected=key == chosen) for key, words in orders]
    found = [
        tag("label", "Sort by ", tag("select", options, data_sort=True)),
        tag("label", "Filter ", tag("input", type="search", data_filter=True, placeholder="name")),
    ]
    if noise:
        found.append(check("part without noise", "own"))
    if prior:
        found.append(check("prior", "prior", on=False))
    if scaled:
        found.append(tag("label", tag("input", type="checkbox", data_scaled=True), " per reach of column"))
    if len(rows) > FIRST:
        more = f"Show all {min(len(rows), DRAWN)}"
        found.append(tag("button", more, type="button", data_more=True, aria_expanded="false"))
    return found


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
    return {f"data_{name}_low": f"{axis.low:.9g}", f"data_{name}_high": f"{axis.high:.9g}"}


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


def comparison(ctx: Context) -> Any:
    """Return a table of all runs, coefficient by coefficient."""
    if not ctx.beside:
        return None
    runs = [_by_name(run) for run in ctx.runs]
    kinds = {kind_of(run) for run in ctx.runs}
    names = list(dict.fromkeys(name for rows in runs for name in rows))
    if not names:
        return absent("The runs beside this one have no coefficients to compare.")
    rows = []
    for name in names[:MOST_COMPARED]:
        cells: list[Any] = [label(name)]
        for found in runs:
            row = found.get(name)
            cells.append("—" if row is None else _mean_and_interval(row))
        rows.append([*cells, *(_distance(runs[0].get(name), other.get(name)) for other in runs[1:])])
    header = ["coefficient", *(label(run.name, 30) for run in ctx.runs)]
    header += [["distance to ", label(run.name, 30)] for run in ctx.beside]
    return [
        tag("h3", "Beside other runs"),
        None if len(kinds) == 1 else absent("These runs are of different models: compare with care."),
        table("Mean and 90 % interval in each run", header, rows),
        tag(
            "p",
            "The distance is that of the means in units of the square root of both variances added: beyond 2 "
            "the runs differ by more than their own uncertainty explains, if they are independent.",
            class_="fine",
        ),
        absent(f"The first {MOST_COMPARED} of {len(names)} are compared.")
        if len(names) > MOST_COMPARED
        else None,
    ]


def _mean_and_interval(row: Value) -> str:
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    return f"{number(mean)} [{number(low)}, {number(high)}]"


def _distance(one: Value | None, other: Value | None) -> str:
    if one is None or other is None:
        return "—"
    spread = math.hypot(one.get("sd", math.nan), other.get("sd", math.nan))
    gap = abs(one.get("mean", math.nan) - other.get("mean", math.nan))
    return number(gap / spread, 2) if spread > 0 else "—"
