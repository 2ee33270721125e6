"""What the tests of the ledger share."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from dpsep.privacy.ledger import Ledger, Receipt
from dpsep.privacy.ledger_connection import read_url
from dpsep.privacy.ledger_server import ServerStore

Place = str | Path
"""Where a ledger is: a URL, or a file's path."""
EVENT = {"sampling": "poisson", "steps": 20, "sigma": 3.5, "records": 1000}


def charge(ledger: Ledger, epsilon: float = 1.0, delta: float = 0.0, run: str = "r", **more: Any) -> Receipt:
    """Charge a ledger with what a test does not care about filled in."""
    content: dict[str, Any] = {"relation": "zero-out", "event": EVENT} | more
    return ledger.charge(run, epsilon=epsilon, delta=delta, **content)


def contents(place: Place) -> object:
    """Return all that a file or a server holds of a ledger, to see whether it changes."""
    return place.read_bytes() if isinstance(place, Path) else Ledger(place).rows()


def is_there(place: Place) -> bool:
    """Say whether anything was made at a place, or beside it in its folder."""
    if isinstance(place, Path):
        return any(place.parent.iterdir())
    return ServerStore(*read_url(place)).exists(30.0)


def run_script(script: str, *arguments: object) -> str:
    """Run Python code in a process of its own and return what it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout
