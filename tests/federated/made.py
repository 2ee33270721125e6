"""Made data, sites of it and what tests of federations share."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsep import Ledger, LogisticRegression
from dpsep.federated import Federation, InProcess, Site
from dpsep.federated.fitting import _budget, _terms
from dpsep.federated.gate import FederatedGate
from dpsep.federated.terms import Terms
from dpsep.federated.transport import Fault
from dpsep.privacy.noise import SeededStream

CUTS = (0, 100, 240, 600)
WEIGHTS = np.array([2.0, -1.0])


def table(rows: int = 600, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rows of a logistic regression with two weights."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 2))
    return X, rng.uniform(size=rows) < 1 / (1 + np.exp(-X @ WEIGHTS))


def make_sites(
    folder: Path,
    records: tuple[Any, Any] | None = None,
    *,
    cuts: tuple[int, ...] = CUTS,
    epsilon: float = 3.0,
    seeded: bool = False,
    **settings: Any,
) -> dict[str, Site]:
    """Sites that hold consecutive rows of a table."""
    X, y = table(cuts[-1]) if records is None else records
    sites = {}
    for index, (start, stop) in enumerate(itertools.pairwise(cuts)):
        name = "abcdefghij"[index]
        home = folder / name
        home.mkdir(parents=True)
        ledger = Ledger.create(home / "ledger", epsilon=epsilon, delta=1e-2)
        stream = SeededStream(index) if seeded else None
        sites[name] = Site(
            name, (X[start:stop], y[start:stop]), ledger, home / "state", stream=stream, **settings
        )
    return sites


def federate(sites: dict[str, Site], faults: dict[str, Fault] | None = None, **rules: Any) -> Federation:
    """A federation of sites in this process."""
    return Federation(InProcess(sites, faults), **rules)


def logistic(**changes: Any) -> LogisticRegression:
    """A quick private logistic regression."""
    settings = {"epsilon": 1.0, "delta": 1e-4, "classes": [False, True], "bounds": (-1, 1), "steps": 4}
    return LogisticRegression(**(settings | changes))  # pyright: ignore[reportArgumentType]


def terms_of(sites: dict[str, Site], model: LogisticRegression | None = None, **rules: Any) -> Terms:
    """Terms of a fit, as a server would offer them."""
    federation = federate(sites, **rules)
    # One part, whose rounds a test can count.
    model = logistic(update="natural", clip=1.0) if model is None else model
    model.classes_ = np.array([False, True])
    return _terms(model, federation, _budget(model, federation))


@contextmanager
def watched_releases() -> Iterator[list[tuple[int, float]]]:
    """Records and expected batch after each release made meanwhile."""
    seen: list[tuple[int, float]] = []
    real = FederatedGate.release

    def watching(self: FederatedGate, public: Any) -> Any:
        found = real(self, public)
        seen.append((self.records, self.expected_batch))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FederatedGate, "release", watching)
        yield seen
