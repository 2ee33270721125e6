"""Values travel unchanged, and bytes from strangers do no harm."""

import contextlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.federated import codec
from dpsep.federated.codec import WireError, decode, encode, split
from dpsep.models.glm import Columns, GLMContribution, Public
from dpsep.models.logistic import LogisticLikelihood

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=50)
    | st.binary(max_size=50)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=20)


@given(values)
def test_values_come_back_as_they_were(value: object) -> None:
    assert decode(encode(value)) == value


@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from(["full", "lower", "upper", "symmetric"]))
def test_arrays_come_back_bit_for_bit(side: int, seed: int, kind: str) -> None:
    array = np.random.default_rng(seed).standard_normal((side, side))
    array = {
        "full": array,
        "lower": np.tril(array),
        "upper": np.triu(array),
        "symmetric": np.tril(array) + np.tril(array, -1).T,
    }[kind]
    assert np.array_equal(decode(encode(array)), array)


def test_a_triangle_takes_half_of_the_bytes() -> None:
    full = np.random.default_rng(0).standard_normal((40, 40))
    assert len(encode(full)) > 8 * 1600
    for half in (np.tril(full), np.triu(full), full + full.T):
        assert len(encode(half)) == 5 + 8 * 820


def test_objects_on_the_list_travel_and_others_do_not() -> None:
    found = decode(encode(GLMContribution(LogisticLikelihood("fast"), True)))
    assert found == GLMContribution(LogisticLikelihood("fast"), True)
    for stranger in (Path("x"), {"a": 1}, {1}, print, np.array(["text"])):
        with pytest.raises(WireError):
            encode(stranger)


def test_what_a_users_own_model_is_told_says_why() -> None:
    class Mine:
        pass

    with pytest.raises(WireError, match=r"a Mine cannot be sent to a site.*fit others where the rows are"):
        encode(Mine())


def test_every_class_on_the_list_is_there_and_has_fields() -> None:
    for name in codec.classes().values():
        module, _, kind = name.partition(":")
        found = getattr(__import__(module, fromlist=[kind]), kind)
        assert codec.name_of(found) == name


def test_split_is_encode_in_pieces() -> None:
    value = (1, "a", np.eye(3))
    head, parts = split(value)
    assert head + b"".join(parts) == encode(value)


def test_numbers_that_are_not_finite_are_refused_but_in_bounds_of_columns() -> None:
    for bad in (np.array([1.0, np.nan]), np.array([np.inf]), float("nan"), np.float64("inf")):
        with pytest.raises(WireError, match="not finite"):
            decode(encode(bad))
    one, infinite = np.ones(2), np.full(2, np.inf)
    found = decode(encode(Columns(-infinite, infinite, one, one)))  # pyright: ignore[reportArgumentType]
    assert np.isinf(found.low).all()
    with pytest.raises(WireError, match="not finite"):
        decode(encode(Columns(one * np.nan, infinite, one, one)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(WireError, match="not finite"):
        decode(encode(Public(found, found, np.full((2, 2), np.inf), one, one, None)))  # pyright: ignore[reportArgumentType]


def test_fields_that_make_no_object_are_refused() -> None:
    content = bytearray(encode(GLMContribution(LogisticLikelihood("fast"), True)))
    assert content[0] == 8
    content[1] = 250
    with pytest.raises(WireError, match="class number 250"):
        decode(bytes(content))


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_value_or_a_wire_error(content: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(content)


@settings(max_examples=200)
@given(st.data())
def test_damage_gives_a_value_or_a_wire_error(data: st.DataObject) -> None:
    content = bytearray(
        encode((GLMContribution(LogisticLikelihood(), True), np.tril(np.ones((6, 6))), "text"))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode(bytes(content[: data.draw(st.integers(0, len(content)))]))


@pytest.mark.parametrize(
    "content",
    [
        bytes([17, 2]) + b"\xff\xff\xff\x00" * 2,  # an array of 2^48 numbers
        bytes([18]) + b"\xff\xff\xff\x00",  # a triangle of 2^47
        bytes([7]) + b"\xff\xff",  # a tuple of 65535 items
        bytes([6]) + b"\xff\xff\xff\xff",  # 4 GiB of bytes
        bytes([5]) + b"\xff\xff",
    ],
)
def test_claims_of_size_allocate_nothing(content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(content + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tag", [17, 21])
@pytest.mark.parametrize("others", [[1 << 24] * 7, [1 << 24, 4], [1 << 24, 1 << 24]])
def test_an_empty_array_with_huge_sides_is_a_wire_error(tag: int, others: list[int]) -> None:
    shape = (0, *others)
    with pytest.raises(WireError, match="larger than any"):
        decode(bytes([tag, len(shape)]) + struct.pack(f"<{len(shape)}I", *shape))
    assert decode(bytes([tag, 2]) + struct.pack("<2I", 0, 5)).shape == (0, 5)


def test_whatever_goes_wrong_in_decoding_is_a_wire_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "frombuffer", failing)
    with pytest.raises(WireError, match="stand for no value"):
        decode(encode(np.zeros(2)))


def test_what_decoding_allocates_is_bounded_by_its_text() -> None:
    def peak(content: bytes) -> int:
        tracemalloc.start()
        try:
            with contextlib.suppress(WireError):
                decode(content)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    square = np.random.default_rng(0).standard_normal((600, 600))
    for array in (square, np.tril(square), np.triu(square), square + square.T, np.zeros(200_000)):
        content = encode(array)
        assert peak(content) < 2.5 * len(content)
    # One-item tuples of None: four bytes each.
    inner = struct.pack("<BH", 7, 1) + b"\0"
    row = struct.pack("<BH", 7, 60_000) + inner * 60_000
    assert peak(row) < 200 * 120_000
    assert peak(struct.pack("<BH", 7, 20) + row * 20) < 200 * codec.MOST_VALUES


def test_there_is_a_most_of_values_in_one() -> None:
    row = struct.pack("<BH", 7, 60_000) + b"\0" * 60_000
    assert len(decode(struct.pack("<BH", 7, 4) + row * 4)) == 4
    with pytest.raises(WireError, match=f"more than {codec.MOST_VALUES} values"):
        decode(struct.pack("<BH", 7, 5) + row * 5)


def test_deep_nests_and_left_over_bytes_are_refused() -> None:
    value: object = ()
    for _ in range(codec.DEPTH + 1):
        value = (value,)
    with pytest.raises(WireError, match="deeper"):
        decode(encode(value))
    with pytest.raises(WireError, match="left over"):
        decode(encode(1) + b"\0")
