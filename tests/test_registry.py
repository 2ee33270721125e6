"""The one table of estimators: rows say what classes are, and load nothing; nobody keeps a second table."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import clone

import dpsep
from dpsep import registry
from dpsep.estimators.base import LinearWeights
from dpsep.registry import ENTRIES, Entry, find, named, names, regressions

ROOT = Path(dpsep.__file__).parent


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_row_is_held_by_its_class(entry: Entry) -> None:
    kind = entry.load()
    assert registry.register(entry.name)(kind) is kind
    assert kind.words.report
    assert issubclass(kind, LinearWeights) == entry.is_regression
    assert not entry.is_regression or kind.target.name == entry.target
    assert find(entry.kind) is entry is named(entry.name)
    assert getattr(dpsep, entry.kind) is kind
    if entry.mixed:
        assert entry.name in getattr(dpsep, entry.mixed)._families


def test_likelihoods_travel_by_numbers_of_their_own() -> None:
    from dpsep.federated.codec import classes, name_of

    kinds = [entry.load() for entry in regressions()]
    assert len({kind.wire for kind in kinds}) == len(kinds)
    assert all(classes()[kind.wire] == name_of(kind.likelihood) for kind in kinds)
    assert len(set(classes().values())) == len(classes())
    # What sites of the first release know by these numbers.
    assert {kind.wire: kind.__name__ for kind in kinds}.items() >= {
        36: "LogisticRegression",
        37: "ProbitRegression",
        38: "PoissonRegression",
        39: "LinearRegression",
    }.items()


def test_type_checkers_see_every_name() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    seen = {part.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for part in node.names}
    assert set(dpsep.__all__) <= seen


def test_nobody_else_keeps_a_table_of_names() -> None:
    words = {entry.kind for entry in regressions()} | {"poisson", "probit"}
    for path in ROOT.rglob("*.py"):
        if path == ROOT / "registry.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Set):
                parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
                texts = {part.value for part in parts if isinstance(part, ast.Constant)}
                assert len(texts & words) < 2, f"{path}:{node.lineno}"


def test_names_cost_no_import() -> None:
    code = "import sys, dpsep.cli.options; print({'jax', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no estimator is named 'cox'; there are linear, .*own\."):
        named("cox")
    assert find("Cox") is None
    assert names("none") == ("mixture",)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_no_estimator_prints_the_password_of_its_ledger(entry: Entry) -> None:
    model = entry.load()(ledger="postgresql://me:secret@host/ledger")
    assert "***" in repr(model)
    assert "secret" not in f"{model!r} {clone(model)!r} {model.get_params()}"
