"""A figure of the page: heading, controls, picture, legend, and the numbers behind it in a table."""

from collections.abc import Sequence
from typing import Any

from dpsep.report.page.markup import Markup, tag
from dpsep.report.page.svg import Axis

__all__ = ["absent", "check", "figure", "legend", "zoom_buttons"]


def figure(
    name: str,
    title: str,
    words: Any,
    picture: Any,
    numbers: Markup | None,
    *,
    axis: Axis | None = None,
    axis_words: str = "",
    controls: Sequence[Markup] = (),
    keys: Markup | None = None,
    **attributes: Any,
) -> Markup:
    """Return a figure.

    Parameters
    ----------
    name
        Its id: made here, never of a folder's text.
    title, words
        What it shows, and how to read it.
    picture
        Panels.
    numbers
        The table behind it; None where the picture is a table itself.
    axis
        The horizontal axis; with one the figure can be zoomed.
    axis_words
        Below the picture.
    controls, keys
        Further controls, and the legend.
    attributes
        Of the figure, for the page's script.
    """
    ranges = {}
    if axis is not None:
        ranges = {"data_low": f"{axis.low:.9g}", "data_high": f"{axis.high:.9g}", "data_log": int(axis.log)}
        controls = [*controls, zoom_buttons(title)]
    return tag(
        "figure",
        tag("figcaption", tag("h3", title, id=f"{name}-title"), tag("p", words)),
        tag("div", keys, tag("div", list(controls), class_="controls") if controls else None, class_="bar"),
        tag("div", picture, class_="stage", data_name=title),
        tag("p", axis_words, class_="axis-words") if axis_words else None,
        tag("details", tag("summary", f"Numbers behind: {title}"), numbers) if numbers else None,
        id=name,
        class_="plot",
        aria_labelledby=f"{name}-title",
        **ranges,
        **attributes,
    )


def zoom_buttons(title: str) -> Markup:
    """Return the buttons that zoom a figure."""
    return tag(
        "span",
        tag("button", "+", type="button", data_zoom="in", aria_label=f"Zoom in: {title}"),
        tag("button", "−", type="button", data_zoom="out", aria_label=f"Zoom out: {title}"),
        tag("button", "Reset", type="button", data_zoom="reset", aria_label=f"Reset the zoom: {title}"),
        class_="zoom",
    )


def check(words: str, target: str, *, on: bool = True) -> Markup:
    """Return a check box that shows or hides one kind of marks."""
    return tag("label", tag("input", type="checkbox", data_show=target, checked=on), f" {words}")


def legend(*entries: tuple[str, str]) -> Markup:
    """Return the legend: a swatch's class and what it stands for."""
    items = [
        tag(
            "li",
            tag("svg", _swatch(kind), class_="swatch", width=26, height=12, aria_hidden="true"),
            tag("span", words),
            class_=f"key-{kind}",
        )
        for kind, words in entries
    ]
    return tag("ul", items, class_="legend")


def absent(*sentences: Any) -> Markup:
    """Return what stands where there is nothing to show: why, and how to get it."""
    return tag("p", [part for one in sentences for part in (one, " ")], class_="absent")


def _swatch(kind: str) -> Markup:
    if kind.startswith(("dot", "middle")):
        return tag("circle", class_=kind, cx=13, cy=6, r=4)
    if kind.startswith("bar"):
        return tag("rect", class_=kind, x=2, y=1, width=22, height=10)
    return tag("line", class_=kind, x1=1, x2=25, y1=6, y2=6)
