"""Contributions as fixed programs: what could show or mix records is refused; what is checked runs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.models.custom import CustomModel, Linear, arrange
from dpsep.models.frozen import freeze

SHAPES = ((2,), ())


def model(function: Any, columns: Any = None) -> CustomModel:
    return CustomModel(function, arrange({"u": Linear(columns)}, None, 2, None)[0])


def printing(u: Any) -> Any:
    jax.debug.print("{u}", u=u)
    return u


def called(u: Any) -> Any:
    return jax.pure_callback(lambda u: u, jax.ShapeDtypeStruct((), u.dtype), u, vmap_method="sequential")


@jax.custom_jvp
def talkative(u: Any) -> Any:
    return -(u**2)


@talkative.defjvp
def _talk(primals: Any, tangents: Any) -> Any:
    return talkative(primals[0]), -2.0 * printing(primals[0]) * tangents[0]


@jax.custom_batching.custom_vmap
def mixing(u: Any) -> Any:
    return u


@mixing.def_vmap
def _mix(size: int, batched: Any, u: Any) -> Any:
    return jnp.broadcast_to(jnp.sum(u), u.shape), True


@jax.custom_jvp
def label(u: Any, y: Any) -> Any:
    return jax.nn.log_sigmoid((2 * y - 1) * u)


@label.defjvp
def _slope(primals: Any, tangents: Any) -> Any:
    u, y = primals
    return label(u, y), (mixing(y) - jax.nn.sigmoid(u)) * tangents[0]


def rolled(u: Any) -> Any:
    key = jax.random.fold_in(jax.random.key(0, impl="rbg"), (100 * u).astype(jnp.int32))
    return u * jax.random.uniform(key)


@pytest.mark.parametrize(
    "inner",
    [
        printing,
        called,
        jax.jit(printing),
        jax.checkpoint(printing),
        lambda u: jax.lax.cond(u > 0, printing, lambda u: u, u),
        lambda u: jax.lax.scan(lambda c, _: (printing(c), None), u, None, length=2)[0],
        talkative,
        rolled,
        lambda u: jax.scipy.special.betainc(2.0, 3.0, jax.nn.sigmoid(u)),
    ],
    ids=[
        "print",
        "callback",
        "in jit",
        "in checkpoint",
        "in cond",
        "in scan",
        "in a derivative",
        "other generator",
        "joint iteration",
    ],
)
def test_what_could_show_or_mix_records_is_refused(inner: Any) -> None:
    with pytest.raises(ValueError, match=r"show or mix records|do not support JVP"):
        freeze(model(lambda params, record: inner(params["u"] - record.y)), 2, SHAPES)


def test_a_batching_rule_that_only_a_derivative_reaches_is_refused() -> None:
    with pytest.raises(ValueError, match="a batching rule of its own"):
        freeze(model(lambda params, record: label(params["u"], record.y)), 2, SHAPES)


def test_an_operation_of_another_library_is_refused() -> None:
    """Such as one that takes the largest of all records under vmap."""
    from jax.extend.core import Primitive
    from jax.interpreters import ad

    largest = Primitive("largest_of_all")
    largest.def_abstract_eval(lambda x: x)
    ad.defjvp(largest, lambda tangent, x: tangent)
    with pytest.raises(ValueError, match="'largest_of_all', which is not one of JAX's own"):
        freeze(model(lambda params, record: -(params["u"] ** 2) * largest.bind(record.y)), 2, SHAPES)


def test_ordinary_functions_pass() -> None:
    def fine(params: Any, record: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0), 3)  # threefry, the same for every record
        shift = 0.1 * jax.random.normal(key)
        return jax.scipy.stats.t.logpdf(record.y - params["u"] + shift, 4.0)

    assert len(freeze(model(fine), 2, SHAPES).digest) == 64


def test_the_digest_tells_models_apart_by_program_constants_and_columns() -> None:
    def scaled(values: Any) -> Any:
        return lambda params, record: -jnp.sum(jnp.asarray(values) * (record.y - params["u"]) ** 2)

    def digest(function: Any, columns: Any = None) -> str:
        return freeze(model(function, columns), 2, SHAPES).digest

    first = digest(scaled(np.arange(40.0)))
    assert digest(scaled(np.arange(40.0))) == first
    assert digest(scaled(np.arange(40.0) + 1)) != first, "a constant array"
    assert digest(scaled([1.0])) != first
    assert digest(scaled(np.arange(40.0)), [0]) != digest(scaled(np.arange(40.0)), [1]), "another column"


def test_a_function_that_changes_its_mind_is_not_asked_again() -> None:
    calls: list[int] = []

    def fickle(params: Any, record: Any) -> Any:
        calls.append(1)
        u = params["u"] - record.y
        return -((printing(u) if len(calls) > limit else u) ** 2)

    limit = 10**6
    frozen = freeze(model(fickle), 2, SHAPES)
    limit, asked = 0, len(calls)
    d = 3
    with jax.enable_x64(True):
        from dpsep.families import Gamma
        from dpsep.models.glm import Columns, Public
        from dpsep.models.linked import LinkedPublic

        one, zero = jnp.ones(()), jnp.zeros(())
        maps = Columns(-jnp.ones(2), jnp.ones(2), jnp.zeros(2), jnp.ones(2))
        public = Public(
            maps, Columns(zero, one, zero, one), jnp.eye(d), jnp.zeros(d), jnp.zeros(d), Gamma(zero, one)
        )
        chunk = (jnp.zeros((4, 2)), jnp.ones(4))
        mean, precision = frozen(LinkedPublic(public, jnp.asarray(False)), chunk)
    assert mean.shape == (4, d)
    assert precision.shape == (4, d * (d + 1) // 2)
    assert len(calls) == asked, "the program runs, not the function"
