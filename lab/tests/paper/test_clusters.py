from itertools import permutations

import numpy as np
import pytest

from dpsep_lab.paper.clusters import Experiment, errors, make, match, truth


def test_the_experiment_has_the_size_of_the_papers():
    data = make(seed=3)
    assert data.means.shape == (4, 4)
    assert data.x.shape == (1000, 4)
    assert set(data.labels) == {0, 1, 2, 3}


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data():
    first, again, other = make(seed=1), make(seed=1), make(seed=2)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first.x, other.x)


def test_records_scatter_about_their_components_mean_by_the_noise():
    data = make(seed=0, records=50_000, noise=0.7)
    rest = data.x - data.means[data.labels]
    assert abs(rest.mean()) < 5 * 0.7 / np.sqrt(rest.size)
    assert rest.std() == pytest.approx(0.7, rel=5 / np.sqrt(2 * rest.size))


def test_labels_are_uniform():
    counts = np.bincount(make(seed=0, records=40_000).labels)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 21.1  # the 0.9999 point of a chi-square with 3


@pytest.mark.parametrize(("centred", "variance"), [(False, 2.0), (True, 1.0)])
def test_means_vary_by_one_about_centres_that_vary_by_one_or_are_zero(centred, variance):
    means = make(seed=0, records=1, components=20_000, centred=centred).means
    assert means.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / means.size))
    assert abs(means.mean()) < 5 * np.sqrt(variance / means.size)


def test_centring_changes_where_the_components_lie_and_neither_labels_nor_scatter():
    spread, centred = make(seed=4), make(seed=4, centred=True)
    assert not np.array_equal(spread.means, centred.means)
    np.testing.assert_array_equal(spread.labels, centred.labels)
    one, two = (data.x - data.means[data.labels] for data in (spread, centred))
    np.testing.assert_allclose(one, two, atol=1e-12)


@pytest.mark.parametrize("wrong", [{"records": 0}, {"components": 0}, {"dimension": 0}, {"noise": 0.0}])
def test_an_empty_experiment_or_one_without_noise_is_refused(wrong):
    with pytest.raises(ValueError, match="at least 1 and noise positive"):
        make(seed=0, **wrong)


@pytest.mark.parametrize("precision", [0.1, 3.0])
def test_the_truth_is_the_posterior_by_quadrature(precision):
    data = make(seed=5, records=40, components=3, dimension=2, noise=0.8)
    answer = truth(data, prior_precision=precision)
    grid = np.linspace(-12, 12, 48_001)
    for component in range(3):
        for dim in range(2):
            own = data.x[data.labels == component, dim]
            log_density = -precision * grid**2 / 2
            for value in own:
                log_density -= (value - grid) ** 2 / (2 * 0.8**2)
            weight = np.exp(log_density - log_density.max())
            weight /= weight.sum()
            mean = weight @ grid
            assert answer.means[component, dim] == pytest.approx(mean, abs=1e-8)
            assert answer.covariances[component, dim, dim] == pytest.approx(weight @ (grid - mean) ** 2)
    assert np.all(answer.covariances[:, 0, 1] == 0)


def test_a_component_without_records_keeps_its_prior():
    data = Experiment(np.zeros((2, 3)), np.zeros(5, dtype=np.int64), np.ones((5, 3)))
    answer = truth(data, prior_precision=0.1)
    np.testing.assert_array_equal(answer.means[1], np.zeros(3))
    np.testing.assert_allclose(answer.covariances[1], 10 * np.eye(3))


def test_matching_is_the_best_of_all_orders():
    generator = np.random.default_rng(0)
    for _ in range(30):
        true, found = generator.standard_normal((2, 4, 3))

        def cost(order, true=true, found=found):
            return ((true - found[list(order)]) ** 2).sum()

        best = min(permutations(range(4)), key=cost)
        assert tuple(match(true, found)) == best


def test_matching_is_not_greedy():
    # The first true component would take what the second needs.
    true, found = np.array([[0.0], [1.0]]), np.array([[0.6], [-0.7]])
    assert list(match(true, found)) == [1, 0]


def test_errors_are_squared_and_averaged_over_components_and_the_plain_ones_have_the_root():
    true_means, widths = np.array([[0.0, 0.0], [9.0, 0.0]]), np.stack([np.eye(2)] * 2)
    means, covariances = np.array([[3.0, 4.0], [9.0, 1.0]]), np.stack([3 * np.eye(2), np.eye(2)])
    found = errors(true_means, widths, means, covariances)
    assert found.mean == (25 + 1) / 2
    assert found.covariance == (8 + 0) / 2
    assert found.average == (13 + 4) / 2
    assert found.plain_mean == (5 + 1) / 2
    assert found.plain_covariance == pytest.approx(8**0.5 / 2)
    assert not found.wrong


def test_errors_do_not_depend_on_the_order_of_components():
    data = make(seed=7)
    exact = truth(data)
    moved = exact.means + 0.1, exact.covariances * np.arange(1, 5)[:, None, None]
    order = [2, 0, 3, 1]
    plain = errors(*exact, *moved)
    shuffled = errors(*exact, moved[0][order], moved[1][order])
    np.testing.assert_allclose(plain, shuffled, rtol=1e-12)
    assert plain.mean == pytest.approx(4 * 0.01)


def test_two_components_at_one_true_mean_are_a_wrong_assignment():
    true, widths = np.array([[0.0], [5.0]]), np.ones((2, 1, 1))
    assert errors(true, widths, [[0.1], [0.2]], widths).wrong
    assert not errors(true, widths, [[0.1], [2.6]], widths).wrong


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(place, bad):
    arrays = [np.zeros((2, 1)), np.ones((2, 1, 1)), np.zeros((2, 1)), np.ones((2, 1, 1))]
    arrays[place][1] = bad
    with pytest.raises(ValueError, match="must be finite"):
        errors(*arrays)


def test_shapes_that_do_not_belong_together_are_refused():
    means, widths = np.zeros((2, 3)), np.zeros((2, 3, 3))
    with pytest.raises(ValueError, match="components, dimension"):
        errors(means, widths, np.zeros((3, 3)), widths)
    with pytest.raises(ValueError, match="covariances must be of shape"):
        errors(means, widths, means, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="prior_precision"):
        truth(make(seed=0, records=5), prior_precision=0.0)
