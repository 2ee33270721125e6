"""The path of a private fit: sizes of releases, estimates on the way, and the schedule beside them."""

import json
from pathlib import Path as Folder
from typing import Any

import numpy as np
import pytest

from dpsep import (
    GaussianMixture,
    LinearRegression,
    LogisticRegression,
    MixedClassifier,
    MixedRegressor,
    NetworkRegressor,
)
from dpsep.estimators import store
from dpsep.inference.release_trace import MOST_WEIGHTS, Moments, Path, Table
from dpsep.privacy.curve import schedule_of
from dpsep.privacy.release_log import KeptGate

from . import custom_made
from .made import BINARY, BOUNDS, LINEAR, table

pytestmark = pytest.mark.filterwarnings(
    "ignore::dpsep.privacy.leaks.PrivacyLeakWarning", "ignore::dpsep.theory.glm_defaults.WeakBudgetWarning"
)

GROUPS = np.arange(400) % 4
GROUPED: dict[str, Any] = {"groups": [0, 1, 2, 3], "delta": 1e-3, "steps": 3}
X, y = table(LinearRegression)
LABELS = table(LogisticRegression)[1]

FITS: dict[str, Any] = {
    "linear": lambda: LinearRegression(**LINEAR, steps=5).fit(X, y),
    "scaled": lambda: LinearRegression(steps=4, noise_aware=False).fit(X, y),
    "natural": lambda: LinearRegression(**LINEAR, steps=4, update="natural").fit(X, y),
    "through zero": lambda: LogisticRegression(**BINARY, steps=4, update="natural", fit_intercept=False).fit(
        X, LABELS
    ),
    "sampled": lambda: LogisticRegression(**BINARY, steps=4, sampling=0.3).fit(X, LABELS),
    "records": lambda: MixedRegressor(**LINEAR, **GROUPED).fit(X, y, GROUPS),
    "groups": lambda: MixedClassifier(**BINARY, **GROUPED, unit="group", rows_per_group=8).fit(
        X, LABELS, GROUPS
    ),
    "own": lambda: custom_made.logistic(steps=3).fit(X, LABELS),
    "mixture": lambda: GaussianMixture(2, steps=3, **BOUNDS).fit(X),
}
WEIGHTED = ["moments", "approach", "fit"]
PARTS = {
    "linear": WEIGHTED,
    "sampled": WEIGHTED,
    "scaled": ["scaling", *WEIGHTED],
    "mixture": ["sketch", "fit"],
}


@pytest.mark.parametrize("name", FITS)
def test_the_estimate_after_the_last_release_is_the_posterior(name: str) -> None:
    model = FITS[name]()
    found = model.path_["estimates"]
    steps = model.privacy_.schedule["parts"][-1]["steps"]
    assert np.shape(found["mean"]) == (steps, len(found["names"]))
    if name == "mixture":
        assert found["names"] == ["0: x0", "0: x1", "1: x0", "1: x1"]
        assert found["mean"][-1] == pytest.approx(model.means_.ravel(), rel=1e-12)
        assert found["sd"] is None
    else:
        rows = model.summary()[: len(found["names"])]
        assert found["names"] == [row["name"] for row in rows]
        assert found["mean"][-1] == pytest.approx([row["mean"] for row in rows], rel=1e-9)
        assert found["sd"][-1] == pytest.approx([row["sd"] for row in rows], rel=1e-9)
    assert not np.array_equal(found["mean"][0], found["mean"][-1])
    assert [part["name"] for part in model.privacy_.schedule["parts"]] == PARTS.get(name, ["fit"])
    assert schedule_of(json.loads(json.dumps(model.privacy_.schedule))).epsilon(
        model.privacy_.delta
    ) == pytest.approx(model.privacy_.epsilon, rel=1e-9)


def test_a_network_has_sizes_and_no_estimates() -> None:
    model: Any = NetworkRegressor(hidden=(3,), steps=3).fit(X, y)
    assert model.path_["estimates"] is None
    assert {len(block["size"]) for block in model.path_["blocks"]} == {3}
    assert [part["name"] for part in model.privacy_.schedule["parts"]] == ["scaling", "moments", "fit"]


def test_sizes_are_those_of_what_the_algorithm_was_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []
    real = KeptGate.release

    def noted(self: KeptGate, public: Any) -> Any:
        handed.append((real(self, public), self.deviations))
        return handed[-1][0]

    monkeypatch.setattr(KeptGate, "release", noted)
    model = FITS["linear"]()
    blocks = {block["name"]: block for block in model.path_["blocks"]}
    assert list(blocks) == ["mean", "precision", "square", "noise"]
    for number, (released, deviations) in enumerate(handed[-5:]):
        mean, precision = released["mean"], released["precision"]
        assert blocks["mean"]["size"][number] == pytest.approx(np.sqrt(np.mean(mean**2)))
        triangle = precision[np.triu_indices(3)] * np.array([1, 2**0.5, 2**0.5, 1, 2**0.5, 1])
        assert blocks["precision"]["size"][number] == pytest.approx(np.sqrt(np.mean(triangle**2)))
        for name, block in blocks.items():
            assert block["noise"][number] == deviations[name]
    assert len(blocks["noise"]["size"]) == 5
    assert len(handed) == sum(part["steps"] for part in model.privacy_.schedule["parts"])


def test_a_release_of_noise_alone_has_the_size_of_its_noise() -> None:
    rng = np.random.default_rng(0)
    path, d = Path(), 300
    upper = np.triu(rng.normal(size=(d, d)), 1) * np.sqrt(0.5)  # as the gate adds noise to a matrix
    path.release({"flat": 2.0 * rng.normal(size=40_000)}, {"flat": 2.0})
    path.release({"matrix": upper + upper.T + np.diag(rng.normal(size=d))}, {"matrix": 1.0})
    for block in path.described(None)["blocks"]:
        assert block["size"] == pytest.approx(block["noise"], rel=0.02)


def test_it_is_none_without_privacy_and_after_a_fit_that_has_none() -> None:
    model = LinearRegression(**LINEAR, steps=3).fit(X, y)
    assert model.path_ is not None
    assert model.set_params(private=False).fit(X, y).path_ is None
    assert MixedRegressor(**LINEAR, **GROUPED, private=False).fit(X, y, GROUPS).path_ is None
    assert GaussianMixture(2, private=False).fit(X).path_ is None
    assert NetworkRegressor(hidden=(2,), private=False, steps=2).fit(X, y).path_ is None
    assert custom_made.logistic(private=False).fit(X, LABELS).path_ is None


def test_it_is_stored_and_comes_back(tmp_path: Folder) -> None:
    model = FITS["scaled"]()
    store.save(model, tmp_path / "run")
    back: Any = store.load(tmp_path / "run")
    assert back.path_ == model.path_
    assert back.privacy_ == model.privacy_
    told = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert told["schedule"] == model.privacy_.schedule


def test_a_run_that_died_has_the_whole_path_and_the_longer_schedule(tmp_path: Folder) -> None:
    def die(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    settings: dict[str, Any] = LINEAR | {"steps": 4, "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        LinearRegression(**settings).fit(X, y, on_step=die)
    model = LinearRegression(**settings).fit(X, y)
    assert model.path_ is not None
    assert model.privacy_ is not None
    assert model.privacy_.schedule is not None
    assert [len(block["size"]) for block in model.path_["blocks"]] == [4, 4, 4, 4]
    assert model.path_["estimates"]["mean"][-1] == pytest.approx(model.posterior_.mean, rel=1e-9)
    assert model.privacy_.schedule["parts"][-1]["steps"] == 5
    # All releases are kept now: other records change nothing, because none is read.
    again = LinearRegression(**settings).fit(np.zeros_like(X), np.zeros_like(y))
    assert again.path_ == model.path_
    assert again.privacy_ is not None
    assert again.privacy_.schedule == model.privacy_.schedule


def test_many_weights_have_no_estimates_and_cost_nothing() -> None:
    def never() -> Moments:
        raise AssertionError("moments were computed")

    path, many = Path(), MOST_WEIGHTS + 1
    path.release({"mean": np.ones(many)}, {"mean": 1.0})
    path.estimate(Table(np.eye(many), np.zeros(many)), never)
    assert path.described(["w"] * many)["estimates"] is None


def test_an_estimate_that_cannot_be_computed_does_not_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def singular(*_: Any) -> Any:
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr("dpsep.inference.release_trace._in_table", singular)
    model = FITS["linear"]()
    assert model.path_["estimates"] is None
    assert len(model.path_["blocks"]) == 4


def test_a_statement_of_an_earlier_version_has_no_schedule() -> None:
    back: Any = store.load(Folder(__file__).parent / "saved" / "format1")
    assert back.privacy_ is not None
    assert "schedule" not in back.privacy_.to_dict()
