"""Runs that can die and go on: the releases of a run, kept one by one before they are used.

**Privacy.** A checkpoint holds released vectors, their number and the hash of public settings; no generator
state, no batch, nothing of a record. The state of an algorithm is a function of its releases, so it is computed
from them again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.checkpoint import Checkpoint, CheckpointError
from dpsep.privacy.gate import Gate
from dpsep.privacy.scaling import Scaling

Array = NDArray[np.float64]


class SavedRun:
    """The releases of a run, in memory and, with a checkpoint, on disk after every one of them."""

    def __init__(self, checkpoint: Checkpoint | None, fingerprint: str) -> None:
        self._checkpoint = checkpoint
        self._fingerprint = fingerprint
        self._arrays: dict[str, Array] = {}
        self.run: str | None = None
        self.lost = 0
        self.releases = 0
        found = checkpoint.load() if checkpoint is not None else None
        if found is None:
            return
        if found.meta.get("settings") != fingerprint:
            raise CheckpointError(
                "the checkpoint belongs to a run with other settings or another table shape; give the same ones "
                "to resume it, or another folder to start anew."
            )
        self._arrays = dict(found.arrays)
        self.run, self.lost, self.releases = found.meta["run"], found.meta["lost"], found.step

    @property
    def scaling(self) -> Scaling | None:
        """The private scaling, if it was released and kept."""
        if "scaling" not in self._arrays:
            return None
        return Scaling(*self._arrays["scaling"])

    def begin(self, run: str) -> None:
        """Write down, before anything is read, that the run has begun."""
        self.run = run
        self._write()

    def keep_scaling(self, scaling: Scaling) -> None:
        """Keep a released scaling."""
        self._arrays["scaling"] = np.stack(scaling)
        self._write()

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
            self._checkpoint.save(self.releases, self._arrays, meta)


class KeptGate:
    """A gate that hands out kept releases first and keeps new ones before they are used."""

    def __init__(self, gate: Gate, saved: SavedRun, on_step: Callable[[int, int], None] | None) -> None:
        self._gate = gate
        self._saved = saved
        self._next = 0
        self._on_step = on_step
        self.records = gate.records
        self.expected_batch = gate.expected_batch
        self.deviations = gate.deviations

    def release(self, public: Any) -> dict[str, Array]:
        if self._next < self._saved.releases:
            released = self._saved.release(self._next, list(self.deviations))
        else:
            released = self._gate.release(public)
            self._saved.keep(released)
        self._next += 1
        if self._on_step is not None:
            self._on_step(self._next, self._gate.mechanism.steps)
        return released
