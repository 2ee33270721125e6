"""Cases of Theorem 4.1: where the printed bound fails, whether the corrected one holds, step 10, clipping.

Each function returns rows of ``dpsep paper theorem``; `dpsep_lab.paper.theorem` says what they are.
"""

import itertools
import math
from collections.abc import Iterable
from functools import partial

import numpy as np
from scipy.integrate import quad

from dpsep.families import Gaussian
from dpsep_lab.paper.theorem_rows import Row, compare, theorem_row
from dpsep_lab.theorem.cases import Cases, check_corrected, random_cases, search_printed
from dpsep_lab.theorem.clipping import FORMS, clipping_kl
from dpsep_lab.theorem.expected_kl import Rule, expected_kl_batch
from dpsep_lab.theorem.printed_bound import READINGS, Reading, best_M, printed_bound

__all__ = [
    "CHECKED",
    "check_rows",
    "clipping_rows",
    "known_rows",
    "literal_rows",
    "search_rows",
    "truncated_mean",
]

CHECKED = ((1, 2_000, 1_000), (2, 4_000, 1_000), (4, 3_000, 400), (10, 800, 300), (30, 200, 200))
"""Dimension, cases and draws a case of the check of the corrected bound: 10 000 cases in all."""
LITERAL = {"precision": 1.0, "eta": 1.0, "sigma": 1.0, "rho": 0.1}
"""The case in which step 10 is read word for word."""


def search_rows(
    dimension: int, rule: Rule, count: int = 400, *, climbs: int = 40, draws: int = 300
) -> list[Row]:
    """Return how often the printed bound is undefined, fails or holds in random cases, and the worst case.

    Parameters
    ----------
    dimension, rule
        d, and how the precision is made positive definite.
    count
        Random cases for each reading.
    climbs
        Rounds of climbing in the reading in which b belongs to the eigenvectors.
    draws
        Noise matrices for each case.
    """
    table = []
    for reading in READINGS:
        steps = climbs if reading == "eigenbasis" else 0
        found = search_printed(dimension, count, rule=rule, reading=reading, climbs=steps, draws=draws)
        base = {"d": dimension, "rule": rule, "reading": reading}
        make = partial(theorem_row, "search", "printed", f"{rule}, {reading}")
        for metric in ("undefined", "fails", "holds"):
            table.append(make(f"cases: {metric}", getattr(found, metric), n=count, setting=base))
        used = (found.mean - found.start) / (found.bound - found.start)
        table.append(make("room used in the worst case", used, setting=base))
        if found.mean - 4.0 * found.standard_error > found.bound:
            table += _example(base, found.case, reading, f"random, d = {dimension}", 20 * draws)
    return table


def known_rows(draws: int = 4_000) -> list[Row]:
    """Return a counter-example by hand, and the case of d = 4 and N = 1000 with three rho."""
    hand = Cases(
        *(np.array([part]) for part in ([0.0, 1.0], np.diag([100.0, 1.0]))),
        *(np.array([number]) for number in (1e-3, 1e-3, 0.1)),
    )
    table = []
    for reading in READINGS:
        table += _example({"d": 2, "rule": "shift", "reading": reading}, hand, reading, "by hand", draws)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    precision = 1_000.0 * (rotation * np.array([0.8, 1.0, 1.2, 1.5])) @ rotation.T
    precision = (precision + precision.T) / 2.0
    rhos = np.array([1e-4, 400.0, 800.0])
    sigma = np.full(3, 6.5e-3)
    etas = np.tile(precision @ np.array([2.0, -1.0, 2.0, 1.5]), (3, 1))
    cases = Cases(etas, np.tile(precision, (3, 1, 1)), sigma, sigma, rhos)
    settings = [{"d": 4, "N": 1_000, "rho": rho, "sigma": 6.5e-3} for rho in rhos.tolist()]
    return table + compare("known case", cases, settings, draws, [None] * 3)


def check_rows(parts: Iterable[tuple[int, int, int]] = CHECKED, seed: int = 0) -> list[Row]:
    """Return violations of the corrected bound in random cases, and bound over sample mean by bucket.

    Parameters
    ----------
    parts
        Triples: dimension, cases, draws a case.
    seed
        Of the cases and the draws.
    """
    table = []
    for d, count, draws in parts:
        found = check_corrected(random_cases(d, count, seed), draws=draws, seed=seed)
        make = partial(theorem_row, "check", "corrected", "floor")
        setting = {"d": d, "draws": draws}
        table.append(make("violations", len(found.violations), n=count, setting=setting))
        ratios = found.tightness.tolist()
        table.append(make("bound over sample mean", ratios, setting=setting))
        for bucket in found.buckets:
            own = setting | {"floor": bucket.rho, "decade": bucket.decade, "largest": bucket.largest}
            row = make("bound over sample mean, by bucket", bucket.median, n=bucket.size, setting=own)
            table.append(row | {"mean": None, "sd": None})
    return table


def literal_rows(
    sizes: Iterable[int] = (1_000, 10_000, 100_000, 400_000), repeats: int = 5, dimension: int = 2
) -> list[Row]:
    """Return sample means under step 10 word for word, beside the floor, and the exact d = 1 divergence.

    Parameters
    ----------
    sizes
        Numbers of draws.
    repeats
        Sample means for each.
    dimension
        Of the sampled case.
    """
    table = []
    eye = np.broadcast_to(LITERAL["precision"] * np.eye(dimension), (repeats, dimension, dimension))
    eta = np.zeros((repeats, dimension))
    eta[:, 0] = LITERAL["eta"]
    scales = [np.full(repeats, LITERAL[name]) for name in ("sigma", "sigma", "rho")]
    rules: tuple[Rule, ...] = ("literal", "floor")
    for rule in rules:
        for draws in sizes:
            means = expected_kl_batch(eta, eye, *scales, rule=rule, draws=draws, seed=draws).mean.tolist()
            setting = {"d": dimension, "draws": draws, "least": min(means), "largest": max(means)}
            table.append(
                theorem_row("step 10", "simulated", rule, "sample mean of KL", means, setting=setting)
            )
    for exponent in (2, 4, 8, 16, 32, 64):
        value = truncated_mean(10.0**-exponent)
        setting = {"d": 1, "c": 10.0**-exponent}
        table.append(
            theorem_row("step 10", "exact", "literal", "E[KL; not 0 < w < c]", value, setting=setting)
        )
    growth = (truncated_mean(1e-64) - truncated_mean(1e-32)) / (32.0 * math.log(10.0))
    density = math.exp(-0.5 / LITERAL["sigma"] ** 2) / (math.sqrt(2.0 * math.pi) * LITERAL["sigma"])
    limit = 0.5 * (LITERAL["sigma"] ** 2 + LITERAL["eta"] ** 2) * density
    for metric, number in (("growth with log(1/c)", growth), ("growth, closed form", limit)):
        table.append(theorem_row("step 10", "exact", "literal", metric, number, setting={"d": 1}))
    return table


def truncated_mean(c: float) -> float:
    """Mean of the divergence under `literal` at d = 1, leaving out noisy precisions between 0 and c.

    With precision 1, mean 1 and w ~ N(1, sigma^2) it is the integral of KL(w) over w > c, plus KL(rho) times
    the probability of w <= 0. It grows without limit as c goes to zero.

    Examples
    --------
    >>> truncated_mean(1e-8) > truncated_mean(1e-4) > truncated_mean(1e-2)
    True
    """
    sigma, eta = LITERAL["sigma"], LITERAL["eta"]

    def divergence(w: float) -> float:
        return 0.5 * (w - 1.0 - math.log(w) + (sigma**2 + (w - 1.0) ** 2 * eta**2) / w)

    def density(y: float) -> float:
        w = math.exp(y)  # an integral over log w, in which the pole is flat
        return divergence(w) * math.exp(-0.5 * ((w - 1.0) / sigma) ** 2 + y)

    top = math.log(1.0 + 12.0 * sigma)
    edges = [math.log(c), *(y for y in (-20.0, -5.0, 0.0) if y > math.log(c)), top]
    parts = [quad(density, low, high)[0] for low, high in itertools.pairwise(edges)]
    below = 0.5 * math.erfc(1.0 / (sigma * math.sqrt(2.0)))
    return sum(parts) / (sigma * math.sqrt(2.0 * math.pi)) + below * divergence(LITERAL["rho"])


def clipping_rows(points: int = 49) -> list[Row]:
    """Return the divergence that clipping makes, over C, in three forms, for a sharp and a wide posterior."""
    table = []
    mean = np.array([2.0, -1.0, 2.0, 1.5])
    for name, scale in (("sharp", 100.0), ("wide", 0.01)):
        precision = scale * np.diag([0.8, 1.0, 1.2, 1.5])
        q = _gaussian(precision @ mean, precision)
        for clip in np.geomspace(1e-2, 1e4, points).tolist():
            for form in FORMS:
                source = "definition" if form == "general" else form
                setting = {"posterior": name, "d": 4, "C": clip}
                value = clipping_kl(q, clip, form=form)
                table.append(theorem_row("clipping", source, "clipped SEP", "KL", value, setting=setting))
    return table


def _example(base: Row, case: Cases, reading: Reading, name: str, draws: int) -> list[Row]:
    """Rows of one case with all its numbers: the printed bound and the simulated divergence."""
    numbers = {"eta": case.eta[0].tolist(), "precision": case.precision[0].tolist()}
    numbers |= {key: float(part[0]) for key, part in zip(case._fields[2:], case[2:], strict=True)}
    setting = base | {"case": name} | numbers
    bound = printed_bound(
        case.posterior(0),
        numbers["sigma_1"],
        numbers["sigma_2"],
        rho=numbers["rho"],
        M=best_M(base["d"], numbers["sigma_2"]),
        reading=reading,
    ).total
    estimate = expected_kl_batch(*case, rule=base["rule"], draws=draws, seed=1)
    pairs = estimate.draws // 2
    mean, spread = float(estimate.mean[0]), float(estimate.standard_error[0]) * math.sqrt(pairs)
    simulated = theorem_row(
        "example", "simulated", base["rule"], "expected KL", mean, n=pairs, setting=setting
    )
    return [
        theorem_row("example", "printed", base["rule"], "expected KL", bound, setting=setting),
        simulated | {"median": None, "sd": spread},
    ]


def _gaussian(eta: np.ndarray, precision: np.ndarray) -> Gaussian:
    return Gaussian(eta, precision)  # pyright: ignore[reportArgumentType]
