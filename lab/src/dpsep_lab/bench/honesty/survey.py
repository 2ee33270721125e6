"""The survey of honesty: run it, show it.

    dpsep bench honesty --cells 'logistic/rare/*' --seeds 20 --jobs 2 --json build/honesty.json
    python -m dpsep_lab.bench.honesty --list

The fits of a run are lines beside the JSON file (``build/honesty.jsonl``): a run that was stopped goes on
from them, and more seeds are added to those that are there. The JSON file is what they come to, as rows of a
benchmark.

**Privacy.** Made data only.
"""

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpsep_lab.bench.honesty import pool, results
from dpsep_lab.bench.honesty.cells import CELLS, QUICK, Cell, matching, with_twins
from dpsep_lab.bench.table import Row, about, row, skipped, write

__all__ = ["Choice", "honesty", "main", "rows", "shown"]


class Choice(NamedTuple):
    """What of the survey is run.

    Attributes
    ----------
    cells
        Patterns of names, or roles, parted by commas; all if empty.
    seeds
        Tables a cell.
    jobs
        Processes.
    lines
        File of the fits; None keeps none.
    minutes
        After which no more work is begun.
    """

    cells: str = ""
    seeds: int = 200
    jobs: int = 1
    lines: Path | None = None
    minutes: float = math.inf


def honesty(quick: bool, choice: Choice | None = None, *, report: bool = False) -> list[Row]:
    """Return the rows of ``dpsep bench honesty``.

    Parameters
    ----------
    quick
        A few cells on three tables, whatever was chosen of them.
    choice
        What is run.
    report
        Whether to say on standard error how far it is.
    """
    chosen = choice or Choice()
    if quick:
        chosen = chosen._replace(cells=chosen.cells or QUICK, seeds=min(chosen.seeds, 3))
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.lines or Path(folder) / "honesty.jsonl"
        return rows(results.joined(_done(chosen, path, report=report)))


def _done(chosen: Choice, path: Path, *, report: bool) -> list[dict[str, Any]]:
    """Run what is left of a choice; return its lines."""
    from dpsep_lab.bench.honesty.work import code, program

    cells = with_twins(matching(chosen.cells)) if chosen.cells else list(CELLS)
    todo = pool.Todo(cells, chosen.seeds, pool.kept(path, code()), program)
    if todo.left:
        jobs, say = min(chosen.jobs, todo.left), pool.reporter() if report else None
        pool.run(todo, path, jobs, say, chosen.minutes)
    names = {cell.name for cell in cells}
    return [line for line in pool.kept(path, code()) if line["cell"] in names]


def rows(found: dict[str, results.Fits]) -> list[Row]:
    """Return results as rows of a benchmark."""
    out = []
    for score in results.scores(found):
        case, who = f"honesty/{score.cell.name}", score.cell.who
        if score.verdict == "absent":
            out.append(skipped(case, who, found[score.cell.name].absent))
            continue
        more = {key: value for key, value in score._asdict().items() if key not in ("cell", "coverage")}
        more |= {"role": score.cell.role, "note": score.verdict, "n": score.tables}
        if found[score.cell.name].failed:
            more["why_failed"] = sorted(set(found[score.cell.name].failed))[:3]
        metric = f"coverage of 90 % intervals, {score.kind}"
        out.append(row(case, who, metric, score.coverage, against=("nominal", 0.9), **more))
    for item in results.consistency(found):
        metric = "gap to the fit without privacy, posterior sds"
        more = {key: value for key, value in item.items() if key not in ("cell", "gap")}
        out.append(row(f"honesty/{item['cell']}", "dpsep", metric, item["gap"], **more))
    for item in results.steps(found):
        metric = f"RMSE over that at epsilon {item['from']:g}, {item['kind']}"
        more = {key: value for key, value in item.items() if key not in ("cell", "ratio")}
        out.append(row(f"honesty/{item['cell']}", "dpsep", metric, item["ratio"], **more))
    for item in results.ranks(found):
        more = {key: value for key, value in item.items() if key not in ("cell", "ranks")}
        metric = "p-value of the ranks of the truth"
        out.append(row(f"honesty/{item['cell']}", "dpsep", metric, item["ranks"], **more))
    return out


HEADER = (
    *("cell", "class", "n", "cover", "se", "bias", "rmse", "/open", "z mean", "z sd", "sd/prior"),
    *("width", "warn", "floor", "s", "verdict"),
)


def shown(found: dict[str, results.Fits]) -> str:
    """Return results as a table of text, and the shares of cells that hold."""
    all_scores = results.scores(found)
    lines: list[tuple[str, ...]] = [HEADER]
    for score in all_scores:
        numbers = (score.coverage, score.error, score.bias, score.rmse, score.against_open, score.z_mean)
        numbers += (score.z_sd, score.of_prior, score.width, score.warned, score.floor, score.seconds)
        cells = [_short(value) for value in numbers]
        lines.append((score.cell.name, score.kind, str(score.tables), *cells, score.verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(
            part.ljust(width) if place in (0, 1, len(HEADER) - 1) else part.rjust(width)
            for place, (part, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    for fits in found.values():
        for why in sorted(set(fits.failed))[:2]:
            text.append(f"failed: {fits.cell.name}: {why}")
        if fits.absent:
            text.append(f"absent: {fits.cell.name}: {fits.absent}")
    for item in results.consistency(found):
        text.append(
            f"gap to the fit without privacy: {item['cell']}: "
            f"{item['gap']:.3f} sds, worst {item['worst']:.3f}"
        )
    for item in results.aims(all_scores):
        words = f"{item['value']:.3g}, to be at most {item['limit']:g}"
        word = "holds" if item["holds"] else "missed"
        text.append(f"{word}: {item['cell']}, {item['kind']}: {item['what']} {words}")
    for item in results.steps(found):
        if not item["holds"]:
            words = f"{item['kind']}, ratio {item['ratio']:.2f}, bound {item['bound']:.2f}"
            text.append(f"more budget may be worse: {item['cell']} from {item['from']:g}: {words}")
    for item in results.ranks(found):
        words = f"ranks {item['ranks']:.3f}, region {item['region']:.3f}, TARP {item['tarp']:.3f}"
        text.append(f"p-values of whole posteriors: {item['cell']}: {words}")
    for role in ("choose", "judge"):
        count = results.outside(all_scores, role)
        words = (
            f"{role}: {{outside}} of {{judged}} outside, {{surely}} of them by more than two standard errors"
        )
        text.append((words + ", {far} far too low").format(**count))
    return "\n".join(text)


def _short(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line of ``python -m dpsep_lab.bench.honesty``."""
    parser = argparse.ArgumentParser(prog="dpsep bench honesty", description=(__doc__ or "").splitlines()[0])
    words = "patterns of names or roles, parted by commas; their twins without privacy come along"
    parser.add_argument("--cells", default="", help=words)
    parser.add_argument("--seeds", type=int, default=200, help="tables a cell")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="what the fits come to; the fits are kept beside it")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no more work is begun")
    parser.add_argument("--list", action="store_true", help="print the names of the cells and do nothing")
    parser.add_argument("--show", action="store_true", help="show what is there and fit nothing")
    parser.add_argument("--quick", action="store_true", help="few cells on three tables")
    parser.add_argument("--quiet", action="store_true", help="no table and no progress")
    given = parser.parse_args(arguments)
    cells: list[Cell] = matching(given.cells) if given.cells else list(CELLS)
    if given.list:
        print("\n".join(f"{cell.role}  {cell.name}" for cell in cells))
        return 0
    if not cells:
        print(f"no cell matches {given.cells!r}; --list prints their names.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        path = lines_beside(given.json) or Path(folder) / "honesty.jsonl"
        seeds = min(given.seeds, 3) if given.quick else given.seeds
        patterns = given.cells or (QUICK if given.quick else "")
        choice = Choice(patterns, 0 if given.show else seeds, given.jobs, path, given.minutes)
        found = results.joined(_done(choice, path, report=not given.quiet))
        if not given.quiet:
            print(shown(found))
        if given.json is not None:
            write(about(given.quick) + rows(found), given.json)
    return 0


def lines_beside(json_path: Path | None) -> Path | None:
    """Return where the fits of a JSON file are kept."""
    return None if json_path is None else json_path.with_suffix(".jsonl")
