"""Many processes charge one ledger on a server while it is restarted: what was lost, doubled, overspent?

Every process notes each charge that was confirmed to it, by row number and hash, and then the notes are
compared with the rows. All charges of a process have the same content: only the ledger tells them apart.
"""

import json
import subprocess
import sys
import time
from typing import Any, NamedTuple

from dpsep.privacy.ledger import Ledger

from .server import PrivateServer

WORKER = """
import json, sys
from dpsep.privacy.ledger import Ledger, LedgerError, OverBudget
place, charges, timeout, name = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
ledger = Ledger(place, timeout=timeout)
print("ready", flush=True)
sys.stdin.readline()
for number in range(charges):
    try:
        receipt = ledger.charge(name, epsilon=0.1, delta=1e-9, relation="zero-out", event={"steps": 1})
        said = {"number": receipt.number, "hash": receipt.hash}
    except OverBudget:
        said = {"refused": True}
    except LedgerError as error:
        said = {"failed": str(error)}
    print(json.dumps(said), flush=True)
"""


class Storm(NamedTuple):
    """What came of it; `failed`, `lost` and `doubled` should be 0."""

    asked: int
    granted: int
    refused: int
    failed: int
    rows: int
    lost: int
    doubled: int
    spent: float
    budget: float
    restarts: int
    seconds: float
    charges_per_second: float
    errors: tuple[str, ...]


def storm(
    server: PrivateServer,
    processes: int,
    charges: int,
    affordable: int,
    modes: list[str],
    timeout: float = 60.0,
) -> Storm:
    """Let processes charge a new ledger that can afford so many, and restart the server in between.

    Parameters
    ----------
    server
        Where the ledger is made.
    processes, charges
        How many processes, and how many charges they ask for in all.
    affordable
        How many charges the budget holds.
    modes
        One restart for each, `"fast"` or `"immediate"`, at even distances in the number of rows.
    timeout
        The ledgers' patience.
    """
    url = server.url()
    ledger = Ledger.create(url, epsilon=affordable / 10, delta=1e-3, timeout=timeout)
    shares = [charges // processes + (number < charges % processes) for number in range(processes)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(share), str(timeout), f"process-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, share in enumerate(shares)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        began = time.monotonic()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for number, mode in enumerate(modes, start=1):
            while ledger.verify() - 1 < min(charges, affordable) * number // (len(modes) + 1):
                time.sleep(0.05)
            server.restart(mode)
        outputs = [worker.communicate(timeout=1200)[0] for worker in workers]
        seconds = time.monotonic() - began
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.communicate()
    said = [json.loads(line) for output in outputs for line in output.splitlines()]
    return _compare(ledger, charges, said, len(modes), seconds)


def _compare(ledger: Ledger, asked: int, said: list[dict[str, Any]], restarts: int, seconds: float) -> Storm:
    confirmed = [(one["number"], one["hash"]) for one in said if "number" in one]
    refused = sum("refused" in one for one in said)
    rows = {(row.number, row.hash) for row in ledger.rows()[1:]}
    return Storm(
        asked=asked,
        granted=len(confirmed),
        refused=refused,
        failed=asked - len(confirmed) - refused,
        rows=len(rows),
        lost=len(confirmed) - len(set(confirmed) & rows),  # confirmed and not there, or two that share a row
        doubled=len(rows - set(confirmed)),  # there and confirmed to nobody
        spent=ledger.spent().epsilon,
        budget=ledger.epsilon,
        restarts=restarts,
        seconds=round(seconds, 1),
        charges_per_second=round(len(confirmed) / seconds, 1),
        errors=tuple(sorted({one["failed"] for one in said if "failed" in one})),
    )
