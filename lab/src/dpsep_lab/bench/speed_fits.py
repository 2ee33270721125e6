"""Whole private fits of kin8nm's shape: first and later ones, memory, and what error they reach in what time.

`measure` runs in a fresh process, so that the first fit compiles everything it needs; what comes after the
imports is timed. `reached` fits the real table (the first customary split), or a made one where it cannot be
had, by each private method with its own defaults at the same epsilon and delta, twice: the second fit is the
time once compiled.

**Privacy.** Made or public data; fits are those a user gets. Times are told to the table's owner.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpsep_lab.bench import speed_ours, speed_peers
from dpsep_lab.bench.cost import peak_memory
from dpsep_lab.bench.speed_rates import SHAPE
from dpsep_lab.bench.table import Row, row, skipped

STANDARD = ((0.0, 1.0), (0.0, 1.0))
EPSILON, DELTA = 1.0, 1e-5


def measure(
    cores: int, *, repeats: int, shape: tuple[int, int] = SHAPE, declared: bool = True, **settings: Any
) -> list[Row]:
    """Return seconds of the first and of later default fits, and their memory.

    Parameters
    ----------
    cores
        Cores that this process was given.
    repeats
        Later fits; the row has their median.
    shape
        Records and features of the made table.
    declared
        Whether columns are declared to be standardised already; else they are scaled privately.
    settings
        Further parameters of the estimator; none are its defaults.
    """
    start = time.perf_counter()
    from dpsep import NetworkRegressor

    imports = time.perf_counter() - start
    x, y = speed_ours.table(shape)
    loaded = peak_memory()
    more: dict[str, Any] = {"public_scaling": STANDARD} if declared else {}

    def fit() -> None:
        NetworkRegressor(EPSILON, DELTA, **more, **settings).fit(x, y)

    times = [_timed(fit) for _ in range(1 + repeats)]
    case = f"speed/fit, {cores} core{'s' * (cores > 1)}, {'declared' if declared else 'private'} scaling"
    who = "dpsep private, defaults"
    later = sorted(wall for wall, _ in times[1:])[(repeats - 1) // 2]
    work = sorted(cpu for _, cpu in times[1:])[(repeats - 1) // 2]
    return [
        row(case, who, "imports", imports, "s", n=1),
        row(case, who, "first fit", times[0][0], "s", n=1, cpu=times[0][1]),
        row(case, who, "later fits", later, "s", n=repeats, cpu=work),
        row(case, who, "compile and start", max(times[0][0] - later, 0.0), "s", cpu=times[0][1] - work),
        row(case, who, "peak memory", peak_memory() / 2**20, "MiB", imports=loaded / 2**20),
    ]


def reached(cores: int, *, small: bool = False) -> list[Row]:
    """Return seconds and test error of each private method on one table.

    Parameters
    ----------
    cores
        Cores that this process was given.
    small
        A few hundred records and releases, for a test.
    """
    name, x, y, x_test, y_test, unit = _table(small)
    case = f"speed/reached, {name}, {cores} core{'s' * (cores > 1)}"
    rows = []
    for who, fit in _methods(small).items():
        lacking = speed_peers.missing("Opacus, index batches") if who.startswith("Opacus") else None
        if lacking is not None:
            rows.append(skipped(case, who, f"{lacking} is not installed; the extra 'peers' has it."))
            continue
        seconds: list[float] = []
        predict: Callable[[np.ndarray], np.ndarray] | None = None
        for seed in range(2):
            start = time.perf_counter()
            predict = fit(x, y, seed)
            seconds.append(time.perf_counter() - start)
        assert predict is not None
        error = unit * float(np.sqrt(np.mean((predict(x_test) - y_test) ** 2)))
        rows.append(row(case, who, "seconds", seconds[1], "s", first=seconds[0], rmse=error, epsilon=EPSILON))
    return rows


def _methods(small: bool) -> dict[str, Callable[[np.ndarray, np.ndarray, int], Any]]:
    from dpsep import NetworkRegressor

    more: dict[str, Any] = {"hidden": (3,), "steps": 3} if small else {}

    def ours(**settings: Any) -> Callable[[np.ndarray, np.ndarray, int], Any]:
        def fit(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
            del seed  # a private fit draws its own
            model = NetworkRegressor(EPSILON, DELTA, public_scaling=STANDARD, **settings, **more)
            return model.fit(x, y).predict

        return fit

    def opacus(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        from dpsep_lab.bench.peers_network import DEFAULTS, dp_adam

        settings = DEFAULTS._replace(steps=3) if small else DEFAULTS
        hidden = 3 if small else 50
        return dp_adam(x, y, hidden=hidden, epsilon=EPSILON, delta=DELTA, seed=seed, settings=settings)

    return {
        "dpsep private, defaults": ours(),
        "dpsep private, independent weights": ours(covariance="diagonal"),
        "DP-VI on the gate": ours(method="vi"),
        "DP-Adam on the gate": ours(method="point"),
        "Opacus, DP-Adam": opacus,
    }


def _table(small: bool) -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Name, standardised training and test parts, and the unit of the target."""
    from dpsep_lab.data import DataError, load_uci, splits

    if small:
        x, y = speed_ours.table((300, 2))
        return "made", x[:200], y[:200], x[200:], y[200:], 1.0
    try:
        found = load_uci("kin8nm")
        train, test = splits("kin8nm")[0]
    except DataError:
        from dpsep_lab.bench.made_tables import TABLES

        return ("made arm", *next(iter(TABLES.values()))(0), 1.0)
    X, y = np.asarray(found.X, float), np.asarray(found.y, float)
    centre, scale = X[train].mean(axis=0), X[train].std(axis=0)
    middle, unit = float(y[train].mean()), float(y[train].std())
    return (
        "kin8nm, split 0",
        (X[train] - centre) / scale,
        (y[train] - middle) / unit,
        (X[test] - centre) / scale,
        (y[test] - middle) / unit,
        unit,
    )


def _timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the clock, and seconds of work in all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu
