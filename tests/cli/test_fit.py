import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import Result

from dpsep.estimators.store import load
from dpsep.privacy.ledger import Ledger

from .help import BOUNDED, assert_refused, call, columns, some, write_csv


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", some("a b y"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "mixed.csv", some("a b sex ill"))


def fit(table: Path, out: Path, *more: Any, target: str = "y", epsilon: float = 1.0) -> Result:
    return call("fit", table, "--target", target, "--epsilon", epsilon, "--out", out, *more)


def test_a_fit_is_charged_and_leaves_a_whole_folder(tmp_path: Path, table: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-4)
    done = fit(table, tmp_path / "run", "--ledger", ledger.path, "--json", *BOUNDED)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["privacy"]["epsilon"] <= 1.0
    assert [row["name"] for row in document["summary"]] == ["intercept", "a", "b"]
    spent = ledger.spent()
    assert 0.9 < spent.epsilon <= 1.0
    assert [row.kind for row in ledger.rows()][-1] == "finished"
    assert sorted(item.name for item in (tmp_path / "run").iterdir()) == [
        "manifest.json",
        "posterior.json",
        "privacy.json",
        "privacy.txt",
        "schema.toml",
        "summary.csv",
    ]
    assert not (tmp_path / "run.partial").exists()
    assert "differentially private" in (tmp_path / "run" / "privacy.txt").read_text()
    # The truth is y = 1 + a - 2 b; 400 records at epsilon 1 leave about 0.1 of noise.
    estimator: Any = load(tmp_path / "run")
    assert np.abs(estimator.posterior_.mean - [1.0, 1.0, -2.0]).max() < 1.0


def test_a_schema_declares_categories_and_leaves_nothing_to_warn_of(tmp_path: Path, mixed: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'target = "ill"\n'
        '[[columns]]\nname = "a"\nkind = "number"\nbounds = [-1, 1]\n'
        '[[columns]]\nname = "sex"\nkind = "category"\ncategories = ["F", "M"]\n'
        '[[columns]]\nname = "ill"\nkind = "category"\ncategories = ["no", "yes"]\n'
    )
    done = call(
        *("fit", mixed, "--schema", tmp_path / "s.toml", "--epsilon", 1, "--out", tmp_path / "run"),
        *("--strict", "--json"),
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["model"] == "logistic"
    assert document["warnings"] == []
    assert [row["name"] for row in document["summary"]] == ["intercept", "a", "sex=M"]
    estimator: Any = load(tmp_path / "run")
    assert list(estimator.classes_) == ["no", "yes"]


def test_without_privacy_nothing_is_charged_and_the_result_says_so(tmp_path: Path, table: Path) -> None:
    done = call("fit", table, "--target", "y", "--no-private", "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["privacy"] is None
    assert "NOT PRIVATE" in (tmp_path / "run" / "privacy.txt").read_text()
    assert json.loads((tmp_path / "run" / "privacy.json").read_text()) == {"private": False}


def test_undeclared_classes_are_warned_of_and_strictly_refused(tmp_path: Path, mixed: Path) -> None:
    done = fit(mixed, tmp_path / "run", "--drop", "sex", "--bounds", "-1:1", "--quiet", target="ill")
    assert done.exit_code == 0, done.output
    assert "the classes of 'ill' were read off the table" in done.stderr
    assert done.stdout == ""
    leaks = json.loads((tmp_path / "run" / "privacy.json").read_text())["leaks"]
    assert any("classes" in leak for leak in leaks)
    frame = tmp_path / "t.parquet"  # types are declared there: the classes are the only leak
    pl.DataFrame(some("a ill")).write_parquet(frame)
    assert_refused(fit(frame, tmp_path / "other", "--strict", target="ill"), "classes", "--classes")
    assert not (tmp_path / "other.partial").exists()


def test_guessed_types_are_a_leak_of_a_text_file_only(tmp_path: Path, table: Path) -> None:
    assert_refused(fit(table, tmp_path / "run", "--strict", *BOUNDED), "types", "--schema")
    frame = tmp_path / "t.parquet"
    pl.DataFrame(some("a b y")).write_parquet(frame)
    done = fit(frame, tmp_path / "run", "--strict", "--json", *BOUNDED)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["warnings"] == []


def test_delta_above_one_over_n_is_warned_of(tmp_path: Path, table: Path) -> None:
    done = fit(table, tmp_path / "run", "--delta", 0.01, "--quiet", *BOUNDED)
    assert done.exit_code == 0, done.output
    assert "warning: delta=0.01 is above 1/N = 0.0025" in done.stderr


@pytest.mark.parametrize(
    ("content", "word"),
    [("", "is empty"), ("a,b,y\n", "no rows"), ("a,b,y\n1,2,3\n", "minimum of 2"), ("a,b\n1,2\n", "'y'")],
)
def test_tables_without_enough_in_them_are_refused(tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert_refused(fit(tmp_path / "t.csv", tmp_path / "run"), word)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["t.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "yy"], ["no column 'yy'", "Did you mean 'y'?"]),
        (["--drop", "c"], ["no column 'c'"]),
        (["--epsilon", "0"], ["epsilon must be a positive number"]),
        (["--epsilon", "-1"], ["epsilon must be a positive number"]),
        (["--epsilon", "nan"], ["epsilon must be a positive number"]),
        (["--delta", "0"], ["delta must lie in (0, 1)"]),
        (["--delta", "1"], ["delta must lie in (0, 1)"]),
        (["--bounds", "a=1"], ["COLUMN=LOW:HIGH"]),
        (["--bounds", "a=2:1"], ["LOW below HIGH"]),
        (["--bounds", "c=0:1"], ["no column 'c'"]),
        (["--classes", "no"], ["NEGATIVE,POSITIVE"]),
        (["--model", "logistic"], ["exactly two classes"]),
        (["--ledger", "none.db"], ["no ledger at none.db", "dpsep ledger create"]),
        (["--schema", "none.toml"], ["none.toml cannot be read"]),
        (["--no-private", "--ledger", "x.db"], ["leave --ledger out"]),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, table: Path, arguments: list[str], words: list[str]
) -> None:
    assert_refused(fit(table, tmp_path / "run", *arguments), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_budget_target_or_table_is_refused(tmp_path: Path, table: Path) -> None:
    assert_refused(call("fit", table, "--target", "y", "--out", tmp_path / "run"), "--epsilon")
    assert_refused(call("fit", table, "--epsilon", 1, "--out", tmp_path / "run"), "--target")
    assert_refused(fit(tmp_path / "none.csv", tmp_path / "run"), "there is no file")


def test_undeclared_text_is_refused_by_name_and_without_its_values(tmp_path: Path) -> None:
    cells = some("a y") | {"ward": np.where(columns()["a"] > 0, "Secretville", "Elsewhere")}
    table = write_csv(tmp_path / "t.csv", cells)
    done = fit(table, tmp_path / "run")
    assert_refused(done, "column 'ward'", "--schema", "--drop ward")
    assert "Secretville" not in done.output
    assert_refused(
        fit(table, tmp_path / "run", "--model", "poisson", target="ward"), "'ward' holds no numbers"
    )


def test_an_existing_folder_is_replaced_only_when_asked(tmp_path: Path, table: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert_refused(fit(table, tmp_path / "mine"), "exists", "--overwrite")
    assert_refused(fit(table, tmp_path / "mine", "--overwrite"), "not the folder of a fit")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    assert fit(table, tmp_path / "run", *BOUNDED).exit_code == 0
    before = (tmp_path / "run" / "privacy.json").read_text()
    assert_refused(fit(table, tmp_path / "run", *BOUNDED), "exists")
    done = fit(table, tmp_path / "run", "--resume", *BOUNDED)
    assert done.exit_code == 0
    assert "nothing to resume" in done.stderr
    assert (tmp_path / "run" / "privacy.json").read_text() == before
    assert fit(table, tmp_path / "run", "--overwrite", *BOUNDED).exit_code == 0
    assert (tmp_path / "run" / "privacy.json").read_text() != before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["mine", "run"]


def test_no_space_left_for_the_result_keeps_what_was_paid_for(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=1.0, delta=1e-5)
    write = os.write
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(descriptor: int, data: bytes) -> int:
        if b'"estimator"' in bytes(data):  # the posterior's file; checkpoints have room
            raise full
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.privacy.checkpoint.os.write", fail)
        done = fit(table, tmp_path / "run", "--ledger", ledger.path, *BOUNDED)
    assert_refused(done, "no room on the disk", "--resume")
    assert not (tmp_path / "run").exists()
    assert_refused(fit(table, tmp_path / "run", "--ledger", ledger.path, *BOUNDED), "unfinished", "--resume")
    # All releases were kept, so the rest is free, and the ledger has nothing left to give anyway.
    done = fit(table, tmp_path / "run", "--ledger", ledger.path, "--resume", *BOUNDED)
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "run")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["run", "study.db"]


def test_over_budget_is_a_wrong_call_that_leaves_nothing_behind(tmp_path: Path, table: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=0.5, delta=1e-5)
    assert_refused(
        fit(table, tmp_path / "run", "--ledger", ledger.path), "does not fit", "No record was read"
    )
    assert ledger.spent().epsilon == 0.0
    assert sorted(item.name for item in tmp_path.iterdir()) == ["study.db"]


def test_a_resume_with_other_settings_is_refused(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.privacy.gate.Gate.release", fail)
        done = fit(table, tmp_path / "run", *BOUNDED)
    assert done.exit_code == 1
    assert "--resume goes on from there" in done.stderr
    assert_refused(fit(table, tmp_path / "run", "--resume", *BOUNDED, epsilon=2.0), "other settings")
    assert fit(table, tmp_path / "run", "--overwrite", *BOUNDED, epsilon=2.0).exit_code == 0


def test_a_budget_that_the_planner_calls_weak_is_told_before_it_is_charged(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", some("a b y"))
    done = fit(table, tmp_path / "small", "--epsilon", 0.02, "--delta", 1e-5, "--quiet", *BOUNDED)
    assert "the budget is too small for this table" in done.stderr
    assert "What would help: epsilon" in done.stderr
    plenty = fit(table, tmp_path / "large", "--epsilon", 50, "--delta", 1e-5, "--quiet", *BOUNDED)
    assert "the budget is" not in plenty.stderr
