"""How long a new process takes to import the package and to answer ``dpsep --help`` and ``--version``.

Every figure is the least of several fresh processes, in turn: what the start costs when nothing else is in
the way. Both the clock's seconds and the process's own seconds of work are told; on a machine that others use
too, the second is what the start costs on a quiet core. Compiled modules are kept between the processes, as
an installed package has them, whatever the environment says; the first processes make them and do not count.
Nothing is read but the package itself.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dpsep_lab.bench.table import Row, row

CASE = "speed/startup"


def commands() -> dict[str, list[str]]:
    """Return what is started, by name."""
    script = Path(sys.executable).with_name("dpsep")
    shell = [str(script)] if script.exists() else [sys.executable, "-m", "dpsep.cli"]
    return {
        "python alone": [sys.executable, "-c", "pass"],
        "import dpsep": [sys.executable, "-c", "import dpsep"],
        "dpsep --version": [*shell, "--version"],
        "dpsep --help": [*shell, "--help"],
        "from dpsep import LinearRegression": [sys.executable, "-c", "from dpsep import LinearRegression"],
        "from dpsep import NetworkRegressor": [sys.executable, "-c", "from dpsep import NetworkRegressor"],
    }


def measure(*, repeats: int) -> list[Row]:
    """Return the least seconds of each over so many processes."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands()}
    with tempfile.TemporaryDirectory() as folder:
        surroundings = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(repeats + 1):
            for name, command in commands().items():
                found[name].append(_process(command, surroundings))
    return [
        row(
            CASE,
            name,
            "seconds",
            min(wall for wall, _ in times[1:]),
            "s",
            cpu=min(cpu for _, cpu in times[1:]),
            n=repeats,
        )
        for name, times in found.items()
    ]


def _process(command: list[str], surroundings: dict[str, str]) -> tuple[float, float]:
    """Seconds of the clock and of work that a process takes from its start to its end."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, env=surroundings, stdout=subprocess.DEVNULL)
    after = os.times()
    work = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, work
