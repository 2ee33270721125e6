"""``dpsep paper``: tables and figures of the paper, as printed, as written, as accounted, and ours."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpsep.shell.errors import CallError
from dpsep.shell.screen import number, print_table, progress, remark

__all__ = ["TABLES", "run"]

Rows = list[dict[str, Any]]
QUICK_SEEDS, QUICK_PASSES = 2, 5
"""Size of a quick run: enough to see that everything works, too small to compare."""


def run(table: str, json_path: Path | None, out: Path | None, seeds: int | None, *, quick: bool) -> None:
    """Make tables and figures, print them, and write all rows to a file if one is named."""
    from dpsep.privacy.checkpoint import atomic_write

    if table not in (*TABLES, "all"):
        raise CallError(f"there is no table {table!r}; there are {', '.join(TABLES)}, or all.")
    if seeds is not None and seeds < 1:
        raise CallError(f"--seeds must be at least 1, not {seeds}.")
    rows: Rows = []
    for name in TABLES if table == "all" else (table,):
        rows += TABLES[name](out, seeds, quick)
    if json_path is not None:
        atomic_write(json_path, json.dumps(rows, indent=2, allow_nan=False) + "\n")


def _accounting(out: Path | None, seeds: int | None, quick: bool) -> Rows:
    from dpsep.paper import accounting

    del out, seeds
    rows = accounting.rows(("mixture",) if quick else None)
    cells = [
        [row["row"], row["source"], row["method"], row["relation"], row["metric"], number(row["mean"])]
        for row in rows
    ]
    header = ["setting", "source", "mechanism", "relation", "metric", "value"]
    print_table("Noise (over the clip) behind the paper's epsilons, delta = 1e-5", header, cells)
    return rows


def _table1(out: Path | None, seeds: int | None, quick: bool) -> Rows:
    from dpsep.paper import table1

    del out
    count = seeds or (QUICK_SEEDS if quick else table1.SEEDS)
    passes = QUICK_PASSES if quick else table1.PASSES
    with progress("Table 1") as report:
        rows = table1.rows(range(count), passes, on_step=report)
    rows = [{key: _plain(value) for key, value in row.items()} for row in rows]
    _print_errors(rows, count)
    _print_pairs(rows)
    if quick:
        remark(
            f"A quick run: {count} data sets and {passes} passes of Algorithm 3. Leave out --quick for all."
        )
    return rows


def _figure1(out: Path | None, seeds: int | None, quick: bool) -> Rows:
    from dpsep.paper import figure1, table1

    del seeds
    path = (out or Path()) / "figure1.png"
    passes = QUICK_PASSES if quick else table1.PASSES
    with progress("Figure 1") as report:
        rows = figure1.draw(path, passes=passes, on_step=report)
    cells = [[row["panel"].replace(r"$\epsilon$", "epsilon"), number(row["average F-norm"])] for row in rows]
    print_table("Figure 1: average F-norm of each panel", ["panel", "average F-norm"], cells)
    remark(f"written: {path}")
    return rows


TABLES: dict[str, Callable[[Path | None, int | None, bool], Rows]] = {
    "accounting": _accounting,
    "table1": _table1,
    "figure1": _figure1,
}
"""What can be made."""


def _print_errors(rows: Rows, count: int) -> None:
    """One line a row and source: the three F-norms by mean and median, the worst, and wrong assignments."""
    lines: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    order = {row["row"]: place for place, row in reversed(list(enumerate(rows)))}
    for row in sorted(rows, key=lambda row: order[row["row"]]):
        if "paired" not in row["metric"]:
            key = (row["row"], row["source"], row["method"], row["relation"])
            lines.setdefault(key, {})[row["metric"]] = row
    cells = []
    for (name, source, method, relation), found in lines.items():
        mean, covariance, average = (found[f"F-norm, {part}"] for part in ("mean", "covariance", "average"))
        right = found.get("F-norm, average, correctly assigned", {}).get("mean")
        wrong = found.get("wrong assignments", {}).get("count")
        label = source if "really" not in method else f"{source}, {method.split(', ')[-1]}"
        figures = [
            mean["mean"],
            covariance["mean"],
            average["mean"],
            average["median"],
            right,
            average["worst"],
        ]
        cells.append([name, label, relation, *map(_figure, figures), "" if wrong is None else str(wrong)])
    header = [
        "row",
        "source",
        "relation",
        "mean part",
        "covariance",
        "average",
        "median",
        "if right",
        "worst",
    ]
    title = f"Table 1: squared F-norm against the labelled posterior, {count} data sets, delta = 1e-5"
    print_table(title, [*header, "wrong"], cells)


def _print_pairs(rows: Rows) -> None:
    pairs = [row for row in rows if "paired" in row["metric"]]
    cells = [
        [row["row"], f"{row['epsilon']:g}", row["relation"], *map(_figure, _interval(row))] for row in pairs
    ]
    header = ["difference of average F-norm", "epsilon", "relation", "mean", "low", "high", "median"]
    print_table("The same data sets, starts, gate and accountant: paired, 95 % interval", header, cells)


def _interval(row: dict[str, Any]) -> Sequence[float | None]:
    return row["mean"], row["low"], row["high"], row["median"]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value
