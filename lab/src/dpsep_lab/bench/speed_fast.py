"""The compiled kernels of the library (the extra ``fast``) in the speed benchmark, beside their JAX form.

`dpsep.inference.fast_sep` and `dpsep.inference.fast_batches` are what sequential and batch fits of networks
run through where Numba is installed. Here they are called as they are, in both precisions: one record a step
(plain, clipped, with noise), filtering, and batches with clip, integer grid and the gate's own noise.

**Privacy.** The table is made. Names that say "not for release" draw floating-point noise; the others with
secure noise draw it as the gate does, but read records without one, and release nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import DiagonalGaussian
from dpsep.inference import fast_batches, fast_sep, sep
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_model import NetworkRegression
from dpsep.privacy.noise import SecureStream
from dpsep_lab.bench import speed_ours
from dpsep_lab.bench.speed_ours import CLIP, FILTERING, FLOAT_NOISE, SEQUENTIAL, SEQUENTIAL_CLIP
from dpsep_lab.bench.speed_peers import Way

KERNEL = ", kernel"
"""What names of compiled kernels end in."""
BATCH_SECURE = f"DP-SEP, batches, secure noise, no gate{KERNEL}"
ONE_SECURE = f"{speed_ours.ONE_RECORD}, secure noise, no gate{KERNEL}"
SIGMA = 2.0
"""Noise over the clip: the time of a draw does not depend on it."""


def available() -> bool:
    """Whether the kernels can be compiled here."""
    return fast_sep.available()


def fast_ways(
    x: np.ndarray, y: np.ndarray, *, hidden: int, batch: int, digits: int, slow: int
) -> dict[str, Way]:
    """Return the kernels' ways by name; none where Numba is not installed.

    Parameters
    ----------
    slow
        Records of a turn of the way that draws secure noise for every record.
    """
    if not available():
        return {}
    kind: Any = np.float32 if digits == 32 else np.float64
    count = len(x)
    with jax.enable_x64(True):
        model = NetworkRegression((x.shape[1], hidden, 1), noise_model=ConcentratedNoise())
        prior, means = model.start(seed=0)
        start = prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.ones(model.size)))
    records, order = (x, y), np.arange(count)
    few = order[:slow]

    def settings(clip: float | None, gamma: float) -> sep.Settings:
        return sep.Settings(prior, count, gamma=gamma, clip=clip)

    def sequential(clip: float | None) -> Callable[[], Any]:
        own = settings(clip, float(count))
        return lambda: fast_sep.sequential(model, own, records, order, start, dtype=kind)

    def noisy(noise: Any, rows: np.ndarray) -> Callable[[], Any]:
        own, deviation = settings(CLIP, 1.0), SIGMA * CLIP / count
        return lambda: fast_sep.noisy(
            model, own, records, rows, start, deviation=deviation, noise=noise, dtype=kind
        )

    actions = {
        FILTERING: (lambda: fast_sep.filtering(model, start, records, dtype=kind), count),
        SEQUENTIAL: (sequential(None), count),
        SEQUENTIAL_CLIP: (sequential(CLIP), count),
        FLOAT_NOISE: (noisy("float", order), count),
        ONE_SECURE.removesuffix(KERNEL): (noisy("secure", few), len(few)),
    }
    ways = {
        who + KERNEL: Way(_done(action, digits), visits, "", digits)
        for who, (action, visits) in actions.items()
    }
    return ways | _batch_ways(model, records, batch, digits)


def _batch_ways(model: NetworkRegression, records: Any, batch: int, digits: int) -> dict[str, Way]:
    """A pass in batches: factors, clip, sum and update, without noise and with the gate's."""
    kind: Any = np.float32 if digits == 32 else np.float64
    count = len(records[0])
    batch = min(batch, count)
    steps = count // batch
    with jax.enable_x64(True):
        settings = speed_ours.batch_settings(count, records[0].shape[1], steps)
    clips = (CLIP, CLIP, CLIP)
    cuts = np.random.default_rng(0).permutation(count)[: steps * batch].reshape(steps, batch)
    stream = SecureStream()

    def one_pass(**noise: Any) -> Callable[[], Any]:
        work = fast_batches.Batches(model, settings, records, clips=clips, dtype=kind, seed=0)

        def run() -> None:
            for rows in cuts:
                work.step(rows, **noise)

        return run

    ways = {
        f"{speed_ours.BATCH_OPEN}{KERNEL}": one_pass(),
        BATCH_SECURE: one_pass(sigma=SIGMA, stream=stream),
    }
    return {who: Way(_done(action, digits), steps * batch, "", digits) for who, action in ways.items()}


def _done(action: Callable[[], Any], digits: int) -> Callable[[], Any]:
    def run() -> Any:
        with jax.enable_x64(digits == 64):
            return jax.block_until_ready(action())

    return run
