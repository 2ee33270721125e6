"""What a site agrees to: which modes, at what price, from which budget.

**Privacy.** Every run is charged to the site's own ledger at what it costs its records
(`dpsep.federated.pricing`), once, before a row is read. The charge bears a mark, by which the site knows it
from a charge of somebody else for a run of the same name. What one run may cost is checked at a delta that
the ledger holds, whichever the server chose. An offer charges nothing. Refusals speak of terms and budgets.
The proof is in docs/proofs/federated.md.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpsep.federated import wire
from dpsep.federated.terms import MODES, Terms
from dpsep.privacy.ledger import Ledger, OverBudget, Row
from dpsep.privacy.shown import down, up

if TYPE_CHECKING:  # accountants are slow to import, and a greeting needs none
    from dpsep.federated.pricing import Deal

MOST_COORDINATES = 1 << 24
"""Most numbers of one release that a site computes."""


class Refusal(Exception):
    """Why a question is refused: a code of `dpsep.federated.wire`, and words that hold no data."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Mark(NamedTuple):
    """What a charge bears: whose it is and what for.

    Attributes
    ----------
    folder
        Identity of the site's folder.
    agreement
        Hash of the terms and the price, both public.
    """

    folder: str
    agreement: str


class Policy:
    """A site's ledger, and what may be charged to it; parameters as those of `dpsep.federated.site.Site`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        modes: Sequence[str],
        most_epsilon: float | None,
        own: tuple[float, float] | None,
        hidden: int,
        secure: bool,
    ) -> None:
        unknown = sorted(set(modes) - set(MODES))
        if unknown or not modes:
            raise ValueError(f"modes are some of {MODES}, not {', '.join(unknown) or 'none'}.")
        if hidden is True or hidden < 0:
            raise ValueError(
                "hidden is a number: how many honest sites this one relies on, whose answers nobody sees one "
                "by one; 0 where they may be seen."
            )
        self.ledger = ledger
        self.modes = tuple(modes)
        self._most = math.inf if most_epsilon is None else float(most_epsilon)
        self._own = None if own is None else (float(own[0]), float(own[1]))
        self._hidden = int(hidden)
        self._secure = secure

    def deal(self, terms: Terms, rows: int) -> "Deal":
        """Return what terms cost; raise `Refusal` where the site does not take part in them."""
        from dpsep.federated.pricing import BadTerms, Own, deal_of

        if terms.mode not in self.modes:
            raise Refusal(
                wire.BAD_MODE, f"the site takes part in mode {' and '.join(self.modes)}, not {terms.mode}."
            )
        if terms.coordinates > MOST_COORDINATES:
            raise Refusal(wire.BAD_TERMS, f"a release may have at most {MOST_COORDINATES} numbers.")
        # A server that counts on more honest sites than there are would have the noise made too small.
        hidden = 1 <= terms.honest <= self._hidden
        own = None if self._own is None else Own(*self._own)
        try:
            deal = deal_of(terms, rows, own=own, hidden=hidden, secure=self._secure)
        except BadTerms as error:
            raise Refusal(wire.BAD_TERMS, str(error)) from None
        # Epsilon falls as delta grows: at a delta beyond the ledger's a limit on epsilon would be void.
        if deal.price.delta > self.ledger.delta:
            raise Refusal(
                wire.OVER_BUDGET,
                f"the run has delta {up(deal.price.delta)}; the site's ledger allows "
                f"{down(self.ledger.delta)} in all.",
            )
        if deal.price.epsilon > self._most:
            raise Refusal(
                wire.OVER_BUDGET,
                f"the run costs epsilon {up(deal.price.epsilon)}; the site allows {down(self._most)} a run.",
            )
        if terms.mode == "sites" and hidden and self.ledger.rule == "rdp":
            raise Refusal(
                wire.BAD_TERMS,
                "a sum of rounded noises is charged as an (epsilon, delta) point; the site's ledger adds "
                "Rényi curves.",
            )
        if deal.charged.relation != self.ledger.relation and self.ledger.relation == "replace-one":
            raise Refusal(wire.BAD_TERMS, "the site's ledger counts under replace-one; ask for that.")
        if self.ledger.unit != "record":
            raise Refusal(wire.BAD_TERMS, "the site's ledger does not count records.")
        return deal

    def offer(self, terms: Terms, rows: int) -> "Deal":
        """Return what terms would cost; raise `Refusal` where the ledger does not hold that much."""
        deal = self.deal(terms, rows)
        left = self.ledger.remaining()
        if self.ledger.rule == "sum" and (deal.price.epsilon > left.epsilon or deal.price.delta > left.delta):
            raise self._over(deal)
        return deal

    def paid(self, run: str, mark: Mark) -> bool:
        """Say whether the ledger holds this charge of a run; one with another mark is somebody else's."""
        return any(
            row.event.get("folder") == mark.folder and row.event.get("agreement") == mark.agreement
            for row in self._charges(run)
        )

    def check_new(self, run: str) -> None:
        """Raise `Refusal` where the ledger holds a charge of a run that is about to be charged."""
        if self._charges(run):
            raise Refusal(
                wire.LOST,
                "the ledger holds a charge of this run that is not of this folder and these terms: its "
                "folder is gone, or another one shares the ledger. The run cannot go on here.",
            )

    def _charges(self, run: str) -> list[Row]:
        return [row for row in self.ledger.rows() if row.run == run and row.kind == "charge"]

    def charge(self, run: str, deal: "Deal", terms: Terms, mark: Mark) -> None:
        """Charge a run, durably."""
        from dpsep.privacy.permit import describe

        curve = deal.charged.rdp_curve() if self.ledger.rule == "rdp" else None
        try:
            self.ledger.charge(
                run,
                epsilon=deal.price.epsilon,
                delta=deal.price.delta,
                relation=deal.charged.relation,
                event=describe(deal.charged, f"federated fit, mode {terms.mode}") | mark._asdict(),
                rdp=None if curve is None else tuple(float(value) for value in curve),
            )
        except OverBudget:
            raise self._over(deal) from None

    def _over(self, deal: "Deal") -> Refusal:
        left = self.ledger.remaining()
        return Refusal(
            wire.OVER_BUDGET,
            f"the run costs epsilon {up(deal.price.epsilon)} and delta {up(deal.price.delta)}; the site's "
            f"ledger has {down(left.epsilon)} and {down(left.delta)} left.",
        )
