"""The house on one page, drawn from the code: rooms, arrows, the way of a record through a private fit.

``python -m tools.docs.house`` writes ``docs/house.md`` and ``docs/img/house.svg``; a test says when they are
not current. Rooms are the packages and single files of `dpsep`, and the laboratory; an arrow is an import
that stands in a file. Numbers of files and lines are as of the last writing: the test leaves them out.
"""

import ast
import configparser
import re
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, LABORATORY = ROOT / "src" / "dpsep", ROOT / "lab" / "src" / "dpsep_lab"
PAGE, DRAWING = ROOT / "docs" / "house.md", ROOT / "docs" / "img" / "house.svg"
LAB = LABORATORY.name

COLUMNS = {
    **{LAB: 1.0, "cli": 1.0, "audit": 0.0, "federated": 1.0, "report": 2.0, "estimators": 1.0},
    **{"fit": 0.5, "recipe": 0.5, "inference": 0.5, "models": 0.0, "theory": 1.0},
    **{"families": 0.0, "privacy": 1.0, "data": 2.0, "registry": 3.0},
}
"""Where a room is drawn, from left to right; how high follows from the arrows."""
WAY = {
    "table": "data/table.py",
    "scaling": "privacy/scaling.py",
    "moments": "inference/moments.py",
    "gate": "privacy/gate.py",
    "update": "inference/sep_newton.py",
    "posterior": "estimators/posterior.py",
    "predictive": "estimators/predictive.py",
    "report": "report/page/page.py",
}
"""What becomes of a record in a private regression, step by step, and the file that does it."""
WIDE, BETWEEN, APART, EDGE = 226, 30, 34, 12
"""Width of a room, space beside, above and around rooms."""
ARROW = "#8088a0"
"""Seen on white and on black."""
TEXT = """\
# The house

<!-- Written by `python -m tools.docs.house`; do not edit. -->

Every room imports only what lies below it; `.importlinter` holds the arrows. One that follows from others is
not drawn. Numbers mark the way of a record through a private fit.

![The rooms of the library as boxes, one above the other, with an arrow to each room that is imported.
Outermost are the laboratory and the command line, innermost families, privacy and data. The way of a record:
{steps}.](img/house.svg)

## Rooms

Under `src/dpsep/`; `{lab}` is a distribution of its own (`lab/`). Lines are to the nearest five hundred.

| room | holds | files | lines | imports |
|---|---|---|---|---|
{rooms}

## The way of a record

A private fit is a recipe of stages that one driver runs (`fit.py`). A record becomes part of a result in the
gate and nowhere else: scaling and moments are stages that read through gates of their own. What leaves a
gate is a noisy sum, and all that comes after is made of such sums and of public numbers. Of a regression:

| | step | file | what it says of itself |
|---|---|---|---|
{way}

Other models have other contributions and updates, and the same gate. What to read to believe an epsilon
stands with [the guarantee](guarantee.md#which-files-to-read).
"""


class Room(NamedTuple):
    """A room: what its docstring says it holds, its files, their lines, and the rooms that it imports."""

    holds: str
    files: int
    lines: int
    imports: frozenset[str]


def rooms() -> dict[str, Room]:
    """Return all rooms, from the outside in, as `.importlinter` lists them."""
    found = {name: _room(name) for name in _layers()}
    there = {path.stem for path in PACKAGE.iterdir() if _files(path) and path.name != "__init__.py"}
    if there | {LAB} != set(found):
        raise ValueError(f".importlinter and the packages differ: {sorted((there | {LAB}) ^ set(found))}.")
    return found


def needed(found: dict[str, Room]) -> dict[str, list[str]]:
    """Return the arrows that do not follow from others, by the room in which they start."""

    def beyond(name: str) -> set[str]:
        return set(found[name].imports).union(*(beyond(one) for one in found[name].imports))

    return {
        name: sorted(
            room.imports - set().union(*(beyond(one) for one in room.imports)), key=COLUMNS.__getitem__
        )
        for name, room in found.items()
    }


def page(found: dict[str, Room]) -> str:
    """Return the page."""
    rows = [
        f"| `{name}{'' if _path(name).suffix else '/'}` | {room.holds} | {room.files} | {_about(room.lines)} "
        f"| {', '.join(one for one in found if one in room.imports) or 'nothing of ours'} |"
        for name, room in found.items()
    ]
    way = [
        f"| {number} | {step} | `{path}` | {_opening(PACKAGE / path)} |"
        for number, (step, path) in enumerate(WAY.items(), 1)
    ]
    return TEXT.format(steps=", ".join(WAY), lab=LAB, rooms="\n".join(rows), way="\n".join(way))


def drawing(found: dict[str, Room]) -> str:
    """Return the drawing, legible on light and on dark ground."""
    arrows = needed(found)
    ranks = {name: _rank(name, found) for name in found}
    boxes, bottom = _places(ranks)
    columns = max(COLUMNS.values())
    width = (columns + 1) * WIDE + columns * BETWEEN + 2 * EDGE
    into = {
        name: [one for one in sorted(arrows, key=COLUMNS.__getitem__) if name in arrows[one]]
        for name in found
    }
    lines = [
        _arrow(
            boxes[name].port(place, len(targets), top=False),
            boxes[target].port(into[target].index(name), len(into[target]), top=True),
        )
        for name, targets in arrows.items()
        for place, target in enumerate(targets)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + EDGE}" '
            'font-family="system-ui, sans-serif">',
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{ARROW}"/></marker>',
            *lines,
            *(part for name, box in boxes.items() for part in _box(name, found[name].holds, box)),
            "</svg>",
            "",
        ]
    )


class Box(NamedTuple):
    """Where a room is drawn."""

    x: float
    y: float
    height: float

    def port(self, place: int, count: int, *, top: bool) -> tuple[float, float]:
        """Return where one of several arrows begins or ends."""
        return self.x + WIDE * (place + 1) / (count + 1), self.y if top else self.y + self.height


def _layers() -> list[str]:
    linter = configparser.ConfigParser()
    linter.read(ROOT / ".importlinter")
    names = re.split(r"[|\s]+", linter["importlinter:contract:rooms"]["layers"].strip())
    return [name.removeprefix("dpsep.") for name in names]


def _path(name: str) -> Path:
    if name == LAB:
        return LABORATORY
    folder = PACKAGE / name
    return folder if folder.is_dir() else folder.with_suffix(".py")


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path] * (path.suffix == ".py")


def _room(name: str) -> Room:
    path = _path(name)
    texts = [file.read_text("utf-8") for file in _files(path)]
    imports = {room for text in texts for room in _imported(text)} - {name}
    first = path / "__init__.py" if path.is_dir() else path
    return Room(_opening(first), len(texts), sum(text.count("\n") for text in texts), frozenset(imports))


def _imported(text: str) -> Iterator[str]:
    """Rooms that a file imports, at its top or in a function; the package's own face is no room."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for one in node.names:
            package, room = f"{above}{one.name}.".split(".")[:2]
            if package == LAB:
                yield LAB
            elif package == "dpsep" and room and _path(room).exists():
                yield room


def _opening(path: Path) -> str:
    """First sentence of a file's docstring, as Markdown."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def _about(lines: int) -> str:
    return "a page or two" if lines < 250 else f"{round(lines / 500) * 500:,}"


def _rank(name: str, found: dict[str, Room]) -> int:
    """How many rooms lie below, one above the other."""
    return max((1 + _rank(one, found) for one in found[name].imports), default=0)


def _places(ranks: dict[str, int]) -> tuple[dict[str, Box], float]:
    boxes, y = {}, float(EDGE)
    for rank in range(max(ranks.values()), -1, -1):
        row = [name for name in ranks if ranks[name] == rank]
        height = 84.0 if any(_steps(name) for name in row) else 60.0
        boxes |= {name: Box(EDGE + COLUMNS[name] * (WIDE + BETWEEN), y, height) for name in row}
        y += height + APART
    return boxes, y - APART


def _steps(name: str) -> list[str]:
    """Steps of a record's way in a room, each with its number."""
    return [
        f"{number} {step}" for number, (step, path) in enumerate(WAY.items(), 1) if path.split("/")[0] == name
    ]


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to, below) = start, end
    middle = (y + below) / 2
    path = f"M{x:.0f} {y:.0f}C{x:.0f} {middle:.0f} {to:.0f} {middle:.0f} {to:.0f} {below:.0f}"
    return f'<path d="{path}" fill="none" stroke="{ARROW}" stroke-width="1.6" marker-end="url(#head)"/>'


def _box(name: str, holds: str, box: Box) -> Iterator[str]:
    """A room: its name, what it holds in a few words, and the steps of the way that are made in it."""
    fill, line = ("#fff4e0", "#c25e00") if name == "privacy" else ("#f3f5fc", "#3f51b5")
    dashes = ' stroke-dasharray="5 4"' if name == LAB else ""
    yield (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{WIDE}" height="{box.height:.0f}" rx="8" '
        f'fill="{fill}" stroke="{line}" stroke-width="1.5"{dashes}/>'
    )
    x, y = box.x + 12, box.y + 21
    yield f'<text x="{x:.0f}" y="{y:.0f}" font-size="15" font-weight="600" fill="#1c2452">{name}</text>'
    for number, part in enumerate(_in_short(holds)):
        at = f'x="{x:.0f}" y="{y + 16 + 14 * number:.0f}"'
        yield f'<text {at} font-size="11.5" fill="#3a3f55">{escape(part)}</text>'
    for step in _steps(name):
        size = 16 + 6.7 * len(step)
        yield f'<rect x="{x:.0f}" y="{y + 38:.0f}" width="{size:.0f}" height="18" rx="9" fill="#00695c"/>'
        yield (
            f'<text x="{x + size / 2:.0f}" y="{y + 51:.0f}" font-size="11.5" text-anchor="middle" '
            f'fill="#ffffff">{step}</text>'
        )
        x += size + 6


def _in_short(holds: str) -> list[str]:
    """What a room holds, in one or two lines: up to a colon, or to a comma where that is too long."""
    for end in (r"[:;.]\s|\.$| \(", r"[,:;.]"):
        lines = textwrap.wrap(re.split(end, holds)[0], 34)
        if len(lines) <= 2:
            break
    return lines


def main() -> None:
    """Write the page and its drawing."""
    found = rooms()
    PAGE.write_text(page(found), "utf-8")
    DRAWING.write_text(drawing(found), "utf-8")


if __name__ == "__main__":
    main()
