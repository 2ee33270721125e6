"""Permits: what is charged and written down, and that no release is granted beyond it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dpsep.privacy.ledger import Ledger
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.permit import NotCharged, Permit, authorise, authorise_again, describe
from dpsep.privacy.sampling import FullBatch, PoissonSampling

from .gate_help import mechanism, permit_for

SHORT, LONG = (Schedule((mechanism(40, steps=steps, sigma=9.0),)) for steps in (3, 4))
PARTS = [{"sampling": "full batch", "steps": 3, "sigma": 9.0, "records": 40}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "survey.ledger"


def test_a_schedule_is_described_by_its_public_numbers() -> None:
    sampled = Mechanism(PoissonSampling(0.25), "zero-out", 7, 2.5, 40)
    assert describe(Schedule((*SHORT.parts, sampled)), "tune") == {
        "purpose": "tune",
        "accountant": "privacy loss distributions",
        "parts": [
            *PARTS,
            {"sampling": "Poisson sampling at rate 0.25", "steps": 7, "sigma": 2.5, "records": 40},
        ],
    }


def test_a_charge_is_written_with_the_terms_of_the_schedule(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-2, unit="patient")
    replaced = Schedule((dataclasses.replace(SHORT.parts[0], relation="replace-one"),))
    permit = authorise(ledger, replaced, 1e-3, run="named", unit="patient", purpose="scale")
    row = ledger.rows()[-1]
    assert (row.run, row.kind, row.relation, row.unit) == ("named", "charge", "replace-one", "patient")
    assert (row.epsilon, row.delta, row.rdp) == (replaced.epsilon(1e-3), 1e-3, None)
    assert row.event == describe(replaced, "scale")
    assert (permit.run, permit.schedule, permit.delta) == ("named", replaced, 1e-3)
    assert permit.epsilon == row.epsilon
    assert permit.receipt is not None
    assert permit.receipt.hash == row.hash


def test_a_run_without_a_name_gets_one_of_its_own_and_records_and_a_fit_are_what_is_meant(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-2)
    runs = {authorise(ledger, SHORT, 1e-3).run for _ in range(2)}
    assert len(runs) == 2
    assert {row.run for row in ledger.rows()[1:]} == runs
    assert (ledger.rows()[-1].unit, ledger.rows()[-1].event["purpose"]) == ("record", "fit")
    assert authorise(None, SHORT, 1e-3).receipt is None


def test_a_ledger_of_curves_is_charged_the_curve_and_again_the_difference(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-2, rule="rdp")
    run = authorise(ledger, SHORT, 1e-3).run
    assert ledger.rows()[-1].rdp == tuple(SHORT.rdp_curve())
    authorise_again(ledger, run, SHORT, LONG, 1e-3)
    again = ledger.rows()[-1].rdp
    assert again is not None
    np.testing.assert_allclose(again, LONG.rdp_curve() - SHORT.rdp_curve(), rtol=1e-12)


def test_a_release_done_again_is_charged_to_its_run_at_no_delta(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-3, unit="patient")
    authorise(ledger, SHORT, 1e-3, run="named", unit="patient")
    permit = authorise_again(ledger, "named", SHORT, LONG, 1e-3, unit="patient")
    row = ledger.rows()[-1]
    assert (row.run, row.kind, row.relation, row.unit) == ("named", "extra-step", "zero-out", "patient")
    assert (row.delta, row.rdp) == (0.0, None)
    assert row.epsilon == LONG.epsilon(1e-3) - SHORT.epsilon(1e-3)
    assert row.event == describe(LONG, "one release done again")
    assert (permit.run, permit.schedule, permit.epsilon, permit.delta) == (
        "named",
        LONG,
        LONG.epsilon(1e-3),
        1e-3,
    )
    assert permit.receipt is not None
    assert permit.receipt.hash == row.hash


def test_nothing_is_charged_again_where_nothing_is_done_again_and_never_less_than_nothing(path: Path) -> None:
    ledger = Ledger.create(path, epsilon=3.0, delta=1e-2)
    run = authorise(ledger, LONG, 1e-3).run
    assert authorise_again(ledger, run, LONG, LONG, 1e-3).receipt is None
    assert authorise_again(None, run, SHORT, LONG, 1e-3).receipt is None
    assert len(ledger.rows()) == 2
    authorise_again(ledger, run, LONG, SHORT, 1e-3)
    assert ledger.rows()[-1].epsilon == 0.0


def test_a_mechanism_that_was_not_charged_gets_no_ticket_and_no_release() -> None:
    part, other = mechanism(40, steps=2), mechanism(40, steps=2, sampling=PoissonSampling(0.5))
    permit = permit_for(part)
    for call in (lambda: permit.claim(other), lambda: permit.count(other, 0)):
        with pytest.raises(NotCharged, match="not in the schedule"):
            call()
    ticket = permit.claim(part)
    with pytest.raises(NotCharged, match="newer gate"):
        permit.take(other, ticket)
    assert (permit.made(part), permit.made(other)) == (0, 0)


def test_tickets_count_up_and_only_the_newest_is_granted_what_was_charged() -> None:
    part = mechanism(40, steps=2)
    permit = permit_for(part)
    with pytest.raises(NotCharged, match="newer gate"):
        permit.take(part, 0)
    first, second = permit.claim(part), permit.claim(part)
    assert second == first + 1
    for ticket in (first, second + 1):
        with pytest.raises(NotCharged, match="newer gate"):
            permit.take(part, ticket)
    permit.take(part, second)
    permit.count(part, 0)
    assert permit.made(part) == 1
    with pytest.raises(NotCharged, match="all 2 releases"):
        permit.count(part, 2)
    with pytest.raises(NotCharged):
        permit.count(part, -1)
    permit.take(part, second)
    with pytest.raises(NotCharged, match="all 2 releases"):
        permit.take(part, second)
    assert permit.made(part) == 2


def test_parts_of_a_schedule_are_granted_by_their_own_number() -> None:
    one, other = mechanism(40, steps=2), mechanism(40, steps=3, sigma=5.0)
    permit = permit_for(one, other, one)
    permit.count(one, 4)
    with pytest.raises(NotCharged, match="all 4 releases"):
        permit.count(one, 1)
    permit.count(other, 3)
    with pytest.raises(NotCharged, match="all 3 releases"):
        permit.count(other, 1)


def test_a_permit_shows_what_was_charged_and_not_its_count() -> None:
    permit = permit_for(mechanism(40, sampling=FullBatch()))
    for name in ("_made", "_tickets", "_lock", "_process"):
        assert name not in repr(permit)
        with pytest.raises(TypeError, match=name):
            Permit("r", SHORT, 1.0, 1e-3, None, None, **{name: {}})
    with pytest.raises(dataclasses.FrozenInstanceError):
        permit.epsilon = 0.0  # pyright: ignore[reportAttributeAccessIssue]
    assert len({permit, permit, dataclasses.replace(permit)}) == 2  # two permits are two, whatever they say
