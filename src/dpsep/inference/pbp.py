r"""Probabilistic backpropagation: filtering a network's records several times, prior precision learned.

Hernandez-Lobato and Adams (2015). The weights' prior is N(0, 1 / lambda) with lambda ~ Gamma(6, 6), the noise
precision's is Gamma(6, 6). A pass multiplies the records in one by one, in random order (assumed density
filtering, `dpsep.inference.adf`); then the prior factor N(w; 0, 1 / lambda) of each weight in turn is refined
as a site of expectation propagation under q(w) q(lambda): divided out, its tilted moments matched, put back.
As in that paper, the Student's t that integrating over lambda leaves is replaced by a Gaussian of its
variance, b / (a - 1) for q(lambda) = Gamma(a, b), and lambda is matched by mean and variance. The exact
integral can fail here: a weight that the records tell almost nothing may have a wide cavity with a mean far
out, by which the t's heavy tails conclude that lambda is almost zero (seen on the table wine).

A pass does not divide out what earlier passes put in: after T passes the records have been counted T times.
This is the method as published; its posterior is therefore too narrow in the weights, and most of its
predictive spread is the noise. Stochastic and ordinary expectation propagation (`sep`, `ep`) count each
record once. Means start at random, because with all means zero hidden units would never differ: N(0, 1 / n)
for a layer of n inputs with the bias, as in the authors' code.

Nothing here is private: records are read without a gate.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import DiagonalGaussian, Gamma, divide, multiply
from dpsep.inference import compiled, fast_sep
from dpsep.models.network import Layer
from dpsep.models.network_model import Network
from dpsep.models.network_weights import LayeredWeights, LayerWeights

Posterior = Any
"""What the model's `start` gives: weights with noise precision, or weights alone; weights are flat."""

_WIDEST = 1e6  # cavities wider than this are left alone: so far out a mean is rounding


class State(NamedTuple):
    """What is carried from pass to pass.

    Attributes
    ----------
    posterior
        Natural parameters of the approximation; weights are one flat vector.
    precision
        q(lambda), of the weights' prior precision.
    sites
        Prior factor of each weight, as a site on the weight.
    precision_sites
        The same factors' sites on lambda, one a weight.
    """

    posterior: Posterior
    precision: Gamma
    sites: DiagonalGaussian
    precision_sites: Gamma


class Info(NamedTuple):
    """What one pass reports.

    Attributes
    ----------
    skipped
        Number of prior factors left as they were, because their cavity or their update was no density.
    """

    skipped: jax.Array


def init(model: Network, seed: int, shape: float = 6.0, rate: float = 6.0) -> State:
    """Random means, prior variances, and prior factors not refined yet.

    Parameters
    ----------
    model
        `NetworkRegression` or `NetworkClassification`.
    seed
        Of the random means.
    shape, rate
        Of the Gamma prior of lambda; a weight's variance starts at rate / (shape - 1).
    """
    if not (shape > 1 and rate > 0):
        raise ValueError(f"the prior is Gamma({shape}, {rate}); its shape must be above 1, its rate above 0.")
    prior, means = model.start(seed)  # pyright: ignore[reportAttributeAccessIssue]
    scales = np.concatenate([np.full(rows * columns, columns**-0.5) for rows, columns in model.shapes])
    variance = rate / (shape - 1.0)
    _, rest = model.parts(prior)
    weights = DiagonalGaussian.from_moments(means * scales, jnp.full(model.size, variance))
    zeros = jnp.zeros_like(means)
    state = State(
        model.joined(weights, rest),
        Gamma.from_shape_and_rate(shape, rate),
        DiagonalGaussian(zeros, jnp.full_like(zeros, 1.0 / variance)),
        Gamma(zeros, zeros),
    )
    # Numbers from Python have a weak type, which a step does not give back: it would be compiled twice.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, means.dtype), state)


def step(model: Network, state: State, records: Any, order: Any) -> tuple[State, Info]:
    """One pass over the records in the given order, and one over the prior factors."""
    return _step(model, state, jax.tree.map(jnp.asarray, records), jnp.asarray(order))


def run(model: Network, records: Any, passes: int = 40, seed: int = 0) -> tuple[State, Info]:
    """Filter the records `passes` times, each time in a new random order, in double precision.

    Long runs are compiled as one loop (`dpsep.inference.fast_sep`) where that is possible.

    Parameters
    ----------
    model
        `NetworkRegression` or `NetworkClassification`, frozen and hashable.
    records
        `(X, y)`, with the records along the first axis; inputs and outcomes of about unit size.
    passes
        How often each record is counted; the authors use 40.
    seed
        Of the random means and the orders: the same seed gives the same result.

    Returns
    -------
    The last state, in double precision (use it under `jax.enable_x64(True)`), and what the last pass reports.

    Examples
    --------
    >>> from dpsep.models.concentrated_noise import ConcentratedNoise
    >>> from dpsep.models.network_model import NetworkRegression
    >>> x = np.linspace(-2.0, 2.0, 200)[:, None]
    >>> model = NetworkRegression((1, 5, 1), noise_model=ConcentratedNoise())
    >>> state, _ = run(model, (x, np.abs(x[:, 0]) - 1.0), passes=20)
    >>> with jax.enable_x64(True):
    ...     bool(model.predictive(state.posterior, np.array([[2.0]])).mean[0] > 0.5)
    True
    """
    if passes < 1:
        raise ValueError(f"passes is {passes}; it must be at least 1.")
    generator = np.random.default_rng([seed, 1])
    with jax.enable_x64(True):
        records = jax.tree.map(lambda array: jnp.asarray(array, jnp.float64), records)
        state, info = init(model, seed), Info(jnp.asarray(0))
        fast = compiled.worth(model, passes * len(records[0]))
        rows = jax.tree.map(np.asarray, records) if fast else records
        for _ in range(passes):
            order = generator.permutation(len(records[0]))
            if fast:
                posterior = fast_sep.filtering(model, state.posterior, rows, order)
                state, info = _refine_all(model, state._replace(posterior=posterior))
            else:
                state, info = step(model, state, records, order)
    return state, info


def multiply_in(model: Network, posterior: Posterior, records: Any) -> Posterior:
    """Multiply records into a posterior, in their order: a pass without refinement of the prior factors."""
    weights, rest = model.parts(posterior)

    def visit(carry: tuple[tuple[Layer, ...], Any], record: Any) -> tuple[Any, None]:
        return model.filtered(*carry, record), None

    (layers, rest), _ = jax.lax.scan(visit, (model.layers(weights), rest), records)
    parts = (LayerWeights(layer.mean / layer.variance, 1.0 / layer.variance) for layer in layers)
    return model.joined(model.flat_weights(LayeredWeights(tuple(parts))), rest)


@partial(jax.jit, static_argnames="model")
def _step(model: Network, state: State, records: Any, order: jax.Array) -> tuple[State, Info]:
    posterior = multiply_in(model, state.posterior, jax.tree.map(lambda array: array[order], records))
    return _refine(model, state._replace(posterior=posterior))


@partial(jax.jit, static_argnames="model")
def _refine_all(model: Network, state: State) -> tuple[State, Info]:
    return _refine(model, state)


def _refine(model: Network, state: State) -> tuple[State, Info]:
    """Visit every weight's prior factor once; lambda moves after each."""
    weights, rest = model.parts(state.posterior)

    def visit(precision: Gamma, inputs: tuple[Any, Any, Any]) -> tuple[Gamma, Any]:
        weight, site, own = inputs
        cavity, others = divide(weight, site), divide(precision, own)
        usable = (cavity.precision > 1.0 / _WIDEST) & (others.shape > 1) & (others.rate > 0)
        # A cavity that cannot be used is replaced by one that can, so that nothing below is NaN.
        cavity = jax.tree.map(lambda leaf: jnp.where(usable, leaf, 1.0), cavity)
        others = jax.tree.map(lambda leaf: jnp.where(usable, leaf, 1.0), others)
        found = _tilted_precision(cavity.eta / cavity.precision, 1.0 / cavity.precision, others)
        good = usable & found.is_proper
        # Against a Gaussian of variance b / (a - 1), the tilted moments are those of the product.
        fresh = DiagonalGaussian(jnp.zeros_like(cavity.eta), others.shape_minus_one / others.rate)
        fresh = jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, site)
        own = jax.tree.map(lambda new, old: jnp.where(good, new, old), divide(found, others), own)
        precision = jax.tree.map(lambda new, old: jnp.where(good, new, old), found, precision)
        return precision, (fresh, own, good)

    precision, (sites, own, good) = jax.lax.scan(
        visit, state.precision, (weights, state.sites, state.precision_sites)
    )
    weights = multiply(weights, divide(sites, state.sites))
    return State(model.joined(weights, rest), precision, sites, own), Info(jnp.sum(~good))


def _tilted_precision(mean: jax.Array, variance: jax.Array, cavity: Gamma) -> Gamma:
    """Gamma with the mean and variance of lambda, once a weight with this cavity has met its prior factor.

    With Z(a) = N(m; 0, v + b / (a - 1)), E[lambda] is (a / b) Z(a + 1) / Z(a), and E[lambda^2] is E[lambda]
    times ((a + 1) / b) Z(a + 2) / Z(a + 1).
    """
    shape, rate = cavity.shape, cavity.rate
    spreads = [variance + rate / (shape - 1.0 + more) for more in range(3)]
    logs = [-0.5 * (jnp.log(spread) + mean**2 / spread) for spread in spreads]
    first = shape / rate * jnp.exp(logs[1] - logs[0])
    return Gamma.from_moments(first, first * ((shape + 1.0) / rate * jnp.exp(logs[2] - logs[1]) - first))
