"""Schedules as plain data: what a statement of privacy carries, and a strict reader of it.

**Privacy.** A description holds the public numbers that were charged for and nothing else. Read back, it may
be a stranger's: keys, types and sizes are all checked before anything is computed from them, so that no text
makes an accountant work for long, and an error repeats no text of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from dpsep.privacy.mechanism import Mechanism, Relation, Schedule
from dpsep.privacy.sampling import (
    MOST_RECORDS,
    FixedSizeSampling,
    FullBatch,
    PoissonSampling,
    Sampling,
    ShuffledEpochs,
)

MOST_PARTS = 8
"""Most parts of a schedule that is read from data; a fit has four at most."""
MOST_STEPS = 10**7
"""Most steps of a part that is read from data."""
SIGMAS = (1e-6, 1e15)
"""Noise over the clip, least and greatest, of a part that is read from data."""

_NAME = 64  # longest name of a part
_RATES = (2.0**-64, 1.0)
_FIELDS: dict[type[Sampling], tuple[str, ...]] = {
    FullBatch: (),
    PoissonSampling: ("rate",),
    FixedSizeSampling: ("size",),
    ShuffledEpochs: ("size",),
}
_KINDS = {kind.__name__: kind for kind in _FIELDS}


def description_of(schedule: Schedule, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a schedule as JSON-ready data, which `schedule_of` reads.

    Parameters
    ----------
    schedule
        What was charged for.
    names
        What each part releases, in a word; by default ``"part 1"`` and so on, and ``"fit"`` for the last.

    Examples
    --------
    >>> fit = Mechanism(PoissonSampling(0.1), "zero-out", steps=5, sigma=3.0, records=100)
    >>> description_of(Schedule((fit,)))["parts"][0]["sampling"]
    {'kind': 'PoissonSampling', 'rate': 0.1}
    """
    if names is None:
        names = (*(f"part {number + 1}" for number in range(len(schedule.parts) - 1)), "fit")
    parts = [
        {
            "name": name,
            "sampling": {"kind": type(part.sampling).__name__, **asdict(cast(Any, part.sampling))},
            "steps": part.steps,
            "sigma": part.sigma,
            "records": part.records,
        }
        for name, part in zip(names, schedule.parts, strict=True)
    ]
    return {"relation": schedule.relation, "parts": parts}


def schedule_of(description: object) -> Schedule:
    """Return the schedule that `description_of` wrote; raise ValueError for anything else.

    Parameters
    ----------
    description
        Data of any origin.

    Examples
    --------
    >>> fit = Mechanism(FullBatch(), "zero-out", steps=5, sigma=3.0, records=100)
    >>> schedule_of(description_of(Schedule((fit,)))) == Schedule((fit,))
    True
    >>> schedule_of({"relation": "zero-out", "parts": []})
    Traceback (most recent call last):
        ...
    ValueError: not the schedule of a run: it has 1 to 8 parts, in a list. Make the statement anew ...
    """
    whole = _table(description, ("relation", "parts"), "a schedule")
    relation, parts = whole["relation"], whole["parts"]
    if relation not in ("zero-out", "replace-one"):
        raise _refusal("its relation is 'zero-out' or 'replace-one'")
    if not isinstance(parts, list | tuple) or not 1 <= len(parts) <= MOST_PARTS:
        raise _refusal(f"it has 1 to {MOST_PARTS} parts, in a list")
    return Schedule(tuple(_part(part, cast(Relation, relation)) for part in parts))


def _part(value: object, relation: Relation) -> Mechanism:
    part = _table(value, ("name", "sampling", "steps", "sigma", "records"), "a part")
    if not isinstance(part["name"], str) or not 1 <= len(part["name"]) <= _NAME:
        raise _refusal(f"the name of a part has 1 to {_NAME} letters")
    given = part["sampling"]
    name = given.get("kind") if isinstance(given, Mapping) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise _refusal(f"the sampling of a part is one of {', '.join(_KINDS)}")
    fields = dict(_table(given, ("kind", *_FIELDS[kind]), "a sampling"))
    del fields["kind"]
    for field, number in fields.items():
        _number(field, number, *(_RATES if field == "rate" else (1, MOST_RECORDS)))
    steps = _number("steps", part["steps"], 1, MOST_STEPS)
    records = _number("records", part["records"], 1, MOST_RECORDS)
    sigma = _number("sigma", part["sigma"], *SIGMAS)
    return Mechanism(kind(**fields), relation, int(steps), float(sigma), int(records))


def _number(name: str, value: object, low: float, high: float) -> float:
    """Return a number between bounds, whole where the bounds are."""
    kinds = int if isinstance(low, int) else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise _refusal(f"{name} is a{' whole' if kinds is int else ''} number from {low:g} to {high:g}")
    return value


def _table(value: object, keys: Sequence[str], what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) != set(keys):
        raise _refusal(f"{what} is a table of {', '.join(keys)}")
    return value


def _refusal(allowed: str) -> ValueError:
    return ValueError(f"not the schedule of a run: {allowed}. Make the statement anew from the fit itself.")
