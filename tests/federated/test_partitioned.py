"""Partitioned EP: the same fixed point, charged for every local step, whatever the pace of the sites."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import LinearRegression, PoissonRegression
from dpsep.federated import site_local, wire
from dpsep.federated.codec import decode, encode
from dpsep.federated.compare import compare, one_step, partitioned
from dpsep.federated.partitioned import Product, fit_partitioned
from dpsep.federated.site_store import Store
from dpsep.federated.transport import at, garbled, late, lost
from dpsep.federated.wire import Factor, Refused
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch

from .made import federate, logistic, make_sites, table
from .test_site import Killed

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.privacy.leaks.PrivacyLeakWarning")
ROWS, CUTS = 12_000, (0, 2000, 5000, 12_000)


def plenty(**changes: Any) -> Any:
    """So much epsilon that noise hardly matters."""
    return logistic(epsilon=200.0, clip=20.0, steps=None, **changes)


def open_posterior() -> Any:
    return logistic(private=False, steps=None).fit(*table(ROWS)).posterior_


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("damping", [1.0, 0.7])
def test_with_little_noise_it_is_the_posterior_of_all_rows(
    tmp_path: Path, asynchronous: bool, damping: float
) -> None:
    sites = make_sites(tmp_path, table(ROWS), cuts=CUTS, epsilon=1000.0)
    model = fit_partitioned(
        plenty(), federate(sites, mode="own"), rounds=8, local=2, asynchronous=asynchronous, damping=damping
    )
    truth = open_posterior()
    spread = np.sqrt(np.diag(truth.covariance))
    assert (np.abs(model.posterior_.mean - truth.mean) < 0.3 * spread).all()
    assert np.sqrt(np.diag(model.posterior_.covariance)) == pytest.approx(spread, rel=0.1)


def test_one_round_of_many_steps_is_near_it(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, table(ROWS), cuts=CUTS, epsilon=50.0)
    model = fit_partitioned(
        logistic(epsilon=4.0, steps=None), federate(sites, mode="own"), rounds=1, local=12
    )
    truth = open_posterior()
    width = np.sqrt(np.diag(model.posterior_.covariance))
    assert (np.abs(model.posterior_.mean - truth.mean) < 5 * width).all()
    assert (width < 4 * np.sqrt(np.diag(truth.covariance))).all()
    assert model.n_iter_ == 12


def test_local_steps_are_charged_when_the_run_begins(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    tight = make_sites(tmp_path / "tight", own=(0.5, 1e-5))
    sites["b"] = tight["b"]
    model = fit_partitioned(logistic(), federate(sites, mode="own"), rounds=2, local=3)
    for name, (epsilon, delta) in {"a": (1.0, 1e-4), "b": (0.5, 1e-5)}.items():
        (row,) = [row for row in sites[name].ledger.rows() if row.kind == "charge"]
        (part,) = row.event["parts"]
        assert part["steps"] == 6
        found = Mechanism(FullBatch(), "zero-out", 6, part["sigma"], part["records"]).epsilon(delta)
        assert row.epsilon == pytest.approx(found) == pytest.approx(epsilon)
    assert model.privacy_ is not None
    assert model.privacy_.epsilon == pytest.approx(1.0)
    assert "trusts nobody" in model.privacy_.sentence()
    assert all(site.unfinished() == () for site in sites.values())


def test_no_more_releases_are_made_than_were_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = site_local.noisy_sums

    def counting(arrays: Any, begun: Any, *rest: Any) -> Any:
        made.append(begun.parts[0].records)
        return real(arrays, begun, *rest)

    monkeypatch.setattr(site_local, "noisy_sums", counting)
    sites = make_sites(tmp_path)
    fit_partitioned(logistic(), federate(sites, mode="own"), rounds=2, local=3)
    assert Counter(made) == {100: 6, 140: 6, 360: 6}


@pytest.mark.parametrize("fault", [lost, late, garbled], ids=lambda fault: fault.__name__)
def test_faults_do_not_make_a_round_twice(tmp_path: Path, fault: Any) -> None:
    # Questions: 0 HELLO, 1 OFFER, 2 BEGIN, 3 PART, 4 LOCAL, 5 PART, 6 LOCAL.
    plain = fit_partitioned(
        logistic(), federate(make_sites(tmp_path / "plain", seeded=True), mode="own"), rounds=3, local=2
    )
    sites = make_sites(tmp_path / "faulty", seeded=True)
    events: list[str] = []
    rules: Any = {"mode": "own", "missing": "stop", "on_event": events.append}
    model = fit_partitioned(logistic(), federate(sites, {"b": at((4, 6), fault)}, **rules), rounds=3, local=2)
    assert len(events) == 2
    # Seeded noise: had a round been made twice, the stream would have moved on.
    assert model.coef_ == pytest.approx(plain.coef_, rel=1e-12)


def test_a_site_that_leaves_takes_its_factor_along(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, table(ROWS), cuts=CUTS, epsilon=50.0)
    federation = federate(sites, {"b": at(range(6, 99), lost)}, mode="own")
    model = fit_partitioned(logistic(epsilon=8.0, steps=None), federation, rounds=3, local=4)
    X, y = table(ROWS)
    keep = np.r_[0:2000, 5000:ROWS]
    truth = logistic(private=False, steps=None).fit(X[keep], y[keep]).posterior_
    width = np.sqrt(np.diag(model.posterior_.covariance))
    assert (np.abs(model.posterior_.mean - truth.mean) < 5 * width).all()
    assert model.privacy_ is not None
    assert model.privacy_.federation is not None
    assert model.privacy_.federation["dropped"] == [["b", "round 1"]]


def test_a_process_that_dies_does_its_round_again_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = make_sites(tmp_path)
    real, deaths = Store.keep_answer, []

    def dying(self: Store, run: str, part: int, number: int, kept: Any) -> None:
        if number == 1 and len(deaths) < 2:
            deaths.append(number)
            if len(deaths) == 2:
                real(self, run, part, number, kept)
            raise Killed
        real(self, run, part, number, kept)

    def restarting(_: int, question: bytes, answer: Any) -> bytes | None:
        try:
            return answer()
        except Killed:
            return None

    monkeypatch.setattr(Store, "keep_answer", dying)
    federation = federate(sites, dict.fromkeys("abc", restarting), mode="own", missing="stop")
    fit_partitioned(logistic(), federation, rounds=3, local=2)
    assert deaths == [1, 1]
    assert all(round(site.ledger.spent().epsilon, 6) == 1.0 for site in sites.values())


def test_rounds_of_sums_and_rounds_alone_do_not_share_a_charge(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    asked: list[bytes] = []

    def watching(_: int, question: bytes, answer: Any) -> bytes:
        asked.append(question)
        return answer()

    faults = {"a": at(range(4, 5), watching), "b": at(range(99, 100), lost)}
    keep = at(range(99, 100), lost)
    federation = federate(sites, faults | {"c": keep}, mode="own")
    real = federation.end
    federation.end = lambda status: None
    fit_partitioned(logistic(), federation, rounds=2, local=2)
    (question,) = asked
    message = wire.read(question, (wire.LOCAL,))
    local = decode(message.body)
    beyond = encode(local._replace(number=2))
    other = encode(local._replace(mean=local.mean + 1.0))
    sums = wire.ask_round(message.run, 0, 0, local.work, None, frozenset())
    site = sites["a"]
    for content, kind in ((beyond, wire.LOCAL), (other, wire.LOCAL)):
        found = wire.heard(site.answer(wire.write(kind, message.run, content)), message.run, kind)
        assert isinstance(found, Refused)
    found = wire.heard(site.answer(sums), message.run, wire.ROUND)
    assert isinstance(found, Refused)
    assert "works on its own" in found.text
    real("finished")


def test_the_product_is_consistent_in_any_order() -> None:
    rng = np.random.default_rng(0)

    def factor() -> Factor:
        root = rng.standard_normal((3, 3))
        return Factor(rng.standard_normal(3), root @ root.T + np.eye(3), np.eye(3))

    factors = {name: factor() for name in "abc"}
    forward, backward = (Product(np.ones(3), np.eye(3)) for _ in range(2))
    for name in "abc":
        forward.put(name, factors[name])
    backward.put("a", factor())
    for name in "cba":
        backward.put(name, factors[name])
    for one, other in zip(forward.moments(), backward.moments(), strict=True):
        assert one == pytest.approx(other)
    mean, precision, whole = forward.cavity("b")
    assert precision + factors["b"].precision == pytest.approx(np.linalg.inv(forward.moments()[1]))
    assert precision @ mean + factors["b"].eta == pytest.approx(np.linalg.solve(forward.moments()[1], whole))
    backward.drop("b")
    assert backward.moments()[0] == pytest.approx(mean)


def test_poisson_and_known_noise_are_fitted_too(tmp_path: Path) -> None:
    X, _ = table(3000)
    rng = np.random.default_rng(1)
    weights = np.array([1.0, -1.0])
    counts = rng.poisson(np.exp(X @ weights)).astype(float)
    values = X @ weights + 0.5 * rng.standard_normal(3000)
    shared: Any = {"epsilon": 4.0, "delta": 1e-4, "bounds": (-1, 1)}
    models: list[tuple[Any, Any]] = [
        (PoissonRegression(**shared), counts),
        (LinearRegression(**shared, target_bounds=(-4, 4), noise_precision=4.0, fit_intercept=False), values),
    ]
    for index, (model, y) in enumerate(models):
        sites = make_sites(tmp_path / str(index), (X, y), cuts=(0, 1000, 2000, 3000), epsilon=50.0)
        found = fit_partitioned(model, federate(sites, mode="own"), rounds=2, local=4)
        width = np.sqrt(np.diag(found.posterior_.covariance))[-2:]
        assert (np.abs(found.coef_ - weights) < 5 * width).all()
        assert (width < 0.6).all()


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    own = federate(sites, mode="own")
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (logistic(), federate(sites), {}, "runs in mode 'own'"),
        (logistic(bounds=None), own, {}, "needs declared bounds"),
        (logistic(update="natural"), own, {}, "use update='stable'"),
        (logistic(), own, {"rounds": 0}, "at least 1"),
        (logistic(), own, {"damping": 0.0}, r"damping in \(0, 1\]"),
    ]
    for model, federation, changes, text in cases:
        with pytest.raises(ValueError, match=text):
            fit_partitioned(model, federation, **changes)
    assert all(site.ledger.spent().epsilon == 0.0 for site in sites.values())


def test_fewer_rounds_reach_the_accuracy_of_one_step_rounds() -> None:
    slow, fast = compare([one_step(16), partitioned(4, 4)], rows=12_000, weights=2, sites=3, epsilon=4.0)
    assert (slow.rounds, fast.rounds) == (16, 4)
    assert fast.bytes < slow.bytes
    assert 0.5 * slow.noise < fast.noise < 2.0 * slow.noise
    assert fast.error < 4.0 * fast.noise
    assert slow.error < 4.0 * slow.noise
