"""A run of fits that is stopped goes on where it was."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsep
from dpsep_lab.paper.fits import Job, Store, run
from dpsep_lab.paper.networks import Case, Refused, Scores, Split, split_of


def load(dataset: str, number: int) -> Split:
    X, y = np.ones((4, 1)), np.arange(4.0)
    return split_of(dataset, number, (X, y), (X, y))


class Counted:
    """Fits that can be stopped after some number of them."""

    def __init__(self, allowed: int = 1000) -> None:
        self.done: list[tuple[str, str, int]] = []
        self.allowed = allowed

    def case(self, name: str, **settings: Any) -> Case:
        def fit(split: Split) -> Scores:
            if len(self.done) == self.allowed:
                raise KeyboardInterrupt
            self.done.append((name, split.dataset, split.number))
            return Scores(len(name), -float(split.number), 0.5)

        return Case(name, "ours", name, None, "none", "public", {"name": name, **settings}, fit)


def jobs(counted: Counted, **settings: Any) -> list[Job]:
    cases = [counted.case("a", **settings), counted.case("bb", **settings)]
    return [Job(case, name, split) for name in ("power", "wine") for split in range(2) for case in cases]


@pytest.mark.parametrize("stop", [0, 3, 7])
def test_a_run_that_is_stopped_does_only_the_rest_when_it_is_started_again(tmp_path: Path, stop: int) -> None:
    first, second = Counted(stop), Counted()
    with pytest.raises(KeyboardInterrupt):
        run(jobs(first), Store(tmp_path), load)
    assert len(list(tmp_path.glob("*.json"))) == stop
    found = run(jobs(second), Store(tmp_path), load)
    assert len(first.done) == stop
    assert first.done + second.done == [(job.case.row, job.dataset, job.split) for job in jobs(second)]
    assert found == [Scores(len(job.case.row), -float(job.split), 0.5) for job in jobs(second)]
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".json"]  # no temporary file stays


def test_other_settings_and_another_version_are_other_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(jobs(Counted()), Store(tmp_path), load)
    other, newer = Counted(), Counted()
    run(jobs(other, clip=2.0), Store(tmp_path), load)
    monkeypatch.setattr(dpsep, "__version__", "999")
    run(jobs(newer), Store(tmp_path), load)
    assert len(other.done) == len(newer.done) == 8
    assert len(list(tmp_path.glob("*.json"))) == 24


def test_a_broken_or_foreign_file_is_not_believed(tmp_path: Path) -> None:
    run(jobs(Counted()), Store(tmp_path), load)
    paths = sorted(tmp_path.glob("*.json"))
    paths[0].write_text(paths[0].read_text()[:40])
    foreign = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps(foreign | {"split": 17}))
    again = Counted()
    run(jobs(again), Store(tmp_path), load)
    assert len(again.done) == 2


def test_scores_that_are_not_finite_are_kept_as_json_and_not_done_again(tmp_path: Path) -> None:
    case = Counted().case("diverges")._replace(fit=lambda _: Scores(math.inf, math.nan, 1.0))
    run([Job(case, "wine", 0)], Store(tmp_path), load)
    (path,) = tmp_path.glob("*.json")
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    again = Counted()
    (found,) = run([Job(again.case("diverges"), "wine", 0)], Store(tmp_path), load)
    assert not again.done
    assert isinstance(found, Scores)
    assert not math.isfinite(found.rmse)


def test_a_refusal_is_a_reason_and_the_others_go_on(tmp_path: Path) -> None:
    def refuse(_: Split) -> Scores:
        raise Refused("too large")

    counted = Counted()
    case = counted.case("refused")._replace(fit=refuse)
    calls: list[tuple[int, int]] = []
    todo = [Job(case, "wine", 0), Job(counted.case("a"), "wine", 0)]
    found = run(todo, Store(tmp_path), load, lambda done, total: calls.append((done, total)))
    assert found == ["too large", Scores(1.0, 0.0, 0.5)]
    assert calls == [(1, 2), (2, 2)]
    assert len(list(tmp_path.glob("*.json"))) == 1  # tried again next time


def test_a_split_is_loaded_once_for_all_its_fits_and_not_at_all_when_they_are_done(tmp_path: Path) -> None:
    loads: list[tuple[str, int]] = []

    def counting(dataset: str, number: int) -> Split:
        loads.append((dataset, number))
        return load(dataset, number)

    run(jobs(Counted()), Store(tmp_path), counting)
    assert loads == [("power", 0), ("power", 1), ("wine", 0), ("wine", 1)]
    run(jobs(Counted(0)), Store(tmp_path), counting)
    assert len(loads) == 4


def test_without_a_folder_fits_are_shared_within_the_store() -> None:
    store, first, second = Store(), Counted(), Counted(0)
    run(jobs(first), store, load)
    run(jobs(second), store, load)
    assert (len(first.done), len(second.done)) == (8, 0)
