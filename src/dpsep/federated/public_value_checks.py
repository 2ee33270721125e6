r"""Shapes of what a server may ask for: contributions with sane fields, and public values that fit the table.

A contribution reads a chunk of records at a time, and NumPy's rules would let a public array with one entry
*a slot of the chunk* stand where one number, or one a column, belongs. A record's contribution would then be
a function of its slot, and under sampling the slot depends on who else was drawn. So a site takes public
values of exactly one shape each: with d columns of features and k weights (d, and one for an intercept),

==========================  ==============================================================================
contribution                public values
==========================  ==============================================================================
GLM, linear                 columns of features (d,), of the outcome (); half (k, k); cavity_mean and centre
                            (k,); noise scalars
leverages, second moments   columns as above; map (k, k); cap scalar
reaches, weighted factors   columns as above; map, half and doubt (k, k); cavity_mean and centre (k,); noise
                            scalars; cut, widest and dispersion scalars; caps, one of each size
natural                     columns as above; a cavity (k,) and (k, k), with learned noise two scalars more
counts of magnitudes        none
counts in equal bins        low and high (c,), c the columns of all arrays of a record
==========================  ==============================================================================

**Privacy.** What a record adds is then a function of the record and of public values alone, wherever in a
chunk it stands, which is what amplification by sampling needs (`dpsep.privacy.grid.Contribution`). Everything
here looks at types and shapes; no record is read.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from dpsep.estimators.natural import NaturalContribution
from dpsep.families import Gamma, Gaussian
from dpsep.federated.codec import WireError
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns, GLMContribution, LinearContribution, Public
from dpsep.models.linear import LearnedNoise, WeightsAndNoise
from dpsep.models.quadrature import RULES
from dpsep.models.weighted import Leverages, Reaches, SecondMoments, Seen, Steered, WeightedFactors
from dpsep.privacy.grid import Block
from dpsep.privacy.scaling import LinearCounts, MagnitudeCounts
from dpsep.registry import regressions

MOST_BINS = 1 << 16
"""Most bins of a histogram."""
MOST_PRECISION = 1e12
"""Largest number of a likelihood: a noise precision, or a guess of a curvature."""

_LIKELIHOODS = tuple(entry.load().likelihood for entry in regressions())
_NOISES = (LearnedNoise, ConcentratedNoise)
_KINDS: dict[type, tuple[tuple[str, ...], ...]] = {
    GLMContribution: (("flat", "outer"),),
    LinearContribution: (("flat", "outer", "flat"),),
    Leverages: (("flat",),),
    SecondMoments: (("outer",),),
    Reaches: (("flat", "flat"), ("flat", "flat", "flat")),
    WeightedFactors: (("flat", "outer", "outer"), ("flat", "outer", "outer", "flat")),
    NaturalContribution: (("flat",),),
    MagnitudeCounts: (("count",),),
    LinearCounts: (("count",),),
}
"""What may be asked of records, and the kinds of its blocks; several where a likelihood may have more."""


def check_contribution(contribution: Any, arrays: tuple[int, ...], blocks: Sequence[Block]) -> None:
    """Raise `WireError` where a contribution is not one of those allowed, or its fields or blocks are not.

    Parameters
    ----------
    arrays
        Which arrays of a record it reads.
    blocks
        The parts of its release, checked one by one.
    """
    kinds = _KINDS.get(type(contribution))
    if kinds is None:
        raise WireError("what is asked of records is no contribution that a site computes.")
    if tuple(block.kind for block in blocks) not in kinds:
        allowed = " or ".join(", ".join(one) for one in kinds)
        raise WireError(f"a {type(contribution).__name__} needs blocks of the kinds {allowed}.")
    if isinstance(contribution, MagnitudeCounts | LinearCounts):
        good = type(contribution.bins) is int and 1 <= contribution.bins <= MOST_BINS
        good = good and blocks[0].bins == contribution.bins
        if isinstance(contribution, MagnitudeCounts):
            good = good and contribution == MagnitudeCounts()
    else:
        good = arrays == (0, 1) and _is_model(contribution)
    if not good:
        raise WireError(f"the fields of a {type(contribution).__name__} are none that a site computes with.")


def check_public(contribution: Any, columns: tuple[int, ...], public: Any) -> None:
    """Raise `WireError` where public values are not of the types and shapes that a contribution needs.

    Parameters
    ----------
    contribution
        One that passed `check_contribution`.
    columns
        Of each array of a record that it reads; 0 for a vector.
    public
        What it may depend on besides the record.

    Examples
    --------
    >>> check_public(LinearCounts(4), (2, 0), (np.zeros(3), np.ones(3)))
    >>> check_public(LinearCounts(4), (2, 0), (np.zeros((8, 3)), np.ones(3)))
    Traceback (most recent call last):
    dpsep.federated.codec.WireError: public values of a LinearCounts are not of the shapes that it needs.
    """
    if isinstance(contribution, MagnitudeCounts):
        good = public is None
    elif isinstance(contribution, LinearCounts):
        count = sum(max(one, 1) for one in columns)
        good = type(public) is tuple and _are(public, (count,), (count,))
    else:
        d = columns[0]
        k = d + int(contribution.intercept)
        if isinstance(contribution, NaturalContribution):
            learned = contribution.learned_noise
            good = type(public) is tuple and len(public) == 3 and _is_cavity(public[2], k, learned)
        elif isinstance(contribution, Leverages | SecondMoments):
            good = type(public) is Seen and _are(public[2:], (k, k), ())
        elif isinstance(contribution, Reaches | WeightedFactors):
            good = type(public) is Steered and _is_steered(contribution, public, k)
        else:
            good = type(public) is Public and _are(public[2:5], (k, k), (k,), (k,)) and _is_gamma(public[5])
        good = good and _is_columns(public[0], (d,)) and _is_columns(public[1], ())
    if not good:
        raise WireError(
            f"public values of a {type(contribution).__name__} are not of the shapes that it needs."
        )


def _is_steered(contribution: Reaches | WeightedFactors, public: Steered, k: int) -> bool:
    sizes = 3 if isinstance(contribution, Reaches) and isinstance(contribution.likelihood, _NOISES) else 2
    shapes = ((k, k), (k, k), (k, k), (k,), (k,))
    return _are(public[2:7], *shapes) and _is_gamma(public[7]) and _are(public[8:], (), (), (), (sizes,))


def _is_model(contribution: Any) -> bool:
    if isinstance(contribution, Leverages | SecondMoments):
        return type(contribution.intercept) is bool
    if isinstance(contribution, LinearContribution):
        likelihood, allowed = contribution.model, _NOISES
    else:
        likelihood = contribution.likelihood
        allowed = _LIKELIHOODS if isinstance(contribution, GLMContribution) else (*_LIKELIHOODS, *_NOISES)
    if type(likelihood) not in allowed or type(contribution.intercept) is not bool:
        return False
    return all(_is_field(field.name, getattr(likelihood, field.name)) for field in fields(likelihood))


def _is_field(name: str, value: Any) -> bool:
    """Say whether a likelihood's field is as a fit sends it: a quadrature rule, or a positive number."""
    if name == "rule":
        return isinstance(value, str) and value in RULES
    return type(value) is float and 0 < value <= MOST_PRECISION


def _is_columns(value: Any, shape: tuple[int, ...]) -> bool:
    return type(value) is Columns and _are(value, shape, shape, shape, shape)


def _is_gamma(value: Any) -> bool:
    return type(value) is Gamma and _are(value, (), ())


def _is_cavity(value: Any, k: int, learned: bool) -> bool:
    if not learned:
        return type(value) is Gaussian and _are(value, (k,), (k, k))
    return type(value) is WeightsAndNoise and _is_cavity(value.weights, k, False) and _is_gamma(value.noise)


def _are(values: Sequence[Any], *shapes: tuple[int, ...]) -> bool:
    """Say whether values are arrays of doubles of exactly these shapes."""
    return len(values) == len(shapes) and all(map(_is, values, shapes))


def _is(value: Any, shape: tuple[int, ...]) -> bool:
    kind = isinstance(value, np.ndarray | np.floating | jax.Array)
    return kind and value.shape == shape and value.dtype == np.float64
