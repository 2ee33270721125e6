"""The house keeps its own rules: one driver charges, and rooms know each other by what is public."""

import ast
import re
from functools import cache
from pathlib import Path

from tools.docs import house

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dpsep"
CHARGING = {
    *("authorise", "authorise_again", "charged_run", "charge", "Permit"),
    *("Gate", "make_gate", "KeptGate", "KeptReleases", "ReleaseLog", "begin_release", "rehearse"),
}
"""What charges, opens a gate to records, keeps releases or goes on from kept ones."""

CONTAINERS = {"categories", "column_names", "columns", "jaxpr", "kind", "ndim", "shape"}
"""Asked of arrays, tables, dtypes and programs of other libraries; classes of ours have the same names."""
SCIKIT_LEARN = {"classes_", "feature_names_in_"}
"""That an estimator learned no labels or no names is said by their absence, by scikit-learn's contract."""
ASKED = {
    "audit/replay.py: privacy_": "of a user's estimator, whose fit may have failed",
    "audit/work.py: fit": "of what a user's function returned",
    "privacy/isolation.py: label": "models and privacy import nothing of each other; traced contributions",
    "privacy/isolation.py: program": "bring what describes them (dpsep.models.frozen), others have nothing",
    "privacy/reader.py: most_rows": "to say",
}
"""Attributes that are asked for across rooms, and why."""
PRIVATE = {
    "audit/canary.py: _noised": "an audit looks between sum and noise, on purpose",
    "audit/laws.py: _noised": "as above",
    "audit/taps.py: _noised": "as above",
    "estimators/pipeline_leaks.py: _getframe": "Python's, and the only way to see who calls",
    "federated/flower_link.py: _runtime_client": "Flower's, which has no other way",
    "federated/flower_site.py: _exit": "Python's public function",
    "privacy/grid.py: _cache_size": "JAX's, read by a test of how often a program is compiled",
}
"""Private names that are used on what another room or library made, and why."""
RECORDS = {"_replace", "_asdict", "_fields", "_make"}
"""Public methods of named tuples."""


@cache
def modules() -> list[tuple[str, list[ast.AST]]]:
    """Every file of the library by its path in the package, as the nodes of its tree."""
    return [
        (path.relative_to(PACKAGE).as_posix(), list(ast.walk(ast.parse(path.read_text("utf-8")))))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def is_itself(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_the_drawing_of_the_house_is_current() -> None:
    """All but numbers of files and lines; if not, `python -m tools.docs.house` and look at what it drew."""
    found = house.rooms()
    counts = re.compile(r"\| \d+ \| ([\d,]+|a page or two) \|")
    kept, now = (counts.sub("", text) for text in (house.PAGE.read_text("utf-8"), house.page(found)))
    assert kept == now
    assert house.DRAWING.read_text("utf-8") == house.drawing(found)


def test_a_new_arrow_is_seen() -> None:
    found = house.rooms()
    crooked = found | {"data": found["data"]._replace(imports=frozenset({"families"}))}
    assert house.page(crooked) != house.page(found)
    assert house.needed(found)["data"] == []
    assert house.needed(crooked)["data"] == ["families"]
    assert house.drawing(crooked) != house.drawing(found)


def test_nobody_but_the_driver_charges_opens_gates_or_keeps_releases() -> None:
    """Private metrics and drafts are recipes; the attacks of an audit are on runs of the driver."""
    found = {
        (path, name)
        for path, nodes in modules()
        for call in nodes
        if isinstance(call, ast.Call) and not path.startswith("privacy/")
        if (name := getattr(call.func, "id", getattr(call.func, "attr", ""))) in CHARGING
    }
    assert found == {
        ("fit.py", "charged_run"),
        # A site charges its own ledger for its answers, whatever the server does.
        ("federated/site.py", "charge"),
        ("federated/site_policy.py", "charge"),
    }


def room(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def named_in_rooms() -> dict[str, set[str]]:
    """Rooms by the names of what their functions, classes and modules define."""
    found: dict[str, set[str]] = {}
    for path, nodes in modules():
        for node in nodes:
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names = [node.id]
            if isinstance(node, ast.Attribute) and is_itself(node.value):
                names = [node.attr]
            for name in names:
                found.setdefault(name, set()).add(room(path))
    return found


def members_of_classes() -> dict[str, set[str]]:
    """Rooms by the names of what their classes have: methods, fields, and what they set on themselves."""
    found: dict[str, set[str]] = {}
    for path, nodes in modules():
        for kind in (node for node in nodes if isinstance(node, ast.ClassDef)):
            for node in ast.walk(kind):
                if isinstance(node, ast.FunctionDef):
                    names = [node.name]
                elif isinstance(node, ast.Attribute) and is_itself(node.value):
                    names = [node.attr]
                elif isinstance(node, ast.Assign | ast.AnnAssign) and node in kind.body:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names = [target.id for target in targets if isinstance(target, ast.Name)]
                else:
                    continue
                for name in names:
                    found.setdefault(name, set()).add(room(path))
    return found


def asked_across_rooms() -> set[str]:
    """Attributes of other rooms' classes that an object is asked for by `hasattr`, or `getattr` by name."""
    members, found = members_of_classes(), set()
    for path, nodes in modules():
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
                continue
            given, name = node.args[:2]
            if node.func.id not in ("hasattr", "getattr") or not isinstance(name, ast.Constant):
                continue
            where = members.get(str(name.value), set())
            if where and room(path) not in where and not is_itself(given):
                found.add(f"{path}: {name.value}")
    return found


def private_across_rooms() -> set[str]:
    """Private names that are used on an object or a module, and that nothing in the same room defines."""
    named, found = named_in_rooms(), set()
    for path, nodes in modules():
        used = [node.attr for node in nodes if isinstance(node, ast.Attribute) and not is_itself(node.value)]
        used += [one.name for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names]
        private = {name for name in used if name.startswith("_") and not name.startswith("__")} - RECORDS
        found |= {f"{path}: {name}" for name in private if room(path) not in named.get(name, set())}
    return found


def test_no_room_finds_another_by_asking_what_it_has() -> None:
    found = {one for one in asked_across_rooms() if one.split()[-1] not in CONTAINERS | SCIKIT_LEARN}
    assert found == set(ASKED)


def test_no_room_uses_what_is_private_to_another() -> None:
    assert private_across_rooms() == set(PRIVATE)
