"""Damaged files and files that are no tables: one clear line, exit code 2, nothing spent, no cell told."""

import io
from pathlib import Path

import polars as pl
import pytest

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


def parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"age": [41]}).write_parquet(buffer)
    return buffer.getvalue()


BROKEN = {
    "ragged": (HEAD + b"42,Secretville\n" + ROWS, "line 3 with 2"),
    "too many cells": (HEAD + b"42,Secretville,yes,no\n" + ROWS, "line 3 with 4"),
    "an open quote": (HEAD + b'42,"Secretville,yes\n' + ROWS, "quotation mark"),
    "quotes that swallow rows": (HEAD + b'42,Secret"ville,"yes\n' + ROWS, "quotation mark"),
    "latin-1": (HEAD + "42,Secretvillé,yes\n".encode("latin1") + ROWS, "not UTF-8 text"),
    "utf-16": ((HEAD + ROWS).decode().encode("utf-16"), "is UTF-16"),
    "a name twice": (b"age,ward,ill,ward\n41,Secretville,yes,x\n", "more than one column named ward"),
    "empty": (b"", "is empty"),
    "a header only": (b"age,ward,ill\n", "no rows"),
    "one row": (HEAD, "minimum of 2"),
    "no such column": (b"age,wards,ill\n41,Secretville,yes\n", "no column 'ward'"),
    "a nameless column": (b"age,ward,ill,\n41,Secretville,yes,1\n", "no name for column 4"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(200), "spreadsheet"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(200), "not UTF-8 text"),
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
    ledger = Ledger(tmp_path / "study.db", epsilon=1.0, delta=1e-5)
    how = (
        ["--schema", tmp_path / "s.toml"]
        if declared
        else ["--target", "ill", "--classes", "no,yes", "--drop", "ward"]
    )
    done = call("fit", table, *how, "--epsilon", 1, "--out", tmp_path / "run", "--ledger", ledger.path)
    assert_refused(done, words)
    assert "Secret" not in done.output
    assert "\\" not in done.output
    assert ledger.spent().epsilon == 0.0
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run.partial").exists()


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
