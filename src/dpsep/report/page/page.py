"""The page put together: sections built one by one, the policy of the document, and the file that is written.

The policy (CSP) allows one style sheet and one script, each by its hash, and nothing from anywhere: no
network, no fonts, no frames. Text of a folder is in elements and attributes only, escaped
(`dpsep.report.page.rendering`).
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

from markupsafe import Markup

from dpsep.privacy.checkpoint import WriteError, atomic_write, durable_names
from dpsep.report.page.contents import Value, read_audit, read_ledger, read_run
from dpsep.report.page.context import Context
from dpsep.report.page.rendering import fill
from dpsep.report.page.sections_back import audit, cite, glossary, ledger, settings
from dpsep.report.page.sections_head import asked, tiles
from dpsep.report.page.sections_path import path
from dpsep.report.page.sections_posterior import posterior
from dpsep.report.page.sections_predict import predicts
from dpsep.report.page.sections_privacy import curve, spent
from dpsep.report.page.verdict import judge
from dpsep.report.page.words import clean

__all__ = ["MOST_BESIDE", "render", "write_report"]

MOST_BESIDE = 8
"""Runs that can be laid beside one."""


def _nothing(_: Context) -> Value:
    """For parts that are all in their template."""
    return {}


Build = Callable[[Context], Value]
SECTIONS: dict[str, tuple[str, Build]] = {
    "asked": ("What was asked", asked),
    "spent": ("What was spent", spent),
    "curve": ("Privacy loss", curve),
    "posterior": ("What was found", posterior),
    "predicts": ("Predictions", predicts),
    "path": ("The way of the fit", path),
    "settings": ("Settings", settings),
    "files": ("Files", _nothing),
    "ledger": ("Ledger", ledger),
    "audit": ("Audit", audit),
    "cite": ("How to cite", cite),
    "glossary": ("Glossary", glossary),
}
"""In their order, by their id: name in the navigation, and what builds the values of their template."""
_TOP: dict[str, Build] = {"header": _nothing, "tiles": tiles}


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
        title=None if title is None else clean(title).strip()[:200],
        written=f"{datetime.now(UTC):%Y-%m-%d}",
        ledger=account,
        audit=None if audit is None else read_audit(Path(audit)),
    )
    return _document(ctx)


def _document(ctx: Context) -> str:
    # The files of the page's own style and script are the only texts that are put in as they are.
    style, script = (
        Markup(package_files("dpsep.report.page").joinpath(name).read_text("utf-8"))
        for name in ("page.css", "page.js")
    )
    page = fill(
        "page.html",
        ctx=ctx,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        header=_safely("header", ctx),
        tiles=_safely("tiles", ctx),
        names=[(name, words) for name, (words, _) in SECTIONS.items()],
        sections=[_safely(name, ctx) for name in SECTIONS],
    )
    return f"<!doctype html>\n{page}\n"


def part(name: str, ctx: Context) -> Markup:
    """Return a part of the page: its template, filled."""
    build = _TOP[name] if name in _TOP else SECTIONS[name][1]
    return fill(f"{name}.html", ctx=ctx, **build(ctx))


def _safely(name: str, ctx: Context) -> Markup:
    """Build a part; one that fails becomes a sentence, and never a message that quotes the folder.

    The sentence has the name of its part, to which the navigation leads.
    """
    try:
        return part(name, ctx)
    except Exception as error:
        kind = type(error).__name__
        return fill("unreadable.html", name=name if name in SECTIONS else None, kind=kind)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
