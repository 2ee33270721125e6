r"""Mixed models: regressions whose intercept and slopes vary by group.

Record i of group g has the predictor `u_i = x_i . beta + z_i . b_g` with random effects `b_g = C e_g`, e_g
standard normal: z are columns of x (a one for a random intercept), and C is diagonal, the random effects'
standard deviations, or lower triangular where they are correlated.

*Groups as units* (`GroupModel`): the random effects are integrated out inside the gate, so the weights are
beta, the parameters of C and the logarithm of the noise's standard deviation, and q = p0 f^G. In a linear
model the integral is Gaussian; with V = sigma^2 (I + B B^T), B = Z C / sigma and M = I + B^T B,

    log |V| = n log sigma^2 + log |M|,      r^T V^-1 r = (|r|^2 - |M^-1/2 B^T r|^2) / sigma^2.

In the others it is a sum over Gauss-Hermite nodes placed by the mode and the curvature of the integrand
(adaptive quadrature). The nodes are held fixed when the sum is differentiated.

*Records as units* (`GroupedContribution`): every declared group has coefficients of its own, weights of
columns that are z in the rows of the group and zero elsewhere. They are the sums of fixed and random effects,
which are taken apart later (`dpsep.inference.variances`): with both among the weights, the likelihood would
say nothing of one direction for each random effect, and noise in its place would be taken for information.

**Privacy.** Both read one unit and public values: a group's contribution is a function of its own rows. Rows
that are missing (padding), hold a bad cell or an outcome outside the support count nowhere in their group.
The proof is in docs/proofs/groups.md.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsep.families import small
from dpsep.families.gaussian import LOG_2PI
from dpsep.models.base import Likelihood
from dpsep.models.glm import Columns, GLMContribution, LinearContribution, Public
from dpsep.models.multi_predictor import View
from dpsep.models.quadrature import Rule
from dpsep.models.sites import Factors

_NODES = {1: 11, 2: 7, 3: 5}
MOST_RANDOM = 3
"""Most random effects a group where they are integrated out."""
_NEWTON = 6


@dataclass(frozen=True)
class Effects:
    """Which effects a model has.

    Parameters
    ----------
    features
        Number of columns.
    intercept
        Whether there is a fixed intercept.
    slopes
        Columns whose slopes vary by group.
    random_intercept
        Whether the intercept varies by group.
    correlated
        Whether random effects of one group are correlated.
    noise
        Whether there is a noise standard deviation: in a linear model.
    """

    features: int
    intercept: bool = True
    slopes: tuple[int, ...] = ()
    random_intercept: bool = True
    correlated: bool = False
    noise: bool = False

    @property
    def fixed(self) -> int:
        """Number of fixed effects."""
        return self.features + self.intercept

    @property
    def random(self) -> int:
        """Number of random effects a group."""
        return len(self.slopes) + self.random_intercept

    @property
    def components(self) -> int:
        """Number of parameters of C."""
        return self.random * (self.random + 1) // 2 if self.correlated else self.random

    def design(self, x: jax.Array) -> jax.Array:
        """Columns of the fixed effects, from scaled cells; shape (..., fixed)."""
        return jnp.concatenate([jnp.ones_like(x[..., :1]), x], -1) if self.intercept else x

    def random_design(self, x: jax.Array) -> jax.Array:
        """Columns z of the random effects, from scaled cells; shape (..., random)."""
        ones = [jnp.ones_like(x[..., :1])] if self.random_intercept else []
        return jnp.concatenate([*ones, x[..., np.asarray(self.slopes, int)]], -1)

    @property
    def alone(self) -> tuple[int, ...]:
        """Places, among the fixed effects, of those that do not vary by group."""
        varying = {at + self.intercept for at in self.slopes}
        if self.intercept and self.random_intercept:
            varying.add(0)
        return tuple(at for at in range(self.fixed) if at not in varying)

    def sums(self, groups: int) -> NDArray[np.float64]:
        """M of c = M u: coefficients of records (alone, then each group's) from fixed and random effects."""
        shared = ([0] if self.intercept else [None]) if self.random_intercept else []
        shared = [*shared, *(at + self.intercept for at in self.slopes)]
        rows = [np.eye(self.fixed)[list(self.alone)]]
        both = np.zeros((self.random, self.fixed))
        for place, at in enumerate(shared):
            if at is not None:
                both[place, at] = 1.0
        rows.append(np.tile(both, (groups, 1)))
        left = np.concatenate(rows)
        right = np.zeros((len(left), groups * self.random))
        right[len(self.alone) :] = np.eye(groups * self.random)
        return np.concatenate([left, right], 1)

    def root(self, parameters: jax.Array) -> jax.Array:
        """C from its parameters: logarithms of standard deviations, then ratios below the diagonal."""
        scale = jnp.exp(parameters[: self.random])
        if not self.correlated:
            return jnp.diag(scale)
        rows, columns = np.tril_indices(self.random, -1)
        lower = jnp.eye(self.random, dtype=parameters.dtype)
        lower = lower.at[rows, columns].set(parameters[self.random :])
        # Each row is brought to length one, so that the first parameters are standard deviations.
        return lower / jnp.linalg.norm(lower, axis=1, keepdims=True) * scale[:, None]


@dataclass(frozen=True)
class GroupModel:
    """Groups as units, their random effects integrated out; a unit is (cells (rows, f), outcomes (rows,)).

    Parameters
    ----------
    effects
        Which effects there are.
    likelihood
        Of one predictor; None for a linear model, whose noise is one of the weights.
    factors, rule
        How local factors are found.
    """

    effects: Effects
    likelihood: Likelihood | None = None
    factors: Factors = "qmc"
    rule: Rule = "robust"

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.effects.fixed + self.effects.components + (self.likelihood is None)

    def view(self, features: Columns, outcome: Columns, unit: tuple[jax.Array, ...]) -> View:
        """How a group sees the weights: whole."""
        x, y = features.apply(unit[0]), outcome.apply(unit[1])
        good = jnp.all(jnp.isfinite(x), axis=-1) & jnp.isfinite(y)
        if self.likelihood is not None:
            good = good & self.likelihood.valid(y)
        x = jnp.where(good[:, None], x, 0.0)
        y = jnp.where(good, y, 1.0)
        fixed, random = self.effects.design(x), self.effects.random_design(x)

        def log_likelihood(w: jax.Array) -> jax.Array:
            beta, rest = w[: self.effects.fixed], w[self.effects.fixed :]
            # Missing rows have no part in Z, in residuals or in the sum.
            z = jnp.where(good[:, None], random @ self.effects.root(rest[: self.effects.components]), 0.0)
            if self.likelihood is None:
                residual = jnp.where(good, y - fixed @ beta, 0.0)
                return _gaussian(residual, z, rest[-1], jnp.sum(good))
            return _adaptive(self.likelihood, fixed @ beta, z, y, good)

        return View(None, log_likelihood, jnp.any(good))


@dataclass(frozen=True)
class GroupedContribution:
    """Records as units, the effects of declared groups among the weights; a unit is (cells, outcome, group).

    Parameters
    ----------
    inner
        Contribution of the regression, without an intercept of its own.
    effects
        Which effects there are.
    groups
        Number of declared groups; a group is its place among them.
    """

    inner: GLMContribution | LinearContribution
    effects: Effects
    groups: int

    def __call__(self, public: Public, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Return the blocks of the regression on all columns, one row a record."""
        cells, y, group = chunk
        x = public.features.apply(cells)
        ones = jnp.asarray(1.0, x.dtype)
        wide = widen(self.effects, self.groups, x, group)
        identity = Columns(-jnp.inf * ones, jnp.inf * ones, 0.0 * ones, ones)
        return self.inner(public._replace(features=identity), (wide, y))


def widen(effects: Effects, groups: int, x: Any, group: Any) -> jax.Array:
    """Columns that do not vary by group, then those of each group; NaN where a group is undeclared."""
    member = jnp.where(jnp.isfinite(group)[:, None], group[:, None] == jnp.arange(groups), jnp.nan)
    random = member[:, :, None] * effects.random_design(x)[:, None, :]
    alone = effects.design(x)[:, np.asarray(effects.alone, int)]
    return jnp.concatenate([alone, random.reshape(len(x), -1)], -1)


def _gaussian(residual: jax.Array, z: jax.Array, log_noise: jax.Array, rows: jax.Array) -> jax.Array:
    """Log density of residuals with covariance sigma^2 I + z z^T."""
    b = z * jnp.exp(-log_noise)
    scaled = residual * jnp.exp(-log_noise)
    pull = b.T @ scaled
    inner = small.solve(jnp.eye(z.shape[1], dtype=z.dtype) + b.T @ b, pull)
    square = jnp.sum(scaled**2) - pull @ inner.solution
    return -0.5 * (square + inner.log_determinant + rows * (2.0 * log_noise + LOG_2PI))


def _adaptive(
    likelihood: Likelihood, base: jax.Array, z: jax.Array, y: jax.Array, good: jax.Array
) -> jax.Array:
    """Log of the integral over e of exp(sum of log-likelihoods at base + z e) N(e; 0, I)."""
    size = z.shape[1]

    still, fixed = jax.lax.stop_gradient(base), jax.lax.stop_gradient(z)

    def newton(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        e = carry[0]
        u, weight = still + fixed @ e, jnp.where(good, 1.0, 0.0)
        first = jax.vmap(jax.grad(likelihood.log_likelihood))(u, y) * weight
        second = jax.vmap(jax.grad(jax.grad(likelihood.log_likelihood)))(u, y) * weight
        bend = jnp.eye(size, dtype=z.dtype) - (fixed.T * second) @ fixed
        move = small.solve(bend, fixed.T @ first - e).solution
        length = jnp.sqrt(jnp.sum(move**2))
        return e + move * jnp.minimum(1.0, 3.0 / jnp.maximum(length, 1e-300)), bend

    start = (jnp.zeros(size, z.dtype), jnp.eye(size, dtype=z.dtype))
    mode, bend = jax.lax.stop_gradient(jax.lax.fori_loop(0, _NEWTON, newton, start))
    root, log_root = small.inverse_root(bend)
    line, weights = np.polynomial.hermite_e.hermegauss(_NODES[size])
    grid = np.stack(np.meshgrid(*[line] * size, indexing="ij"), -1).reshape(-1, size)
    logs = np.sum(np.meshgrid(*[np.log(weights)] * size, indexing="ij"), axis=0).reshape(-1)
    nodes = mode + jnp.asarray(grid, z.dtype) @ root.T
    values = likelihood.log_likelihood(base + nodes @ z.T, y)
    values = jnp.sum(jnp.where(good, values, 0.0), -1) - 0.5 * jnp.sum(nodes**2, -1)
    values = values + jnp.asarray(logs + 0.5 * np.sum(grid**2, 1), z.dtype)
    return jax.scipy.special.logsumexp(values) + log_root - 0.5 * size * LOG_2PI
