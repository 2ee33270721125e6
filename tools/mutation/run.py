"""Mutation testing of `dpsep.privacy`: put one fault at a time into a module and see whether a test notices.

Starting Python and JAX costs more than most tests, so one parent imports the third-party libraries once and
forks a child for each mutant, before anything was computed and before any module of ours was imported. The
child works in a copy of the repository with the mutated file in place (processes that tests start see it
too), and runs the tests mapped to the module, fast ones first, until one fails.

A mutant is *killed* when a test fails, does not end in time, or the module cannot be imported. See README.md.
"""

import argparse
import ast
import contextlib
import faulthandler
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGE = Path("src/dpsep/privacy")
COPIED = ("src", "tests", "conftest.py", "pyproject.toml")
HEAVY = ("numpy", "scipy.stats", "scipy.optimize", "jax.numpy", "dp_accounting.pld", "dp_accounting.rdp")
HEAVY += ("mpmath", "randomgen", "hypothesis", "pytest", "sqlite3", "sklearn.base", "autodp.rdp_acct")
SLOW = 1.5
"""Tests that take more seconds of processor time than this are not run on mutants."""
MEMORY, FILE = 6 << 30, 1 << 28
"""Most bytes of memory and of a file: a mutant may write without end."""

LIBRARY = "audit/test_mutations.py::test_the_library_passes"
LEDGER = ("privacy/test_ledger.py", "privacy/test_ledger_[fnr]*.py")
SERVER = ("privacy/test_ledger.py", "privacy/test_ledger_server.py", "privacy/test_ledger_access.py")
TESTS: dict[str, tuple[str, ...]] = {
    "gate": ("privacy/test_gate*.py", "privacy/test_open_gate.py", "faults/test_device.py", LIBRARY),
    "grid": ("privacy/test_grid.py", "privacy/test_gate*.py", "privacy/test_open_gate.py", LIBRARY),
    "noise": ("privacy/test_noise*.py", "privacy/test_sampling.py", "privacy/test_gate*.py"),
    "sampling": ("privacy/test_sampling.py", "privacy/test_gate.py"),
    "gaps": ("privacy/test_sampling.py",),
    "permit": ("privacy/test_permit.py", "privacy/test_gate.py"),
    "mechanism": ("privacy/test_mechanism.py", "privacy/test_permit.py"),
    "accounting": ("privacy/test_accounting.py",),
    "pld": ("privacy/test_pld*.py", "privacy/test_mechanism.py"),
    "rdp": ("privacy/test_rdp.py", "privacy/test_mechanism.py", "privacy/test_ledger_rules.py"),
    "gaussian": ("privacy/test_gaussian.py", "privacy/test_mechanism.py"),
    "ledger": (*LEDGER, "privacy/test_permit.py"),
    "ledger_file": (*LEDGER, "faults/test_power_loss.py", "faults/test_room.py"),
    "ledger_rules": LEDGER,
    "ledger_rows": LEDGER,
    "ledger_server": SERVER,
    "ledger_tables": SERVER,
    "ledger_connection": SERVER,
    "checkpoint": ("privacy/test_checkpoint.py", "faults/test_power_loss.py", "faults/test_room.py"),
    "scaling": ("privacy/test_scaling.py",),
    "reader": ("privacy/test_gate*.py", "privacy/test_rows.py", LIBRARY),
    "isolation": ("privacy/test_isolation.py",),
    "rehearsal": (
        "privacy/test_isolation.py",
        "estimators/test_own_isolation.py",
        "estimators/test_private.py",
    ),
    "charged_run": ("privacy/test_permit.py", "estimators/test_private.py", "estimators/test_resume.py"),
    "release_log": ("estimators/test_private.py", "estimators/test_resume.py", "estimators/test_stages.py"),
    "shown": ("privacy/test_shown.py",),
}


class Recorder:
    """A pytest plugin: order, time limits, and which test failed."""

    def __init__(self, baseline: dict[str, float] | None) -> None:
        self.baseline = baseline
        self.seconds: dict[str, float] = {}
        self.failed = ""
        self._began = 0.0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Fast tests first, slow ones not at all."""
        if self.baseline is not None:
            known = self.baseline
            items[:] = [item for item in items if known.get(item.nodeid, 0.0) <= SLOW]
            items.sort(key=lambda item: known.get(item.nodeid, 0.0))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Give up, as killed, a test that takes much longer than it should."""
        usual = (self.baseline or {}).get(nodeid, 30.0)
        faulthandler.dump_traceback_later(10.0 + 8.0 * usual, exit=True)
        self._began = sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note the processor time, which does not depend on what else the machine does."""
        self.seconds[nodeid] = sum(os.times()[:4]) - self._began


def tests_of(module: str, workspace: Path) -> list[str]:
    """Return the tests mapped to a module, and its own examples."""
    found = [str(PACKAGE / f"{module}.py")]
    for pattern in TESTS[module]:
        name, _, function = pattern.partition("::")
        for path in sorted((workspace / "tests").glob(name)):
            found.append(str(path.relative_to(workspace)) + (f"::{function}" if function else ""))
    return found


def make_workspace(parent: Path, number: int) -> Path:
    """Copy what the tests need: nobody's edits then disturb a run, nor a mutant anybody."""
    workspace = parent / f"copy{number}"
    workspace.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, workspace / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, workspace / name)
    return workspace


def place(workspace: Path, module: str, source: str) -> None:
    """Write a module's source, and drop what was compiled from the one before."""
    (workspace / PACKAGE / f"{module}.py").write_text(source)
    for compiled in (workspace / PACKAGE / "__pycache__").glob(f"{module}.*.pyc"):
        compiled.unlink()


def start(workspace: Path, module: str, baseline: dict[str, float] | None) -> int:
    """Fork a child that runs the tests of a module and writes what happened to `result.json`."""
    (workspace / "result.json").unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        return child
    try:
        os.setpgid(0, 0)
        _run_tests(workspace, module, baseline)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def _run_tests(workspace: Path, module: str, baseline: dict[str, float] | None) -> None:
    import hypothesis
    import pytest

    output = os.open(workspace / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    os.chdir(workspace)
    sys.dont_write_bytecode = baseline is not None
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTHONPATH"] = str(workspace / "src")
    sys.path.insert(0, str(workspace / "src"))
    hypothesis.settings.register_profile("mutation", database=None, derandomize=True)
    hypothesis.settings.load_profile("mutation")
    faulthandler.dump_traceback_later(60.0, exit=True)
    recorder = Recorder(baseline)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # its plugins were imported before it
    options += ["-x", "--tb=line"] if baseline is not None else []
    code = int(pytest.main([*options, *tests_of(module, workspace)], plugins=[recorder]))
    faulthandler.cancel_dump_traceback_later()
    imported = str(sys.modules["dpsep"].__file__) if "dpsep" in sys.modules else ""
    if imported and not imported.startswith(str(workspace)):
        raise RuntimeError(f"tests ran on {imported}, not on the copy")
    content = {"code": code, "failed": recorder.failed, "seconds": recorder.seconds}
    (workspace / "result.json").write_text(json.dumps(content))


def finish(child: int, workspace: Path, deadline: float) -> dict[str, Any] | None:
    """Return what a child wrote, {} if it died or ran out of time, None while it runs."""
    done, _ = os.waitpid(child, os.WNOHANG)
    if not done and time.monotonic() < deadline:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.waitpid(child, 0)
    result = workspace / "result.json"
    return json.loads(result.read_text()) if result.exists() else {}


def unharmed(workspace: Path, module: str, baseline: dict[str, float] | None) -> dict[str, float]:
    """Run the tests of a module without a fault: all must pass; return their seconds."""
    child = start(workspace, module, baseline)
    deadline = time.monotonic() + 600
    while (result := finish(child, workspace, deadline)) is None:
        time.sleep(0.05)
    if result.get("code") != 0:
        print((workspace / "output.txt").read_text(), file=sys.stderr)
        raise SystemExit(f"the tests of {module} do not pass on the code as it is; see above.")
    return result["seconds"]


def run_module(module: str, chosen: list[Mutant], workspaces: list[Path], out: Path) -> None:
    """Run the chosen mutants of one module, as many at a time as there are workspaces."""
    original = (workspaces[0] / PACKAGE / f"{module}.py").read_text()
    times = out.parent / "mutation-times.json"
    known = json.loads(times.read_text()) if times.exists() else {}
    if module not in known:
        known[module] = unharmed(workspaces[0], module, None)
        times.write_text(json.dumps(known))
    baseline = known[module]
    place(workspaces[0], module, ast.unparse(ast.parse(original)))
    unharmed(workspaces[0], module, baseline)  # a control: made and run as a mutant is, it must survive
    usual = sum(seconds for seconds in baseline.values() if seconds <= SLOW)
    print(f"{module}: {len(chosen)} mutants, {len(baseline)} tests, {usual:.1f} s", flush=True)
    waiting, idle = list(reversed(chosen)), list(workspaces)
    running: list[tuple[int, Path, Mutant, float]] = []
    while waiting or running:
        while waiting and idle:
            mutant, workspace = waiting.pop(), idle.pop()
            place(workspace, module, mutant.source)
            running.append((start(workspace, module, baseline), workspace, mutant, time.monotonic()))
        for entry in list(running):
            child, workspace, mutant, began = entry
            result = finish(child, workspace, began + 60 + 8 * usual)
            if result is None:
                continue
            running.remove(entry)
            idle.append(workspace)
            status = "survived" if result.get("code") == 0 else "killed"
            row = mutant._asdict()
            del row["source"]
            by = result.get("failed") or ("the import" if result else "a crash or the time limit")
            row |= {"status": status, "by": by if status == "killed" else ""}
            with out.open("a") as file:
                file.write(json.dumps(row | {"seconds": round(time.monotonic() - began, 2)}) + "\n")
        time.sleep(0.01)
    for workspace in workspaces:
        place(workspace, module, original)


def read_rows(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return the rows of results files by the mutant's id; a later row stands."""
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    return {row["id"]: row for row in map(json.loads, lines)}


def explained() -> dict[str, str]:
    """Return the reasons of `survivors.toml` by the mutant's id."""
    listed = tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]
    return {entry["id"]: entry["reason"] for entry in listed}


def report(rows: Iterable[dict[str, Any]]) -> float:
    """Print rates by module and the survivors without a reason; return the rate without the equivalent."""
    rows, reasons = list(rows), explained()
    total: Counter[str] = Counter()
    print(f"\n{'module':<14}{'mutants':>9}{'killed':>8}{'listed':>8}{'left':>6}{'raw %':>8}{'rate %':>8}")
    for module in [*TESTS, "all"]:
        here = [row for row in rows if module in ("all", row["module"])]
        if not here:
            continue
        killed = sum(row["status"] == "killed" for row in here)
        listed = sum(row["status"] != "killed" and row["id"] in reasons for row in here)
        left = len(here) - killed - listed
        raw, rate = 100 * killed / len(here), 100 * killed / max(killed + left, 1)
        print(f"{module:<14}{len(here):>9}{killed:>8}{listed:>8}{left:>6}{raw:>8.1f}{rate:>8.1f}")
        total = Counter(killed=killed, left=left)
    for row in rows:
        if row["status"] != "killed" and row["id"] not in reasons:
            place_of = f"{row['module']}.py:{row['line']} {row['function']}"
            print(f"\n{row['id']} {row['kind']} {place_of}\n  - {row['before']}\n  + {row['after']}")
    return total["killed"] / max(total["killed"] + total["left"], 1)


def main() -> None:
    """Draw mutants, run what has no row yet, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--module", action="append", choices=TESTS, help="only this one (may be repeated)")
    parser.add_argument("--sample", type=int, help="so many mutants a module, at random; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--only", nargs="+", default=[], help="these mutants, by id, again")
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutation.jsonl", help="results; resumed")
    parser.add_argument("--fresh", type=Path, action="append", default=[], help="leave out what is in here")
    parser.add_argument("--report", action="store_true", help="only report on the results")
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 below this rate, in %%")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if not given.report:
        run(given)
    if 100 * report(read_rows([given.out]).values()) < given.least:
        raise SystemExit(1)


def prepare(folder: str) -> None:
    """Import what every child needs; programs that JAX compiles are kept, by their content, for the next."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
    }
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    for name in HEAVY:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)


def run(given: argparse.Namespace) -> None:
    """Run what was asked for and is not in the results yet."""
    done, fresh = read_rows([given.out]), read_rows(given.fresh)
    with tempfile.TemporaryDirectory(prefix="dpsep-mutation-") as folder:
        prepare(folder)
        workspaces = [make_workspace(Path(folder), number) for number in range(given.jobs)]
        for module in given.module or TESTS:
            every = mutants(module, (ROOT / PACKAGE / f"{module}.py").read_text())
            if given.only:
                chosen = [mutant for mutant in every if mutant.id in given.only]
            else:
                left = [mutant for mutant in every if mutant.id not in fresh]
                if given.sample is not None and given.sample < len(left):
                    left = random.Random(f"{given.seed} {module}").sample(left, given.sample)
                chosen = [mutant for mutant in left if mutant.id not in done]
            if chosen:
                run_module(module, chosen, workspaces, given.out)


if __name__ == "__main__":
    main()
