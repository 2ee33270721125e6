"""``dpsep paper``: tables of the paper beside what its algorithm as written costs and what ours does."""

import json
from pathlib import Path

from dpsep.shell.errors import CallError
from dpsep.shell.screen import number, print_table

__all__ = ["TABLES", "run"]

TABLES = ("accounting",)
"""The tables that can be made."""


def run(table: str, json_path: Path | None) -> None:
    """Print a table, and write its rows to a file if one is named."""
    from dpsep.paper import accounting
    from dpsep.privacy.checkpoint import atomic_write

    if table not in (*TABLES, "all"):
        raise CallError(f"there is no table {table!r}; there are {', '.join(TABLES)}, or all.")
    rows = accounting.rows()
    if json_path is not None:
        atomic_write(json_path, json.dumps(rows, indent=2) + "\n")
    cells = [
        [row["row"], row["source"], row["method"], row["relation"], row["metric"], number(row["mean"])]
        for row in rows
    ]
    header = ["setting", "source", "mechanism", "relation", "metric", "value"]
    print_table("Noise (over the clip) behind the paper's epsilons, delta = 1e-5", header, cells)
