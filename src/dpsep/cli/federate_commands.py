"""``dpsep federate``: its commands and their options; what they do is in `federate` and `federate_demo`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpsep.cli.options import Json, Quiet
from dpsep.cli.screen import hush

__all__ = ["federate_app"]


class Mode(StrEnum):
    """Who adds the noise of a federated fit."""

    server = "server"
    sites = "sites"
    own = "own"


federate_app = typer.Typer(
    help="Fit one model from rows that stay at several sites (needs the extra 'federated').",
    no_args_is_help=True,
)

SiteConfig = Annotated[Path, typer.Option("--config", metavar="FILE.toml", help="The settings.")]


@federate_app.command("demo")
def federate_demo(
    data: Annotated[str, typer.Option(metavar="randhie|adult|power", help="A public table.")] = "randhie",
    mode: Annotated[
        Mode, typer.Option(help="Who adds the noise: the server, all sites together, or each site alone.")
    ] = Mode.server,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of the fit.")] = 1.0,
    rows: Annotated[int | None, typer.Option(help="Take only so many rows.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="Kill one site, let one send garbage, slow one down.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep settings, ledgers and the result here.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a server and three sites on this machine and compare with a fit of one table."""
    from dpsep.cli import federate_demo as work

    hush(quiet or as_json)
    work.run(
        data=data,
        mode=mode.value,
        epsilon=epsilon,
        rows=rows,
        steps=steps,
        faults=faults,
        out=out,
        as_json=as_json,
    )


@federate_app.command("init")
def federate_init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Must not exist.")],
    sites: Annotated[str, typer.Option(metavar="A,B,C", help="The sites' names.")],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the sites find the server.")
    ] = "localhost:9092",
    quiet: Quiet = False,
) -> None:
    """Write a deployment: certificates, keys, settings and start scripts; TLS and authentication are on."""
    from dpsep.cli import federate as work

    hush(quiet)
    work.init(folder, sites, address)


@federate_app.command("key")
def federate_key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes.")],
    quiet: Quiet = False,
) -> None:
    """Make a site's key pair at the site; only the public half (FILE.pub) goes to the server."""
    from dpsep.cli import federate as work

    hush(quiet)
    work.key(path)


@federate_app.command("check")
def federate_check(
    config: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Settings of a site or a server.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check settings and the files that they name; nothing is sent or charged."""
    from dpsep.cli import federate as work

    hush(quiet)
    work.check(config, as_json=as_json)


@federate_app.command("site")
def federate_site(config: SiteConfig, quiet: Quiet = False) -> None:
    """Connect a site to the server and answer its questions, within the site's ledger, until stopped."""
    from dpsep.cli import federate as work

    hush(quiet)
    work.site(config)


@federate_app.command("server")
def federate_server(config: SiteConfig, as_json: Json = False, quiet: Quiet = False) -> None:
    """Wait for the sites, fit, and write a folder with posterior and privacy statement."""
    from dpsep.cli import federate as work

    hush(quiet)
    work.serve(config, as_json=as_json)
