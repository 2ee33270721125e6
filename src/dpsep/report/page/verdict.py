"""Whether a report may speak of privacy: one answer for the whole page, and what each run states.

A report is private if every run in it is: its folder is whole, its statement is there, says so, agrees with
the stored posterior, and is not contradicted by its own schedule. One run that is not takes the statement
from all, since the page shows that run's numbers beside the others.

**Privacy.** The answer leans to no: what is missing, unreadable, changed or contradictory gives no statement.
A manifest is no signature, so a statement is as good as the hands that the folder went through.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from dpsep.estimators.statement import PrivacyStatement
from dpsep.privacy.accounting import Schedule
from dpsep.privacy.curve import schedule_of
from dpsep.report.page.contents import Run, Value
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import clean

__all__ = ["Charge", "Stated", "Verdict", "judge"]

SLACK = 1e-3
"""Relative excess of a recomputed epsilon that is put down to the accountant's tolerance."""
_FIELDS = {field.name for field in dataclasses.fields(PrivacyStatement)}
_TEXTS = ("unit", "sampling", "accountant", "scaling", "run")


class Charge(NamedTuple):
    """A guarantee: epsilon and delta."""

    epsilon: float
    delta: float


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
    """

    stated: tuple[Stated, ...]
    reasons: tuple[str, ...]
    total: Charge | None

    @property
    def private(self) -> bool:
        """Whether the report may make a statement."""
        return bool(self.stated)

    @property
    def secure(self) -> bool:
        """Whether all noise is such that the result may be released."""
        return all(one.fit.secure for one in self.stated)


class _Refused(Exception):
    """A run without a statement; the message says why."""


def judge(runs: tuple[Run, ...]) -> Verdict:
    """Decide for a report of these runs; the first is the one that it is about."""
    stated, reasons = [], []
    for place, run in enumerate(runs):
        try:
            stated.append(_stated(run))
        except _Refused as refused:
            whose = (
                "" if len(runs) == 1 else ("This run: " if place == 0 else f"Run {clean(run.name)[:40]}: ")
            )
            reasons.append(f"{whose}{refused}")
        except Exception as error:  # a hostile folder may do anything to a converter
            reasons.append(f"A privacy statement could not be read ({type(error).__name__}).")
    if reasons:
        return Verdict((), tuple(reasons), None)
    kinds = {(one.fit.relation, one.fit.unit) for one in stated}
    total = None
    if len(kinds) == 1:
        total = Charge(sum(one.total.epsilon for one in stated), sum(one.total.delta for one in stated))
    return Verdict(tuple(stated), (), total)


def _stated(run: Run) -> Stated:
    privacy = run.privacy
    if run.trouble:
        raise _Refused(f"The folder is not as the fit left it. {run.trouble[0]}")
    if isinstance(privacy, Absent):
        raise _Refused(f"There is no privacy statement to rely on. {privacy.why}")
    if privacy.get("private") is not True:
        raise _Refused("The fit was made without privacy, and may give away single records.")
    fit = _statement(privacy)
    _check_agreement(run, fit)
    return Stated(run, fit, _metrics(run, privacy), _schedule(privacy, fit))


def _statement(privacy: Value) -> PrivacyStatement:
    fields: dict[str, Any] = {name: privacy[name] for name in privacy.keys() & _FIELDS}
    _charge(fields)
    leaks: Any = fields.get("leaks", [])
    federation = fields.get("federation")
    sound = (
        fields.get("relation") in ("zero-out", "replace-one")
        and all(isinstance(fields.get(name), str) for name in _TEXTS)
        and isinstance(fields.get("secure"), bool)
        and _is_number(fields.get("sigma"))
        and _is_number(fields.get("steps"))
        and isinstance(leaks, list)
        and all(isinstance(leak, str) for leak in leaks)
        and (federation is None or isinstance(federation, dict))
        and (federation is None or isinstance(federation.get("text"), str))
    )
    if not sound:
        raise _Refused("privacy.json is not a statement as a fit writes it.")
    fields["leaks"] = tuple(leaks)
    return PrivacyStatement(**fields)


def _charge(fields: Value) -> Charge:
    epsilon: Any = fields.get("epsilon")
    delta: Any = fields.get("delta")
    if not (_is_number(epsilon) and _is_number(delta) and epsilon >= 0 and 0 <= delta < 1):
        raise _Refused("What is stated is no number that a guarantee can have.")
    return Charge(float(epsilon), float(delta))


def _metrics(run: Run, privacy: Value) -> Charge | None:
    charge = privacy.get("metrics")
    if charge is None:
        if not isinstance(run.metrics, Absent) and _from_held_out(run.metrics):
            raise _Refused("There are metrics of held-out records, and no charge for them is stated.")
        return None
    if not isinstance(charge, dict):
        raise _Refused("The charge of the metrics is not as a fit writes it.")
    return _charge(charge)


def _from_held_out(metrics: Value) -> bool:
    calibration = metrics.get("calibration")
    source = calibration.get("source") if isinstance(calibration, dict) else None
    return source == "charged" or "privacy" in metrics or "public" not in str(metrics.get("on"))[:200]


def _check_agreement(run: Run, fit: PrivacyStatement) -> None:
    """The posterior holds the statement once more; both must say the same."""
    if isinstance(run.posterior, Absent):
        raise _Refused(f"The posterior that the statement is about cannot be read. {run.posterior.why}")
    parameters, learned = run.posterior.get("parameters"), run.posterior.get("learned")
    stored = learned.get("privacy_") if isinstance(learned, dict) else None
    inner = stored.get("statement") if isinstance(stored, dict) else None
    asked = parameters.get("private") if isinstance(parameters, dict) else None
    same = isinstance(inner, dict) and all(
        inner.get(name) == getattr(fit, name) for name in ("epsilon", "delta", "relation", "unit", "run")
    )
    if asked is False or not same:
        raise _Refused("privacy.json and posterior.json do not state the same.")


def _schedule(privacy: Value, fit: PrivacyStatement) -> Schedule | Absent:
    """Read the schedule, and compute from it what is stated once more."""
    description = privacy.get("schedule")
    if description is None:
        return Absent(
            "This run does not hold its schedule of releases: an earlier version of dpsep wrote it."
        )
    try:
        schedule = schedule_of(description)
        again = schedule.epsilon(fit.delta)
    except Exception as error:
        raise _Refused(
            f"The schedule of releases cannot be accounted for ({type(error).__name__})."
        ) from None
    if schedule.relation != fit.relation or not again <= fit.epsilon * (1 + SLACK) + 1e-9:
        raise _Refused(
            "THE STATEMENT AND THE SCHEDULE DISAGREE: the releases that are listed cost more than is stated."
        )
    return schedule


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
