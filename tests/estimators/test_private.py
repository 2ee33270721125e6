"""Private fits: what they guarantee, when they charge, and what they refuse."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dpsep import (
    Ledger,
    LinearRegression,
    LogisticRegression,
    OverBudget,
    PoissonRegression,
    UnusableRowsWarning,
)
from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
from dpsep.privacy.sampling import ShuffledEpochs

from .made import ALL, BINARY, BOUNDS, IDS, LINEAR, ROWS, seeded, table


class Died(Exception):
    pass


class Watched:
    """An array whose shape is known and whose cells cannot be read unnoticed."""

    def __init__(self, array: np.ndarray, on_read: Any) -> None:
        self._array, self._on_read = array, on_read
        self.shape = array.shape
        self.dtype = array.dtype
        self.reads = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.reads += 1
        self._on_read()
        return np.asarray(self._array, dtype)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of a mu-GDP mechanism (Balle and Wang 2018, theorem 8)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def mu_of(privacy: Any, sensitivity: float = 1.0) -> float:
    """Total mu of a run of full batches, from its statement."""
    parts = privacy.schedule["parts"]
    return sensitivity * math.sqrt(sum(part["steps"] / part["sigma"] ** 2 for part in parts))


def ledger_at(folder: Any, epsilon: float = 1.0) -> Ledger:
    return Ledger.create(folder / "budget.ledger", epsilon=epsilon, delta=1e-4)


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_with_a_large_budget_the_result_is_that_without_privacy(maker, declared):
    model = seeded(maker, epsilon=1000.0, prior_scale=1.0, **declared)
    free = maker(private=False, prior_scale=1.0, **declared).fit(*table(maker))
    distance = np.abs(model.posterior_.mean - free.posterior_.mean) / free.posterior_.sd
    assert distance.max() < 0.2
    np.testing.assert_allclose(model.posterior_.sd, free.posterior_.sd, rtol=0.05)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("sampling", ["full", ShuffledEpochs(100)])
def test_gaussian_composition_spends_the_target_and_no_more(relation, sampling):
    model = seeded(LogisticRegression, epsilon=1.0, relation=relation, sampling=sampling, steps=16, **BINARY)
    privacy = model.privacy_
    assert 0.999 <= privacy.epsilon <= 1.0
    assert (privacy.relation, privacy.steps, privacy.delta) == (relation, 16, 1e-5)
    sensitivity = 1.0 if relation == "zero-out" else 2.0
    batches = 1 if sampling == "full" else 4  # of a pass
    parts = privacy.schedule["parts"]
    passes = sum(math.ceil(part["steps"] / batches) / part["sigma"] ** 2 for part in parts)
    mu = math.sqrt(passes) * sensitivity
    assert gaussian_delta(privacy.epsilon, mu) == pytest.approx(1e-5, rel=1e-6)


def test_poisson_sampling_spends_the_target_and_no_more():
    model = seeded(LogisticRegression, epsilon=2.0, sampling=0.25, steps=20, **BINARY)
    assert 0.999 * 2 <= model.privacy_.epsilon <= 2.0
    assert model.privacy_.sampling == "Poisson sampling at rate 0.25"
    assert model.n_iter_ == model.privacy_.steps == 20
    assert "loss" in model.privacy_.accountant


def test_private_scaling_is_inside_epsilon():
    model = seeded(LinearRegression, epsilon=2.0)
    assert 0.999 * 2 <= model.privacy_.epsilon <= 2.0
    assert "inside epsilon" in model.privacy_.scaling
    free = LinearRegression(private=False).fit(*table(LinearRegression))
    assert np.abs(model.coef_ - free.coef_).max() < 0.5


def test_the_paper_s_update_runs_under_privacy():
    model = seeded(
        LogisticRegression, epsilon=5.0, update="natural", gamma=ROWS / 2.0, clip=1.0, steps=10, **BINARY
    )
    assert model.privacy_.steps == 10
    assert model.privacy_.epsilon <= 5.0
    assert np.isfinite(model.posterior_.mean).all()
    assert np.linalg.eigvalsh(model.posterior_.covariance).min() > 0


def test_a_seed_repeats_the_result_and_marks_it_not_for_release():
    x, y = table(LogisticRegression)
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        model: Any = LogisticRegression(random_state=3, **BINARY).fit(x, y)
    again, other = seeded(LogisticRegression, 3, **BINARY), seeded(LogisticRegression, 4, **BINARY)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert not np.array_equal(model.coef_, other.coef_)
    assert not model.privacy_.secure
    assert "NOT FOR RELEASE" in model.privacy_.sentence()
    assert any("random_state" in leak for leak in model.privacy_.leaks)


def test_an_unseeded_fit_is_secure_silent_and_never_the_same_twice():
    x, y = table(LogisticRegression)
    one, two = (LogisticRegression(**BINARY).fit(x, y) for _ in range(2))
    assert one.privacy_ is not None
    assert one.privacy_.secure
    assert one.privacy_.leaks == ()
    assert not np.array_equal(one.coef_, two.coef_)
    assert LogisticRegression(private=False, **BINARY).fit(x, y).privacy_ is None


def test_noise_aware_adds_the_known_noise_and_nothing_else():
    aware = seeded(LogisticRegression, **BINARY).posterior_
    alone = seeded(LogisticRegression, noise_aware=False, **BINARY).posterior_
    np.testing.assert_array_equal(aware.mean, alone.mean)
    np.testing.assert_allclose(aware.covariance, alone.covariance + aware.noise_covariance, rtol=1e-12)
    assert np.linalg.eigvalsh(aware.noise_covariance).min() > 0


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_bad_cells_and_targets_neither_raise_nor_warn_and_leave_their_record_blank(maker, declared):
    x, y = table(maker)
    results = []
    for spoil in ("cell", "infinite", "target"):
        cells, target = x.copy(), y.copy()
        if spoil == "cell":
            cells[5, 0] = np.nan
        elif spoil == "infinite":
            cells[5, 1] = -np.inf
        else:
            target[5] = np.nan
        results.append(seeded(maker, table=(cells, target), **declared).posterior_)
        assert np.isfinite(results[-1].mean).all()
    # However a record is spoiled it contributes zero: the same release to the last bit.
    for other in results[1:]:
        np.testing.assert_array_equal(other.mean, results[0].mean)
        np.testing.assert_array_equal(other.covariance, results[0].covariance)


@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning")
def test_how_many_rows_could_be_used_is_released_and_told():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (3000, 2))
    y = np.where(rng.logistic(size=3000) < x @ [1.0, -1.0], 1.0, -1.0)
    model = LogisticRegression(random_state=0, **BINARY).fit(x, y)
    assert model.usable_rows_ == pytest.approx(3000, abs=5 * model.usable_rows_sd_)
    assert 20 < model.usable_rows_sd_ < 200
    spoiled = np.where(np.arange(3000) < 1500, np.nan, y)
    with pytest.warns(UnusableRowsWarning, match="of 3,000 rows could be used"):
        model.fit(x, spoiled)
    assert model.usable_rows_ == pytest.approx(1500, abs=5 * model.usable_rows_sd_)
    assert "of 3,000 rows could be used" in model.summary().note
    assert model.set_params(private=False).fit(x, y).usable_rows_ is None


@pytest.mark.filterwarnings("ignore::dpsep.PrivacyLeakWarning", "ignore::dpsep.UnusableRowsWarning")
def test_rows_that_cannot_be_used_make_no_noise_smaller():
    """Residuals are summed over usable rows: divided by all rows they would look smaller than they are."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4000, 2))
    y = x @ [0.5, -0.4] + 0.3 * rng.standard_normal(4000)
    spoiled = np.where(rng.uniform(size=4000) < 0.5, np.nan, y)
    settings: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "bounds": (-1, 1), "random_state": 0}
    settings["target_bounds"] = (-2, 2)
    found: list[Any] = [LinearRegression(**settings).fit(x, target).posterior_ for target in (y, spoiled)]
    whole, half = (float(np.sqrt(one.noise_rate / one.noise_shape)) for one in found)
    assert half == pytest.approx(0.3, rel=0.06)
    assert half == pytest.approx(whole, rel=0.06)


def test_undeclared_labels_and_text_cells_contribute_nothing():
    x, y = table(LogisticRegression)
    blank, labelled, text = y.copy(), y.copy(), x.astype(object)
    blank[7], labelled[7], text[7, 0] = np.nan, 17.0, "unknown"
    first = seeded(LogisticRegression, table=(x, blank), **BINARY).coef_
    np.testing.assert_array_equal(seeded(LogisticRegression, table=(x, labelled), **BINARY).coef_, first)
    np.testing.assert_array_equal(seeded(LogisticRegression, table=(text, y), **BINARY).coef_, first)
    negative = table(PoissonRegression)[1]
    negative[7] = -1
    assert np.isfinite(seeded(PoissonRegression, table=(x, negative), **BOUNDS).coef_).all()


def test_the_charge_is_on_the_ledger_when_the_first_record_is_read(tmp_path):
    x, y = table(LinearRegression)
    ledger = ledger_at(tmp_path)
    seen = []
    watched = Watched(x, lambda: seen.append(ledger.spent().epsilon))
    LinearRegression(epsilon=0.75, ledger=ledger, **LINEAR).fit(watched, y)
    assert seen
    assert all(spent == pytest.approx(0.75, rel=1e-3) for spent in seen)
    assert [row.kind for row in ledger.rows()][1:] == ["charge", "finished"]


def test_a_table_that_cannot_be_read_is_charged_all_the_same(tmp_path):
    x, y = table(LinearRegression)
    ledger = ledger_at(tmp_path)

    def fail() -> None:
        raise Died("the disk is gone")

    with pytest.raises(Died):
        LinearRegression(epsilon=0.75, ledger=ledger, **LINEAR).fit(Watched(x, fail), y)
    assert ledger.spent().epsilon == pytest.approx(0.75, rel=1e-3)
    assert [row.kind for row in ledger.rows()][1:] == ["charge", "failed"]


@pytest.mark.parametrize(("maker", "declared"), ALL, ids=IDS)
def test_over_budget_nothing_is_read(maker, declared, tmp_path):
    x, y = (Watched(part, lambda: None) for part in table(maker))
    ledger = ledger_at(tmp_path, epsilon=0.5)
    with pytest.raises(OverBudget):
        maker(epsilon=0.75, ledger=ledger, **declared).fit(x, y)
    assert x.reads == y.reads == 0
    assert ledger.spent().epsilon == 0


def test_a_refit_is_charged_again_and_the_path_of_a_ledger_is_enough(tmp_path):
    x, y = table(LogisticRegression)
    ledger = ledger_at(tmp_path, epsilon=1.0)
    model = LogisticRegression(epsilon=0.4, ledger=str(ledger.path), **BINARY)
    model.fit(x, y).fit(x, y)
    assert ledger.spent().epsilon == pytest.approx(0.8, rel=1e-3)
    with pytest.raises(OverBudget):
        model.fit(x, y)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": None}, "private=False"),
    ({"epsilon": 0.0}, "epsilon must be a positive number"),
    ({"epsilon": -1.0}, "epsilon must be a positive number"),
    ({"epsilon": math.inf}, "epsilon must be a positive number"),
    ({"epsilon": math.nan}, "epsilon must be a positive number"),
    ({"epsilon": "1"}, "epsilon must be a positive number"),
    ({"delta": 0.0}, "delta must lie in"),
    ({"delta": 1.0}, "delta must lie in"),
    ({"method": "ep"}, "cannot be made private"),
    ({"method": "adf"}, "cannot be made private"),
    ({"method": "magic"}, "method"),
    ({"update": "fast"}, "'stable' or 'natural'"),
    ({"sampling": "poison"}, "sampling must be"),
    ({"sampling": 0.0}, "sampling must be"),
    ({"sampling": 1.5}, "sampling must be"),
    ({"relation": "add-remove"}, "replace-one"),
    ({"clip": 0.0}, "clip"),
    ({"clip": -1.0}, "clip"),
    ({"clip": math.inf}, "clip"),
    ({"steps": 0}, "steps"),
    ({"steps": 2.5}, "steps"),
    ({"prior_scale": 0.0}, "prior_scale"),
    ({"bounds": (1, -1)}, "low <= high"),
    ({"bounds": (0, [1, 2, 3])}, "pair"),
    ({"bounds": 3}, "pair"),
    ({"classes": [1]}, "two classes"),
    ({"classes": [1, 1]}, "two classes"),
    ({"classes": [1, 2, 3]}, "two classes"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=[str(bad) for bad, _ in BAD])
def test_wrong_parameters_are_refused_before_anything_is_charged_or_read(parameters, message, tmp_path):
    x, y = (Watched(part, lambda: None) for part in table(LogisticRegression))
    ledger = ledger_at(tmp_path, epsilon=100.0)
    with pytest.raises(ValueError, match=message):
        LogisticRegression(**(BINARY | {"ledger": ledger} | parameters)).fit(x, y)
    assert x.reads == y.reads == 0
    assert ledger.spent().epsilon == 0


def test_shapes_that_do_not_fit_are_refused_before_anything_is_charged(tmp_path):
    x, y = table(LinearRegression)
    ledger = ledger_at(tmp_path)
    model = LinearRegression(ledger=ledger, **LINEAR)
    for cells, target in (
        (x[0], y),
        (x, y[:-1]),
        (x, None),
        (x[:1], y[:1]),
        (x[:, :0], y),
        (x, np.stack([y, y], 1)),
    ):
        with pytest.raises(ValueError, match=r"."):
            model.fit(cells, target)
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(x, y, sample_weight=np.ones(ROWS))  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValueError, match="Complex"):
        model.fit(x * 1j, y)
    assert ledger.spent().epsilon == 0


def test_classes_that_are_not_declared_are_a_leak():
    x, y = table(LogisticRegression)
    with pytest.warns(PrivacyLeakWarning, match="classes are not declared"):
        model = LogisticRegression(**BOUNDS).fit(x, y)
    assert model.privacy_ is not None
    assert len(model.privacy_.leaks) == 1
    assert "Outside this guarantee" in model.privacy_.sentence()
    watched = Watched(y, lambda: None)
    with pytest.raises(PrivacyLeakError):
        LogisticRegression(strict=True, **BOUNDS).fit(x, watched)
    assert watched.reads == 0


def test_strict_refuses_a_seed_and_a_large_delta():
    x, y = table(LinearRegression)
    with pytest.raises(PrivacyLeakError, match="random_state"):
        LinearRegression(random_state=0, strict=True, **LINEAR).fit(x, y)
    with pytest.raises(PrivacyLeakError, match="1/N"):
        LinearRegression(delta=0.01, strict=True, **LINEAR).fit(x, y)
    with pytest.warns(PrivacyLeakWarning, match="1/N"):
        LinearRegression(delta=0.01, **LINEAR).fit(x, y)


def die_after(count: int) -> Any:
    def on_step(done: int, total: int) -> None:
        if done == count:
            raise Died

    return on_step


def test_a_run_that_died_goes_on_from_its_releases_and_pays_for_one_more(tmp_path):
    x, y = table(LogisticRegression)
    ledger = ledger_at(tmp_path, epsilon=2.0)
    model = LogisticRegression(ledger=ledger, checkpoint=tmp_path / "run", steps=8, **BINARY)
    with pytest.raises(Died):
        model.fit(x, y, on_step=die_after(3))
    charged = ledger.spent().epsilon
    seen = []
    model.fit(x, y, on_step=lambda done, total: seen.append(done))
    privacy = model.privacy_
    assert privacy is not None
    assert seen == list(range(1, 9))
    assert privacy.steps == 9
    mu = mu_of(privacy)
    assert gaussian_delta(privacy.epsilon, mu) == pytest.approx(1e-5, rel=1e-6)
    before = math.sqrt(mu**2 - privacy.sigma**-2.0)
    assert gaussian_delta(charged, before) == pytest.approx(1e-5, rel=1e-6)
    assert ledger.spent().epsilon == pytest.approx(privacy.epsilon, rel=1e-9)
    kinds = [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]
    assert kinds == ["charge", "failed", "extra-step", "finished"]
    # All releases are kept now: the result follows from them, at no further charge.
    coefficients = model.coef_
    unread = Watched(x, lambda: None)
    again = LogisticRegression(ledger=ledger, checkpoint=tmp_path / "run", steps=8, **BINARY).fit(unread, y)
    np.testing.assert_array_equal(again.coef_, coefficients)
    assert ledger.spent().epsilon == pytest.approx(privacy.epsilon, rel=1e-9)


def test_no_warning_escapes_a_private_fit_with_everything_declared():
    x, y = table(LinearRegression)
    x[:50] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LinearRegression(**LINEAR).fit(x, y)


def test_intervals_know_the_rows_that_were_not_drawn() -> None:
    """Sampled batches spread the mean by more than the gate's noise; intervals must hold both."""
    scores, shares = [], []
    for number in range(12):
        rng = np.random.default_rng([5, number])
        x = rng.uniform(-1, 1, (20_000, 3))
        y = x @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_normal(len(x))
        model = LinearRegression(
            30.0, sampling=0.02, bounds=(-1, 1), target_bounds=(-5, 5), random_state=number
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            found = model.fit(x, y).posterior_
        scores += list((found.mean[1:] - [1.0, -2.0, 0.5]) / np.sqrt(np.diag(found.covariance)[1:]))
        shares.append(found.noise_covariance[1, 1] / found.covariance[1, 1])
    # 36 scores: a root mean square of one, give or take 0.12.
    assert 0.7 < np.sqrt(np.mean(np.square(scores))) < 1.35
    # 240 sums of a fiftieth of the rows: 49 / 240 of the variance without privacy, and hardly any noise.
    assert 0.15 < np.mean(shares) < 0.3
