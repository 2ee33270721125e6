"""``dpsep predict``: a run's folder and a new table in, one prediction a row out.

Numbers get the predictive mean, standard deviation (of a new observation) and a central 90 % interval:
normal, or for counts of a negative binomial with these two moments. Yes/no targets get the predictive
probability of the second class, and a 90 % interval for that probability as the posterior of the linear
predictor has it. Of a mixture a row gets its most probable component, that component's probability and the
log predictive density of the row.

**Privacy.** A prediction is computed from the released posterior and the new row: post-processing. It tells
of the new row, which no noise protects.
"""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, ndtr

from dpsep.data import Schema, encode, read_table
from dpsep.estimators.glm import LogisticRegression, PoissonRegression
from dpsep.estimators.mixture import GaussianMixture
from dpsep.estimators.store import Estimator, load
from dpsep.privacy.checkpoint import atomic_write
from dpsep.shell.errors import CallError
from dpsep.shell.screen import print_json, remark

__all__ = ["predictions", "run"]

LEVEL = 0.9
Array = NDArray[np.float64]


def run(folder: Path, table: str, out: Path | None, *, as_json: bool = False) -> None:
    """Predict every row; rows with missing or undeclared cells get empty predictions."""
    estimator = load(folder)
    if not (folder / "schema.toml").exists():
        raise CallError(
            f"{folder} has no schema.toml: it was saved from Python, not by 'dpsep fit'. Use it from Python "
            "with dpsep.estimators.store.load."
        )
    schema = Schema.read(folder / "schema.toml")
    frame = read_table(table, schema=schema)
    matrix, names = encode(frame, schema)
    usable = np.asarray(np.isfinite(matrix).all(axis=1))
    columns = predictions(estimator, pl.DataFrame(matrix[usable], schema=list(names)))
    rows = _rows(columns, usable)
    if not usable.all():
        remark(
            f"{int((~usable).sum())} of {len(usable)} rows have missing or undeclared cells: "
            "no prediction for them."
        )
    if as_json:
        print_json(rows)
    else:
        text = _csv(rows, list(columns))
        if out is None:
            print(text, end="")
        else:
            atomic_write(out, text)
            remark(f"Wrote {len(rows)} predictions to {out}.")


def predictions(estimator: Estimator, features: pl.DataFrame) -> dict[str, list[Any]]:
    """Return the columns of a prediction, by name."""
    if len(features) == 0:
        features = pl.DataFrame({name: [0.0] for name in features.columns})
        return {name: [] for name in predictions(estimator, features)}
    if isinstance(estimator, GaussianMixture):
        return _components(estimator, features)
    reach = stats.norm.ppf(0.5 + LEVEL / 2)
    if hasattr(estimator, "predict_proba"):
        classifier: Any = estimator
        mean, variance = estimator._predictor(features)
        link = expit if isinstance(estimator, LogisticRegression) else ndtr
        spread = reach * np.sqrt(variance)
        return {
            "prediction": [str(label) for label in classifier.predict(features)],
            "probability": classifier.predict_proba(features)[:, 1].tolist(),
            "low": link(mean - spread).tolist(),
            "high": link(mean + spread).tolist(),
        }
    regressor: Any = estimator
    mean, sd = regressor.predict(features, return_std=True)
    low, high = mean - reach * sd, mean + reach * sd
    if isinstance(estimator, PoissonRegression):
        low, high = _count_interval(mean, sd**2)
    return {"mean": mean.tolist(), "sd": sd.tolist(), "low": low.tolist(), "high": high.tolist()}


def _components(estimator: GaussianMixture, features: pl.DataFrame) -> dict[str, list[Any]]:
    chances = estimator.predict_proba(features)
    return {
        "component": chances.argmax(axis=1).tolist(),
        "probability": chances.max(axis=1).tolist(),
        "log_density": estimator.score_samples(features).tolist(),
    }


def _count_interval(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Quantiles of the negative binomial with these moments; near a Poisson's where they are nearly equal."""
    extra = np.maximum(variance - mean, 1e-9 * mean)
    size, chance = mean**2 / extra, mean / (mean + extra)
    return stats.nbinom.ppf(0.5 - LEVEL / 2, size, chance), stats.nbinom.ppf(0.5 + LEVEL / 2, size, chance)


def _rows(columns: dict[str, list[Any]], usable: NDArray[np.bool_]) -> list[dict[str, Any]]:
    empty = dict.fromkeys(columns)
    filled = (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
    return [
        {"row": place} | (next(filled) if good else empty) for place, good in enumerate(usable.tolist(), 1)
    ]


def _csv(rows: list[dict[str, Any]], names: list[str]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["row", *names], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
