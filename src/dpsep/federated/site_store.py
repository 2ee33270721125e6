"""A site's memory: a folder with what it has agreed to, been asked and answered.

Flower starts a process for every message, so nothing that matters lives in a process. One folder a run holds
the price and the terms (written before the charge), the reply to BEGIN (after it), what is asked of records
(by hash), the public values last seen, the releases of rounds in which the site works on its own, and every
answer under its number. Each file is written whole and durably or not at all
(`dpsep.privacy.checkpoint.atomic_write`), and a lock lets one process answer at a time.

**Privacy.** The folder is the site's own, readable by its owner only. In mode ``"server"`` kept answers are
exact sums: as secret as the rows. `end` deletes them and leaves a mark, so that the run cannot go on.
*Assumed:* nobody sets the folder back to an older copy; the releases after it could be made twice.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dpsep.privacy.checkpoint import atomic_write, fsync_folder, make_folder

try:
    import fcntl
except ImportError:  # not there on Windows: one process at a time is then the owner's duty
    fcntl = None

_TERMS, _PRICE, _BEGUN, _ENDED = "terms", "price", "begun", "ended"


class Kept(NamedTuple):
    """An answer that was kept: the hash of its question, and its bytes."""

    question: bytes
    answer: bytes


class Store:
    """What a site remembers, in a folder.

    Parameters
    ----------
    folder
        Private to the site; made if it is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        make_folder(self.folder / "runs")
        os.chmod(self.folder, 0o700)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process, and one thread of it, in at a time; the lock goes with the process."""
        with open(self.folder / "lock", "a") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def runs(self) -> tuple[str, ...]:
        """Return the runs that have begun and not ended."""
        folders = sorted((self.folder / "runs").iterdir())
        return tuple(one.name for one in folders if (one / _TERMS).exists() and not (one / _ENDED).exists())

    def identity(self) -> str:
        """Return what tells this folder from all others; made once, under the lock."""
        path = self.folder / "identity"
        if not path.exists():
            atomic_write(path, secrets.token_hex(16))
            os.chmod(path, 0o600)
        return path.read_text()

    def terms(self, run: str) -> bytes | None:
        """Return the terms of a run, if it is known."""
        return self._read(run, _TERMS)

    def begun(self, run: str) -> bytes | None:
        """Return the reply to BEGIN; None where the charge is not known to be done."""
        return self._read(run, _BEGUN)

    def ended(self, run: str) -> bool:
        """Say whether a run has ended."""
        return self._read(run, _ENDED) is not None

    def price(self, run: str) -> bytes | None:
        """Return the price that was written down before the charge, as the reply that tells it."""
        return self._read(run, _PRICE)

    def intend(self, run: str, terms: bytes, price: bytes) -> None:
        """Write down, before the charge, what will be charged and what for; the terms are there last."""
        make_folder(self._folder(run))
        self._write(run, _PRICE, price)
        self._write(run, _TERMS, terms)

    def forget(self, run: str) -> None:
        """Take back what was written down where nothing was charged for it."""
        for name in (_TERMS, _PRICE):
            (self._folder(run) / name).unlink(missing_ok=True)
        fsync_folder(self._folder(run))
        self._folder(run).rmdir()

    def begin(self, run: str, reply: bytes) -> None:
        """Write down, after the charge, that it is done."""
        self._write(run, _BEGUN, reply)

    def work(self, run: str, name: bytes) -> bytes | None:
        """Return what is asked of records, by its hash."""
        return self._read(run, f"work-{name.hex()}")

    def keep_work(self, run: str, name: bytes, content: bytes) -> None:
        """Keep what is asked of records."""
        self._write(run, f"work-{name.hex()}", content)

    def values(self, run: str, part: int) -> dict[bytes, bytes]:
        """Return the parts of public values last seen, by their hashes."""
        content = self._read(run, f"values-{part}") or b""
        found, at = {}, 0
        while at < len(content):
            size = int.from_bytes(content[at + 8 : at + 12], "little")
            found[content[at : at + 8]] = content[at + 12 : at + 12 + size]
            at += 12 + size
        return found

    def keep_values(self, run: str, part: int, values: dict[bytes, bytes]) -> None:
        """Keep the parts of public values, in place of those kept before."""
        parts = [name + len(one).to_bytes(4, "little") + one for name, one in values.items()]
        self._write(run, f"values-{part}", b"".join(parts))

    def answer(self, run: str, part: int, number: int) -> Kept | None:
        """Return the answer kept under a number."""
        content = self._read(run, f"answer-{part}-{number}")
        return None if content is None else Kept(content[:16], content[16:])

    def keep_answer(self, run: str, part: int, number: int, kept: Kept) -> None:
        """Keep an answer; on return it is on the disk and may be sent."""
        self._write(run, f"answer-{part}-{number}", kept.question + kept.answer)

    def release(self, run: str, number: int, index: int) -> Kept | None:
        """Return a release of a round in which the site works on its own, with the hash of its question."""
        content = self._read(run, f"release-{number}-{index}")
        return None if content is None else Kept(content[:16], content[16:])

    def keep_release(self, run: str, number: int, index: int, kept: Kept) -> None:
        """Keep a release; on return it is on the disk and something may be computed from it."""
        self._write(run, f"release-{number}-{index}", kept.question + kept.answer)

    def end(self, run: str, status: bytes) -> None:
        """Mark a run as ended and delete all that it kept but the terms and the mark."""
        self._write(run, _ENDED, status)
        for path in self._folder(run).iterdir():
            if path.name not in (_ENDED, _TERMS):
                path.unlink()
        fsync_folder(self._folder(run))

    def _folder(self, run: str) -> Path:
        return self.folder / "runs" / run

    def _read(self, run: str, name: str) -> bytes | None:
        try:
            return (self._folder(run) / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, run: str, name: str, content: bytes) -> None:
        path = self._folder(run) / name
        atomic_write(path, content)
        os.chmod(path, 0o600)
