r"""Several processes that make one release together: who leads, what is told, how sums meet.

With `jax.distributed` the same program runs in several processes, on one machine or many, and each sums the
chunks whose turn it is. Process 0 leads: it holds the ledger, draws the sample and the noise, and tells the
others which rows to read and what was released, so that every process walks through the same states. Alone,
a process leads itself and nothing here does anything.

**Privacy.** *Same law:* one charge, one sample and one noise draw, all by the leader. The others' sums are
integers, gathered and added exactly, so a release does not depend on how many processes took part. *Charge
before touch:* the others wait for the leader's word that the charge is durable, and raise where it is not.
*In step:* before anything passes, all processes compare what they are at: which fit, which operation of it,
on which schedule, blocks and rows a chunk. Where one is elsewhere, or has failed, all raise `OutOfStep` and
stay out: a process that read rows under another fit's charge, or cut them otherwise, would break the
guarantee. *Trust:* processes of one run are one party. They see each other's sums and which rows are read,
over whatever network joins them; keep it private. Sites that must not see these things federate instead
(`dpsep.federated`). *Assumed:* every process is given the same table. The proof is in docs/proofs/gate.md.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

_WIDTH = 64
"""Bytes by which processes compare where they are: a mark, then a digest or the name of an error."""
_GOING, _FAILED = 1, 2


class OutOfStep(RuntimeError):
    """The processes of a run are at different places, or one has failed; nothing more is released by them."""


class _Place:
    """Where this process is: how many fits it has begun, how many operations it has taken part in."""

    fits = 0
    operations = 0
    broken = ""


def several() -> bool:
    """Say whether more than one process takes part."""
    return jax.process_count() > 1


def count() -> int:
    """Return how many processes take part."""
    return jax.process_count()


def leads() -> bool:
    """Say whether this process holds the ledger and draws the noise."""
    return jax.process_index() == 0


def turn(number: int) -> bool:
    """Say whether it is this process's turn to sum the chunk of this number."""
    return number % jax.process_count() == jax.process_index()


def next_fit() -> None:
    """Count that a fit begins; a fit that fails in one process is then no other process's next one."""
    _Place.fits += 1


def agree(what: str, *details: object) -> None:
    """Raise `OutOfStep`, in every process, where not all are at the same place.

    Parameters
    ----------
    what
        The operation.
    details
        What must be the same in all processes; compared by its representation.
    """
    if not several():
        return
    _Place.operations += 1
    place = repr((_Place.fits, _Place.operations, what, *details))
    _compare(_GOING, hashlib.sha256(place.encode()).digest())


def fail(error: BaseException) -> None:
    """Tell the others that this process has failed; they raise where they would meet it next."""
    if several() and not _Place.broken and not isinstance(error, OutOfStep):
        # Whatever the network says, such as that the others are gone, must not hide the error itself.
        with suppress(Exception):
            _compare(_FAILED, type(error).__name__.encode())


@contextmanager
def together() -> Iterator[None]:
    """Do a part of a run, such as the leader's charge; if it fails here, every process fails."""
    try:
        yield
    except BaseException as error:
        fail(error)
        raise


def total(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Add the arrays of all processes, in the order of processes; every process gets the sum."""
    if not several():
        return list(parts)
    agree("total", *((part.shape, part.dtype.str) for part in parts))
    both = zip(_gathered(tuple(parts)), parts, strict=True)
    return [np.asarray(every).reshape(-1, *own.shape).sum(axis=0) for every, own in both]


def tell(arrays: dict[str, NDArray[Any]] | None) -> dict[str, NDArray[Any]]:
    """Give every process the leader's arrays; what others pass is not looked at.

    Parameters
    ----------
    arrays
        Of numbers, by name. None only from a process that does not lead.
    """
    if not several():
        assert arrays is not None
        return arrays
    agree("tell")
    packed = b""
    if leads():
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **(arrays or {}))
        packed = buffer.getvalue()
    with np.load(io.BytesIO(_told(packed)), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def tell_text(value: Any = None) -> Any:
    """Give every process the leader's value, of JSON types."""
    if not several():
        return value
    agree("tell text")
    return json.loads(_told(json.dumps(value).encode() if leads() else b""))


def _told(packed: bytes) -> bytes:
    """Bytes of the leader, in every process."""
    sizes = np.asarray(_gathered(np.array([len(packed)], np.int64))).reshape(-1)
    room = np.zeros(int(sizes[0]), np.uint8)
    if leads():
        room[:] = np.frombuffer(packed, np.uint8)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(room)).tobytes()


def _compare(mark: int, content: bytes) -> None:
    """Show all processes where this one is, and raise where they are not all there."""
    if _Place.broken:
        raise OutOfStep(_Place.broken)
    own = np.zeros(_WIDTH, np.uint8)
    own[0] = mark
    own[1 : 1 + len(content[: _WIDTH - 1])] = np.frombuffer(content[: _WIDTH - 1], np.uint8)
    found = np.asarray(_gathered(own)).reshape(-1, _WIDTH)
    failed = [line for line in found if line[0] == _FAILED]
    if mark == _GOING and not failed and (found == own).all():
        return
    told = bytes(failed[0][1:]).rstrip(b"\0").decode("ascii", "replace") if failed else ""
    why = f"one of them stopped with {told}" if told else "they are at different steps or settings"
    _Place.broken = (
        f"the processes of a run fell out of step: {why}. Nothing more is read or released by them; what was "
        "charged stays spent. The message of the process that stopped is in its own output. Mend that, and "
        "start all processes again."
    )
    raise OutOfStep(_Place.broken)


def _gathered(value: Any) -> Any:
    from jax.experimental import multihost_utils

    with jax.enable_x64(True):
        return multihost_utils.process_allgather(value)
