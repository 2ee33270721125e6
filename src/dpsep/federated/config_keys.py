"""Reading the keys of a TOML file, with errors that say which key, what is allowed and what to do."""

import ipaddress
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["ConfigError", "Keys"]

NONE: Any = object()
"""No default: the key must be there."""


class ConfigError(Exception):
    """A file of settings that cannot be used; the message says what to change."""


class Keys:
    """The keys of one table of a TOML file; `finish` refuses those that nobody asked for.

    Parameters
    ----------
    document
        The table.
    place
        The file.
    what
        Whose settings they are, for messages.
    name
        The table's name in the file; empty for the file itself.

    Examples
    --------
    >>> keys = Keys({"epsilon": 1, "epsilom": 2}, Path("server.toml"), "a server")
    >>> keys.number("epsilon")
    1.0
    >>> keys.finish()
    Traceback (most recent call last):
    dpsep.federated.config_keys.ConfigError: server.toml: 'epsilom' is no key of a server's settings...
    """

    def __init__(self, document: Mapping[str, Any], place: Path, what: str, name: str = "") -> None:
        self.document = document
        self.place = place
        self.what = what
        self.name = name
        self.known: list[str] = []
        self.tables: list[Keys] = []

    def names(self) -> list[str]:
        """Return all keys."""
        return list(self.document)

    def table(self, name: str) -> "Keys":
        """Return a table within."""
        found = self._take(name)
        if not isinstance(found, dict):
            self.wrong(name, f"a table: a line [{name}] and keys below it")
        inner = Keys(found, self.place, self.what, name)
        self.tables.append(inner)
        return inner

    def text(self, name: str, default: Any = NONE, *, allowed: Sequence[str] = ()) -> Any:
        """Return a text."""
        found = self._take(name, default)
        if found is default:
            return found
        if not isinstance(found, str) or not found or (allowed and found not in allowed):
            self.wrong(name, f"one of {', '.join(allowed)}" if allowed else "a text in quotes")
        return found

    def texts(self, name: str, default: tuple[str, ...], *, allowed: Sequence[str]) -> tuple[str, ...]:
        """Return a list of texts."""
        found = self._take(name, default)
        if found is default:
            return default
        if not isinstance(found, list) or not found or any(item not in allowed for item in found):
            self.wrong(name, f"a list of some of {', '.join(allowed)}")
        return tuple(found)

    def number(self, name: str, default: Any = NONE) -> Any:
        """Return a positive number."""
        found = self._take(name, default)
        if found is default:
            return found
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
            self.wrong(name, "a positive number")
        return float(found)

    def whole(self, name: str, default: Any = NONE) -> Any:
        """Return a whole number that is not negative."""
        found = self._take(name, default)
        if found is default:
            return found
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            self.wrong(name, "a whole number, 0 or more")
        return found

    def sampling(self, name: str) -> str | float | None:
        """Return a way of sampling: a rate between 0 and 1, or a name."""
        found = self._take(name, None)
        if found is None or isinstance(found, str):
            return found
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1:
            self.wrong(name, "a rate above 0 and at most 1, or a name in quotes")
        return float(found)

    def flag(self, name: str) -> bool:
        """Return true or false; false where nothing is said."""
        found = self._take(name, False)
        if not isinstance(found, bool):
            self.wrong(name, "true or false")
        return found

    def path(self, name: str, default: Any = NONE, *, must_exist: bool = False) -> Any:
        """Return a path; a relative one is meant from the file's folder."""
        found = self.text(name, default)
        if found is default:
            return found
        path = self.place.parent / Path(found).expanduser()
        if must_exist and not path.is_file():
            self.wrong(name, f"a file, and there is none at {path}")
        return path

    def address(self, name: str) -> str:
        """Return host:port."""
        found = self.text(name)
        host, colon, port = found.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            self.wrong(name, "host:port, such as 127.0.0.1:9092")
        return found

    def only_on_loopback(self, address: str) -> None:
        """Refuse to go without TLS where others could listen."""
        host = address.rpartition(":")[0].strip("[]")
        try:
            inside = ipaddress.ip_address(host).is_loopback
        except ValueError:
            inside = host == "localhost"
        if not inside:
            raise ConfigError(
                f"{self.place}: insecure = true sends what the sites answer in the clear, to anybody; it "
                f"is for addresses of this machine (127.0.0.1), not {host}. 'dpsep federate init' makes "
                "certificates and keys."
            )

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for keys in (self, *self.tables):
            for name in keys.document:
                if name not in keys.known:
                    there = f"[{keys.name}] of " if keys.name else ""
                    raise ConfigError(
                        f"{self.place}: {name!r} is no key of {there}{self.what}'s settings; those are "
                        f"{', '.join(keys.known)}."
                    )

    def missing(self, name: str) -> NoReturn:
        """Refuse a file without a key."""
        raise ConfigError(f"{self.place}: {self._full(name)} is missing; add a line {name} = ...")

    def wrong(self, name: str, allowed: str) -> NoReturn:
        """Refuse a value."""
        raise ConfigError(f"{self.place}: {self._full(name)} must be {allowed}.")

    def _take(self, name: str, default: Any = NONE) -> Any:
        if name not in self.known:
            self.known.append(name)
        if name not in self.document:
            if default is NONE:
                self.missing(name)
            return default
        return self.document[name]

    def _full(self, name: str) -> str:
        return f"{name!r} in [{self.name}]" if self.name else repr(name)
