"""The rounded Gaussian has its law from the centre to tails of 2^-80, and no draw tells of another.

Masses are differences of the normal CDF in multiple precision. Every test has level 1e-6 and a seeded stream,
and is shown to reject a law that is slightly wrong. Tails are tested by importance: a stream whose words
begin with t zero bits draws the law given that the tail probability is below 2^-(t + 1).
"""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from dpsep.privacy.gate import Gate
from dpsep.privacy.grid import Block
from dpsep.privacy.noise import SecureStream, SeededStream, float_gaussian, rounded_gaussian

from .gate_help import Parts, gate_for, mechanism, permit_for, poisson, vectors

MP: Any = mpmath.mp.clone()
MP.prec = 300
LEVEL = 1e-6
SCALES = [0.1, 0.3, 1.0, 3.7, 100.0, 1e4, 1e6, 1e9]
DRAWS = 500_000

Draws = NDArray[np.int64]


def upper(boundary: float, sd: float) -> Any:
    """P(N(0, sd^2) > boundary) in 300 bits."""
    return MP.erfc(MP.mpf(boundary) / (MP.mpf(sd) * MP.sqrt(2))) / 2


class Words:
    """Hands out chosen words, as many as there are."""

    secure = False

    def __init__(self, words: Sequence[int]) -> None:
        self.left = list(words)

    def words(self, n: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)


class TailWords:
    """Uniform words, given that the tail probability is below 2^-(zeros + 1).

    A draw's first word has its sign bit and then zeros; what does not fit goes to the one word that refines
    it. (That a draw reads two more has a probability of about 2^-40, which no test here can see.)
    """

    secure = False

    def __init__(self, seed: int, zeros: int) -> None:
        self._inner, self._zeros = SeededStream(seed), zeros

    def words(self, n: int) -> NDArray[np.uint64]:
        words = self._inner.words(n)
        if n == 1:
            return words >> np.uint64(max(0, self._zeros - 63))
        first = np.uint64(min(63, self._zeros))
        sign = np.uint64(1 << 63)
        return (words & sign) | ((words & ~sign) >> first)


def cells(sd: float, zeros: int, pieces: int) -> tuple[Draws, NDArray[np.float64]]:
    """Return integers that start cells of magnitude, and the cells' exact masses given the tail."""
    places = [float(stats.norm.isf(2.0 ** -(zeros + 1) * (1 - i / pieces))) for i in range(pieces)]
    edges = np.unique([max(0, math.floor(sd * place + 0.5)) for place in places])
    edges = np.append(edges, edges[-1] + math.ceil(sd / 4))
    above = [min(MP.mpf(1), 2 * upper(int(e) - 0.5, sd) * 2**zeros) if e else MP.mpf(1) for e in edges]
    masses = [float(a - b) for a, b in zip(above, [*above[1:], MP.mpf(0)], strict=True)]
    return edges, np.array(masses)


def chi_square(draws: Draws, sd: float, zeros: int = 0) -> float:
    """P-value of signed cells of magnitude against their exact masses; a cell that holds zero has no sign."""
    edges, masses = cells(sd, zeros, pieces=min(40, len(draws) // 30))
    cell = np.searchsorted(edges, np.abs(draws), side="right")  # 0: below the tail, which is impossible
    signed = np.where((draws < 0) & (cell > (edges[0] == 0)), -cell, cell)
    last = len(edges)
    observed = np.bincount(signed + last, minlength=2 * last + 1)
    expected = np.concatenate([masses[::-1], [0.0], masses]) * len(draws) / 2
    if edges[0] == 0:
        expected[[last - 1, last + 1]] *= 0.0, 2.0
    keep = expected >= 10
    rare, mean = observed[~keep].sum(), expected[~keep].sum()  # too few for a chi-square: a Poisson number
    unlikely = 2 * float(min(stats.poisson.cdf(rare, mean), stats.poisson.sf(rare - 1, mean)))
    return min(1.0, 2 * unlikely, 2 * _pearson(observed[keep], expected[keep]))


def _pearson(observed: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), len(observed)))


def kolmogorov(draws: Draws, sd: float) -> float:
    """P-value of the largest distance between the distribution functions (for steps: at most this)."""
    values, counts = np.unique(draws, return_counts=True)
    empirical = np.cumsum(counts) / len(draws)

    def exact(k: Draws) -> NDArray[np.float64]:
        if sd <= 100:
            return np.array([float(1 - upper(int(i) + 0.5, sd)) for i in k])
        return special.ndtr((k + 0.5) / sd)

    at, before = exact(values), exact(values - 1)
    distance = max(np.abs(empirical - at).max(), np.abs(np.append(0, empirical[:-1]) - before).max())
    return float(stats.kstwobign.sf(distance * math.sqrt(len(draws))))


def residues(draws: Draws) -> float:
    """P-value of the last digits: uniform, to within exp(-2 pi^2 (sd / 16)^2), whatever the sd."""
    return float(stats.chisquare(np.bincount(draws & 15, minlength=16)).pvalue)


@pytest.mark.parametrize("sd", SCALES)
def test_draws_have_the_exact_masses_and_deviation(sd):
    draws = rounded_gaussian(SeededStream(61), sd, DRAWS)
    assert chi_square(draws, sd) > LEVEL
    assert kolmogorov(draws, sd) > LEVEL
    if sd >= 100:
        assert residues(draws) > LEVEL
    if sd >= 0.3:  # below, the deviation is that of a few ones; the tails are tested below
        reach = range(1, 20) if sd < 2 else ()
        variance = 2 * sum(k**2 * float(upper(k - 0.5, sd) - upper(k + 0.5, sd)) for k in reach)
        assert np.std(draws) == pytest.approx(math.sqrt(variance or sd**2 + 1 / 12), rel=0.01)


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.7, 100.0, 1e4, 1e6, 1e9])
def test_a_deviation_three_percent_too_small_is_seen(sd):
    draws = rounded_gaussian(SeededStream(62), 0.97 * sd, DRAWS)
    assert chi_square(draws, sd) < LEVEL
    assert kolmogorov(draws, sd) < LEVEL


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.7, 20.0])
def test_rounding_down_is_seen(sd):
    draws = np.floor(float_gaussian(SeededStream(63), sd, DRAWS)).astype(np.int64)
    assert chi_square(draws, sd) < LEVEL
    assert kolmogorov(draws, sd) < LEVEL


def test_noise_in_single_precision_is_seen_by_its_last_digits():
    coarse = float_gaussian(SeededStream(64), 1e9, DRAWS).astype(np.float32)
    assert chi_square(coarse.astype(np.int64), 1e9) > LEVEL  # the cells are too wide to tell
    assert residues(coarse.astype(np.int64)) < LEVEL


@pytest.mark.parametrize(
    ("sd", "zeros", "count"),
    [(0.1, 20, 200_000), (0.3, 12, 200_000)]  # given more zeros, these are one or two integers
    + [(sd, zeros, n) for sd in (3.7, 1e6) for zeros, n in ((12, 200_000), (30, 200_000), (58, 2000))]
    + [(sd, 79, 1200) for sd in (3.7, 100.0, 1e6, 1e9)],
)
def test_tails_have_the_exact_masses_to_two_to_the_minus_eighty(sd, zeros, count):
    assert chi_square(rounded_gaussian(TailWords(65, zeros), sd, count), sd, zeros) > LEVEL
    assert chi_square(rounded_gaussian(TailWords(65, zeros), 0.97 * sd, count // 4), sd, zeros) < LEVEL


def _split(bits: int, negative: bool) -> list[int]:
    """The words that spell a tail probability of bits / 2^256, after a sign bit."""
    words = [(bits >> shift) & (2**64 - 1) for shift in (192, 128, 64, 0)]
    return [words[0] | (negative << 63), *words[1:]]


def _inverse(p: Any, sd: float) -> int:
    """round(sd times the normal quantile at tail p), by Newton's method in 300 bits."""
    x = MP.mpf(float(stats.norm.isf(float(p))))
    for _ in range(5):
        x += (upper(x, 1.0) - p) * MP.sqrt(2 * MP.pi) * MP.exp(x * x / 2)
    return int(MP.floor(MP.mpf(sd) * x + MP.mpf(1) / 2))


@pytest.mark.parametrize("sd", SCALES)
def test_the_inverse_agrees_with_300_bits_at_random_tails_to_two_to_the_minus_eighty(sd):
    random = np.random.default_rng(66)
    for power in range(1, 81):
        low = int.from_bytes(random.bytes(32), "little") >> power + 1
        bits = (1 << 255 - power) | low  # between 2^-(power + 1) and 2^-power
        expected = _inverse(MP.mpf(2 * bits + 1) / MP.mpf(2) ** 257, sd)
        assert rounded_gaussian(Words(_split(bits, False)), sd, 1)[0] == expected
        assert rounded_gaussian(Words(_split(bits, True)), sd, 1)[0] == -expected


@pytest.mark.parametrize("sd", SCALES)
def test_the_inverse_is_right_next_to_every_rounding_boundary(sd):
    wrong_in_doubles = 0
    for power in range(1, 81):
        below = max(0, math.floor(sd * float(stats.norm.isf(2.0**-power))))
        tail = upper(below + 0.5, sd)
        exact = int(MP.floor(tail * 2**256))
        if exact < 2**70:  # beyond the words handed out: the tail of the smallest scale
            continue
        for offset in (exact >> 40, exact >> 58, 1 << 66, 1 << 20):
            for bits, expected in ((exact + offset, below), (exact - offset, below + 1)):
                if bits < 2**255:
                    assert rounded_gaussian(Words(_split(bits, False)), sd, 1)[0] == expected
                    alone = np.rint(-sd * special.ndtri(float(MP.mpf(bits) / MP.mpf(2) ** 256)))
                    wrong_in_doubles += int(alone != expected)
    assert wrong_in_doubles > 50  # these are places where doubles alone cannot be trusted


@pytest.mark.parametrize("sd", [20.0, 1000.0])
def test_draws_agree_with_another_library_s_discrete_gaussian(sd):
    # At these scales the two laws differ in variance by 1/12 of a squared unit: nothing this test can see.
    opendp = pytest.importorskip("opendp.prelude", reason="OpenDP, the reference sampler, is not installed")
    opendp.enable_features("contrib")
    count = 60_000
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    theirs = np.array(opendp.m.make_gaussian(*space, scale=sd)([0] * count))
    edges = np.rint(sd * stats.norm.ppf(np.linspace(0, 1, 51)[1:-1]))

    def homogeneous(ours: Draws) -> float:
        counts = [np.bincount(np.searchsorted(edges, x, side="right"), minlength=50) for x in (ours, theirs)]
        return _independent(counts)

    assert homogeneous(rounded_gaussian(SeededStream(67), sd, count)) > LEVEL
    assert homogeneous(rounded_gaussian(SeededStream(67), 0.9 * sd, count)) < LEVEL


def _independent(table: Any) -> float:
    result: Any = stats.chi2_contingency(table)
    return float(result.pvalue)


def dependence(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Smallest p-value, times four, of correlations of values, signs and squares, and of binned pairs."""
    a, b = a.ravel().astype(float), b.ravel().astype(float)
    worst = 1.0
    for f in (lambda x: x, np.sign, np.square):
        correlation = float(np.corrcoef(f(a), f(b))[0, 1])
        worst = min(worst, 2 * float(stats.norm.sf(abs(correlation) * math.sqrt(len(a)))))
    bins = [np.searchsorted(np.quantile(x, np.arange(1, 8) / 8), x) for x in (a, b)]
    table = np.bincount(8 * bins[0] + bins[1], minlength=64).reshape(8, 8)
    return 4 * min(worst, _independent(table))


def test_coordinates_steps_and_runs_are_independent():
    size, steps = 400, 250
    block = (Block("flat", size, 1.0, 0.5), Block("other", size, 1.0, 0.5))

    def run(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        gate = gate_for((np.zeros((4, size)), np.zeros((4, size))), block, seed=seed, steps=steps)
        released = [gate.release(1.0) for _ in range(steps)]
        return np.stack([r["flat"] for r in released]), np.stack([r["other"] for r in released])

    (one, beside), (other, _) = run(1), run(2)
    assert chi_square(np.rint(one.ravel() / block[0].unit).astype(np.int64), 2**20 * math.sqrt(2)) > LEVEL
    assert dependence(one, other) > LEVEL  # runs
    assert dependence(one, beside) > LEVEL  # blocks of a release
    for lag in (1, 2, 7, 64):
        assert dependence(one[lag:], one[:-lag]) > LEVEL  # steps
        assert dependence(one[:, lag:], one[:, :-lag]) > LEVEL  # coordinates
    again, _ = run(1)
    assert dependence(one, again) < LEVEL  # a key used twice


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a, b: 0.98 * b + 0.2 * a,
        lambda a, b: np.abs(b) * np.sign(a),
        lambda a, b: np.abs(a) * np.sign(b),
        lambda a, b: np.where(np.arange(len(b)) % 20 == 0, a, b),  # one word in twenty used twice
        lambda a, b: np.where(np.abs(a) > 2.4e6, a, b),  # only large draws repeat
    ],
)
def test_dependence_is_seen(spoil):
    a, b = rounded_gaussian(SeededStream(68), 1e6, (2, 100_000))
    assert dependence(a, b) > LEVEL
    assert dependence(a, spoil(a, b)) < LEVEL


def _forked(draw: Callable[[], bytes]) -> bytes:
    """What a forked child draws."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, draw())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    return drawn


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_secure_streams_of_forked_and_spawned_processes_share_no_words():
    stream = SecureStream()
    stream.words(3)
    code = (
        "import sys; from dpsep.privacy.noise import SecureStream;"
        "sys.stdout.buffer.write(SecureStream().words(400).tobytes())"
    )
    drawn = [_forked(lambda: stream.words(400).tobytes()) for _ in range(3)]
    # A child's child, whose key was made in the child.
    drawn.append(_forked(lambda: _forked(lambda: stream.words(400).tobytes())))
    drawn += [subprocess.run([sys.executable, "-c", code], capture_output=True).stdout for _ in range(2)]
    drawn.append(stream.words(400).tobytes())
    words = np.concatenate([np.frombuffer(part, np.uint64) for part in drawn])
    assert len(words) == 7 * 400
    assert len(np.unique(words)) == len(words)
    seeded = SeededStream(1)  # repeats in a fork, which is why it is not secure
    assert _forked(lambda: seeded.words(8).tobytes()) == seeded.words(8).tobytes()


class Counting:
    """A seeded stream that keeps how many words were asked for, call by call."""

    secure = False

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._inner = SeededStream(69)

    def words(self, n: int) -> NDArray[np.uint64]:
        self.calls.append(n)
        return self._inner.words(n)


def _asked(records: tuple[NDArray[np.float64], ...], rate: float | None) -> list[int]:
    """Words asked for by four releases, at noise so large that many draws are refined."""
    stream = Counting()
    blocks = (Block("flat", 3, 2.0, 0.5), Block("outer", 8, 5.0, 0.5, "outer"))
    sampling = None if rate is None else poisson(rate)
    part = mechanism(len(records[0]), steps=4, sampling=sampling, sigma=2000.0)
    gate = Gate(records, part, blocks, Parts(), permit_for(part), stream=stream)
    for _ in range(4):
        gate.release(1.0)
    return stream.calls


@pytest.mark.parametrize("rate", [None, 0.3])
def test_the_words_read_do_not_depend_on_the_records(rate, monkeypatch):
    zero = (np.zeros((50, 3)), np.zeros((50, 8)))
    tables = [
        (vectors(50, 3), vectors(50, 8)),
        (1e9 * vectors(50, 3, seed=2), 1e-9 * vectors(50, 8)),
        (np.full((50, 3), np.nan), np.full((50, 8), np.inf)),
    ]
    asked = _asked(zero, rate)
    assert asked.count(1) >= 1  # some draws were refined
    assert all(_asked(table, rate) == asked for table in tables)

    honest = Gate._noised

    def lazy(gate: Gate, block: Block, total: Draws) -> NDArray[np.float64]:
        return honest(gate, block, total) if total.any() else total.astype(np.float64)

    monkeypatch.setattr(Gate, "_noised", lazy)
    assert _asked(tables[0], rate) != _asked(zero, rate)
