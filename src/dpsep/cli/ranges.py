r"""Kinds and bounds of a table's columns for a draft, found privately.

Of a CSV file the first release counts, a column, the cells that are numbers: a column where they stand out is
one. Then each column's range is found by three histograms (`dpsep.privacy.scaling`), for itself, so that a
missing cell of one column does not silence its record in the others.

**Privacy.** *Relation:* the ledger's, or zero-out. *Sensitivity:* a record adds one count in each of c
columns to the first release, norm sqrt(c), and one count to each later one. *Event:* full batch, one release
with a tenth of the budget and three for each column with the rest, all charged at once and before a cell is
counted: a recipe with a stage for the kinds and one for each column (`dpsep.fit`). The range of a column that
turns out to be text is one of noise, and is dropped. *Public:* the names and number of columns, declared
types, and the number of records. The proof is in docs/proofs/schema-draft.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.cli.errors import CallError
from dpsep.cli.ledger import open_ledger, shown
from dpsep.cli.screen import progress, remark
from dpsep.cli.units import check_ledger
from dpsep.data import Column, Schema, encode
from dpsep.data.files import Source
from dpsep.data.frames import as_frame
from dpsep.data.later import open_later
from dpsep.data.table import settled_format
from dpsep.fit import fit_private
from dpsep.privacy import scaling
from dpsep.privacy.accounting import calibrate_schedule
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism, Relation
from dpsep.privacy.record_sources import Records
from dpsep.privacy.sampling import FullBatch
from dpsep.privacy.shown import up
from dpsep.recipe import Opened, Recipe, Stage, Values

__all__ = ["draft_recipe", "find_ranges"]

KINDS, CATEGORY = "kinds", {"kind": "category"}
Found = dict[str, dict[str, Any]]
"""What is known of each column, by its name: ``kind`` and, of a number, ``bounds``."""

KIND_SHARE = 0.1
"""Share of the budget for telling numbers from text."""
LEAST_SHARE = 0.1
"""A column is of numbers if at least this share of its cells are, and more than noise could make of none."""


@dataclass(frozen=True)
class _NumberCounts:
    """Of each cell whether it is a number."""

    bins: int = 2

    def __call__(self, public: object, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Return bin numbers, one row a record: 1 for a number."""
        del public
        return (jnp.isfinite(chunk[0]).astype(chunk[0].dtype),)


def find_ranges(
    source: Source,
    format: str | None,
    types: Mapping[str, Any],
    epsilon: float,
    delta: float,
    ledger_path: str | None,
    wait: float,
) -> tuple[str, Found]:
    """Charge, and find what columns are numbers and where they lie.

    Returns
    -------
    Comment lines for the draft's head, and what is known of each column.
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise CallError(
            f"--epsilon must be a positive number and --delta between 0 and 1, not {epsilon} and {delta}."
        )
    untyped = all(kind is None for kind in types.values())
    names = [name for name, kind in types.items() if kind is None or kind.is_numeric()]
    if not names:
        raise CallError(
            "the table has no column of numbers, so there are no bounds to find; leave --epsilon out."
        )
    ledger = None if ledger_path is None else open_ledger(ledger_path, wait)
    check_ledger(ledger, "record")
    if ledger is None:
        remark("No --ledger: nothing adds this draft to fits of the same data; that is left to you.")
    schema = Schema(tuple(Column(name, "number") for name in names))
    table = open_later(source, settled_format(source, format), schema)
    relation = "replace-one" if ledger is not None and ledger.relation == "replace-one" else "zero-out"

    def records() -> Records:
        frame = as_frame(table.read(slice(None), names))
        cells = np.empty((len(table), len(names)), order="F")
        # One column at a time, so that a record's missing cells silence it in their own columns only.
        for place, name in enumerate(names):
            cells[:, place] = encode(frame, Schema((Column(name, "number"),)))[0][:, 0]
        return (cells,)

    with progress("finding ranges") as report:
        recipe = draft_recipe(names, len(table), epsilon, delta, relation, untyped=untyped, report=report)
        found, spend = fit_private(recipe, records, ledger=ledger, checkpoint=None)
    spent = f"epsilon {up(spend.epsilon)}, delta {up(delta)}, {relation}"
    charged = "charged to no ledger"
    if ledger_path is not None:
        charged = f"charged to {shown(ledger_path)} as run {spend.permit.run[:12]}"
    remark(f"Found bounds privately ({spent}); {charged}.")
    head = f"# Kinds and bounds below were found privately ({spent};\n# {charged}); they may be published.\n"
    return head if untyped else head.replace("Kinds and bounds", "Bounds"), found


def draft_recipe(
    names: Sequence[str],
    records: int,
    epsilon: float,
    delta: float,
    relation: Relation,
    *,
    untyped: bool,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Recipe:
    """Return what finds the kinds of columns (of a file without types) and the range of each.

    Parameters
    ----------
    names
        Of the columns of the one array that it reads.
    records
        Rows of that array.
    report
        Told the number of columns that are found, and their total.
    """
    columns = len(names)
    share = KIND_SHARE if untyped else 0.0
    sigma = math.sqrt(columns * scaling.RELEASES / (1.0 - share))
    parts = [Mechanism(FullBatch(), relation, scaling.RELEASES, sigma, records)] * columns
    stages = [_range_stage(place, names, report) for place in range(columns)]
    if untyped:
        parts.insert(0, Mechanism(FullBatch(), relation, 1, 1.0 / math.sqrt(share), records))
        stages.insert(0, _kinds_stage(names))
    schedule = calibrate_schedule(epsilon, delta, parts)
    purpose = "draft of a schema"
    shapes = ((records, columns),)
    return Recipe(schedule, delta, tuple(stages), shapes, {"columns": list(names)}, purpose=purpose)


def _kinds_stage(names: Sequence[str]) -> Stage:
    """Return the stage that tells columns of numbers from text."""
    block = Block("counts", len(names), math.sqrt(len(names)), kind="count", bins=2)

    def run(opened: Opened, values: Values, path: object) -> Found:
        del values, path
        gate = opened([block], _NumberCounts())
        share = gate.release(None)["counts"][:, 1] / gate.records
        level = max(LEAST_SHARE, 4.0 * gate.deviations["counts"] / gate.records)
        return {name: CATEGORY for name, one in zip(names, share, strict=True) if one <= level}

    return Stage(KINDS, run, releases=1)


def _range_stage(place: int, names: Sequence[str], report: Callable[[int, int], None]) -> Stage:
    """Return the stage that finds the range of a column; its value is what is known of all columns so far."""

    def run(opened: Opened, values: Values, path: object) -> Found:
        del path
        known = values.get(KINDS if place == 0 else f"range {place}", {})
        ranges = scaling.estimate(1, opened)
        report(place + 1, len(names))
        if known.get(names[place]) == CATEGORY:
            return known
        bounds = [_outward(float(ranges.low[0]), -1), _outward(float(ranges.high[0]), 1)]
        return known | {names[place]: {"kind": "number", "bounds": bounds}}

    return Stage(f"range {place + 1}", run, lambda arrays: (arrays[0][:, place],), scaling.RELEASES)


def _outward(value: float, sign: int) -> float:
    """Round to three digits, away from the range's middle.

    Examples
    --------
    >>> _outward(-1.2341, -1), _outward(1234.1, 1), _outward(0.0, 1)
    (-1.24, 1240.0, 0.0)
    """
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return float(f"{math.ceil(sign * value / unit) * sign * unit:.3g}")
