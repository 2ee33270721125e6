"""A model of named parameters: where they are, what a record sees of them, which functions are refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsep.models.custom import CustomModel, Linear, Normal, arrange, check_pure, weight_names
from dpsep.models.glm import Columns

LINKS = {"u": Linear(), "v": Linear(columns=[1], intercept=False)}
PRIOR = {"v": Normal(1.0, 3.0), "cuts": Normal(-1.0, 0.5, (2,)), "log_scale": 0.7}


def quadratic(params: Any, record: Any) -> Any:
    return -0.5 * (record.y - params["u"]) ** 2


def model(function: Any = quadratic) -> CustomModel:
    return CustomModel(function, arrange(LINKS, PRIOR, 2, None)[0])


def test_links_come_first_then_shared_parameters_in_the_order_given() -> None:
    places, mean, sd = arrange(LINKS, PRIOR, 2, None)
    assert [(place.name, place.start, place.size) for place in places] == [
        ("u", 0, 3),
        ("v", 3, 1),
        ("cuts", 4, 2),
        ("log_scale", 6, 1),
    ]
    assert mean.tolist() == [0, 0, 0, 1, -1, -1, 0]
    assert sd.tolist() == [20, 2, 2, 3, 0.5, 0.5, 0.7], (
        "a link without a prior has 2, its intercept ten times"
    )
    assert (model().dimension, model().numbers) == (7, 5)


def test_weights_are_named_by_link_and_column() -> None:
    places = arrange(LINKS, PRIOR, 2, None)[0]
    expected = ("u:intercept", "u:a", "u:b", "v:b", "cuts[0]", "cuts[1]", "log_scale")
    assert weight_names(places, ["a", "b"]) == expected
    single = arrange({"u": Linear()}, None, 2, None)[0]
    assert weight_names(single, ["a", "b"]) == ("intercept", "a", "b")


def test_columns_may_be_named() -> None:
    places, _, _ = arrange({"u": Linear(["b"])}, None, 2, ("a", "b"))
    assert places[0].columns == (1,)


def test_a_record_sees_predictors_of_scaled_cells_and_its_own_cells_clamped() -> None:
    seen: dict[str, Any] = {}

    def watching(params: Any, record: Any) -> Any:
        seen.update(params, x=record.x, y=record.y)
        return jnp.zeros(())

    with jax.enable_x64(True):
        low, high = jnp.array([0.0, 0.0]), jnp.array([10.0, 4.0])
        columns = Columns(low, high, jnp.array([1.0, 2.0]), jnp.array([10.0, 2.0]))
        view = model(watching).view(columns, columns, (jnp.array([5.0, 9.0]), jnp.asarray(3.0)))
        assert view.rows is not None
        w = jnp.arange(7.0)
        view.log_likelihood(view.rows @ w)
    assert bool(view.usable)
    assert seen["x"].tolist() == [5.0, 4.0]
    assert float(seen["u"]) == pytest.approx(0.0 + 1.0 * 0.4 + 2.0 * 1.0)
    assert float(seen["v"]) == pytest.approx(3.0 * 1.0)
    assert seen["cuts"].tolist() == [4.0, 5.0]
    assert seen["log_scale"].shape == ()
    assert float(seen["log_scale"]) == 6.0


def test_without_links_a_record_sees_the_weights_themselves() -> None:
    one = CustomModel(quadratic, arrange(None, {"u": 1.0}, 1, None)[0])
    columns = Columns(*(jnp.asarray([value]) for value in (-1.0, 1.0, 0.0, 1.0)))
    assert one.view(columns, columns, (jnp.zeros(1), jnp.zeros(()))).rows is None


@pytest.mark.parametrize(
    ("links", "prior", "message"),
    [
        (None, None, "a model needs parameters"),
        ({"u": "x"}, None, r"links\['u'\] must be a dpsep.Linear, not a str"),
        ({"u": Linear([], intercept=False)}, None, "no columns and no intercept"),
        ({"u": Linear([2])}, None, "columns are 0 to 1"),
        ({"u": Linear(["age"])}, None, "the table has no column names"),
        ({"u": Linear()}, {"u": Normal(0, 1, (2,))}, "leave its shape out"),
        ({"u": Linear()}, {"s": "wide"}, r"prior\['s'\] must be a dpsep.Normal or a standard deviation"),
        (None, {"s": 0.0}, "a positive sd, not 0.0 and 0.0"),
        (None, {"s": Normal(np.nan, 1.0)}, "a finite mean"),
    ],
)
def test_parameters_that_cannot_be_are_refused(links: Any, prior: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrange(links, prior, 2, None)


def test_a_column_that_the_table_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match=r"names the column 'age'; they are \['a', 'b'\]"):
        arrange({"u": Linear(["age"])}, None, 2, ("a", "b"))


def printing(u: Any) -> Any:
    jax.debug.print("{}", u)
    return -(u**2)


def called(u: Any) -> Any:
    return jax.pure_callback(lambda u: u, jax.ShapeDtypeStruct((), jnp.float64), u)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda params, record: params["u"] * jnp.ones(2), "must return one number"),
        (lambda params, record: None, "must return one number"),
        (lambda params, record: -params["u"] if record.y > 0 else params["u"], "may not branch"),
        (lambda params, record: float(params["u"]), "cannot be traced by JAX"),
        (lambda params, record: params["w"], "KeyError"),
        (lambda params: params["u"], "TypeError"),
    ],
)
def test_a_function_that_is_not_one_number_in_jax_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_pure(model(function), 2)
