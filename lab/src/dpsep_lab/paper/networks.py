r"""The network experiments of Tables 3 to 9: splits, scores and ways to fit.

A `Split` is one of the customary train and test parts of a set, with the training part's means and standard
deviations taken as public, as in the paper ("all the training datasets are normalized"). One hidden layer of
50 rectified units, 100 for Protein and Year. `Scores` are in the target's own units: root mean squared error
of the predictive mean and mean log predictive density over the test part.

`ours` fits `dpsep.NetworkRegressor` with its defaults; `dpsep_lab.paper.network_written` has the paper's own
algorithm. Our private fits here are seeded by the split: they measure and release nothing.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep_lab.data import UCI, DataError, load_uci, splits

__all__ = ["Case", "Loaded", "Refused", "Scores", "Split", "load", "load_all", "ours", "score", "split_of"]

Array = NDArray[np.float64]

DELTA = 1e-5
HIDDEN = {"protein": 100, "year": 100}
"""Hidden units where they are not 50."""


class Split(NamedTuple):
    """Train and test part of a set, in the table's own units, and the training part's scaling.

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
    hidden
        Units of the hidden layer.
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
    hidden: int

    @property
    def standardised(self) -> tuple[Array, Array]:
        """Features and target of the training part by its own scaling."""
        return self.standard(self.X), (self.y - self.target_centre) / self.target_scale

    def standard(self, X: Array) -> Array:
        """Scale features by the training part's statistics."""
        return (X - self.centre) / self.scale

    def fewer(self, records: int) -> "Split":
        """Train on at most so many records, evenly spaced, with their own scaling."""
        if records >= len(self.y):
            return self
        rows = np.linspace(0, len(self.y) - 1, records).astype(np.int64)
        train = (self.X[rows], self.y[rows])
        return split_of(self.dataset, self.number, train, (self.X_test, self.y_test))


class Scores(NamedTuple):
    """Test RMSE and mean test log-likelihood in the target's units, and how long the fit took."""

    rmse: float
    log_likelihood: float
    seconds: float = 0.0


class Case(NamedTuple):
    """One way to fit, as one line of a table.

    Attributes
    ----------
    row
        Row of the table it belongs to.
    source
        ``"as written"``, ``"as accounted"`` or ``"ours"``.
    method, epsilon, relation
        What it is; epsilon None for none.
    scaling
        ``"public"`` or ``"private"``.
    settings
        Everything that the result depends on beside the split: two cases of the same settings share a fit.
    fit
        From a split to its scores.
    """

    row: str
    source: str
    method: str
    epsilon: float | None
    relation: str
    scaling: str
    settings: dict[str, Any]
    fit: Callable[[Split], Scores]


class Refused(RuntimeError):
    """A method cannot be run on a set: too large for it."""


class Loaded(NamedTuple):
    """A set and its customary splits."""

    table: UCI
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]]

    def split(self, number: int) -> Split:
        """Return a split by its number, from 0."""
        (X, y, _, name), (train, test) = self.table, self.parts[number]
        return split_of(name, number, (X[train], y[train]), (X[test], y[test]))


def load(dataset: str) -> Loaded:
    """Return a set by its name; `dpsep.data.DataError` where it cannot be had."""
    return Loaded(load_uci(dataset), splits(dataset))


def load_all(names: Sequence[str]) -> tuple[dict[str, Loaded], dict[str, str]]:
    """Return the sets that are there, and why the others are not.

    Parameters
    ----------
    names
        Of the sets.
    """
    loaded, missing = {}, {}
    for name in names:
        try:
            loaded[name] = load(name)
        except DataError as error:
            missing[name] = str(error)
    return loaded, missing


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
    middle, spread = float(y.mean()), float(y.std()) or 1.0
    return Split(
        *(dataset, number, X, y, X_test, y_test, centre, scale, middle, spread), HIDDEN.get(dataset, 50)
    )


def score(split: Split, mean: Array, log_density: Array, seconds: float = 0.0) -> Scores:
    """Return the scores of a prediction of the test part.

    Parameters
    ----------
    split
        Of which the test target is compared.
    mean, log_density
        Predictive means, and log predictive densities at the test target, both in the target's own units.
    seconds
        How long the fit took.
    """
    rmse = math.sqrt(float(np.mean((np.asarray(mean) - split.y_test) ** 2)))
    return Scores(rmse, float(np.mean(np.asarray(log_density))), seconds)


def ours(**parameters: Any) -> Callable[[Split], Scores]:
    """Return a fit by `dpsep.NetworkRegressor`, seeded by the split.

    Parameters
    ----------
    parameters
        Of the estimator; ``scaling="public"`` (default) declares the training part's standardisation as
        public, ``"private"`` leaves scaling to the estimator, inside epsilon. Without ``hidden`` it has the
        paper's hidden units.
    """
    scaling = parameters.pop("scaling", "public")
    # EP keeps a factor for each record and refuses what is too large for that.
    refusals = (MemoryError, ValueError) if parameters.get("method") == "ep" else (MemoryError,)

    def fit(split: Split) -> Scores:
        from dpsep.estimators import NetworkRegressor

        declared: dict[str, Any] = {}
        if scaling == "public":
            declared["public_scaling"] = (
                (split.centre, split.scale),
                (split.target_centre, split.target_scale),
            )
        given = {"hidden": (split.hidden,), "delta": DELTA, "random_state": split.number, **declared}
        model = NetworkRegressor(**(given | parameters))
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded: an experiment, not a release
            try:
                model.fit(split.X, split.y)
            except refusals as error:
                raise Refused(str(error)) from error
        seconds = time.perf_counter() - start
        density = model.log_predictive_density(split.X_test, split.y_test)
        return score(split, model.predict(split.X_test), density, seconds)

    return fit
