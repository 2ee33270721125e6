"""How the fit came about: what was released against the noise in it, and estimates after each release."""

from typing import Any

from dpsep.report.page.contents import Value, learned
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.svg import (
    HEIGHT,
    Axis,
    Figure,
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
    private = ctx.verdict.private
    blocks = [block for block in found.get("blocks") or [] if isinstance(block, dict)][:MOST_BLOCKS]
    return {
        "found": True,
        "step": "release" if private else "step",
        "blocks": [_safely(_block, place, block, private) for place, block in enumerate(blocks)],
        "estimates": _safely(_estimates, found.get("estimates"), "release" if private else "step"),
        "most": MOST_ESTIMATES,
    }


def _safely(draw: Any, *parts: Any) -> Any:
    try:
        return draw(*parts)
    except Exception as error:  # of a damaged document
        return Absent(f"A part of the path could not be read ({type(error).__name__}).")


def _block(place: int, block: Value, private: bool) -> Figure:
    """One part of the sums; the noise in it only where the page may speak of it."""
    name = clean(block.get("name", ""))[:40]
    name = _NAMES.get(name, f"“{name}”")
    sizes = _numbers(block["size"])
    noises = _numbers(block["noise"]) if private else []
    step_word = "release" if private else "step"
    x = Axis(0.5, max(len(sizes), 1) + 0.5)
    y = log_axis([*sizes, *noises])
    marks = [line(x, y, _steps(sizes), "curve")]
    keys = [("curve", "released" if private else "size")]
    if private:
        marks.insert(0, line(x, y, _steps(noises), "noise-floor"))
        keys.append(("noise-floor", "noise of privacy"))
    rows = [[step, number(size)] for step, size in enumerate(sizes, 1)]
    if private:
        rows = [[*row, number(noise)] for row, noise in zip(rows, noises, strict=False)]
    if len(sizes) <= 60:
        for step, size in _steps(sizes):
            tip = f"{step_word} {step}: size {number(size, 3)}"
            if step <= len(noises):
                tip += f", noise of privacy {number(noises[step - 1], 3)}"
            if drawable([size]):
                marks.append(dot(x, step, HEIGHT * (1 - y.share(size)), "dot-run", tip, r=3))
    both = "Size and noise" if private else "Size"
    words = "Root mean square of the entries of this part of a sum."
    if private:
        words = "Root mean square of the entries of this part of a release, and the noise in each of them."
    return Figure(
        f"fig-block-{place}",
        f"{'Released' if private else 'Sums'}: {name}",
        words,
        x,
        Panel(x, y, marks, f"{both} of {name} over {len(sizes)} {step_word}s, logarithmic."),
        axis_words=f"{step_word} · size upward, logarithmic",
        keys=keys,
        header=[step_word, "size", *(["noise of privacy"] if private else [])],
        rows=rows,
        caption=both,
    )


def _estimates(found: Any, step_word: str) -> Value | Absent:
    if not isinstance(found, dict):
        return Absent(
            f"Estimates after each {step_word} are not stored for such a model, or there are too many."
        )
    names = [clean(name)[:40] for name in found["names"]]
    means = [_numbers(one) for one in found["mean"][:MOST_RELEASES]]
    spreads = found.get("sd")
    sds = [_numbers(one) for one in spreads[:MOST_RELEASES]] if isinstance(spreads, list) else None
    shown = names[:MOST_ESTIMATES]
    return {
        "panels": [(name, _estimate(place, name, means, sds, step_word)) for place, name in enumerate(shown)],
        "spread": bool(sds),
        "count": len(names),
        "header": [step_word, *shown],
        "rows": [
            [step, *(number(value) for value in one[:MOST_ESTIMATES])] for step, one in enumerate(means, 1)
        ],
    }


def _estimate(
    place: int, name: str, means: list[list[float]], sds: list[list[float]] | None, step_word: str
) -> Panel:
    way = [(step, one[place]) for step, one in enumerate(means, 1)]
    x = Axis(0.5, max(len(way), 1) + 0.5)
    ends = [value for _, value in way]
    low, high = [], []
    if sds is not None:
        low = [(step, value - sds[step - 1][place]) for step, value in way]
        high = [(step, value + sds[step - 1][place]) for step, value in way]
        # Early releases may be wild: the axis is that of the later half.
        ends = [value for _, value in way] + [v for side in (low, high) for _, v in side[len(side) // 2 :]]
    y = axis_of(ends)
    marks = [band(x, y, low, high, "band", SMALL)] if low else []
    marks.append(line(x, y, way, "curve", SMALL))
    last = number(way[-1][1]) if way else "not there"
    words = f"{name} over {len(way)} {step_word}s, at last {last}."
    return Panel(x, y, marks, words, SMALL)


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list | tuple):
        raise TypeError("not a list")
    return [float(value) for value in values[:10_000]]


def _steps(values: list[float]) -> list[tuple[int, float]]:
    return list(enumerate(values[:MOST_RELEASES], 1))
