"""All code of the documentation runs, and every call of `dpsep` in it is one that the command line knows.

A page's ```python blocks are run in order, in one namespace and an empty folder. What a page leaves to the
reader to imagine (a table, its bounds) is in comments ``<!-- setup ... -->``, run where they stand.
Tutorials, whose cells show something and may be of the shell, are run by tests/tutorials.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from tools.docs.fences import fences, reason_not_run
from typer.main import get_command

from dpsep.cli.commands import app
from dpsep.registry import ENTRIES, regressions

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SETUP = re.compile(r"^<!-- setup\n(.*?)\n-->$", re.DOTALL | re.MULTILINE)
SHELL = ("console", "bash", "sh")
BEFORE = {"do", "then", "else", "if", "while", "time", "!", "nice"}
"""Words of the shell that a command may follow."""
ENDS = {"|", "||", "&&", ";", "&", "(", ")"}
INTO = re.compile(r"[0-9]*[<>]+&?[0-9]*")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_tutorial(page: Path) -> bool:
    return page.parent.name == "tutorials"


def code_of(text: str) -> list[tuple[int, str]]:
    """Return what is to be run of a page, in order, with the line where it starts."""
    blocks = [
        (fence.first + 2, fence.code)
        for fence in fences(text)
        if fence.language == "python" and reason_not_run(fence.code) is None
    ]
    setups = [(text.count("\n", 0, found.start()) + 2, found[1]) for found in SETUP.finditer(text)]
    return sorted(blocks + setups) if blocks else []


WITH_CODE = [page for page in PAGES if not is_tutorial(page) and code_of(page.read_text("utf-8"))]


def calls(block: str, *, prompts: bool) -> list[list[str]]:
    """Return the arguments of every call of dpsep in a block of shell commands."""
    lines = block.replace("\\\n", " ").splitlines()
    if prompts:
        lines = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
    found = []
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in ENDS:
                words.append(word)
                continue
            while words and (words[0] in BEFORE or re.fullmatch(r"\w+=.*", words[0])):
                words = words[1:]
            if words and words[0] == "dpsep":
                found.append(_without_redirections(words[1:]))
            words = []
    return found


def _without_redirections(words: list[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif INTO.fullmatch(word):
            skip = "&" not in word
        elif not INTO.match(word):
            kept.append(word)
    return kept


def parser() -> click.Command:
    """Return the command line with commands that do nothing: calls are parsed, and that is all."""
    top = get_command(app)

    def empty(command: click.Command) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            command.callback = None
        else:
            for one in inner.values():
                empty(one)

    empty(top)
    return top


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if not is_tutorial(page) and code_of(page.read_text("utf-8"))],
    ids=name_of,
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "__page__"}
    try:
        for line, code in code_of(page.read_text("utf-8")):
            # Empty lines before the code, so that an error names the line of the page.
            exec(compile("\n" * (line - 1) + code, name_of(page), "exec"), names)
    finally:
        import matplotlib.pyplot as plt

        plt.close("all")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_call_of_the_command_line_is_one_that_it_knows(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for fence in fences(page.read_text("utf-8")):
        if fence.language not in SHELL:
            continue
        for arguments in calls(fence.code, prompts=fence.language == "console"):
            try:
                parser().main(arguments, prog_name="dpsep", standalone_mode=False)
            except click.ClickException as error:
                wrong.append(f"line {fence.first + 1}: dpsep {' '.join(arguments)}: {error.format_message()}")
    assert wrong == []


def test_a_call_that_the_command_line_does_not_know_is_found() -> None:
    block = (
        "$ X=1 dpsep fit a.csv --out run --colour red | tee b  # dpsep nothing\n$ cat a | dpsep ledger shew x"
    )
    first, second = calls(block, prompts=True)
    assert first == ["fit", "a.csv", "--out", "run", "--colour", "red"]
    for arguments in (first, second):
        with pytest.raises(click.UsageError):
            parser().main(arguments, prog_name="dpsep", standalone_mode=False)
    assert calls("dpsep predict run a.csv > out.csv 2>&1 && \\\n  dpsep --version", prompts=False) == [
        ["predict", "run", "a.csv"],
        ["--version"],
    ]


def test_blocks_that_are_not_run_say_why() -> None:
    reasons = {
        (name_of(page), reason)
        for page in PAGES
        for fence in fences(page.read_text("utf-8"))
        if (reason := reason_not_run(fence.code)) is not None
    }
    assert all(len(reason) > 10 for _, reason in reasons)


def test_the_page_on_large_tables_names_every_estimator() -> None:
    page = (ROOT / "docs" / "large.md").read_text("utf-8")
    assert [
        entry.kind for entry in ENTRIES if not entry.is_regression and f"`{entry.kind}`" not in page
    ] == []
    assert [entry.name for entry in regressions() if entry.name not in page.lower()] == []
