import json
from pathlib import Path

import polars as pl
import pytest

from dpsep.data import Schema, SchemaError

from .help import assert_refused, call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("age,ward,ill\n41,Secretville,yes\n130,Elsewhere,no\n,Secretville,no\n")
    return path


def test_a_draft_of_a_text_file_has_names_and_asks_for_the_rest(table: Path, tmp_path: Path) -> None:
    done = call("schema", table, "--target", "ill", "--out", tmp_path / "s.toml")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "s.toml").read_text()
    for value in ("Secretville", "41", "130", "yes"):
        assert value not in text.replace('A yes/no target has "no" first', "")
    with pytest.raises(SchemaError, match=r"column 'age' has kind '\?'; allowed are 'number' and 'category'"):
        Schema.from_toml(text)
    filled = text.replace('kind = "?"', 'kind = "number"\nbounds = [0, 120]', 1)
    filled = filled.replace('kind = "?"', 'kind = "category"\ncategories = ["no", "yes"]')
    schema = Schema.from_toml(filled)
    assert schema.target == "ill"
    assert [column.kind for column in schema.columns] == ["number", "category", "category"]


def test_a_draft_does_not_depend_on_a_cell(table: Path, tmp_path: Path) -> None:
    before = call("schema", table).stdout
    table.write_text(table.read_text().replace("41", "forty").replace("yes", "3.5"))
    assert call("schema", table).stdout == before


def test_types_that_a_file_declares_are_taken(tmp_path: Path) -> None:
    pl.DataFrame({"age": [41], "ward": ["Secretville"], "ill": [True]}).write_ipc(tmp_path / "t.arrow")
    text = call("schema", tmp_path / "t.arrow").stdout
    assert text.count('kind = "category"') == 2
    assert 'kind = "number"' in text
    assert "Secretville" not in text


def test_a_draft_by_looking_says_so_and_a_fit_warns_of_it(table: Path, tmp_path: Path) -> None:
    done = call("schema", table, "--look", "--target", "ill", "--out", tmp_path / "s.toml")
    assert done.exit_code == 0, done.output
    assert "outside the privacy guarantee" in done.stderr
    schema = Schema.read(tmp_path / "s.toml")
    assert schema.looked
    assert schema["ward"].categories == ("Elsewhere", "Secretville")
    assert schema["age"].bounds == (41.0, 130.0)
    done = call(
        *("fit", table, "--schema", tmp_path / "s.toml", "--epsilon", 1, "--out", tmp_path / "run"),
        "--strict",
    )
    assert_refused(done, "drafted by looking", "--epsilon")


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
