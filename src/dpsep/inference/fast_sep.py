r"""Networks record by record, as fast as the machine allows: stochastic EP and filtering as compiled loops.

The same steps as `dpsep.inference.sep` (Algorithm 2, its clipped form, Algorithm 3 with noise for
experiments) and `dpsep.inference.pbp`, for networks that `covers` names, where Numba is installed
(`available`). `sep.run` and `pbp.run` come here by themselves; these functions also let the precision be
chosen. Results agree with the JAX forms up to rounding.

**Privacy.** None. Records are read without a gate, and what `noisy` returns is not for release, whatever its
noise is made of: nothing is accounted.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma
from dpsep.inference.compiled import available, covers
from dpsep.inference.compiled.layout import Layout, layout, numbers, room, spread
from dpsep.models.network_model import Network, NetworkPosterior
from dpsep.privacy.noise import SecureStream, rounded_gaussian

__all__ = ["available", "covers", "filtering", "noisy", "sequential"]

BLOCK = 64
"""Records whose noise is drawn at a time."""
GRID = 2.0**20
"""Grid units in the clip, for secure noise."""


class _Set(NamedTuple):
    """A network's numbers in their places."""

    layout: Layout
    shape: tuple[Any, ...]
    numbers: tuple[Any, ...]
    room: tuple[Any, ...]
    moments: tuple[Any, Any]


def sequential(
    model: Network, settings: Any, records: Any, order: Any, start: Any = None, *, dtype: Any = np.float64
) -> Any:
    """Stochastic EP, or clipped SEP, one record a step: `dpsep.inference.sep.run`, compiled.

    Parameters
    ----------
    model
        One that `covers` names.
    settings
        `sep.Settings`; the clip is None or one number.
    records
        `(X, y)`, with the records along the first axis.
    order
        Row numbers; a row may come up many times.
    start
        Posterior to start from; the prior if left out.
    dtype
        np.float64 or np.float32.

    Returns
    -------
    The last `sep.State`, its factor of the form of the prior.
    """
    return _stochastic(model, settings, records, order, start, dtype, None)


def noisy(
    model: Network,
    settings: Any,
    records: Any,
    order: Any,
    start: Any = None,
    *,
    deviation: float,
    noise: Literal["float", "secure"] = "float",
    seed: int = 0,
    dtype: Any = np.float64,
) -> Any:
    """Algorithm 3 one record a step: clipped factors, and noise in every step. Not for release.

    Parameters
    ----------
    model, settings, records, order, start, dtype
        As of `sequential`; the clip is finite.
    deviation
        Standard deviation of the noise that is added to every number of theta in step 9.
    noise
        ``"float"`` draws it in floating point from NumPy's generator; ``"secure"`` draws what a gate would
        (`dpsep.privacy.noise`), on a grid of 2^20 units to the noise's clip, which takes most of the time.
    seed
        Of the floating-point noise.
    """
    if settings.clip is None or not np.isfinite(settings.clip):
        raise ValueError("clip is not finite; noise is calibrated to a clip, so give one number.")
    draw = (
        _float_draws(deviation, seed, dtype)
        if noise == "float"
        else _secure_draws(deviation, settings, dtype)
    )
    return _stochastic(model, settings, records, order, start, dtype, draw)


def filtering(
    model: Network, posterior: Any, records: Any, order: Any = None, *, dtype: Any = np.float64
) -> NetworkPosterior:
    """Multiply records into a posterior, one by one: `dpsep.inference.pbp.multiply_in`, compiled.

    Parameters
    ----------
    model
        One that `covers` names.
    posterior
        Proper density to start from.
    records
        `(X, y)`, with the records along the first axis.
    order
        Row numbers; all rows in turn if left out.
    dtype
        np.float64 or np.float32.

    Returns
    -------
    The posterior, its weights flat.
    """
    from dpsep.inference.compiled import loops

    ready = _ready(model, dtype)
    x, y = _records(records, dtype)
    weights, noise = model.parts(model.flat(posterior))
    precision = np.asarray(weights.precision, np.float64)
    mean = spread(ready.layout, np.asarray(weights.eta, np.float64) / precision, 0.0, dtype)
    variance = spread(ready.layout, 1.0 / precision, 1.0, dtype)
    rest = _gamma(noise, dtype)
    rows = np.arange(len(y)) if order is None else np.asarray(order, np.int64)
    loops.filtering(x, y, rows, (mean, variance, rest), ready.shape, ready.numbers, ready.room)
    place = ready.layout.place
    parts = type(weights)(jnp.asarray(mean[place] / variance[place]), jnp.asarray(1.0 / variance[place]))
    return model.joined(parts, Gamma(jnp.asarray(rest[0]), jnp.asarray(rest[1])))


def _stochastic(
    model: Network, settings: Any, records: Any, order: Any, start: Any, dtype: Any, draw: Any
) -> Any:
    from dpsep.inference import sep
    from dpsep.inference.compiled import loops

    ready = _ready(model, dtype)
    x, y = _records(records, dtype)
    prior = _natural(model, ready.layout, settings.prior, dtype)
    first = settings.prior if start is None else start
    posterior = _natural(model, ready.layout, first, dtype)
    clip = np.inf if settings.clip is None else float(settings.clip)
    steps = (1.0 / settings.records, float(settings.gamma) / settings.records, clip, float(settings.floor))
    steps = tuple(dtype(each) for each in steps)
    rows = np.asarray(order, np.int64)
    size = 2 * model.size + 2
    for begin in range(0, len(rows), len(rows) if draw is None else BLOCK):
        part = rows[begin:] if draw is None else rows[begin : begin + BLOCK]
        draws = np.zeros((0, size), dtype) if draw is None else draw(len(part), size)
        fixed = (ready.shape, ready.numbers, ready.room, ready.moments)
        loops.stochastic(x, y, part, posterior, prior, steps, draws, *fixed)
    place, share = ready.layout.place, 1.0 / settings.records
    eta, precision, rest = (
        (np.asarray(new, np.float64) - np.asarray(old, np.float64)) * share
        for new, old in zip(posterior, prior, strict=True)
    )
    weights, _ = model.parts(model.flat(settings.prior))
    flat = type(weights)(jnp.asarray(eta[place].astype(dtype)), jnp.asarray(precision[place].astype(dtype)))
    factor = model.joined(flat, Gamma(*(jnp.asarray(each) for each in rest.astype(dtype))))
    layered = jax.tree.structure(factor) != jax.tree.structure(settings.prior)
    return sep.State(model.layered(factor) if layered else factor, jnp.asarray(len(rows)))


def _ready(model: Network, dtype: Any) -> _Set:
    if not available() or not covers(model):
        raise ValueError(
            "there is no compiled form of this model here; it needs the extra 'fast' (Numba) and a rectified "
            "NetworkRegression with ConcentratedNoise. Use dpsep.inference.sep or pbp instead."
        )
    places = layout(model.widths, dtype)
    moments = (np.zeros(places.size, dtype), np.zeros(places.size, dtype))
    shape = (places.layers, places.inputs, places.first)
    return _Set(places, shape, numbers(dtype), tuple(room(places, dtype)), moments)


def _records(records: Any, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = records
    return np.ascontiguousarray(x, dtype), np.ascontiguousarray(y, dtype)


def _natural(model: Network, places: Layout, posterior: Any, dtype: Any) -> tuple[Any, Any, Any]:
    weights, noise = model.parts(model.flat(posterior))
    eta, precision = spread(places, weights.eta, 0.0, dtype), spread(places, weights.precision, 1.0, dtype)
    return eta, precision, _gamma(noise, dtype)


def _gamma(noise: Gamma, dtype: Any) -> NDArray[Any]:
    return np.array([float(noise.shape_minus_one), float(noise.rate)], dtype)


def _float_draws(deviation: float, seed: int, dtype: Any) -> Any:
    generator = np.random.Generator(np.random.SFC64(seed))
    held = np.empty(0, dtype)

    def draw(rows: int, size: int) -> NDArray[Any]:
        nonlocal held
        if held.shape != (rows, size):
            held = np.empty((rows, size), dtype)
        generator.standard_normal(dtype=dtype, out=held)
        return np.multiply(held, dtype(deviation), out=held)

    return draw


def _secure_draws(deviation: float, settings: Any, dtype: Any) -> Any:
    stream = SecureStream()
    unit = settings.clip * settings.gamma / settings.records / GRID
    return lambda rows, size: (rounded_gaussian(stream, deviation / unit, (rows, size)) * unit).astype(dtype)
