"""A draft that is found privately: charged, of the right kinds, and wide enough."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dpsep.cli.ranges import draft_recipe
from dpsep.data import Schema
from dpsep.fit import fit_private
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.release_log import ReleaseLog

from .help import assert_refused, call, write_csv

ROWS = 4000


def cells() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {
        "pressure": rng.normal(1013, 6, ROWS).round(2),
        "sparse": np.where(rng.uniform(size=ROWS) < 0.5, "", rng.uniform(0, 1, ROWS).round(3).astype(str)),
        "ward": rng.choice(["Secretville", "Elsewhere"], ROWS),
    }


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "t.csv", cells())


def test_kinds_and_bounds_are_found_and_charged(table: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-5)
    done = call(
        *("schema", table, "--epsilon", 2, "--delta", 1e-6, "--ledger", ledger.path),
        *("--out", tmp_path / "s.toml"),
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "s.toml").read_text()
    assert "Secretville" not in text
    assert "found privately (epsilon 2" in text
    schema = Schema.from_toml(text.replace("categories = []", 'categories = ["Elsewhere", "Secretville"]'))
    assert [column.kind for column in schema.columns] == ["number", "number", "category"]
    # The middle 98 % must lie inside, and the range must not be wide beyond use.
    for name, low, high in (("pressure", 999.0, 1027.0), ("sparse", 0.01, 0.99)):
        bounds = schema[name].bounds
        assert bounds is not None
        assert bounds[0] < low < high < bounds[1]
        assert bounds[1] - bounds[0] < 10 * (high - low)
    spent = ledger.spent()
    assert 1.99 < spent.epsilon <= 2.0
    assert spent.delta == pytest.approx(1e-6)
    rows = ledger.rows()
    assert [row.kind for row in rows] == ["create", "charge", "finished"]
    assert rows[1].event["purpose"] == "draft of a schema"
    # One release for the kinds, and three for the range of each of three columns.
    assert sum(part["steps"] for part in rows[1].event["parts"]) == 10


def test_declared_types_need_no_release_of_kinds(tmp_path: Path) -> None:
    frame = pl.DataFrame({"pressure": cells()["pressure"], "ward": cells()["ward"], "ill": [True] * ROWS})
    frame.write_parquet(tmp_path / "t.parquet")
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-5)
    done = call("schema", tmp_path / "t.parquet", "--epsilon", 1, "--ledger", ledger.path)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("bounds = [") == 1
    assert sum(part["steps"] for part in ledger.rows()[1].event["parts"]) == 3


def test_over_budget_or_without_numbers_nothing_is_read(table: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=0.5, delta=1e-5)
    out = tmp_path / "s.toml"
    done = call("schema", table, "--epsilon", 1, "--ledger", ledger.path, "--out", out)
    assert_refused(done, "does not fit", "No record was read")
    assert ledger.spent().epsilon == 0.0
    assert not out.exists()
    pl.DataFrame({"ward": ["a"]}).write_parquet(tmp_path / "t.parquet")
    assert_refused(call("schema", tmp_path / "t.parquet", "--epsilon", 1), "no column of numbers")


class Draft:
    """A draft of two columns, the second of text, that dies after some of its seven releases."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger.create(folder / "study.db", epsilon=9.0, delta=1e-3)
        self.kept = Checkpoint(folder / "kept")
        self.recipe = draft_recipe(["a", "b"], ROWS, 2.0, 1e-5, "zero-out", untyped=True)
        self.spent_when_read: list[float] = []

    def records(self) -> tuple[np.ndarray]:
        self.spent_when_read.append(self.ledger.spent().epsilon)
        return (np.stack([np.random.default_rng(2).normal(1013, 6, ROWS), np.full(ROWS, np.nan)], axis=1),)

    def find(self) -> Any:
        return fit_private(self.recipe, self.records, ledger=self.ledger, checkpoint=self.kept)

    def die(self, monkeypatch: pytest.MonkeyPatch, after: int, *, kept: bool) -> None:
        """Find until so many releases are made, the last of them kept or not."""
        keep = ReleaseLog.keep

        def dying(log: ReleaseLog, stage: str, released: Any) -> None:
            last = log.kept.total() + 1 == after
            if kept or not last:
                keep(log, stage, released)
            if last:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ReleaseLog, "keep", dying)
            with pytest.raises(KeyboardInterrupt):
                self.find()


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("after", [1, 2, 4, 5, 7])
def test_a_draft_is_charged_before_it_reads_and_goes_on_in_every_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, kept: bool
) -> None:
    draft = Draft(tmp_path)
    draft.die(monkeypatch, after, kept=kept)
    found, spend = draft.find()
    assert list(found) == ["b", "a"]
    assert found["b"] == {"kind": "category"}
    assert found["a"]["bounds"][0] < 999 < 1027 < found["a"]["bounds"][1]
    # A release that may have been made and was not kept is made once more, and so is the one under way.
    more = 0 if kept and after == 7 else 1
    assert sum(part.steps for part in spend.schedule.parts) == 7 + more
    assert [row.kind for row in draft.ledger.rows()].count("extra-step") == more
    first, again = draft.spent_when_read
    assert first == pytest.approx(2.0, rel=1e-3)
    assert again == draft.ledger.spent().epsilon == pytest.approx(spend.epsilon)
    assert (again > first) == bool(more)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", 1, "--look"], "choose one"),
        (["--ledger", "x.db"], "add --epsilon"),
        (["--epsilon", 0], "--epsilon must be a positive number"),
        (["--epsilon", 1, "--delta", 1], "--delta between 0 and 1"),
        (["--epsilon", 1, "--ledger", "none.db"], "no ledger at none.db"),
    ],
)
def test_wrong_options_are_refused(table: Path, arguments: list[Any], words: str) -> None:
    assert_refused(call("schema", table, *arguments), words)


def test_a_drafts_words_do_not_depend_on_values(table: Path, tmp_path: Path) -> None:
    other = write_csv(tmp_path / "u.csv", dict.fromkeys(cells(), ["Secretville"] * ROWS))
    told = []
    for path in (table, other):
        done = call("schema", path, "--epsilon", 1)
        assert done.exit_code == 0, done.output
        told.append(done.stderr)
    assert told[0] == told[1]
    assert json.dumps("Secretville") not in done.stdout
