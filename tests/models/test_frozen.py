"""Contributions as fixed programs: told apart by their digest, and asked once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.families import Gamma
from dpsep.models.custom import CustomModel, Linear, arrange
from dpsep.models.frozen import freeze, same_functions
from dpsep.models.glm import Columns, Public
from dpsep.models.mixed import Effects, GroupModel
from dpsep.models.multi_predictor import LinkedPublic

SHAPES = ((2,), ())


def model(function: Any, columns: Any = None) -> CustomModel:
    return CustomModel(function, arrange({"u": Linear(columns)}, None, 2, None)[0])


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


def public(d: int) -> LinkedPublic:
    one, zero = jnp.ones(()), jnp.zeros(())
    maps = Columns(-jnp.ones(2), jnp.ones(2), jnp.zeros(2), jnp.ones(2))
    outcome = Columns(zero, one, zero, one)
    base = Public(maps, outcome, jnp.eye(d), jnp.zeros(d), jnp.zeros(d), Gamma(zero, one))
    return LinkedPublic(base, jnp.asarray(False))


def test_a_function_that_changes_its_mind_is_not_asked_again() -> None:
    calls: list[int] = []

    def fickle(params: Any, record: Any) -> Any:
        calls.append(1)
        return -((params["u"] - record.y) ** 2)

    frozen = freeze(model(fickle), 2, SHAPES)
    asked, d = len(calls), 3
    with jax.enable_x64(True):
        mean, precision = frozen(public(d), (jnp.zeros((4, 2)), jnp.ones(4)))
    assert mean.shape == (4, d)
    assert precision.shape == (4, d * (d + 1) // 2)
    assert len(calls) == asked, "the program runs, not the function"


def test_a_function_is_traced_for_each_fit_but_where_nothing_changes_between_fits() -> None:
    centre = [0.0]

    def shifted(params: Any, record: Any) -> Any:
        return -((params["u"] - record.y - centre[0]) ** 2)

    def digest() -> str:
        return freeze(model(shifted), 2, SHAPES).digest

    first = digest()
    centre[0] = 1.0
    second = digest()
    assert second != first, "what the function refers to has changed"
    with same_functions():
        assert digest() == second
        centre[0] = 2.0
        assert digest() == second
    assert digest() not in (first, second)


def test_what_declared_numbers_make_is_traced_once() -> None:
    def frozen(**more: Any) -> Any:
        effects = Effects(2, noise=True)
        return freeze(GroupModel(effects, **more), 2, ((3, 2), (3,)))

    assert frozen() is frozen()
    assert frozen(factors="laplace") is not frozen()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["cell", "target"])
def test_what_cannot_be_used_does_not_reach_the_function(bad: float, where: str) -> None:
    """A NaN that the function saw could reach others by the compiler; public values stand in for a record."""
    seen: list[Any] = []

    def looking(params: Any, record: Any) -> Any:
        seen.append(np.array([*record.x, record.y]))
        return -((params["u"] - record.y) ** 2)

    with jax.enable_x64(True):
        unit = (jnp.asarray([0.5, bad]), jnp.asarray(1.0))
        if where == "target":
            unit = (jnp.zeros(2), jnp.asarray(bad))
        view = model(looking).view(*public(3).base[:2], unit)
        view.log_likelihood(jnp.zeros(1))
        assert not bool(view.usable)
        assert np.isfinite(seen[0]).all()
        plain = freeze(model(lambda params, record: -((params["u"] - record.y) ** 2)), 2, SHAPES)
        for part in plain(public(3), tuple(jnp.stack([part, jnp.zeros_like(part)]) for part in unit)):
            assert np.isnan(part[0]).all(), "the record is selected away"
            assert np.isfinite(part[1]).all()
