"""Resuming: what a checkpoint remembers, and what a resume refuses."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import Ledger, LedgerError, ProbitRegression
from dpsep.estimators import columns
from dpsep.privacy.checkpoint import Checkpoint, CheckpointError
from dpsep.privacy.gate import Gate
from dpsep.privacy.release_log import ReleaseLog
from dpsep.privacy.sampling import ShuffledEpochs
from dpsep.privacy.scaling import RELEASES

X = np.linspace(-1.0, 1.0, 48).reshape(24, 2)
y = np.where(np.arange(24) % 3, 1, -1)

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")  # of a table of 24 rows


def fit(stop: int | None = None, **more: Any) -> Any:
    """Fit a small table; die after `stop` releases."""

    def on_step(done: int, total: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    parameters = {"delta": 1e-3, "bounds": (-1, 1), "classes": [-1, 1], "steps": 4} | more
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ProbitRegression(**parameters).fit(X, y, on_step=on_step)


def died(stop: int = 2, **more: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(stop, **more)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger", epsilon=9.0, delta=1e-1)


def kinds(ledger: Ledger) -> list[str]:
    return [row.kind for row in ledger.rows() if row.kind not in ("create", "release")]


def test_every_resume_is_charged_one_release(tmp_path: Path, ledger: Ledger) -> None:
    again: dict[str, Any] = {"ledger": ledger, "checkpoint": tmp_path / "run"}
    died(1, **again)
    died(2, **again)
    model = fit(**again)
    assert kinds(ledger) == ["charge", "failed", "extra-step", "failed", "extra-step", "finished"]
    assert model.privacy_.steps == 6
    assert ledger.spent().epsilon == pytest.approx(model.privacy_.epsilon, rel=1e-9)


def test_a_run_whose_releases_are_all_kept_is_not_charged_and_reads_nothing(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fit(ledger=ledger, checkpoint=tmp_path / "run")
    spent = ledger.spent()

    def read(*_: Any) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("dpsep.privacy.gate.Reader.sums", read)
    second = fit(ledger=ledger, checkpoint=tmp_path / "run")
    assert ledger.spent() == spent
    assert second.privacy_.epsilon == first.privacy_.epsilon
    assert second.coef_.tolist() == first.coef_.tolist()


@pytest.mark.parametrize("other", ["none", "another"])
def test_a_resume_is_charged_to_the_ledger_of_the_run_or_refused(
    tmp_path: Path, ledger: Ledger, other: str
) -> None:
    died(ledger=ledger, checkpoint=tmp_path / "run")
    new = None if other == "none" else Ledger.create(tmp_path / "other", epsilon=9.0, delta=1e-1)
    with pytest.raises(CheckpointError, match="another ledger"):
        fit(ledger=new, checkpoint=tmp_path / "run")
    assert new is None or kinds(new) == []
    assert kinds(ledger) == ["charge", "failed"]


def test_a_run_without_a_ledger_cannot_be_finished_on_one(tmp_path: Path, ledger: Ledger) -> None:
    died(checkpoint=tmp_path / "run")
    with pytest.raises(CheckpointError, match="another ledger"):
        fit(ledger=ledger, checkpoint=tmp_path / "run")
    assert kinds(ledger) == []


def test_an_old_copy_of_a_folder_is_refused_before_it_is_charged(tmp_path: Path, ledger: Ledger) -> None:
    died(ledger=ledger, checkpoint=tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    died(3, ledger=ledger, checkpoint=tmp_path / "run")
    with pytest.raises(CheckpointError, match="old copy"):
        fit(ledger=ledger, checkpoint=tmp_path / "copy")
    assert kinds(ledger).count("extra-step") == 1
    fit(ledger=ledger, checkpoint=tmp_path / "run")


def test_a_copy_made_before_the_run_died_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    """Its later releases were made: to make them again would cost what nobody charged."""

    def copy_then_die(done: int, total: int) -> None:
        if done == 1:
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
        if done == 3:
            raise KeyboardInterrupt

    parameters: dict[str, Any] = {"delta": 1e-3, "bounds": (-1, 1), "classes": [-1, 1], "steps": 4}
    model = ProbitRegression(**parameters, ledger=ledger, checkpoint=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, on_step=copy_then_die)
    with pytest.raises(CheckpointError, match="old copy"):
        fit(ledger=ledger, checkpoint=tmp_path / "copy")
    assert kinds(ledger) == ["charge", "failed"]
    assert fit(ledger=ledger, checkpoint=tmp_path / "run").privacy_.steps == 5


def test_a_copy_and_its_living_original_make_no_more_releases_than_were_charged(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    release = Gate.release

    def counted(self: Gate, public: Any) -> Any:
        made.append(1)
        return release(self, public)

    def fit_a_copy(done: int, total: int) -> None:
        if done == 2:
            shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
            fit(ledger=ledger, checkpoint=tmp_path / "copy")

    monkeypatch.setattr(Gate, "release", counted)
    parameters: dict[str, Any] = {"delta": 1e-3, "bounds": (-1, 1), "classes": [-1, 1], "steps": 4}
    model = ProbitRegression(**parameters, ledger=ledger, checkpoint=tmp_path / "run")
    with pytest.raises(LedgerError, match="another copy"):
        model.fit(X, y, on_step=fit_a_copy)
    charged = ledger.rows()[1].event["parts"]
    assert len(made) <= sum(part["steps"] for part in charged) + kinds(ledger).count("extra-step")


def test_a_copy_of_a_run_that_has_finished_since_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    def copy_then_go_on(done: int, total: int) -> None:
        if done == 2:
            shutil.copytree(tmp_path / "run", tmp_path / "copy")

    model = ProbitRegression(
        delta=1e-3, bounds=(-1, 1), classes=[-1, 1], steps=4, ledger=ledger, checkpoint=tmp_path / "run"
    )
    model.fit(X, y, on_step=copy_then_go_on)
    with pytest.raises(CheckpointError, match="old copy"):
        fit(ledger=ledger, checkpoint=tmp_path / "copy")


def test_releases_of_a_seeded_run_never_become_fit_for_release(tmp_path: Path) -> None:
    died(checkpoint=tmp_path / "run", random_state=1)
    assert not fit(checkpoint=tmp_path / "run").privacy_.secure
    assert fit(checkpoint=tmp_path / "new").privacy_.secure


@pytest.mark.parametrize(
    "change", [{"delta": 2e-3}, {"update": "natural"}, {"bounds": (-1, 1 + 1e-12)}, {"prior_scale": 3.0}]
)
def test_other_settings_are_refused_before_they_are_charged(
    tmp_path: Path, ledger: Ledger, change: dict[str, Any]
) -> None:
    died(ledger=ledger, checkpoint=tmp_path / "run")
    with pytest.raises(CheckpointError, match="other settings"):
        fit(ledger=ledger, checkpoint=tmp_path / "run", **change)
    assert kinds(ledger) == ["charge", "failed"]


def test_shuffled_epochs_are_not_resumed_and_not_charged_for_it(tmp_path: Path, ledger: Ledger) -> None:
    again: dict[str, Any] = {"sampling": ShuffledEpochs(12), "ledger": ledger, "checkpoint": tmp_path / "run"}
    died(1, **again)
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        fit(**again)
    assert kinds(ledger) == ["charge", "failed"]


def test_a_run_that_died_while_scaling_goes_on(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: dict[str, Any] = {"bounds": None, "checkpoint": tmp_path / "run", "ledger": ledger}

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsep.privacy.gate.Gate.release", die)
        with pytest.raises(KeyboardInterrupt):
            fit(**again)
    model = fit(**again)
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]
    parts = {part["name"]: part["steps"] for part in model.privacy_.schedule["parts"]}
    assert parts["scaling"] == RELEASES + 1
    assert model.privacy_.epsilon == pytest.approx(ledger.spent().epsilon, rel=1e-9)


def test_an_old_copy_cannot_repeat_an_early_stage_that_a_later_one_followed(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost releases are charged to the stage of the copy that died: it may not make others' instead."""
    mine, copy = tmp_path / "run", tmp_path / "copy"
    release, made = Gate.release, [0]

    def resumed_meanwhile(self: Gate, public: Any) -> Any:
        if made[0] == 2:  # of three that scale
            shutil.copytree(mine, copy)
            with monkeypatch.context() as patch:
                patch.setattr(ReleaseLog, "begin_release", _die)
                with pytest.raises(KeyboardInterrupt):
                    fit(bounds=None, ledger=ledger, checkpoint=copy)
        if made[0] == RELEASES + 1:
            raise KeyboardInterrupt
        made[0] += 1
        return release(self, public)

    with monkeypatch.context() as patch:
        patch.setattr(Gate, "release", resumed_meanwhile)
        with pytest.raises(KeyboardInterrupt):
            fit(bounds=None, ledger=ledger, checkpoint=mine)
    before = ledger.spent()
    with pytest.raises(CheckpointError, match="old copy"):
        fit(bounds=None, ledger=ledger, checkpoint=copy)
    assert ledger.spent() == before
    assert made[0] == RELEASES + 1


def test_a_copy_does_not_take_another_copys_charge_for_its_own(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy writes a loss down and dies before it is charged; the original loses one of another stage."""
    mine, copy = tmp_path / "run", tmp_path / "copy"
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "release", _die)
        with pytest.raises(KeyboardInterrupt):
            fit(bounds=None, ledger=ledger, checkpoint=mine)
    shutil.copytree(mine, copy)
    with monkeypatch.context() as patch:
        patch.setattr("dpsep.privacy.charged_run.authorise_again", _die)
        with pytest.raises(KeyboardInterrupt):
            fit(bounds=None, ledger=ledger, checkpoint=copy)
    fit(bounds=None, ledger=ledger, checkpoint=mine)
    before = ledger.spent()
    with pytest.raises(CheckpointError, match="old copy"):
        fit(bounds=None, ledger=ledger, checkpoint=copy)
    assert ledger.spent() == before


def test_a_copy_whose_loss_was_not_charged_is_refused_once_its_original_went_on(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, copy = tmp_path / "run", tmp_path / "copy"
    release, made = Gate.release, [0]

    def copied_meanwhile(self: Gate, public: Any) -> Any:
        if made[0] == 1:
            shutil.copytree(mine, copy)
            with monkeypatch.context() as patch:
                patch.setattr("dpsep.privacy.charged_run.authorise_again", _die)
                with pytest.raises(KeyboardInterrupt):
                    fit(ledger=ledger, checkpoint=copy)
        made[0] += 1
        if made[0] == 3:
            raise KeyboardInterrupt
        return release(self, public)

    with monkeypatch.context() as patch:
        patch.setattr(Gate, "release", copied_meanwhile)
        with pytest.raises(KeyboardInterrupt):
            fit(ledger=ledger, checkpoint=mine)
    before = ledger.spent()
    with pytest.raises(CheckpointError, match="old copy"):
        fit(ledger=ledger, checkpoint=copy)
    assert ledger.spent() == before


def test_a_stage_that_makes_another_number_of_releases_is_refused_before_the_charge(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsep.theory.glm_defaults.private_scaling.RELEASES", RELEASES - 1)
    real = columns.scaling_stage
    monkeypatch.setattr(columns, "scaling_stage", lambda *given: real(*given)._replace(releases=RELEASES))
    with pytest.raises(ValueError, match="takes 3 releases, not 2"):
        fit(bounds=None, ledger=ledger)
    assert kinds(ledger) == []


def test_a_loss_that_was_written_down_and_not_charged_is_charged_by_the_next_resume(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: dict[str, Any] = {"bounds": None, "ledger": ledger, "checkpoint": tmp_path / "run"}
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "release", _die)
        with pytest.raises(KeyboardInterrupt):
            fit(**again)
    with monkeypatch.context() as patch:
        patch.setattr("dpsep.privacy.charged_run.authorise_again", _die)
        with pytest.raises(KeyboardInterrupt):
            fit(**again)
    model = fit(**again)
    assert kinds(ledger) == ["charge", "failed", "extra-step", "finished"]
    assert model.privacy_.epsilon == pytest.approx(ledger.spent().epsilon, rel=1e-9)


def _die(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_checkpoint_of_an_earlier_version_is_refused_and_says_why(tmp_path: Path, ledger: Ledger) -> None:
    again: dict[str, Any] = {"checkpoint": tmp_path / "run", "ledger": ledger}
    died(1, **again)
    checkpoint = Checkpoint(tmp_path / "run")
    found = checkpoint.load()
    assert found is not None
    meta = {key: value for key, value in found.meta.items() if key != "kept"} | {"lost": 0}
    arrays = {".".join(reversed(key.split(".")[1:])): value for key, value in found.arrays.items()}
    checkpoint.save(found.step, arrays, meta)
    before = kinds(ledger)
    with pytest.raises(CheckpointError, match="earlier version"):
        fit(**again)
    assert kinds(ledger) == before


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with ReleaseLog(Checkpoint(tmp_path), "a"), pytest.raises(CheckpointError, match="in use"):
        ReleaseLog(Checkpoint(tmp_path), "a")
    with ReleaseLog(Checkpoint(tmp_path), "a") as saved:
        assert saved.run is None


def test_noise_that_does_not_fit_the_grid_is_refused_before_the_charge(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="does not fit the grid"):
        fit(epsilon=1e-6, delta=1e-12, ledger=ledger)
    assert kinds(ledger) == []
