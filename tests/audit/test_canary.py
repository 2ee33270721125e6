"""Canaries: what is claimed is nearly reached and never exceeded, for every sampling and relation."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dpsep import GaussianMixture, LinearRegression, LogisticRegression
from dpsep.audit import canary_audit, membership_audit, one_run_audit
from dpsep.audit.canary import crafted, trials
from dpsep.audit.laws import noise_findings, sampling_findings, steps_of
from dpsep.audit.targets import Target, targets, trials_for
from dpsep.privacy import gate, grid, isolation, reader
from dpsep.privacy.gaussian import gaussian_mu
from dpsep.privacy.grid import Block
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.sampling import FixedSizeSampling

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (12, 31))
Y = GENERATOR.uniform(-1, 1, 12)


def linear(**more: Any) -> LinearRegression:
    settings: dict[str, Any] = {"delta": 1e-2, "bounds": (-1, 1), "target_bounds": (-1, 1), "steps": 2}
    return LinearRegression(**(settings | more))


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_scores_of_a_full_batch_have_the_law_that_is_accounted(relation: Any) -> None:
    seen = trials(linear(epsilon=4.0, relation=relation), X, Y, canaries=32, runs=40)
    assert seen.full
    claimed = gaussian_mu(seen.epsilon, seen.delta)
    mu = float(np.sqrt(np.mean(seen.mus**2)))
    for scores, sign in ((seen.inside, 1), (seen.outside, -1)):
        spread = 5 / np.sqrt(len(scores))
        assert scores.mean() == pytest.approx(sign * mu**2 / 2, abs=mu * spread + 0.02)
        assert scores.std() == pytest.approx(mu, rel=spread + 0.02)
    assert (0.95 if relation == "zero-out" else 0.8) * claimed < mu <= claimed * (1 + 1e-9)


def test_a_bound_is_more_than_half_of_the_claim_and_not_above_it() -> None:
    found = canary_audit(linear(epsilon=4.0), X, Y, canaries=32, runs=60)
    assert 2.0 < found.epsilon <= found.claimed
    assert not found.caught
    assert found.power > 0.99
    assert found.bound.epsilon < found.bound.gaussian


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_sampled_runs_stay_below_their_claim(relation: Any) -> None:
    model = linear(epsilon=4.0, sampling=0.25, relation=relation)
    found = canary_audit(model, X, Y, canaries=32, runs=20)
    assert not found.full
    assert 0 <= found.epsilon <= found.claimed
    assert found.counts.hits / found.counts.members > found.counts.alarms / found.counts.others


def test_canaries_are_orthogonal_and_go_through_the_clip() -> None:
    blocks = (
        Block("mean", 5, 2.0, 0.6),
        Block("precision", 5, 0.5, 0.3, "outer"),
        Block("noise", 1, 1.0, 0.1),
    )
    for part in crafted(blocks, 4):
        gram = part @ part.T
        np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0.0, atol=1e-6)
        assert np.count_nonzero(part[1:]) in (0, part[1:].size), "dense: no coordinate is left out"
    seen = trials(linear(epsilon=1.0), X, Y, canaries=32, runs=1)
    assert seen.mus.max() <= gaussian_mu(seen.epsilon, seen.delta) * (1 + 1e-9)


def test_canaries_without_room_are_not_counted() -> None:
    narrow = canary_audit(linear(epsilon=4.0), X[:, :2], Y, canaries=30, runs=6)
    assert narrow.counts.members + narrow.counts.others == 24 * 6, "cells of the histogram of leverages"
    scaled = canary_audit(linear(epsilon=4.0, bounds=None, target_bounds=None), X, Y, canaries=32, runs=4)
    assert not scaled.caught


def test_power_is_what_canaries_of_different_reach_have(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = gate.Gate._noised
    monkeypatch.setattr(
        gate.Gate,
        "_noised",
        lambda self, block, total: total + np.rint((honest(self, block, total) - total) / 2),
    )
    found = [canary_audit(linear(epsilon=4.0), X[:, :3], Y, canaries=8, runs=12, seed=s) for s in range(8)]
    power = float(np.mean([one.power for one in found]))
    assert np.mean([one.caught for one in found]) == pytest.approx(power, abs=0.5)


@pytest.mark.parametrize("broken", ["clip by coordinate", "sums doubled later"])
def test_canaries_see_a_clip_that_is_another_one(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken == "clip by coordinate":

        def by_coordinate(block: Any, rows: Any) -> Any:
            bound = block.norm_units / block.scale
            finite = jnp.all(jnp.isfinite(rows), axis=1)
            cut = jnp.clip(jnp.where(finite[:, None], rows, 0.0), -bound, bound)
            return jnp.round(cut * block.scale), finite

        monkeypatch.setattr(grid, "_to_grid", by_coordinate)
        monkeypatch.setattr(grid, "_passes", lambda block, rows, finite: finite)
    else:
        calls, chunk_sums = [], reader.chunk_sums

        def doubled(*arguments: Any) -> Any:
            calls.append(1)
            return tuple((1 + (len(calls) > 200)) * part for part in chunk_sums(*arguments))

        monkeypatch.setattr(reader, "chunk_sums", doubled)
    monkeypatch.setattr(reader, "_check_device", lambda *_: None)
    isolation.forget()
    try:
        assert canary_audit(linear(epsilon=1.0), X, Y, canaries=32, runs=60).caught
    finally:
        isolation.forget()


def test_one_run_and_membership_prove_less_than_is_claimed() -> None:
    wide = np.zeros((8, 120))
    labels = np.where(np.arange(8) % 2, 1.0, -1.0)
    model = LogisticRegression(epsilon=8.0, delta=1e-6, bounds=(-1, 1), classes=[-1, 1], steps=2)
    one = one_run_audit(model, wide, labels, canaries=120)
    assert 0.5 < one.epsilon < one.claimed
    seen = membership_audit(linear(epsilon=50.0), X[:, :2], Y, runs=80)
    assert 0.1 < seen.epsilon < seen.claimed, "a posterior with little noise tells of a far record"
    assert not membership_audit(linear(epsilon=0.5), X[:, :2], Y, runs=40).caught


def test_a_mixture_has_no_outcome() -> None:
    model = GaussianMixture(2, epsilon=1.0, delta=1e-2, bounds=(-1, 1), steps=1)
    assert not canary_audit(model, X[:, :8], canaries=8, runs=4).caught


def test_an_audit_charges_nobodys_ledger_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=5.0, delta=0.1)
    model = linear(ledger=ledger, checkpoint=tmp_path / "run")
    canary_audit(model, X[:, :2], Y, canaries=3, runs=2)
    membership_audit(model, X[:, :2], Y, runs=4)
    steps_of(model, X[:, :2], Y, runs=1)
    assert len(ledger.rows()) == 1
    assert not (tmp_path / "run").exists()


def test_an_audit_needs_a_run() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        canary_audit(linear(), X, Y, runs=0)


def test_noise_and_coins_of_the_library_have_their_laws() -> None:
    runs = steps_of(linear(steps=12, sampling=0.25), X[:, :4], Y, runs=12)
    assert noise_findings(runs) == []
    assert sampling_findings(runs) == []
    fixed = linear(steps=6, sampling=FixedSizeSampling(4), relation="replace-one")
    assert sampling_findings(steps_of(fixed, X[:, :4], Y, runs=1)) == []
    assert sampling_findings(steps_of(linear(steps=3), X[:, :4], Y, runs=2)) == []


@pytest.mark.parametrize("target", targets().values(), ids=lambda target: target.name)
def test_no_target_is_caught(target: Target) -> None:
    found = canary_audit(target.make(4.0), target.X, target.y, canaries=target.canaries, runs=6)
    assert found.epsilon <= found.claimed
    assert found.full
    assert found.reach > 0.9
    assert trials_for(4.0) >= found.counts.members
