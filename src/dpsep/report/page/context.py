"""What the sections of a page are made from."""

from typing import NamedTuple

from dpsep.report.page.contents import KIND_WORDS, Run, Value, kind_of, parameters
from dpsep.report.page.files import Absent
from dpsep.report.page.verdict import Verdict

__all__ = ["Context"]


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
    def model(self) -> str:
        """The model in words, which begin a sentence."""
        kind = kind_of(self.run)
        words = KIND_WORDS[kind] if kind else "model that this version of dpsep does not know"
        return words[0].upper() + words[1:]

    @property
    def target(self) -> str | None:
        """The name of what is predicted, if the folder says so."""
        return None if isinstance(self.run.schema, Absent) else self.run.schema.target

    @property
    def records(self) -> int | None:
        """The public number of records, where the run's schedule says it."""
        schedule = self.verdict.stated[0].schedule if self.verdict.stated else Absent("")
        return None if isinstance(schedule, Absent) else schedule.parts[-1].records

    @property
    def alike(self) -> tuple[Run, ...]:
        """Runs beside it whose numbers mean the same: of the same kind of model, and of its family."""
        return tuple(one for one in self.beside if _model(one) == _model(self.run))


def _model(run: Run) -> tuple[str | None, str]:
    return kind_of(run), str(parameters(run).get("family"))
