import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from dpsep import (
    BayesianModel,
    GammaRegression,
    GaussianMixture,
    Linear,
    LinearRegression,
    LogisticRegression,
    MixedClassifier,
    MixedRegressor,
    Normal,
    PoissonRegression,
    ProbitRegression,
)
from dpsep.estimators import json_values, store
from dpsep.privacy.sampling import PoissonSampling

from .custom_made import logistic, logistic_density, poisson_density, poisson_mean, poisson_sample

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (300, 2))
TARGETS: dict[type, Any] = {
    LinearRegression: X @ [1.0, -2.0] + 0.1 * RNG.standard_normal(300),
    PoissonRegression: RNG.poisson(np.exp(X[:, 0])),
    GammaRegression: np.exp(X[:, 0] - X[:, 1]),
    LogisticRegression: np.where(X[:, 0] > 0, "yes", "no"),
    ProbitRegression: X[:, 1] > 0,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "run"
    store.save(
        LinearRegression(private=False).fit(X, TARGETS[LinearRegression]), folder, {"a.txt": "Grüße\n"}
    )
    return folder


@pytest.mark.parametrize(
    ("kind", "private"),
    [
        (LinearRegression, True),
        (PoissonRegression, False),
        (GammaRegression, True),
        (LogisticRegression, True),
        (ProbitRegression, False),
    ],
)
def test_an_estimator_comes_back_bit_for_bit(tmp_path: Path, kind: Any, private: bool) -> None:
    classes: dict[str, Any] = (
        {"classes": np.unique(TARGETS[kind])} if kind in (LogisticRegression, ProbitRegression) else {}
    )
    model = kind(private=private, bounds=(np.array([-1, -1]), 1.0), **classes)
    frame = pl.DataFrame(X, schema=["a", "b"])
    model.fit(frame, TARGETS[kind])
    store.save(model, tmp_path / "run")
    back: Any = store.load(tmp_path / "run")
    assert type(back) is kind
    for name, value in vars(model).items():
        if name.endswith("_"):
            np.testing.assert_equal(getattr(back, name), value)
    assert type(back.posterior_) is type(model.posterior_)
    assert back.posterior_.covariance.tobytes() == model.posterior_.covariance.tobytes()
    assert back.privacy_ == model.privacy_
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))
    assert back.predict(frame).dtype == model.predict(frame).dtype
    target = TARGETS[kind]
    np.testing.assert_array_equal(
        back.log_predictive_density(frame, target), model.log_predictive_density(frame, target)
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"bounds": (np.array([-1, -1]), 1.0), "sampling": PoissonSampling(0.5), "steps": 2},
        {"private": False, "covariance_type": "spherical"},
        {"mean_scale": 1.0, "noise_scale": [0.5, 0.25], "weights": (0.25, 0.75), "clip": 2.0},
    ],
    ids=["private", "open", "known"],
)
def test_a_mixture_comes_back_bit_for_bit(tmp_path: Path, parameters: dict[str, Any]) -> None:
    frame = pl.DataFrame(X, schema=["a", "b"])
    model: Any = GaussianMixture(2, **parameters).fit(frame)
    store.save(model, tmp_path / "run")
    back: Any = store.load(tmp_path / "run")
    assert type(back) is GaussianMixture
    assert type(back.posterior_) is type(model.posterior_)
    for name, value in vars(model).items():
        np.testing.assert_equal(getattr(back, name), value)
    for one, other in zip(back.posterior_, model.posterior_, strict=True):
        assert type(one) is type(other)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert back.privacy_ == model.privacy_
    for method in ("predict", "predict_proba", "score_samples"):
        assert getattr(back, method)(frame).tobytes() == getattr(model, method)(frame).tobytes()
    assert back.summary() == model.summary()
    assert back.sample(20, 3)[0].tobytes() == model.sample(20, 3)[0].tobytes()
    assert back.bic(frame) == model.bic(frame)


@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning")
def test_what_could_undo_the_noise_is_not_stored(tmp_path: Path) -> None:
    model = LinearRegression(bounds=(-1, 1), target_bounds=(-4, 4), random_state=73_421, sampling=0.5)
    model.fit(X, TARGETS[LinearRegression])
    model.sampling = PoissonSampling(0.5)  # pyright: ignore[reportAttributeAccessIssue]
    store.save(model, tmp_path / "run")
    assert "73421" not in (tmp_path / "run" / "posterior.json").read_text()
    back = store.load(tmp_path / "run")
    assert back.random_state is None
    assert back.sampling == PoissonSampling(0.5)
    assert back.privacy_ is not None
    assert not back.privacy_.secure


def test_other_objects_and_unfitted_ones_are_not_saved(tmp_path: Path) -> None:
    class Mine(LinearRegression):
        pass

    with pytest.raises(store.StoreError, match="cannot save a Mine"):
        store.save(Mine(), tmp_path / "run")
    with pytest.raises(ValueError, match="not fitted"):
        store.save(LinearRegression(), tmp_path / "run")


@pytest.mark.parametrize("name", ["posterior.json", "privacy.json", "a.txt", "manifest.json"])
def test_one_changed_byte_is_noticed(tmp_path: Path, saved: Path, name: str) -> None:
    folder = shutil.copytree(saved, tmp_path / "run")
    content = bytearray((folder / name).read_bytes())
    place = content.rindex(b"0") if b"0" in content else 0
    content[place] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(store.StoreError, match="was changed"):
        store.load(folder)
    (folder / name).unlink()
    with pytest.raises(store.StoreError, match=r"cannot be read|no manifest"):
        store.load(folder)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, "newer version of dpsep: it has format 2 and this version reads formats up to 1. Update dpsep"),
        (0, "has the format 0, which no version of dpsep writes"),
        ("1", "has the format '1', which no version"),
        (True, "has the format True, which no version"),
    ],
)
def test_another_format_is_refused_with_a_reason(
    tmp_path: Path, saved: Path, version: Any, message: str
) -> None:
    folder = shutil.copytree(saved, tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": version}))
    with pytest.raises(store.StoreError, match=message):
        store.load(folder)


def test_a_folder_that_the_first_version_wrote_is_still_read() -> None:
    back: Any = store.load(Path(__file__).parent / "saved" / "format1")
    assert list(back.feature_names_in_) == ["größe", "b"]
    assert back.privacy_.steps == 16
    row = pl.DataFrame([[0.5, -0.25]], schema=["größe", "b"], orient="row")
    # What the version that wrote the folder predicted.
    np.testing.assert_allclose(back.predict_proba(row), [[0.040799102146363356, 0.9592008978536366]], 1e-12)
    assert back.coef_.tolist() == [[6.839628033273303, 0.4476263885229468]]


WRITE = """
import sys, warnings, numpy as np, polars as pl, dpsep
from dpsep.estimators import json_values, store
X = np.random.default_rng(1).uniform(-1, 1, (200, 2))
model = dpsep.PoissonRegression(epsilon=1.0, delta=1e-3, bounds=(-1, 1))
model.fit(pl.DataFrame(X, schema=["größe", "имя"]), np.floor(3 + X[:, 0]))
store.save(model, sys.argv[1])
"""
READ = """
import sys, numpy as np, polars as pl
from dpsep.estimators import json_values, store
model = store.load(sys.argv[1])
rows = pl.DataFrame([[0.1, 0.2], [1 / 3, -1.0]], schema=["größe", "имя"], orient="row")
mean, sd = model.predict(rows, return_std=True)
print((mean.tobytes() + sd.tobytes() + model.posterior_.covariance.tobytes()).hex())
"""


def test_processes_that_load_a_folder_agree_bit_for_bit(tmp_path: Path) -> None:
    def run(code: str) -> str:
        command = [sys.executable, "-c", code, str(tmp_path / "run")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run(WRITE)
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere" / "run")
    first = run(READ)
    assert len(first) > 100
    back: Any = store.load(tmp_path / "elsewhere" / "run")
    rows = pl.DataFrame([[0.1, 0.2], [1 / 3, -1.0]], schema=["größe", "имя"], orient="row")
    mean, sd = back.predict(rows, return_std=True)
    assert first.strip() == (mean.tobytes() + sd.tobytes() + back.posterior_.covariance.tobytes()).hex()


def test_what_was_charged_besides_the_fit_stands_in_the_statement(tmp_path: Path, saved: Path) -> None:
    store.save(store.load(saved), tmp_path / "run", charged={"metrics": {"epsilon": 0.5}})
    assert json.loads((tmp_path / "run" / "privacy.json").read_text())["metrics"] == {"epsilon": 0.5}
    assert store.load(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}', '{"format": 1, "files": []}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(store.StoreError):
        store.load(tmp_path)


def test_numbers_that_json_lacks_are_kept(tmp_path: Path) -> None:
    values = np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324, 0.1])
    text = json.loads(json.dumps(json_values.pack(values), allow_nan=False))
    assert json_values.unpack(text).tobytes() == values.tobytes()


def test_what_has_no_place_in_json_is_refused() -> None:
    for value in (len, {1: 2.0}, np.array([1j])):
        with pytest.raises(store.StoreError, match="cannot save"):
            json_values.pack(value)
    assert type(json_values.unpack(json_values.pack(np.float64(0.5)))) is np.float64


GROUPS = np.array(["north", "south", "east", "größe"])[RNG.integers(0, 4, 300)]
MIXED: list[Any] = [
    (
        MixedRegressor,
        {"unit": "record", "slopes": ["a"], "target_bounds": (-4, 4)},
        TARGETS[LinearRegression],
    ),
    (MixedRegressor, {"family": "poisson", "unit": "group", "rows_per_group": 9}, TARGETS[PoissonRegression]),
    (MixedClassifier, {"classes": ["no", "yes"], "unit": "record"}, TARGETS[LogisticRegression]),
    (
        MixedClassifier,
        {"family": "probit", "unit": "group", "rows_per_group": 9, "classes": [False, True]},
        TARGETS[ProbitRegression],
    ),
]
READ_MIXED = """
import sys, numpy as np, polars as pl
from dpsep.estimators import store
model = store.load(sys.argv[1])
rows = pl.DataFrame([[0.1, 0.2], [1 / 3, -1.0]], schema=["a", "b"], orient="row")
parts = [model._predictor(rows, groups) for groups in (None, ["größe", "new"])]
print(b"".join(array.tobytes() for part in parts for array in part).hex())
print(model.predict(rows, ["größe", "new"]).tolist())
"""


@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning", "ignore::dpsep.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("kind", "settings", "target"),
    [MIXED[0], *(pytest.param(*case, marks=pytest.mark.deep) for case in MIXED[1:])],
)
def test_a_mixed_model_comes_back_bit_for_bit_in_another_process(
    tmp_path: Path, kind: Any, settings: dict[str, Any], target: Any
) -> None:
    labels = ["north", "south", "east", "größe"]
    model = kind(groups=labels, private=settings["unit"] == "group", bounds=(-1, 1), **settings)
    model.fit(pl.DataFrame(X, schema=["a", "b"]), target, groups=GROUPS)
    store.save(model, tmp_path / "run")
    back: Any = store.load(tmp_path / "run")
    assert type(back) is kind
    learned = {name for name in vars(model) if name.endswith("_")}
    assert {"groups_", "components_", "weights_mean_", "random_covariance_", "column_maps_"} <= learned
    assert learned == {name for name in vars(back) if name.endswith("_")}
    for name in learned:
        np.testing.assert_equal(getattr(back, name), getattr(model, name))
    assert back.summary() == model.summary()
    rows = pl.DataFrame([[0.1, 0.2], [1 / 3, -1.0]], schema=["a", "b"], orient="row")
    command = [sys.executable, "-c", READ_MIXED, str(tmp_path / "run")]
    bits, answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    parts = [model._predictor(rows, groups) for groups in (None, ["größe", "new"])]
    assert bits == b"".join(array.tobytes() for part in parts for array in part).hex()
    assert answers == str(model.predict(rows, ["größe", "new"]).tolist())
    # A known group's own effects are used where records are the units, and nowhere else.
    assert (parts[0][1][0] == parts[1][1][0]) == (settings["unit"] == "group")
    assert parts[0][1][1] == parts[1][1][1]


def test_a_model_of_your_own_comes_back_without_its_functions(tmp_path: Path) -> None:
    frame = pl.DataFrame(X, schema=["a", "b"])
    links, prior = {"u": Linear(["b", "a"])}, {"u": 2.0, "shift": Normal(0.0, np.float64(0.5), (2,))}
    model: Any = BayesianModel(
        lambda params, record: poisson_density(params, record) - jnp.sum(params["shift"] ** 2),
        prior,
        links,
        mean=poisson_mean,
        sample=poisson_sample,
        private=False,
    ).fit(frame, TARGETS[PoissonRegression])
    store.save(model, tmp_path / "first")
    store.save(store.load(tmp_path / "first"), tmp_path / "run")
    back: Any = store.load(tmp_path / "run")
    assert (back.links, back.prior) == (links, prior)
    assert back.posterior_.covariance.tobytes() == model.posterior_.covariance.tobytes()
    assert back.summary() == model.summary()
    one, other = (each.to_arviz(draws=5).posterior["shift[1]"].to_numpy() for each in (back, model))
    assert one.tobytes() == other.tobytes()
    for ask in (
        back.predict,
        back.posterior_predictive,
        back.log_predictive_density,
        back.posterior_expected,
    ):
        with pytest.raises(ValueError, match="log_likelihood is not set: a stored model holds none"):
            ask(frame)
    back.set_params(log_likelihood=model.log_likelihood)
    np.testing.assert_array_equal(
        back.log_predictive_density(frame, TARGETS[PoissonRegression]),
        model.log_predictive_density(frame, TARGETS[PoissonRegression]),
    )
    with pytest.raises(ValueError, match=r"mean is not set.*Give it back with set_params\(mean=\.\.\.\)"):
        back.predict(frame)
    with pytest.raises(ValueError, match=r"sample is not set.*set_params\(sample="):
        back.posterior_predictive(frame)
    back.set_params(mean=poisson_mean)
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))


@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")
def test_a_private_classifier_of_your_own_keeps_its_labels_and_its_statement(tmp_path: Path) -> None:
    labels = np.array([-1.0, 1.0])[(X[:, 0] > 0).astype(int)]
    model: Any = logistic().fit(X, labels)
    store.save(model, tmp_path / "run")
    back: Any = store.load(tmp_path / "run")
    assert back.privacy_ == model.privacy_
    with pytest.raises(ValueError, match="log_likelihood is not set"):
        back.predict_proba(X)
    back.set_params(log_likelihood=logistic_density)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
