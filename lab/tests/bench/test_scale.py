"""The benchmarks of scale and growth, in small."""

import numpy as np
import pytest

from dpsep_lab.bench import growth, scale


def test_a_batch_of_any_table_is_timed_against_a_million_records():
    rows = scale.sampling(quick=True)
    assert [row["ratio_to"] for row in rows] == ["N = 1e+06"] * 3
    assert all(row["value"] > 0 for row in rows)


def test_tables_on_a_disk_are_compared_with_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scale, "QUICK_RECORDS", 3000)
    rows = {row["who"]: row for row in scale.tables(quick=True)}
    assert set(rows) == {"memory", "parquet", "npy"}
    assert rows["parquet"]["ratio"] == pytest.approx(rows["parquet"]["value"] / rows["memory"]["value"])


@pytest.mark.deep
def test_a_release_on_two_devices_and_in_two_processes_is_the_same_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scale, "QUICK_RECORDS", 5000)
    rows = scale.shards(quick=True)
    assert [row["note"] for row in rows] == ["bit-identical release"] * 3
    found = iter([{"records a second": 1.0, "release": name} for name in "aba"])
    monkeypatch.setattr(scale, "_processes", lambda *_: next(found))
    assert scale.shards(quick=True)[1]["note"] == "ANOTHER RELEASE"


@pytest.mark.deep
def test_the_cost_model_says_what_is_carried_and_messages_stay_within_twice_the_natural_parameters(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(growth, "QUICK_SIZES", ((256, 2), (256, 5), (512, 2), (512, 5)))
    rows = growth.growth(quick=True)
    carried = [row for row in rows if row["metric"] == "seconds, carried"]
    assert [row["note"] for row in carried] == ["not run"] * 3
    ratios = [row["ratio"] for row in rows if row["metric"] == "bytes both ways"]
    assert np.all(np.array(ratios) <= 2.0)
