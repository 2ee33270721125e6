"""Messages between the server of a federation and its sites: questions and answers, as bytes.

A message is a header of fixed size (two letters, version, kind, length, run, checksum) and a body. Questions:
HELLO (who is there), OFFER (what would this run cost; nothing is charged), BEGIN (charge it), PART (what
records are asked for, sent once and known by its hash from then on), ROUND (public values of one release),
LOCAL (a cavity, for several releases of a site on its own; `dpsep.federated.partitioned`) and END. Answers:
OK, REFUSED (a code and a text that holds no data), SUMS. Values inside are those of `dpsep.federated.codec`,
and sums those of `dpsep.federated.packing`.

Public values that did not change since the last release that a site answered travel as a hash of eight
bytes, child by child of the outermost tuple; a site that no longer holds them says so and gets them whole.

**Privacy.** Nothing here is secret but the body of SUMS, which the site's mode accounts for. Neither side
trusts the other's bytes: whatever is not exactly a message raises `WireError`. The checksum finds damage, not
intent; messages are not encrypted or signed here, the transport does that.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from dpsep.federated.codec import WireError, decode, encode, split

VERSION = 1
"""Version of the protocol; both sides must have the same."""
MOST_BYTES = 1 << 28
"""Longest message that is looked at."""
NO_RUN = bytes(16)
"""Run of a message that belongs to none."""
QUESTIONS = dict(enumerate(("HELLO", "OFFER", "BEGIN", "PART", "ROUND", "LOCAL", "END"), start=1))
"""Names of the questions, by their kinds."""
HELLO, OFFER, BEGIN, PART, ROUND, LOCAL, END = QUESTIONS
OK, REFUSED, SUMS = range(16, 19)

MALFORMED, BAD_VERSION, BAD_MODE, OVER_BUDGET, BAD_TERMS, CHANGED, NOT_BEGUN, ENDED = range(1, 9)
NOT_CHARGED, UNKNOWN_PART, UNKNOWN_VALUE, LOST, FAULT = range(9, 14)

_HEADER = struct.Struct("<2sBBI16sI")
_CHECKED = 24
"""Bytes of the header before its checksum."""
_MAGIC = b"dF"
_ROUND = struct.Struct("<HI8sB")
_SUMS = struct.Struct("<HIB")
_NAME = 8
"""Bytes of a hash by which something is named that was sent before. Who sends both can make two things of one
name, and gains nothing: sums of whatever is asked for are clipped."""
_SHORTEST = 12
"""Bytes of a part of the public values from which on its hash is shorter."""


class Message(NamedTuple):
    """A message, its header checked and its body not yet read."""

    kind: int
    run: bytes
    body: bytes


class Refused(NamedTuple):
    """A site's refusal: what it refuses, why (a code), and why in words."""

    question: int
    code: int
    text: str


class Sums(NamedTuple):
    """A site's answer to a round: which one it is for, whether its noise is for release, and packed sums."""

    part: int
    round: int
    secure: bool
    packed: bytes


class Round(NamedTuple):
    """A question for one release; parts of the public values are bytes, or a hash in a tuple of one."""

    part: int
    round: int
    work: bytes
    head: bytes
    children: tuple[bytes | tuple[bytes], ...]


def write(kind: int, run: bytes, body: bytes) -> bytes:
    """Return a message as bytes."""
    if len(run) != 16 or len(body) > MOST_BYTES:
        raise WireError("a message needs a run of 16 bytes and a body within the limit.")
    header = _HEADER.pack(_MAGIC, VERSION, kind, len(body), run, 0)[:_CHECKED]
    return header + struct.pack("<I", zlib.crc32(body, zlib.crc32(header))) + body


def read(content: bytes, kinds: tuple[int, ...]) -> Message:
    """Return a message of one of these kinds, its header checked.

    Raises
    ------
    WireError
        It is none.
    """
    if not _HEADER.size <= len(content) <= MOST_BYTES + _HEADER.size:
        raise WireError(f"a message of {len(content)} bytes is none of this protocol.")
    magic, version, kind, length, run, checksum = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise WireError("these bytes are no message of dpsep.")
    if version != VERSION:
        raise WireError(f"the message has version {version} of the protocol; this side has {VERSION}.")
    if kind not in kinds or length != len(content) - _HEADER.size:
        raise WireError("the message is of another kind or length than its place allows.")
    body = bytes(content[_HEADER.size :])
    if zlib.crc32(body, zlib.crc32(content[:_CHECKED])) != checksum:
        raise WireError("the message was damaged on its way.")
    return Message(kind, run, body)


def ask(kind: int, run: bytes, value: Any) -> bytes:
    """Return a question whose body is one value."""
    return write(kind, run, encode(value))


def say(run: bytes, question: int, value: Any) -> bytes:
    """Return the answer OK to a question."""
    return write(OK, run, bytes([question]) + encode(value))


def refuse(run: bytes, question: int, code: int, text: str) -> bytes:
    """Return the answer REFUSED to a question."""
    return write(REFUSED, run, bytes([question, code]) + encode(text[:500]))


def heard(content: bytes, run: bytes, question: int, check: Callable[[Any], Any] | None = None) -> Any:
    """Return what an answer to a question says: the value of OK, checked, or a `Refused`."""
    message = read(content, (OK, REFUSED))
    least = 1 if message.kind == OK else 2
    if len(message.body) < least or message.body[0] != question or message.run != run:
        raise WireError("the answer is to another question.")
    if message.kind == REFUSED:
        text = decode(message.body[2:])
        if not isinstance(text, str):
            raise WireError("a refusal has no reason.")
        return Refused(question, message.body[1], "".join(c for c in text if c.isprintable())[:500])
    value = decode(message.body[1:])
    return value if check is None else check(value)


def digest(content: bytes) -> bytes:
    """Return the hash that stands for bytes: sixteen bytes of SHA-256."""
    return hashlib.sha256(content).digest()[:16]


def name_of(content: bytes) -> bytes:
    """Return the short hash by which something is named that was sent before."""
    return digest(content)[:_NAME]


def ask_round(run: bytes, part: int, number: int, work: bytes, public: Any, known: frozenset[bytes]) -> bytes:
    """Return the question for one release; what the site knows travels as its hash."""
    head, children = split(public)
    body = [_ROUND.pack(part, number, work, len(children)), struct.pack("<B", len(head)), head]
    for child in children:
        name = name_of(child)
        if len(child) > _SHORTEST and name in known:
            body.append(_size(0) + name)
        else:
            body.append(_size(len(child)) + child)
    return write(ROUND, run, b"".join(body))


def names_of(public: Any) -> frozenset[bytes]:
    """Return the hashes of the parts of public values that a site keeps."""
    return frozenset(name_of(child) for child in split(public)[1] if len(child) > _SHORTEST)


def read_round(body: bytes) -> Round:
    """Return what a question for a release holds; hashes are not yet looked up."""
    if len(body) < _ROUND.size + 1:
        raise WireError("a round is too short.")
    part, number, work, count = _ROUND.unpack_from(body)
    at = _ROUND.size + 1
    head = body[at : at + body[at - 1]]
    at += body[at - 1]
    children: list[bytes | tuple[bytes]] = []
    for _ in range(count):
        size, at = _read_size(body, at)
        end = at + (size or _NAME)
        if end > len(body):
            raise WireError("a round ends too soon.")
        children.append(body[at:end] if size else (body[at:end],))
        at = end
    if at != len(body):
        raise WireError("bytes are left over after a round.")
    return Round(part, number, work, head, tuple(children))


def kept_children(children: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """Return the parts of public values that a site keeps, by their hashes."""
    return {name_of(child): child for child in children if len(child) > _SHORTEST}


def say_sums(run: bytes, part: int, number: int, secure: bool, packed: bytes) -> bytes:
    """Return a site's answer to a round."""
    return write(SUMS, run, _SUMS.pack(part, number, secure) + packed)


def heard_sums(content: bytes, run: bytes, part: int, number: int, size: int) -> Sums | Refused:
    """Return the sums of an answer to this round of this run, packed in so many bytes, or a refusal."""
    if len(content) > _HEADER.size + _SUMS.size + max(size, 1024):
        raise WireError(f"an answer of {len(content)} bytes is too long for this round.")
    message = read(content, (SUMS, REFUSED))
    if message.kind == REFUSED:
        return heard(content, run, ROUND)
    if message.run != run or len(message.body) != _SUMS.size + size:
        raise WireError("the sums belong to another run, or are of another length.")
    at, which, secure = _SUMS.unpack_from(message.body)
    if (at, which) != (part, number) or secure > 1:
        raise WireError("the sums belong to another round.")
    return Sums(at, which, bool(secure), message.body[_SUMS.size :])


def _size(value: int) -> bytes:
    """Return a length in as few bytes as it needs, seven bits in each."""
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _read_size(content: bytes, at: int) -> tuple[int, int]:
    """Return a length, and where it ends."""
    value = 0
    for place in range(5):
        if at >= len(content):
            raise WireError("a round ends too soon.")
        value |= (content[at] & 127) << (7 * place)
        at += 1
        if content[at - 1] < 128:
            return value, at
    raise WireError("a length is longer than any that is allowed.")
