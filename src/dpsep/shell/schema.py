"""``dpsep schema``: a draft of a schema, from the names and types of a table's columns.

**Privacy.** Values are looked at only where a file has no types of its own (CSV), and then only to tell
numbers from text. Bounds and categories are left to be filled in: what a draft would read off the table would
be published with the schema.
"""

import json
from pathlib import Path
from typing import Any

from dpsep.shell.errors import CallError
from dpsep.shell.screen import remark

__all__ = ["draft", "run"]

HEAD = """\
# Draft of a schema: what is public of the table. Fill it in from what you know about the columns (a code
# book, a questionnaire, common sense), not from the values: whatever stands here counts as published.
# - a number: give bounds, so that no privacy is spent on finding its range; cells beyond are clamped.
# - a category: list every value that it can take; the first is the reference. A yes/no target has "no" first.
# - remove the columns that are not to be used.
"""


def run(table: str, out: Path | None, target: str | None) -> None:
    """Draft a schema and print it, or write it to a file that does not exist yet."""
    from dpsep.data import read_table
    from dpsep.privacy.checkpoint import atomic_write

    if out is not None and out.exists():
        raise CallError(f"{out} exists already and is left as it is; name another file, or remove it first.")
    text = draft(read_table(table), target)
    if out is None:
        print(text, end="")
        return
    atomic_write(out, text)
    remark(f"Wrote {out}. Fill in bounds and categories, then: dpsep fit {table} --schema {out} ...")


def draft(frame: Any, target: str | None = None) -> str:
    """Return TOML text with one table a column.

    Examples
    --------
    >>> import polars as pl
    >>> text = draft(pl.DataFrame({"age": [41], "sex": ["M"]}))
    >>> print(text[text.index("[[columns]]"):])
    [[columns]]
    name = "age"
    kind = "number"
    # bounds = [LOWEST, HIGHEST]
    <BLANKLINE>
    [[columns]]
    name = "sex"
    kind = "category"
    categories = []  # list every value that it can take
    <BLANKLINE>
    """
    import polars as pl

    from dpsep.data.frames import unknown_column

    if target is not None and target not in frame.columns:
        raise CallError(unknown_column(target, frame.columns))
    lines = [HEAD]
    lines.append(f"target = {json.dumps(target, ensure_ascii=False)}" if target else '# target = "COLUMN"')
    for name, kind in frame.schema.items():
        lines += ["", "[[columns]]", f"name = {json.dumps(name, ensure_ascii=False)}"]
        if kind == pl.Boolean:
            lines += ['kind = "category"', 'categories = ["false", "true"]']
        elif kind.is_numeric() or kind == pl.Null:
            lines += ['kind = "number"', "# bounds = [LOWEST, HIGHEST]"]
        else:
            lines += ['kind = "category"', "categories = []  # list every value that it can take"]
    return "\n".join(lines) + "\n"
