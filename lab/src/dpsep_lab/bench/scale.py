"""Past one machine: what sampling, tables on a disk, devices and processes cost a release.

``sampling``: seconds to draw a Poisson batch of a thousand rows out of a million to a trillion records; no
table is needed for it. ``tables``: records a second through the gate, from arrays in memory, Parquet and
NumPy files. ``shards``: the same fit on 1 to 8 devices and in two processes, each in processes of its own,
with the hash of what was released. Everything is timed in turn, and ratios are of the same run.

**Privacy.** Made data only; nothing printed is a private release. The proof is in docs/proofs/gate.md.
"""

import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpsep.privacy.grid import Block
from dpsep.privacy.noise import SecureStream
from dpsep.privacy.sampling import PoissonSampling
from dpsep_lab.bench.table import Row, row, spread

FEATURES = 50
RECORDS, QUICK_RECORDS = 1_000_000, 50_000
BATCH = 1000
SHARDS = (1, 2, 4, 8)


def scale(quick: bool = False) -> list[Row]:
    """Return the rows of all three parts."""
    return [*sampling(quick), *tables(quick), *shards(quick)]


def sampling(quick: bool = False) -> list[Row]:
    """Seconds of one Poisson batch against the number of records."""
    repeats = 5 if quick else 200
    rows, base = [], 0.0
    for records in (10**6, 10**9, 10**12):
        sampler = PoissonSampling(BATCH / records).start(SecureStream(), records)
        times = [_seconds(sampler.next) for _ in range(repeats + 1)][1:]
        base = base or statistics.median(times)
        rows.append(
            row(
                "scale/sampling",
                f"N = {records:.0e}, {BATCH} rows",
                "seconds a batch",
                statistics.median(times),
                "s",
                against=("N = 1e+06", base),
                **spread(times),
            )
        )
    return rows


def tables(quick: bool = False) -> list[Row]:
    """Records a second through the gate's sum, by where the table is."""
    from dpsep.data import scan
    from dpsep.estimators.large import records_of

    records = QUICK_RECORDS if quick else RECORDS
    matrix = made(records)
    names = [f"x{place}" for place in range(FEATURES)]
    ways: dict[str, Any] = {"memory": (np.ascontiguousarray(matrix[:, :-1]), matrix[:, -1].copy())}
    with tempfile.TemporaryDirectory() as folder:
        for path, more in write_tables(matrix, Path(folder)):
            table = scan(path, memory=2**26, **more)
            ways[path.suffix[1:]] = records_of(
                table[names], table["y"], lambda cells: np.asarray(cells, float)
            )
        times = {who: [] for who in ways}
        sums = {who: summing(arrays, records) for who, arrays in ways.items()}
        for turn in range(2 if quick else 6):
            for who, way in sums.items():
                seconds = _seconds(way)
                if turn:
                    times[who].append(seconds)
    base = records / statistics.median(times["memory"])
    return [
        row(
            f"scale/tables, {records} x {FEATURES}",
            who,
            "records",
            records / statistics.median(seconds),
            "1/s",
            against=("memory", base),
            **spread([records / second for second in seconds]),
        )
        for who, seconds in times.items()
    ]


def shards(quick: bool = False) -> list[Row]:
    """Time a release on several devices and in two processes, and say whether it is the same one."""
    records = QUICK_RECORDS if quick else RECORDS // 4
    plans = [(1, 1), (2, 1), (1, 2)] if quick else [*((number, 1) for number in SHARDS), (1, 2)]
    rows, first = [], None
    for devices, processes in plans:
        found = _processes(devices, processes, records)
        first = first or found
        who = f"{devices} device{'s' * (devices > 1)}, {processes} process{'es' * (processes > 1)}"
        rows.append(
            row(
                f"scale/shards, {records} x {FEATURES}",
                who,
                "records",
                found["records a second"],
                "1/s",
                against=("one device", first["records a second"]),
                note="bit-identical release" if found["release"] == first["release"] else "ANOTHER RELEASE",
            )
        )
    return rows


def made(records: int, seed: int = 0) -> np.ndarray:
    """Uniform features and a yes/no target coded -1 and 1, in one matrix with the target last."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1.0, 1.0, (records, FEATURES))
    slope = rng.standard_normal(FEATURES) / 2
    target = np.where(rng.uniform(size=records) < 1 / (1 + np.exp(-features @ slope)), 1.0, -1.0)
    return np.concatenate([features, target[:, None]], axis=1)


def write_tables(matrix: np.ndarray, folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Write a table as Parquet and as NumPy's; return the files, and how each is opened."""
    import pyarrow as pa
    import pyarrow.parquet

    names = [*(f"x{place}" for place in range(FEATURES)), "y"]
    table = pa.table({name: np.ascontiguousarray(matrix[:, place]) for place, name in enumerate(names)})
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=2**17)
    np.save(folder / "table.npy", matrix)
    return [(folder / "table.parquet", {}), (folder / "table.npy", {"names": names})]


def summing(arrays: Any, records: int) -> Callable[[], Any]:
    """Return one sum of a logistic regression's contributions over all records, nothing kept in between."""
    return summing_of(arrays, records, FEATURES)


def summing_of(arrays: Any, records: int, features: int) -> Callable[[], Any]:
    """Return the same for so many features."""
    from dpsep.privacy.reader import Reader, capacity_of

    blocks, contribution, public = logistic(records, features)

    def way() -> Any:
        # A new reader: what it would keep of a small table, it could not keep of a large one.
        return Reader(arrays, capacity_of(blocks)).sums(contribution, blocks, public, range(records))

    return way


def logistic(records: int, features: int) -> tuple[tuple[Block, ...], Any, Any]:
    """Blocks, contribution and first public values of a logistic regression with bounds of one."""
    from dpsep.estimators.columns import single
    from dpsep.estimators.glm import LogisticRegression
    from dpsep.estimators.input_checks import Structure
    from dpsep.estimators.run import blocks_of, contribution_of, open_plan, settings_of
    from dpsep.inference import sep_newton

    model = LogisticRegression(bounds=(-1, 1), classes=[-1, 1], clip=1.0)
    model.classes_ = np.array([-1, 1])
    task = model._task(Structure(records, features, None))
    assert task.feature_scaling is not None
    assert task.outcome_scaling is not None
    settings = settings_of(task, task.feature_scaling, single(task.outcome_scaling), 0)
    public, _ = sep_newton.publish(settings, sep_newton.init(settings), records)
    return tuple(blocks_of(task, open_plan(task))), contribution_of(task), public


def one_of_several(devices: int, number: int, processes: int, port: int, records: int) -> None:
    """Be one process of a timed release; prints what it found as JSON."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import jax

    if processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, number)
    matrix = made(records)
    way = summing((np.ascontiguousarray(matrix[:, :-1]), matrix[:, -1].copy()), records)
    sums = way()
    seconds = min(_seconds(way) for _ in range(3))
    release = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in sums)).hexdigest()
    print(json.dumps({"records a second": records / seconds, "release": release}), flush=True)


def _processes(devices: int, processes: int, records: int) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = (
        "import sys; from dpsep_lab.bench.scale import one_of_several as run; run(*map(int, sys.argv[1:]))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, *map(str, (devices, number, processes, port, records))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    try:
        told = [one.communicate(timeout=600) for one in started]
    finally:
        for one in started:
            one.kill()
    if any(one.returncode for one in started):
        raise RuntimeError(f"a process of the release failed: {told[0][1][-500:]}")
    return json.loads(told[0][0].splitlines()[-1])


def _seconds(way: Callable[[], Any]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start
