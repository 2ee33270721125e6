"""``dpsep bench``: run benchmarks, show which one is under way, and print or write their rows."""

import json
import tempfile
from pathlib import Path

import typer

from dpsep.cli.screen import STANDARD_OUTPUT, is_quiet, print_json, progress, remark

__all__ = ["run"]


def run(cases: list[str], *, quick: bool, json_path: Path | None, cells: str, seeds: int, jobs: int) -> None:
    """Run the cases that are named, or all; exit code 1 where one failed, 2 where there is none of a name.

    The survey of honesty keeps its fits beside the JSON file, and shows a table of its own where nothing else
    is run.
    """
    from dpsep_lab import bench
    from dpsep_lab.bench.honesty import survey

    if cases == ["honesty"] and json_path != STANDARD_OUTPUT:
        options = ["--cells", cells, "--seeds", str(seeds), "--jobs", str(jobs)]
        options += ["--quick"] if quick else []
        options += ["--quiet"] if is_quiet() else []
        raise typer.Exit(survey.main([*options, *(["--json", str(json_path)] if json_path else [])]))

    chosen = bench.chosen_cases(cases)

    def now(done: int) -> str:
        return chosen[done] if done < len(chosen) else ""

    with tempfile.TemporaryDirectory() as folder, progress("benchmarks", note=now) as report:
        aside = Path(folder) / "rows.json" if json_path == STANDARD_OUTPUT else json_path
        choice = survey.Choice(cells, seeds, jobs)
        code = bench.run(cases, quick, aside, show=not is_quiet(), on_case=report, survey=choice)
        if json_path == STANDARD_OUTPUT and aside is not None and aside.exists():
            print_json(json.loads(aside.read_text("utf-8")))
    if json_path not in (None, STANDARD_OUTPUT) and code != 2:
        remark(f"Wrote {json_path}.")
    raise typer.Exit(code)
