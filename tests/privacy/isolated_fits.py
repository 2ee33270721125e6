"""The programs that fits run at their gates, of every estimator and option, and the poison each must stand.

`FITS` maps a name to a fit of a number of records; `programs_of` goes through one up to its charge and
returns what its rehearsal proved; `mixed` runs such a program with hostile rows and names what moved a row
that was not hostile. Needs NumPy, JAX and the estimators only, so that it runs on machines with little else.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import dpsep
from dpsep.privacy import charged_run, isolation
from dpsep.privacy.isolation import HOSTILE, Program, made_rows
from dpsep.registry import regressions

B = (-1.0, 1.0)
Fit = Callable[[int], Any]


class _Charged(Exception):
    """The fit has come to its charge."""


def _table(records: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (records, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=records)
    counts = rng.poisson(np.exp(0.3 * y))
    labels, group = (y > 0).astype(int), np.arange(records) % 6
    return {"X": X, "y": y, "label": labels, "count": counts, "positive": np.exp(y), "group": group}


def _fit(model: Callable[[], Any], target: str | None = None, *, groups: bool = False) -> Fit:
    def run(records: int) -> Any:
        table = _table(records)
        given = (table["X"],) if target is None else (table["X"], table[target])
        return model().fit(*given, **({"groups": table["group"]} if groups else {}))

    return run


def _settings(**more: Any) -> dict[str, Any]:
    return {"epsilon": 8.0, "delta": 1e-3, "steps": 2} | more


def student(params: Any, record: Any) -> Any:
    return jax.scipy.stats.t.logpdf(record.y, 4.0, params["u"], jnp.exp(params["s"]))


def logistic(params: Any, record: Any) -> Any:
    return jax.nn.log_sigmoid((2 * record.y - 1) * params["u"])


def counts(params: Any, record: Any) -> Any:
    rate = jnp.exp(jnp.clip(params["u"], -5.0, 5.0))
    return jax.scipy.stats.poisson.logpmf(jnp.round(record.y), rate)


def location(params: Any, record: Any) -> Any:
    return -0.5 * jnp.sum((record.x - params["mu"]) ** 2)


def _regressions() -> Iterator[tuple[str, Fit]]:
    targets: dict[str, tuple[str, dict[str, Any]]] = {
        "number": ("y", {"target_bounds": (-3.0, 3.0)}),
        "label": ("label", {"classes": [0, 1]}),
        "count": ("count", {}),
        "positive": ("positive", {"target_bounds": (0.1, 20.0)}),
    }
    for entry in regressions():
        name, kind, (target, own) = entry.name, entry.load(), targets[entry.target]
        options: dict[str, dict[str, Any]] = {
            "": {},
            "update natural": {"update": "natural"},
            "no intercept": {"fit_intercept": False},
            "sampled": {"sampling": 0.5},
            "replace-one": {"relation": "replace-one"},
            "private scaling": {"bounds": None},
        }
        for option, more in options.items():
            settings = _settings(bounds=B, **own) | more
            yield f"{name} {option}", _fit(lambda k=kind, s=settings: k(**s), target)
    yield (
        "linear, known noise",
        _fit(
            lambda: dpsep.LinearRegression(**_settings(bounds=B, target_bounds=(-3, 3), noise_precision=4.0)),
            "y",
        ),
    )


def _mixtures() -> Iterator[tuple[str, Fit]]:
    for method in ("sep", "vi", "em"):
        for option, more in {
            "diag": {},
            "spherical": {"covariance_type": "spherical"},
            "known": {"noise_scale": 0.5, "weights": [0.5, 0.5]},
            "private scaling": {"bounds": None},
        }.items():
            settings = _settings(bounds=B, method=method) | more
            yield f"mixture {method} {option}", _fit(lambda s=settings: dpsep.GaussianMixture(2, **s))


def _networks() -> Iterator[tuple[str, Fit]]:
    for method in ("sep", "vi", "point"):
        for covariance in ("kronecker", "diagonal"):
            for activation in ("relu", "sine", "sigmoid"):
                how = {"method": method, "covariance": covariance, "activation": activation, "hidden": (4,)}
                name = f"{method} {covariance} {activation}"
                number = _settings(bounds=B, target_bounds=(-3.0, 3.0), **how)
                yield f"network {name}", _fit(lambda s=number: dpsep.NetworkRegressor(**s), "y")
                label = _settings(bounds=B, classes=[0, 1], **how)
                yield f"network labels {name}", _fit(lambda s=label: dpsep.NetworkClassifier(**s), "label")
    for name, more in {
        "two layers": {"hidden": (4, 3)},
        "direct": {"direct": True},
        "not direct": {"direct": False},
        "private scaling": {"bounds": None},
        "as they come": {},
    }.items():
        settings = _settings(bounds=B, target_bounds=(-3.0, 3.0), hidden=(4,)) | more
        yield f"network {name}", _fit(lambda s=settings: dpsep.NetworkRegressor(**s), "y")


def _mixed() -> Iterator[tuple[str, Fit]]:
    for unit in ("record", "group"):
        rows = {"rows_per_group": 4, "unit": unit} if unit == "group" else {}
        for family in ("linear", "poisson", "logistic", "probit"):
            for option, more in {
                "": {},
                "slopes": {"slopes": (0,)},
                **({"correlated": {"slopes": (0,), "correlated": True}} if unit == "group" else {}),
            }.items():
                settings = _settings(family=family, groups=6, bounds=B, **rows) | more
                if family == "linear":
                    settings["target_bounds"] = (-3.0, 3.0)
                labels = family in ("logistic", "probit")
                if labels:
                    settings["classes"] = [0, 1]
                kind: Any = dpsep.MixedClassifier if labels else dpsep.MixedRegressor
                target = "label" if labels else "count" if family == "poisson" else "y"
                yield (
                    f"mixed {family} by {unit} {option}",
                    _fit(lambda k=kind, s=settings: k(**s), target, groups=True),
                )


def _own() -> Iterator[tuple[str, Fit]]:
    links, scale = {"u": dpsep.Linear()}, {"s": dpsep.Normal(0.0, 1.0)}
    models: dict[str, tuple[str, dict[str, Any]]] = {
        "own logistic": ("label", {"log_likelihood": logistic, "links": links, "classes": [0, 1]}),
        "own counts": ("count", {"log_likelihood": counts, "links": links}),
        "own location": (
            "y",
            {"log_likelihood": location, "prior": {"mu": dpsep.Normal(0.0, 1.0, (3,))}, "factors": "laplace"},
        ),
    }
    for factors in ("quadrature", "qmc", "laplace"):
        model = {"log_likelihood": student, "links": links, "prior": scale, "factors": factors}
        models[f"own student {factors}"] = ("y", model)
    models["own student, private scaling"] = ("y", {**models["own student qmc"][1], "bounds": None})
    for name, (target, how) in models.items():
        settings = _settings(bounds=B) | how
        yield name, _fit(lambda s=settings: dpsep.BayesianModel(**s), target)


FITS: dict[str, Fit] = dict([*_regressions(), *_mixtures(), *_networks(), *_mixed(), *_own()])


def programs_of(name: str, records: int) -> list[tuple[Program, Any]]:
    """The programs of a fit, with the public values they would be run with first."""
    found: dict[int, tuple[Program, Any]] = {}

    def noted(program: Program, public: Any, *, sampled: bool) -> None:
        found[id(program)] = (program, public)

    def stop(*_: Any, **__: Any) -> Any:
        raise _Charged

    with (
        mock.patch.object(isolation.Program, "prove", noted),
        mock.patch.object(charged_run, "authorise", stop),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            FITS[name](records)
        except _Charged:
            return list(found.values())
    raise AssertionError(f"{name} came to no charge")


def _bits(found: Any) -> list[Any]:
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(found)]
    return [leaf.view(np.uint8).reshape(len(leaf), -1) for leaf in leaves]


def victims_of(rows: int, *, single: bool) -> Iterator[Any]:
    """Sets of slots such that each pair of slots is told apart by one of them, and each slot by itself."""
    every = np.arange(rows)
    for bit in range(max(1, (rows - 1).bit_length())):
        yield every[(every >> bit) & 1 == 0]
        yield every[(every >> bit) & 1 == 1]
    if single:
        yield from every[:, None]


def mixed(program: Program, public: Any, *, single: bool) -> Iterator[str]:
    """Run a program with hostile rows; name each set of slots and value by which another row moved by a bit.

    Full chunks, and short ones, whose last third is padded as a reader pads it; all cells of a hostile row,
    and one.
    """
    public = isolation.arrays_of(public)
    made = made_rows(program.shapes)
    rows = len(made[0])
    short = [part.copy() for part in made]
    for part in short:
        part[-(rows // 3) :] = np.nan
    with jax.enable_x64(True):
        for fill, given in (("full", made), ("short", short)):
            clean = _bits(program(public, given))
            for victims in victims_of(rows, single=single and fill == "full"):
                if not len(victims) or len(victims) == rows:
                    continue
                others = np.setdiff1d(np.arange(rows), victims)
                for number, value in enumerate(HOSTILE):
                    hostile = [part.copy() for part in given]
                    for part in hostile:
                        flat = part[victims].reshape(len(victims), -1)
                        if number % 2 and flat.shape[1] > 1:
                            flat[:, number % flat.shape[1]] = value
                        else:
                            flat[:] = value
                        part[victims] = flat.reshape(len(victims), *part.shape[1:])
                    seen = _bits(program(public, hostile))
                    if any((a[others] != b[others]).any() for a, b in zip(clean, seen, strict=True)):
                        yield f"{fill} chunk of {rows}, slots {victims.tolist()[:5]}, value {value!r}"
