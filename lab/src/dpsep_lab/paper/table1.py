r"""Table 1 of the paper: how far private and other posteriors of a mixture's means are from the truth.

The experiment is that of `dpsep_lab.paper.clusters`, over many seeds. Each row of the table is shown as

- ``printed``: the paper's own numbers (five runs);
- ``as written``: Algorithm 3 with gamma = 1, one record a step, a new permutation a pass, each natural
  parameter clipped to the printed C, and the noise that a valid accountant of that demands (one Gaussian
  release a pass: `dpsep_lab.paper.noise`). Without noise it is SEP, and clipped SEP;
- ``as accounted``: the same with a record drawn afresh at each step, which is what the paper's accountant
  assumes, and the noise that Rényi accounting asks for then;
- ``authors' noise``: for the record, the noise of the public code, in its fixed cyclic order, with the
  epsilon that it really gives (`dpsep_lab.paper.authors_noise`);
- ``ours``: `dpsep.GaussianMixture` with its defaults, known weights and deviations as in the paper, and the
  prior N(0, 10 I) of the public code.

*The metric* is the squared error of means and covariances against the posterior that knows the labels,
averaged over components after optimal matching, and the average of the two; ``norm`` is with the root. A run
is wrong where two components found have the same nearest true mean. DP-EM's covariance here is that of the
means' posterior given the components; the printed one compares the clusters' own covariance with that of the
means' posterior, which are different things.

Simulations of Algorithm 3 use seeded floating-point noise: they reproduce numbers and release nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import GaussianSet
from dpsep.inference import sep
from dpsep.models.mixture import KnownMixture
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.mechanism import Relation
from dpsep_lab.paper import authors_noise, noise
from dpsep_lab.paper.clusters import Errors, Experiment, Posterior, errors, make, truth
from dpsep_lab.paper.printed import TABLE_1

Array = NDArray[np.float64]

SEEDS = 30
PASSES = 100
EPSILONS = (50.0, 5.0, 1.0)
DELTA = 1e-5
CLIPS = (20.0, 10.0, 1.0)
"""The paper's C of its clipped rows; its private rows have the last."""
PRIOR_PRECISION = 0.1
LEAST = 1e-4
"""What the data's part of a precision is raised to where noise made it negative, as in the public code."""
METRICS = ("mean", "covariance", "average", "plain_mean", "plain_covariance")
NAMES = {
    "mean": "F-norm, mean",
    "covariance": "F-norm, covariance",
    "average": "F-norm, average",
    "plain_mean": "norm, mean",
    "plain_covariance": "norm, covariance",
}


class Case(NamedTuple):
    """One way to fit, as one line of the table.

    Attributes
    ----------
    row
        Row of the table it belongs to.
    source
        ``"as written"``, ``"as accounted"``, ``"authors' noise"`` or ``"ours"``.
    method, epsilon, relation
        What it is; epsilon None for none.
    fit
        From an experiment and its seed to means and covariances.
    """

    row: str
    source: str
    method: str
    epsilon: float | None
    relation: str
    fit: Callable[[Experiment, int], tuple[Array, Array]]


def rows(
    seeds: Iterable[int] = range(SEEDS),
    passes: int = PASSES,
    *,
    centred: bool = False,
    on_step: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the table, one row a figure.

    Parameters
    ----------
    seeds
        Of the made data; noise and permutations are seeded by them too.
    passes
        Passes of Algorithm 3.
    centred
        The harder reading of the paper: all component means about zero.
    on_step
        Called with the number of fits done and their total.
    """
    data = [(seed, make(seed, centred=centred)) for seed in seeds]
    cases = all_cases(passes)
    found: list[list[Errors]] = []
    for case in cases:
        found.append([])
        for seed, experiment in data:
            found[-1].append(_errors(experiment, *case.fit(experiment, seed)))
            if on_step is not None:
                on_step(sum(map(len, found)), len(cases) * len(data))
    table = printed_rows()
    for case, results in zip(cases, found, strict=True):
        table += _rows_of(case, results)
    return table + paired_rows(cases, found)


def all_cases(passes: int = PASSES) -> list[Case]:
    """Return every line but the printed ones, in the table's order."""
    cases = [
        Case("SEP", "as written", "SEP, gamma = 1", None, "none", written(passes)),
        Case("SEP", "ours", "SEP", None, "none", ours("sep", None, "zero-out")),
        Case("EP", "ours", "EP", None, "none", ours("ep", None, "zero-out")),
    ]
    for clip in CLIPS:
        fit = written(passes, clip=clip)
        cases.append(Case(f"SEP clipped, C = {clip:g}", "as written", "clipped SEP", None, "none", fit))
    cases += [
        Case("SEP clipped", "ours", "clipped SEP", None, "none", ours("sep", None, "zero-out", clip=1.0)),
    ]
    for name, method in (("DP-EM", "em"), ("DP-VI", "vi"), ("DP-SEP", "sep")):
        for epsilon in EPSILONS:
            row = f"{name}, epsilon = {epsilon:g}"
            if method == "sep":
                cases += _dpsep_cases(row, epsilon, passes)
            for relation in ("zero-out", "replace-one"):
                cases.append(Case(row, "ours", name, epsilon, relation, ours(method, epsilon, relation)))
    return cases


def _dpsep_cases(row: str, epsilon: float, passes: int) -> list[Case]:
    """DP-SEP as the paper writes it, as it accounts for it, and with the public code's noise."""
    clip = CLIPS[-1]
    cases = []
    relations: tuple[Relation, ...] = ("zero-out", "replace-one")
    for relation in relations:
        deviation = noise.as_written(epsilon, relation, clip)
        fit = written(passes, clip=clip, deviations=(deviation, deviation))
        cases.append(Case(row, "as written", "DP-SEP, gamma = 1", epsilon, relation, fit))
    deviation = noise.as_accounted(epsilon, clip)
    fit = written(passes, clip=clip, deviations=(deviation, deviation), order="fresh")
    cases.append(Case(row, "as accounted", "DP-SEP, gamma = 1", epsilon, "replace-one", fit))
    real = authors_noise.real_epsilon(epsilon)
    fit = written(passes, clip=clip, deviations=authors_noise.noise(epsilon, clip), order="cyclic")
    label = f"DP-SEP, gamma = 1, really epsilon {real:.3g}"
    return [*cases, Case(row, "authors' noise", label, epsilon, "replace-one", fit)]


def written(
    passes: int,
    *,
    clip: float = math.inf,
    deviations: tuple[float, float] | None = None,
    order: str = "permuted",
) -> Callable[[Experiment, int], tuple[Array, Array]]:
    """Return a fit by the paper's own algorithm, gamma = 1.

    Parameters
    ----------
    clip
        The paper's C, for each natural parameter.
    deviations
        Of the noise of each natural parameter; None for none.
    order
        ``"permuted"`` (a permutation a pass), ``"fresh"`` (a record drawn at each step) or ``"cyclic"``.
    """

    def fit(experiment: Experiment, seed: int) -> tuple[Array, Array]:
        records, dimension = experiment.x.shape
        generator = np.random.default_rng([seed, 1])
        with jax.enable_x64(True):
            visits = jnp.asarray(_order(generator, records, passes, order))
            prior = _prior(len(experiment.means), dimension)
            settings = sep.Settings(prior, records, 1.0, (clip, clip), PRIOR_PRECISION + LEAST)
            weights = tuple(1.0 / len(experiment.means) for _ in experiment.means)
            model = KnownMixture(weights, experiment.noise**2)
            x = jnp.asarray(experiment.x)
            if deviations is None:
                state = sep.run(model, settings, x, visits)
            else:
                state = sep.simulate(model, settings, x, visits, jax.random.key(seed), deviations)
            q = sep.posterior(settings, state)
            return np.asarray(q.mean), np.asarray(q.covariance)

    return fit


def ours(
    method: str,
    epsilon: float | None,
    relation: str,
    clip: float | None = None,
    *,
    noise_aware: bool = False,
) -> Callable[[Experiment, int], tuple[Array, Array]]:
    """Return a fit by `dpsep.GaussianMixture`, with its defaults.

    `noise_aware` widens the posterior by the known noise of privacy, as the estimator does by default; the
    table compares without, because the truth has no such noise.
    """

    def fit(experiment: Experiment, seed: int) -> tuple[Array, Array]:
        import warnings

        from dpsep.estimators import GaussianMixture

        private = epsilon is not None
        model = GaussianMixture(
            len(experiment.means),
            epsilon=1.0 if epsilon is None else epsilon,
            delta=DELTA,
            private=private,
            noise_scale=experiment.noise,
            weights="uniform",
            mean_scale=PRIOR_PRECISION**-0.5,
            relation=relation,  # pyright: ignore[reportArgumentType]
            method=method,  # pyright: ignore[reportArgumentType]
            clip=clip,
            noise_aware=noise_aware,
            random_state=seed if private else None,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeded: an experiment, not a release
            model.fit(experiment.x)
        return model.means_, model.mean_covariances_

    return fit


def printed_rows() -> list[dict[str, Any]]:
    """Return the paper's own numbers as rows."""
    table = []
    for line in TABLE_1:
        row = line.method
        if line.clip is not None and line.epsilon is None:
            row = f"SEP clipped, C = {line.clip:g}"
        if line.epsilon is not None:
            row = f"{line.method}, epsilon = {line.epsilon:g}"
        relation = "none" if line.epsilon is None else "replace-one"
        case = Case(row, "printed", line.method, line.epsilon, relation, _no_fit)
        for metric in ("mean", "covariance", "average"):
            value = getattr(line, metric)
            table.append(_row(case, NAMES[metric], [value]) | {"median": None, "worst": None, "n": 5})
    return table


def paired_rows(cases: Sequence[Case], found: Sequence[Sequence[Errors]]) -> list[dict[str, Any]]:
    """Return differences of DP-SEP and its peers on the same seeds, with 95 % intervals of their means."""
    by_name = {
        (case.method, case.epsilon, case.relation): [one.average for one in results]
        for case, results in zip(cases, found, strict=True)
        if case.source == "ours" and case.epsilon is not None
    }
    table = []
    for (method, epsilon, relation), values in by_name.items():
        if method == "DP-SEP":
            continue
        difference = np.array(by_name["DP-SEP", epsilon, relation]) - np.array(values)
        reach = _interval(difference)
        case = Case(f"DP-SEP minus {method}", "ours", f"DP-SEP minus {method}", epsilon, relation, _no_fit)
        row = _row(case, "paired difference of average F-norm", difference)
        table.append(row | {"low": row["mean"] - reach, "high": row["mean"] + reach})
    return table


def _interval(values: Array) -> float:
    from scipy.stats import t

    if len(values) < 2:
        return math.nan
    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))


def _rows_of(case: Case, results: Sequence[Errors]) -> list[dict[str, Any]]:
    table = [_row(case, NAMES[metric], [getattr(one, metric) for one in results]) for metric in METRICS]
    right = [one.average for one in results if not one.wrong]
    table.append(_row(case, "F-norm, average, correctly assigned", right or [math.nan]))
    wrong = [float(one.wrong) for one in results]
    return [*table, _row(case, "wrong assignments", wrong) | {"count": int(sum(wrong))}]


def _row(case: Case, metric: str, values: Sequence[float] | Array) -> dict[str, Any]:
    array = np.asarray(values, np.float64)
    return {
        "table": "table1",
        "row": case.row,
        "source": case.source,
        "dataset": "mixture",
        "method": case.method,
        "epsilon": case.epsilon,
        "relation": case.relation,
        "metric": metric,
        "mean": float(array.mean()),
        "median": float(np.median(array)),
        "sd": float(array.std(ddof=1)) if len(array) > 1 else None,
        "n": len(array),
        "worst": float(array.max()),
    }


def _errors(experiment: Experiment, means: Array, covariances: Array) -> Errors:
    posterior: Posterior = truth(experiment, PRIOR_PRECISION)
    return errors(posterior.means, posterior.covariances, means, covariances)


def _prior(components: int, dimension: int) -> GaussianSet:
    """Prior of the public code: N(m_j, 10 I) with fixed random m_j, which tell the components apart."""
    means = np.random.default_rng(0).standard_normal((components, dimension))
    precision = jnp.broadcast_to(PRIOR_PRECISION * jnp.eye(dimension), (components, dimension, dimension))
    return GaussianSet(PRIOR_PRECISION * jnp.asarray(means), precision)


def _order(generator: np.random.Generator, records: int, passes: int, order: str) -> NDArray[np.int64]:
    if order == "fresh":
        return generator.integers(records, size=records * passes)
    if order == "cyclic":
        return np.tile(np.arange(records), passes)
    return np.concatenate([generator.permutation(records) for _ in range(passes)])


def _no_fit(experiment: Experiment, seed: int) -> tuple[Array, Array]:
    raise NotImplementedError("printed numbers are not fitted.")
