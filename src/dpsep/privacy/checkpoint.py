"""Durable files: results written whole or not at all, and checkpoints that hold released vectors only.

`atomic_write` puts a file in place by the usual recipe: write under a temporary name in the same folder,
`fsync` the file, rename it over the old one, `fsync` the folder. A crash at any moment leaves the old file or
the new one. `Checkpoint` keeps one such file, an `.npz` with the last released vectors, the step number and
public settings, so that a long private fit can go on after a crash.

**Privacy**

A checkpoint is a copy of what the gate has already released, so it costs nothing (post-processing), under any
relation. That holds only while it carries nothing else: generator state would let its reader recompute the
noise and the sampling coins and take both away from the released vectors. Names that look like generator
state, unsigned words (what generators are made of) and Python objects are therefore refused with a
`TypeError`, at every depth. A resume draws its randomness afresh from the operating system, and charges
again, as an `extra-step`, each step begun but not durably released: `save` returns only once the file is on
the disk.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Saved",
    "WriteError",
    "atomic_write",
    "durable_names",
    "fsync_folder",
    "make_folder",
]

FORMAT = 1
FILE_NAME = "checkpoint.npz"
_HEADER = "header"
_PREFIX = "array/"
_GENERATOR_WORDS = ("seed", "key", "state", "rng", "stream")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WriteError(OSError):
    """A file could not be written; whatever stood at its path before is still there, whole."""


class CheckpointError(RuntimeError):
    """A checkpoint on the disk cannot be used."""


class Saved(NamedTuple):
    """What a checkpoint holds: the step number, the released vectors and the public settings."""

    step: int
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]


def fsync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable: a rename survives a power cut only after this."""
    with durable_names(folder):
        pass


@contextlib.contextmanager
def durable_names(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Make the names in a folder durable at a block's end; a folder that cannot be opened fails before it."""
    if os.name == "nt":  # Windows cannot open a folder; its renames are journalled by the file system
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no such operation
                raise
    finally:
        os.close(descriptor)


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Make a folder, and those above it that are missing, so that a power cut does not take it away again.

    A sync of a folder makes the names in it durable and not its own name, which the folder above holds.

    Raises
    ------
    WriteError
        It cannot be made, or its name cannot be made durable.
    """
    folder = Path(os.path.abspath(folder))
    try:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for one in missing:
            fsync_folder(one.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(
            error.errno,
            f"the folder {folder} cannot be made ({reason}): name one in an existing folder that you may "
            "write to, on a disk with room",
        ) from error


def atomic_write(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file whole and durably, or leave what was there as it was.

    Parameters
    ----------
    path
        The file to write; its folder must exist. A symbolic link is followed.
    content
        Bytes, or text to be written as UTF-8.

    Raises
    ------
    WriteError
        The disk is full, the folder is missing or cannot be written to, or the path is not a regular file. No
        temporary file stays.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> atomic_write(folder / "result.json", '{"epsilon": 1.0}')
    >>> (folder / "result.json").read_text()
    '{"epsilon": 1.0}'
    """
    payload = content.encode() if isinstance(content, str) else bytes(content)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        # A rename over a device or a pipe would replace it by a file.
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            raise WriteError(
                errno.EINVAL, f"{target} is not a regular file: results go to a file of their own, name one"
            )
        _write_durably(temporary, payload)
        os.replace(temporary, target)
        fsync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, WriteError) or not isinstance(error, OSError):
            raise
        raise WriteError(error.errno, _explain(error, target, len(payload))) from error


class Checkpoint:
    """One durable checkpoint in a folder of its own; see the module's Privacy section for what may enter it.

    Parameters
    ----------
    folder
        Where the file lies; made at the first save if it is missing.

    Examples
    --------
    >>> import tempfile
    >>> checkpoint = Checkpoint(tempfile.mkdtemp())
    >>> checkpoint.load() is None
    True
    >>> checkpoint.save(3, {"released": np.array([0.5, -1.0])}, {"run": "r1"})
    >>> checkpoint.load()
    Saved(step=3, arrays={'released': array([ 0.5, -1. ])}, meta={'run': 'r1'})
    >>> checkpoint.save(4, {"rng_state": np.zeros(2)}, {})
    Traceback (most recent call last):
        ...
    TypeError: a checkpoint may not hold 'rng_state': ...
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.folder)!r})"

    @property
    def path(self) -> Path:
        """The file that holds the checkpoint."""
        return self.folder / FILE_NAME

    def save(self, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Replace the checkpoint; on return it is on the disk.

        Parameters
        ----------
        step
            How many steps have been released.
        arrays
            Released vectors, or what follows from them: real numbers or signed integers.
        meta
            Public settings that JSON can hold, such as the run's name and a fingerprint of the public
            parameters.
        """
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
            raise ValueError(f"step is {step!r}: give the number of released steps, an integer of at least 0")
        _refuse_generator_names(arrays)
        _refuse_generator_names(meta)
        vectors = {name: _released_vector(name, value) for name, value in arrays.items()}
        header = {"format": FORMAT, "step": int(step), "meta": dict(meta), "digest": _digest(vectors)}
        try:
            text = json.dumps(header, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"meta must be what JSON can hold, without NaN or infinity: {error}") from error
        if json.loads(text)["meta"] != header["meta"]:
            raise TypeError("meta would change on its way through JSON: use text keys and lists, not tuples")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            members = {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}
            members |= {_PREFIX + name: vector for name, vector in vectors.items()}
            for name, member in members.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, member, allow_pickle=False)
        make_folder(self.folder)
        atomic_write(self.path, buffer.getvalue())

    def load(self) -> Saved | None:
        """Read the checkpoint back, or return None where there is none.

        Raises
        ------
        CheckpointError
            The file is damaged, is not a checkpoint, or was written by a newer version.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"the checkpoint {self.path} cannot be read: {error.strerror}") from error
        try:
            _refuse_packed(content)
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                header = json.loads(archive[_HEADER].tobytes())
                version = header["format"]
                names = [name for name in archive.files if name.startswith(_PREFIX)]
                vectors = (
                    {name.removeprefix(_PREFIX): archive[name] for name in names} if version == FORMAT else {}
                )
            saved = Saved(header["step"], vectors, header["meta"])
            if type(saved.step) is not int or saved.step < 0 or not isinstance(saved.meta, dict):
                raise ValueError("a header that `save` does not write")
            damaged = version == FORMAT and header["digest"] != _digest(vectors)
        except Exception as error:  # a damaged archive fails in many ways: zlib, zip, NumPy's header, JSON
            raise CheckpointError(self._advice("is damaged or is not a checkpoint")) from error
        if version != FORMAT:
            raise CheckpointError(
                f"the checkpoint {self.path} has format {version!r} and this version reads format {FORMAT}: "
                "use the version of dpsep that wrote it, or start anew with an empty folder"
            )
        if damaged:
            raise CheckpointError(self._advice("is damaged: its vectors do not match their digest"))
        return saved

    def _advice(self, what: str) -> str:
        return (
            f"the checkpoint {self.path} {what}; only a whole file written by Checkpoint.save is used. Move "
            "it away and start anew (what the ledger was charged stays spent). An older copy is no way out: "
            "releases made since would be made again, uncharged"
        )


def _refuse_packed(content: bytes) -> None:
    """Refuse members that are packed or larger than the file: `save` writes none, and they fill memory."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > len(content):
        raise ValueError("an archive that `save` does not write")


def _write_durably(path: Path, payload: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        view = memoryview(payload)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(error: OSError, target: Path, size: int) -> str:
    if error.errno in _FULL:
        return f"no room on the disk to write {size} bytes to {target}: free some, or name another folder"
    reason = error.strerror or str(error)
    return f"{target} cannot be written ({reason}): name a file in an existing folder that you may write to"


def _refuse_generator_names(value: Any) -> None:
    """Look at every key, at every depth; part of a name is enough, for `prng_key0` as for `random_state`."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"{name!r} is no name for a checkpoint's content: use text that is not empty")
            word = next((word for word in _GENERATOR_WORDS if word in name.lower()), None)
            if word is not None:
                raise TypeError(
                    f"a checkpoint may not hold {name!r}: {word!r} in a name means the state of a random "
                    "generator, from which the noise could be recomputed. Save released vectors only, or "
                    "use another name"
                )
            _refuse_generator_names(part)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | np.ndarray):
        for part in value:
            _refuse_generator_names(part)


def _released_vector(name: str, value: Any) -> np.ndarray:
    vector = np.asarray(value)
    if vector.dtype.kind not in "bif":
        raise TypeError(
            f"the array {name!r} has dtype {vector.dtype}: a checkpoint holds real numbers, signed integers "
            "or booleans, never objects, text or unsigned words (a generator's)"
        )
    return np.ascontiguousarray(vector).reshape(vector.shape)


def _digest(vectors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(vectors):
        vector = vectors[name]
        digest.update(json.dumps([name, vector.dtype.str, list(vector.shape)]).encode())
        digest.update(vector.tobytes())
    return digest.hexdigest()
