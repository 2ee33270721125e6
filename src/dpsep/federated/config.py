"""Settings of a site and of a server: small TOML files, read strictly.

Paths in a file are relative to the file's folder. An unknown key is an error, so that a misspelt limit is not
silently none.

**Privacy.** What is in these files is public structure: names, paths, columns, budgets. A site's own limits
(`SiteSettings.modes`, `SiteSettings.most_epsilon`, its ledger) are read at the site and enforced there,
whatever the server asks for.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpsep.federated.config_keys import ConfigError, Keys
from dpsep.registry import regressions

__all__ = [
    "MODELS",
    "MODES",
    "ConfigError",
    "FitSettings",
    "ServerLink",
    "ServerSettings",
    "SiteLink",
    "SiteSettings",
    "read_server",
    "read_site",
]

MODES = ("server", "sites", "own")
MODELS = {entry.name: entry.kind for entry in regressions()}
"""Models that a federation fits, by the names that the command line gives them."""


@dataclass(frozen=True)
class SiteLink:
    """How a site's SuperNode reaches the SuperLink.

    Attributes
    ----------
    superlink
        Its address, host:port.
    authority
        Certificate of who signed the SuperLink's certificate; None: the system's.
    key
        The SuperNode's private key; None without authentication.
    insecure
        No TLS. For demonstrations on one machine.
    poll
        Seconds between looks for a question.
    """

    superlink: str
    authority: Path | None = None
    key: Path | None = None
    insecure: bool = False
    poll: float = 0.25

    def supernode_options(self) -> list[str]:
        """Return the options of ``flower-supernode``."""
        options = ["--superlink", self.superlink]
        if self.insecure:
            return [*options, "--insecure"]
        if self.authority is not None:
            options += ["--root-certificates", str(self.authority)]
        if self.key is not None:
            options += ["--auth-supernode-private-key", str(self.key)]
        return options


@dataclass(frozen=True)
class SiteSettings:
    """What a site's file says.

    Attributes
    ----------
    name
        The site's name in the federation.
    table, format
        Its records: a CSV, Parquet or Arrow file.
    schema
        The declared columns and the target, the same file at every site.
    ledger
        A ledger's file or URL.
    folder
        For what the site keeps of runs; private to it.
    modes
        Ways to add noise that it takes part in.
    most_epsilon
        The most that one run may cost its records.
    rows
        Number of rows, which is public. Where it is not declared the table is read to count them.
    own
        In mode ``"own"``: epsilon and delta of this site's own guarantee; else what the server asks for.
    hidden
        In mode ``"sites"``: how many honest sites it relies on, where something outside of this library hides
        single answers from everybody; 0 where they may be seen.
    link
        How it reaches the server.
    """

    name: str
    table: Path
    schema: Path
    ledger: str
    folder: Path
    link: SiteLink
    format: str | None = None
    modes: tuple[str, ...] = ("server",)
    most_epsilon: float | None = None
    rows: int | None = None
    own: tuple[float, float] | None = None
    hidden: int = 0

    def open(self) -> Any:
        """Return the `dpsep.federated.site.Site`; its records are read when a round needs them."""
        from dpsep.federated.records import open_site

        return open_site(self)


@dataclass(frozen=True)
class ServerLink:
    """Where the SuperLink listens, and the files of its TLS; without them it must listen on loopback."""

    address: str
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    insecure: bool = False

    def superlink_options(self) -> list[str]:
        """Return the options of ``flower-superlink``."""
        host, _, port = self.address.rpartition(":")
        options = ["--host", host.strip("[]"), "--port", port]
        if self.insecure:
            return [*options, "--insecure"]
        files = {"certfile": self.certificate, "keyfile": self.key, "ca-certfile": self.authority}
        for name, path in files.items():
            options += [f"--ssl-{name}", str(path)]
        return [*options, "--enable-supernode-auth"]


@dataclass(frozen=True)
class FitSettings:
    """What is to be fitted, and how patiently; the meanings are those of `Federation` and the estimators."""

    model: str
    schema: Path
    out: Path
    epsilon: float
    delta: float = 1e-5
    mode: Literal["server", "sites", "own"] = "server"
    honest: int | None = None
    patience: float = 60.0
    tries: int = 3
    least_sites: int | None = None
    missing: Literal["drop", "stop"] = "drop"
    sites_per_round: int | None = None
    relation: str = "zero-out"
    sampling: str | float | None = None
    steps: int | None = None
    clip: float | None = None
    ledger: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class ServerSettings:
    """What a server's file says: where it listens, which sites with which keys, and the fit."""

    link: ServerLink
    sites: Mapping[str, Path | None]
    fit: FitSettings

    def keys(self) -> dict[str, bytes] | None:
        """Read the public keys; None without authentication."""
        if self.link.insecure:
            return None
        from dpsep.federated.flower_link import public_key

        return {name: public_key(path) for name, path in self.sites.items() if path is not None}


def read_site(path: str | Path) -> SiteSettings:
    """Read a site's file."""
    keys = _open(path, "a site")
    link = keys.table("link")
    insecure = link.flag("insecure")
    settings = SiteSettings(
        name=keys.text("name"),
        table=keys.path("table", must_exist=True),
        format=keys.text("format", None),
        schema=keys.path("schema", must_exist=True),
        ledger=_ledger(keys) or keys.missing("ledger"),
        folder=keys.path("folder"),
        modes=keys.texts("modes", ("server",), allowed=MODES),
        most_epsilon=keys.number("most_epsilon", None),
        rows=keys.whole("rows", None),
        own=_own(keys),
        hidden=keys.whole("hidden", None) or 0,
        link=SiteLink(
            superlink=link.address("superlink"),
            authority=link.path("authority", None, must_exist=True),
            key=link.path("key", None, must_exist=True),
            insecure=insecure,
            poll=link.number("poll", 0.25) or 0.25,
        ),
    )
    if insecure:
        link.only_on_loopback(settings.link.superlink)
    keys.finish()
    return settings


def read_server(path: str | Path) -> ServerSettings:
    """Read a server's file."""
    keys = _open(path, "a server")
    link, fit = keys.table("link"), keys.table("fit")
    insecure = link.flag("insecure")
    address = link.address("address")
    if insecure:
        link.only_on_loopback(address)
    files = {
        name: None if insecure else link.path(name, must_exist=True)
        for name in ("certificate", "key", "authority")
    }
    settings = ServerSettings(
        link=ServerLink(address, insecure=insecure, **files),
        sites=_sites(keys.table("sites"), insecure=insecure),
        fit=FitSettings(
            model=fit.text("model", allowed=tuple(MODELS)),
            schema=fit.path("schema", must_exist=True),
            out=fit.path("out"),
            epsilon=fit.number("epsilon"),
            delta=fit.number("delta", 1e-5),
            mode=fit.text("mode", "server", allowed=MODES),
            honest=fit.whole("honest", None),
            patience=fit.number("patience", 60.0),
            tries=fit.whole("tries", 3),
            least_sites=fit.whole("least_sites", None),
            missing=fit.text("missing", "drop", allowed=("drop", "stop")),
            sites_per_round=fit.whole("sites_per_round", None),
            relation=fit.text("relation", "zero-out", allowed=("zero-out", "replace-one")),
            sampling=fit.sampling("sampling"),
            steps=fit.whole("steps", None),
            clip=fit.number("clip", None),
            ledger=_ledger(fit),
            seed=fit.whole("seed", None),
        ),
    )
    keys.finish()
    return settings


def _open(path: str | Path, what: str) -> Keys:
    place = Path(path)
    try:
        document = tomllib.loads(place.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {place}; 'dpsep federate init FOLDER' writes examples of {what}'s settings."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place} is no TOML file: {error}.") from None
    return Keys(document, place, what)


def _sites(keys: Keys, *, insecure: bool) -> dict[str, Path | None]:
    names = keys.names()
    if not names:
        raise ConfigError(f'{keys.place}: [sites] names no site; write NAME = "KEY.pub" for each.')
    if insecure:
        return {name: None for name in names if keys.flag(name)}
    return {name: keys.path(name, must_exist=True) for name in names}


def _own(keys: Keys) -> tuple[float, float] | None:
    """Read a site's own guarantee: own_epsilon and own_delta, both or none."""
    epsilon, delta = keys.number("own_epsilon", None), keys.number("own_delta", None)
    if (epsilon is None) != (delta is None):
        keys.missing("own_delta" if delta is None else "own_epsilon")
    return None if epsilon is None else (epsilon, delta)


def _ledger(keys: Keys) -> str | None:
    """Read a ledger's place: a URL as it is, a path relative to the file."""
    text = keys.text("ledger", None)
    if text is None or "://" in text:
        return text
    return str(keys.place.parent / text)
