r"""How good a fit is, told without giving records away: on a public table, or on held-out rows for a charge.

Held-out rows are chosen by a fixed permutation of row numbers, so which they are depends on the number of
rows and the declared share and on nothing else, and a resumed run holds out the same ones.

**Privacy.** *Public table:* its rows are declared public; the metrics are functions of them and of a released
posterior. *Held-out rows:* one release of a sum through the gate. Each score (`dpsep.estimators.row_scores`)
is clamped to a range that is fixed, declared or computed from the released posterior, and moved to [-1, 1];
with a one that counts the row, a record's vector of k + 1 numbers has norm at most sqrt(k + 1), to which the
gate clips it. Histograms of calibration (`dpsep.cli.calibration`) are further blocks of the same release.
*Relation:* the fit's. *Event:* one Gaussian release, full batch, charged before a row is scored: a recipe of
one stage, which the one driver runs and resumes (`dpsep.fit`). A record is either fitted or held out, so that
the larger of the two epsilons would do; the statement and the ledger add them. Means are quotients of
released sums. The proof is in docs/proofs/metrics.md.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.cli.calibration import (
    SCORES_SHARE,
    bin_numbers,
    calibration_of_counts,
    calibration_of_rows,
    histogram_blocks,
)
from dpsep.cli.errors import CallError
from dpsep.cli.screen import number
from dpsep.cli.table import Inputs
from dpsep.data import read_table
from dpsep.data.frames import unknown_column
from dpsep.data.large_encoded import EncodedTable
from dpsep.data.later import read_now
from dpsep.estimators.base import LinearWeights
from dpsep.estimators.row_scores import predictions, row_scores
from dpsep.estimators.statement import PrivacyStatement
from dpsep.estimators.store import Estimator
from dpsep.fit import fit_private
from dpsep.inference.gate_protocol import Summed
from dpsep.privacy.accounting import calibrate
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.grid import Block
from dpsep.privacy.ledger import CHARGES, Ledger
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.record_sources import Records
from dpsep.privacy.sampling import FullBatch
from dpsep.privacy.shown import down, up
from dpsep.recipe import Opened, Recipe, Stage
from dpsep.registry import named

__all__ = ["check_room", "hold_out", "lost_metrics", "private_metrics", "public_metrics", "read_public"]

HELD_OUT = "held-out rows, privately"
"""What private metrics are computed on, in the words of metrics.json."""
LABEL_RANGE = (-4.0, 0.0)
"""Range of a label's log probability."""
COUNT_RANGE = (-10.0, 0.0)
"""Range of a count's log probability."""
DENSITY_RANGE = (-10.0, 1.5)
"""Range of a number's log density about that of its mode, where the features are in the middle."""
ERROR_REACH = 6.0
"""Errors of numbers are clamped to this many predictive standard deviations, where the features are in the
middle."""


class Metrics(NamedTuple):
    """What is written: ``document`` into metrics.json, and of a charge ``privacy`` into the statement."""

    document: dict[str, Any]
    privacy: dict[str, Any] | None = None

    def sentence(self, fit: PrivacyStatement | None) -> str:
        """Say in plain words where the metrics come from and what they cost."""
        what = "metrics and histograms of calibration" if "calibration" in self.document else "metrics"
        if self.privacy is None or fit is None:
            return f"Its {what} were computed on another table, declared public."
        epsilon, delta = self.privacy["epsilon"], self.privacy["delta"]
        times = self.privacy.get("releases", 1)
        again = "" if times == 1 else f" The run died on the way: {times} such sums are counted."
        return (
            f"Its {what} come from one noisy sum over {self.privacy['rows']} held-out records, which is "
            f"({up(epsilon)}, {up(delta)})-differentially private for each of them ({fit.relation}); with "
            f"the fit it counts as ({up(fit.epsilon + epsilon)}, {up(fit.delta + delta)}), the sum of both. "
            f"Scores beyond their public ranges were clamped.{again}"
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the metrics as cells: name, value, standard deviation of the noise."""
        noise = self.document.get("noise_sd", {})
        return [
            (name, "-" if value is None else number(value), number(noise[name]) if noise else "-")
            for name, value in self.document["metrics"].items()
        ]


def hold_out(inputs: Inputs, share: float) -> tuple[Inputs, Inputs]:
    """Return the rows to fit and the rows held out."""
    if not 0 < share < 1:
        raise CallError(
            f"--holdout must lie between 0 and 1, not {share:g}; 0.2 holds out a fifth of the rows."
        )
    if inputs.model == "mixture":
        raise CallError("metrics of a mixture have no declared range; leave --metrics-epsilon out.")
    records = len(inputs.features)
    held = round(share * records)
    if held < 1 or records - held < 2:
        raise CallError(f"of {records} rows --holdout {share:g} leaves too few to fit or to hold out.")
    order = np.random.default_rng(0).permutation(records)
    return inputs.some(np.sort(order[held:])), inputs.some(np.sort(order[:held]))


def check_room(ledger: Ledger | None, epsilon: float, metrics_epsilon: float, delta: float) -> None:
    """Refuse before the fit is charged where the metrics will not be affordable behind it."""
    if not 0 < metrics_epsilon < math.inf:
        raise CallError(f"--metrics-epsilon must be a positive number, not {metrics_epsilon}.")
    if ledger is None or ledger.rule != "sum":
        return
    left = ledger.remaining()
    if left.epsilon < epsilon + metrics_epsilon or left.delta < 2 * delta:
        raise CallError(
            f"fit and metrics together need epsilon {up(epsilon + metrics_epsilon)} and delta "
            f"{up(2 * delta)} (--delta for each of the two), and the ledger has epsilon "
            f"{down(left.epsilon)} and delta {down(left.delta)} left; ask for less. No record was read."
        )


def read_public(table: str, inputs: Inputs) -> Inputs:
    """Read a table whose rows are declared public, by the schema of the fit."""
    schema = inputs.schema
    frame = read_table(table, schema=schema)
    if schema.target is not None and schema.target not in frame.columns:
        raise CallError(f"{table}: {unknown_column(schema.target, frame.columns)}")
    known = inputs.unit == "record" and schema.unit in frame.columns
    encoded = EncodedTable(read_now(frame, table), schema, by_unit=known)
    found = inputs._replace(features=encoded.features, target=encoded.target, groups=encoded.groups)
    if not np.isfinite(found.cells()[0].to_numpy()).all(axis=1).any():
        raise CallError(
            f"{table} has no row without missing or undeclared cells, so there is nothing to score."
        )
    return found


def public_metrics(estimator: Estimator, inputs: Inputs) -> Metrics:
    """Score rows that are public."""
    scores = row_scores(estimator, *inputs.cells())
    good = np.isfinite(scores["log_density"])
    means = {
        name: float(scores[name][good].mean()) if good.any() else None for name in scores if name in _NAMES
    }
    document: dict[str, Any] = {
        "on": "a table declared public",
        "rows": len(good),
        "scored": int(good.sum()),
        "metrics": {_NAMES[name]: mean and _shown(name, mean) for name, mean in means.items()},
    }
    found = calibration_of_rows(scores)
    return Metrics(document if found is None else document | {"calibration": found})


def private_metrics(
    estimator: Estimator,
    held: Inputs,
    epsilon: float,
    delta: float,
    relation: Relation,
    ledger: Ledger | None,
    checkpoint: Checkpoint | None = None,
) -> Metrics:
    """Charge, score the held-out rows, and release one noisy sum of their scores and histograms."""
    names, low, high = _ranges(estimator, held)
    records = len(held.features)
    histograms = histogram_blocks(labels=held.classes is not None)
    blocks = (Block("scores", len(names) + 1, math.sqrt(len(names) + 1), SCORES_SHARE), *histograms)
    sigma = calibrate(epsilon, delta, FullBatch(), relation, 1, records)

    def rows() -> Records:
        scores = row_scores(estimator, *held.cells())
        bins = bin_numbers(scores)
        places = [bins[block.name] for block in histograms]
        return np.stack([scores[name] for name in names], axis=1), np.stack(places, axis=1)

    def run(opened: Opened, *_: object) -> tuple[dict[str, Any], Summed]:
        gate = opened(blocks, _ScoresAndBins())
        return gate.release((low, high)), gate

    recipe = Recipe(
        Schedule((Mechanism(FullBatch(), relation, 1, sigma, records),)),
        delta,
        (Stage("metrics", run, releases=1),),
        ((records, len(names)), (records, len(histograms))),
        {
            "metrics": names,
            # A release that was kept is of this fit, in these ranges and bins.
            "fit": estimator.privacy_ and estimator.privacy_.run,
            "target": held.target_bounds,
            "blocks": [repr(block) for block in blocks],
        },
        purpose="metrics on held-out rows",
    )
    (sums, gate), spend = fit_private(recipe, rows, ledger=ledger, checkpoint=checkpoint)
    # A count that noise made tiny or negative says nothing: the quotients are then those of one row in ten.
    released = sums["scores"]
    count = max(float(released[-1]), records / 10)
    deviation = gate.deviations["scores"] / count
    metrics, noise = {}, {}
    for place, name in enumerate(names):
        half = (high[place] - low[place]) / 2
        quotient = float(np.clip(released[place] / count, -1.0, 1.0))
        shown = metrics[_NAMES[name]] = _shown(name, low[place] + half * (1.0 + quotient))
        # Numerator and denominator are both noisy.
        spread = half * deviation * math.hypot(1.0, quotient)
        # Of a root: its slope times the deviation of what is under it, or the root of that near zero.
        root = 2.0 * max(shown, math.sqrt(spread))
        noise[_NAMES[name]] = spread / root if name == "squared_error" else spread
    charge = {
        "epsilon": spend.epsilon,
        "delta": delta,
        "relation": relation,
        "unit": "record",
        "sampling": "full batch",
        "sigma": sigma,
        "rows": records,
        "run": spend.permit.run,
        **({} if ledger is None else {"ledger": ledger.id}),
    }
    releases = spend.schedule.parts[0].steps
    if releases > 1:  # the run died on the way, and what it may have released counts
        charge["releases"] = releases
    document = {
        "on": HELD_OUT,
        "rows": records,
        "metrics": metrics,
        "noise_sd": noise,
        "clamped_to": {
            _NAMES[name]: [_shown(name, float(low[place])), _shown(name, float(high[place]))]
            for place, name in enumerate(names)
        },
        "calibration": calibration_of_counts(
            {block.name: sums[block.name][0] for block in histograms}, gate.deviations, count, records
        ),
        "privacy": charge,
    }
    return Metrics(document, charge)


def lost_metrics(ledger: Ledger, checkpoint: Checkpoint) -> Metrics | None:
    """Return the charges of metrics that died and do not fit the budget again; None if none were begun."""
    saved = checkpoint.load()
    if saved is None:
        return None
    charges = [row for row in ledger.rows() if row.run == saved.meta["run"] and row.kind in CHARGES]
    charge: dict[str, Any] = {
        "epsilon": math.fsum(row.epsilon for row in charges),
        "delta": math.fsum(row.delta for row in charges),
        "releases": len(charges),
        "rows": 0,
    }
    return Metrics({"on": HELD_OUT, "rows": 0, "metrics": {}, "privacy": charge}, charge)


@dataclass(frozen=True)
class _ScoresAndBins:
    """A row's scores, clamped to their ranges and moved to [-1, 1], and a one; its bin in each histogram."""

    def __call__(
        self, public: tuple[NDArray[np.float64], NDArray[np.float64]], chunk: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, ...]:
        """Return one row a record and block; NaN where a score is, or a bin."""
        low, high = public
        scores, bins = chunk
        moved = 2.0 * (jnp.clip(scores, low, high) - low) / (high - low) - 1.0
        counted = jnp.concatenate([moved, jnp.ones_like(scores[:, :1])], axis=1)
        return (counted, *(bins[:, place : place + 1] for place in range(bins.shape[1])))


_NAMES = {
    "log_density": "log_density",
    "squared_error": "rmse",
    "covered": "coverage_90",
    "correct": "accuracy",
}


def _shown(name: str, mean: float) -> float:
    return math.sqrt(max(mean, 0.0)) if name == "squared_error" else mean


def _ranges(estimator: Estimator, held: Inputs) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Names and public ranges of the scores that are released."""
    if held.classes is not None:
        ranges = {"log_density": LABEL_RANGE, "correct": (0.0, 1.0)}
    elif named(held.model).target == "count":
        ranges = {"log_density": COUNT_RANGE, "covered": (0.0, 1.0)}
        if held.target_bounds is not None:
            ranges["squared_error"] = (0.0, ((held.target_bounds[1] - held.target_bounds[0]) / 2) ** 2)
    else:
        spread = _typical_sd(estimator, held)
        peak = -math.log(spread * math.sqrt(2.0 * math.pi))
        ranges = {
            "log_density": (peak + DENSITY_RANGE[0], peak + DENSITY_RANGE[1]),
            "covered": (0.0, 1.0),
            "squared_error": (0.0, (ERROR_REACH * spread) ** 2),
        }
    limits = np.array(list(ranges.values()))
    return list(ranges), limits[:, 0], limits[:, 1]


def _typical_sd(estimator: Any, held: Inputs) -> float:
    """Predictive standard deviation where every feature is in the middle of its bounds: public."""
    bounds = held.bounds
    if bounds is None and isinstance(estimator, LinearWeights):
        bounds = estimator.feature_bounds_
    columns = held.columns
    middle = np.zeros(len(columns)) if bounds is None else np.mean(np.asarray(bounds), axis=0)
    row = pl.DataFrame(np.nan_to_num(middle, posinf=0.0, neginf=0.0)[None, :], schema=columns)
    return float(predictions(estimator, row)["sd"][0])
