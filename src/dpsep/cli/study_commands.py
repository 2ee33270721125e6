"""Commands that look ahead of a fit and at the library itself: `plan`, `audit`."""

from pathlib import Path
from typing import Annotated

import typer

from dpsep.cli.options import MODELS, JsonFile, Quiet, Relation, SchemaFile
from dpsep.cli.screen import hush

__all__ = ["audit", "plan"]


def plan(
    model: Annotated[str, typer.Option(click_type=MODELS, help="auto: by the target of --schema.")] = "auto",
    records: Annotated[int | None, typer.Option(help="Rows; found from a target if left out.")] = None,
    features: Annotated[int | None, typer.Option(help="Columns, indicators counted one by one.")] = None,
    schema: SchemaFile = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget; found from a target if left out.")] = None,
    delta: Annotated[float, typer.Option(help="Probability outside the guarantee.")] = 1e-5,
    relation: Annotated[Relation, typer.Option(help="Neighbouring data sets.")] = Relation.zero_out,
    widening: Annotated[
        float | None, typer.Option(help="Target: most width of intervals over that without privacy, as 1.2.")
    ] = None,
    excess_risk: Annotated[
        float | None, typer.Option(help="Target: most loss of log predictive density, nats a record.")
    ] = None,
    components: Annotated[int | None, typer.Option(metavar="J", help="Clusters of --model mixture.")] = None,
    levels: Annotated[
        str | None, typer.Option(metavar="A,B", help="Indicator columns of each category among the features.")
    ] = None,
    private_scaling: Annotated[
        bool, typer.Option("--private-scaling", help="Bounds are not declared, but found inside epsilon.")
    ] = False,
    sampling: Annotated[float | None, typer.Option(metavar="RATE", help="Of Poisson sampling.")] = None,
    hidden: Annotated[
        str | None, typer.Option(metavar="H[,H...]", help="Units of each hidden layer of a network.")
    ] = None,
    json_path: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (PNG).")] = None,
    quiet: Quiet = False,
) -> None:
    """Say what a private fit will do and cost, from public numbers: no table is read."""
    from dpsep.cli.plan import Question, run

    hush(quiet, json_path)
    run(
        Question(
            model=model,
            relation=relation.value,
            records=records,
            features=features,
            schema=schema,
            epsilon=epsilon,
            delta=delta,
            widening=widening,
            excess_risk=excess_risk,
            components=components,
            levels=levels,
            private_scaling=private_scaling,
            sampling=sampling,
            hidden=hidden,
            json_path=json_path,
            plot=plot,
        )
    )


def audit(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGETS]...",
            help="linear, logistic, mixture, network, dp-vi, dp-em (all if left out), or FILE.py:FUNCTION, "
            "a function that returns your estimator and a made-up table (estimator, X, y).",
        ),
    ] = None,
    epsilon: Annotated[str, typer.Option(metavar="A,B", help="What is claimed.")] = "0.5,1,4",
    attack: Annotated[
        list[str] | None,
        typer.Option(help="canary, membership, 'one run' or replay; all if left out. May be repeated."),
    ] = None,
    controls: Annotated[
        bool, typer.Option("--controls", help="Also break the library in twelve ways; all must be caught.")
    ] = False,
    matrix: Annotated[
        str | None,
        typer.Option(
            metavar="pairs|all",
            help="Also record and replay over the options of all estimators: all pairs of values, or all "
            "combinations (hours).",
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Controls or matrix alone, no target.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the runs.")] = False,
    scale: Annotated[float, typer.Option(help="Multiple of the number of runs.")] = 1.0,
    jobs: Annotated[int | None, typer.Option(help="Processes; as many as cores by default.")] = None,
    json_path: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (PNG).")] = None,
    quiet: Quiet = False,
) -> None:
    """Attack private estimators: lower bounds on epsilon, record and replay, controls."""
    from dpsep.cli import audit as work

    hush(quiet, json_path)
    work.run(
        list(names or ()),
        epsilon,
        attacks=list(attack or ()),
        controls=controls,
        only=only,
        matrix=matrix,
        quick=quick,
        scale=scale,
        jobs=jobs,
        json_path=json_path,
        plot=plot,
    )
