"""The forest plot: a table with one row a coefficient, whose wide column is drawn.

The thin bar is the interval, the thick one what it would be without the noise of privacy, the dot the mean;
the pale bar behind is the prior's interval. Further runs stand below, each with a mark of its own. Being a
table, the plot is its own list of numbers, sorts and filters, and reads well aloud.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dpsep.estimators.summary import spans
from dpsep.report.page.contents import Value
from dpsep.report.page.priors import Prior
from dpsep.report.page.svg import Axis, Mark, axis_of, dot, drawable, segment, upright
from dpsep.report.page.words import number, percent

__all__ = ["DRAWN", "Forest", "forest_axis", "reach_of", "skewed"]

DRAWN = 400
"""Most rows that are drawn."""
FIRST = 40
"""Rows that are shown before the others are asked for."""
REACH = spans(0.9)
ROW = 26
LONGEST_NAME = 24
"""Characters of a name in the first column."""
LONGEST_TIP = 120
"""Characters of a name in a tip."""


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

    @property
    def table(self) -> list[Value]:
        """The rows as they are drawn: names, numbers as text, and marks of their strips."""
        rows = self.rows[:DRAWN]
        shown = short([str(row.get("name", "")) for row in rows])
        return [_row(self, row, place, shown[place]) for place, row in enumerate(rows)]


def forest_axis(rows: Sequence[Value], units: Mapping[str, float] | None = None) -> Axis:
    """Return an axis for intervals: of all but the intercept, and not led by a few that are far away."""
    ends = []
    for row in rows:
        factor = 1.0 if units is None else reach_of(str(row.get("name")), units)
        if row.get("name") != "intercept" or len(rows) == 1:
            ends += [factor * end for end in drawable([row.get("low", math.nan), row.get("high", math.nan)])]
    ends.sort()
    if len(ends) > 40:  # of a thousand, the outermost percent may lie outside
        cut = len(ends) // 200
        ends = ends[cut : len(ends) - cut]
    return axis_of([*ends, 0.0] if units is None or ends else [0.0])


def reach_of(name: str, units: Mapping[str, float]) -> float:
    """Return by what a row is multiplied to be an effect over its column's reach; sd(x) goes as x does.

    Examples
    --------
    >>> reach_of("age", {"age": 30.0}), reach_of("sd(age)", {"age": 30.0}), reach_of("intercept", {})
    (30.0, 30.0, 1.0)
    """
    inner = name[3:-1] if name.startswith("sd(") and name.endswith(")") else name
    found = units.get(name, units.get(inner, 1.0))
    return found if drawable([found]) else 1.0


def short(names: Sequence[str]) -> list[str]:
    """Return names for a narrow column, such that those that differ still do.

    Of a long name the middle goes; where that makes names alike, what they share at either end goes instead;
    where even that does not tell them apart, they stay as they are.

    Examples
    --------
    >>> short(["age", "a_rather_long_name_of_a_column_number_17"])
    ['age', 'a_rather_lo…mn_number_17']
    >>> short([f"answer_to_question_{place}_of_the_second_visit" for place in (8, 9)])
    ['answer_to…stion_8_of_…', 'answer_to…stion_9_of_…']
    """
    half = LONGEST_NAME // 2
    found = [name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}" for name in names]
    for alike in _alike(names, found):
        first, last = min(names[place] for place in alike), max(names[place] for place in alike)
        shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        start = max(shared - half // 2, half - 3)
        for place in alike:
            found[place] = f"{names[place][: half - 3]}…{names[place][start : start + half - 1]}…"
    for alike in _alike(names, found):
        for place in alike:
            found[place] = names[place]
    return found


def _alike(names: Sequence[str], shown: Sequence[str]) -> list[list[int]]:
    """Places of different names that are shown as the same."""
    places: dict[str, list[int]] = {}
    for place, text in enumerate(shown):
        places.setdefault(text, []).append(place)
    return [group for group in places.values() if len({names[place] for place in group}) > 1]


def skewed(row: Value) -> bool:
    """Whether an interval is not symmetric about its mean, so that a narrower one cannot be placed."""
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    return not abs((high - mean) - (mean - low)) <= 1e-3 * abs(high - low)


def _row(drawn: Forest, row: Value, place: int, shown: str) -> Value:
    name = str(row.get("name", ""))
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    share = row.get("noise_share", math.nan)
    reach = reach_of(name, drawn.units)
    sorted_by = {"mean": _plain(mean), "size": _plain(abs(mean)), "width": _plain(high - low)}
    found = {
        "shown": shown,
        "title": name[:LONGEST_TIP] if len(name) > LONGEST_NAME else None,
        "order": row.get("place", place),
        "later": place >= FIRST,
        "mean": number(mean),
        "ends": f"[{number(low)}, {number(high)}]",
        "share": percent(share),
        "gauge": f"{100 * min(max(share, 0.0), 1.0):.0f}%" if math.isfinite(share) else "0%",
        "sorted_by": sorted_by | ({"share": _plain(share)} if drawn.noise else {}),
        "marks": _strip(drawn, row, name),
        "height": ROW + len(drawn.beside) * (ROW - 10),
    }
    if reach != 1.0:
        ends = f"[{number(reach * low)}, {number(reach * high)}]"
        found["scaled"] = {"unit": f"{reach:.7g}", "mean": number(reach * mean), "ends": ends}
    return found


def _strip(drawn: Forest, row: Value, name: str) -> list[Mark]:
    axis, middle = drawn.axis, ROW / 2
    marks = [upright(axis, 0.0, 400, "zero")]
    prior = drawn.priors.get(name)
    reach = reach_of(name, drawn.units)
    if prior is not None and drawable([prior.mean, prior.sd]) != [prior.mean, prior.sd]:
        prior = None
    tips = [f"{name[:LONGEST_TIP]}: {_words(row, prior, one, noise=drawn.noise)}" for one in (1.0, reach)]
    if prior is not None:
        low, high = prior.mean - REACH * prior.sd, prior.mean + REACH * prior.sd
        marks.append(segment(axis, low, high, middle, "prior"))
        marks += _beyond(axis, low, high, middle - 7, "of-prior", tips[0])
    marks += _interval(axis, row, middle, 0, noise=drawn.noise, tips=tips)
    for place, other in enumerate(drawn.beside, start=1):
        if name in other:
            y = middle + place * (ROW - 10)
            head = f"{name[:LONGEST_TIP]}, run {place + 1}: "
            tips = [head + _words(other[name], None, one, noise=drawn.noise) for one in (1.0, reach)]
            marks += _interval(axis, other[name], y, place, noise=drawn.noise, tips=tips)
    return marks


def _interval(axis: Axis, row: Value, y: float, run: int, *, noise: bool, tips: Sequence[str]) -> list[Mark]:
    """Marks of one run; the tips are that of the numbers as they are, and that of scaled effects."""
    mean, low, high = (row.get(key, math.nan) for key in ("mean", "low", "high"))
    if len(drawable([mean, low, high])) < 3:
        return []
    own = row.get("width_without_noise", math.nan)
    kind = f"run{run % 4}"
    marks = [segment(axis, low, high, y, f"whole {kind}" if noise else f"whole plain {kind}")]
    if noise and drawable([own]) and not skewed(row):
        marks.append(segment(axis, mean - own / 2, mean + own / 2, y, f"own {kind}"))
    marks += _beyond(axis, min(low, mean), max(high, mean), y, kind, tips[0])
    scaled = tips[1] if tips[1] != tips[0] else None
    return [*marks, dot(axis, mean, y, f"middle {kind}", tips[0], scaled=scaled)]


def _beyond(axis: Axis, low: float, high: float, y: float, kind: str, tip: str) -> list[Mark]:
    """Return arrows at the edges that a bar goes beyond."""
    sides = []
    if low < axis.low:
        sides.append(("◂", {"x": "0%", "text-anchor": "start"}))
    if high > axis.high:
        sides.append(("▸", {"x": "100%", "text-anchor": "end"}))
    return [Mark("text", {"class": f"beyond {kind}", "y": y + 5, **side}, tip, text) for text, side in sides]


def _words(row: Value, prior: Prior | None, reach: float, *, noise: bool) -> str:
    mean, low, high = (reach * row.get(key, math.nan) for key in ("mean", "low", "high"))
    words = f"{number(mean)}, 90 % interval [{number(low)}, {number(high)}]"
    share, own = row.get("noise_share", math.nan), reach * row.get("width_without_noise", math.nan)
    if noise and math.isfinite(share) and share > 0:
        words += f"; {percent(share)} of its variance is noise of privacy, without it {number(own)} wide"
        if skewed(row):
            words += " (not drawn: the interval is not symmetric about the mean)"
    if prior is not None:
        ends = [reach * (prior.mean + side * REACH * prior.sd) for side in (-1, 1)]
        words += f"; prior [{number(ends[0])}, {number(ends[1])}]"
    return words


def _plain(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
