r"""Rounds, bytes and accuracy of federated fits, measured: one-step rounds against partitioned EP.

Made logistic rows are shared out over sites of unequal size. Both kinds of fit run in mode ``"own"`` at the
same epsilon for every site, so that what differs is how often the sites are asked. The error of a fit is that
of its posterior mean from the posterior of all rows together without privacy, in that posterior's standard
deviations (root mean square over weights); `noise` is what the fit says of the noise in its mean, in the same
units, and should be about as large as the error.

**Privacy.** For made rows: the reference is fitted without privacy.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.glm import LogisticRegression
from dpsep.federated.federation import Federation
from dpsep.federated.fitting import fit
from dpsep.federated.partitioned import fit_partitioned
from dpsep.federated.site import Site
from dpsep.federated.transport import InProcess
from dpsep.privacy.ledger import Ledger
from dpsep.theory.glm_defaults import WeakBudgetWarning
from dpsep.theory.weighted_defaults import APPROACH_STEPS, FIT_STEPS, LOOKS, MOMENTS_RELEASES

__all__ = ["Measured", "Way", "compare", "made_sites", "one_step", "partitioned"]

Array = NDArray[np.float64]
_DELTA = 1e-5


class Measured(NamedTuple):
    """One fit: how often sites were asked, what travelled, and how near it came."""

    way: str
    sites: int
    rounds: int
    bytes: int
    error: float
    noise: float
    seconds: float


class Way(NamedTuple):
    """A way to fit: its name, how often it asks a site for numbers, and the fit itself."""

    name: str
    rounds: int
    fit: Callable[[LogisticRegression, Federation], LogisticRegression]


def one_step(steps: int) -> Way:
    """Mode ``"own"`` with one release a round; `steps` of the last stage, after those that find the way."""

    def run(model: LogisticRegression, federation: Federation) -> LogisticRegression:
        return fit(model.set_params(steps=steps), federation)

    way = min(APPROACH_STEPS, max(1, round(steps * APPROACH_STEPS / FIT_STEPS)))
    return Way(f"one step x {steps}", MOMENTS_RELEASES + way + LOOKS + steps, run)


def partitioned(rounds: int, local: int, *, asynchronous: bool = False, damping: float = 1.0) -> Way:
    """Partitioned EP."""

    def run(model: LogisticRegression, federation: Federation) -> LogisticRegression:
        return fit_partitioned(
            model, federation, rounds=rounds, local=local, asynchronous=asynchronous, damping=damping
        )

    name = f"partitioned {rounds} x {local}" + (", asynchronous" if asynchronous else "")
    return Way(name, rounds, run)


def made_sites(
    rows: int, weights: int, sites: int, folder: Path, seed: int
) -> tuple[dict[str, Site], Array, NDArray[np.bool_]]:
    """Return sites of unequal size with made logistic rows, and all rows together."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, weights))
    y = rng.uniform(size=rows) < 1 / (1 + np.exp(-0.5 - X @ (1.5 * rng.standard_normal(weights))))
    least = rows // (4 * sites)
    extra = np.floor(rng.dirichlet(np.full(sites, 2.0)) * (rows - least * sites)).astype(int)
    cuts = np.concatenate([[0], np.cumsum(extra + least)])
    cuts[-1] = rows
    found = {}
    for index in range(sites):
        home = folder / f"site{index}"
        home.mkdir(parents=True)
        ledger = Ledger.create(home / "ledger", epsilon=1e6, delta=0.5)
        part = slice(cuts[index], cuts[index + 1])
        found[home.name] = Site(home.name, (X[part], y[part]), ledger, home / "state")
    return found, X, y


def compare(
    ways: Iterable[Way],
    *,
    rows: int = 20_000,
    weights: int = 5,
    sites: int = 5,
    epsilon: float = 2.0,
    repeats: int = 1,
    seed: int = 0,
) -> list[Measured]:
    """Fit made rows in several ways at one epsilon; return what each took and reached, averaged over repeats.

    Parameters
    ----------
    ways
        From `one_step` and `partitioned`.
    rows, weights, sites
        Of the made table.
    epsilon
        Of every site's own guarantee, at delta 1e-5.
    repeats
        Fits that numbers are averaged over (errors as root mean squares), each with rows of its own.
    seed
        Of the rows; the noise is fresh.
    """
    ways = tuple(ways)
    found: dict[str, list[Measured]] = {way.name: [] for way in ways}
    for repeat in range(repeats):
        for way in ways:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore", WeakBudgetWarning)
                there, X, y = made_sites(rows, weights, sites, Path(folder), seed + repeat)
                truth = LogisticRegression(private=False, bounds=(-1, 1)).fit(X, y).posterior_
                transport = InProcess(there)
                start = time.perf_counter()
                model = LogisticRegression(epsilon, _DELTA, bounds=(-1, 1), classes=[False, True])
                made = way.fit(model, Federation(transport, mode="own")).posterior_
                spent = time.perf_counter() - start
            unit = np.sqrt(np.diag(truth.covariance))
            error = _size((made.mean - truth.mean) / unit)
            noise = _size(np.sqrt(np.diag(made.noise_covariance)) / unit)
            travelled = transport.sent + transport.received
            found[way.name].append(Measured(way.name, sites, way.rounds, travelled, error, noise, spent))
    return [_averaged(several) for several in found.values()]


def _averaged(several: list[Measured]) -> Measured:
    first = several[0]
    return first._replace(
        bytes=round(float(np.mean([one.bytes for one in several]))),
        error=_size(np.array([one.error for one in several])),
        noise=_size(np.array([one.noise for one in several])),
        seconds=float(np.mean([one.seconds for one in several])),
    )


def _size(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
