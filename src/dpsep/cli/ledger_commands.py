"""``dpsep ledger``: its commands and their options; what they do is in `ledger`."""

from typing import Annotated

import typer

from dpsep.cli.options import Json, LedgerPath, Quiet, Relation, Rule, Unit
from dpsep.cli.screen import hush

__all__ = ["ledger_app"]

ledger_app = typer.Typer(help="Make a privacy ledger and look at it.", no_args_is_help=True)


@ledger_app.command()
def create(
    path: LedgerPath,
    epsilon: Annotated[
        float, typer.Option(help="Budget of everything that is to be released from the data.")
    ],
    delta: Annotated[float, typer.Option(help="Its delta.")],
    relation: Annotated[Relation, typer.Option(help="Neighbouring data sets.")] = Relation.zero_out,
    rule: Annotated[Rule, typer.Option(help="How charges add up.")] = Rule.sum,
    unit: Annotated[
        Unit, typer.Option(help="Whose budget: each row's, or all rows' of one unit of a schema (group).")
    ] = Unit.record,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a ledger with a budget that cannot be changed later."""
    from dpsep.cli import ledger as work

    hush(quiet)
    work.create(path, epsilon, delta, relation.value, rule.value, unit.value, as_json=as_json)


@ledger_app.command()
def show(path: LedgerPath, as_json: Json = False) -> None:
    """Show what a ledger allows, what is spent and left, and its rows."""
    from dpsep.cli import ledger as work

    work.show(path, as_json=as_json)


@ledger_app.command()
def verify(path: LedgerPath, as_json: Json = False, quiet: Quiet = False) -> None:
    """Check that a ledger is whole and unchanged."""
    from dpsep.cli import ledger as work

    hush(quiet)
    work.verify(path, as_json=as_json)
