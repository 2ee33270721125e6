"""``dpsep paper table2`` to ``table9``: the network tables on the screen, in Markdown and in JSON.

One line for each set, row of the table and relation; what is printed in the paper, Algorithm 3 as written and
as accounted, and ours stand side by side.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpsep.cli.screen import print_table, progress, remark, warn
from dpsep_lab.paper.fits import Store

__all__ = ["run"]

Rows = list[dict[str, Any]]
SOURCES = ("printed", "as written", "as accounted", "ours")
TITLES = {
    "table2": "Table 2: the data sets",
    "table3": "Table 3: test RMSE at epsilon = 1, delta = 1e-5",
    "table4": "Table 4: test log-likelihood at epsilon = 1, delta = 1e-5",
    "table5": "Table 5: test RMSE of point estimates",
    "table6": "Table 6: settings of VI",
    "table7": "Table 7: settings of DP-VI, and the epsilon at delta = 1e-5 that they give",
    "table8": "Table 8: test RMSE of DP-SEP by clip, epsilon = 1, delta = 1e-5",
    "table9": "Table 9: test log-likelihood of DP-SEP by clip, epsilon = 1, delta = 1e-5",
}


def run(
    table: str,
    datasets: Sequence[str] | None,
    splits: int | None,
    store: Store,
    out: Path | None,
    *,
    quick: bool,
) -> Rows:
    """Make one of the tables, print it, and write it to the folder if one is named."""
    from dpsep_lab.paper import tables2to9

    if out is None and not quick and table in tables2to9.SPLITS:
        remark("This takes long. With --out FOLDER finished fits are kept, and a stopped run goes on there.")
    with progress(TITLES[table].split(":")[0]) as report:
        rows = tables2to9.rows(table, datasets, splits, quick=quick, store=store, on_step=report)
    cells = _cells(rows)
    header = ["data set", "row", "relation", *SOURCES]
    print_table(TITLES[table], header, cells)
    pairs = _pairs(rows)
    if pairs:
        print_table(PAIRED, PAIR_HEADER, pairs)
    for text in _skips(rows):
        warn(text)
    if quick and any("quick" in row for row in rows):
        remark("A quick run: few records, passes and steps. Leave out --quick for all.")
    if out is not None:
        _write(table, out, rows, header, cells, pairs)
    return rows


PAIRED = "DP-SEP minus DP-VI, both ours, on the same splits: paired, 95 % interval"
PAIR_HEADER = ["data set", "relation", "mean", "low", "high", "splits"]


def _cells(rows: Rows) -> list[list[str]]:
    """One line for each set, row, relation and scaling, with one cell a source."""
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in _grouped(rows):
        relation = "" if row["relation"] == "none" else row["relation"]
        if row.get("scaling") == "private":
            relation += ", private scaling"
        key = (row["dataset"], row["row"], relation)
        lines.setdefault(key, {})[row["source"]] = _figure(row)
    return [[*key, *(found.get(source, "") for source in SOURCES)] for key, found in lines.items()]


def _grouped(rows: Rows) -> Rows:
    """Rows in the order in which their set and their row first come up, without differences."""
    order: dict[tuple[str, str], int] = {}
    for row in rows:
        order.setdefault((row["dataset"], row["row"]), len(order))
    sets = {name: place for place, name in enumerate(dict.fromkeys(row["dataset"] for row in rows))}
    kept = [row for row in rows if "paired" not in row["metric"]]
    return sorted(kept, key=lambda row: (sets[row["dataset"]], order[row["dataset"], row["row"]]))


def _pairs(rows: Rows) -> list[list[str]]:
    return [
        [
            row["dataset"],
            row["relation"],
            *map(_number, (row["mean"], row["low"], row["high"])),
            str(row["n"]),
        ]
        for row in rows
        if "paired" in row["metric"]
    ]


def _figure(row: dict[str, Any]) -> str:
    """Mean and deviation of a row, with what went wrong."""
    text = _number(row["mean"])
    if row["sd"] is not None:
        text += f" ± {row['sd']:.2g}"
    if row.get("diverged"):
        text += f" ({row['diverged']} diverged)"
    return "skipped" if "skipped" in row and row["mean"] is None else text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"


def _skips(rows: Rows) -> list[str]:
    """What was left out, and why, each once."""
    found = {}
    for row in rows:
        if "skipped" in row:
            name = row["dataset"] if row["row"] == "all" else f"{row['row']} on {row['dataset']}"
            found[f"{name} was left out: {row['skipped']}"] = None
    return list(found)


def _write(
    table: str, out: Path, rows: Rows, header: Sequence[str], cells: list[list[str]], pairs: list[list[str]]
) -> None:
    from dpsep.privacy.checkpoint import atomic_write

    parts = [f"# {TITLES[table]}", _markdown(header, cells)]
    if pairs:
        parts += [PAIRED + ".", _markdown(PAIR_HEADER, pairs)]
    parts += [f"- {text}" for text in _skips(rows)]
    if any("quick" in row for row in rows):
        parts.append("A quick run: not to be compared.")
    out.mkdir(parents=True, exist_ok=True)
    atomic_write(out / f"{table}.md", "\n\n".join(parts) + "\n")
    atomic_write(out / f"{table}.json", json.dumps(rows, indent=2, allow_nan=False) + "\n")
    remark(f"written: {out / f'{table}.md'} and {out / f'{table}.json'}")


def _markdown(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *cells]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
