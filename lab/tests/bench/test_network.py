"""The network benchmark times its methods in turn and compares each with filtering."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_model import NetworkRegression
from dpsep_lab import bench
from dpsep_lab.bench import network


@pytest.mark.deep
def test_every_method_has_a_row_with_its_ratio_to_filtering(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(network, "KIN8NM", (200, 2))
    assert bench.run(["network"], True, tmp_path / "rows.json") == 0
    rows = [row for row in json.loads((tmp_path / "rows.json").read_text()) if row["metric"] == "speed"]
    cases = {row["case"] for row in rows}
    assert cases == {"network/2-50-1, double precision", "network/2-50-1, single precision"}
    for case in cases:
        mine = {row["who"]: row for row in rows if row["case"] == case}
        base = mine.pop(network.FILTERING)
        assert base["ratio"] is None
        names = {"SEP, one record a step", "local factors, batches of 184", "SEP, batches of 368"}
        assert set(mine) == names
        for row in mine.values():
            assert row["unit"] == "records/s"
            assert row["ratio_to"] == network.FILTERING
            assert row["ratio"] == pytest.approx(row["value"] / base["value"])
            assert row["n"] == 3
    assert "network/2-50-1" in capsys.readouterr().out


def test_what_is_timed_moves_the_posterior_and_counts_the_records_it_visits():
    with jax.enable_x64(True):
        methods = network.contenders((130, 2), hidden=3)
        assert {who: count for who, (_, count) in methods.items()} == {
            network.FILTERING: 130,
            "SEP, one record a step": 130,
            "local factors, batches of 92": 92,
            "SEP, batches of 368": 130,
        }
        model = NetworkRegression((2, 3, 1), noise_model=ConcentratedNoise())
        _, means = model.start(seed=0)
        found = methods[network.FILTERING][0]()
        assert bool(found.is_proper)
        assert not np.allclose(found.weights.mean, means)
        # Every record adds one half to the shape of a noise precision that is well known.
        assert 30 < float(found.noise.shape) < 6 + 65
        assert int(methods["SEP, one record a step"][0]().step) == 130
        assert int(methods["SEP, batches of 368"][0]().step) == 1
