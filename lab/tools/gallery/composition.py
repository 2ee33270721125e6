"""Composition: epsilon over releases, and epsilon against delta, for full batches and Poisson sampling.

Everything is computed by the accountants that fits are charged by; there are no data.
"""

from pathlib import Path

from common import BLUE, GREEN, GREY, ORANGE, Measured, Picture, main, new_figure, plain, rounded, save, say

from dpsep.privacy.accounting import Mechanism, calibrate
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling

PICTURE = Picture(
    name="composition",
    title="What releases add up to",
    see=(
        "With the same noise, {releases} releases that each read a tenth of the records cost epsilon "
        "{tenth:.2f} instead of {full:.2f}, and adding up single releases would claim {added:.0f} (left). A "
        "budget is a curve: three runs that all promise epsilon 1 at delta 1e-5 promise different epsilons "
        "at other deltas (right)."
    ),
    made=(
        "No data. Left: noise of {sigma:g} times the clip, delta 1e-5, zero-out. Right: {releases} releases, "
        "each run with the noise that its own sampling needs. PLD accounting, exact for full batches."
    ),
    alt=(
        "Two line charts. Left: epsilon against the number of releases on logarithmic axes; the line of full "
        "batches is the highest but for the dotted one of simple addition, Poisson sampling at rate 0.1 and "
        "0.01 lie below. Right: epsilon falls as delta grows from 1e-9 to 0.01; three lines cross at delta "
        "1e-5, epsilon 1."
    ),
    still="composition.png",
)
SCHEMES: tuple[tuple[str, Sampling, str, str], ...] = (
    ("full batch", FullBatch(), BLUE, "o"),
    ("Poisson, rate 0.1", PoissonSampling(0.1), ORANGE, "s"),
    ("Poisson, rate 0.01", PoissonSampling(0.01), GREEN, "^"),
)
SIGMA, RELEASES, DELTA, RECORDS = 4.0, 100, 1e-5, 100_000


def measure(quick: bool, folder: Path) -> Measured:
    """Ask the accountants."""
    del folder
    counts = (1, 10, RELEASES) if quick else (1, 2, 5, 10, 20, 50, RELEASES)
    deltas = (1e-7, 1e-5, 1e-3) if quick else (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    lines = {}
    for name, sampling, _, _ in SCHEMES:
        same = [Mechanism(sampling, "zero-out", count, SIGMA, RECORDS).epsilon(DELTA) for count in counts]
        sigma = calibrate(1.0, DELTA, sampling, "zero-out", RELEASES, RECORDS)
        run = Mechanism(sampling, "zero-out", RELEASES, sigma, RECORDS)
        lines[name] = {
            "epsilon": rounded(same, 5),
            "sigma": round(sigma, 3),
            "curve": rounded([run.epsilon(delta) for delta in deltas], 5),
        }
        say(f"  {name}: noise {sigma:.2f} for epsilon 1")
    single = lines["full batch"]["epsilon"][0]
    return {
        "counts": counts,
        "deltas": deltas,
        "lines": lines,
        "caption": {
            "full": lines["full batch"]["epsilon"][-1],
            "tenth": lines["Poisson, rate 0.1"]["epsilon"][-1],
            "added": RELEASES * single,
            "releases": RELEASES,
            "sigma": SIGMA,
        },
    }


def draw(found: Measured, folder: Path) -> None:
    """Draw both charts."""
    figure, ((left, right),) = new_figure(1, 2, size=(8.0, 3.7))
    added = [count * found["lines"]["full batch"]["epsilon"][0] for count in found["counts"]]
    left.plot(found["counts"], added, ":", color=GREY, label="full batch, simply added")
    for name, _, colour, mark in SCHEMES:
        line = found["lines"][name]
        left.plot(found["counts"], line["epsilon"], mark + "-", color=colour, markersize=5, label=name)
        label = f"{name} (noise {line['sigma']:.2g})"
        right.plot(found["deltas"], line["curve"], mark + "-", color=colour, markersize=5, label=label)
    left.set(xscale="log", yscale="log", xlabel="releases", ylabel="epsilon at delta = 1e-5")
    left.set_title(f"same noise, {SIGMA:g} times the clip")
    right.plot([DELTA], [1.0], "o", color="black", markersize=9, fillstyle="none")
    right.set(xscale="log", xlabel="delta", ylabel="epsilon", ylim=(0, None))
    right.set_title(f"{RELEASES} releases within (1, 1e-5)")
    for ax in (left, right):
        plain(ax)
        ax.xaxis.grid(visible=False)
        ax.yaxis.grid(visible=True, color="#EEEEEE")
    left.yaxis.set_major_formatter("{x:g}")
    left.xaxis.set_major_formatter("{x:g}")
    left.legend(loc="upper left")
    right.legend(loc="upper right")
    save(figure, folder / PICTURE.still)


if __name__ == "__main__":
    main(PICTURE, measure, draw)
