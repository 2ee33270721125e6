"""Maps of a table's columns: from declared bounds, from bounds released through a gate, or from the data.

**Privacy.** Bounds that nobody declared are a stage of a private fit, which reads records through gates only;
`own_scaling` reads them as they are, for fits that are not private.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.large import pieces
from dpsep.fit import fit_open
from dpsep.models.glm import Columns
from dpsep.privacy.gate import Records
from dpsep.privacy.record_sources import Part
from dpsep.recipe import SCALING, Stage, Values, scaling_stage

Array = NDArray[np.float64]
Maps = Callable[[Values], tuple[Columns, Columns]]
"""Maps of features and outcome, after the stage that finds bounds nobody declared."""


def several(scaling: Columns) -> Columns:
    """Map of the features: the same. Pages of reports are the last to ask for it."""
    return scaling


def single(scaling: Columns) -> Columns:
    """Map of the outcome."""
    return Columns(*(np.float64(part[0]) for part in scaling))


def map_columns(
    features: Columns | None,
    outcome: Columns | None,
    size: int,
    rows: Callable[[Records], Records] = lambda arrays: arrays[:2],
    *,
    keep_zero: bool = False,
    scale_family: bool = False,
) -> tuple[tuple[Stage, ...], Maps]:
    """Return the stage that finds bounds nobody declared, if any, and the maps after it.

    Parameters
    ----------
    features, outcome
        Declared; None where bounds are to be found.
    size
        Number of features.
    rows
        Features and outcome, as arrays, from those of the table.
    keep_zero
        Whether columns are scaled and not shifted, because no intercept could take a shift up.
    scale_family
        Whether the model can undo nothing of the outcome's map but its unit.
    """

    def usable(features: Columns, outcome: Columns) -> tuple[Columns, Columns]:
        outcome = single(outcome)
        if keep_zero:
            return through_zero(features), through_zero(outcome)
        return features, unit_of(outcome) if scale_family else outcome

    if features is not None and outcome is not None:
        return (), lambda _: usable(features, outcome)
    missing = (features is None, outcome is None)

    def wanted(arrays: Records) -> Records:
        return tuple(part for part, found in zip(rows(arrays), missing, strict=True) if found)

    def own(arrays: Records) -> Columns:
        parts = zip(*(own_scaling(array) for array in arrays), strict=True)
        return Columns(*(np.concatenate(part) for part in parts))

    def maps(values: Values) -> tuple[Columns, Columns]:
        found = values[SCALING]
        of_features = features or Columns(*(part[:size] for part in found))
        return usable(of_features, outcome or Columns(*(part[-1:] for part in found)))

    return (scaling_stage(size * missing[0] + missing[1], wanted, own),), maps


def own_columns(scaling: tuple[Stage, ...], maps: Maps, records: Records) -> tuple[Columns, Columns]:
    """Maps of the columns for a fit without privacy: declared, or from the data itself."""
    return fit_open((*scaling, Stage("columns", lambda opened, values, path: maps(values))), records)


def through_zero(columns: Columns) -> Columns:
    """Map that leaves zero where it is: without an intercept a shift of a column is another model.

    Examples
    --------
    >>> through_zero(Columns(*(np.array([part]) for part in (10.0, 20.0, 15.0, 5.0)))).scale
    array([20.])
    """
    low, high, centre, scale = (np.asarray(part) for part in columns)
    bounded = np.isfinite(low) & np.isfinite(high)
    size = np.where(bounded, np.maximum(np.abs(low), np.abs(high)), np.hypot(centre, scale))
    return Columns(columns.low, columns.high, 0.0 * centre, np.where(size > 0, size, 1.0))


def unit_of(outcome: Columns) -> Columns:
    """Map of an outcome to its unit alone, with nothing clamped: all that a scale family can take.

    Examples
    --------
    >>> float(unit_of(Columns(*(np.float64(part) for part in (1.0, 9.0, 5.0, 4.0)))).scale)
    9.0
    """
    zero = through_zero(outcome)
    return zero._replace(low=np.float64(-np.inf), high=np.float64(np.inf))


def table_outcome(likelihood: Any, outcome: Columns) -> Columns:
    """Return an outcome's map as predictors see it: in a scale family a unit b adds log b to each of them."""
    if not getattr(likelihood, "scale_family", False):
        return outcome
    return Columns(-np.inf, np.inf, np.log(outcome.scale), 1.0)


def own_scaling(values: Any) -> Columns:
    """Mean and standard deviation of the data itself; for fits that are not private."""
    if isinstance(values, Part):
        return _own_scaling_by_pieces(values)
    if values.ndim == 1:
        values = values[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.where(np.isfinite(values), values, np.nan)
        usable = np.isfinite(finite).any(axis=0)
        centre = np.where(usable, np.nanmean(np.where(usable, finite, 0.0), axis=0), 0.0)
        scale = np.nanstd(np.where(usable, finite, 0.0), axis=0)
    return _around(centre, scale)


def _own_scaling_by_pieces(values: Part) -> Columns:
    """Do the same in two passes over a table that is not in memory."""
    columns = values.shape[1] if values.ndim == 2 else 1
    count, total, squares = np.zeros((3, columns))
    for piece in pieces(values):
        cells = piece.reshape(len(piece), columns)
        count += np.isfinite(cells).sum(axis=0)
        total += np.where(np.isfinite(cells), cells, 0.0).sum(axis=0)
    centre = total / np.maximum(count, 1)
    for piece in pieces(values):
        cells = piece.reshape(len(piece), columns)
        squares += (np.where(np.isfinite(cells), cells - centre, 0.0) ** 2).sum(axis=0)
    return _around(centre, np.sqrt(squares / np.maximum(count, 1)))


def _around(centre: Array, scale: Array) -> Columns:
    """Scaling without bounds; a column that does not vary keeps its scale."""
    tiny = scale <= 1e-12 * np.maximum(1.0, np.abs(centre))
    scale = np.where(tiny | ~np.isfinite(scale), 1.0, scale)
    return Columns(np.full_like(centre, -np.inf), np.full_like(centre, np.inf), centre, scale)
