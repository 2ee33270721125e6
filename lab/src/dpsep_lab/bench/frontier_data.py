"""Tables and splits of the accuracy benchmark: UCI's five, tables that ship with packages, and made ones.

Every table comes with splits into nine tenths to train on and one to test on: the customary ones of the UCI
sets (twenty, five for protein, and further seeded ones beyond), seeded ones of the others. A made table has
a seed in place of a split. The training part's means and standard deviations are taken as public for
everyone, as in the paper.

A folder of ``NAME.npz`` files (written by `export`) stands in for the tables where they cannot be had.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep_lab.bench.made_tables import TABLES
from dpsep_lab.data import DataError, load_uci, shipped
from dpsep_lab.data import splits as customary

__all__ = ["DATASETS", "UCI", "Split", "export", "split"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

UCI = ("kin8nm", "power", "wine", "naval", "protein")
"""The paper's sets, but Year."""
MADE = tuple(f"made:{name}" for name in TABLES)
DATASETS = (*UCI, *shipped.HELD_OUT, *shipped.DEVELOPMENT, *MADE)
"""Every table by name."""
CLAMP = 4.0
"""Standard deviations from its mean to which a column is clamped in private fits, ours and peers'."""


class Split(NamedTuple):
    """Train and test part of a table in its own units, with the training part's scaling.

    Attributes
    ----------
    dataset, number
        Which.
    X, y, X_test, y_test
        The two parts.
    centre, scale
        Means and standard deviations of the training features; 1 for a constant column.
    target_centre, target_scale
        The same of the training target.
    """

    dataset: str
    number: int
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    centre: Array
    scale: Array
    target_centre: float
    target_scale: float

    @property
    def scaling(self) -> tuple[tuple[Array, Array], tuple[float, float]]:
        """The public scaling, as `dpsep.NetworkRegressor` takes it."""
        return (self.centre, self.scale), (self.target_centre, self.target_scale)

    def standard(self, X: Array) -> Array:
        """Scale features by the training part's statistics and clamp them."""
        return np.clip((X - self.centre) / self.scale, -CLAMP, CLAMP)

    def standard_target(self, y: Array) -> Array:
        """Scale a target likewise; it is not clamped."""
        return (y - self.target_centre) / self.target_scale

    def own_units(self, mean: Array) -> Array:
        """Undo the scaling of a target."""
        return self.target_centre + self.target_scale * mean


def split(dataset: str, number: int, folder: Path | None = None) -> Split:
    """Return a split of a table.

    Parameters
    ----------
    dataset
        Out of `DATASETS`.
    number
        Of the split, from 0.
    folder
        Where ``NAME.npz`` files are looked for first.

    Examples
    --------
    >>> made = split("made:wages", 0)
    >>> made.X.shape, made.y_test.shape
    ((2800, 8), (2000,))
    """
    if dataset.startswith("made:") and dataset in MADE:
        X, y, X_test, y_test = TABLES[dataset.removeprefix("made:")](number)
        return split_of(dataset, number, (X, y), (X_test, y_test))
    X, y, tests = _table(dataset, folder)
    if number < len(tests):
        train, test = np.setdiff1d(np.arange(len(y)), tests[number]), tests[number]
    else:
        train, test = shipped.parts(dataset, len(y), number)
    return split_of(dataset, number, (X[train], y[train]), (X[test], y[test]))


def split_of(dataset: str, number: int, train: tuple[Array, Array], test: tuple[Array, Array]) -> Split:
    """Return a split of these parts, with the scaling of the first.

    Parameters
    ----------
    dataset, number
        Its name and number.
    train, test
        Features and target of each part.
    """
    (X, y), (X_test, y_test) = train, test
    centre, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(centre)), scale, 1.0)
    return Split(dataset, number, X, y, X_test, y_test, centre, scale, float(y.mean()), float(y.std()) or 1.0)


def export(datasets: Sequence[str], folder: Path) -> list[Path]:
    """Write tables and their customary splits as ``NAME.npz`` files, for a machine that lacks them.

    Parameters
    ----------
    datasets
        Names; made tables need no file and are left out.
    folder
        Where to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in datasets:
        if name in MADE:
            continue
        X, y, tests = _table(name, None)
        path = folder / f"{name}.npz"
        np.savez_compressed(path, X=X, y=y, tests=tests)
        written.append(path)
    return written


@lru_cache(maxsize=2)
def _table(name: str, folder: Path | None) -> tuple[Array, Array, Rows]:
    """Features, target, and the rows of each customary test part (none: seeded splits)."""
    if folder is not None and (folder / f"{name}.npz").is_file():
        with np.load(folder / f"{name}.npz") as kept:
            return kept["X"], kept["y"], kept["tests"]
    if name in UCI:
        found = load_uci(name)
        return found.X, found.y, np.stack([test for _, test in customary(name)])
    if name in shipped.HELD_OUT or name in shipped.DEVELOPMENT:
        X, y, _ = shipped.load(name)
        return X, y, np.zeros((0, 0), np.int64)
    raise DataError(f"there is no table {name!r}; the names are {', '.join(DATASETS)}")
