r"""Several processes that make one release together: who leads, what is told, how sums meet.

With `jax.distributed` the same program runs in several processes, on one machine or many, and each sums the
chunks whose turn it is. Process 0 leads: it holds the ledger, draws the sample and the noise, and tells the
others which rows to read and what was released, so that every process walks through the same states. Alone,
a process leads itself and nothing here does anything.

**Privacy.** *Same law:* one charge, one sample and one noise draw, all by the leader. The others' sums are
integers, gathered and added exactly, so a release does not depend on how many processes took part. *Charge
before touch:* the others wait for the leader's word that the charge is durable, and raise where it is not.
*Trust:* processes of one run are one party. They see each other's sums and which rows are read, over
whatever network joins them; keep it private. Sites that must not see these things federate instead
(`dpsep.federated`). *Assumed:* every process is given the same table and the same settings.
The proof is in docs/proofs/gate.md.
"""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray


class LeaderFailed(RuntimeError):
    """The process that holds the ledger stopped; nothing was read after that."""


def several() -> bool:
    """Say whether more than one process takes part."""
    return jax.process_count() > 1


def leads() -> bool:
    """Say whether this process holds the ledger and draws the noise."""
    return jax.process_index() == 0


def turn(number: int) -> bool:
    """Say whether it is this process's turn to sum the chunk of this number."""
    return number % jax.process_count() == jax.process_index()


def total(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Add the arrays of all processes, in the order of processes; every process gets the sum."""
    if not several():
        return list(parts)
    from jax.experimental import multihost_utils

    with jax.enable_x64(True):
        gathered = multihost_utils.process_allgather(tuple(parts))
    return [
        np.asarray(part).reshape(-1, *own.shape).sum(0) for part, own in zip(gathered, parts, strict=True)
    ]


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
    packed = b""
    if leads():
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **(arrays or {}))
        packed = buffer.getvalue()
    with np.load(io.BytesIO(_told(packed)), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def tell_text(value: Any = None) -> Any:
    """Give every process the leader's value, of JSON types."""
    return json.loads(_told(json.dumps(value).encode() if leads() else b""))


@contextmanager
def leading() -> Iterator[None]:
    """Do what only the leader does, such as a charge; if that fails, every process fails."""
    try:
        yield
    except BaseException as error:
        if several():
            tell_text({"failed": type(error).__name__})
        raise


def follow() -> Any:
    """Wait, in a process that does not lead, for the leader's word, or for its failure in `leading`."""
    told = tell_text()
    if isinstance(told, dict) and "failed" in told:
        raise LeaderFailed(
            f"the process that holds the ledger stopped with {told['failed']}, before anything was read; its "
            "message is in the output of process 0. Mend that, and start all processes again."
        )
    return told


def _told(packed: bytes) -> bytes:
    """Bytes of the leader, in every process."""
    if not several():
        return packed
    from jax.experimental import multihost_utils

    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(packed))))
    room = np.zeros(size, np.uint8)
    if leads():
        room[:] = np.frombuffer(packed, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(room)).tobytes()
