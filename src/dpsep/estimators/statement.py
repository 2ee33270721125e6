"""What a fit spent, as data and in plain words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpsep.privacy.gate import Permit
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.schedule_json import description_of
from dpsep.privacy.shown import up


@dataclass(frozen=True)
class PrivacyStatement:
    """What was guaranteed and how.

    Attributes
    ----------
    epsilon, delta
        The whole fit's, private scaling and steps done again after a restart included.
    relation
        ``"zero-out"`` or ``"replace-one"``.
    unit
        Whose privacy is counted.
    sampling, sigma, steps
        Of the fit: which rows a release reads, its noise over the clip, and how many releases.
    accountant
        What answers for epsilon.
    scaling
        Where the columns' scaling comes from.
    secure
        Whether noise and sums were made by the exact path from a secure stream; if not, the result is not for
        release.
    run
        The run's name in the ledger.
    ledger
        The id of the ledger that was charged; None where there was none, and in statements of earlier
        versions.
    doubt
        Why the budget may be too small for what was asked; empty where it is not, and in statements of
        earlier versions.
    leaks
        What was warned of: things outside the guarantee.
    federation
        Of a federated fit: its mode, its sites and what each was charged, and the same in words (``text``).
    schedule
        What was charged for, releases done again after a restart included, as `dpsep.privacy.curve` reads it;
        None where no one schedule answers for epsilon, and in statements of earlier versions.

    Examples
    --------
    >>> how = {"sampling": "full batch", "sigma": 15.5, "steps": 16, "accountant": "exact Gaussian"}
    >>> rest = {"unit": "record", "scaling": "declared bounds", "secure": True, "run": "a1"}
    >>> said = PrivacyStatement(1.0, 1e-5, "zero-out", **how, **rest)
    >>> said.sentence()[:66]
    'This result is (1, 1e-05)-differentially private for each record ('
    """

    epsilon: float
    delta: float
    relation: str
    unit: str
    sampling: str
    sigma: float
    steps: int
    accountant: str
    scaling: str
    secure: bool
    run: str
    leaks: tuple[str, ...] = ()
    federation: dict[str, Any] | None = None
    schedule: dict[str, Any] | None = None
    ledger: str | None = None
    doubt: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON-ready data."""
        content = asdict(self) | {"leaks": list(self.leaks)}
        for name in ("federation", "schedule", "ledger", "doubt"):
            if not content[name]:
                del content[name]
        return content

    def _sums(self) -> str:
        parts = [] if self.schedule is None else self.schedule["parts"]
        if len(parts) < 2:
            return f"{self.steps} noisy sums ({self.sampling}; noise {self.sigma:.4g}"
        stages = ", ".join(f"{part['name']} {part['steps']}" for part in parts)
        total = sum(part["steps"] for part in parts)
        return f"{total} noisy sums ({stages}; the last by {self.sampling} with noise {self.sigma:.4g}"

    def sentence(self) -> str:
        """Return the statement in plain words."""
        other = {
            "zero-out": f"had that {self.unit} been left blank",
            "replace-one": f"had that {self.unit} been any other",
        }[self.relation]
        text = (
            f"This result is ({up(self.epsilon)}, {up(self.delta)})-differentially private for each "
            f"{self.unit} ({self.relation}): whatever a reader concludes about one {self.unit} from it is at "
            f"most e^{up(self.epsilon)} times as likely as {other}, plus {up(self.delta)}, and the reverse. "
            f"It was computed from {self._sums()} times the clip; {self.accountant}); columns were scaled by "
            f"{self.scaling}."
        )
        if self.ledger is not None:
            text += f" It was charged to the ledger {self.ledger}."
        if self.federation is not None:
            text += f" {self.federation['text']}"
        if self.leaks:
            text += " Outside this guarantee: " + "; ".join(self.leaks)
        if self.doubt:
            text += f" Expect little of it: {self.doubt}"
        if not self.secure:
            text += " NOT FOR RELEASE: the noise was seeded or made by the fast floating-point path."
        return text


def statement(
    permit: Permit,
    schedule: Schedule,
    *,
    epsilon: float,
    scaling: str,
    secure: bool,
    leaks: tuple[str, ...],
    unit: str = "record",
    names: Sequence[str] | None = None,
    doubt: str = "",
) -> PrivacyStatement:
    """Return the statement of a finished run; its fit is the last part of the schedule.

    Parameters
    ----------
    names
        What each part of the schedule releases, in a word.
    doubt
        Why the budget may be too small.
    """
    fit = schedule.parts[-1]
    return PrivacyStatement(
        epsilon=epsilon,
        delta=permit.delta,
        relation=schedule.relation,
        unit=unit,
        sampling=fit.sampling.describe(),
        sigma=fit.sigma,
        steps=fit.steps,
        accountant=schedule.accountant,
        scaling=scaling,
        secure=secure,
        run=permit.run,
        leaks=leaks,
        schedule=description_of(schedule, names),
        ledger=permit.ledger,
        doubt=doubt,
    )
