"""Messages of the first release: the same values have the same bytes still, and the bytes the same values.

Sites keep what they agreed to and answered, and hash it into their ledgers, so that none of it may change.
`messages.json` holds the bytes that the first release wrote, in hexadecimal digits.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.federated import wire
from dpsep.federated.codec import decode, encode
from dpsep.federated.packing import Bounds, pack
from dpsep.federated.terms import (
    Factor,
    Hello,
    Local,
    PartTerms,
    Price,
    Terms,
    Work,
    check_hello,
    check_price,
    check_terms,
)

from .test_public_value_checks import CASES, columns

RUN = bytes(range(16))
KEPT = json.loads((Path(__file__).parent / "messages.json").read_text())
SERVER = Terms(
    "server",
    1,
    "zero-out",
    1.0,
    1e-5,
    (PartTerms("full", 1.0, 1, 7.5), PartTerms("poisson", 0.125, 40, 2.25)),
    None,
    ("age", "sex=M"),
    "ill",
    ("no", "yes"),
    1000,
)
OWN = SERVER._replace(mode="own", honest=2, rounds=(0, 3, 39), classes=(False, 1), columns=(), local=3)
PRICE = Price(1.0, 1e-5, 0.75, None, (0.0, 0.0), (1, 40), True)
HELLO = Hello("north", 600, 2, ("age", "sex=M"), "ill", ("server", "own"), False)
LOCAL = Local(
    2,
    b"\1" * 8,
    np.arange(3.0),
    np.diag([1.0, 2.0, 3.0]),
    np.zeros(3),
    columns(2),
    columns(),
    np.ones(3),
    1,
    2.5,
)
FACTOR = Factor(np.array([0.5, -0.25]), np.eye(2) + 0.125, np.eye(2))


def values() -> dict[str, Any]:
    """What is encoded as a value."""
    found: dict[str, Any] = {
        "plain": (None, True, -3, 0.1, "naïve", b"\0\xff", (), ((1,),), np.arange(4).reshape(2, 2)),
        "terms": SERVER,
        "terms, alone": OWN,
        "price": PRICE,
        "price, own": PRICE._replace(alone_epsilon=0.5, sigmas=(1.5, 2.5)),
        "hello": HELLO,
        "local": LOCAL,
        "factor": FACTOR,
    }
    for name, (contribution, arrays, blocks, public) in CASES.items():
        found[f"work, {name}"] = Work(0, arrays, blocks, contribution)
        found[f"public, {name}"] = public
    return found


def messages() -> Iterator[tuple[str, bytes]]:
    """Every kind of message, as bytes."""
    yield "HELLO", wire.ask(wire.HELLO, wire.NO_RUN, None)
    yield "HELLO answered", wire.say(wire.NO_RUN, wire.HELLO, HELLO)
    yield "OFFER", wire.ask(wire.OFFER, RUN, SERVER)
    yield "OFFER answered", wire.say(RUN, wire.OFFER, PRICE)
    yield "BEGIN refused", wire.refuse(RUN, wire.BEGIN, wire.OVER_BUDGET, "the run costs epsilon 1.")
    yield "END", wire.ask(wire.END, RUN, "finished")
    public = CASES["logistic"][3]
    for name, known in (("ROUND", frozenset()), ("ROUND, known", wire.names_of(public))):
        yield name, wire.ask_round(RUN, 1, 39, b"workname", public, known)
    bounds = [Bounds(np.array([-3, 0]), np.array([3, 1000]))]
    yield "SUMS", wire.say_sums(RUN, 1, 39, True, pack([np.array([-1, 7])], bounds))


@pytest.mark.parametrize("name", values())
def test_a_value_has_the_bytes_that_it_had_and_is_read_from_them(name: str) -> None:
    kept = bytes.fromhex(KEPT[name])
    assert encode(values()[name]) == kept
    assert encode(decode(kept)) == kept


def test_messages_have_the_bytes_that_they_had() -> None:
    assert {name: content.hex() for name, content in messages()} == {
        name: KEPT[name] for name, _ in messages()
    }


def test_what_was_agreed_on_is_still_good() -> None:
    assert check_terms(decode(bytes.fromhex(KEPT["terms"]))) == SERVER
    assert check_terms(decode(bytes.fromhex(KEPT["terms, alone"]))) == OWN
    assert check_hello(decode(bytes.fromhex(KEPT["hello"]))) == HELLO
    assert check_price(decode(bytes.fromhex(KEPT["price"])), SERVER) == PRICE
