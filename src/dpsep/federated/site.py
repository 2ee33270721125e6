r"""A site of a federation: rows that never leave, a ledger of their own, and answers that are given once.

`Site.answer` takes the bytes of a question and returns the bytes of an answer. It never raises on a bad
question, and all that it must remember is in its folder (`dpsep.federated.site_store`), because a process may
be started for every message.

**Privacy.** *What leaves.* For each round of a charged run, one answer: the clipped sums of the rows that the
round's sampling draws, exact integers on the gate's grid in mode ``"server"``, with rounded Gaussian noise in
the other two (`dpsep.federated.pricing` says how much). Besides that: the table's shape and names, prices,
and refusals whose texts are fixed or speak of terms and budgets.

*Sensitivity.* Sums are made by the gate's own `Reader` from blocks that pass `check_blocks`: one record moves
an answer by at most 1 (zero-out) or 2 in units of the noise's sigma. What the server asks for may depend on
anything that was answered before, and may be hostile: the clip does not depend on it, and only contributions
of an allow-list can be asked for, which read one record at a time.

*Charge before touch.* Records are read inside the answer to a ROUND of a run whose charge is in the ledger,
and nowhere else.

*Exactly once.* BEGIN charges once a run: what will be charged, and at what price, is written down first, and
the charge bears a mark of the folder and of both, so that a process that dies in between knows its charge in
the ledger and does not repeat it. A round gets one answer with new noise and new coins; it is on the disk
before it is sent, asked again it is sent again, and asked with other public values it is refused. An error
once coins or noise were drawn is the round's answer, and kept like any other: whether it happens may depend
on them. Rounds beyond those charged, or outside of the site's timetable, are refused.

*Assumed.* In mode ``"server"`` the server keeps the sums to itself; in mode ``"sites"`` with ``hidden``
nobody sees single answers, and so many sites are honest. Neither is something that this library can enforce.
Time is not hidden. The proof is in docs/proofs/federated.md.
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dpsep.federated import wire
from dpsep.federated.codec import WireError, decode
from dpsep.federated.site_policy import Mark, Policy, Refusal
from dpsep.federated.site_store import Kept, Store
from dpsep.federated.terms import Hello, Price, Terms, Work, check_price, check_terms
from dpsep.privacy.ledger import Ledger, LedgerError, as_ledger

if TYPE_CHECKING:  # slow to import, and a greeting needs neither accountants nor noise
    from dpsep.privacy.mechanism import Mechanism
    from dpsep.privacy.noise import WordStream

__all__ = ["Refusal", "Site"]

log = logging.getLogger("dpsep.federated")
MOST_PUBLIC = 1 << 26
"""Most bytes of the public values of one round, once those that the site holds are in their places."""
_FAULT = "the site could not answer; its owner finds the kind of error in the site's log."
_OVER = (
    "the site could not complete this round, and it is over; its owner finds the kind of error in its log."
)


class Begun(NamedTuple):
    """A run that has been charged: its name, its terms, its price, and its mechanisms with this site's noise.

    In mode ``"server"``, where the site adds none, the mechanisms have the noise of the server.
    """

    run: str
    terms: Terms
    price: Price
    parts: tuple["Mechanism", ...]


class Site:
    """One site: its rows, its ledger, and its folder.

    Parameters
    ----------
    name
        How the federation calls it.
    records
        Features and target: a pair of arrays (or frames, or parts of a table that is read as it goes), or a
        function that gives them, called when a charged round needs them and not before.
    ledger
        The site's own `dpsep.Ledger`, or where it is. Every run is charged to it before a row is read.
    folder
        Where the site remembers what it agreed to and answered; nobody else's.
    modes
        Which modes the site takes part in. ``"server"`` trusts the server with exact sums.
    most_epsilon
        Most that one run may cost; None leaves it to the ledger.
    names, target
        Names of the columns and of the target; read off a frame where they are not given.
    shape
        Rows and columns of the table, both public; needed where `records` is a function.
    own
        Epsilon and delta of this site's own guarantee in mode ``"own"``; what the server asks for by default.
    hidden
        In mode ``"sites"``: how many honest sites this one relies on, where something outside of this library
        hides single answers from everybody, the server included. A run that counts on no more than these is
        charged for the sum; all others, and all with 0, for the answers alone.
    coded
        Classes by which the target is already coded -1 and +1; for targets that are read as they go.
    stream
        A seeded stream makes the site's noise reproducible and its answers not for release; for tests.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> ledger = Ledger.create(folder + "/ledger", epsilon=1.0, delta=1e-5)
    >>> site = Site("north", (np.zeros((10, 2)), np.zeros(10)), ledger, folder + "/state")
    >>> wire.heard(site.answer(wire.ask(wire.HELLO, wire.NO_RUN, None)), wire.NO_RUN, wire.HELLO).rows
    10
    >>> wire.heard(site.answer(b"nonsense"), wire.NO_RUN, 0).text
    'a message of 8 bytes is none of this protocol.'
    """

    def __init__(
        self,
        name: str,
        records: tuple[Any, Any] | Callable[[], tuple[Any, Any]],
        ledger: Ledger | str | os.PathLike[str],
        folder: str | os.PathLike[str],
        *,
        modes: Sequence[str] = ("server", "sites", "own"),
        most_epsilon: float | None = None,
        names: Sequence[str] | None = None,
        target: str = "",
        shape: tuple[int, int] | None = None,
        own: tuple[float, float] | None = None,
        hidden: int = 0,
        coded: Sequence[Any] | None = None,
        stream: "WordStream | None" = None,
    ) -> None:
        if not name or len(name) > 200 or not name.isprintable():
            raise ValueError("a site needs a printable name of at most 200 characters.")
        self.name = name
        self.ledger = cast(Ledger, as_ledger(ledger))
        self._records = records
        self._store = Store(folder)
        self._coded = None if coded is None else tuple(coded)
        self._stream = stream
        self._policy = Policy(
            self.ledger, modes=modes, most_epsilon=most_epsilon, own=own, hidden=hidden, secure=self.secure
        )
        self._tables: dict[Any, Any] = {}
        self._shape = _shape_of(records, shape)
        self._names = tuple(names) if names is not None else _names_of(records)
        if len(self._names) not in (0, self._shape[1]):
            raise ValueError(f"{len(self._names)} names were given for {self._shape[1]} columns.")
        self._target = target

    def __repr__(self) -> str:
        return f"Site({self.name!r}, rows={self._shape[0]}, columns={self._shape[1]})"

    @property
    def rows(self) -> int:
        """Public number of records."""
        return self._shape[0]

    @property
    def secure(self) -> bool:
        """Whether the site's noise is for release."""
        return self._stream is None or self._stream.secure

    def unfinished(self) -> tuple[str, ...]:
        """Return runs that have begun here and not ended, whose answers are still kept."""
        return self._store.runs()

    def close(self, run: str) -> None:
        """End a run whose server has gone: delete its answers, and note in the ledger that it failed."""
        with self._store.locked():
            self._finish(run, "failed")

    def answer(self, question: bytes) -> bytes:
        """Return the answer to a question; never raises on a bad one, and never repeats a record's value."""
        try:
            message = wire.read(question, tuple(wire.QUESTIONS))
        except WireError as error:
            return wire.refuse(wire.NO_RUN, 0, wire.MALFORMED, str(error))
        try:
            with self._store.locked():
                return self._answered(message)
        except Refusal as refusal:
            return wire.refuse(message.run, message.kind, refusal.code, str(refusal))
        except WireError as error:
            return wire.refuse(message.run, message.kind, wire.MALFORMED, str(error))
        except Exception as error:
            # Whatever an array, a device or a disk says may hold values; the owner's log gets the kind only.
            log.error("%s of %s failed: %s", wire.QUESTIONS[message.kind], self.name, type(error).__name__)
            return wire.refuse(message.run, message.kind, wire.FAULT, _FAULT)

    def _answered(self, message: wire.Message) -> bytes:
        if message.kind == wire.HELLO:
            return wire.say(message.run, wire.HELLO, self._hello())
        if message.kind == wire.OFFER:
            return wire.say(
                message.run, wire.OFFER, self._policy.offer(self._terms(message.body), self._shape[0]).price
            )
        if message.run == wire.NO_RUN:
            raise Refusal(wire.BAD_TERMS, "the question names no run.")
        if message.kind == wire.BEGIN:
            return self._begin(message)
        if message.kind == wire.END:
            return self._end(message)
        begun = self._begun(message.run.hex())
        if message.kind == wire.PART:
            return self._keep_work(message, begun)
        if message.kind == wire.LOCAL:
            return self._local(message, begun)
        return self._round(message, begun)

    def _hello(self) -> Hello:
        rows, features = self._shape
        return Hello(self.name, rows, features, self._names, self._target, self._policy.modes, self.secure)

    def _terms(self, content: bytes) -> Terms:
        terms = check_terms(decode(content))
        if terms.columns and self._names and terms.columns != self._names:
            raise Refusal(wire.BAD_TERMS, "the columns asked for are not the site's, or in another order.")
        if terms.target and self._target and terms.target != self._target:
            raise Refusal(wire.BAD_TERMS, "the target asked for is not the site's.")
        return terms

    def _begin(self, message: wire.Message) -> bytes:
        run = message.run.hex()
        if self._store.ended(run):
            raise Refusal(wire.ENDED, "the run has ended at this site.")
        kept = self._store.terms(run)
        if kept is not None and kept != message.body:
            raise Refusal(wire.CHANGED, "the run began here under other terms; begin a new one.")
        reply = self._store.begun(run)
        if reply is not None:
            return reply
        terms = self._terms(message.body)
        reply = None if kept is None else self._store.price(run)
        if reply is None or not self._policy.paid(run, self._mark(message.body, reply)):
            self._policy.check_new(run)
            deal = self._policy.deal(terms, self._shape[0])
            reply = wire.say(message.run, wire.BEGIN, deal.price)
            self._store.intend(run, message.body, reply)
            try:
                self._policy.charge(run, deal, terms, self._mark(message.body, reply))
            except Refusal:  # over budget: nothing was charged
                self._store.forget(run)
                raise
        self._store.begin(run, reply)
        return reply

    def _mark(self, terms: bytes, reply: bytes) -> Mark:
        return Mark(self._store.identity(), wire.digest(wire.digest(terms) + reply).hex())

    def _begun(self, run: str) -> Begun:
        if self._store.ended(run):
            raise Refusal(wire.ENDED, "the run has ended at this site.")
        terms, reply = self._store.terms(run), self._store.begun(run)
        if terms is None or reply is None:
            raise Refusal(wire.NOT_BEGUN, "the run has not begun at this site: nothing was charged.")
        from dpsep.federated.pricing import carried_out

        found = check_terms(decode(terms))
        price = check_price(wire.heard(reply, bytes.fromhex(run), wire.BEGIN), found)
        return Begun(run, found, price, carried_out(found, price, self._shape[0]))

    def _keep_work(self, message: wire.Message, begun: Begun) -> bytes:
        name = wire.name_of(message.body)
        if self._store.work(begun.run, name) is None:
            self._check_work(decode(message.body), begun)
            self._store.keep_work(begun.run, name, message.body)
        return wire.say(message.run, wire.PART, name)

    def _check_work(self, work: Any, begun: Begun) -> None:
        from dpsep.federated.site_sums import check_work

        try:
            check_work(work, begun.parts, begun.terms)
        except ValueError as error:  # speaks of blocks, clips and shares
            raise Refusal(wire.BAD_TERMS, str(error)) from None

    def _round(self, message: wire.Message, begun: Begun) -> bytes:
        asked = wire.read_round(message.body)
        run = begun.run
        self._check_number(asked.part, asked.round, begun)
        content = self._store.work(run, asked.work)
        if content is None:
            raise Refusal(wire.UNKNOWN_PART, "the site was not told what is asked of records in this round.")
        children = self._children(run, asked)
        public = asked.head + b"".join(children)
        question = wire.digest(asked.work + public)
        kept = self._store.answer(run, asked.part, asked.round)
        if kept is not None:
            if kept.question != question:
                raise Refusal(wire.CHANGED, "the round was answered for other public values; it is over.")
            return kept.answer
        from dpsep.federated.site_sums import Drawn, packed_sums

        work = cast(Work, decode(content))
        if work.part != asked.part:
            raise Refusal(wire.BAD_TERMS, "the round is of another part than what it asks for.")
        value = decode(public)
        arrays, stream = self._arrays(work, begun.terms), Drawn(self._noise())
        try:
            packed = packed_sums(arrays, begun, work, value, stream)
            answer = wire.say_sums(message.run, asked.part, asked.round, self.secure, packed)
        except Exception as error:
            if not stream.drawn:
                raise
            answer = self._over(message, error)
        self._store.keep_values(run, asked.part, wire.kept_children(children))
        self._store.keep_answer(run, asked.part, asked.round, Kept(question, answer))
        return answer

    def _local(self, message: wire.Message, begun: Begun) -> bytes:
        from dpsep.federated.site_local import Alone
        from dpsep.federated.site_sums import Drawn

        alone = Alone(self._store, begun, self._shape[1], secure=self.secure)
        stream = Drawn(self._noise())
        return alone.answer(message, lambda work: self._arrays(work, begun.terms), stream, self._over)

    def _over(self, message: wire.Message, error: Exception) -> bytes:
        """Return the refusal that is a round's answer where it failed after coins or noise were drawn."""
        log.error("%s of %s failed: %s", wire.QUESTIONS[message.kind], self.name, type(error).__name__)
        return wire.refuse(message.run, message.kind, wire.FAULT, _OVER)

    def _check_number(self, part: int, number: int, begun: Begun) -> None:
        terms = begun.terms
        if terms.local:
            raise Refusal(wire.BAD_TERMS, "the run was begun for rounds in which the site works on its own.")
        if part >= len(terms.parts) or number >= terms.parts[part].steps:
            raise Refusal(wire.NOT_CHARGED, "no charge covers this round.")
        last = part == len(terms.parts) - 1
        if last and terms.rounds is not None and number not in terms.rounds:
            raise Refusal(wire.NOT_CHARGED, "the site has no part in this round: it was not charged for it.")

    def _children(self, run: str, asked: wire.Round) -> tuple[bytes, ...]:
        known = self._store.values(run, asked.part)
        children = []
        for child in asked.children:
            found = child if isinstance(child, bytes) else known.get(child[0])
            if found is None:
                raise Refusal(wire.UNKNOWN_VALUE, "the site does not hold public values that it was sent.")
            children.append(found)
        if sum(map(len, children)) > MOST_PUBLIC:
            raise Refusal(wire.BAD_TERMS, f"public values may have {MOST_PUBLIC} bytes in all.")
        return tuple(children)

    def _arrays(self, work: Work, terms: Terms) -> Any:
        """Read the table, once a process; the caller answers a charged round."""
        from dpsep.federated.site_sums import Table

        if terms.classes not in self._tables:
            records = self._records() if callable(self._records) else self._records
            coded = self._coded is not None and terms.classes == self._coded
            self._tables[terms.classes] = Table(records, self._shape, terms.classes, coded=coded)
        return self._tables[terms.classes].arrays(work.arrays)

    def _noise(self) -> "WordStream":
        """Where coins and noise of an answer come from: a new secure stream, or the seeded one of a test."""
        from dpsep.privacy.noise import SecureStream

        return SecureStream() if self._stream is None else self._stream

    def _end(self, message: wire.Message) -> bytes:
        run, status = message.run.hex(), decode(message.body)
        if status not in ("finished", "failed"):
            raise Refusal(wire.BAD_TERMS, "a run ends as 'finished' or 'failed'.")
        if self._store.terms(run) is None:
            raise Refusal(wire.NOT_BEGUN, "the run has not begun at this site.")
        self._finish(run, status)
        return wire.say(message.run, wire.END, None)

    def _finish(self, run: str, status: Any) -> None:
        noted = self._store.ended(run)
        self._store.end(run, status.encode())
        if not noted:
            try:
                self.ledger.finish(run, status)
            except LedgerError as error:  # the charge stands, whatever the note says
                log.warning("the end of a run was not noted in the ledger of %s: %s", self.name, type(error))


def _shape_of(records: Any, shape: tuple[int, int] | None) -> tuple[int, int]:
    if shape is None:
        if callable(records):
            raise ValueError("give shape=(rows, columns) where records are a function: none is read before.")
        from dpsep.estimators.input_checks import structure_of

        found = structure_of(*records)
        shape = (found.records, found.features)
    rows, columns = int(shape[0]), int(shape[1])
    if rows < 1 or columns < 1:
        raise ValueError(f"a site needs at least one row and one column, not {rows} and {columns}.")
    return rows, columns


def _names_of(records: Any) -> tuple[str, ...]:
    if callable(records):
        return ()
    from dpsep.estimators.input_checks import column_names

    return column_names(records[0]) or ()
