"""NumPyro functions as models: what is read off them, and which are refused with a reason."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep import BayesianModel, Linear, Normal
from dpsep.models.custom import Record

numpyro = pytest.importorskip("numpyro")
dist = numpyro.distributions

COLUMNS = 2


def logistic(X: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([X.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 20.0))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + b), obs=y)


def scaled(X: Any, y: Any) -> None:
    """A regression with a positive scale, weights in a plate of their own and priors that differ."""
    with numpyro.plate("columns", X.shape[1]):
        w = numpyro.sample("w", dist.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0])))
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 0.5))
    numpyro.deterministic("log_sigma", jnp.log(sigma))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, sigma), obs=y)


def table(records: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (records, COLUMNS))
    return X, (rng.logistic(size=records) < 0.3 + X @ [2.0, -1.0]).astype(float)


@pytest.fixture(scope="module")
def fitted() -> Any:
    return BayesianModel.from_numpyro(logistic, COLUMNS, private=False, bounds=(-1, 1)).fit(*table())


def test_a_logistic_regression_in_numpyro_has_the_posterior_of_its_sampler(fitted: Any) -> None:
    X, y = table()
    kernel = numpyro.infer.NUTS(logistic)
    sampler = numpyro.infer.MCMC(kernel, num_warmup=200, num_samples=1500, progress_bar=False)
    sampler.run(jax.random.key(0), jnp.asarray(X), jnp.asarray(y))
    draws = sampler.get_samples()
    truth = np.column_stack([draws["w"], draws["b"]]).astype(float)
    assert fitted.posterior_.names == ("w[0]", "w[1]", "b")
    sd = truth.std(0)
    assert np.abs((fitted.posterior_.mean - truth.mean(0)) / sd).max() < 0.1
    assert np.abs(fitted.posterior_.sd / sd - 1).max() < 0.1


def test_it_is_the_same_model_as_one_with_a_link(fitted: Any) -> None:
    def density(params: Any, record: Any) -> Any:
        return jax.nn.log_sigmoid(jnp.where(record.y > 0, 1.0, -1.0) * params["u"])

    X, y = table()
    linked = BayesianModel(density, links={"u": Linear()}, private=False, bounds=(-1, 1)).fit(X, y)
    mean, sd = linked.posterior_.mean[[1, 2, 0]], linked.posterior_.sd[[1, 2, 0]]
    np.testing.assert_allclose((fitted.posterior_.mean - mean) / sd, 0.0, atol=2e-3)
    np.testing.assert_allclose(fitted.posterior_.sd, sd, rtol=2e-3)


def test_means_and_draws_are_those_of_the_observed_site(fitted: Any) -> None:
    X, _ = table()
    chance = fitted.predict(X[:4])
    assert ((chance > 0) & (chance < 1)).all()
    mean, deviation = fitted.predict(X[:4], return_std=True)
    np.testing.assert_allclose(mean, chance)
    np.testing.assert_allclose(deviation, np.sqrt(chance * (1 - chance)), atol=0.03)


def test_priors_are_used_as_they_are() -> None:
    model = BayesianModel.from_numpyro(scaled, COLUMNS)
    density: Any = model.log_likelihood
    assert model.prior == {"w_standard": Normal(0.0, 1.0, (2,)), "log_sigma": Normal(-1.0, 0.5, ())}
    params = {"w_standard": jnp.array([0.5, -1.0]), "log_sigma": jnp.asarray(-0.3)}
    found = jax.jit(density)(params, Record(jnp.array([0.2, 0.7]), jnp.asarray(0.4)))
    centre = 0.2 * 0.5 + 0.7 * (1.0 + 2.0 * -1.0)
    exact = -0.5 * ((0.4 - centre) / np.exp(-0.3)) ** 2 + 0.3 - 0.5 * np.log(2 * np.pi)
    assert float(found) == pytest.approx(exact, rel=1e-5)


def test_a_target_outside_the_support_contributes_nothing() -> None:
    density: Any = BayesianModel.from_numpyro(logistic, COLUMNS).log_likelihood
    params = {"w": jnp.zeros(2), "b": jnp.zeros(())}
    found = jax.jit(jax.vmap(lambda y: density(params, Record(jnp.zeros(2), y))))
    assert jnp.isfinite(found(jnp.array([1.0, 0.0, 0.5, 7.0]))).tolist() == [True, True, False, False]


def weight() -> Any:
    return numpyro.sample("w", dist.Normal(0.0, 1.0))


def local(X: Any, y: Any) -> None:
    weight()
    with numpyro.plate("rows", len(X)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def discrete(X: Any, y: Any) -> None:
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(k, 1.0).expand([len(X)]), obs=y)


def half(X: Any, y: Any) -> None:
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(0.0, sigma).expand([len(X)]), obs=y)


def nested(X: Any, y: Any) -> None:
    w = numpyro.sample("v", dist.Normal(weight(), 1.0))
    numpyro.sample("y", dist.Normal(w, 1.0).expand([len(X)]), obs=y)


def factored(X: Any, y: Any) -> None:
    numpyro.factor("extra", -0.5 * jnp.sum((y - weight()) ** 2))


def sampled(X: Any, y: Any) -> None:
    with numpyro.plate("rows", 10, subsample_size=len(X)):
        numpyro.sample("y", dist.Normal(weight(), 1.0), obs=y)


def chained(X: Any, y: Any) -> None:
    before = jnp.concatenate([jnp.zeros(1), y[:-1]])
    numpyro.sample("y", dist.Normal(weight() * before, 1.0), obs=y)


def averaged(X: Any, y: Any) -> None:
    numpyro.sample("y", dist.Normal(weight() * jnp.mean(X), 1.0).expand([len(X)]), obs=y)


def fixed_size(X: Any, y: Any) -> None:
    w = weight()
    with numpyro.plate("rows", 500):
        numpyro.sample("y", dist.Normal(w, 1.0), obs=y)


def weighted(X: Any, y: Any) -> None:
    w = weight()
    with numpyro.handlers.scale(scale=2.0):
        numpyro.sample("y", dist.Normal(w * X[:, 0], 1.0), obs=y)


def unobserved(X: Any, y: Any) -> None:
    weight()


def empty(X: Any, y: Any) -> None:
    numpyro.sample("y", dist.Normal(0.0, 1.0).expand([len(X)]), obs=y)


def one_argument(X: Any) -> None:
    weight()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (local, "'z' .* local to records"),
        (discrete, r"'k' is discrete \(Bernoulli\w*\); sum it out"),
        (half, "'sigma' has a HalfNormal prior.*LogNormal"),
        (nested, "prior of 'v' depends on another site"),
        (factored, "factor statement 'extra'"),
        (sampled, "leave subsample_size out"),
        (chained, "not the sum of each alone"),
        (averaged, "not the sum of each alone"),
        (fixed_size, r"plate size X.shape\[0\]|cannot be run"),
        (weighted, "is scaled"),
        (unobserved, "no observed site"),
        (empty, "no latent site"),
        (one_argument, r"cannot be run as model\(X, y\)"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_structure_that_does_not_fit_is_refused_with_its_reason(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianModel.from_numpyro(model, COLUMNS)
