"""Whether a report may speak of privacy: one answer for the whole page, and what each run states.

A report is private if every run in it is: its folder is whole, and its statement is there, says so, and is
contradicted by nothing (`dpsep.report.page.claims`). One run that is not takes the statement from all, since
the page shows that run's numbers beside the others.

**Privacy.** The answer leans to no: what is missing, unreadable, changed or contradictory gives no statement.
A manifest is no signature, so a statement is as good as the hands that the folder went through.
"""

from typing import NamedTuple

from dpsep.estimators.statement import PrivacyStatement
from dpsep.privacy.accounting import Schedule
from dpsep.report.page.claims import (
    HIGH,
    Charge,
    Refused,
    alone,
    check_asked,
    check_ledger,
    read_metrics,
    read_schedule,
    read_statement,
)
from dpsep.report.page.contents import Run, Value
from dpsep.report.page.files import Absent
from dpsep.report.page.words import clean, number, number_up

__all__ = ["Charge", "Stated", "Verdict", "judge"]


class Stated(NamedTuple):
    """What one run states: the fit's statement, the metrics' charge if there is one, and the schedule."""

    run: Run
    fit: PrivacyStatement
    metrics: Charge | None
    schedule: Schedule | Absent

    @property
    def total(self) -> Charge:
        """Fit and metrics together, by the sum."""
        more = self.metrics or Charge(0.0, 0.0)
        return Charge(self.fit.epsilon + more.epsilon, self.fit.delta + more.delta)

    @property
    def units(self) -> int | None:
        """How many records or groups there are, where it is stated; of a federation, at all sites."""
        if self.fit.federation is not None:
            rows = [site.get("rows") for site in self.fit.federation["sites"].values()]
            return sum(rows) if all(type(one) is int and one > 0 for one in rows) else None
        return None if isinstance(self.schedule, Absent) else self.schedule.parts[-1].records

    @property
    def column(self) -> str | None:
        """Of groups the column that makes them, where a schema says so."""
        schema = self.run.schema
        return None if self.fit.unit == "record" or isinstance(schema, Absent) else schema.unit

    @property
    def looked(self) -> bool:
        """Whether declarations of columns were read off the data."""
        return not isinstance(self.run.schema, Absent) and self.run.schema.looked


class Verdict(NamedTuple):
    """The answer.

    Attributes
    ----------
    stated
        One a run, where the report is private; empty otherwise.
    reasons
        Why it is not private, in sentences.
    total
        What everything on the page amounts to if all runs read the same records; None where their relations
        or units differ, so that they do not add up.
    cautions
        Sentences for the stamp of a private report: what makes its guarantee weak, what is outside it, what
        could not be checked.
    """

    stated: tuple[Stated, ...]
    reasons: tuple[str, ...]
    total: Charge | None
    cautions: tuple[str, ...] = ()

    @property
    def private(self) -> bool:
        """Whether the report may make a statement."""
        return bool(self.stated)

    @property
    def secure(self) -> bool:
        """Whether all noise is such that the result may be released."""
        return all(one.fit.secure for one in self.stated)


def judge(runs: tuple[Run, ...], ledger: Value | Absent | None = None) -> Verdict:
    """Decide for a report of these runs; the first is the one that it is about.

    Parameters
    ----------
    runs
        As read from their folders.
    ledger
        Rows of a ledger, to be held against what is stated.
    """
    stated, reasons = [], []
    for place, run in enumerate(runs):
        try:
            stated.append(_stated(run, None if isinstance(ledger, Absent) else ledger))
        except Refused as refused:
            reasons.append(f"{_whose(run, place, len(runs))}{refused}")
        except Exception as error:  # a hostile folder may do anything to a converter
            reasons.append(f"A privacy statement could not be read ({type(error).__name__}).")
    if reasons:
        return Verdict((), tuple(reasons), None)
    total = None
    if _adds_up(stated):
        total = Charge(sum(one.total.epsilon for one in stated), sum(one.total.delta for one in stated))
    return Verdict(tuple(stated), (), total, tuple(_cautions(stated, total)))


def _whose(run: Run, place: int, count: int) -> str:
    if count == 1:
        return ""
    return "This run: " if place == 0 else f"Run {clean(run.name)[:40]}: "


def _stated(run: Run, ledger: Value | None) -> Stated:
    fit = read_statement(run)
    found = Stated(run, fit, read_metrics(run, fit), read_schedule(fit))
    check_asked(run, fit)
    if ledger is not None:
        check_ledger(run, fit, found.metrics, ledger)
    return found


def _adds_up(stated: list[Stated]) -> bool:
    """Whether the runs compare the same tables and protect the same units, groups of one column included."""
    if len({(one.fit.relation, one.fit.unit) for one in stated}) > 1:
        return False
    columns = [one.column for one in stated]
    groups = len(stated) > 1 and stated[0].fit.unit != "record"
    return not groups or (None not in columns and len(set(columns)) == 1)


def _cautions(stated: list[Stated], total: Charge | None) -> list[str]:
    """Return what a reader must know before the number is believed."""
    sums = [total] if total is not None else [one.total for one in stated]
    epsilon, delta = max(one.epsilon for one in sums), max(one.delta for one in sums)
    found = []
    if epsilon > HIGH:
        found.append(f"ε = {number_up(epsilon)} is large: above {number(HIGH)} it promises next to nothing.")
    counted = [(one.units, one.fit.unit) for one in stated if one.units is not None]
    fewest, unit = min(counted, default=(0, ""))
    if delta * fewest >= 1:
        found.append(
            f"δ = {number_up(delta)} is not below one over the number of {unit}s ({fewest:,}): a method that "
            "publishes one of them whole, chosen at random, could state the same."
        )
    leaks = sum(len(one.fit.leaks) for one in stated)
    if leaks:
        what = "One thing is" if leaks == 1 else f"{leaks} things are"
        found.append(f"{what} outside the guarantee; see what was spent.")
    for place, one in enumerate(stated):
        found += [_whose(one.run, place, len(stated)) + words for words in _of_one(one)]
    return found


def _of_one(one: Stated) -> list[str]:
    found = [f"Expect little of this fit: {one.fit.doubt}"] if one.fit.doubt else []
    counted = any("drafted by looking" in leak for leak in one.fit.leaks)
    if one.looked and not counted:
        found.append("Declarations of columns were read off the data, which no guarantee covers.")
    mode = None if one.fit.federation is None else one.fit.federation["mode"]
    against = alone(one.fit)
    if against is not None:
        found.append(
            "Against whoever sees the answers of single sites, the server of the federation included, the "
            f"fit keeps ε = {number_up(against)}, δ = {number_up(one.fit.delta)}."
        )
    if mode == "server":
        found.append("The server of the federation saw sums without noise: nothing is promised against it.")
    if isinstance(one.schedule, Absent):
        found.append(one.schedule.why)
    return found
