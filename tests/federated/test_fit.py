"""A federated fit is the pooled fit; its statement and its sites' ledgers say what it cost."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import (
    GammaRegression,
    GaussianMixture,
    Ledger,
    LinearRegression,
    PoissonRegression,
    ProbitRegression,
)
from dpsep.estimators.store import load, save
from dpsep.federated import Federation, InProcess, fit, wire
from dpsep.federated.codec import encode
from dpsep.federated.terms import Work
from dpsep.privacy.leaks import PrivacyLeakWarning
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch
from dpsep.privacy.shown import up

from .made import WEIGHTS, federate, logistic, make_sites, table

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.privacy.leaks.PrivacyLeakWarning")


def targets(kind: type) -> Any:
    X, y = table()
    rng = np.random.default_rng(1)
    if kind is LinearRegression:
        return X @ WEIGHTS + 0.3 * rng.standard_normal(len(X))
    if kind is GammaRegression:
        return rng.exponential(np.exp(X @ WEIGHTS / 2))
    return rng.poisson(np.exp(X @ WEIGHTS / 2)).astype(float) if kind is PoissonRegression else y


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (type(logistic()), {"classes": [False, True], "bounds": (-1, 1)}),
        (type(logistic()), {"classes": [False, True]}),
        (ProbitRegression, {"classes": [False, True], "bounds": (-1, 1), "fit_intercept": False}),
        (PoissonRegression, {"bounds": (-1, 1), "relation": "replace-one"}),
        (LinearRegression, {"bounds": (-1, 1), "target_bounds": (-5, 5)}),
        (GammaRegression, {"bounds": (-1, 1), "shape": 2.0}),
        (LinearRegression, {}),
        (LinearRegression, {"bounds": (-1, 1), "target_bounds": (-5, 5), "noise_precision": 10.0}),
        (type(logistic()), {"classes": [False, True], "bounds": (-1, 1), "update": "natural", "clip": 1.0}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else ",".join(value),
)
def test_it_is_the_pooled_fit_with_the_same_noise(
    tmp_path: Path, kind: type, changes: dict[str, Any]
) -> None:
    X, y = table()[0], targets(kind)
    settings = {"epsilon": 2.0, "delta": 1e-4, "steps": 5, "random_state": 3} | changes
    pooled = kind(**settings).fit(X, y)
    sites = make_sites(tmp_path, (X, y))
    found = fit(kind(**settings), federate(sites, missing="stop"))
    scale = np.abs(pooled.posterior_.mean).max()
    assert found.posterior_.mean == pytest.approx(pooled.posterior_.mean, abs=1e-6 * scale)
    assert found.posterior_.covariance == pytest.approx(pooled.posterior_.covariance, rel=1e-6, abs=1e-9)
    assert found.predict(X[:3]).tolist() == pytest.approx(pooled.predict(X[:3]).tolist())
    assert found.privacy_.epsilon == pytest.approx(pooled.privacy_.epsilon)
    for site in sites.values():
        assert site.ledger.spent().epsilon == pytest.approx(pooled.privacy_.epsilon)
        assert [row.kind for row in site.ledger.rows()][-1] == "finished"
        assert site.unfinished() == ()


@pytest.mark.parametrize("rules", [{"mode": "server"}, {"mode": "sites", "honest": 3}, {"mode": "own"}])
@pytest.mark.parametrize(
    "changes", [{}, {"sampling": 0.5}, {"bounds": None}], ids=["full", "poisson", "scaled"]
)
def test_every_mode_finds_the_weights(tmp_path: Path, rules: dict[str, Any], changes: dict[str, Any]) -> None:
    X, y = table(3000)
    sites = make_sites(tmp_path, (X, y), cuts=(0, 1000, 2000, 3000), epsilon=50.0)
    model = logistic(epsilon=4.0, steps=8, **changes)
    found = fit(model, federate(sites, **rules))
    spread = np.sqrt(np.diag(found.posterior_.covariance))[1:]
    assert (np.abs(found.coef_[0] - WEIGHTS) < 5 * spread).all()
    assert (spread < 0.5).all()
    assert found.privacy_ is not None
    assert found.privacy_.secure
    assert found.privacy_.epsilon <= 4.0


def test_noise_of_the_sites_is_counted_in_the_posterior(tmp_path: Path) -> None:
    """With the same guarantee for each record, the noise of three sites' own is the larger one."""
    sizes = {}
    for mode in ("server", "own"):
        sites = make_sites(tmp_path / mode, epsilon=50.0)
        model = fit(logistic(epsilon=8.0, clip=3.0), federate(sites, mode=mode))
        sizes[mode] = np.trace(model.posterior_.noise_covariance)
    assert sizes["server"] < sizes["own"]


def test_the_gate_reports_the_noise_of_the_sum(tmp_path: Path) -> None:
    from dpsep.federated.federation import _Elsewhere
    from dpsep.privacy.permit import authorise

    from .test_site import Asker

    cases: list[tuple[dict[str, Any], float | None]] = [
        ({"mode": "server"}, 1.0),
        ({"mode": "sites", "honest": 2}, 1.5**0.5),
        ({"mode": "own"}, None),
    ]
    for rules, factor in cases:
        sites = make_sites(tmp_path / rules["mode"], epsilon=50.0)
        from .made import terms_of

        terms = terms_of(sites, **rules)
        federation = federate(sites, **rules)
        federation.offer(terms)
        part = terms.parts[0]
        mechanism = Mechanism(FullBatch(), "zero-out", part.steps, part.sigma, 600)
        from dpsep.privacy.mechanism import Schedule

        permit = authorise(None, Schedule((mechanism,)), terms.delta)
        one = Asker(sites["a"], terms)
        gate = _Elsewhere(federation).gate(
            federation.records(), mechanism, one.work.blocks, one.work.contribution, permit
        )
        gate.release(one.public)
        if factor is None:
            assert federation.session is not None
            factor = np.sqrt(sum(p.sigmas[0] ** 2 for p in federation.session.prices.values())) / part.sigma
            assert factor == pytest.approx(3**0.5, rel=1e-3)
        for block in one.work.blocks:
            want = factor * part.sigma * block.clip / np.sqrt(block.share)
            assert gate.deviations[block.name] == pytest.approx(want)


def test_the_statement_says_who_is_trusted(tmp_path: Path) -> None:
    texts = {}
    for mode in ("server", "sites", "own"):
        honest = 3 if mode == "sites" else None
        model = fit(logistic(), federate(make_sites(tmp_path / mode), mode=mode, honest=honest))
        assert model.privacy_ is not None
        texts[mode] = model.privacy_.sentence()
        assert model.privacy_.federation is not None
        assert model.privacy_.federation["sites"]["c"]["rows"] == 360
        if mode == "sites":
            alone = model.privacy_.federation["alone_epsilon"]
            assert alone > 1.5
            assert f"what holds is ({up(alone)}, 0.0001)" in texts[mode]
            assert model.privacy_.epsilon == pytest.approx(1.0)
    assert "the server is trusted with the sums" in texts["server"]
    assert "which this library does not supply" in texts["sites"]
    assert "trusts nobody: a (1, 0.0001); b (1, 0.0001); c (1, 0.0001)" in texts["own"]


def test_the_statement_is_stored_with_the_model(tmp_path: Path) -> None:
    model = fit(logistic(), federate(make_sites(tmp_path)))
    save(model, tmp_path / "out")
    assert load(tmp_path / "out").privacy_ == model.privacy_


def test_seeded_noise_at_a_site_marks_the_result(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, seeded=True)
    model = fit(logistic(), federate(sites, mode="own"))
    assert model.privacy_ is not None
    assert not model.privacy_.secure
    assert "NOT FOR RELEASE" in model.privacy_.sentence()


def test_own_guarantees_may_differ(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    tight = make_sites(tmp_path / "tight", own=(0.5, 1e-5))
    sites["b"] = tight["b"]
    model = fit(logistic(), federate(sites, mode="own"))
    assert sites["a"].ledger.spent().epsilon == pytest.approx(1.0)
    assert sites["b"].ledger.spent() == pytest.approx((0.5, 1e-5))
    assert model.privacy_ is not None
    assert model.privacy_.epsilon == pytest.approx(1.0)


def test_the_servers_own_ledger_is_charged_too_and_a_failure_is_noted(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-3)
    fit(logistic(ledger=ledger), federate(make_sites(tmp_path / "x")))
    assert ledger.spent().epsilon == pytest.approx(1.0)
    assert [row.kind for row in ledger.rows()][-1] == "finished"
    sites = make_sites(tmp_path / "own", own=(2.0, 1e-4))
    with pytest.raises(ValueError, match="more than the 1 that the server's ledger would note"):
        fit(logistic(ledger=ledger), federate(sites, mode="own"))


@pytest.mark.parametrize(("rows", "features"), [(200, 9), (200, 30), (100_000, 14), (100_000, 100)])
def test_a_round_takes_at_most_twice_the_bytes_of_the_natural_parameters(rows: int, features: int) -> None:
    from dpsep.estimators.columns import single
    from dpsep.estimators.input_checks import Structure
    from dpsep.estimators.run import blocks_of, contribution_of, design_schedule, settings_of
    from dpsep.federated.packing import packed_size
    from dpsep.federated.site_sums import answer_bounds
    from dpsep.inference import sep_newton

    model = logistic()
    model.classes_ = np.array([False, True])
    task = model._task(Structure(rows, features, None))
    _, chosen = design_schedule(task, 1.0, 1e-4, "zero-out", FullBatch())
    assert task.feature_scaling is not None
    assert task.outcome_scaling is not None
    settings = settings_of(task, task.feature_scaling, single(task.outcome_scaling), 0)
    public, factor = sep_newton.publish(settings, sep_newton.init(settings), rows)
    # A cavity as it is after the first release: no zeros below the diagonal.
    dense = np.linalg.inv(np.linalg.cholesky(np.diag(settings.start) + np.full(factor.shape, 0.1)))
    public = public._replace(half=np.tril(dense))  # pyright: ignore[reportArgumentType]
    known = wire.names_of(public._replace(half=None, centre=None, cavity_mean=None))  # pyright: ignore[reportArgumentType]
    work = encode(Work(0, (0, 1), (), contribution_of(task)))
    question = len(wire.ask_round(bytes(16), 0, 3, wire.name_of(work), public, known))
    answer = len(wire.say_sums(bytes(16), 0, 3, True, b"")) + packed_size(
        answer_bounds(blocks_of(task, chosen), rows, 0.0)
    )
    d = task.dimension
    assert question + answer <= 2 * 8 * (d + d * (d + 1) // 2)


def test_what_a_federation_cannot_do_is_said(tmp_path: Path) -> None:
    federation = federate(make_sites(tmp_path))
    for model, text in (
        (GaussianMixture(), "cannot fit a GaussianMixture"),
        (logistic(private=False), "a federated fit is private"),
        (logistic(checkpoint=str(tmp_path / "c")), "takes no checkpoint"),
        (logistic(classes=None), "declare classes"),
        (logistic(epsilon=-1.0), "epsilon must be a positive number"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            fit(model, federation)  # pyright: ignore[reportArgumentType]
    from dpsep.privacy.sampling import ShuffledEpochs

    with pytest.raises(ValueError, match="cannot be drawn by sites"):
        fit(logistic(sampling=ShuffledEpochs(100)), federation)


def test_no_bytes_of_a_model_of_ones_own_can_be_sent(tmp_path: Path) -> None:
    from dataclasses import dataclass

    from dpsep.federated.codec import WireError

    @dataclass(frozen=True)
    class Mine:
        secret: int = 3

    with pytest.raises(WireError, match="cannot be sent"):
        encode(Work(0, (0,), (), Mine()))


def test_names_of_columns_come_from_the_sites_and_must_agree(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, names=("age", "dose"))
    assert fit(logistic(), federate(sites)).feature_names_in_.tolist() == ["age", "dose"]
    other = make_sites(tmp_path / "other", names=("dose", "age"))
    with pytest.raises(ValueError, match="site b has other columns than site a"):
        Federation(InProcess({"a": sites["a"], "b": other["b"]})).sites()


def test_warnings_of_leaks_are_given_and_kept(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(PrivacyLeakWarning, match="delta"):
            model = fit(logistic(delta=0.002), federate(make_sites(tmp_path)))
    assert model.privacy_ is not None


def test_labels_of_text_are_coded_at_the_sites(tmp_path: Path) -> None:
    X, y = table()
    text = np.where(y, "yes", "no")
    sites = make_sites(tmp_path, (X, text))
    found = fit(logistic(classes=["no", "yes"], random_state=1), federate(sites))
    pooled = logistic(random_state=1).fit(X, y)
    assert found.coef_ == pytest.approx(pooled.coef_)


@pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")
def test_a_wide_table_fits_what_its_sites_were_promised(tmp_path: Path) -> None:
    """The numbers of the largest release are announced before a site is charged."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 66))
    sites = make_sites(tmp_path, (X, X[:, 0] > 0), cuts=(0, 100, 200))
    found = fit(logistic(steps=1), federate(sites))
    assert found.coef_.shape == (1, 66)
