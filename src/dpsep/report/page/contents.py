"""What a run's folder says, and a ledger and an audit if asked for: a value each, or why there is none.

Nothing here trusts the folder: every part is read apart from the others, and one that is not as a fit writes
it is `Absent`. Values are unpacked by the closed lists of `dpsep.estimators.json_values`; no code is run.
"""

import csv
import io
import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsep.data import Schema, SchemaError
from dpsep.estimators import store
from dpsep.estimators.json_values import unpack
from dpsep.privacy.ledger import Ledger, LedgerError, store_at
from dpsep.report.page.files import Absent, File, read_folder, read_json, read_plain

__all__ = [
    "KIND_WORDS",
    "Run",
    "Value",
    "kind_of",
    "learned",
    "parameters",
    "read_audit",
    "read_ledger",
    "read_run",
]

MOST_ROWS = 200_000
"""Rows of a summary that are read."""
LONGEST_NAME = 300
"""Characters of a name that are kept."""
_FILES = ("posterior.json", "privacy.json", "schema.toml", "summary.csv", "metrics.json")
_NUMBERS = ("mean", "sd", "low", "high", "noise_share", "width_without_noise", "size", "width", "weights")

KIND_WORDS = {name: kind.words.report for name, kind in store.KINDS.items()}
"""Kinds of estimators in plain words."""

Value = dict[str, Any]


class Run(NamedTuple):
    """A run as its folder tells it.

    Attributes
    ----------
    name
        The folder's name.
    files
        How each file stands to the manifest.
    trouble
        Why the folder cannot be trusted; empty where it is whole.
    posterior, privacy, metrics
        The JSON documents, or why they are not there.
    rows
        The summary's rows.
    schema
        The declared structure.
    doubt
        What is to be said of the rows: that summary.csv is not the posterior's, or could not be compared with
        it; empty where it was and is.
    """

    name: str
    files: tuple[File, ...]
    trouble: tuple[str, ...]
    posterior: Value | Absent
    privacy: Value | Absent
    metrics: Value | Absent
    rows: list[Value] | Absent
    schema: Schema | Absent
    doubt: str = ""


def read_run(folder: Path) -> Run:
    """Read a folder; whatever is wrong with it is in the result."""
    found = read_folder(folder, _FILES)
    contents = found.contents
    posterior = _document(contents["posterior.json"], "posterior.json")
    rows, doubt = _rows(contents["summary.csv"], posterior)
    return Run(
        name=folder.resolve().name or "run",
        files=found.files,
        trouble=found.trouble,
        posterior=posterior,
        privacy=_document(contents["privacy.json"], "privacy.json"),
        metrics=_document(contents["metrics.json"], "metrics.json"),
        rows=rows,
        schema=_schema(contents["schema.toml"]),
        doubt=doubt,
    )


def kind_of(run: Run) -> str | None:
    """Return the name of the estimator's class, if it is one of ours."""
    if isinstance(run.posterior, Absent):
        return None
    kind = run.posterior.get("estimator")
    return kind if isinstance(kind, str) and kind in KIND_WORDS else None


def parameters(run: Run) -> Value:
    """Return the estimator's parameters, unpacked; those that cannot be are left out."""
    return _unpacked(run, "parameters")


def learned(run: Run, name: str) -> Any:
    """Return something that was learned, unpacked; None where it is not there or not readable."""
    return _unpacked(run, "learned", name).get(name)


def _unpacked(run: Run, part: str, only: str | None = None) -> Value:
    if isinstance(run.posterior, Absent):
        return {}
    stored = run.posterior.get(part)
    if not isinstance(stored, dict):
        return {}
    found = {}
    for name, value in stored.items():
        if only is not None and name != only:
            continue
        try:
            found[name[:LONGEST_NAME]] = unpack(value)
        except Exception:  # whatever a stranger's text does to a converter
            continue
    return found


def _document(content: bytes | Absent, name: str) -> Value | Absent:
    document = read_json(content, name)
    if isinstance(document, dict | Absent):
        return document
    return Absent(f"{name} holds no table of values.")


def _schema(content: bytes | Absent) -> Schema | Absent:
    if isinstance(content, Absent):
        return content
    try:
        return Schema.from_toml(content.decode("utf-8"))
    except (SchemaError, UnicodeDecodeError, TypeError, ValueError, RecursionError):
        return Absent("schema.toml is no schema that can be read.")


def _rows(content: bytes | Absent, posterior: Value | Absent) -> tuple[list[Value] | Absent, str]:
    """Return rows to show, and what is to be said of them.

    The posterior is what a statement is about, so that its own rows count where summary.csv has others.
    """
    own = _own_rows(posterior)
    if isinstance(content, Absent):
        if isinstance(posterior, Absent) or "not match" in content.why:
            return content, ""
        return own, ""
    try:
        lines = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
        rows = [_row(line) for _, line in zip(range(MOST_ROWS), lines, strict=False)]
    except (csv.Error, UnicodeDecodeError, ValueError):
        rows = []
    if isinstance(own, Absent):
        doubt = "summary.csv could not be compared with the posterior: it is shown as it is."
        return (rows, doubt) if rows else (Absent("summary.csv holds no rows that can be read."), "")
    if len(rows) == len(own) and all(map(_is_same, rows, own)):
        return rows, ""
    return own, "summary.csv is not the summary of the posterior in this folder: the posterior's is shown."


def _own_rows(posterior: Value | Absent) -> list[Value] | Absent:
    """Return the summary that the stored estimator itself gives."""
    if isinstance(posterior, Absent):
        return posterior
    try:
        kind = store.KINDS[posterior["estimator"]]
        given = {name: unpack(value) for name, value in posterior["parameters"].items()}
        estimator: Any = kind(**{name: given[name] for name in given.keys() - {*store.LEFT_OUT}})
        for name, value in posterior["learned"].items():
            if store.is_learned(name):
                setattr(estimator, name, unpack(value))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if (
                kind is store.GaussianMixture
            ):  # by as many names as there are columns, whatever is said of them
                count = np.shape(estimator.posterior_.means)[1]
                names = getattr(estimator, "feature_names_in_", [f"x{place}" for place in range(count)])
                found = estimator.posterior_.summary(0.9, [str(name) for name in names])
            else:
                found = estimator.summary()
        return [_row(row) for row in found] or Absent("The posterior has nothing to summarise.")
    except Exception:  # whatever a stranger's text does to a converter
        return Absent("The posterior cannot be summarised: it is not as a fit writes it.")


def _is_same(shown: Value, own: Value) -> bool:
    """Whether a row of summary.csv is the posterior's, but for what machines differ in."""
    if shown.keys() != own.keys():
        return False
    near = 1e-6 * abs(own.get("sd", 0.0))
    return all(
        math.isclose(shown[key], own[key], rel_tol=1e-6, abs_tol=near)
        or (math.isnan(shown[key]) and math.isnan(own[key]))
        if key in _NUMBERS
        else shown[key] == own[key]
        for key in own
    )


def _row(line: Value) -> Value:
    """Numbers as numbers, NaN where they are none; all else as text of bounded length."""
    row: Value = {}
    for key, cell in line.items():
        if key in _NUMBERS:
            row[key] = _number(cell)
        elif isinstance(key, str) and isinstance(cell, str | int):
            row[key] = str(cell)[:LONGEST_NAME]
    return row


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def read_ledger(ledger: Any) -> Value | Absent:
    """Return a ledger's terms, sums and rows after its chain was checked; nothing is written to it."""
    try:
        if not isinstance(ledger, Ledger):
            if not store_at(ledger).exists(30.0):
                return Absent("There is no ledger at the place that was named.")
            ledger = Ledger(ledger, create=False)
        rows = ledger.rows()
        return {
            "id": ledger.id,
            "epsilon": ledger.epsilon,
            "delta": ledger.delta,
            "relation": ledger.relation,
            "unit": ledger.unit,
            "rule": ledger.rule,
            "spent": ledger.spent()._asdict(),
            "left": ledger.remaining()._asdict(),
            "count": ledger.verify(),
            "rows": [row._asdict() | {"purpose": row.event.get("purpose", "")} for row in rows],
        }
    except (LedgerError, OSError) as error:
        return Absent(f"It cannot be used ({type(error).__name__}); 'dpsep ledger verify' says more.")


def read_audit(path: Path) -> list[Value] | Absent:
    """Return an audit's rows."""
    rows = read_json(read_plain(path), "The audit's file")
    if isinstance(rows, Absent):
        return rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return Absent("The file holds no list of rows, as 'dpsep audit --json' writes it.")
    return rows
