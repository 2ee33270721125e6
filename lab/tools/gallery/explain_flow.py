"""One release: sample, local factor, clip, sum, noise, update; with the vectors of a real one underneath.

A logistic regression of two weights on 300 made records, at a mean that still has some way to go. The arrows
are whitened, centred mean parts from `dpsep.models.glm`. Rate and clip are chosen for the eye; the noise is
that of epsilon 1 for a single release (`dpsep.privacy.accounting.calibrate`). The last panel is a sketch.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from explain_common import BLUE, GREEN, GREY, ORANGE, main

from dpsep.families import Gamma
from dpsep.models import LogisticLikelihood
from dpsep.models.glm import Columns, GLMContribution, Public
from dpsep.privacy.accounting import calibrate
from dpsep.privacy.sampling import PoissonSampling

RECORDS, RATE, WEIGHTS = 300, 0.15, np.array([1.5, -1.0])
STEPS = (
    ("sample", "every record joins\nby its own coin"),
    ("local factor", "what each record\nsays, given q"),
    ("clip", "no vector longer\nthan C"),
    ("sum, noise", "exact integers, then\nGaussian noise"),
    ("update", "q moves; only the\nrelease is used"),
)


def draw() -> Any:
    """Return the figure."""
    from matplotlib import pyplot
    from matplotlib.patches import FancyBboxPatch

    vectors, chosen, clip, sigma = _release()
    figure = pyplot.figure(figsize=(9.2, 4.3))
    top = figure.add_axes((0, 0.6, 1, 0.4))
    top.set(xlim=(0, 5), ylim=(0, 1))
    top.axis("off")
    top.add_patch(
        FancyBboxPatch(
            (0.06, 0.04), 3.9, 0.9, "round,pad=0,rounding_size=0.06", facecolor="#EAF3F9", edgecolor=BLUE
        )
    )
    top.text(0.12, 0.83, "inside the gate: the only place where records are read", fontsize=9, color=BLUE)
    for place, (name, text) in enumerate(STEPS):
        colour = GREEN if place == 4 else BLUE
        box = FancyBboxPatch(
            (place + 0.13, 0.14),
            0.74,
            0.58,
            "round,pad=0,rounding_size=0.05",
            facecolor="white",
            edgecolor=colour,
        )
        top.add_patch(box)
        top.text(place + 0.5, 0.58, name, ha="center", va="center", fontsize=11, weight="bold")
        top.text(place + 0.5, 0.33, text, ha="center", va="center", fontsize=8.5)
        if place < 4:
            arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.2}
            top.annotate("", (place + 1.13, 0.43), (place + 0.87, 0.43), arrowprops=arrow)
    reach = 1.02 * np.linalg.norm(vectors[chosen], axis=1).max()
    rng = np.random.default_rng(5)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    clipped = vectors * np.minimum(1, clip / lengths)
    total = clipped[chosen].sum(axis=0)
    released = total + sigma * clip * rng.standard_normal(2)
    axes = [figure.add_axes((0.2 * place + 0.015, 0.09, 0.17, 0.46)) for place in range(5)]
    for ax in axes:
        ax.set(xticks=[], yticks=[], aspect="equal")
        ax.spines[:].set_visible(False)
    captions = (
        "300 records, the sampled blue",
        "one vector a record",
        "long ones shortened",
        "sum, noise, release (star)",
        "before and after (sketch)",
    )
    for place, text in enumerate(captions):
        figure.text(0.2 * place + 0.1, 0.035, text, ha="center", fontsize=8.5, color=GREY)
    _dots(axes[0], chosen)
    _arrows(axes[1], vectors[chosen], reach, BLUE)
    _arrows(axes[2], clipped[chosen], reach, BLUE)
    for ax in axes[1:3]:
        ax.add_patch(pyplot.Circle((0, 0), clip, fill=False, color=GREY, linestyle="--", linewidth=1))
    axes[2].text(0, -clip * 1.08, "C", ha="center", va="top", fontsize=9, color=GREY)
    _sums(axes[3], total, released, sigma * clip)
    _moves(axes[4], released)
    return figure


def _release() -> tuple[Any, Any, float, float]:
    """Vectors of all records, which were sampled, the clip, and the noise over it."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((RECORDS, 2))
    y = np.where(rng.logistic(size=RECORDS) < x @ WEIGHTS, 1.0, -1.0)
    with jax.enable_x64(True):
        likelihood = LogisticLikelihood()
        # A precision near the posterior's, at a mean that still has some way to go.
        curvature = 0.15 * x.T @ x + np.eye(2) / 4
        half = np.linalg.inv(np.linalg.cholesky(curvature))
        mean = jnp.asarray(0.6 * WEIGHTS)
        same = Columns(jnp.full(2, -jnp.inf), jnp.full(2, jnp.inf), jnp.zeros(2), jnp.ones(2))
        outcome = Columns(*(jnp.asarray(value) for value in (-jnp.inf, jnp.inf, 0.0, 1.0)))
        noise = Gamma.from_shape_and_rate(jnp.asarray(1.0), jnp.asarray(1.0))
        public = Public(same, outcome, jnp.asarray(half), mean, mean, noise)
        part, _ = GLMContribution(likelihood, intercept=False)(public, (jnp.asarray(x), jnp.asarray(y)))
        vectors = np.asarray(part)
    chosen = rng.uniform(size=RECORDS) < RATE
    sigma = calibrate(1.0, 1e-5, PoissonSampling(RATE), "zero-out", 1, RECORDS)
    return vectors, chosen, 1.2 * float(np.median(np.linalg.norm(vectors, axis=1))), sigma


def _dots(ax: Any, chosen: Any) -> None:
    side = 18
    column, row = np.divmod(np.arange(RECORDS), side)
    ax.scatter(column[~chosen], row[~chosen], s=9, color="#CFCFCF", linewidth=0)
    ax.scatter(column[chosen], row[chosen], s=14, color=BLUE, linewidth=0)


def _arrows(ax: Any, vectors: Any, reach: float, colour: str) -> None:
    zero = np.zeros(len(vectors))
    ax.quiver(zero, zero, *vectors.T, color=colour, angles="xy", scale_units="xy", scale=1, width=0.012)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))


def _sums(ax: Any, total: Any, released: Any, deviation: float) -> None:
    from matplotlib.patches import Circle

    for times, alpha in ((2, 0.18), (1, 0.35)):
        ax.add_patch(Circle(tuple(total), times * deviation, color=ORANGE, alpha=alpha, linewidth=0))
    ax.quiver(0, 0, *total, color=BLUE, angles="xy", scale_units="xy", scale=1, width=0.02)
    ax.scatter(*released, marker="*", s=130, color="black", zorder=3)
    points = np.array([(0, 0), total + 2.2 * deviation, total - 2.2 * deviation, released])
    ax.set(xlim=(points[:, 0].min(), points[:, 0].max()), ylim=(points[:, 1].min(), points[:, 1].max()))


def _moves(ax: Any, released: Any) -> None:
    from matplotlib.patches import Ellipse

    step = released / np.linalg.norm(released)
    ax.add_patch(Ellipse((0, 0), 1.5, 1.0, angle=25, fill=False, color=GREY, linestyle="--"))
    ax.add_patch(Ellipse(tuple(0.8 * step), 1.1, 0.75, angle=25, fill=False, color=GREEN, linewidth=2))
    arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", tuple(0.8 * step), (0, 0), arrowprops=arrow)
    ax.set(xlim=(-1.0, 1.2), ylim=(-1.25, 0.75))


if __name__ == "__main__":
    main("flow", draw, __doc__)
