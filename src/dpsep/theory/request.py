"""Questions to the planner: a model, a shape and a budget, checked.

**Privacy.** Public numbers; an error speaks of nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, get_args

from dpsep.privacy.mechanism import Relation
from dpsep.registry import named, names
from dpsep.theory.networks import check_size, default_hidden

MOST_RECORDS = 4 * 10**9
"""Most records that are considered: those whose sums fit the integers of a gate."""
MOST_BUDGET, LEAST_DELTA = 1e4, 1e-100
"""Budgets beyond these promise nothing, or cannot be computed with."""
MOST_LEVELS = 3000
"""Most indicators of categories in a reference table."""


@dataclass(frozen=True)
class Request:
    """A question to the planner; its fields are `plan`'s parameters, checked."""

    model: str
    records: int
    features: int
    epsilon: float
    delta: float
    relation: Relation
    components: int = 1
    levels: tuple[int, ...] = ()
    declared: bool = True
    sampling: float | None = None
    hidden: tuple[int, ...] | None = None

    @property
    def dimension(self) -> int:
        """Unknown numbers: weights with the intercept, or means of all components."""
        if self.model == "mixture":
            return self.components * self.features
        if self.model.startswith("network"):
            widths = (self.features, *self.units, 1)
            direct = self.features if self.units and self.model == "network" else 0  # as by default
            return sum(b * (a + 1) for a, b in pairwise(widths)) + direct
        return self.features + 1

    @property
    def units(self) -> tuple[int, ...]:
        """Hidden units of a network."""
        return default_hidden(self.records, private=True) if self.hidden is None else self.hidden

    @property
    def is_network(self) -> bool:
        """Whether this is a network, whose cost is not forecast."""
        return self.model.startswith("network")


def check_request(
    model: str,
    records: Any,
    features: Any,
    epsilon: Any,
    delta: Any,
    relation: Any,
    components: Any,
    levels: Any,
    declared: Any,
    sampling: Any,
    hidden: Any,
) -> Request:
    """Check a call; what is to be found gets a place holder."""
    if model not in names():
        raise ValueError(f"model must be one of {', '.join(names())}, not {model!r}.")
    if relation not in get_args(Relation):
        raise ValueError(f"relation must be one of {', '.join(get_args(Relation))}, not {relation!r}.")
    count = _whole("records", 2 if records is None else records, MOST_RECORDS)
    width = _whole("features", features, 10**6)
    share = number_within("delta", delta, LEAST_DELTA, 1.0)
    budget = number_within("epsilon", 1.0 if epsilon is None else epsilon, 0.0, MOST_BUDGET)
    if (components is not None) != (model == "mixture"):
        raise ValueError("components is for a mixture, which needs it; leave it out for other models.")
    number = 1 if components is None else _whole("components", components, 10**5)
    sizes = tuple(_whole("levels", each, 10**6) for each in _several("levels", levels))
    if sum(sizes) > MOST_LEVELS:
        raise ValueError(
            f"levels name {sum(sizes)} indicators; at most {MOST_LEVELS} can be forecast with. Leave out "
            "levels: their columns then count as numbers."
        )
    if sizes and (sum(sizes) > width or not named(model).is_regression):
        raise ValueError(
            f"levels name {sum(sizes)} indicators, which must be among the {width} features of a regression."
        )
    rate = None if sampling is None else number_within("sampling", sampling, 0.0, 1.0, most=True)
    layers = None
    if hidden is not None:
        if not model.startswith("network"):
            raise ValueError("hidden is for networks; leave it out for other models.")
        layers = tuple(_whole("hidden", each, 10**4) for each in _several("hidden", hidden))
    request = Request(
        model,
        count,
        width,
        budget,
        share,
        relation,
        number,
        sizes,
        bool(declared),
        rate,
        layers,
    )
    if request.is_network:
        check_size(request.dimension, (width, *request.units))
    return request


def number_within(name: str, value: Any, low: float, high: float, *, most: bool = False) -> float:
    """Return a number between two bounds, the upper one included where `most`; raise ValueError else."""
    number: Any = value  # compared as it is: a whole number may be too large for a float
    good = isinstance(value, Real) and not isinstance(value, bool)
    if not good or not (low < number < high or (most and number == high)):
        end = "at most" if most else "below"
        raise ValueError(f"{name} must be a number above {low:g} and {end} {high:g}, not {_short(value)}.")
    return float(number)


def _several(name: str, value: Any) -> tuple[Any, ...]:
    """One number or several."""
    if isinstance(value, Integral):
        return (value,)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a whole number or several, not {_short(value)}.")
    return tuple(value)


def _short(value: Any) -> str:
    """Return a value in words that fit into a line."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"  # Python will not print it
    return text if len(text) <= 60 else text[:60] + "..."


def _whole(name: str, value: Any, most: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most:,}, not {_short(value)}.")
    return int(value)
