"""What the tests of the ledger share."""

import subprocess
import sys
from typing import Any

from dpsep.privacy.ledger import Ledger, Receipt

EVENT = {"sampling": "poisson", "steps": 20, "sigma": 3.5, "records": 1000}


def charge(ledger: Ledger, epsilon: float = 1.0, delta: float = 0.0, run: str = "r", **more: Any) -> Receipt:
    """Charge a ledger with what a test does not care about filled in."""
    content: dict[str, Any] = {"relation": "zero-out", "event": EVENT} | more
    return ledger.charge(run, epsilon=epsilon, delta=delta, **content)


def run_script(script: str, *arguments: object) -> str:
    """Run Python code in a process of its own and return what it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout
