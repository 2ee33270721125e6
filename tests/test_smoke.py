"""A minute's worth of assurance (`make smoke`): every model fits privately and stays within its budget."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import dpsep

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1.0, 1.0, (200, 2))
Y = X @ [1.0, -0.5] + 0.1 * GENERATOR.normal(size=200)
LABELS, COUNTS = (Y > 0).astype(int), GENERATOR.poisson(np.exp(Y))
GROUPS = np.arange(200) % 8
BOX: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-4, "bounds": (-1.0, 1.0), "random_state": 0}
NUMBERS: dict[str, Any] = BOX | {"target_bounds": (-2.0, 2.0)}
CLASSES: dict[str, Any] = BOX | {"classes": [0, 1]}


def student(params: Any, record: Any) -> Any:
    return -2.5 * jnp.log1p((record.y - params["u"]) ** 2 / (4.0 * 0.01))


FITS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "linear": (dpsep.LinearRegression(**NUMBERS), (X, Y), {}),
    "logistic": (dpsep.LogisticRegression(**CLASSES), (X, LABELS), {}),
    "probit": (dpsep.ProbitRegression(**CLASSES), (X, LABELS), {}),
    "poisson": (dpsep.PoissonRegression(**BOX), (X, COUNTS), {}),
    "gamma": (dpsep.GammaRegression(**BOX, target_bounds=(0.1, 10.0)), (X, np.exp(Y)), {}),
    "mixture": (dpsep.GaussianMixture(2, **BOX, steps=3), (X,), {}),
    "network": (dpsep.NetworkRegressor(**NUMBERS, hidden=4, steps=3), (X, Y), {}),
    "classes by a network": (dpsep.NetworkClassifier(**CLASSES, hidden=4, steps=3), (X, LABELS), {}),
    "own": (dpsep.BayesianModel(student, links={"u": dpsep.Linear()}, **BOX, steps=3), (X, Y), {}),
    "mixed": (dpsep.MixedRegressor(**NUMBERS, groups=8), (X, Y), {"groups": GROUPS}),
    "mixed classes": (dpsep.MixedClassifier(**CLASSES, groups=8), (X, LABELS), {"groups": GROUPS}),
}
FEW = pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning", "ignore::dpsep.WeakBudgetWarning")


@FEW
@pytest.mark.parametrize("name", FITS)
def test_a_private_fit_stays_within_its_budget_and_has_a_proper_posterior(name: str) -> None:
    model, table, more = FITS[name]
    fitted = model.fit(*table, **more)
    assert fitted.privacy_.epsilon <= 2.0
    assert fitted.privacy_.delta <= 1e-4
    rows = fitted.summary()
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    assert len(numbers) >= 4
    assert np.isfinite(numbers).all()
