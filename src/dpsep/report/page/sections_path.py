"""How the fit came about: what was released against the noise in it, and estimates after each release."""

from typing import Any

from dpsep.report.page.contents import Value, learned
from dpsep.report.page.context import Context, section
from dpsep.report.page.figure import absent, figure, legend
from dpsep.report.page.markup import Markup, clean, number, table, tag
from dpsep.report.page.svg import HEIGHT, Axis, axis_of, band, dot, drawable, line, log_axis, panel

__all__ = ["path"]

MOST_BLOCKS = 12
MOST_ESTIMATES = 12
"""Estimates whose way is drawn."""
MOST_RELEASES = 400
SMALL = 110
_NAMES = {"noise": "scatter of the targets"}
"""Parts whose own name would be taken for something else on this page."""


def path(ctx: Context) -> Markup:
    """Return the section of the path."""
    title = "How the fit came about"
    found = learned(ctx.run, "path_")
    if not isinstance(found, dict):
        why, more = "This run does not hold how its fit went step by step.", ""
        if ctx.verdict.private:
            why = "This run does not hold what it released step by step."
            more = "A private fit by this version stores it."
        return section("path", title, absent(why, more))
    blocks = [block for block in found.get("blocks") or [] if isinstance(block, dict)][:MOST_BLOCKS]
    private = ctx.verdict.private
    words = "A fit is a sequence of sums over the records; the estimate moves with each of them."
    if private:
        words = (
            "A fit is a sequence of noisy sums. Where a sum stands well above its noise the fit sees the "
            "data; where it sinks into the noise, further releases tell it little."
        )
    return section(
        "path",
        title,
        tag("p", words),
        tag(
            "div",
            [_safely(_block, place, block, private) for place, block in enumerate(blocks)],
            class_="pair",
        )
        if blocks
        else absent("No part of the sums is listed."),
        _safely(_estimates, found.get("estimates"), "release" if private else "step"),
    )


def _safely(draw: Any, *parts: Any) -> Any:
    try:
        return draw(*parts)
    except Exception as error:  # of a damaged document
        return absent(f"A part of the path could not be read ({type(error).__name__}).")


def _block(place: int, block: Value, private: bool) -> Markup:
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
    return figure(
        f"fig-block-{place}",
        f"{'Released' if private else 'Sums'}: {name}",
        words,
        panel(x, y, marks, words=f"{both} of {name} over {len(sizes)} {step_word}s, logarithmic."),
        table(both, [step_word, "size", *(["noise of privacy"] if private else [])], rows),
        axis=x,
        axis_words=f"{step_word} · size upward, logarithmic",
        keys=legend(*keys),
    )


def _estimates(found: Any, step_word: str) -> Any:
    if not isinstance(found, dict):
        return absent(
            f"Estimates after each {step_word} are not stored for such a model, or there are too many."
        )
    names = [clean(name)[:40] for name in found["names"]]
    means = [_numbers(one) for one in found["mean"][:MOST_RELEASES]]
    spreads = found.get("sd")
    sds = [_numbers(one) for one in spreads[:MOST_RELEASES]] if isinstance(spreads, list) else None
    pictures = [
        _estimate(place, name, means, sds, step_word) for place, name in enumerate(names[:MOST_ESTIMATES])
    ]
    rows = [[step, *(number(value) for value in one[:MOST_ESTIMATES])] for step, one in enumerate(means, 1)]
    more = f" The first {MOST_ESTIMATES} of {len(names)} are drawn." if len(names) > MOST_ESTIMATES else ""
    words = f"The estimate after each {step_word}"
    words += " with one standard deviation to each side." if sds else "."
    title = f"Estimates over the {step_word}s"
    return [
        tag("h3", title),
        tag("p", f"{words} A way that has settled would not have moved with a few more {step_word}s.{more}"),
        tag("div", pictures, class_="small-multiples"),
        tag(
            "details",
            tag("summary", f"Numbers behind: {title}"),
            table(f"Estimate after each {step_word}", [step_word, *names[:MOST_ESTIMATES]], rows),
        ),
    ]


def _estimate(
    place: int, name: str, means: list[list[float]], sds: list[list[float]] | None, step_word: str
) -> Markup:
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
    return tag(
        "div",
        tag("h4", tag("bdi", name)),
        panel(x, y, marks, words=words, height=SMALL),
        class_="small",
    )


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list | tuple):
        raise TypeError("not a list")
    return [float(value) for value in values[:10_000]]


def _steps(values: list[float]) -> list[tuple[int, float]]:
    return list(enumerate(values[:MOST_RELEASES], 1))
