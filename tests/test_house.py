"""The house keeps its own rules: one driver charges, and rooms know each other by what is public."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.docs import house

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dpsep"
CHARGING = {
    *("authorise", "authorise_again", "charged_run", "charge", "Permit"),
    *("Gate", "make_gate", "KeptGate", "KeptReleases", "ReleaseLog", "begin_release", "rehearse"),
}
"""What charges, opens a gate to records, keeps releases or goes on from kept ones."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every file of the library by its path in the package, parsed."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


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
        for path, tree in modules()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and not path.startswith("privacy/")
        if (name := getattr(call.func, "id", getattr(call.func, "attr", ""))) in CHARGING
    }
    assert found == {
        ("fit.py", "charged_run"),
        # A site charges its own ledger for its answers, whatever the server does.
        ("federated/site.py", "charge"),
        ("federated/site_policy.py", "charge"),
    }
