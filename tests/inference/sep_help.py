"""Small problems and independent references for the tests of stochastic EP."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from dpsep.families import Gamma, Gaussian
from dpsep.inference import sep, sep_newton
from dpsep.models import LearnedNoise
from dpsep.models.glm import Columns, GLMContribution, LinearContribution
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

ROWS, WEIGHTS = 300, 3
CAP = 2.0 * math.sqrt(ROWS)
"""Longest step of the mean, in posterior standard deviations: two units of a predictor."""


def problem(kind: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features with a constant first, and outcomes."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(ROWS), rng.uniform(-1, 1, (ROWS, WEIGHTS - 1))])
    u = x @ np.array([0.3, 1.0, -0.8])
    if kind == "linear":
        return x, u + 0.4 * rng.normal(size=ROWS)
    if kind == "poisson":
        return x, rng.poisson(np.exp(u)).astype(float)
    hidden = rng.logistic(size=ROWS) if kind == "logistic" else rng.normal(size=ROWS)
    return x, np.where(hidden < u, 1.0, -1.0)


def identity(columns: int | None = None) -> Any:
    """Map that leaves columns as they are; of one column that is a vector for None."""
    one: Any = np.float64(1.0) if columns is None else np.ones(columns)
    return Columns(-np.inf * one, np.inf * one, 0.0 * one, one)


def settings(precision: float = 1.0, *, noise: bool = False, **others: Any) -> sep_newton.Settings:
    """Isotropic prior about zero; with `noise`, Gamma(2, 1/2) for the noise precision."""
    shape: Any = np.asarray(1.0)
    prior = Gamma(shape, shape / 2) if noise else None
    values: dict[str, Any] = {
        "prior_mean": np.zeros(WEIGHTS),
        "prior_precision": precision * np.eye(WEIGHTS),
        "features": identity(WEIGHTS),
        "outcome": identity(),
        "start": np.full(WEIGHTS, 0.3 * ROWS),
        "noise": prior,
        "noise_guess": 4.0 if noise else 1.0,
        "cap": math.inf if noise else CAP,
    }
    return sep_newton.Settings(**(values | others))


def open_gate(
    likelihood: Any,
    records: tuple[np.ndarray, np.ndarray],
    clip: float = math.inf,
    precision_clip: float = math.inf,
) -> OpenGate:
    """Sums for the stable update; the likelihood may be a model with learned noise."""
    blocks = [Block("mean", WEIGHTS, clip, 0.5), Block("precision", WEIGHTS, precision_clip, 0.45, "outer")]
    contribution: Any = GLMContribution(likelihood, intercept=False)
    if isinstance(likelihood, LearnedNoise):
        blocks.append(Block("noise", 2, math.inf, 0.05))
        contribution = LinearContribution(likelihood, intercept=False)
    return OpenGate(records, blocks, contribution)


def factor_gate(model: Any, records: Any, size: int, clip: float = math.inf) -> OpenGate:
    """Sums for the paper's own update, of `size` flat natural parameters."""
    contribution: Any = sep.FactorContribution(model)
    return OpenGate(records, [Block("factor", size, clip)], contribution)


def refreshed(model: Any, prior: Any, q: Any, records: tuple[np.ndarray, np.ndarray]) -> Any:
    """theta_0 + sum of theta_fn at the cavity of q: a fixed point of SEP is where this is q again."""
    count = len(records[0])
    cavity = jax.tree.map(lambda a, b: jnp.asarray(a - (a - b) / count), q, prior)
    factors = jax.vmap(lambda record: model.local_factor(cavity, record))(tuple(map(jnp.asarray, records)))
    return jax.tree.map(lambda a, b: a + jnp.sum(b, axis=0), prior, factors)


def prior_of(values: sep_newton.Settings) -> Gaussian:
    """The prior of the weights as a family."""
    precision = jnp.asarray(values.prior_precision)
    return Gaussian(precision @ values.prior_mean, precision)


def probit_factor(
    eta: np.ndarray, precision: np.ndarray, x: np.ndarray, y: float
) -> tuple[np.ndarray, np.ndarray]:
    """Tilted minus cavity of one probit record, from the tilted moments of the weights themselves.

    Rasmussen and Williams (2006), equations 3.82 and 3.85, with the cavity's covariance S: mean m + r S x,
    and covariance S - r (r + z / sqrt(1 + v)) S x x' S, both less the cavity in natural parameters.
    """
    covariance = np.linalg.inv(precision)
    mean = covariance @ eta
    v = x @ covariance @ x
    z = y * (x @ mean) / math.sqrt(1 + v)
    ratio = y * norm.pdf(z) / norm.cdf(z) / math.sqrt(1 + v)
    tilted_mean = mean + ratio * covariance @ x
    shrink = ratio * (ratio + y * z / math.sqrt(1 + v))
    tilted = np.linalg.inv(covariance - shrink * np.outer(covariance @ x, covariance @ x))
    return tilted @ tilted_mean - eta, tilted - precision
