"""How a ledger's server is reached: the URL, a connection, and which failures pass.

A URL is written `postgresql://USER@HOST:PORT/DATABASE?ledger=NAME`, or with `postgresql+psycopg`. NAME is
`ledger` where none is given, and one database holds as many ledgers as one likes. Other parameters of the
query are libpq's: `sslmode`, `host` for a folder with the server's socket, and so on. A password is best left
to libpq's password file or PGPASSWORD; in the URL it works as well, and is not shown.

SQLAlchemy and psycopg (the extra `postgres`) are imported when the first URL is read.
"""

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsep.privacy.ledger_rows import LedgerError
from dpsep.privacy.ledger_tables import OUT_OF_TURN

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine
    from sqlalchemy.exc import DBAPIError

SCHEMES = ("postgresql", "postgresql+psycopg")
FORM = "postgresql://USER@HOST/DATABASE?ledger=NAME"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_PASSWORD = re.compile(r"(://[^:/@]*):.*@", re.DOTALL)
_EMPTY_NAME = re.compile(r"[?&]ledger=(&|$)")
_SHOWN = ("host", "port", "sslmode", "sslrootcert", "target_session_attrs", "connect_timeout")
"""Parameters of a URL that messages may repeat; others may hold secrets."""
_HOPELESS = (
    *("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry"),
    *("Errno -2", "could not translate host name", "certificate", "sslmode", "not permitted to log in"),
)
"""Words of a refused connection that waiting does not change; others may come from a server that starts."""
_PASSING = ("08", "57P01", "57P02", "57P03", "25P03", "40", "53300", OUT_OF_TURN)
"""Beginnings of the SQLSTATEs after which another attempt may do better."""


class Address(NamedTuple):
    """Where a ledger is: for messages, its name in the database, and what to connect to."""

    place: str
    name: str
    url: "URL"


class SecretURL(str):
    """The text of a URL whose password is in it and is not printed."""

    def __repr__(self) -> str:
        return repr(str(self))

    def __str__(self) -> str:
        return _PASSWORD.sub(r"\1:***@", "".join(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def is_url(text: str) -> bool:
    """Say whether a text names a ledger on a server.

    Examples
    --------
    >>> is_url("postgresql://ana@db.example/studies?ledger=survey"), is_url("survey.ledger")
    (True, False)
    """
    return text.partition("://")[0].lower() in SCHEMES and "://" in text


def guarded(target: Any) -> Any:
    """Return a parameter as it is, and the text of a URL as one that does not print its password.

    Examples
    --------
    >>> guarded("postgresql://ana:secret@db.example/studies")
    'postgresql://ana:***@db.example/studies'
    """
    if isinstance(target, str) and not isinstance(target, SecretURL) and _PASSWORD.search(target):
        return SecretURL(target)
    return target


def read_url(text: str) -> Address:
    """Take a URL apart; nothing is contacted yet."""
    try:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        importlib.import_module("psycopg")
    except ImportError:
        raise LedgerError(
            "a ledger on a server needs SQLAlchemy and psycopg, which are not installed: "
            "pip install 'dpsep[postgres]'"
        ) from None
    try:
        url = make_url("".join(text))
    except (ArgumentError, ValueError):  # their words repeat the URL
        raise LedgerError(f"the URL of the ledger cannot be read: write {FORM}") from None
    if not {"password", "sslpassword"}.isdisjoint(url.query):
        raise LedgerError(
            "the URL of the ledger has a password among its parameters, where it would be shown: put it "
            f"before the @, or into libpq's password file, and write {FORM}"
        )
    if "@" in (url.host or "") or "@" in (url.username or ""):
        raise LedgerError(
            "the URL of the ledger has more than one @: write those of a password as %40, or leave the "
            f"password to libpq's password file, and write {FORM}"
        )
    name = "" if _EMPTY_NAME.search("".join(text)) else url.query.get("ledger", "ledger")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise LedgerError(
            "the name of a ledger on a server has 1 to 40 small letters, digits, - and _, and is given once: "
            f"write {FORM}"
        )
    if not url.database:
        raise LedgerError(f"the URL of the ledger names no database: write {FORM}")
    query = {key: value for key, value in url.query.items() if key != "ledger"}
    told = {key: value for key, value in query.items() if key in _SHOWN}
    shown = url._replace(drivername="postgresql", password=None).set(query=told | {"ledger": name})
    return Address(
        shown.render_as_string(hide_password=True),
        name,
        url.set(drivername="postgresql+psycopg", query=query),
    )


@functools.lru_cache(maxsize=64)
def engine(url: "URL", seconds: int) -> "Engine":
    """Return what opens connections and keeps none; `seconds` is the patience for one to be opened."""
    from sqlalchemy import NullPool, create_engine

    options = {
        "connect_timeout": seconds,
        "client_encoding": "utf8",
        "application_name": "dpsep",
        "keepalives_idle": 10,  # a server that vanished is noticed within half a minute
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    }
    return create_engine(
        url,
        poolclass=NullPool,
        hide_parameters=True,
        use_native_hstore=False,
        connect_args={key: value for key, value in options.items() if key not in url.query}
        | {"prepare_threshold": None},  # a pooler may give each transaction another connection
    )


def database_error() -> type["DBAPIError"]:
    """Return the class of what a server or its driver raises."""
    from sqlalchemy.exc import DBAPIError

    return DBAPIError


def state_of(error: "DBAPIError") -> str:
    """Return the SQLSTATE of a server's answer, nothing where there was none."""
    return getattr(error.orig, "sqlstate", None) or ""


def is_lost(error: "DBAPIError") -> bool:
    """Say whether the connection broke, so that the server's answer is not known."""
    return error.connection_invalidated or not state_of(error)


def is_passing(error: "DBAPIError") -> bool:
    """Say whether another attempt may do better: the server went away, is starting, or has no seat free."""
    from sqlalchemy.exc import OperationalError

    if error.connection_invalidated or state_of(error):
        return error.connection_invalidated or state_of(error).startswith(_PASSING)
    return isinstance(error, OperationalError) and not any(word in str(error.orig) for word in _HOPELESS)


def words_of(error: "DBAPIError", url: "URL") -> str:
    """Return the first line of what a server or its driver said, without the password."""
    said = " ".join(str(error.orig).split("\n")[0].split())
    return said.replace(str(url.password), "***") if url.password else said
