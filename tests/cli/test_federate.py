"""The demonstration of federated fits, with real processes on loopback."""

import json
from pathlib import Path

import pytest

from .help import assert_refused, call

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpsep[federated]'")
pytest.importorskip("statsmodels", reason="the survey is in statsmodels: pip install 'dpsep[demo]'")


@pytest.mark.deep
def test_the_demo_fits_as_one_table_would_and_every_site_pays_once(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = call("federate", "demo", "--rows", 600, "--steps", 2, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["difference"] < 1e-9
    assert [site["charges"] for site in told["sites"]] == [1, 1, 1]
    assert [site["rows"] for site in told["sites"]] == [300, 180, 120]
    assert told["rounds"] == 2
    assert 0 < told["site_seconds"] < told["seconds_a_round"]
    assert "NOT FOR RELEASE" in told["sentence"]
    assert (out / "server" / "result" / "manifest.json").exists()


def test_the_demo_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    assert_refused(call("federate", "demo", "--epsilon", 0), "positive number")
    assert_refused(call("federate", "demo", "--data", "census"), "randhie, adult or power")
    assert_refused(call("federate", "demo", "--out", tmp_path), "exists")
    assert_refused(call("federate", "site", "--config", tmp_path / "none.toml"), "there is no file")
