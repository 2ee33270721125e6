"""The speed benchmark takes turns, counts what it says, and loses no part to another's failure."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep_lab.bench import (
    speed,
    speed_child,
    speed_floor,
    speed_growth,
    speed_ours,
    speed_peers,
    speed_rates,
    speed_shares,
    speed_startup,
)
from dpsep_lab.bench.speed_ours import SteppedFit
from dpsep_lab.bench.speed_peers import Way


class Fit:
    """An estimator that makes so many releases, and notes how far it came."""

    def __init__(self, steps: int, error: Exception | None = None) -> None:
        self.steps, self.error, self.made = steps, error, 0

    def fit(self, x: Any, y: Any, on_step: Callable[[int, int], None]) -> None:
        del x, y
        for number in range(self.steps):
            if self.error is not None and number == 3:
                raise self.error
            self.made += 1
            on_step(self.made, self.steps)


NOTHING = np.zeros(0)


def test_a_fit_goes_as_far_as_it_is_let():
    model = Fit(10)
    fit = SteppedFit(model, NOTHING, NOTHING)
    assert model.made == 0
    fit.advance(3)
    assert model.made == 3
    fit.advance(4)
    assert model.made == 7
    fit.close()
    assert model.made <= 8  # it stops at its next release


def test_a_fit_that_ends_or_breaks_is_no_measurement():
    fit = SteppedFit(Fit(5), NOTHING, NOTHING)
    with pytest.raises(RuntimeError, match="2 releases early"):
        fit.advance(7)
    broken = SteppedFit(Fit(5, KeyError("broken on purpose")), NOTHING, NOTHING)
    with pytest.raises(KeyError, match="on purpose"):
        broken.advance(5)


def test_operations_of_a_small_network_are_those_counted_by_hand():
    found = speed_floor.count((2, 3, 1), "filtering", 32)
    # Layer one: n = 3, k = 9; layer two: n = 4, k = 4.
    first = 2 * 9 + 3 + 3 * (14 + 32) + 9 * 7
    second = 3 * 4 + 2 * 4 + 3 * 4 + 20 * 3 + 4 * 9
    assert found == (40 + first + second, 5 + 3, 3, 3, 4 * 3)
    gradient = speed_floor.count((2, 3, 1), "gradient", 64)
    assert gradient.slots == 40 + (2 * 9 + 3 + 3) + (3 * 4 + 4 + 1)
    assert gradient.bytes == 8 * 3


def test_more_work_has_a_higher_floor():
    rates = speed_floor.Rates(1e10, 1e9, 1e9, 1e9, 1e10)

    def floor(kind: speed_floor.Kind, digits: int = 32) -> float:
        return speed_floor.seconds(speed_floor.count((8, 50, 1), kind, digits), rates)

    assert floor("gradient") < floor("filtering") < floor("sequential") < floor("sequential clipped")
    assert floor("batch", 64) > floor("batch")
    slow_memory = rates._replace(bytes=1.0)
    assert speed_floor.seconds(speed_floor.count((8, 50, 1), "batch", 32), slow_memory) == 36.0


def test_the_machine_s_rates_are_measured():
    found = speed_floor.measure(32, repeats=2)
    assert min(found) > 1e6
    assert speed_floor.best(found, found._replace(bytes=2 * found.bytes)).bytes == 2 * found.bytes


def _busy(seconds: float) -> Callable[[], None]:
    def action() -> None:
        start = time.process_time()
        while time.process_time() - start < seconds:
            pass

    return action


def test_everyone_is_timed_in_turn_and_compared_with_opacus(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    def noted(who: str, seconds: float) -> Callable[[], None]:
        def action() -> None:
            calls.append(who)
            _busy(seconds)()

        return action

    ways = {
        (speed_rates.OPACUS, 32): Way(noted("peer", 0.004), 100.0),
        (speed_ours.SEQUENTIAL, 64): Way(noted("ours", 0.002), 100.0, digits=64),
    }
    closed: list[bool] = []
    monkeypatch.setattr(speed_rates, "everyone", lambda *_, **__: (ways, lambda: closed.append(True)))
    monkeypatch.setattr(speed_peers, "missing", lambda who: "torch" if "Poisson" in who else None)
    peaks = speed_floor.Rates(1e10, 1e9, 1e9, 1e9, 1e10)
    monkeypatch.setattr(speed_floor, "measure", lambda _: peaks)
    rows = speed_rates.measure(1, repeats=2, shape=(10, 2), hidden=3)
    assert calls == ["peer", "ours"] * 3
    assert closed == [True]
    speeds = {row["who"]: row for row in rows if row["metric"] == "speed"}
    peer, ours = speeds[speed_rates.OPACUS], speeds[speed_ours.SEQUENTIAL]
    assert peer["ratio"] is None
    assert peer["hips"] == pytest.approx(1.9)
    assert ours["ratio"] == pytest.approx(ours["value"] / peer["value"])
    assert ours["hips"] == pytest.approx(1.9 * ours["ratio"])
    assert ours["over_floor"] == pytest.approx(ours["floor"] / ours["value"])
    assert ours["n"] == 2
    (lost,) = [row for row in rows if row["metric"] == "skipped"]
    assert "torch is not installed" in lost["note"]


def test_a_pass_in_batches_counts_whole_batches():
    x, y = speed_ours.table((130, 2))
    way = speed_ours.batch_way(x, y, hidden=(3,), batch=40, digits=64)
    assert way.records == 120
    assert int(way.action().step) == 3


def test_the_jax_form_is_chosen_within_and_not_after():
    from dpsep.inference import compiled, fast_sep

    before = compiled.available, fast_sep.available
    with speed_ours.jax_form():
        assert not compiled.available()
        assert not fast_sep.available()
    assert (compiled.available, fast_sep.available) == before


def test_the_last_chunk_of_a_fit_is_kept_and_the_gate_is_left_as_it_was():
    from dpsep import LinearRegression
    from dpsep.privacy.gate import Gate
    from dpsep.privacy.isolation import Program

    x, y = speed_ours.table((64, 2))
    release, rows = Gate.release, Program.__call__
    model = LinearRegression(1.0, 1e-3, bounds=(-5, 5), target_bounds=(-5, 5), steps=2)
    chunk = speed_shares.last_chunk(lambda: model.fit(x, y))
    assert len(chunk) == 3
    assert Gate.release is release
    assert Program.__call__ is rows
    found = speed_shares._within_a_chunk({"chunk": chunk}, repeats=1)
    assert set(found) == {"factors", "clip and grid", "check and sum"}
    assert min(found.values()) >= 0


def test_growth_counts_every_record_of_a_table_made_in_chunks(monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []

    class Reader:
        def __init__(self, records: Any, capacity: int) -> None:
            del capacity
            self.held = len(records[0])

        def sums(self, contribution: Any, blocks: Any, public: Any, rows: Any) -> None:
            del contribution, blocks, public
            seen.append(len(rows))
            assert len(rows) == 0 or max(rows) < self.held

    monkeypatch.setattr(speed_growth, "Reader", Reader)
    monkeypatch.setattr(speed_growth, "_asked", lambda *_: (None, (), None))
    monkeypatch.setattr(speed_growth, "capacity_of", lambda _: 8)
    sizes = speed_growth.Sizes(records=(10, 35), held=10, repeats=1)
    rows = speed_growth.by_records("case", sizes)
    assert [(row["who"], row["size"]) for row in rows] == [
        (who, size) for size in (10, 35) for who in ("full release", "sampled release")
    ]
    assert seen.count(10) >= 2 + 2 * 4  # twice one chunk, twice four


def test_a_stage_runs_on_the_cores_it_is_given_and_says_why_it_failed():
    code = (
        "import os\nfrom dpsep_lab.bench.speed_child import pin\npin(1)\nprint(len(os.sched_getaffinity(0)))"
    )
    if hasattr(os, "sched_setaffinity"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"
    assert speed_child.environment(2)["OMP_NUM_THREADS"] == "2"
    with pytest.raises(RuntimeError, match="'nothing' on 1 cores failed: KeyError"):
        speed_child.ask("nothing", 1)


def test_a_part_that_breaks_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, int]] = []

    def ask(stage: str, cores: int, **_: Any) -> list[dict[str, Any]]:
        asked.append((stage, cores))
        if stage == "shares":
            raise RuntimeError("broken on purpose")
        return [{"case": stage, "metric": "speed"}]

    monkeypatch.setattr(speed, "ask", ask)
    monkeypatch.setattr(speed, "available", lambda: 2)
    monkeypatch.setattr(speed_startup, "measure", lambda **_: [{"case": "startup", "metric": "seconds"}])
    rows = speed.speed(quick=False)
    assert asked == [
        *(("rates", 1), ("shares", 1), ("fits", 1), ("fits", 2), ("growth", 1)),
        *(("fits", 2), ("reached", 1), ("rates", 2)),
    ]
    (lost,) = [row for row in rows if row["metric"] == "failed"]
    assert lost["note"] == "RuntimeError: broken on purpose"
    assert {"startup", "reached", "growth"} <= {row["case"] for row in rows}


def test_parts_that_are_kept_are_not_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    runs: list[str] = []

    def measured(name: str) -> list[dict[str, Any]]:
        runs.append(name)
        if name == "bad" and runs.count("bad") == 1:
            raise RuntimeError("broken on purpose")
        return [{"case": name, "metric": "speed", "value": 1.0}]

    plan = {name: (lambda name=name: measured(name)) for name in ("good", "bad")}
    monkeypatch.setattr(speed, "parts", lambda _: plan)
    monkeypatch.setattr(speed, "machine", lambda: [])
    first, second = (speed.speed(True, tmp_path) for _ in range(2))
    assert runs == ["good", "bad", "bad"]
    assert [row["metric"] for row in first] == ["speed", "failed"]
    assert [row["case"] for row in second] == ["good", "bad"]


def test_the_start_of_fresh_processes_is_timed(monkeypatch: pytest.MonkeyPatch):
    assert {"import dpsep", "dpsep --help", "dpsep --version"} <= set(speed_startup.commands())
    only = {"python alone": [sys.executable, "-c", "pass"]}
    monkeypatch.setattr(speed_startup, "commands", lambda: only)
    (row,) = speed_startup.measure(repeats=1)
    assert 0 < row["value"] < 60
    assert row["cpu"] > -1e-9  # a difference of clocks


def test_a_peer_s_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(speed_peers, "find_spec", lambda name: None if name == "opacus" else object())
    assert speed_peers.missing("Opacus, index batches") == "opacus"
    assert speed_peers.missing("jax_privacy, DP-SGD") is None


def test_peers_that_are_installed_make_a_pass():
    x, y = speed_ours.table((60, 2))
    ways = speed_peers.peers(x, y, hidden=3, batch=20, threads=1)
    assert set(ways) == {who for who in speed_peers.NEEDED if speed_peers.missing(who) is None}
    for way in ways.values():
        way.action()
        assert way.records == 60
