"""Output of the commands: results on standard output, remarks and progress on standard error.

Progress bars appear on a terminal only, with the time that is left. Tables are as wide as they need to be, so
that a pipe gets whole lines. ``--quiet`` leaves out all but warnings, errors and what a command was asked to
print (`hush`).
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = [
    "STANDARD_OUTPUT",
    "hush",
    "is_quiet",
    "number",
    "print_json",
    "print_table",
    "progress",
    "remark",
    "say",
    "warn",
    "write_json",
]

Report = Callable[[int, int], None]
STANDARD_OUTPUT = Path("-")
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def hush(quiet: bool, json_path: Path | None = None) -> None:
    """Say whether this call leaves out remarks, progress, tables and text.

    Parameters
    ----------
    quiet
        What ``--quiet`` says.
    json_path
        Of ``--json FILE``; where it is standard output, nothing else may be printed there.
    """
    _quiet.set(quiet or json_path == STANDARD_OUTPUT)


def is_quiet() -> bool:
    """Say whether this call leaves out all but warnings and errors."""
    return _quiet.get()


def say(text: str = "", *, end: str = "\n") -> None:
    """Print text of a result on standard output, unless the call is quiet."""
    if not _quiet.get():
        print(text, end=end)


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2))


def write_json(document: Any, path: Path) -> None:
    """Write one JSON document to a file, whole or not at all; ``-`` is standard output."""
    from dpsep.privacy.checkpoint import atomic_write

    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if path == STANDARD_OUTPUT:
        print(text, end="")
    else:
        atomic_write(path, text)
        remark(f"Wrote {path}.")


def remark(message: str, *, always: bool = False) -> None:
    """Say something that is not the result; in a quiet call only what must not be missed."""
    if always or not _quiet.get():
        print(message, file=sys.stderr)


def warn(message: str) -> None:
    """Say something that must not be missed; ``--quiet`` does not hide it."""
    print(f"dpsep: warning: {message}", file=sys.stderr)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output, its first column to the left and the others to the right.

    A call that is quiet prints none.
    """
    if _quiet.get():
        return
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
def progress(
    label: str, *, hidden: bool = False, note: Callable[[int], str] | None = None
) -> Iterator[Report]:
    """Show a bar while the block runs and yield what an estimator's ``on_step`` takes.

    Until the first report the bar only shows that work goes on. The number of releases is public and the same
    for any data, so the bar tells nothing of records.

    Parameters
    ----------
    label
        What is being done.
    hidden
        Show nothing, as on what is no terminal.
    note
        Words behind the bar, given the number of steps done; asked for only where they are shown.
    """
    show = not hidden and not _quiet.get() and sys.stderr.isatty()
    words, bar = TextColumn("{task.fields[words]}", markup=False), BarColumn(bar_width=24)
    columns = (TextColumn("{task.description}", markup=False), bar, TimeElapsedColumn(), words)
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not show) as shown:
        task = shown.add_task(label, total=None, words="")

        def report(done: int, total: int) -> None:
            if not show:
                return
            shown.update(task, completed=done, total=total)
            parts = [f"{done}/{total}", _time_left(shown.tasks[task].time_remaining)]
            if note is not None:
                parts.append(note(done))
            shown.update(task, words=" · ".join(part for part in parts if part))

        yield report


def _time_left(seconds: float | None) -> str:
    """Write how long something will take, roughly.

    Examples
    --------
    >>> _time_left(8.2), _time_left(61), _time_left(7200), _time_left(None)
    ('8 s left', '1 min left', '2.0 h left', '')
    """
    if not seconds:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 3600 else f"{seconds / 3600:.1f} h left"


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
