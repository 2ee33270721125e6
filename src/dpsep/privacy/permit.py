"""Permits: proof that releases were charged, and the count of those that are left.

`authorise` charges a schedule to a ledger and returns a `Permit`; `authorise_again` charges the release that
a run may have lost when it died. Gates (`dpsep.privacy.gate`) make no release that a permit does not grant.

**Privacy.** *Charge before touch:* a permit is returned after the ledger's transaction is on the disk.
*No more releases than charged:* the count is kept in the permit and not in gates, so that any number of gates
that share a permit make together what was charged, and a resumed run starts with the earlier releases
counted. One gate a mechanism at a time: a newer one takes over, with the sampler, and the older is refused,
because sampling by shuffled epochs is accounted for one permutation a pass. A permit cannot be copied,
pickled or used in a forked process, which would double the count. *Assumed:* code in the same process is
honest; Python cannot stop it otherwise. The proof is in docs/proofs/index.md.
"""

import os
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dpsep.privacy import hosts
from dpsep.privacy.ledger import Ledger, Receipt
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.sampling import Sampler


class NotCharged(RuntimeError):
    """A release that no charge covers; nothing was read."""


@dataclass(frozen=True, eq=False)
class Permit:
    """Proof that a schedule was charged before its first record is read.

    Attributes
    ----------
    run
        Name of the run, as the ledger knows it.
    schedule
        What was charged for.
    epsilon, delta
        The charge.
    receipt
        The ledger's receipt; None where no ledger was given.
    ledger
        The ledger's id; None where there is none.
    """

    run: str
    schedule: Schedule
    epsilon: float
    delta: float
    receipt: Receipt | None
    ledger: str | None = None
    _made: dict[Mechanism, int] = field(default_factory=dict, init=False, repr=False)
    _tickets: dict[Mechanism, int] = field(default_factory=dict, init=False, repr=False)
    _samplers: dict[Mechanism, tuple[Sampler, bool]] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _process: int = field(default_factory=os.getpid, init=False, repr=False)

    def made(self, mechanism: Mechanism) -> int:
        """Return how many releases of this mechanism were made, or count as made."""
        return self._made.get(mechanism, 0)

    def count(self, mechanism: Mechanism, releases: int) -> None:
        """Count releases that the same run made in an earlier process."""
        with self._lock:
            self._grant(mechanism, releases)

    def claim(self, mechanism: Mechanism) -> int:
        """Return a new gate's ticket; the gates before it are refused from now on."""
        with self._lock:
            self._grant(mechanism, 0)
            self._tickets[mechanism] = self._tickets.get(mechanism, 0) + 1
            return self._tickets[mechanism]

    def sampler(self, mechanism: Mechanism, start: Callable[[int], Sampler], *, secure: bool) -> Sampler:
        """Return what draws this mechanism's rows: that of the gates before, or a new one from the next step.

        Parameters
        ----------
        start
            Makes a new one, from the number of releases that were made.
        secure
            Whether its coins come from a secure stream.
        """
        with self._lock:
            if mechanism not in self._samplers:
                self._samplers[mechanism] = start(self.made(mechanism)), secure
            sampler, drawn = self._samplers[mechanism]
            if drawn != secure:
                raise NotCharged(
                    "gates with a seeded stream and gates with a secure one cannot share a mechanism: its "
                    "rows are drawn in one go. Use one stream for all releases of a run."
                )
            return sampler

    def take(self, mechanism: Mechanism, ticket: int) -> None:
        """Grant one release to the gate that holds this ticket, or raise `NotCharged`."""
        with self._lock:
            if self._tickets.get(mechanism) != ticket:
                raise NotCharged(
                    "a newer gate has taken over this mechanism; one gate releases at a time. Use that one."
                )
            self._grant(mechanism, 1)

    def _grant(self, mechanism: Mechanism, releases: int) -> None:
        charged = sum(part.steps for part in self.schedule.parts if part == mechanism)
        if charged == 0:
            raise NotCharged("this mechanism is not in the schedule that was charged; call authorise first.")
        if os.getpid() != self._process:
            raise NotCharged("a permit holds in the process that made it only; charge a run of its own.")
        if releases < 0 or self.made(mechanism) + releases > charged:
            raise NotCharged(f"all {charged} releases that were charged are made; charge a new run for more.")
        self._made[mechanism] = self.made(mechanism) + releases

    def __reduce_ex__(self, protocol: object) -> str | tuple[object, ...]:
        raise TypeError("a permit cannot be copied or pickled: the copy would grant its releases once more.")


def authorise(
    ledger: Ledger | None,
    schedule: Schedule,
    delta: float,
    *,
    run: str | None = None,
    unit: str = "record",
    purpose: str = "fit",
) -> Permit:
    """Charge a schedule, durably, and return the permit that gates ask for.

    Raises `OverBudget` (and nothing is read) where the ledger does not hold enough. Of several processes the
    one that leads charges, and the others wait for its word (`dpsep.privacy.hosts`).
    """
    receipt = None
    with hosts.together():
        hosts.agree("authorise", schedule, delta, unit, purpose)
        epsilon = schedule.epsilon(delta)
        name = run or uuid.uuid4().hex
        if ledger is not None and hosts.leads():
            rdp = schedule.rdp_curve() if ledger.rule == "rdp" else None
            receipt = ledger.charge(
                name,
                epsilon=epsilon,
                delta=delta,
                relation=schedule.relation,
                unit=unit,
                event=describe(schedule, purpose),
                rdp=None if rdp is None else tuple(float(value) for value in rdp),
            )
        # The others hear of the run when its charge is durable, and not before.
        name = hosts.tell_text(name)
        book = hosts.tell_text("" if ledger is None else ledger.id)
    return Permit(name, schedule, epsilon, delta, receipt, book or None)


def authorise_again(
    ledger: Ledger | None,
    run: str,
    before: Schedule,
    after: Schedule,
    delta: float,
    *,
    unit: str = "record",
) -> Permit:
    """Charge what a longer schedule costs beyond the one charged, and return the permit of the longer one.

    Parameters
    ----------
    before
        The schedule that the run has been charged for.
    after
        The same with some releases more. Where both are the same nothing is charged.
    unit
        Whose privacy is counted.

    Notes
    -----
    **Privacy.** Both schedules are fixed beforehand and differ by whole releases, so that the run as a whole
    is the longer schedule; the ledger takes the difference of their epsilons at the same delta, or of their
    Rényi curves.
    """
    epsilon = after.epsilon(delta)
    receipt = None
    if ledger is not None and after != before:
        rdp = None
        if ledger.rule == "rdp":
            rdp = tuple(float(value) for value in after.rdp_curve() - before.rdp_curve())
        receipt = ledger.charge(
            run,
            epsilon=max(epsilon - before.epsilon(delta), 0.0),
            delta=0.0,
            relation=after.relation,
            unit=unit,
            event=describe(after, "one release done again"),
            rdp=rdp,
            kind="extra-step",
        )
    return Permit(run, after, epsilon, delta, receipt, None if ledger is None else ledger.id)


def describe(schedule: Schedule, purpose: str) -> dict[str, Any]:
    """Return what a schedule does, for a ledger's row: public numbers only."""
    parts = [
        {
            "sampling": part.sampling.describe(),
            "steps": part.steps,
            "sigma": part.sigma,
            "records": part.records,
        }
        for part in schedule.parts
    ]
    return {"purpose": purpose, "accountant": schedule.accountant, "parts": parts}
