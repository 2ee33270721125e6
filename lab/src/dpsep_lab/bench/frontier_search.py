"""The setting of Opacus' DP-Adam for every table, searched on the made tables.

    python -m dpsep_lab.bench.frontier_search docs/benchmarks/frontier_search.json

From `START`, one round after another: learning rate and clip together, then steps, the sampling rate, the
schedule of the learning rate, learning rate and clip again, and whether small tables need a smaller one. The
best is the least mean over tables of log(test RMSE) with the units that `dpsep.NetworkRegressor` would have,
at epsilon 1, delta 1e-5. Rows that the file holds already are not measured again. The winner is
`dpsep_lab.bench.peers_network.DEFAULTS`.

**Privacy.** Made data only.
"""

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpsep.privacy.checkpoint import atomic_write
from dpsep.theory.networks import default_hidden
from dpsep_lab.bench.frontier_data import MADE, split
from dpsep_lab.bench.peers_network import Settings, dp_adam

EPSILON, DELTA = 1.0, 1e-5
START = Settings(rate=0.05, steps=1000, learning_rate=0.01, clip=0.3, cosine=True)
ROUNDS: tuple[dict[str, Sequence[Any]], ...] = (
    {"learning_rate": (0.003, 0.01, 0.03), "clip": (0.1, 0.3, 1.0)},
    {"steps": (500, 1000, 2000)},
    {"rate": (0.02, 0.05, 0.1)},
    {"cosine": (True, False)},
    {"learning_rate": (0.5, 1.0, 2.0, 4.0)},
    {"clip": (0.3, 1.0, 2.0)},
    {"reach": (0.0, 2500.0, 5000.0, 10000.0)},
)
"""Values of each round."""
MULTIPLES = (4, 5)
"""Rounds, counted from 0, whose values are multiples of the best so far."""
Row = dict[str, Any]


def search(path: Path, tables: Sequence[str] = MADE) -> Settings:
    """Run the rounds and return the best setting.

    Parameters
    ----------
    path
        Where rows are kept.
    tables
        Names of the tables.
    """
    rows: list[Row] = json.loads(path.read_text("utf-8")) if path.is_file() else []
    best = START
    for number, values in enumerate(ROUNDS):
        tried = list(_candidates(best, values, multiples=number in MULTIPLES))
        best = min(tried, key=lambda settings: _loss(settings, tables, rows, path))
        print(f"round {number + 1}: {best}", flush=True)
    return best


def error(settings: Settings, table: str) -> float:
    """Test RMSE on a made table, in units of its target's standard deviation.

    Parameters
    ----------
    settings
        Of DP-Adam.
    table
        Its name.
    """
    made = split(table, 100)  # a seed that no figure is reported on
    fit = dp_adam(
        made.standard(made.X),
        made.standard_target(made.y),
        hidden=default_hidden(len(made.y), private=True)[0],
        epsilon=EPSILON,
        delta=DELTA,
        seed=100,
        settings=settings,
    )
    miss = fit(made.standard(made.X_test)) - made.standard_target(made.y_test)
    return float(np.sqrt(np.mean(miss**2)))


def _candidates(best: Settings, values: dict[str, Sequence[Any]], *, multiples: bool) -> Iterator[Settings]:
    for chosen in itertools.product(*values.values()):
        given = dict(zip(values, chosen, strict=True))
        if multiples:
            given = {name: round(getattr(best, name) * value, 6) for name, value in given.items()}
        yield best._replace(**given)


def _loss(settings: Settings, tables: Sequence[str], rows: list[Row], path: Path) -> float:
    known = [row for row in rows if row["settings"] == settings._asdict() and row["tables"] == list(tables)]
    if not known:
        errors = [error(settings, table) for table in tables]
        row = {"settings": settings._asdict(), "tables": list(tables), "rmse": errors}
        row["loss"] = float(np.mean(np.log(errors)))
        rows.append(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, "[\n" + ",\n".join(json.dumps(item) for item in rows) + "\n]\n")
        known = [row]
        print(f"{row['loss']:.4f} {settings}", flush=True)
    return known[0]["loss"]


if __name__ == "__main__":
    search(Path(sys.argv[1]))
