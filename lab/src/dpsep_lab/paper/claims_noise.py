r"""Signal and noise of a step: is a sensitivity of 1/N better than one of 1/B?

*The claim* (section 3.3, "Is this DP-SGD applied to DP-SEP?"): "the sensitivity is on the order of 1/N [...]
while the sensitivity of DP-SGD is on the order of 1/B [...] Hence, DP-SEP can significantly reduce the amount
of noise in each privatization step". The noise does shrink with N. So does what is released. A step on B
records moves theta by

.. math:: (\gamma / N) \Big( \sum_{n \in B} \theta_{f_n} - B \theta_f + 2 C \sigma \xi \Big),

and the mean gradient of DP-SGD over the same contributions by :math:`(1 / B) (\sum_n g_n + 2 C \sigma \xi)`.
Both are one noisy sum in other units: gamma and N, or 1/B, scale signal and noise alike. What tells is the
*ratio*, the length of the expected move over the noise's standard deviation in a coordinate, which is
:math:`B |\bar g| / (2 C \sigma)` for both. `per_step` measures it with the steps of `dpsep.inference.sep`.

Both methods are given the same draws, so their ratios agree to rounding. Sigma here is the paper's, the noise
over 2C. What a whole run holds at the same epsilon is in `dpsep_lab.paper.claims_budget`.

**Privacy**: none. Data are made, noise is seeded, and nothing is released.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gaussian
from dpsep.families import clip as clip_norm
from dpsep.families.flat import from_vector, to_vector
from dpsep.inference import sep
from dpsep.models import GLM, GaussianLikelihood, ProbitLikelihood

__all__ = ["BATCHES", "CLIP", "SIZES", "Made", "made", "per_step"]

Array = NDArray[np.float64]
Row = dict[str, Any]

SIZES = (100, 1_000, 10_000, 100_000)
BATCHES = (1, 10, 100, 1_000)
DIMENSION = 5
CLIP, SIGMA = 1.0, 1.0
DRAWS = 4_000
CLAIM = "1/N beats 1/B, one step"
_CHUNK = 10_000


class Made(NamedTuple):
    """Made records and their clipped local factors at the start of a run.

    Attributes
    ----------
    settings, state
        Of clipped SEP, before its first step.
    factors
        Flat natural parameters, each of norm at most C, (N, size).
    """

    settings: sep.Settings
    state: sep.State
    factors: Array


def made(
    records: int, kind: Literal["linear", "probit"] = "linear", gamma: float = 1.0, seed: int = 0
) -> Made:
    """Draw records of a linear or probit model and compute their clipped local factors.

    Parameters
    ----------
    records
        N.
    kind
        The likelihood.
    gamma
        The damping.
    seed
        Of the records.

    Examples
    --------
    >>> made(100).factors.shape        # a mean of five numbers, and the triangle of their precision
    (100, 20)
    """
    if records < 1 or kind not in ("linear", "probit"):
        raise ValueError(
            f"records must be at least 1 and kind 'linear' or 'probit', not {records} and {kind!r}."
        )
    generator = np.random.default_rng([seed, records])
    x = generator.standard_normal((records, DIMENSION))
    u = x @ np.linspace(1.0, -1.0, DIMENSION) + 0.5 + generator.standard_normal(records)
    y = u if kind == "linear" else np.where(u > 0, 1.0, -1.0)
    model = GLM(GaussianLikelihood(1.0) if kind == "linear" else ProbitLikelihood())
    with jax.enable_x64(True):
        settings = sep.Settings(Gaussian.isotropic(DIMENSION), records, gamma, CLIP)
        state = sep.init(settings)
        cavity = sep.cavity(settings, state)

        def one(record: tuple[jax.Array, jax.Array]) -> jax.Array:
            return to_vector(clip_norm(model.local_factor(cavity, record), CLIP))

        table = (jnp.asarray(x), jnp.asarray(y))
        factors = np.asarray(jax.lax.map(one, table, batch_size=_CHUNK))
    return Made(settings, state, factors)


def per_step(
    sizes: Iterable[int] = SIZES,
    batches: Iterable[int] = BATCHES,
    draws: int = DRAWS,
    gamma: float = 1.0,
    seed: int = 0,
) -> list[Row]:
    """Return signal, noise and their ratio for one step of DP-SEP and of DP-SGD.

    The signal is the mean move along the expected direction, over `draws` batches; the noise is the standard
    deviation, in a coordinate, of what the noise alone moves. Both are measured from the moves themselves.

    Parameters
    ----------
    sizes, batches
        Values of N and B; batches larger than N are left out.
    draws
        Steps drawn for each figure.
    gamma
        The damping.
    seed
        Of all random numbers.
    """
    table: list[Row] = []
    values = tuple(batches)
    kinds: tuple[Literal["linear", "probit"], ...] = ("linear", "probit")
    for kind in kinds:
        for records in sizes:
            data = made(records, kind, gamma, seed)
            generator = np.random.default_rng([seed, records, 1])
            for batch in (value for value in values if value <= records):
                rows_drawn = generator.integers(records, size=(draws, batch))
                sums = np.stack([data.factors[one].sum(axis=0) for one in rows_drawn])
                noise = 2 * CLIP * SIGMA * generator.standard_normal(sums.shape)
                direction = data.factors.mean(axis=0) / np.linalg.norm(data.factors.mean(axis=0))
                moved = _sep_moves(data, sums, noise, batch), (sums / batch, noise / batch)
                for method, (signals, noises) in zip(("DP-SEP", "DP-SGD"), moved, strict=True):
                    base = {"case": kind, "method": method, "records": records, "batch": batch}
                    table += _ratio_rows(base, signals @ direction, noises)
    return table


def _sep_moves(data: Made, sums: Array, noise: Array, batch: int) -> tuple[Array, Array]:
    """Return how far the steps move theta without noise, and what the noise adds to that."""
    with jax.enable_x64(True):
        quiet, loud = (
            np.asarray(_moves(data.settings, data.state, jnp.asarray(totals), float(batch)))
            for totals in (sums, sums + noise)
        )
    return quiet, loud - quiet


@partial(jax.jit, static_argnames="batch")
def _moves(settings: sep.Settings, state: sep.State, totals: jax.Array, batch: float) -> jax.Array:
    raw = settings._replace(clip=None, floor=-math.inf)  # steps 10 to 12 come after the release
    before = to_vector(sep.posterior(raw, state))

    def move(total: jax.Array) -> jax.Array:
        new = sep.update(raw, state, from_vector(raw.prior, total), batch)
        return to_vector(sep.posterior(raw, new)) - before

    return jax.vmap(move)(totals)


def _ratio_rows(base: Row, signals: Array, noises: Array) -> list[Row]:
    signal, noise = float(signals.mean()), float(noises.std())
    error = float(signals.std(ddof=1) / math.sqrt(len(signals)))
    spread = noise / math.sqrt(2 * noises.size)
    ratio = signal / noise
    both = abs(ratio) * math.hypot(error / signal, spread / noise)
    count = len(signals)
    return [
        _row(base, "signal", signal, error, count),
        _row(base, "noise", noise, spread, count),
        _row(base, "signal over noise", ratio, both, count),
    ]


def _row(base: Row, quantity: str, value: float, error: float, count: int) -> Row:
    return {"claim": CLAIM, **base, "quantity": quantity, "value": value, "standard_error": error, "n": count}
