"""Rows of a benchmark: how they are made, shown and written.

A row is a dictionary with the keys ``case, who, metric, value, unit, ratio_to, ratio``; others (``sd``,
``n``, ``scaling``, ``relation``, ``note``) may follow. The rows ``about`` name the machine and the versions,
and what could not be measured is a row with the metric ``skipped`` and the reason in ``note``, so that a
document never hides what is missing.
"""

import json
import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dpsep.privacy.checkpoint import atomic_write

Row = dict[str, Any]
"""One line of a benchmark."""
PACKAGES = ("dpsep", "jax", "numpy", "scikit-learn", "diffprivlib", "dp-accounting")


def row(
    case: str,
    who: str,
    metric: str,
    value: float | int | str | None,
    unit: str = "",
    *,
    against: tuple[str, float] | None = None,
    **more: Any,
) -> Row:
    """Return one row.

    Parameters
    ----------
    case, who, metric, value, unit
        What was measured of whom.
    against
        Name and value of what this is compared with; the ratio is the row's value over that value.
    more
        Further keys.

    Examples
    --------
    >>> row("linear/power", "dpsep", "rmse", 4.6, against=("least squares", 4.5))["ratio"]
    1.0222222222222221
    """
    ratio = None
    if against is not None and isinstance(value, int | float) and against[1] != 0:
        ratio = value / against[1]
    out: Row = {"case": case, "who": who, "metric": metric, "value": value, "unit": unit}
    return out | {"ratio_to": None if against is None else against[0], "ratio": ratio} | more


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the standard deviation, the median and the number of repeated measurements.

    Examples
    --------
    >>> spread([1.0, 2.0, 6.0])["median"]
    2.0
    """
    ordered = sorted(values)
    n = len(ordered)
    mean = math.fsum(ordered) / n
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / (n - 1)) if n > 1 else None
    return {"sd": sd, "median": (ordered[(n - 1) // 2] + ordered[n // 2]) / 2, "n": n}


def skipped(case: str, who: str, why: str) -> Row:
    """Return the row of what was not measured, with the reason."""
    return row(case, who, "skipped", None, note=why)


def about(quick: bool) -> list[Row]:
    """Return rows on the machine, the versions and the size of the run."""
    rows = [
        row("about", "machine", "platform", platform.platform()),
        row("about", "machine", "cpus", os.cpu_count(), "cores"),
        row("about", "python", "version", platform.python_version()),
    ]
    for package in PACKAGES:
        try:
            rows.append(row("about", package, "version", version(package)))
        except PackageNotFoundError:
            rows.append(row("about", package, "version", None, note="not installed"))
    rows.append(row("about", "dpsep bench", "size", "quick" if quick else "full"))
    return rows


def render(rows: Sequence[Row]) -> None:
    """Print rows as a table on standard output."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="dpsep bench")
    for name in ("case", "who", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("value", "sd", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("to / note", overflow="fold")
    last = None
    for item in rows:
        if last is not None and item["case"] != last:
            table.add_section()
        last = item["case"]
        remark = item.get("note") or item["ratio_to"] or ""
        value = f"{_number(item['value'])} {item['unit']}".strip()
        sd, ratio = _number(item.get("sd")), _number(item["ratio"])
        table.add_row(item["case"], item["who"], item["metric"], value, sd, ratio, escape(remark))
    console = Console()
    # A file or a pipe has no width of its own; 80 columns would fold every cell.
    (console if console.is_terminal else Console(width=140)).print(table)


def write(rows: Sequence[Row], path: Path) -> None:
    """Write rows as one JSON document; numbers that are not finite become null."""
    clean = [{key: _finite(value) for key, value in item.items()} for item in rows]
    atomic_write(path, json.dumps(clean, indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
