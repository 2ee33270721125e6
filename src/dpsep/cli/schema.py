"""``dpsep schema``: a draft of a schema, from the names and types of a table's columns.

A CSV file has no types, so its draft asks for each column's kind. Two options fill in more: ``--epsilon``
finds kinds and bounds privately, ``--look`` reads them off the table.

**Privacy.** By default no cell is looked at: what a draft would read off the table would be published with
the schema. ``--epsilon`` is charged like a fit (`dpsep.cli.ranges`). A draft by ``--look`` is for the
owner's eyes; it says ``looked = true``, of which a private fit warns.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsep.cli.errors import CallError
from dpsep.cli.screen import remark, warn

__all__ = ["draft", "run"]

HEAD = """\
# Draft of a schema: what is public of the table. Fill it in from what you know about the columns (a code
# book, a questionnaire, common sense), not from the values: whatever stands here counts as published.
# - kind: "number" or "category".
# - a number: give bounds, so that no privacy is spent on finding its range; cells beyond are clamped.
# - a category: list every value that it can take; the first is the reference. A yes/no target has "no" first.
# - missing cells: their records count for nothing, or say missing = { fill = VALUE } or, of a category,
#   missing = "category".
# - remove the columns that are not to be used.
"""
LOOKED = """\
# NOT PRIVATE: kinds, bounds and categories below were read off the table. Put what you know in their place
# and take the next line out; while it stands, a private fit warns that they count as published.
looked = true
"""
WHICH = '# "number" and bounds = [LOWEST, HIGHEST], or "category" and categories = ["A", "B"]'
MOST_VALUES = 30
"""Of a text column with more different values than this, a draft by looking lists none."""


def run(
    table: str,
    out: Path | None,
    target: str | None,
    *,
    format: str | None = None,
    look: bool = False,
    epsilon: float | None = None,
    delta: float = 1e-6,
    ledger: str | None = None,
    wait: float = 30.0,
) -> None:
    """Draft a schema and print it, or write it to a file that does not exist yet."""
    from dpsep.data import read_structure, read_table
    from dpsep.data.files import find_source
    from dpsep.privacy.checkpoint import atomic_write

    if out is not None and out.exists():
        raise CallError(f"{out} exists already and is left as it is; name another file, or remove it first.")
    if look and epsilon is not None:
        raise CallError("--look reads values off the table and --epsilon finds them privately; choose one.")
    if ledger is not None and epsilon is None:
        raise CallError(
            "a draft from names and types spends no budget; leave --ledger out, or add --epsilon."
        )
    source = find_source(table)
    types = read_structure(source, format)
    _check_target(target, list(types))
    head, found = HEAD, {}
    if look:
        head, found = HEAD + LOOKED, _looked(read_table(source, format))
        warn(
            "outside the privacy guarantee: the draft holds values of the table. It is for the data's owner; "
            "put what you know in their place before you fit."
        )
    elif epsilon is not None:
        from dpsep.cli.ranges import find_ranges

        head, found = find_ranges(source, format, types, epsilon, delta, ledger, wait)
        head = HEAD + head
    text = draft(types, target, head=head, found=found)
    if out is None:
        print(text, end="")
        return
    atomic_write(out, text)
    unknown = any(line in text for line in ('kind = "?"', "categories = []"))
    remark(
        f"Wrote {out}. {'Fill in what is marked' if unknown else 'Look it over'}; 'dpsep check {table} "
        f"--schema {out}' then shows you, and nobody else, which cells do not fit it. Next: dpsep fit "
        f"{table} --schema {out} ..."
    )


def draft(
    types: Mapping[str, Any],
    target: str | None = None,
    *,
    head: str = HEAD,
    found: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """Return TOML text with one table a column.

    Parameters
    ----------
    types
        The columns' types, None where a file declares none.
    target
        The column that is to be predicted.
    head
        What stands above.
    found
        Of some columns what is known besides their type: ``kind``, ``bounds``, ``categories``.

    Examples
    --------
    >>> import polars as pl
    >>> text = draft({"age": pl.Int64(), "ward": None})
    >>> print(text[text.index("[[columns]]"):])
    [[columns]]
    name = "age"
    kind = "number"
    # bounds = [LOWEST, HIGHEST]
    <BLANKLINE>
    [[columns]]
    name = "ward"
    kind = "?"  # "number" and bounds = [LOWEST, HIGHEST], or "category" and categories = ["A", "B"]
    <BLANKLINE>
    """
    _check_target(target, list(types))
    lines = [head]
    lines.append(f"target = {_text(target)}" if target else '# target = "COLUMN"')
    lines.append('# unit = "COLUMN"  # whose rows belong together, if one person can have several')
    for name, kind in types.items():
        lines += [
            "",
            "[[columns]]",
            f"name = {_text(name)}",
            *_declaration(kind, (found or {}).get(name, {})),
        ]
    return "\n".join(lines) + "\n"


def _declaration(type_: Any, known: Mapping[str, Any]) -> list[str]:
    """Lines that declare a column by its type and by what is known besides."""
    kind, categories = known.get("kind"), known.get("categories")
    if kind is None and type_ is not None:
        import polars as pl

        kind = "number" if type_.is_numeric() or type_ == pl.Null else "category"
        if type_ == pl.Boolean:
            categories = ["false", "true"]
    if kind is None:
        return [
            'kind = "?"  # "number" and bounds = [LOWEST, HIGHEST], or "category" and categories = ["A", "B"]'
        ]
    if kind == "number":
        bounds = known.get("bounds")
        return ['kind = "number"', f"bounds = {_text(bounds)}" if bounds else "# bounds = [LOWEST, HIGHEST]"]
    if categories:
        return ['kind = "category"', f"categories = {_text(categories)}"]
    return ['kind = "category"', "categories = []  # list every value that it can take"]


def _looked(frame: Any) -> dict[str, dict[str, Any]]:
    """Read kinds, bounds and categories off a table's values."""
    import polars as pl

    from dpsep.data.declare import NA

    found: dict[str, dict[str, Any]] = {}
    for name in frame.columns:
        series = frame[name].drop_nulls()
        if series.dtype.is_numeric():
            series = series.cast(pl.Float64)
            finite = series.filter(series.is_finite())
            low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
            found[name] = {"kind": "number"} | ({"bounds": [low, high]} if low < high else {})
        elif series.dtype.to_python() is str:
            values = sorted({value.strip() for value in series.unique().to_list()} - {*NA})
            found[name] = {"kind": "category", "categories": values if len(values) <= MOST_VALUES else []}
    return found


def _check_target(target: str | None, names: list[str]) -> None:
    from dpsep.data.frames import unknown_column

    if target is not None and target not in names:
        raise CallError(unknown_column(target, names))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
