"""The gallery's page: pictures, captions filled with the numbers beside them, and text for every picture.

    python lab/tools/gallery/page.py

writes docs/gallery.md from the modules' captions and docs/gallery/NAME.json. Nothing is measured here.
"""

import importlib
import json
import re
from pathlib import Path

from common import FOLDER, Measured, Picture

NAMES = (
    "tradeoff",
    "noise_aware",
    "shrinking",
    "noise_share",
    "rings",
    "calibrated",
    "composition",
    "audited",
    "banana",
    "figure1",
)
"""The modules, in the order of the page."""
PAGE = FOLDER.parent / "gallery.md"
HEAD = """# Gallery

Pictures of what dpsep does, each made by one script. All show made or public data, and the noise of their
private fits is seeded: they can be drawn again, and none is for release. Every measured number in a caption
is read from the JSON file that the script writes beside its picture.

`python lab/tools/gallery/all.py` draws everything and writes this page; `python lab/tools/gallery/NAME.py`
draws one picture, in the clone's `docs/gallery` (`--out FOLDER`: elsewhere). `--quick --out FOLDER` takes few
records, to see that it works. Adult and power come from `dpsep_lab.data`.

Colours are those of Okabe and Ito: blue is what the data say, orange what the noise of privacy adds. Log
densities are in nats (natural logarithms); larger is better. A *PIT* value is where a target lies in its
predictive distribution, between 0 and 1.
"""


def picture_of(name: str) -> Picture:
    """Return what is said of a picture."""
    return importlib.import_module(name).PICTURE


def text(folder: Path = FOLDER) -> str:
    """Return the page, with the numbers of the JSON files in a folder."""
    return "\n".join([HEAD, *(section(picture_of(name), folder) for name in NAMES)])


def numbers(name: str, folder: Path) -> Measured:
    """Return what was measured for a picture."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def section(picture: Picture, folder: Path) -> str:
    """Return one picture's part of the page."""
    caption = numbers(picture.name, folder)["caption"]
    filled = (words.format(**caption) for words in (picture.see, picture.made, picture.alt))
    see, made, alt = (re.sub(r"(\d)%", r"\1 %", words) for words in filled)  # as the house writes percents
    image = f"![{alt}]({FOLDER.name}/{picture.still})"
    if picture.moving is not None:
        image = (
            f"[{image}]({FOLDER.name}/{picture.moving})\n\n[Watch it move]({FOLDER.name}/{picture.moving})."
        )
    links = f"[Script](../lab/tools/gallery/{picture.name}.py), [numbers]({FOLDER.name}/{picture.name}.json)."
    how = f"*How it was made:* {made} {links}"
    return f"## {picture.title}\n\n{image}\n\n{see}\n\n{how}\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(text(), encoding="utf-8")
    print(f"{PAGE.name}: {len(NAMES)} pictures")


if __name__ == "__main__":
    main()
