"""Questions to the planner: a model, a shape and a budget, checked.

**Privacy.** Public numbers; an error speaks of nothing else.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, get_args

from dpsep.privacy.mechanism import Relation
from dpsep.theory.networks import default_hidden

Model = Literal["linear", "logistic", "probit", "poisson", "mixture", "network", "network-classifier"]
"""What can be planned."""
MOST_RECORDS = 10**13
"""Most records that are considered."""


@dataclass(frozen=True)
class Request:
    """A question to the planner; its fields are `plan`'s parameters, checked."""

    model: Model
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
            return sum(b * (a + 1) for a, b in pairwise(widths))
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
    if model not in get_args(Model):
        raise ValueError(f"model must be one of {', '.join(get_args(Model))}, not {model!r}.")
    if relation not in get_args(Relation):
        raise ValueError(f"relation must be one of {', '.join(get_args(Relation))}, not {relation!r}.")
    count = _whole("records", 2 if records is None else records, MOST_RECORDS)
    width = _whole("features", features, 10**6)
    if not isinstance(delta, Real) or not 0 < float(delta) < 1:
        raise ValueError(f"delta must lie in (0, 1), not {delta!r}; below 1/N is usual.")
    budget = 1.0 if epsilon is None else epsilon
    if not isinstance(budget, Real) or not 0 < float(budget) < math.inf:
        raise ValueError(f"epsilon must be a positive number, not {epsilon!r}.")
    if (components is not None) != (model == "mixture"):
        raise ValueError("components is for a mixture, which needs it; leave it out for other models.")
    number = 1 if components is None else _whole("components", components, 10**5)
    sizes = tuple(_whole("levels", each, 10**6) for each in levels)
    if sizes and (sum(sizes) > width or model not in ("linear", "logistic", "probit", "poisson")):
        raise ValueError(
            f"levels name {sum(sizes)} indicators, which must be among the {width} features of a regression."
        )
    if sampling is not None and not (isinstance(sampling, Real) and 0 < float(sampling) <= 1):
        raise ValueError(f"sampling must be a rate in (0, 1], not {sampling!r}.")
    layers = None
    if hidden is not None:
        if not model.startswith("network"):
            raise ValueError("hidden is for networks; leave it out for other models.")
        layers = tuple(_whole("hidden", each, 10**4) for each in hidden)
    return Request(
        model,  # pyright: ignore[reportArgumentType]
        count,
        width,
        float(budget),
        float(delta),
        relation,
        number,
        sizes,
        bool(declared),
        None if sampling is None else float(sampling),
        layers,
    )


def _whole(name: str, value: Any, most: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most:,}, not {value!r}.")
    return int(value)
