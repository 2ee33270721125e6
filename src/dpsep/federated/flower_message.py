"""A question or an answer of the federation as a Flower message: one record with one field of bytes.

Flower carries; what the bytes say is in `dpsep.federated.wire`, which also checks them. Two kinds of message
go out from the server: `NAME` asks a node which site it is, and is answered without a look at any record, and
`ASK` holds a question for `Site.answer`.

**Privacy.** Flower's processes (SuperLink, SuperNode) hold the bytes of each message in memory while it
travels, and with TLS nobody on the way reads them. In mode ``"server"`` these bytes are exact sums: whoever
runs the SuperLink is the trusted server. Flower logs a message's kind, number and node, never its content;
nothing here logs more than that.
"""

import os

from flwr.app import ConfigRecord, Message, RecordDict

__all__ = ["ASK", "LONGEST", "NAME", "content", "payload", "quiet_environment", "seconds"]

RECORD = "dpsep"
NAME, ASK = "query.name", "query.ask"
LONGEST = 1 << 28
"""Bytes of the longest message that is taken on: that of `dpsep.federated.wire`."""


def content(data: bytes, spent: float | None = None) -> RecordDict:
    """Put bytes into what a message carries.

    Parameters
    ----------
    data
        The question or answer.
    spent
        Seconds that the site worked for it. Only demonstrations tell it: how long a site worked may depend on
        how many of its records were drawn.

    Examples
    --------
    >>> sorted(content(b"hello")["dpsep"].items())
    [('bytes', b'hello')]
    """
    fields: dict[str, bytes | float] = {"bytes": data}
    if spent is not None:
        fields["seconds"] = float(spent)
    return RecordDict({RECORD: ConfigRecord(fields)})  # pyright: ignore[reportArgumentType]


def payload(message: Message) -> bytes | None:
    """Return the bytes of a message; None where it holds none, too many, or an error of Flower's."""
    data = _field(message, "bytes")
    return data if isinstance(data, bytes) and len(data) <= LONGEST else None


def seconds(message: Message) -> float | None:
    """Return how long the site says that it worked; None where it does not say."""
    spent = _field(message, "seconds")
    return spent if isinstance(spent, float) else None


def quiet_environment(home: str | os.PathLike[str]) -> dict[str, str]:
    """Return the environment for Flower's processes: nothing is told to its makers, and a home of our own.

    Parameters
    ----------
    home
        Folder for what Flower keeps; the user's own ``~/.flwr`` is not touched.
    """
    return os.environ | {
        "FLWR_HOME": os.fspath(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    }


def _field(message: Message, name: str) -> object:
    if not message.has_content() or RECORD not in message.content:
        return None
    record = message.content[RECORD]
    return record.get(name) if isinstance(record, ConfigRecord) else None
