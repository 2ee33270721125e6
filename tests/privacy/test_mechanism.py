"""Only the pairs that can be accounted exist, and each is accounted in its own units."""

import dataclasses
import importlib.metadata
import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dpsep.privacy.gaussian import gaussian_delta, gaussian_epsilon
from dpsep.privacy.mechanism import Mechanism, Relation, Schedule, UnsupportedPair, gaussian_event
from dpsep.privacy.rdp import RDP_ORDERS, rdp_to_epsilon
from dpsep.privacy.sampling import FixedSizeSampling, FullBatch, PoissonSampling, Sampling, ShuffledEpochs

NR = dpa.NeighboringRelation
DPA = {"zero-out": NR.REPLACE_SPECIAL, "replace-one": NR.REPLACE_ONE}


def mechanism(sampling: Sampling, relation: Relation, steps: int = 10, sigma: float = 2.0) -> Mechanism:
    return Mechanism(sampling, relation, steps, sigma, records=1000)


def test_the_library_whose_conventions_are_pinned_is_the_one_installed():
    assert importlib.metadata.version("dp-accounting").split(".")[:2] == ["0", "6"]


def test_loss_distributions_double_the_sensitivity_under_replace_one_and_renyi_curves_do_not():
    raw = dpa.GaussianDpEvent(3.0)
    assert PLDAccountant(NR.REPLACE_ONE).compose(raw).get_epsilon(1e-5) == pytest.approx(
        gaussian_epsilon(2 / 3, 1e-5), rel=1e-3
    )
    assert PLDAccountant(NR.REPLACE_SPECIAL).compose(raw).get_epsilon(1e-5) == pytest.approx(
        gaussian_epsilon(1 / 3, 1e-5), rel=1e-3
    )
    for relation in (NR.REPLACE_ONE, NR.REPLACE_SPECIAL):
        np.testing.assert_allclose(RdpAccountant([2.0, 5.0], relation).compose(raw).rdp, [2 / 18, 5 / 18])


@pytest.mark.parametrize(("relation", "mu"), [("zero-out", 0.5), ("replace-one", 1.0)])
def test_one_function_makes_gaussian_events_in_the_units_of_each_calculus(relation, mu):
    as_loss = PLDAccountant(DPA[relation]).compose(gaussian_event(2.0, relation, "pld"))
    assert as_loss.get_epsilon(1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-3)
    as_renyi = RdpAccountant([3.0], DPA[relation]).compose(gaussian_event(2.0, relation, "rdp"))
    assert as_renyi.rdp[0] == pytest.approx(3 * mu**2 / 2)


@pytest.mark.parametrize(("relation", "sensitivity"), [("zero-out", 1), ("replace-one", 2)])
def test_full_batches_compose_exactly(relation, sensitivity):
    run = mechanism(FullBatch(), relation, steps=25, sigma=10.0)
    assert run.sensitivity == sensitivity
    assert run.epsilon(1e-5) == gaussian_epsilon(sensitivity / 2, 1e-5)
    assert run.delta(1.0) == gaussian_delta(1.0, sensitivity / 2)
    reference = PLDAccountant(DPA[relation]).compose(run.event())
    assert run.epsilon(1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    np.testing.assert_allclose(run.rdp([2.0, 8.0]), [2 * sensitivity**2 / 8, sensitivity**2])


@pytest.mark.parametrize(("relation", "sensitivity"), [("zero-out", 1), ("replace-one", 2)])
def test_shuffled_epochs_are_one_release_a_pass(relation, sensitivity):
    # 1000 records in batches of 300: passes of 4 steps; a pass begun counts whole.
    for steps, passes in ((1, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        run = mechanism(ShuffledEpochs(300), relation, steps)
        assert run.releases == passes
        assert run.epsilon(1e-5) == gaussian_epsilon(math.sqrt(passes) * sensitivity / 2, 1e-5)


def test_poisson_under_zero_out_agrees_with_the_reference():
    run = mechanism(PoissonSampling(0.05), "zero-out", steps=200)
    reference = PLDAccountant(NR.REPLACE_SPECIAL).compose(run.event())
    assert run.epsilon(1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    assert run.delta(1.0) == pytest.approx(reference.get_delta(1.0), rel=5e-3)
    renyi = RdpAccountant(RDP_ORDERS, NR.REPLACE_SPECIAL).compose(run.event("rdp"))
    np.testing.assert_allclose(run.rdp_curve(), renyi.rdp, rtol=1e-6)
    assert run.epsilon(1e-5) <= rdp_to_epsilon(run.rdp_curve(), 1e-5)


def test_poisson_under_replace_one_is_two_hops():
    one = mechanism(PoissonSampling(0.05), "zero-out", steps=200)
    two = mechanism(PoissonSampling(0.05), "replace-one", steps=200)
    epsilon = two.epsilon(1e-5)
    assert (1 + math.exp(epsilon / 2)) * one.delta(epsilon / 2) == pytest.approx(1e-5, rel=1e-2)
    assert two.delta(epsilon) == pytest.approx(1e-5, rel=1e-2)
    with pytest.raises(UnsupportedPair, match="Rényi"):
        two.rdp_curve()


def test_fixed_size_agrees_with_the_reference_in_units_of_twice_the_clip():
    run = mechanism(FixedSizeSampling(20), "replace-one", steps=300, sigma=4.0)
    event = dpa.SelfComposedDpEvent(
        dpa.SampledWithoutReplacementDpEvent(1000, 20, dpa.GaussianDpEvent(2.0)), 300
    )
    assert run.event() == event
    reference = RdpAccountant(RDP_ORDERS, NR.REPLACE_ONE).compose(event).get_epsilon(1e-5)
    assert run.epsilon(1e-5) == pytest.approx(reference, rel=1e-6)
    assert run.delta(run.epsilon(1e-5)) == pytest.approx(1e-5, rel=1e-6)
    assert run.epsilon(1e-5) < mechanism(FullBatch(), "replace-one", steps=300, sigma=4.0).epsilon(1e-5)


def test_unsupported_pairs_raise_and_say_what_to_do():
    with pytest.raises(UnsupportedPair, match=r"fixed-size .* under zero-out; it can under replace-one"):
        mechanism(FixedSizeSampling(20), "zero-out")

    class Novel(FullBatch):
        pass

    with pytest.raises(UnsupportedPair, match="no relation"):
        mechanism(Novel(), "zero-out")
    with pytest.raises(UnsupportedPair, match="not mu-GDP"):
        _ = mechanism(PoissonSampling(0.1), "zero-out").mu
    with pytest.raises(UnsupportedPair, match="loss distribution"):
        mechanism(FixedSizeSampling(20), "replace-one").event("pld")


@pytest.mark.parametrize(
    "bad",
    [
        {"relation": "add-remove"},
        {"steps": 0},
        {"steps": 1.5},
        {"sigma": 0.0},
        {"sigma": math.nan},
        {"sigma": math.inf},
        {"records": 0},
    ],
)
def test_bad_values_raise(bad):
    good = {"sampling": FullBatch(), "relation": "zero-out", "steps": 1, "sigma": 1.0, "records": 10}
    with pytest.raises(ValueError, match=r"must be"):
        Mechanism(**{**good, **bad})


def test_the_least_values_are_accepted():
    assert Mechanism(FullBatch(), "zero-out", 1, 5e-324, 1).releases == 1


def test_events_are_what_happens_and_no_more():
    gaussian = dpa.GaussianDpEvent
    once, often = (mechanism(PoissonSampling(0.1), "zero-out", steps) for steps in (1, 3))
    assert once.event() == dpa.PoissonSampledDpEvent(0.1, gaussian(2.0))
    assert often.event() == dpa.SelfComposedDpEvent(once.event(), 3)
    assert Schedule((often,)).event() == often.event()
    full = mechanism(FullBatch(), "zero-out", 4)
    assert full.event() == dpa.SelfComposedDpEvent(gaussian(2.0), 4)
    # Full batches enter a schedule as one Gaussian, before the rest: 4 with noise 2 are one with noise 1.
    assert Schedule((full,)).event() == gaussian(1.0)
    assert Schedule((often, full)).event() == dpa.ComposedDpEvent([gaussian(1.0), often.event()])
    replaced = mechanism(PoissonSampling(0.1), "replace-one", 3)
    wide = mechanism(FullBatch(), "replace-one", 4)
    assert Schedule((replaced, wide)).event() == dpa.ComposedDpEvent([gaussian(1.0), often.event()])
    fixed = mechanism(FixedSizeSampling(20), "replace-one", 3)
    assert Schedule((fixed, wide)).event() == dpa.ComposedDpEvent([gaussian(0.5), fixed.event("rdp")])
    assert [run.is_gaussian for run in (once, full, fixed)] == [False, True, False]
    assert Schedule((fixed, wide)).relation == "replace-one"


def test_a_larger_tolerance_gives_a_looser_bound():
    schedule = Schedule((mechanism(PoissonSampling(0.01), "zero-out", 1000, 1.0),))
    assert schedule.epsilon(1e-5) == schedule.epsilon(1e-5, 2e-4)
    assert 1e-4 < schedule.epsilon(1e-5, 0.5) / schedule.epsilon(1e-5) - 1 < 0.5


def test_mechanisms_cannot_be_changed():
    run = mechanism(FullBatch(), "zero-out")
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.sigma = 1.0  # pyright: ignore[reportAttributeAccessIssue]
    schedule = Schedule((run,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.parts = ()  # pyright: ignore[reportAttributeAccessIssue]
    assert len({schedule, Schedule((run,)), Schedule((run, run))}) == 2


def test_schedules_of_full_batches_add_their_squares():
    parts = (mechanism(FullBatch(), "zero-out", 4, 8.0), mechanism(ShuffledEpochs(1000), "zero-out", 1, 5.0))
    mu = math.sqrt(4 / 64 + 1 / 25)
    assert Schedule(parts).epsilon(1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-12)
    reference = PLDAccountant(NR.REPLACE_SPECIAL).compose(Schedule(parts).event())
    assert Schedule(parts).epsilon(1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    np.testing.assert_allclose(Schedule(parts).rdp_curve(), np.array(RDP_ORDERS) * mu**2 / 2)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_schedules_with_poisson_parts_agree_with_the_reference(relation):
    parts = (mechanism(FullBatch(), relation, 1, 6.0), mechanism(PoissonSampling(0.05), relation, 100, 3.0))
    schedule = Schedule(parts)
    zeroed = PLDAccountant(NR.REPLACE_SPECIAL)
    zeroed.compose(dpa.GaussianDpEvent(6.0))
    zeroed.compose(dpa.PoissonSampledDpEvent(0.05, dpa.GaussianDpEvent(3.0)), 100)
    epsilon = schedule.epsilon(1e-5)
    if relation == "zero-out":
        assert epsilon == pytest.approx(zeroed.get_epsilon(1e-5), rel=1e-3)
    else:
        assert (1 + math.exp(epsilon / 2)) * zeroed.get_delta(epsilon / 2) == pytest.approx(1e-5, rel=1e-2)
    assert schedule.delta(epsilon) == pytest.approx(1e-5, rel=1e-2)


def test_schedules_with_fixed_size_parts_add_curves():
    parts = (
        mechanism(FullBatch(), "replace-one", 1, 20.0),
        mechanism(FixedSizeSampling(10), "replace-one", 50, 4.0),
    )
    total = parts[0].rdp_curve() + parts[1].rdp_curve()
    assert Schedule(parts).epsilon(1e-5) == rdp_to_epsilon(total, 1e-5)
    reference = RdpAccountant(RDP_ORDERS, NR.REPLACE_ONE).compose(Schedule(parts).event())
    assert Schedule(parts).epsilon(1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-6)


def test_schedules_that_mix_what_cannot_be_mixed_raise():
    full = mechanism(FullBatch(), "zero-out")
    with pytest.raises(UnsupportedPair, match="share"):
        Schedule((full, mechanism(FullBatch(), "replace-one")))
    with pytest.raises(UnsupportedPair, match="share"):
        Schedule((full, dataclasses.replace(full, records=7)))
    with pytest.raises(UnsupportedPair, match="no common accountant"):
        Schedule(
            (mechanism(PoissonSampling(0.1), "replace-one"), mechanism(FixedSizeSampling(10), "replace-one"))
        )
    with pytest.raises(ValueError, match="at least one"):
        Schedule(())


def test_the_accountant_is_named():
    assert mechanism(FullBatch(), "zero-out").accountant == "exact Gaussian composition"
    assert mechanism(PoissonSampling(0.1), "zero-out").accountant == "privacy loss distributions"
    assert mechanism(PoissonSampling(0.1), "replace-one").accountant == "privacy loss distributions, two hops"
    assert mechanism(FixedSizeSampling(5), "replace-one").accountant == "Rényi curves"
