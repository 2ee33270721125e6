"""Values as bytes: numbers, texts, arrays and the few classes of dpsep that may travel. Never pickle.

A value is a tag of one byte and what the tag says. Arrays are little-endian doubles or 64-bit integers; a
square one whose upper or lower triangle is zero, or that is symmetric bit for bit, travels as one triangle.
Objects travel as the number of their class in an allow-list (`classes`) and their fields in order, so that a
message can name nothing else and runs no code. Equal values have equal bytes: what is agreed on can be
compared by its hash.

Decoding takes bytes from strangers. It reads no length that the bytes do not hold, goes no deeper than
`DEPTH`, and refuses NaN, infinity outside of bounds of columns, unknown tags and bytes left over. Whatever
goes wrong is a `WireError` that repeats no value.

What it allocates is bounded: the numbers of an array take at most two and a half times their bytes (a
triangle becomes a square), a text or a string of bytes its length (a text up to four times), and besides that
every value less than 200 bytes, however few stand for it. There are `MOST_VALUES` of them at most.

Why not MessagePack by msgspec: it has no such bound. A byte of a message becomes an empty list of 64 bytes,
so that the longest message takes 17 GB; NaN and any number of values pass. It writes a run's terms in 0.2
and reads them in 0.5 microseconds (ours: 25 and 40, nothing beside a round), and arrays no faster. Of these
lines 60 would go, and would have to stay for what sites have kept. Which types and ranges the fields of a
message have is msgspec's to say (`dpsep.federated.terms`).
"""

import dataclasses
import importlib
import math
import struct
from functools import cache
from typing import Any

import numpy as np

from dpsep.registry import regressions

DEPTH = 8
"""Deepest nesting of a value."""
MOST_TEXT = 4096
"""Longest text, in bytes."""
MOST_ITEMS = 65_535
"""Most items of a tuple."""
MOST_SIDE = 1 << 24
"""Longest side of an array."""
MOST_NUMBERS = 1 << 25
"""Most numbers of an array, a side of zero counted as one: NumPy makes none whose other sides are huge."""
MOST_VALUES = 1 << 18
"""Most values in one, those inside of others counted too."""


def name_of(kind: type) -> str:
    """Return the name by which a class is listed."""
    return f"{kind.__module__}:{kind.__qualname__}"


OWN: dict[int, str] = {
    1: "dpsep.federated.terms:Terms",
    2: "dpsep.federated.terms:PartTerms",
    3: "dpsep.federated.terms:Hello",
    4: "dpsep.federated.terms:Price",
    5: "dpsep.federated.terms:Work",
    6: "dpsep.federated.terms:Local",
    7: "dpsep.federated.terms:Factor",
    16: "dpsep.privacy.grid:Block",
    17: "dpsep.privacy.scaling:MagnitudeCounts",
    18: "dpsep.privacy.scaling:LinearCounts",
    32: "dpsep.families.columns:Columns",
    33: "dpsep.models.glm:Public",
    34: "dpsep.models.glm:GLMContribution",
    35: "dpsep.models.glm:LinearContribution",
    40: "dpsep.models.linear:LearnedNoise",
    41: "dpsep.models.concentrated_noise:ConcentratedNoise",
    42: "dpsep.models.linear:WeightsAndNoise",
    43: "dpsep.estimators.natural:NaturalContribution",
    50: "dpsep.models.weighted:Seen",
    51: "dpsep.models.weighted:Steered",
    52: "dpsep.models.weighted:Leverages",
    53: "dpsep.models.weighted:SecondMoments",
    54: "dpsep.models.weighted:Reaches",
    55: "dpsep.models.weighted:WeightedFactors",
    48: "dpsep.families.gaussian:Gaussian",
    49: "dpsep.families.gamma:Gamma",
}
"""What may travel, by number, apart from likelihoods. A number is never given anew."""
_UNBOUNDED = ("dpsep.families.columns:Columns",)
"""Whose arrays may be infinite: bounds that are none."""

(_NONE, _TRUE, _FALSE, _INT, _FLOAT, _TEXT, _BYTES, _TUPLE, _OBJECT) = range(9)
(_SCALAR, _FULL, _LOWER, _UPPER, _SYMMETRIC, _WHOLE) = range(16, 22)
_TRIANGLES = (_LOWER, _UPPER, _SYMMETRIC)


@cache
def classes() -> dict[int, str]:
    """Return what may travel, by number; likelihoods have that of their regression."""
    return OWN | {kind.wire: name_of(kind.likelihood) for kind in (entry.load() for entry in regressions())}


@cache
def _number(kind: type) -> int | None:
    """Number of a class, or None where it may not travel."""
    name = name_of(kind)
    # A greeting needs no likelihood, and to load the regressions takes seconds.
    known = OWN if name in OWN.values() or not name.startswith("dpsep.") else classes()
    return next((number for number, one in known.items() if one == name), None)


class WireError(ValueError):
    """Bytes that are no message of this protocol, or a value that may not travel."""


def encode(value: Any) -> bytes:
    """Return a value as bytes.

    Raises
    ------
    WireError
        It, or a part of it, is of a kind that may not travel.

    Examples
    --------
    >>> decode(encode((1, "a", None, np.eye(2))))[3]
    array([[1., 0.],
           [0., 1.]])
    """
    return _head(value) + b"".join(_parts(value))


def split(value: Any) -> tuple[bytes, list[bytes]]:
    """Return a value's bytes as a head and the bytes of its parts; joined they are `encode`'s."""
    parts = _parts(value)
    return _head(value), parts


def decode(content: bytes) -> Any:
    """Return the value that bytes stand for, all of them.

    Raises
    ------
    WireError
        They are not what `encode` writes.
    """
    reader = _Reader(content)
    try:
        value = reader.value(0, bounded=True)
    except WireError:
        raise
    except Exception:  # bytes of a stranger that no check above has foreseen
        raise WireError("these bytes stand for no value.") from None
    if reader.left:
        raise WireError(f"{reader.left} bytes are left over after a value.")
    return value


def _head(value: Any) -> bytes:
    """Tag of a value, with all of it where it has no parts."""
    if value is None:
        return bytes([_NONE])
    if isinstance(value, bool | np.bool_):
        return bytes([_TRUE if value else _FALSE])
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << 63) <= value < 1 << 63:
            raise WireError("an integer beyond 64 bits cannot travel.")
        return struct.pack("<Bq", _INT, value)
    if isinstance(value, float) and not isinstance(value, np.floating):
        return struct.pack("<Bd", _FLOAT, value)
    if isinstance(value, str):
        text = value.encode()
        if len(text) > MOST_TEXT:
            raise WireError(f"a text of {len(text)} bytes cannot travel; {MOST_TEXT} is the most.")
        return struct.pack("<BH", _TEXT, len(text)) + text
    if isinstance(value, bytes):
        return struct.pack("<BI", _BYTES, len(value)) + value
    number = _number(type(value))
    if number is not None:
        return bytes([_OBJECT, number])
    if type(value) is tuple or type(value) is list:
        if len(value) > MOST_ITEMS:
            raise WireError(f"{len(value)} items cannot travel in one message; {MOST_ITEMS} is the most.")
        return struct.pack("<BH", _TUPLE, len(value))
    if isinstance(value, np.ndarray | np.generic) or type(value).__module__.startswith(("jax", "jaxlib")):
        return _array(np.asarray(value))
    raise WireError(
        f"a {type(value).__name__} cannot be sent to a site: it is code or data of its own. A federation "
        f"fits {', '.join(entry.kind for entry in regressions())}; fit others where the rows are."
    )


def _parts(value: Any) -> list[bytes]:
    if _number(type(value)) is not None:
        return [encode(part) for part in _fields(value)]
    if type(value) in (tuple, list):
        return [encode(part) for part in value]
    return []


def _fields(value: Any) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return tuple(value)
    return tuple(getattr(value, field.name) for field in dataclasses.fields(value))


def _array(array: np.ndarray) -> bytes:
    if array.dtype.kind in "iu" and array.dtype.itemsize <= 8 and array.dtype != np.uint64:
        return _shape(_WHOLE, array.shape) + array.astype("<i8").tobytes()
    if array.dtype.kind != "f":
        raise WireError(f"an array of type {array.dtype} cannot travel; doubles and integers can.")
    array = array.astype("<f8")
    if array.ndim == 0:
        return bytes([_SCALAR]) + array.tobytes()
    if array.ndim == 2 and array.shape[0] == array.shape[1] > 1:
        for tag, triangle in (
            (_LOWER, not np.triu(array, 1).any()),
            (_UPPER, not np.tril(array, -1).any()),
            (_SYMMETRIC, array.tobytes() == np.ascontiguousarray(array.T).tobytes()),
        ):
            if triangle:
                _shape(_FULL, array.shape)  # where it cannot travel
                half = array if tag != _UPPER else array.T
                return struct.pack("<BI", tag, len(array)) + half[np.tril_indices(len(array))].tobytes()
    return _shape(_FULL, array.shape) + array.tobytes()


def _shape(tag: int, shape: tuple[int, ...]) -> bytes:
    if not _allowed(shape):
        raise WireError(f"an array of shape {shape} cannot travel.")
    return struct.pack(f"<BB{len(shape)}I", tag, len(shape), *shape)


def _allowed(shape: tuple[int, ...]) -> bool:
    small = len(shape) <= DEPTH and all(side <= MOST_SIDE for side in shape)
    return small and math.prod(max(side, 1) for side in shape) <= MOST_NUMBERS


class _Reader:
    """Reads values off bytes; every length is checked against what is left before anything is made."""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self._at = 0
        self._values = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, count: int) -> memoryview:
        if count > self.left:
            raise WireError(f"a message ends where {count} more bytes should be.")
        self._at += count
        return self._content[self._at - count : self._at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def value(self, depth: int, *, bounded: bool) -> Any:
        if depth > DEPTH:
            raise WireError(f"a value is nested deeper than {DEPTH}.")
        self._values += 1
        if self._values > MOST_VALUES:
            raise WireError(f"a message holds more than {MOST_VALUES} values.")
        (tag,) = self.unpack("<B")
        if tag in (_NONE, _TRUE, _FALSE):
            return {_NONE: None, _TRUE: True, _FALSE: False}[tag]
        if tag == _INT:
            return self.unpack("<q")[0]
        if tag == _FLOAT:
            return _finite(self.unpack("<d")[0])
        if tag == _TEXT:
            return self._text()
        if tag == _BYTES:
            return bytes(self.take(self.unpack("<I")[0]))
        if tag == _TUPLE:
            (count,) = self.unpack("<H")
            if count > self.left:
                raise WireError("a tuple claims more items than there are bytes.")
            return tuple(self.value(depth + 1, bounded=bounded) for _ in range(count))
        if tag == _OBJECT:
            return self._object(depth)
        return self._array(tag, bounded=bounded)

    def _text(self) -> str:
        (count,) = self.unpack("<H")
        if count > MOST_TEXT:
            raise WireError(f"a text is longer than {MOST_TEXT} bytes.")
        try:
            return bytes(self.take(count)).decode()
        except UnicodeDecodeError:
            raise WireError("a text is not UTF-8.") from None

    def _object(self, depth: int) -> Any:
        (number,) = self.unpack("<B")
        name = OWN.get(number) or classes().get(number)
        if name is None:
            raise WireError(f"class number {number} is not one that may travel.")
        module, _, kind = name.partition(":")
        found = getattr(importlib.import_module(module), kind)
        count = len(getattr(found, "_fields", None) or dataclasses.fields(found))
        bounded = name not in _UNBOUNDED
        fields = [self.value(depth + 1, bounded=bounded) for _ in range(count)]
        try:
            return found(*fields)
        except WireError:
            raise
        except Exception:  # whatever a class says of fields that do not suit it
            raise WireError(f"the fields of a {kind} do not make one.") from None

    def _array(self, tag: int, *, bounded: bool) -> np.ndarray:
        if tag == _SCALAR:
            return _checked(np.frombuffer(self.take(8), "<f8").reshape(()).astype(np.float64), bounded)
        if tag in _TRIANGLES:
            return self._triangle(tag, bounded=bounded)
        if tag not in (_FULL, _WHOLE):
            raise WireError(f"tag {tag} is not one of this protocol.")
        (sides,) = self.unpack("<B")
        if sides > DEPTH:
            raise WireError("an array has more dimensions than any that may travel.")
        shape = self.unpack(f"<{sides}I")
        if not _allowed(shape):
            raise WireError("an array is larger than any that may travel.")
        found = np.frombuffer(self.take(8 * math.prod(shape)), "<i8" if tag == _WHOLE else "<f8")
        if tag == _WHOLE:
            return found.astype(np.int64).reshape(shape)
        return _checked(found.astype(np.float64).reshape(shape), bounded)

    def _triangle(self, tag: int, *, bounded: bool) -> np.ndarray:
        (side,) = self.unpack("<I")
        if not _allowed((side, side)):
            raise WireError("an array is larger than any that may travel.")
        half = np.frombuffer(self.take(8 * (side * (side + 1) // 2)), "<f8")
        array = np.zeros((side, side))
        at = 0
        for row in range(side):  # one row at a time: index arrays would take more than the numbers
            numbers = half[at : at + row + 1]
            if tag != _UPPER:
                array[row, : row + 1] = numbers
            if tag != _LOWER:
                array[: row + 1, row] = numbers
            at += row + 1
        return _checked(array, bounded)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise WireError("a number is not finite.")
    return value


def _checked(array: np.ndarray, bounded: bool) -> np.ndarray:
    if np.isnan(array).any() or (bounded and not np.isfinite(array).all()):
        raise WireError("an array holds a number that is not finite.")
    return array
