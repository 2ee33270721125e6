"""What is fuzzed: each target hands damaged bytes to the library function that the program reads them with.

A target has seeds by name, makes an input from one of them, and tries it. What may come of it: a result, or
an error that the command line tells in one line with exit code 2 (`dpsep.cli.errors.explain`). Where the
reader checks a digest, most inputs get a new one that fits, for whoever writes a file can write that too.
"""

import contextlib
import gzip
import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.fuzz import seeds
from tools.fuzz.containers import change_archive, change_ledger
from tools.fuzz.mutate import damage
from tools.fuzz.trees import change_csv, change_json, change_toml

from dpsep.cli.schema import _looked as looked  # pyright: ignore[reportPrivateUsage]
from dpsep.cli.schema import draft
from dpsep.data import Schema, check_table, encode, encode_target, encoded_bounds, read_structure, read_table
from dpsep.data import text as csv_text
from dpsep.estimators.store import load
from dpsep.privacy.checkpoint import Checkpoint

__all__ = ["TARGETS", "Target"]

Change = Callable[[random.Random, bytes], bytes]


class Target:
    """One kind of file: its seeds, how they are damaged with understanding, and how they are read."""

    changes: tuple[Change, ...] = ()
    share = 0.5
    """How often a change with understanding comes before (or in the place of) damage to bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.seeds: Mapping[str, bytes] = self.make()

    def make(self) -> Mapping[str, bytes]:
        """Return valid files by name."""
        raise NotImplementedError

    def read(self, name: str, data: bytes) -> None:
        """Read a file as the program does; ``name`` is the seed's."""
        raise NotImplementedError

    def input(self, rng: random.Random) -> tuple[str, bytes]:
        """Return a damaged file and the name of the seed it comes from."""
        name = rng.choice(list(self.seeds))
        data = self.seeds[name]
        if self.changes and rng.random() < self.share:
            with contextlib.suppress(Exception):  # an odd seed that cannot be parsed is damaged as bytes
                data = rng.choice(self.changes)(rng, data)
            if rng.random() < 0.8:
                return name, data
        return name, damage(rng, data, list(self.seeds.values()))

    def told(self, name: str, data: bytes, line: str) -> str | None:
        """Say what is wrong with an error's line; None where nothing is."""
        return None if line else "an error without a message"


class Text(Target):
    """CSV text: read by a schema and without one, drafted, checked, encoded."""

    changes = (change_csv,)

    def make(self) -> Mapping[str, bytes]:
        """Return CSV text."""
        return seeds.text_tables()

    def read(self, name: str, data: bytes) -> None:
        """Read with and without a schema, on a small block so that rows cross its border."""
        block, csv_text.BLOCK = csv_text.BLOCK, 2**16
        try:
            _read_table(data)
        finally:
            csv_text.BLOCK = block

    def told(self, name: str, data: bytes, line: str) -> str | None:
        """Of cells nothing is told, as long as the header is whole."""
        if data.startswith(seeds.HEADER) and seeds.SECRET in line:
            return "an error that repeats a cell"
        return super().told(name, data, line)


class Packed(Text):
    """CSV text that gzip packed, with files that unpack to a thousand times their size."""

    changes = ()

    def make(self) -> Mapping[str, bytes]:
        """Return packed text."""
        return seeds.packed_tables()

    def input(self, rng: random.Random) -> tuple[str, bytes]:
        """Return damaged packed text, or packed damaged text; bombs, which take long, seldom."""
        name, data = super().input(rng)
        while name.startswith("bomb") and rng.random() < 0.98:
            name, data = super().input(rng)
        if rng.random() < 0.3 and not name.startswith("bomb"):
            data = gzip.compress(damage(rng, gzip.decompress(self.seeds[name]), []), 1, mtime=0)
        return name, data


class Stored(Target):
    """Parquet, Arrow and Feather."""

    def make(self) -> Mapping[str, bytes]:
        """Return tables that carry their types."""
        return seeds.stored_tables()

    def read(self, name: str, data: bytes) -> None:
        """Read with the format found and with the format said."""
        _read_table(data, "parquet" if name.endswith("parquet") else "arrow")

    def told(self, name: str, data: bytes, line: str) -> str | None:
        """Of cells nothing is told."""
        return "an error that repeats a cell" if seeds.SECRET in line else super().told(name, data, line)


class Declared(Target):
    """Schemas in TOML."""

    changes = (change_toml,)

    def make(self) -> Mapping[str, bytes]:
        """Return schemas."""
        return seeds.schemas()

    def read(self, name: str, data: bytes) -> None:
        """Read from a file, write and read again, and use."""
        path = self.folder / "schema.toml"
        path.write_bytes(data)
        schema = Schema.read(path)
        again = Schema.from_toml(schema.to_toml())
        if again != schema:
            raise AssertionError("a schema that is written and read again is another one")
        encoded_bounds(schema)
        table = {column.name: ["1", "North", None, "x"] for column in schema.columns}
        encode(table, schema)
        if schema.target is not None:
            encode_target(table, schema)
        check_table(table, schema)


class Settings(Target):
    """Settings of a federation's sites and servers in TOML."""

    changes = (change_toml,)

    def make(self) -> Mapping[str, bytes]:
        """Return settings, and the files that they name."""
        for name in seeds.NAMED_BY_SETTINGS:
            (self.folder / name).write_bytes(b"")
        return seeds.settings()

    def read(self, name: str, data: bytes) -> None:
        """Read as a site or a server does."""
        from dpsep.federated.config import read_server, read_site

        path = self.folder / "settings.toml"
        path.write_bytes(data)
        (read_site if name.startswith("site") else read_server)(path)


class StoredRun(Target):
    """The folder of a fit: every file in it, with and without a manifest that fits."""

    kinds: tuple[str, ...] = ("linear", "logistic", "poisson", "mixture", "network", "mixed")
    files = ("posterior.json", "manifest.json")
    share = 0.85

    def make(self) -> Mapping[str, bytes]:
        """Return the files of runs, named by run and file."""
        self.runs = seeds.runs(self.folder.parent / "runs", self.kinds)
        self.changed: dict[str, str] = {}
        made: dict[str, bytes] = {}
        for kind, place in self.runs.items():
            for path in sorted(place.iterdir()):
                if path.name in self.files:
                    made[f"{kind}.{path.name}"] = path.read_bytes()
        return made

    def input(self, rng: random.Random) -> tuple[str, bytes]:
        """Return a damaged file; its format decides how it is changed with understanding."""
        name, data = rng.choice(list(self.seeds.items()))
        if rng.random() < self.share:
            change = change_toml if name.endswith("toml") else change_json
            with contextlib.suppress(Exception):
                data = change(rng, data)
            if rng.random() < 0.9:
                return name, data
        return name, damage(rng, data, list(self.seeds.values()))

    def read(self, name: str, data: bytes) -> None:
        """Load the estimator."""
        load(self.place(name, data))

    def place(self, name: str, data: bytes) -> Path:
        """Write a run's folder with one file changed, and a manifest whose digests fit."""
        kind, _, file = name.partition(".")
        folder = self.folder / kind
        if not folder.exists():
            shutil.copytree(self.runs[kind], folder)
        changed = self.changed.pop(kind, None)
        if changed is not None:
            shutil.copyfile(self.runs[kind] / changed, folder / changed)
        self.changed[kind] = file
        (folder / file).write_bytes(data)
        manifest = _manifest(folder, data if file == "manifest.json" else None)
        (folder / "manifest.json").write_bytes(data if manifest is None else manifest)
        return folder


class Predicted(StoredRun):
    """``dpsep predict`` on a run's folder, of which the schema or the posterior was changed."""

    files = ("posterior.json", "schema.toml")

    def read(self, name: str, data: bytes) -> None:
        """Predict a table's rows."""
        from dpsep.cli.predict import run

        folder = self.place(name, data)
        table = self.folder.parent / "runs" / "few.csv"
        if not table.exists():
            table.write_bytes(b"a,b,y,ill,n,who\n0.5,0.1,1,yes,2,3\n-1,,0,no,1,9\n1e300,0,1,yes,0,1\n")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run(folder, str(table), None, as_json=len(data) % 2 == 0)


class Ledgers(Target):
    """Ledgers: damaged pages, and rows that were changed, with and without hashes that fit."""

    def make(self) -> Mapping[str, bytes]:
        """Return ledgers."""
        return seeds.ledgers(self.folder)

    changes = (change_ledger,)

    def read(self, name: str, data: bytes) -> None:
        """Show and verify, as the commands do."""
        from dpsep.cli.ledger import _document, open_ledger  # pyright: ignore[reportPrivateUsage]

        path = self.folder / "used.ledger"
        for old in self.folder.glob("used.ledger*"):
            old.unlink()
        path.write_bytes(data)
        _document(open_ledger(path, 0.1))


class Checkpoints(Target):
    """Checkpoints: damaged archives, and archives whose members say odd things."""

    changes = (change_archive,)

    def make(self) -> Mapping[str, bytes]:
        """Return checkpoints."""
        return seeds.checkpoints(self.folder)

    def read(self, name: str, data: bytes) -> None:
        """Load as a resumed run does."""
        from dpsep.privacy.release_log import ReleaseLog

        checkpoint = Checkpoint(self.folder / "used")
        checkpoint.folder.mkdir(exist_ok=True)
        checkpoint.path.write_bytes(data)
        with ReleaseLog(checkpoint, "s") as log:
            for number in range(min(log.kept["fit"], 4)):
                with contextlib.suppress(KeyError):
                    log.release("fit", number, ["mean", "precision"])


def _read_table(data: bytes, said: str | None = None) -> None:
    """Read a table's structure, and its cells by a schema or without one, and use what was read."""
    declared = seeds.SCHEMA
    first: Exception | None = None
    ways: list[Callable[[], Any]] = [
        lambda: draft(read_structure(io.BytesIO(data), said)),
        lambda: encode(read_table(io.BytesIO(data), schema=declared), declared),
    ]
    if len(data) % 2:
        ways[1] = lambda: _use(read_table(io.BytesIO(data), said))
    for way in ways:
        try:
            way()
        except Exception as error:
            from dpsep.cli.errors import WRONG, explain

            if explain(error)[0] != WRONG:
                raise
            first = first or error
    if first is not None:
        raise first


def _use(frame: Any) -> None:
    check_table(frame)
    looked(frame)


def _manifest(folder: Path, damaged: bytes | None) -> bytes | None:
    """Return a manifest whose digests fit the files; None where a damaged one is left as it is."""
    if damaged is None:
        names = sorted(path.name for path in folder.iterdir() if path.name != "manifest.json")
        files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
        manifest: Any = {"format": 1, "files": files}
    else:
        try:
            manifest = json.loads(damaged)
            manifest.pop("sha256", None)
            if isinstance(manifest["files"], dict):
                for name in manifest["files"]:
                    path = folder / name
                    if path.is_file() and path.name != "manifest.json":
                        manifest["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
            text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
        except Exception:
            return None
        if len(damaged) % 3 == 0:
            return None
        manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps(manifest, indent=1).encode() + b"\n"
    text = json.dumps(manifest, indent=1) + "\n"
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(manifest, indent=1).encode() + b"\n"


TARGETS: dict[str, type[Target]] = {
    "csv": Text,
    "gzip": Packed,
    "stored": Stored,
    "schema": Declared,
    "settings": Settings,
    "posterior": StoredRun,
    "predict": Predicted,
    "ledger": Ledgers,
    "checkpoint": Checkpoints,
}
"""Every kind of file that the program reads."""
