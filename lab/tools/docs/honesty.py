"""docs/honesty.md with its tables and pictures, made from the fits of the survey.

    python lab/tools/docs/honesty.py build/honesty.jsonl    # keep results, write the page and its pictures
    python lab/tools/docs/honesty.py            # write the page from the results that are kept
    python lab/tools/docs/honesty.py --check    # fail if the page is not that of the results
    python lab/tools/docs/honesty.py build/honesty.jsonl --out build/page    # into another folder than docs

Results are kept in docs/benchmarks/honesty.json: what was made of the fits, not the fits. The page's text is
``honesty_page.md`` beside this file. Fits of several versions of the library are not mixed: the lines of the
last one count.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lab.tools.docs.honesty_tables import Kept, blocks  # noqa: E402

from dpsep_lab.bench.honesty import pool, results  # noqa: E402

TEXT = Path(__file__).resolve().parent / "honesty_page.md"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def packed(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is kept of lines of fits: scores, comparisons of budgets, ranks.

    Parameters
    ----------
    lines
        As the survey wrote them.
    """
    code = lines[-1]["code"]
    mine = [line for line in lines if line["code"] == code]
    found = results.joined(mine)
    scores = [score._asdict() | {"cell": score.cell.name} for score in results.scores(found)]
    versions = sorted({line["version"] for line in mine if "version" in line})
    document: dict[str, Any] = {"versions": versions, "code": code, "scores": scores}
    document |= {"consistency": results.consistency(found), "steps": results.steps(found)}
    document |= {"aims": results.aims(results.scores(found)), "ranks": results.ranks(found)}
    return _clean(document)


def _clean(value: Any) -> Any:
    """Numbers of few digits; null where not finite."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else bool(value)


def write_kept(paths: Sequence[Path], folder: Path) -> None:
    """Keep the results of files of fits.

    Parameters
    ----------
    paths
        Of the lines.
    folder
        Where the results go.
    """
    document = packed([line for path in paths for line in pool.kept(path)])
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(item) for item in value) + "\n]"
        if name in ("scores", "consistency", "steps", "aims", "ranks")
        else f"{json.dumps(name)}: {json.dumps(value)}"
        for name, value in document.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "honesty.json").write_text("{" + ",\n".join(parts) + "}\n", "utf-8")


def rendered(kept: Kept) -> str:
    """Return the page."""
    made = blocks(kept)
    text = TEXT.read_text("utf-8")
    return BLOCK.sub(lambda found: f"{found[1]}\n{made[found[2]]()}\n\n{found[3]}", text)


def draw(kept: Kept, folder: Path) -> None:
    """Draw the pictures."""
    from lab.tools.docs import honesty_plots as plots

    plots.coverage(kept, folder / "honesty_coverage.png")
    plots.error(kept, folder / "honesty_error.png")
    plots.width(kept, folder / "honesty_width.png")
    plots.ranks(kept, folder / "honesty_ranks.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("fits", type=Path, nargs="*", help="lines of fits that are to be kept")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the page")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is old")
    given = parser.parse_args(arguments)
    folder, page = given.out / "benchmarks", given.out / "honesty.md"
    if given.fits:
        write_kept(given.fits, folder)
    kept = Kept(json.loads((folder / "honesty.json").read_text("utf-8")))
    made = rendered(kept)
    if given.check:
        if made != page.read_text("utf-8"):
            print(f"{page.name} is not what its results make it; run {Path(__file__).name}.", file=sys.stderr)
            return 1
        return 0
    page.write_text(made, "utf-8")
    if given.fits:
        draw(kept, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
