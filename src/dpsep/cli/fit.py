"""``dpsep fit``: a table in, a run's folder out.

**Privacy.** The estimator charges and reads (`dpsep.estimators.run`); around it this file keeps to public
structure. What it prints and stores is the released posterior, its privacy statement and declared structure.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dpsep
from dpsep.cli.errors import CallError
from dpsep.cli.fitted import plain_words, report
from dpsep.cli.folder import RunFolder
from dpsep.cli.large import parse_size
from dpsep.cli.ledger import open_ledger
from dpsep.cli.metrics import (
    Metrics,
    check_room,
    hold_out,
    lost_metrics,
    private_metrics,
    public_metrics,
    read_public,
)
from dpsep.cli.screen import print_json, progress, remark, warn
from dpsep.cli.spending import Spending
from dpsep.cli.table import Inputs, Leaks, read_inputs
from dpsep.cli.units import check_ledger, parse_slopes
from dpsep.estimators.private import UnusableRowsWarning
from dpsep.estimators.store import save
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError, WriteError
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.ledger import Ledger, OverBudget
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.shown import down, up
from dpsep.registry import named
from dpsep.theory.glm_defaults import WeakBudgetWarning

__all__ = ["Request", "run"]


@dataclass(frozen=True)
class Request:
    """The options of one call."""

    table: str
    out: Path
    target: str | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    model: str = "auto"
    components: int | None = None
    covariance: str | None = None
    hidden: str | None = None
    format: str | None = None
    schema: Path | None = None
    bounds: tuple[str, ...] = ()
    classes: str | None = None
    drop: tuple[str, ...] = ()
    ledger: str | None = None
    wait: float = 30.0
    relation: Relation = "zero-out"
    unit: str | None = None
    slopes: str | None = None
    public_test: str | None = None
    metrics_epsilon: float | None = None
    holdout: float | None = None
    memory: str | None = None
    private: bool = True
    resume: bool = False
    overwrite: bool = False
    strict: bool = False
    as_json: bool = False


def run(request: Request) -> None:
    """Fit, store and report."""
    _check_options(request)
    folder = RunFolder(request.out)
    with folder.work(resume=request.resume, overwrite=request.overwrite) as needed:
        if not needed:
            remark(f"{request.out} is finished already; nothing to resume.", always=True)
            if request.as_json:
                print_json({"run": str(request.out), "resumed": False, "finished": True})
            return
        ledger = None if request.ledger is None else open_ledger(request.ledger, request.wait)
        room = None if ledger is None or folder.begun else partial(_check_look, request, ledger)
        leaks = Leaks(request.private, request.strict, room=room)
        with progress("opening the table", hidden=request.as_json):
            inputs = _inputs(request, leaks)
        for message in leaks.warnings:
            warn(message)
        _remarks(request, inputs)
        check_ledger(ledger, inputs.unit or "record")
        inputs, test = _test_rows(request, inputs, ledger, begun=folder.begun)
        estimator = _estimator(request, inputs, folder, ledger)
        _fit(estimator, inputs, request, folder, leaks)
        metrics = _metrics(request, estimator, test, ledger, folder)
        _store(estimator, inputs, folder, request, metrics)
    report(estimator, inputs, request, leaks, metrics)


def _check_look(request: Request, ledger: Ledger) -> None:
    """Refuse a look at the table, which comes before the charge, where that charge might not fit."""
    left, asked = ledger.remaining(), request.epsilon or 0.0
    if ledger.rule == "sum" and left.epsilon >= asked and left.delta >= request.delta:
        return
    why = (
        f"a fit with epsilon {up(asked)} and delta {up(request.delta)} does not fit into what {ledger.path} "
        f"has left, epsilon {down(left.epsilon)} and delta {down(left.delta)}"
    )
    if ledger.rule != "sum":
        why = (
            f"by the rule of {ledger.path}, {ledger.rule!r}, only the charge itself tells whether a fit fits"
        )
    raise CallError(
        f"{why}; and without a schema the table would have to be looked at before the charge. Ask for less, "
        "or declare columns and classes (--schema FILE). No record was read."
    )


def _check_options(request: Request) -> None:
    if request.hidden is not None:
        if not request.model.startswith("network"):
            raise CallError(f"--hidden is for --model network, not {request.model}; leave it out.")
        _hidden(request.hidden)
    _check_metrics(request)
    if request.memory is not None:
        parse_size(request.memory)
    if request.private and request.epsilon is None:
        raise CallError(
            "give a privacy budget, such as --epsilon 1, or --no-private for a fit without privacy."
        )
    if not request.private and request.ledger is not None:
        raise CallError("--no-private spends no budget, so there is nothing to charge; leave --ledger out.")
    if request.model == "mixture":
        if request.components is None:
            raise CallError("--model mixture needs a number of clusters; give --components, such as 3.")
        return
    for option, value in (("--components", request.components), ("--covariance", request.covariance)):
        if value is not None:
            raise CallError(f"{option} is for --model mixture, not {request.model}; leave it out.")


def _check_metrics(request: Request) -> None:
    if request.metrics_epsilon is None:
        if request.holdout is not None:
            raise CallError("--holdout is for --metrics-epsilon, the budget of metrics; give both or none.")
        return
    if request.memory is not None:
        raise CallError(
            "--metrics-epsilon holds rows out, which needs the whole table; leave --memory out, or name rows "
            "to test on with --public-test."
        )
    if not request.private:
        raise CallError("--metrics-epsilon is for private fits; name rows to test on with --public-test.")
    if request.public_test is not None:
        raise CallError("--public-test and --metrics-epsilon are two ways to the same metrics; choose one.")


def _test_rows(
    request: Request, inputs: Inputs, ledger: Ledger | None, *, begun: bool
) -> tuple[Inputs, Inputs | None]:
    """Return the rows to fit, and those that metrics are to be computed on."""
    if request.public_test is not None:
        return inputs, read_public(request.public_test, inputs)
    if request.metrics_epsilon is None:
        return inputs, None
    if inputs.unit is not None:
        raise CallError(
            f"--metrics-epsilon holds out single rows, and rows of one {inputs.schema.unit!r} belong "
            "together: whole units would have to be held out. Name rows to test on with --public-test."
        )
    if not begun:
        check_room(ledger, request.epsilon or 0.0, request.metrics_epsilon, request.delta)
    return hold_out(inputs, 0.2 if request.holdout is None else request.holdout)


def _metrics(
    request: Request, estimator: Any, test: Inputs | None, ledger: Ledger | None, folder: RunFolder
) -> Metrics | None:
    if test is None:
        return None
    checkpoint = Checkpoint(folder.metrics)
    with progress("scoring", hidden=request.as_json), _kept_in(folder):
        if request.metrics_epsilon is None:
            return public_metrics(estimator, test)
        budget = (request.metrics_epsilon, request.delta, request.relation, ledger)
        try:
            return private_metrics(estimator, test, *budget, checkpoint)
        except OverBudget as error:  # another process has spent what was there when the fit began
            warn(f"no metrics: {error}")
            return None if ledger is None else lost_metrics(ledger, checkpoint)


@contextmanager
def _kept_in(folder: RunFolder) -> Iterator[None]:
    """Say of a run that stops where its releases are kept, and how it goes on."""
    try:
        yield
    except CheckpointError as error:
        raise CallError(
            f"{str(error).rstrip('.')}. (The checkpoint is in {folder.partial}; --overwrite discards it "
            "and starts a new run, which is charged anew.)"
        ) from error
    except KeyboardInterrupt:
        if folder.begun:
            remark(
                f"Stopped. {folder.partial} holds what was released; --resume goes on from there.",
                always=True,
            )
        raise


def _hidden(text: str) -> tuple[int, ...]:
    """Units of each hidden layer; 0 stands for none."""
    try:
        layers = tuple(int(part) for part in text.split(","))
    except ValueError:
        layers = (-1,)
    if layers == (0,):
        return ()
    if min(layers) < 1:
        raise CallError(
            f"--hidden {text} names no layers; give the units of each, such as 20 or 20,10, or 0 for none."
        )
    return layers


def _inputs(request: Request, leaks: Leaks) -> Inputs:
    return read_inputs(
        request.table,
        leaks,
        target=request.target,
        model=request.model,
        schema=request.schema,
        bounds=request.bounds,
        classes=request.classes,
        drop=request.drop,
        format=request.format,
        unit=request.unit,
        memory=None if request.memory is None else parse_size(request.memory),
    )


def _remarks(request: Request, inputs: Inputs) -> None:
    if inputs.left_out is not None:
        remark(
            f"The schema's target {inputs.left_out!r} is left out: a mixture predicts nothing. To cluster it "
            "with the others, use a schema without a target.",
        )
    if not request.private:
        remark("Without privacy: the result may give away single records.")
        return
    if request.ledger is None:
        remark(
            "No --ledger: nothing adds this fit to others of the same data; that is left to you.",
        )
    if inputs.unbounded:
        shown = ", ".join(inputs.unbounded[:6]) + (", ..." if len(inputs.unbounded) > 6 else "")
        remark(
            f"No bounds for {shown}: location and scale are found privately, inside epsilon. Declared bounds "
            "(--bounds COLUMN=LOW:HIGH, or a schema) would leave more of it for the fit.",
        )


def _estimator(request: Request, inputs: Inputs, folder: RunFolder, ledger: Ledger | None) -> Any:
    settings: dict[str, Any] = {"private": request.private, "bounds": inputs.bounds, "strict": request.strict}
    entry = named(inputs.model)
    if entry.has_target_bounds:
        settings["target_bounds"] = inputs.target_bounds
    if inputs.model == "mixture":
        settings |= {"n_components": request.components, "covariance_type": request.covariance or "diag"}
    if request.hidden is not None:
        settings["hidden"] = _hidden(request.hidden)
    if inputs.classes is not None:
        settings["classes"] = inputs.classes
    mixed = entry.mixed if inputs.unit is not None else ""
    slopes = parse_slopes(request.slopes, inputs.unit if mixed else None, inputs.columns)
    if inputs.unit is not None:
        settings |= {"groups": inputs.schema.groups, "unit": inputs.unit}
        settings["rows_per_group"] = inputs.schema.rows_per_unit
    if mixed:
        settings |= {"family": inputs.model, "slopes": slopes}
    if request.private:
        settings |= {
            "epsilon": request.epsilon,
            "delta": request.delta,
            "relation": request.relation,
            "ledger": ledger,
            "checkpoint": folder.checkpoint,
        }
    return getattr(dpsep, mixed or entry.kind)(**settings)


def _fit(estimator: Any, inputs: Inputs, request: Request, folder: RunFolder, leaks: Leaks) -> None:
    """Fit, and show the estimator's own warnings of leaks and of a weak budget as they are."""
    by_group = {} if inputs.unit is None else {"groups": inputs.groups}
    before = warnings.showwarning

    def told(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PrivacyLeakWarning):
            leaks.found.append(str(message).rstrip("."))
        if issubclass(category, PrivacyLeakWarning | WeakBudgetWarning | UnusableRowsWarning):
            leaks.warnings.append(str(message))
            warn(str(message))
        else:
            before(message, category, *rest, **more)

    with warnings.catch_warnings():
        for category in (PrivacyLeakWarning, WeakBudgetWarning, UnusableRowsWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = told  # at once: a weak budget is told before it is charged
        spending = Spending()
        bar = progress("fitting", hidden=request.as_json, note=spending.words)
        with _kept_in(folder), bar as spending.report:
            estimator.fit(inputs.features, inputs.target, on_step=spending, **by_group)
    if estimator.privacy_ is not None:
        estimator.privacy_ = replace(estimator.privacy_, leaks=tuple(leaks.found))


def _store(
    estimator: Any, inputs: Inputs, folder: RunFolder, request: Request, metrics: Metrics | None
) -> None:
    extra = {
        "privacy.txt": plain_words(estimator, inputs, metrics),
        "schema.toml": inputs.schema.to_toml(),
        "summary.csv": estimator.summary().to_csv(),
    }
    if metrics is not None:
        extra["metrics.json"] = json.dumps(metrics.document, indent=1) + "\n"
    charged = None if metrics is None else metrics.privacy
    try:
        folder.finish(lambda place: save(estimator, place, extra, charged and {"metrics": charged}))
    except OSError as error:
        kept = ""
        if folder.begun:
            kept = (
                f" The fit itself is done and paid for: what it released is in {folder.partial}. Make room "
                "and run the same command with --resume; nothing more is charged."
            )
        reason = error.strerror or type(error).__name__
        raise WriteError(error.errno, f"{request.out} was not written: {reason}.{kept}") from error
