"""What a private fit costs: time against scikit-learn, compilations, memory.

Every measurement runs in a fresh process, so that nothing is compiled or allocated before it: one process
times fits of both libraries in turn and counts compilations of the gate's kernel; three others load the same
table and stop at JAX, at dpsep's imports, or after a fit, and tell their peak memory.

**Privacy.** Public tables only. Times and peaks are printed for the table's owner; they are no release.
"""

import itertools
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep_lab.bench.table import Row, row, skipped, spread

Array = NDArray[np.float64]


def cost(quick: bool = False) -> list[Row]:
    """Measure a private logistic fit on Adult's training part."""
    from dpsep.data import encoded_bounds
    from dpsep_lab.bench.accuracy import adult_table
    from dpsep_lab.data import ADULT_SCHEMA, DataError

    try:
        X, y, (train, _) = adult_table()
    except DataError as error:
        return [skipped("cost", "everyone", str(error))]
    return measure("cost/adult", X[train], y[train], encoded_bounds(ADULT_SCHEMA), repeats=3 if quick else 5)


def measure(case: str, X: Array, y: Array, bounds: tuple[Array, Array], *, repeats: int) -> list[Row]:
    """Return the cost rows of a private logistic fit of a table.

    Parameters
    ----------
    case
        Name of the rows.
    X, y
        Features, and labels 0 and 1.
    bounds
        Public bounds of the columns.
    repeats
        How often both libraries fit in turn.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        np.savez(path, X=X, y=y, low=bounds[0], high=bounds[1])
        times = _child(path, "times", repeats)
        peaks = {stage: _child(path, stage)["peak"] for stage in ("jax", "imports", "fit")}
    size = X.nbytes + y.nbytes
    ours, theirs = times["dpsep"], times["scikit"]
    base = ("scikit-learn, scaled", statistics.median(theirs))
    warm = statistics.median(ours)
    raw = times["scikit_raw"]
    rows = [
        row(
            case,
            "scikit-learn, scaled",
            "fit",
            base[1],
            "s",
            **spread(theirs),
            note="defaults, bounds-scaled",
        ),
        row(case, "scikit-learn, raw", "fit", raw, "s", against=base, n=1, note=times["raw_note"]),
        row(case, "dpsep private", "fit, compiled", warm, "s", against=base, **spread(ours)),
        row(case, "dpsep private", "first fit", times["first"], "s", against=("fit, compiled", warm), n=1),
        row(case, "dpsep private", "compile and start", max(times["first"] - warm, 0.0), "s", n=1),
        row(case, "dpsep private", "kernels compiled, first fit", times["compiled"][0], n=1),
        row(case, "dpsep private", "kernels compiled, second fit", times["compiled"][1], n=1),
        row(case, "table", "bytes", size, "bytes", records=len(X), columns=X.shape[1]),
    ]
    for stage, label in (("jax", "beyond JAX and the table"), ("imports", "beyond dpsep's imports too")):
        extra = peaks["fit"] - peaks[stage]
        rows.append(
            row(case, "dpsep private", f"peak memory {label}", extra, "bytes", against=("table", size), n=1)
        )
    return rows


def _child(path: Path, stage: str, *more: object) -> Any:
    """Run one stage in a process of its own and return what it says."""
    command = [sys.executable, "-m", "dpsep_lab.bench.cost", stage, str(path), *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise RuntimeError(
            f"measuring the {stage!r} stage failed: {lines[-1] if lines else 'no message'}. Run "
            "`dpsep bench cost` alone to see whether memory is short."
        )
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory() -> int:
    """Peak resident bytes of this process.

    Linux's getrusage carries over the peak of the process that started this one; /proc does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def _times(X: Array, y: Array, bounds: tuple[Array, Array], repeats: int) -> dict[str, Any]:
    """Time first and later fits, in turn with scikit-learn's, and count compilations."""
    from sklearn.linear_model import LogisticRegression as Scikit

    from dpsep.privacy.grid import compilations
    from dpsep_lab.bench.accuracy import within_unit

    scaled = within_unit(bounds)(X)
    compiled = [compilations()]
    first = _timed(lambda: _fit(X, y, bounds))
    compiled.append(compilations())
    _fit(X, y, bounds)
    compiled.append(compilations())
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(_timed(lambda: _fit(X, y, bounds)))
        theirs.append(_timed(lambda: Scikit().fit(scaled, y)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raw = _timed(lambda: Scikit().fit(X, y))
    note = "defaults, unscaled" + ("; did not converge" if caught else "")
    steps = [after - before for before, after in itertools.pairwise(compiled)]
    return {
        "first": first,
        "dpsep": ours,
        "scikit": theirs,
        "scikit_raw": raw,
        "raw_note": note,
        "compiled": steps,
    }


def _timed(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _fit(X: Array, y: Array, bounds: tuple[Array, Array]) -> None:
    from dpsep.estimators import LogisticRegression

    LogisticRegression(epsilon=1.0, delta=1e-5, bounds=bounds, classes=[0, 1]).fit(X, y)


def _main(stage: str, path: str, *more: str) -> None:
    """Do one stage and print what it found as JSON."""
    import jax  # every stage holds JAX, so that peaks differ by what follows

    assert jax is not None
    with np.load(path) as saved:
        X, y, bounds = saved["X"], saved["y"], (saved["low"], saved["high"])
    if stage == "times":
        print(json.dumps(_times(X, y, bounds, int(more[0]))))
        return
    if stage != "jax":
        import dpsep.estimators.glm

        assert dpsep.estimators is not None
    if stage == "fit":
        _fit(X, y, bounds)
    print(json.dumps({"peak": peak_memory()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
