"""Damaged files of every kind that the program reads: a result, or one line of words. Never a traceback.

A short run of `tools/fuzz`, whose README says how to make a long one, and what long ones have found.
"""

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tools.fuzz import engine, seeds, targets

from dpsep.cli.errors import WRONG, CallError, explain
from dpsep.cli.folder import RunFolder
from dpsep.data import Column, Schema, SchemaError, TableError, read_structure, read_table, text
from dpsep.privacy.checkpoint import Checkpoint

INPUTS = {
    "csv": 200,
    "gzip": 60,
    "stored": 300,
    "schema": 600,
    "settings": 400,
    "posterior": 300,
    "predict": 60,
    "ledger": 300,
    "checkpoint": 300,
}
WAITING: tuple[str, ...] = ()
"""Targets whose readers do not refuse everything in words yet."""
LIMITS = engine.Limits(seconds=10.0, bytes=160 * 2**20)
needs_linux = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="memory is measured as Linux tells it"
)


@needs_linux
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", targets.TARGETS)
def test_damaged_files_are_read_or_refused_in_words(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if label in WAITING:
        pytest.skip("the reader takes what a forged file says for granted: errors of Python's come out")
    monkeypatch.setattr(targets.StoredRun, "kinds", ("linear",))
    target = targets.TARGETS[label](tmp_path / label)
    outcomes = set()
    for index in range(INPUTS[label]):
        name, data = engine.make_input(target, 0, label, index)
        failure, outcome, _ = engine.try_input(target, name, data, LIMITS)
        assert failure is None, f"input {index} of {label}, from {name}: {failure}"
        outcomes.add(outcome)
    assert "refused" in outcomes


@needs_linux
def test_a_target_that_fails_is_seen_to_fail(tmp_path: Path) -> None:
    class Broken(targets.Declared):
        def read(self, name: str, data: bytes) -> None:
            {b"a": 1}[data]

    class Slow(targets.Declared):
        def read(self, name: str, data: bytes) -> None:
            while True:
                pass

    class Large(targets.Declared):
        def read(self, name: str, data: bytes) -> None:
            self.seen = b"x" * 2**26

    limits = engine.Limits(seconds=1.0, bytes=2**25)
    for kind, expected in {Broken: "KeyError", Slow: "hang", Large: "memory"}.items():
        failure, _, _ = engine.try_input(kind(tmp_path), "full.toml", b"x", limits)
        assert failure is not None
        assert failure.kind == expected


def test_an_input_is_known_by_its_number(tmp_path: Path) -> None:
    target = targets.TARGETS["schema"](tmp_path)
    made = [engine.make_input(target, 3, "schema", index) for index in (0, 1, 0)]
    assert made[0] == made[2] != made[1]


HUGE = "0x" + "f" * 6000
COLUMN = '[[columns]]\nname = "a"\nkind = "{}"\n'
TEXTS = {
    "brackets without end": "a = " + "[" * 5000,
    "a number without end": "a = " + "9" * 5000,
    "a huge bound": COLUMN.format("number") + f"bounds = [0, {HUGE}]",
    "a huge fill": COLUMN.format("number") + f"missing = {{ fill = {HUGE} }}",
    "a huge category": COLUMN.format("category") + f"categories = [{HUGE}]",
    "a huge number of units": f'unit = "u"\ngroups = {HUGE}\n' + COLUMN.format("number"),
    "a huge cap": f'unit = "u"\nrows_per_unit = {HUGE}\n' + COLUMN.format("number"),
    "a huge kind": f'[[columns]]\nname = "a"\nkind = {HUGE}',
    "categories that are a number": COLUMN.format("category") + "categories = 5",
    "categories that are a day": COLUMN.format("category") + "categories = 1979-05-27",
    "categories that are a table": COLUMN.format("category") + "categories = { a = 1 }",
    "na that is a number": "na = 5\n" + COLUMN.format("number"),
    "na that is a table": 'na = { a = "b" }\n' + COLUMN.format("number"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_an_odd_schema_is_refused_in_words(name: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(TEXTS[name])
    assert 0 < len(str(caught.value)) < 600


def test_many_columns_and_categories_take_no_time(tmp_path: Path) -> None:
    names = [f"c{place}" for place in range(30_000)]
    limits = engine.Limits(seconds=5.0, bytes=2**40)

    class Wide(targets.Declared):
        def read(self, name: str, data: bytes) -> None:
            Column("a", "category", categories=tuple(names))
            read_structure(io.BytesIO(data))

    failure, _, _ = engine.try_input(Wide(tmp_path), "", ",".join([*names, "c0"]).encode() + b"\n1\n", limits)
    assert failure is None


def test_rows_that_are_no_text_are_told_once_and_not_by_pyarrow(capfd: pytest.CaptureFixture[str]) -> None:
    table = b"a,b\n1,2\n1,2,\x80\x81\n"
    assert list(read_structure(io.BytesIO(table))) == ["a", "b"]
    with pytest.raises(TableError, match="not UTF-8"):
        read_table(io.BytesIO(table))
    assert capfd.readouterr().err == ""


def test_separators_without_names_cost_no_memory(tmp_path: Path) -> None:
    target = targets.Text(tmp_path)
    table = b'a,"b, c"' + b"," * 20_000 + b"\n1,2\n"
    if os.path.exists("/proc/self/clear_refs"):
        assert engine.try_input(target, "", table, engine.Limits(5.0, 2**25))[0] is None
    with pytest.raises(TableError, match="no name for column 3 of 20002"):
        target.read("", table)


@needs_linux
@pytest.mark.parametrize("start", [b"0", b"a,b\n1,", b'a,b\n1,"', b"\0", b"PAR1"])
def test_packed_text_is_not_unpacked_into_memory(
    start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Packed(targets.Packed):
        def make(self) -> dict[str, bytes]:
            return {}

        def read(self, name: str, data: bytes) -> None:
            read_table(io.BytesIO(data))

    monkeypatch.setattr(text, "BLOCK", 2**20)
    bomb = gzip.compress(start + b"0" * 2**26, 9)
    failure, outcome, _ = engine.try_input(Packed(tmp_path), "", bomb, engine.Limits(20.0, 2**25))
    assert (failure, outcome) == (None, "refused")


def test_a_packed_file_is_read_as_often_as_needed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,x\n2,y\n"))
    assert read_table(path).rows() == [(1, "x"), (2, "y")]
    stored = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), stored)
    assert read_table(io.BytesIO(gzip.compress(stored.getvalue()))).rows() == [(1,), (2,)]


def test_arrow_offsets_that_point_nowhere_are_refused_and_crash_nothing(tmp_path: Path) -> None:
    made = io.BytesIO()
    table = pa.table({"a": ["ab", "c", "def"]})
    with pa.ipc.new_file(made, table.schema) as writer:
        writer.write_table(table)
    right, wrong = (
        b"".join(n.to_bytes(4, "little") for n in ends) for ends in ((0, 2, 3, 6), (0, 2, 2**30, 6))
    )
    assert right in made.getvalue()
    (tmp_path / "t.arrow").write_bytes(made.getvalue().replace(right, wrong))
    code = "import sys; from dpsep.data import read_table; print(read_table(sys.argv[1])['a'].to_list())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.arrow")], capture_output=True, text=True, check=False
    )
    assert "TableError" in done.stderr, done
    assert "not a whole Arrow" in done.stderr


def test_notes_in_a_stored_table_are_not_read() -> None:
    made = io.BytesIO()
    schema = pa.schema([pa.field("a", pa.int64(), metadata={b"\xff": b"\xfe"})], metadata={b"k": b"\x80"})
    pyarrow.parquet.write_table(pa.table({"a": [1]}, schema=schema), made)
    made.seek(0)
    assert read_table(made).rows() == [(1,)]


def test_a_type_that_polars_does_not_know_is_refused_in_words() -> None:
    made = io.BytesIO()
    schema = pa.schema([pa.field("a", pa.decimal256(70, 2))])
    with pa.ipc.new_file(made, schema) as writer:
        writer.write_table(schema.empty_table())
    with pytest.raises(TableError):
        read_table(io.BytesIO(made.getvalue()))


@pytest.mark.parametrize("content", [b"", b"[]", b"5", b"{}", b"[" * 100_000, b"\xff"])
def test_a_damaged_run_beside_a_checkpoint_is_told_in_words(content: bytes, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    (run / "privacy.json").write_bytes(content)
    folder = RunFolder(run)
    Checkpoint(folder.checkpoint).save(1, {}, {"run": "r"})
    with pytest.raises(CallError, match="holds another run"), folder.work(resume=True, overwrite=False):
        pass
    assert folder.begun


def test_decimals_are_numbers_to_a_draft_by_looking() -> None:
    table = pa.table({"money": pa.array(["1.50", "2.25"]).cast(pa.decimal128(10, 2))})
    made = io.BytesIO()
    pyarrow.parquet.write_table(table, made)
    made.seek(0)
    assert targets.looked(read_table(made)) == {"money": {"kind": "number", "bounds": [1.5, 2.25]}}


def test_the_seeds_are_whole(tmp_path: Path) -> None:
    for name, table in (seeds.text_tables() | seeds.stored_tables()).items():
        assert read_table(io.BytesIO(table)).height >= 2, name
    assert Schema.from_toml(seeds.schemas()["full.toml"].decode()) == seeds.SCHEMA


def test_a_secret_in_a_message_is_seen() -> None:
    target: Any = targets.Text.__new__(targets.Text)
    assert target.told("", seeds.HEADER + b"1\n", f"bad cell {seeds.SECRET}") is not None
    assert target.told("", seeds.HEADER + b"1\n", "bad cell") is None
    assert explain(KeyError("x"))[0] != WRONG
