"""A mixture by the command line: fit, resume and predict."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from scipy import stats

from dpsep.data import Schema
from dpsep.estimators.store import load
from dpsep.inference import mixture_update
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.rehearsal import RehearsalGate

from .help import assert_refused, call, some, write_csv

MEANS = np.array([[-2.0, 1.0], [2.0, -1.0]])
SPREAD = 0.5
SHARES = np.array([0.3, 0.7])
BOUNDS = ("--bounds", "-5:5")


def clusters(rows: int = 600) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    labels = (rng.uniform(size=rows) < SHARES[1]).astype(int)
    x = (MEANS[labels] + SPREAD * rng.standard_normal((rows, 2))).round(4)
    return {"tall": x[:, 0], "wide": x[:, 1]}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", clusters())


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run without privacy, so that its values are known well, and what was printed."""
    run = tmp_path_factory.mktemp("runs") / "run"
    done = call("fit", table, "--model", "mixture", "--components", 2, "--no-private", "--out", run)
    assert done.exit_code == 0, done.output
    return run, done


def fit(table: Path, out: Path, *more: Any, components: int = 2) -> Result:
    start = ("fit", table, "--model", "mixture", "--components", components, "--epsilon", 1)
    return call(*start, "--out", out, *more)


def declare(path: Path, target: str | None = None, *extra: str) -> Path:
    lines = [] if target is None else [f'target = "{target}"']
    for name in clusters(2):
        lines += ["[[columns]]", f'name = "{name}"', 'kind = "number"', "bounds = [-5, 5]"]
    path.write_text("\n".join([*lines, *extra]) + "\n")
    return path


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def true_joint(x: np.ndarray) -> np.ndarray:
    """Weight times density of each of the true components, (rows, 2)."""
    return SHARES * np.stack([stats.norm.pdf(x, mean, SPREAD).prod(axis=1) for mean in MEANS], axis=1)


def test_a_mixture_is_charged_and_leaves_a_whole_folder(tmp_path: Path, table: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-4)
    done = fit(table, tmp_path / "run", "--ledger", ledger.path, "--json", *BOUNDS)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["model"] == "mixture"
    assert document["privacy"]["epsilon"] <= 1.0
    assert [(row["component"], row["column"]) for row in document["summary"]] == [
        *((0, "tall"), (0, "wide")),
        *((1, "tall"), (1, "wide")),
    ]
    assert all(0 < row["noise_share"] < 1 for row in document["summary"])
    assert any("types" in warning for warning in document["warnings"])
    assert 0.9 < ledger.spent().epsilon <= 1.0
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
    assert len(read((tmp_path / "run" / "summary.csv").read_text())) == 4
    found = np.array([row["mean"] for row in document["summary"]]).reshape(2, 2)
    order = np.argsort(found[:, 0])
    # 600 records at epsilon 1: means are known to about 0.05, weights to about 0.03.
    np.testing.assert_allclose(found[order], MEANS, atol=0.5)
    np.testing.assert_allclose(np.array(document["weights"])[order], SHARES, atol=0.2)


def test_the_report_has_a_line_for_each_mean_and_each_weight(finished: tuple[Path, Result]) -> None:
    run, done = finished
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["component", "column", "mean", "sd", "90%", "interval", "DP", "noise"] in lines
    for row in read((run / "summary.csv").read_text()):
        (line,) = [line for line in lines if line[:2] == [row["component"], row["column"]]]
        assert line[2] == f"{float(row['mean']):.4g}"
        assert line[-1] == "-"
    assert ["component", "weight"] in lines
    for place, weight in enumerate(load(run).weights_):  # pyright: ignore[reportAttributeAccessIssue]
        assert [str(place), f"{weight:.4g}"] in lines
    assert "NOT PRIVATE" in done.stdout


def test_rows_get_their_component_its_probability_and_their_density(
    table: Path, finished: tuple[Path, Result]
) -> None:
    done = call("predict", finished[0], table)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "row,component,probability,log_density"
    rows = read(done.stdout)
    assert [row["row"] for row in rows] == [str(place) for place in range(1, 601)]
    component, chance, density = (
        np.array([float(row[name]) for row in rows]) for name in ("component", "probability", "log_density")
    )
    joint = true_joint(np.stack(list(clusters().values()), axis=1))
    own = joint.argmax(axis=1)
    assert set(zip(component, own, strict=True)) in ({(0, 0), (1, 1)}, {(0, 1), (1, 0)})
    np.testing.assert_allclose(chance, joint.max(axis=1) / joint.sum(axis=1), atol=0.02)
    # Means and variances of 180 and 420 records: typical rows are within a few hundredths.
    assert np.median(np.abs(density - np.log(joint.sum(axis=1)))) < 0.1


def test_a_row_between_two_clusters_gets_the_probability_of_bayes_rule(
    tmp_path: Path, finished: tuple[Path, Result]
) -> None:
    x = np.array([[0.0, 0.0], [-0.1, 0.1]])
    between = write_csv(tmp_path / "t.csv", {"wide": x[:, 1], "tall": x[:, 0]})  # in another order
    rows = json.loads(call("predict", finished[0], between, "--json").stdout)
    joint = true_joint(x)
    expected = joint.max(axis=1) / joint.sum(axis=1)
    np.testing.assert_allclose(expected, [0.7, 1 / (1 + np.exp(-2.4) * 7 / 3)])
    assert rows[0]["component"] != rows[1]["component"]
    np.testing.assert_allclose([row["probability"] for row in rows], expected, atol=0.15)


def test_rows_with_missing_cells_get_no_component(tmp_path: Path, finished: tuple[Path, Result]) -> None:
    (tmp_path / "t.csv").write_text("tall,wide\n2,-1\n?,1\n2,-1\n")
    done = call("predict", finished[0], tmp_path / "t.csv", "--json")
    rows = json.loads(done.stdout)
    assert rows[1] == {"row": 2, "component": None, "probability": None, "log_density": None}
    assert rows[0] | {"row": 3} == rows[2]
    assert isinstance(rows[0]["component"], int)
    assert "1 of 3 rows" in done.stderr
    (tmp_path / "t.csv").write_text("tall,wide\n?,1\n")
    assert call("predict", finished[0], tmp_path / "t.csv").stdout == (
        "row,component,probability,log_density\n1,,,\n"
    )


def test_a_schemas_target_is_left_out_with_a_remark_and_nothing_leaks(tmp_path: Path) -> None:
    cells = clusters() | some("sex ill", 600)
    table = write_csv(tmp_path / "t.csv", cells)
    extra = ("[[columns]]", 'name = "ill"', 'kind = "category"', 'categories = ["no", "yes"]')
    schema = declare(tmp_path / "s.toml", "ill", *extra)
    done = fit(table, tmp_path / "run", "--schema", schema, "--strict", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["warnings"] == []
    assert "target 'ill' is left out" in done.stderr
    stored = Schema.read(tmp_path / "run" / "schema.toml")
    assert stored.target is None
    assert [(column.name, column.bounds) for column in stored.columns] == [
        ("tall", (-5.0, 5.0)),
        ("wide", (-5.0, 5.0)),
    ]
    assert call("predict", tmp_path / "run", table).exit_code == 0


def test_a_declared_category_is_refused_by_name_and_may_be_dropped(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", clusters() | some("sex", 600))
    extra = ("[[columns]]", 'name = "sex"', 'kind = "category"', 'categories = ["F", "M"]')
    schema = declare(tmp_path / "s.toml", None, *extra)
    done = fit(table, tmp_path / "run", "--schema", schema)
    assert_refused(done, "column 'sex' is not", "--drop sex")
    assert not (tmp_path / "run.partial").exists()
    done = fit(table, tmp_path / "run", "--schema", schema, "--drop", "sex", "--quiet")
    assert done.exit_code == 0, done.output
    assert done.output == ""


def test_undeclared_text_is_refused_by_name_and_without_its_values(tmp_path: Path) -> None:
    ward = np.where(clusters()["tall"] > 0, "Secretville", "Elsewhere")
    table = write_csv(tmp_path / "t.csv", clusters() | {"ward": ward})
    done = fit(table, tmp_path / "run")
    assert_refused(done, "a mixture is of numbers, and column 'ward' is not", "--drop ward")
    assert "Secretville" not in done.output


def test_a_missing_cell_is_an_error_without_privacy_only(tmp_path: Path) -> None:
    cells = clusters()
    table = write_csv(tmp_path / "t.csv", cells | {"tall": ["?", *cells["tall"][1:]]})
    done = fit(table, tmp_path / "run", "--quiet", *BOUNDS)
    assert done.exit_code == 0, done.output
    (warning,) = done.stderr.splitlines()
    assert "column types" in warning  # and nothing of the cell
    assert_refused(fit(table, tmp_path / "open", "--no-private"), "needs finite cells")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "tall"], ["a mixture predicts nothing", "--target"]),
        (["--classes", "no,yes"], ["a mixture predicts nothing", "--classes"]),
        (["--drop", "c"], ["no column 'c'"]),
        (["--drop", "tall", "--drop", "wide"], ["no column is left"]),
        (["--bounds", "c=0:1"], ["no column 'c'"]),
        (["--components", "0"], ["n_components must be a whole number of at least 1"]),
        (["--components", "601"], ["more than the table's 600 rows"]),
        (["--epsilon", "0"], ["epsilon must be a positive number"]),
        (["--model", "linear", "--target", "wide"], ["--components is for --model mixture"]),
        (["--strict"], ["types", "--schema"]),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, table: Path, arguments: list[str], words: list[str]
) -> None:
    assert_refused(fit(table, tmp_path / "run", *arguments), *words)
    assert list(tmp_path.iterdir()) == []


def test_components_are_asked_for_and_the_covariance_belongs_to_a_mixture(
    tmp_path: Path, table: Path
) -> None:
    start = ("fit", table, "--epsilon", 1, "--out", tmp_path / "run")
    assert_refused(call(*start, "--model", "mixture"), "--components")
    assert_refused(call(*start, "--target", "wide", "--covariance", "diag"), "--covariance is for --model")
    assert call(*start, "--model", "mixture", "--components", 2, "--covariance", "full").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_schema_of_a_target_alone_leaves_nothing_to_cluster(tmp_path: Path, table: Path) -> None:
    schema = declare(tmp_path / "s.toml", "wide")
    assert_refused(
        fit(table, tmp_path / "run", "--schema", schema, "--drop", "tall"), "no column besides its target"
    )


def test_over_budget_is_a_wrong_call_that_leaves_nothing_behind(tmp_path: Path, table: Path) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=0.5, delta=1e-5)
    done = fit(table, tmp_path / "run", "--ledger", ledger.path, *BOUNDS)
    assert_refused(done, "does not fit", "No record was read")
    assert ledger.spent().epsilon == 0.0
    assert sorted(item.name for item in tmp_path.iterdir()) == ["study.db"]


def test_an_interrupted_mixture_goes_on_with_the_same_settings_only(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = mixture_update.run

    def stop(gate: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(gate, RehearsalGate):
            return go_on(gate, *rest, **more)
        raise KeyboardInterrupt

    ledger = Ledger.create(tmp_path / "study.db", epsilon=2.0, delta=1e-4)
    call_again = ("--ledger", ledger.path, "--quiet", "--covariance", "spherical", *BOUNDS)
    with monkeypatch.context() as patch:
        patch.setattr("dpsep.inference.mixture_update.run", stop)
        done = fit(table, tmp_path / "run", *call_again)
    assert done.exit_code == 1
    assert "--resume goes on from there" in done.stderr
    assert not (tmp_path / "run").exists()
    first = ledger.spent().epsilon
    assert_refused(fit(table, tmp_path / "run", *call_again, "--resume", components=3), "other settings")
    assert_refused(
        fit(table, tmp_path / "run", *call_again, "--resume", "--covariance", "diag"), "other settings"
    )
    done = fit(table, tmp_path / "run", *call_again, "--resume")
    assert done.exit_code == 0, done.output
    kinds = [row.kind for row in ledger.rows()]
    assert [kinds.count(kind) for kind in ("charge", "extra-step", "finished")] == [1, 1, 1]
    # One release more than the 8 that share three quarters of the budget: by about sqrt(1 + 0.75 / 8).
    assert first * 1.03 < ledger.spent().epsilon < first * 1.07
    estimator: Any = load(tmp_path / "run")
    assert estimator.covariance_type == "spherical"
    assert estimator.covariances_.shape == (2,)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["run", "study.db"]
