"""What the laboratory, a distribution of its own (`dpsep-lab`), adds to the command line.

The library does not know it: its parts register as entry points of the group ``dpsep.lab``. ``bench`` and
``paper`` are commands; ``controls`` and ``matrix`` more work for ``dpsep audit``; ``survey`` public tables.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from dpsep.cli.errors import CallError

__all__ = ["add_commands", "part"]

GROUP = "dpsep.lab"
COMMANDS = {
    "bench": "Measure this package against others.",
    "paper": "Reproduce a table or figure of the paper: printed, as written, as accounted, ours.",
}


def part(name: str, asked: str) -> Any:
    """Return a part of the laboratory.

    Parameters
    ----------
    name
        Of the entry point.
    asked
        What the user asked for, for the message where the laboratory is not installed.
    """
    for found in entry_points(group=GROUP, name=name):
        return found.load()
    raise CallError(
        f"{asked} is part of the laboratory, which is not installed here: pip install dpsep-lab "
        "(from a checkout: pip install ./lab)."
    )


def add_commands(app: typer.Typer) -> None:
    """Add the laboratory's commands; where it is missing, each says how to install it."""
    for name, help_text in COMMANDS.items():
        found = any(entry_points(group=GROUP, name=name))
        command = part(name, name) if found else _missing(name)
        settings = None if found else {"ignore_unknown_options": True}
        app.command(name, help=help_text, context_settings=settings)(command)


def _missing(name: str) -> Callable[..., None]:
    def command(rest: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        part(name, f"'dpsep {name}'")

    return command
