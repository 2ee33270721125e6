r"""A site's own steps between two rounds of partitioned EP.

Between rounds the site works alone: it holds a factor t_k, and with the cavity q / t_k as its prior it takes
`local` steps of the stable update (`dpsep.inference.sep_newton`) on its own rows, each from one noisy release
of its own. What it sends is the factor that comes out: precision and mean part of the likelihood of its rows,
as far as its releases tell. Mean parts that were released under earlier cavities are used again with the
latest precision (`Settings.hindsight`): a mean part is a gradient at a known point, and only the prior's
share of it belongs to the cavity of its time.

**Privacy.** Every local step is a release with all of the site's own noise, as in mode ``"own"``, and all of
them were charged when the run began: rounds times `local`. The factor is a function of these releases and of
what the server sent. A release is on the disk before anything is computed from it, and a round that is begun
again goes on from the releases it has: whatever an update does, also where it fails, is a function of one set
of releases. A cavity that no posterior has is refused before anything is drawn. The proof is in
docs/proofs/federated.md.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma
from dpsep.federated import wire
from dpsep.federated.codec import decode, encode
from dpsep.federated.pricing import BadTerms, rounds_alone
from dpsep.federated.site_policy import Refusal
from dpsep.federated.site_store import Kept, Store
from dpsep.federated.site_sums import Arrays, Drawn, noisy_sums
from dpsep.federated.terms import Factor, Local, Work
from dpsep.federated.wire import BAD_TERMS, NOT_CHARGED
from dpsep.inference import sep_newton
from dpsep.models.glm import Columns
from dpsep.privacy.checkpoint import WriteError
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import WordStream

Array = NDArray[np.float64]
LEAST, MOST = 1e-30, 1e30
"""Range of precisions that a cavity may have, and of its mean's size."""
MOST_RATIO = 1e14
"""Largest ratio of two precisions of one cavity: beyond, doubles do not tell it from a singular one."""


class Releases:
    """Where the releases of one round are kept, under the question that they were drawn for."""

    def __init__(self, store: Store, run: str, number: int, question: bytes) -> None:
        self._store, self._run, self._number, self._question = store, run, number, question

    def read(self, index: int) -> bytes | None:
        """Return a release."""
        kept = self._store.release(self._run, self._number, index)
        return None if kept is None else kept.answer

    def write(self, index: int, content: bytes) -> None:
        """Keep a release; on return it is on the disk."""
        self._store.keep_release(self._run, self._number, index, Kept(self._question, content))


class Done(NamedTuple):
    """An answer, and the state that the site's next round starts from."""

    answer: bytes
    state: bytes

    def write(self) -> bytes:
        """Return both as bytes."""
        return struct.pack("<I", len(self.answer)) + self.answer + self.state

    @classmethod
    def read(cls, content: bytes) -> "Done":
        """Return both from bytes."""
        end = 4 + struct.unpack_from("<I", content)[0]
        return cls(content[4:end], content[end:])


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
        number = check_local(asked, self._begun, self._features)
        run = self._begun.run
        kept, first = self._store.answer(run, 0, number), self._store.release(run, number, 0)
        if any(one is not None and one.question != question for one in (kept, first)):
            raise Refusal(wire.CHANGED, "the round was answered for another cavity; it is over.")
        if kept is not None:
            return Done.read(kept.answer).answer
        content = self._store.work(run, asked.work)
        if content is None:
            raise Refusal(wire.UNKNOWN_PART, "the site was not told what is asked of records in this round.")
        work = cast(Work, decode(content))
        check_work_alone(work, asked)
        before = self._before(number)
        gate = LocalGate(
            arrays_of(work), self._begun, work, stream, Releases(self._store, run, number, question)
        )
        try:
            factor, state = local_round(gate, self._begun.terms.local, asked, before)
            answer = wire.say(message.run, wire.LOCAL, (number, self._secure, factor))
        except WriteError:  # of a release, from which nothing was computed
            raise
        except Exception as error:
            if first is None and not stream.drawn:
                raise
            answer, state = over(message, error), b""
        # The answer and the state that the next round starts from are one file: neither is there alone.
        both = Done(answer, state).write()
        self._store.keep_answer(run, 0, number, Kept(question, both))
        return answer

    def _before(self, number: int) -> bytes | None:
        """Return the state that a round starts from; None for the first."""
        if number == 0:
            return None
        kept = self._store.answer(self._begun.run, 0, number - 1)
        if kept is None:
            raise Refusal(wire.BAD_TERMS, "the round before has not been answered.")
        state = Done.read(kept.answer).state
        if not state:
            raise Refusal(wire.BAD_TERMS, "the round before could not be completed; there is none after it.")
        return state


class LocalGate:
    """The site's own gate: noisy sums of its rows, as an algorithm sees them (`gate_protocol`)."""

    def __init__(
        self, arrays: Arrays, begun: Any, work: Work, stream: WordStream, releases: Releases
    ) -> None:
        self._arrays, self._begun, self._work, self._stream = arrays, begun, work, stream
        self._releases, self._next = releases, 0
        self._mechanism: Mechanism = begun.parts[work.part]

    @property
    def records(self) -> int:
        """Rows of the site."""
        return self._mechanism.records

    @property
    def expected_batch(self) -> float:
        """Expected rows of a step."""
        return self._mechanism.sampling.expected_batch(self.records)

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise."""
        sigma = self._begun.price.sigmas[self._work.part]
        return {block.name: sigma * block.clip / block.share**0.5 for block in self._work.blocks}

    def release(self, public: Any) -> dict[str, Array]:
        """Return one step's noisy sums, by block name: those kept, or new ones once they are kept."""
        content = self._releases.read(self._next)
        if content is None:
            totals = noisy_sums(self._arrays, self._begun, self._work, public, self._stream)
            content = np.concatenate(totals).astype("<i8").tobytes()
            self._releases.write(self._next, content)
        self._next += 1
        ends = np.cumsum([block.coordinates for block in self._work.blocks])[:-1]
        totals = np.split(np.frombuffer(content, "<i8"), ends)
        return {
            block.name: block.assemble(total.astype(np.float64) * block.unit)
            for block, total in zip(self._work.blocks, totals, strict=True)
        }


def check_local(asked: Any, begun: Any, features: int) -> int:
    """Return the number of a round; raise `Refusal` where no charge covers it or it is none."""
    terms = begun.terms
    if not isinstance(asked, Local) or not terms.local:
        raise Refusal(BAD_TERMS, "the run was not begun for rounds in which the site works on its own.")
    try:
        rounds = rounds_alone(terms, begun.price)
    except BadTerms as error:
        raise Refusal(BAD_TERMS, str(error)) from None
    if type(asked.number) is not int or not 0 <= asked.number < rounds:
        raise Refusal(NOT_CHARGED, "no charge covers this round.")
    typed = (
        isinstance(asked.work, bytes)
        and type(asked.warmup) is int
        and asked.warmup >= 0
        and type(asked.cap) is float
        and asked.cap > 0
    )
    if not typed:
        raise Refusal(BAD_TERMS, "the round is not of its types.")
    _check_cavity(asked, features)
    return asked.number


def check_work_alone(work: Work, asked: Local) -> None:
    """Raise `Refusal` where what is asked of records is not what a site's own steps are made of."""
    d = len(asked.mean)
    found = [(block.name, block.kind, block.size) for block in work.blocks]
    wanted = [("mean", "flat", d), ("precision", "outer", d)]
    if work.part != 0 or found != wanted:
        raise Refusal(
            BAD_TERMS,
            f"a site that works on its own needs blocks 'mean' and 'precision' of {d} weights, in part 0.",
        )


def _check_cavity(asked: Local, features: int) -> None:
    """Raise `Refusal` unless the cavity is one of the table's shape, positive and within range."""
    d = len(asked.mean) if isinstance(asked.mean, np.ndarray) and asked.mean.ndim == 1 else 0
    parts = (asked.prior_mean, asked.mean, asked.start, asked.prior_precision)
    shapes = [part.shape if isinstance(part, np.ndarray) else None for part in parts]
    columns = _has_shape(asked.features, (features,)) and _has_shape(asked.outcome, ())
    if d not in (features, features + 1) or shapes != [(d,), (d,), (d,), (d, d)] or not columns:
        raise Refusal(BAD_TERMS, "the cavity does not have the shape of the site's table.")
    precision = asked.prior_precision
    ranged = (
        all(part.dtype == np.float64 and np.abs(part).max() <= MOST for part in parts)
        and asked.start.min() >= LEAST
        and asked.start.max() <= MOST_RATIO * asked.start.min()
        and np.array_equal(precision, precision.T)
    )
    values = np.linalg.eigvalsh(precision) if ranged else np.zeros(1)
    if not values[0] >= max(LEAST, values[-1] / MOST_RATIO):
        raise Refusal(
            BAD_TERMS,
            f"a cavity needs a symmetric precision and a start, both positive, between {LEAST:g} and "
            f"{MOST:g} and within a factor of {MOST_RATIO:g}, and finite means.",
        )


def _has_shape(columns: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(columns, Columns) and all(
        isinstance(part, np.ndarray | np.generic | float) and np.shape(part) == shape for part in columns
    )


def local_round(gate: LocalGate, steps: int, asked: Local, before: bytes | None) -> tuple[Factor, bytes]:
    """Take the steps of one round; return the site's factor, and the state to go on from."""
    settings = sep_newton.Settings(
        prior_mean=asked.prior_mean,
        prior_precision=asked.prior_precision,
        features=asked.features,
        outcome=asked.outcome,
        start=asked.start,
        warmup=asked.warmup,
        cap=asked.cap,
        hindsight=True,
    )
    state = sep_newton.init(settings) if before is None else _loaded(before, settings)
    state = state._replace(mean=asked.mean)
    for _ in range(steps):
        state, _ = sep_newton.step(gate, settings, state)
    precision = (state.geometry + state.geometry.T) / 2
    whole = asked.prior_precision + precision
    eta = whole @ state.mean - asked.prior_precision @ asked.prior_mean
    factor = Factor(eta, precision, _noise_of_eta(state, whole))
    if not all(np.isfinite(part).all() for part in factor):
        raise FloatingPointError("a factor is not finite.")
    return factor, _saved(state, settings)


def _noise_of_eta(state: sep_newton.State, whole: Array) -> Array:
    """Covariance that noise gives to the mean part of the factor: that of the mean, taken through q."""
    spread = whole @ sep_newton.noise_covariance(state) @ whole
    return (spread + spread.T) / 2


def _saved(state: sep_newton.State, settings: sep_newton.Settings) -> bytes:
    d = len(state.mean)
    seen = state.seen
    arrays = (
        state.geometry,
        state.precision,
        state.blur,
        np.array([one.at for one in seen]).reshape(-1, d),
        np.array([one.gradient for one in seen]).reshape(-1, d),
        np.array([one.weight for one in seen]).reshape(-1, d, d),
        settings.prior_mean,
        settings.prior_precision,
    )
    return encode((state.step, *arrays))


def _loaded(content: bytes, settings: sep_newton.Settings) -> sep_newton.State:
    """State of the round before, its mean parts counted with the cavity of now."""
    step, geometry, precision, blur, at, gradient, weight, mean, prior = decode(content)
    d = len(mean)
    seen = []
    for point, slope, sharpness in zip(at, gradient, weight, strict=True):
        own = slope - prior @ (mean - point)  # of the likelihood alone
        now = own + settings.prior_precision @ (settings.prior_mean - point)
        seen.append(sep_newton.Seen(point, now, sharpness))
    return sep_newton.State(
        mean=settings.prior_mean,
        geometry=geometry,
        precision=precision,
        blur=blur,
        information=np.zeros((d, d)),
        target=np.zeros(d),
        noise=Gamma(np.asarray(0.0), np.asarray(1.0)),  # pyright: ignore[reportArgumentType]
        noise_weight=0.0,
        step=step,
        seen=tuple(seen),
    )
