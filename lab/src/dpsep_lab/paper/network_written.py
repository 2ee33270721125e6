r"""The paper's own algorithm on networks: Algorithm 3, clipped SEP and SEP, as written and as accounted.

One record a step, gamma = 1 (the paper's damping 1/N), 40 passes, a permutation a pass, real noise: the steps
of `dpsep.inference.sep` with `dpsep.models.network_model.NetworkRegression`. What the text leaves open is
filled in like this:

- *Leaves.* Theta has four natural parameters: mean part and precision of all weights, shape and rate of the
  noise precision's Gamma. Each is clipped to norm C on its own, so one record moves theta_fn by at most 2C
  (zero-out) or 4C, and `dpsep_lab.paper.noise` gives the noise for that.
- *Prior.* N(m, 1) for every weight with fixed random means m that do not depend on data: with all means zero
  hidden units would never differ. The noise precision has the Gamma(6, 6) of probabilistic backpropagation.
- *Step 10.* With noise, a precision that falls below the prior's is raised to just above it (as in Table 1,
  after the public code for the mixture). "Small positive values" as the text has it divide the mean part by
  next to nothing: with a floor of 1e-6 the test RMSE on Kin8nm was above 10^4 (standard deviation of the
  target: 0.26). Without noise the floor is 1e-6.
- *Noise precision.* Integrated by `ConcentratedNoise`, which is cheap and differs by O(1/shape).

With gamma = 1 the run absorbs a share 1 - exp(-T/N) of the data: 0.5 % on Kin8nm. ``gamma="N"`` is SEP as Li,
Hernández-Lobato and Turner (2015) define it. *As accounted* differs by the order: a record drawn afresh at
each step, and the noise of Rényi accounting for that.

**Privacy**: none. Noise is floating-point and seeded, and records are read without a gate: simulations that
measure what the algorithm reaches with honest noise and release nothing.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import DiagonalGaussian
from dpsep.inference import sep
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_model import NetworkPosterior, NetworkRegression
from dpsep.privacy.mechanism import Relation
from dpsep_lab.paper import noise
from dpsep_lab.paper.networks import Scores, Split, score

__all__ = ["FLOOR", "LEAVES", "NOISY_FLOOR", "PASSES", "Order", "visiting_order", "written"]

Order = Literal["permuted", "fresh"]

PASSES = 40
LEAVES = 4
PRIOR_SEED = 0
FLOOR, NOISY_FLOOR = 1e-6, 1.0 + 1e-4
"""Least precision (step 10) without and with noise; the prior's is 1."""


def written(
    passes: int = PASSES,
    *,
    gamma: float | Literal["N"] = 1.0,
    clip: float = math.inf,
    epsilon: float | None = None,
    relation: Relation = "replace-one",
    order: Order = "permuted",
) -> Callable[[Split], Scores]:
    """Return a fit by the paper's own algorithm.

    Parameters
    ----------
    passes
        T.
    gamma
        The damping; ``"N"`` for the number of training records.
    clip
        C, for each natural parameter.
    epsilon
        Of the whole run at delta = 1e-5; None for no noise.
    relation
        The noise's; with a fresh order it is replace-one.
    order
        ``"permuted"`` (a permutation a pass) or ``"fresh"`` (a record drawn at each step).
    """

    def fit(split: Split) -> Scores:
        start = time.perf_counter()
        records, inputs = split.X.shape
        damping = float(records) if gamma == "N" else gamma
        with jax.enable_x64(True):
            model = NetworkRegression((inputs, split.hidden, 1), noise_model=ConcentratedNoise())
            floor = FLOOR if epsilon is None else NOISY_FLOOR
            clips = clip if clip == math.inf else (clip,) * LEAVES
            settings = sep.Settings(_prior(model), records, damping, clips, floor)
            table = tuple(map(jnp.asarray, split.standardised))
            visits = jnp.asarray(visiting_order(split.number, records, passes, order))
            if epsilon is None:
                state = sep.run(model, settings, table, visits)
            else:
                public = {"records": records, "passes": passes, "leaves": LEAVES}
                if order == "fresh":
                    deviation = noise.as_accounted(epsilon, clip, damping, **public)
                else:
                    deviation = noise.as_written(epsilon, relation, clip, damping, **public)
                key = jax.random.key(split.number)
                state = sep.simulate(model, settings, table, visits, key, (deviation,) * LEAVES)
            posterior = jax.block_until_ready(sep.posterior(settings, state))
            seconds = time.perf_counter() - start
            return _score_posterior(split, model, posterior, seconds)

    return fit


def visiting_order(seed: int, records: int, passes: int, order: Order) -> NDArray[np.int64]:
    """Return the rows that a run visits, one a step.

    Parameters
    ----------
    seed
        The same seed gives the same order.
    records, passes
        N and T.
    order
        As in `written`.
    """
    generator = np.random.default_rng([seed, 1])
    if order == "fresh":
        return generator.integers(records, size=records * passes)
    return np.concatenate([generator.permutation(records) for _ in range(passes)])


def _prior(model: NetworkRegression) -> NetworkPosterior:
    """N(m, 1) with fixed random means, which tell hidden units apart, and Gamma(6, 6)."""
    prior, means = model.start(PRIOR_SEED)
    weights = DiagonalGaussian(prior.weights.precision * means, prior.weights.precision)
    return NetworkPosterior(weights, prior.noise)


def _score_posterior(
    split: Split, model: NetworkRegression, posterior: NetworkPosterior, seconds: float
) -> Scores:
    X = jnp.asarray(split.standard(split.X_test))
    y = jnp.asarray((split.y_test - split.target_centre) / split.target_scale)
    exact = NetworkRegression(model.widths)  # integrates the noise precision: densities are exact
    mean, density = map(np.asarray, _predict(exact, posterior, X, y))
    own = split.target_centre + split.target_scale * mean
    return score(split, own, density - math.log(split.target_scale), seconds)


@partial(jax.jit, static_argnames="model")
def _predict(
    model: NetworkRegression, posterior: NetworkPosterior, X: jax.Array, y: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return model.predictive(posterior, X).mean, model.log_predictive(posterior, X, y)
