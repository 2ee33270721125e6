"""What is too slow for `make test`: run part by part, its results kept with the commit they belong to.

    python tools/deep.py                       # all parts: some hours of two cores
    python tools/deep.py --part fuzz matrix    # some
    python tools/deep.py --small               # in small, to see that all works; nothing is kept
    python tools/deep.py --list                # the parts, and what each shows
    python tools/deep.py --page                # write the section of docs/claims.md anew from what is kept

Results are kept in docs/deep.json and shown in docs/claims.md; tests/docs/test_deep.py holds both together.
A part that fails does not stop the others; the exit code is 1 where one did.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "deep.json"
PAGE = ROOT / "docs" / "claims.md"
WORK = Path("build") / "deep"
HEADING = "## What `make deep` showed last"
INTRODUCTION = """\
What is too slow for `make test`, and what it found when it was last run. `make deep` runs it (one part by
`tools/deep.py --part NAME`), `docs/deep.json` keeps the results, and a test holds this table against them."""
NOT_RUN = "not run yet"
RESULTS = (KEPT, PAGE)
"""Files that a run writes: that they differ from the commit says nothing of what was run."""

Figures = dict[str, Any]


class Part(NamedTuple):
    """One part.

    Attributes
    ----------
    shows
        What it shows, in one sentence.
    command
        What is run, in the repository's folder; `{out}` is a new folder of the part's own.
    small
        The same in small; empty where there is no such thing.
    read
        Reads the figures from what the command has left in the folder.
    holds
        Whether the figures are what is claimed; that the command ended with 0 is asked for, too.
    told
        The figures in words. A figure that is missing is 0.
    """

    shows: str
    command: str
    small: str
    read: Callable[[Path], Figures]
    holds: Callable[[Counter[str]], bool]
    told: str


def read_audit(out: Path) -> Figures:
    """Return how many attacks and controls there were, what was caught, and the strongest proof."""
    rows = json.loads((out / "rows.json").read_text(encoding="utf-8"))
    controls = [row for row in rows if "false_alarm" in row]
    attacks = [row for row in rows if "false_alarm" not in row]
    shares = [row["lower_bound"] / row["claimed"] for row in attacks if row["lower_bound"] is not None]
    return {
        "attacks": len(attacks),
        "caught": sum(row["caught"] for row in attacks),
        "trials": sum(row.get("trials", 0) for row in attacks),
        "strongest": round(100 * max(shares, default=0.0)),
        "controls": len(controls),
        "controls caught": sum(row["caught"] for row in controls),
        "alarms": sum(row["false_alarm"] is not None for row in controls),
    }


def read_matrix(out: Path) -> Figures:
    """Return what became of the combinations of options."""
    rows = json.loads((out / "rows.json").read_text(encoding="utf-8"))
    estimators = {row["target"].partition(":")[0] for row in rows}
    outcomes = Counter(row["outcome"] for row in rows)
    return {"estimators": len(estimators), "combinations": len(rows), **outcomes}


def read_tests(out: Path) -> Figures:
    """Return how many tests there were, how many failed, and how much of each kind of fault they noted."""
    suites = list(ElementTree.parse(out / "junit.xml").iter("testsuite"))
    found: Counter[str] = Counter()
    for kind in ("tests", "failures", "errors", "skipped"):
        found[kind] = sum(int(suite.get(kind, 0)) for suite in suites)
    for noted in (one for suite in suites for one in suite.iter("property")):
        found[noted.get("name", "")] += int(noted.get("value", 0))
    return dict(found)


def read_mutants(out: Path) -> Figures:
    """Return how many mutants a test noticed, how many are listed as changing nothing, and the rest."""
    rows = [json.loads(line) for line in (out / "mutants.jsonl").read_text(encoding="utf-8").splitlines()]
    listed = tomllib.loads((ROOT / "tools/mutation/survivors.toml").read_text(encoding="utf-8"))["survivor"]
    reasons = {entry["id"] for entry in listed}
    survivors = [row["id"] for row in rows if row["status"] != "killed"]
    known = sum(name in reasons for name in survivors)
    return {
        "modules": len({row["module"] for row in rows}),
        "mutants": len(rows),
        "killed": len(rows) - len(survivors),
        "listed": known,
        "left": len(survivors) - known,
    }


def read_fuzz(out: Path) -> Figures:
    """Return how many inputs there were, and what became of them."""
    rows = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    sums = {key: sum(row[key] for row in rows) for key in ("inputs", "read", "refused", "failures")}
    return {"targets": len(rows), **sums}


def read_notebooks(out: Path) -> Figures:
    """Return how many pages there are, how many were run to their end, and their cells."""
    notebooks = [json.loads(path.read_text(encoding="utf-8")) for path in out.glob("*.ipynb")]
    cells = [cell for notebook in notebooks for cell in notebook["cells"] if cell["cell_type"] == "code"]
    pages = len(list((ROOT / "docs" / "tutorials").glob("*.md")))
    return {"pages": pages, "run": len(notebooks), "cells": len(cells)}


def read_wheel(out: Path) -> Figures:
    """Return what is in the wheel, and how many commands answered and were refused where it alone is."""
    found = json.loads((out / "found.json").read_text(encoding="utf-8"))
    return found | {"foreign": len(found["foreign"])}


def read_paper(out: Path) -> Figures:
    """Return how many tables were made, of how many figures, and how many were left out."""
    rows = json.loads((out / "rows.json").read_text(encoding="utf-8"))
    skipped = sum("skipped" in row for row in rows)
    tables = {row.get("table") or row["figure"] for row in rows}
    return {"tables": len(tables), "rows": len(rows), "skipped": skipped}


AUDIT = "dpsep audit --quiet --json {out}/rows.json "
TESTS = "pytest --numprocesses 2 --dist worksteal --quiet -m deep "
TESTS += "-o junit_family=xunit1 --junitxml {out}/junit.xml "
MUTATION = "python tools/mutation/run.py --seed 0 --jobs 2 --out {out}/mutants.jsonl "
FUZZ = "python tools/fuzz/run.py --target all --seed 0 --out {out} --inputs "
NOTEBOOKS = "python tools/docs/execute.py --force --out {out} "
WHEEL = "python tools/wheel.py --out {out}"
PAPER = "dpsep paper --quick --quiet --out {out} --json {out}/rows.json "
PARTS: dict[str, Part] = {
    "audit": Part(
        "No attack, at twice its usual size, proves more than is claimed; every control is caught.",
        AUDIT + "--scale 2 --controls",
        AUDIT + "linear --attack canary --epsilon 4 --scale 0.05",
        read_audit,
        lambda found: found["caught"] == found["alarms"] == 0 < found["controls"] == found["controls caught"],
        "{attacks} attacks with {trials:,} trials, {caught} caught the library, the strongest proved "
        "{strongest} % of a claim; {controls caught} of {controls} controls caught, {alarms} false alarms",
    ),
    "matrix": Part(
        "Whatever its options, an estimator keeps records to the gate or refuses before the charge.",
        AUDIT + "--only --matrix {matrix}",
        "",
        read_matrix,
        lambda found: found["caught"] == 0 < found["kept"],
        "{combinations:,} combinations (`--matrix {matrix}`) of the options of {estimators} estimators: "
        "{kept:,} kept, {refused:,} refused, {caught} caught",
    ),
    "faults": Part(
        "The tests marked `deep`: among them, no charge is lost or doubled wherever a fault can strike.",
        TESTS + "tests lab",
        TESTS + "tests/faults/test_room.py",
        read_tests,
        lambda found: found["failures"] == found["errors"] == 0 < found["tests"] - found["skipped"],
        "{tests} tests, {failures} failed, {errors} broken, {skipped} skipped: {power losses:,} power losses,"
        " {full disks:,} full disks, {lives ended by a fault:,} lives ended by a fault, {kills of a fit:,} "
        "kills of a fit, {charges while a server restarts:,} charges while a server restarts",
    ),
    "mutation": Part(
        "A fault put into a module of `privacy/` fails a test, or a list says why it changes nothing.",
        MUTATION + "--sample 25",
        MUTATION + "--sample 1 --module permit",
        read_mutants,
        lambda found: found["left"] == 0 < found["killed"],
        "{killed:,} of {mutants:,} mutants of {modules} modules killed, {listed} listed, {left} left",
    ),
    "fuzz": Part(
        "A damaged file is read or refused in words: nothing crashes, hangs or fills the memory.",
        FUZZ + "{inputs}",
        FUZZ + "200",
        read_fuzz,
        lambda found: found["failures"] == 0 < found["inputs"],
        "{inputs:,} inputs for {targets} readers: {read:,} read, {refused:,} refused, {failures} failures",
    ),
    "notebooks": Part(
        "Every tutorial runs from its first cell to its last.",
        NOTEBOOKS,
        NOTEBOOKS + "budget",
        read_notebooks,
        lambda found: 0 < found["run"] == found["pages"],
        "{run} of {pages} tutorials run anew, {cells} cells",
    ),
    "wheel": Part(
        "The wheel alone, in an empty environment, fits, predicts, plans, reports and audits.",
        WHEEL,
        "",
        read_wheel,
        lambda found: found["foreign"] == 0 < found["answered"],
        "{files} files of {kib} KiB, {foreign} of them the laboratory's; {answered} commands answered, "
        "{refused} said how to install the laboratory",
    ),
    "paper": Part(
        "Every table and figure of the paper is made, in small: too few records and steps to compare.",
        PAPER + "all",
        PAPER + "accounting",
        read_paper,
        lambda found: found["tables"] == 12 and found["rows"] > found["skipped"],
        "{tables} tables and figures of {rows:,} rows, {skipped} rows left out",
    ),
}


def run(name: str, given: argparse.Namespace) -> Figures:
    """Run a part and return its entry."""
    part = PARTS[name]
    out = WORK / name
    shutil.rmtree(ROOT / out, ignore_errors=True)
    (ROOT / out).mkdir(parents=True)
    sizes = {"inputs": given.inputs, "matrix": given.matrix}
    words = (part.small if given.small else part.command).format(out=out, **sizes)
    print(f"\n{name}: {words}", flush=True)
    before, began = state(), time.monotonic()
    code = subprocess.run(as_command(words), cwd=ROOT, env=surroundings(), check=False).returncode
    seconds = time.monotonic() - began
    try:
        figures = {key: size for key, size in sizes.items() if f"{{{key}}}" in part.command}
        figures |= part.read(ROOT / out)
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        print(f"{name}: there are no figures to read: {error!r}", file=sys.stderr)
        figures = {}
    return {
        "commit": before[0],
        "dirty": before[1] or state() != before,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(seconds),
        "machine": machine(),
        "passed": code == 0 and bool(figures) and (given.small or part.holds(Counter(figures))),
        "figures": figures,
    }


def as_command(words: str) -> list[str]:
    """Return a command with the programs of this environment."""
    program, *rest = words.split()
    return [sys.executable if program == "python" else str(Path(sys.executable).parent / program), *rest]


def surroundings() -> dict[str, str]:
    """Return the environment of a part, which finds the data sets where tests and tutorials do."""
    shared = ROOT.parent / "shared" / "data"
    return ({"DPSEP_DATA": str(shared)} if shared.is_dir() else {}) | os.environ


def state() -> tuple[str, bool]:
    """Return the commit, and whether the files differ from it."""
    others = [f":!{path.relative_to(ROOT).as_posix()}" for path in RESULTS]
    return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", ".", *others))


def git(*words: str) -> str:
    """Return what git says."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def machine() -> dict[str, Any]:
    """Return what a result depends on of the machine, in general words."""
    system = f"{platform.system()} {platform.machine()}"
    return {
        "cores": os.cpu_count(),
        "system": system,
        "python": platform.python_version(),
        "jaxlib": version("jaxlib"),
    }


def kept() -> dict[str, Figures]:
    """Return the entries that are kept, by part."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def keep(name: str, entry: Figures) -> None:
    """Put a part's entry in the place of its last."""
    entries = kept() | {name: entry}
    order = [part for part in PARTS if part in entries]
    write(KEPT, json.dumps({part: entries[part] for part in order}, indent=1) + "\n")


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def section(entries: dict[str, Figures]) -> str:
    """Return the section of the page that says what was found."""
    lines = ["| part | what it shows | found | when |", "|---|---|---|---|"]
    for name, part in PARTS.items():
        told = tell(name, entries[name]) if name in entries else (NOT_RUN, "")
        lines.append(f"| `{name}` | {part.shows} | {' | '.join(told)} |")
    return "\n".join([HEADING, "", INTRODUCTION, "", *lines, ""])


def tell(name: str, entry: Figures) -> tuple[str, str]:
    """Return what a part found, and when, on which commit and machine."""
    found = PARTS[name].told.format_map(Counter(entry["figures"])) if entry["figures"] else "no figures"
    on = f"commit `{entry['commit'][:10]}`" + (" with changes" if entry["dirty"] else "")
    minutes = f"{max(1, round(entry['seconds'] / 60)):,} min of {entry['machine']['cores']} cores"
    return found if entry["passed"] else f"**failed**: {found}", f"{entry['date']}, {on}, {minutes}"


def page(text: str, entries: dict[str, Figures]) -> str:
    """Return the page with its section as the entries say; it is the last one."""
    return text.split(HEADING)[0].rstrip("\n") + "\n\n" + section(entries)


def run_all(names: Iterable[str], given: argparse.Namespace) -> int:
    """Run parts in turn, keep what they found, and return 1 where one failed."""
    failed = []
    for name in names:
        if given.small and not PARTS[name].small:
            print(f"\n{name}: there is nothing small to run", flush=True)
            continue
        entry = run(name, given)
        print(f"{name}: {tell(name, entry)[0]}, {entry['seconds']:,} s", flush=True)
        if not entry["passed"]:
            failed.append(name)
        if not given.small:
            keep(name, entry)
            write(PAGE, page(PAGE.read_text(encoding="utf-8"), kept()))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="damaged files of the part fuzz")
    parser.add_argument("--matrix", choices=("pairs", "all"), default="pairs", help="of the part matrix")
    parser.add_argument(
        "--small", action="store_true", help="in small, to see that all works; nothing is kept"
    )
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--page", action="store_true", help="write the section of docs/claims.md anew")
    given = parser.parse_args(arguments)
    if given.list:
        for name, part in PARTS.items():
            print(f"{name:<10} {part.shows}\n{'':<10} {part.command}")
        return 0
    if given.page:
        write(PAGE, page(PAGE.read_text(encoding="utf-8"), kept()))
        return 0
    return run_all(given.part, given)


if __name__ == "__main__":
    raise SystemExit(main())
