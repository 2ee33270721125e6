"""Marginal likelihoods of groups against integrals done by other means, and columns of groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dpsep.models import LogisticLikelihood, PoissonLikelihood, ProbitLikelihood
from dpsep.models.glm import Columns
from dpsep.models.mixed import Effects, GroupModel, widen

SAME = Columns(*(np.float64(part) for part in (-np.inf, np.inf, 0.0, 1.0)))  # pyright: ignore[reportArgumentType]
ROWS = 6


def cells(seed: int = 0):
    return np.random.default_rng(seed).normal(size=(ROWS, 2))


def log_likelihood(model, X, y, w):
    with jax.enable_x64(True):
        view = model.view(SAME, SAME, (jnp.asarray(X), jnp.asarray(y)))
        return float(view.log_likelihood(jnp.asarray(w))), bool(view.usable)


@pytest.mark.parametrize("correlated", [True, False])
def test_a_linear_group_has_the_density_of_its_joint_normal(correlated):
    X, y = cells(), np.random.default_rng(1).normal(size=ROWS)
    effects = Effects(2, slopes=(0,), correlated=correlated)
    parameters = [-0.5, -1.0, 0.4][: effects.components]
    w = np.array([0.1, 0.5, -0.3, *parameters, -0.7])
    with jax.enable_x64(True):
        root = np.asarray(effects.root(jnp.asarray(parameters)))
    design = np.c_[np.ones(ROWS), X]
    z = design[:, :2] @ root
    expected = stats.multivariate_normal(design @ w[:3], np.exp(2 * w[-1]) * np.eye(ROWS) + z @ z.T).logpdf(y)
    assert log_likelihood(GroupModel(effects), X, y, w)[0] == pytest.approx(expected, abs=1e-9)


def test_parameters_of_correlated_effects_begin_with_their_standard_deviations():
    effects = Effects(3, slopes=(0, 2), correlated=True)
    with jax.enable_x64(True):
        root = np.asarray(effects.root(jnp.array([-0.5, 0.2, 0.1, 0.7, -0.4, 2.0])))
    assert np.sqrt(np.diagonal(root @ root.T)) == pytest.approx(np.exp([-0.5, 0.2, 0.1]))
    assert np.abs((root @ root.T)[1, 0]) > 0.1


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (LogisticLikelihood(), [1.0, 1.0, -1.0, 1.0, -1.0, 1.0]),
        (ProbitLikelihood(), [1.0, 1.0, -1.0, 1.0, 1.0, 1.0]),
        (PoissonLikelihood(), [0.0, 3.0, 1.0, 2.0, 0.0, 7.0]),
    ],
    ids=["logistic", "probit", "poisson"],
)
def test_a_random_intercept_is_integrated_out(likelihood, y):
    X, w = cells(), np.array([0.1, 0.5, -0.3, 0.3])
    u = np.c_[np.ones(ROWS), X] @ w[:3]
    with jax.enable_x64(True):

        def integrand(b):
            values = np.asarray(likelihood.log_likelihood(u + b, np.asarray(y)))
            return np.exp(values.sum() + stats.norm.logpdf(b, 0, np.exp(w[3])))

        expected = np.log(integrate.quad(integrand, -15, 15, limit=200)[0])
    assert log_likelihood(GroupModel(Effects(2), likelihood), X, y, w)[0] == pytest.approx(expected, abs=1e-5)


def test_two_random_effects_are_integrated_out():
    X, w = cells(), np.array([0.1, 0.5, -0.3, -0.2, 0.1])
    y = np.array([1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    u, sd = np.c_[np.ones(ROWS), X] @ w[:3], np.exp(w[3:])

    def integrand(b, c):
        signal = stats.logistic.logcdf(y * (u + b + c * X[:, 1])).sum()
        return np.exp(signal + stats.norm.logpdf([b, c], 0, sd).sum())

    expected = np.log(integrate.dblquad(integrand, -6, 6, -6, 6, epsabs=1e-8)[0])
    model = GroupModel(Effects(2, slopes=(1,)), LogisticLikelihood())
    assert log_likelihood(model, X, y, w)[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("likelihood", [None, LogisticLikelihood()], ids=["linear", "logistic"])
def test_bad_and_missing_rows_count_nowhere_in_their_group(likelihood):
    X, y = cells(), np.array([1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    w = np.array([0.1, 0.5, -0.3, -0.3] + [-0.7] * (likelihood is None))
    model = GroupModel(Effects(2), likelihood)
    expected = log_likelihood(model, X[:4], y[:4], w)[0]
    spoiled, outcomes = X.copy(), y.copy()
    spoiled[4, 1], outcomes[5] = np.nan, np.inf
    assert log_likelihood(model, spoiled, outcomes, w)[0] == pytest.approx(expected, abs=1e-12)
    assert not log_likelihood(model, np.full_like(X, np.nan), y, w)[1], "a group without rows"


def test_derivatives_hold_the_nodes_of_the_integral_fixed():
    X, y, w = cells(), np.array([0.0, 3.0, 1.0, 2.0, 0.0, 7.0]), np.array([0.1, 0.5, -0.3, 0.3])
    model = GroupModel(Effects(2), PoissonLikelihood())
    with jax.enable_x64(True):
        view = model.view(SAME, SAME, (jnp.asarray(X), jnp.asarray(y)))
        gradient = np.asarray(jax.grad(view.log_likelihood)(jnp.asarray(w)))
        shifts = 1e-5 * np.eye(4)
        differences = [
            float(view.log_likelihood(jnp.asarray(w + s)) - view.log_likelihood(jnp.asarray(w - s))) / 2e-5
            for s in shifts
        ]
    assert gradient == pytest.approx(differences, abs=1e-5)


def test_groups_have_columns_of_their_own():
    effects = Effects(2, slopes=(1,))
    x, group = np.array([[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]), np.array([1.0, 0.0, np.nan])
    wide = np.asarray(widen(effects, 2, x, group))
    assert wide[0].tolist() == [2, 0, 0, 1, 3], "the column alone, then intercept and slope of each group"
    assert wide[1].tolist() == [4, 1, 5, 0, 0]
    assert np.isnan(wide[2]).any(), "an undeclared group spoils its record"


@pytest.mark.parametrize("effects", [Effects(2, slopes=(1,)), Effects(2, intercept=False, slopes=(0,))])
def test_coefficients_are_sums_of_fixed_and_random_effects(effects):
    rng = np.random.default_rng(0)
    fixed, random = rng.normal(size=effects.fixed), rng.normal(size=(3, effects.random))
    x, group = rng.normal(size=(5, 2)), np.array([0.0, 2.0, 1.0, 1.0, 0.0])
    coefficients = effects.sums(3) @ np.concatenate([fixed, random.ravel()])
    predictor = np.asarray(widen(effects, 3, x, group)) @ coefficients
    design, z = np.asarray(effects.design(x)), np.asarray(effects.random_design(x))  # pyright: ignore[reportArgumentType]
    expected = design @ fixed + np.sum(z * random[group.astype(int)], 1)
    assert predictor == pytest.approx(expected, abs=1e-5)
