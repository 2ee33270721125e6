"""The path of a private fit: what each release held beside its noise, and the estimate after it.

`path_` of an estimator is plain data: for each block of a release its size and the noise in it, and, where
there are few weights, the estimate after every release in the units of the table::

    {"blocks": [{"name": "mean", "size": [a number a release], "noise": [a number a release]}, ...],
     "estimates": None or {"names": [...], "mean": [[a number a name] a release], "sd": None or the same}}

``size`` is the root mean square of what was released, over the coordinates that noise was added to; ``noise``
is that noise's standard deviation in each of them. A size at the noise says that the release told nothing.

**Privacy.** Everything is computed from released vectors and public numbers, also in a run that is resumed,
whose kept releases pass by again: post-processing, which costs nothing. No record is seen here.
The proof is in docs/proofs/index.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.inference import sep_newton
from dpsep.inference.threads import one_thread

Array = NDArray[np.float64]

MOST_WEIGHTS = 200
"""Most weights of a fit whose estimates are kept: beyond, a matrix inverse a release would cost too much."""
MOST_CELLS = 200_000
"""Most numbers of the estimates' means, all releases together."""


class Table(NamedTuple):
    """A linear map from scaled weights to the units of the table: matrix times weights plus shift."""

    matrix: Array
    shift: Array


class Moments(NamedTuple):
    """An estimate in scaled units; `covariance` None where it is not known on the way."""

    mean: Array
    covariance: Array | None = None
    noise_covariance: Array | None = None


class Path:
    """Collects the path of one run.

    Parameters
    ----------
    estimates
        Whether estimates are kept.

    Examples
    --------
    >>> path = Path()
    >>> path.release({"mean": np.full(4, 3.0)}, {"mean": 0.5})
    >>> path.described(None)
    {'blocks': [{'name': 'mean', 'size': [3.0], 'noise': [0.5]}], 'estimates': None}
    """

    def __init__(self, *, estimates: bool = True) -> None:
        self._blocks: dict[str, tuple[list[float], list[float]]] = {}
        self._estimates: list[tuple[Array, Array | None, Array | None]] | None = [] if estimates else None

    def release(self, released: Mapping[str, Array], deviations: Mapping[str, float]) -> None:
        """Note what one release held.

        Parameters
        ----------
        released
            By block.
        deviations
            Of the noise of each block.
        """
        for name, value in released.items():
            sizes, noises = self._blocks.setdefault(name, ([], []))
            sizes.append(_size(np.asarray(value)))
            noises.append(float(deviations[name]))

    def estimate(self, table: Table, moments: Callable[[], Moments]) -> None:
        """Note the estimate after a release.

        Parameters
        ----------
        table
            To the units of the table.
        moments
            Computes the estimate; not called where there are too many weights.
        """
        names, weights = table.matrix.shape
        if self._estimates is None:
            return
        if weights > MOST_WEIGHTS or names * (len(self._estimates) + 1) > MOST_CELLS:
            self._estimates = None
            return
        try:
            with one_thread():
                self._estimates.append(_in_table(table, moments()))
        except (
            ArithmeticError,
            MemoryError,
            np.linalg.LinAlgError,
        ):  # a picture is not worth a run that was charged for
            self._estimates = None

    def described(self, names: Sequence[str] | None, *, noise_aware: bool = True) -> dict[str, Any]:
        """Return the path as plain data.

        Parameters
        ----------
        names
            Of the estimates; None for no estimates.
        noise_aware
            Whether standard deviations include the noise of privacy.
        """
        blocks = [
            {"name": name, "size": list(sizes), "noise": list(noises)}
            for name, (sizes, noises) in self._blocks.items()
        ]
        return {"blocks": blocks, "estimates": None if names is None else self._named(names, noise_aware)}

    def _named(self, names: Sequence[str], noise_aware: bool) -> dict[str, Any] | None:
        found = self._estimates or []
        releases = max((len(sizes) for sizes, _ in self._blocks.values()), default=0)
        if not found or len(found) != releases:
            return None
        sd = None
        if all(variance is not None for _, variance, _ in found):
            both = np.array([variance for _, variance, _ in found], np.float64)
            if noise_aware:
                both += np.array([0.0 * mean if noise is None else noise for mean, _, noise in found])
            sd = np.sqrt(np.maximum(both, 0.0)).tolist()
        return {"names": list(names), "mean": [mean.tolist() for mean, _, _ in found], "sd": sd}


def watch_stable(
    path: Path, settings: sep_newton.Settings, table: Table
) -> Callable[[sep_newton.State], None]:
    """Return what notes the states of a stable update as they come."""

    def moments(state: sep_newton.State) -> Moments:
        covariance = np.linalg.inv(np.asarray(sep_newton.posterior(settings, state).precision))
        return Moments(state.mean, covariance, sep_newton.noise_covariance(state))

    return lambda state: path.estimate(table, lambda: moments(state))


def _size(value: Array) -> float:
    """Root mean square over the coordinates of a block; of a symmetric matrix, over those of its triangle."""
    count = value.shape[0] * (value.shape[0] + 1) // 2 if value.ndim == 2 else value.size
    return float(np.linalg.norm(value)) / math.sqrt(count)


def _in_table(table: Table, found: Moments) -> tuple[Array, Array | None, Array | None]:
    """Mean, variances and variances due to noise, in the units of the table."""
    matrix, shift = table
    parts = [
        None if part is None else np.einsum("ij,jk,ik->i", matrix, part, matrix, optimize=True)
        for part in (found.covariance, found.noise_covariance)
    ]
    return matrix @ found.mean + shift, parts[0], parts[1]
