"""A posterior shaped like a banana, and the Gaussians that EP, SEP and VI put in its place.

Records y ~ N(w_1 + w_2^2, s^2) tell of a sum and not of its parts, so that the posterior of (w_1, w_2) bends
along a parabola. The same posterior is told by few sharp records (upper row) and by many faint ones (lower
row): s^2 grows with their number. EP and SEP are the package's own (`dpsep.inference`), with local factors by
sums over a fine grid, on which the truth is found, too. The package has variational inference for networks
only, so here the best full Gaussian of the same objective, KL(q || p), is found by BFGS.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import BLUE, GREEN, GREY, ORANGE, Measured, Picture, main, new_figure, plain, rounded, save, say
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpsep.families import Gaussian, divide
from dpsep.inference import ep, sep

PICTURE = Picture(
    name="banana",
    title="A Gaussian in place of a banana",
    see=(
        "Told by {few} sharp records, EP and SEP (one factor shared by all records) are too sure of "
        "themselves, and variational inference (VI) far more so. Told by {many} faint ones, the "
        "posterior is the same, but each record changes little and EP and SEP come to the answer of VI. "
        "KL(p || q) in nats, few records: EP {ep_few:.2f}, SEP {sep_few:.2f}, VI {vi_few:.2f}; many: EP "
        "{ep_many:.2f}, SEP {sep_many:.2f}, VI {vi_many:.2f}. The best any Gaussian can do is {best_few:.2f}."
    ),
    made=(
        "Made records in which only w1 + w2² shows, their mean zero; truth on a grid; EP and SEP by "
        "`dpsep.inference`, VI as the full Gaussian with the least KL(q || p), found in the script. No "
        "privacy and no noise; the passes of SEP are shuffled with seed {seed}."
    ),
    alt=(
        "Six panels over the same grey, banana-shaped posterior. In the upper row, with few records, the "
        "ellipses of EP and SEP are wide, EP's the widest, and that of variational inference is small. "
        "In the lower row, with many records, all three are small and alike."
    ),
    still="banana.png",
)
SEED = 3
SHARPNESS = 0.22
"""Standard deviation of w_1 + w_2^2 that the records leave together."""
PRIOR_MEAN, PRIOR_SD = (0.0, 0.35), (2.0, 1.0)
ACROSS, UP = (-8.0, 4.0), (-3.6, 3.9)
"""Ends of the grid, where the posterior is nearly zero."""
SHOWN = (-4.6, 2.4), (-2.4, 2.7)
METHODS = (("ep", "EP", BLUE), ("sep", "SEP", GREEN), ("vi", "VI", ORANGE))
SIDE, NODES = 121, 32

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Parabola:
    """y ~ N(w_1 + w_2^2, deviation^2); a model as `dpsep.inference` takes them."""

    deviation: float

    def log_likelihood(self, w: jax.Array, y: Any) -> jax.Array:
        """Log density of y up to a constant; w has the two weights along its last axis."""
        return -0.5 * ((y - w[..., 0] - w[..., 1] ** 2) / self.deviation) ** 2

    def local_factor(self, cavity: Gaussian, record: Any) -> Gaussian:
        """Tilted minus cavity, with tilted moments by sums over the grid."""
        w = jnp.asarray(_grid())
        offset = w - cavity.mean
        log_cavity = -0.5 * jnp.sum((offset @ cavity.precision) * offset, -1)
        share = jax.nn.softmax(log_cavity + self.log_likelihood(w, record))
        return divide(_matched(w, share), cavity)


def measure(quick: bool, folder: Path) -> Measured:
    """Find the posterior on a grid and its three Gaussians, told by few records and by many."""
    del folder
    rows: list[Measured] = []
    caption: Measured = {"seed": SEED}
    density = np.zeros(0)
    for name, records in (("few", 2), ("many", 4 if quick else 20)):
        deviation = SHARPNESS * np.sqrt(records)
        with jax.enable_x64(True):
            density, fits, kl = _compare(Parabola(float(deviation)), records, passes=2 if quick else 60)
        rows.append({"records": records, "kl": kl, "fits": fits})
        caption |= {name: records} | {f"{method}_{name}": value for method, value in kl.items()}
        say(
            f"  {records} records, KL(p || q): "
            + ", ".join(f"{one} {value:.3f}" for one, value in kl.items())
        )
    return {
        "density": rounded(density.reshape(SIDE, SIDE) / density.max(), 4),
        "rows": rows,
        "caption": caption,
    }


def draw(found: Measured, folder: Path) -> None:
    """Draw the banana with one Gaussian a panel."""
    figure, axes = new_figure(2, 3, size=(8.4, 5.6), sharex=True, sharey=True)
    density = np.asarray(found["density"])
    across, up = (np.linspace(*ends, len(density)) for ends in (ACROSS, UP))
    # Heights of the smallest regions that hold these shares, from the outside in.
    falling = np.sort(density, axis=None)[::-1]
    held = np.cumsum(falling) / falling.sum()
    heights = [float(falling[np.searchsorted(held, share)]) for share in (0.99, 0.9, 0.5)]
    for places, row in zip(axes, found["rows"], strict=True):
        for ax, (name, title, colour) in zip(places, METHODS, strict=True):
            ax.contourf(across, up, density.T, [*heights, 2.0], colors=["#EDEDED", "#D0D0D0", "#A6A6A6"])
            q = row["fits"][name]
            for share, width in ((0.5, 1.4), (0.9, 2.2)):
                ring = _ring(np.asarray(q["mean"]), np.asarray(q["covariance"]), share)
                ax.plot(*ring.T, color=colour, linewidth=width)
            ax.plot(*q["mean"], "+", color="black", markersize=8)
            ax.set_title(f"{title}, {row['records']} records: KL {row['kl'][name]:.2f}")
            ax.set(xlim=SHOWN[0], ylim=SHOWN[1])
            plain(ax)
        places[0].set_ylabel("$w_2$")
    for ax in axes[1]:
        ax.set_xlabel("$w_1$")
    note = "grey: 50, 90 and 99 % of the true posterior p; lines: 50 and 90 % of the Gaussian q; KL(p || q)"
    figure.supxlabel(note, fontsize=9, color=GREY)
    save(figure, folder / PICTURE.still)


def _compare(model: Parabola, records: int, passes: int) -> tuple[Array, Measured, Measured]:
    """Masses of the posterior on the grid, its Gaussians, and how far each is from it."""
    # Spread as the model says, with mean zero: the posterior is then that of the mean, whatever their number.
    y = model.deviation * jnp.asarray(np.linspace(-1.0, 1.0, records))
    prior = Gaussian.from_moments(jnp.asarray(PRIOR_MEAN), jnp.diag(jnp.asarray(PRIOR_SD) ** 2))
    grid = _grid()
    log_density = prior.log_density(grid) + sum(model.log_likelihood(jnp.asarray(grid), one) for one in y)
    density = np.asarray(jax.nn.softmax(log_density))
    fits = {
        "ep": ep.run(model, prior, y, damping=0.5, max_iter=4 * passes).posterior,
        "sep": _sep(model, prior, y, passes),
        "vi": _variational(model, prior, y),
    }
    best = _matched(jnp.asarray(grid), jnp.asarray(density))
    kl = {name: _forward_kl(q, grid, density) for name, q in (fits | {"best": best}).items()}
    words = {
        q: {"mean": rounded(one.mean, 5), "covariance": rounded(one.covariance, 5)} for q, one in fits.items()
    }
    return density, words, kl


def _grid() -> Array:
    """Points of the plane, (n, 2)."""
    across, up = (np.linspace(*ends, SIDE) for ends in (ACROSS, UP))
    return np.stack(np.meshgrid(across, up, indexing="ij"), -1).reshape(-1, 2)


def _matched(w: jax.Array, share: jax.Array) -> Gaussian:
    """The Gaussian with the moments of these points."""
    mean = share @ w
    offset = w - mean
    return Gaussian.from_moments(mean, (offset.T * share) @ offset)


def _sep(model: Parabola, prior: Gaussian, y: jax.Array, passes: int) -> Gaussian:
    """SEP over shuffled passes, with smaller steps at the end, where its one factor is an average."""
    generator = np.random.default_rng(SEED)
    start = None
    for share in (0.5, 0.05, 0.005):
        settings = sep.Settings(prior, len(y), gamma=share * len(y), clip=None)
        order = np.concatenate([generator.permutation(len(y)) for _ in range(passes)])
        start = sep.posterior(settings, sep.run(model, settings, y, order, start))
    assert isinstance(start, Gaussian)
    return start


def _variational(model: Parabola, prior: Gaussian, y: jax.Array) -> Gaussian:
    """The Gaussian with the least KL(q || p): expectations by quadrature, minimum by BFGS."""
    at, weight = np.polynomial.hermite_e.hermegauss(NODES)
    nodes = np.stack(np.meshgrid(at, at, indexing="ij"), -1).reshape(-1, 2)
    weights = np.outer(weight, weight).reshape(-1) / (2 * np.pi)

    def parts(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        root = jnp.array([[jnp.exp(flat[2]), 0.0], [flat[3], jnp.exp(flat[4])]])
        return flat[:2], root

    @jax.jit
    def loss(flat: jax.Array) -> jax.Array:
        mean, root = parts(flat)
        w = mean + nodes @ root.T
        each = prior.log_density(w) + jnp.sum(model.log_likelihood(w[:, None, :], y), -1)
        return -jnp.dot(weights, each) - flat[2] - flat[4]

    start = np.array([0.0, 0.3, -1.0, 0.0, -1.0])
    best = minimize(
        lambda flat: float(loss(jnp.asarray(flat))),
        start,
        jac=lambda flat: np.asarray(jax.grad(loss)(jnp.asarray(flat))),
        method="BFGS",
    )
    mean, root = parts(jnp.asarray(best.x))
    return Gaussian.from_moments(mean, root @ root.T)


def _forward_kl(q: Gaussian, grid: Array, density: Array) -> float:
    """KL(p || q) in nats, p by its masses on a grid of equal cells."""
    cell = np.prod([np.ptp(ends) for ends in (ACROSS, UP)]) / (np.sqrt(len(grid)) - 1) ** 2
    held = density > 0
    own = np.log(density[held] / cell)
    return float(density[held] @ (own - np.asarray(q.log_density(grid[held]))))


def _ring(mean: Array, covariance: Array, share: float) -> Array:
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)], 1) * np.sqrt(-2 * np.log(1 - share))
    return mean + circle @ np.linalg.cholesky(covariance).T


if __name__ == "__main__":
    main(PICTURE, measure, draw)
