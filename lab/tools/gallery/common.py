"""What the pictures of the gallery share: how one is described, measured, drawn and kept.

A picture is a module with `PICTURE` (title, captions, text for those who do not see it), `measure` (numbers,
from public or made data) and `draw` (files, from those numbers alone). `main` runs one from the shell:

    python lab/tools/gallery/NAME.py [--quick] [--redraw] [--out FOLDER]

The numbers are written beside the picture as NAME.json, and captions are filled from it (`page.py`): a number
in a caption was measured, or is not there. Colours are those of `dpsep.report.drawing`.

**Privacy.** Data are made or public and noise is seeded, so nothing here is for release.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot
from PIL import Image

from dpsep.privacy.checkpoint import atomic_write
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.report.drawing import BLUE, GREY, ORANGE, PALE, plain

__all__ = [
    "BLUE",
    "FOLDER",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALE",
    "PURPLE",
    "RED",
    "Measured",
    "Picture",
    "compress",
    "epsilon_axis",
    "main",
    "make",
    "new_figure",
    "plain",
    "rounded",
    "save",
    "say",
    "seeded",
]

GREEN, RED, PURPLE = "#009E73", "#D55E00", "#CC79A7"
"""The other colours of Okabe and Ito that are used."""
FOLDER = Path(__file__).resolve().parents[3] / "docs" / "gallery"
"""Where the published pictures are."""
DPI = 160
RC: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.labelsize": 10.0,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "mathtext.default": "regular",
}

Measured = dict[str, Any]
"""Numbers of a picture, ready for JSON; those of its caption under ``caption``."""


class Picture(NamedTuple):
    """What is said of a picture.

    Attributes
    ----------
    name
        Of its script and, with an ending, of its files.
    title
        Above it on the page.
    see
        What to see, in a sentence or two; names in braces are filled with the numbers of the caption.
    made
        How it was made: data, repeats and seeds.
    alt
        What it shows, for those who do not see it; filled like `see`.
    still
        The file that the page shows.
    moving
        An animation that the still leads to, if there is one.
    """

    name: str
    title: str
    see: str
    made: str
    alt: str
    still: str
    moving: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Names of everything that is drawn."""
        return (self.still,) if self.moving is None else (self.still, self.moving)


Measure = Callable[[bool, Path], Measured]
"""Measures, quickly or in full; the folder is for what is drawn while measuring."""
Draw = Callable[[Measured, Path], None]
"""Draws the files of a picture into a folder."""


def main(picture: Picture, measure: Measure, draw: Draw, arguments: Sequence[str] | None = None) -> None:
    """Make one picture from the shell."""
    parser = argparse.ArgumentParser(description=f"Draw the gallery's picture {picture.name!r}.")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--redraw", action="store_true", help="draw again from the numbers that are there")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="default: docs/gallery")
    given = parser.parse_args(arguments)
    make(picture, measure, draw, given.out, quick=given.quick, redraw=given.redraw)


def make(
    picture: Picture, measure: Measure, draw: Draw, folder: Path, *, quick: bool, redraw: bool = False
) -> float:
    """Measure and draw a picture into a folder; return the seconds that it took."""
    start, used = time.perf_counter(), time.process_time()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{picture.name}.json"
    with pyplot.rc_context(RC):
        if redraw:
            found = json.loads(path.read_text(encoding="utf-8"))
        else:
            found = {"quick": quick, **measure(quick, folder)}
            atomic_write(path, json.dumps(found, allow_nan=False) + "\n")
        draw(found, folder)
    taken = time.perf_counter() - start
    sizes = ", ".join(f"{name} {(folder / name).stat().st_size / 1000:.0f} kB" for name in picture.files)
    say(f"{picture.name}: {sizes}, {taken:.0f} s ({time.process_time() - used:.0f} s of processors)")
    return taken


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


@contextmanager
def seeded() -> Iterator[None]:
    """Silence the warning that seeded noise protects nobody: it is meant, on made and public data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        yield


def new_figure(rows: int = 1, columns: int = 1, *, size: tuple[float, float], **more: Any) -> tuple[Any, Any]:
    """Return a figure of this size in inches and its axes as an array of (rows, columns)."""
    return pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, **more)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG and close it."""
    figure.savefig(path, dpi=DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
    pyplot.close(figure)


def compress(path: Path) -> None:
    """Write a PNG file again with a palette of 256 colours: a third of the size, and no difference to see."""
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def epsilon_axis(ax: Any, ticks: Sequence[float], label: str = "epsilon") -> None:
    """Make the lower axis one of budgets, with these plain numbers and no others."""
    ax.set_xscale("log")
    ax.set_xticks(ticks, labels=[f"{one:g}" for one in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(label)


def rounded(values: Any, digits: int = 4) -> Any:
    """Return an array as nested lists of numbers with so many digits after the point."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()
