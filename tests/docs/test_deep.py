"""What `make deep` showed last: the page says what is kept, and no promise rests on a test left to it."""

import argparse
import ast
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .test_claims import CLAIMS, PROOFS, ROOT, TEST

TOOL = ROOT / "tools" / "deep.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("deep", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEEP = _load()
KEPT: dict[str, dict[str, Any]] = DEEP.kept()
FIELDS = {"commit", "dirty", "date", "seconds", "machine", "passed", "figures"}


def entry_of(part: str) -> dict[str, Any]:
    if part not in KEPT:
        pytest.skip(f"{part} was not run yet: python tools/deep.py --part {part}")
    return KEPT[part]


def test_the_section_is_what_the_kept_results_say() -> None:
    text = CLAIMS.read_text(encoding="utf-8")
    assert text.count(DEEP.HEADING) == 1
    assert DEEP.page(text, KEPT) == text, "write it anew: python tools/deep.py --page"


def test_only_parts_of_the_tool_are_kept() -> None:
    assert set(KEPT) <= set(DEEP.PARTS)


@pytest.mark.parametrize("part", DEEP.PARTS)
def test_a_part_passed_when_it_was_last_run(part: str) -> None:
    entry = entry_of(part)
    assert set(entry) == FIELDS
    assert set(entry["machine"]) == {"cores", "system", "python", "jaxlib"}
    assert entry["passed"] is True
    assert DEEP.PARTS[part].holds(Counter(entry["figures"]))


@pytest.mark.parametrize("part", DEEP.PARTS)
def test_a_part_was_run_on_a_commit_of_this_history(part: str) -> None:
    commit = entry_of(part)["commit"]
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository").stdout != "false\n":
        pytest.skip("there is no whole git history here")
    assert git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0, f"{commit} is not before HEAD"


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", [CLAIMS, *PROOFS], ids=lambda page: page.name)
def test_every_test_that_is_named_is_run_by_make_test(page: Path) -> None:
    named = TEST.findall(page.read_text(encoding="utf-8"))
    assert [
        f"{path}::{name}" for path, name in named if name in left_out((ROOT / path).read_text("utf-8"))
    ] == []


@cache
def left_out(source: str) -> frozenset[str]:
    """Functions of a file that are marked `deep` as a whole; one that is so for some parameters is run."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    whole = any(
        isinstance(node, ast.Assign) and ast.unparse(node).startswith("pytestmark =") and _is_deep(node.value)
        for node in tree.body
    )
    return frozenset(node.name for node in functions if whole or any(map(_is_deep, node.decorator_list)))


def _is_deep(mark: ast.expr) -> bool:
    every = mark.elts if isinstance(mark, ast.List | ast.Tuple) else [mark]
    return any(ast.unparse(one) == "pytest.mark.deep" for one in every)


def test_a_test_is_left_out_by_its_own_mark_or_its_file_s_and_not_by_a_parameter_s() -> None:
    some = "pytest.param(2, marks=pytest.mark.deep)"
    source = "{}\n@pytest.mark.parametrize('n', [1, " + some + "])\ndef test_a(n): pass\n"
    marked = source + "@pytest.mark.deep\ndef test_b(): pass\n"
    assert left_out(marked.format("")) == {"test_b"}
    assert left_out(marked.format("pytestmark = pytest.mark.deep")) == {"test_a", "test_b"}
    assert left_out(source.format("pytestmark = [pytest.mark.deep]")) == {"test_a"}
    assert left_out((ROOT / "tests/audit/test_kill.py").read_text("utf-8"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two parts: one counts to three, and the other fails."""
    for name in ("KEPT", "PAGE"):
        monkeypatch.setattr(DEEP, name, tmp_path / getattr(DEEP, name).name)
    monkeypatch.setattr(DEEP, "WORK", tmp_path / "work")
    monkeypatch.setattr(DEEP, "state", lambda: ("0" * 40, False))
    (tmp_path / "count.py").write_text("import sys; open(sys.argv[1] + '/n', 'w').write(sys.argv[2])")
    (tmp_path / "claims.md").write_text("# Claims\n\n| claim |\n")
    part = DEEP.Part("It counts.", "", "", _number, lambda found: found["n"] == 3, "{n} and {none}")
    command = f"python {tmp_path}/count.py {{out}} "
    parts = {
        "broken": part._replace(command="python -c exit(1)"),
        "counts": part._replace(command=command + "3"),
    }
    monkeypatch.setattr(DEEP, "PARTS", parts)
    return tmp_path


def _number(out: Path) -> dict[str, int]:
    return {"n": int((out / "n").read_text())}


def test_a_part_that_fails_stops_no_other_and_is_told(bench: Path) -> None:
    asked = argparse.Namespace(small=False, inputs=1, matrix="pairs")
    assert DEEP.run_all(["broken", "counts"], asked) == 1
    kept = DEEP.kept()
    assert {name: (one["passed"], one["figures"]) for name, one in kept.items()} == {
        "broken": (False, {}),
        "counts": (True, {"n": 3}),
    }
    text = (bench / "claims.md").read_text()
    assert text == DEEP.page("# Claims\n\n| claim |\n", kept)
    assert "| `broken` | It counts. | **failed**: no figures | " in text
    assert "| `counts` | It counts. | 3 and 0 | " in text
    assert str(bench) not in json.dumps(kept)
    assert sorted(path.name for path in bench.iterdir()) == ["claims.md", "count.py", "deep.json", "work"]


def test_a_part_run_again_takes_the_place_of_its_last_entry_alone(bench: Path) -> None:
    asked = argparse.Namespace(small=False, inputs=1, matrix="pairs")
    DEEP.run_all(["broken", "counts"], asked)
    before = DEEP.kept()["broken"]
    DEEP.PARTS["counts"] = DEEP.PARTS["counts"]._replace(command=f"python {bench}/count.py {{out}} 4")
    assert DEEP.run_all(["counts"], asked) == 1
    assert DEEP.kept()["broken"] == before
    assert (DEEP.kept()["counts"]["passed"], DEEP.kept()["counts"]["figures"]) == (False, {"n": 4})


def test_a_small_run_keeps_nothing(bench: Path) -> None:
    DEEP.PARTS["counts"] = DEEP.PARTS["counts"]._replace(small=f"python {bench}/count.py {{out}} 1")
    assert DEEP.run_all(["broken", "counts"], argparse.Namespace(small=True, inputs=1, matrix="pairs")) == 0
    assert not (bench / "deep.json").exists()
    assert (bench / "claims.md").read_text() == "# Claims\n\n| claim |\n"


def test_a_part_that_was_not_run_is_said_to_be_so() -> None:
    section = DEEP.section({})
    assert section.count(f"| {DEEP.NOT_RUN} |") == len(DEEP.PARTS)


def _row(**more: Any) -> dict[str, Any]:
    return {"target": "linear: a=1", "lower_bound": None, "claimed": 4.0, "caught": False} | more


ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "audit": (
        "rows.json",
        json.dumps(
            [_row(lower_bound=3.0, trials=50), _row(), _row(claimed=None, caught=True, false_alarm=None)]
        ),
        {"attacks": 2, "caught": 0, "trials": 50, "strongest": 75, "controls": 1, "controls caught": 1}
        | {"alarms": 0},
    ),
    "matrix": (
        "rows.json",
        json.dumps([_row(outcome="kept"), _row(outcome="kept"), _row(target="own: b=2", outcome="refused")]),
        {"estimators": 2, "combinations": 3, "kept": 2, "refused": 1},
    ),
    "faults": (
        "junit.xml",
        '<testsuites><testsuite tests="3" failures="0" errors="0" skipped="1"><testcase><properties>'
        '<property name="power losses" value="7"/></properties></testcase><testcase><properties>'
        '<property name="power losses" value="4"/></properties></testcase></testsuite></testsuites>',
        {"tests": 3, "failures": 0, "errors": 0, "skipped": 1, "power losses": 11},
    ),
    "mutation": (
        "mutants.jsonl",
        '{"id": "1", "module": "gate", "status": "killed"}\n',
        {"modules": 1, "mutants": 1, "killed": 1, "listed": 0, "left": 0},
    ),
    "fuzz": (
        "summary.json",
        json.dumps([{"target": "csv", "inputs": 9, "read": 4, "refused": 5, "failures": 0}]),
        {"targets": 1, "inputs": 9, "read": 4, "refused": 5, "failures": 0},
    ),
    "paper": (
        "rows.json",
        json.dumps(
            [{"table": f"table{n}"} for n in range(1, 12)] + [{"figure": "figure1", "skipped": "why"}]
        ),
        {"tables": 12, "rows": 12, "skipped": 1},
    ),
}


@pytest.mark.parametrize("part", ROWS)
def test_figures_are_read_and_judged_and_told(tmp_path: Path, part: str) -> None:
    name, content, figures = ROWS[part]
    (tmp_path / name).write_text(content, encoding="utf-8")
    found = DEEP.PARTS[part].read(tmp_path)
    assert found == figures
    assert DEEP.PARTS[part].holds(Counter(found))
    assert not DEEP.PARTS[part].holds(Counter())
    assert str(max(value for value in found.values())) in DEEP.PARTS[part].told.format_map(Counter(found))


BAD = {
    "audit": [{"caught": 1}, {"alarms": 1}, {"controls caught": 0}],
    "matrix": [{"caught": 1}],
    "faults": [{"failures": 1}, {"errors": 1}, {"skipped": 3}],
    "mutation": [{"left": 1}],
    "fuzz": [{"failures": 1}],
    "paper": [{"tables": 11}],
}


@pytest.mark.parametrize(("part", "change"), [(part, change) for part in BAD for change in BAD[part]])
def test_one_bad_figure_fails_a_part(part: str, change: dict[str, int]) -> None:
    assert not DEEP.PARTS[part].holds(Counter(ROWS[part][2] | change))


def test_a_survivor_without_a_reason_is_left(tmp_path: Path) -> None:
    listed = DEEP.tomllib.loads((ROOT / "tools/mutation/survivors.toml").read_text("utf-8"))["survivor"][0][
        "id"
    ]
    rows = [{"id": name, "module": "gate", "status": "survived"} for name in (listed, "none")]
    (tmp_path / "mutants.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = DEEP.read_mutants(tmp_path)
    assert (found["killed"], found["listed"], found["left"]) == (0, 1, 1)


def test_every_program_of_a_part_is_there() -> None:
    for part in DEEP.PARTS.values():
        program, *rest = DEEP.as_command(part.command)
        assert Path(program).exists()
        if program == sys.executable:
            assert (ROOT / rest[0]).exists()
