"""Values of an estimator as JSON: what JSON has a type for as it is, all else as a table with one tag.

Tags are looked up in fixed lists and nothing is pickled, so that unpacking a stranger's text makes values of
known types and runs no code of theirs. Functions cannot be written that way; `Missing` stands for them.

Why not msgspec: it takes these tags for what they are, dictionaries, so that nothing below would go. It reads
2 MB of them in 4 ms (`json`: 35) and writes them in 4 (56), but in other spaces and digits (1e16 for 1e+16)
than the files whose hashes are kept, writes NaN as null without a word, and refuses texts that were stored
(lone surrogates).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

import numpy as np

from dpsep.estimators.mixture_posterior import MixturePosterior
from dpsep.estimators.network_posterior import FittedNetwork
from dpsep.estimators.posterior import Posterior
from dpsep.estimators.statement import PrivacyStatement
from dpsep.models.custom import Linear, Normal, Place
from dpsep.privacy import sampling
from dpsep.privacy.sampling import Sampling

__all__ = ["Missing", "StoreError", "pack", "unpack"]

_TUPLES: dict[str, Any] = {
    "posterior": Posterior,
    "mixture": MixturePosterior,
    "network": FittedNetwork,
    "linear": Linear,
    "normal": Normal,
    "place": Place,
}
"""Named tuples by the tag that they are written under."""


class StoreError(ValueError):
    """A folder does not hold a whole, unchanged estimator of a known format."""


@dataclasses.dataclass(frozen=True)
class Missing:
    """Stands where a function was that is not stored; calling it says how to give it back."""

    name: str

    def __call__(self, *_: Any) -> NoReturn:
        """Raise ValueError."""
        raise ValueError(
            f"{self.name} is not set: a stored model holds no functions. Give it back with "
            f"set_params({self.name}=...)."
        )


def pack(value: Any) -> Any:
    """Return a value in JSON's types.

    Examples
    --------
    >>> unpack(pack({"u": Normal(0.0, 2.0), "w": (1, float("inf"))}))
    {'u': Normal(mean=0.0, sd=2.0, shape=()), 'w': (1, inf)}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": pack(np.asarray(value))}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    for tag, kind in _TUPLES.items():
        if isinstance(value, kind):
            return {tag: {name: pack(part) for name, part in value._asdict().items()}}
    if isinstance(value, PrivacyStatement):
        return {"statement": value.to_dict()}
    if isinstance(value, Sampling):
        fields = dataclasses.asdict(cast(Any, value))
        return {"sampling": type(value).__name__, "fields": fields}
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise StoreError("cannot save a dictionary whose keys are not text; use names as keys.")
        return {"dict": {name: pack(part) for name, part in value.items()}}
    if isinstance(value, tuple):
        return {"tuple": [pack(part) for part in value]}
    if isinstance(value, list):
        return [pack(part) for part in value]
    array = np.asarray(value)
    if array.dtype.kind not in "biufUO" or (array.ndim == 0 and array.dtype.kind == "O"):
        raise StoreError(f"cannot save a value of type {type(value).__name__}: it has no place in JSON.")
    cells = [pack(cell) for cell in array.reshape(-1).tolist()]
    return {"array": cells, "type": array.dtype.str, "shape": list(array.shape)}


def unpack(value: Any) -> Any:
    """Return what was packed."""
    if isinstance(value, list):
        return [unpack(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "scalar" in value:
        return unpack(value["scalar"])[()]
    if "tuple" in value:
        return tuple(unpack(part) for part in value["tuple"])
    if "dict" in value:
        return {name: unpack(part) for name, part in value["dict"].items()}
    for tag, kind in _TUPLES.items():
        if tag in value:
            return kind(**{name: unpack(part) for name, part in value[tag].items()})
    if "statement" in value:
        return PrivacyStatement(**value["statement"] | {"leaks": tuple(value["statement"]["leaks"])})
    if "sampling" in value:
        scheme: Callable[..., Sampling] = getattr(sampling, value["sampling"])
        if not (isinstance(scheme, type) and issubclass(scheme, Sampling)):
            raise ValueError("not a sampling scheme")
        return scheme(**value["fields"])
    cells = [unpack(cell) for cell in value["array"]]
    return np.array(cells, dtype=_stored_type(value["type"], cells)).reshape(value["shape"])


def _stored_type(text: str, cells: list[Any]) -> np.dtype[Any]:
    """Return an array's type; one that `pack` does not write, or far wider than its texts, is refused."""
    dtype = np.dtype(text)
    longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
    if dtype.kind not in "biufUO" or (dtype.kind == "U" and dtype.itemsize > 4 * max(longest, 64)):
        raise ValueError("not the type of a stored array")
    return dtype
