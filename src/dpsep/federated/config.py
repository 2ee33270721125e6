"""Settings of a site and of a server: small TOML files, read strictly.

A file is held by msgspec to the types that its settings declare; an unknown key is an error, so that a
misspelt limit is not silently none. Paths in a file are relative to the file's folder.

**Privacy.** What is in these files is public structure: names, paths, columns, budgets. A site's own limits
(`SiteSettings.modes`, `SiteSettings.most_epsilon`, its ledger) are read at the site and enforced there,
whatever the server asks for.
"""

import ipaddress
import re
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from dpsep.federated.terms import MODES, Mode, Whole
from dpsep.registry import regressions

__all__ = [
    "MODELS",
    "ConfigError",
    "FitSettings",
    "ServerLink",
    "ServerSettings",
    "SiteLink",
    "SiteSettings",
    "read_document",
    "read_server",
    "read_site",
]

MODELS = {entry.name: entry.kind for entry in regressions()}
"""Models that a federation fits, by the names that the command line gives them."""


class ConfigError(Exception):
    """A file of settings that cannot be used; the message says what to change."""


class File(type(Path())):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
    """The path of a file that is there."""


class LedgerPlace(str):
    """A ledger's URL, or its path."""


class Address(str):
    """host:port."""


class ModelName(str):
    """A name in `MODELS`."""


Text = Annotated[str, Meta(min_length=1, description="a text in quotes")]
Flag = Annotated[bool, Meta(description="true or false")]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max, description="a positive number")]
Rate = Annotated[float, Meta(gt=0, le=1)]


def _one_of(*allowed: str) -> Meta:
    return Meta(description=f"one of {', '.join(allowed)}")


Read = TypeVar("Read", bound=Struct)


class SiteLink(Struct, frozen=True, forbid_unknown_fields=True):
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

    superlink: Address
    authority: File | None = None
    key: File | None = None
    insecure: Flag = False
    poll: Positive = 0.25

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


class SiteSettings(Struct, frozen=True, forbid_unknown_fields=True):
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
    own_epsilon, own_delta
        In mode ``"own"``: this site's own guarantee; else what the server asks for.
    hidden
        In mode ``"sites"``: how many honest sites it relies on, where something outside of this library hides
        single answers from everybody; 0 where they may be seen.
    link
        How it reaches the server.
    """

    name: Text
    table: File
    schema: File
    ledger: LedgerPlace
    folder: Path
    link: SiteLink
    format: Text | None = None
    modes: Annotated[
        tuple[Mode, ...], Meta(min_length=1, description=f"a list of some of {', '.join(MODES)}")
    ] = ("server",)
    most_epsilon: Positive | None = None
    rows: Whole | None = None
    own_epsilon: Positive | None = None
    own_delta: Positive | None = None
    hidden: Whole = 0

    @property
    def own(self) -> tuple[float, float] | None:
        """Epsilon and delta of the site's own guarantee."""
        if self.own_epsilon is None or self.own_delta is None:
            return None
        return self.own_epsilon, self.own_delta

    def open(self) -> Any:
        """Return the `dpsep.federated.site.Site`; its records are read when a round needs them."""
        from dpsep.federated.records import open_site

        return open_site(self)


class ServerLink(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the SuperLink listens, and the files of its TLS; without them it must listen on loopback."""

    address: Address
    certificate: File | None = None
    key: File | None = None
    authority: File | None = None
    insecure: Flag = False

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


class FitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be fitted, and how patiently; the meanings are those of `Federation` and the estimators."""

    model: ModelName
    schema: File
    out: Path
    epsilon: Positive
    delta: Positive = 1e-5
    mode: Annotated[Mode, _one_of(*MODES)] = "server"
    honest: Whole | None = None
    patience: Positive = 60.0
    tries: Whole = 3
    least_sites: Whole | None = None
    missing: Annotated[Literal["drop", "stop"], _one_of("drop", "stop")] = "drop"
    sites_per_round: Whole | None = None
    relation: Annotated[Literal["zero-out", "replace-one"], _one_of("zero-out", "replace-one")] = "zero-out"
    sampling: Annotated[
        str | Rate | None, Meta(description="a rate above 0 and at most 1, or a name in quotes")
    ] = None
    steps: Whole | None = None
    clip: Positive | None = None
    ledger: LedgerPlace | None = None
    seed: Whole | None = None


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a server's file says: where it listens, each site's public key (None without TLS), and the fit."""

    link: ServerLink
    sites: dict[str, Any]
    fit: FitSettings

    def keys(self) -> dict[str, bytes] | None:
        """Read the public keys; None without authentication."""
        if self.link.insecure:
            return None
        from dpsep.federated.flower_link import public_key

        return {name: public_key(path) for name, path in self.sites.items() if path is not None}


def read_site(path: str | Path) -> SiteSettings:
    """Read a site's file."""
    place = Path(path)
    found = _read(place, SiteSettings, "a site")
    for name, other in (("own_epsilon", "own_delta"), ("own_delta", "own_epsilon")):
        if getattr(found, name) is None and getattr(found, other) is not None:
            raise ConfigError(f"{place}: {_missing(name)}")
    if found.link.insecure:
        _only_on_loopback(place, found.link.superlink)
    return found


def read_server(path: str | Path) -> ServerSettings:
    """Read a server's file."""
    place = Path(path)
    found = _read(place, ServerSettings, "a server")
    link = found.link
    for name in ("certificate", "key", "authority"):
        if getattr(link, name) is None and not link.insecure:
            raise ConfigError(f"{place}: {_missing(name, 'link')}")
        if getattr(link, name) is not None and link.insecure:
            raise ConfigError(
                f"{place}: {_key(name, 'link')} says nothing where insecure = true; take one of them out."
            )
    if link.insecure:
        _only_on_loopback(place, link.address)
    if not found.sites:
        raise ConfigError(f'{place}: [sites] names no site; write NAME = "KEY.pub" for each.')
    sites = {}
    for name, value in found.sites.items():
        try:
            if not link.insecure:
                sites[name] = _made(File, value, place.parent)
            elif convert(value, bool):
                sites[name] = None
        except ValueError as error:
            allowed = "true or false" if link.insecure else error
            raise ConfigError(f"{place}: {_key(name, 'sites')} must be {allowed}.") from None
    return replace(found, sites=sites)


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings, whatever its keys."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}; 'dpsep federate init FOLDER' writes examples of settings."
        ) from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or thousands of digits or brackets
        raise ConfigError(f"{path} is no TOML file: {error}.") from None


def _read(place: Path, kind: type[Read], what: str) -> Read:
    try:
        return convert(
            read_document(place), kind, dec_hook=lambda one, value: _made(one, value, place.parent)
        )
    except ValidationError as error:
        raise ConfigError(f"{place}: {_words(str(error), kind, what)}") from None


def _made(kind: Any, value: Any, folder: Path) -> Any:
    """Make a value of a type that msgspec does not know; raise ValueError with what is allowed."""
    text = value if isinstance(value, str) else ""
    if kind is ModelName:
        if text not in MODELS:
            raise ValueError(f"one of {', '.join(MODELS)}")
        return ModelName(text)
    if not text:
        raise ValueError("a text in quotes")
    if kind is Address:
        host, _, port = text.rpartition(":")
        if not (host and re.fullmatch("[0-9]{1,9}", port) and 0 < int(port) < 65536):
            raise ValueError("host:port, such as 127.0.0.1:9092")
        return Address(text)
    if kind is LedgerPlace and "://" in text:
        return LedgerPlace(text)
    path = folder / text if kind is LedgerPlace else folder / Path(text).expanduser()
    if kind is File and not path.is_file():
        raise ValueError(f"a file, and there is none at {path}")
    return kind(path)


def _words(said: str, kind: type[Struct], what: str) -> str:
    """Say which key is wrong and what is allowed, from the words of msgspec, which end in where it was."""
    found = cast(re.Match[str], re.fullmatch(r"(.*?)(?: - at `\$\.([\w.]+)[^`]*`)?", said, re.DOTALL))
    problem, names = found[1], found[2].split(".") if found[2] else []
    field = re.fullmatch(r"Object (missing|contains).* field `(.*)`", problem, re.DOTALL)
    table = ".".join(names if field else names[:-1])
    fields = get_type_hints(get_type_hints(kind).get(table, kind), include_extras=True)
    if field and field[1] == "missing":
        return _missing(field[2], table)
    if field:
        there = f"[{table}] of " if table else ""
        return f"{field[2]!r} is no key of {there}{what}'s settings; those are {', '.join(fields)}."
    name = ".".join(names[-1:])
    hint = fields.get(name)
    notes = [note for one in (hint, *get_args(hint)) for note in getattr(one, "__metadata__", ())]
    if notes:
        problem = notes[0].description
    elif problem.startswith("Expected `object`"):
        problem = f"a table: a line [{name}] and keys below it"
    return f"{_key(name, table)} must be {problem}."


def _missing(name: str, table: str = "") -> str:
    return f"{_key(name, table)} is missing; add a line {name} = ..."


def _key(name: str, table: str) -> str:
    return f"{name!r} in [{table}]" if table else repr(name)


def _only_on_loopback(place: Path, address: str) -> None:
    """Refuse to go without TLS where others could listen."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = host == "localhost"
    if not inside:
        raise ConfigError(
            f"{place}: insecure = true sends what the sites answer in the clear, to anybody; it is for "
            f"addresses of this machine (127.0.0.1), not {host}. 'dpsep federate init' makes certificates "
            "and keys."
        )
