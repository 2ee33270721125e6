"""Other packages in the speed benchmark: DP-SGD by Opacus and jax_privacy, diffprivlib's linear regression.

Each way is one pass over the same made table of kin8nm's shape with the same network, in single precision,
which these packages are made for: batches of 368, gradients of single records clipped to a norm, Gaussian
noise, a step of Adam. Opacus runs once on batches taken by index, which is the fastest it can be called, and
once with the Poisson loader of its `PrivacyEngine`. jax_privacy's pass is one compiled program. diffprivlib
has no networks: its linear regression stands beside ours.

A package that is not installed is named in `missing`, and its rows say so.

**Privacy.** The table is made. The noise of these ways is theirs, with a multiplier of one: nothing is
accounted and nothing may be released.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

NEEDED = {
    "Opacus, index batches": ("torch", "opacus"),
    "Opacus, Poisson loader": ("torch", "opacus"),
    "jax_privacy, DP-SGD": ("jax_privacy", "optax"),
    "diffprivlib, linear regression": ("diffprivlib",),
}
"""The ways, and the packages that each needs."""


class Way(NamedTuple):
    """Something that is timed.

    Attributes
    ----------
    action
        Does it once and waits until it is done.
    records
        How many records it visits, or is expected to.
    note
        What a reader should know of it.
    digits
        Bits of its numbers: 32 or 64.
    """

    action: Callable[[], Any]
    records: float
    note: str = ""
    digits: int = 32


def missing(who: str) -> str | None:
    """Return the package that a way needs and that is not installed, or None."""
    return next((name for name in NEEDED[who] if find_spec(name) is None), None)


def peers(x: np.ndarray, y: np.ndarray, *, hidden: int, batch: int, threads: int) -> dict[str, Way]:
    """Return the ways of all peers that are installed, by name.

    Parameters
    ----------
    x, y
        The table.
    hidden
        Hidden units.
    batch
        Records of a batch.
    threads
        Threads that PyTorch may use.
    """
    found: dict[str, Way] = {}
    makers: dict[str, Callable[[], Way]] = {
        "Opacus, index batches": lambda: _opacus(x, y, hidden, batch, threads, poisson=False),
        "Opacus, Poisson loader": lambda: _opacus(x, y, hidden, batch, threads, poisson=True),
        "jax_privacy, DP-SGD": lambda: _jax_privacy(x, y, hidden, batch),
        "diffprivlib, linear regression": lambda: _diffprivlib(x, y),
    }
    for who, make in makers.items():
        if missing(who) is None:
            found[who] = make()
    return found


@contextmanager
def quietly() -> Iterator[None]:
    """Warnings of the packages themselves are not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _imported(*names: str) -> list[Any]:
    """Packages that need not be installed; what they are typed as is not known here."""
    return [import_module(name) for name in names]


def _opacus(x: np.ndarray, y: np.ndarray, hidden: int, batch: int, threads: int, *, poisson: bool) -> Way:
    with quietly():
        torch, opacus, optimizers = _imported("torch", "opacus", "opacus.optimizers")
    torch.set_num_threads(threads)
    inputs = torch.tensor(x, dtype=torch.float32)
    outcomes = torch.tensor(y, dtype=torch.float32)[:, None]
    net: Any = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1)
    )
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    loss = torch.nn.MSELoss()
    count, batch = len(x), min(batch, len(x))

    def step(model: Any, optimizer: Any, some: Any, wanted: Any) -> None:
        optimizer.zero_grad()
        loss(model(some), wanted).backward()
        optimizer.step()

    if poisson:
        data = torch.utils.data.TensorDataset(inputs, outcomes)
        with quietly():
            model, optimizer, loader = opacus.PrivacyEngine(secure_mode=False).make_private(
                module=net,
                optimizer=adam,
                data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )

        def one_pass() -> None:
            with quietly():
                for some, wanted in loader:
                    step(model, optimizer, some, wanted)

        return Way(one_pass, count, "noise of torch's generator")
    with quietly():
        wrapped = opacus.GradSampleModule(net)
    optimizer = optimizers.DPOptimizer(
        adam, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch
    )
    batches = count // batch

    def by_index() -> None:
        with quietly():
            order = torch.randperm(count)
            for number in range(batches):
                rows = order[number * batch : (number + 1) * batch]
                step(wrapped, optimizer, inputs[rows], outcomes[rows])

    return Way(by_index, batches * batch, "noise of torch's generator")


def _jax_privacy(x: np.ndarray, y: np.ndarray, hidden: int, batch: int) -> Way:
    import jax
    import jax.numpy as jnp

    with quietly():
        optax, jax_privacy = _imported("optax", "jax_privacy")
    generator = np.random.default_rng(0)
    shapes = [(x.shape[1], hidden), (hidden,), (hidden, 1), (1,)]
    weights = [jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in shapes]
    inputs, outcomes = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    count, batch = len(x), min(batch, len(x))
    batches = count // batch

    def loss(given: Any, some: jax.Array, wanted: jax.Array) -> jax.Array:
        first, bias, second, last = given
        residual = (jnp.maximum(some @ first + bias, 0.0) @ second + last)[:, 0] - wanted
        return jnp.mean(residual**2)

    gradient = jax_privacy.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=batch)
    privatizer: Any = jax_privacy.noise_addition.gaussian_privatizer(stddev=1.0 / batch, prng_key=0)
    adam = optax.adam(1e-2)

    def step(state: Any, rows: jax.Array) -> tuple[Any, None]:
        given, own, noise = state
        found: Any = gradient(given, inputs[rows], outcomes[rows])
        noised, noise = privatizer.update(found, noise)
        change, own = adam.update(noised, own)
        return (optax.apply_updates(given, change), own, noise), None

    @jax.jit
    def one_pass(state: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, count)[: batches * batch].reshape(batches, batch)
        return jax.lax.scan(step, state, order)[0]

    first = (weights, adam.init(weights), privatizer.init(weights))
    key = jax.random.key(0)

    def way() -> Any:
        with jax.enable_x64(False):
            return jax.block_until_ready(one_pass(first, key))

    return Way(way, batches * batch, "noise of JAX's generator")


def _diffprivlib(x: np.ndarray, y: np.ndarray) -> Way:
    from dpsep_lab.bench.peers import functional_linear

    reach = float(np.abs(x).max())
    scaled, outcome = x / reach, y / float(np.abs(y).max())
    return Way(lambda: functional_linear(scaled, outcome, 1.0), len(x), "a whole fit", 64)
