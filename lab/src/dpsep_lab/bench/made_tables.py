"""Made tables of known law, on which defaults of networks are chosen and levers are measured.

Each resembles a kind of real table in what makes it hard: curved and nearly noiseless, interactions with
noise, few correlated columns and heavy tails, a small table with a target of few values, collinear columns
that hide a noiseless function, a wide bimodal target. None holds real records. `TABLES` maps a name to
a function of the seed that returns training inputs and targets, and test inputs and targets, standardised by
the training part.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Table = tuple[Array, Array, Array, Array]
TEST = 2000
"""Test records of every table."""


def arm(seed: int) -> Table:
    """Distance of an arm's end from a point: seven joints, one length; curved, little noise."""
    rng = np.random.default_rng([1, seed])
    n = 7372 + TEST
    angles = rng.uniform(-np.pi / 2, np.pi / 2, (n, 7))
    reach = rng.uniform(0.1, 0.5, n)
    bend = np.cumsum(angles * np.linspace(1.0, 0.4, 7), axis=1)
    x = (0.2 * np.cos(bend)).sum(axis=1) + reach * np.cos(bend[:, 3])
    z = (0.2 * np.sin(bend[:, ::2])).sum(axis=1)
    y = np.hypot(x - 0.3, z + 0.1) + 0.02 * rng.standard_normal(n)
    return _standard(np.column_stack([angles, reach]), y)


def friedman(seed: int) -> Table:
    """Friedman's first function: ten columns of which five count, with noise."""
    rng = np.random.default_rng([2, seed])
    n = 5000 + TEST
    X = rng.uniform(size=(n, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return _standard(X, y + rng.standard_normal(n))


def plant(seed: int) -> Table:
    """Four correlated columns, a mostly linear answer, errors of heavy tails."""
    rng = np.random.default_rng([3, seed])
    n = 8611 + TEST
    season = rng.uniform(0, 2 * np.pi, n)
    heat = 20 + 8 * np.sin(season) + 3 * rng.standard_normal(n)
    vacuum = 30 + 1.1 * heat + 6 * rng.standard_normal(n)
    pressure = 1013 - 0.35 * heat + 5 * rng.standard_normal(n)
    damp = np.clip(75 - 0.8 * (heat - 20) + 12 * rng.standard_normal(n), 25, 100)
    y = 455 - 16 * np.tanh((heat - 19) / 9) - 0.25 * vacuum + 0.06 * (pressure - 1013) - 0.06 * damp
    y = y - 3 * np.maximum(vacuum - 60, 0) / 10 + 4 * np.sin(vacuum / 6) * (heat < 18)
    return _standard(np.column_stack([heat, vacuum, pressure, damp]), y + 3 * rng.standard_t(4, n))


def tasting(seed: int) -> Table:
    """A small table of skewed, correlated columns; the target is one of six marks, mostly noise."""
    rng = np.random.default_rng([4, seed])
    n = 1439 + TEST
    mix = rng.standard_normal((11, 11)) * 0.35 + np.eye(11)
    X = np.exp(0.5 * rng.standard_normal((n, 11)) @ mix / np.linalg.norm(mix, axis=0))
    Z = (np.log(X) - np.log(X).mean(axis=0)) / np.log(X).std(axis=0)
    score = 0.45 * Z[:, 0] - 0.35 * Z[:, 1] + 0.3 * np.tanh(1.5 * Z[:, 2]) - 0.15 * Z[:, 3] * (Z[:, 4] > 0)
    y = np.clip(np.round(5.6 + 0.7 * score + 0.62 * rng.standard_normal(n)), 3, 8)
    return _standard(X, y)


def engine(seed: int) -> Table:
    """Fourteen nearly collinear columns and two constant ones; a smooth target without noise."""
    rng = np.random.default_rng([5, seed])
    n = 10740 + TEST
    speed = rng.integers(1, 10, n) / 9.0
    wear = rng.uniform(0.95, 1.0, (n, 2))
    base = [speed**p for p in (1.0, 2.0, 2.5, 3.0, 1.5, 0.7, 2.2)]
    columns = [part * (1 + a * (wear[:, 0] - 1) + b * (wear[:, 1] - 1)) for part, (a, b) in _pairs(base)]
    columns += [np.exp(-part) * (1 + b * (wear[:, 0] - 1)) for part, (_, b) in _pairs(base)]
    X = np.column_stack([*columns, np.full(n, 288.0), np.full(n, 1.0)])
    return _standard(X, wear[:, 0])


def folds(seed: int) -> Table:
    """A large table of heavy-tailed, correlated columns and a wide bimodal target."""
    rng = np.random.default_rng([6, seed])
    n = 41157 + TEST
    size = np.exp(0.4 * rng.standard_normal(n))
    X = np.column_stack([size**p * np.exp(0.15 * rng.standard_normal(n)) for p in (1, 1.1, 0.9, 1.4, 1.0)])
    X = np.column_stack([X, rng.standard_t(5, (n, 2)), X[:, 0] * X[:, 1], X[:, 2] / X[:, 3]])
    Z = np.log(np.abs(X) + 0.1)
    turn = 1.5 * np.sin(2 * Z[:, 0] + Z[:, 5]) + Z[:, 1] * Z[:, 6] - 0.8 * (X[:, 8] > 1) * Z[:, 2]
    far = rng.uniform(size=n) < 1 / (1 + np.exp(-1.5 * turn))
    y = np.where(far, 12 + 3.5 * rng.standard_normal(n), 3 + 1.5 * rng.standard_normal(n))
    return _standard(X, np.clip(y, 0, 21))


def rooms(seed: int) -> Table:
    """Prices of houses: skewed columns, kinks, noise that grows with the price."""
    rng = np.random.default_rng([7, seed])
    n = 15000 + TEST
    income = np.exp(0.5 * rng.standard_normal(n))
    place = rng.uniform(-1, 1, (n, 2))
    age, rooms_ = rng.uniform(0, 50, n), np.exp(0.3 * rng.standard_normal(n))
    near = np.exp(-4 * ((place[:, 0] - 0.3) ** 2 + (place[:, 1] + 0.4) ** 2))
    price = 0.6 * np.log(income) + 0.9 * near + 0.2 * np.sin(3 * place[:, 0]) + 0.15 * np.log(rooms_)
    price = price - 0.004 * np.maximum(age - 20, 0) + (0.15 + 0.1 * near) * rng.standard_normal(n)
    return _standard(np.column_stack([income, place, age, rooms_, income * rooms_]), price)


def wages(seed: int) -> Table:
    """Few records, indicator columns, a nearly linear answer."""
    rng = np.random.default_rng([8, seed])
    n = 2800 + TEST
    school, years = rng.integers(8, 20, n).astype(float), rng.uniform(0, 40, n)
    marks = (rng.uniform(size=(n, 6)) < np.array([0.5, 0.3, 0.2, 0.1, 0.15, 0.4])).astype(float)
    y = (
        0.08 * school
        + 0.04 * years
        - 0.0007 * years**2
        + marks @ np.array([0.2, -0.1, 0.15, -0.2, 0.05, 0.0])
    )
    X = np.column_stack([school, years, marks])
    return _standard(X, y + 0.45 * rng.standard_normal(n))


TABLES: dict[str, Callable[[int], Table]] = {
    "arm": arm,
    "friedman": friedman,
    "plant": plant,
    "tasting": tasting,
    "engine": engine,
    "folds": folds,
    "rooms": rooms,
    "wages": wages,
}
"""Every made table by name."""


def _pairs(base: list[Any]) -> list[tuple[Any, tuple[float, float]]]:
    """Each column with how strongly the two kinds of wear move it."""
    moved = [(0.9, 0.2), (0.3, 1.1), (-0.6, 0.5), (1.2, -0.4), (0.1, 0.9), (-0.8, -0.3), (0.5, 0.7)]
    return list(zip(base, moved, strict=True))


def _standard(X: Array, y: Array) -> Table:
    """Cut off the test part and standardise both by the training part."""
    train = slice(0, len(X) - TEST)
    scale = X[train].std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    X = (X - X[train].mean(axis=0)) / scale
    y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[len(X) - TEST :], y[len(X) - TEST :]
