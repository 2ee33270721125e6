"""What the sections of a page are made from, and the frame that a section stands in."""

from typing import Any, NamedTuple

from dpsep.report.page.contents import KIND_WORDS, Run, Value, kind_of, parameters
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import Markup, label, tag
from dpsep.report.page.verdict import Verdict

__all__ = ["Context", "about", "records_of", "section", "target_of"]


class Context(NamedTuple):
    """All that a page shows.

    Attributes
    ----------
    run
        What the page is about.
    beside
        Further runs.
    verdict
        Whether, and what, the page may say of privacy.
    title
        In its header.
    written
        When, as text.
    ledger, audit
        The documents that were asked for; None where they were not.
    """

    run: Run
    beside: tuple[Run, ...]
    verdict: Verdict
    title: str | None
    written: str
    ledger: Value | Absent | None = None
    audit: list[Value] | Absent | None = None

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, the page's own first."""
        return (self.run, *self.beside)

    @property
    def alike(self) -> tuple[Run, ...]:
        """Runs beside it whose numbers mean the same: of the same kind of model, and of its family."""
        return tuple(one for one in self.beside if _model(one) == _model(self.run))


def _model(run: Run) -> tuple[str | None, str]:
    return kind_of(run), str(parameters(run).get("family"))


def target_of(run: Run) -> str | None:
    """Return the name of what is predicted, if the folder says so."""
    return None if isinstance(run.schema, Absent) else run.schema.target


def about(run: Run) -> list[Any]:
    """Return the model and its target in words."""
    kind = kind_of(run)
    words = KIND_WORDS[kind] if kind else "model that this version of dpsep does not know"
    target = target_of(run)
    return [words[0].upper() + words[1:]] + ([" of ", label(target)] if target is not None else [])


def records_of(ctx: Context) -> int | None:
    """Return the public number of records, where the run's schedule says it."""
    schedule = ctx.verdict.stated[0].schedule if ctx.verdict.stated else Absent("")
    return None if isinstance(schedule, Absent) else schedule.parts[-1].records


def section(name: str, title: str, *content: Any) -> Markup:
    """Return a section with its heading."""
    return tag(
        "section", tag("h2", title, id=f"{name}-head"), *content, id=name, aria_labelledby=f"{name}-head"
    )
