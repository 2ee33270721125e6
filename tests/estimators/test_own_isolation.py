"""Log-likelihoods that an attacker, or a careless user, may write: refused before the charge, or harmless."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from dpsep import BayesianModel, Ledger, Linear, PrivacyLeakError, PrivacyLeakWarning
from dpsep.privacy import isolation
from dpsep.privacy.isolation import IsolationError, Program, made_rows

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.theory.glm_defaults.WeakBudgetWarning")

Function = Callable[[Any, Any], Any]
WIDTH = 3


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, WIDTH))
    return X, X[:, 0] + rng.normal(0.0, 0.3, 60)


def squared(params: Any, record: Any) -> Any:
    return -0.5 * (record.y - params["u"]) ** 2


def with_term(term: Callable[[Any, Any], Any]) -> Function:
    """A plain likelihood with one more factor, made of a record's cells and its predictor."""
    return lambda params, record: squared(params, record) * (1.0 + 0.01 * term(record.x, params["u"]))


def vector(x: Any, u: Any) -> Any:
    return jnp.concatenate([x, u[None]])


# The example that was found: one missing target silenced the 127 records beside it.
def convolved(params: Any, record: Any) -> Any:
    first, second = jnp.stack([params["u"], record.y]), jnp.stack([record.y, jnp.ones(())])
    return squared(params, record) + 1e-6 * jnp.sum(jnp.convolve(first, second))


def printing(x: Any, u: Any) -> Any:
    jax.debug.print("{u}", u=u)
    return u


@jax.custom_jvp
def talkative(u: Any) -> Any:
    return u**2


@talkative.defjvp
def _talk(primals: Any, tangents: Any) -> Any:
    return talkative(primals[0]), 2.0 * printing(None, primals[0]) * tangents[0]


@jax.custom_batching.custom_vmap
def mixing(u: Any) -> Any:
    return u


@mixing.def_vmap
def _mix(size: int, batched: Any, u: Any) -> Any:
    return jnp.broadcast_to(jnp.sum(u), u.shape), True


@jax.custom_batching.custom_vmap
def turned(x: Any) -> Any:
    return x


@turned.def_vmap
def _turn(size: int, batched: Any, x: Any) -> Any:
    return lax.reshape(x, x.shape, dimensions=(1, 0)), True


def hit(x: Any) -> Any:
    """Zero for all that is tried beforehand, and not for one record."""
    return jnp.where(jnp.abs(x - 0.123456) < 1e-9, 1.0, 0.0)


def sorted_from_behind(x: Any, u: Any) -> Any:
    behind = jnp.asarray(np.eye(WIDTH)) @ hit(x)  # the records' axis becomes the last
    return u * jnp.sum(lax.sort_p.bind(behind, dimension=-1, is_stable=True, num_keys=1)[0])


@jax.custom_jvp
def quiet_mixing(u: Any, y: Any) -> Any:
    return -0.5 * (u - y) ** 2


@quiet_mixing.defjvp
def _mix_slope(primals: Any, tangents: Any) -> Any:
    u, y = primals
    return quiet_mixing(u, y), (mixing(y) - u) * tangents[0]


def keyed(impl: str) -> Callable[[Any, Any], Any]:
    def term(x: Any, u: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0, impl=impl), (100 * x[0]).astype(jnp.int32))
        return u * jax.random.uniform(key)

    return term


def called(x: Any, u: Any) -> Any:
    kind = jax.ShapeDtypeStruct((), x.dtype)
    return u * jax.pure_callback(lambda x: np.asarray(x[..., 0]), kind, x, vmap_method="expand_dims")


def told(x: Any, u: Any) -> Any:
    io_callback(lambda x: None, None, x)
    return u


def until_small(x: Any, u: Any) -> Any:
    """A loop whose end depends on a record: it could hang a fit."""
    return u * lax.while_loop(lambda c: jnp.abs(c) > 1e-3, lambda c: c / 2, lax.stop_gradient(x[0]))


REFUSED: dict[str, Function] = {
    "convolve": convolved,
    "correlate": with_term(lambda x, u: jnp.sum(jnp.correlate(x, vector(x, u)))),
    "polynomial product": with_term(lambda x, u: jnp.sum(jnp.polymul(x, vector(x, u)))),
    "convolution": with_term(
        lambda x, u: jnp.sum(lax.conv(vector(x, u)[None, None], x[None, None], (1,), "SAME"))
    ),
    "windows": with_term(
        lambda x, u: u * jnp.sum(lax.reduce_window(lax.stop_gradient(x), 0.0, lax.add, (2,), (1,), "SAME"))
    ),
    "general reduction": with_term(
        lambda x, u: u * lax.reduce(x, jnp.ones(()), lambda a, b: a * jnp.sin(b), (0,))
    ),
    "printing": with_term(printing),
    "printing in jit": with_term(jax.jit(printing)),
    "printing in checkpoint": with_term(jax.checkpoint(printing)),
    "printing in a branch": with_term(lambda x, u: lax.cond(u > 0, lambda: printing(x, u), lambda: u)),
    "printing in a loop": with_term(
        lambda x, u: lax.scan(lambda c, _: (printing(x, c), None), u, None, length=2)[0]
    ),
    "printing in a derivative": with_term(lambda x, u: talkative(u)),
    "callback": with_term(called),
    "callback with an effect": with_term(told),
    "batching rule that mixes": with_term(lambda x, u: u * mixing(x[0])),
    "batching rule behind a trigger": with_term(lambda x, u: u * jnp.sum(turned(hit(x)))),
    "sort that counts from behind": with_term(sorted_from_behind),
    "batching rule in a derivative": lambda params, record: quiet_mixing(params["u"], record.y),
    "random by record": with_term(keyed("threefry2x32")),
    "random by record, other bits": with_term(keyed("rbg")),
    "gamma draws": with_term(lambda x, u: u * jax.random.gamma(jax.random.key(0), 1.0 + x[0] ** 2)),
    "incomplete beta": with_term(lambda x, u: u * jax.scipy.special.betainc(2.0, 3.0, jax.nn.sigmoid(x[0]))),
    "incomplete gamma": with_term(lambda x, u: u * jax.scipy.special.gammainc(2.0, x[0] ** 2)),
    "loop until a record is done": with_term(until_small),
    "singular values": with_term(lambda x, u: u * jnp.linalg.svd(x[:, None] * x, compute_uv=False)[0]),
    "sum over a mapped axis": with_term(
        lambda x, u: jax.vmap(lambda v: lax.psum(v * u, "i"), axis_name="i")(x)[0]
    ),
    "cells as bits": with_term(lambda x, u: u * lax.bitcast_convert_type(x, jnp.int32).sum()),
}
HARMLESS: dict[str, Function] = {
    "fft of a record": with_term(lambda x, u: u * jnp.sum(jnp.abs(jnp.fft.fft(x)))),
    "sort of a record": with_term(lambda x, u: jnp.sort(vector(x, u))[1]),
    "median of a record": with_term(lambda x, u: jnp.median(vector(x, u))),
    "cumulative sums of a record": with_term(lambda x, u: jnp.cumsum(vector(x, u))[2]),
    "scan within a record": with_term(lambda x, u: lax.scan(lambda c, v: (c * v + u, c), u, x)[0]),
    "associative scan": with_term(lambda x, u: lax.associative_scan(jnp.multiply, vector(x, u))[3]),
    "mapped in other ways": with_term(
        lambda x, u: jnp.sum(jax.vmap(lambda a, b: a * b + u, (0, None))(x, x[0]))
    ),
    "gather from public values": with_term(
        lambda x, u: u * jnp.asarray([1.0, 2.0, 3.0])[jnp.clip(x[0], 0, 2).astype(int)]
    ),
    "gather by data": with_term(lambda x, u: vector(x, u)[jnp.clip(x[0], 0, 2).astype(int)]),
    "scatter by data": with_term(lambda x, u: x.at[jnp.clip(x[0], 0, 2).astype(int)].add(u).sum()),
    "solve of a record": with_term(
        lambda x, u: jnp.linalg.solve(x[:, None] * x + (1.0 + u**2) * jnp.eye(WIDTH), x)[0]
    ),
    "solve with public values": with_term(
        lambda x, u: u * jax.scipy.linalg.solve_triangular(np.tri(WIDTH), x, lower=True)[2]
    ),
    "normal density": with_term(
        lambda x, u: jax.scipy.stats.multivariate_normal.logpdf(x, u * jnp.ones(WIDTH), 2.0 * np.eye(WIDTH))
    ),
    "determinant": with_term(
        lambda x, u: jnp.linalg.slogdet(x[:, None] * x + jnp.exp(u) * jnp.eye(WIDTH))[1]
    ),
    "branch on a record": with_term(lambda x, u: lax.cond(x[0] > 0, lambda: u, lambda: -u)),
    "loop of fixed length": with_term(lambda x, u: lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) + x[0], u)),
    "public random numbers": with_term(lambda x, u: u + jax.random.normal(jax.random.key(3))),
    "public convolution": with_term(lambda x, u: u * jnp.convolve(jnp.ones(3), jnp.arange(3.0))[2]),
    "own derivative": with_term(lambda x, u: jax.nn.relu(u) + jax.nn.softplus(x[0])),
    "student": lambda params, record: jax.scipy.stats.t.logpdf(record.y - params["u"], 4.0),
}


def model(function: Function, **more: Any) -> BayesianModel:
    settings: dict[str, Any] = {"bounds": (-1.0, 1.0), "delta": 1e-3, "steps": 1, "factors": "laplace"}
    return BayesianModel(function, links={"u": Linear()}, **(settings | more))


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_show_or_mix_records_is_refused_before_anything_is_charged_or_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsep.estimators.custom.records_of", lambda *_: pytest.fail("a record was read"))
    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-2)
    with pytest.raises(ValueError, match=r"show or mix records|do not support JVP|JVP rule|does not support"):
        model(REFUSED[name], ledger=ledger).fit(*table())
    assert [row.kind for row in ledger.rows()] == ["create"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_keeps_to_its_record_is_admitted_and_keeps_rows_apart(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolation.forget()
    seen: list[tuple[Program, Any]] = []
    prove = Program.prove
    monkeypatch.setattr(
        Program,
        "prove",
        lambda self, public, **more: (seen.append((self, public)), prove(self, public, **more)),
    )
    model(HARMLESS[name]).fit(*table())
    program, public = seen[-1]
    made = made_rows(program.shapes)
    with jax.enable_x64(True):
        clean = [np.asarray(part) for part in program(public, made)]
        assert all(np.isfinite(part).all() for part in clean), "the program says something of these rows"
        for value in isolation.HOSTILE:
            hostile = [part.copy() for part in made]
            for part in hostile:
                part[5] = value
            for one, other in zip(clean, program(public, hostile), strict=True):
                assert np.delete(one, 5, 0).tobytes() == np.delete(np.asarray(other), 5, 0).tobytes()


def test_the_list_holds_thirty_programs_and_more() -> None:
    assert len(REFUSED) + len(HARMLESS) > 40


def test_without_privacy_nothing_is_refused() -> None:
    X, y = table()
    assert np.isfinite(model(convolved, private=False, steps=5).fit(X, y).posterior_.mean).all()


def test_an_operation_of_another_library_is_refused() -> None:
    """Such as one that takes the largest of all records under vmap."""
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching

    largest = Primitive("largest_of_all")
    largest.def_abstract_eval(lambda x: x)
    ad.defjvp(largest, lambda tangent, x: tangent)
    batching.primitive_batchers[largest] = lambda args, dims: (largest.bind(*args), dims[0])
    with pytest.raises(IsolationError, match="'largest_of_all' is not one of JAX's own"):
        model(lambda params, record: squared(params, record) * largest.bind(record.y)).fit(*table())


def test_an_untested_compiler_is_a_leak_that_is_warned_of_and_refused_under_strict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "TESTED", frozenset({("cpu", "0.0.1")}))
    with pytest.warns(PrivacyLeakWarning, match="not tested one by one"):
        fitted = model(squared).fit(*table())
    assert fitted.privacy_ is not None
    assert "not tested one by one" in fitted.privacy_.sentence()
    with pytest.raises(PrivacyLeakError, match="not tested one by one"):
        model(squared, strict=True).fit(*table())
