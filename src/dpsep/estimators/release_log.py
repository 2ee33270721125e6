"""Runs that can die and go on: the releases of a run, kept one by one before they are used.

**Privacy.** A checkpoint holds released vectors, their number and the hash of public settings; no generator
state, no batch, nothing of a record. The state of an algorithm is a function of its releases, so it is
computed from them again. A folder is locked while a run uses it, and it remembers which ledger the run was
charged to: two processes in one folder, or a resume that some other ledger (or none) hears of, would make
releases that nothing was charged for. With a ledger, each release is noted there by its number before it is
made, and no number is granted twice: an old copy of a folder is refused (`check_copy`), and two copies
together release no more than was charged. *Assumed:* without a ledger, nobody resumes an older copy of a
folder, or two copies. The proof is in docs/proofs/index.md.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.release_trace import Path as FitPath
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError, fsync_folder, make_folder
from dpsep.privacy.gate import Gate
from dpsep.privacy.ledger import Ledger, Row
from dpsep.privacy.permit import Permit

try:
    import fcntl
except ImportError:  # not there on Windows, where two processes in one folder are not noticed
    fcntl = None

Array = NDArray[np.float64]


class SavedRun:
    """The releases of a run, in memory and, with a checkpoint, on disk after every one of them.

    Parameters
    ----------
    checkpoint
        Where they are kept; None keeps them in memory.
    fingerprint
        Hash of the run's public settings.
    ledger
        The ledger that is charged; None where there is none.

    Attributes
    ----------
    run
        Name of the run found in the checkpoint, or begun.
    lost
        Releases that may have been made and not kept.
    releases
        Releases kept.
    secure
        Whether all of them come from a secure stream.
    path
        What releases held beside their noise, those handed out again included.
    permit
        Proof of the charge, once there is one.
    """

    def __init__(self, checkpoint: Checkpoint | None, fingerprint: str, ledger: Ledger | None = None) -> None:
        self._checkpoint = checkpoint
        self._fingerprint = fingerprint
        self.ledger = ledger
        self._arrays: dict[str, Array] = {}
        self.run: str | None = None
        self.lost = 0
        self.releases = 0
        self.secure = True
        self.path = FitPath()
        self.permit: Permit | None = None
        self._lock: IO[str] | None = None
        if checkpoint is None:
            return
        self._lock = _locked(checkpoint.folder)
        try:
            self._load(checkpoint)
        except BaseException:
            self.__exit__()
            raise

    def _load(self, checkpoint: Checkpoint) -> None:
        found = checkpoint.load()
        if found is None:
            return
        if found.meta.get("settings") != self._fingerprint:
            raise CheckpointError(
                "the checkpoint belongs to a run with other settings or another table shape; give the same "
                "ones to resume it, or another folder to start anew."
            )
        kinds = {"run": str, "lost": int, "secure": bool, "ledger": str | None}
        if any(not isinstance(found.meta.get(key, ...), kind) for key, kind in kinds.items()):
            raise CheckpointError(
                "the checkpoint says nothing of its run, or nonsense; only a whole file is used. Move it "
                "away and start anew in another folder."
            )
        if found.meta["ledger"] != self._ledger_name:
            raise CheckpointError(
                "the run of this checkpoint was charged to another ledger, or to none; give the same one to "
                "resume it, or another folder to start anew. Nothing was charged or read."
            )
        self._arrays = dict(found.arrays)
        self.run, self.lost, self.releases = found.meta["run"], found.meta["lost"], found.step
        self.secure = found.meta["secure"]

    @property
    def _ledger_name(self) -> str | None:
        return None if self.ledger is None else self.ledger.id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def early(self, name: str) -> Array | None:
        """Return what a part before the fit released under this name, if it was kept."""
        return self._arrays.get(name)

    def begin(self, run: str, *, secure: bool) -> None:
        """Write down, before anything is read, that the run has begun."""
        self.run = run
        self.secure = self.secure and secure
        self._write()

    def check_copy(self, rows: Sequence[Row], *, complete: bool) -> int:
        """Return how many lost releases the ledger was charged for; refuse a copy that it knows to be old.

        A resume is written down here before it is charged, and a release in the ledger before it is made. So
        a ledger that knows of more resumes than the checkpoint, or of releases beyond the one that may have
        been under way, has seen a later copy of it.
        """
        own = [row for row in rows if row.run == self.run]
        kinds = [row.kind for row in own]
        if "charge" not in kinds:
            raise CheckpointError(
                "the ledger holds no charge of the run in this checkpoint: it is another one or an old copy. "
                "Restore the ledger that was charged, or start anew in another folder."
            )
        charged = kinds.count("extra-step")
        begun = max((int(row.event["number"]) for row in own if row.kind == "release"), default=0)
        late = begun > self.releases + charged + 1
        if charged > self.lost or late or ("finished" in kinds and not complete):
            raise CheckpointError(
                "the ledger knows of a later state of this run: the checkpoint is an old copy, and its "
                "releases would be made twice. Restore the latest one, or start anew in another folder."
            )
        return charged

    def keep_early(self, name: str, released: Array) -> None:
        """Keep what a part before the fit released."""
        self._arrays[name] = released
        self._write()

    def begin_release(self) -> None:
        """Tell the ledger, if there is one and the run can be resumed, that the next release begins."""
        if self.ledger is not None and self._checkpoint is not None:
            assert self.run is not None
            self.ledger.begin_release(self.run, self.releases + self.lost + 1)

    def keep(self, released: dict[str, Array]) -> None:
        """Keep a release."""
        for name, value in released.items():
            self._arrays[f"{name}.{self.releases}"] = value
        self.releases += 1
        self._write()

    def release(self, number: int, names: list[str]) -> dict[str, Array]:
        """Return a release kept earlier."""
        return {name: self._arrays[f"{name}.{number}"] for name in names}

    def _write(self) -> None:
        if self._checkpoint is not None:
            meta = {"run": self.run, "lost": self.lost, "settings": self._fingerprint}
            meta |= {"ledger": self._ledger_name, "secure": self.secure}
            self._checkpoint.save(self.releases, self._arrays, meta)


class KeptGate:
    """A gate that hands out kept releases first and keeps new ones before they are used.

    Parameters
    ----------
    gate, saved
        Where new releases come from, and where they are kept.
    on_step
        Called after every release with the number made and their total. One that has a method ``begin`` is
        first told what was charged: the schedule, delta, epsilon, and how many releases may have been made
        and not kept; all public.
    """

    def __init__(self, gate: Gate, saved: SavedRun, on_step: Callable[[int, int], None] | None) -> None:
        self._gate = gate
        self._saved = saved
        self._next = 0
        self._on_step = on_step
        begin = getattr(on_step, "begin", None)
        if begin is not None and saved.permit is not None:
            permit = saved.permit
            begin(permit.schedule, permit.delta, permit.epsilon, saved.lost)

    @property
    def records(self) -> int:
        """Public number of records."""
        return self._gate.records

    @property
    def expected_batch(self) -> float:
        """Expected rows of the last release."""
        return self._gate.expected_batch

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each block's noise in the last release."""
        return self._gate.deviations

    def release(self, public: Any) -> dict[str, Array]:
        """Return the next release, kept or new."""
        if self._next < self._saved.releases:
            released = self._saved.release(self._next, list(self.deviations))
        else:
            self._saved.begin_release()
            released = self._gate.release(public)
            self._saved.keep(released)
        self._next += 1
        self._saved.path.release(released, self.deviations)
        if self._on_step is not None:
            self._on_step(self._next, self._gate.mechanism.steps)
        return released


def _locked(folder: Path) -> IO[str]:
    """Lock a folder for this process; the lock goes with the process, however it ends."""
    try:
        make_folder(folder)
        # A run that died may have put its last checkpoint in place without living to make that durable.
        fsync_folder(folder)
        lock = open(folder / "lock", "a")  # noqa: SIM115 (held open for as long as the run lasts)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CheckpointError(
            f"the checkpoint folder {folder} cannot be written ({reason}); name another."
        ) from error
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise CheckpointError(
                f"the checkpoint folder {folder} is in use by another run (or cannot be locked: "
                f"{os.strerror(error.errno or 0)}); wait for that run to end, or name another folder."
            ) from error
    return lock
