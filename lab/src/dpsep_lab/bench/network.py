"""Networks: records a second of filtering, of sequential SEP and of batches, on a table of kin8nm's shape.

All are timed in one process, in turn, so that a slow minute of the machine hits all of them, and each is
compared with filtering (probabilistic backpropagation without its prior refinement), which does the least a
record. The table is made: the speed does not depend on the values. Nothing here reads private data.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import DiagonalGaussian, multiply, power, zeros_like
from dpsep.inference import network_diagonal, pbp, sep
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.network_model import NetworkRegression
from dpsep_lab.bench.table import Row, row, spread

KIN8NM = (7372, 8)
"""Training records and inputs of kin8nm."""
BATCH, CHUNK = 368, 92
"""A twentieth of kin8nm's records, and how many of them fit the processor's cache at a time."""
FILTERING = "filtering (ADF)"


def network(quick: bool = False) -> list[Row]:
    """Measure networks of 50 hidden units, in double and in single precision."""
    rows = []
    for doubles in (True, False):
        rows += speed(KIN8NM, hidden=50, doubles=doubles, repeats=3 if quick else 15)
    return rows


def speed(shape: tuple[int, int], *, hidden: int, doubles: bool, repeats: int) -> list[Row]:
    """Return one row a method: records a second, and the ratio to filtering.

    Parameters
    ----------
    shape
        Records and inputs of the made table.
    hidden
        Hidden units.
    doubles
        Double precision, or single.
    repeats
        How often all methods run in turn; the rows hold medians.
    """
    with jax.enable_x64(doubles):
        methods = contenders(shape, hidden)
        for action, _ in methods.values():
            jax.block_until_ready(action())
        seconds: dict[str, list[float]] = {who: [] for who in methods}
        for _ in range(repeats):
            for who, (action, _) in methods.items():
                start = time.perf_counter()
                jax.block_until_ready(action())
                seconds[who].append(time.perf_counter() - start)
    rates = {who: [methods[who][1] / each for each in times] for who, times in seconds.items()}
    base = (FILTERING, statistics.median(rates[FILTERING]))
    case = f"network/{shape[1]}-{hidden}-1, {'double' if doubles else 'single'} precision"
    more = {"table": list(shape), "cores": _cores()}
    rows = []
    for who, each in rates.items():
        against = None if who == FILTERING else base
        value = statistics.median(each)
        rows.append(row(case, who, "speed", value, "records/s", against=against, **spread(each), **more))
    return rows


def contenders(shape: tuple[int, int], hidden: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """Return what is timed, by name: an action, and how many records it visits."""
    records = _table(shape)
    model = NetworkRegression((shape[1], hidden, 1), noise_model=ConcentratedNoise())
    prior, means = model.start(seed=0)
    start = prior._replace(weights=DiagonalGaussian.from_moments(means, jnp.ones(model.size)))
    return {
        FILTERING: (_filtering(model, start, records), shape[0]),
        "SEP, one record a step": (_sequential(model, prior, start, records), shape[0]),
        **_batches(model, start, records),
        f"SEP, batches of {BATCH}": _batch_sep(model, records),
    }


def _filtering(model: NetworkRegression, start: Any, records: Any) -> Callable[[], Any]:
    run = jax.jit(lambda posterior, rows: pbp.multiply_in(model, posterior, rows))
    return lambda: run(start, records)


def _sequential(model: NetworkRegression, prior: Any, start: Any, records: Any) -> Callable[[], Any]:
    count = len(records[1])
    settings = sep.Settings(model.layered(prior), count, gamma=float(count), clip=None)
    return lambda: sep.run(model, settings, records, np.arange(count), model.layered(start))


def _batches(model: NetworkRegression, start: Any, records: Any) -> dict[str, Any]:
    """Local factors summed over batches, each followed by a step: no clip, no noise."""
    count = len(records[1])
    batch, chunk = min(BATCH, count), min(CHUNK, count)
    whole = batch // chunk * chunk
    batches = count // whole

    def cut(array: jax.Array) -> jax.Array:
        return array[: batches * whole].reshape(batches, whole // chunk, chunk, *array.shape[1:])

    def step(posterior: Any, rows: Any) -> tuple[Any, None]:
        def add(total: Any, some: Any) -> tuple[Any, None]:
            factors = jax.vmap(lambda record: model.local_factor(posterior, record))(some)
            return multiply(total, jax.tree.map(lambda leaf: jnp.sum(leaf, 0), factors)), None

        total, _ = jax.lax.scan(add, zeros_like(posterior), rows)
        return multiply(posterior, power(total, 1.0 / count)), None

    cuts = jax.tree.map(cut, records)
    run = jax.jit(lambda posterior, rows: jax.lax.scan(step, posterior, rows)[0])
    name = f"local factors, batches of {whole}"
    return {name: (lambda: run(model.layered(start), cuts), batches * whole)}


def _batch_sep(model: NetworkRegression, records: Any) -> tuple[Callable[[], Any], int]:
    """Stochastic EP in batches with all that belongs to it: factors, step, prior and noise precision."""
    count, features = records[0].shape
    batch = min(BATCH, count)
    zero, one = jnp.zeros(features), jnp.ones(features)
    columns = Columns(zero - jnp.inf, zero + jnp.inf, zero, one)
    outcome = Columns(-jnp.inf * one[0], jnp.inf * one[0], zero[0], one[0])
    steps = count // batch
    settings = network_diagonal.Settings(columns, outcome, jnp.eye(features), float(count), float(steps))
    return lambda: network_diagonal.run_open(model, settings, records, batch), steps * batch


def _table(shape: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    generator = np.random.default_rng(0)
    x = generator.standard_normal(shape)
    y = np.tanh(x[:, 0] * x[:, -1]) + 0.3 * generator.standard_normal(len(x))
    return jnp.asarray(x), jnp.asarray(y)


def _cores() -> int | None:
    """Cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
