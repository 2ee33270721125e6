"""A tutorial's cells, run in order in this process: what a notebook does, without the price of a kernel."""

import ast
import io
import subprocess
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pytest
from tools.docs.execute import environment, plain
from tools.docs.fences import Fence, cells


class Shown(NamedTuple):
    """What a cell printed and returned, and how many pictures it left."""

    cell: Fence
    text: str
    pictures: int


def run(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Shown]:
    """Run a page's cells in an empty folder, and return what each showed; raise where one fails."""
    scratch, own = folder / "work", folder / "own"
    scratch.mkdir()
    own.mkdir()
    monkeypatch.chdir(scratch)
    # A loader of data sets refuses a folder that is not there, before it asks a cache or a server.
    monkeypatch.setenv("DPSEP_DATA", str(folder / "no data"))
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("Agg")
    names: dict[str, Any] = {"__name__": "__page__"}
    shown = []
    try:
        for cell in cells(path.read_text("utf-8")):
            text = _python(cell, path, names) if cell.language == "python" else _bash(cell, scratch, own)
            shown.append(Shown(cell, plain(text, scratch), _pictures()))
    finally:
        plt.close("all")
    return shown


def _python(cell: Fence, path: Path, names: dict[str, Any]) -> str:
    """Run a cell, and return what it printed and the value of its last line."""
    # Empty lines before the code, so that an error names the line of the page.
    tree = ast.parse("\n" * (cell.first + 1) + cell.code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed), warnings.catch_warnings():
        exec(compile(tree, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
            if value is not None:
                print(repr(value), getattr(value, "_repr_html_", str)())
    return printed.getvalue()


def _bash(cell: Fence, scratch: Path, own: Path) -> str:
    """Run a cell in a shell that stops at the first command that fails."""
    command = ["bash", "-e", "-o", "pipefail", "-c", cell.code]
    done = subprocess.run(
        command, cwd=scratch, env=environment(own), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{cell.code}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def _pictures() -> int:
    """Draw and close the pictures that a cell left, and return how many there were."""
    numbers = plt.get_fignums()
    for number in numbers:
        plt.figure(number).savefig(io.BytesIO())
    plt.close("all")
    return len(numbers)
