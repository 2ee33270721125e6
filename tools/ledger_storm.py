"""Let many processes charge one ledger on PostgreSQL while the server is restarted; print what came of it.

A private server is started in a temporary folder (PostgreSQL's programs must be installed), restarted in turn
`fast` and `immediate`, which is a crash, and taken away at the end. The output is one JSON document; the exit
code is 1 if a charge was lost, doubled or failed, or the budget was passed.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from privacy.server import private_server
from privacy.storm import storm

MODES = ("fast", "immediate")


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=16, help="processes that charge")
    parser.add_argument("--charges", type=int, default=2000, help="charges that they ask for in all")
    parser.add_argument("--afford", type=int, help="charges that the budget holds; all by default")
    parser.add_argument("--restarts", type=int, default=2, help="restarts of the server, fast and immediate")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that a charge waits")
    given = parser.parse_args()
    afford = given.charges if given.afford is None else given.afford
    modes = [MODES[number % 2] for number in range(given.restarts)]
    with private_server() as server:
        result = storm(server, given.processes, given.charges, afford, modes, given.timeout)
    print(json.dumps(result._asdict(), indent=2))
    right = min(given.charges, afford)
    if result.lost or result.doubled or result.failed or (result.granted, result.rows) != (right, right):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
