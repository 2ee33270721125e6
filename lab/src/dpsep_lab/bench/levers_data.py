"""Tables on which levers are measured, and the moments that a private fit would have released of them.

Made tables (`dpsep_lab.bench.made_tables`), and any folder of ``NAME.npz`` files with arrays ``X`` and ``y``,
of which a tenth is kept for testing. Inputs are standardised and clamped as in a private fit. Moments go
through `dpsep.inference.moments` and a seeded gate.

**Privacy.** For measurement only: noise is pseudo-random.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.columns import single
from dpsep.inference import moments
from dpsep.models.glm import Columns
from dpsep.privacy.gate import Gate, authorise
from dpsep.privacy.grid import Block, Contribution
from dpsep.privacy.mechanism import Mechanism, Schedule
from dpsep.privacy.noise import SeededStream
from dpsep.privacy.sampling import FullBatch
from dpsep.theory.networks import LOOK, SepPlan, moment_looks
from dpsep_lab.bench.made_tables import TABLES

__all__ = ["Data", "Split", "data_of", "names", "split"]

Array = NDArray[np.float64]
CLAMP = 4.0
"""Standard deviations that inputs are clamped to."""
SPLIT_SEED = 77
"""Of the splits of tables in a folder."""
DELTA = 1e-5
"""Of the releases' guarantee, which is not claimed here."""


class Split(NamedTuple):
    """Standardised training and test part."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


class Data(NamedTuple):
    """What a fit sees.

    Attributes
    ----------
    X, y
        Records.
    mean, half
        Released mean of the inputs, and a square root of their covariance.
    linear, first_noise
        Weights of the linear model that the moments give, and the noise variance to start from.
    """

    X: Any
    y: Any
    mean: Any
    half: Any
    linear: Any
    first_noise: Any


def names(folder: Path | None = None) -> list[str]:
    """Names of the tables: made ones, but the largest, and those of a folder.

    Parameters
    ----------
    folder
        Of ``NAME.npz`` files.
    """
    made = [name for name in TABLES if name != "folds"]
    return made + sorted(path.stem for path in folder.glob("*.npz")) if folder else made


def split(name: str, seed: int, folder: Path | None = None) -> Split:
    """Training and test part of a table.

    Parameters
    ----------
    name
        Out of `names`.
    seed
        Of a made table, or of the split of another.
    folder
        Where tables that are not made lie.
    """
    if name in TABLES:
        X, y, X_test, y_test = TABLES[name](seed)
    else:
        if folder is None:
            raise ValueError(f"there is no made table {name!r}; name the folder where it lies.")
        with np.load(folder / f"{name}.npz") as kept:
            X, y = kept["X"].astype(np.float64), kept["y"].astype(np.float64)
        order = np.random.default_rng([SPLIT_SEED, seed]).permutation(len(X))
        test, train = order[: len(X) // 10], order[len(X) // 10 :]
        scale = X[train].std(axis=0)
        X = (X - X[train].mean(axis=0)) / np.where(scale > 1e-9, scale, 1.0)
        y = (y - y[train].mean()) / y[train].std()
        X, y, X_test, y_test = X[train], y[train], X[test], y[test]
    return Split(np.clip(X, -CLAMP, CLAMP), y, np.clip(X_test, -CLAMP, CLAMP), y_test)


def data_of(parts: Split, mu: float, seed: int) -> Data:
    """What a private fit sees of a training part once its moments were released.

    Parameters
    ----------
    parts
        The table.
    mu
        Of the moments' releases together; zero releases none and takes inputs for standard normal.
    seed
        Of the noise.
    """
    n, d = parts.X.shape
    if mu <= 0.0:
        return Data(parts.X, parts.y, np.zeros(d), np.eye(d), np.zeros(d), 1.0)
    looks = moment_looks(n)
    part = Mechanism(FullBatch(), "zero-out", LOOK * looks, math.sqrt(LOOK * looks) / mu, n)
    permit, stream = authorise(None, Schedule((part,)), DELTA), SeededStream(seed)

    def opened(blocks: Sequence[Block], contribution: Contribution) -> Gate:
        return Gate((parts.X, parts.y), part, blocks, contribution, permit, stream=stream)

    found = moments.run(opened, whole(d), single(whole(1)), d + 1, looks, target=True)
    linear, left = moments.regression(found.half, moments.ridge_of(found.edge, looks))
    first = SepPlan(1, 1.0).first_noise(left)
    return Data(parts.X, parts.y, found.mean[:d], found.half[:d, :d], linear, first)


def whole(columns: int) -> Columns:
    """Map that leaves columns as they are."""
    far, one = np.full(columns, np.inf), np.ones(columns)
    return Columns(-far, far, 0.0 * one, one)  # pyright: ignore
