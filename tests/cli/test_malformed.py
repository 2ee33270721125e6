"""Files that are no tables: one clear line, exit code 2. Damaged lines: records without usable cells."""

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dpsep.data import text
from dpsep.privacy.ledger import Ledger

from .help import assert_refused, call

SCHEMA = """
target = "ill"
[[columns]]
name = "age"
kind = "number"
bounds = [0, 120]
[[columns]]
name = "ward"
kind = "category"
categories = ["North", "South"]
[[columns]]
name = "ill"
kind = "category"
categories = ["no", "yes"]
"""
HEAD = b"age,ward,ill\n41,Secretville,yes\n"
ROWS = b"".join(b"%d,North,%s\n" % (20 + i, b"yes" if i % 2 else b"no") for i in range(40))


UNDECLARED = ["--target", "ill", "--classes", "no,yes", "--drop", "ward"]


def parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"age": [41]}).write_parquet(buffer)
    return buffer.getvalue()


DAMAGED = {
    "ragged": (b"42,Secretville\n", "line 3 with 2"),
    "too many cells": (b"42,Secretville,yes,no\n", "line 3 with 4"),
    "an open quote": (b'42,"Secretville,yes\n', "quotation mark"),
    "quotes that swallow rows": (b'42,Secret"ville,"yes\n', "quotation mark"),
    "latin-1": ("42,Secretvillé,yes\n".encode("latin1"), "not UTF-8 text"),
    "a NUL": (b"42,Secret\0ville,yes\n", "is not text"),
    "a carriage return": (b"42,Secret\rville,yes\n", "line"),
    "nothing": (b"\n", "line"),
    "binary": (bytes(range(128, 160)) + b"\n", "not UTF-8 text"),
}
"""A line in the place of the second record, and what a fit without privacy says of it."""
BROKEN = {
    "utf-16": ((HEAD + ROWS).decode().encode("utf-16"), "is UTF-16"),
    "a name twice": (b"age,ward,ill,ward\n41,Secretville,yes,x\n", "more than one column named ward"),
    "empty": (b"", "is empty"),
    "a header only": (b"age,ward,ill\n", "no rows"),
    "one row": (HEAD, "minimum of 2"),
    "no such column": (b"age,wards,ill\n41,Secretville,yes\n", "no column 'ward'"),
    "a nameless column": (b"age,ward,ill,\n41,Secretville,yes,1\n", "no name for column 4"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(200), "spreadsheet"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(200), "not UTF-8 text"),
    "one line without an end": (b"age,ward,ill", "no rows"),
    "a web page": (b"<!DOCTYPE html>\n<p>Secretville</p>\n", "HTML"),
    "half a Parquet file": (parquet()[:-9], "not a whole Parquet file"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("declared", [True, False])
def test_a_broken_table_is_refused_in_words_and_costs_nothing(
    tmp_path: Path, name: str, declared: bool
) -> None:
    content, words = BROKEN[name]
    table = tmp_path / ("t.parquet" if "Parquet" in name else "t.csv")
    table.write_bytes(content)
    (tmp_path / "s.toml").write_text(SCHEMA)
    ledger = Ledger.create(tmp_path / "study.db", epsilon=1.0, delta=1e-5)
    how = ["--schema", tmp_path / "s.toml"] if declared else UNDECLARED
    done = call("fit", table, *how, "--epsilon", 1, "--out", tmp_path / "run", "--ledger", ledger.path)
    assert_refused(done, words)
    assert "Secret" not in done.output
    assert "\\" not in done.output
    assert ledger.spent().epsilon == 0.0
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run.partial").exists()


@pytest.mark.parametrize("declared", [True, False])
def test_a_damaged_line_changes_no_word_and_no_exit_code(tmp_path: Path, declared: bool) -> None:
    """Whatever is in it, the second record's line is one record: the others are fitted as they were."""
    (tmp_path / "s.toml").write_text(SCHEMA)
    how = ["--schema", tmp_path / "s.toml"] if declared else [*UNDECLARED, "--bounds", "age=0:120"]
    told = set()
    for place, line in enumerate([b"42,North,yes\n", *(line for line, _ in DAMAGED.values())]):
        (tmp_path / "t.csv").write_bytes(HEAD + line + ROWS)
        ledger = Ledger.create(tmp_path / f"{place}.db", epsilon=1.0, delta=1e-3)
        run = tmp_path / f"run{place}"
        done = call(
            *("fit", tmp_path / "t.csv", *how, "--epsilon", 1, "--delta", 1e-3, "--out", run),
            *("--ledger", ledger.path),
        )
        assert done.exit_code == 0, done.output
        charge = next(row for row in ledger.rows() if row.kind == "charge")
        statement = json.loads((run / "privacy.json").read_text())
        told.add(
            (
                done.stderr.replace(f"run{place}", "").replace(f"{place}.db", ""),
                str(charge.event),
                str({key: value for key, value in statement.items() if key not in ("run", "ledger")}),
                (run / "schema.toml").read_text(),
            )
        )
    assert len(told) == 1
    assert "'records': 42" in next(iter(told))[1]


@pytest.mark.parametrize("name", DAMAGED)
def test_without_privacy_damage_is_refused_and_the_owner_is_shown_its_line(tmp_path: Path, name: str) -> None:
    line, words = DAMAGED[name]
    (tmp_path / "t.csv").write_bytes(HEAD + line + ROWS)
    (tmp_path / "s.toml").write_text(SCHEMA)
    done = call("fit", tmp_path / "t.csv", *UNDECLARED, "--no-private", "--out", tmp_path / "run")
    if name != "nothing":  # a line of nothing is no row to whoever reads a file whole
        assert_refused(done, words)
    found = call("check", tmp_path / "t.csv", "--schema", tmp_path / "s.toml")
    assert found.exit_code == 0, found.output
    shown = "1 of 42 lines" if name not in ("latin-1",) else "ward"
    assert shown in found.stdout
    assert "Secret" not in found.stdout


def test_over_budget_no_cell_is_read_with_a_schema_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_bytes(HEAD + ROWS)
    (tmp_path / "s.toml").write_text(SCHEMA)
    ledger = Ledger.create(tmp_path / "study.db", epsilon=0.5, delta=1e-3)
    monkeypatch.setattr("dpsep.data.text._line_blocks", lambda *_: pytest.fail("a cell was read"))
    for how in (["--schema", tmp_path / "s.toml"], UNDECLARED):
        done = call(
            *("fit", tmp_path / "t.csv", *how, "--epsilon", 1, "--out", tmp_path / "run"),
            *("--ledger", ledger.path),
        )
        assert_refused(done, "does not fit", "No record was read")
    shared = Ledger.create(tmp_path / "shared.db", epsilon=5.0, delta=1e-3, rule="rdp")
    done = call(
        *("fit", tmp_path / "t.csv", *UNDECLARED, "--epsilon", 1, "--out", tmp_path / "run"),
        *("--ledger", shared.path),
    )
    assert_refused(done, "--schema", "No record was read")


def test_cells_are_read_when_the_charge_is_on_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_bytes(HEAD + ROWS)
    (tmp_path / "s.toml").write_text(SCHEMA)
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-2)
    charged: list[list[str]] = []

    def noted(*arguments: Any) -> Any:
        charged.append([row.kind for row in ledger.rows() if row.kind != "release"])
        return blocks(*arguments)

    blocks = text._line_blocks
    monkeypatch.setattr(text, "_line_blocks", noted)
    done = call(
        *("fit", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 1, "--delta", 1e-3),
        *("--out", tmp_path / "run", "--ledger", ledger.path),
    )
    assert done.exit_code == 0, done.output
    assert charged == [["create", "charge"]]
    done = call(
        *("schema", tmp_path / "t.csv", "--epsilon", 1, "--ledger", ledger.path),
        *("--out", tmp_path / "drafted.toml"),
    )
    assert done.exit_code == 0, done.output
    assert charged[1:] == [["create", "charge", "finished", "charge"]]


def test_unseen_categories_are_no_error_and_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA)
    told = []
    for label in (b"yes", b"perhaps"):  # of the first record's target; its ward is undeclared either way
        (tmp_path / "t.csv").write_bytes(HEAD.replace(b"yes", label) + ROWS)
        done = call(
            *("fit", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 1, "--delta", 1e-3),
            *("--out", tmp_path / label.decode()),
        )
        assert done.exit_code == 0, done.output
        told.append(done.stderr.replace(label.decode(), ""))
        assert sorted(item.name for item in (tmp_path / label.decode()).iterdir())[0] == "manifest.json"
    assert told[0] == told[1]


def test_folders_and_closed_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--target", "ill", "--epsilon", 1, "--out", tmp_path / "run")
    assert_refused(call("fit", tmp_path, *options), "is a folder")
    (tmp_path / "t.csv").write_bytes(HEAD)
    true_open = Path.open

    def refuse(path: Path, *arguments: str, **options: str) -> object:
        if path.name == "t.csv":
            raise PermissionError(13, "Permission denied", str(path))
        return true_open(path, *arguments, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(Path, "open", refuse)
    for command in (("fit", tmp_path / "t.csv", *options), ("schema", tmp_path / "t.csv")):
        assert_refused(call(*command), "t.csv cannot be read (Permission denied)")


@pytest.mark.parametrize("command", ["schema", "check"])
def test_the_other_commands_refuse_alike(tmp_path: Path, command: str) -> None:
    (tmp_path / "t.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    assert_refused(call(command, tmp_path / "t.csv"), "is UTF-16")
    (tmp_path / "t.dat").write_bytes(HEAD + ROWS)
    assert_refused(call(command, tmp_path / "t.dat"), "--format")
    assert call(command, tmp_path / "t.dat", "--format", "csv").exit_code == 0
