"""The benchmark of the noise, in small."""

import pytest

from dpsep_lab.bench import noise


def test_draws_are_compared_with_numpy_s_and_their_share_of_a_step_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(noise, "QUICK_SIZES", (10, 1000))
    monkeypatch.setattr(noise, "QUICK_DRAWS", 5000)
    rows = noise.noise(quick=True)
    rates = {(row["case"], row["who"]): row for row in rows if row["metric"] == "draws"}
    assert set(rates) == {
        (f"noise/{size} draws", who)
        for size in (10, 1000)
        for who in ("numpy normals", "dpsep, flat block", "dpsep, outer block")
    }
    ours, theirs = (rates["noise/1000 draws", who] for who in ("dpsep, flat block", "numpy normals"))
    assert ours["ratio"] == pytest.approx(ours["value"] / theirs["value"])
    assert rates["noise/10 draws", "numpy normals"]["n"] == 500
    shares = {row["who"]: row["value"] for row in rows if row["metric"].startswith("share")}
    assert len(shares) == 3
    assert shares["dpsep, flat block"] == pytest.approx(1000 / ours["value"] / 0.5e-3)


def test_the_first_call_is_not_counted():
    calls = []
    times = noise.in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert [len(seconds) for seconds in times.values()] == [2, 2]
