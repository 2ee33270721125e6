"""The examples of models of your own: short, right without privacy, and of use with it."""

from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep.inference import nuts

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = ("student_t", "negative_binomial", "ordinal", "multinomial")
TRUTH: dict[str, list[float]] = {
    "student_t": [0.3, 1.0, -0.8, np.log(0.5)],
    "negative_binomial": [0.3, 1.0, -0.8, np.log(1.5)],
    "ordinal": [0.3, 1.0, -0.8, 0.0, np.log(2.0)],
    "multinomial": [0.3, 1.0, -0.8, 0.0, -1.0, 0.5],
}
"""Weights that tables are made with, in the order of the posterior."""


def example(name: str) -> Any:
    spec = spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(name: str, records: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (records, 2))
    u = 0.3 + X @ [1.0, -0.8]
    if name == "student_t":
        return X, u + 0.5 * rng.standard_t(4.0, records)
    if name == "negative_binomial":
        return X, rng.poisson(np.exp(u) * rng.gamma(1.5, 1.0 / 1.5, records)).astype(float)
    if name == "ordinal":
        return X, np.digitize(u + rng.logistic(size=records), [0.0, 1.0, 3.0])
    scores = np.stack([np.zeros(records), u, X @ [-1.0, 0.5]], axis=1)
    return X, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


def fitted(name: str, records: int, **settings: Any) -> Any:
    if name == "ordinal":
        settings["classes"] = range(4)
    if name == "multinomial":
        settings["classes"] = range(3)
    return example(name).model(bounds=(-1.0, 1.0), **settings).fit(*table(name, records))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_fewer_than_forty_lines(name: str) -> None:
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) < 40


@pytest.mark.parametrize(
    "name", [name if name == "ordinal" else pytest.param(name, marks=pytest.mark.deep) for name in NAMES]
)
def test_without_privacy_an_example_agrees_with_the_sampler(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fitted(name, 300, private=False).posterior_
    monkeypatch.setattr(nuts, "run_joint", partial(nuts.run_joint, draws=1500, warmup=200, chains=1))
    truth = fitted(name, 300, private=False, method="nuts", random_state=1).posterior_
    assert np.abs((found.mean - truth.mean) / truth.sd).max() < 0.1
    assert np.abs(found.sd / truth.sd - 1).max() < 0.1


@pytest.mark.parametrize(
    "name", [name if name == "student_t" else pytest.param(name, marks=pytest.mark.deep) for name in NAMES]
)
def test_a_private_example_finds_what_its_table_was_made_with(name: str) -> None:
    """A thousandth of all tables would miss four deviations; widths are a few times those without privacy."""
    model = fitted(name, 5000, epsilon=3.0)
    distance = (model.posterior_.mean - TRUTH[name]) / model.posterior_.sd
    assert np.abs(distance).max() < 4.0
    assert model.posterior_.sd.max() < 0.25
    assert model.privacy_.epsilon <= 3.0
    X, y = table(name, 20)
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert len(model.predict(X)) == 20
