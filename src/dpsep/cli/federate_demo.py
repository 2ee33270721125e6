"""``dpsep federate demo``: a real federation on this machine, compared with one table.

Three sites hold unequal parts of a public survey. A SuperLink and a process for each site are started on
loopback, with certificates and keys made for the occasion; the sites' ledgers are charged; and the same fit
is done on the pooled table with the same seeded noise. In mode ``"server"`` the two must agree to rounding.

**Privacy.** The survey is public. Noise that can be repeated is not for release: the results say so.
"""

import math
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dpsep.cli import laboratory
from dpsep.cli.errors import CallError
from dpsep.cli.federate import need_flower
from dpsep.cli.screen import print_json, print_table, progress, remark, say
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.shown import up

__all__ = ["run"]

SITES = {"north": 0.5, "middle": 0.3, "south": 0.2}
"""The sites and their shares of the rows."""
DELTA = 1e-5


class Told(NamedTuple):
    """What the demonstration shows."""

    records: int
    features: int
    mode: str
    sites: list[dict[str, Any]]
    rounds: int
    question_bytes: float
    answer_bytes: float
    natural_bytes: int
    seconds_a_round: float
    site_seconds: float | None
    greeting_seconds: float
    difference: float
    deviations: float
    restarted: list[str]
    events: list[str]
    sentence: str


def run(
    *,
    data: str = "randhie",
    mode: str = "server",
    epsilon: float = 1.0,
    rows: int | None = None,
    steps: int | None = None,
    faults: bool = False,
    out: Path | None = None,
    as_json: bool = False,
) -> None:
    """Run a federation on this machine and show what it did.

    Parameters
    ----------
    data
        ``"randhie"`` (statsmodels), ``"adult"``, or ``"power"`` (a linear regression whose columns are scaled
        privately, through the sites).
    mode
        Who adds the noise; see `dpsep.federated`.
    epsilon
        Of the fit.
    rows
        Take only so many rows.
    steps
        Number of releases; the estimator's own choice if left out.
    faults
        Let one site be killed in mid-round, one return garbage and one be ten times slower.
    out
        Folder for settings, ledgers, logs and the result; a temporary one if left out.
    as_json
        Print one JSON document.
    """
    need_flower()
    if not 0 < epsilon < math.inf:
        raise CallError(f"epsilon must be a positive number, not {epsilon}.")
    if out is not None and out.exists():
        raise CallError(f"{out} exists; name another folder with --out.")
    table, schema = _survey(data, rows)
    with tempfile.TemporaryDirectory(prefix="dpsep-federate-") as temporary:
        folder = Path(temporary) / "demo" if out is None else out.absolute()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # the seed, which the statement tells of
            told = _work(folder, table, schema, mode, epsilon, steps, faults=faults)
    if as_json:
        print_json(told._asdict())
        return
    _print(told, epsilon, faults)
    if out is not None:
        say(f"Settings, ledgers, logs and the result are in {out}.")


def _survey(data: str, rows: int | None) -> tuple[Any, Any]:
    """Return a public table and its schema."""
    import polars as pl

    from dpsep.cli.demo import BOUNDS, load
    from dpsep.data import Column, Schema

    if data == "randhie":
        frame = load()
        table = pl.DataFrame({name: frame[name].to_numpy() for name in BOUNDS})
        visit = np.where(frame["mdvis"].to_numpy() > 0, "yes", "no")
        table = table.with_columns(pl.Series("visit", visit))
        columns = [Column(name, "number", bounds) for name, bounds in BOUNDS.items()]
        schema = Schema((*columns, Column("visit", "category", categories=("no", "yes"))), "visit")
    elif data in ("adult", "power"):
        table, schema = laboratory.part("survey", f"--data {data}")(data)
    else:
        raise CallError(f"--data is randhie, adult or power, not {data}.")
    return table.head(rows or table.height), schema


def _work(
    folder: Path,
    table: Any,
    schema: Any,
    mode: str,
    epsilon: float,
    steps: int | None,
    *,
    faults: bool,
) -> Told:
    from msgspec.structs import replace

    from dpsep.data import encode
    from dpsep.federated.config import read_server
    from dpsep.federated.flower_link import open_link
    from dpsep.federated.local import local_sites
    from dpsep.federated.records import labels_of
    from dpsep.federated.serve import fit_over, model_of

    parts = _parts(table)
    configs = _deploy(folder, parts, schema, mode, epsilon, steps)
    settings = read_server(folder / "server" / "server.toml")
    pooled = model_of(settings)
    with progress("one table"):
        import polars as pl

        whole = pl.concat(parts.values())
        matrix, names = encode(whole, schema)
        pooled.fit(pl.DataFrame(matrix, schema=list(names)), labels_of(whole, schema))
    chosen = dict(zip(SITES, ("slow", "kill", "garbage"), strict=True)) if faults else {}
    if faults:
        settings = replace(settings, fit=replace(settings.fit, patience=15.0))
    remark("Starting a SuperLink and three sites on 127.0.0.1, with TLS and keys.")
    with (
        open_link(settings.link, settings.keys()) as grid,
        local_sites(configs, folder / "logs", chosen) as sites,
    ):
        served = fit_over(settings, grid, lambda line: remark(f"  {line}"))
    return _told(served, pooled, parts, folder, mode, sites.restarts)


def _parts(table: Any) -> dict[str, Any]:
    """Cut the table into the sites' parts, by a public permutation."""
    order = np.random.default_rng(0).permutation(table.height)
    cuts = np.cumsum([round(share * table.height) for share in SITES.values()])[:-1]
    return {name: table[rows] for name, rows in zip(SITES, np.split(order, cuts), strict=True)}


def _deploy(
    folder: Path, parts: dict[str, Any], schema: Any, mode: str, epsilon: float, steps: int | None
) -> dict[str, Path]:
    """Write a deployment, as 'dpsep federate init' does, and fill it with tables, ledgers and a fit."""
    from dpsep.federated.deploy import make_deployment
    from dpsep.federated.flower_site import free_port
    from dpsep.privacy.ledger import Ledger

    address = f"127.0.0.1:{free_port()}"
    make_deployment(folder, list(parts), address)
    server = folder / "server"
    text = (server / "server.toml").read_text("utf-8").replace("0.0.0.0:", "127.0.0.1:")
    text = text.replace("epsilon = 1.0", f"epsilon = {epsilon!r}\nseed = 1")
    text = text.replace('mode = "server"', f'mode = "{mode}"')
    if schema[schema.target].categories is None:
        text = text.replace('model = "logistic"', 'model = "linear"')
    if mode == "sites":
        text = text.replace("# honest = 2", "honest = 2")
    if steps is not None:
        text += f"\nsteps = {steps}\n"
    (server / "server.toml").write_text(text)
    (server / "schema.toml").write_text(schema.to_toml())
    for name, part in parts.items():
        site = folder / "sites" / name
        part.write_parquet(site / "table.parquet")
        (site / "schema.toml").write_text(schema.to_toml())
        Ledger.create(site / "ledger.db", epsilon=4 * epsilon, delta=4 * DELTA)
        text = (site / "site.toml").read_text("utf-8").replace('"table.csv"', '"table.parquet"')
        text = text.replace('modes = ["server"]', 'modes = ["server", "sites", "own"]')
        text = text.replace("most_epsilon = 1.0", f"most_epsilon = {4 * epsilon!r}")
        (site / "site.toml").write_text(text)
    return {name: folder / "sites" / name / "site.toml" for name in parts}


def _told(
    served: Any, pooled: Any, parts: dict[str, Any], folder: Path, mode: str, restarted: Sequence[str]
) -> Told:
    from dpsep.federated import wire
    from dpsep.privacy.ledger import Ledger

    rounds = [one for one in served.traffic if one.head[3:4] == bytes([wire.ROUND])]
    whole = [one for one in rounds if one.answered == one.asked]
    work = [one.work for one in whole if one.work is not None]
    sites = []
    for name, part in parts.items():
        ledger = Ledger(folder / "sites" / name / "ledger.db")
        spent, charges = ledger.spent(), sum(row.kind == "charge" for row in ledger.rows())
        told = {"epsilon": spent.epsilon, "delta": spent.delta, "charges": charges}
        sites.append({"site": name, "rows": part.height} | told)
    posterior, other = served.model.posterior_, pooled.posterior_
    gaps = np.abs(posterior.mean - other.mean)
    weights = len(posterior.mean)
    return Told(
        records=sum(part.height for part in parts.values()),
        features=weights - 1,
        mode=mode,
        sites=sites,
        rounds=served.model.n_iter_,
        question_bytes=median(one.sent / one.asked for one in whole),
        answer_bytes=median(one.received / one.answered for one in whole),
        natural_bytes=8 * (weights + weights * (weights + 1) // 2),
        seconds_a_round=median(one.seconds for one in whole),
        site_seconds=median(work) if work else None,
        greeting_seconds=served.traffic[0].seconds,
        difference=float(gaps.max()),
        deviations=float((gaps / np.sqrt(np.diag(other.covariance))).max()),
        restarted=list(restarted),
        events=list(served.events),
        sentence=served.model.privacy_.sentence(),
    )


def _print(told: Told, epsilon: float, faults: bool) -> None:
    import textwrap

    cells = [
        (
            site["site"],
            f"{site['rows']:,}",
            str(site["charges"]),
            up(site["epsilon"]),
            up(site["delta"]),
        )
        for site in told.sites
    ]
    header = ("site", "rows", "charges", "epsilon spent", "delta spent")
    print_table(f"Sites ({told.records:,} rows, {told.features} columns, mode {told.mode})", header, cells)
    ours = told.site_seconds or 0.0
    payload = told.question_bytes + told.answer_bytes
    cells = [
        ("rounds", str(told.rounds)),
        ("bytes a round and site: question", f"{told.question_bytes:,.0f}"),
        ("bytes a round and site: answer", f"{told.answer_bytes:,.0f}"),
        ("both, over the bytes of the natural parameters", f"{payload / told.natural_bytes:.2f}"),
        ("seconds a round (median)", f"{told.seconds_a_round:.2f}"),
        ("  of it the slowest site's work", f"{ours:.2f}"),
        ("  of it Flower: messages, polling", f"{told.seconds_a_round - ours:.2f}"),
        ("largest difference of a mean from one table's", f"{told.difference:.2g}"),
        ("  in posterior standard deviations", f"{told.deviations:.2g}"),
    ]
    print_table("The fit", ("", "value"), cells)
    say(textwrap.fill(told.sentence, 100))
    if faults:
        say("\nWhat went wrong on purpose, and what came of it:")
        for line in told.events:
            say(f"  {line}")
        say(f"Killed with kill -9 and started again: {', '.join(told.restarted) or 'nobody'}.")
        once = all(site["charges"] == 1 for site in told.sites)
        say(f"Each ledger holds one charge for the run: {'yes' if once else 'NO'}.")
