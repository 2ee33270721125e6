"""Partitioned EP: the same fixed point, charged for every local step, whatever the pace of the sites."""

import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsep import Ledger, LinearRegression, PoissonRegression
from dpsep.federated import Site, site_local, wire
from dpsep.federated.codec import decode, encode
from dpsep.federated.partitioned import Product, fit_partitioned
from dpsep.federated.site_store import Store
from dpsep.federated.terms import Factor, Local, PartTerms, Terms, Work
from dpsep.federated.wire import Refused
from dpsep.models.glm import Columns, GLMContribution
from dpsep.models.linear import GaussianLikelihood
from dpsep.privacy.grid import Block
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch

from .faults import at, garbled, late, lost
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


class Server:
    """A server that asks one site with 50 rows of ones, and may be hostile."""

    def __init__(self, folder: Path, terms: Terms | None = None, clip: float = 1.0) -> None:
        X, y = np.ones((50, 1)), np.zeros(50)
        folder.mkdir(parents=True, exist_ok=True)
        ledger = Ledger.create(folder / "ledger", epsilon=1.0, delta=1e-5)
        self.make = lambda: Site("a", (X, y), ledger, folder / "state")
        self.site, self.run = self.make(), secrets.token_bytes(16)
        self.price: Any = self.ask(wire.BEGIN, alone() if terms is None else terms)
        blocks = (Block("mean", 1, 1.0, 0.001), Block("precision", 1, clip, 0.999, "outer"))
        self.work = Work(0, (0, 1), blocks, GLMContribution(GaussianLikelihood(1.0), False))
        self.told = self.tell(self.work)

    def ask(self, kind: int, value: Any) -> Any:
        return wire.heard(self.site.answer(wire.ask(kind, self.run, value)), self.run, kind)

    def tell(self, work: Work) -> Any:
        return self.ask(wire.PART, work)

    def local(self, number: Any = 0, **changes: Any) -> Any:
        features = Columns(*(np.array([part]) for part in (-1.0, 1.0, 0.0, 1.0)))  # pyright: ignore[reportArgumentType]
        outcome = Columns(*(np.float64(part) for part in (-10.0, 10.0, 0.0, 1.0)))  # pyright: ignore[reportArgumentType]
        one, name = np.ones(1), wire.name_of(encode(self.work))
        asked = Local(number, name, 0 * one, np.eye(1), 0 * one, features, outcome, 10 * one, 0, 1.0)
        return self.ask(wire.LOCAL, asked._replace(**changes))


def alone(steps: int = 2, **changes: Any) -> Terms:
    """Terms of rounds in which a site works on its own."""
    part = PartTerms("full", 1.0, steps, 1.0)
    return Terms("own", 1, "zero-out", 1.0, 1e-5, (part,), None, (), "", None, 100, 1)._replace(**changes)


def count_draws(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    real = site_local.noisy_sums

    def counting(*arguments: Any) -> Any:
        made.append(real(*arguments))
        return made[-1]

    monkeypatch.setattr(site_local, "noisy_sums", counting)
    return made


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rounds": (0,)}, "no timetable"),
        ({"parts": (PartTerms("full", 1.0, 200, 1e6), PartTerms("full", 1.0, 1, 1.0))}, "one part"),
        ({"mode": "server"}, "mode own"),
        ({"local": 3}, "more releases than the run"),
    ],
)
def test_terms_under_which_more_could_be_done_than_is_priced_are_refused(
    tmp_path: Path, changes: Any, text: str
) -> None:
    server = Server(tmp_path, alone(**changes))
    assert isinstance(server.price, Refused)
    assert text in server.price.text
    assert server.local().code == wire.NOT_BEGUN


def test_rounds_are_counted_from_the_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a run began under terms that are no longer taken: with a timetable, or with two parts."""
    from dpsep.federated import pricing

    monkeypatch.setattr(pricing, "_check_alone", lambda terms: None)
    timed = Server(tmp_path / "timed", alone(9, rounds=(0,)))
    assert timed.price.steps == (1,)
    assert not isinstance(timed.local(0), Refused)
    assert timed.local(1).code == wire.NOT_CHARGED
    parts = (PartTerms("full", 1.0, 9, 1e6), PartTerms("full", 1.0, 1, 1.0))
    double = Server(tmp_path / "double", alone(9, parts=parts))
    double.work = double.work._replace(part=1)
    double.tell(double.work)
    assert double.local(0).code == wire.BAD_TERMS
    monkeypatch.undo()
    double.work = double.work._replace(part=0)
    for server in (timed, double):
        assert server.local(0).code == wire.BAD_TERMS


def test_a_truth_value_is_no_number_of_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = Server(tmp_path), count_draws(monkeypatch)
    assert not isinstance(server.local(0), Refused)
    assert not isinstance(server.local(1), Refused)
    for number in (False, True):
        assert server.local(number).code == wire.NOT_CHARGED
    assert server.local(1, warmup=False).code == wire.BAD_TERMS
    for changes in ({"part": False}, {"arrays": (False, True)}):
        assert isinstance(server.tell(server.work._replace(**changes)), Refused)
    assert len(made) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"prior_precision": np.array([[-50.0]])},
        {"prior_precision": np.zeros((1, 1))},
        {"prior_precision": np.array([[1e40]])},
        {"prior_precision": np.array([[1]])},
        {"prior_precision": np.eye(2)},
        {"prior_precision": 1.0},
        {"start": np.array([-1.0])},
        {"start": np.array([0.0])},
        {"start": np.array([1e-40])},
        {"mean": np.array([1e40])},
        {"prior_mean": np.zeros((50, 1))},
        {"features": Columns(*(np.ones((50, 1)) for _ in range(4)))},  # pyright: ignore[reportArgumentType]
        {"outcome": Columns(*(np.ones(50) for _ in range(4)))},  # pyright: ignore[reportArgumentType]
        {"features": None},
    ],
    ids=str,
)
def test_a_cavity_that_no_posterior_has_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Any
) -> None:
    server, made = Server(tmp_path), count_draws(monkeypatch)
    assert isinstance(server.local(**changes), Refused)
    assert made == []
    assert not isinstance(server.local(), Refused)


def test_blocks_that_no_step_is_made_of_are_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, made = Server(tmp_path), count_draws(monkeypatch)
    mean, precision = server.work.blocks
    server.work = server.work._replace(blocks=(precision, mean))
    server.tell(server.work)
    assert isinstance(server.local(), Refused)
    assert made == []


@pytest.mark.parametrize("killed", [False, True])
def test_an_error_after_a_release_is_the_answer_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Else a server asks until the noise has the right sign, and pays for one release."""
    server, made = Server(tmp_path), count_draws(monkeypatch)
    real = site_local.sep_newton.update

    def failing(*arguments: Any) -> Any:
        if killed:
            raise Killed
        raise np.linalg.LinAlgError("depends on the noise")

    monkeypatch.setattr(site_local.sep_newton, "update", failing)
    if killed:
        with pytest.raises(Killed):
            server.local()
    else:
        assert server.local().code == wire.FAULT
    monkeypatch.setattr(site_local.sep_newton, "update", real)
    server.site = server.make()  # another process
    # Another cavity gets nothing; the same one what follows from the same release, or the same refusal.
    assert server.local(mean=np.ones(1)).code == wire.CHANGED
    first = server.local()
    assert isinstance(first, Refused) != killed
    assert repr(server.local()) == repr(first)
    assert isinstance(server.local(1), Refused) != killed
    assert len(made) == (2 if killed else 1)


def test_an_answer_that_cannot_be_sent_is_over_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, made = Server(tmp_path), count_draws(monkeypatch)
    monkeypatch.setattr(site_local, "_noise_of_eta", lambda *_: np.full((1, 1), np.inf))
    found = [server.local() for _ in range(3)]
    assert found == found[:1] * 3
    assert found[0].code == wire.FAULT
    assert len(made) == 1


def test_a_release_is_kept_before_anything_is_computed_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, made = Server(tmp_path, alone(3, local=3)), count_draws(monkeypatch)
    real, kept = Store.keep_release, []

    def dying(self: Store, run: str, number: int, index: int, content: Any) -> None:
        if index == 1 and not kept:
            kept.append(index)
            raise Killed
        real(self, run, number, index, content)

    monkeypatch.setattr(Store, "keep_release", dying)
    with pytest.raises(Killed):
        server.local()
    assert len(made) == 2
    assert not isinstance(server.local(), Refused)
    # The first release is the same; the second was not kept, and nothing had been computed from it.
    assert len(made) == 4
