"""Shards and processes: the release is the same bit by bit, and one process alone charges and draws noise."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpsep
from dpsep.privacy import hosts

PROGRAM = Path(__file__).with_name("sharded.py")


def runs(shards: int, processes: int = 1, ledger: str = "", epsilons=(1.0, 1.0)) -> list[dict]:
    """What each of the processes found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [
                sys.executable,
                str(PROGRAM),
                *map(str, (shards, number, processes, port, ledger, epsilons[number])),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    try:
        told = [one.communicate(timeout=300) for one in started]
    finally:
        for one in started:
            one.kill()
    for one, (out, err) in zip(started, told, strict=True):
        assert one.returncode == 0, (out, err)
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


@pytest.fixture(scope="module")
def alone() -> dict:
    (found,) = runs(1)
    assert found.pop("devices") == found.pop("processes") == 1
    assert len(set(found.values())) == 3
    return found


@pytest.mark.parametrize("shards", [2, pytest.param(8, marks=pytest.mark.deep)])
def test_shards_change_no_bit_of_a_release(alone, shards):
    (found,) = runs(shards)
    assert found.pop("devices") == shards
    assert found.pop("processes") == 1
    assert found == alone


def test_two_processes_change_no_bit_and_charge_once(alone, tmp_path):
    path = tmp_path / "team.ledger"
    dpsep.Ledger.create(path, epsilon=3.0, delta=1e-4)
    found = runs(1, processes=2, ledger=str(path))
    for one in found:
        assert one.pop("processes") == 2
        one.pop("devices")
    assert found == [alone, alone]
    kinds = [row.kind for row in dpsep.Ledger(path).rows()]
    assert kinds == ["create", *(3 * ["charge", "finished"])]


def test_where_the_leader_is_refused_nobody_reads(tmp_path):
    path = tmp_path / "team.ledger"
    dpsep.Ledger.create(path, epsilon=0.5, delta=1e-4)
    first, second = runs(1, processes=2, ledger=str(path))
    assert first["error"].startswith("OverBudget")
    assert second["error"].startswith("OutOfStep")
    assert "stopped with OverBudget" in second["error"]
    assert "full" not in first | second
    assert [row.kind for row in dpsep.Ledger(path).rows()] == ["create"]


def test_a_program_that_goes_on_after_a_failure_reads_no_table_under_another_fit_s_charge(tmp_path):
    # The first ledger is damaged: the leader raises before the charge, and both programs try the next fit.
    damaged, sound = tmp_path / "damaged.ledger", tmp_path / "sound.ledger"
    damaged.write_bytes(b"no ledger at all")
    dpsep.Ledger.create(sound, epsilon=9.0, delta=1e-4)
    first, second = runs(1, processes=2, ledger=f"{damaged}|{sound}")
    assert "LedgerForeign" in first["errors"][0]
    assert "stopped with LedgerForeign" in second["errors"][0]
    for found in (first, second):
        assert [error.split(":")[0] for error in found["errors"][1:]] == ["OutOfStep"]
        assert "full" not in found
    assert [row.kind for row in dpsep.Ledger(sound).rows()] == ["create"]


def test_processes_with_other_settings_are_seen_before_the_charge(tmp_path):
    path = tmp_path / "team.ledger"
    dpsep.Ledger.create(path, epsilon=9.0, delta=1e-4)
    found = runs(1, processes=2, ledger=str(path), epsilons=(1.0, 2.0))
    for one in found:
        assert "different steps or settings" in one["error"]
    assert [row.kind for row in dpsep.Ledger(path).rows()] == ["create"]


def test_alone_a_process_leads_and_tells_itself(monkeypatch):
    assert hosts.leads()
    assert not hosts.several()
    assert hosts.turn(7)
    assert hosts.tell_text({"run": "a"}) == {"run": "a"}
    with pytest.raises(ZeroDivisionError), hosts.together():
        raise ZeroDivisionError
    monkeypatch.setattr(hosts, "several", lambda: True)
    model = dpsep.LogisticRegression(classes=[0, 1], checkpoint="somewhere")
    with pytest.raises(ValueError, match="several processes"):
        model.fit(np.arange(3.0)[:, None], [0, 1, 0])
