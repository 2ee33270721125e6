"""Output of the commands: results on standard output, remarks and progress on standard error.

Progress bars appear on a terminal only. Tables are as wide as they need to be, so that a pipe gets whole
lines.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["number", "print_json", "print_table", "progress", "remark", "warn"]

Report = Callable[[int, int], None]


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2))


def remark(message: str, *, quiet: bool = False) -> None:
    """Say something that is not the result."""
    if not quiet:
        print(message, file=sys.stderr)


def warn(message: str) -> None:
    """Say something that must not be missed; ``--quiet`` does not hide it."""
    print(f"dpsep: warning: {message}", file=sys.stderr)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output, its first column to the left and the others to the right."""
    look = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
    table = Table(title=Text(title), title_justify="left", title_style="bold", **look)
    for place, name in enumerate(header):
        table.add_column(Text(name), justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    needed = Console(width=1000).measure(table).maximum  # a narrow window wraps lines; cells are never cut
    console = Console(highlight=False)
    if console.width < needed:
        console = Console(highlight=False, width=needed)
    console.print(table)


@contextlib.contextmanager
def progress(label: str, *, quiet: bool = False) -> Iterator[Report]:
    """Show a bar while the block runs and yield what an estimator's ``on_step`` takes.

    The number of releases is public and the same for any data, so the bar tells nothing of records.
    """
    show = not quiet and sys.stderr.isatty()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not show) as bar:
        task = bar.add_task(label, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report


def number(value: float) -> str:
    """Write a number with four significant digits.

    Examples
    --------
    >>> number(-0.05312), number(1234.6), number(0.0)
    ('-0.05312', '1235', '0')
    """
    return f"{value:.4g}"


def interval(row: Mapping[str, Any]) -> str:
    """Write a summary row as mean and interval.

    Examples
    --------
    >>> interval({"mean": 0.5, "low": 0.25, "high": 0.75})
    '0.500 [0.250, 0.750]'
    """
    return f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
