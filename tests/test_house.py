"""The house keeps its own rules: one driver charges, and rooms know each other by what is public."""

import ast
from collections.abc import Iterator
from pathlib import Path

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
