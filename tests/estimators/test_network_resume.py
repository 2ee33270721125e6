"""Private networks that die and go on: what is charged, what is kept, what is refused."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dpsep import Ledger
from dpsep.privacy.checkpoint import CheckpointError
from dpsep.privacy.gate import Gate
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.release_log import ReleaseLog
from dpsep.theory.networks import moment_looks

from .network_made import BOUNDS, PRIVATE_WAYS, ROWS, STANDARD, STEPS, assert_proper, bits, regressor, table

X, Y = table()
MOMENTS = 2 * moment_looks(ROWS)
"""Releases of the moments, which come before those of the fit."""


class Died(Exception):
    pass


def ledger_at(folder: Path, epsilon: float = 3.0) -> Ledger:
    return Ledger.create(folder / "budget.ledger", epsilon=epsilon, delta=1e-3)


def kinds(ledger: Ledger) -> list[str]:
    return [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of a mu-GDP mechanism (Balle and Wang 2018, theorem 8)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def run(folder: Path, ledger: Ledger | None = None, **more: Any) -> Any:
    parameters = BOUNDS | {"steps": STEPS, "checkpoint": folder / "run", "ledger": ledger} | more
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return regressor(**parameters).fit(X, Y)


def died_at(number: int, folder: Path, ledger: Ledger | None = None, **more: Any) -> None:
    """Run, and die in the release after this many, when the records were read."""
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


@pytest.mark.parametrize("done", range(STEPS))
@pytest.mark.parametrize("way", ["kronecker", "diagonal"])
def test_a_run_that_died_goes_on_from_its_releases_and_pays_for_one_more(
    way: str, done: int, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path)
    died_at(MOMENTS + done, tmp_path, ledger, **PRIVATE_WAYS[way])
    assert kinds(ledger) == ["charge", "failed"]
    charged = ledger.spent().epsilon
    model = run(tmp_path, ledger, **PRIVATE_WAYS[way])
    privacy = model.privacy_
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]
    assert privacy.steps == STEPS + 1
    assert privacy.secure
    assert ledger.spent().epsilon == pytest.approx(privacy.epsilon, rel=1e-9)
    # The moments have 20 parts of the budget where the steps that were asked for have 80.
    before = STEPS * 0.2 / 0.8
    once, twice = ((before + STEPS) / privacy.sigma**2, (before + STEPS + 1) / privacy.sigma**2)
    assert gaussian_delta(charged, math.sqrt(once)) == pytest.approx(1e-4, rel=1e-4)
    assert gaussian_delta(privacy.epsilon, math.sqrt(twice)) == pytest.approx(1e-4, rel=1e-4)
    assert_proper(model)


@pytest.mark.parametrize("way", ["vi", "point"])
def test_gradients_are_resumed_too_and_without_moments_where_columns_are_standard(
    way: str, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path)
    more: dict[str, Any] = {"bounds": None, "target_bounds": None} | STANDARD | PRIVATE_WAYS[way]
    died_at(1, tmp_path, ledger, **more)
    model = run(tmp_path, ledger, **more)
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]
    assert model.privacy_.steps == STEPS + 1
    assert ledger.spent().epsilon == pytest.approx(model.privacy_.epsilon, rel=1e-9)
    assert_proper(model)


def test_a_run_whose_releases_are_all_kept_is_not_charged_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_at(tmp_path)
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
    died_at(MOMENTS + 2, tmp_path)
    assert len(kept) == MOMENTS + 2
    model = run(tmp_path)
    assert len(kept) == MOMENTS + STEPS
    # Handed out again from the start, all releases give the same posterior.
    assert bits(run(tmp_path)) == bits(model)


@pytest.mark.parametrize(
    ("declared", "done", "stage"),
    [(True, 0, "moments"), (True, MOMENTS - 1, "moments"), (False, 1, "scaling"), (False, 4, "moments")],
)
def test_a_run_that_died_in_any_stage_goes_on_and_its_lost_release_is_charged_to_that_stage(
    declared: bool, done: int, stage: str, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path)
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
    ledger = ledger_at(tmp_path)

    def die(log: ReleaseLog, stage: str, released: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(ReleaseLog, "keep", die)
        with pytest.raises(Died):
            run(tmp_path, ledger)
    model = run(tmp_path, ledger)
    parts = {part["name"]: part["steps"] for part in model.privacy_.schedule["parts"]}
    assert parts["moments"] == MOMENTS + 1
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 4},
        {"hidden": (3, 3)},
        {"activation": "relu"},
        {"direct": False},
        {"covariance": "diagonal"},
        {"method": "vi"},
        {"bounds": (-1.0, 1.0 + 1e-12)},
        {"target_bounds": (-2.0, 2.5)},
        {"bounds": None, "target_bounds": None} | STANDARD,
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
    died_at(MOMENTS + 1, tmp_path, ledger)
    with pytest.raises(CheckpointError, match="other settings"):
        run(tmp_path, ledger, **change)
    assert kinds(ledger) == ["charge", "failed"]


def test_releases_of_a_seeded_run_never_become_fit_for_release(tmp_path: Path) -> None:
    died_at(MOMENTS + 1, tmp_path, random_state=1)
    assert not run(tmp_path).privacy_.secure
