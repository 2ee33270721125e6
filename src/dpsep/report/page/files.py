"""Files of a run's folder, read as a stranger's: regular, of bounded size, and checked by the manifest.

A link, a device or a pipe is not opened: it may have no end, or lead out of the folder. What does not match
the manifest is not handed on. Files that a report does not use are read block by block for their checksum.
"""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from dpsep.estimators import store

__all__ = ["LARGEST", "Absent", "File", "Folder", "read_folder", "read_json", "read_plain"]

LARGEST = 64 * 2**20
"""Most bytes of one file that are read."""
MOST_BYTES = 256 * 2**20
"""Most bytes of a folder that are read."""
_BLOCK = 2**20
_MANIFEST = store.MANIFEST
_MOST_FILES = 100


class Absent(NamedTuple):
    """Stands where a part of a run is not there; ``why`` is a sentence for the reader."""

    why: str


class File(NamedTuple):
    """One file of a folder.

    Attributes
    ----------
    name
        In the folder.
    size
        In bytes; None where it was not read.
    digest
        SHA-256 of what is there; None where it was not read.
    state
        ``"matches"``, ``"changed"``, ``"not in the manifest"``, or why it was not read.
    """

    name: str
    size: int | None
    digest: str | None
    state: str


class Folder(NamedTuple):
    """A folder's files: what they hold by name, how they stand to the manifest, and what is wrong if any."""

    contents: dict[str, bytes | Absent]
    files: tuple[File, ...]
    trouble: tuple[str, ...]


class _Read(NamedTuple):
    """A file that was read: its checksum, its size, and what it holds if that was to be kept."""

    digest: str
    size: int
    content: bytes


def read_plain(path: Path) -> bytes | Absent:
    """Read a regular file of bounded size; anything else is said, not opened."""
    found = _read(path, keep=True)
    return found if isinstance(found, Absent) else found.content


def _read(path: Path, *, keep: bool, left: int = MOST_BYTES) -> _Read | Absent:
    """Read a file block by block, as far as its own limit and what is left of the folder's allow."""
    name = path.name
    large = Absent(f"{name} is larger than {LARGEST // 2**20} MB, so it was not read.")
    if left < LARGEST:
        large = Absent(
            f"{name} was not read: the folder's files have more than {MOST_BYTES // 2**20} MB in all."
        )
    limit = min(LARGEST, left)
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            return Absent(f"{name} is not a regular file, so it was not opened.")
        if found.st_size > limit:
            return large
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Absent(f"{name} is not a regular file, so it was not opened.")
            digest, size, blocks = hashlib.sha256(), 0, []
            while size <= limit and (block := file.read(_BLOCK)):
                digest.update(block)
                size += len(block)
                if keep:
                    blocks.append(block)
    except FileNotFoundError:
        return Absent(f"There is no {name}.")
    except OSError as error:
        return Absent(f"{name} cannot be read ({error.strerror or type(error).__name__}).")
    return large if size > limit else _Read(digest.hexdigest(), size, b"".join(blocks))


def read_json(content: bytes | Absent, name: str) -> Any:
    """Return a JSON document, or `Absent`."""
    if isinstance(content, Absent):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError, MemoryError):
        return Absent(f"{name} is no JSON that can be read.")


def read_folder(folder: Path, wanted: tuple[str, ...]) -> Folder:
    """Read the manifest, the files that it names, and those wanted; say what does not match.

    Parameters
    ----------
    folder
        Of a run.
    wanted
        Names of files that a report uses, whose contents alone are kept. They are read without a manifest
        too, for a report that makes no statement of privacy.
    """
    expected = _manifest(folder)
    digests = {} if isinstance(expected, Absent) else expected
    trouble = [expected.why] if isinstance(expected, Absent) else []
    contents: dict[str, bytes | Absent] = {}
    files, left = [], MOST_BYTES
    for name in [*wanted, *(one for one in digests if one not in wanted)]:
        found = _read(folder / name, keep=name in wanted, left=left)
        if isinstance(found, Absent):
            contents[name] = found
            if name in digests:
                files.append(File(name, None, None, found.why))
                trouble.append(found.why)
            continue
        left -= found.size
        state = "not in the manifest" if name not in digests else "matches"
        if name in digests and found.digest != digests[name]:
            state = "changed"
            trouble.append(f"{name} was changed after the fit: it does not match the manifest.")
        files.append(File(name, found.size, found.digest, state))
        usable = state == "matches" or isinstance(expected, Absent)
        if name in wanted:
            contents[name] = (
                found.content if usable else Absent(f"{name} does not match the manifest: not shown.")
            )
    return Folder(contents, tuple(files), tuple(trouble))


def _manifest(folder: Path) -> dict[str, str] | Absent:
    """Return the digest of each file, after the checks that `store.load` makes."""
    document = read_json(read_plain(folder / _MANIFEST), _MANIFEST)
    if isinstance(document, Absent):
        return document
    try:
        version, files, own = document["format"], document["files"], document.pop("sha256")
        whole = store.sha256(store.as_json(document))
        known = isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= store.FORMAT
        named = isinstance(files, dict) and all(map(store.is_file_name, files))
        texts = named and all(isinstance(digest, str) for digest in files.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Absent(f"{_MANIFEST} cannot be read as a manifest.")
    if not known:
        return Absent(f"{_MANIFEST} has a format that this version of dpsep does not know.")
    if own != whole or not texts or store.POSTERIOR not in files or len(files) > _MOST_FILES:
        return Absent(f"{_MANIFEST} was changed after the fit.")
    return files
