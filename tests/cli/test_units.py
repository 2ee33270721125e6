"""Rows that belong together: whole units protected, or rows with effects by unit, from schema to table."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.special import expit, ndtr

import dpsep
from dpsep.cli.units import labels_of
from dpsep.data import Column, Schema
from dpsep.estimators.row_scores import predictions
from dpsep.estimators.store import load
from dpsep.privacy.ledger import Ledger

from .help import assert_refused, call, write_csv

GROUPS, ROWS = 30, 8
RNG = np.random.default_rng(2)
PATIENT = np.repeat(np.arange(GROUPS), ROWS)
A = RNG.uniform(-1, 1, GROUPS * ROWS).round(4)
EFFECTS = RNG.standard_normal(GROUPS)
Y = (1 + A + EFFECTS[PATIENT] + 0.2 * RNG.standard_normal(len(A))).round(4)
COLUMN = '[[columns]]\nname = "{}"\nkind = "number"\nbounds = [-6, 6]\n'
SCHEMA = 'target = "y"\nunit = "patient"\n{}\n' + COLUMN.format("a") + COLUMN.format("y")
WHOLE = f"groups = {GROUPS}\nrows_per_unit = {ROWS}"
BUDGET = ("--epsilon", 3, "--delta", 1e-3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of patients, its schema, and a run that knows their own effects (without privacy)."""
    folder = tmp_path_factory.mktemp("units")
    write_csv(folder / "t.csv", {"a": A, "y": Y, "patient": PATIENT})
    (folder / "s.toml").write_text(SCHEMA.format(WHOLE))
    done = fit(folder, folder / "known", "--no-private", "--unit", "record", "--quiet")
    assert done.exit_code == 0, done.output
    return folder


def fit(folder: Path, out: Path, *options: Any, table: str = "t.csv", schema: str = "s.toml") -> Any:
    return call("fit", folder / table, "--schema", folder / schema, "--out", out, *options)


def predicted(run: Path, table: Path) -> pl.DataFrame:
    done = call("predict", run, table, "--json")
    assert done.exit_code == 0, done.output
    return pl.DataFrame(json.loads(done.stdout))


def test_whole_units_are_protected_where_a_schema_declares_them(place: Path, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "g.db", epsilon=4.0, delta=1e-2, unit="group")
    done = fit(place, tmp_path / "run", *BUDGET, "--ledger", tmp_path / "g.db", "--strict", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["privacy"]["unit"] == "group"
    assert document["privacy"]["leaks"] == []
    assert [row["name"] for row in document["summary"]] == ["intercept", "a", "sd(intercept)", "sd(noise)"]
    # So few groups are few: that is a line of ours, and not one of Python's.
    (weak,) = document["warnings"]
    assert f"{GROUPS} groups" in weak
    assert f"dpsep: warning: {weak}" in done.stderr.splitlines()
    assert "WeakBudgetWarning" not in done.stderr
    words = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert "private for each group" in words
    assert f"A group is all rows of one 'patient'; the first {ROWS} rows of each were used." in words
    charge = next(row for row in Ledger(tmp_path / "g.db").rows() if row.kind == "charge")
    assert (charge.unit, charge.epsilon) == ("group", pytest.approx(3.0, rel=1e-6))
    # Nobody's own effects are known, so that a prediction does not depend on whose row it is.
    bare = write_csv(tmp_path / "bare.csv", {"a": A})
    assert predicted(tmp_path / "run", place / "t.csv").equals(predicted(tmp_path / "run", bare))


def test_how_many_rows_a_unit_has_shows_nowhere(place: Path, tmp_path: Path) -> None:
    more = np.concatenate([np.arange(len(A)), np.repeat(np.flatnonzero(PATIENT == 3), 50)])
    write_csv(tmp_path / "more.csv", {"a": A[more], "y": Y[more], "patient": PATIENT[more]})
    write_csv(tmp_path / "same.csv", {"a": A, "y": Y, "patient": PATIENT})
    (tmp_path / "s.toml").write_text(SCHEMA.format(WHOLE))
    told = []
    for table in ("same.csv", "more.csv"):
        done = fit(tmp_path, tmp_path / "run", *BUDGET, "--overwrite", "--json", table=table)
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        document["privacy"].pop("run")
        document["summary"] = [row["name"] for row in document["summary"]]
        told.append((document, done.stderr, (tmp_path / "run" / "privacy.txt").read_text()))
    assert told[0] == told[1]


def test_a_ledger_of_another_unit_is_not_charged(place: Path, tmp_path: Path) -> None:
    for unit, options, words in (
        ("record", (), ("counts single rows", "dpsep ledger create PATH --unit group", "--unit record")),
        ("group", ("--unit", "record"), ("counts whole units", "made with --unit record")),
    ):
        ledger = Ledger.create(tmp_path / f"{unit}.db", epsilon=4.0, delta=1e-2, unit=unit)
        done = fit(place, tmp_path / "run", *BUDGET, "--ledger", ledger.path, *options)
        assert_refused(done, *words, "Nothing was charged")
        assert ledger.spent().epsilon == 0.0


@pytest.mark.parametrize(
    ("declared", "options", "wanted", "unwanted"),
    [
        ("", (), ("groups = NUMBER", "rows_per_unit = NUMBER", "take 'unit' out"), ()),
        ("groups = 30", (), ("rows_per_unit = NUMBER",), ("groups = NUMBER",)),
        ("rows_per_unit = 8", (), ("groups = NUMBER", "[their labels]"), ("rows_per_unit = NUMBER",)),
        ("", ("--unit", "record"), ("groups = NUMBER",), ("rows_per_unit",)),
    ],
)
def test_what_has_to_be_declared_is_named(
    place: Path, tmp_path: Path, declared: str, options: Any, wanted: Any, unwanted: Any
) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA.format(declared))
    done = fit(tmp_path, tmp_path / "run", *BUDGET, *options, table=str(place / "t.csv"))
    assert_refused(done, "'patient'", *wanted)
    for word in unwanted:
        assert word not in done.stderr


def test_rows_of_one_unit_together_are_a_leak_where_rows_are_protected(place: Path, tmp_path: Path) -> None:
    for option in (("--unit", "record"), ("--model", "network")):
        done = fit(place, tmp_path / "run", *BUDGET, *option, "--strict")
        assert_refused(done, "all rows of one 'patient' tell together", "k times this epsilon")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metrics-epsilon", 1), ("whole units would have to be held out", "--public-test")),
        (("--model", "network", "--unit", "group"), ("protects rows", "leave --unit out")),
        (("--model", "network", "--slopes", "a"), ("--slopes is for models with effects by unit",)),
        (("--slopes", "b"), ("no column 'b'", "the columns are a")),
        (("--slopes", "a,a"), ("'a' twice",)),
    ],
)
def test_options_that_do_not_suit_are_refused(place: Path, tmp_path: Path, options: Any, words: Any) -> None:
    assert_refused(fit(place, tmp_path / "run", *BUDGET, *options), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_unit_needs_a_schema_that_says_whose_rows_they_are(place: Path, tmp_path: Path) -> None:
    done = call(
        *("fit", place / "t.csv", "--target", "y", "--no-private", "--unit", "group"),
        *("--out", tmp_path / "run"),
    )
    assert_refused(done, '--schema FILE with a line unit = "COLUMN"')


def test_known_units_are_predicted_by_their_own_effects_and_others_as_new_ones(
    place: Path, tmp_path: Path
) -> None:
    who = ["7", " 7 ", "30", "x", "", "7.5"]
    table = write_csv(tmp_path / "new.csv", {"a": [0.5] * len(who), "patient": who})
    rows = predicted(place / "known", table)
    assert abs(rows["mean"][0] - (1.5 + EFFECTS[7])) < 0.3  # eight rows with noise of 0.2
    assert rows["mean"][0] == rows["mean"][1]
    bare = predicted(place / "known", write_csv(tmp_path / "bare.csv", {"a": [0.5]}))
    for new in range(2, len(who)):
        assert rows.row(new)[1:] == bare.row(0)[1:]
    assert rows["sd"][2] > 3 * rows["sd"][0]  # effects of one and noise of 0.2
    mean = predicted(place / "known", place / "t.csv")["mean"].to_numpy()
    assert np.sqrt(np.mean((mean - 1 - A - EFFECTS[PATIENT]) ** 2)) < 0.15


def test_slopes_vary_and_metrics_on_public_rows_know_the_units(place: Path, tmp_path: Path) -> None:
    bare = write_csv(tmp_path / "bare.csv", {"a": A, "y": Y})
    metrics = []
    for test in (place / "t.csv", bare):
        options = ("--unit", "record", "--slopes", "a", "--public-test", test, "--overwrite", "--json")
        done = fit(place, tmp_path / "run", "--no-private", *options)
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        metrics.append(document["metrics"]["metrics"])
    names = [row["name"] for row in document["summary"]]
    assert [name for name in names if name.startswith("sd(")] == ["sd(intercept)", "sd(a)"]
    assert document["by"] == "patient"
    assert metrics[0]["rmse"] < 0.25  # noise of 0.2
    assert metrics[1]["rmse"] > 0.5  # and effects of one
    assert metrics[0]["log_density"] > metrics[1]["log_density"] + 0.5
    known: Any = load(tmp_path / "run")
    assert (known.unit, known.slopes, len(known.groups_)) == ("record", ("a",), GROUPS)


@pytest.mark.parametrize(
    ("cells", "groups", "expected"),
    [
        (["17", " 3", "03", "3.0", "3.5", "-1", "20", "x", "nan", None], 20, [17, 3, 3, 3, *[-1] * 6]),
        ([0, 19, 20, None], 20, [0, 19, -1, -1]),
        ([1.0, 1.5, float("inf")], 2, [1, -1, -1]),
        (["b", " a ", "c", "", None], ("a", "b"), ["b", "a", None, None, None]),
        ([2, 1, 3], ("1", "2"), ["2", "1", None]),
    ],
)
def test_a_label_is_read_cell_by_cell(cells: Any, groups: Any, expected: Any) -> None:
    schema = Schema((Column("a", "number"),), unit="who", groups=groups)
    found = labels_of(pl.DataFrame({"who": cells}), schema).tolist()
    assert found == expected
    kind = pl.Series(cells).dtype
    alone = [labels_of(pl.DataFrame({"who": pl.Series([cell], dtype=kind)}), schema)[0] for cell in cells]
    assert alone == expected


def test_labels_reach_the_model_as_text(tmp_path: Path) -> None:
    labels = [f"p{place}" for place in range(GROUPS)]
    write_csv(tmp_path / "t.csv", {"a": A, "y": Y, "patient": [labels[i] for i in PATIENT]})
    (tmp_path / "s.toml").write_text(SCHEMA.format(f"groups = {json.dumps(labels)}"))
    done = fit(tmp_path, tmp_path / "run", "--no-private", "--unit", "record", "--quiet")
    assert done.exit_code == 0, done.output
    table = write_csv(tmp_path / "new.csv", {"a": [0.5, 0.5], "patient": ["p7", "7"]})
    rows = predicted(tmp_path / "run", table)
    assert abs(rows["mean"][0] - (1.5 + EFFECTS[7])) < 0.3
    assert rows["sd"][1] > 3 * rows["sd"][0]


@pytest.mark.parametrize(("family", "link"), [("logistic", expit), ("probit", ndtr)])
def test_intervals_of_probabilities_go_through_the_familys_link(family: Any, link: Any) -> None:
    X = pl.DataFrame({"a": A})
    answers = np.where(A + EFFECTS[PATIENT] > 0, "yes", "no")
    model = dpsep.MixedClassifier(family, GROUPS, private=False, bounds=(-1, 1))
    model.fit(X, answers, groups=PATIENT)
    for groups in (PATIENT, None):
        found = predictions(model, X, groups)
        mean, variance = model._predictor(X, groups)
        reach = stats.norm.ppf(0.95) * np.sqrt(variance)
        np.testing.assert_allclose(found["low"], link(mean - reach))
        np.testing.assert_allclose(found["high"], link(mean + reach))
        np.testing.assert_array_equal(found["probability"], model.predict_proba(X, groups)[:, 1])


def test_counts_get_an_interval_of_counts() -> None:
    X = pl.DataFrame({"a": A})
    visits = np.random.default_rng(4).poisson(np.exp(0.5 + A + EFFECTS[PATIENT] / 2))
    model = dpsep.MixedRegressor("poisson", GROUPS, private=False, bounds=(-1, 1))
    model.fit(X, visits, groups=PATIENT)
    found = predictions(model, X, PATIENT)
    assert (found["low"] == found["low"].round()).all()
    inside = (found["low"] <= visits) & (visits <= found["high"])
    assert inside.mean() > 0.88  # discrete: at least 90 %, but for chance


@pytest.mark.parametrize(
    ("model", "target", "kind"),
    [
        ("auto", ["no", "yes"], "MixedClassifier"),
        ("probit", ["no", "yes"], "MixedClassifier"),
        ("poisson", None, "MixedRegressor"),
    ],
)
def test_every_family_is_fitted_and_predicted(tmp_path: Path, model: str, target: Any, kind: str) -> None:
    answers: Any = np.random.default_rng(4).poisson(np.exp(A + EFFECTS[PATIENT] / 2))
    text = SCHEMA.format(WHOLE).replace(COLUMN.format("y"), "")
    outcome = '[[columns]]\nname = "y"\nkind = "number"\n'
    if target is not None:
        answers = np.where(answers > 1, "yes", "no")
        outcome = f'[[columns]]\nname = "y"\nkind = "category"\ncategories = {json.dumps(target)}\n'
    (tmp_path / "s.toml").write_text(text + outcome)
    write_csv(tmp_path / "t.csv", {"a": A, "y": answers, "patient": PATIENT})
    done = fit(tmp_path, tmp_path / "run", "--no-private", "--unit", "record", "--model", model, "--quiet")
    assert done.exit_code == 0, done.output
    known: Any = load(tmp_path / "run")
    assert (type(known).__name__, known.family) == (kind, "logistic" if model == "auto" else model)
    rows = predicted(tmp_path / "run", tmp_path / "t.csv")
    value = rows["mean" if target is None else "probability"].to_numpy()
    # A patient's own effects are in the predictions: they follow the true ones.
    own = [value[patient == PATIENT].mean() for patient in range(GROUPS)]
    assert np.corrcoef(own, EFFECTS)[0, 1] > 0.7


def test_a_regression_without_a_mixed_form_protects_units_too(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA.format(WHOLE))
    write_csv(tmp_path / "t.csv", {"a": A, "y": Y, "patient": PATIENT})
    Ledger.create(tmp_path / "g.db", epsilon=4.0, delta=1e-2, unit="group")
    options = (*BUDGET, "--model", "student", "--ledger", tmp_path / "g.db", "--json")
    done = fit(tmp_path, tmp_path / "run", *options)
    assert done.exit_code == 0, done.output
    known: Any = load(tmp_path / "run")
    assert (type(known).__name__, known.unit, known.rows_per_group) == ("StudentRegression", "group", ROWS)
    assert json.loads(done.stdout)["privacy"]["unit"] == "group"
    words = (tmp_path / "run" / "privacy.txt").read_text()
    assert "for each group" in words
    assert f"the first {ROWS} rows of each" in " ".join(words.split())
    assert predicted(tmp_path / "run", tmp_path / "t.csv").height == len(A)
    # With what the schema leaves out, it is asked for.
    (tmp_path / "s.toml").write_text(SCHEMA.format(""))
    refused = fit(tmp_path, tmp_path / "other", *BUDGET, "--model", "student", "--unit", "group")
    assert_refused(refused, "rows_per_unit = NUMBER")
