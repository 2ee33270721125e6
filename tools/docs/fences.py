"""Fenced code of a Markdown page: where it stands, its language, and whether it is run.

One reader for all who ask: the notebooks made of tutorials (`execute.py`), the outputs that the site shows
under cells (`hooks.py`), and the tests that run the code of all other pages.
"""

import re
from typing import NamedTuple

__all__ = ["Fence", "cells", "fences", "reason_not_run", "without_front_matter"]

OPENING = re.compile(r"(?P<indent> *)(?P<marks>`{3,}|~{3,})\s*(?P<language>[\w+-]*)(?P<rest>[^`]*)$")
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
NOT_RUN = re.compile(r"\s*# not run: *(\S.*)")
RUN = ("python", "bash")
"""Languages of a tutorial's cells."""


class Fence(NamedTuple):
    """A fenced block: language, code without indentation, first and last line (from 0), indentation."""

    language: str
    code: str
    first: int
    last: int
    indent: int


def fences(text: str) -> list[Fence]:
    r"""Return all fenced blocks of a page, in order; a fence within a longer fence is text.

    Examples
    --------
    >>> [(one.language, one.code) for one in fences("a\n```python\nx = 1\n```\n")]
    [('python', 'x = 1\n')]
    """
    found, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        opening = OPENING.match(lines[at])
        if opening is None:
            at += 1
            continue
        marks, indent = opening["marks"], len(opening["indent"])
        closing = re.compile(rf" *{re.escape(marks[0])}{{{len(marks)},}}\s*$")
        last = next((n for n in range(at + 1, len(lines)) if closing.match(lines[n])), len(lines) - 1)
        code = "".join(line[indent:] + "\n" for line in lines[at + 1 : last])
        found.append(Fence(opening["language"], code, at, last, indent))
        at = last + 1
    return found


def reason_not_run(code: str) -> str | None:
    """Return what the line ``# not run: REASON`` at the top of a block says, or None.

    Examples
    --------
    >>> reason_not_run("# not run: it needs a server\\nconnect()")
    'it needs a server'
    """
    match = NOT_RUN.match(code)
    return match[1].strip() if match else None


def cells(text: str) -> list[Fence]:
    """Return the blocks of a tutorial that are run: python and bash at the margin, unless marked."""
    return [
        fence
        for fence in fences(text)
        if fence.language in RUN and not fence.indent and reason_not_run(fence.code) is None
    ]


def without_front_matter(text: str) -> str:
    """Return a page without the settings between ``---`` lines at its top."""
    return FRONT_MATTER.sub("", text)
