"""What each lever of a private network fit is worth: measure it, and write docs/ablation.md.

    python lab/tools/ablation.py run --out DIR --worker 0 --of 8 [--extra FOLDER]   # one of eight processes
    python lab/tools/ablation.py real --out DIR --tables tasting,wages              # private fits, to compare
    python lab/tools/ablation.py render DIR      # keep the lines of DIR, write the page and its picture
    python lab/tools/ablation.py render          # write the page from what is kept
    python lab/tools/ablation.py render --check  # fail where the page is not what its results make it

`run` needs JAX, NumPy and SciPy alone, so that it runs on a bare machine with a GPU; packages that fits
would need for the secure noise and the ledger may be absent. Each lever and table is one line of
``DIR/lines.jsonl``, which processes share; what is there is not measured again. ``--extra`` names a folder of
``NAME.npz`` files with arrays ``X`` and ``y``. Results are kept in docs/benchmarks/ablation.json.
"""

import argparse
import fcntl
import json
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOT_NEEDED = ("dp_accounting", "randomgen", "mpmath", "platformdirs", "rich", "sklearn", "threadpoolctl")
"""Packages of private releases, which simulated fits do without."""
PAGE = ROOT / "docs" / "ablation.md"
KEPT = ROOT / "docs" / "benchmarks" / "ablation.json"
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
METRICS = ("rmse", "log_likelihood")
GROUPS = ("geometry", "steps", "budget", "coordinates", "starts", "ensembles", "posterior")
"""Groups of levers, in the page's order."""
UNDONE = (
    "clip and noise in the weights' own coordinates (diagonal)",
    "no whitening: raw gradients are clipped",
    "bases from standard normal inputs",
    "no released moments: standard normal inputs, no linear start, all budget for the fit",
    "damping 1",
    "last iterate, no averaging",
    "last rate 1 of the first",
    "ReLU units",
    "no direct inputs, no linear start",
    "direct inputs without the linear start",
    "prior precision not learned",
    "posterior not aware of the noise",
    "noise statistic of two numbers, clipped at 4",
)
"""Levers that take a part of the committed method away."""
REACH = 0.12
"""Longest bar of the picture, in nats."""
EXAMPLE = 10_740
"""Records of the table whose settings are shown."""
SHOWN = ("clip", "damping", "rate", "last", "cap", "tail", "start", "noise_share", "noise_clip")


def run(given: argparse.Namespace) -> int:
    """Measure this process' part of the levers and tables; the exit code is 1 where a part failed."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")  # programs are many and run briefly
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "lab" / "src"), str(ROOT / "lab" / "tools")]
    import frontier_remote

    frontier_remote.MAY_BE_ABSENT = (*frontier_remote.MAY_BE_ABSENT, *NOT_NEEDED)
    frontier_remote.allow_absent()
    from dpsep_lab.bench import levers
    from dpsep_lab.bench.levers_data import names

    begun = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "lines.jsonl"
    tables = given.tables.split(",") if given.tables else names(given.extra)
    work = jobs(tables, given.extra)[given.worker :: given.of]
    failed = False
    for place, (table, members) in enumerate(work):
        if given.seconds and time.monotonic() - begun > given.seconds:
            print(f"out of time: {len(work) - place} parts left", flush=True)
            break
        known = {(line["table"], line["lever"]) for line in lines(path)}
        start = time.monotonic()
        try:
            for group in members:
                if all((table, lever.name) in known for lever in group):
                    continue
                for found in levers.measure(table, group, range(given.seeds), given.extra):
                    append(path, found._asdict())
        except Exception as error:  # one broken part must not lose the others
            failed = True
            print(f"{table} {members[0][0].name}: {type(error).__name__}: {error}"[:1000], flush=True)
        print(table, members[0][0].name, f"{time.monotonic() - start:.1f} s", flush=True)
    return int(failed)


def real(given: argparse.Namespace) -> int:
    """Make private fits through the gate, to hold the simulation against."""
    from dpsep_lab.bench.levers_real import measure

    given.out.mkdir(parents=True, exist_ok=True)
    for table in given.tables.split(","):
        append(given.out / "lines.jsonl", measure(table, range(given.seeds), given.extra)._asdict())
    return 0


def jobs(tables: Sequence[str], extra: Path | None) -> list[tuple[str, list[list[Any]]]]:
    """Return tables with the groups of levers that share a program, programs in the outer order."""
    from dpsep_lab.bench.levers import LEVERS, groups
    from dpsep_lab.bench.levers_data import split

    found: list[tuple[int, str, list[list[Any]]]] = []
    for table in tables:
        records = len(split(table, 0, extra).y)
        programs: dict[Any, list[list[Any]]] = {}
        for group in groups(LEVERS, records):
            programs.setdefault(group[0].form_of(records), []).append(group)
        found += [(place, table, members) for place, members in enumerate(programs.values())]
    return [(table, members) for _, table, members in sorted(found, key=lambda one: one[0])]


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line to a file that other processes add to as well."""
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(line) + "\n")
        file.flush()


def lines(path: Path) -> list[dict[str, Any]]:
    """Lines of a file; none where there is no file. A line that was cut off is left out."""
    if not path.is_file():
        return []
    found = []
    for text in path.read_text("utf-8").splitlines():
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


def blocks(results: Any) -> dict[str, str]:
    """Return every made part of the page by name."""
    from dpsep_lab.bench.levers import LEVERS
    from dpsep_lab.bench.levers_results import ALONE, held_table, own_table, table_of, verdict

    others = LEVERS[1:]
    made = {group: table_of(results, [one for one in others if one.group == group]) for group in GROUPS}
    undone = [one for one in others if one.name in UNDONE]
    made["undone"] = table_of(results, undone)
    better = [
        one
        for one in others
        if (found := results.change(one.name))
        and verdict(found, results.change(one.name, without=ALONE)).startswith("better")
    ]
    made["better"] = table_of(results, better) if better else "None."
    made["tables"] = own_table(results)
    made["held"] = held_table(results)
    settings = ", ".join(f"{name} {value:g}" for name, value in results.about.get("committed", {}).items())
    made["settings"] = f"With {results.about.get('records', 0):,} records: {settings}."
    return made


def draw(results: Any, path: Path) -> None:
    """Draw the difference of every lever as a bar, the best on top; longer bars are cut at `REACH`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from dpsep_lab.bench.levers import LEVERS

    found = [(one, change) for one in LEVERS[1:] if (change := results.change(one.name))]
    found.sort(key=lambda pair: pair[1].mean)

    def label(name: str, change: Any) -> str:
        few = len(change.tables) < len(results.tables)
        return name + (f" ({len(change.tables)} tables)" if few else "")

    figure, axis = plt.subplots(figsize=(9, 0.19 * len(found) + 1.2))
    colours = {group: f"C{place}" for place, group in enumerate(GROUPS)}
    for place, (lever, change) in enumerate(found):
        shown = max(change.mean, -REACH)
        error = change.error if change.mean > -REACH else 0.0
        axis.barh(place, shown, xerr=error, color=colours[lever.group], error_kw={"lw": 0.8})
        if change.mean < -REACH:
            axis.text(-REACH, place, f" {change.mean:.2f}", va="center", ha="left", fontsize=6, color="white")
    axis.set_yticks(range(len(found)), [label(lever.name, change) for lever, change in found], fontsize=6)
    axis.set_ylim(-0.6, len(found) - 0.4)
    axis.axvline(0.0, color="black", lw=0.8)
    axis.set_xlabel("mean test log-likelihood less the committed method's (nats)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()]
    axis.legend(handles, list(colours), fontsize=7, loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def keep(folder: Path) -> None:
    """Keep the lines of a folder, rounded, in the order of levers and tables."""
    from dpsep_lab.bench import levers
    from dpsep_lab.bench.levers_data import names
    from dpsep_lab.bench.levers_results import REAL

    found = {
        (one["lever"], one["table"]): one for path in sorted(folder.glob("*.jsonl")) for one in lines(path)
    }
    made = names()
    tables = made + sorted({table for _, table in found} - set(made))
    rows = []
    for lever in (*levers.LEVERS, levers.Lever(REAL, "held against")):
        for table in tables:
            if (line := found.get((lever.name, table))) is not None:
                parts = {name: [rounded(value) for value in line[name]] for name in METRICS}
                rows.append(json.dumps({"lever": lever.name, "group": lever.group, "table": table, **parts}))
    numbers = levers.DEFAULT.numbers_of(EXAMPLE)[0]._asdict()
    settings = {"steps": levers.DEFAULT.steps_of(EXAMPLE), "hidden": levers.DEFAULT.form_of(EXAMPLE).hidden}
    settings |= {name: round(numbers[name], 4) for name in SHOWN} | {"moments": levers.DEFAULT.moments}
    about = {"epsilon": levers.EPSILON, "delta": levers.DELTA, "records": EXAMPLE, "committed": settings}
    text = f'{{"about": {json.dumps(about)},\n"lines": [\n' + ",\n".join(rows) + "\n]}\n"
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(text, "utf-8")


def rounded(value: float) -> float | None:
    """Six digits; None for what is not finite, which JSON cannot hold."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def read_kept() -> Any:
    """Return the kept results."""
    document = json.loads(KEPT.read_text("utf-8"))
    kept = document["lines"]
    for line in kept:
        for name in METRICS:
            line[name] = [math.nan if value is None else value for value in line[name]]
    from dpsep_lab.bench.levers_results import Results

    return Results(kept, document["about"])


def rendered(text: str, results: Any) -> str:
    """Return the page with its tables made anew.

    Parameters
    ----------
    text
        The page, with blocks between ``<!-- made: NAME -->`` and ``<!-- end -->``.
    results
        What is kept.
    """
    made = blocks(results)
    return BLOCK.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", text)


def render(folder: Path | None, *, check: bool) -> int:
    """Write the page, or say whether it is what the results make it."""
    if folder is not None:
        keep(folder)
    results = read_kept()
    if folder is not None:
        draw(results, KEPT.with_suffix(".png"))
    text = PAGE.read_text("utf-8")
    made = rendered(text, results)
    if check:
        if made != text:
            print(
                f"{PAGE.name} is not what its results make it; run lab/tools/ablation.py render.",
                file=sys.stderr,
            )
        return int(made != text)
    PAGE.write_text(made, "utf-8")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    third = verbs.add_parser("real", help="private fits to hold the simulation against; needs all packages")
    third.add_argument("--out", type=Path, required=True, help="folder of the lines")
    third.add_argument("--extra", type=Path, help="folder of further tables")
    third.add_argument("--tables", default="tasting,wages", help="names of tables, with commas")
    third.add_argument("--seeds", type=int, default=4, help="seeds of each table")
    first = verbs.add_parser("run", help="measure")
    first.add_argument("--out", type=Path, required=True, help="folder of the lines")
    first.add_argument("--worker", type=int, default=0, help="number of this process, from 0")
    first.add_argument("--of", type=int, default=1, help="how many processes share the work")
    first.add_argument("--extra", type=Path, help="folder of further tables")
    first.add_argument("--tables", help="names of tables, with commas; all where left out")
    first.add_argument("--seeds", type=int, default=4, help="seeds of each table")
    first.add_argument("--seconds", type=float, help="begin nothing new after so many")
    second = verbs.add_parser("render", help="write the page")
    second.add_argument("folder", type=Path, nargs="?", help="of lines that are to be kept")
    second.add_argument("--check", action="store_true", help="write nothing; fail where the page is stale")
    given = parser.parse_args(arguments)
    if given.verb == "run":
        return run(given)
    if given.verb == "real":
        return real(given)
    return render(given.folder, check=given.check)


if __name__ == "__main__":
    raise SystemExit(main())
