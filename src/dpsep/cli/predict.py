"""``dpsep predict``: a run's folder and a new table in, one prediction a row out.

Numbers get the predictive mean, standard deviation (of a new observation) and a central 90 % interval:
normal, or for counts of a negative binomial with these two moments. Yes/no targets get the predictive
probability of the second class, and a 90 % interval for that probability as the posterior of the linear
predictor has it. A mixed model that knows groups' own effects uses them for rows of these groups; other rows
are predicted as those of a new group. Of a mixture a row gets its most probable component, that component's
probability and the log predictive density of the row.

**Privacy.** A prediction is computed from the released posterior and the new row: post-processing. It tells
of the new row, which no noise protects: predictions for the very table that was fitted are about the records
that the fit protected. Where a table has that one's size and columns, the command says so.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.cli.errors import WRONG, CallError, explain
from dpsep.cli.screen import print_json, progress, remark
from dpsep.cli.units import labels_of
from dpsep.data import Schema, encode, read_table
from dpsep.estimators.mixed_base import MixedEstimator
from dpsep.estimators.row_scores import predictions
from dpsep.estimators.statement import PrivacyStatement
from dpsep.estimators.store import Estimator, StoreError, load
from dpsep.privacy.checkpoint import atomic_write

__all__ = ["run"]


def run(
    folder: Path, table: str, out: Path | None, *, format: str | None = None, as_json: bool = False
) -> None:
    """Predict every row; rows with missing or undeclared cells get empty predictions."""
    if folder.is_file():
        raise CallError(f"{folder} is a file; the folder of a fit comes first: dpsep predict RUN TABLE.")
    estimator = load(folder)
    if not (folder / "schema.toml").exists():
        raise CallError(
            f"{folder} has no schema.toml: it was saved from Python, not by 'dpsep fit'. Use it from Python "
            "with dpsep.estimators.store.load."
        )
    schema = Schema.read(folder / "schema.toml")
    with progress("reading the table", hidden=as_json):
        frame = read_table(table, format, schema=schema)
        matrix, names = encode(frame, schema)
    usable = np.asarray(np.isfinite(matrix).all(axis=1))
    with _usable(folder), progress("predicting", hidden=as_json):
        groups = _groups(estimator, frame, schema)
        columns = predictions(
            estimator,
            pl.DataFrame(matrix[usable], schema=list(names)),
            None if groups is None else groups[usable],
        )
        result = _table(columns, usable)
        alike = _alike(folder, estimator.privacy_, frame, schema)
    if not usable.all():
        remark(
            f"{int((~usable).sum())} of {len(usable)} rows have missing or undeclared cells: "
            "no prediction for them."
        )
    if alike is not None:
        remark(
            f"{table} has {alike} of the table that was fitted. If it is that one, these predictions are "
            "about its records and NOT PRIVATE: each is computed from the cells of its own record, without "
            "noise, and the run's privacy statement does not cover them. Keep them as that table is kept."
        )
    if as_json:
        print_json(result.to_dicts())
    elif out is None:
        print(result.write_csv(), end="")
    else:
        atomic_write(out, result.write_csv())
        remark(f"Wrote {result.height} predictions to {out}.")


def _groups(estimator: Estimator, frame: pl.DataFrame, schema: Schema) -> NDArray[Any] | None:
    """Return the groups of rows to predict: None where the model or the table knows of none."""
    known = schema.unit is not None and schema.unit in frame.columns
    own = isinstance(estimator, MixedEstimator) and estimator.unit == "record"
    return labels_of(frame, schema) if known and own else None


def _alike(folder: Path, fit: PrivacyStatement | None, frame: pl.DataFrame, schema: Schema) -> str | None:
    """Say in what a table is like the one that a private run was fitted to; None where it is another.

    Rows that were held out of the fit for private metrics are counted. Where whole groups are protected the
    number of rows is not known, and where a statement has no schedule that of records is not: then the
    target's column alone is taken as a sign.
    """
    if fit is None or (schema.target is not None and schema.target not in frame.columns):
        return None
    if fit.unit != "record" or fit.schedule is None:
        return None if schema.target is None else "the columns, the target among them,"
    records = max(int(part["records"]) for part in fit.schedule["parts"])
    sizes = {records}
    with suppress(OSError, ValueError):
        sizes.add(records + int(json.loads((folder / "metrics.json").read_text("utf-8")).get("rows") or 0))
    return "the columns and the number of rows" if frame.height in sizes else None


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Say of a posterior whose parts are whole and do not fit together that it is of no use."""
    try:
        yield
    except Exception as error:
        if explain(error)[0] == WRONG:
            raise
        raise StoreError(
            f"{folder} loads, yet nothing can be predicted with it ({type(error).__name__}): posterior.json "
            "is not as a fit writes it. Restore the folder; if nobody changed it, 'dpsep --debug predict' "
            "shows what is wrong."
        ) from error


def _table(columns: dict[str, NDArray[Any]], usable: NDArray[np.bool_]) -> pl.DataFrame:
    """One line a row of the table, empty behind its number where nothing could be predicted."""
    filled = pl.DataFrame({"row": np.flatnonzero(usable) + 1} | columns)
    return pl.DataFrame({"row": np.arange(1, len(usable) + 1)}).join(filled, on="row", how="left")
