r"""A NumPyro function as a model of your own, where its structure allows.

`model(X, y)` is run on one and on two made-up rows, never on records. What is needed: every latent site has
a Gaussian prior of its own, or is a fixed function of such a one (`LogNormal`: the exponential); the number
of latent values does not grow with the rows; and the log density of two rows, given the latents, is the sum
of each alone. The log-likelihood of a record is then the sum of the observed sites' log densities with the
latents put in. All latents are parameters that records share, so a record sees all of them: where there is a
linear predictor, a `dpsep.BayesianModel` with `links` does the same with far fewer numbers a record.

**Privacy.** No record is read here. The log-likelihood is traced and checked like any other; an outcome
outside the support of its site makes its record a zero contribution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.models.custom import Normal, Record

_WAY_OUT = "Give it a Normal prior, or for a positive one a LogNormal."


class ReadModel(NamedTuple):
    """Parameters of a `dpsep.BayesianModel`."""

    log_likelihood: "NumpyroLikelihood"
    prior: dict[str, Normal]
    mean: "NumpyroMean"
    sample: "NumpyroSample"


class Latent(NamedTuple):
    """A latent site, and how its value comes from a Gaussian parameter.

    Attributes
    ----------
    site, name
        Its name in the function, and the parameter's.
    shape
        Of both.
    shift, scale
        What a parameter is first multiplied by and moved by: where the values of a site have different
        priors their parameter is standard normal, else it has the site's own prior.
    transforms
        What is done to it then.
    """

    site: str
    name: str
    shape: tuple[int, ...]
    shift: Any
    scale: Any
    transforms: tuple[Any, ...]

    def value(self, weights: Any) -> Any:
        """The site's value, from the Gaussian's."""
        value = jnp.reshape(weights, self.shape) * self.scale + self.shift
        for transform in self.transforms:
            value = transform(value)
        return value


@dataclass(frozen=True, eq=False)
class NumpyroLikelihood:
    """Log density of one record: the sum over observed sites."""

    model: Callable[..., Any]
    latents: tuple[Latent, ...]
    whole: bool

    def __call__(self, params: dict[str, Any], record: Record) -> jax.Array:
        """Return the log density, NaN outside the support."""
        return self.rows(self.values(params), record.x[None, :], jnp.asarray(record.y)[None])

    def values(self, params: dict[str, Any]) -> dict[str, Any]:
        """Values of the latent sites."""
        return {latent.site: latent.value(params[latent.name]) for latent in self.latents}

    def rows(self, values: dict[str, Any], X: Any, y: Any) -> jax.Array:
        """Log density of some rows together."""
        total = jnp.zeros(())
        good = jnp.all(y == jnp.round(y)) if self.whole else True
        for site in self.observed(values, X, y).values():
            total = total + jnp.sum(site["fn"].log_prob(site["value"]))
            good = good & jnp.all(site["fn"].support(site["value"]))
        return jnp.where(good, total, jnp.nan)

    def observed(self, values: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        """Observed sites of some rows."""
        target = y.astype(int) if self.whole else y
        return {name: site for name, site in _trace(self.model, values, X, target).items() if _observed(site)}


@dataclass(frozen=True, eq=False)
class NumpyroMean:
    """Mean of a record's target."""

    likelihood: NumpyroLikelihood

    def __call__(self, params: dict[str, Any], record: Record) -> jax.Array:
        """Return the mean of the observed site."""
        return jnp.asarray(_target(self.likelihood, params, record).mean).reshape(())


@dataclass(frozen=True, eq=False)
class NumpyroSample:
    """Draws a record's target."""

    likelihood: NumpyroLikelihood

    def __call__(self, key: jax.Array, params: dict[str, Any], record: Record) -> jax.Array:
        """Return a draw of the observed site."""
        return jnp.asarray(_target(self.likelihood, params, record).sample(key), float).reshape(())


def read_model(model: Callable[..., Any], columns: int) -> ReadModel:
    """Return what a `dpsep.BayesianModel` needs, or say why the function cannot be one.

    Parameters
    ----------
    model
        ``model(X, y)``, for any number of rows.
    columns
        Number of columns of X.
    """
    _numpyro()
    generator = np.random.default_rng(0)
    X = generator.uniform(0.1, 0.9, (2, columns))
    with jax.enable_x64(True):
        traces = [_run(model, X[:count], seed) for seed, count in ((0, 1), (1, 1), (2, 2))]
        for site in traces[2].values():
            _check_site(site)
        found = [_latent(name, [trace.get(name) for trace in traces]) for name in _latents(traces[2])]
        if not found:
            raise ValueError("the NumPyro model has no latent site: there is nothing to infer.")
        observed = [site for site in traces[2].values() if _observed(site)]
        if not observed:
            raise ValueError("the NumPyro model has no observed site; give one obs=y.")
        whole = any(site["fn"].support.is_discrete for site in observed)
        prior = {latent.name: normal for latent, normal in found}
        likelihood = NumpyroLikelihood(model, tuple(latent for latent, _ in found), whole)
        _check_rows(likelihood, prior, X)
    return ReadModel(likelihood, prior, NumpyroMean(likelihood), NumpyroSample(likelihood))


def _latent(name: str, sites: list[Any]) -> tuple[Latent, Normal]:
    """Read one latent site off its distributions in three runs."""
    shapes = {None if site is None else tuple(np.shape(site["value"])) for site in sites}
    if len(shapes) != 1 or None in shapes:
        raise ValueError(
            f"the latent site {name!r} has shapes {sorted(map(str, shapes))} for one row and for two: it is "
            "local to records. Sum or integrate it out, so that the latents are those that records share."
        )
    normal, transforms = _gaussian(name, sites[0]["fn"])
    shape = tuple(np.shape(sites[0]["value"]))
    if shape != tuple(np.shape(normal.loc)):
        raise ValueError(f"the latent site {name!r} is not its Gaussian, value by value. {_WAY_OUT}")
    moments = [_gaussian(name, site["fn"])[0] for site in sites]
    if not all(
        np.array_equal(getattr(one, part), getattr(normal, part))
        for one in moments
        for part in ("loc", "scale")
    ):
        raise ValueError(
            f"the prior of {name!r} depends on another site or on X. Write it as a function of a standard "
            "one: z = sample('z', Normal(0, 1)), then mean + scale * z."
        )
    loc, scale = np.asarray(normal.loc), np.asarray(normal.scale)
    exponential = [type(transform).__name__ for transform in transforms] == ["ExpTransform"]
    called = f"log_{name}" if exponential else f"{name}_base" if transforms else name
    if loc.size and np.all(loc == loc.flat[0]) and np.all(scale == scale.flat[0]):
        prior = Normal(float(loc.flat[0]), float(scale.flat[0]), shape)
        return Latent(name, called, shape, 0.0, 1.0, transforms), prior
    return Latent(name, f"{called}_standard", shape, loc, scale, transforms), Normal(0.0, 1.0, shape)


def _gaussian(name: str, fn: Any) -> tuple[Any, tuple[Any, ...]]:
    """The Gaussian under a distribution, its moments spread to its shape, and the transforms of its value."""
    dist = _numpyro().distributions
    shape, transforms = fn.shape(), ()
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        fn = fn.base_dist
    if isinstance(fn, dist.TransformedDistribution):
        transforms, fn = tuple(fn.transforms), fn.base_dist
        while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
            fn = fn.base_dist
    if getattr(fn.support, "is_discrete", False):
        raise ValueError(f"the latent site {name!r} is discrete ({type(fn).__name__}); sum it out.")
    if not isinstance(fn, dist.Normal):
        raise ValueError(
            f"the latent site {name!r} has a {type(fn).__name__} prior; posteriors here are Gaussian. "
            + _WAY_OUT
        )
    loc, scale = jnp.broadcast_to(fn.loc, shape), jnp.broadcast_to(fn.scale, shape)
    return SimpleNamespace(loc=np.asarray(loc), scale=np.asarray(scale)), transforms


def _check_site(site: dict[str, Any]) -> None:
    """Refuse what has no place in a sum over records."""
    name, kind = site["name"], site["type"]
    if kind == "plate":
        size, part = site["args"]
        if part is not None and part != size:
            raise ValueError(f"plate {name!r} takes a sample of its rows; leave subsample_size out.")
    elif kind not in ("sample", "deterministic"):
        raise ValueError(
            f"the model has a statement {name!r} of kind {kind!r}; only sample and plate fit here."
        )
    if kind == "sample" and type(_numpyro().distributions.Unit(0.0)) in (
        type(site["fn"]),
        type(getattr(site["fn"], "base_dist", None)),
    ):
        raise ValueError(
            f"factor statement {name!r}: write it as the log_likelihood of a dpsep.BayesianModel."
        )
    if site.get("scale") is not None and np.any(np.asarray(site["scale"]) != 1):
        raise ValueError(f"site {name!r} is scaled; a record counts once here.")


def _check_rows(likelihood: NumpyroLikelihood, prior: dict[str, Normal], X: Any) -> None:
    """Refuse a model whose rows are not independent given the latents."""
    for key in jax.random.split(jax.random.key(0), 3):
        drawn = {
            name: normal.mean + normal.sd * jax.random.normal(key, normal.shape)
            for name, normal in prior.items()
        }
        values = likelihood.values(drawn)
        y = np.asarray(_drawn(likelihood, values, X, key), float)
        together = likelihood.rows(values, X, y)
        alone = [likelihood.rows(values, X[[row]], y[[row]]) for row in (0, 1)]
        if not np.allclose(together, sum(alone), rtol=1e-6, atol=1e-6, equal_nan=True):
            raise ValueError(
                "the log density of two rows is not the sum of each alone: rows must be independent given "
                "the latent sites, with one value of y a row (plate size X.shape[0])."
            )


def _drawn(likelihood: NumpyroLikelihood, values: dict[str, Any], X: Any, key: jax.Array) -> Any:
    """Targets that the model itself draws, one a row."""
    site = list(likelihood.observed(values, X, jnp.zeros(len(X))).values())[-1]
    drawn = site["fn"].sample(key)
    if np.shape(drawn) != (len(X),):
        raise ValueError(
            f"the observed site {site['name']!r} has shape {np.shape(drawn)} for {len(X)} rows; it must hold "
            "one value a row (plate size X.shape[0])."
        )
    return drawn


def _target(likelihood: NumpyroLikelihood, params: dict[str, Any], record: Record) -> Any:
    X, y = record.x[None, :], jnp.zeros(1)
    return list(likelihood.observed(likelihood.values(params), X, y).values())[-1]["fn"]


def _run(model: Callable[..., Any], X: Any, seed: int) -> dict[str, Any]:
    handlers = _numpyro().handlers
    try:
        return dict(handlers.trace(handlers.seed(model, seed)).get_trace(jnp.asarray(X), jnp.zeros(len(X))))
    except Exception as error:
        raise ValueError(
            f"the NumPyro model cannot be run as model(X, y) on {len(X)} rows "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})."
        ) from error


def _trace(model: Callable[..., Any], values: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
    handlers = _numpyro().handlers
    return handlers.trace(handlers.substitute(handlers.seed(model, 0), data=values)).get_trace(X, y)


def _latents(trace: dict[str, Any]) -> list[str]:
    return [name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]]


def _observed(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and site["is_observed"]


def _numpyro() -> Any:
    try:
        import numpyro
        import numpyro.distributions
        import numpyro.handlers
    except ImportError as error:
        raise ImportError("a NumPyro model needs NumPyro: pip install 'dpsep[truth]'.") from error
    return numpyro
