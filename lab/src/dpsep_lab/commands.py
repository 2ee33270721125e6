"""``dpsep bench`` and ``dpsep paper``: their options; `dpsep.cli.laboratory` finds them by entry points."""

from pathlib import Path
from typing import Annotated

import typer

from dpsep.cli.options import JsonFile, Quiet
from dpsep.cli.screen import hush

__all__ = ["bench", "paper"]


def bench(
    cases: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CASES]...", help="Which cases; all but honesty if left out."),
    ] = None,
    json_path: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short run.")] = False,
    cells: Annotated[
        str, typer.Option(metavar="PATTERN", help="Cells of the survey (honesty), as 'logistic/rare/*'.")
    ] = "",
    seeds: Annotated[int, typer.Option(help="Tables a cell of the survey.")] = 200,
    jobs: Annotated[int, typer.Option(help="Processes of the survey.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Measure this package against others."""
    from dpsep_lab.bench import command as work

    hush(quiet, json_path)
    survey = {"cells": cells, "seeds": seeds, "jobs": jobs}
    work.run(list(cases or ()), quick=quick, json_path=json_path, **survey)


def paper(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="accounting, figure1, table1 to table9, theorem, or all.")
    ],
    json_path: JsonFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Folder for pictures (here by default), tables 2 to 9, and finished fits, not done again.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of made data sets (table 1).")] = None,
    datasets: Annotated[
        str | None, typer.Option(metavar="A,B", help="Data sets of tables 2 to 9; all if left out.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(help="Splits of each data set (tables 3 to 9); as the paper's runs.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small run, to see that all works.")] = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a table or figure of the paper: printed, as written, as accounted, ours."""
    from dpsep_lab.paper import command as work

    hush(quiet, json_path)
    work.run(table, json_path, out, seeds, datasets=datasets, splits=splits, quick=quick)
