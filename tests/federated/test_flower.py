"""A federation of real processes on loopback: SuperLink, three sites, TLS, keys, and sites that misbehave."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'dpsep[federated]'")

from dpsep import Ledger
from dpsep.data import Column, Schema
from dpsep.estimators.store import load
from dpsep.federated import wire
from dpsep.federated.config import read_server
from dpsep.federated.deploy import make_deployment, make_key_pair
from dpsep.federated.flower_link import end, open_link
from dpsep.federated.flower_site import free_port
from dpsep.federated.local import local_sites
from dpsep.federated.serve import Served, fit_over, model_of
from dpsep.privacy.leaks import PrivacyLeakWarning

SITES = {"a": 60, "b": 100, "c": 140}
STEPS = 5
SCHEMA = Schema(
    (
        Column("u", "number", (-1, 1)),
        Column("v", "number", (-1, 1)),
        Column("y", "category", categories=("no", "yes")),
    ),
    "y",
)


class Done(NamedTuple):
    """A federated fit with three misbehaving sites and a stranger, and the fit of one table."""

    folder: Path
    served: Served
    pooled: Any
    table: pl.DataFrame
    restarts: list[str]
    stranger: int | None


def made() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (sum(SITES.values()), 2))
    label = np.where(rng.uniform(size=len(X)) < 1 / (1 + np.exp(-X @ [2.0, -1.0])), "yes", "no")
    return pl.DataFrame({"u": X[:, 0], "v": X[:, 1], "y": label})


def deploy(folder: Path, table: pl.DataFrame) -> dict[str, Path]:
    make_deployment(folder, list(SITES), f"127.0.0.1:{free_port()}")
    server = folder / "server" / "server.toml"
    text = server.read_text().replace("0.0.0.0:", "127.0.0.1:")
    text = text.replace("patience = 60.0", "patience = 15.0").replace("tries = 3", "tries = 6")
    server.write_text(f"{text}\nsteps = {STEPS}\nseed = 1\n")
    (folder / "server" / "schema.toml").write_text(SCHEMA.to_toml())
    start = 0
    for name, rows in SITES.items():
        site = folder / "sites" / name
        table[start : start + rows].write_csv(site / "table.csv")
        (site / "schema.toml").write_text(SCHEMA.to_toml())
        Ledger.create(site / "ledger.db", epsilon=1.5, delta=2e-5)
        start += rows
    return {name: folder / "sites" / name / "site.toml" for name in SITES}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("federation") / "deployment"
    table = made()
    configs = deploy(folder, table)
    settings = read_server(folder / "server" / "server.toml")
    stranger = folder / "stranger"
    stranger.mkdir()
    make_key_pair(stranger / "site.key")
    for name in ("table.csv", "schema.toml", "authority.crt", "ledger.db", "site.toml"):
        (stranger / name).write_bytes((folder / "sites" / "a" / name).read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        pooled = model_of(settings).fit(table[["u", "v"]], table["y"].to_numpy())
        with (
            open_link(settings.link, settings.keys()) as grid,
            local_sites(configs, folder / "logs", {"a": "kill", "b": "garbage", "c": "slow"}) as sites,
        ):
            with (folder / "stranger.log").open("wb") as output:
                outsider = subprocess.Popen(
                    [sys.executable, "-m", "dpsep.federated.local", stranger / "site.toml", str(os.getpid())],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                served = fit_over(settings, grid)
                refused = outsider.poll()
            finally:
                end(outsider)
            processes = list(sites.processes.values())
    assert all(process.poll() is not None for process in processes), "a site's process is still there"
    return Done(folder, served, pooled, table, sites.restarts, refused)


def test_processes_that_were_killed_garbled_and_slow_give_the_fit_of_one_table(done: Done) -> None:
    found, one = done.served.model.posterior_, done.pooled.posterior_
    np.testing.assert_allclose(found.mean, one.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.covariance, one.covariance, rtol=0, atol=1e-9)
    assert done.served.model.privacy_.federation["dropped"] == []


def test_every_site_paid_once_and_what_the_statement_says(done: Done) -> None:
    told = done.served.model.privacy_.federation["sites"]
    for name in SITES:
        ledger = Ledger(done.folder / "sites" / name / "ledger.db")
        assert [row.kind for row in ledger.rows()].count("charge") == 1
        assert ledger.spent().epsilon == pytest.approx(told[name]["epsilon"])
        assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-3)


def test_the_faults_happened_and_the_log_names_them(done: Done) -> None:
    log = "\n".join(done.served.events)
    assert done.restarts == ["a"]
    assert re.search(r"round 1 .*site a did not answer", log)
    assert re.search(r"round 1 .*site b gave an answer that is none", log)
    assert "site c" not in log
    work = [one.work for one in done.served.traffic if one.head[3:4] == bytes([wire.ROUND]) and one.work]
    assert len(work) >= STEPS


def test_a_node_with_an_unknown_key_is_refused(done: Done) -> None:
    assert done.stranger not in (None, 0)
    said = (done.folder / "stranger.log").read_text("utf-8", "replace")
    assert "Failed to activate SuperNode" in said


def test_no_log_holds_a_value_of_a_record_or_an_answer(done: Done) -> None:
    cells = [f"{value:.6g}"[:7] for name in ("u", "v") for value in done.table[name].to_list()]
    for path in (done.folder / "logs").glob("*.log"):
        text = path.read_text("utf-8", "replace")
        assert not [cell for cell in cells if cell in text]
        assert "dF\x01" not in text
    assert not [cell for cell in cells if cell in "\n".join(done.served.events)]


def test_what_a_site_kept_is_deleted_in_the_end(done: Done) -> None:
    for name in SITES:
        runs = done.folder / "sites" / name / "state" / "runs"
        assert [path.name for path in runs.rglob("answer-*")] == []
        assert not (done.folder / "sites" / name / "state" / "flower" / "secret").exists()


def test_the_result_is_stored_as_fits_are(done: Done) -> None:
    out = done.folder / "server" / "result"
    stored: Any = load(out)
    assert np.array_equal(stored.posterior_.mean, done.served.model.posterior_.mean)
    assert "exact sums to the server" in " ".join((out / "privacy.txt").read_text().split())
    assert (out / "events.log").read_text().endswith("the fit is done\n")
