"""The demonstration: doctor visits in the RAND Health Insurance Experiment, with privacy and without.

Two questions to one well-known survey (statsmodels' ``randhie``, 20,190 person-years): how many visits to a
doctor (Poisson regression), and whether there was any (logistic regression). Both are charged to one ledger.

**Privacy.** Each private fit is (epsilon, delta)-DP for a record under the zero-out relation; the ledger adds
the two. Bounds and classes are declared from the survey's documentation, so nothing of them is learned from
the table. A record is one *person-year*: a person who took part for five years has five records, and what is
guaranteed is a record's privacy. The non-private columns and their part of the picture are there to compare
with; such a comparison itself is not private, and is shown because this survey is public.
"""

import math
import os
import shutil
import tempfile
import textwrap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from dpsep.cli.errors import CallError
from dpsep.cli.screen import interval, print_json, print_table, progress, say
from dpsep.privacy.shown import up

__all__ = ["BOUNDS", "run"]

DELTA = 1e-5
BOUNDS = {
    "lncoins": (0.0, math.log(101.0)),
    "idp": (0.0, 1.0),
    "lpi": (0.0, 7.2),
    "fmde": (0.0, 8.3),
    "physlm": (0.0, 1.0),
    "disea": (0.0, 60.0),
    "hlthg": (0.0, 1.0),
    "hlthf": (0.0, 1.0),
    "hlthp": (0.0, 1.0),
}
"""Declared range of each column: what its definition in the survey's documentation allows."""
LABELS = {
    "intercept": "intercept",
    "lncoins": "coinsurance (log)",
    "idp": "deductible",
    "lpi": "incentive (log)",
    "fmde": "spending limit (log)",
    "physlm": "physical limitation",
    "disea": "chronic diseases",
    "hlthg": "health: good",
    "hlthf": "health: fair",
    "hlthp": "health: poor",
}
CHANGES = {
    "lncoins": "coinsurance, 0% to 100%",
    "idp": "individual deductible, yes",
    "lpi": "participation incentive, none to highest",
    "fmde": "spending limit, none to highest",
    "physlm": "physical limitation, yes",
    "disea": "chronic diseases, index + 10",
    "hlthg": "health good, not excellent",
    "hlthf": "health fair, not excellent",
    "hlthp": "health poor, not excellent",
}
"""What the picture shows the effect of."""


class Question(NamedTuple):
    """One thing asked of the survey."""

    name: str
    title: str
    model: str
    axis: str
    extra: dict[str, Any]


QUESTIONS = (
    Question(
        "visits",
        "Number of visits (Poisson)",
        "PoissonRegression",
        "change in log visits",
        {},
    ),
    Question(
        "any visit",
        "Any visit (logistic)",
        "LogisticRegression",
        "change in log odds",
        {"classes": [False, True]},
    ),
)


def run(out: Path, epsilon: float, *, as_json: bool = False, data: Any = None) -> None:
    """Fit both models with privacy and without, and write ``demo.png`` and ``study.db`` into a folder.

    Parameters
    ----------
    out
        The folder; made if it is missing. Files of an earlier demonstration are replaced.
    epsilon
        Of each of the two fits.
    as_json
        Print one JSON document instead of tables.
    data
        A frame in place of the survey.
    """
    if not 0 < epsilon < math.inf:
        raise CallError(f"epsilon must be a positive number, not {epsilon}.")
    frame = load() if data is None else data
    _need_matplotlib()
    from dpsep.privacy.ledger import Ledger

    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=out))
    try:
        ledger = Ledger.create(folder / "study.db", epsilon=2 * epsilon, delta=2 * DELTA)
        answers = [_answer(question, frame, epsilon, ledger) for question in QUESTIONS]
        _draw(answers, out / "demo.png", epsilon, len(frame))
        spent, left, rows = ledger.spent(), ledger.remaining(), ledger.verify()
        os.replace(folder / "study.db", out / "study.db")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print_json(
            {
                "data": "statsmodels randhie",
                "records": len(frame),
                "epsilon": epsilon,
                "delta": DELTA,
                "models": answers,
                "ledger": {
                    "path": str(out / "study.db"),
                    "spent": spent._asdict(),
                    "left": left._asdict(),
                    "rows": rows,
                },
                "picture": str(out / "demo.png"),
            }
        )
        return
    _print(answers, len(frame), epsilon)
    say(
        f"Ledger: {out / 'study.db'} holds both charges: epsilon {up(spent.epsilon)} of {up(2 * epsilon)} and"
    )
    say(f"delta {up(spent.delta)} of {up(2 * DELTA)} are spent. See: dpsep ledger show {out / 'study.db'}")
    say(f"Picture: {out / 'demo.png'}")


def load() -> Any:
    """Return the survey as a pandas frame."""
    try:
        from statsmodels.datasets import randhie
    except ImportError as error:
        raise ImportError("the demo needs statsmodels: pip install 'dpsep[demo]'.") from error
    return randhie.load_pandas().data


def _need_matplotlib() -> None:
    """Find out now, not after the fits."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise ImportError("the demo's picture needs matplotlib: pip install 'dpsep[demo]'.") from error


def _answer(question: Question, frame: Any, epsilon: float, ledger: Any) -> dict[str, Any]:
    import dpsep

    features = frame[list(BOUNDS)]
    target = frame["mdvis"] if question.name == "visits" else frame["mdvis"] > 0
    bounds = ([low for low, _ in BOUNDS.values()], [high for _, high in BOUNDS.values()])
    kind = getattr(dpsep, question.model)
    private = kind(epsilon=epsilon, delta=DELTA, bounds=bounds, ledger=ledger, **question.extra)
    with progress(f"{question.title}, private") as report:
        private.fit(features, target, on_step=report)
    plain = kind(private=False, bounds=bounds, **question.extra)
    with progress(f"{question.title}, not private"):
        plain.fit(features, target)
    return {
        "name": question.name,
        "model": question.model,
        "private": private.summary(),
        "not_private": plain.summary(),
        "privacy": private.privacy_.to_dict(),
        "sentence": private.privacy_.sentence(),
    }


def _draw(answers: Sequence[dict[str, Any]], path: Path, epsilon: float, records: int) -> None:
    from dpsep.report.forest import Panel, forest_plot

    panels = [
        Panel(
            question.title,
            question.axis,
            {
                f"private (ε = {up(epsilon)})": _changes(answer["private"]),
                "not private": _changes(answer["not_private"]),
            },
        )
        for question, answer in zip(QUESTIONS, answers, strict=True)
    ]
    forest_plot(
        panels,
        path,
        title="Doctor visits, RAND Health Insurance Experiment: with privacy and without",
        note=f"{records:,} person-years, 90% intervals; each private fit is ({up(epsilon)}, {up(DELTA)})-"
        "differentially private for a record",
        labels=CHANGES,
    )


def _changes(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Effects of the changes that `CHANGES` names, so that one axis serves all columns."""
    spans = {name: high for name, (_, high) in BOUNDS.items()} | {"disea": 10.0}
    return [
        {"name": row["name"]} | {key: row[key] * spans[row["name"]] for key in ("mean", "low", "high")}
        for row in rows
        if row["name"] in spans
    ]


def _print(answers: Sequence[dict[str, Any]], records: int, epsilon: float) -> None:
    say(f"Doctor visits in the RAND Health Insurance Experiment: {records:,} records, each one person-year.")
    say("Bounds and classes are declared from the survey's documentation; nothing of them is learned.")
    for question, answer in zip(QUESTIONS, answers, strict=True):
        rows = [
            (
                LABELS[private["name"]],
                interval(private),
                interval(plain),
                f"{private['noise_share']:.0%}",
            )
            for private, plain in zip(answer["private"], answer["not_private"], strict=True)
        ]
        header = ("90% intervals", f"private (epsilon {up(epsilon)}, zero-out)", "not private", "noise")
        print_table(question.title, header, rows)
        say(textwrap.fill(answer["sentence"], 100))
        say()
    say("Noise: the share of the private posterior's variance that privacy adds. Counts far above the")
    say("rest pull less than they do without privacy: where a model does not fit such counts, its answers")
    say("differ by that.")
    say("A person's years are separate records here: what is guaranteed is a record's privacy.")
    say()
