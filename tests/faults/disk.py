"""A fault-injecting file layer: every change below a folder is noted in order, and may be made to fail.

Two ways lead from this library to the disk. SQLite goes through its *virtual file system*, a table of
functions; a copy of the default one, with the functions that change something wrapped, takes its place while
a `Disk` is open. Everything else (temporary files, links, renames, syncs of folders) goes through `os`, whose
functions are wrapped likewise. Nothing in the library knows of it.
"""

import _sqlite3
import ctypes
import errno
import functools
import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

OK, FULL, IO_ERROR, CANNOT_OPEN = 0, 13, 10, 14
CREATE = 4
"""The flag of SQLite's xOpen that lets it make a file."""


class Operation(NamedTuple):
    """One change of the disk.

    Attributes
    ----------
    kind
        What was done. ``name`` to ``other`` for links and renames; ``sync`` is of a file's bytes,
        ``sync folder`` of the names in a folder.
    name
        The path.
    offset, data
        Of a write; a truncation has its size as the offset.
    other
        The new name of a link or rename.
    """

    kind: Literal[
        "create", "write", "truncate", "sync", "link", "rename", "remove", "make folder", "sync folder"
    ]
    name: str
    offset: int = 0
    data: bytes = b""
    other: str = ""


class Died(BaseException):
    """The process has ended here: nothing after this reaches the disk."""


class Unreachable(RuntimeError):
    """SQLite's functions cannot be found in this interpreter."""


class _VFS(Structure):
    pass


# The name as an address: SQLite keeps it, and reads on behind its end.
_Open = CFUNCTYPE(c_int, POINTER(_VFS), c_void_p, c_void_p, c_int, POINTER(c_int))
_Delete = CFUNCTYPE(c_int, POINTER(_VFS), c_char_p, c_int)
_SetCall = CFUNCTYPE(c_int, POINTER(_VFS), c_char_p, c_void_p)
_GetCall = CFUNCTYPE(c_void_p, POINTER(_VFS), c_char_p)
_OpenFolder = CFUNCTYPE(c_int, c_char_p, POINTER(c_int))
_Close = CFUNCTYPE(c_int, c_void_p)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)

_VFS._fields_ = [
    ("version", c_int),
    ("file_size", c_int),
    ("longest_name", c_int),
    ("next", c_void_p),
    ("name", c_char_p),
    ("data", c_void_p),
    ("open", _Open),
    ("delete", _Delete),
    *[(f"unused_{number}", c_void_p) for number in range(11)],
    ("set_call", _SetCall),
    ("get_call", _GetCall),
    ("next_call", c_void_p),
]


class _Methods(Structure):
    _fields_ = [
        ("version", c_int),
        ("close", _Close),
        ("read", c_void_p),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        *[(f"unused_{number}", c_void_p) for number in range(13)],
    ]


class Disk:
    """What happens to the files below a folder, while this context is open.

    Parameters
    ----------
    root
        The folder; changes elsewhere are neither noted nor made to fail.
    fault
        What happens at the change of number ``at`` and all later ones: ``"full"`` lets no file grow,
        ``"dead"`` lets nothing happen at all, as after ``kill -9``.
    at
        Number of the first change that fails, from 0; None lets all be.

    Attributes
    ----------
    log
        What was done.
    failed
        Whether some change was refused.
    """

    def __init__(self, root: Path, fault: Literal["full", "dead"] = "dead", at: int | None = None) -> None:
        self.root = os.path.realpath(root)
        self.log: list[Operation] = []
        self.fault = fault
        self.at = at
        self.tried = 0
        self.failed = False
        self._undo: list[Callable[[], Any]] = []
        self._descriptors: dict[int, str] = {}

    def __enter__(self) -> Self:
        self._undo.append(_files().watched_by(self))
        self._wrap_os()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def refused(self, operation: Operation) -> bool:
        """Note a change, or say that it must fail."""
        grows = operation.kind in ("create", "write", "link", "rename", "make folder")
        struck = self.at is not None and self.tried >= self.at and (self.fault == "dead" or grows)
        self.tried += 1
        self.failed = self.failed or struck
        if not struck:
            self.log.append(operation)
        return struck

    def below(self, path: Any) -> str | None:
        """The path as it is noted, or None for one elsewhere."""
        if isinstance(path, int):
            return None
        text = os.path.abspath(os.fsdecode(path))
        text = os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text))
        return text if text.startswith(self.root + os.sep) or text == self.root else None

    def _wrap_os(self) -> None:
        for name in ("open", "close", "write", "fsync", "replace", "link", "unlink", "mkdir"):
            original = getattr(os, name)
            wrapper = getattr(self, f"_os_{name}")
            setattr(os, name, lambda *a, _w=wrapper, _o=original, **k: _w(_o, *a, **k))
            self._undo.append(lambda name=name, original=original: setattr(os, name, original))

    def _check(self, operation: Operation) -> None:
        if self.refused(operation):
            if self.fault == "dead":
                raise Died
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _os_open(self, original: Any, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        name = self.below(path)
        if name is not None and flags & os.O_CREAT and not os.path.exists(name):
            self._check(Operation("create", name))
        descriptor = original(path, flags, *rest, **more)
        if name is not None:
            self._descriptors[descriptor] = name
        return descriptor

    def _os_close(self, original: Any, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        original(descriptor)

    def _os_write(self, original: Any, descriptor: int, data: Any) -> int:
        if descriptor in self._descriptors:
            offset = os.lseek(descriptor, 0, os.SEEK_CUR)
            self._check(Operation("write", self._descriptors[descriptor], offset, bytes(data)))
        return original(descriptor, data)

    def _os_fsync(self, original: Any, descriptor: int) -> None:
        name = self._descriptors.get(descriptor)
        if name is not None:
            self._check(Operation("sync folder" if os.path.isdir(name) else "sync", name))
        original(descriptor)

    def _os_replace(self, original: Any, source: Any, target: Any) -> None:
        self._two_names("rename", original, source, target)

    def _os_link(self, original: Any, source: Any, target: Any) -> None:
        self._two_names("link", original, source, target)

    def _two_names(self, kind: Literal["rename", "link"], original: Any, source: Any, target: Any) -> None:
        old, new = self.below(source), self.below(target)
        if old is not None and new is not None and not (kind == "link" and os.path.lexists(new)):
            self._check(Operation(kind, old, other=new))
        original(source, target)

    def _os_unlink(self, original: Any, path: Any, **more: Any) -> None:
        name = self.below(path)
        if name is not None and os.path.lexists(name):
            self._check(Operation("remove", name))
        original(path, **more)

    def _os_mkdir(self, original: Any, path: Any, *rest: Any, **more: Any) -> None:
        name = self.below(path)
        if name is not None and not os.path.exists(name) and os.path.isdir(os.path.dirname(name)):
            self._check(Operation("make folder", name))
        original(path, *rest, **more)


class _Files:
    """SQLite's files, as a `Disk` watches them.

    There is one such object, and it lives as long as the process: a connection that an error has left behind
    may be closed at any later time.
    """

    def __init__(self) -> None:
        self._library = _sqlite_library()
        self._base = self._library.sqlite3_vfs_find(None)
        if not self._base or self._base.contents.version < 3 or not self._base.contents.set_call:
            raise Unreachable("SQLite's file system here has no table of system calls")
        self._disk: Disk | None = None
        self._open: dict[int, tuple[str, _Methods]] = {}
        self._methods: dict[int, tuple[_Methods, _Methods]] = {}
        self._vfs = _VFS.from_buffer_copy(self._base.contents)
        self._vfs.name = b"dpsep-faults"
        self._vfs.open = _Open(self._open_file)
        self._vfs.delete = _Delete(self._delete)
        # SQLite syncs folders by itself, in xSync and xDelete; this is where it opens them for that.
        self._folder_call = self._base.contents.get_call(self._base, b"openDirectory")
        self._folder_opener = _OpenFolder(self._folder_call)
        self._folder_watcher = _OpenFolder(self._open_folder)

    def watched_by(self, disk: Disk) -> Callable[[], None]:
        """Let a disk hear of every change; return what ends it."""
        self._disk = disk
        base = self._base.contents
        base.set_call(self._base, b"openDirectory", ctypes.cast(self._folder_watcher, c_void_p))
        self._library.sqlite3_vfs_register(ctypes.byref(self._vfs), 1)

        def end() -> None:
            self._disk = None
            self._library.sqlite3_vfs_register(self._base, 1)
            base.set_call(self._base, b"openDirectory", self._folder_call)

        return end

    def _refused(self, kind: Any, path: str | None, offset: int = 0, data: bytes = b"") -> bool:
        name = None if self._disk is None or path is None else self._disk.below(path)
        return (
            name is not None
            and self._disk is not None
            and self._disk.refused(Operation(kind, name, offset, data))
        )

    def _open_file(self, _: Any, name: int | None, file: int, flags: int, out: Any) -> int:
        path = None if name is None else os.fsdecode(ctypes.string_at(name))
        held = ctypes.cast(file, POINTER(c_void_p))
        if path is not None and flags & CREATE and not os.path.exists(path) and self._refused("create", path):
            held[0] = None
            return CANNOT_OPEN
        code = self._base.contents.open(self._base, name, file, flags, out)
        if code == OK and path is not None:
            methods, wrapped = self._wrapped(held[0] or 0)
            self._open[file] = (path, methods)
            held[0] = ctypes.addressof(wrapped)
        return code

    def _wrapped(self, address: int) -> tuple[_Methods, _Methods]:
        if address not in self._methods:
            methods = _Methods.from_address(address)
            wrapped = _Methods.from_buffer_copy(methods)
            wrapped.close = _Close(self._close)
            wrapped.write = _Write(self._write)
            wrapped.truncate = _Truncate(self._truncate)
            wrapped.sync = _Sync(self._sync)
            self._methods[address] = (methods, wrapped)
        return self._methods[address]

    def _close(self, file: int) -> int:
        _, methods = self._open.pop(file)
        return methods.close(file)

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        path, methods = self._open[file]
        if self._refused("write", path, offset, ctypes.string_at(data, size)):
            return FULL
        return methods.write(file, data, size, offset)

    def _truncate(self, file: int, size: int) -> int:
        path, methods = self._open[file]
        return IO_ERROR if self._refused("truncate", path, size) else methods.truncate(file, size)

    def _sync(self, file: int, flags: int) -> int:
        path, methods = self._open[file]
        return IO_ERROR if self._refused("sync", path) else methods.sync(file, flags)

    def _delete(self, _: Any, name: bytes, sync_folder: int) -> int:
        path = os.fsdecode(name)
        if os.path.exists(path) and self._refused("remove", path):
            return IO_ERROR
        return self._base.contents.delete(self._base, name, sync_folder)

    def _open_folder(self, name: bytes, found: Any) -> int:
        if self._refused("sync folder", os.path.dirname(os.fsdecode(name))):
            return CANNOT_OPEN
        return self._folder_opener(name, found)


@functools.cache
def _files() -> _Files:
    return _Files()


def _sqlite_library() -> Any:
    """The SQLite that Python's own module uses; `Unreachable` where its functions cannot be found."""
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))  # looks into what the module is linked to
    try:
        library.sqlite3_vfs_find.restype = POINTER(_VFS)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        for name in ("sqlite3_vfs_register", "sqlite3_vfs_unregister"):
            getattr(library, name).restype = c_int
    except AttributeError as error:
        raise Unreachable("SQLite is built into this interpreter and its functions are hidden") from error
    return library
