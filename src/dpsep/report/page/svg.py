"""Pictures without a library: axes, ticks and marks of an SVG that is as wide as its place.

Horizontal places are percent of the width, vertical ones pixels, so that text and dots keep their size on any
screen. Lines are drawn in a box of 1000 by 1000 that is stretched, with strokes that are not. A mark that
zooms carries ``data-v``, its horizontal value on the axis; the page's script places it anew. What is made
here are values: ``templates/figures.html`` writes them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dpsep.report.page.words import number

__all__ = [
    "Axis",
    "Mark",
    "Panel",
    "axis_of",
    "bar",
    "dot",
    "line",
    "log_axis",
    "segment",
    "upright",
]

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


class Mark(NamedTuple):
    """An element of a picture: its attributes, the text shown at it, and what it holds.

    Names of elements and attributes are written here, never taken from a folder; values and texts may be.
    """

    element: str
    attributes: Mapping[str, Any]
    tip: str | None = None
    text: str = ""
    inside: Sequence["Mark"] = ()


class Panel(NamedTuple):
    """Two axes, the marks on them, drawn in their order, and rows of the numbers behind them."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    rows: Sequence[Sequence[Any]] = ()
    height: int = HEIGHT


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


def segment(axis: Axis, low: float, high: float, y: float, class_: str) -> Mark:
    """Return a bar from one value to another at a height in pixels."""
    ends = {"x1": axis.percent(low), "x2": axis.percent(high), "y1": y, "y2": y}
    return Mark("line", {"class": class_, **ends, "data-v": _values(axis, low, high)})


def upright(axis: Axis, value: float, height: float, class_: str) -> Mark:
    """Return a vertical line over a panel's height."""
    x = axis.percent(value)
    ends = {"x1": x, "x2": x, "y1": 0, "y2": height}
    return Mark("line", {"class": class_, **ends, "data-v": _values(axis, value)})


def dot(
    axis: Axis,
    value: float,
    y: float,
    class_: str,
    tip: str | None = None,
    r: float = 4,
    scaled: str | None = None,
) -> Mark:
    """Return a dot, with a text that is shown at it, and another one for scaled effects."""
    place = {"cx": axis.percent(value), "cy": f"{y:.1f}", "r": r}
    return Mark(
        "circle", {"class": class_, **place, "data-v": _values(axis, value), "data-scaled-tip": scaled}, tip
    )


def bar(axis: Axis, low: float, high: float, top: float, bottom: float, class_: str, tip: str) -> Mark:
    """Return a column of a histogram, between two values and two heights in pixels."""
    left, right = axis.share(low), axis.share(high)
    box = {
        "x": f"{100 * left:.2f}%",
        "width": f"{100 * max(right - left, 0):.2f}%",
        "y": f"{top:.1f}",
        "height": f"{max(bottom - top, 0):.1f}",
    }
    return Mark("rect", {"class": class_, **box, "data-v": _values(axis, low, high)}, tip)


def line(x: Axis, y: Axis, points: Points, class_: str, height: int = HEIGHT) -> Mark:
    """Return a line through points, in a box that is stretched."""
    return _stretched("polyline", x, y, points, class_, height)


def band(x: Axis, y: Axis, lower: Points, upper: Points, class_: str, height: int = HEIGHT) -> Mark:
    """Return the area between two lines."""
    return _stretched("polygon", x, y, [*lower, *reversed(upper)], class_, height)


def _stretched(element: str, x: Axis, y: Axis, points: Points, class_: str, height: int) -> Mark:
    drawn = [(px, py) for px, py in points if drawable([px, py]) == [px, py]]
    text = " ".join(f"{1000 * x.share(px):.1f},{1000 * (1 - y.share(py)):.1f}" for px, py in drawn)
    box = {
        "class": "stretch",
        "viewBox": "0 0 1000 1000",
        "preserveAspectRatio": "none",
        "width": "100%",
        "height": height,
    }
    return Mark("svg", box, inside=[Mark(element, {"class": class_, "points": text})])


def _values(axis: Axis, *values: float) -> str:
    return " ".join(f"{axis.at(value):.7g}" for value in values)


def _nice(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least the step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * size for size in (1, 2, 5, 10) if power * size >= step * (1 - 1e-9))
