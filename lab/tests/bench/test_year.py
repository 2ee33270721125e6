"""The benchmark of a private network on a table of Year's shape, in small."""

import pytest

from dpsep_lab.bench import year


@pytest.mark.deep
def test_a_private_fit_is_timed_and_its_memory_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(year, "QUICK_SHAPE", (1500, 4))
    monkeypatch.setattr(year, "QUICK_HIDDEN", 3)
    rows = {row["metric"]: row for row in year.year(quick=True)}
    assert set(rows) == {"time", "time a release", "RMSE over noise", "peak memory"}
    assert rows["time"]["value"] > rows["time a release"]["value"] > 0
    assert 0 < rows["peak memory"]["value"] < 8
    assert rows["time"]["epsilon"] <= 1.0
    assert rows["time"]["steps"] == year.QUICK_STEPS


def test_the_made_table_has_the_shape_asked_for_beside_its_test_part() -> None:
    x, y = year.made(900, 5)
    held = len(y) // 10
    assert x.shape == (len(y), 5)
    assert len(y) - held >= 900
