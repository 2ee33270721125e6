"""``dpsep federate``: make a deployment's folder, check settings, run a site, run the server's fit.

**Privacy.** A site's process answers what `dpsep.federated.site` allows. What is printed is public structure,
budgets and events; `check` at a site reads its table's columns and number of rows, and prints neither a cell
nor anything computed from one.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpsep.cli.errors import CallError
from dpsep.cli.screen import number, print_json, print_table, remark, say
from dpsep.privacy.shown import down, up

__all__ = ["check", "init", "key", "serve", "site"]


def need_flower() -> None:
    """Say what is missing before anything begins."""
    if find_spec("flwr") is None:
        raise ImportError("federations need Flower: pip install 'dpsep[federated]'.")


def init(folder: Path, sites: str, address: str) -> None:
    """Write the folder of a deployment."""
    need_flower()
    from dpsep.federated.deploy import make_deployment

    written = make_deployment(folder, [name.strip() for name in sites.split(",")], address)
    say(f"Wrote {len(written)} files into {folder}; {folder / 'README.md'} says which goes where.")
    say("TLS and the authentication of sites are on. Private keys are readable by you only: hand each site")
    say("its own folder over a channel that nobody else reads, and keep authority/ in a safe place.")


def key(path: Path) -> None:
    """Make a key pair for a site."""
    need_flower()
    from dpsep.federated.deploy import make_key_pair

    public = make_key_pair(path)
    say(f"Wrote {path}, which stays here, and {public}, which goes to the server.")


def site(config: Path) -> None:
    """Connect a site and answer until stopped."""
    need_flower()
    from dpsep.federated.config import read_site
    from dpsep.federated.flower_site import run_site
    from dpsep.federated.local import show_log

    show_log()
    settings = read_site(config)
    found = settings.open()  # wrong settings show now, not at the first question
    left = found.ledger.remaining()
    remark(
        f"Site {settings.name}: modes {', '.join(settings.modes)}, epsilon {down(left.epsilon)} and delta "
        f"{down(left.delta)} left in {settings.ledger}. Connecting to {settings.link.superlink}."
    )
    run_site(settings)


def serve(config: Path, *, as_json: bool = False) -> None:
    """Run the fit that a server's settings describe."""
    need_flower()
    from dpsep.federated.config import read_server
    from dpsep.federated.serve import serve_alone

    settings = read_server(config)
    remark(f"Listening on {settings.link.address} for {', '.join(settings.sites)}.")
    served = serve_alone(settings, show=remark)
    model, out = served.model, settings.fit.out
    if as_json:
        print_json({"run": str(out), "privacy": model.privacy_.to_dict(), "summary": model.summary()})
        return
    cells = [
        (
            row["name"],
            number(row["mean"]),
            number(row["sd"]),
            f"[{number(row['low'])}, {number(row['high'])}]",
            f"{row['noise_share']:.0%}",
        )
        for row in model.summary()
    ]
    print_table("Coefficients", ("coefficient", "mean", "sd", "90% interval", "DP noise"), cells)
    say((out / "privacy.txt").read_text("utf-8"), end="")
    say(f"\nWrote {out}. Predict with it: dpsep predict {out} TABLE")


def check(config: Path, *, as_json: bool = False) -> None:
    """Check settings and what they name."""
    need_flower()
    rows = _check_server(config) if _is_server(config) else _check_site(config)
    if as_json:
        print_json(dict(rows))
        return
    print_table(str(config), ("setting", "found"), rows)


def _is_server(config: Path) -> bool:
    from dpsep.federated.config import read_document

    return "fit" in read_document(config)


def _check_site(config: Path) -> list[tuple[str, str]]:
    from dpsep.federated.config import read_site
    from dpsep.federated.records import column_names, read_schema

    settings = read_site(config)
    _check_private(settings.link.key)
    found = settings.open()
    left = found.ledger.remaining()
    names = column_names(read_schema(settings.schema))
    return [
        ("site", settings.name),
        ("rows (public)", str(found.rows)),
        ("columns", f"{len(names)}, in the order that the schema gives"),
        ("target", str(read_schema(settings.schema).target)),
        ("ledger", f"epsilon {down(left.epsilon)} and delta {down(left.delta)} left"),
        ("modes", ", ".join(settings.modes)),
        (
            "most epsilon a run",
            "as the ledger" if settings.most_epsilon is None else down(settings.most_epsilon),
        ),
        ("server", settings.link.superlink),
        ("connection", _words(settings.link.insecure, settings.link.key)),
    ]


def _check_server(config: Path) -> list[tuple[str, str]]:
    from dpsep.federated.config import read_server
    from dpsep.federated.serve import model_of

    settings = read_server(config)
    _check_private(settings.link.key)
    wanted = settings.fit
    model = model_of(settings)
    keys = settings.keys()
    if keys is not None and len(set(keys.values())) < len(keys):
        raise CallError(f"{config}: two sites have the same key; give each its own.")
    if wanted.out.exists():
        raise CallError(f"{config}: {wanted.out} exists; name another folder for 'out'.")
    return [
        ("model", f"{type(model).__name__} of {wanted.schema}"),
        ("bounds", "declared" if model.bounds is not None else "found privately, inside epsilon"),
        ("budget", f"epsilon {up(wanted.epsilon)}, delta {up(wanted.delta)}, {wanted.relation}"),
        ("noise", wanted.mode if wanted.honest is None else f"{wanted.mode}, {wanted.honest} honest"),
        ("sites", ", ".join(settings.sites)),
        ("listens on", settings.link.address),
        ("connection", _words(settings.link.insecure, settings.link.key)),
        ("result", str(wanted.out)),
    ]


def _check_private(path: Any) -> None:
    """Refuse a private key that others can read."""
    if path is not None and path.stat().st_mode & 0o077:
        raise CallError(f"{path} is a private key, and others can read it; run: chmod 600 {path}")


def _words(insecure: bool, key: Any) -> str:
    if insecure:
        return "NOT SECURED: this machine only"
    return "TLS, with a key" if key is not None else "TLS, without a key: the server will refuse it"
