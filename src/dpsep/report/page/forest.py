"""The forest plot: a table with one row a coefficient, whose wide column is drawn.

The thin bar is the interval, the thick one what it would be without the noise of privacy, the dot the mean;
the pale bar behind is the prior's interval. Further runs stand below, each with a mark of its own. Being a
table, the plot is its own list of numbers, sorts and filters, and reads well aloud.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpsep.estimators.summary import spans
from dpsep.report.page.contents import Value
from dpsep.report.page.markup import Markup, label, number, percent, tag
from dpsep.report.page.priors import Prior
from dpsep.report.page.svg import Axis, axis_of, dot, drawable, segment, ticks, upright

__all__ = ["DRAWN", "Forest", "forest", "forest_axis"]

DRAWN = 400
"""Most rows that are drawn."""
FIRST = 40
"""Rows that are shown before the others are asked for."""
REACH = spans(0.9)
ROW = 26


class Forest(NamedTuple):
    """What is drawn.

    Attributes
    ----------
    rows
        Of a summary: ``name``, ``mean``, ``low``, ``high`` and the parts of noise.
    axis
        Of the strips.
    priors
        By name.
    beside
        Rows of further runs, by name, one mapping a run.
    units
        Reach of a feature, by name: scaled effects are coefficients times that.
    noise
        Whether noise of privacy is in the intervals.
    first
        Heading of the first column.
    """

    rows: Sequence[Value]
    axis: Axis
    priors: Mapping[str, Prior] = {}
    beside: Sequence[Mapping[str, Value]] = ()
    units: Mapping[str, float] = {}
    noise: bool = True
    first: str = "coefficient"


def forest_axis(rows: Sequence[Value], units: Mapping[str, float] | None = None) -> Axis:
    """Return an axis for intervals: of all but the intercept, and not led by a few that are far away."""
    ends = []
    for row in rows:
        factor = 1.0 if units is None else units.get(str(row.get("name")), 1.0)
        if row.get("name") != "intercept" or len(rows) == 1:
            ends += [factor * end for end in drawable([row.get("low", math.nan), row.get("high", math.nan)])]
    ends.sort()
    if len(ends) > 40:  # of a thousand, the outermost percent may lie outside
        cut = len(ends) // 200
        ends = ends[cut : len(ends) - cut]
    return axis_of([*ends, 0.0] if units is None or ends else [0.0])


def forest(name: str, drawn: Forest) -> Markup:
    """Return the table."""
    head = [
        tag("th", drawn.first, scope="col", role="columnheader"),
        tag(
            "th",
            tag("span", "interval", class_="unseen"),
            tag("svg", ticks(drawn.axis, 2, lines=False), class_="area", height=24, aria_hidden="true"),
            scope="col",
            role="columnheader",
            class_="strip",
        ),
        tag("th", "mean", scope="col", role="columnheader", class_="num"),
        tag("th", "90 % interval", scope="col", role="columnheader", class_="num"),
    ]
    if drawn.noise:
        head.append(tag("th", "DP noise", scope="col", role="columnheader", class_="share"))
    body = [_row(drawn, row, place) for place, row in enumerate(drawn.rows[:DRAWN])]
    return tag(
        "table",
        tag("caption", "Mean and 90 % interval of each row, drawn and in numbers", class_="unseen"),
        tag("thead", tag("tr", head, role="row"), role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
        id=name,
        class_="forest",
        role="table",
    )


def _row(drawn: Forest, row: Value, place: int) -> Markup:
    name = str(row.get("name", ""))
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    share = row.get("noise_share", math.nan)
    cells = [
        tag("th", label(name), scope="row", role="rowheader"),
        tag("td", _strip(drawn, row, name), class_="strip", role="cell"),
        tag("td", number(mean), class_="num mean", role="cell"),
        tag("td", f"[{number(low)}, {number(high)}]", class_="num ends", role="cell"),
    ]
    if drawn.noise:
        width = f"{100 * min(max(share, 0.0), 1.0):.0f}%" if math.isfinite(share) else "0%"
        gauge = tag(
            "svg",
            tag("rect", class_="bar-rest", x=0, y=0, width="100%", height=8),
            tag("rect", class_="bar-noise", x=0, y=0, width=width, height=8),
            class_="gauge",
            height=8,
            aria_hidden="true",
        )
        cells.append(tag("td", tag("span", percent(share)), gauge, class_="share", role="cell"))
    return tag(
        "tr",
        cells,
        role="row",
        data_order=row.get("place", place),
        data_mean=_plain(mean),
        data_size=_plain(abs(mean)),
        data_width=_plain(high - low),
        data_share=_plain(share),
        class_="later" if place >= FIRST else None,
    )


def _strip(drawn: Forest, row: Value, name: str) -> Markup:
    axis, middle = drawn.axis, ROW / 2
    marks: list[Any] = [upright(axis, 0.0, 400, "zero")]
    prior = drawn.priors.get(name)
    tips = [_words(row)]
    if prior is not None and drawable([prior.mean, prior.sd]) == [prior.mean, prior.sd]:
        low, high = prior.mean - REACH * prior.sd, prior.mean + REACH * prior.sd
        marks.append(segment(axis, low, high, middle, "prior"))
        tips.append(f"prior [{number(low)}, {number(high)}]")
    marks += _interval(axis, row, middle, 0, noise=drawn.noise, tip=f"{name}: " + "; ".join(tips))
    for place, other in enumerate(drawn.beside, start=1):
        if name in other:
            y = middle + place * (ROW - 10)
            tip = f"{name}, run {place + 1}: {_words(other[name])}"
            marks += _interval(axis, other[name], y, place, noise=drawn.noise, tip=tip)
    height = ROW + len(drawn.beside) * (ROW - 10)
    inside = tag("svg", marks, class_="inside", width="100%", height=height)
    unit = drawn.units.get(name)
    factor = None if unit is None or unit == 1.0 else f"{unit:.7g}"
    return tag("svg", inside, class_="area", height=height, aria_hidden="true", data_unit=factor)


def _interval(axis: Axis, row: Value, y: float, run: int, *, noise: bool, tip: str) -> list[Any]:
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    if len(drawable([mean, low, high])) < 3:
        return []
    own = row.get("width_without_noise", math.nan)
    if not noise or not math.isfinite(own):
        own = high - low
    kind = f"run{run % 4}"
    marks = [segment(axis, low, high, y, f"whole {kind}" if noise else f"whole plain {kind}")]
    if noise:
        marks.append(segment(axis, mean - own / 2, mean + own / 2, y, f"own {kind}"))
    if not axis.low <= mean <= axis.high:
        marks.append(_beyond(axis, mean, y, kind, tip))
    return [*marks, dot(axis, mean, y, f"middle {kind}", tip)]


def _beyond(axis: Axis, mean: float, y: float, kind: str, tip: str) -> Markup:
    """Return an arrow at the edge, for what lies beyond it."""
    right = mean > axis.high
    text = "▸" if right else "◂"
    side = {"x": "100%" if right else "0%", "text_anchor": "end" if right else "start"}
    return tag("text", text, tag("title", tip), class_=f"beyond {kind}", y=y + 5, **side)


def _words(row: Value) -> str:
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    words = f"{number(mean)}, 90 % interval [{number(low)}, {number(high)}]"
    share, own = row.get("noise_share", math.nan), row.get("width_without_noise", math.nan)
    if math.isfinite(share) and share > 0:
        words += f"; {percent(share)} of its variance is noise of privacy, without it {number(own)} wide"
    return words


def _plain(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
