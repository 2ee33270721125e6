import json

from typer.testing import CliRunner

from dpsep.cli import app
from dpsep.paper import accounting


def test_a_table_of_the_paper_is_printed_and_written_as_one_json_document(tmp_path, monkeypatch):
    monkeypatch.setattr(accounting, "SETTINGS", accounting.SETTINGS[:1])
    path = tmp_path / "rows.json"
    result = CliRunner().invoke(app, ["paper", "accounting", "--json", str(path)])
    assert result.exit_code == 0
    assert "as written" in result.output
    rows = json.loads(path.read_text())
    assert {row["source"] for row in rows} == {"as accounted", "as written", "ours"}


def test_an_unknown_table_is_a_wrong_call():
    result = CliRunner().invoke(app, ["paper", "table99"])
    assert result.exit_code == 2
    assert "accounting" in result.output + str(result.stderr)
