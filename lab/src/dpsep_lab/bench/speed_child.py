"""One stage of the speed benchmark in a process of its own, on so many cores.

    python -m dpsep_lab.bench.speed_child STAGE CORES ARGUMENTS

The cores are chosen before anything that starts threads is imported; `environment` gives the variables that
hold libraries to as many. The stage's answer is one line of JSON, the last that it prints.
"""

import json
import os
import subprocess
import sys
from typing import Any

STAGES = {
    "rates": ("dpsep_lab.bench.speed_rates", "measure"),
    "shares": ("dpsep_lab.bench.speed_shares", "measure"),
    "fits": ("dpsep_lab.bench.speed_fits", "measure"),
    "reached": ("dpsep_lab.bench.speed_fits", "reached"),
    "growth": ("dpsep_lab.bench.speed_growth", "measure"),
}
"""Module and function of each stage; a function takes the number of cores first."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def environment(cores: int) -> dict[str, str]:
    """Return this process's environment with libraries held to so many threads.

    Examples
    --------
    >>> environment(1)["OMP_NUM_THREADS"]
    '1'
    """
    flags = [os.environ.get("XLA_FLAGS", "")]
    if cores == 1:
        flags += ["--xla_cpu_multi_thread_eigen=false", "intra_op_parallelism_threads=1"]
    own = {name: str(cores) for name in THREADS} | {"XLA_FLAGS": " ".join(flags).strip()}
    return {**os.environ, **own}


def pin(cores: int) -> None:
    """Keep this process on so many cores, where the system can: the last ones, which others use least."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def ask(stage: str, cores: int, **arguments: Any) -> Any:
    """Run a stage in a new process and return its answer."""
    command = [sys.executable, "-W", "ignore", "-m", "dpsep_lab.bench.speed_child", stage, str(cores)]
    done = subprocess.run(
        [*command, json.dumps(arguments)],
        env=environment(cores),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise RuntimeError(
            f"the stage {stage!r} on {cores} cores failed: {lines[-1] if lines else 'no message'}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def main(stage: str, cores: str, arguments: str) -> None:
    """Be the new process."""
    from importlib import import_module

    pin(int(cores))
    module, function = STAGES[stage]
    print(json.dumps(getattr(import_module(module), function)(int(cores), **json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
