import json
from pathlib import Path

import polars as pl
import pytest

from dpsep.data import Schema, SchemaError

from .help import call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("age,ward,ill\n41,Secretville,yes\n130,Elsewhere,no\n,Secretville,no\n")
    return path


def test_a_draft_names_columns_and_kinds_and_no_values(table: Path, tmp_path: Path) -> None:
    done = call("schema", table, "--target", "ill", "--out", tmp_path / "s.toml")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "s.toml").read_text()
    for value in ("Secretville", "41", "130", "yes"):
        assert value not in text.replace('A yes/no target has "no" first', "")
    with pytest.raises(SchemaError, match="'ward' is a category without categories"):
        Schema.from_toml(text)
    filled = text.replace("# bounds = [LOWEST, HIGHEST]", "bounds = [0, 120]")
    filled = filled.replace("categories = []", 'categories = ["no", "yes"]')
    schema = Schema.from_toml(filled)
    assert schema.target == "ill"
    assert [column.kind for column in schema.columns] == ["number", "category", "category"]


def test_a_draft_does_not_replace_a_schema(table: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("# mine")
    done = call("schema", table, "--out", tmp_path / "s.toml")
    assert done.exit_code == 2
    assert (tmp_path / "s.toml").read_text() == "# mine"


def test_a_draft_of_an_unknown_target_is_refused(table: Path) -> None:
    done = call("schema", table, "--target", "il")
    assert done.exit_code == 2
    assert "Did you mean 'ill'?" in done.stderr


def test_odd_names_are_written_as_toml(tmp_path: Path) -> None:
    name = 'pay "net"\n[€]'
    pl.DataFrame({name: [1.0], "up": [True]}).write_parquet(tmp_path / "t.parquet")
    schema = Schema.from_toml(call("schema", tmp_path / "t.parquet").stdout)
    assert [column.name for column in schema.columns] == [name, "up"]
    assert schema["up"].categories == ("false", "true")


def test_a_check_says_first_that_it_is_not_private(table: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[columns]]\nname = "age"\nkind = "number"\nbounds = [0, 120]\n')
    done = call("check", table, "--schema", tmp_path / "s.toml")
    assert done.exit_code == 0
    assert done.stdout.startswith("NOT PRIVATE")
    assert "outside 0 to 120" in done.stdout
    document = json.loads(call("check", table, "--schema", tmp_path / "s.toml", "--json").stdout)
    assert document["private"] is False
    assert {item["problem"] for item in document["findings"]} == {"missing", "out of bounds"}
