r"""The least error that a budget allows for one coefficient, against which "impossible" is judged.

Let s_i be the information of record i about its predictor and z_i what is left of the coefficient's column
when the others are taken out of it by least squares with weights s_i. With weights w_i = min(1, c / |z_i|),
the estimate that solves sum w_i z_i g_i = 0 has variance J / H^2 with H = sum w_i s_i z_i^2 and
J = sum w_i^2 s_i z_i^2, and a gate that spends all of mu on that sum adds (B / (mu H))^2, where B bounds one
record's w_i z_i g_i. The floor is the least over c of the sum of both: 1 / I + (B / (mu I))^2, with the
information I of the records that speak. Under replace-one a record may move the sum by 2 B.

Where units have several rows, a unit's information is the sum over its rows and its score is bounded in units
of the root of that.
"""

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.gaussian import gaussian_mu
from dpsep_lab.bench.honesty.cells import Cell
from dpsep_lab.bench.honesty.targets import TARGETS, Table

__all__ = ["DELTA", "floor"]

DELTA = 1e-6
"""Of every fit."""
CAPS = (0.25, 0.5, 0.75, 0.9, 0.97, 0.995, 1.0)
"""Quantiles of the leverages that are tried as caps."""

Array = NDArray[np.float64]


def floor(cell: Cell, table: Table) -> Array:
    """Return the floor of the variance of each coefficient, the intercept first.

    Parameters
    ----------
    cell
        Says the budget, the relation and whose privacy is counted.
    table
        One of the cell's.
    """
    kind = TARGETS[cell.target]
    information = kind.information(table.predictor)
    bound = kind.score(table.predictor) * np.sqrt(information)
    design = np.column_stack([np.ones(len(table.X)), table.X])
    mu = np.inf if cell.epsilon is None else gaussian_mu(cell.epsilon, DELTA)
    moved = 2.0 if cell.relation == "replace-one" else 1.0
    units = table.groups if kind.by_group or cell.by_person else None
    return np.array(
        [_least(design, place, information, bound, mu / moved, units) for place in range(design.shape[1])]
    )


def _least(
    design: Array, place: int, information: Array, bound: Array, mu: float, units: NDArray[np.int64] | None
) -> float:
    root = np.sqrt(information)[:, None]
    others = np.delete(design, place, axis=1)
    column = design[:, place]
    fitted = others @ np.linalg.lstsq(others * root, column * root[:, 0], rcond=None)[0]
    z = np.abs(column - fitted)
    speaking = z > 1e-9
    if not speaking.any():
        return float("inf")
    found = []
    for cap in np.quantile(z[speaking], CAPS):
        weight = np.minimum(1.0, cap / np.maximum(z, 1e-300))
        total = np.sum(weight * information * z**2)
        spread = np.sum(weight**2 * information * z**2)
        scores = weight * z * bound
        if units is not None:
            # Scores of a unit's rows add like the root of their information where they are independent.
            scores = np.sqrt(np.bincount(units, scores**2))
        found.append(spread / total**2 + (scores.max() / (mu * total)) ** 2)
    return float(min(found))
