"""The tables and pictures of docs/frontier.md, made from results and written into the page.

    python lab/tools/docs/frontier.py DIR
                                             # write tables and pictures
    python lab/tools/docs/frontier.py            # write the tables from the results that are kept
    python lab/tools/docs/frontier.py --check    # fail if the page's tables are not those of the results

Results are kept in docs/benchmarks/frontier.json, what was searched for a peer in frontier_search.json beside
it. Text between the tables is the page's own. A cell for which there is no figure says so.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lab.tools.docs.frontier_tables import Results, blocks, packed  # noqa: E402

from dpsep_lab.bench.frontier import kept  # noqa: E402
from dpsep_lab.bench.frontier_data import UCI  # noqa: E402
from dpsep_lab.data import shipped  # noqa: E402

PAGE = ROOT / "docs" / "frontier.md"
FOLDER = ROOT / "docs" / "benchmarks"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str, results: Results) -> str:
    """Return the page with its tables made anew.

    Parameters
    ----------
    text
        The page, with blocks between ``<!-- made: NAME -->`` and ``<!-- end -->``.
    results
        The kept fits.
    """
    made = blocks(results, FOLDER / "frontier_search.json")
    return BLOCK.sub(lambda found: f"{found[1]}\n{made[found[2]]()}\n{found[3]}", text)


def write_kept(folder: Path) -> None:
    """Keep the results of a folder, one line a table, person and budget.

    Parameters
    ----------
    folder
        Of the benchmark's lines.
    """
    document = packed(line for line in kept(folder) if line["dataset"] in (*UCI, *shipped.HELD_OUT))
    fits = ",\n".join(json.dumps(fit) for fit in document["fits"])
    text = f'{{"versions": {json.dumps(document["versions"])},\n"fits": [\n{fits}\n]}}\n'
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "frontier.json").write_text(text, "utf-8")


def draw(results: Results) -> None:
    """Draw the pictures."""
    from lab.tools.docs.frontier_plots import curve

    curve(results, UCI, FOLDER / "frontier_curve.png")
    curve(results, shipped.HELD_OUT, FOLDER / "frontier_held_out.png")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of results that are to be kept")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where the page is not up to date"
    )
    given = parser.parse_args()
    if given.folder is not None:
        write_kept(given.folder)
    results = Results(json.loads((FOLDER / "frontier.json").read_text("utf-8")))
    if given.folder is not None:
        draw(results)
    text = PAGE.read_text("utf-8")
    made = rendered(text, results)
    if given.check:
        if made != text:
            print(
                f"{PAGE.name} is not what its results make it; run lab/tools/docs/frontier.py.",
                file=sys.stderr,
            )
        return int(made != text)
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
