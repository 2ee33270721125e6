"""A posterior under a shrinking budget, as an animation and as a strip of stills.

One table, several seeds of the noise, epsilon from 8 down to 0.1: the private posteriors of two coefficients,
one ring a seed, beside the posterior without privacy and, on a scale that holds it, the prior.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    BLUE,
    GREY,
    ORANGE,
    Measured,
    Picture,
    epsilon_axis,
    main,
    new_figure,
    plain,
    rounded,
    save,
    say,
    seeded,
)
from matplotlib import pyplot
from numpy.typing import NDArray
from PIL import Image

from dpsep import LinearRegression

PICTURE = Picture(
    name="shrinking",
    title="A posterior under a shrinking budget",
    see=(
        "Each orange ring is the posterior of one private fit and holds 90 % of it; the blue ring is the one "
        "without privacy, the cross the truth. As epsilon falls, private posteriors move apart, and they "
        "widen because they know it: the median width of the first 90 % interval grows from {first:.2f} at "
        "epsilon 8 to {last:.2f} at 0.1, between {free:.2f} without privacy and {prior:.0f} of the prior. "
        "At 0.1 the widths are noisy themselves, from {narrow:.2f} to {wide:.2f}: this is where {records:,} "
        "records are too few."
    ),
    made=(
        "A made table of {records:,} records and two columns, data seed 1, linear regression with learned "
        "noise, noise seeds 0 to {seeds}, delta 1e-5, zero-out; {frames} budgets. The page shows the still; "
        "it leads to the animation."
    ),
    alt=(
        "Six panels of the plane of two coefficients at epsilon 8, 3, 1, 0.5, 0.2 and 0.1. Orange rings of "
        "private posteriors lie on the blue one without privacy at epsilon 8, spread around it as epsilon "
        "falls, and are larger and far apart at 0.1."
    ),
    still="shrinking.png",
    moving="shrinking.webp",
)
TRUTH = np.array([0.3, 1.2, -1.8])
NOISE, TARGET = 0.8, 6.0
"""Noise of the made table, and the declared bound of its target."""
PRIOR_SD = 2.0 * TARGET
"""The default prior's, in the units of the table."""
REACH = 0.27
STILLS = (8.0, 3.0, 1.0, 0.5, 0.2, 0.1)
TICKS = (8.0, 3.0, 1.0, 0.5, 0.2, 0.1)
Array = NDArray[np.float64]
QUANTILE = 1.6448536269514722
"""Of a standard normal at 0.95: half the width of a 90 % interval."""


def measure(quick: bool, folder: Path) -> Measured:
    """Fit one table at every budget, with the same seeds of the noise."""
    del folder
    records, seeds = (500, 1) if quick else (3000, 6)
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (records, 2))
    y = TRUTH[0] + X @ TRUTH[1:] + NOISE * generator.standard_normal(records)
    between = () if quick else (6.0, 4.5, 2.2, 1.5, 0.8, 0.65, 0.4, 0.32, 0.26, 0.17, 0.14, 0.12)
    epsilons = sorted({*between, *STILLS}, reverse=True)
    declared: dict[str, Any] = {"bounds": (-1, 1), "target_bounds": (-TARGET, TARGET)}
    free = _moments(LinearRegression(private=False, **declared).fit(X, y))
    frames = []
    for epsilon in epsilons:
        with seeded():
            fits = [
                _moments(LinearRegression(epsilon=epsilon, random_state=seed, **declared).fit(X, y))
                for seed in range(seeds)
            ]
        frames.append(
            {"epsilon": epsilon, "fits": fits, "width": float(np.median([_width(one) for one in fits]))}
        )
    say(f"  {len(frames)} budgets, {seeds} seeds")
    found: Measured = {"free": free, "frames": frames, "records": records, "seeds": seeds}
    return found | {"caption": _caption(found)}


def draw(found: Measured, folder: Path) -> None:
    """Draw the strip and the animation."""
    chosen = [frame for frame in found["frames"] if frame["epsilon"] in STILLS]
    figure, axes = new_figure(2, 3, size=(8.0, 5.9), sharex=True, sharey=True)
    for ax, frame in zip(axes.flat, chosen, strict=True):
        _plane(ax, found["free"], frame)
        ax.set_title(f"epsilon {frame['epsilon']:g}")
    for ax in axes[1]:
        ax.set_xlabel("first coefficient")
    for ax in axes[:, 0]:
        ax.set_ylabel("second coefficient")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    save(figure, folder / PICTURE.still)
    images = [_frame(found, number) for number in range(len(found["frames"]))]
    assert PICTURE.moving is not None
    waits = [1200] + [350] * (len(images) - 2) + [2000]
    more = {"save_all": True, "duration": waits, "loop": 0, "quality": 85, "method": 4}
    images[0].save(folder / PICTURE.moving, append_images=images[1:], **more)


def _caption(found: Measured) -> Measured:
    """Numbers of the caption."""
    frames = found["frames"]
    last = [_width(fit) for fit in frames[-1]["fits"]]
    return {
        "free": _width(found["free"]),
        "first": frames[0]["width"],
        "last": frames[-1]["width"],
        "narrow": min(last),
        "wide": max(last),
        "prior": 2 * QUANTILE * PRIOR_SD,
        "records": found["records"],
        "seeds": found["seeds"] - 1,
        "frames": len(frames),
    }


def _frame(found: Measured, number: int) -> Image.Image:
    """One picture of the animation: the plane, and beside it the widths so far."""
    figure, ((left, right),) = new_figure(1, 2, size=(7.6, 3.9))
    frame = found["frames"][number]
    _plane(left, found["free"], frame)
    left.set(xlabel="first coefficient", ylabel="second coefficient")
    left.set_title(f"epsilon {frame['epsilon']:g}", fontweight="bold")
    left.legend(loc="upper right", handlelength=1.4, fontsize=8)
    seen = found["frames"][: number + 1]
    across = [one["epsilon"] for one in seen]
    widths = np.array([[_width(fit) for fit in one["fits"]] for one in seen])
    place = {"textcoords": "offset points", "va": "top", "fontsize": 9}
    prior = 2 * QUANTILE * PRIOR_SD
    for height, name, style, colour in (
        (_width(found["free"]), "no privacy", "-", BLUE),
        (prior, "prior", "--", GREY),
    ):
        right.axhline(height, color=colour, linewidth=1.4, linestyle=style)
        right.annotate(name, (8.0, height), (0, -4), color=colour, **place)
    right.plot(across, widths, "-", color=ORANGE, linewidth=0.8, alpha=0.6)
    right.plot(across, [one["width"] for one in seen], "-", color=ORANGE, linewidth=2.4)
    right.plot(across[-1], frame["width"], "o", color=ORANGE, markersize=8)
    right.set(xlim=(9.5, 0.085), ylim=(0.04, 70.0), yscale="log")
    right.yaxis.set_major_formatter("{x:g}")
    epsilon_axis(plain(right), TICKS)
    right.set_title("width of the first 90 % interval")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return Image.open(buffer).convert("RGB")


def _plane(ax: Any, free: Measured, frame: Measured) -> None:
    """Draw the private posteriors, the one without privacy and the truth."""
    for number, fit in enumerate(frame["fits"]):
        label = "private, one ring a seed (90 %)" if number == 0 else None
        ring = _ring(np.asarray(fit["mean"]), np.asarray(fit["covariance"]), 0.9)
        ax.fill(*ring.T, color=ORANGE, alpha=0.10, linewidth=0, zorder=2)
        ax.plot(*ring.T, color=ORANGE, linewidth=1.4, label=label, zorder=3)
    ring = _ring(np.asarray(free["mean"]), np.asarray(free["covariance"]), 0.9)
    ax.plot(*ring.T, color=BLUE, linewidth=2.0, label="no privacy (90 %)", zorder=4)
    ax.plot(*TRUTH[1:], "x", color="black", markersize=6, markeredgewidth=1.6, label="truth", zorder=5)
    # A ring reaches out of the frame where its centre and half its width do, in one direction or the other.
    reach = np.sqrt(-2 * np.log(0.1))
    beyond = sum(
        bool(
            np.any(
                np.abs(np.subtract(fit["mean"], TRUTH[1:])) + reach * np.sqrt(np.diag(fit["covariance"]))
                > REACH
            )
        )
        for fit in frame["fits"]
    )
    if beyond:
        words = f"{beyond} ring{'s' * (beyond > 1)} reach{'es' * (beyond == 1)} beyond"
        place = {"transform": ax.transAxes, "ha": "right", "va": "bottom", "fontsize": 9, "zorder": 6}
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "#CCCCCC", "linewidth": 0.6}
        ax.text(0.97, 0.03, words, bbox=box, **place)
    ends = [(centre - REACH, centre + REACH) for centre in TRUTH[1:]]
    ax.set(xlim=ends[0], ylim=ends[1], aspect="equal")
    plain(ax)


def _moments(model: LinearRegression) -> Measured:
    """Mean and covariance of the two coefficients."""
    found = model.posterior_
    return {"mean": rounded(found.mean[1:], 5), "covariance": rounded(found.covariance[1:, 1:], 7)}


def _width(moments: Measured) -> float:
    """Width of the 90 % interval of the first coefficient."""
    return float(2 * QUANTILE * np.sqrt(moments["covariance"][0][0]))


def _ring(mean: Array, covariance: Array, share: float) -> Array:
    turn = np.linspace(0, 2 * np.pi, 120)
    circle = np.stack([np.cos(turn), np.sin(turn)], 1) * np.sqrt(-2 * np.log(1 - share))
    return mean + circle @ np.linalg.cholesky(covariance).T


if __name__ == "__main__":
    main(PICTURE, measure, draw)
