"""Every scheme draws exactly the law it states, and keeps what it drew to itself."""

import pickle
from collections import Counter
from itertools import combinations, permutations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsep.privacy.gaps import gaps
from dpsep.privacy.noise import SecureStream, SeededStream
from dpsep.privacy.sampling import (
    FixedSizeSampling,
    FullBatch,
    PoissonSampling,
    ShuffledEpochs,
    permutation,
    uniform_integers,
)

ALL = [PoissonSampling(0.3), FullBatch(), FixedSizeSampling(3), FixedSizeSampling(8), ShuffledEpochs(4)]


class ConstantWords:
    secure = False

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, n: int) -> NDArray[np.uint64]:
        return np.full(n, self.word, dtype=np.uint64)


def chi_square_pvalue(observed, expected) -> float:
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    return float(stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), observed.size - 1))


def test_poisson_includes_each_record_independently_at_its_rate():
    sampler = PoissonSampling(0.3).start(SeededStream(1), 6)
    counts = Counter(tuple(sampler.next()) for _ in range(20_000))
    subsets = [c for size in range(7) for c in combinations(range(6), size)]
    expected = [20_000 * 0.3 ** len(s) * 0.7 ** (6 - len(s)) for s in subsets]
    assert chi_square_pvalue([counts[s] for s in subsets], expected) > 1e-6


def test_poisson_coins_are_the_rate_rounded_down():
    # rate = 2^-2: heads exactly for words below 2^62.
    assert len(PoissonSampling(0.25).start(ConstantWords(2**62 - 1), 3).next()) == 3
    assert len(PoissonSampling(0.25).start(ConstantWords(2**62), 3).next()) == 0
    assert list(PoissonSampling(1.0).start(ConstantWords(2**64 - 1), 3).next()) == [0, 1, 2]


def test_poisson_draws_over_many_chunks():
    rows = np.asarray(PoissonSampling(0.01).start(SeededStream(2), 600_000).next())
    assert np.all(np.diff(rows) > 0)
    assert rows.max() > 2**18
    assert abs(rows.size - 6000) < 6 * np.sqrt(6000)


@pytest.mark.parametrize("size", [2, 4])  # drawn by rejection, and from a permutation
def test_fixed_size_subsets_are_uniform_and_fresh(size):
    sampler = FixedSizeSampling(size).start(SeededStream(3), 6)
    counts = Counter(tuple(sampler.next()) for _ in range(15_000))
    subsets = list(combinations(range(6), size))
    assert set(counts) == set(subsets)
    assert chi_square_pvalue([counts[s] for s in subsets], [1000] * 15) > 1e-6


def test_an_epoch_reads_every_record_once_and_the_next_is_shuffled_anew():
    sampler = ShuffledEpochs(4).start(SeededStream(4), 10)
    passes = [[np.asarray(sampler.next()) for _ in range(3)] for _ in range(2)]
    for batches in passes:
        assert [b.size for b in batches] == [4, 4, 2]
        assert sorted(np.concatenate(batches)) == list(range(10))
    assert passes[0][0].tolist() != passes[1][0].tolist()


def test_permutations_are_uniform():
    stream = SeededStream(5)
    counts = Counter(tuple(permutation(stream, 4)) for _ in range(24_000))
    assert chi_square_pvalue([counts[p] for p in permutations(range(4))], [1000] * 24) > 1e-6


def test_permutations_are_drawn_again_when_words_tie():
    class TiesOnce(SeededStream):
        drawn = 0

        def words(self, n: int) -> NDArray[np.uint64]:
            self.drawn += 1
            return np.zeros(n, dtype=np.uint64) if self.drawn == 1 else super().words(n)

    stream = TiesOnce(6)
    assert sorted(permutation(stream, 5)) == list(range(5))
    assert stream.drawn == 2


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 2**62 + 1])
def test_integers_below_a_bound_have_no_modulo_bias(bound):
    draws = uniform_integers(SeededStream(7), bound, 30_000)
    assert draws.min() >= 0
    assert draws.max() < bound
    cells = min(bound, 7)
    counts = np.bincount((draws // max(1, bound // cells)).clip(max=cells - 1), minlength=cells)
    edges = [i * max(1, bound // cells) for i in range(cells)] + [bound]
    if bound > 1:
        assert chi_square_pvalue(counts, 30_000 * np.diff(np.array(edges, float)) / bound) > 1e-6


@pytest.mark.parametrize("scheme", ALL)
def test_rows_are_distinct_integers_in_range(scheme):
    sampler = scheme.start(SecureStream(), 10)
    for _ in range(6):
        rows = np.asarray(sampler.next())
        assert rows.dtype == np.int64
        assert np.unique(rows).size == rows.size
        assert np.all((rows >= 0) & (rows < 10))


@pytest.mark.parametrize("scheme", ALL)
def test_samplers_show_and_give_away_nothing(scheme):
    sampler = scheme.start(SecureStream(), 10)
    sampler.next()
    assert repr(sampler).endswith("(<secret>)")
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(sampler)


def test_public_sizes():
    assert PoissonSampling(0.05).expected_batch(200) == 10
    assert FullBatch().expected_batch(200) == 200
    assert FixedSizeSampling(7).expected_batch(200) == 7
    assert [s.steps_per_pass(10) for s in (FullBatch(), FixedSizeSampling(4), ShuffledEpochs(5))] == [1, 3, 2]


def test_a_run_resumes_an_epoch_only_where_a_pass_begins():
    scheme = ShuffledEpochs(4)
    scheme.start(SeededStream(1), 10, step=6)
    with pytest.raises(ValueError, match="multiple of 3"):
        scheme.start(SeededStream(1), 10, step=4)
    PoissonSampling(0.1).start(SeededStream(1), 10, step=4)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan"), 2.0**-65, np.nextafter(2.0**-64, 0)])
def test_bad_rates_raise(rate):
    with pytest.raises(ValueError, match="rate"):
        PoissonSampling(rate)


def test_bad_sizes_raise():
    for scheme in (FixedSizeSampling, ShuffledEpochs):
        with pytest.raises(ValueError, match="size"):
            scheme(0)
        with pytest.raises(ValueError, match="exceeds"):
            scheme(11).start(SeededStream(1), 10)
        with pytest.raises(ValueError, match="size"):
            scheme(1.5)  # pyright: ignore[reportArgumentType]
        scheme(10).start(SeededStream(1), 10)
    for scheme in (FullBatch(), PoissonSampling(0.5), FixedSizeSampling(1), ShuffledEpochs(1)):
        assert len(scheme.start(SeededStream(1), 1).next()) <= 1
        for check in (scheme.check, lambda n, scheme=scheme: scheme.start(SeededStream(1), n)):
            with pytest.raises(ValueError, match="n_records"):
                check(0)


def test_the_least_rate_hits_nothing_and_a_stream_that_repeats_itself_is_seen():
    scheme = PoissonSampling(2.0**-64)
    assert len(scheme.start(ConstantWords(1), 3).next()) == 0
    # All bits one: as near to 1 as can be, so that the first record is hit, and the next, and the next.
    assert list(PoissonSampling(1e-9).start(ConstantWords(2**64 - 1), 3).next()) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="repeats itself"):
        scheme.start(ConstantWords(0), 3).next()


class Words:
    """The words given, then those of a stream; counts what is drawn."""

    secure = False

    def __init__(self, *first: int, seed: int = 1) -> None:
        self.first, self.rest, self.drawn = list(first), SeededStream(seed), 0

    def words(self, n: int) -> NDArray[np.uint64]:
        self.drawn += n
        given, self.first = self.first[:n], self.first[n:]
        return np.concatenate([np.array(given, np.uint64), self.rest.words(n - len(given))])


@pytest.mark.parametrize("rate", [0.06, 0.01, 1e-3])
def test_gaps_have_the_geometric_law(rate):
    drawn = gaps(SeededStream(5), rate, 200_000)
    edges = stats.geom.ppf(np.linspace(0.0, 1.0, 41)[1:-1], rate) - 1
    edges = np.unique(edges)
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=edges.size + 1)
    share = np.diff(np.concatenate([[0.0], stats.geom.cdf(edges + 1, rate), [1.0]]))
    assert chi_square_pvalue(counts, 200_000 * share) > 1e-6


def test_a_gap_is_the_exact_quotient_of_its_word_and_where_a_word_is_not_enough_more_bits_decide():
    rate = 2.0**-30
    with mpmath.workprec(300):
        exponent = mpmath.log1p(-mpmath.mpf(rate))
        # Words on the two sides of the first word whose gap is 12345, and that word itself.
        edge = int(mpmath.floor(mpmath.exp(12345 * exponent) * 2**64))
        for word, gap in ((edge - 1, 12345), (edge + 1, 12344)):
            assert gaps(Words(word), rate, 1)[0] == gap
        rest = mpmath.exp(12345 * exponent) * 2**64 - edge
        for further, gap in ((0, 12345), (2**64 - 1, 12344)):
            stream = Words(edge, further)
            assert gaps(stream, rate, 1)[0] == gap
            assert stream.drawn == 2
        assert 0 < rest < 1
        for word in (1, 3, 2**20, 2**40 + 1, 2**63 - 1):
            exact = mpmath.floor(mpmath.log((word + mpmath.mpf("0.5")) / 2**64) / exponent)
            assert abs(gaps(Words(word), rate, 1)[0] - exact) <= 1 / rate / word + 1


def test_by_gaps_each_record_is_drawn_independently_at_the_rate():
    sampler = PoissonSampling(0.06).start(SeededStream(3), 5)
    counts = Counter(tuple(sampler.next()) for _ in range(40_000))
    subsets = [c for size in range(3) for c in combinations(range(5), size)]
    expected = [40_000 * 0.06 ** len(s) * 0.94 ** (5 - len(s)) for s in subsets]
    rest = 40_000 - sum(expected)
    found = [counts[s] for s in subsets]
    assert chi_square_pvalue([*found, 40_000 - sum(found)], [*expected, rest]) > 1e-6


def test_a_step_costs_what_its_rows_cost_however_many_records_there_are():
    for records in (10**5, 10**9, 10**13):
        stream = Words()
        rows = PoissonSampling(1000 / records).start(stream, records).next()
        assert 0 <= rows[0] < rows[-1] < records
        assert stream.drawn < 1300
        assert np.all(np.diff(rows) > 0)
    with pytest.raises(ValueError, match="at most"):
        PoissonSampling(0.5).start(SeededStream(1), 2**45)


@pytest.mark.parametrize("bound", [0, -1, 2**63 + 1])
def test_bounds_of_integers_that_make_no_sense_raise(bound):
    with pytest.raises(ValueError, match="bound"):
        uniform_integers(SeededStream(1), bound, 1)


def test_integers_are_the_top_bits_of_words_and_those_beyond_the_bound_are_drawn_again():
    class Counting:
        secure = False

        def __init__(self) -> None:
            self.at = 0

        def words(self, n: int) -> NDArray[np.uint64]:
            drawn = (np.arange(self.at, self.at + n, dtype=np.uint64) % np.uint64(8)) << np.uint64(61)
            self.at += n
            return drawn

    assert uniform_integers(Counting(), 8, 10).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert uniform_integers(Counting(), 5, 7).tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert uniform_integers(Counting(), 1, 4).tolist() == [0, 0, 0, 0]
    top = uniform_integers(ConstantWords(2**64 - 1), 2**63, 1)
    assert (top.dtype, int(top[0])) == (np.int64, 2**63 - 1)


def test_schemes_say_what_they_are():
    said = [scheme.describe() for scheme in (PoissonSampling(0.05), FullBatch(), ShuffledEpochs(4))]
    assert said == ["Poisson sampling at rate 0.05", "full batch", "shuffled epochs in batches of 4"]
    assert [scheme.restart_interval(10) for scheme in ALL] == [1, 1, 1, 1, 3]
    assert [scheme.expected_batch(10) for scheme in ALL] == [3.0, 10.0, 3.0, 8.0, 4.0]
    assert [scheme.steps_per_pass(10) for scheme in ALL] == [4, 1, 4, 2, 3]
