"""What a run claims of its privacy, taken apart and held against everything else that its folder says.

A claim is refused if it is not as a fit writes it, if the posterior holds another one, if its own schedule
costs more, or if what was asked, the metrics, the sites of a federation or a ledger contradict it. A refusal
is a sentence for a page that carries no figure of privacy, so it names none.

**Privacy.** Only public numbers are read: statements, schedules and a ledger's rows.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from dpsep.estimators.statement import PrivacyStatement
from dpsep.privacy.accounting import Mechanism, Schedule
from dpsep.privacy.curve import schedule_of
from dpsep.privacy.ledger import CHARGES
from dpsep.privacy.sampling import FullBatch
from dpsep.report.page.contents import Run, Value, parameters
from dpsep.report.page.files import Absent

__all__ = [
    "HIGH",
    "Charge",
    "Refused",
    "alone",
    "check_asked",
    "check_ledger",
    "read_metrics",
    "read_schedule",
    "read_statement",
]

SLACK = 1e-3
"""Relative excess of a recomputed epsilon that is put down to the accountant's tolerance."""
HIGH = 10.0
"""An epsilon above this promises next to nothing."""
ON_PUBLIC, ON_HELD_OUT = "a table declared public", "held-out rows, privately"
"""What metrics can be computed on, in the words of metrics.json."""
_BELOW = 1.1  # a fit is calibrated to what was asked, but for a part in some thousands
_MOST_STEPS = 10**7
_FIELDS = {field.name for field in dataclasses.fields(PrivacyStatement)}
_BESIDES = {"private", "metrics"}
_TEXTS = ("unit", "sampling", "accountant", "scaling", "run")
_METRICS = {"epsilon", "delta", "relation", "unit", "sampling", "sigma", "rows", "run"}
_LOST = {"epsilon", "delta", "releases", "rows"}
_MODES = ("server", "sites", "own")


class Refused(Exception):
    """A run without a statement; the message says why."""


class Charge(NamedTuple):
    """A guarantee: epsilon and delta."""

    epsilon: float
    delta: float

    def covers(self, other: "Charge") -> bool:
        """Whether another charge is no more than this one."""
        return not _exceeds(other.epsilon, self.epsilon) and not _exceeds(other.delta, self.delta)


def read_statement(run: Run) -> PrivacyStatement:
    """Return the statement of a run that is whole and nowhere contradicts it; raise `Refused` otherwise."""
    privacy = run.privacy
    if run.trouble:
        raise Refused(f"The folder is not as the fit left it. {run.trouble[0]}")
    if isinstance(privacy, Absent):
        raise Refused(f"There is no privacy statement to rely on. {privacy.why}")
    if privacy.get("private") is not True:
        raise Refused("The fit was made without privacy, and may give away single records.")
    if privacy.keys() - _FIELDS - _BESIDES:
        raise Refused(
            "privacy.json holds entries that this version does not know, so they cannot be counted."
        )
    fields: dict[str, Any] = {name: privacy[name] for name in privacy.keys() & _FIELDS}
    _check_same(run, fields)
    fit = _statement(fields)
    _check_federation(fit)
    return fit


def read_schedule(fit: PrivacyStatement) -> Schedule | Absent:
    """Return the schedule after computing from it what is stated once more; `Refused` if that is less."""
    if fit.schedule is None:
        return _without_schedule(fit)
    try:
        schedule = schedule_of(fit.schedule)
        again = schedule.epsilon(fit.delta)
    except Exception as error:  # whatever a stranger's numbers do to an accountant
        raise Refused(f"The schedule of releases cannot be accounted for ({type(error).__name__}).") from None
    last = schedule.parts[-1]
    if schedule.relation != fit.relation or _exceeds(again, fit.epsilon):
        raise Refused(
            "THE STATEMENT AND THE SCHEDULE DISAGREE: the releases that are listed cost more than is stated."
        )
    if fit.federation is None and (fit.sigma, fit.steps) != (last.sigma, last.steps):
        raise Refused("THE STATEMENT AND THE SCHEDULE DISAGREE: noise or number of releases differ.")
    return schedule


def read_metrics(run: Run, fit: PrivacyStatement) -> Charge | None:
    """Return the charge of the metrics; None where they are of public rows, or there are none."""
    charge = {} if isinstance(run.privacy, Absent) else run.privacy.get("metrics")
    found = None if isinstance(run.metrics, Absent) else run.metrics
    if charge is None:
        if found is not None and not _is_public(found):
            raise Refused("There are metrics of held-out records, and no charge for them is stated.")
        return None
    if found is None or charge != found.get("privacy"):
        raise Refused("privacy.json and metrics.json do not state the same charge for the metrics.")
    if not isinstance(charge, dict) or found.get("on") != ON_HELD_OUT:
        raise Refused("The charge of the metrics is not as a fit writes it.")
    stated = _charge(charge)
    releases = charge.get("releases", 1)
    if not _is_whole(releases) or releases < 1:
        raise Refused("The charge of the metrics is not as a fit writes it.")
    if charge.keys() == _LOST and charge["rows"] == 0:  # begun, charged, and nothing is known of them
        if found.get("metrics") != {} or "calibration" in found:
            raise Refused("There are metrics of held-out records, and the charge says that there are none.")
        return stated
    sound = (
        charge.keys() - {"releases", "ledger"} == _METRICS
        and charge.get("ledger", fit.ledger) == fit.ledger
        and (charge["relation"], charge["unit"]) == (fit.relation, fit.unit)
        and charge["sampling"] == "full batch"
        and _is_number(charge["sigma"])
        and charge["sigma"] > 0
        and _is_whole(charge["rows"])
        and charge["rows"] >= 1
        and isinstance(charge["run"], str)
        and charge["run"] not in ("", fit.run)
    )
    if not sound:
        raise Refused("The charge of the metrics is not as a fit writes it.")
    made = Mechanism(FullBatch(), fit.relation, releases, charge["sigma"], charge["rows"])  # pyright: ignore[reportArgumentType] -- checked above
    if _exceeds(made.epsilon(stated.delta), stated.epsilon):
        raise Refused("The release of the metrics costs more than is stated for it.")
    return stated


def check_asked(run: Run, fit: PrivacyStatement) -> None:
    """Raise `Refused` where a statement is not of what the fit was asked for.

    A run that was resumed may state a larger epsilon than that, and none a much smaller one. In a federation
    the sites have a say.
    """
    if fit.federation is not None:
        return
    asked = parameters(run)
    wanted = _charge(asked)
    much_less = fit.epsilon <= HIGH and wanted.epsilon > _BELOW * fit.epsilon
    if asked.get("relation") != fit.relation or wanted.delta != fit.delta or much_less:
        raise Refused("The statement is not of the guarantee that the fit's parameters ask for.")
    if asked.get("unit", "record") != fit.unit:
        raise Refused("The statement is for another unit than the fit's parameters name.")


def check_ledger(run: Run, fit: PrivacyStatement, metrics: Charge | None, ledger: Value) -> None:
    """Raise `Refused` where a ledger's charges for a run are above what the run states."""
    privacy = {} if isinstance(run.privacy, Absent) else run.privacy
    counted = privacy.get("metrics")
    most = Charge(fit.epsilon, fit.delta)
    if fit.federation is not None:
        # A server's own ledger is charged what was asked, a site's for its answers.
        asked = _charge(parameters(run))
        most = Charge(max(fit.epsilon, asked.epsilon, alone(fit) or 0.0), max(fit.delta, asked.delta))
    stated = {fit.run: most}
    if metrics is not None and isinstance(counted, dict) and isinstance(counted.get("run"), str):
        stated[counted["run"]] = metrics
    for name, charge in stated.items():
        rows = [row for row in ledger["rows"] if row["run"] == name and row["kind"] in CHARGES]
        sums = Charge(math.fsum(row["epsilon"] for row in rows), math.fsum(row["delta"] for row in rows))
        if not charge.covers(sums):
            raise Refused("The ledger was charged more for this run than the run states.")
        if any((row["relation"], row["unit"]) != (fit.relation, fit.unit) for row in rows):
            raise Refused("The ledger was charged for this run by other terms than the run states.")
    if fit.federation is None and fit.ledger not in (None, ledger["id"]):
        raise Refused("The run was charged to another ledger than the one that is shown with it.")


def alone(fit: PrivacyStatement) -> float | None:
    """Return the epsilon against whoever sees the answers of single sites, where it is not the stated one."""
    if fit.federation is None or fit.federation["mode"] != "sites":
        return None
    return float(fit.federation["alone_epsilon"])


def _check_same(run: Run, fields: Value) -> None:
    """The posterior holds the statement once more; both must say the same, to the last field."""
    if isinstance(run.posterior, Absent):
        raise Refused(f"The posterior that the statement is about cannot be read. {run.posterior.why}")
    learned = run.posterior.get("learned")
    stored = learned.get("privacy_") if isinstance(learned, dict) else None
    inner = stored.get("statement") if isinstance(stored, dict) else None
    if not isinstance(inner, dict) or inner != fields:
        raise Refused("privacy.json and posterior.json do not state the same.")
    asked = parameters(run).get("private")
    if not isinstance(asked, bool | np.bool_) or not asked:
        raise Refused("The parameters in posterior.json do not say that the fit was private.")


def _statement(fields: Value) -> PrivacyStatement:
    _charge(fields)
    leaks: Any = fields.get("leaks", [])
    federation: Any = fields.get("federation")
    sigma: Any = fields.get("sigma")
    steps: Any = fields.get("steps")
    sound = (
        fields.get("relation") in ("zero-out", "replace-one")
        and all(isinstance(fields.get(name), str) and fields[name] for name in _TEXTS)
        and isinstance(fields.get("secure"), bool)
        and _is_number(sigma)
        and sigma > 0
        and _is_whole(steps)
        and 1 <= steps <= _MOST_STEPS
        and isinstance(leaks, list)
        and all(isinstance(leak, str) for leak in leaks)
        and (federation is None or _is_federation(federation))
        and isinstance(fields.get("ledger", ""), str)
        and isinstance(fields.get("doubt", ""), str)
    )
    if not sound:
        raise Refused("privacy.json is not a statement as a fit writes it.")
    return PrivacyStatement(**{**fields, "leaks": tuple(leaks)})


def _check_federation(fit: PrivacyStatement) -> None:
    if fit.federation is None:
        return
    sites = [_charge(site) for site in fit.federation["sites"].values()]
    most = Charge(max(fit.epsilon, alone(fit) or 0.0), fit.delta)
    if not all(most.covers(site) for site in sites):
        raise Refused("A site of the federation was charged more than is stated.")


def _is_federation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("mode") in _MODES
        and isinstance(value.get("text"), str)
        and isinstance(value.get("sites"), dict)
        and len(value["sites"]) > 0
        and all(isinstance(site, dict) for site in value["sites"].values())
        and (value["mode"] != "sites" or _is_number(value.get("alone_epsilon")))
    )


def _without_schedule(fit: PrivacyStatement) -> Absent:
    if fit.federation is not None:
        return Absent(
            "A federated run does not hold its schedule of releases, since each site carries out its own: "
            "epsilon is as stated and could not be computed anew."
        )
    if fit.sampling == "full batch":  # its releases alone cost so much, whatever else was done
        least = Mechanism(FullBatch(), fit.relation, fit.steps, fit.sigma, 1).epsilon(fit.delta)  # pyright: ignore[reportArgumentType] -- checked before
        if _exceeds(least, fit.epsilon):
            raise Refused("The releases that are stated cost more than is stated for them.")
    return Absent(
        "This run does not hold its schedule of releases, as those of earlier versions of dpsep do not: "
        "epsilon is as stated and could not be computed anew."
    )


def _is_public(metrics: Value) -> bool:
    """Whether metrics are of rows declared public: said so, nothing charged, and no noise anywhere."""
    calibration = metrics.get("calibration", {"source": "public"})
    return (
        metrics.get("on") == ON_PUBLIC
        and "privacy" not in metrics
        and isinstance(calibration, dict)
        and calibration.get("source") == "public"
        and not _has_noise(metrics)
        and not any(map(_has_noise, calibration.values()))
    )


def _has_noise(part: Any) -> bool:
    return isinstance(part, dict) and part.get("noise_sd") is not None


def _charge(fields: Value) -> Charge:
    epsilon: Any = fields.get("epsilon")
    delta: Any = fields.get("delta")
    if not (_is_number(epsilon) and _is_number(delta) and epsilon > 0 and 0 < delta < 1):
        raise Refused("What is stated is no number that a guarantee can have.")
    return Charge(float(epsilon), float(delta))


def _exceeds(found: float, stated: float) -> bool:
    return not found <= stated * (1 + SLACK) + 1e-12


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
