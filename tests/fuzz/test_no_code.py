"""Nothing that is read runs: pickles in arrays, posteriors, schemas, tables and ledgers stay bytes.

A payload writes a file when it is unpickled; a first test shows that it would.
"""

import ast
import contextlib
import hashlib
import io
import json
import os
import pickle
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsep
from dpsep.data import Schema, SchemaError, TableError, read_structure, read_table
from dpsep.estimators.store import StoreError, load, save
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError
from dpsep.privacy.ledger import Ledger, LedgerError

SOURCE = Path(dpsep.__file__).parent


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    x = np.linspace(-1, 1, 20)[:, None]
    save(dpsep.LinearRegression(private=False).fit(x, x[:, 0]), place)
    return place


def test_the_payload_would_run(canary: Path) -> None:
    pickle.loads(pickle.dumps(Payload(canary)))
    assert canary.exists()


def npy(payload: Payload) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([payload], object), allow_pickle=True)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["bytes", "array", "header", "member"])
def test_a_checkpoint_runs_nothing(kind: str, canary: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.save(1, {"a": np.zeros(2)}, {"run": "r"})
    payload = Payload(canary)
    content = pickle.dumps(payload) if kind == "bytes" else npy(payload)
    if kind in ("header", "member"):
        with zipfile.ZipFile(checkpoint.path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members["header.npy" if kind == "header" else "array/a.npy"] = content
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, member in members.items():
                archive.writestr(name, member)
        content = out.getvalue()
    checkpoint.path.write_bytes(content)
    with pytest.raises(CheckpointError):
        checkpoint.load()
    assert not canary.exists()


def signed(folder: Path, out: Path, posterior: bytes) -> Path:
    """Copy a run with another posterior and a manifest that fits it."""
    out.mkdir()
    (out / "posterior.json").write_bytes(posterior)
    (out / "privacy.json").write_bytes((folder / "privacy.json").read_bytes())
    files = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in os.listdir(out)}
    manifest: dict[str, Any] = {"format": 1, "files": files}
    manifest["sha256"] = hashlib.sha256((json.dumps(manifest, indent=1) + "\n").encode()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return out


def test_the_signed_copy_of_a_run_is_read(folder: Path, tmp_path: Path) -> None:
    load(signed(folder, tmp_path / "copy", (folder / "posterior.json").read_bytes()))


def test_a_posterior_that_is_a_pickle_runs_nothing(folder: Path, canary: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        load(signed(folder, tmp_path / "copy", pickle.dumps(Payload(canary))))
    assert not canary.exists()


ODD: dict[str, tuple[str, Any]] = {
    "an estimator of another module": ("estimator", "os.system"),
    "a scheme of another module": ("parameters.sampling", {"sampling": "math", "fields": {}}),
    "a scheme that is a function": ("parameters.sampling", {"sampling": "permutation", "fields": {}}),
    "a type of Python": ("learned.coef_", {"array": [1.0], "type": "U100000000", "shape": [1]}),
    "a structured type": ("learned.coef_", {"array": [], "type": "i4,(1000000)f8", "shape": [0]}),
    "another class": ("learned.__class__", "BayesianModel"),
    "a method": ("learned.predict", 1),
    "a private name": ("learned._validate", 1),
    "a ledger": ("parameters.ledger", "/tmp/other.ledger"),
    "a checkpoint": ("parameters.checkpoint", "/tmp/other"),
    "a parameter that is none": ("parameters.__init__", 1),
}


@pytest.mark.parametrize("name", ODD)
def test_a_posterior_names_nothing_but_what_is_stored(name: str, folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "posterior.json").read_text())
    path, value = ODD[name]
    room, _, key = path.rpartition(".")
    (content[room] if room else content)[key] = value
    with pytest.raises(StoreError, match="does not describe an estimator"):
        load(signed(folder, tmp_path / "copy", json.dumps(content).encode()))


@pytest.mark.parametrize("name", ["../secret", "/dev/zero", "a/b", "a\0b", "..", "", "C:x", "a\\b", "\ud800"])
def test_a_manifest_names_no_file_outside_its_folder(name: str, folder: Path, tmp_path: Path) -> None:
    copy = signed(folder, tmp_path / "copy", (folder / "posterior.json").read_bytes())
    manifest = json.loads((copy / "manifest.json").read_text())
    del manifest["sha256"]
    manifest["files"][name] = "0" * 64
    manifest["sha256"] = hashlib.sha256((json.dumps(manifest, indent=1) + "\n").encode()).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    with pytest.raises(StoreError, match=r"manifest\.json was changed"):
        load(copy)


@pytest.mark.parametrize("content", [b"[]", b"5", b"[" * 100_000, b'{"format": 1, "files": 5}', b"\xff"])
def test_a_manifest_that_is_none_is_refused_in_words(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(StoreError):
        load(tmp_path)


def test_a_pipe_in_a_run_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    copy = signed(folder, tmp_path / "copy", (folder / "posterior.json").read_bytes())
    (copy / "privacy.json").unlink()
    os.mkfifo(copy / "privacy.json")
    with pytest.raises(StoreError, match="not a regular file"):
        load(copy)


@pytest.mark.parametrize("form", ["{}", "a = {}", '[[columns]]\nname = "{}"\nkind = "number"'])
def test_a_schema_runs_nothing(form: str, canary: Path, tmp_path: Path) -> None:
    texts = [
        f"__import__('os').mkdir('{canary}')",
        f"!!python/object/apply:os.mkdir ['{canary}']",
        "{0.__class__}",
    ]
    for text in texts:
        (tmp_path / "s.toml").write_text(form.replace("{}", text))
        with contextlib.suppress(SchemaError):
            Schema.read(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_bytes(form.encode().replace(b"{}", pickle.dumps(Payload(canary))))
    with pytest.raises(SchemaError):
        Schema.read(tmp_path / "s.toml")
    assert not canary.exists()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_stored_table_runs_nothing(kind: str, canary: Path) -> None:
    notes = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Payload(canary)),
        b"pandas": pickle.dumps(Payload(canary)),
    }
    table = pa.table(
        {"a": [1, 2]}, schema=pa.schema([pa.field("a", pa.int64(), metadata=notes)], metadata=notes)
    )
    made = io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, made)
    else:
        with pa.ipc.new_file(made, table.schema) as writer:
            writer.write_table(table)
    with contextlib.suppress(TableError):
        read_structure(io.BytesIO(made.getvalue()))
        read_table(io.BytesIO(made.getvalue()))
    assert not canary.exists()


def test_a_ledger_runs_nothing_but_what_it_was_made_with(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "l.db", epsilon=1.0, delta=1e-5)
    connection = sqlite3.connect(tmp_path / "l.db")
    connection.execute("CREATE TRIGGER more AFTER INSERT ON entries BEGIN SELECT load_extension('x'); END")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="triggers"):
        Ledger(tmp_path / "l.db")


RUNS = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__"}


def test_the_library_has_no_way_to_run_what_it_reads() -> None:
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [item.name for item in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                    found.append(f"{path.name}:{node.lineno} {node.func.id}")
                for word in node.keywords:
                    off = isinstance(word.value, ast.Constant) and word.value.value is False
                    if word.arg == "allow_pickle" and not off:
                        found.append(f"{path.name}:{node.lineno} allow_pickle")
            found += [f"{path.name}: {name}" for name in names if name.split(".")[0] in RUNS]
    assert not found
