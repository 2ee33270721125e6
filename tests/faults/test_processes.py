"""A thousand charges by four processes at once: as many are taken as the budget holds, and none is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpsep.privacy.ledger import Ledger, Spent

from .lives import scratch

__all__ = ["scratch"]

PROCESSES, EACH, AFFORDABLE = 4, 250, 600
SCRIPT = """
import os, sys
from dpsep.privacy.ledger import Ledger, OverBudget
path, processes, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start, told = os.pipe(), os.pipe()
children = []
for process in range(processes):
    children.append(os.fork())
    if not children[-1]:
        os.close(start[1])
        os.read(start[0], 1)  # all begin at once
        ledger = Ledger(path)
        for number in range(each):
            run = f"{process}-{number}"
            try:
                receipt = ledger.charge(run, epsilon=0.1, delta=1e-6, relation="zero-out", event={})
            except OverBudget:
                continue
            os.write(told[1], f"{receipt.number} {run} {receipt.hash}\\n".encode())
        os._exit(0)
os.close(start[1])
os.close(told[1])
print(open(told[0]).read(), end="")
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_a_thousand_charges_by_four_processes_are_taken_up_to_the_budget_and_none_is_lost(
    scratch: Path,
) -> None:
    path = scratch / "ledger"
    ledger = Ledger.create(path, epsilon=AFFORDABLE / 10, delta=1e-2)
    command = [sys.executable, "-c", SCRIPT, str(path), str(PROCESSES), str(EACH)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = sorted(
        (int(number), run, digest) for number, run, digest in map(str.split, done.stdout.splitlines())
    )
    rows = ledger.rows()
    assert ledger.verify() == AFFORDABLE + 1
    assert told == [(row.number, row.run, row.hash) for row in rows[1:]], (
        "what was confirmed is what is there"
    )
    assert len({row.run for row in rows[1:]}) == AFFORDABLE, "no charge was taken twice"
    assert ledger.spent() == Spent(AFFORDABLE / 10, AFFORDABLE * 1e-6)
    assert {run.split("-")[0] for _, run, _ in told} == {str(process) for process in range(PROCESSES)}
    assert [name.name for name in scratch.iterdir()] == ["ledger"]
