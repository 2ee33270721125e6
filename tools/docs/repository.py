"""Links from pages to files of the repository that are no pages: the site shows those files, too.

On a code host such links work as they stand. For the site each file that is linked becomes a page below
``repository/``, Markdown as Markdown and all else as code, and the links are turned to them. The page of
claims quotes sentences of the README word for word, links included: they are read as seen from the root.
"""

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from tools.docs.fences import fences

__all__ = ["ALWAYS", "home", "linked_files", "page_of", "turned"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ALWAYS = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDER = "repository"
QUOTING = ("claims.md",)
"""Pages that quote files of the root."""
LINK = re.compile(r"(?<!\\)\]\((?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".js": "javascript", ".yml": "yaml"}


def home(uri: str) -> Path:
    """Return the folder that a page's links start from, of pages made here that of the file they show."""
    if uri.startswith(f"{FOLDER}/"):
        return (ROOT / uri.removeprefix(f"{FOLDER}/")).parent
    return (DOCS / uri).parent


def _resolved(target: str, uri: str) -> Path | None:
    """Return the file of the repository that a link of a page leads to, if there is one."""
    if ":" in target or target.startswith("/"):
        return None
    starts = [home(uri), *([ROOT] if uri in QUOTING else [])]
    for start in starts:
        path = Path(os.path.normpath(start / target))
        if path.is_relative_to(ROOT) and path.exists():
            return path
    return None


def _uri(path: Path) -> str:
    """Return the address of the page that shows a file: its own, or one below ``repository/``."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return f"{FOLDER}/{name}" if path.suffix == ".md" else f"{FOLDER}/{name}.md"


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to the lines of a page that are not code."""
    lines = text.split("\n")
    code = {n for fence in fences(text) for n in range(fence.first, fence.last + 1)}
    return "\n".join(line if n in code else change(line) for n, line in enumerate(lines))


def linked_files(text: str, uri: str) -> list[Path]:
    """Return the files outside the documentation that a page links to."""
    found: list[Path] = []

    def note(line: str) -> str:
        for link in LINK.finditer(line):
            path = _resolved(link["target"], uri)
            if path is not None and not path.is_relative_to(DOCS):
                found.append(path)
        return line

    _outside_fences(text, note)
    return found


def turned(text: str, uri: str) -> str:
    """Return a page whose links to files of the repository lead to pages of the site."""

    def turn(line: str) -> str:
        return LINK.sub(one, line)

    def one(link: re.Match[str]) -> str:
        path = _resolved(link["target"], uri)
        if path is None:
            return link[0]
        if path.is_dir() and path.is_relative_to(DOCS):
            path /= "index.md"
        leads = posixpath.relpath(_uri(path), posixpath.dirname(uri) or ".")
        return f"]({leads}{link['anchor'] or ''})"

    return _outside_fences(text, turn)


def page_of(path: Path) -> tuple[str, str]:
    """Return address and Markdown of the page that shows a file or folder of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        return _uri(path), path.read_text(encoding="utf-8")
    top = f"---\nsearch:\n  exclude: true\n---\n\n# `{name}`\n\n"
    if path.is_dir():
        files = sorted(one.name for one in path.iterdir() if one.is_file())
        return _uri(path), top + "".join(f"- [{one}]({path.name}/{one})\n" for one in files)
    text = path.read_text(encoding="utf-8")
    return _uri(path), f"{top}````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"
