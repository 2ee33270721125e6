"""Small tables and calls of the command line, shared by the tests of this room."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from click.testing import Result
from typer.testing import CliRunner

from dpsep.cli.commands import app
from dpsep.data.later import read_now

BOUNDED = ("--bounds", "a=-1:1", "--bounds", "b=-1:1", "--bounds", "y=-4:4")


def call(*arguments: Any) -> Result:
    """Run the command line in this process; standard output and error are kept apart."""
    return CliRunner().invoke(app, [str(part) for part in arguments])


def assert_refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("dpsep: error: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in last


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def with_cells(inputs: Any, features: pl.DataFrame, target: Any) -> Any:
    """What an estimator takes, with other cells in it."""
    cells = [None if cell == "" else cell for cell in target] if inputs.classes else target
    table = read_now(features.with_columns(pl.Series("the target", cells)), "changed")
    return inputs._replace(features=table[features.columns], target=table["the target"])


def columns(rows: int = 400) -> dict[str, Any]:
    """A number, a label, a count and a cost that depend on two features, and a text column that does not."""
    rng = np.random.default_rng(5)
    a, b = rng.uniform(-1, 1, (2, rows)).round(4)
    return {
        "a": a,
        "b": b,
        "y": (1 + a - 2 * b + 0.1 * rng.standard_normal(rows)).round(5),
        "ill": np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-4 * a)), "yes", "no"),
        "visits": rng.poisson(np.exp(0.5 + a)),
        "sex": rng.choice(["F", "M"], rows),
        "cost": rng.exponential(np.exp(0.5 + a)),
    }


def some(names: str, rows: int = 400) -> dict[str, Any]:
    return {name: columns(rows)[name] for name in names.split()}
