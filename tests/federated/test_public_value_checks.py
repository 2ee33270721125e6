"""Public values of another shape than contribution and table need are refused, and nothing is read."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.estimators.natural import NaturalContribution
from dpsep.families import Gamma, Gaussian
from dpsep.federated import wire
from dpsep.federated.codec import WireError, decode, encode
from dpsep.federated.public_value_checks import check_contribution, check_public
from dpsep.federated.site_sums import Table, check_work, noisy_sums
from dpsep.federated.terms import PartTerms, Terms, Work
from dpsep.federated.wire import Refused
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns, GLMContribution, LinearContribution, Public
from dpsep.models.linear import GaussianLikelihood, LearnedNoise, WeightsAndNoise
from dpsep.models.logistic import LogisticLikelihood
from dpsep.models.poisson import PoissonLikelihood
from dpsep.models.probit import ProbitLikelihood
from dpsep.privacy.gate import Reader
from dpsep.privacy.grid import Block
from dpsep.privacy.scaling import LinearCounts, MagnitudeCounts

from .made import make_sites

D = 2
SLOTS = 8


def columns(*shape: int) -> Any:
    return Columns(*(np.full(shape, value) for value in (-1.0, 1.0, 0.0, 1.0)))  # pyright: ignore[reportArgumentType]


def gamma() -> Any:
    return Gamma(np.asarray(0.0), np.asarray(1.0))  # pyright: ignore[reportArgumentType]


def glm_public(k: int) -> Any:
    half: Any = np.eye(k)
    zeros: Any = np.zeros(k)
    return Public(columns(D), columns(), half, zeros, zeros.copy(), gamma())


def natural_public(k: int, *, learned: bool) -> Any:
    cavity: Any = Gaussian(np.zeros(k), np.eye(k))  # pyright: ignore[reportArgumentType]
    return (columns(D), columns(), WeightsAndNoise(cavity, gamma()) if learned else cavity)


def pair(k: int) -> tuple[Block, ...]:
    return Block("mean", k, 1.0, 0.5), Block("precision", k, 1.0, 0.5, "outer")


def counts(size: int, bins: int) -> tuple[Block, ...]:
    return (Block("counts", size, size**0.5, kind="count", bins=bins),)


def factor(k: int, more: int = 0) -> tuple[Block, ...]:
    return (Block("factor", k + k * (k + 1) // 2 + more, 1.0),)


NOISE = (Block("mean", 3, 1.0, 0.4), Block("precision", 3, 1.0, 0.4, "outer"), Block("noise", 2, 1.0, 0.2))
CASES: dict[str, tuple[Any, tuple[int, ...], tuple[Block, ...], Any]] = {
    "logistic": (GLMContribution(LogisticLikelihood(), True), (0, 1), pair(3), glm_public(3)),
    "fast": (GLMContribution(LogisticLikelihood("fast"), False), (0, 1), pair(2), glm_public(2)),
    "probit": (GLMContribution(ProbitLikelihood(), True), (0, 1), pair(3), glm_public(3)),
    "poisson": (GLMContribution(PoissonLikelihood(), False), (0, 1), pair(2), glm_public(2)),
    "gaussian": (GLMContribution(GaussianLikelihood(2.0), True), (0, 1), pair(3), glm_public(3)),
    "learned": (LinearContribution(LearnedNoise(), True), (0, 1), NOISE, glm_public(3)),
    "concentrated": (LinearContribution(ConcentratedNoise(), True), (0, 1), NOISE, glm_public(3)),
    "natural": (
        NaturalContribution(LogisticLikelihood(), True),
        (0, 1),
        factor(3),
        natural_public(3, learned=False),
    ),
    "natural-learned": (
        NaturalContribution(LearnedNoise(), False),
        (0, 1),
        factor(2, 2),
        natural_public(2, learned=True),
    ),
    "magnitudes": (MagnitudeCounts(), (0, 1), counts(3, 41), None),
    "bins": (LinearCounts(4), (0, 1), counts(3, 4), (np.zeros(3), np.ones(3))),
    "bins-target": (LinearCounts(4), (1,), counts(1, 4), (np.zeros(1), np.ones(1))),
}
WIDTHS = (D, 0)


def widths(arrays: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(WIDTHS[index] for index in arrays)


def changed(value: Any) -> Iterator[Any]:
    """Every value that differs from one in the shape or the type of a single leaf."""
    if isinstance(value, tuple):
        make = tuple if type(value) is tuple else type(value)._make  # pyright: ignore[reportAttributeAccessIssue]
        for index, part in enumerate(value):
            for other in changed(part):
                yield make([*value[:index], other, *value[index + 1 :]])
        yield tuple(value) if type(value) is not tuple else [*value]
        yield (*value, 0.0)
    elif isinstance(value, np.ndarray):
        shape = value.shape
        for other in ((SLOTS, *shape), (1, *shape), (*shape, 1), tuple(side + 1 for side in shape)):
            if other != shape:
                yield np.broadcast_to(np.asarray(0.5), other).copy()
        yield value.astype(np.int64)
        yield value.astype(np.float32)
        yield value.tolist()
        yield None


@pytest.mark.parametrize("case", CASES)
def test_what_estimators_ask_for_passes_there_and_back(case: str) -> None:
    contribution, arrays, blocks, public = CASES[case]
    check_contribution(decode(encode(contribution)), arrays, blocks)
    check_public(contribution, widths(arrays), decode(encode(public)))


@pytest.mark.parametrize("case", CASES)
def test_any_leaf_of_another_shape_or_type_is_refused(case: str) -> None:
    contribution, arrays, _, public = CASES[case]
    others = [*changed(public)] if public is not None else [(), np.zeros(SLOTS), 0.0]
    assert len(others) >= 3
    for other in others:
        with pytest.raises(WireError, match="not of the shapes"):
            check_public(contribution, widths(arrays), other)


@pytest.mark.parametrize("case", CASES)
def test_no_coin_is_drawn_and_no_row_read_for_a_wrong_shape(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contribution, arrays, blocks, public = CASES[case]

    def never(*_: Any) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(Reader, "sums", never)
    table = Table((np.zeros((20, D)), np.zeros(20)), (20, D), None).arrays(arrays)
    wrong = np.zeros(SLOTS) if public is None else next(changed(public))
    begun: Any = object()  # has neither mechanism nor noise
    with pytest.raises(WireError, match="not of the shapes"):
        noisy_sums(table, begun, Work(0, arrays, blocks, contribution), wrong, None)  # pyright: ignore[reportArgumentType]


BAD_FIELDS: list[tuple[Any, tuple[int, ...], tuple[Block, ...]]] = [
    (print, (0, 1), pair(3)),
    (GLMContribution(LogisticLikelihood(), 1), (0, 1), pair(3)),  # pyright: ignore[reportArgumentType]
    (GLMContribution(LogisticLikelihood("many"), True), (0, 1), pair(3)),  # pyright: ignore[reportArgumentType]
    (GLMContribution(LogisticLikelihood("fast", np.zeros(9)), True), (0, 1), pair(3)),  # pyright: ignore[reportArgumentType]
    (GLMContribution(PoissonLikelihood("fast", 1e300), True), (0, 1), pair(3)),
    (GLMContribution(GaussianLikelihood(True), True), (0, 1), pair(3)),
    (GLMContribution(LearnedNoise(), True), (0, 1), pair(3)),  # pyright: ignore[reportArgumentType]
    (GLMContribution(LogisticLikelihood(), True), (0,), pair(3)),
    (GLMContribution(LogisticLikelihood(), True), (0, 1), counts(3, 4)),
    (LinearContribution(LogisticLikelihood(), True), (0, 1), NOISE),  # pyright: ignore[reportArgumentType]
    (NaturalContribution("text", True), (0, 1), factor(3)),
    (MagnitudeCounts(7), (0,), counts(2, 7)),
    (LinearCounts(True), (0,), counts(2, 1)),
    (LinearCounts(1 << 40), (0,), counts(2, 4)),
    (LinearCounts(4), (0,), counts(2, 5)),
    (LinearCounts(4), (1,), (Block("flat", 64, 1.0),)),
]


@pytest.mark.parametrize("index", range(len(BAD_FIELDS)))
def test_contributions_whose_fields_or_blocks_do_not_suit_them_are_refused(index: int) -> None:
    with pytest.raises(WireError):
        check_contribution(*BAD_FIELDS[index])


@pytest.mark.parametrize("change", [{"part": False}, {"arrays": (False, True)}, {"arrays": np.zeros(2)}])
def test_numbers_of_what_is_asked_are_integers(change: dict[str, Any]) -> None:
    from dpsep.federated.pricing import mechanism_of

    part = PartTerms("full", 1.0, 1, 5.0)
    terms = Terms("own", 1, "zero-out", 1.0, 1e-5, (part,), None, (), "", None, 1000)
    work = Work(0, (0, 1), pair(3), GLMContribution(LogisticLikelihood(), True))
    parts = (mechanism_of(part, "zero-out", 20),)
    check_work(work, parts, terms)
    with pytest.raises(ValueError, match="not of its types"):
        check_work(work._replace(**change), parts, terms)


def test_a_site_refuses_values_a_slot_and_answers_the_round_still(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    run = secrets.token_bytes(16)
    part = PartTerms("poisson", 0.1, 2, 5.0)
    terms = Terms("own", 1, "zero-out", 1.0, 1e-4, (part,), None, (), "", (False, True), 1000)
    site.answer(wire.ask(wire.BEGIN, run, terms))
    work = encode(Work(0, (0, 1), pair(2), GLMContribution(LogisticLikelihood("fast"), False)))
    assert wire.heard(site.answer(wire.write(wire.PART, run, work)), run, wire.PART) == wire.name_of(work)

    def ask(public: Any) -> Any:
        return site.answer(wire.ask_round(run, 0, 0, wire.name_of(work), public, frozenset()))

    good = glm_public(2)
    slots = columns(SLOTS, D)
    found = wire.heard(ask(good._replace(features=slots)), run, wire.ROUND)
    assert isinstance(found, Refused)
    assert found.code == wire.MALFORMED
    assert "not of the shapes" in found.text
    assert wire.read(ask(good), (wire.SUMS, wire.REFUSED)).kind == wire.SUMS
