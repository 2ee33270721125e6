"""Damage to bytes: flips, cuts, repeats, splices, and the tokens that parsers stumble over.

A mutation is a function of a random generator and the bytes, so an input is known by the generator's seed
alone: nothing has to be kept to make it again.
"""

import math
import random
import re
from collections.abc import Sequence

__all__ = ["TOKENS", "damage", "odd_value"]

PICKLE = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94."
"""A pickle that would call the operating system."""
TOKENS: tuple[bytes, ...] = (
    *(b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1a", b"\r", b"\n", b"\r\n", b'"', b"'", b'""', b'"""', b"'''"),
    *(b",", b";", b"\t", b"=", b"[", b"]", b"[[", b"]]", b"{", b"}", b"#", b"\\", b"\\u0000", b"\\ud800"),
    *(
        b"1e309",
        b"-1e309",
        b"nan",
        b"NaN",
        b"inf",
        b"-inf",
        b"Infinity",
        b"-0",
        b"1e-400",
        b"0x" + b"f" * 300,
    ),
    *(b"9" * 30, b"9" * 400, b"9" * 5000, b"18446744073709551616", b"-9223372036854775809", b"0o777", b"1_0"),
    *(b"[" * 2000, b"{" * 2000, b'{"a":' * 1500, b"a." * 1500, b"x" * 70000, b"," * 20000, b"\n" * 20000),
    *("é".encode(), "\u202e".encode(), "\U0001f9ea".encode(), b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b"null", b"true", b"None", b"1979-05-27T07:32:00Z", b"../../", b"/dev/zero", b"/etc/passwd", b"~"),
    *(
        b"__class__",
        b"__reduce__",
        b"__init__",
        b"{0.__class__}",
        b"%s%n",
        b"${x}",
        b"cos\nsystem\n(S'true'\ntR.",
    ),
    *(
        PICKLE,
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"\x1f\x8b\x08",
        b"PAR1",
        b"ARROW1",
        b"SQLite format 3\0",
        b"\x93NUMPY",
    ),
    *(b"\xff" * 8, b"\x7f" * 4, b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f", b"\x00" * 64),
)
"""What has broken parsers before: other formats' marks, numbers at a type's edge, nesting, long lines."""
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
LONGEST = 400_000
"""Bytes beyond which an input is cut: repeats of repeats would grow without end."""


def damage(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """Return a seed after one to six mutations; few are likelier than many."""
    data = bytearray(seed)
    for _ in range(min(6, 1 + int(rng.expovariate(0.9)))):
        rng.choice(MUTATIONS)(rng, data, others)
        del data[LONGEST:]
    return bytes(data)


def odd_value(rng: random.Random, depth: int = 0) -> object:
    """Return a value of a type or size that a declaration is not likely to expect there."""
    kind = rng.randrange(16 if depth < 2 else 13)
    if kind >= 14:
        return {rng.choice(WORDS): odd_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind == 13:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 12:
        return _nested(rng.choice((3, 50, 300)))
    return (
        rng.choice(WORDS),
        rng.choice((0, 1, -1, 2, 10**6, 2**31, 2**63, 2**64, -(2**63))),
        rng.choice((10**30, 10**400, -(10**400), 1 << 20000)),
        rng.choice((0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf)),
        rng.choice((True, False)),
        "",
        None,
        "x" * rng.choice((1, 300, 70000)),
        [],
        {},
        [0, 1],
        rng.random() * 10 ** rng.randrange(-5, 6),
    )[kind]


WORDS = (
    *(
        "a",
        "name",
        "kind",
        "number",
        "category",
        "age",
        "missing",
        "drop",
        "fill",
        "nan",
        "inf",
        "-1",
        "0",
        "é",
    ),
    *("\u202e", "\0", " ", "a b", '"', "../x", "/dev/zero", "__class__", "predict", "array", "type", "shape"),
    *(
        "O",
        "U100000000",
        "V2000000000",
        "<f8",
        "M8[s]",
        "dict",
        "tuple",
        "float",
        "scalar",
        "sampling",
        "Poisson",
    ),
    *("posterior", "statement", "privacy_", "classes_", "coef_", "linear", "normal", "Infinity", "1e309"),
)
"""Texts that mean something somewhere in one of the formats."""


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def _place(rng: random.Random, data: bytearray) -> int:
    return rng.randrange(len(data) + 1)


def _span(rng: random.Random, data: bytearray) -> slice:
    start = _place(rng, data)
    return slice(start, min(len(data), start + int(rng.paretovariate(0.7))))


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _write(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _remove(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_span(rng, data)]


def _truncate(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_place(rng, data) :]


def _behead(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[: _place(rng, data)]


def _repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    part = bytes(data[_span(rng, data)])
    place = _place(rng, data)
    data[place:place] = part * rng.choice((1, 1, 2, 10, 100))


def _move(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    span = _span(rng, data)
    part = bytes(data[span])
    del data[span]
    place = _place(rng, data)
    data[place:place] = part


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    place = _place(rng, data)
    data[place:place] = rng.choice(TOKENS)


def _overwrite(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    token = rng.choice(TOKENS)
    place = _place(rng, data)
    data[place : place + len(token)] = token


def _splice(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others) if others else b""
    data[_place(rng, data) :] = other[rng.randrange(len(other) + 1) :]


def _renumber(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Put another number where one stands."""
    first = rng.randrange(len(data) + 1) if len(data) > 3000 else 0
    found = list(NUMBER.finditer(data, first, first + 3000))
    if found:
        start, end = rng.choice(found).span()
        data[start:end] = rng.choice(
            (b"0", b"-1", b"1e309", b"nan", b"9" * 25, b"1e-320", b"0x1" + b"0" * 99)
        )


MUTATIONS = (
    *(_flip, _flip, _write, _write, _remove, _truncate, _behead, _repeat, _move, _insert, _insert),
    *(_overwrite, _splice, _renumber),
)
