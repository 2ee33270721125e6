"""A site charges once, answers once, reads nothing uncharged, and survives its process dying anywhere."""

import os
import secrets
import stat
import subprocess
import sys
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsep import Ledger
from dpsep.estimators.columns import single
from dpsep.estimators.run import blocks_of, contribution_of, design_schedule, settings_of
from dpsep.federated import Site, wire
from dpsep.federated.codec import encode
from dpsep.federated.packing import unpack
from dpsep.federated.session import plain_block
from dpsep.federated.site_store import Store
from dpsep.federated.site_sums import answer_bounds
from dpsep.federated.terms import Terms, Work
from dpsep.federated.wire import Refused
from dpsep.inference import sep_newton
from dpsep.privacy.mechanism import Mechanism
from dpsep.privacy.sampling import FullBatch, PoissonSampling

from .made import CUTS, logistic, make_sites, table, terms_of


class Killed(BaseException):
    """Stands for the end of the process: nothing in the site may catch it."""


class Asker:
    """The server's side of one run at one site."""

    def __init__(self, site: Site, terms: Terms, run: bytes | None = None) -> None:
        self.site, self.terms = site, terms
        self.run = run or secrets.token_bytes(16)
        model = logistic()
        model.classes_ = np.array([False, True])
        from dpsep.estimators.input_checks import Structure

        task = model._task(Structure(CUTS[-1], 2, None))
        _, chosen = design_schedule(task, 1.0, 1e-4, "zero-out", FullBatch())
        blocks = tuple(plain_block(block) for block in blocks_of(task, chosen))
        self.work = Work(0, (0, 1), blocks, contribution_of(task))
        assert task.feature_scaling is not None
        assert task.outcome_scaling is not None
        columns = task.feature_scaling, single(task.outcome_scaling)
        settings = settings_of(task, *columns, 0)
        self.public = sep_newton.publish(settings, sep_newton.init(settings), CUTS[-1])[0]

    def offer(self) -> Any:
        return self._ask(wire.OFFER, wire.NO_RUN, encode(self.terms))

    def begin(self, terms: Terms | None = None) -> Any:
        return self._ask(wire.BEGIN, self.run, encode(terms or self.terms))

    def part(self) -> Any:
        return self._ask(wire.PART, self.run, encode(self.work))

    def start(self) -> None:
        self.begin()
        self.part()

    def question(self, number: int, public: Any = None, part: int = 0, known: Any = frozenset()) -> bytes:
        name = wire.name_of(encode(self.work))
        return wire.ask_round(self.run, part, number, name, public or self.public, known)

    def round(self, number: int, public: Any = None, part: int = 0) -> bytes:
        return self.site.answer(self.question(number, public, part))

    def sums(self, answer: bytes, number: int, sigma: float = 0.0) -> Any:
        bounds = answer_bounds(self.work.blocks, self.site._shape[0], sigma)
        size = sum(-(-int(sum(int(v).bit_length() for v in (b.high - b.low).tolist())) // 8) for b in bounds)
        heard = wire.heard_sums(answer, self.run, 0, number, size)
        return heard if isinstance(heard, Refused) else unpack(heard.packed, bounds)

    def end(self, status: str = "finished") -> Any:
        return self._ask(wire.END, self.run, encode(status))

    def _ask(self, kind: int, run: bytes, body: bytes) -> Any:
        return wire.heard(self.site.answer(wire.write(kind, run, body)), run, kind)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_sites(tmp_path)["a"]


def asker(site: Site, **rules: Any) -> Asker:
    return Asker(site, terms_of({site.name: site}, **rules))


def refusal(site: Site, answer: bytes, kind: int, run: bytes) -> Refused:
    found = wire.heard(answer, run, kind)
    assert isinstance(found, Refused)
    return found


def charges(site: Site) -> int:
    return sum(row.kind == "charge" for row in site.ledger.rows())


def test_an_offer_charges_nothing_and_tells_the_price(site: Site) -> None:
    price = asker(site).offer()
    assert price.epsilon == pytest.approx(1.0)
    assert charges(site) == 0


def test_begin_charges_once_however_often_it_is_asked(site: Site) -> None:
    one = asker(site)
    first = one.begin()
    assert [one.begin() for _ in range(3)] == [first] * 3
    assert charges(site) == 1
    assert site.ledger.spent().epsilon == pytest.approx(1.0)


def test_other_terms_under_the_same_run_are_refused(site: Site) -> None:
    one = asker(site)
    one.begin()
    found = one.begin(one.terms._replace(delta=2e-5))
    assert found.code == wire.CHANGED
    assert charges(site) == 1


def test_nothing_is_read_before_the_charge(tmp_path: Path) -> None:
    read = []

    def records() -> tuple[Any, Any]:
        read.append(1)
        X, y = table(100)
        return X, y

    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-4)
    site = Site("a", records, ledger, tmp_path / "state", shape=(100, 2))
    one = asker(site)
    assert refusal(site, one.round(0), wire.ROUND, one.run).code == wire.NOT_BEGUN
    one.offer()
    one.start()
    assert read == []
    one.sums(one.round(0), 0)
    assert read == [1]


def test_over_budget_is_refused_and_reads_nothing(tmp_path: Path) -> None:
    site = make_sites(tmp_path, epsilon=0.5)["a"]
    one = asker(site)
    assert one.offer().code == wire.OVER_BUDGET
    assert one.begin().code == wire.OVER_BUDGET
    one.part()
    assert refusal(site, one.round(0), wire.ROUND, one.run).code == wire.NOT_BEGUN
    assert charges(site) == 0


def test_a_site_has_a_limit_of_its_own_for_one_run(tmp_path: Path) -> None:
    one = asker(make_sites(tmp_path, most_epsilon=0.9)["a"])
    assert one.offer().code == one.begin().code == wire.OVER_BUDGET


def test_modes_that_the_site_does_not_allow_are_refused(tmp_path: Path) -> None:
    site = make_sites(tmp_path, modes=("own",))["a"]
    one = Asker(site, terms_of(make_sites(tmp_path / "others")))
    assert one.offer().code == one.begin().code == wire.BAD_MODE


def test_the_sums_are_those_of_the_gate(site: Site) -> None:
    one = asker(site)
    one.start()
    mean, precision = one.sums(one.round(0), 0)
    X, y = table(CUTS[-1])
    rows = one.work.contribution(one.public, (X[:100], np.where(y[:100], 1.0, -1.0)))
    blocks = one.work.blocks
    for block, found, part in zip(blocks, (mean, precision), rows, strict=True):
        part = np.asarray(part, np.float64)
        bound = np.sqrt(block.clip) if block.kind == "outer" else block.clip
        part *= np.minimum(1.0, bound / np.linalg.norm(part, axis=1))[:, None]
        want = part.sum(axis=0) if block.kind == "flat" else (part.T @ part)[np.triu_indices(3)]
        assert found * block.unit == pytest.approx(want, abs=1e-2 * block.clip)


def test_one_record_moves_an_answer_by_no_more_than_the_clip(tmp_path: Path) -> None:
    """With clips so small that every row is cut, on neighbours under zero-out and on a hostile record."""
    X, y = table(CUTS[-1])
    blank, hostile = X.copy(), X.copy()
    blank[7], hostile[7] = np.nan, (1e300, -1e300)
    found = []
    for name, rows in (("blank", blank), ("plain", X), ("hostile", hostile)):
        site = make_sites(tmp_path / name, (rows, y))["a"]
        one = asker(site)
        mean, precision = one.work.blocks
        one.work = one.work._replace(blocks=(replace(mean, clip=1e-4), replace(precision, clip=1e-6)))
        one.start()
        found.append(one.sums(one.round(0), 0))
    for other in found[1:]:
        for block, zero, total in zip(one.work.blocks, found[0], other, strict=True):
            moved = (total - zero) / block.deviations()  # in units of each coordinate's noise
            largest = float(block.norm_units) ** (2 if block.kind == "outer" else 1)
            assert 0.9 * largest < np.linalg.norm(moved) <= largest * (1 + 1e-12)


def test_a_round_asked_again_gets_the_same_bytes(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    one = Asker(site, terms_of({"a": site}, mode="own"))
    one.start()
    first = one.round(0)
    assert one.round(0) == first
    assert one.round(1) != first
    again = Site("a", table(100), site.ledger, tmp_path / "a" / "state")  # another process
    assert again.answer(one.question(0)) == first


def test_a_round_with_other_public_values_is_refused(site: Site) -> None:
    one = asker(site)
    one.start()
    one.round(0)
    other = one.public._replace(centre=one.public.centre + 1.0)
    assert refusal(site, one.round(0, other), wire.ROUND, one.run).code == wire.CHANGED


def test_rounds_beyond_the_charge_are_refused(site: Site) -> None:
    one = asker(site)
    one.start()
    for number, part in ((4, 0), (0, 1), (2**31, 0)):
        answer = one.site.answer(one.question(number, part=part))
        assert refusal(site, answer, wire.ROUND, one.run).code == wire.NOT_CHARGED
    assert not isinstance(one.sums(one.round(3), 3), Refused)


def test_rounds_outside_of_the_timetable_are_refused(site: Site) -> None:
    one = asker(site)
    terms = one.terms._replace(rounds=(0, 2))
    price = one.begin(terms)
    assert price.steps == (2,)
    assert price.epsilon < 0.75
    one.part()
    assert refusal(site, one.round(1), wire.ROUND, one.run).code == wire.NOT_CHARGED
    assert not isinstance(one.sums(one.round(2), 2), Refused)


@pytest.mark.parametrize("moment", ["intend", "begin"])
@pytest.mark.parametrize("written", [False, True])
def test_a_charge_is_made_once_wherever_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, written: bool
) -> None:
    site = make_sites(tmp_path)["a"]
    one = asker(site)
    real = getattr(Store, moment)

    def dying(self: Store, *arguments: Any) -> None:
        if written:
            real(self, *arguments)
        raise Killed

    monkeypatch.setattr(Store, moment, dying)
    with pytest.raises(Killed):
        one.begin()
    monkeypatch.undo()
    assert not isinstance(one.begin(), Refused)
    assert charges(site) == 1
    one.part()
    assert not isinstance(one.sums(one.round(0), 0), Refused)


def test_a_process_that_dies_right_after_the_charge_does_not_charge_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asker(site)
    real = Ledger.charge

    def dying(self: Ledger, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        raise Killed

    monkeypatch.setattr(Ledger, "charge", dying)
    with pytest.raises(Killed):
        one.begin()
    monkeypatch.undo()
    one.begin()
    assert charges(site) == 1


@pytest.mark.parametrize("written", [False, True])
def test_an_answer_leaves_only_once_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    site = make_sites(tmp_path)["a"]
    one = Asker(site, terms_of({"a": site}, mode="own"))
    one.start()
    real, kept = Store.keep_answer, []

    def dying(self: Store, *arguments: Any) -> None:
        kept.append(arguments[-1].answer)
        if written:
            real(self, *arguments)
        raise Killed

    monkeypatch.setattr(Store, "keep_answer", dying)
    with pytest.raises(Killed):
        one.round(0)
    monkeypatch.undo()
    answer = one.round(0)
    # Kept: the same noise again. Not kept: it never left, and is drawn afresh.
    assert (answer == kept[0]) == written
    assert one.round(0) == answer


def test_a_run_whose_folder_is_gone_does_not_go_on(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    one = asker(site)
    one.start()
    one.round(0)
    bare = Site("a", table(100), site.ledger, tmp_path / "elsewhere")
    assert Asker(bare, one.terms, one.run).begin().code == wire.LOST
    assert charges(site) == 1


def test_what_is_kept_is_private_and_goes_at_the_end(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    one = asker(site)
    one.start()
    answer = one.round(0)
    folder = tmp_path / "a" / "state"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    run = folder / "runs" / one.run.hex()
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.iterdir()}
    assert set(files.values()) == {0o600}
    assert any(answer in path.read_bytes() for path in run.iterdir())
    assert site.unfinished() == (one.run.hex(),)
    assert one.end() is None
    assert one.end() is None
    assert not any(answer in path.read_bytes() for path in run.iterdir())
    assert sorted(path.name for path in run.iterdir()) == ["ended", "terms"]
    assert [row.kind for row in site.ledger.rows()][-2:] == ["charge", "finished"]
    assert site.unfinished() == ()
    for answer, kind in ((one.round(0), wire.ROUND), (one.round(1), wire.ROUND)):
        assert refusal(site, answer, kind, one.run).code == wire.ENDED
    assert one.begin().code == wire.ENDED


def test_an_owner_can_end_a_run_whose_server_is_gone(site: Site) -> None:
    one = asker(site)
    one.start()
    one.round(0)
    site.close(one.run.hex())
    assert [row.kind for row in site.ledger.rows()][-1] == "failed"
    assert refusal(site, one.round(0), wire.ROUND, one.run).code == wire.ENDED


def test_values_sent_before_travel_as_hashes_and_can_be_asked_for_again(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    one = asker(site)
    one.start()
    known = wire.names_of(one.public)
    assert len(one.question(1, known=known)) < 0.6 * len(one.question(1))
    found = refusal(site, site.answer(one.question(0, known=known)), wire.ROUND, one.run)
    assert found.code == wire.UNKNOWN_VALUE
    first = one.round(0)
    assert site.answer(one.question(0, known=known)) == first
    assert not isinstance(one.sums(site.answer(one.question(1, known=known)), 1), Refused)


def test_asked_by_two_at_once_it_answers_once(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    one = Asker(site, terms_of({"a": site}, mode="own"))
    one.start()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(one.round(0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len(set(answers)) == 1


def test_its_own_noise_has_the_declared_deviation(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["a"]
    exact = asker(site)
    exact.start()
    want = exact.sums(exact.round(0), 0)
    steps = 300
    many = terms_of({"a": site}, mode="own")
    many = many._replace(parts=(many.parts[0]._replace(steps=steps),))
    one = Asker(site, many)
    price = one.begin()
    assert price.epsilon == pytest.approx(1.0)
    one.part()
    (sigma,) = price.sigmas
    draws = [one.sums(one.round(number), number, sigma) for number in range(steps)]
    for index, block in enumerate(one.work.blocks):
        rest = np.array([draw[index] - want[index] for draw in draws]) * block.unit
        expected = sigma * block.clip / np.sqrt(block.share) * block.deviations()
        count = rest.size
        assert np.mean((rest / expected) ** 2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / count))


def test_a_share_of_the_noise_is_smaller_by_the_root_of_the_honest_sites(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    whole = terms_of(sites, mode="own")
    shared = terms_of(sites, mode="sites", honest=3)
    price = Asker(sites["a"], shared).begin()
    assert price.sigmas[0] == pytest.approx(shared.parts[0].sigma / np.sqrt(3))
    assert price.sum_epsilon == pytest.approx(1.0)
    assert price.alone_epsilon > 1.5
    # Its answers may be seen one by one, unless the site says otherwise.
    assert sites["a"].ledger.spent().epsilon == pytest.approx(price.alone_epsilon)
    own = Asker(sites["b"], whole).begin()
    assert own.epsilon == own.alone_epsilon == pytest.approx(1.0)


def test_a_site_whose_answers_are_hidden_is_charged_for_the_sum(tmp_path: Path) -> None:
    site = make_sites(tmp_path, hidden=3)["a"]
    price = Asker(site, terms_of(make_sites(tmp_path / "others"), mode="sites", honest=3)).begin()
    assert price.epsilon == price.sum_epsilon == pytest.approx(1.0)
    assert site.ledger.spent().epsilon == pytest.approx(1.0)


def test_a_server_that_counts_on_more_honest_sites_than_the_site_does_pays_for_the_answers(
    tmp_path: Path,
) -> None:
    site = make_sites(tmp_path, hidden=2)["a"]
    price = Asker(site, terms_of(make_sites(tmp_path / "others"), mode="sites", honest=3)).begin()
    assert price.epsilon == price.alone_epsilon > 1.5
    with pytest.raises(ValueError, match="hidden is a number"):
        make_sites(tmp_path / "bad", hidden=True)


def test_noise_too_small_for_the_proof_is_refused(tmp_path: Path) -> None:
    from dpsep.privacy.grid import Block
    from dpsep.privacy.scaling import MagnitudeCounts

    sites = make_sites(tmp_path, epsilon=500.0)
    terms = terms_of(sites, mode="sites", honest=3)
    terms = terms._replace(parts=(terms.parts[0]._replace(sigma=2.0),))
    one = Asker(sites["a"], terms)
    one.begin()
    one.work = Work(0, (0,), (Block("counts", 2, 2**0.5, kind="count", bins=41),), MagnitudeCounts())
    found = one.part()
    assert found.code == wire.BAD_TERMS
    assert "at least 4" in found.text


def test_blocks_that_are_no_release_are_refused(site: Site) -> None:
    one = asker(site)
    one.begin()
    mean, precision = one.work.blocks
    for blocks in (
        (mean,),  # shares do not sum to one
        (replace(mean, clip=float(2**60), share=1.0), precision),
        (replace(mean, size=2**23), precision),
        (replace(mean, name="precision"), precision),
    ):
        found = wire.heard(
            site.answer(wire.ask(wire.PART, one.run, one.work._replace(blocks=blocks))), one.run, wire.PART
        )
        assert isinstance(found, Refused)
    found = wire.heard(
        site.answer(wire.ask(wire.PART, one.run, one.work._replace(arrays=(0, 0)))), one.run, wire.PART
    )
    assert isinstance(found, Refused)


def test_poisson_coins_are_drawn_at_the_site_and_kept(tmp_path: Path) -> None:
    site = make_sites(tmp_path)["c"]
    one = Asker(site, terms_of({"c": site}, logistic(sampling=0.5)))
    one.start()
    first, second = one.sums(one.round(0), 0), one.sums(one.round(1), 1)
    assert (first[1] != second[1]).any()
    trace = first[1][[0, 3, 5]].sum() / second[1][[0, 3, 5]].sum()
    assert 0.5 < trace < 2.0
    assert all((a == b).all() for a, b in zip(first, one.sums(one.round(0), 0), strict=True))


def test_a_seeded_site_says_that_it_is_not_for_release(tmp_path: Path) -> None:
    site = make_sites(tmp_path, seeded=True)["a"]
    assert site.secure is False
    one = Asker(site, terms_of({"a": site}, mode="own"))
    assert one.begin().secure is False
    one.part()
    assert wire.read(one.round(0), (wire.SUMS,)).body[6] == 0


def test_an_error_at_the_site_says_nothing_of_its_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def records() -> Any:
        raise RuntimeError("cell 42 is SECRET")

    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-4)
    site = Site("a", records, ledger, tmp_path / "state", shape=(100, 2))
    one = asker(site)
    one.start()
    found = refusal(site, one.round(0), wire.ROUND, one.run)
    assert found.code == wire.FAULT
    assert "SECRET" not in found.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_a_table_of_another_shape_than_told_is_not_read(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-4)
    site = Site("a", lambda: table(99), ledger, tmp_path / "state", shape=(100, 2))
    one = asker(site)
    one.start()
    assert refusal(site, one.round(0), wire.ROUND, one.run).code == wire.FAULT


def test_a_greeting_needs_neither_a_device_nor_accountants(tmp_path: Path) -> None:
    """Flower starts a process for every message; what is slow to import waits until a round needs it."""
    code = f"""
import sys
from dpsep.federated import wire
from dpsep.federated.site import Site
from dpsep.privacy.ledger import Ledger
ledger = Ledger.create({str(tmp_path / "ledger")!r}, epsilon=1.0, delta=1e-5)
site = Site("a", lambda: None, ledger, {str(tmp_path / "state")!r}, shape=(10, 2))
wire.heard(site.answer(wire.ask(wire.HELLO, wire.NO_RUN, None)), wire.NO_RUN, wire.HELLO)
print(sorted({{"jax", "dp_accounting", "scipy.stats", "sklearn", "polars"}} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_mistakes_of_the_owner_are_named(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=3.0, delta=1e-4)
    with pytest.raises(ValueError, match="give shape"):
        Site("a", lambda: table(9), ledger, tmp_path / "state")
    with pytest.raises(ValueError, match="modes are some of"):
        Site("a", table(9), ledger, tmp_path / "state", modes=("open",))
    with pytest.raises(ValueError, match="1 names were given for 2 columns"):
        Site("a", table(9), ledger, tmp_path / "state", names=("x",))
    with pytest.raises(ValueError, match="printable name"):
        Site("", table(9), ledger, tmp_path / "state")


def die_after_charging(one: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(self: Store, *arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Store, "begin", dying)
        with pytest.raises(Killed):
            one.begin()


def test_a_price_holds_from_before_the_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner changes the site's own guarantee while its process is down between charge and note."""
    ledger = Ledger.create(tmp_path / "ledger", epsilon=20.0, delta=1e-2)
    tight = Site("a", table(100), ledger, tmp_path / "state", own=(0.1, 1e-5))
    one = asker(tight, mode="own")
    agreed = one.offer()
    die_after_charging(one, monkeypatch)
    one.site = Site("a", table(100), ledger, tmp_path / "state", own=(10.0, 1e-5))
    price = one.begin()
    assert price == agreed
    assert price.epsilon == pytest.approx(0.1)
    assert ledger.spent().epsilon == pytest.approx(0.1)


def test_an_intent_that_was_not_charged_is_priced_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=20.0, delta=1e-2)
    one = asker(Site("a", table(100), ledger, tmp_path / "state", own=(5.0, 1e-5)), mode="own")

    def dying(*arguments: Any, **named: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", dying)
        with pytest.raises(Killed):
            one.begin()
    one.site = Site("a", table(100), ledger, tmp_path / "state", own=(0.5, 1e-5))
    assert one.begin().epsilon == pytest.approx(0.5)
    assert ledger.spent().epsilon == pytest.approx(0.5)
    one.part()
    assert not isinstance(one.sums(one.round(0), 0, one.begin().sigmas[0]), Refused)


def test_a_charge_of_another_folder_pays_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ledger, two folders, one name of a run: a dear intent here, a cheap charge there."""
    ledger = Ledger.create(tmp_path / "ledger", epsilon=20.0, delta=1e-2)
    dear, cheap = (
        Site("a", table(100), ledger, tmp_path / name, own=(epsilon, 1e-5))
        for name, epsilon in (("dear", 10.0), ("cheap", 0.01))
    )
    one = asker(dear, mode="own")

    def dying(*arguments: Any, **named: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", dying)
        with pytest.raises(Killed):
            one.begin()
    assert not isinstance(Asker(cheap, one.terms, one.run).begin(), Refused)
    assert one.begin().code == wire.LOST
    one.part()
    assert refusal(dear, one.round(0), wire.ROUND, one.run).code == wire.NOT_BEGUN
    assert ledger.spent().epsilon == pytest.approx(0.01)


def test_a_run_over_budget_leaves_no_intent(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1.0, delta=1e-2)
    site = Site("a", table(100), ledger, tmp_path / "state", own=(10.0, 1e-5))
    one = asker(site, mode="own")
    assert one.begin().code == wire.OVER_BUDGET
    assert site.unfinished() == ()
    assert list((tmp_path / "state" / "runs").iterdir()) == []
    one.site = Site("a", table(100), ledger, tmp_path / "state", own=(0.5, 1e-5))
    assert one.begin().epsilon == pytest.approx(0.5)


@pytest.mark.parametrize("rule", ["sum", "rdp"])
def test_a_limit_for_one_run_holds_whatever_delta_the_server_chooses(tmp_path: Path, rule: str) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=8.0, delta=1e-5, rule=rule)
    site = Site("a", table(100), ledger, tmp_path / "state", most_epsilon=0.5)
    part = terms_of({"a": site}).parts[-1]
    for mode, epsilon in (("server", 1.0), ("own", 1e-3)):
        terms = terms_of({"a": site}, mode=mode)
        terms = terms._replace(delta=0.9999, epsilon=epsilon, parts=(part._replace(sigma=0.7, steps=1),))
        one = Asker(site, terms)
        assert one.begin().code == one.offer().code == wire.OVER_BUDGET
    assert charges(site) == 0


@pytest.mark.parametrize("sampling", [FullBatch(), PoissonSampling(0.5)], ids=["full", "poisson"])
def test_an_error_after_something_was_drawn_is_the_answer_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: Any
) -> None:
    """Before that it leaves the round open: it depends on the machine, and may be gone the next time."""
    from dpsep.federated import site_sums

    model = logistic(sampling="full" if isinstance(sampling, FullBatch) else 0.5)
    site = make_sites(tmp_path)["a"]
    one = Asker(site, terms_of({"a": site}, model, mode="own"))
    one.start()
    sigma = one.begin().sigmas[0]

    def failing(*arguments: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patch:  # of reading, after the coins where there are any
        patch.setattr(site_sums.Reader, "sums", failing)
        assert refusal(site, one.round(0), wire.ROUND, one.run).code == wire.FAULT
    is_open = not isinstance(one.sums(one.round(0), 0, sigma), Refused)
    assert is_open == isinstance(sampling, FullBatch)
    with monkeypatch.context() as patch:  # after the noise
        patch.setattr(site_sums.packing, "pack", failing)
        first = one.round(1)
    assert refusal(site, first, wire.ROUND, one.run).code == wire.FAULT
    assert one.round(1) == first
    assert not isinstance(one.sums(one.round(2), 2, sigma), Refused)


def test_what_is_asked_of_records_is_numbered_by_numbers(site: Site) -> None:
    one = asker(site)
    one.begin()
    for changes in ({"part": False}, {"arrays": (False, True)}):
        one.work = one.work._replace(**changes)
        assert isinstance(one.part(), Refused)


def test_the_honest_sites_of_a_run_are_bounded(tmp_path: Path) -> None:
    site = make_sites(tmp_path, epsilon=500.0)["a"]
    terms = terms_of({"a": site})._replace(mode="sites")
    most = Asker(site, terms._replace(honest=10**6, parts=(terms.parts[0]._replace(sigma=4e3),))).offer()
    assert most.alone_epsilon > most.sum_epsilon
    found = Asker(site, terms._replace(honest=10**6 + 1)).offer()
    assert found.code == wire.BAD_TERMS
    assert "1000000 honest sites" in found.text


def test_the_sum_is_priced_where_the_answers_alone_have_no_price_to_speak_of(tmp_path: Path) -> None:
    from dpsep.federated.pricing import deal_of

    terms = terms_of({"a": make_sites(tmp_path)["a"]})._replace(mode="sites", honest=10**6)
    price = deal_of(terms, 100, hidden=True, secure=True).price
    assert price.epsilon == price.sum_epsilon == pytest.approx(1.0)
    assert price.alone_epsilon is not None
    assert price.alone_epsilon > 1e4


def test_hashes_of_one_kept_value_do_not_multiply_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsep.federated import site as module

    one = asker(site)
    one.start()
    one.round(0)
    monkeypatch.setattr(module, "MOST_PUBLIC", 4096)
    assert not isinstance(one.sums(one.round(1), 1), Refused)
    run = one.run.hex()
    big = encode(np.arange(300.0))
    site._store.keep_values(run, 0, {wire.name_of(big): big})
    question = wire.ask_round(
        one.run,
        0,
        2,
        wire.name_of(encode(one.work)),
        (np.arange(300.0),) * 255,
        frozenset([wire.name_of(big)]),
    )
    assert len(question) < 4096
    found = refusal(site, site.answer(question), wire.ROUND, one.run)
    assert found.code == wire.BAD_TERMS
    assert "4096 bytes in all" in found.text


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    site = make_sites(tmp_path_factory.mktemp("sites"))["a"]
    one = asker(site)
    one.start()
    one.round(0)
    return one


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_questions_are_answered_by_a_refusal_and_charge_nothing(
    begun: Asker, data: st.DataObject
) -> None:
    questions = [
        wire.ask(wire.HELLO, wire.NO_RUN, None),
        wire.write(wire.OFFER, wire.NO_RUN, encode(begun.terms)),
        wire.write(wire.BEGIN, begun.run, encode(begun.terms)),
        wire.write(wire.PART, begun.run, encode(begun.work)),
        begun.question(0),
    ]
    content = bytearray(data.draw(st.sampled_from(questions)))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    if content[3] == wire.BEGIN and bytes(content[8:24]) != begun.run:
        content[8:24] = begun.run  # another run with these terms would be a question like any other
    content = content[: data.draw(st.integers(0, len(content)))]
    if len(content) >= 28 and data.draw(st.booleans()):  # damage that the checksum does not see
        content[24:28] = zlib.crc32(bytes(content[28:]), zlib.crc32(bytes(content[:24]))).to_bytes(
            4, "little"
        )
    before = charges(begun.site)
    answer = begun.site.answer(bytes(content))
    wire.read(answer, (wire.OK, wire.REFUSED, wire.SUMS))
    assert charges(begun.site) == before


def test_mechanisms_that_sites_cannot_draw_are_refused() -> None:
    from dpsep.federated.pricing import BadTerms, part_terms
    from dpsep.privacy.sampling import FixedSizeSampling

    with pytest.raises(BadTerms, match="cannot be drawn by sites"):
        part_terms(Mechanism(FixedSizeSampling(5), "replace-one", 1, 1.0, 100))
    assert part_terms(Mechanism(PoissonSampling(0.5), "zero-out", 1, 1.0, 100)).rate == 0.5
