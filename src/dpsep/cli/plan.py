"""``dpsep plan``: what a private fit will do and what it is expected to cost, before any record is read.

The answer is `dpsep.plan`'s. A schema's file stands in for the shape of the table: how many columns it has
once they are encoded, which of them are indicators of categories, and whether bounds are declared.

**Privacy.** Numbers that the caller states and declared structure. No table is read, so nothing that is
printed can depend on one.
"""

import math
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsep.cli.errors import CallError
from dpsep.cli.screen import number, print_table, progress, remark, say, write_json
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.shown import up
from dpsep.registry import named, names

if TYPE_CHECKING:
    from dpsep.theory.forecast import Forecast
    from dpsep.theory.planner import Planned

__all__ = ["Question", "Shape", "run", "shape_of"]

SAID = {
    "nearly free": "Privacy is nearly free here",
    "good": "This will do",
    "costly": "This will work, at a price",
    "weak": "This is on the edge of what can be relied on",
    "impossible": "This cannot be done as asked",
    "not forecast": "What this will cost cannot be said beforehand",
}
"""Verdicts in words."""


@dataclass(frozen=True)
class Question:
    """The options of one call; what is None was left out."""

    model: str = "auto"
    records: int | None = None
    features: int | None = None
    schema: Path | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    relation: Relation = "zero-out"
    widening: float | None = None
    excess_risk: float | None = None
    components: int | None = None
    levels: str | None = None
    private_scaling: bool = False
    sampling: float | None = None
    hidden: str | None = None
    json_path: Path | None = None
    plot: Path | None = None


@dataclass(frozen=True)
class Shape:
    """What the planner asks of a table.

    Attributes
    ----------
    model
        What is to be fitted.
    features
        Columns of the design, without the intercept.
    levels
        Indicator columns of each category among them.
    declared
        Whether every bound that a fit needs is declared.
    """

    model: Any
    features: int
    levels: tuple[int, ...]
    declared: bool


def run(question: Question) -> None:
    """Answer, and write the answer to the files that are named."""
    from dpsep.privacy.checkpoint import atomic_write
    from dpsep.theory.planner import plan

    shape = _shape(question)
    with progress("planning"):
        planned = plan(
            shape.model,
            question.records,
            shape.features,
            epsilon=question.epsilon,
            delta=question.delta,
            relation=question.relation,
            widening=question.widening,
            excess_risk=question.excess_risk,
            components=question.components,
            levels=shape.levels,
            declared=shape.declared,
            sampling=question.sampling,
            hidden=None if question.hidden is None else _counts("--hidden", question.hidden, none=True),
        )
    # A picture that cannot be drawn is a wrong call, and a wrong call prints nothing else.
    picture = None if question.plot is None else _picture(planned)
    _show(planned)
    if question.json_path is not None:
        write_json(planned.to_dict(), question.json_path)
    if question.plot is not None and picture is not None:
        atomic_write(question.plot, picture)
        remark(f"Wrote {question.plot}.")


def shape_of(path: Path, model: str = "auto") -> Shape:
    """Read the shape of a table off its schema.

    Parameters
    ----------
    path
        A schema's TOML file, as `dpsep schema` drafts it.
    model
        What is to be fitted; ``"auto"`` is logistic for a target of two classes, linear for a number.
    """
    import numpy as np

    from dpsep.data import Schema, encoded_bounds

    schema = Schema.read(path)
    if model != "mixture":
        model = _model_of(schema, model, path)
    elif any(column.kind == "category" for column in schema.features):
        raise CallError(f"a mixture is of numbers, and {path} declares categories; take them out.")
    if schema.unit is not None and named(model).is_regression:
        raise CallError(
            f"{path} declares the unit {schema.unit!r}, which makes the fit a mixed model; those cannot be "
            "planned. Take 'unit' out to plan a fit that protects single rows."
        )
    bounds = np.array(encoded_bounds(schema))
    if not bounds.size:
        raise CallError(f"{path} declares no column besides its target; there is nothing to fit.")
    declared = bool(np.isfinite(bounds).all())
    if named(model).has_target_bounds:
        declared = declared and schema[str(schema.target)].bounds is not None
    # A category of two values is one column of zeros and ones: it has no rare level to plan for.
    indicators = [len(column.levels) - 1 for column in schema.features if column.kind == "category"]
    levels = tuple(count for count in indicators if count > 1)
    return Shape(model, bounds.shape[1], levels if named(model).is_regression else (), declared)


def _model_of(schema: Any, model: str, path: Path) -> str:
    """Name the model of a schema's target."""
    if schema.target is None:
        raise CallError(f'{path} does not say what is predicted; add target = "COLUMN".')
    outcome = schema[schema.target]
    if outcome.kind == "number":
        return "linear" if model == "auto" else model
    if model != "auto" and model not in names("label"):
        raise CallError(
            f"the target {outcome.name!r} of {path} is a category, which --model {model} cannot predict; use "
            "logistic, probit or network-classifier."
        )
    if len(outcome.categories) != 2:
        raise CallError(
            f"the target {outcome.name!r} of {path} has {len(outcome.categories)} classes; a yes/no model "
            "has exactly two."
        )
    return "logistic" if model == "auto" else model


def _shape(question: Question) -> Shape:
    """Take the shape from the schema, or from the options that stand for one."""
    if question.schema is not None:
        given = (
            ("--features", question.features is not None),
            ("--levels", question.levels is not None),
            ("--private-scaling", question.private_scaling),
        )
        for option, wanted in given:
            if wanted:
                raise CallError(f"the schema says what {option} would say; leave one of them out.")
        return shape_of(question.schema, question.model)
    if question.model == "auto":
        raise CallError("nothing says what is to be fitted; give --model, or a schema with a target.")
    if question.features is None:
        raise CallError("nothing says how many columns there are; give --features, or a schema.")
    levels = () if question.levels is None else _counts("--levels", question.levels)
    return Shape(question.model, question.features, levels, not question.private_scaling)


def _counts(option: str, text: str, *, none: bool = False) -> tuple[int, ...]:
    """Take whole numbers with commas between them apart; 0 alone stands for none where that is allowed."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (0, 0)
    if none and found == (0,):
        return ()
    if min(found) < 1:
        allowed = "such as 20 or 20,10, or 0 for none" if none else "such as 7,16,2"
        raise CallError(
            f"{option} takes whole numbers above zero with commas between them, {allowed}, not {text!r}."
        )
    return found


def _show(planned: "Planned") -> None:
    _show_settings(planned)
    if planned.forecast is not None:
        _show_cost(planned, planned.forecast)
    _show_verdict(planned)
    if planned.curve:
        _show_curve(planned)
    if planned.verdict != "impossible":
        say(_python(planned))


def _show_settings(planned: "Planned") -> None:
    request, settings = planned.request, planned.settings
    epsilon = up(request.epsilon) + (" (found)" if planned.found == "epsilon" else "")
    records = f"{request.records:,}" + (" (found)" if planned.found == "records" else "")
    rows = [
        ("model", f"{request.model} ({planned.estimator})"),
        ("records", records),
        ("unknown numbers", f"{request.dimension:,}"),
        ("privacy", f"epsilon {epsilon}, delta {up(request.delta)}, {request.relation}"),
        (
            "columns are scaled by",
            "declared bounds" if request.declared else "ranges found with a tenth of the budget",
        ),
    ]
    if settings is not None:
        every = settings.sampling == 1.0
        rows += [
            ("releases", str(settings.steps)),
            ("records a release reads", "all" if every else f"{settings.sampling:.3%}, drawn by chance"),
            *_cut(planned.request.model, settings.clip),
            ("step size", settings.step_size),
            ("noise of a release", f"{number(settings.sigma)} times the clip"),
            ("accountant", settings.accountant),
        ]
        if request.is_network:
            rows.append(("hidden units", ", ".join(map(str, settings.hidden)) or "none"))
    print_table("What will be done", ("setting", "value"), rows)


def _cut(model: str, clip: float) -> list[tuple[str, str]]:
    entry = named(model)
    if not entry.is_regression:
        return [("clip", f"{number(clip)} times a typical record")]
    # Scores of labels have bounds of their own.
    return [] if entry.target == "label" else [("scores are cut at", f"{number(clip)} standard deviations")]


def _show_cost(planned: "Planned", forecast: "Forecast") -> None:
    request = planned.request
    anyway = request.dimension / (2.0 * request.records)
    rows = [
        ("width of intervals, over that without privacy", number(forecast.widening)),
        ("share of their variance that is noise of privacy", f"{forecast.noise_share:.1%}"),
        ("divergence from the posterior without privacy", f"{number(forecast.kl)} nats"),
        ("loss of log predictive density", f"{number(forecast.excess_risk)} nats a record"),
        ("that loss, over what finite data cost anyway", number(forecast.excess_risk / anyway)),
    ]
    if request.model == "linear":
        rows.insert(4, ("that loss, as growth of the RMSE", f"{_rmse(forecast.excess_risk):.3%}"))
    if request.model == "mixture":
        rows.append(("noise of a component's count, relative to it", number(forecast.hidden)))
    else:
        rows.append(("width of intervals, over the prior's", number(forecast.of_prior)))
    print_table("What it is expected to cost", ("cost", "expected"), rows)


def _show_verdict(planned: "Planned") -> None:
    say(f"{SAID[planned.verdict]} ({planned.verdict}).")
    for reason in planned.reasons:
        say(f"  Why: {_sentence(reason)}")
    for remedy in planned.remedies:
        say(f"  What would help: {_sentence(remedy)}")
    if planned.free_records is not None:
        say(
            f"From {planned.free_records:,} records on, privacy is nearly free at epsilon "
            f"{up(planned.request.epsilon)}: intervals at most 5% wider."
        )
    elif planned.forecast is not None:
        say(f"No number of records makes privacy nearly free at epsilon {up(planned.request.epsilon)}.")
    say()


def _show_curve(planned: "Planned") -> None:
    from dpsep.theory.forecast import HOPELESS

    def trust(one: "Forecast") -> str:
        return "prior" if one.of_prior > HOPELESS else "rough" if one.is_rough else ""

    print_table(
        "The same table at other budgets",
        ("epsilon", "width", "noise share", "loss, nats a record", ""),
        [
            (
                up(epsilon),
                number(one.widening),
                f"{one.noise_share:.0%}",
                number(one.excess_risk),
                trust(one),
            )
            for epsilon, one in planned.curve
        ],
    )


def _rmse(excess: float) -> float:
    """Growth of the RMSE of a Gaussian model that loses this many nats a record."""
    return math.sqrt(1.0 + 2.0 * excess) - 1.0


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _python(planned: "Planned") -> str:
    """Write the call that fits by this plan."""
    chosen = dict(planned.parameters)
    if chosen["relation"] == "zero-out":  # the estimators' default
        del chosen["relation"]
    parts = [f"{name}={_value(value)}" for name, value in chosen.items()]
    if planned.request.declared:
        parts.append("bounds=(low, high)")
        if named(planned.request.model).has_target_bounds:
            parts.append("target_bounds=(lowest, highest)")
    return f"dpsep.{planned.estimator}({', '.join(parts)})"


def _value(value: Any) -> str:
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else repr(value)


def _picture(planned: "Planned") -> bytes:
    from dpsep.report.planning import plot_plan

    buffer = BytesIO()
    plot_plan(planned).figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()
