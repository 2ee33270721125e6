"""The command line: options and help; what a command does is in the module of its name.

Modules that take long to import are imported inside the commands, so that ``dpsep --help`` answers at once.
Exit codes: 0 done, 1 the work failed, 2 the call was wrong.
"""

from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from dpsep.cli import laboratory
from dpsep.cli.errors import CallError, is_broken_pipe, leave
from dpsep.cli.federate_commands import federate_app
from dpsep.cli.ledger_commands import ledger_app
from dpsep.cli.options import (
    MODELS,
    Brief,
    Covariance,
    Json,
    Quiet,
    Relation,
    SchemaFile,
    Table,
    TableFormat,
    Unit,
    Wait,
)
from dpsep.cli.screen import hush
from dpsep.cli.study_commands import audit, plan

__all__ = ["app", "main"]


class _Guarded(TyperGroup):
    """The one place where errors become a line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.ClickException, click.exceptions.Exit, click.exceptions.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if is_broken_pipe(error):
                raise
            leave(error, debug=bool(ctx.params.get("debug")))


app = typer.Typer(
    cls=_Guarded,
    help="Private Bayesian regression and clustering: fit, predict, and keep account of what was spent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(federate_app, name="federate")


def _version(wanted: bool) -> None:
    if wanted:
        from dpsep import __version__

        print(f"dpsep {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    hush(False)  # a quiet call before this one, in the same process, is over


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the ledger.")] = Path("dpsep-demo"),
    epsilon: Annotated[float, typer.Option(help="Privacy budget of each of the two fits.")] = 1.0,
    table: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write the survey as a table to try commands on, and stop."),
    ] = None,
    new: Annotated[
        Path | None,
        typer.Option(metavar="NEW.csv", help="With --table: a table of made-up people to predict for."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Doctor visits in a public survey, with privacy and without (needs the extra 'demo')."""
    hush(quiet or as_json)
    if table is not None:
        from dpsep.cli import example

        example.run(table, new)
        return
    if new is not None:
        raise CallError("--new goes with --table; give both.")
    from dpsep.cli import demo as work

    work.run(out, epsilon, as_json=as_json)


@app.command()
def fit(
    table: Table,
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder for the result; must not exist.")],
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="What to predict.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of this fit.")] = None,
    delta: Annotated[
        float, typer.Option(help="Probability outside the guarantee; well below 1/rows.")
    ] = 1e-5,
    model: Annotated[
        str,
        typer.Option(click_type=MODELS, help="auto: logistic for a category or text, linear for numbers."),
    ] = "auto",
    components: Annotated[
        int | None, typer.Option(metavar="J", help="Number of clusters of --model mixture.")
    ] = None,
    covariance: Annotated[
        Covariance | None,
        typer.Option(help="Variances within clusters: one a column (diag, the default) or one for all."),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(metavar="H[,H...]", help="Units of each hidden layer of a network; 0 for a linear one."),
    ] = None,
    format: TableFormat = None,
    schema: SchemaFile = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=LOW:HIGH", help="Public bounds; LOW:HIGH alone for all columns. Repeatable."
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="NEGATIVE,POSITIVE", help="The labels of a yes/no target.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave a column out. Repeatable.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Ledger to charge, by path or URL; 'dpsep ledger create' makes one."
        ),
    ] = None,
    wait: Wait = 30.0,
    relation: Annotated[Relation, typer.Option(help="Neighbouring data sets.")] = Relation.zero_out,
    unit: Annotated[
        Unit | None,
        typer.Option(
            help="With a schema that declares a unit: protect all of its rows together (group, the default) "
            "or each row (record)."
        ),
    ] = None,
    slopes: Annotated[
        str | None,
        typer.Option(metavar="COLUMN[,COLUMN...]", help="Columns whose slopes vary by unit."),
    ] = None,
    public_test: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Write metrics on this table, whose rows you declare public."),
    ] = None,
    metrics_epsilon: Annotated[
        float | None, typer.Option(help="Hold rows out and write private metrics on them, for this budget.")
    ] = None,
    holdout: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Of --metrics-epsilon: share held out, 0.2.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Read a Parquet or Arrow table as the fit goes, holding so much of it, such as 2GiB.",
        ),
    ] = None,
    private: Annotated[bool, typer.Option("--private/--no-private", help="With or without privacy.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that died.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace RUN, discard an unfinished one.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Leaks are errors, not warnings.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a regression or a mixture to a table; write a folder with posterior and privacy statement."""
    from dpsep.cli.fit import Request, run

    hush(quiet)
    run(
        Request(
            table=table,
            out=out,
            target=target,
            epsilon=epsilon,
            delta=delta,
            model=model,
            hidden=hidden,
            components=components,
            covariance=None if covariance is None else covariance.value,
            format=format,
            schema=schema,
            bounds=tuple(bounds or ()),
            classes=classes,
            drop=tuple(drop or ()),
            ledger=ledger,
            wait=wait,
            relation=relation.value,
            unit=None if unit is None else unit.value,
            slopes=slopes,
            public_test=public_test,
            metrics_epsilon=metrics_epsilon,
            holdout=holdout,
            memory=memory,
            private=private,
            resume=resume,
            overwrite=overwrite,
            strict=strict,
            as_json=as_json,
        )
    )


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that 'dpsep fit' wrote.")],
    table: Table,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Where to write; standard output if left out.")
    ] = None,
    format: TableFormat = None,
    as_json: Json = False,
    quiet: Brief = False,
) -> None:
    """Predict a table's rows: mean and sd or probability, with 90% intervals; of a mixture, components."""
    from dpsep.cli import predict as work

    hush(quiet)
    work.run(run, table, out, format=format, as_json=as_json)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that 'dpsep fit' wrote.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Where to write; RUN/report.html if left out.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="Another run to lay beside it; one that is not private makes all so. Repeatable.",
        ),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="PATH", help="Show this run's rows of a ledger, by path or URL.")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Show what 'dpsep audit --json' wrote.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Of the page.")] = None,
    as_json: Json = False,
    quiet: Brief = False,
) -> None:
    """Explain a run in one HTML file: what was asked, spent and found, and how well it predicts."""
    from dpsep.cli import report as work

    hush(quiet)
    work.run(
        run,
        out,
        beside=tuple(beside or ()),
        ledger=ledger,
        audit=audit,
        title=title,
        as_json=as_json,
    )


@app.command()
def check(
    table: Table,
    schema: SchemaFile = None,
    format: TableFormat = None,
    as_json: Json = False,
    quiet: Brief = False,
) -> None:
    """Look for bad cells in a table. For its owner's eyes: the output is NOT private."""
    from dpsep.cli import check as work

    hush(quiet)
    work.run(table, schema, format=format, as_json=as_json)


@app.command()
def schema(
    table: Table,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Where to write; standard output if left out.")
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="What is to be predicted.")] = None,
    format: TableFormat = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Find kinds and bounds privately, for this budget.")
    ] = None,
    delta: Annotated[float, typer.Option(help="With --epsilon: probability outside the guarantee.")] = 1e-6,
    ledger: Annotated[
        str | None, typer.Option(metavar="PATH", help="With --epsilon: ledger to charge, by path or URL.")
    ] = None,
    wait: Wait = 30.0,
    look: Annotated[
        bool, typer.Option("--look", help="Read kinds, bounds and categories off the table. NOT private.")
    ] = False,
    quiet: Brief = False,
) -> None:
    """Draft a schema from a table's column names and types, to be filled in by hand (or privately)."""
    from dpsep.cli import schema as work

    hush(quiet)
    work.run(
        table,
        out,
        target,
        format=format,
        look=look,
        epsilon=epsilon,
        delta=delta,
        ledger=ledger,
        wait=wait,
    )


for _command in (plan, audit):
    app.command()(_command)
laboratory.add_commands(app)


def main() -> None:
    """Run the command line."""
    app()
