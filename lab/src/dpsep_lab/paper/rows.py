"""Rows of the network tables: one figure each, ready for JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["EPSILON", "Row", "row_of", "skipped_row"]

Row = dict[str, Any]
EPSILON = 1.0
"""Of every private figure."""


def row_of(
    table: str,
    row: str,
    source: str,
    dataset: str,
    method: str,
    metric: str,
    values: Sequence[float],
    relation: str = "none",
    *,
    private: bool = False,
) -> Row:
    """Return one figure; values that are not finite are counted as diverged and left out of it.

    Parameters
    ----------
    table, row, source, dataset, method, metric
        What it is.
    values
        One for each split.
    relation
        The neighbouring relation; epsilon is 1 where there is one, as everywhere in these tables.
    private
        Whether a figure without a relation of its own is one of the paper's private ones: replace-one.
    """
    finite = np.array([value for value in values if math.isfinite(value)], np.float64)
    found: Row = {
        "table": table,
        "row": row,
        "source": source,
        "dataset": dataset,
        "method": method,
        "epsilon": EPSILON if private or relation != "none" else None,
        "relation": "replace-one" if private and relation == "none" else relation,
        "metric": metric,
        "mean": float(finite.mean()) if len(finite) else None,
        "median": float(np.median(finite)) if len(finite) else None,
        "sd": float(finite.std(ddof=1)) if len(finite) > 1 else None,
        "n": len(finite),
    }
    diverged = len(values) - len(finite)
    return found | {"diverged": diverged} if diverged else found


def skipped_row(table: str, dataset: str, metric: str, reason: str) -> Row:
    """Return the row of a set that is not there.

    Parameters
    ----------
    table, dataset, metric
        What it would have been.
    reason
        Why it is not there.
    """
    return row_of(table, "all", "ours", dataset, "all", metric, []) | {"skipped": reason}
