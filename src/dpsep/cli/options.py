"""Options that several commands share: what they are called, what they take, what their help says."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click
import typer

from dpsep.registry import names

__all__ = [
    "MODELS",
    "Brief",
    "Covariance",
    "Format",
    "Json",
    "JsonFile",
    "LedgerPath",
    "Quiet",
    "Relation",
    "Rule",
    "SchemaFile",
    "Table",
    "TableFormat",
    "Unit",
    "Wait",
]


class Covariance(StrEnum):
    """Variances of a mixture's components: one a column, or one for all."""

    diag = "diag"
    spherical = "spherical"


class Relation(StrEnum):
    """Neighbouring relations."""

    zero_out = "zero-out"
    replace_one = "replace-one"


class Unit(StrEnum):
    """Whose privacy is counted."""

    record = "record"
    group = "group"


class Format(StrEnum):
    """Formats of tables."""

    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"


class Rule(StrEnum):
    """Composition rules of a ledger."""

    sum = "sum"
    rdp = "rdp"


MODELS = click.Choice(("auto", *names()))
"""What ``--model`` takes: regressions, networks, and the mixture."""
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result to a file; - for standard output alone."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")]
Brief = Annotated[bool, typer.Option("--quiet", help="No remarks and no progress bar.")]
Table = Annotated[
    str, typer.Argument(metavar="TABLE", help="CSV, Parquet or Arrow file; - for standard input.")
]
TableFormat = Annotated[
    Format | None,
    typer.Option("--format", help="Of TABLE, where its name and first bytes do not tell."),
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="TOML file that declares the columns.")]
Wait = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for a locked ledger.")]
LedgerPath = Annotated[
    str, typer.Argument(metavar="PATH", help="The ledger's file, or URL (postgresql://...?ledger=NAME).")
]
