"""Sites that are silent, late, damaged or gone: nothing is lost, doubled or released too soon."""

import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import Ledger
from dpsep.federated import Federation, InProcess, RoundFailed, Site, fit, wire
from dpsep.federated.codec import WireError
from dpsep.federated.gate import FederatedGate
from dpsep.federated.partitioned import fit_partitioned
from dpsep.federated.product import Product, check_factor
from dpsep.federated.session import Session
from dpsep.federated.terms import (
    MODES,
    Factor,
    Hello,
    PartTerms,
    Price,
    Terms,
    check_hello,
    check_price,
    check_terms,
)
from dpsep.federated.transport import Fault

from .faults import at, garbled, huge, late, lost, repeated
from .made import federate, logistic, make_sites, table, watched_releases

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.privacy.leaks.PrivacyLeakWarning")
# Questions of a site: 0 HELLO, 1 OFFER, 2 BEGIN, 3 PART, 4.. rounds, then END.
ROUND = 4


def run(sites: dict[str, Site], faults: dict[str, Fault], **rules: Any) -> tuple[Any, list[str], InProcess]:
    events: list[str] = []
    transport = InProcess(sites, faults)
    model = fit(logistic(random_state=1), Federation(transport, on_event=events.append, **rules))
    return model, events, transport


def spent(sites: dict[str, Site]) -> list[float]:
    return [round(site.ledger.spent().epsilon, 6) for site in sites.values()]


@pytest.mark.parametrize("number", [0, 1, 2, 3, ROUND, ROUND + 2])
@pytest.mark.parametrize("fault", [lost, late, garbled, huge], ids=lambda fault: fault.__name__)
def test_one_fault_changes_nothing_but_the_log(tmp_path: Path, fault: Fault, number: int) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    model, events, _ = run(sites, {"b": at((number,), fault)}, missing="stop")
    assert model.coef_ == pytest.approx(logistic(random_state=1).fit(*table()).coef_, rel=1e-9)
    assert spent(sites) == [1.0] * 3
    assert len(events) == 1
    assert "site b" in events[0]
    assert "(try 1 of 3)" in events[0]


def test_answers_that_come_a_question_late_are_never_taken_for_the_next(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    model, events, _ = run(sites, {"b": repeated([])}, tries=5, missing="stop")
    assert model.coef_ == pytest.approx(logistic(random_state=1).fit(*table()).coef_, rel=1e-9)
    assert spent(sites) == [1.0] * 3
    assert any("an answer that is none" in event for event in events)


def asked(folder: Path) -> int:
    """How often a site is asked in a run that nothing disturbs."""
    return run(make_sites(folder / "whole", cuts=(0, 200, 400, 600)), {})[2].asked["a"]


def test_a_site_that_falls_silent_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    model, events, transport = run(sites, {"b": at(range(ROUND + 1, 99), lost)}, patience=5.0)
    assert events[:2] == [
        "round 1 of part 0: site b did not answer in 5 s (try 1 of 3)",
        "round 1 of part 0: site b did not answer in 5 s (try 2 of 3)",
    ]
    assert "round 1 of part 0: site b is out of the run" in events
    assert spent(sites) == [1.0] * 3  # what was charged stays spent
    assert model.privacy_.federation["dropped"] == [["b", "round 1 of part 0"]]
    assert "Left out during the run: b" in model.privacy_.sentence()
    # a and c answer each round once, though b was asked three times in one of them.
    assert transport.asked["a"] == transport.asked["c"] == asked(tmp_path)
    kinds = {name: [row.kind for row in site.ledger.rows()] for name, site in sites.items()}
    assert kinds["a"][-1] == kinds["c"][-1] == "finished"
    assert sites["b"].unfinished() != ()


def test_a_site_that_comes_back_stays_out(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    _, events, transport = run(sites, {"b": at(range(ROUND + 1, ROUND + 4), lost)})
    assert transport.asked["b"] == ROUND + 1 + 3 + 1  # the end is told to it
    assert [row.kind for row in sites["b"].ledger.rows()][-1] == "finished"
    assert sum("site b" in event for event in events) == 4


def test_rows_of_a_site_that_left_leave_the_number_of_records(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    with watched_releases() as seen:
        run(sites, {"b": at(range(ROUND + 2, 99), lost)})
    assert seen[0] == (600, 600.0)
    assert seen[1:] == [(460, 460.0)] * (len(seen) - 1)


def test_a_fit_after_a_drop_is_near_that_of_the_rows_that_are_left(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, table(6000), cuts=(0, 2000, 4000, 6000), epsilon=50.0)
    federation = Federation(InProcess(sites, {"b": at(range(ROUND + 1, 99), lost)}))
    model = fit(logistic(epsilon=10.0, steps=8), federation)
    X, y = table(6000)
    keep = np.r_[0:2000, 4000:6000]
    other = logistic(epsilon=10.0, steps=8).fit(X[keep], y[keep])
    spread = np.sqrt(np.diag(model.posterior_.covariance))
    assert spread == pytest.approx(np.sqrt(np.diag(other.posterior_.covariance)), rel=0.25)
    assert (np.abs(model.posterior_.mean - other.posterior_.mean) < 4 * spread).all()


def test_stop_ends_the_run_and_every_ledger_notes_it(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-2)
    federation = Federation(InProcess(sites, {"b": at(range(ROUND + 1, 99), lost)}), missing="stop")
    with pytest.raises(RoundFailed, match=r"site b did not answer.*nothing of it was released"):
        fit(logistic(ledger=ledger), federation)
    assert spent(sites) == [1.0] * 3
    assert [row.kind for row in ledger.rows()][-1] == "failed"
    for name in "ac":
        assert [row.kind for row in sites[name].ledger.rows()][-1] == "failed"
        assert sites[name].unfinished() == ()


def test_below_the_least_number_of_sites_the_run_ends(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    dying = at(range(ROUND + 1, 99), lost)
    with pytest.raises(RoundFailed, match="1 sites are left and at least 2 are needed"):
        run(sites, {"a": dying, "b": dying})
    more = make_sites(tmp_path / "again", cuts=(0, 200, 400, 600))
    model, _, _ = run(more, {"a": dying, "b": dying}, least_sites=1)
    assert len(model.privacy_.federation["dropped"]) == 2


def test_below_the_honest_sites_a_round_releases_nothing(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600), epsilon=50.0)
    released: list[int] = []
    # The last question is the end, the four before it are of the last part.
    transport = InProcess(sites, {"b": at(range(asked(tmp_path) - 3, 99), lost)})
    federation = Federation(transport, mode="sites", honest=3, least_sites=1)
    with pytest.raises(RoundFailed):
        fit(logistic(), federation, on_step=lambda step, _: released.append(step))
    assert released == [1, 2]


def test_a_round_with_a_missing_site_adds_no_noise_and_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    real = FederatedGate._noised

    def watching(self: FederatedGate, block: Any, total: Any) -> Any:
        drawn.append(block.name)
        return real(self, block, total)

    monkeypatch.setattr(FederatedGate, "_noised", watching)
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    with pytest.raises(RoundFailed):
        run(sites, {"c": at(range(ROUND, 99), lost)}, missing="stop")
    assert drawn == []


def test_a_turn_with_fewer_answers_than_honest_sites_releases_nothing(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 150, 300, 450, 600), epsilon=50.0)
    transport = InProcess(sites, {"b": at(range(ROUND, 99), lost)})
    federation = Federation(transport, mode="sites", honest=2, sites_per_round=2, least_sites=2)
    with pytest.raises(RoundFailed, match="answers of 1 sites, too few for mode 'sites'"):
        fit(logistic(), federation)


def test_the_end_is_told_until_it_is_confirmed(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    end = asked(tmp_path) - 1
    _, events, _ = run(sites, {"b": at(range(end, end + 2), lost)})
    assert events == []
    assert sites["b"].unfinished() == ()
    deaf = make_sites(tmp_path / "deaf", cuts=(0, 200, 400, 600))
    _, events, _ = run(deaf, {"b": at(range(end, 99), lost)})
    assert events == ["site b did not confirm the end of the run; it still keeps its answers"]
    assert len(deaf["b"].unfinished()) == 1


def lie(change: Callable[[bytearray, bytearray], None]) -> Fault:
    """Answers that are well made and say something else."""

    def fault(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes:
        message = wire.read(answer(), (wire.OK, wire.REFUSED, wire.SUMS))
        if message.kind != wire.SUMS:
            return answer()
        run, body = bytearray(message.run), bytearray(message.body)
        change(run, body)
        return wire.write(message.kind, bytes(run), bytes(body))

    return fault


def test_sums_that_no_rows_can_have_are_not_used(tmp_path: Path) -> None:
    def largest(_: bytearray, body: bytearray) -> None:
        body[7:] = b"\xff" * (len(body) - 7)

    def other_round(_: bytearray, body: bytearray) -> None:
        body[2] ^= 1

    def other_run(run: bytearray, _: bytearray) -> None:
        run[0] ^= 1

    def longer(_: bytearray, body: bytearray) -> None:
        body.append(0)

    for number, change in enumerate((largest, other_round, other_run, longer)):
        sites = make_sites(tmp_path / str(number), cuts=(0, 200, 400, 600))
        model, events, _ = run(sites, {"b": at(range(ROUND, 99), lie(change))})
        assert model.privacy_.federation["dropped"] == [["b", "round 0 of part 0"]]
        assert "an answer that is none" in events[0]


def test_a_site_that_refuses_the_offer_is_left_out_before_anything_is_charged(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    poor = make_sites(tmp_path / "poor", cuts=(0, 200, 400, 600), epsilon=0.5)
    sites["b"] = poor["b"]
    model, events, _ = run(sites, {})
    assert "site b refused: the run costs epsilon 1" in events[0]
    assert spent(sites) == [1.0, 0.0, 1.0]
    assert list(model.privacy_.federation["sites"]) == ["a", "c"]
    sites = make_sites(tmp_path / "stop", cuts=(0, 200, 400, 600)) | {"b": poor["b"]}
    with pytest.raises(RoundFailed, match="refused"):
        run(sites, {}, missing="stop")
    assert spent(sites) == [0.0] * 3


@pytest.mark.parametrize("pattern", ["values-*", "work-*"])
def test_a_site_that_loses_what_it_was_told_is_told_again(tmp_path: Path, pattern: str) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))

    def forgetful(_: int, question: bytes, answer: Callable[[], bytes]) -> bytes:
        for path in (tmp_path / "b" / "state" / "runs").glob(f"*/{pattern}"):
            path.unlink()
        return answer()

    model, events, _ = run(sites, {"b": at((ROUND + 2,), forgetful)}, missing="stop")
    assert any("told again" in event for event in events)
    assert model.coef_ == pytest.approx(logistic(random_state=1).fit(*table()).coef_, rel=1e-9)


def test_no_answer_to_the_greeting_is_an_error_that_charges_nothing(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    with pytest.raises(RoundFailed, match="sites are left"):
        run(sites, dict.fromkeys("abc", lost))
    assert spent(sites) == [0.0] * 3


def test_events_go_to_the_log_and_hold_no_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    with caplog.at_level(logging.INFO, "dpsep.federated"):
        run(sites, {"b": at((ROUND,), garbled)})
    assert "site b gave an answer that is none" in caplog.text


def test_rules_that_make_no_federation_are_named(tmp_path: Path) -> None:
    transport = InProcess(make_sites(tmp_path))
    for rules, text in (
        ({"mode": "open"}, "mode must be one of"),
        ({"mode": "sites"}, "needs honest="),
        ({"honest": 2}, "needs honest="),
        ({"mode": "sites", "honest": 4}, "between 1 and 3"),
        ({"missing": "ignore"}, "'drop' or 'stop'"),
        ({"tries": 0}, "at least 1"),
        ({"sites_per_round": 4}, "between 1 and 3"),
        ({"least_sites": 0}, "between 1 and 3"),
    ):
        with pytest.raises(ValueError, match=text):
            Federation(transport, **rules)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="the transport knows none"):
        Federation(InProcess({}))
    assert MODES == ("server", "sites", "own")


BOMB = bytes([17, 8]) + struct.pack("<8I", 0, *([1 << 24] * 7))


def hostile(kind: int, make: Callable[[wire.Message, Callable[[], bytes]], bytes]) -> Fault:
    """A site that answers questions of one kind as it likes."""

    def fault(number: int, question: bytes, answer: Callable[[], bytes]) -> bytes:
        message = wire.read(question, tuple(wire.QUESTIONS))
        return make(message, answer) if message.kind == kind else answer()

    return fault


def priced(**changes: Any) -> Callable[[wire.Message, Callable[[], bytes]], bytes]:
    def make(message: wire.Message, answer: Callable[[], bytes]) -> bytes:
        price = wire.heard(answer(), message.run, message.kind)
        return wire.say(message.run, message.kind, price._replace(**changes))

    return make


REFUSALS: dict[str, tuple[int, Callable[[wire.Message, Callable[[], bytes]], bytes]]] = {
    "refusal": (
        wire.ROUND,
        lambda message, _: wire.write(wire.REFUSED, message.run, bytes([message.kind, 1]) + BOMB),
    ),
    "confirmation": (wire.PART, lambda message, _: wire.say(message.run, message.kind, np.zeros(3))),
    "greeting": (wire.HELLO, lambda message, _: wire.say(message.run, message.kind, np.zeros(3))),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_no_answer_stops_the_others(tmp_path: Path, case: str) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    model, events, _ = run(sites, {"b": hostile(*REFUSALS[case])}, tries=2)
    assert sum("is none" in event for event in events) == 2
    assert "site b is out of the run" in " ".join(events)
    assert model.privacy_.epsilon == pytest.approx(1.0)


def test_any_exception_in_reading_an_answer_is_that_sites_and_tells_its_type_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = federate(make_sites(tmp_path), tries=1, least_sites=1)
    session = Session(federation._transport, federation.sites(), federation.settings, bytes(16))

    def check(name: str, _: bytes) -> int:
        if name == "b":
            raise OverflowError("secret 42")
        return 7

    found = session.gather(session.sites, lambda _: wire.ask(wire.HELLO, wire.NO_RUN, None), check, "it")
    assert found == {"a": 7, "c": 7}
    assert session.dropped == [("b", "it")]
    assert "OverflowError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("body", [BOMB, b"", b"\xff"], ids=["bomb", "empty", "tag"])
def test_no_answer_to_the_end_loses_a_finished_fit(tmp_path: Path, body: bytes) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))

    def ending(message: wire.Message, _: Callable[[], bytes]) -> bytes:
        return wire.write(wire.OK, message.run, bytes([message.kind]) + body)

    model, events, _ = run(sites, {"b": hostile(wire.END, ending)})
    assert events == ["site b did not confirm the end of the run; it still keeps its answers"]
    assert model.coef_ == pytest.approx(logistic(random_state=1).fit(*table()).coef_, rel=1e-9)


def test_a_transport_that_dies_at_the_end_loses_nothing_either(tmp_path: Path) -> None:
    class Dying(InProcess):
        def ask(self, questions: dict[str, bytes], timeout: float) -> dict[str, bytes]:
            if any(wire.read(one, tuple(wire.QUESTIONS)).kind == wire.END for one in questions.values()):
                raise ConnectionError
            return super().ask(questions, timeout)

    model = fit(logistic(random_state=1), Federation(Dying(make_sites(tmp_path))))
    assert model.privacy_ is not None


@pytest.mark.parametrize(
    ("mode", "kind", "change"),
    [
        ("own", wire.OFFER, {"sigmas": (1e200,)}),
        ("own", wire.BEGIN, {"sigmas": (1e12,)}),
        ("own", wire.BEGIN, {"sigmas": (0.0,)}),
        ("own", wire.OFFER, {"delta": 1.0}),
        ("own", wire.OFFER, {"alone_epsilon": None}),
        ("server", wire.OFFER, {"sigmas": (1e200,)}),
        ("server", wire.OFFER, {"sigmas": (1.0,)}),
        ("server", wire.BEGIN, {"epsilon": 1e308, "sum_epsilon": 1e308}),
        ("server", wire.BEGIN, {"delta": 0.5}),
        ("server", wire.BEGIN, {"steps": (3,)}),
        ("server", wire.BEGIN, {"steps": (np.zeros(2),)}),
        ("sites", wire.BEGIN, {"sigmas": (1.0,)}),
    ],
)
def test_a_price_that_the_terms_cannot_have_puts_its_site_out(
    tmp_path: Path, mode: Any, kind: int, change: dict[str, Any]
) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600), epsilon=50.0)
    rules: dict[str, Any] = {"mode": mode, "honest": 2 if mode == "sites" else None, "tries": 1}
    model, events, _ = run(sites, {"b": hostile(kind, priced(**change))}, **rules)
    assert "price is none that the terms can have" in events[0]
    assert list(model.privacy_.federation["sites"]) == ["a", "c"]
    assert 0.9 < model.privacy_.epsilon < 1.001


@pytest.mark.parametrize("said", [1e-9, 3.0, 1e5])
@pytest.mark.parametrize("mode", ["server", "own"])
def test_the_statement_is_accounted_whatever_a_site_says(tmp_path: Path, mode: Any, said: float) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    lying = hostile(wire.BEGIN, priced(epsilon=said, sum_epsilon=said))
    model, _, _ = run(sites, dict.fromkeys("abc", lying), mode=mode)
    assert model.privacy_.epsilon == pytest.approx(1.0, rel=1e-3)


def test_a_plausible_price_counts_where_it_is_more(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    model, _, _ = run(sites, {"b": hostile(wire.BEGIN, priced(epsilon=1.25))})
    assert model.privacy_.epsilon == 1.25


D = 3
FACTORS: dict[str, Any] = {
    "ragged": (0, True, Factor(((1.0,), (1.0, 2.0)), np.eye(D), np.eye(D))),
    "tuple": (0, True, Factor(np.zeros(D), tuple(map(tuple, np.eye(D).tolist())), np.eye(D))),
    "number": (np.zeros(2), True, Factor(np.zeros(D), np.eye(D), np.eye(D))),
    "bool": (False, True, Factor(np.zeros(D), np.eye(D), np.eye(D))),
    "eta": (0, True, Factor(np.full(D, 1.7e308), np.eye(D) * 1e-300, np.eye(D))),
    "weights": (0, True, Factor(np.full(D, 1e12), np.eye(D) * 1e-300, np.eye(D))),
    "precision": (0, True, Factor(np.zeros(D), np.eye(D) * 1e308, np.eye(D))),
    "negative": (0, True, Factor(np.zeros(D), -np.eye(D), np.eye(D))),
    "lopsided": (0, True, Factor(np.zeros(D), np.triu(np.full((D, D), 0.1)) + np.eye(D), np.eye(D))),
    "noise": (0, True, Factor(np.zeros(D), np.eye(D), np.full((D, D), -1e300))),
    "negative-noise": (0, True, Factor(np.zeros(D), np.eye(D), -np.eye(D))),
    "integers": (0, True, Factor(np.zeros(D, np.int64), np.eye(D), np.eye(D))),
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("case", FACTORS)
def test_a_faulty_factor_puts_its_own_site_out(tmp_path: Path, case: str, asynchronous: bool) -> None:
    def answering(message: wire.Message, _: Callable[[], bytes]) -> bytes:
        return wire.say(message.run, message.kind, FACTORS[case])

    sites = make_sites(tmp_path)
    events: list[str] = []
    federation = federate(
        sites, {"b": hostile(wire.LOCAL, answering)}, mode="own", tries=1, on_event=events.append
    )
    model = fit_partitioned(logistic(), federation, rounds=2, local=1, asynchronous=asynchronous)
    assert model.privacy_ is not None
    assert model.privacy_.federation is not None
    assert model.privacy_.federation["dropped"] == [["b", "round 0"]]
    assert len(events) == 2
    assert np.isfinite(model.coef_).all()


def test_a_factor_that_makes_cavities_nearly_singular_is_refused() -> None:
    prior = 1e-4 * np.eye(2)
    factor = Factor(np.zeros(2), np.diag([1e7, 1e-9]), np.eye(2))
    check_factor(factor, prior, 100.0)
    with pytest.raises(WireError, match="nearly singular"):
        check_factor(factor, 1e-9 * np.eye(2), 100.0)


def test_a_large_factor_takes_no_digits_from_the_cavity_without_it() -> None:
    product = Product(np.zeros(1), np.eye(1))
    product.put("a", Factor(np.array([0.1]), np.array([[0.3]]), np.zeros((1, 1))))
    product.put("b", Factor(np.array([1e15]), np.array([[1e15]]), np.zeros((1, 1))))
    mean, precision, _ = product.cavity("b")
    assert precision == pytest.approx(np.array([[1.3]]), rel=1e-15)
    assert mean == pytest.approx(np.array([0.1 / 1.3]), rel=1e-15)


@pytest.mark.parametrize("pattern", ["values-*", "work-*"])
def test_being_told_again_takes_no_try(tmp_path: Path, pattern: str) -> None:
    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    forget = forgetting(tmp_path, pattern)
    model, events, _ = run(sites, {"b": at((ROUND + 2,), forget)}, tries=1, missing="stop")
    assert events
    again = "site b has lost what it was told, and is told again (try 1 of 1)"
    assert [event for event in events if not event.endswith(again)] == []
    assert model.coef_ == pytest.approx(logistic(random_state=1).fit(*table()).coef_, rel=1e-9)


def test_a_site_that_always_says_it_has_lost_it_is_out_after_its_tries(tmp_path: Path) -> None:
    def losing(message: wire.Message, _: Callable[[], bytes]) -> bytes:
        return wire.refuse(message.run, message.kind, wire.UNKNOWN_VALUE, "lost")

    sites = make_sites(tmp_path, cuts=(0, 200, 400, 600))
    model, events, _ = run(sites, {"b": hostile(wire.ROUND, losing)}, tries=2)
    assert sum("told again" in event for event in events) == 4
    assert model.privacy_.federation["dropped"] == [["b", "round 0 of part 0"]]


def test_a_site_that_works_on_its_own_is_told_again_too(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    # 0 HELLO, 1 OFFER, 2 BEGIN, 3 PART, 4 LOCAL.
    faults = {"b": at((4,), forgetting(tmp_path, "work-*"))}
    federation = federate(sites, faults, mode="own", tries=1, missing="stop")
    model = fit_partitioned(logistic(), federation, rounds=2, local=1)
    assert model.privacy_ is not None


def forgetting(folder: Path, pattern: str) -> Fault:
    def fault(_: int, question: bytes, answer: Callable[[], bytes]) -> bytes:
        for path in (folder / "b" / "state" / "runs").glob(f"*/{pattern}"):
            path.unlink()
        return answer()

    return fault


TERMS = Terms("own", 1, "zero-out", 1.0, 1e-5, (PartTerms("full", 1.0, 2, 3.0),), (0,), (), "", None, 100)


@pytest.mark.parametrize(
    "change",
    [
        {"honest": True},
        {"coordinates": True},
        {"local": False},
        {"rounds": (False,)},
        {"epsilon": 1},
        {"parts": (PartTerms("full", 1.0, True, 3.0),)},
        {"parts": (PartTerms("full", 1.0, 2, 1e200),)},
        {"parts": (PartTerms("full", 1.0, 2, 1e-200),)},
        {"parts": (PartTerms(np.zeros(2), 1.0, 2, 3.0),)},  # pyright: ignore[reportArgumentType]
    ],
)
def test_numbers_of_terms_are_integers_and_in_range(change: dict[str, Any]) -> None:
    check_terms(TERMS)
    with pytest.raises(WireError):
        check_terms(TERMS._replace(**change))


def test_what_is_wrong_in_terms_is_named_and_not_repeated() -> None:
    for change, field in (
        ({"honest": True}, "honest"),
        ({"rounds": (1, 0)}, "rounds"),
        ({"classes": ("secret",)}, "classes"),
        ({"parts": (PartTerms("secret", 1.0, 2, 3.0),)}, "sampling"),  # pyright: ignore[reportArgumentType]
        # A text that looks like a place, and is none.
        ({"parts": (PartTerms("$[1]", 1.0, 2, 3.0),)}, "sampling"),  # pyright: ignore[reportArgumentType]
        ({"parts": (PartTerms(" - at `$[99]", 1.0, 2, 3.0),)}, "sampling"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(WireError, match=rf"not of their types: look at {field}\.$") as error:
            check_terms(TERMS._replace(**change))  # pyright: ignore[reportArgumentType]
        assert "secret" not in str(error.value)


def test_numbers_of_prices_and_greetings_are_integers_and_in_range() -> None:
    price = Price(1.0, 1e-5, 1.0, 1.0, (4.0,), (1,), True)
    check_price(price, TERMS)
    for change in (
        {"steps": (True,)},
        {"steps": (2,)},
        {"epsilon": 1e7},
        {"sigmas": (True,)},
        {"delta": 0.0},
    ):
        with pytest.raises(WireError):
            check_price(price._replace(**change), TERMS)  # pyright: ignore[reportArgumentType]
    hello = Hello("a", 10, 2, (), "", ("own",), True)
    check_hello(hello)
    for change in ({"rows": True}, {"features": True}, {"features": 1 << 40}):
        with pytest.raises(WireError):
            check_hello(hello._replace(**change))
