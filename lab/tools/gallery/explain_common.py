"""What the pictures of docs/explain share: colours, one way to save, one command line.

Every picture is an SVG whose letters are outlines, so that it looks the same everywhere. Seeds are fixed, so
that a second run gives the same file. Colours are Okabe and Ito's, as in `dpsep.report.drawing`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
FOLDER = Path(__file__).resolve().parents[3] / "docs" / "explain"
STYLE = {
    "svg.hashsalt": "dpsep",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def main(name: str, draw: Callable[[], Any], about: str | None) -> None:
    """Make one picture and write it as NAME.svg, and as NAME.png if asked for."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the picture")
    parser.add_argument("--png", action="store_true", help="write a PNG beside it, to look at")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure = draw()
        figure.savefig(options.out / f"{name}.svg", metadata={"Date": None})
        if options.png:
            figure.savefig(options.out / f"{name}.png", dpi=110)
    print(options.out / f"{name}.svg")
