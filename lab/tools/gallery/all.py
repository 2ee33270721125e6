"""All pictures of the gallery, one after another, and then its page.

    python lab/tools/gallery/all.py [--quick] [--out FOLDER] [--only NAME ...]

The page is written where the pictures are the published ones: not with --out, and not with --quick.
"""

import argparse
import importlib
import sys
from pathlib import Path

import page
from common import FOLDER, make, say


def main() -> None:
    """Draw what is asked for, all by default."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the gallery.")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that they work")
    parser.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="default: docs/gallery")
    parser.add_argument("--only", nargs="+", choices=page.NAMES, default=page.NAMES, metavar="NAME")
    given = parser.parse_args()
    if given.quick and given.out is None:
        sys.exit("--quick draws pictures that are not to be published; name another folder with --out.")
    folder = given.out or FOLDER
    total = 0.0
    for name in given.only:
        say(f"{name} ...")
        module = importlib.import_module(name)
        total += make(module.PICTURE, module.measure, module.draw, folder, quick=given.quick)
    if given.out is None:
        page.main()
    say(f"{len(given.only)} pictures, {total / 60:.1f} minutes")


if __name__ == "__main__":
    main()
