"""Random cases for the bounds: where the corrected one must hold, and where the printed one does not.

A case is a posterior, two scales of noise and a rho. `random_cases` spreads them over condition numbers from
1 to 1e6, random rotations, means of four kinds and noise from far below to far above the smallest eigenvalue.
`check_corrected` compares the corrected bound with Monte Carlo in each. `search_printed` sorts cases into
undefined, failed and held for the printed bound at its best M, and then climbs towards failure.

Contract: a bound fails in a case if it lies below the sample mean by more than four standard errors and a
part in 1e9, for rounding; a sample of a heavy tail may hide a failure but does not make one up.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from dpsep.families import Gaussian
from dpsep_lab.theorem.corrected_bound import corrected_bound
from dpsep_lab.theorem.expected_kl import Array, Estimate, Rule, expected_kl_batch
from dpsep_lab.theorem.printed_bound import Reading, best_M, printed_bound

ERRORS = 4.0
"""Standard errors by which a sample mean must exceed a bound to count as a failure."""
ROUNDING = 1e-9
"""Share of a sample mean that is left to rounding, where condition numbers reach 1e6."""
FLOORS = (1.0, 0.5, 0.1, 1e-2, 1e-4, 3.0)
"""rho in units of the smallest eigenvalue."""
KINDS = ("zero", "random", "lowest", "highest")
"""Directions of eta: none, random, along the eigenvector of the smallest or of the largest eigenvalue."""

OnStep = Callable[[int, int], None] | None
Outcome = Literal["undefined", "fails", "holds"]


class Cases(NamedTuple):
    """Cases of one dimension d, arrays over n cases.

    Attributes
    ----------
    eta, precision
        Natural parameters of the posteriors, shapes (n, d) and (n, d, d).
    sigma_1, sigma_2, rho
        Scales of the noise and the rule's constant, shape (n,).
    """

    eta: Array
    precision: Array
    sigma_1: Array
    sigma_2: Array
    rho: Array

    def posterior(self, place: int) -> Gaussian:
        """The posterior of one case, in float64 on the host."""
        return Gaussian(self.eta[place], self.precision[place])  # pyright: ignore[reportArgumentType]

    def take(self, places: Array) -> "Cases":
        """Some of the cases."""
        return Cases._make(part[places] for part in self)


class Bucket(NamedTuple):
    """Tightness, bound over sample mean, of the cases with one rho and one decade of sigma_2.

    Both are in units of the smallest eigenvalue.
    """

    rho: float
    decade: int
    size: int
    violations: int
    median: float
    largest: float


class Check(NamedTuple):
    """Outcome of `check_corrected`: how many cases, which of them failed, the ratios, the buckets."""

    size: int
    violations: Array
    tightness: Array
    buckets: tuple[Bucket, ...]


class Search(NamedTuple):
    """Outcome of `search_printed`.

    Attributes
    ----------
    undefined, fails, holds
        How many random cases fell into each class.
    case
        The case, of one, in which the sample mean uses up most of the room between `start` and `bound`; above
        one the bound fails.
    mean, standard_error
        Monte Carlo in that case, with fresh draws.
    bound, start
        The printed bound in that case, and its limit as sigma_2 goes to zero.
    """

    undefined: int
    fails: int
    holds: int
    case: Cases
    mean: float
    standard_error: float
    bound: float
    start: float


def random_cases(dimension: int, count: int, seed: int = 0, *, defined: bool = False) -> Cases:
    """Cases over all that matters; with `defined`, sigma_2 is small enough for the printed bound to exist.

    Examples
    --------
    >>> random_cases(3, 5).precision.shape
    (5, 3, 3)
    """
    if dimension < 1 or count < 1:
        raise ValueError(f"dimension is {dimension} and count {count}; both must be at least 1")
    rng = np.random.default_rng([dimension, seed])
    least = 10.0 ** rng.uniform(-2, 2, count)
    spread = np.sort(rng.uniform(size=(count, dimension)), 1)
    spread -= spread[:, :1]
    spread[:, -1] = 1.0 if dimension > 1 else 0.0
    values = least[:, None] * 10.0 ** (rng.uniform(0, 6, count)[:, None] * spread)
    rotation = np.linalg.qr(rng.normal(size=(count, dimension, dimension)))[0]
    rho = least * rng.choice(FLOORS, count)
    sigma_2 = least * 10.0 ** rng.uniform(-6, 1, count)
    if defined:
        limit = rho / (2.0 * np.sqrt(2.0 * dimension * np.log(dimension))) if dimension > 1 else sigma_2
        sigma_2 = limit * 10.0 ** rng.uniform(-4, -1e-3, count)
    return Cases(
        _etas(rng, values, rotation),
        _assemble(values, rotation),
        least * 10.0 ** rng.uniform(-6, 1, count),
        sigma_2,
        rho,
    )


def check_corrected(
    cases: Cases, *, draws: int = 2_000, seed: int = 0, factor: float = 1.0, on_step: OnStep = None
) -> Check:
    """Compare the corrected bound with Monte Carlo, case by case.

    Parameters
    ----------
    cases
        Cases of one dimension.
    draws, seed
        Of the Monte Carlo estimates.
    factor
        Multiplies the bound; below one it makes a broken bound, to see that this check can fail.
    on_step
        Called with the number of cases done and in all.

    Examples
    --------
    >>> len(check_corrected(random_cases(2, 20), draws=200).violations)
    0
    """
    found = expected_kl_batch(*cases, rule="floor", draws=draws, seed=seed, on_step=on_step)
    bounds = factor * np.array([_corrected(cases, place) for place in range(len(cases.rho))])
    failed = _below(bounds, found.mean, found.standard_error)
    tightness = bounds / np.maximum(found.mean, 1e-300)
    least = np.linalg.eigvalsh(cases.precision)[:, 0]
    decades = np.floor(np.log10(cases.sigma_2 / least)).astype(int)
    floors = np.array([min(FLOORS, key=lambda f, r=r: abs(np.log(f / r))) for r in cases.rho / least])
    return Check(len(failed), np.flatnonzero(failed), tightness, _buckets(floors, decades, failed, tightness))


def search_printed(
    dimension: int,
    count: int,
    *,
    rule: Rule = "shift",
    reading: Reading = "eigenbasis",
    climbs: int = 0,
    draws: int = 1_000,
    seed: int = 0,
    on_step: OnStep = None,
) -> Search:
    """Look for cases in which the printed bound, at its best M, lies below the expected divergence.

    Half of the `count` random cases are of any kind, half have a sigma_2 for which the bound is defined. Then
    `climbs` rounds change the worst case at random and keep the worst of 32 changed ones.

    Examples
    --------
    >>> found = search_printed(2, 20, draws=100)
    >>> found.undefined + found.fails + found.holds
    20
    """
    plain, able = (
        random_cases(dimension, count - count // 2, seed),
        random_cases(dimension, count, seed, defined=True),
    )
    cases = Cases._make(
        np.concatenate([one, two[: count // 2]]) for one, two in zip(plain, able, strict=True)
    )
    found, bounds, starts = _estimate(cases, rule, reading, draws, seed)
    classes = [_outcome(*row) for row in zip(found.mean, found.standard_error, bounds, strict=True)]
    rng = np.random.default_rng([dimension, seed, 1])
    worst = cases.take(np.array([int(np.argmax(_used(found.mean, bounds, starts)))]))
    for step in range(climbs):
        changed = _vary(rng, worst, 32, 0.5 * 0.97**step)
        found, bounds, starts = _estimate(changed, rule, reading, draws, seed)
        worst = changed.take(np.array([int(np.argmax(_used(found.mean, bounds, starts)))]))
        if on_step is not None:
            on_step(step + 1, climbs)
    last, bound, start = _estimate(worst, rule, reading, 20 * draws, seed + 1)
    undefined, fails, holds = (classes.count(name) for name in ("undefined", "fails", "holds"))
    mean, error = float(last.mean[0]), float(last.standard_error[0])
    return Search(undefined, fails, holds, worst, mean, error, float(bound[0]), float(start[0]))


def _etas(rng: np.random.Generator, values: Array, rotation: Array) -> Array:
    """eta of the four kinds, scaled so that the mean lies 0.01 to 100 standard deviations from zero."""
    count, d = values.shape
    inside = rng.normal(size=(count, d))
    kind = rng.integers(0, len(KINDS), count)
    inside[kind == 2, 1:] = 0.0
    inside[kind == 3, :-1] = 0.0
    size = np.where(kind == 0, 0.0, 10.0 ** rng.uniform(-2, 2, count)) / np.linalg.norm(inside, axis=1)
    return np.einsum("nij,nj->ni", rotation, size[:, None] * np.sqrt(values) * inside)


def _assemble(values: Array, rotation: Array) -> Array:
    matrix = np.einsum("nik,nk,njk->nij", rotation, values, rotation)
    return (matrix + np.swapaxes(matrix, 1, 2)) / 2.0


def _corrected(cases: Cases, place: int) -> float:
    sigmas = float(cases.sigma_1[place]), float(cases.sigma_2[place])
    return corrected_bound(cases.posterior(place), *sigmas, rho=float(cases.rho[place])).total


def _buckets(floors: Array, decades: Array, failed: Array, tightness: Array) -> tuple[Bucket, ...]:
    found = []
    for floor, decade in sorted(set(zip(floors.tolist(), decades.tolist(), strict=True))):
        own = (floors == floor) & (decades == decade)
        ratios = tightness[own]
        found.append(
            Bucket(
                floor,
                decade,
                int(own.sum()),
                int(failed[own].sum()),
                float(np.median(ratios)),
                float(ratios.max()),
            )
        )
    return tuple(found)


def _estimate(
    cases: Cases, rule: Rule, reading: Reading, draws: int, seed: int
) -> tuple[Estimate, Array, Array]:
    """Monte Carlo, the printed bounds, and their limits as sigma_2 goes to zero."""
    bounds, starts = np.empty(len(cases.rho)), np.empty(len(cases.rho))
    for place, (one, two, rho) in enumerate(zip(*(part.tolist() for part in cases[2:]), strict=True)):
        q, M = cases.posterior(place), best_M(cases.eta.shape[1], two)
        bounds[place] = printed_bound(q, one, two, rho=rho, M=M, reading=reading).total
        starts[place] = printed_bound(q, one, 0.0, rho=rho, M=0.0, reading=reading).total
    return expected_kl_batch(*cases, rule=rule, draws=draws, seed=seed), bounds, starts


def _below(bound: Array, mean: Array, error: Array) -> Array:
    return (1.0 - ROUNDING) * mean - ERRORS * error > bound


def _outcome(mean: float, error: float, bound: float) -> Outcome:
    if np.isnan(bound):
        return "undefined"
    return "fails" if _below(np.array(bound), np.array(mean), np.array(error)) else "holds"


def _used(mean: Array, bounds: Array, starts: Array) -> Array:
    """Share of the room between the bound's limit at sigma_2 = 0 and the bound that the mean uses up.

    The plain ratio would lead to vanishing noise, where the two are equal. Minus infinity where undefined.
    """
    room = bounds - starts
    clear = room > 1e-7 * np.abs(starts)
    return np.where(clear, (mean - starts) / np.where(clear, room, 1.0), -np.inf)


def _vary(rng: np.random.Generator, case: Cases, count: int, size: float) -> Cases:
    """The case itself and `count` changes of it: spectrum, rotation, mean and scales all move a little."""
    d = case.eta.shape[1]
    values, vectors = np.linalg.eigh(case.precision[0])
    noise = rng.normal(size=(count + 1, d, d))
    noise[0] = 0.0
    # Scale-free: everything is moved in units of the case itself.
    moved = values * np.exp(size * np.diagonal(noise, axis1=1, axis2=2))
    rotation, upper = np.linalg.qr(vectors + size * np.triu(noise, 1))
    rotation = rotation * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    inside = (vectors.T @ case.eta[0]) / np.sqrt(values)
    shift = size * rng.normal(size=(count + 1, d)) * max(float(np.linalg.norm(inside)), 1e-3)
    shift[0] = 0.0
    eta = np.einsum("nij,nj->ni", rotation, np.sqrt(moved) * (inside + shift))
    scales = np.exp(size * rng.normal(size=(3, count + 1)))
    scales[:, 0] = 1.0
    sigma_1, sigma_2, rho = (scale * part[0] for scale, part in zip(scales, case[2:], strict=True))
    # Kept where double precision can tell the mean from the bound.
    least = moved.min(1)
    sigma_2, rho = np.maximum(sigma_2, 1e-6 * least), np.clip(rho, 1e-4 * least, 1e4 * least)
    return Cases(eta, _assemble(moved, rotation), sigma_1, sigma_2, rho)
