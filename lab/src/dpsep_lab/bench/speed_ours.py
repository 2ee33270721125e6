"""What of this library is timed in the speed benchmark, on a network of kin8nm's shape.

Ways without a gate run a pass in their JAX form: filtering, SEP one record a step (plain, clipped, with
floating-point noise), SEP in batches; `dpsep_lab.bench.speed_fast` has the compiled kernels. Private ways are
real fits of `NetworkRegressor`, charge, gate, clip, grid and secure noise included: a fit runs in a thread of
its own and is let go so many releases at a time (`SteppedFit`), so that a slow minute of the machine hits it
and all others alike.

**Privacy.** The table is made. Fits are those a user gets; ways whose name ends in "not for release" draw
floating-point noise and read records without a gate. The proof is in docs/proofs/gate.md.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import DiagonalGaussian
from dpsep.families.flat import sizes
from dpsep.inference import network_diagonal, pbp, sep
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_model import NetworkRegression
from dpsep_lab.bench.speed_peers import Way

CLIP = 1.0
"""Clip of the clipped ways: about a factor's usual norm, so that both branches are taken."""
ONE_RECORD = "DP-SEP, one record a step"
FLOAT_NOISE = f"{ONE_RECORD}, float noise, not for release"
SECURE_NOISE = f"{ONE_RECORD}, secure noise, gate"
BATCH_GATE = "DP-SEP, batches, secure noise, gate"
BATCH_OPEN = "SEP clipped, batches, no gate"
DEFAULT = "DP-SEP, default release, gate"
SEQUENTIAL, SEQUENTIAL_CLIP = "SEP, one record a step", "SEP clipped, one record a step"
FILTERING = "filtering (ADF)"
KRONECKER = "DP-SEP, Kronecker, batches, gate"
POINT = "DP-Adam, batches, gate"
VARIATIONAL = "DP-VI, batches, gate"
LINEAR = "dpsep, linear regression"
FEW = 200
"""Releases of a turn where a release reads one record."""


def table(shape: Sequence[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make features and a target that bends with them; speed does not depend on the values."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(tuple(shape))
    return x, np.tanh(x[:, 0] * x[:, -1]) + 0.3 * generator.standard_normal(len(x))


class SteppedFit:
    """A private fit that goes on so many releases at a time.

    Parameters
    ----------
    model
        An estimator whose ``fit`` takes ``on_step``.
    x, y
        The table.
    """

    def __init__(self, model: Any, x: np.ndarray, y: np.ndarray) -> None:
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._left, self._stopped = 0, False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(model, x, y), daemon=True)
        self._thread.start()

    def advance(self, releases: int) -> None:
        """Let the fit make so many releases more, and wait until it has."""
        self._left = releases
        self._go.release()
        self._arrived.acquire()
        if self._error is not None:
            raise self._error
        if self._left > 0:
            raise RuntimeError(f"the fit ended {self._left} releases early; give it more steps.")

    def close(self) -> None:
        """Abandon the fit."""
        self._stopped = True
        self._go.release()
        self._thread.join()

    def _work(self, model: Any, x: np.ndarray, y: np.ndarray) -> None:
        self._go.acquire()
        try:
            model.fit(x, y, on_step=self._on_step)
        except _Stopped:
            return
        except BaseException as error:  # handed to whoever waits
            self._error = error
        self._arrived.release()

    def _on_step(self, done: int, total: int) -> None:
        if self._stopped:
            raise _Stopped
        self._left -= 1
        if self._left == 0:
            self._arrived.release()
            self._go.acquire()


class _Stopped(BaseException):
    """The fit is not wanted any more."""


def open_ways(x: np.ndarray, y: np.ndarray, *, hidden: int, batch: int, digits: int) -> dict[str, Way]:
    """Return what runs without a gate in its JAX form, in single (32) or double (64) precision, by name."""
    with jax.enable_x64(digits == 64):
        model = NetworkRegression((x.shape[1], hidden, 1), noise_model=ConcentratedNoise())
        prior, means = model.start(seed=0)
        start = prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.ones(model.size)))
        records = jnp.asarray(x), jnp.asarray(y)
        actions = {
            FILTERING: _filtering(model, start, records),
            SEQUENTIAL: _sequential(model, prior, start, records, None),
            SEQUENTIAL_CLIP: _sequential(model, prior, start, records, CLIP),
            FLOAT_NOISE: _noisy(model, prior, means, records),
        }
    ways = {who: Way(_within(action, digits), len(x), "", digits) for who, action in actions.items()}
    ways[BATCH_OPEN] = batch_way(x, y, hidden=(hidden,), batch=batch, digits=digits)
    return {who: way._replace(action=_in_jax(way.action)) for who, way in ways.items()}


def batch_way(x: np.ndarray, y: np.ndarray, *, hidden: tuple[int, ...], batch: int, digits: int) -> Way:
    """A pass of clipped SEP in batches, without a gate and without noise."""
    batch = min(batch, len(x))
    steps = len(x) // batch
    with jax.enable_x64(digits == 64):
        model = NetworkRegression((x.shape[1], *hidden, 1), noise_model=ConcentratedNoise())
        action = _batches(model, (jnp.asarray(x), jnp.asarray(y)), batch, steps)
    return Way(_within(action, digits), steps * batch, "", digits)


def private_ways(
    x: np.ndarray, y: np.ndarray, *, hidden: int, batch: int, turns: int, only: str | None = None
) -> tuple[dict[str, Way], Callable[[], None]]:
    """Return private fits as ways of one pass a turn, and what ends them.

    Parameters
    ----------
    turns
        How often each way will be run; fits are given steps for as many.
    only
        One way instead of all.
    """
    from dpsep.estimators import NetworkRegressor

    count = len(x)
    rate = min(batch / count, 1.0)
    releases = max(round(1.0 / rate), 1)
    common: dict[str, Any] = {"hidden": (hidden,), "public_scaling": ((0.0, 1.0), (0.0, 1.0))}
    sampled: dict[str, Any] = {"sampling": rate, "steps": releases * turns}
    models = {
        BATCH_GATE: (NetworkRegressor(covariance="diagonal", **common, **sampled), releases, rate),
        KRONECKER: (NetworkRegressor(**common, **sampled), releases, rate),
        DEFAULT: (NetworkRegressor(steps=2 * turns, sampling="full", **common), 2, 1.0),
        VARIATIONAL: (NetworkRegressor(method="vi", **common, **sampled), releases, rate),
        POINT: (NetworkRegressor(method="point", **common, **sampled), releases, rate),
    }
    models = {who: found for who, found in models.items() if only in (None, who)}
    fits = {who: SteppedFit(model, x, y) for who, (model, _, _) in models.items()}
    ways = {
        who: Way(lambda fit=fits[who], each=each: fit.advance(each), each * share * count, "", 64)
        for who, (_, each, share) in models.items()
    }

    def close() -> None:
        for fit in fits.values():
            fit.close()

    return ways, close


def one_record_way(x: np.ndarray, y: np.ndarray, *, hidden: int, turns: int) -> Way:
    """Algorithm 3 one expected record a release, through the gate with secure noise."""
    from dpsep.privacy.gate import Gate, authorise
    from dpsep.privacy.grid import Block
    from dpsep.privacy.mechanism import Mechanism, Schedule
    from dpsep.privacy.sampling import PoissonSampling

    count = len(x)
    with jax.enable_x64(True):
        model = NetworkRegression((x.shape[1], hidden, 1), noise_model=ConcentratedNoise())
        prior, means = model.start(seed=0)
        # The prior has the random means: a gate's fit starts from it.
        prior = prior._replace(weights=DiagonalGaussian(means, jnp.ones(model.size)))
        settings = sep.Settings(prior, count, gamma=1.0, clip=CLIP)
    mechanism = Mechanism(PoissonSampling(1.0 / count), "zero-out", FEW * turns, 1.0, count)
    permit = authorise(None, Schedule((mechanism,)), 1e-5)
    blocks = [Block("factor", sum(sizes(prior)), CLIP)]
    gate = Gate((x, y), mechanism, blocks, sep.FactorContribution(model), permit)
    return Way(lambda: sep.run_gate(gate, settings, FEW), FEW, "expected records", 64)


def linear_way(x: np.ndarray, y: np.ndarray) -> Way:
    """A whole private fit of a linear regression."""
    from dpsep.estimators import LinearRegression

    reach, most = float(np.abs(x).max()), float(np.abs(y).max())
    model = LinearRegression(1.0, 1e-5, bounds=(-reach, reach), target_bounds=(-most, most))
    return Way(lambda: model.fit(x, y), len(x), "a whole fit", 64)


@contextmanager
def jax_form() -> Iterator[None]:
    """Algorithms run in their JAX form, as where Numba is not installed."""
    name = "available"
    found = [one for path, one in list(sys.modules.items()) if path.startswith("dpsep.inference")]
    before = [(module, getattr(module, name)) for module in found if hasattr(module, name)]
    for module, _ in before:
        setattr(module, name, lambda: False)
    try:
        yield
    finally:
        for module, function in before:
            setattr(module, name, function)


def _in_jax(action: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with jax_form():
            return action()

    return run


def _within(action: Callable[[], Any], digits: int) -> Callable[[], Any]:
    def run() -> Any:
        with jax.enable_x64(digits == 64):
            return jax.block_until_ready(action())

    return run


def _filtering(model: NetworkRegression, start: Any, records: Any) -> Callable[[], Any]:
    run = jax.jit(lambda posterior, rows: pbp.multiply_in(model, posterior, rows))
    return lambda: run(start, records)


def _sequential(
    model: NetworkRegression, prior: Any, start: Any, records: Any, clip: float | None
) -> Callable[[], Any]:
    count = len(records[1])
    settings = sep.Settings(model.layered(prior), count, gamma=float(count), clip=clip)
    first, order = model.layered(start), np.arange(count)
    return lambda: sep.run(model, settings, records, order, first)


def _noisy(model: NetworkRegression, prior: Any, means: jax.Array, records: Any) -> Callable[[], Any]:
    count = len(records[1])
    # The prior has the random means: a run with noise starts from it.
    apart = prior._replace(weights=DiagonalGaussian(means, jnp.ones(model.size)))
    settings = sep.Settings(model.layered(apart), count, gamma=1.0, clip=CLIP)
    leaves = len(jax.tree.leaves(settings.prior))
    key, order = jax.random.key(0), np.arange(count)
    deviations = (CLIP / count,) * leaves
    return lambda: sep.simulate(model, settings, records, order, key, deviations)


def batch_settings(records: int, features: int, steps: int) -> network_diagonal.Settings:
    """Settings of clipped batches on columns that are standardised already."""
    zero, one = jnp.zeros(features), jnp.ones(features)
    columns = Columns(zero - jnp.inf, zero + jnp.inf, zero, one)
    outcome = Columns(-jnp.inf * one[0], jnp.inf * one[0], zero[0], one[0])
    return network_diagonal.Settings(
        columns, outcome, jnp.eye(features), float(records), float(steps), clip=CLIP
    )


def _batches(model: NetworkRegression, records: Any, batch: int, steps: int) -> Callable[[], Any]:
    count, features = records[0].shape
    settings = batch_settings(count, features, steps)
    return lambda: network_diagonal.run_open(model, settings, records, batch)
