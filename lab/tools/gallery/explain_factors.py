"""EP keeps a factor for each record, SEP one for all: where they end on twenty records.

Probit regression with one weight. EP's sites come from `dpsep.inference.ep`. SEP's factor is the fixed point
of f = average of the local factors under the one cavity q / f, iterated with `dpsep.models`. The exact
posterior is computed on a grid.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from explain_common import BLUE, GREEN, GREY, ORANGE, main
from scipy.special import log_ndtr

from dpsep.families import Gaussian, divide, multiply, power
from dpsep.inference import ep
from dpsep.models import GLM, ProbitLikelihood

SEED = 4
RECORDS, TRUE_WEIGHT, ROUNDS = 20, 0.8, 400


def draw() -> Any:
    """Return the figure."""
    from matplotlib import pyplot

    rng = np.random.default_rng(SEED)
    x = rng.uniform(-2, 2, RECORDS)
    y = np.where(rng.standard_normal(RECORDS) < TRUE_WEIGHT * x, 1.0, -1.0)
    with jax.enable_x64(True):
        prior = Gaussian.isotropic(1, jnp.float64(0.25))
        records = (jnp.asarray(x)[:, None], jnp.asarray(y))
        model = GLM(ProbitLikelihood())
        state = ep.run(model, prior, records)
        sites = np.stack([np.asarray(state.sites.mean_part) * x, np.asarray(state.sites.precision) * x**2])
        factor = _average_factor(model, prior, records)
        sep = multiply(prior, power(factor, RECORDS))
        single = float(factor.eta[0]), float(factor.precision[0, 0])
        moments = [(float(q.mean[0]), float(q.variance[0])) for q in (state.posterior, sep)]

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.2, 3.5), layout="constrained")
    label = f"EP: {RECORDS} factors, one a record"
    left.scatter(*sites, s=42, facecolor="none", edgecolor=BLUE, linewidth=1.4, label=label)
    left.scatter(*sites.mean(axis=1), marker="+", s=160, color=BLUE, linewidth=1.6, label="their average")
    left.scatter(*single, marker="x", s=80, color=ORANGE, linewidth=2.2, label="SEP: the one factor it keeps")
    left.set(xlabel="mean part of a factor", ylabel="precision of a factor", title="What is kept")
    left.set_ylim(-0.03, 1.6 * sites[1].max())
    left.legend(loc="upper left")

    w = np.linspace(-2.5, 4.5, 701)
    exact = -0.125 * w**2 + log_ndtr(y[:, None] * x[:, None] * w).sum(axis=0)
    exact = np.exp(exact - exact.max())
    exact /= np.trapezoid(exact, w)
    right.fill_between(w, exact, color=GREY, alpha=0.25, linewidth=0, label="exact posterior")
    for (mean, variance), colour, style, name in zip(
        moments, (BLUE, ORANGE), ("-", "--"), ("EP", "SEP"), strict=True
    ):
        density = np.exp(-((w - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        right.plot(w, density, color=colour, linestyle=style, linewidth=2, label=name)
    right.axvline(TRUE_WEIGHT, color=GREEN, linewidth=1, linestyle=":", label="true weight")
    right.set(xlabel="weight w", ylabel="density", title="What comes out", xlim=(-0.4, 2.8), ylim=(0, None))
    right.legend(loc="upper right")
    return figure


def _average_factor(model: GLM, prior: Gaussian, records: tuple[jax.Array, jax.Array]) -> Gaussian:
    """SEP's fixed point: the factor that is the average of the local factors under its own cavity."""
    local = jax.vmap(model.local_factor, (None, 0))
    factor = Gaussian(jnp.zeros(1), jnp.zeros((1, 1)))
    for _ in range(ROUNDS):
        cavity = divide(multiply(prior, power(factor, RECORDS)), factor)
        fresh = jax.tree.map(lambda leaf: leaf.mean(axis=0), local(cavity, records))
        moved = jax.tree.map(lambda old, new: 0.5 * old + 0.5 * new, factor, fresh)
        done = max(float(jnp.abs(a - b).max()) for a, b in zip(moved, factor, strict=True)) < 1e-12
        factor = moved
        if done:
            return factor
    raise AssertionError("the average factor did not come to rest.")


if __name__ == "__main__":
    main("factors", draw, __doc__)
