"""Fit a private logistic regression to a table that is larger than the memory it may use; print what it took.

The table is made on the disk, a piece at a time (and left there for the next run). A child process that may
use at most --limit of memory fits it through `dpsep.data.scan`; another one, without a limit and only where
the machine has room, reads the table into memory and makes the same fit. Both use the same seed, so that
their posteriors must be the same bits. The output is one JSON document; the exit code is 1 if a child
fails or the posteriors differ.

The limit is a control group's where this user may make one below its own (version 2, with the memory
controller), else RLIMIT_DATA, which on Linux since 4.7 counts the heap and all private writable memory of the
process, touched or not: it is stricter than one on resident memory. Shared maps of files do not count. The
document says which was used, and under RLIMIT_DATA that an array of the limit's size was refused.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROW_GROUP = 2**17
SEED = 0


def main() -> None:
    """Read the options, make the table, run both children, print."""
    given = _options()
    if given.child is not None:
        print(json.dumps(_child(given)))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    if not _path(given).exists():
        _run(given, "make")
    found: dict[str, Any] = {
        "rows": given.rows,
        "columns": given.columns,
        "sampling": given.sampling,
        "file_bytes": _path(given).stat().st_size,
        "bytes_as_doubles": 8 * given.rows * (given.columns + 1),
        "memory": given.memory,
        "limit": given.limit,
        "large": _run(given, "large"),
    }
    needed = int(1.3 * found["bytes_as_doubles"]) + 2**31
    if given.only_large:
        found["in_memory"] = {"skipped": "not asked for"}
    elif _available() < needed:
        found["in_memory"] = {"skipped": f"needs {needed} bytes, and {_available()} are free"}
    else:
        found["in_memory"] = _run(given, "in_memory")
    large, known = found["large"], found["in_memory"]
    right = "error" not in large and "error" not in known
    if right and "posterior" in known:
        found["ratio"] = large["records_per_second"] / known["records_per_second"]
        found["same_posterior"] = large["posterior"] == known["posterior"]
        right = found["same_posterior"]
    print(json.dumps(found, indent=2))
    raise SystemExit(0 if right else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=20_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--folder", type=Path, required=True, help="where the table is, or is to be made")
    parser.add_argument("--memory", type=_size, default="1GiB", help="what the fit may hold of the table")
    parser.add_argument("--limit", type=_size, default="4GiB", help="what the process may use")
    parser.add_argument("--sampling", type=_sampling, default="full", help="'full' or a rate")
    parser.add_argument("--steps", type=int, help="releases; by default as the estimator chooses")
    parser.add_argument("--only-large", action="store_true", help="do not fit in memory for comparison")
    parser.add_argument("--child", choices=("make", "large", "in_memory"), help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    return parser.parse_args()


def _size(text: str) -> int:
    from dpsep.cli.errors import CallError
    from dpsep.cli.large import parse_size

    try:
        return parse_size(text)
    except CallError:
        raise argparse.ArgumentTypeError("give a size such as 500MB or 2GiB") from None


def _sampling(text: str) -> Any:
    return text if text == "full" else float(text)


def _path(given: argparse.Namespace) -> Path:
    return given.folder / f"logistic-{given.rows}x{given.columns}.parquet"


def _available() -> int:
    """Bytes of memory that are free, or can be freed."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0


def _run(given: argparse.Namespace, child: str) -> dict[str, Any]:
    """Run one part in a process of its own, so that its peak of memory is its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--child", child]
    group = _make_group(given.limit) if child == "large" else None
    if group is not None:
        command += ["--group", str(group)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        if group is not None:
            group.rmdir()
    if done.returncode:
        error = {"error": f"exit code {done.returncode}", "said": done.stderr[-2000:]}
        if child == "make":
            raise SystemExit(f"the table could not be made: {error['said']}")
        return error
    return json.loads(done.stdout.splitlines()[-1])


def _make_group(limit: int) -> Path | None:
    """Make a control group with a limit below our own; None where that is not ours to do."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    if not own:
        return None
    group = Path("/sys/fs/cgroup" + own[0]) / f"out-of-core-{os.getpid()}"
    if not (group.parent / "cgroup.controllers").exists():
        return None
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / "memory.max").write_text(str(limit))
        (group / "memory.swap.max").write_text("0")
    except OSError:  # without the memory controller
        group.rmdir()
        return None
    return group


def _child(given: argparse.Namespace) -> dict[str, Any]:
    if given.child == "make":
        return _make(given)
    if given.child == "in_memory":
        return _fit(given, _in_memory)
    limited_by, bites = _limit(given)
    return {"limited_by": limited_by, "larger_array_refused": bites} | _fit(given, _large)


def _limit(given: argparse.Namespace) -> tuple[str, bool | None]:
    """Limit this process; say how, and whether an array of that size is refused (None: not tried)."""
    if given.group is not None:
        (Path(given.group) / "cgroup.procs").write_text(str(os.getpid()))
        return "control group", None
    resource.setrlimit(resource.RLIMIT_DATA, (given.limit, given.limit))
    import numpy as np

    try:
        np.empty(given.limit, np.uint8)
    except MemoryError:
        return "RLIMIT_DATA", True
    return "RLIMIT_DATA", False


def _make(given: argparse.Namespace) -> dict[str, Any]:
    """Write the table piece by piece, under another name until it is whole."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = _path(given)
    partial = path.with_suffix(".partial")
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(given.columns) / np.sqrt(given.columns) * 2
    names = [f"x{place}" for place in range(given.columns)]
    schema = pa.schema([(name, pa.float64()) for name in names] + [("y", pa.bool_())])
    with parquet.ParquetWriter(partial, schema, use_dictionary=False, compression="zstd") as writer:
        for start in range(0, given.rows, ROW_GROUP):
            x = rng.uniform(-1.0, 1.0, (min(ROW_GROUP, given.rows - start), given.columns))
            y = rng.logistic(size=len(x)) < x @ weights
            writer.write_table(pa.table([*x.T, y], schema=schema), row_group_size=ROW_GROUP)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.rename(path)
    return {"made": str(path)}


def _large(given: argparse.Namespace) -> tuple[Any, Any]:
    from dpsep.data import scan

    table = scan(_path(given), memory=given.memory)
    return table.drop("y"), table["y"]


def _in_memory(given: argparse.Namespace) -> tuple[Any, Any]:
    import numpy as np
    import pyarrow.parquet as parquet

    x, y, done = np.empty((given.rows, given.columns)), np.empty(given.rows, bool), 0
    for batch in parquet.ParquetFile(_path(given), pre_buffer=False).iter_batches(2**16):
        rows = slice(done, done + batch.num_rows)
        for place in range(given.columns):
            x[rows, place] = batch.column(place).to_numpy()
        y[rows] = batch.column(given.columns).to_numpy(zero_copy_only=False)
        done += batch.num_rows
    return x, y


def _fit(given: argparse.Namespace, load: Any) -> dict[str, Any]:
    """Fit, and say what it took; the rate leaves out the first release, in which programs are compiled."""
    import warnings

    from dpsep import LogisticRegression

    started = time.perf_counter()
    X, y = load(given)
    loaded = time.perf_counter()
    ends: list[float] = []
    model = LogisticRegression(
        classes=[False, True],
        bounds=(-1, 1),
        sampling=given.sampling,
        steps=given.steps,
        delta=1e-9,
        random_state=SEED,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the seed, which is there to compare two fits
        model.fit(X, y, on_step=lambda *_: ends.append(time.perf_counter()))
    found = model.posterior_
    rate = 1.0 if given.sampling == "full" else given.sampling
    return {
        "seconds_to_load": loaded - started,
        "seconds_to_fit": time.perf_counter() - loaded,
        "releases": len(ends),
        "seconds_of_the_first_release": ends[0] - loaded,
        "records_per_second": rate * given.rows * (len(ends) - 1) / (ends[-1] - ends[0]),
        "peak_rss": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "posterior": hashlib.sha256(found.mean.tobytes() + found.covariance.tobytes()).hexdigest(),
    }


if __name__ == "__main__":
    main()
