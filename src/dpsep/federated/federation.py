r"""A federation as the server sees it: who is there, how they are asked, and a table that is elsewhere.

`Federation.records` gives the handles that stand for the pooled table: a pair of
`dpsep.privacy.record_sources.Part` whose source makes the gates (`dpsep.privacy.gate.make_gate`). The run
begins at the sites when the first gate is made, after the server's own charge.

**Privacy.** Row counts, columns and modes of the sites are public: they tell them. The timetable of
``sites_per_round`` is public, drawn from a public seed before anything is read, and no amplification is
claimed for it (`dpsep.federated.pricing`). The proof is in docs/proofs/federated.md.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from dpsep.federated import wire
from dpsep.federated.codec import WireError
from dpsep.federated.gate import FederatedGate
from dpsep.federated.pricing import part_terms
from dpsep.federated.session import RoundFailed, Session, Settings
from dpsep.federated.terms import MODES, Hello, Mode, Price, Terms, check_hello, check_price
from dpsep.federated.transport import Transport
from dpsep.federated.wire import Refused
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import WordStream
from dpsep.privacy.permit import Permit
from dpsep.privacy.record_sources import Part, Records, Source

__all__ = ["Federation", "timetable"]


class Federation:
    """Sites behind a transport, and the rules by which they are asked.

    Parameters
    ----------
    transport
        Carries questions to the sites.
    mode
        Who adds the noise: ``"server"``, ``"sites"`` or ``"own"`` (see `dpsep.federated`).
    honest
        Mode ``"sites"``: the fewest honest sites that answer a round; each adds its share of noise for that.
        A round with fewer answers releases nothing.
    patience
        Seconds to wait for answers, each time that they are asked for.
    tries
        How often a site is asked before it counts as missing.
    least_sites
        Fewest sites to go on with; half of them (and `honest`) by default.
    missing
        What happens to a site that is missing: ``"drop"`` leaves it out for the rest of the run, ``"stop"``
        ends the run.
    sites_per_round
        So many sites take part in each release, by a public timetable; all by default. A site is charged for
        its own rounds only.
    seed
        Public seed of the timetable.
    on_event
        Called with each event in words; events hold no data. They go to the log ``dpsep.federated``, too.

    Examples
    --------
    >>> from dpsep.federated import InProcess
    >>> class Silent:  # a site that answers with bytes that are no message
    ...     def answer(self, question):
    ...         return b""
    >>> federation = Federation(InProcess({"north": Silent(), "south": Silent()}), mode="own", tries=1)
    >>> federation.mode
    'own'
    """

    def __init__(
        self,
        transport: Transport,
        *,
        mode: Mode = "server",
        honest: int | None = None,
        patience: float = 60.0,
        tries: int = 3,
        least_sites: int | None = None,
        missing: Literal["drop", "stop"] = "drop",
        sites_per_round: int | None = None,
        seed: int = 0,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        count = len(transport.sites())
        if count < 1:
            raise ValueError("a federation needs at least one site; the transport knows none.")
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}.")
        if (mode == "sites") != (honest is not None):
            raise ValueError("mode 'sites', and no other, needs honest=: the fewest honest sites in a round.")
        if honest is not None and not 1 <= honest <= (sites_per_round or count):
            raise ValueError(f"honest must lie between 1 and {sites_per_round or count}, those of a round.")
        if missing not in ("drop", "stop"):
            raise ValueError(f"missing must be 'drop' or 'stop', not {missing!r}.")
        if tries < 1 or not 0 < patience < math.inf:
            raise ValueError("tries must be at least 1, and patience a positive number of seconds.")
        if sites_per_round is not None and not 1 <= sites_per_round <= count:
            raise ValueError(f"sites_per_round must lie between 1 and {count}, the number of sites.")
        least = -(-count // 2) if least_sites is None else int(least_sites)
        if not 1 <= least <= count:
            raise ValueError(f"least_sites must lie between 1 and {count}, the number of sites.")
        self._transport = transport
        self.per_round = sites_per_round
        self._seed = int(seed)
        self.settings = Settings(
            mode=mode,
            honest=honest or 1,
            patience=float(patience),
            tries=int(tries),
            least_sites=max(least, honest or 1),
            missing=missing,
            tell=on_event or _nothing,
        )
        self._hellos: dict[str, Hello] | None = None
        self._terms: Terms | None = None
        self.offers: dict[str, Price] = {}
        self.session: Session | None = None

    @property
    def mode(self) -> Mode:
        """Who adds the noise."""
        return self.settings.mode

    def sites(self) -> dict[str, Hello]:
        """Return what the sites say of themselves, asked once; raise `RoundFailed` where too few answer.

        Raises ValueError where they do not have the same columns, or do not take part in the mode.
        """
        if self._hellos is None:
            self._hellos = self._greet()
        return dict(self._hellos)

    @property
    def rows(self) -> int:
        """Public number of records of all sites."""
        return sum(site.rows for site in self.sites().values())

    @property
    def features(self) -> int:
        """Number of columns."""
        return next(iter(self.sites().values())).features

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; empty where they have none."""
        return next(iter(self.sites().values())).columns

    def steps_of(self, steps: int) -> int:
        """Return the most releases of so many that a site takes part in."""
        if self.per_round is None:
            return steps
        return min(steps, -(-steps * self.per_round // len(self.sites())))

    def offer(self, terms: Terms) -> dict[str, Price]:
        """Ask what a run would cost each site; nothing is charged.

        Sites that refuse are left out, or stop the run. The next run is begun under these terms.
        """
        self._terms = terms
        session = self._session(bytes(16), terms.parts[-1].steps)

        def check(name: str, answer: bytes) -> Price | Refused:
            asked = session.terms_of(name, terms)
            return wire.heard(answer, wire.NO_RUN, wire.OFFER, lambda price: check_price(price, asked))

        self.offers = session.gather(
            session.sites,
            lambda name: wire.ask(wire.OFFER, wire.NO_RUN, session.terms_of(name, terms)),
            check,
            "the offer",
        )
        self._hellos = session.sites
        return dict(self.offers)

    def records(self) -> Records:
        """Return the pooled table: features and target, whose rows stay where they are."""
        source = _Elsewhere(self)
        return Part(source, 0, (self.rows, self.features)), Part(source, 1, (self.rows,))

    def begin(self, permit: Permit) -> Session:
        """Begin a charged run at the sites, once; sites that do not charge it are out."""
        run = run_name(permit.run)
        if self.session is not None and self.session.run == run:
            return self.session
        if self._terms is None:
            raise RuntimeError("a run is offered to the sites before it begins: call offer first.")
        if tuple(part_terms(part) for part in permit.schedule.parts) != self._terms.parts:
            raise RuntimeError("the run that was charged is not the one that was offered to the sites.")
        return self.begin_run(run)

    def begin_run(self, run: bytes) -> Session:
        """Begin a run under the terms offered last; for runs whose releases are all the sites' own."""
        assert self._terms is not None
        self.session = self._session(run, self._terms.parts[-1].steps)
        self.session.begin(self._terms)
        return self.session

    def end(self, status: Literal["finished", "failed"]) -> None:
        """End the run at the sites; their ledgers note how, and what they kept is deleted."""
        session, self.session = self.session, None
        if session is not None:
            session.end(status)

    def _session(self, run: bytes, steps: int) -> Session:
        hellos = self.sites()
        rounds = None
        if self.per_round is not None:
            rounds = timetable(tuple(hellos), self.per_round, steps, self._seed)
        return Session(self._transport, hellos, self.settings, run, rounds)

    def _greet(self) -> dict[str, Hello]:
        names = self._transport.sites()
        waiting = {name: _unknown(name) for name in names}
        session = Session(self._transport, waiting, self.settings, wire.NO_RUN)

        def check(name: str, answer: bytes) -> Hello | Refused:
            hello = wire.heard(answer, wire.NO_RUN, wire.HELLO, check_hello)
            if isinstance(hello, Hello) and hello.name != name:
                raise WireError("it has another name than the transport says.")
            return hello

        found = session.gather(
            names, lambda _: wire.ask(wire.HELLO, wire.NO_RUN, None), check, "the greeting"
        )
        if not found:
            raise RoundFailed("no site answered the greeting; nothing was charged.")
        self._check(found)
        return found

    def _check(self, found: dict[str, Hello]) -> None:
        first = next(iter(found.values()))
        for name, site in found.items():
            if (site.features, site.columns, site.target) != (first.features, first.columns, first.target):
                raise ValueError(
                    f"site {name} has other columns than site {first.name}: all sites need the same columns "
                    "in the same order, and the same target. Give every site the same schema."
                )
            if self.mode not in site.modes:
                raise ValueError(
                    f"site {name} takes part in mode {' and '.join(site.modes)}, not {self.mode}; use one "
                    "that every site allows."
                )


class _Elsewhere(Source):
    """The source of handles: it makes gates, and has no rows to read."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def __len__(self) -> int:
        return self._federation.rows

    def take(self, rows: Any, parts: Sequence[int]) -> NoReturn:
        raise RuntimeError("the rows of a federation stay at its sites; only a gate asks for sums of them.")

    def gate(
        self,
        records: Records,
        mechanism: Mechanism,
        blocks: Sequence[Block],
        contribution: Contribution,
        permit: Permit,
        *,
        stream: WordStream | None = None,
    ) -> FederatedGate:
        session = self._federation.begin(permit)
        arrays = tuple(array.part for array in records if isinstance(array, Part))
        return FederatedGate(session, arrays, mechanism, blocks, contribution, permit, stream=stream)


def timetable(names: Sequence[str], per_round: int, rounds: int, seed: int) -> list[tuple[str, ...]]:
    """Draw which sites take part in which round, balanced: their numbers of rounds differ by one at most.

    Parameters
    ----------
    names
        The sites.
    per_round
        How many take part in a round.
    rounds
        How many rounds there are.
    seed
        Public.

    Examples
    --------
    >>> rounds = timetable(("a", "b", "c"), 2, 3, seed=0)
    >>> sorted(sum(rounds, ()))
    ['a', 'a', 'b', 'b', 'c', 'c']
    """
    if rounds * per_round < len(names):
        raise ValueError(
            f"{rounds} rounds of {per_round} sites leave some of {len(names)} sites without a round; use "
            "more sites a round, or more steps."
        )
    generator = np.random.default_rng(seed)
    counts = np.zeros(len(names), np.int64)
    drawn = []
    for _ in range(rounds):
        order = generator.permutation(len(names))
        chosen = np.sort(order[np.argsort(counts[order], kind="stable")][:per_round])
        counts[chosen] += 1
        drawn.append(tuple(names[index] for index in chosen))
    return drawn


def run_name(run: str) -> bytes:
    """Return a run's name as it travels."""
    try:
        name = bytes.fromhex(run)
    except ValueError:
        name = b""
    return name if len(name) == 16 and any(name) else hashlib.sha256(run.encode()).digest()[:16]


def _unknown(name: str) -> Hello:
    return Hello(name, 1, 1, (), "", (), True)


def _nothing(_: str) -> None:
    pass
