"""Mixtures: how a fit grows with records, components and columns, and what it finds beside scikit-learn.

Growth times private fits with known and learned variances, each compiled by a fit before it. Accuracy is the
held-out log density of clusters of unequal sizes and shapes, all parameters learned. Coverage asks how often
90 % intervals of the means hold the true means. Sequential SEP is timed a record, beside what
the authors' public code takes (630 microseconds on one core, measured elsewhere).
"""

import statistics
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.estimators import GaussianMixture
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep_lab.bench.table import Row, row, spread

Array = NDArray[np.float64]
REFERENCE_US = 630.0
"""Microseconds a record of the authors' public code, sequential SEP, on one core."""


def mixture(quick: bool = False) -> list[Row]:
    """Measure everything."""
    return growth(quick) + sequential(quick) + accuracy(quick) + coverage(quick)


def clusters(seed: int, records: int, components: int, dimension: int) -> tuple[Array, Array]:
    """Draw clusters of unequal weights and variances; return the table and the true means."""
    generator = np.random.default_rng(seed)
    weights = generator.dirichlet(np.full(components, 3.0))
    deviations = np.exp(0.4 * generator.standard_normal((components, dimension)))
    means = 3.0 * generator.standard_normal((components, dimension))
    labels = generator.choice(components, records, p=weights)
    noise = deviations[labels] * generator.standard_normal((records, dimension))
    return means[labels] + noise, means


def growth(quick: bool) -> list[Row]:
    """Time fits of growing tables, and of growing models."""
    rows = []
    base = ("10000 records", 1.0)
    for records in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        seconds = _time(records, 4, 4, repeats=1 if quick or records > 100_000 else 3)
        if records == 10_000:
            base = ("10000 records", statistics.median(seconds))
        against = base if records >= 10_000 else None
        name = f"mixture/growth, {records} records"
        rows.append(
            row(
                name,
                "dpsep private",
                "fit, compiled",
                statistics.median(seconds),
                "s",
                **_more(seconds, against),
            )
        )
        each = 1e6 * statistics.median(seconds) / records
        rows.append(row(name, "dpsep private", "fit, compiled, a record", each, "us", n=len(seconds)))
    sizes = ((4, 8), (8, 4)) if quick else ((4, 4), (10, 4), (20, 4), (4, 10), (4, 20), (10, 10), (20, 20))
    for components, dimension in sizes:
        records = 4_000 if quick else 20_000
        seconds = _time(records, components, dimension, repeats=1)
        name = f"mixture/growth, {components} components, {dimension} columns, {records} records"
        rows.append(row(name, "dpsep private", "fit, compiled", seconds[0], "s", n=1))
    return rows


def sequential(quick: bool) -> list[Row]:
    """Time sequential SEP a record, 4 components in 4 dimensions."""
    from dpsep.families import GaussianSet
    from dpsep.inference import sep
    from dpsep.models.mixture import KnownMixture

    generator = np.random.default_rng(0)
    records, passes = 1000, 5 if quick else 100
    x = clusters(0, records, 4, 4)[0]
    with jax.enable_x64(True):
        prior = GaussianSet(
            jnp.asarray(0.1 * generator.standard_normal((4, 4))),
            jnp.broadcast_to(0.1 * jnp.eye(4), (4, 4, 4)),
        )
        settings = sep.Settings(prior, records, gamma=float(records))
        order = np.concatenate([generator.permutation(records) for _ in range(passes)])
        model = KnownMixture((0.25,) * 4, 1.0)

        def once() -> float:
            start = time.perf_counter()
            jax.block_until_ready(sep.run(model, settings, jnp.asarray(x), jnp.asarray(order)).factor)
            return 1e6 * (time.perf_counter() - start) / len(order)

        once()
        taken = [once() for _ in range(3)]
    against = ("authors' public code, measured elsewhere", REFERENCE_US)
    value = statistics.median(taken)
    return [row("mixture/sequential SEP", "dpsep", "a record", value, "us", against=against, **spread(taken))]


def accuracy(quick: bool) -> list[Row]:
    """Compare held-out log densities with scikit-learn's, all parameters learned."""
    from sklearn.mixture import GaussianMixture as Peer

    rows = []
    seeds = range(1) if quick else range(10)
    for kind in ("diag", "spherical"):
        found: dict[str, list[float]] = {}
        for seed in seeds:
            x, _ = clusters(seed, 10_000, 5, 4)
            train, test = x[:5000], x[5000:]
            bound = np.ceil(np.abs(x).max(axis=0))
            peer = Peer(5, covariance_type=kind, n_init=3, random_state=0).fit(train)
            found.setdefault("scikit-learn", []).append(float(peer.score(test)))
            for epsilon in (None, 8.0, 3.0, 1.0):
                model = _fit(train, 5, epsilon, seed, covariance_type=kind, bounds=(-bound, bound))
                name = "dpsep, no privacy" if epsilon is None else f"dpsep, epsilon {epsilon:g}"
                found.setdefault(name, []).append(model.score(test))
        base = ("scikit-learn", statistics.mean(found["scikit-learn"]))
        for who, scores in found.items():
            worst = min(
                (ours - theirs) / abs(theirs)
                for ours, theirs in zip(scores, found["scikit-learn"], strict=True)
            )
            rows.append(
                row(
                    f"mixture/unequal clusters, {kind}",
                    who,
                    "held-out log density",
                    statistics.mean(scores),
                    "nats",
                    against=None if who == "scikit-learn" else base,
                    **spread(scores),
                    worst_relative_difference=worst,
                )
            )
    return rows


def coverage(quick: bool) -> list[Row]:
    """Count how often 90 % intervals of component means hold the true means, at epsilon 1."""
    rows = []
    datasets = 3 if quick else 60
    cases: dict[str, dict[str, Any]] = {
        "known weights and variances": {"noise_scale": 1.0, "weights": "uniform"},
        "all learned": {},
    }
    for case, settings in cases.items():
        for aware in (True, False):
            inside = []
            for seed in range(datasets):
                generator = np.random.default_rng(seed)
                means = 3.0 * generator.standard_normal((4, 4))
                x = means[generator.integers(4, size=1000)] + generator.standard_normal((1000, 4))
                model = _fit(x, 4, 1.0, seed, bounds=(-10, 10), noise_aware=aware, **settings)
                inside.append(_inside(model, means))
            rows.append(
                row(
                    f"mixture/coverage, {case}",
                    "dpsep private" if aware else "dpsep private, not noise-aware",
                    "coverage of 90 % intervals",
                    statistics.mean(inside),
                    **spread(inside),
                )
            )
    return rows


def _inside(model: GaussianMixture, means: Array) -> float:
    from scipy.optimize import linear_sum_assignment

    apart = ((means[:, None] - model.means_[None]) ** 2).sum(-1)
    order = linear_sum_assignment(apart)[1]
    deviation = np.sqrt(np.diagonal(model.mean_covariances_, axis1=1, axis2=2))[order]
    return float(np.mean(np.abs(model.means_[order] - means) <= 1.6448536 * deviation))


def _more(seconds: list[float], against: tuple[str, float] | None) -> dict[str, Any]:
    return {"against": against} | spread(seconds)


def _time(records: int, components: int, dimension: int, repeats: int) -> list[float]:
    x, _ = clusters(0, records, components, dimension)
    bound = np.ceil(np.abs(x).max(axis=0))
    taken = []
    for number in range(repeats + 1):
        start = time.perf_counter()
        _fit(x, components, 1.0, number, bounds=(-bound, bound))
        taken.append(time.perf_counter() - start)
    return taken[1:]


def _fit(x: Array, components: int, epsilon: float | None, seed: int, **settings: Any) -> GaussianMixture:
    private = epsilon is not None
    model = GaussianMixture(
        components,
        epsilon=1.0 if epsilon is None else epsilon,
        private=private,
        random_state=seed if private else None,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded, on made data
        return model.fit(x)
