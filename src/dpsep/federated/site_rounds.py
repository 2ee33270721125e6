"""What a round must not do twice: streams that know whether they were drawn from, and rounds alone.

**Privacy.** Coins and noise of a number are used once. An error before anything was drawn depends on public
values and on the site's machine, and leaves the number open. An error after that may depend on what was
drawn, so that asking until none happens would be a release without a charge: it is the number's answer, kept
like any other. In a round in which the site works on its own (`Alone`) each release is kept, under the
question it was drawn for, before anything is computed from it: a process that dies goes on from the same
releases. The proof is in docs/proofs/federated.md.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpsep.federated import site_local, wire
from dpsep.federated.codec import decode
from dpsep.federated.site_local import LocalGate, Releases
from dpsep.federated.site_policy import Refusal
from dpsep.federated.site_store import Kept, Store
from dpsep.federated.site_sums import Arrays
from dpsep.federated.terms import Work
from dpsep.privacy.checkpoint import WriteError
from dpsep.privacy.noise import WordStream


class Drawn:
    """A stream that knows whether anything was drawn from it.

    Parameters
    ----------
    stream
        Where words come from.
    """

    def __init__(self, stream: WordStream) -> None:
        self._stream, self.secure, self.drawn = stream, stream.secure, False

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` words."""
        self.drawn = True
        return self._stream.words(n)


class Alone:
    """Rounds of a charged run in which the site works on its own.

    Parameters
    ----------
    store
        The site's memory.
    begun
        The run.
    features
        Columns of the site's table.
    secure
        Whether the site's noise is for release.
    """

    def __init__(self, store: Store, begun: Any, features: int, *, secure: bool) -> None:
        self._store, self._begun, self._features, self._secure = store, begun, features, secure

    def answer(
        self,
        message: wire.Message,
        arrays_of: Callable[[Work], Arrays],
        stream: Drawn,
        over: Callable[[wire.Message, Exception], bytes],
    ) -> bytes:
        """Return the answer to LOCAL, kept before or now.

        Parameters
        ----------
        arrays_of
            Reads the table.
        over
            Makes the answer of a round that failed after something was drawn.
        """
        asked, question = decode(message.body), wire.digest(message.body)
        number = site_local.check_local(asked, self._begun, self._features)
        run = self._begun.run
        kept, first = self._store.answer(run, 0, number), self._store.release(run, number, 0)
        if any(one is not None and one.question != question for one in (kept, first)):
            raise Refusal(wire.CHANGED, "the round was answered for another cavity; it is over.")
        if kept is not None:
            return site_local.Kept.read(kept.answer).answer
        content = self._store.work(run, asked.work)
        if content is None:
            raise Refusal(wire.UNKNOWN_PART, "the site was not told what is asked of records in this round.")
        work = cast(Work, decode(content))
        site_local.check_work_alone(work, asked)
        before = self._before(number)
        gate = LocalGate(arrays_of(work), self._begun, work, stream, self._releases(number, question))
        try:
            factor, state = site_local.local_round(gate, self._begun.terms.local, asked, before)
            answer = wire.say(message.run, wire.LOCAL, (number, self._secure, factor))
        except WriteError:  # of a release, from which nothing was computed
            raise
        except Exception as error:
            if first is None and not stream.drawn:
                raise
            answer, state = over(message, error), b""
        # The answer and the state that the next round starts from are one file: neither is there alone.
        both = site_local.Kept(answer, state).write()
        self._store.keep_answer(run, 0, number, Kept(question, both))
        return answer

    def _before(self, number: int) -> bytes | None:
        """Return the state that a round starts from; None for the first."""
        if number == 0:
            return None
        kept = self._store.answer(self._begun.run, 0, number - 1)
        if kept is None:
            raise Refusal(wire.BAD_TERMS, "the round before has not been answered.")
        state = site_local.Kept.read(kept.answer).state
        if not state:
            raise Refusal(wire.BAD_TERMS, "the round before could not be completed; there is none after it.")
        return state

    def _releases(self, number: int, question: bytes) -> Releases:
        run = self._begun.run

        def read(index: int) -> bytes | None:
            kept = self._store.release(run, number, index)
            return None if kept is None else kept.answer

        def write(index: int, content: bytes) -> None:
            self._store.keep_release(run, number, index, Kept(question, content))

        return Releases(read, write)
