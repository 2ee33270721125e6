"""The marginals of a posterior as pictures show them: a label, a mean, and how far an interval reaches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["COMPONENTS", "Marginal", "marginals"]

COMPONENTS = "mean of the component"
"""What the marginals of a mixture are of."""


class Marginal(NamedTuple):
    """A marginal as it is drawn: label, mean, half width of the interval, and that without noise."""

    label: str
    mean: float
    reach: float
    own: float


def marginals(estimator: Any, level: float, names: Sequence[str] | None) -> tuple[list[Marginal], bool, str]:
    """Return what is drawn of each row of a summary, if noise of privacy is in it, and what it is of."""
    found = estimator.summary(level)
    rows, quantity = [], "coefficient"
    for row in found:
        if "layer" in row:
            quantity = "weight, about its mean"
            label, mean, reach = f"layer {row['layer']} ({row['weights']} weights)", 0.0, row["width"] / 2
        else:
            label = row["name"] if "name" in row else f"{row['component']}: {row['column']}"
            quantity = quantity if "name" in row else COMPONENTS
            mean, reach = row["mean"], (row["high"] - row["low"]) / 2
        rows.append(Marginal(label, mean, reach, row["width_without_noise"] / 2))
    if names is not None:
        known = {row.label: row for row in rows}
        missing = [name for name in names if name not in known]
        if missing:
            raise ValueError(f"there is no {missing[0]!r} to draw; the names are {', '.join(known)}.")
        rows = [known[name] for name in names]
    if any(row.reach == 0 for row in rows):
        raise ValueError("the fit found a point and no posterior; there is nothing to draw.")
    return rows, found.noise and any(row.own < row.reach for row in rows), quantity
