"""`dpsep plan`: an answer from public numbers, the same in words, in JSON and as a picture."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import dpsep
from dpsep.cli.plan import Shape, shape_of
from dpsep.data import Column, Schema, encoded_bounds
from dpsep_lab.data import ADULT_SCHEMA

from .help import assert_refused, call

ASKED = ("plan", "--model", "logistic", "--records", 2_000, "--features", 10)
NUMBERS = (Column("age", "number", (0, 120)), Column("pay", "number", (0, 9)))


def written(path: Path, *columns: Column, **more: Any) -> Path:
    place = path / "schema.toml"
    place.write_text(Schema(columns, **more).to_toml(), encoding="utf-8")
    return place


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_the_answer_has_settings_costs_verdict_curve_and_a_line_of_python() -> None:
    done = call(*ASKED, "--epsilon", 1)
    assert done.exit_code == 0, done.output
    planned = dpsep.plan("logistic", 2_000, 10, epsilon=1.0)
    assert planned.settings is not None
    assert planned.forecast is not None
    words = ("What will be done", "What it is expected to cost", "The same table at other budgets")
    assert [done.stdout.index(one) for one in words] == sorted(done.stdout.index(one) for one in words)
    assert f"{planned.settings.sigma:.4g} times the clip" in done.stdout
    assert f"{planned.forecast.widening:.4g}" in done.stdout
    assert f"{planned.forecast.kl:.4g} nats" in done.stdout
    assert f" ({planned.verdict})." in done.stdout
    assert f"From {planned.free_records:,} records on" in done.stdout
    assert "RMSE" not in done.stdout
    table = done.stdout.split(words[2])[1]
    assert len(re.findall(r"^ [\d.]+ +[\d.]+ +\d+% ", table, re.MULTILINE)) == len(planned.curve)
    line = last_line(done.stdout)
    assert line == "dpsep.LogisticRegression(epsilon=1, delta=1e-05, bounds=(low, high))"
    built = eval(line, {"dpsep": dpsep, "low": -1, "high": 1})
    assert built.get_params()["epsilon"] == 1


def test_the_page_on_planning_prints_what_the_command_prints() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    command, _, printed = page.split("```console\n$ dpsep ")[1].split("```")[0].partition("\n")
    answer = "\n".join(line.rstrip() for line in call(*command.split()).stdout.splitlines())
    assert answer.strip() == printed.strip()


def test_a_linear_models_loss_is_also_told_as_growth_of_the_rmse() -> None:
    done = call("plan", "--model", "linear", "--records", 1000, "--features", 10, "--epsilon", 4)
    forecast = dpsep.plan("linear", 1000, 10, epsilon=4.0).forecast
    assert forecast is not None
    assert f"{math.sqrt(1 + 2 * forecast.excess_risk) - 1:.3%}" in done.stdout
    assert last_line(done.stdout).endswith("bounds=(low, high), target_bounds=(lowest, highest))")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--private-scaling",), {"declared": False}),
        (("--relation", "replace-one", "--delta", 1e-6), {"relation": "replace-one", "delta": 1e-6}),
        (("--levels", "3,4"), {"levels": (3, 4)}),
        (("--widening", 1.05), {"widening": 1.05}),
        (("--excess-risk", 1e-5), {"excess_risk": 1e-5}),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_json_is_the_plan_of_the_options(tmp_path: Path, options: Any, expected: Any) -> None:
    place = tmp_path / "plan.json"
    done = call(*ASKED, "--epsilon", 2, *options, "--json", place)
    assert done.exit_code == 0, done.output
    written = json.loads(place.read_text(encoding="utf-8"))
    assert written == dpsep.plan("logistic", 2_000, 10, epsilon=2.0, **expected).to_dict()
    assert written != dpsep.plan("logistic", 2_000, 10, epsilon=2.0).to_dict()


def test_private_scaling_needs_no_bounds_in_the_line_of_python() -> None:
    done = call(*ASKED, "--epsilon", 1, "--private-scaling", "--relation", "replace-one")
    assert "a tenth of the budget" in done.stdout
    line = "dpsep.LogisticRegression(epsilon=1, delta=1e-05, relation='replace-one')"
    assert last_line(done.stdout) == line


@pytest.mark.parametrize("left_out", ["epsilon", "records"])
def test_what_is_left_out_is_found_from_a_target(left_out: str) -> None:
    given = ("--epsilon", 1) if left_out == "records" else ("--records", 5000)
    done = call("plan", "--model", "linear", "--features", 5, *given, "--widening", 1.2)
    assert done.exit_code == 0, done.output
    row = next(line for line in done.stdout.splitlines() if "(found)" in line)
    assert row.strip().startswith("records" if left_out == "records" else "privacy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--records", 1, "--epsilon", 1), "Why: One record cannot be described and hidden at once"),
        (("--records", 2_000, "--epsilon", 1e-6), "What would help: Epsilon 0.1"),
        (("--records", 8, "--epsilon", 1), "Why: 8 records say little of 11 unknown numbers"),
        (("--records", 2_000, "--epsilon", 1, "--widening", 1.01), "Why: The target is not met"),
    ],
    ids=["one record", "no budget", "few records", "target"],
)
def test_impossible_is_an_answer_with_reasons_and_no_call_to_copy(options: Any, words: str) -> None:
    done = call("plan", "--model", "logistic", "--features", 10, *options)
    assert done.exit_code == 0, done.output
    assert "This cannot be done as asked (impossible)." in done.stdout
    assert words in done.stdout
    assert "What would help: " in done.stdout
    assert "dpsep.LogisticRegression" not in done.stdout


def test_a_network_is_told_its_settings_and_no_cost() -> None:
    done = call(
        "plan", "--model", "network", "--records", 7372, "--features", 8, "--epsilon", 1, "--hidden", "9,4"
    )
    assert done.exit_code == 0, done.output
    assert re.search(r"hidden units +9, 4", done.stdout)
    assert re.search(r"releases +300", done.stdout)
    assert "cannot be said beforehand" in done.stdout
    assert "expected to cost" not in done.stdout
    assert "hidden=(9, 4)" in last_line(done.stdout)
    none = call(
        "plan", "--model", "network", "--records", 7372, "--features", 8, "--epsilon", 1, "--hidden", "0"
    )
    assert "hidden=()" in last_line(none.stdout)


def test_a_mixture_and_a_sampled_fit_are_planned() -> None:
    shape = ("--records", 200_000, "--features", 4, "--epsilon", 1)
    mixture = call("plan", "--model", "mixture", "--components", 3, *shape)
    assert "n_components=3" in last_line(mixture.stdout)
    sampled = call("plan", "--model", "network", "--sampling", 0.25, *shape)
    assert "25.000%, drawn by chance" in sampled.stdout
    assert "sampling=0.25" in last_line(sampled.stdout)


def test_a_picture_is_written(tmp_path: Path) -> None:
    place = tmp_path / "plan.png"
    assert call(*ASKED, "--epsilon", 1, "--plot", place).exit_code == 0
    assert place.read_bytes().startswith(b"\x89PNG")


def test_a_schema_gives_the_shape(tmp_path: Path) -> None:
    ward = Column("ward", "category", categories=("a", "b", "c", "d"))
    sex = Column("sex", "category", categories=("F", "M"))
    path = written(tmp_path, *NUMBERS, ward, sex, target="sex")
    assert shape_of(path) == Shape("logistic", 5, (3,), True)
    assert shape_of(path, "probit").model == "probit"
    assert shape_of(written(tmp_path, *NUMBERS, ward, sex, target="pay")) == Shape("linear", 5, (3,), True)
    open_end = Column("weight", "number")
    assert shape_of(written(tmp_path, *NUMBERS, open_end, target="pay")) == Shape("linear", 2, (), False)
    # Bounds of the target count where it is a number that is scaled.
    path = written(tmp_path, NUMBERS[0], open_end, target="weight")
    assert [shape_of(path, model).declared for model in ("linear", "network", "poisson")] == [
        False,
        False,
        True,
    ]
    assert shape_of(written(tmp_path, *NUMBERS), "mixture") == Shape("mixture", 2, (), True)


def test_the_schemas_columns_are_counted_as_the_encoder_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "adult.toml"
    path.write_text(ADULT_SCHEMA.to_toml(), encoding="utf-8")
    shape = shape_of(path)
    assert shape.features == len(encoded_bounds(ADULT_SCHEMA)[0]) == 84
    assert shape.levels == (8, 6, 14, 5, 4, 41)
    done = call(
        "plan", "--schema", path, "--records", 32_561, "--epsilon", 1, "--json", tmp_path / "plan.json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "plan.json").read_text())
    assert (found["request"]["model"], found["request"]["features"]) == ("logistic", 84)


def test_schemas_that_cannot_be_planned_are_refused(tmp_path: Path) -> None:
    ward = Column("ward", "category", categories=("a", "b", "c"))
    asked = ("--records", 1000, "--epsilon", 1)
    path = written(tmp_path, *NUMBERS)
    assert_refused(call("plan", "--schema", path, *asked), "target")
    path = written(tmp_path, *NUMBERS, ward, target="ward")
    assert_refused(call("plan", "--schema", path, *asked), "'ward'", "3 classes")
    assert_refused(call("plan", "--schema", path, *asked, "--model", "linear"), "category", "logistic")
    path = written(tmp_path, *NUMBERS, ward, target="pay", unit="patient", groups=9)
    assert_refused(call("plan", "--schema", path, *asked), "'patient'", "mixed model")
    mixture = ("--model", "mixture", "--components", 2)
    assert_refused(call("plan", "--schema", path, *asked, *mixture), "numbers", "categories")
    path = written(tmp_path, NUMBERS[0], target="age")
    assert_refused(call("plan", "--schema", path, *asked), "nothing to fit")
    assert_refused(call("plan", "--schema", tmp_path / "none.toml", *asked), "none.toml")
    path = written(tmp_path, *NUMBERS, target="pay")
    for option in (("--features", 3), ("--levels", "2"), ("--private-scaling",)):
        assert_refused(call("plan", "--schema", path, *asked, *option), option[0])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--records", 100, "--features", 3, "--epsilon", 1), "--model"),
        (("--model", "linear", "--records", 100, "--epsilon", 1), "--features"),
        (("--model", "linear", "--records", 100, "--features", 3), "epsilon"),
        (("--model", "linear", "--features", 3, "--epsilon", 1), "records"),
        (("--model", "linear", "--records", 100, "--features", 0, "--epsilon", 1), "features"),
        (("--model", "linear", "--records", -1, "--features", 3, "--epsilon", 1), "records"),
        (("--model", "linear", "--records", 100, "--features", 3, "--epsilon", "nan"), "epsilon"),
        (("--model", "linear", "--records", 100, "--features", 3, "--epsilon", -1), "epsilon"),
        (
            ("--model", "linear", "--records", 100, "--features", 3, "--epsilon", 1, "--widening", 0.9),
            "widening",
        ),
        (("--model", "linear", "--records", 100, "--features", 3, "--epsilon", 1, "--levels", "9"), "levels"),
        (
            ("--model", "linear", "--records", 100, "--features", 3, "--epsilon", 1, "--levels", "a"),
            "--levels",
        ),
        (
            ("--model", "network", "--records", 100, "--features", 3, "--epsilon", 1, "--hidden", "x"),
            "--hidden",
        ),
        (("--model", "network", "--records", 100, "--features", 3, "--widening", 1.2), "cannot be forecast"),
        (("--model", "mixture", "--records", 100, "--features", 3, "--epsilon", 1), "components"),
        (
            ("--model", "network", "--records", 100, "--features", 3, "--epsilon", 1, "--plot", "p.png"),
            "draw",
        ),
    ],
    ids=lambda part: "" if isinstance(part, str) else " ".join(str(one) for one in part[1:]),
)
def test_a_wrong_call_is_one_line_that_names_what_is_wrong(
    options: Any, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(call("plan", *options), word)
    assert list(tmp_path.iterdir()) == []


def test_the_command_has_help_and_takes_no_table() -> None:
    assert call("plan", "--help").exit_code == 0
    assert call("plan", "table.csv").exit_code == 2
