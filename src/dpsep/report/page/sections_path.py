"""How the fit came about: what was released against the noise in it, and estimates after each release."""

from typing import Any

from dpsep.report.page.contents import Value, learned
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.svg import (
    HEIGHT,
    Axis,
    Panel,
    axis_of,
    band,
    dot,
    drawable,
    line,
    log_axis,
)
from dpsep.report.page.words import clean, number

__all__ = ["path"]

MOST_BLOCKS = 12
MOST_ESTIMATES = 12
"""Estimates whose way is drawn."""
MOST_RELEASES = 400
SMALL = 110
_NAMES = {"noise": "scatter of the targets"}
"""Parts whose own name would be taken for something else on this page."""


def path(ctx: Context) -> Value:
    """Return what each part of the sums was, release by release, and how the estimates moved."""
    found = learned(ctx.run, "path_")
    if not isinstance(found, dict):
        return {"found": False}
    step = "release" if ctx.verdict.private else "step"
    blocks = [block for block in found.get("blocks") or [] if isinstance(block, dict)][:MOST_BLOCKS]
    return {
        "found": True,
        "step": step,
        "blocks": [_safely(_block, block, step) for block in blocks],
        "estimates": _safely(_estimates, found.get("estimates"), step),
        "most": MOST_ESTIMATES,
    }


def _safely(draw: Any, *parts: Any) -> Any:
    try:
        return draw(*parts)
    except Exception as error:  # of a damaged document
        return Absent(f"A part of the path could not be read ({type(error).__name__}).")


def _block(block: Value, step: str) -> Value:
    """One part of the sums; the noise in it only where the page may speak of it."""
    private = step == "release"
    name = clean(block.get("name", ""))[:40]
    sizes = _numbers(block["size"])
    noises = _numbers(block["noise"]) if private else []
    x = Axis(0.5, max(len(sizes), 1) + 0.5)
    y = log_axis([*sizes, *noises])
    marks = [line(x, y, _steps(noises), "noise-floor")] if private else []
    marks.append(line(x, y, _steps(sizes), "curve"))
    for place, size in _steps(sizes) if len(sizes) <= 60 else ():
        tip = f"{step} {place}: size {number(size, 3)}"
        if place <= len(noises):
            tip += f", noise of privacy {number(noises[place - 1], 3)}"
        if drawable([size]):
            marks.append(dot(x, place, HEIGHT * (1 - y.share(size)), "dot-run", tip, r=3))
    columns = [sizes, noises] if private else [sizes]
    rows = [[place, *map(number, row)] for place, row in enumerate(zip(*columns, strict=False), 1)]
    return {"name": _NAMES.get(name, f"“{name}”"), "panel": Panel(x, y, marks, rows), "count": len(sizes)}


def _estimates(found: Any, step: str) -> Value | Absent:
    if not isinstance(found, dict):
        return Absent(f"Estimates after each {step} are not stored for such a model, or there are too many.")
    names = [clean(name)[:40] for name in found["names"]]
    means = [_numbers(one) for one in found["mean"][:MOST_RELEASES]]
    spreads = found.get("sd")
    sds = [_numbers(one) for one in spreads[:MOST_RELEASES]] if isinstance(spreads, list) else None
    shown = names[:MOST_ESTIMATES]
    return {
        "ways": [(name, _way(place, means, sds)) for place, name in enumerate(shown)],
        "spread": bool(sds),
        "count": len(names),
        "header": [step, *shown],
        "rows": [[place, *map(number, one[:MOST_ESTIMATES])] for place, one in enumerate(means, 1)],
    }


def _way(place: int, means: list[list[float]], sds: list[list[float]] | None) -> Panel:
    """One estimate after each release, with a standard deviation to each side where they are known."""
    way = [(step, one[place]) for step, one in enumerate(means, 1)]
    x = Axis(0.5, max(len(way), 1) + 0.5)
    ends = [value for _, value in way]
    low, high = [], []
    if sds is not None:
        low = [(step, value - sds[step - 1][place]) for step, value in way]
        high = [(step, value + sds[step - 1][place]) for step, value in way]
        # Early releases may be wild: the axis is that of the later half.
        ends += [value for side in (low, high) for _, value in side[len(side) // 2 :]]
    y = axis_of(ends)
    marks = [band(x, y, low, high, "band", SMALL)] if low else []
    marks.append(line(x, y, way, "curve", SMALL))
    return Panel(x, y, marks, [[step, number(value)] for step, value in way], SMALL)


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list | tuple):
        raise TypeError("not a list")
    return [float(value) for value in values[:10_000]]


def _steps(values: list[float]) -> list[tuple[int, float]]:
    return list(enumerate(values[:MOST_RELEASES], 1))
