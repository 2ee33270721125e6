"""How the fit came about: what was released, against the noise in it, and the estimates after each "
"release."""

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


def path(ctx: Context) -> Markup:
    """Return the section of the path."""
    title = "How the fit came about"
    found = learned(ctx.run, "path_")
    if not isinstance(found, dict):
        why = "This run does not hold what it released step by step."
        more = "A private fit by this version stores it." if ctx.verdict.private else ""
        return section("path", title, absent(why, more))
    blocks = [block for block in found.get("blocks") or [] if isinstance(block, dict)][:MOST_BLOCKS]
    return section(
        "path",
        title,
        tag(
            "p",
            "A fit is a sequence of noisy sums. Where a sum stands well above its noise the fit sees the "
            "data; where it sinks into the noise, further releases tell it little.",
        ),
        tag("div", [_safely(_block, place, block) for place, block in enumerate(blocks)], class_="pair")
        if blocks
        else absent("No released part is listed."),
        _safely(_estimates, found.get("estimates")),
    )


def _safely(draw: Any, *parts: Any) -> Any:
    try:
        return draw(*parts)
    except Exception as error:  # of a damaged document
        return absent(f"A part of the path could not be read ({type(error).__name__}).")


def _block(place: int, block: Value) -> Markup:
    name = clean(block.get("name", ""))[:40]
    sizes, noises = (_numbers(block[key]) for key in ("size", "noise"))
    x = Axis(0.5, max(len(sizes), 1) + 0.5)
    y = log_axis([*sizes, *noises])
    lines = [
        line(x, y, _steps(noises), "noise-floor"),
        line(x, y, _steps(sizes), "curve"),
    ]
    dots = []
    if len(sizes) <= 60:
        dots = [
            dot(
                x,
                step,
                HEIGHT * (1 - y.share(size)),
                "dot-run",
                f"release {step}: size {number(size, 3)}, noise {number(noises[step - 1], 3)}",
                r=3,
            )
            for step, size in _steps(sizes)
            if drawable([size]) and step <= len(noises)
        ]
    rows = [
        [step, number(size), number(noise)]
        for step, (size, noise) in enumerate(zip(sizes, noises, strict=False), 1)
    ]
    return figure(
        f"fig-block-{place}",
        f"Released: “{name}”",
        "Root mean square of the entries of this part of a release, and the noise in each of them.",
        panel(
            x, y, [*lines, *dots], words=f"Size and noise of {name} over {len(sizes)} releases, logarithmic."
        ),
        table("Size and noise", ["release", "size", "noise"], rows),
        axis=x,
        axis_words="release · size upward, logarithmic",
        keys=legend(("curve", "released"), ("noise-floor", "noise")),
    )


def _estimates(found: Any) -> Any:
    if not isinstance(found, dict):
        return absent("Estimates after each release are not stored for such a model, or there are too many.")
    names = [clean(name)[:40] for name in found["names"]]
    means = [_numbers(one) for one in found["mean"][:MOST_RELEASES]]
    spreads = found.get("sd")
    sds = [_numbers(one) for one in spreads[:MOST_RELEASES]] if isinstance(spreads, list) else None
    pictures = [_estimate(place, name, means, sds) for place, name in enumerate(names[:MOST_ESTIMATES])]
    rows = [[step, *(number(value) for value in one[:MOST_ESTIMATES])] for step, one in enumerate(means, 1)]
    more = f" The first {MOST_ESTIMATES} of {len(names)} are drawn." if len(names) > MOST_ESTIMATES else ""
    words = "The estimate after each release"
    words += " with one standard deviation to each side." if sds else "."
    return [
        tag("h3", "Estimates over the releases"),
        tag("p", f"{words} A way that has settled would not have moved with a few more releases.{more}"),
        tag("div", pictures, class_="small-multiples"),
        tag(
            "details",
            tag("summary", "Numbers behind: Estimates over the releases"),
            table("Estimate after each release", ["release", *names[:MOST_ESTIMATES]], rows),
        ),
    ]


def _estimate(place: int, name: str, means: list[list[float]], sds: list[list[float]] | None) -> Markup:
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
    words = f"{name} over {len(way)} releases, at last {last}."
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
