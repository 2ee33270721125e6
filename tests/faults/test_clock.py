"""A clock that jumps: times in a ledger are for people, and nothing else hangs on them."""

import itertools
import math
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dpsep import Ledger
from dpsep.privacy import ledger_rows

from .lives import STEPS, Books, fit, kinds_of, new_ledger

JUMPS = (
    datetime(2026, 3, 1, 12),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59),
    datetime(1969, 12, 31, 23, 59, 59),
    datetime(2038, 1, 19, 3, 14, 8),
    datetime(1970, 1, 1),
    datetime(2262, 4, 12),
)


def test_a_clock_that_jumps_with_every_row_changes_nothing_but_the_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.cycle(JUMPS)

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return next(moments).replace(tzinfo=tz)

    def die(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    books = Books(monkeypatch)
    monkeypatch.setattr(ledger_rows, "datetime", Jumping)
    ledger = new_ledger(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, die)
    model = fit(tmp_path)
    assert model.privacy_.steps == STEPS + 1
    assert kinds_of(ledger) == ["charge", "failed", "extra-step", "finished"]
    rows = ledger.rows()
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    expected = itertools.islice(itertools.cycle(JUMPS), len(rows))
    assert [row.time for row in rows] == [f"{moment.isoformat()}+00:00" for moment in expected]
    books.check(Ledger(tmp_path / "ledger"))


@pytest.mark.parametrize("moment", [math.nan, -1e12, 0.0, 1e18, math.inf])
def test_a_clock_without_sense_stops_no_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    books = Books(monkeypatch)
    ledger = new_ledger(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: moment)
        fit(tmp_path)
    assert kinds_of(ledger) == ["charge", "finished"]
    books.check(ledger)


def test_files_that_lie_in_the_future_or_before_all_time_are_read(tmp_path: Path) -> None:
    ledger = new_ledger(tmp_path)
    model = fit(tmp_path)
    spent = ledger.spent()
    for moment in (-1e9, 0.0, 4e9):
        for path in (tmp_path / "ledger", tmp_path / "run" / "checkpoint.npz"):
            os.utime(path, (moment, moment))
        assert fit(tmp_path).coef_.tolist() == model.coef_.tolist()
        assert ledger.spent() == spent
