"""Tables in, and their declared structure.

`read_table` reads a file, a `Schema` declares what is public of it, `encode` makes a design matrix of the
two, and `check_table` looks for what is wrong with the values, for the owner's eyes only. `scan` opens a
table that is larger than memory.
"""

from dpsep.data.check import Finding, check_table, render_findings
from dpsep.data.frames import TableError, as_frame
from dpsep.data.large import LargeTable, scan
from dpsep.data.schema import (
    Column,
    Schema,
    SchemaError,
    encode,
    encode_target,
    encoded_bounds,
)
from dpsep.data.table import as_matrix, check_types, read_structure, read_table

__all__ = [
    "Column",
    "Finding",
    "LargeTable",
    "Schema",
    "SchemaError",
    "TableError",
    "as_frame",
    "as_matrix",
    "check_table",
    "check_types",
    "encode",
    "encode_target",
    "encoded_bounds",
    "read_structure",
    "read_table",
    "render_findings",
    "scan",
]
