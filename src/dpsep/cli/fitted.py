"""How a finished fit is told: tables and plain words, or one JSON document.

**Privacy.** Released results, their statement and declared structure; nothing else is at hand here.
"""

import textwrap
from typing import Any

from dpsep.cli.metrics import Metrics
from dpsep.cli.screen import number, print_json, print_table, say
from dpsep.cli.table import Inputs, Leaks
from dpsep.registry import named

__all__ = ["plain_words", "report"]


def plain_words(estimator: Any, inputs: Inputs, metrics: Metrics | None) -> str:
    """Return what was guaranteed, in lines of text."""
    if estimator.privacy_ is None:
        text = "NOT PRIVATE. This result was computed without privacy and may give away single records."
    else:
        text = estimator.privacy_.sentence()
        if inputs.unit == "group":
            text = (
                f"{text.removesuffix('.')}. A group is all rows of one {inputs.schema.unit!r}; the first "
                f"{inputs.schema.rows_per_unit} rows of each were used."
            )
    if metrics is not None:
        text = f"{text.removesuffix('.')}. {metrics.sentence(estimator.privacy_)}"
    return textwrap.fill(text, 100) + "\n"


def report(estimator: Any, inputs: Inputs, request: Any, leaks: Leaks, metrics: Metrics | None) -> None:
    """Print a finished fit: tables and words, or one JSON document."""
    rows = estimator.summary()
    weights = estimator.weights_.tolist() if inputs.model == "mixture" else None
    if request.as_json:
        print_json(
            {
                "run": str(request.out),
                "model": inputs.model,
                **({} if inputs.unit is None else {"by": inputs.schema.unit}),
                "private": request.private,
                "privacy": None if estimator.privacy_ is None else estimator.privacy_.to_dict(),
                "summary": rows,
                **({} if weights is None else {"weights": weights}),
                **({} if metrics is None else {"metrics": metrics.document}),
                "warnings": leaks.warnings,
            }
        )
        return
    _print_tables(rows, weights, inputs, private=request.private)
    if rows.note:
        say(rows.note)
    if metrics is not None:
        print_table("Metrics", ("metric", "value", "noise sd"), metrics.rows())
    say(plain_words(estimator, inputs, metrics), end="")
    say(f"\nWrote {request.out}. Predict with it: dpsep predict {request.out} TABLE")
    say(f"Look at it: dpsep report {request.out}")


def _print_tables(
    rows: list[dict[str, Any]], weights: list[float] | None, inputs: Inputs, *, private: bool
) -> None:
    if inputs.model.startswith("network"):
        _print_layers(rows, inputs, private=private)
        return
    names = {"name": "coefficient"} if weights is None else {"component": "component", "column": "column"}
    header = (*names.values(), "mean", "sd", "90% interval", "DP noise")
    cells = [
        (
            *(str(row[name]) for name in names),
            number(row["mean"]),
            number(row["sd"]),
            f"[{number(row['low'])}, {number(row['high'])}]",
            f"{row['noise_share']:.0%}" if private else "-",
        )
        for row in rows
    ]
    if weights is None:
        by = "" if inputs.unit is None else f", with effects that vary by {inputs.schema.unit}"
        print_table(f"{named(inputs.model).kind} of {inputs.schema.target}{by}", header, cells)
    else:
        print_table("Means of the components", header, cells)
        shares = [(str(place), number(weight)) for place, weight in enumerate(weights)]
        print_table("Weights", ("component", "weight"), shares)


def _print_layers(rows: list[dict[str, Any]], inputs: Inputs, *, private: bool) -> None:
    cells = [
        (
            str(row["layer"]),
            str(row["weights"]),
            number(row["size"]),
            number(row["sd"]),
            f"{row['noise_share']:.0%}" if private else "-",
        )
        for row in rows
    ]
    header = ("layer", "weights", "root mean square", "sd", "DP noise")
    print_table(f"{named(inputs.model).kind} of {inputs.schema.target}", header, cells)
