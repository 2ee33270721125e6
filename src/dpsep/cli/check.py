"""``dpsep check``: what is wrong with a table's values, for its owner's eyes.

**Privacy.** What it prints is not private, and it says so first; nothing of it reaches a fit.
"""

from dataclasses import asdict
from pathlib import Path

from dpsep.cli.screen import print_json, progress

__all__ = ["run"]


def run(table: str, schema: Path | None, *, format: str | None = None, as_json: bool = False) -> None:
    """Print what `dpsep.data.check_table` finds."""
    from dpsep.data import Schema, check_table, read_table, render_findings
    from dpsep.data.check import check_lines
    from dpsep.data.files import find_source
    from dpsep.data.table import settled_format

    declared = None if schema is None else Schema.read(schema)
    source = find_source(table)
    # Read as it stands: columns that the schema declares and the table lacks are findings too.
    with progress("reading the table", hidden=as_json):
        if settled_format(source, format) == "csv":
            found = check_lines(source, declared)
        else:
            found = check_table(read_table(source, format), declared)
    if as_json:
        print_json({"private": False, "findings": [asdict(item) for item in found]})
    else:
        print(render_findings(found))
