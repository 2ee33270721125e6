"""A run's folder: there whole or not at all, and worked on by one process at a time.

While a fit runs, ``RUN.partial`` holds its checkpoint and a lock. The result is written into a folder in
there, moved to ``RUN`` by one rename, and ``RUN.partial`` is removed. A process that is killed leaves
``RUN.partial`` and no ``RUN``.

**Privacy.** Two processes that went on from one checkpoint would both make the releases that were charged
once. The checkpoint has its own lock against that; the one here also guards the folders around it. Locks are
the operating system's, so a killed process does not keep them.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from dpsep.cli.errors import CallError
from dpsep.privacy.checkpoint import Checkpoint, fsync_folder

__all__ = ["RunFolder"]

MANIFEST = "manifest.json"


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path
        Where the finished run is to be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.shown = path
        self.partial = self.path.with_name(self.path.name + ".partial")

    @property
    def checkpoint(self) -> Path:
        """Where the fit keeps its releases."""
        return self.partial / "checkpoint"

    @property
    def metrics(self) -> Path:
        """Where the release for metrics of held-out rows is kept until the run is finished."""
        return self.partial / "metrics"

    @property
    def begun(self) -> bool:
        """Whether releases (or the charge for them) may have been kept."""
        return Checkpoint(self.checkpoint).path.exists()

    @contextlib.contextmanager
    def work(self, *, resume: bool, overwrite: bool) -> Iterator[bool]:
        """Hold the folder while the block runs; yield False where there is nothing left to do.

        A run that dies before its first release was charged leaves nothing behind.
        """
        there = self.partial.exists()
        if self.path.exists() and not (resume or overwrite):
            raise CallError(
                f"{self.shown} exists; name another folder with --out, or replace it with --overwrite."
            )
        if there and not (resume or overwrite):
            raise CallError(
                f"{self.partial} holds an unfinished run, whose charge stands. Continue it with --resume (a "
                "release that was under way is charged again), or discard it and pay anew with --overwrite."
            )
        self.partial.mkdir(parents=True, exist_ok=True)
        with _lock(self.partial / "lock", self.shown):
            try:
                yield self._decide(resume=resume, overwrite=overwrite)
            finally:
                if not self.begun:
                    shutil.rmtree(self.partial, ignore_errors=True)
        with contextlib.suppress(
            OSError
        ):  # where an open file cannot be removed, its folder is left until now
            if not self.begun:
                shutil.rmtree(self.partial)

    def finish(self, write: Callable[[Path], None]) -> None:
        """Let the result be written, move it into place and forget the checkpoint."""
        result = self.partial / "result"
        shutil.rmtree(result, ignore_errors=True)
        write(result)
        if self.path.exists():
            old = self.partial / "replaced"
            shutil.rmtree(old, ignore_errors=True)
            os.rename(self.path, old)
        os.rename(result, self.path)
        fsync_folder(self.path.parent)
        self._discard()

    def _decide(self, *, resume: bool, overwrite: bool) -> bool:
        if self.path.exists():
            if not (self.path / MANIFEST).exists():
                raise CallError(
                    f"{self.shown} is not the folder of a fit, so it is not replaced; name another one."
                )
            if resume and (not self.begun or self._same_run()):
                self._discard()
                return False
            if not overwrite:
                raise CallError(
                    f"{self.shown} is finished and {self.partial} holds another run; add --overwrite to go "
                    "on with that one and replace the finished one by it."
                )
        if overwrite and not resume:
            self._discard()
        return True

    def _same_run(self) -> bool:
        """Whether the finished run and the checkpoint are one, killed just before it was cleaned up."""
        saved = Checkpoint(self.checkpoint).load()
        try:
            finished = json.loads((self.path / "privacy.json").read_bytes())["run"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False  # no run of ours, or a damaged one: nothing is discarded
        return saved is not None and saved.meta.get("run") == finished

    def _discard(self) -> None:
        """Remove everything but the lock; the checkpoint first."""
        Checkpoint(self.checkpoint).path.unlink(missing_ok=True)
        for item in self.partial.iterdir():
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item, ignore_errors=True)
            elif item.name != "lock":
                item.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(path: Path, shown: Path) -> Iterator[None]:
    """Hold a file lock; refuse at once where another process holds it."""
    busy = CallError(f"another process is working on {shown}; let it finish, or name another folder.")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            if os.name == "nt":
                import msvcrt

                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
            else:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise busy from None
        # The file may have been removed by a process that finished between our open and our lock.
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise busy
        yield
    finally:
        os.close(descriptor)
