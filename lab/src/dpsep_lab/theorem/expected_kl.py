"""Expected divergence between the posterior of SEP and that of DP-SEP after one step, by Monte Carlo.

The left side of Theorem 4.1: `q = N(mu, Lambda^-1)`, `eta_p = eta + e`, and `Lambda_p` made positive definite
from `W = Lambda + E`. Three rules do that:

- `shift` (Definition 4.2): `W + (rho - lambda_min(W)) I`, whether or not W has a negative eigenvalue;
- `floor` (what `Gaussian.project` does): eigenvalues of W below rho become rho;
- `literal` (step 10 of Algorithm 3, word for word): eigenvalues of W at or below zero become rho.

The noise e is integrated exactly. With `D = Lambda_p - Lambda` and `a = Lambda^-1 eta`, the means differ by
`Lambda_p^-1 (e - D a)`, so

    E_e[2 KL(q || p)] = Tr(D Lambda^-1) - log det(Lambda_p Lambda^-1)
                        + sigma_1^2 Tr Lambda_p^-1 + a' D Lambda_p^-1 D a.

Only E is sampled, in antithetic pairs. The first two terms are `sum_i x_i - log(1 + x_i)` over the
eigenvalues of the whitened D, without cancellation, so divergences of 1e-12 keep their digits.

Contract: float64 whatever JAX's global flag says; `finite` says whether the expectation exists. Under
`literal` it does not when sigma_2 > 0 and (sigma_1 > 0 or eta != 0): the smallest eigenvalue of W has a
positive density at zero and `1 / lambda` is not integrable there (the proof is in docs/theory.md). The sample
mean is then no estimate of anything: it grows without limit with the number of draws.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpsep.families import Gaussian
from dpsep_lab.theorem.noise_matrix import standard_draws

Rule = Literal["shift", "floor", "literal"]
RULES = get_args(Rule)
Array = np.ndarray

_ELEMENTS = 2**19
"""Matrix entries in one compiled call: bounds the memory."""


class Setting(NamedTuple):
    """One case in float64: the posterior of SEP, its spectrum (ascending), and the scales of the noise."""

    eta: Array
    precision: Array
    values: Array
    vectors: Array
    covariance: Array
    mean: Array
    sigma_1: float
    sigma_2: float


class _Case(NamedTuple):
    """What a compiled call needs of a case; leading axes are cases."""

    eta: jax.Array
    precision: jax.Array
    values: jax.Array
    vectors: jax.Array
    sigma_1: jax.Array
    sigma_2: jax.Array
    rho: jax.Array


class Estimate(NamedTuple):
    """A Monte Carlo mean; every field is an array over cases in `expected_kl_batch`.

    Attributes
    ----------
    mean
        Sample mean of the divergence, in nats.
    standard_error
        Standard error of `mean`, from the means of antithetic pairs.
    draws
        How many matrices were drawn, two a pair.
    finite
        Whether the expectation is finite; where not, `mean` estimates nothing.
    """

    mean: Array
    standard_error: Array
    draws: int
    finite: Array


def read_setting(q: Gaussian, sigma_1: float, sigma_2: float) -> Setting:
    """Check a posterior and the scales of its noise, and compute the spectrum.

    Examples
    --------
    >>> read_setting(Gaussian.isotropic(2, 4.0), 0.1, 0.1).values
    array([4., 4.])
    """
    eta, precision = np.asarray(q.eta, np.float64), np.asarray(q.precision, np.float64)
    if eta.ndim != 1 or precision.shape != (len(eta), len(eta)) or not len(eta):
        raise ValueError(
            f"q has shapes {eta.shape}, {precision.shape}; it must be one Gaussian: (d,) and (d, d)"
        )
    for name, sigma in (("sigma_1", sigma_1), ("sigma_2", sigma_2)):
        if not 0.0 <= sigma < np.inf:
            raise ValueError(f"{name} is {sigma}; it must be a finite number, zero or above")
    precision = (precision + precision.T) / 2.0
    if not (np.isfinite(eta).all() and np.isfinite(precision).all()):
        raise ValueError("q has a parameter that is not finite; it must be a proper density")
    values, vectors = np.linalg.eigh(precision)
    if values[0] <= 0.0:
        raise ValueError(f"q has a precision with eigenvalue {values[0]:.3g}; all of them must be above zero")
    mean = vectors @ ((vectors.T @ eta) / values)
    covariance = (vectors / values) @ vectors.T
    return Setting(eta, precision, values, vectors, covariance, mean, float(sigma_1), float(sigma_2))


def expected_kl(
    q: Gaussian,
    sigma_1: float,
    sigma_2: float,
    *,
    rho: float,
    rule: Rule = "floor",
    draws: int = 20_000,
    seed: int = 0,
) -> Estimate:
    """Mean of KL(q || p) over the noise of one release.

    Parameters
    ----------
    q
        Posterior of SEP.
    sigma_1, sigma_2
        Standard deviations of the noise on eta and on the upper triangle of the precision.
    rho
        The small positive number of the rule.
    rule
        How the noisy precision is made positive definite: `shift`, `floor` or `literal`.
    draws
        How many noise matrices, rounded up to pairs.
    seed
        Seed of the draws.

    Examples
    --------
    >>> found = expected_kl(Gaussian.isotropic(2), 0.0, 0.0, rho=0.5, draws=10)
    >>> float(found.mean), bool(found.finite)
    (0.0, True)
    """
    setting = read_setting(q, sigma_1, sigma_2)
    arrays = [np.asarray(part)[None] for part in (setting.eta, setting.precision, sigma_1, sigma_2, rho)]
    found = expected_kl_batch(*arrays, rule=rule, draws=draws, seed=seed)
    return Estimate(found.mean[0], found.standard_error[0], found.draws, found.finite[0])


def expected_kl_batch(
    eta: ArrayLike,
    precision: ArrayLike,
    sigma_1: ArrayLike,
    sigma_2: ArrayLike,
    rho: ArrayLike,
    *,
    rule: Rule = "floor",
    draws: int = 2_000,
    seed: int = 0,
    on_step: Callable[[int, int], None] | None = None,
) -> Estimate:
    """`expected_kl` of many cases of one dimension: shapes (n, d), (n, d, d) and (n,) three times.

    `on_step(done, total)` is called after every chunk of cases.

    Examples
    --------
    >>> eye = np.broadcast_to(np.eye(2), (3, 2, 2))
    >>> found = expected_kl_batch(np.zeros((3, 2)), eye, np.ones(3), np.zeros(3), 0.5 * np.ones(3), draws=4)
    >>> found.mean
    array([1., 1., 1.])
    """
    check_rule(rule)
    if draws < 4:
        raise ValueError(f"draws is {draws}; it must be at least 4, two pairs, for a standard error")
    parts = [np.asarray(part, np.float64) for part in (eta, precision, sigma_1, sigma_2, rho)]
    if not ((parts[4] > 0.0) & np.isfinite(parts[4])).all():
        raise ValueError("rho must be above zero and finite in every case")
    count, d = parts[0].shape
    values, vectors = np.linalg.eigh(parts[1])
    tables = (*parts[:2], values, vectors, *parts[2:])
    pairs = -(-draws // 2)
    inner = min(pairs, max(1, _ELEMENTS // d**2))
    outer = max(1, min(count, _ELEMENTS // (inner * d**2)))
    means, errors = np.empty(count), np.empty(count)
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        for first in range(0, count, outer):
            # The last chunk repeats its last case, so that one compiled shape serves all of them.
            places = np.minimum(np.arange(first, first + outer), count - 1)
            chunk = _Case._make(jnp.asarray(part[places]) for part in tables)
            keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.asarray(places))
            steps = [np.asarray(_pairs(rule, inner, keys, step, chunk)) for step in range(-(-pairs // inner))]
            found = np.concatenate(steps, 1)[:, :pairs]
            means[places] = found.mean(1)
            errors[places] = found.std(1, ddof=1) / np.sqrt(pairs)
            if on_step is not None:
                on_step(min(first + outer, count), count)
    diverges = (rule == "literal") & (parts[3] > 0.0) & ((parts[2] > 0.0) | (parts[0] != 0.0).any(1))
    return Estimate(means, errors, 2 * pairs, ~diverges)


def divergence(noise: jax.Array, case: _Case, *, rule: Rule) -> jax.Array:
    """KL(q || p) for one noise matrix, averaged over e; to be used under `jax.enable_x64(True)`."""
    eta, precision, values, vectors, sigma_1, sigma_2, rho = case
    mean = vectors @ ((vectors.T @ eta) / values)
    raw, basis = jnp.linalg.eigh(precision + noise)
    if rule == "shift":
        # Definition 4.2: without noise nothing is shifted.
        lift = jnp.where(sigma_2 > 0.0, rho - raw[0], 0.0)
        new = raw + lift
        change = noise + lift * jnp.eye(len(eta))
    else:
        new = jnp.maximum(raw, rho) if rule == "floor" else jnp.where(raw <= 0.0, rho, raw)
        change = noise + (basis * (new - raw)) @ basis.T
    white = vectors / jnp.sqrt(values)
    x = jnp.linalg.eigvalsh(white.T @ change @ white)
    # Near -1 the logarithms come from the precisions themselves, which keep their relative digits.
    far = jnp.trace(white.T @ change @ white) - jnp.sum(jnp.log(new)) + jnp.sum(jnp.log(values))
    near = jnp.sum(_less_log(jnp.maximum(x, -0.5)))
    moved = basis.T @ (change @ mean)
    return 0.5 * (jnp.where(x[0] < -0.5, far, near) + jnp.sum((sigma_1**2 + moved**2) / new))


def check_rule(rule: str) -> None:
    """Refuse a rule that does not exist."""
    if rule not in RULES:
        raise ValueError(f"rule {rule!r} is unknown; use one of {', '.join(map(repr, RULES))}")


@partial(jax.jit, static_argnums=(0, 1))
def _pairs(rule: Rule, count: int, keys: jax.Array, step: int, cases: _Case) -> jax.Array:
    """Means of antithetic pairs, shape (cases, count)."""

    def one(key: jax.Array, case: _Case) -> jax.Array:
        half = case.sigma_2 * standard_draws(jax.random.fold_in(key, step), len(case.eta), count)
        # One batch for both signs: two eigenvalue calls that may run at once can block each other on a CPU.
        kl = jax.vmap(partial(divergence, case=case, rule=rule))(jnp.concatenate([half, -half]))
        return kl.reshape(2, count).mean(0)

    return jax.vmap(one)(keys, cases)


def _less_log(x: jax.Array) -> jax.Array:
    """`x - log(1 + x)` without cancellation: with r = x / (2 + x) it is `x r - 2 (r^3/3 + r^5/5 + ...)`."""
    ratio = x / (2.0 + x)
    square = ratio**2
    series = sum(square**k / (2 * k + 3) for k in range(7))
    return jnp.where(jnp.abs(x) < 0.1, x * ratio - 2.0 * ratio * square * series, x - jnp.log1p(x))
