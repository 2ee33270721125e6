"""Private networks: what they guarantee, when they charge, and that noise is there and of the right size."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dpsep import Ledger, NetworkRegressor, OverBudget
from dpsep.estimators import network_run
from dpsep.privacy.gate import Gate
from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
from dpsep.theory.networks import moment_looks

from .network_made import (
    BINARY,
    BOUNDS,
    KIND,
    PRIVATE_WAYS,
    ROWS,
    STANDARD,
    STEPS,
    Watched,
    assert_proper,
    bits,
    classifier,
    labels,
    regressor,
    seeded,
    seeded_classes,
    table,
)

X, Y = table()
SCALINGS: dict[str, dict[str, Any]] = {"bounds": BOUNDS, "private scaling": {}, "standard": STANDARD}


class Died(Exception):
    pass


def ledger_at(folder: Path, epsilon: float = 1.0) -> Ledger:
    return Ledger.create(folder / "budget.ledger", epsilon=epsilon, delta=1e-3)


def kinds(ledger: Ledger) -> list[str]:
    return [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of a mu-GDP mechanism (Balle and Wang 2018, theorem 8)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def share_of_fit(way: str, scaling: str) -> float:
    """What scaling (a tenth) and moments (a fifth for SEP; a tenth or nothing for gradients) leave."""
    left = 0.9 if scaling == "private scaling" else 1.0
    if way in ("kronecker", "diagonal"):
        return 0.8 * left
    return left if scaling == "standard" else 0.9 * left


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_all_parts_together_spend_the_target_and_no_more(way: str, scaling: str) -> None:
    sigmas = []
    for relation, sensitivity in (("zero-out", 1.0), ("replace-one", 2.0)):
        more = PRIVATE_WAYS[way] | SCALINGS[scaling]
        model = seeded(epsilon=1.5, relation=relation, sampling="full", **more)
        privacy = model.privacy_
        assert 0.999 * 1.5 <= privacy.epsilon <= 1.5
        assert (privacy.relation, privacy.steps, privacy.delta) == (relation, STEPS, 1e-4)
        mu = sensitivity / privacy.sigma * math.sqrt(STEPS / share_of_fit(way, scaling))
        assert gaussian_delta(privacy.epsilon, mu) == pytest.approx(1e-4, rel=1e-4)
        assert ("private histograms" in privacy.scaling) == (scaling == "private scaling")
        assert model.posterior_.kind == KIND.get(way, "diagonal")
        assert_proper(model)
        sigmas.append(privacy.sigma)
    assert sigmas[1] == pytest.approx(2.0 * sigmas[0], rel=1e-6), "replace-one has twice the noise"


@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_poisson_sampling_spends_the_target_and_no_more(way: str) -> None:
    model = seeded(epsilon=2.0, sampling=0.25, **PRIVATE_WAYS[way], **BOUNDS)
    assert 0.999 * 2 <= model.privacy_.epsilon <= 2.0
    assert model.privacy_.sampling == "Poisson sampling at rate 0.25"
    assert "loss" in model.privacy_.accountant
    assert_proper(model)


def test_left_alone_factors_read_every_record_and_gradients_a_twentieth() -> None:
    found = {way: seeded(**PRIVATE_WAYS[way], **BOUNDS).privacy_.sampling for way in PRIVATE_WAYS}
    assert all(found[way] == "full batch" for way in ("kronecker", "diagonal")), found
    assert all(found[way] == "Poisson sampling at rate 0.05" for way in ("vi", "point")), found


@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_the_classifier_runs_by_every_method(way: str) -> None:
    model = seeded_classes(epsilon=1.5, **PRIVATE_WAYS[way])
    assert 0.999 * 1.5 <= model.privacy_.epsilon <= 1.5
    assert_proper(model)
    assert model.posterior_.noise_shape is None
    assert set(model.predict(X)) <= {"no", "yes"}


def test_the_noise_of_a_release_is_that_which_was_accounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds release sums that differ by noise alone as long as public values are the same: the first."""
    first: list[tuple[dict[str, float], dict[str, np.ndarray]]] = []
    release = Gate.release

    def noted(self: Gate, public: Any) -> dict[str, np.ndarray]:
        released = release(self, public)
        if self.blocks[0].name == "leverage" and self._permit not in seen:
            seen.append(self._permit)
            first.append((self.deviations, released))
        return released

    seen: list[Any] = []
    monkeypatch.setattr(Gate, "release", noted)
    sigma = [seeded(seed=seed, steps=1, **BOUNDS).privacy_.sigma for seed in range(60)]
    assert len(first) == 60
    draws = np.stack([released["leverage"] for _, released in first])
    expected = first[0][0]["leverage"]
    # Releases of moments have 20% of the budget, one step of the fit the rest; a record counts as one.
    assert expected == pytest.approx(sigma[0] * math.sqrt(2 * moment_looks(ROWS) * 0.8 / 0.2), rel=1e-9)
    freedom = (len(draws) - 1) * draws.shape[1]
    found = math.sqrt(draws.var(axis=0, ddof=1).mean())
    assert found == pytest.approx(expected, rel=5 / math.sqrt(2 * freedom))


@pytest.mark.parametrize("way", PRIVATE_WAYS)
def test_noise_reaches_the_result_and_an_open_fit_with_the_same_clip_has_none(way: str) -> None:
    one, two = (seeded(seed=seed, **PRIVATE_WAYS[way], **BOUNDS) for seed in (0, 1))
    free = seeded(private=False, clip=1.0, **PRIVATE_WAYS[way], **BOUNDS)
    assert np.abs(one.posterior_.mean - two.posterior_.mean).max() > 1e-3
    assert np.abs(one.posterior_.mean - free.posterior_.mean).max() > 1e-3
    if way in ("kronecker", "diagonal"):
        assert (one.posterior_.noise_variance > 0).all()
        assert (free.posterior_.noise_variance == 0).all()


def test_with_a_large_budget_the_result_is_that_without_privacy() -> None:
    """Without hidden units there is one optimum, and both must find it."""
    common: dict[str, Any] = {"hidden": (), "steps": 120} | BOUNDS
    free = seeded(private=False, clip=1.0, covariance="kronecker", **common)
    distance = []
    for epsilon in (1000.0, 10.0, 0.1):
        model = seeded(epsilon=epsilon, **common)
        distance.append(float(np.sqrt(np.mean((model.predict(X) - free.predict(X)) ** 2))))
    assert distance[0] < 0.01 < 0.3 < distance[2]
    assert distance == sorted(distance)


def test_at_epsilon_one_a_curve_is_found_that_no_line_can_follow() -> None:
    x, y = table(rows=4000)
    model = seeded(x, y, epsilon=1.0, steps=60, hidden=8, **BOUNDS)
    truth = np.sin(3 * x[:, 0]) + 0.5 * x[:, 1]
    line = truth - x @ np.linalg.lstsq(x, truth, rcond=None)[0]
    assert np.sqrt(np.mean((model.predict(x) - truth) ** 2)) < 0.6 * line.std()
    standard = (y - model.predict(x)) / model.predict(x, return_std=True)[1]
    assert 0.6 < standard.std() < 1.3


def test_progress_is_told_release_by_release() -> None:
    seen: list[tuple[int, int]] = []
    regressor(steps=STEPS, **BOUNDS).fit(X, Y, on_step=lambda *step: seen.append(step))
    assert seen == [(done, STEPS) for done in range(1, STEPS + 1)]


def test_a_seed_repeats_the_result_bit_for_bit_and_marks_it_not_for_release() -> None:
    with pytest.warns(PrivacyLeakWarning, match="random_state"):
        model = regressor(steps=STEPS, random_state=3, **BOUNDS).fit(X, Y)
    again, other = (seeded(seed=seed, **BOUNDS) for seed in (3, 4))
    assert bits(model) == bits(again)
    assert bits(model) != bits(other)
    assert model.privacy_ is not None
    assert not model.privacy_.secure
    assert "NOT FOR RELEASE" in model.privacy_.sentence()


def test_an_unseeded_fit_is_secure_silent_and_never_the_same_twice() -> None:
    one, two = (regressor(steps=STEPS, **BOUNDS).fit(X, Y) for _ in range(2))
    assert one.privacy_ is not None
    assert one.privacy_.secure
    assert one.privacy_.leaks == ()
    assert bits(one) != bits(two)


def test_strict_refuses_a_seed_and_a_large_delta() -> None:
    with pytest.raises(PrivacyLeakError, match="random_state"):
        regressor(random_state=0, strict=True, **BOUNDS).fit(X, Y)
    with pytest.raises(PrivacyLeakError, match="1/N"):
        regressor(delta=0.01, strict=True, **BOUNDS).fit(X, Y)


@pytest.mark.parametrize("way", ["kronecker", "diagonal"])
def test_noise_aware_adds_the_known_noise_to_what_predictions_account_for(way: str) -> None:
    aware, alone = (seeded(noise_aware=choice, **PRIVATE_WAYS[way], **BOUNDS) for choice in (True, False))
    np.testing.assert_array_equal(aware.posterior_.mean, alone.posterior_.mean)
    np.testing.assert_array_equal(aware.posterior_.variance, alone.posterior_.variance)
    wide, narrow = (model.predict(X, return_std=True)[1] for model in (aware, alone))
    assert (wide > narrow).all()
    assert all(0 < row["noise_share"] < 1 for row in aware.summary())
    assert all(row["noise_share"] == 0 for row in alone.summary())


def test_the_charge_is_on_the_ledger_when_the_first_cell_is_read(tmp_path: Path) -> None:
    for number, (way, model) in enumerate(
        (way, make) for way in PRIVATE_WAYS for make in (regressor, classifier)
    ):
        (tmp_path / str(number)).mkdir()
        ledger = ledger_at(tmp_path / str(number))
        seen: list[float] = []
        note = lambda ledger=ledger, seen=seen: seen.append(ledger.spent().epsilon)  # noqa: E731
        target = Y if model is regressor else labels(X)
        declared = BOUNDS if model is regressor else BINARY
        watched = Watched(X, note), Watched(target, note)
        model(epsilon=0.75, ledger=ledger, steps=1, **PRIVATE_WAYS[way], **declared).fit(*watched)
        assert all(part.reads for part in watched)
        assert all(spent == pytest.approx(0.75, rel=1e-3) for spent in seen)
        assert kinds(ledger) == ["charge", "finished"]


def test_a_table_that_cannot_be_read_is_charged_all_the_same(tmp_path: Path) -> None:
    def fail() -> None:
        raise Died("the disk is gone")

    ledger = ledger_at(tmp_path)
    with pytest.raises(Died):
        regressor(epsilon=0.75, ledger=ledger, **BOUNDS).fit(Watched(X, fail), Y)
    assert ledger.spent().epsilon == pytest.approx(0.75, rel=1e-3)
    assert kinds(ledger) == ["charge", "failed"]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_over_budget_nothing_is_read(scaling: str, tmp_path: Path) -> None:
    watched, target, ledger = Watched(X), Watched(Y), ledger_at(tmp_path, epsilon=0.5)
    with pytest.raises(OverBudget):
        regressor(epsilon=0.75, ledger=ledger, **SCALINGS[scaling]).fit(watched, target)
    assert (watched.reads, target.reads) == (0, 0)
    assert ledger.spent().epsilon == 0


def test_a_refit_is_charged_again_and_the_path_of_a_ledger_is_enough(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    model = regressor(epsilon=0.4, ledger=str(ledger.path), steps=1, **BOUNDS)
    model.fit(X, Y).fit(X, Y)
    assert ledger.spent().epsilon == pytest.approx(0.8, rel=1e-3)
    with pytest.raises(OverBudget):
        model.fit(X, Y)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": None}, "private=False"),
    ({"epsilon": 0.0}, "epsilon must be a positive number"),
    ({"epsilon": math.inf}, "epsilon must be a positive number"),
    ({"delta": 1.0}, "delta must lie in"),
    ({"method": "ep"}, r"cannot be made private.*'sep' or 'vi' or 'point'"),
    ({"method": "adf"}, "cannot be made private"),
    ({"method": "pbp"}, "method must be one of sep, vi, point, ep, adf"),
    ({"sampling": 1.5}, "sampling must be 'full', a rate"),
    ({"relation": "add-remove"}, "replace-one"),
    ({"clip": 0.0}, "clip must be positive"),
    ({"clip": math.inf}, "clip must be at most 1e6"),
    ({"clip": math.nan}, "clip"),
    ({"steps": 2.5}, "steps must be a whole number"),
    ({"steps": 0}, "steps must be a whole number"),
    ({"epsilon": 1e-6, "delta": 1e-12}, "does not fit the grid"),
    ({"bounds": (1, -1)}, "bounds of the features must be finite, with low <= high"),
    ({"bounds": 3}, "bounds of the features must be a pair"),
    ({"target_bounds": (0, math.inf)}, "bounds of the target must be finite"),
    ({"activation": "tanh"}, "activation must be 'auto', 'relu', 'sigmoid', 'sine', not 'tanh'"),
    *(({"direct": wrong}, "direct must be True, False or None") for wrong in (1, "yes", 0.0)),
    *(
        ({"direct": True} | other, "direct=True needs hidden units, method='sep' and covariance='kronecker'")
        for other in ({"covariance": "diagonal"}, {"method": "vi"}, {"method": "point"}, {"hidden": ()})
    ),
    ({"covariance": "full"}, "covariance must be 'auto', 'kronecker' or 'diagonal', not 'full'"),
    *(
        ({"hidden": wrong}, r"hidden must be .* such as \(50,\) or \(20, 20\), \(\) for a linear model")
        for wrong in (0, -3, 2.5, (3, 0), "many", (True,), [[3]], True)
    ),
    ({"hidden": 4001}, "at most 2000000 weights and layers of 4000"),
    ({"public_scaling": ((0, 1), (0, 1))}, "either public_scaling or bounds"),
    *(
        (
            {"public_scaling": wrong, "bounds": None, "target_bounds": None},
            "public_scaling must be .*positive",
        )
        for wrong in (3, (0, 1), ((0, 1),), ((0, 0), (0, 1)), ((0, 1), (0, -1)), ((0, math.inf), (0, 1)))
    ),
    ({"public_scaling": (([0, 0, 0], 1), (0, 1)), "bounds": None, "target_bounds": None}, "one or 2 for"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=[str(bad) for bad, _ in BAD])
def test_wrong_parameters_are_refused_before_anything_is_charged_or_read(
    parameters: dict[str, Any], message: str, tmp_path: Path
) -> None:
    watched, ledger = Watched(X), ledger_at(tmp_path, epsilon=100.0)
    with pytest.raises(ValueError, match=message):
        NetworkRegressor(**({"ledger": ledger, "delta": 1e-4} | BOUNDS | parameters)).fit(watched, Y)
    assert watched.reads == 0
    assert ledger.spent().epsilon == 0


def test_classifiers_say_what_they_need_before_anything_is_charged(tmp_path: Path) -> None:
    watched, ledger = Watched(X), ledger_at(tmp_path, epsilon=100.0)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"classes": ["a"]}, "exactly two classes"),
        ({"classes": ["a", "a"]}, "exactly two classes"),
        ({"bounds": None, "public_scaling": (0, 0)}, r"public_scaling must be \(centre, scale\)"),
    ]
    for parameters, message in wrong:
        with pytest.raises(ValueError, match=message):
            classifier(ledger=ledger, **parameters).fit(watched, labels(X))
    assert watched.reads == 0
    assert ledger.spent().epsilon == 0


def test_the_plan_of_a_fit_sees_public_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the records is decided before they are asked for."""
    order: list[str] = []
    design, through = network_run.network_schedule, network_run.fit_through

    def designed(*arguments: Any, **more: Any) -> Any:
        order.append("schedule")
        return design(*arguments, **more)

    def fitted(*arguments: Any) -> Any:
        order.append("fit")
        return through(*arguments)

    monkeypatch.setattr(network_run, "network_schedule", designed)
    monkeypatch.setattr(network_run, "fit_through", fitted)
    watched = Watched(X, lambda: order.append("read"))
    regressor(steps=1, **BOUNDS).fit(watched, Y)
    assert order[:3] == ["schedule", "fit", "read"], "the rehearsal has no records"
    assert order[-1] == "fit"
