"""Coverage under privacy: how often 90 % intervals of coefficients hold the truth, noise-aware or not.

Made tables whose coefficients are known, fitted many times (`dpsep_lab.bench.coverage`). Every fit gives both
answers: the interval that knows the noise of privacy, and the one of a reader who takes the private posterior
at its word.
"""

from pathlib import Path
from typing import Any

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
    save,
    say,
    seeded,
)

from dpsep_lab.bench.coverage import coverage

PICTURE = Picture(
    name="noise_aware",
    title="Intervals that know the noise",
    see=(
        "At epsilon {budget:g}, 90 % intervals of a logistic regression hold the true coefficient in "
        "{aware:.0%} of cases when they know the noise of privacy (`noise_aware=True`, the default), and in "
        "{blind:.0%} when they do not. At epsilon {least:g} this table is too small for a logistic "
        "regression: on average coefficients are found {pull:.1f} posterior standard deviations further "
        "from zero than they are, which no widening covers, and coverage is {lowest:.0%}."
    ),
    made=(
        "Made tables of {records:,} records and {features} columns with known coefficients; {datasets} "
        "tables a point, bars of two standard errors, delta 1e-5, zero-out, seeds 0 to {last}."
    ),
    alt=(
        "Two line charts, linear and logistic regression: coverage of 90 % intervals against epsilon from "
        "0.2 to 5. The noise-aware line stays near 90 % down to epsilon 0.5, and for linear regression falls "
        "to {linear:.0%} at 0.2; the line that ignores the noise lies below it everywhere and falls sooner. "
        "At 0.2 both lines of the logistic regression fall far below."
    ),
    still="noise_aware.png",
)
EPSILONS = (0.2, 0.5, 1.0, 2.0, 5.0)
KINDS = ("linear", "logistic")
RECORDS, FEATURES, LEVEL, SHOWN = 5000, 5, 0.9, 0.5


def measure(quick: bool, folder: Path) -> Measured:
    """Fit many made tables at every budget."""
    del folder
    datasets, records = (2, 500) if quick else (60, RECORDS)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for epsilon in (SHOWN, 2.0) if quick else EPSILONS:
            with seeded():
                found = coverage(kind, epsilon, datasets, records, FEATURES, level=LEVEL)
            keys = ("kind", "epsilon", "noise_aware", "coverage", "standard_error", "pull_in_sds")
            rows += [{key: row[key] for key in keys} for row in found]
            say(f"  {kind}, epsilon {epsilon:g}: {found[0]['coverage']:.2f}, {found[1]['coverage']:.2f}")

    def at(kind: str, epsilon: float, *, aware: bool = True) -> dict[str, Any]:
        wanted = (kind, epsilon, aware)
        return next(row for row in rows if (row["kind"], row["epsilon"], row["noise_aware"]) == wanted)

    least = min(row["epsilon"] for row in rows)
    return {
        "rows": rows,
        "caption": {
            "budget": SHOWN,
            "aware": at("logistic", SHOWN)["coverage"],
            "blind": at("logistic", SHOWN, aware=False)["coverage"],
            "least": least,
            "lowest": at("logistic", least)["coverage"],
            "pull": at("logistic", least)["pull_in_sds"],
            "linear": at("linear", least)["coverage"],
            "records": records,
            "features": FEATURES,
            "datasets": datasets,
            "last": datasets - 1,
        },
    }


def draw(found: Measured, folder: Path) -> None:
    """Draw a chart for each kind."""
    figure, axes = new_figure(1, len(KINDS), size=(8.0, 3.6), sharey=True)
    for ax, kind in zip(axes[0], KINDS, strict=True):
        ax.axhline(LEVEL, color=GREY, linewidth=1, zorder=1)
        ax.annotate("90 %", (1.0, LEVEL), (4, 0), xycoords=("axes fraction", "data"), va="center", color=GREY,
                    textcoords="offset points", fontsize=9)  # fmt: skip
        for aware, colour, mark, label in (
            (True, BLUE, "o", "knows the noise (default)"),
            (False, ORANGE, "s", "ignores the noise"),
        ):
            rows = [row for row in found["rows"] if row["kind"] == kind and row["noise_aware"] is aware]
            across, up = [row["epsilon"] for row in rows], [row["coverage"] for row in rows]
            ax.plot(across, up, mark + "-", color=colour, linewidth=1.8, zorder=3, label=label)
            reach = [2 * row["standard_error"] for row in rows]
            ax.errorbar(across, up, reach, fmt="none", ecolor=colour, elinewidth=1.2, capsize=3, zorder=3)
        ax.set_title(f"{kind} regression")
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter("{x:.0%}")
        epsilon_axis(plain(ax), EPSILONS)
    axes[0, 0].set_ylabel("90 % intervals that hold the truth")
    axes[0, 1].legend(loc="lower right")
    save(figure, folder / PICTURE.still)


if __name__ == "__main__":
    main(PICTURE, measure, draw)
