r"""Your own model: a log-likelihood of named parameters, and how records see them.

A model is a function `log_likelihood(params, record)` in JAX. `params` maps names to what a record sees under
them: the linear predictor of a *link*, u = w_0 + sum_j w_j x_j over declared columns, or a *shared* parameter
(a scale, cut points, a shape), as an array. `record` has `x`, the record's cells in the units of the table
(clamped to their bounds), and `y`, its target. All weights together have a Gaussian prior and posterior; a
positive parameter enters by its logarithm.

The local factor of a record lives on what the function sees: k numbers, the predictors and the shared
parameters (`dpsep.models.sites`), however many columns there are.

**Privacy.** The function is traced by JAX and mapped over records, and the gate proves of the program that
comes of it that it keeps records apart (`dpsep.privacy.isolation`). A record that cannot be used never
reaches the function: public values stand in for it. The proof is in docs/proofs/own-model.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.models.glm import Columns
from dpsep.models.multi_predictor import View
from dpsep.models.quadrature import Rule
from dpsep.models.sites import Factors

Array = NDArray[np.float64]


_STAND_IN = 1.0
"""Target that takes the place of one that cannot be used: a number, a count and a label's place."""


class Record(NamedTuple):
    """What a log-likelihood sees of one record.

    Attributes
    ----------
    x
        Cells, in the units of the table, clamped to their bounds.
    y
        Target; the place of a label among declared classes.

    Examples
    --------
    >>> record = Record(x=[41.0, 0.5], y=1.0)
    >>> record.x[0], record.y
    (41.0, 1.0)
    """

    x: Any
    y: Any


class Linear(NamedTuple):
    """A linear predictor.

    Attributes
    ----------
    columns
        Names or places of the columns; None for all.
    intercept
        Whether it has an intercept.

    Examples
    --------
    >>> Linear(columns=["age", "dose"], intercept=False)
    Linear(columns=['age', 'dose'], intercept=False)
    """

    columns: Sequence[str] | Sequence[int] | None = None
    intercept: bool = True


class Normal(NamedTuple):
    """A Gaussian prior: of a shared parameter, or of each scaled weight of a link.

    Attributes
    ----------
    mean, sd
        Moments. The intercept of a link has ten times the sd.
    shape
        Of a shared parameter, () for a number.

    Examples
    --------
    >>> Normal(0.0, 2.0)
    Normal(mean=0.0, sd=2.0, shape=())
    """

    mean: float = 0.0
    sd: float = 1.0
    shape: tuple[int, ...] = ()


class Place(NamedTuple):
    """Where a parameter's weights are.

    Attributes
    ----------
    name
        Of the parameter.
    start, size
        Its weights among all.
    columns
        Of a link: places of its columns; None for a shared parameter.
    intercept
        Of a link: whether its first weight is an intercept.
    shape
        Of a shared parameter.
    """

    name: str
    start: int
    size: int
    columns: tuple[int, ...] | None = None
    intercept: bool = False
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class CustomModel:
    """A log-likelihood, where its parameters are, and how local factors are found.

    Parameters
    ----------
    log_likelihood
        Of named parameters and a `Record`.
    places
        Links first, then shared parameters.
    factors, rule
        How local factors are found.
    """

    log_likelihood: Callable[[dict[str, Any], Record], Any]
    places: tuple[Place, ...]
    factors: Factors = "quadrature"
    rule: Rule = "robust"

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return sum(place.size for place in self.places)

    @property
    def numbers(self) -> int:
        """How many numbers a record sees."""
        return sum(1 if place.columns is not None else place.size for place in self.places)

    def view(self, features: Columns, outcome: Columns, unit: tuple[jax.Array, ...]) -> View:
        """How a record (x, y) sees the weights."""
        del outcome  # the likelihood is of the target as it stands
        cells, y = unit
        usable = jnp.all(jnp.isfinite(cells)) & jnp.isfinite(y)
        # What cannot be used is replaced by public values before the user's function sees it; the unit is
        # selected away after.
        cells, y = jnp.where(usable, cells, features.centre), jnp.where(usable, y, _STAND_IN)
        scaled = features.apply(cells)
        record = Record(jnp.clip(cells, features.low, features.high), y)

        def log_likelihood(z: jax.Array) -> jax.Array:
            return jnp.asarray(self.log_likelihood(self.params(z), record), z.dtype).reshape(())

        linked = any(place.columns is not None for place in self.places)
        return View(self.rows(scaled) if linked else None, log_likelihood, usable)

    def rows(self, scaled: jax.Array) -> jax.Array:
        """A of z = A w, from scaled cells; shape (k, d)."""
        rows = []
        for place in self.places:
            if place.columns is None:
                rows.append(
                    jnp.eye(self.dimension, dtype=scaled.dtype)[place.start : place.start + place.size]
                )
                continue
            ones = [jnp.ones(1, scaled.dtype)] if place.intercept else []
            part = jnp.concatenate([*ones, scaled[np.asarray(place.columns, int)]])
            row = jnp.zeros(self.dimension, scaled.dtype).at[place.start : place.start + place.size].set(part)
            rows.append(row[None, :])
        return jnp.concatenate(rows)

    def params(self, z: jax.Array) -> dict[str, Any]:
        """Named parameters of the numbers that a record sees."""
        found, at = {}, 0
        for place in self.places:
            if place.columns is not None:
                found[place.name], at = z[at], at + 1
            else:
                found[place.name], at = z[at : at + place.size].reshape(place.shape), at + place.size
        return found


def arrange(
    links: Mapping[str, Linear] | None,
    prior: Mapping[str, Any] | None,
    columns: int,
    names: Sequence[str] | None,
) -> tuple[tuple[Place, ...], Array, Array]:
    """Return the places of all parameters, their prior means and their prior standard deviations.

    Parameters
    ----------
    links
        Linear predictors by name.
    prior
        `Normal`, or a standard deviation, by name. Names that are no links are shared parameters. A link
        without one has standard deviation 2.
    columns, names
        Of the table.

    Examples
    --------
    >>> places, mean, sd = arrange({"u": Linear()}, {"u": 2.0, "log_scale": Normal(-1, 1)}, 2, None)
    >>> [place.size for place in places], sd
    ([3, 1], array([20.,  2.,  2.,  1.]))
    """
    links, prior = dict(links or {}), dict(prior or {})
    if not links and not prior:
        raise ValueError("a model needs parameters: name linear predictors in links=, others in prior=.")
    places, means, deviations, start = [], [], [], 0
    for name, link in links.items():
        if not isinstance(link, Linear):
            raise ValueError(f"links[{name!r}] must be a dpsep.Linear, not a {type(link).__name__}.")
        normal = _normal(name, prior.pop(name, 2.0))
        if normal.shape != ():
            raise ValueError(f"the prior of link {name!r} is of each of its weights; leave its shape out.")
        own = _columns(name, link.columns, columns, names)
        size = len(own) + link.intercept
        if size == 0:
            raise ValueError(f"link {name!r} has no columns and no intercept; give it one of them.")
        places.append(Place(name, start, size, own, bool(link.intercept)))
        wide = [10.0 * normal.sd] if link.intercept else []
        means.append(np.full(size, normal.mean))
        deviations.append(np.array([*wide, *[normal.sd] * len(own)]))
        start += size
    for name, given in prior.items():
        normal = _normal(name, given)
        size = math.prod(normal.shape)
        places.append(Place(name, start, size, shape=tuple(normal.shape)))
        means.append(np.full(size, float(normal.mean)))
        deviations.append(np.full(size, float(normal.sd)))
        start += size
    return tuple(places), np.concatenate(means), np.concatenate(deviations)


def weight_names(places: Sequence[Place], columns: Sequence[str]) -> tuple[str, ...]:
    """Name every weight: by column where there is one link, by link and column where there are more."""
    single = sum(place.columns is not None for place in places) == 1
    names: list[str] = []
    for place in places:
        if place.columns is None:
            marks = [",".join(map(str, at)) for at in np.ndindex(*place.shape)]
            names += [f"{place.name}[{mark}]" if mark else place.name for mark in marks]
        else:
            own = [*(["intercept"] if place.intercept else []), *(columns[at] for at in place.columns)]
            names += own if single else [f"{place.name}:{name}" for name in own]
    return tuple(names)


def check_pure(model: CustomModel, columns: int) -> None:
    """Refuse a log-likelihood that JAX cannot trace to one number.

    What it may not hold is looked for later, in all that is computed from it (`dpsep.models.frozen`).
    """
    z = jax.ShapeDtypeStruct((model.numbers,), jnp.float64)
    x, y = jax.ShapeDtypeStruct((columns,), jnp.float64), jax.ShapeDtypeStruct((), jnp.float64)
    try:
        with jax.enable_x64(True):
            shape = jax.eval_shape(
                lambda z, x, y: model.log_likelihood(model.params(z), Record(x, y)), z, x, y
            )
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"log_likelihood cannot be traced by JAX ({type(error).__name__}: {reason}). It gets (params, "
            "record), must use jax.numpy and may not branch on their values."
        ) from error
    leaf = jax.tree.leaves(shape)
    if len(leaf) != 1 or math.prod(leaf[0].shape) != 1:
        raise ValueError("log_likelihood must return one number: the log density of one record.")


def _normal(name: str, given: Any) -> Normal:
    if isinstance(given, Real):
        given = Normal(0.0, float(given))
    if not isinstance(given, Normal):
        raise ValueError(
            f"prior[{name!r}] must be a dpsep.Normal or a standard deviation, not a {type(given).__name__}."
        )
    if not (math.isfinite(given.mean) and 0 < given.sd < math.inf):
        raise ValueError(
            f"prior[{name!r}] needs a finite mean and a positive sd, not {given.mean} and {given.sd}."
        )
    return given


def _columns(name: str, wanted: Any, columns: int, names: Sequence[str] | None) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(columns))
    found = []
    for one in wanted:
        if isinstance(one, str):
            if names is None or one not in names:
                shown = "the table has no column names" if names is None else f"they are {list(names)[:8]}"
                raise ValueError(f"link {name!r} names the column {one!r}; {shown}.")
            found.append(list(names).index(one))
        elif isinstance(one, int | np.integer) and 0 <= one < columns:
            found.append(int(one))
        else:
            raise ValueError(f"link {name!r} names the column {one!r}; columns are 0 to {columns - 1}.")
    return tuple(found)
