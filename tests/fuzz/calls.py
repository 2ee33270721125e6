"""Calls of every public function with arguments that are right, to be made odd one or two at a time.

An argument of a plain type (a number, a text, a list, an array, a table, a path) takes anything. One that is
an object of this library (a sampling scheme, a stream, a fitted estimator) stays what it is.
"""

import importlib
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import dpsep
from dpsep import audit, data
from dpsep.audit.bounds import Counts
from dpsep.estimators import store
from dpsep.privacy import accounting, checkpoint, gaps, ledger, mechanism, noise, sampling
from dpsep.registry import ENTRIES
from dpsep.report import plots

MODULES = (
    *("dpsep", "dpsep.audit", "dpsep.data", "dpsep.estimators.store", "dpsep.report.calibration"),
    *("dpsep.report.plots", "dpsep.privacy.accounting", "dpsep.privacy.checkpoint", "dpsep.privacy.ledger"),
    *("dpsep.privacy.gaps", "dpsep.privacy.mechanism", "dpsep.privacy.noise", "dpsep.privacy.sampling"),
)
"""Where the public names are."""


class Call(NamedTuple):
    """A function, arguments that are right, and which of them are made odd.

    ``few`` are numbers of things to make: odd, but never huge, for a huge one is a right one.
    """

    function: Callable[..., Any]
    right: dict[str, Any]
    odd: tuple[str, ...]
    few: tuple[str, ...] = ()


def public_names() -> Iterator[tuple[str, Any]]:
    """Give the functions and classes that users call: no errors, records, constants or kinds."""
    seen: set[int] = set()
    for module in MODULES:
        room = importlib.import_module(module)
        own = [name for name, what in vars(room).items() if getattr(what, "__module__", "") == module]
        for name in getattr(room, "__all__", [name for name in own if not name.startswith("_")]):
            what = getattr(room, name)
            record = hasattr(what, "_fields") or (isinstance(what, type) and issubclass(what, BaseException))
            kind = getattr(what, "_is_protocol", False) or bool(getattr(what, "__abstractmethods__", None))
            if callable(what) and not record and not kind and id(what) not in seen and name != "Relation":
                seen.add(id(what))
                yield f"{module.removeprefix('dpsep.')}.{name}", what


ESTIMATORS = tuple(entry.kind for entry in ENTRIES)
ELSEWHERE = {
    **{f"dpsep.{name}": "test_estimators fits it" for name in ESTIMATORS},
    **dict.fromkeys(("audit.canary_audit", "audit.one_run_audit", "audit.membership_audit"), "it makes fits"),
    **dict.fromkeys(("audit.replay", "audit.steps_of"), "it makes fits"),
    **dict.fromkeys(("audit.noise_findings", "audit.sampling_findings"), "it takes what steps_of gives"),
    "data.Finding": "a record of a finding",
    "privacy.noise.thread_precision": "mpmath's own context: whoever calls it gives bits",
}
"""Public names without a call here, and why."""


def calls() -> dict[str, Call]:
    """Return a call of every public name that is not `ELSEWHERE`."""
    place = Path(tempfile.mkdtemp())
    x = np.linspace(-1, 1, 24).reshape(12, 2)
    fitted = dpsep.LinearRegression(private=False).fit(x, x[:, 0])
    found = dpsep.calibration(fitted, x, x[:, 0], public=True)
    part = mechanism.Mechanism(sampling.FullBatch(), "zero-out", 3, 2.0, 100)
    stream = noise.SeededStream(1)
    schema = data.Schema(
        (data.Column("a", "number"), data.Column("b", "category", categories=("x", "y"))), "a"
    )
    table = {"a": [1.0, 2.0], "b": ["x", None]}
    kept = ledger.Ledger(place / "kept.ledger", epsilon=10.0, delta=1e-3)
    keeper = checkpoint.Checkpoint(place / "checkpoint")
    target = {"target_epsilon": 1.0, "target_delta": 1e-5}
    run = {"relation": "zero-out", "steps": 3, "records": 100}
    curve = np.ones(len(accounting.RDP_ORDERS))
    numbers = ("target_epsilon", "target_delta")

    def text() -> io.BytesIO:
        return io.BytesIO(b"a,b\n1,x\n2,y\n")

    def read_table(source: Any = None, **rest: Any) -> pl.DataFrame:
        return data.read_table(text() if source is None else source, **rest)

    def read_structure(source: Any = None, **rest: Any) -> Any:
        return data.read_structure(text() if source is None else source, **rest)

    def neighbours(**rest: Any) -> list[Any]:
        return list(audit.neighbours_of(**rest))

    def group_neighbours(**rest: Any) -> list[Any]:
        return list(audit.group_neighbours_of(**rest))

    def mechanism_cost(delta: Any = 1e-5, **rest: Any) -> float:
        return mechanism.Mechanism(**rest).epsilon(delta)

    def fixed(size: Any, n_records: Any) -> Any:
        return sampling.FixedSizeSampling(size).check(n_records)

    def shuffled(size: Any, n_records: Any) -> Any:
        return sampling.ShuffledEpochs(size).check(n_records)

    def poisson(rate: Any, n_records: Any) -> Any:
        return sampling.PoissonSampling(rate).check(n_records)

    def new_ledger(name: str = "new.ledger", **terms: Any) -> Any:
        (place / name).unlink(missing_ok=True)
        return ledger.Ledger(place / name, **terms)

    def durable(folder: Any) -> None:
        with checkpoint.durable_names(folder):
            pass

    drawn = {"estimator": fitted, "X": x, "y": x[:, 0]}
    asked: dict[str, Any] = {"model": "linear", "records": 5000, "features": 5, "epsilon": 1.0}
    asked |= {"relation": "zero-out", "widening": None, "excess_risk": None, "components": None}
    asked |= {"levels": (), "declared": True, "hidden": None}
    budget = {"epsilon": 1.0, "delta": 1e-5, "relation": "zero-out", "unit": "record", "rule": "sum"}
    charge = {"run": "r", "epsilon": 0.0, "delta": 0.0, "relation": "zero-out", "event": {}, "unit": "record"}
    return {
        "dpsep.Ledger": Call(new_ledger, budget, tuple(budget)),
        "dpsep.Ledger.charge": Call(kept.charge, charge | {"rdp": None, "kind": "charge"}, tuple(charge)),
        "dpsep.Linear": Call(dpsep.Linear, {"columns": None, "intercept": True}, ("columns", "intercept")),
        "dpsep.Normal": Call(
            dpsep.Normal, {"mean": 0.0, "sd": 1.0, "shape": ()}, ("mean", "sd", "shape"), ("shape",)
        ),
        "dpsep.calibration": Call(
            dpsep.calibration,
            drawn | {"levels": 0.5, "public": True, "bins": 5},
            ("X", "y", "levels", "bins"),
            ("bins",),
        ),
        "dpsep.plan": Call(
            dpsep.plan,
            asked | {"delta": 1e-5, "sampling": None, "curve": False},
            (*asked, "delta", "sampling"),
        ),
        "audit.lower_bound": Call(
            audit.lower_bound,
            {"counts": Counts(9, 10, 1, 10), "delta": 1e-5, "confidence": 0.9},
            ("delta", "confidence"),
        ),
        "audit.one_run_bound": Call(
            audit.one_run_bound,
            {"correct": 5, "guesses": 6, "canaries": 10, "delta": 1e-5, "confidence": 0.9},
            ("correct", "guesses", "canaries", "delta", "confidence"),
            ("correct", "guesses", "canaries"),
        ),
        "audit.neighbours_of": Call(
            neighbours, {"X": x, "y": x[:, 0], "count": 3, "seed": 0}, ("count", "seed"), ("count",)
        ),
        "audit.group_neighbours_of": Call(
            group_neighbours,
            {"X": x, "y": x[:, 0], "groups": np.arange(12) % 3, "declared": 3, "count": 3, "seed": 0},
            ("count", "seed"),
            ("count",),
        ),
        "data.Column": Call(
            data.Column,
            {"name": "a", "kind": "number", "bounds": None, "categories": None, "missing": "drop"},
            ("name", "kind", "bounds", "categories", "missing"),
        ),
        "data.Schema": Call(
            data.Schema,
            {"columns": schema.columns, "target": "a", "unit": "u", "groups": 3, "rows_per_unit": 2},
            ("columns", "target", "unit", "groups", "rows_per_unit"),
        ),
        "data.Schema.from_dict": Call(
            data.Schema.from_dict, {"declaration": schema.to_dict()}, ("declaration",)
        ),
        "data.as_frame": Call(data.as_frame, {"table": table}, ("table",)),
        "data.as_matrix": Call(data.as_matrix, {"X": x}, ("X",)),
        "data.check_table": Call(data.check_table, {"table": table, "schema": schema}, ("table",)),
        "data.check_types": Call(data.check_types, {"X": x}, ("X",)),
        "data.encode": Call(data.encode, {"table": table, "schema": schema}, ("table",)),
        "data.encode_target": Call(data.encode_target, {"table": table, "schema": schema}, ("table",)),
        "data.encoded_bounds": Call(
            data.encoded_bounds, {"schema": schema, "drop_first": True}, ("drop_first",), ("drop_first",)
        ),
        "data.scan": Call(
            data.scan,
            {"source": x, "memory": 2**20, "names": None, "format": None},
            ("source", "memory", "names", "format"),
        ),
        "data.read_structure": Call(read_structure, {"source": None, "format": "csv"}, ("source", "format")),
        "data.read_table": Call(
            read_table, {"source": None, "format": "csv", "columns": None}, ("source", "format", "columns")
        ),
        "data.render_findings": Call(data.render_findings, {"findings": data.check_table(table, schema)}, ()),
        "estimators.store.load": Call(store.load, {"folder": place}, ("folder",)),
        "estimators.store.save": Call(
            store.save, {"estimator": fitted, "folder": place / "run"}, ("estimator", "folder")
        ),
        "report.plots.plot_coverage": Call(plots.plot_coverage, {"found": found}, ()),
        "report.plots.plot_forest": Call(
            plots.plot_forest, {"estimator": fitted, "level": 0.9, "names": None}, ("level", "names")
        ),
        "report.plots.plot_pit": Call(plots.plot_pit, {"found": found, "bins": 5}, ("bins",), ("bins",)),
        "report.plots.plot_plan": Call(
            plots.plot_plan, {"planned": dpsep.plan("linear", 5000, 5, epsilon=1.0)}, ()
        ),
        "report.plots.plot_posterior": Call(
            plots.plot_posterior, {"estimator": fitted, "names": None}, ("names",)
        ),
        "report.plots.plot_predictive": Call(
            plots.plot_predictive,
            drawn | {"feature": 0, "level": 0.9, "public": True, "draws": 5},
            ("X", "y", "feature", "level", "draws"),
            ("draws",),
        ),
        "report.plots.plot_reliability": Call(plots.plot_reliability, {"found": found}, ()),
        "privacy.accounting.Mechanism": Call(
            mechanism_cost,
            run | {"sampling": sampling.FullBatch(), "sigma": 1.0, "delta": 1e-5},
            ("relation", "steps", "records", "sigma", "delta"),
        ),
        "privacy.accounting.Schedule": Call(mechanism.Schedule, {"parts": (part,)}, ()),
        "privacy.accounting.calibrate": Call(
            accounting.calibrate, target | run | {"sampling": sampling.FullBatch()}, (*numbers, *run)
        ),
        "privacy.accounting.calibrate_schedule": Call(
            accounting.calibrate_schedule, target | {"parts": (part,)}, numbers
        ),
        "privacy.accounting.compose": Call(
            accounting.compose, {"mechanisms": (part,), "delta": 1e-5}, ("delta",)
        ),
        "privacy.accounting.gaussian_delta": Call(
            accounting.gaussian_delta, {"epsilon": 1.0, "mu": 1.0}, ("epsilon", "mu")
        ),
        "privacy.accounting.gaussian_epsilon": Call(
            accounting.gaussian_epsilon, {"mu": 1.0, "delta": 1e-5}, ("mu", "delta")
        ),
        "privacy.accounting.gaussian_event": Call(
            accounting.gaussian_event,
            {"sigma": 1.0, "relation": "zero-out", "calculus": "rdp"},
            ("sigma", "relation", "calculus"),
        ),
        "privacy.accounting.gaussian_mu": Call(
            accounting.gaussian_mu, {"epsilon": 1.0, "delta": 1e-5}, ("epsilon", "delta")
        ),
        "privacy.accounting.rdp_to_delta": Call(
            accounting.rdp_to_delta, {"curve": curve, "epsilon": 1.0}, ("curve", "epsilon")
        ),
        "privacy.accounting.rdp_to_epsilon": Call(
            accounting.rdp_to_epsilon, {"curve": curve, "delta": 1e-5}, ("curve", "delta")
        ),
        "privacy.checkpoint.Checkpoint": Call(checkpoint.Checkpoint, {"folder": place}, ("folder",)),
        "privacy.checkpoint.Checkpoint.save": Call(
            keeper.save, {"step": 1, "arrays": {"a": x}, "meta": {"run": "r"}}, ("step", "arrays", "meta")
        ),
        "privacy.checkpoint.atomic_write": Call(
            checkpoint.atomic_write,
            {"path": place / "file", "content": "x"},
            ("path", "content"),
            ("content",),
        ),
        "privacy.checkpoint.durable_names": Call(durable, {"folder": place}, ("folder",)),
        "privacy.checkpoint.fsync_folder": Call(checkpoint.fsync_folder, {"folder": place}, ("folder",)),
        "privacy.checkpoint.make_folder": Call(checkpoint.make_folder, {"folder": place}, ("folder",)),
        "privacy.ledger.as_ledger": Call(ledger.as_ledger, {"target": None}, ("target",)),
        "privacy.noise.SecureStream": Call(noise.SecureStream, {}, ()),
        "privacy.noise.SeededStream": Call(noise.SeededStream, {"seed": 1}, ("seed",)),
        "privacy.noise.float_gaussian": Call(
            noise.float_gaussian, {"stream": stream, "sd": 1.0, "size": 3}, ("sd", "size"), ("size",)
        ),
        "privacy.noise.rounded_gaussian": Call(
            noise.rounded_gaussian, {"stream": stream, "sd": 1.0, "size": 3}, ("sd", "size"), ("size",)
        ),
        "privacy.sampling.FixedSizeSampling": Call(fixed, {"size": 3, "n_records": 9}, ("size", "n_records")),
        "privacy.sampling.FullBatch": Call(sampling.FullBatch, {}, ()),
        "privacy.sampling.PoissonSampling": Call(
            poisson, {"rate": 0.5, "n_records": 9}, ("rate", "n_records")
        ),
        "privacy.sampling.ShuffledEpochs": Call(shuffled, {"size": 3, "n_records": 9}, ("size", "n_records")),
        "privacy.gaps.gaps": Call(
            gaps.gaps, {"stream": stream, "rate": 0.01, "count": 5}, ("rate", "count"), ("count",)
        ),
        "privacy.sampling.permutation": Call(
            sampling.permutation, {"stream": stream, "n": 5}, ("n",), ("n",)
        ),
        "privacy.sampling.uniform_integers": Call(
            sampling.uniform_integers,
            {"stream": stream, "bound": 5, "count": 4},
            ("bound", "count"),
            ("count",),
        ),
    }
