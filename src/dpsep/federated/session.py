r"""One run of a federation, seen from the server: who takes part, who has answered, who is out.

A round asks every site that has a part in it. An answer counts when it is whole, belongs to this run and this
round, and holds sums that so many rows can have; whatever goes wrong in reading it is that site's invalid
answer and nobody else's. Who has not answered validly is asked again, up to `tries` times, and a site that
has lost what it was told is told again within the same try. Nothing is released before every site of the
round has answered or is out of the run. A site that is out stays out: its rows leave the public number of
records, what it added to earlier releases stays in them, and the answers that were given are used as they
were received. In mode ``"sites"`` a round with fewer than `honest` answers releases nothing.

**Privacy.** What happens here depends on which sites answered and when, on bounds and on lengths; not on what
answers hold within their bounds. Events are told in words without data. A site that drops out costs nobody
more: noise and charges do not depend on the number of records. The proof is in docs/proofs/federated.md.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsep.federated import packing, wire
from dpsep.federated.codec import WireError, encode
from dpsep.federated.site_sums import answer_bounds
from dpsep.federated.terms import Hello, Mode, Price, Terms, Work, check_price
from dpsep.federated.transport import Transport
from dpsep.federated.wire import Refused
from dpsep.privacy.grid import Block

log = logging.getLogger("dpsep.federated")
Heard = TypeVar("Heard")


class RoundFailed(RuntimeError):
    """A round that cannot be completed; nothing of it was released, and what was charged stays spent."""


class Again(WireError):
    """An answer that shows that a site has lost what it was told; it was told again, and is asked again."""


class Settings(NamedTuple):
    """How a federation deals with its sites; see `dpsep.federated.federation.Federation`."""

    mode: Mode
    honest: int
    patience: float
    tries: int
    least_sites: int
    missing: Literal["drop", "stop"]
    tell: Callable[[str], None]


class Released(NamedTuple):
    """Pooled sums of one release, and who they are from.

    Attributes
    ----------
    totals
        Integers in grid units, one array a block.
    sites
        Who answered.
    secure
        Whether all noise in them is for release.
    """

    totals: list[NDArray[np.int64]]
    sites: tuple[str, ...]
    secure: bool


class Session:
    """A run: the sites in it, and what passes between them and the server.

    Parameters
    ----------
    transport
        Carries the questions.
    hellos
        The sites that take part, by name.
    settings
        The federation's.
    run
        Name of the run: sixteen bytes.
    timetable
        Which sites take part in each release of the last part; None for all.

    Attributes
    ----------
    hellos, sites
        The sites that were asked to begin, and those that are in the run now.
    prices
        What the run cost each site that began.
    dropped
        Sites that left, and in what.
    secure
        Whether all noise that sites added so far is for release.
    """

    def __init__(
        self,
        transport: Transport,
        hellos: dict[str, Hello],
        settings: Settings,
        run: bytes,
        timetable: Sequence[tuple[str, ...]] | None = None,
    ) -> None:
        self._transport = transport
        self.hellos = dict(hellos)
        self.sites = dict(hellos)
        self.secure = True
        self.settings = settings
        self.run = run
        self.prices: dict[str, Price] = {}
        self.dropped: list[tuple[str, str]] = []
        self.timetable = timetable
        self._known: dict[tuple[str, int], frozenset[bytes]] = {}
        self._told: set[tuple[str, bytes]] = set()
        self._terms: dict[str, Terms] = {}

    @property
    def rows(self) -> int:
        """Public number of records of the sites that are in the run."""
        return sum(site.rows for site in self.sites.values())

    def begin(self, terms: Terms) -> None:
        """Have every site charge its ledger; sites that do not are out."""
        self._terms = {name: self.terms_of(name, terms) for name in self.sites}

        def check(name: str, answer: bytes) -> Price | Refused:
            asked = self._terms[name]
            return wire.heard(answer, self.run, wire.BEGIN, lambda price: check_price(price, asked))

        self.prices = self.gather(
            self.sites,
            lambda name: wire.ask(wire.BEGIN, self.run, self._terms[name]),
            check,
            "the beginning",
        )

    def members(self, part: int, number: int, *, last: bool) -> tuple[str, ...]:
        """Return the sites that have a part in a release and are in the run."""
        if self.timetable is None or not last:
            return tuple(self.sites)
        return tuple(name for name in self.timetable[number] if name in self.sites)

    def sums(self, work: Work, number: int, public: Any, *, last: bool) -> Released:
        """Return the pooled sums of one release; raise `RoundFailed` where it cannot be completed.

        Parameters
        ----------
        work
            What is asked of records.
        number
            Of the release, within its part.
        public
            Values that contributions depend on.
        last
            Whether the part is the fit, to which the timetable applies.
        """
        members = self.members(work.part, number, last=last)
        body = encode(work)
        name = wire.name_of(body)
        what = f"round {number} of part {work.part}"
        self.tell_work(members, name, body, what)
        members = tuple(site for site in members if site in self.sites)
        names = wire.names_of(public)

        def make(site: str) -> bytes:
            known = self._known.get((site, work.part), frozenset())
            return wire.ask_round(self.run, work.part, number, name, public, known)

        def check(site: str, answer: bytes) -> tuple[list[NDArray[np.int64]], bool] | Refused:
            heard = self._heard_sums(site, answer, work, number)
            if isinstance(heard, Refused):
                self._known.pop((site, work.part), None)
                self.tell_again(site, heard, body)
            return heard

        found = self.gather(members, make, check, what)
        for site in found:
            self._known[site, work.part] = names
        if not found or (self.settings.mode == "sites" and len(found) < self.settings.honest):
            raise RoundFailed(
                f"{what} has answers of {len(found)} sites, too few for mode {self.settings.mode!r}; nothing "
                "of it was released, and what was charged stays spent."
            )
        answers = zip(*(sums for sums, _ in found.values()), strict=True)
        totals = [np.sum(block, axis=0) for block in answers]
        return Released(totals, tuple(found), all(secure for _, secure in found.values()))

    def end(self, status: Literal["finished", "failed"]) -> None:
        """Tell every site that ever began; those in the run are told again until they confirm it.

        Never raises: the run is over, whatever sites, transport or listener do.
        """
        try:
            self._tell_end(status)
        except Exception as error:
            log.error("the end of a run could not be told to its sites: %s", type(error).__name__)

    def _tell_end(self, status: Literal["finished", "failed"]) -> None:
        waiting = [name for name in self._terms if name in self._transport.sites()]
        for _ in range(self.settings.tries):
            questions = {name: wire.ask(wire.END, self.run, status) for name in waiting}
            answers = self._transport.ask(questions, self.settings.patience)
            waiting = [
                name for name in waiting if name in self.sites and not self._ended(answers.get(name, b""))
            ]
            if not waiting:
                return
        for name in waiting:
            self.tell(f"site {name} did not confirm the end of the run; it still keeps its answers")

    def _ended(self, answer: bytes) -> bool:
        try:
            return wire.heard(answer, self.run, wire.END) is None
        except Exception:  # whatever it is, it confirms nothing
            return False

    def tell(self, text: str) -> None:
        """Tell an event, to the log and to whoever listens."""
        log.info(text)
        self.settings.tell(text)

    def gather(
        self,
        names: Iterable[str],
        make: Callable[[str], bytes],
        check: Callable[[str, bytes], Heard | Refused],
        what: str,
    ) -> dict[str, Heard]:
        """Ask sites until each has answered validly or is out of the run.

        Parameters
        ----------
        names
            Whom to ask.
        make
            The question of a site, made anew for every try.
        check
            Returns what an answer says; raises `WireError` where it is none, and `Again` where the site is to
            be asked again at once. Any other exception counts as an answer that is none.
        what
            Is asked, in words.
        """
        found: dict[str, Heard] = {}
        order = tuple(names)
        reasons = dict.fromkeys(order, "")
        for attempt in range(self.settings.tries):
            if not reasons:
                break
            count = f"(try {attempt + 1} of {self.settings.tries})"
            asked: tuple[str, ...] = tuple(reasons)
            for once_more in (True, False):
                questions = {name: make(name) for name in asked}
                answers = self._transport.ask(questions, self.settings.patience) if questions else {}
                again = []
                for name in asked:
                    try:
                        reason, final = self._take(name, answers.get(name), check, found)
                    except Again as error:
                        reason, final = str(error), False
                        if once_more:
                            again.append(name)
                    if reason is None:
                        del reasons[name]
                        continue
                    reasons[name] = reason
                    self.tell(f"{what}: site {name} {reason} {count}")
                    if final:
                        del reasons[name]
                        self._leave(name, what, reason)
                asked = tuple(again)
        for name, reason in reasons.items():
            self._leave(name, what, reason)
        return {name: found[name] for name in order if name in found}

    def _take(
        self,
        name: str,
        answer: bytes | None,
        check: Callable[[str, bytes], Heard | Refused],
        found: dict[str, Heard],
    ) -> tuple[str | None, bool]:
        """Keep a valid answer; else return what is wrong, and whether asking again is of no use."""
        if answer is None:
            return f"did not answer in {self.settings.patience:g} s", False
        try:
            heard = check(name, answer)
        except Again:
            raise
        except WireError as error:
            return f"gave an answer that is none: {error}", False
        except Exception as error:  # its words may repeat what the site sent
            log.warning("an answer of site %s could not be read: %s", name, type(error).__name__)
            return f"gave an answer that is none: it cannot be read ({type(error).__name__})", False
        if isinstance(heard, Refused):
            return f"refused: {heard.text}", heard.code not in (wire.FAULT, wire.MALFORMED)
        found[name] = heard
        return None, False

    def _leave(self, name: str, what: str, reason: str) -> None:
        """Put a site out of the run, or end the run where that is not allowed."""
        self.sites.pop(name, None)
        self.dropped.append((name, what))
        self.tell(f"{what}: site {name} is out of the run")
        if self.settings.missing == "stop":
            raise RoundFailed(
                f"{what}: site {name} {reason}; nothing of it was released, and what was charged stays "
                "spent. With missing='drop' the others would go on."
            )
        if len(self.sites) < self.settings.least_sites:
            raise RoundFailed(
                f"{what}: {len(self.sites)} sites are left and at least {self.settings.least_sites} are "
                "needed; nothing of it was released, and what was charged stays spent."
            )

    def tell_work(self, members: Sequence[str], name: bytes, body: bytes, what: str) -> None:
        """Tell sites what is asked of records, where they do not know it."""
        new = [site for site in members if (site, name) not in self._told]
        if not new:
            return

        def check(site: str, answer: bytes) -> bytes | Refused:
            heard = wire.heard(answer, self.run, wire.PART)
            if not isinstance(heard, Refused) and heard != name:
                raise WireError("it confirmed something else.")
            return heard

        told = self.gather(new, lambda site: wire.write(wire.PART, self.run, body), check, what)
        self._told.update((site, name) for site in told)

    def tell_again(self, site: str, refused: Refused, body: bytes) -> None:
        """Tell a site again what it refuses for having lost it, and raise `Again`; nothing otherwise."""
        if refused.code not in (wire.UNKNOWN_VALUE, wire.UNKNOWN_PART):
            return
        if refused.code == wire.UNKNOWN_PART:
            self._transport.ask({site: wire.write(wire.PART, self.run, body)}, self.settings.patience)
        raise Again("has lost what it was told, and is told again")

    def _heard_sums(
        self, site: str, answer: bytes, work: Work, number: int
    ) -> tuple[list[NDArray[np.int64]], bool] | Refused:
        rows, sigma = self.sites[site].rows, self.prices[site].sigmas[work.part]
        bounds = answer_bounds(work.blocks, rows, sigma)
        heard = wire.heard_sums(answer, self.run, work.part, number, packing.packed_size(bounds))
        if isinstance(heard, Refused):
            return heard
        totals = packing.unpack(heard.packed, bounds)
        if sigma == 0 and not all(
            packing.within(block, total, rows) for block, total in zip(work.blocks, totals, strict=True)
        ):
            raise WireError("its sums are none that its rows can have.")
        return totals, heard.secure

    def begun_under(self, name: str) -> Terms:
        """Return the terms under which a site was asked to begin."""
        return self._terms[name]

    def terms_of(self, name: str, terms: Terms) -> Terms:
        """Return the terms with a site's own rounds."""
        if self.timetable is None:
            return terms
        return terms._replace(
            rounds=tuple(number for number, members in enumerate(self.timetable) if name in members)
        )


def plain_block(block: Block) -> Block:
    """Return a block whose numbers are Python's own, as they travel."""
    return replace(
        block, size=int(block.size), clip=float(block.clip), share=float(block.share), bins=int(block.bins)
    )
