"""HTML made in Python: text is escaped unless it was made here, so that no name becomes a tag.

Characters that a browser would obey instead of show (controls, marks that turn the direction of text, halves
of characters) are replaced, and text stands on one line, so that no name makes a line of its own. No
``style`` attribute and no script is ever made: the page's policy forbids it.
"""

import html
import math
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["Markup", "clean", "label", "number", "percent", "table", "tag"]

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)
_EMPTY = ("br", "meta", "input", "line", "rect", "circle", "path", "polyline", "polygon", "hr")
LONGEST = 60
"""Characters of a name that are shown."""
_TIP = 600
"""Characters of a tip, a title or a name in an attribute."""
_TIPS = ("title", "aria-label", "data-name", "data-tip")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def clean(text: Any) -> str:
    """Return text on one line, with the characters replaced that a browser would obey.

    Examples
    --------
    >>> clean("a\\u202eb"), clean("a\\n\\tb")
    ('a\ufffdb', 'a  b')
    """
    return _in_lines(text).replace("\n", " ").replace("\t", " ")


def _in_lines(text: Any) -> str:
    return _OBEYED.sub("\ufffd", str(text))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """Return an element.

    Parameters
    ----------
    name
        Of the element.
    children
        `Markup` goes in as it is, lists are gone through, None is left out, all else is escaped. Its lines
        are kept in ``code`` that has an id, a block to be copied, and joined elsewhere.
    attributes
        By name; a trailing underscore is dropped and others become hyphens. None is left out, True stands
        alone.

    Examples
    --------
    >>> tag("p", "a < b", class_="note", data_x=1)
    '<p class="note" data-x="1">a &lt; b</p>'
    """
    words = [name]
    for key, value in attributes.items():
        shown = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(shown)
        elif value is not None and value is not False:
            text = clean(value)
            words.append(f'{shown}="{html.escape(text[:_TIP] if shown in _TIPS else text)}"')
    opening = "<" + " ".join(words) + ">"
    if name in _EMPTY and not children:
        # A void element of HTML, or of SVG, where it must be closed.
        return Markup(opening if name in ("br", "meta", "input", "hr") else opening[:-1] + "/>")
    lines = name == "code" and "id" in attributes
    return Markup(f"{opening}{_inside(children, _TIP if name == 'title' else None, lines=lines)}</{name}>")


def _inside(children: Iterable[Any], longest: int | None, *, lines: bool) -> str:
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, list | tuple):
            parts.append(_inside(child, longest, lines=lines))
        else:
            text = _in_lines(child) if lines else clean(child)
            parts.append(html.escape(text[:longest], quote=False))
    return "".join(parts)


def label(name: Any, longest: int = LONGEST) -> Markup:
    """Return a name from a folder: isolated in its direction, shortened, whole on hover if not too long.

    Examples
    --------
    >>> label("<b>")
    '<bdi>&lt;b&gt;</bdi>'
    """
    text = clean(name)
    if len(text) <= longest:
        return tag("bdi", text)
    return tag("bdi", text[: longest - 1] + "…", title=text[:300])


def number(value: Any, digits: int = 4) -> str:
    """Return a number as it is read: a true minus, no needless zeros, words where it is none.

    Examples
    --------
    >>> number(-0.05312), number(12345678.0), number(float("nan")), number(1e-7), number(20190)
    ('−0.05312', '1.235e7', 'not a number', '1e−7', '20190')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not a number"
    try:
        value = float(value)
    except OverflowError:
        return "too large"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{int(value)}" if value.is_integer() and abs(value) < 1e6 else f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−")


def percent(value: Any) -> str:
    """Return a share in percent.

    Examples
    --------
    >>> percent(0.613), percent(0.0012), percent(None)
    ('61 %', '0.12 %', 'not a number')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "not a number"
    shown = f"{100 * value:.0f}" if abs(value) >= 0.0995 or value == 0 else f"{100 * value:.2g}"
    return f"{shown} %".replace("-", "−")


def table(
    caption: Any, header: list[Any], rows: Iterable[list[Any]], *, class_: str = "data", numeric: int = 1
) -> Markup:
    """Return a table in a box that scrolls sideways by itself where it must.

    Parameters
    ----------
    caption
        What it shows.
    header, rows
        Cells; the first of a row is its header.
    numeric
        Columns from this one on are numbers, set to the right.
    """

    def side(place: int) -> str | None:
        return "num" if place >= numeric else None

    head = tag("tr", [tag("th", cell, scope="col", class_=side(i)) for i, cell in enumerate(header)])
    body = [
        tag(
            "tr",
            tag("th", line[0], scope="row"),
            [tag("td", cell, class_=side(i)) for i, cell in enumerate(line[1:], start=1)],
        )
        for line in rows
    ]
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_=class_)
    return tag("div", inner, class_="scroll")
