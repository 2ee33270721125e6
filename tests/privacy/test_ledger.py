import copy
import math
import os
import pickle
import threading
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.privacy import ledger_rows
from dpsep.privacy.ledger import (
    Ledger,
    LedgerError,
    NewLedgerWarning,
    OverBudget,
    Spent,
    as_ledger,
)

from .ledger_help import EVENT, Place, charge, contents, is_there, run_script


def test_a_new_ledger_fixes_its_terms_and_an_old_one_tells_them(place: Place) -> None:
    Ledger.create(place, epsilon=2.0, delta=1e-5, relation="replace-one", unit="patient")
    ledger = Ledger(str(place))
    assert (ledger.epsilon, ledger.delta, ledger.relation) == (2.0, 1e-5, "replace-one")
    assert (ledger.unit, ledger.rule) == ("patient", "sum")
    assert Ledger(place, epsilon=2.0, delta=1e-5).id == ledger.id
    assert ledger.spent() == Spent(0.0, 0.0)
    assert ledger.remaining() == Spent(2.0, 1e-5)
    first = ledger.rows()[0]
    assert (first.number, first.kind, first.epsilon, first.delta) == (1, "create", 2.0, 1e-5)


def test_a_ledger_is_made_once_and_opened_from_then_on(place: Place) -> None:
    with pytest.raises(LedgerError, match=r"no ledger at .*Ledger\.create"):
        Ledger.open(place)
    made = Ledger.create(place, epsilon=2.0, delta=1e-5, rule="rdp")
    assert Ledger.open(place, timeout=5.0).id == made.id
    with pytest.raises(LedgerError, match=r"exists already.*Ledger\.open"):
        Ledger.create(place, epsilon=2.0, delta=1e-5)
    assert Ledger.open(place).rule == "rdp"


def test_a_new_budget_in_another_folder_is_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that named study.db had an empty budget of its own in every folder it was started in."""
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    charge(Ledger.create("study.db", epsilon=3.0, delta=0.0))
    assert Ledger("study.db", epsilon=3.0, delta=0.0).remaining().epsilon == 2.0
    monkeypatch.chdir(tmp_path / "second")
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger("study.db", epsilon=3.0, delta=0.0, strict=True)
    assert list((tmp_path / "second").iterdir()) == []
    with pytest.warns(NewLedgerWarning, match=r"second.study\.db.*A new, empty one was made"):
        Ledger("study.db", epsilon=3.0, delta=0.0)


@pytest.mark.parametrize(
    ("name", "value", "fixed"),
    [
        ("epsilon", 3.0, "2.0"),
        ("delta", 1e-6, "1e-05"),
        ("relation", "replace-one", "zero-out"),
        ("unit", "group", "record"),
        ("rule", "rdp", "sum"),
    ],
)
def test_other_terms_than_the_fixed_ones_are_refused_naming_both(
    place: Place, name: str, value: Any, fixed: str
) -> None:
    Ledger.create(place, epsilon=2.0, delta=1e-5)
    with pytest.raises(LedgerError, match=name) as caught:
        Ledger(place, **{name: value})
    assert fixed in str(caught.value)
    assert str(value) in str(caught.value)


def test_a_missing_ledger_is_made_only_on_request(place: Place) -> None:
    attempts: tuple[dict[str, Any], ...] = (
        {},
        {"epsilon": 1.0},
        {"delta": 0.0},
        {"epsilon": 1.0, "delta": 0.0, "create": False},
    )
    for attempt in attempts:
        with pytest.raises(LedgerError, match="no ledger at"):
            Ledger(place, **attempt)
    assert not is_there(place)


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": True},
        {"epsilon": "1"},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"relation": "add-remove"},
        {"rule": "pld"},
        {"rule": "rdp", "delta": 0.0},
    ],
)
def test_terms_that_say_nothing_are_refused_and_leave_no_file(place: Place, terms: dict[str, Any]) -> None:
    chosen: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5} | terms
    with pytest.raises(LedgerError):
        Ledger(place, **chosen)
    assert not is_there(place)


def test_none_paths_and_ledgers_become_ledgers(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=1.0, delta=0.0)
    assert as_ledger(None) is None
    assert as_ledger(ledger) is ledger
    opened = as_ledger(str(place))
    assert opened is not None
    assert opened.id == ledger.id


def test_other_urls_are_refused_without_repeating_a_password() -> None:
    for url in (
        "mysql://user:secret@host/db",
        "sqlite:///secret.db",
        "postgres://user:secret@host/db",
        Path("postgresql://user:secret@host/db"),
    ):
        with pytest.raises(
            LedgerError, match="URL is not supported: give a file's path, or as text"
        ) as caught:
            Ledger.create(url, epsilon=1.0, delta=0.0)
        assert "secret" not in str(caught.value)


def test_odd_names_of_files_work(tmp_path: Path) -> None:
    for name in ("with space", "percent%20?mode=memory#x", ":memory:", "ünï"):
        charge(Ledger.create(tmp_path / name, epsilon=1.0, delta=0.0))
        assert (tmp_path / name).is_file()
        assert Ledger(tmp_path / name).spent().epsilon == 1.0


def test_a_ledger_can_be_copied_and_pickled(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=2.0, delta=0.0)
    charge(copy.deepcopy(ledger))
    charge(pickle.loads(pickle.dumps(ledger)))
    assert ledger.spent().epsilon == 2.0


def test_charges_fill_the_budget_exactly_and_not_more(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=3e-6)
    for run in "abc":
        charge(ledger, 1.0, 1e-6, run)
    assert ledger.spent() == Spent(3.0, 3e-6)
    assert ledger.remaining() == Spent(0.0, 0.0)
    before = contents(place)
    with pytest.raises(OverBudget, match="allows epsilon 3 "):
        charge(ledger, 1e-300, 0.0)
    with pytest.raises(OverBudget):
        charge(ledger, 0.0, 5e-324)
    assert contents(place) == before


def test_amounts_are_the_decimals_that_people_write(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=1.0, delta=1e-5)
    for _ in range(10):  # as binary doubles ten times 0.1 is more than 1
        charge(ledger, 0.1, 1e-6)
    assert ledger.remaining() == Spent(0.0, 0.0)


def test_what_remains_can_be_charged_whole(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=1.0, delta=1e-5)
    charge(ledger, 0.1234567890123457, 1.23456789e-7)
    charge(ledger, 1e-17, 3e-23)
    left = ledger.remaining()
    charge(ledger, left.epsilon, left.delta)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-15)


@settings(max_examples=25, deadline=None)
@given(
    budget=st.decimals("0.1", "5", places=2),
    charges=st.lists(
        st.tuples(
            st.decimals("0", "2", places=3), st.integers(0, 40), st.sampled_from(["charge", "extra-step"])
        ),
        max_size=10,
    ),
)
def test_charges_follow_a_simple_model(
    tmp_path_factory: pytest.TempPathFactory, budget: Any, charges: list[tuple[Any, int, Any]]
) -> None:
    ledger = Ledger.create(tmp_path_factory.mktemp("model") / "l", epsilon=float(budget), delta=1e-4)
    epsilon, micro = Fraction(0), 0
    rows = 1
    for number, (amount, millionths, kind) in enumerate(charges):
        fits = epsilon + Fraction(amount) <= Fraction(budget) and micro + millionths <= 100
        if fits:
            receipt = charge(ledger, float(amount), float(f"{millionths}e-6"), f"r{number}", kind=kind)
            epsilon, micro, rows = epsilon + Fraction(amount), micro + millionths, rows + 1
            assert receipt.number == rows
        else:
            with pytest.raises(OverBudget):
                charge(ledger, float(amount), float(f"{millionths}e-6"), f"r{number}", kind=kind)
    assert Ledger(ledger.path).verify() == rows
    assert Fraction(str(ledger.spent().epsilon)) == epsilon
    assert ledger.spent().delta == float(f"{micro}e-6")


def test_a_row_says_what_happened(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    receipt = charge(
        ledger, 0.5, 1e-6, "run-1", event=EVENT | {"records": np.int64(7), "sigma": np.float32(2)}
    )
    ledger.finish("run-1", "failed")
    charge(ledger, 0.25, 0.0, "run-1", kind="extra-step", relation="replace-one", rdp=(0.5, math.inf))
    ledger.finish("run-1", "finished")
    rows = ledger.rows()
    assert [row.kind for row in rows] == ["create", "charge", "failed", "extra-step", "finished"]
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    assert rows[1].event == EVENT | {"records": 7, "sigma": 2.0}
    assert (rows[1].run, rows[1].relation, rows[1].unit, rows[1].rdp) == ("run-1", "zero-out", "record", None)
    assert (rows[3].relation, rows[3].rdp) == ("replace-one", (0.5, math.inf))
    assert receipt.hash == rows[1].hash == rows[2].previous
    assert (receipt.ledger, receipt.number, receipt.run, receipt.epsilon) == (ledger.id, 2, "run-1", 0.5)
    assert ledger.spent() == Spent(0.75, 1e-6)  # a failed run has spent what it was charged


def test_the_end_of_a_run_needs_its_charge(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    with pytest.raises(LedgerError, match="no charge of run 'other'"):
        ledger.finish("other", "finished")
    charge(ledger)
    with pytest.raises(LedgerError, match="'finished' or 'failed'"):
        ledger.finish("r", "done")  # pyright: ignore[reportArgumentType]


def test_replace_one_enters_a_zero_out_ledger_and_never_the_reverse(tmp_path: Path) -> None:
    charge(Ledger.create(tmp_path / "zero", epsilon=1.0, delta=0.0), relation="replace-one")
    strict = Ledger.create(tmp_path / "replace", epsilon=1.0, delta=0.0, relation="replace-one")
    with pytest.raises(LedgerError, match="never the reverse"):
        charge(strict, relation="zero-out")
    charge(strict, relation="replace-one")


@pytest.mark.parametrize(
    "more",
    [
        {"unit": "group"},
        {"relation": "add-remove"},
        {"kind": "refund"},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"delta": math.inf},
        {"run": ""},
        {"event": {"x": math.nan}},
        {"event": {"x": np.zeros(3)}},
        {"event": [1]},
        {"event": {"x": "a" * 100_000}},
        {"rdp": (-1.0,)},
    ],
)
def test_a_charge_that_does_not_suit_is_refused_and_nothing_is_written(
    place: Place, more: dict[str, Any]
) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=1e-5)
    before = contents(place)
    with pytest.raises(LedgerError):
        charge(ledger, **more)
    assert contents(place) == before


def test_a_clock_that_jumps_back_does_not_matter(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Past(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(1971, 1, 1, tzinfo=tz)

    ledger = Ledger.create(place, epsilon=3.0, delta=0.0)
    charge(ledger)
    monkeypatch.setattr(ledger_rows, "datetime", Past)
    charge(ledger)
    assert ledger.rows()[2].time == "1971-01-01T00:00:00+00:00"
    assert Ledger(place).verify() == 3


TOGETHER = """
import os, sys
from dpsep.privacy.ledger import Ledger, OverBudget
path, start = sys.argv[1], os.pipe()
children = []
for process in range(4):
    child = os.fork()
    children.append(child)
    if not child:
        os.close(start[1])
        os.read(start[0], 1)  # all begin at once, with the creation of the file
        ledger = Ledger(path, epsilon=18.0, delta=1e-3)
        taken = 0
        for number in range(50):
            try:
                ledger.charge(f"{process}-{number}", epsilon=0.1, delta=1e-6, relation="zero-out", event={})
                taken += 1
            except OverBudget:
                pass
        os._exit(taken)
os.close(start[1])
print(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_four_processes_lose_no_charge_and_never_go_over_budget(place: Place) -> None:
    assert int(run_script(TOGETHER, place)) == 180
    ledger = Ledger(place)
    assert ledger.verify() == 181
    assert ledger.spent() == Spent(18.0, 1.8e-4)
    assert len({row.run for row in ledger.rows()}) == 181
    if isinstance(place, Path):
        assert [name.name for name in place.parent.iterdir()] == [place.name]


def test_threads_lose_no_charge_and_never_go_over_budget(place: Place) -> None:
    ledger = Ledger.create(place, epsilon=3.0, delta=0.0)
    refused: list[int] = []

    def work() -> None:
        for _ in range(10):
            try:
                charge(ledger, 0.1)
            except OverBudget:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 10
    assert ledger.spent().epsilon == 3.0


FORKED = """
import os, sys, threading
from dpsep.privacy.ledger import Ledger
ledger = Ledger.create(sys.argv[1], epsilon=1000.0, delta=0.0)
charge = lambda run: ledger.charge(run, epsilon=1.0, delta=0.0, relation="zero-out", event={})
threads = [threading.Thread(target=lambda: [charge("thread") for _ in range(20)]) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(10):  # each fork falls somewhere into the threads' charges
    child = os.fork()
    if not child:
        charge("child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
for thread in threads:
    thread.join()
assert ledger.spent().epsilon == 50.0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_a_fork_in_the_middle_of_other_threads_charges_is_safe(place: Place) -> None:
    run_script(FORKED, place)


KILLED = """
import os, random, signal, sys, time
from dpsep.privacy.ledger import Ledger
ledger, draw = Ledger.create(sys.argv[1], epsilon=1e6, delta=0.0), random.Random(11)
confirmed = 0
for trial in range(20):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for number in range(10**6):
            ledger.charge(f"{trial}-{number}", epsilon=1.0, delta=0.0, relation="zero-out", event={})
            os.write(write, b"x")
            sum(range(draw.randrange(20000)))
    os.close(write)
    for _ in range(draw.randrange(4)):
        confirmed += len(os.read(read, 1))
    time.sleep(draw.uniform(0.0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    confirmed += len(open(read, "rb").read())
    # Waits for the child's last transaction, which a server may still be ending.
    ledger.charge("parent", epsilon=0.0, delta=0.0, relation="zero-out", event={})
    spent = Ledger(sys.argv[1]).spent().epsilon
    # A charge may be on the disk without the child having lived to say so, at most one a kill.
    assert confirmed <= spent <= confirmed + trial + 1, (trial, confirmed, spent)
    assert ledger.verify() == spent + 1 + (trial + 1)
print(confirmed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_a_killed_process_never_loses_a_confirmed_charge(place: Place) -> None:
    assert int(run_script(KILLED, place)) > 0
