"""``--memory``: tables that a fit reads as it goes, within so many bytes.

A Parquet or an Arrow file, or a folder of Parquet files, is opened by its metadata (`dpsep.data.scan`), and
rows are encoded by the schema as they are read (`dpsep.data.large_encoded`).

**Privacy.** Options, names, types and the number of rows; no cell is looked at here.
"""

import math
import re
from pathlib import Path

from dpsep.cli.errors import CallError
from dpsep.data import LargeTable, Schema, TableError, scan
from dpsep.data.files import find_source

__all__ = ["open_large", "parse_size", "refuse_whole"]

UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
"""Bytes of each unit, by its name in small letters."""
LEAST = 2**20


def parse_size(text: str) -> int:
    """Return bytes of a size such as ``500MB`` or ``2GiB``.

    Examples
    --------
    >>> parse_size("1.5 GB"), parse_size("2GiB")
    (1500000000, 2147483648)
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", text.lower())
    size = float(found[1]) * UNITS.get(found[2], math.nan) if found else math.nan
    if not LEAST <= size < 2**60:
        raise CallError(
            f"--memory {text} is no size; give a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB behind it, "
            "at least 1MiB, such as 500MB or 2GiB."
        )
    return int(size)


def open_large(table: str, format: str | None, memory: int) -> LargeTable:
    """Open a table whose rows are to be read as they are needed."""
    if table == "-":
        raise CallError(
            "--memory reads the table's rows again and again, which standard input does not allow; name a "
            "file, or leave --memory out."
        )
    path = Path(table)
    kind = "parquet" if path.is_dir() else format
    if kind is None:
        kind = None if path.suffix.lower() == ".gz" else find_source(table).format
    if kind not in ("parquet", "arrow"):
        raise CallError(
            f"--memory is for Parquet and Arrow files, whose rows can be read in pieces, and {table} is none "
            "of them. Write it as Parquet once, for example with polars: "
            "pl.scan_csv(PATH).sink_parquet(NEW); or leave --memory out."
        )
    found = scan(path, memory=memory, format=kind)
    if not len(found):
        raise TableError(f"{found.label} has a header but no rows")
    return found


def refuse_whole(schema: Schema, unit: str | None, *, labelled: bool) -> None:
    """Refuse what needs all rows at once: effects by unit, and labels that nobody declared."""
    if unit is not None:
        raise CallError(
            f"effects by {schema.unit!r} need all rows of a unit together, so --memory cannot be used with "
            "them; leave it out, or take 'unit' out of the schema for a model without such effects."
        )
    if labelled and schema[str(schema.target)].categories in (None, ("?",)):
        raise CallError(
            f"the classes of {schema.target!r} are not declared, and with --memory they are not read off the "
            "table; declare them with --classes NEGATIVE,POSITIVE."
        )
