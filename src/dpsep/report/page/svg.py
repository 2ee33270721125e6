"""Pictures without a library: axes, ticks and marks as SVG that is as wide as its place.

Horizontal places are percent of the width, vertical ones pixels, so that text and dots keep their size on any
screen. Lines are drawn in a box of 1000 by 1000 that is stretched, with strokes that are not. A mark that
zooms carries ``data-v``, its horizontal value on the axis; the page's script places it anew.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dpsep.report.page.markup import Markup, number, tag

__all__ = ["Axis", "axis_of", "bar", "dot", "line", "log_axis", "panel", "segment", "upright"]

HUGE = 1e300
"""Numbers beyond are not drawn: differences of them overflow."""
HEIGHT = 200
"""Of a panel, in pixels."""
Points = Sequence[tuple[float, float]]


class Axis(NamedTuple):
    """A range of values; of a logarithmic axis, of their decimal logarithms."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return a value's place on the axis, in its coordinates."""
        if not self.log:
            return value
        return math.log10(value) if value > 0 else self.low

    def share(self, value: float) -> float:
        """Return how far along the axis a value lies, from 0 to 1; NaN becomes 0."""
        found = (self.at(value) - self.low) / (self.high - self.low)
        return min(max(found, 0.0), 1.0) if found == found else 0.0

    def percent(self, value: float) -> str:
        """Return the same in percent, as an attribute; what lies outside stays so and is cut off there."""
        found = (self.at(value) - self.low) / (self.high - self.low)
        return f"{100 * min(max(found, -50.0), 50.0):.2f}%" if found == found else "0%"

    def ticks(self, count: int = 5) -> list[float]:
        """Return values at which to write a number."""
        if self.log:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            step = max(1, math.ceil((last - first + 1) / (count + 1)))
            if last - first >= 1:
                return [10.0**power for power in range(first, last + 1, step)]
            places = [size * 10.0**power for power in range(first - 1, last + 1) for size in (1, 2, 5)]
            return [value for value in places if self.low <= math.log10(value) <= self.high]
        step = _nice((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, min(last, first + 3 * count) + 1)]

    def words(self, value: float) -> str:
        """Return a tick's number with as many digits as tell it from its neighbours."""
        step = (self.high - self.low) / 10
        if self.log or not 1e-4 <= max(abs(self.low), abs(self.high)) < 1e6:
            return number(value, 3)
        digits = min(max(0, math.ceil(-math.log10(step))), 12)
        text = f"{value:.{digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text in ("-0", "") else text.replace("-", "−")


def axis_of(values: Iterable[float], *, zero: bool = False, room: float = 0.05) -> Axis:
    """Return an axis that holds all finite values, with a little room.

    Examples
    --------
    >>> axis_of([0.0, 10.0, float("nan")], room=0.1)
    Axis(low=-1.0, high=11.0, log=False)
    """
    kept = drawable(values)
    if zero or not kept:
        kept.append(0.0)
    low, high = min(kept), max(kept)
    spare = room * (high - low) or 0.5 * abs(low) or 0.5
    low = low if zero and low == 0 else low - spare
    high = high if zero and high == 0 else high + spare
    if not high - low > 1e-9 * max(abs(low), abs(high)):  # so narrow that ticks would coincide
        low, high = low - max(abs(low), 1e-300), high + max(abs(high), 1e-300)
    return Axis(low, high)


def log_axis(values: Iterable[float]) -> Axis:
    """Return a logarithmic axis that holds all positive values, a decade at least."""
    kept = [math.log10(value) for value in drawable(values) if value > 1e-290]
    low, high = (min(kept), max(kept)) if kept else (0.0, 1.0)
    spare = max(0.06 * (high - low), (1 - (high - low)) / 2)
    return Axis(low - spare, high + spare, log=True)


def drawable(values: Iterable[Any]) -> list[float]:
    """Return the values that a picture can hold."""
    return [float(value) for value in values if isinstance(value, int | float) and abs(value) < HUGE]


def segment(axis: Axis, low: float, high: float, y: float, class_: str) -> Markup:
    """Return a bar from one value to another at a height in pixels."""
    return tag(
        "line",
        class_=class_,
        x1=axis.percent(low),
        x2=axis.percent(high),
        y1=y,
        y2=y,
        data_v=_values(axis, low, high),
    )


def upright(axis: Axis, value: float, height: float, class_: str, tip: Any = None) -> Markup:
    """Return a vertical line over a panel's height."""
    x = axis.percent(value)
    return tag("line", *_tip(tip), class_=class_, x1=x, x2=x, y1=0, y2=height, data_v=_values(axis, value))


def dot(
    axis: Axis, value: float, y: float, class_: str, tip: Any = None, r: float = 4, scaled: str | None = None
) -> Markup:
    """Return a dot, with a text that is shown at it, and another one for scaled effects."""
    return tag(
        "circle",
        *_tip(tip),
        class_=class_,
        cx=axis.percent(value),
        cy=f"{y:.1f}",
        r=r,
        data_v=_values(axis, value),
        data_scaled_tip=scaled,
    )


def bar(axis: Axis, low: float, high: float, top: float, bottom: float, class_: str, tip: Any) -> Markup:
    """Return a column of a histogram, between two values and two heights in pixels."""
    left, right = axis.share(low), axis.share(high)
    return tag(
        "rect",
        *_tip(tip),
        class_=class_,
        x=f"{100 * left:.2f}%",
        width=f"{100 * max(right - left, 0):.2f}%",
        y=f"{top:.1f}",
        height=f"{max(bottom - top, 0):.1f}",
        data_v=_values(axis, low, high),
    )


def line(
    x: Axis, y: Axis, points: Points, class_: str, height: int = HEIGHT, *, steps: bool = False
) -> Markup:
    """Return a line through points, in a box that is stretched."""
    drawn = [(px, py) for px, py in points if drawable([px, py]) == [px, py]]
    places = [(1000 * x.share(px), 1000 * (1 - y.share(py))) for px, py in drawn]
    if steps:
        places = [
            place
            for i, (px, py) in enumerate(places)
            for place in (([(px, places[i - 1][1])] if i else []) + [(px, py)])
        ]
    text = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    return _box(tag("polyline", class_=class_, points=text), height)


def band(x: Axis, y: Axis, lower: Points, upper: Points, class_: str, height: int = HEIGHT) -> Markup:
    """Return the area between two lines."""
    both = [*lower, *reversed(upper)]
    drawn = [(px, py) for px, py in both if drawable([px, py]) == [px, py]]
    text = " ".join(f"{1000 * x.share(px):.1f},{1000 * (1 - y.share(py)):.1f}" for px, py in drawn)
    return _box(tag("polygon", class_=class_, points=text), height)


def panel(x: Axis, y: Axis, marks: Sequence[Markup], *, words: str, height: int = HEIGHT) -> Markup:
    """Return axes with marks on them.

    Parameters
    ----------
    x, y
        The axes.
    marks
        Drawn inside, in this order.
    words
        What the picture shows, for those who do not see it.
    """
    heights = [(value, height * (1 - y.share(value))) for value in y.ticks(4)]
    rules = [tag("line", class_="grid", x1="0%", x2="100%", y1=f"{h:.1f}", y2=f"{h:.1f}") for _, h in heights]
    numbers = [tag("text", y.words(v), class_="tick", x="100%", y=f"{h + 4:.1f}") for v, h in heights]
    side = tag("svg", numbers, class_="side", width=52, height=height + 26, aria_hidden="true")
    inside = tag("svg", marks, class_="inside", width="100%", height=height)
    area = tag(
        "svg",
        rules,
        ticks(x, height),
        inside,
        class_="area",
        height=height + 26,
        role="img",
        aria_label=words,
    )
    return tag("div", side, area, class_="panel")


def ticks(x: Axis, height: float, *, lines: bool = True) -> Markup:
    """Return the numbers below a panel and the thin lines above them."""
    marks = []
    for value in x.ticks():
        place, share = x.percent(value), x.share(value)
        side = "end" if share > 0.97 else "middle"
        if lines:
            marks.append(tag("line", class_="grid", x1=place, x2=place, y1=0, y2=height))
        marks.append(tag("text", x.words(value), class_="tick", x=place, y=height + 18, text_anchor=side))
    return tag("g", marks, class_="ticks", data_height=height, data_lines=int(lines))


def _box(inside: Markup, height: int) -> Markup:
    return tag(
        "svg",
        inside,
        class_="stretch",
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        width="100%",
        height=height,
    )


def _values(axis: Axis, *values: float) -> str:
    return " ".join(f"{axis.at(value):.7g}" for value in values)


def _tip(tip: Any) -> list[Markup]:
    return [] if tip is None else [tag("title", tip)]


def _nice(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least the step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * size for size in (1, 2, 5, 10) if power * size >= step * (1 - 1e-9))
