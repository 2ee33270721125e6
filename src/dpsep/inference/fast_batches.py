r"""Networks with independent weights in batches, as fast as the machine allows: `network_diagonal`, compiled.

A step is that of `dpsep.inference.network_diagonal`: whitened local factors of some records, each of their
blocks clipped, summed, and an update from the sums. With a stream of random words the sums are made on the
grid of a release, and the noise a gate would add is drawn: what a private step costs.

**Privacy.** Nothing here is private. Records are read without a gate and nothing is accounted: with noise as
without, what comes out is for experiments and measurements and not for release. Private fits go through
`network_diagonal.run`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.inference import network_diagonal
from dpsep.inference.compiled import available, covers
from dpsep.inference.compiled.layout import layout, numbers, room
from dpsep.models.network_model import Network
from dpsep.privacy.grid import Block
from dpsep.privacy.noise import WordStream, rounded_gaussian

GROUP = 4
"""Records that go through the network together, so that what one waits for is filled by the others."""
AHEAD = 16
"""Steps whose noise is drawn at a time: a call costs as much as some hundred draws."""


class Batches:
    """A network in the course of a fit, and its records; `step` moves it.

    Parameters
    ----------
    model
        One that `dpsep.inference.compiled.covers` names.
    settings
        `network_diagonal.Settings`.
    records
        `(X, y)`, with the records along the first axis.
    clips
        Norms that mean parts, precision parts and noise parts of a record are clipped to.
    dtype
        Precision of factors, np.float64 or np.float32; sums and the state are double.
    seed
        Of the random means.
    """

    def __init__(
        self,
        model: Network,
        settings: Any,
        records: Any,
        clips: tuple[float, float, float] = (math.inf, math.inf, math.inf),
        *,
        dtype: Any = np.float64,
        seed: Any = 0,
    ) -> None:
        if not available() or not covers(model):
            raise ValueError(
                "there is no compiled form of this model here; it needs the extra 'fast' (Numba) and a "
                "rectified NetworkRegression with ConcentratedNoise. Use dpsep.inference.network_diagonal."
            )
        self._model, self._settings, self._dtype = model, settings, dtype
        self._x, self._y = _scaled(settings, records, dtype)
        self._blocks = [Block(name, size, clip) for name, size, clip in _parts(model.size, clips)]
        self._clips = tuple(dtype(clip) for clip in clips)
        places = layout(model.widths, dtype)
        self._places = places
        shape = (places.layers, places.inputs, places.first)
        self._fixed = (shape, numbers(dtype), tuple(room(places, dtype, GROUP)), np.zeros((2, GROUP), dtype))
        self._partial = np.zeros((2, places.size), dtype)
        filling = (0.0, 1.0, 0.0, 1.0)
        public = tuple(np.full(places.size, value, dtype) for value in filling)
        self._public = (*public, np.zeros(2, dtype))
        self._sums = (np.zeros(places.size), np.zeros(places.size), np.zeros(2))
        first = network_diagonal.init(model, settings, seed)
        scalars = np.array([float(first.noise), 0.0, 0.0, 0.0])
        self._state = (*(np.array(part, np.float64) for part in first[:3]), scalars)
        self._blur = np.zeros(model.size)
        self._ahead: tuple[Any, NDArray[np.int64]] = (None, np.zeros((0, 0), np.int64))
        self._average = (np.zeros(model.size), np.zeros(model.size))
        self._sizes = np.array([math.prod(shape) for shape in model.shapes])
        self._limits = tuple(
            float(each)
            for each in (
                settings.cap,
                settings.noise_rate,
                settings.prior_shape,
                settings.prior,
                network_diagonal.LEAST_PRIOR,
                network_diagonal.LEAST_NOISE,
            )
        )

    def step(
        self, rows: Any, sigma: float = 0.0, stream: WordStream | None = None, batch: float | None = None
    ) -> None:
        """Take a step on these rows.

        Parameters
        ----------
        rows
            Row numbers.
        sigma
            Noise multiplier, in units of each block's clip.
        stream
            Source of the noise: sums are then made on the grid of a release. None adds no noise.
        batch
            Expected number of rows; theirs if left out.
        """
        from dpsep.inference.compiled import updates

        released = self.sums(rows, grid=stream is not None)
        deviation = 0.0
        if stream is not None:
            deviation = sigma * self._blocks[0].clip
            noise, used = self._drawn(stream, sigma), 0
            for part, block in zip(released, self._blocks, strict=True):
                part += noise[used : used + block.size]
                part *= block.unit
                used += block.size
        settings, (_, _, _, scalars) = self._settings, self._state
        records, steps = float(settings.records), float(settings.steps)
        passed = min(max(2.0 * scalars[3] / steps - 1.0, 0.0), 1.0)
        rate = float(settings.rate) * (1.0 - (1.0 - float(settings.last)) * passed)
        on = scalars[3] >= math.floor((1.0 - float(settings.tail)) * steps)
        moves = (rate, records / (len(rows) if batch is None else batch), records, on)
        limits = self._limits
        updates.update(
            self._state, self._blur, self._average, released, self._sizes, moves, limits, deviation
        )

    def sums(self, rows: Any, *, grid: bool = False) -> tuple[NDArray[np.float64], ...]:
        """Sum the clipped factors of these rows, by block: mean, precision and noise part.

        Parameters
        ----------
        grid
            Whether they are rounded to the grid of a release, and counted in its units.
        """
        from dpsep.inference.compiled import batches, updates

        dtype, place = self._dtype, self._places.place
        updates.publish(self._state, place, self._public, float(self._settings.records))
        units = float(self._blocks[0].norm_units) if grid else 0.0
        rest = tuple(dtype(units - math.sqrt(block.size) / 2) for block in self._blocks)
        for part in self._sums:
            part.fill(0.0)
        rows = np.asarray(rows, np.int64)
        batches.batch(
            self._x,
            self._y,
            rows,
            self._public,
            self._clips,
            (dtype(units), rest),
            *self._fixed,
            self._partial,
            self._sums,
        )
        return self._sums[0][place], self._sums[1][place], self._sums[2].copy()

    def _drawn(self, stream: WordStream, sigma: float) -> NDArray[np.int64]:
        """Noise of all blocks, which is of one size in the units of their grids; `AHEAD` steps at a time."""
        if self._ahead[0] != (stream, sigma) or not len(self._ahead[1]):
            width = sum(block.size for block in self._blocks)
            drawn = rounded_gaussian(stream, sigma * self._blocks[0].clip_units, (AHEAD, width))
            self._ahead = ((stream, sigma), drawn)
        kept, drawn = self._ahead
        self._ahead = (kept, drawn[1:])
        return drawn[0]

    def state(self) -> network_diagonal.State:
        """Return the state as `network_diagonal` has it."""
        mean, precision, prior, scalars = self._state
        one, two = (jnp.asarray(part) for part in self._average)
        average = (one, two, jnp.asarray(scalars[1]))
        return network_diagonal.State(
            jnp.asarray(mean),
            jnp.asarray(precision),
            jnp.asarray(prior),
            jnp.asarray(scalars[0]),
            jnp.asarray(self._blur),
            average,
            jnp.asarray(scalars[2]),
            jnp.asarray(int(scalars[3])),
        )


def _scaled(settings: Any, records: Any, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Records as the network sees them: clipped, scaled, inputs turned."""
    with jax.enable_x64(True):
        x = np.asarray(settings.features.apply(jnp.asarray(records[0], jnp.float64)))
        y = np.asarray(settings.outcome.apply(jnp.asarray(records[1], jnp.float64)))
    return np.ascontiguousarray(x @ np.asarray(settings.turn), dtype), np.ascontiguousarray(y, dtype)


def _parts(size: int, clips: tuple[float, float, float]) -> list[tuple[str, int, float]]:
    return list(zip(("mean", "precision", "noise"), (size, size, 2), clips, strict=True))
