"""The reference of the command line, written from the commands themselves.

Nothing is copied by hand: names, arguments, options, defaults and help are what `dpsep.cli.commands`
declares.
"""

import click
from typer.main import get_command

from dpsep.cli.commands import app

__all__ = ["PROGRAM", "commands", "reference"]

PROGRAM = "dpsep"


def commands() -> list[tuple[str, click.Command]]:
    """Return every command by its full name, a group before its commands."""
    return _below(PROGRAM, get_command(app))


def _below(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    found = [(name, command)]
    for inner in getattr(command, "commands", {}).values():
        if not inner.hidden:
            found += _below(f"{name} {inner.name}", inner)
    return found


def reference() -> str:
    """Return one section of Markdown for every command."""
    return "\n\n".join(_section(name, command) for name, command in commands())


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"## `{name}`", (command.help or "").strip(), f"```text\n{usage}\n```"]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    inner = getattr(command, "commands", {})
    if inner:
        rows = [(f"[`{name} {one}`](#{_anchor(f'{name} {one}')})", inner[one].help or "") for one in inner]
        parts.append(_table("command", rows))
    if arguments:
        # Typer keeps the help of an argument beside it; click has none.
        rows = [(f"`{one.make_metavar(context)}`", getattr(one, "help", "") or "") for one in arguments]
        parts.append(_table("argument", rows))
    if options:
        parts.append(_table("option", [(_names(one, context), _told(one)) for one in options]))
    return "\n\n".join(part for part in parts if part)


def _names(option: click.Option, context: click.Context) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _told(option: click.Option) -> str:
    """Return what an option's help says, whether it must be given, and its default."""
    told = (option.help or "").strip()
    default = option.default
    if option.required:
        told += " Required."
    elif default is not None and default is not False and default != () and not callable(default):
        told += f" Default: `{getattr(default, 'value', default)}`."
    return told


def _table(head: str, rows: list[tuple[str, str]]) -> str:
    cells = [tuple(" ".join(cell.split()).replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join([f"| {head} | what it does |", "|---|---|", *(f"| {a} | {b} |" for a, b in cells)])


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
