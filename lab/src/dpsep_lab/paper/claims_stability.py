r"""Does clipping stabilise SEP? Runs of SEP with and without a clip, on data that are hard for it.

Section 3.3 reports that "using clipping to SEP with a well-chosen clipping threshold further improves its
stability, resulting in better convergence". Here SEP (Algorithm 2, one record a step, no noise) and clipped
SEP (each natural parameter to C, as in `dpsep_lab.paper.table1`) run over the same records in the same order
on

- ``mixture``: the data of Table 1 (`dpsep_lab.paper.clusters`), fewer of them. Local factors may have
  negative precision. The error is Table 1's, the squared distance of means and covariances from the posterior
  that knows the labels;
- ``probit, separable`` and ``probit, heavy tails``: features with Student's t tails (1.5 degrees of freedom),
  labels without and with noise. A log-concave likelihood, so no factor has negative precision;
- ``linear, outliers``: a learned noise precision, where one outcome in ten is an outlier. Not log-concave.

The error of the last three is the Kullback-Leibler divergence from the converged posterior of expectation
propagation to the run's. gamma / N = 1 is SEP as Li, Hernández-Lobato and Turner (2015) define it; larger
values move faster and are less stable; the paper's gamma = 1 hardly moves in a few passes.

*What counts as unstable.* An update after which posterior or cavity is no proper density: Algorithm 2 cannot
go on from there. Such an update is skipped and counted, as the authors' public code does for the mixture, so
that every run has an end. `dpsep_lab.paper.claims_network` asks the same of a network.

**Privacy**: none. Nothing here has noise.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import Gamma, Gaussian, GaussianSet
from dpsep.inference import ep, sep
from dpsep.models import GLM, LearnedNoise, Model, ProbitLikelihood
from dpsep.models.linear import WeightsAndNoise
from dpsep.models.mixture import KnownMixture
from dpsep_lab.paper import clusters

__all__ = ["CLIPS", "PROBLEMS", "SPEEDS", "Problem", "problem", "rows", "summary"]

Array = NDArray[np.float64]
Row = dict[str, Any]

CLAIM = "clipping stabilises SEP"
PROBLEMS = ("mixture", "probit, separable", "probit, heavy tails", "linear, outliers")
CLIPS = (math.inf, 30.0, 10.0, 3.0, 1.0, 0.3)
SPEEDS = (1.0, 5.0, 25.0)
"""Values of gamma / N beside the paper's own, 1 / N."""
SEEDS, RECORDS, PASSES = 20, 200, 10


class Problem(NamedTuple):
    """Made data of one kind, one set for each seed.

    Attributes
    ----------
    model, prior
        What they are fitted with.
    records
        Arrays with seeds along the first axis and records along the second.
    error
        From a seed's place and a posterior to its error.
    """

    model: Model
    prior: Any
    records: Any
    error: Callable[[int, Any], float]


def problem(name: str, seeds: int = SEEDS, records: int = RECORDS) -> Problem:
    """Make the data of one of `PROBLEMS`.

    Parameters
    ----------
    name
        Which.
    seeds, records
        How many sets, and records in each.

    Examples
    --------
    >>> made = problem("probit, separable", seeds=2, records=30)
    >>> [part.shape for part in made.records]
    [(2, 30, 3), (2, 30)]
    """
    if name not in PROBLEMS:
        raise ValueError(f"name must be one of {', '.join(map(repr, PROBLEMS))}, not {name!r}.")
    with jax.enable_x64(True):
        if name == "mixture":
            return _mixture(seeds, records)
        tables = [_table(name, np.random.default_rng([seed, 2]), records) for seed in range(seeds)]
        data = tuple(jnp.stack([jnp.asarray(table[part]) for table in tables]) for part in (0, 1))
        model: Model = LearnedNoise() if name == "linear, outliers" else GLM(ProbitLikelihood())
        prior: Any = Gaussian.isotropic(3, 0.1)
        if name == "linear, outliers":
            prior = WeightsAndNoise(prior, Gamma.from_shape_and_rate(2.0, 2.0))
        damping = 0.5 if name == "linear, outliers" else 0.0
        fits = jax.lax.map(lambda one: ep.run(model, prior, one, damping=damping).posterior, data)
    return Problem(model, prior, data, lambda place, q: _divergence(fits, place, q))


def rows(
    names: Iterable[str] = PROBLEMS,
    clips: Iterable[float] = CLIPS,
    speeds: Iterable[float] | None = None,
    *,
    seeds: int = SEEDS,
    records: int = RECORDS,
    passes: int = PASSES,
) -> list[Row]:
    """Return how often runs lose positive definiteness, and how far they end from the reference.

    Parameters
    ----------
    names
        Some of `PROBLEMS`.
    clips
        Values of C; infinity, for no clip, comes first and is what the others are compared with.
    speeds
        Values of gamma / N; the paper's 1 / N and `SPEEDS` where they are left out.
    seeds, records, passes
        Sets of data, records in each, and passes over them.
    """
    bounds = tuple(clips)
    if not bounds or bounds[0] != math.inf:
        raise ValueError(f"clips must begin with infinity, which is SEP without a clip, not {bounds}.")
    values = (1 / records, *SPEEDS) if speeds is None else tuple(speeds)
    table: list[Row] = []
    for name in names:
        data = problem(name, seeds, records)
        for speed in values:
            plain: Array | None = None
            for clip in bounds:
                skipped, errors = _ends(data, clip, speed, passes)
                plain = errors if plain is None else plain
                base = {"case": name, "clip": clip if clip < math.inf else None, "gamma_over_n": speed}
                table += summary(base, skipped, errors, plain)
    return table


def summary(base: Row, skipped: Array, errors: Array, plain: Array) -> list[Row]:
    """Return the rows of one way to run.

    Parameters
    ----------
    base
        What it is.
    skipped
        Updates of each run that were no proper density.
    errors, plain
        Of each run, and of the run without a clip on the same data; NaN or infinite where it diverged.
    """
    count = len(errors)

    def row(quantity: str, value: float, error: float | None = None) -> Row:
        number = value if math.isfinite(value) else None
        figure = {"quantity": quantity, "value": number, "standard_error": error, "n": count}
        return {"claim": CLAIM, **base, **figure}

    def share(quantity: str, holds: NDArray[np.bool_]) -> Row:
        value = float(holds.mean())
        return row(quantity, value, math.sqrt(value * (1 - value) / count))

    size = np.where(np.isfinite(errors), errors, np.inf)
    other = np.where(np.isfinite(plain), plain, np.inf)
    return [
        share("share of runs that lose positive definiteness", skipped > 0),
        row("updates skipped, mean of runs", float(skipped.mean())),
        row("error, median", float(np.median(size))),
        row("error, worst", float(size.max())),
        share("share of runs with a smaller error than without a clip", size < other),
        share("share of runs with a larger error than without a clip", size > other),
    ]


def _ends(data: Problem, clip: float, speed: float, passes: int) -> tuple[Array, Array]:
    """Return the number of skipped updates and the error of each run."""
    seeds, records = jax.tree.leaves(data.records)[0].shape[:2]
    orders = [
        np.concatenate([generator.permutation(records) for _ in range(passes)])
        for generator in (np.random.default_rng([seed, 1]) for seed in range(seeds))
    ]
    with jax.enable_x64(True):
        bounds = tuple(jnp.asarray(clip) for _ in jax.tree.leaves(data.prior))
        gamma: Any = jnp.asarray(speed * records)
        # Algorithm 2 has no step 10: nothing is raised, what is not proper is skipped.
        settings = sep.Settings(data.prior, records, gamma, bounds, -math.inf)  # pyright: ignore
        posteriors, skipped = _run_all(data.model, settings, data.records, jnp.asarray(np.stack(orders)))
        ends = [jax.tree.map(lambda leaf, place=place: leaf[place], posteriors) for place in range(seeds)]
        errors = np.array([data.error(place, end) for place, end in enumerate(ends)])
    return np.asarray(skipped, np.float64), errors


@partial(jax.jit, static_argnames="model")
def _run_all(model: Model, settings: sep.Settings, records: Any, orders: jax.Array) -> tuple[Any, jax.Array]:
    def one_seed(table: Any, order: jax.Array) -> tuple[Any, jax.Array]:
        def visit(carry: tuple[sep.State, jax.Array], row: jax.Array) -> tuple[Any, None]:
            state, skipped = carry
            new = sep.step(model, settings, state, jax.tree.map(lambda array: array[row], table))
            fine = sep.posterior(settings, new).is_proper & sep.cavity(settings, new).is_proper
            kept = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, state)
            return (kept, skipped + ~fine), None

        first = (sep.init(settings), jnp.asarray(0))
        state, skipped = jax.lax.scan(visit, first, order)[0]
        return sep.posterior(settings, state), skipped

    return jax.vmap(one_seed)(records, orders)


def _mixture(seeds: int, records: int) -> Problem:
    made = [clusters.make(seed, records) for seed in range(seeds)]
    truths = [clusters.truth(one) for one in made]
    components, dimension = made[0].means.shape
    means = np.random.default_rng(0).standard_normal((components, dimension))
    precision = jnp.broadcast_to(0.1 * jnp.eye(dimension), (components, dimension, dimension))

    def error(place: int, q: GaussianSet) -> float:
        found = np.asarray(q.mean), np.asarray(q.covariance)
        if not all(np.isfinite(part).all() for part in found):
            return math.inf
        return clusters.errors(*truths[place], *found).average

    model = KnownMixture((1 / components,) * components, made[0].noise ** 2)
    x = jnp.stack([jnp.asarray(one.x) for one in made])
    return Problem(model, GaussianSet(0.1 * jnp.asarray(means), precision), x, error)


def _table(name: str, generator: np.random.Generator, records: int) -> tuple[Array, Array]:
    weights = np.array([1.0, -1.0, 0.5])
    if name == "linear, outliers":
        x = generator.standard_normal((records, 3))
        wild = generator.random(records) < 0.1
        return x, x @ weights + np.where(wild, 10.0, 0.5) * generator.standard_normal(records)
    x = generator.standard_t(1.5, (records, 3))
    noise = 0.0 if name == "probit, separable" else 1.0
    return x, np.where(x @ weights + noise * generator.standard_normal(records) > 0, 1.0, -1.0)


def _divergence(fits: Any, place: int, q: Any) -> float:
    fit = jax.tree.map(lambda leaf: leaf[place], fits)
    if isinstance(fit, WeightsAndNoise):
        return float(fit.weights.kl(q.weights) + fit.noise.kl(q.noise))
    return float(fit.kl(q))
