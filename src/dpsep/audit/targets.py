"""What `dpsep audit` attacks: small full-batch runs of every private method, and their made-up tables.

Tables have few records (more would not help an attacker who knows them all) and as many columns as give
canaries room. The number of trials grows as epsilon falls: what is to be seen is smaller.

A model of one's own is attacked twice: as a user writes it, and as an attacker would (`mixing`), whose
log-likelihood is made to let one record silence all that are computed beside it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DELTA = 1e-2
"""Delta of the audited runs: the larger it is, the fewer trials show half of an epsilon."""
RECORDS = 16


class Target(NamedTuple):
    """Something to be audited.

    Attributes
    ----------
    name
        How it is called in tables.
    make
        Returns the estimator for an epsilon.
    X, y
        Its table.
    canaries
        How many ride in a run.
    hostile
        Returns the estimator as an attacker would write it, for an epsilon, and a table; None where a user
        writes no part of it.
    """

    name: str
    make: Callable[[float], Any]
    X: Array
    y: Array | None
    canaries: int
    hostile: Callable[[float], tuple[Any, Array, Array]] | None = None


def targets(widen: int = 1) -> dict[str, Target]:
    """Return all targets by name.

    Parameters
    ----------
    widen
        Multiple of the usual numbers of columns and canaries, for an audit by one run.

    Examples
    --------
    >>> list(targets())
    ['linear', 'logistic', 'mixture', 'network', 'dp-vi', 'dp-em', 'own']
    """
    from dpsep.estimators import (
        BayesianModel,
        GaussianMixture,
        LinearRegression,
        LogisticRegression,
        NetworkRegressor,
    )
    from dpsep.models.custom import Linear

    box: dict[str, Any] = {"delta": DELTA, "bounds": (-1, 1)}
    aim: dict[str, Any] = box | {"target_bounds": (-1, 1)}
    wide, y = _table(64 * widen - 1)
    some, _ = _table(16 * widen - 1)
    middle, _ = _table(32 * widen - 1)
    labels = np.where(y > 0, 1.0, -1.0)

    def network(epsilon: float, **more: Any) -> Any:
        return NetworkRegressor(epsilon=epsilon, hidden=2, steps=2, **aim, **more)

    found = (
        Target("linear", lambda e: LinearRegression(epsilon=e, steps=2, **aim), wide, y, 64 * widen),
        Target(
            "logistic",
            lambda e: LogisticRegression(epsilon=e, classes=[-1, 1], steps=2, **box),
            wide,
            labels,
            64 * widen,
        ),
        Target("mixture", lambda e: GaussianMixture(2, epsilon=e, steps=1, **box), some, None, 32 * widen),
        Target("network", network, middle, y, 32 * widen),
        Target("dp-vi", lambda e: network(e, method="vi", sampling="full"), middle, y, 32 * widen),
        Target(
            "dp-em",
            lambda e: GaussianMixture(2, epsilon=e, steps=1, method="em", **box),
            some,
            None,
            32 * widen,
        ),
        Target(
            "own",
            lambda e: BayesianModel(
                logistic, links={"u": Linear()}, classes=[-1, 1], epsilon=e, steps=2, **box
            ),
            some,
            labels,
            16 * widen,
            lambda e: mixing(BayesianModel, e),
        ),
    )
    return {target.name: target for target in found}


def logistic(params: Any, record: Any) -> Any:
    """A log-likelihood as a user may write it."""
    return jax.nn.log_sigmoid(record.y * params["u"])


def convolved(params: Any, record: Any) -> Any:
    """A log-likelihood as an attacker may write it: a convolution multiplies what is beside a record by zero.

    Mapped over records the convolution is one operation on all of them, whose foreign parts count nothing:
    zero times a number. Zero times the target of a record that has none is no number.
    """
    first, second = jnp.stack([params["u"], record.y]), jnp.stack([record.y, jnp.ones(())])
    return -0.5 * (record.y - params["u"]) ** 2 + 1e-6 * jnp.sum(jnp.convolve(first, second))


def mixing(estimator: Callable[..., Any], epsilon: float) -> tuple[Any, Array, Array]:
    """Return an estimator by which one record would silence 127 others, and their table.

    Parameters
    ----------
    estimator
        `dpsep.BayesianModel`.
    epsilon
        What it shall claim.
    """
    from dpsep.models.custom import Linear

    generator = np.random.default_rng(7)
    X = generator.uniform(-1, 1, (127, 2))
    model = estimator(convolved, links={"u": Linear()}, epsilon=epsilon, delta=DELTA, bounds=(-1, 1), steps=1)
    return model, X, X[:, 0] + 0.1 * generator.standard_normal(len(X))


def trials_for(epsilon: float) -> int:
    """Return how many canaries a side show at least half of epsilon with 99.9 % confidence, with some room.

    Examples
    --------
    >>> trials_for(0.5), trials_for(1.0), trials_for(4.0)
    (12000, 6000, 1500)
    """
    return int(min(12000.0, max(1500.0, 6000.0 / epsilon)))


def _table(columns: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(columns)
    return generator.uniform(-1, 1, (RECORDS, columns)), generator.uniform(-1, 1, RECORDS)
