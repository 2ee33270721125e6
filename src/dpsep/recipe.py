"""What a private fit is, to the one driver that runs every fit (`dpsep.fit`): a list of stages.

Metrics on held-out rows (`dpsep.cli.metrics`) and drafts of schemas (`dpsep.cli.ranges`) are recipes, too.

A stage is one part of the schedule that is charged, and what is made of its releases. It may use what earlier
stages released, and nothing else of the data. The stages that models share are made here and in
`dpsep.inference.moments`; a model's own are in the module that fits it.

**Privacy.** Everything in a recipe is public and fixed before anything is charged: the schedule, the stages'
order, the arrays that each reads, the settings that are hashed. Records reach a stage through gates alone.
The proof is in docs/proofs/index.md.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsep.families.columns import Columns
from dpsep.inference.gate_protocol import Opened
from dpsep.inference.release_trace import Path
from dpsep.privacy import scaling
from dpsep.privacy.mechanism import Schedule
from dpsep.privacy.record_sources import Records

Values = Mapping[str, Any]
"""What the stages before have made, by name."""


class Stage(NamedTuple):
    """One part of a schedule, and what is made of its releases.

    Attributes
    ----------
    name
        What it releases, in a word: for messages, statements and the log of releases.
    run
        Opens gates, and makes a public value of what they release. It is called anew when a run is resumed,
        and then gets the releases that were kept: it must be a function of releases and earlier values.
    rows
        The arrays that its gates read, of those of the table.
    releases
        How many it makes, where that does not follow from the schedule: then the schedule must have as many.
    own
        Without privacy: makes the value of the arrays themselves, where that is simpler than exact releases.
    """

    name: str
    run: Callable[[Opened, Values, Path], Any]
    rows: Callable[[Records], Records] = lambda arrays: arrays
    releases: int | None = None
    own: Callable[[Records, Values], Any] | None = None


class Recipe(NamedTuple):
    """A private fit before it is charged.

    Attributes
    ----------
    schedule, delta
        What is charged: one part a stage.
    stages
        In order; the value of the last is the result.
    shapes
        Of the table's arrays, which are public.
    settings
        Public settings, of JSON's types; a run is resumed by the same ones only.
    scaling
        Where the columns' scaling comes from, in words.
    unit
        Whose privacy is counted: what one row of the gates' arrays is.
    purpose
        What is charged for, as the ledger's row says it.
    doubt
        Where the budget is too small for a result that can be relied on: why, in words; from public numbers.
    """

    schedule: Schedule
    delta: float
    stages: tuple[Stage, ...]
    shapes: Sequence[tuple[int, ...]]
    settings: Any
    scaling: str = ""
    unit: str = "record"
    purpose: str = "fit"
    doubt: str = ""


SCALING = "scaling"
"""Name of the stage that finds bounds which nobody declared."""
DECLARED, FOUND = "declared bounds", "private histograms, inside epsilon"


def scaling_stage(
    columns: int,
    rows: Callable[[Records], Records],
    own: Callable[[Records], Columns] | None = None,
) -> Stage:
    """Return the stage that finds bounds of columns; its value is their map."""

    def run(opened: Opened, values: Values, path: Path) -> Columns:
        del values, path
        return scaling.estimate(columns, opened)

    of_data = None if own is None else lambda arrays, values: own(arrays)
    return Stage(SCALING, run, rows, scaling.RELEASES, of_data)


def plain(public: Any) -> Any:
    """Return public values in JSON's types: arrays as lists, objects of other types as their `repr`.

    Examples
    --------
    >>> plain({"clip": None, "parts": (1, 1j)})
    {'clip': None, 'parts': [1, '1j']}
    """
    if isinstance(public, dict):
        return {name: plain(part) for name, part in public.items()}
    if isinstance(public, Columns):  # in the order in which settings of runs under way were hashed
        public = (public.centre, public.scale, public.low, public.high)
    if isinstance(public, tuple | list):
        return [plain(part) for part in public]
    if isinstance(public, np.ndarray):
        return public.tolist()
    return public if public is None or isinstance(public, str | int | float) else repr(public)


def public_of(task: Any, **more: Any) -> dict[str, Any]:
    """Settings of a task: its two scalings, its other parts as their `repr`, and what is given besides."""
    scalings = (task.feature_scaling, task.outcome_scaling)
    rest = task._replace(feature_scaling=None, outcome_scaling=None)
    return plain({"scalings": scalings, "task": [repr(part) for part in rest], **more})


def source_of(stages: Sequence[Stage]) -> str:
    """Where the columns' scaling comes from, in words."""
    return FOUND if stages[0].name == SCALING else DECLARED
