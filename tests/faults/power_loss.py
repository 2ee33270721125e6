"""What a disk may hold after the power fails: all that follows from the changes that had reached it.

The model is POSIX at its weakest. Bytes are sure after a sync of their file; a name (made, linked, renamed or
removed) is sure after a sync of its folder. What is not sure may be there or not, in any order: whole writes,
or any of their sectors of 512 bytes; a file may have grown before its bytes came, and then holds zeros or
rubbish there. A rename is there or not, never half of it.
"""

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .disk import Operation

SECTOR = 512
Image = dict[str, bytes | None]
"""Names below a folder and their bytes; None for a folder."""


class Piece(NamedTuple):
    """One sector's worth of a write that is not sure yet; ``data`` is None for a truncation."""

    file: int
    write: int
    offset: int
    data: bytes | None


class NameChange(NamedTuple):
    """A change of names in a folder that is not sure yet: names taken out, and names put in."""

    folder: str
    removed: str | None
    added: tuple[str, int] | None


class State:
    """A disk after some operations: what is sure, and what is not."""

    def __init__(self, root: Path) -> None:
        """Begin with what a folder holds, all of it sure."""
        self.root = os.path.realpath(root)
        self.sure: list[bytes | None] = []
        self.unsure: dict[int, list[Operation]] = {}
        self.names: dict[str, int] = {}
        self.changes: list[NameChange] = []
        for path in sorted(Path(self.root).rglob("*")):
            if path.name != "lock":  # it is never read: the lock is on the open file
                self.names[str(path)] = self._new(None if path.is_dir() else path.read_bytes())
        self.sure_names = dict(self.names)

    def _new(self, content: bytes | None) -> int:
        self.sure.append(content)
        return len(self.sure) - 1

    def apply(self, operation: Operation) -> None:
        """Take the next operation into account."""
        name, kind = operation.name, operation.kind
        if kind in ("create", "make folder"):
            self._change(None, (name, self._new(None if kind == "make folder" else b"")))
        elif kind == "link":
            self._change(None, (operation.other, self.names[name]))
        elif kind == "rename":
            self._change(name, (operation.other, self.names[name]))
        elif kind == "remove":
            self._change(name, None)
        elif kind == "sync folder":
            for change in [change for change in self.changes if change.folder == name]:
                _rename(self.sure_names, change)
                self.changes.remove(change)
        elif kind == "sync":
            file = self.names[name]
            self.sure[file] = _written(self.sure[file], self._pieces(file))
            self.unsure.pop(file, None)
        else:
            self.unsure.setdefault(self.names[name], []).append(operation)

    def _change(self, removed: str | None, added: tuple[str, int] | None) -> None:
        folder = os.path.dirname(removed or (added[0] if added else ""))
        change = NameChange(folder, removed, added)
        self.changes.append(change)
        _rename(self.names, change)

    def _pieces(self, file: int) -> list[Piece]:
        found = []
        for number, operation in enumerate(self.unsure.get(file, ())):
            if operation.kind == "truncate":
                found.append(Piece(file, number, operation.offset, None))
                continue
            start, end = operation.offset, operation.offset + len(operation.data)
            while start < end:
                stop = min(end, (start // SECTOR + 1) * SECTOR)
                data = operation.data[start - operation.offset : stop - operation.offset]
                found.append(Piece(file, number, start, data))
                start = stop
        return found

    def images(self, chance: random.Random, most: int | None = None) -> Iterator[Image]:
        """What may be found after a loss now: all kinds of loss of bytes with all of names.

        Parameters
        ----------
        chance
            Draws the sectors that are torn away.
        most
            Most images; the ones where nothing or everything unsure arrived are always among them.
        """
        ways = list(itertools.product(self._names_left(), self._bytes_left(chance)))
        if most is not None and len(ways) > most:
            first, last = ways[0], ways[-1]
            ways = [first, last, *chance.sample(ways[1:-1], most - 2)]
        for names, (pieces, filling) in ways:
            yield self._image(names, pieces, filling)

    def _names_left(self) -> list[dict[str, int]]:
        changes = self.changes
        if len(changes) <= 3:
            arrived = [
                subset for size in range(len(changes) + 1) for subset in itertools.combinations(changes, size)
            ]
        else:
            one_missing = [tuple(other for other in changes if other is not one) for one in changes]
            arrived = [(), *[(one,) for one in changes], *one_missing, tuple(changes)]
        found = []
        for subset in arrived:
            names = dict(self.sure_names)
            for change in subset:
                _rename(names, change)
            found.append(names)
        return found

    def _bytes_left(self, chance: random.Random) -> list[tuple[set[Piece], str]]:
        pieces = [piece for file in self.unsure for piece in self._pieces(file)]
        writes = list(dict.fromkeys((piece.file, piece.write) for piece in pieces))
        if not pieces:
            return [(set(), "short")]
        found: list[tuple[set[Piece], str]] = [(set(), "short"), (set(), "zeros"), (set(), "rubbish")]
        for write in writes:
            own = [piece for piece in pieces if (piece.file, piece.write) == write]
            rest = set(pieces) - set(own)
            cut = chance.randrange(len(own))
            found += [(rest, "short"), (rest, "rubbish"), (set(own), "zeros")]
            found += [
                (rest | set(own[:cut]), "zeros"),
                (rest | set(own[cut:]), "rubbish"),
                (set(own[:cut]), "short"),
            ]
        for filling in ("short", "zeros", "rubbish"):
            found.append(({piece for piece in pieces if chance.random() < 0.5}, filling))
        return [*found, (set(pieces), "short")]

    def _image(self, names: dict[str, int], arrived: set[Piece], filling: str) -> Image:
        image: Image = {}
        for name, file in sorted(names.items()):
            folders = itertools.takewhile(lambda one: str(one) != self.root, Path(name).parents)
            if any(str(folder) not in names for folder in folders):
                continue  # its folder is lost, and it with it
            every = self._pieces(file)
            content = _written(self.sure[file], [piece for piece in every if piece in arrived])
            if filling != "short" and content is not None:
                size = len(_written(self.sure[file], every) or b"")
                missing = size - len(content)
                content += (b"\x00" if filling == "zeros" else b"\xa5") * missing
            image[os.path.relpath(name, self.root)] = content
        return image


def losses(
    state: State, log: Sequence[Operation], seed: int, most: int | None = None
) -> Iterator[tuple[int, Image]]:
    """Every point of a log and every image that a loss there may leave, each once a point.

    Parameters
    ----------
    state
        The disk before the log; it is taken through it.
    log
        What was done.
    seed
        Draws torn sectors, and images where there are more than ``most``.
    """
    chance = random.Random(seed)
    for done in range(len(log) + 1):
        if done:
            state.apply(log[done - 1])
        seen = set()
        for image in state.images(chance, most):
            frozen = tuple(image.items())
            if frozen not in seen:
                seen.add(frozen)
                yield done, image


def write_image(image: Image, folder: Path) -> None:
    """Put an image into a folder."""
    for name, content in image.items():  # folders come before what they hold
        path = folder / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _rename(names: dict[str, int], change: NameChange) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        names[change.added[0]] = change.added[1]


def _written(content: bytes | None, pieces: Sequence[Piece]) -> bytes | None:
    if content is None:
        return None
    found = bytearray(content)
    for piece in pieces:
        if piece.data is None:
            del found[piece.offset :]
            found.extend(bytes(piece.offset - len(found)))
        else:
            found.extend(bytes(max(0, piece.offset - len(found))))
            found[piece.offset : piece.offset + len(piece.data)] = piece.data
    return bytes(found)
