r"""A site's own steps between two rounds of partitioned EP.

Between rounds the site works alone: it holds a factor t_k, and with the cavity q / t_k as its prior it takes
`local` steps of the stable update (`dpsep.inference.stable`) on its own rows, each from one noisy release of
its own. What it sends is the factor that comes out: precision and mean part of the likelihood of its rows, as
far as its releases tell. Mean parts that were released under earlier cavities are used again with the latest
precision (`Settings.hindsight`): a mean part is a gradient at a known point, and only the prior's share of it
belongs to the cavity of its time.

**Privacy.** Every local step is a release with all of the site's own noise, as in mode ``"own"``, and all of
them were charged when the run began: rounds times `local`. The factor is a function of these releases and of
what the server sent. A round that is interrupted leaves nothing outside of the site and is done again; one
that is answered is kept. The proof is in docs/proofs/federated.md.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma
from dpsep.federated.codec import decode, encode
from dpsep.federated.site_sums import Arrays, noisy_sums
from dpsep.federated.wire import Factor, Local, Terms, Work
from dpsep.inference import stable
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.noise import WordStream

Array = NDArray[np.float64]


class Kept(NamedTuple):
    """An answer, and the state that the site's next round starts from."""

    answer: bytes
    state: bytes

    def write(self) -> bytes:
        """Return both as bytes."""
        return struct.pack("<I", len(self.answer)) + self.answer + self.state

    @classmethod
    def read(cls, content: bytes) -> "Kept":
        """Return both from bytes."""
        end = 4 + struct.unpack_from("<I", content)[0]
        return cls(content[4:end], content[end:])


class LocalGate:
    """The site's own gate: noisy sums of its rows, as an algorithm sees them (`dpsep.inference.summed`)."""

    def __init__(self, arrays: Arrays, begun: Any, work: Work, stream: WordStream) -> None:
        self._arrays, self._begun, self._work, self._stream = arrays, begun, work, stream
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
        """Return one step's noisy sums, by block name."""
        totals = noisy_sums(self._arrays, self._begun, self._work, public, self._stream)
        return {
            block.name: block.assemble(total.astype(np.float64) * block.unit)
            for block, total in zip(self._work.blocks, totals, strict=True)
        }


def check_local(asked: Any, terms: Terms, features: int) -> int:
    """Return the number of a round; raise ValueError where no charge covers it or it is not of its types."""
    if not isinstance(asked, Local) or not terms.local or terms.mode != "own":
        raise ValueError("the run was not begun for rounds in which the site works on its own.")
    rounds = terms.parts[0].steps // terms.local
    if not isinstance(asked.number, int) or not 0 <= asked.number < rounds:
        raise ValueError("no charge covers this round.")
    d = len(asked.mean) if isinstance(asked.mean, np.ndarray) and asked.mean.ndim == 1 else 0
    shapes = [np.shape(part) for part in (asked.prior_mean, asked.mean, asked.start, asked.prior_precision)]
    if d not in (features, features + 1) or shapes != [(d,), (d,), (d,), (d, d)]:
        raise ValueError("the cavity does not have the shape of the site's table.")
    if not isinstance(asked.work, bytes) or not isinstance(asked.warmup, int) or not asked.warmup >= 0:
        raise ValueError("the round is not of its types.")
    if not isinstance(asked.cap, float) or not asked.cap > 0:
        raise ValueError("the round is not of its types.")
    return asked.number


def local_round(
    arrays: Arrays, begun: Any, work: Work, asked: Local, before: bytes | None, stream: WordStream
) -> tuple[Factor, bytes]:
    """Take the steps of one round; return the site's factor, and the state to go on from."""
    settings = stable.Settings(
        prior_mean=asked.prior_mean,
        prior_precision=asked.prior_precision,
        features=asked.features,
        outcome=asked.outcome,
        start=asked.start,
        warmup=asked.warmup,
        cap=asked.cap,
        hindsight=True,
    )
    state = stable.init(settings) if before is None else _loaded(before, settings)
    state = state._replace(mean=asked.mean)
    gate = LocalGate(arrays, begun, work, stream)
    for _ in range(begun.terms.local):
        state, _ = stable.step(gate, settings, state)
    precision = (state.geometry + state.geometry.T) / 2
    whole = asked.prior_precision + precision
    eta = whole @ state.mean - asked.prior_precision @ asked.prior_mean
    return Factor(eta, precision, _noise_of_eta(state, whole)), _saved(state, settings)


def _noise_of_eta(state: stable.State, whole: Array) -> Array:
    """Covariance that noise gives to the mean part of the factor: that of the mean, taken through q."""
    spread = whole @ stable.noise_covariance(state) @ whole
    return (spread + spread.T) / 2


def _saved(state: stable.State, settings: stable.Settings) -> bytes:
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


def _loaded(content: bytes, settings: stable.Settings) -> stable.State:
    """State of the round before, its mean parts counted with the cavity of now."""
    step, geometry, precision, blur, at, gradient, weight, mean, prior = decode(content)
    d = len(mean)
    seen = []
    for point, slope, sharpness in zip(at, gradient, weight, strict=True):
        own = slope - prior @ (mean - point)  # of the likelihood alone
        now = own + settings.prior_precision @ (settings.prior_mean - point)
        seen.append(stable.Seen(point, now, sharpness))
    return stable.State(
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
