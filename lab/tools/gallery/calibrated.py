"""Do private models predict as they say? PIT values, coverage and reliability on public test rows."""

from pathlib import Path
from typing import Any

import numpy as np
from common import Measured, Picture, main, new_figure, rounded, save, say, seeded
from numpy.typing import NDArray
from scipy.stats import binom

from dpsep import LogisticRegression, NetworkRegressor
from dpsep.data import encode, encode_target, encoded_bounds
from dpsep.report.calibration import Calibration, Reliability, calibration
from dpsep.report.plots import plot_coverage, plot_pit, plot_reliability
from dpsep_lab.data import ADULT_SCHEMA, load_adult, load_uci, splits

PICTURE = Picture(
    name="calibrated",
    title="Private predictions, checked on public rows",
    see=(
        "At epsilon 1, {inside:.0%} of the targets of unseen rows lie in the 90 % predictive intervals of a "
        "network (middle), and the probabilities of a logistic regression are off by {error:.3f} on average "
        "(right). {bars} of the 10 bars of the PIT histogram (left) lie in the grey band that holds 95 % of "
        "bars where a model is right."
    ),
    made=(
        "Left and middle: network, table power, {power:,} rows to fit and {power_test:,} public test rows of "
        "the first customary split. Right: Adult, {adult_test:,} public test rows. delta 1e-5, zero-out, "
        "noise seed 0. Bands are of the binomial law, pointwise, 95 %."
    ),
    alt=(
        "Three charts. A histogram of PIT values, near one in every bin; the share of targets inside central "
        "intervals against their level, close to the diagonal; and observed against predicted probability of "
        "a high income, with points close to the diagonal."
    ),
    still="calibrated.png",
)


def measure(quick: bool, folder: Path) -> Measured:
    """Fit both models and look at public rows."""
    del folder
    table = load_uci("power")
    train, test = splits("power")[0]
    train = train[:1000] if quick else train
    bounds = (table.X.min(axis=0), table.X.max(axis=0))
    more: dict[str, Any] = {"hidden": 3, "steps": 2} if quick else {}
    with seeded():
        network = NetworkRegressor(
            bounds=bounds, target_bounds=(float(table.y.min()), float(table.y.max())), random_state=0, **more
        ).fit(table.X[train], table.y[train])
    found = calibration(network, table.X[test], table.y[test], public=True)
    say(f"  network: {found.coverage[2]:.3f} of targets in 90 % intervals")
    rows, new = load_adult("train"), load_adult("test")
    rows = rows[:3000] if quick else rows
    with seeded():
        classifier = LogisticRegression(classes=[0, 1], bounds=encoded_bounds(ADULT_SCHEMA), random_state=0)
        classifier.fit(encode(rows, ADULT_SCHEMA)[0], encode_target(rows, ADULT_SCHEMA))
    labels = calibration(
        classifier, encode(new, ADULT_SCHEMA)[0], encode_target(new, ADULT_SCHEMA), public=True
    )
    assert labels.reliability is not None
    say(f"  logistic: expected calibration error {labels.reliability.expected_error:.3f}")
    return {
        "levels": rounded(found.levels),
        "coverage": rounded(found.coverage, 5),
        "pit": rounded(found.pit),
        "reliability": {key: rounded(value, 5) for key, value in labels.reliability._asdict().items()},
        "caption": {
            "inside": float(found.coverage[2]),
            "bars": _bars_inside(found.pit),
            "error": labels.reliability.expected_error,
            "power": len(train),
            "power_test": len(test),
            "adult_test": new.height,
        },
    }


def draw(found: Measured, folder: Path) -> None:
    """Draw what was found, with the package's own plots."""
    levels, coverage, pit = (np.asarray(found[key]) for key in ("levels", "coverage", "pit"))
    reliability = {key: np.asarray(value) for key, value in found["reliability"].items()}
    reliability["rows"] = reliability["rows"].astype(np.int64)
    shown = Calibration(levels, coverage, pit, Reliability(**reliability))
    figure, ((left, middle, right),) = new_figure(1, 3, size=(10.5, 3.65))
    plot_pit(shown, ax=left).set_title("network: PIT of targets")
    left.set_box_aspect(1)
    plot_coverage(shown, ax=middle).set_title("network: predictive intervals")
    plot_reliability(shown, ax=right).set_title("logistic regression: probabilities")
    right.set_ylabel("observed share of high incomes")
    save(figure, folder / PICTURE.still)


def _bars_inside(pit: NDArray[np.float64]) -> int:
    """How many of ten bars lie in the band that the picture shows."""
    low, high = binom.ppf([0.025, 0.975], len(pit), 0.1)
    counts = np.histogram(pit, np.linspace(0.0, 1.0, 11))[0]
    return int(((counts >= low) & (counts <= high)).sum())


if __name__ == "__main__":
    main(PICTURE, measure, draw)
