"""Private mixtures: what they guarantee, when they charge, how they resume, and what they survive."""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from dpsep import GaussianMixture, Ledger, OverBudget
from dpsep.inference import sketch
from dpsep.privacy.checkpoint import CheckpointError
from dpsep.privacy.gate import Gate
from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
from dpsep.privacy.release_log import ReleaseLog

ROWS, STEPS = 600, 3
CENTRES = np.array([[-2.0, 1.0], [2.0, -1.0]])
BOUNDS: dict[str, Any] = {"bounds": (-6.0, 6.0), "delta": 1e-4}
SCALINGS: dict[str, dict[str, Any]] = {
    "bounds": {"bounds": (-6.0, 6.0)},
    "private scaling": {},
    "prior": {"mean_prior": 0.5, "mean_scale": 3.0},
}


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Search twice for a start: these clusters lie apart, and every fit searches in its rehearsal, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "RESTARTS", 2)
        yield


class Died(Exception):
    pass


class Watched:
    """An array whose shape is known and whose cells cannot be read unnoticed."""

    def __init__(self, array: np.ndarray, on_read: Any = lambda: None) -> None:
        self._array, self._on_read = array, on_read
        self.shape = array.shape
        self.dtype = array.dtype
        self.reads = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.reads += 1
        self._on_read()
        return np.asarray(self._array, dtype)


def table(seed: int = 0, rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.6).astype(int)
    return CENTRES[labels] + [0.5, 0.8] * rng.normal(size=(rows, 2))


def seeded(X: Any = None, seed: int = 0, components: int = 2, **parameters: Any) -> Any:
    """Fit with seeded noise, without the warning of that."""
    parameters = {"delta": 1e-4} | parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return GaussianMixture(components, random_state=seed, **parameters).fit(table() if X is None else X)


def ledger_at(folder: Path, epsilon: float = 1.0) -> Ledger:
    return Ledger.create(folder / "budget.ledger", epsilon=epsilon, delta=1e-3)


def kinds(ledger: Ledger) -> list[str]:
    return [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of a mu-GDP mechanism (Balle and Wang 2018, theorem 8)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def assert_proper(model: Any) -> None:
    for part in model.posterior_:
        assert part is None or np.isfinite(np.asarray(part, float)).all()
    assert np.linalg.eigvalsh(model.mean_covariances_).min() > 0
    assert np.linalg.eigvalsh(model.posterior_.noise_covariances).min() >= 0
    assert (model.posterior_.variances > 0).all()
    assert (model.weights_ > 0).all()
    assert model.weights_.sum() == pytest.approx(1.0)
    rows = model.means_ + 0.1
    np.testing.assert_allclose(model.predict_proba(rows).sum(1), 1.0)
    assert np.isfinite(model.score_samples(rows)).all()


def bits(model: Any) -> list[bytes]:
    return [np.asarray(part).tobytes() for part in model.posterior_ if part is not None]


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_with_a_large_budget_the_result_is_that_without_privacy(covariance_type: Any) -> None:
    model = seeded(epsilon=1000.0, covariance_type=covariance_type, **BOUNDS)
    free = GaussianMixture(2, private=False, covariance_type=covariance_type, bounds=(-6.0, 6.0)).fit(table())
    order = linear_sum_assignment(((free.means_[:, None] - model.means_) ** 2).sum(-1))[1]
    sd = np.sqrt(np.diagonal(free.mean_covariances_, axis1=1, axis2=2))
    assert (np.abs(model.means_[order] - free.means_) < 0.5 * sd).all()
    np.testing.assert_allclose(model.covariances_[order], free.covariances_, rtol=0.05)
    np.testing.assert_allclose(model.weights_[order], free.weights_, atol=0.01)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_at_epsilon_one_clusters_far_apart_are_found(scaling: str) -> None:
    model = seeded(table(rows=3000), epsilon=1.0, **SCALINGS[scaling])
    order = linear_sum_assignment(((CENTRES[:, None] - model.means_) ** 2).sum(-1))[1]
    np.testing.assert_allclose(model.means_[order], CENTRES, atol=0.25)
    np.testing.assert_allclose(model.weights_[order], [0.4, 0.6], atol=0.1)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_all_parts_together_spend_the_target_and_no_more(relation: Any, scaling: str) -> None:
    privacy = seeded(epsilon=1.5, relation=relation, steps=STEPS, **SCALINGS[scaling]).privacy_
    assert 0.999 * 1.5 <= privacy.epsilon <= 1.5
    assert (privacy.relation, privacy.steps, privacy.delta) == (relation, STEPS, 1e-4)
    # The fit has three quarters of what scaling, at a tenth, leaves.
    share = 0.75 * (0.9 if scaling == "private scaling" else 1.0)
    mu = (1.0 if relation == "zero-out" else 2.0) / privacy.sigma * math.sqrt(STEPS / share)
    assert gaussian_delta(privacy.epsilon, mu) == pytest.approx(1e-4, rel=1e-4)
    assert ("private histograms" in privacy.scaling) == (scaling == "private scaling")
    assert "sketch, inside epsilon" in privacy.scaling


def test_poisson_sampling_spends_the_target_and_no_more() -> None:
    model = seeded(epsilon=2.0, sampling=0.25, steps=STEPS, **BOUNDS)
    assert 0.999 * 2 <= model.privacy_.epsilon <= 2.0
    assert model.privacy_.sampling == "Poisson sampling at rate 0.25"
    assert "loss" in model.privacy_.accountant
    assert model.n_iter_ == STEPS
    assert_proper(model)


@pytest.mark.parametrize("sampling", ["full", 0.5])
@pytest.mark.parametrize("method", ["sep", "vi", "em"])
def test_every_method_runs_under_privacy(method: Any, sampling: Any) -> None:
    model = seeded(method=method, sampling=sampling, steps=STEPS, noise_scale=[0.5, 0.8], **BOUNDS)
    assert_proper(model)
    np.testing.assert_allclose(model.posterior_.variances, [[0.25, 0.64]] * 2, rtol=1e-9)


def test_progress_is_told_release_by_release() -> None:
    seen: list[tuple[int, int]] = []
    GaussianMixture(2, steps=STEPS, **BOUNDS).fit(table(), on_step=lambda *step: seen.append(step))
    assert seen == [(1, STEPS), (2, STEPS), (3, STEPS)]


def test_a_seed_repeats_the_result_bit_for_bit_and_marks_it_not_for_release() -> None:
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        model: Any = GaussianMixture(2, random_state=3, **BOUNDS).fit(table())
    again, other = (seeded(seed=seed, **BOUNDS) for seed in (3, 4))
    assert bits(model) == bits(again)
    assert bits(model) != bits(other)
    assert not model.privacy_.secure
    assert "NOT FOR RELEASE" in model.privacy_.sentence()
    assert any("random_state" in leak for leak in model.privacy_.leaks)


def test_an_unseeded_fit_is_secure_silent_and_never_the_same_twice() -> None:
    one, two = (GaussianMixture(2, **BOUNDS).fit(table()) for _ in range(2))
    assert one.privacy_ is not None
    assert one.privacy_.secure
    assert one.privacy_.leaks == ()
    assert bits(one) != bits(two)
    assert GaussianMixture(2, private=False).fit(table()).privacy_ is None


def test_strict_refuses_a_seed_and_a_large_delta() -> None:
    with pytest.raises(PrivacyLeakError, match="random_state"):
        GaussianMixture(2, random_state=0, strict=True, **BOUNDS).fit(table())
    with pytest.raises(PrivacyLeakError, match="1/N"):
        GaussianMixture(2, delta=0.01, bounds=(-6, 6), strict=True).fit(table())
    with pytest.warns(PrivacyLeakWarning, match="1/N"):
        GaussianMixture(2, delta=0.01, bounds=(-6, 6)).fit(table())


def test_labels_of_the_private_rows_are_a_leak() -> None:
    with pytest.warns(PrivacyLeakWarning, match="fit_predict"):
        GaussianMixture(2, **BOUNDS).fit_predict(table())
    with pytest.raises(PrivacyLeakError, match="fit_predict"):
        GaussianMixture(2, strict=True, **BOUNDS).fit_predict(table())


def test_noise_aware_adds_the_known_noise_to_the_means_and_nothing_else() -> None:
    aware, alone = (seeded(noise_aware=choice, **BOUNDS).posterior_ for choice in (True, False))
    np.testing.assert_array_equal(aware.means, alone.means)
    np.testing.assert_allclose(
        aware.mean_covariances, alone.mean_covariances + aware.noise_covariances, rtol=1e-12
    )
    assert np.linalg.eigvalsh(aware.noise_covariances).min() > 0
    assert (aware.weight_concentration < alone.weight_concentration).all()
    assert (aware.variance_shape < alone.variance_shape).all()
    rows = seeded(**BOUNDS).summary()
    assert all(0 < row["noise_share"] < 1 for row in rows)


def test_the_charge_is_on_the_ledger_when_the_first_record_is_read(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, 3.0)
    seen: list[float] = []
    watched = Watched(table(), lambda: seen.append(ledger.spent().epsilon))
    GaussianMixture(2, 0.75, ledger=ledger, **BOUNDS).fit(watched)
    assert seen
    assert all(spent == pytest.approx(0.75, rel=1e-3) for spent in seen)
    assert kinds(ledger) == ["charge", "finished"]


def test_a_table_that_cannot_be_read_is_charged_all_the_same(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, 3.0)

    def fail() -> None:
        raise Died("the disk is gone")

    with pytest.raises(Died):
        GaussianMixture(2, 0.75, ledger=ledger, **BOUNDS).fit(Watched(table(), fail))
    assert ledger.spent().epsilon == pytest.approx(0.75, rel=1e-3)
    assert kinds(ledger) == ["charge", "failed"]


def test_over_budget_nothing_is_read(tmp_path: Path) -> None:
    watched, ledger = Watched(table()), ledger_at(tmp_path, epsilon=0.5)
    with pytest.raises(OverBudget):
        GaussianMixture(2, 0.75, ledger=ledger, **BOUNDS).fit(watched)
    assert watched.reads == 0
    assert ledger.spent().epsilon == 0


def test_a_refit_is_charged_again_and_the_path_of_a_ledger_is_enough(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, epsilon=1.0)
    model = GaussianMixture(2, 0.4, ledger=str(ledger.path), steps=1, **BOUNDS)
    model.fit(table()).fit(table())
    assert ledger.spent().epsilon == pytest.approx(0.8, rel=1e-3)
    with pytest.raises(OverBudget):
        model.fit(table())


BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": None}, "private=False"),
    ({"epsilon": 0.0}, "epsilon must be a positive number"),
    ({"epsilon": math.inf}, "epsilon must be a positive number"),
    ({"delta": 1.0}, "delta must lie in"),
    ({"method": "ep"}, "cannot be made private"),
    ({"method": "adf"}, "cannot be made private"),
    ({"sampling": 1.5}, "sampling must be"),
    ({"relation": "add-remove"}, "replace-one"),
    ({"clip": 0.0}, "clip"),
    ({"clip": math.inf}, "clip"),
    ({"steps": 2.5}, "steps"),
    ({"epsilon": 1e-6, "delta": 1e-12}, "does not fit the grid"),
    ({"n_components": ROWS + 1}, "more than the table's 600 rows"),
    ({"bounds": (1, -1)}, "low <= high"),
    ({"weights": [0.5, 0.6]}, "sum to one"),
    ({"noise_scale": 0.0}, "noise_scale must be positive"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=[str(bad) for bad, _ in BAD])
def test_wrong_parameters_are_refused_before_anything_is_charged_or_read(
    parameters: dict[str, Any], message: str, tmp_path: Path
) -> None:
    watched, ledger = Watched(table()), ledger_at(tmp_path, epsilon=100.0)
    with pytest.raises(ValueError, match=message):
        GaussianMixture(**({"n_components": 2, "ledger": ledger} | BOUNDS | parameters)).fit(watched)
    assert watched.reads == 0
    assert ledger.spent().epsilon == 0


def test_shapes_that_do_not_fit_are_refused_before_anything_is_charged(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, 3.0)
    for cells in (table()[0], table()[:1], table()[:, :0], table() * 1j):
        with pytest.raises(ValueError, match=r"."):
            GaussianMixture(1, ledger=ledger, **BOUNDS).fit(cells)
    assert ledger.spent().epsilon == 0


def test_errors_never_name_a_cell() -> None:
    secret = table()
    secret[:] = 77123.5
    spoiled = secret.copy()
    spoiled[0, 0] = np.nan
    declared: dict[str, Any] = {"n_components": 2} | BOUNDS
    calls: list[tuple[dict[str, Any], Any]] = [
        ({}, secret[:1]),
        ({}, secret[0]),
        ({"private": False}, spoiled),
    ]
    calls += [(parameters, secret) for parameters, _ in BAD]
    for parameters, cells in calls:
        with pytest.raises(ValueError, match=r".") as caught:
            GaussianMixture(**(declared | parameters)).fit(cells)
        assert "77123" not in str(caught.value)
    with pytest.raises(ValueError, match="NaN") as caught:
        seeded(**BOUNDS).predict(spoiled)
    assert "77123" not in str(caught.value)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_bad_cell_leaves_its_record_blank_however_it_is_bad(scaling: str) -> None:
    results = []
    for bad in ((np.nan, 0.0), (0.0, -np.inf), (np.nan, np.nan)):
        cells = table()
        cells[5] = bad
        results.append(bits(seeded(cells, steps=STEPS, **SCALINGS[scaling])))
    text = table().astype(object)
    text[5, 0] = "unknown"
    results.append(bits(seeded(text, steps=STEPS, **SCALINGS[scaling])))
    assert all(other == results[0] for other in results[1:])


def test_missing_cells_of_frames_are_blank_records() -> None:
    cells = table()
    cells[7, 1] = np.nan
    frame = pl.DataFrame({"a": cells[:, 0], "b": cells[:, 1]}).with_columns(pl.col("b").fill_nan(None))
    model = seeded(frame, steps=STEPS, **BOUNDS)
    assert bits(model) == bits(seeded(cells, steps=STEPS, **BOUNDS))
    assert list(model.feature_names_in_) == ["a", "b"]


TABLES: dict[str, np.ndarray] = {
    "all rows equal": np.full((40, 2), 3.0),
    "all rows blank": np.full((40, 2), np.nan),
    "two distinct rows": np.repeat([[1.0, 2.0], [5.0, -1.0]], 20, axis=0),
    "as many components as rows": np.array([[1.0, 2.0], [5.0, -1.0]]),
    "large numbers": 1e150 * table(rows=40),
    "huge numbers": np.full((40, 2), 1.7e308) * np.array([[1.0, -1.0]]),
    "one huge cell": np.where(np.arange(80).reshape(40, 2) == 5, -1.7e308, table(rows=40)),
    "small numbers": 1e-150 * table(rows=40),
}


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", TABLES)
def test_odd_tables_have_proper_posteriors(name: str, scaling: str) -> None:
    for parameters in ({}, {"noise_scale": 0.5, "weights": "uniform"}):
        assert_proper(seeded(TABLES[name], steps=STEPS, **SCALINGS[scaling], **parameters))


@pytest.mark.parametrize("sampling", ["full", 0.1])
@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_components_may_vanish_under_noise(covariance_type: Any, sampling: Any) -> None:
    for seed in range(4):
        model = seeded(
            table(rows=100),
            seed,
            3,
            epsilon=1e-2,
            covariance_type=covariance_type,
            sampling=sampling,
            **BOUNDS,
        )
        assert_proper(model)
    assert_proper(seeded(table(rows=100), 0, 3, epsilon=1e-3, covariance_type=covariance_type, **BOUNDS))


def test_one_component_in_one_dimension_is_found() -> None:
    x = np.random.default_rng(0).normal(1.0, 0.5, (2000, 1))
    model = seeded(x, components=1, epsilon=5.0, **BOUNDS)
    assert model.means_[0, 0] == pytest.approx(1.0, abs=0.1)
    assert math.sqrt(model.covariances_[0, 0]) == pytest.approx(0.5, abs=0.1)
    np.testing.assert_array_equal(model.weights_, [1.0])


def run(folder: Path, ledger: Ledger | None = None, **more: Any) -> Any:
    parameters = BOUNDS | {"steps": STEPS, "checkpoint": folder / "run", "ledger": ledger} | more
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return GaussianMixture(parameters.pop("components", 2), **parameters).fit(table())


def died_at(number: int, folder: Path, ledger: Ledger | None = None, **more: Any) -> None:
    """Run, and die in the release of this number, after the records were read."""
    release, made = Gate.release, [0]

    def counted(self: Gate, public: Any) -> dict[str, np.ndarray]:
        released = release(self, public)
        made[0] += 1
        if made[0] > number:
            raise Died
        return released

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gate, "release", counted)
        with pytest.raises(Died):
            run(folder, ledger, **more)


@pytest.mark.parametrize("done", range(1, STEPS + 1))
def test_a_run_that_died_goes_on_from_its_releases_and_pays_for_one_more(done: int, tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, epsilon=3.0)
    died_at(done, tmp_path, ledger)
    assert kinds(ledger) == ["charge", "failed"]
    charged = ledger.spent().epsilon
    model = run(tmp_path, ledger)
    privacy = model.privacy_
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]
    assert privacy.steps == STEPS + 1
    assert privacy.secure
    assert ledger.spent().epsilon == pytest.approx(privacy.epsilon, rel=1e-9)
    # The sketch has a third of what the steps that were asked for have.
    once, twice = ((STEPS + STEPS / 3) / privacy.sigma**2, (STEPS + 1 + STEPS / 3) / privacy.sigma**2)
    assert gaussian_delta(charged, math.sqrt(once)) == pytest.approx(1e-4, rel=1e-4)
    assert gaussian_delta(privacy.epsilon, math.sqrt(twice)) == pytest.approx(1e-4, rel=1e-4)
    assert_proper(model)


def test_a_run_whose_releases_are_all_kept_is_not_charged_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_at(tmp_path, 3.0)
    first = run(tmp_path, ledger)
    spent = ledger.spent()

    def read(*_: Any) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("dpsep.privacy.gate.Gate.release", read)
    second = run(tmp_path, ledger)
    assert ledger.spent() == spent
    assert second.privacy_.epsilon == first.privacy_.epsilon
    assert bits(second) == bits(first)


def test_a_resumed_run_uses_the_releases_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, np.ndarray]] = []
    keep = ReleaseLog.keep

    def noted(self: ReleaseLog, stage: str, released: dict[str, np.ndarray]) -> None:
        kept.append(released)
        keep(self, stage, released)

    monkeypatch.setattr(ReleaseLog, "keep", noted)
    died_at(3, tmp_path)
    assert len(kept) == 1 + 2
    model = run(tmp_path)
    assert len(kept) == 1 + STEPS
    # Handed out again from the start, all releases give the same posterior.
    assert bits(run(tmp_path)) == bits(model)


@pytest.mark.parametrize(
    ("declared", "done", "stage"),
    [(True, 0, "sketch"), (False, 1, "scaling"), (False, 3, "sketch")],
)
def test_a_run_that_died_in_any_stage_goes_on_and_its_lost_release_is_charged_to_that_stage(
    declared: bool, done: int, stage: str, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path, 3.0)
    more: dict[str, Any] = {} if declared else {"bounds": None}
    died_at(done, tmp_path, ledger, **more)
    spent = ledger.spent().epsilon
    model = run(tmp_path, ledger, **more)
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]
    assert ledger.spent().epsilon > spent
    assert model.privacy_.epsilon == pytest.approx(ledger.spent().epsilon, rel=1e-9)
    whole = run(tmp_path / "whole", **more).privacy_.schedule["parts"]
    steps = {part["name"]: part["steps"] for part in model.privacy_.schedule["parts"]}
    assert steps == {part["name"]: part["steps"] + (part["name"] == stage) for part in whole}


def test_a_release_of_an_early_stage_that_was_made_and_not_kept_is_charged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_at(tmp_path, 3.0)

    def die(log: ReleaseLog, stage: str, released: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(ReleaseLog, "keep", die)
        with pytest.raises(Died):
            run(tmp_path, ledger)
    model = run(tmp_path, ledger)
    parts = {part["name"]: part["steps"] for part in model.privacy_.schedule["parts"]}
    assert parts["sketch"] == 1 + 1
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]


@pytest.mark.parametrize(
    "change",
    [
        {"components": 3},
        {"covariance_type": "spherical"},
        {"method": "em"},
        {"bounds": (-6.0, 6.0 + 1e-12)},
        {"bounds": None, "mean_scale": 6.0},
        {"noise_scale": 0.5},
        {"weights": "uniform"},
        {"weight_concentration": 2.0},
        {"clip": 2.0},
        {"steps": 4},
        {"delta": 2e-4},
        {"epsilon": 1.1},
        {"relation": "replace-one"},
        {"sampling": 0.5},
    ],
    ids=str,
)
def test_other_settings_are_refused_before_they_are_charged(change: dict[str, Any], tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, epsilon=5.0)
    died_at(2, tmp_path, ledger)
    with pytest.raises(CheckpointError, match="other settings"):
        run(tmp_path, ledger, **change)
    assert kinds(ledger) == ["charge", "failed"]


def test_releases_of_a_seeded_run_never_become_fit_for_release(tmp_path: Path) -> None:
    died_at(2, tmp_path, random_state=1)
    assert not run(tmp_path).privacy_.secure
