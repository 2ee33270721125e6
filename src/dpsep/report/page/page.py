"""The page put together: sections built one by one, the policy of the document, and the file that is written.

The policy (CSP) allows one style sheet and one script, each by its hash, and nothing from anywhere: no
network, no fonts, no frames. Text of a folder is in elements and attributes only, escaped.
"""

import base64
import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from dpsep.privacy.checkpoint import WriteError, atomic_write, durable_names
from dpsep.report.page import sections_back, sections_head
from dpsep.report.page.contents import read_run
from dpsep.report.page.context import Context, about
from dpsep.report.page.extras import read_audit, read_ledger
from dpsep.report.page.figure import absent
from dpsep.report.page.markup import Markup, clean, label, tag
from dpsep.report.page.sections_audit import audit as audit_section
from dpsep.report.page.sections_path import path as path_section
from dpsep.report.page.sections_posterior import posterior
from dpsep.report.page.sections_predict import predicts
from dpsep.report.page.sections_privacy import curves, spent
from dpsep.report.page.verdict import judge

__all__ = ["MOST_BESIDE", "render", "write_report"]

MOST_BESIDE = 8
"""Runs that can be laid beside one."""


def _found(ctx: Context) -> list[Any]:
    """Return what was found, beside runs of the same model alone, and what is to be said of both."""
    notes: list[Any] = [
        absent(["Run ", label(run.name), ": "] if ctx.beside else "", run.doubt)
        for run in ctx.runs
        if run.doubt
    ]
    notes += [
        absent(["Run ", label(run.name), " is of another model: not laid over this one, and not compared."])
        for run in ctx.beside
        if all(run is not one for one in ctx.alike)
    ]
    section = posterior(ctx._replace(beside=ctx.alike))
    return [section, tag("section", notes, aria_label="On what was found") if notes else None]


Section = tuple[str, str, Callable[[Context], Any]]
SECTIONS: tuple[Section, ...] = (
    ("asked", "What was asked", sections_head.asked),
    ("spent", "What was spent", spent),
    ("curve", "Privacy loss", curves),
    ("posterior", "What was found", _found),
    ("predicts", "Predictions", predicts),
    ("path", "The way of the fit", path_section),
    ("settings", "Settings", sections_back.settings),
    ("files", "Files", sections_back.files),
    ("ledger", "Ledger", sections_back.ledger),
    ("audit", "Audit", audit_section),
    ("cite", "How to cite", sections_back.cite),
    ("glossary", "Glossary", sections_back.glossary),
)
"""In their order: id, short name for the navigation, and what builds it."""


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    beside: Sequence[str | os.PathLike[str]] = (),
    ledger: Any = None,
    audit: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> Path:
    """Write a run's report, one HTML file that needs nothing else.

    Parameters
    ----------
    run
        Folder that 'dpsep fit' or `dpsep.estimators.store.save` wrote.
    out
        The file; ``report.html`` in the folder by default. One that exists is replaced; a link is replaced
        too, and what it leads to is left alone.
    beside
        Folders of further runs, laid over the first. If one of them is not private, nothing on the page is.
    ledger
        A `dpsep.Ledger`, or the path or URL of one: shows this run's rows.
    audit
        A file that 'dpsep audit --json' wrote.
    title
        In the header; the model and its target by default.

    Returns
    -------
        Where it was written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dpsep import LinearRegression
    >>> from dpsep.estimators.store import save
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> folder = tempfile.mkdtemp()
    >>> save(LinearRegression(private=False).fit(X, 2 * X[:, 0]), folder)
    >>> written = write_report(folder)
    >>> written.name, "NOT PRIVATE" in written.read_text("utf-8")
    ('report.html', True)
    """
    folder = Path(run)
    page = render(folder, beside=beside, ledger=ledger, audit=audit, title=title)
    target = folder / "report.html" if out is None else Path(out)
    _write(target, page)
    return target


def _write(target: Path, page: str) -> None:
    """Put the page in place under its own name: a link there, which may lead anywhere, is never followed."""
    kind = os.lstat(target).st_mode if os.path.lexists(target) else stat.S_IFREG
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise WriteError(
            errno.EINVAL, f"{target} is not a regular file: name a file for the report with --out"
        )
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        atomic_write(temporary, page)
        with durable_names(target.parent):
            os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        words = str(error.strerror or error).replace(temporary.name, target.name)
        raise WriteError(error.errno, words) from error


def render(
    run: str | os.PathLike[str],
    *,
    beside: Sequence[str | os.PathLike[str]] = (),
    ledger: Any = None,
    audit: str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> str:
    """Return the page that `write_report` writes.

    Parameters
    ----------
    run, beside, ledger, audit, title
        As in `write_report`.

    Examples
    --------
    >>> import tempfile
    >>> page = render(tempfile.mkdtemp())  # an empty folder is no run, and the page says so
    >>> "There is no manifest.json." in page, "NOT PRIVATE" in page
    (True, True)
    """
    for folder in (run, *beside):
        if not Path(folder).is_dir():
            raise ValueError(f"there is no folder {folder}; name a folder that a fit has written.")
    if len(beside) > MOST_BESIDE:
        raise ValueError(
            f"{len(beside)} runs beside this one are too many to read; give {MOST_BESIDE} at most."
        )
    others = tuple(read_run(Path(one)) for one in beside)
    own = read_run(Path(run))
    account = None if ledger is None else read_ledger(ledger)
    ctx = Context(
        run=own,
        beside=others,
        verdict=judge((own, *others), account),
        title=None if title is None else str(title),
        written=f"{datetime.now(UTC):%Y-%m-%d}",
        ledger=account,
        audit=None if audit is None else read_audit(Path(audit)),
    )
    return _document(ctx)


def _document(ctx: Context) -> str:
    style, script = (
        package_files("dpsep.report.page").joinpath(name).read_text("utf-8")
        for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    title = clean(ctx.title)[:200] if ctx.title else "".join(map(_text, about(ctx.run)))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{'' if ctx.verdict.private else 'NOT PRIVATE · '}{title} · dpsep report"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", class_="skip", href="#content"),
        _safely(sections_head.header, ctx),
        _navigation(),
        tag(
            "main",
            _safely(sections_head.tiles, ctx),
            [_safely(build, ctx, name) for name, _, build in SECTIONS],
            id="content",
            tabindex="-1",
        ),
        tag(
            "footer",
            tag("p", "Made by dpsep from a run's folder. This file needs no network and sends nothing."),
        ),
        tag("div", class_="tip", id="tip", role="status", hidden=True),
        tag("script", Markup(script)),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _navigation() -> Markup:
    links = [tag("li", tag("a", words, href=f"#{name}")) for name, words, _ in SECTIONS]
    button = tag("button", "Dark", type="button", id="theme", aria_pressed="false", class_="js-only")
    return tag("nav", tag("ul", links), button, aria_label="Sections")


def _safely(build: Callable[[Context], Any], ctx: Context, name: str | None = None) -> Any:
    """Build a part; one that fails becomes a sentence, and never a message that quotes the folder.

    The sentence has the name of its part, to which the navigation leads.
    """
    try:
        return build(ctx)
    except Exception as error:
        words = f"This part could not be read: the run is not as a fit writes it ({type(error).__name__})."
        return tag("section", absent(words), id=name, aria_label="A part that could not be read")


def _text(part: Any) -> str:
    """Return a part of a heading as plain text, for the window's title."""
    text = str(part)
    if isinstance(part, Markup):
        text = text[text.index(">") + 1 : text.rindex("<")]
        for escaped, plain in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            text = text.replace(escaped, plain)
    return text


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
