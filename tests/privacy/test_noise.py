"""The noise has its exact law, the streams are secret, and the refinement decides what it must."""

import copy
import math
import os
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsep.privacy import noise
from dpsep.privacy.noise import SecureStream, SeededStream, float_gaussian, rounded_gaussian

MP: Any = mpmath.mp.clone()
MP.prec = 200


class FakeStream:
    """Hands out chosen words; asking for more fails."""

    secure = False

    def __init__(self, words: Sequence[int]) -> None:
        self.left = list(words)

    def words(self, n: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n, "more words asked for than expected"
        return np.array(taken, dtype=np.uint64)


def gaussian_mass(k: int, sd: float) -> float:
    """P(round(N(0, sd^2)) = k), from mpmath."""
    a, b = (abs(k) - MP.mpf(1) / 2) / sd, (abs(k) + MP.mpf(1) / 2) / sd
    return float((MP.erfc(a / MP.sqrt(2)) - MP.erfc(b / MP.sqrt(2))) / 2)


def exact_integer(p: Any, sd: float) -> int:
    """round(sd * quantile) at tail probability p, by Newton's method in 200 bits."""
    x = MP.mpf(float(stats.norm.isf(float(p))))
    for _ in range(6):
        x += (MP.erfc(x / MP.sqrt(2)) / 2 - p) * MP.sqrt(2 * MP.pi) * MP.exp(x * x / 2)
    return int(MP.floor(MP.mpf(sd) * x + MP.mpf(1) / 2))


@pytest.mark.parametrize("sd", [0.1, 0.3, 1.0, 10.0, 1e3])
def test_rounded_gaussian_has_the_exact_masses(sd):
    n = 400_000
    draws = rounded_gaussian(SeededStream(11), sd, n)
    width = max(1, int(sd / 5))  # pool integers so that cells have mass
    reach = math.ceil(4 * sd / width)
    cells = np.floor_divide(draws + width // 2, width).clip(-reach - 1, reach + 1)
    expected = np.array(
        [
            sum(gaussian_mass(k, sd) for k in range(c * width - width // 2, (c + 1) * width - width // 2))
            for c in range(-reach, reach + 1)
        ]
    )
    inner = np.bincount(cells + reach + 1, minlength=2 * reach + 3)
    observed = np.append(inner[1:-1], inner[0] + inner[-1])
    expected = np.append(expected, 1 - expected.sum()) * n
    keep = expected > 5
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    statistic = np.sum((observed - expected) ** 2 / np.maximum(expected, 1e-3))
    assert stats.chi2.sf(statistic, max(1, keep.sum())) > 1e-6


@pytest.mark.parametrize("sd", [1e6, 1e9])
def test_rounded_gaussian_is_normal_at_large_scales(sd):
    draws = rounded_gaussian(SeededStream(12), sd, 200_000)
    assert stats.kstest(draws / sd, "norm").pvalue > 1e-6
    assert np.std(draws) == pytest.approx(sd, rel=0.01)


@pytest.mark.parametrize("sd", [0.01, noise.MIN_SD])
def test_noise_far_below_the_grid_is_zero(sd):
    assert not rounded_gaussian(SeededStream(1), sd, 1000).any()  # |X| >= 1/2 has probability below 1e-500


def test_scales_broadcast_and_coordinates_are_uncorrelated():
    draws = rounded_gaussian(SeededStream(13), [0.0, 5.0, 500.0, 5e4], (50_000, 4)).astype(float)
    assert not draws[:, 0].any()
    np.testing.assert_allclose(draws[:, 1:].std(axis=0), [np.sqrt(25 + 1 / 12), 500, 5e4], rtol=0.02)
    for power in (1, 2):  # fourth moments: the squares are uncorrelated too
        correlation = np.corrcoef(draws[:, 1:].T ** power)
        assert np.abs(correlation - np.eye(3)).max() < 5 / np.sqrt(50_000)
    column = draws[:, 3]
    assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 5 / np.sqrt(50_000)


def test_the_quantile_is_within_a_quarter_of_its_declared_error():
    random = np.random.default_rng(0)
    edge = math.exp(-2) * 2.0**64  # where the routine changes its formula, and is at its worst just above
    k = np.concatenate(
        [
            random.integers(0, 2**63, 4000),
            (2.0 ** random.uniform(0, 62.99, 4000)).astype(np.int64),
            2**63 - 1 - (2.0 ** random.uniform(0, 62, 1000)).astype(np.int64),
            np.linspace(0.98 * edge, 1.2 * edge, 2500).astype(np.int64),
            np.array([1, 2, 3, 2**63 - 1]),
        ]
    )
    for i, x in zip(k, noise._tail_quantile(k), strict=True):
        # One Newton step from the computed quantile is exact to the square of its error.
        p, at = MP.mpf(2 * int(i) + 1) / 2**65, MP.mpf(float(x))
        error = (MP.erfc(at / MP.sqrt(2)) / 2 - p) * MP.sqrt(2 * MP.pi) * MP.exp(at * at / 2)
        assert abs(error) <= noise.INVERSE_ERROR / 4 * max(1, at)


@pytest.mark.parametrize("sd", [0.7, 37.0, 1e5, 2.0**40])
def test_draws_at_a_rounding_boundary_are_decided_as_in_200_bits(sd):
    decided = 0
    for boundary in (0.5, 1.5, round(sd) + 0.5, round(2.3 * sd) + 0.5):
        tail = MP.erfc(MP.mpf(boundary) / (MP.mpf(sd) * MP.sqrt(2))) / 2
        at = int(MP.floor(tail * 2**64))
        for k in (at - 1, at, at + 1):
            for extra in (1, 2**63, 2**64 - 2):
                # Two words fix the tail probability to within 2^-128: both ends give one integer, this one.
                ends = (MP.mpf(k * 2**64 + extra + end) / 2**128 for end in (0, 1))
                expected = {exact_integer(p, sd) for p in ends}
                if len(expected) == 1:
                    decided += 1
                    assert noise._refine(FakeStream([extra]), k, sd) in expected
                    below = int(boundary - 0.5)
                    assert noise._side(FakeStream([extra]), k, sd, below) in expected
                    assert rounded_gaussian(FakeStream([k, extra, 0]), sd, 1)[0] in expected
    assert decided >= 30


def test_refining_extends_the_first_word_and_reads_on_until_decided():
    sd, boundary = 3.0, 2.5
    tail = MP.erfc(MP.mpf(boundary) / (MP.mpf(sd) * MP.sqrt(2))) / 2
    bits = int(MP.floor(tail * 2**192))  # the tail's own bits: undecided until a word differs from them
    k, second, third = bits >> 128, (bits >> 64) & (2**64 - 1), bits & (2**64 - 1)
    above = FakeStream([k, second, third + 1000])  # a larger tail: a smaller magnitude
    assert rounded_gaussian(above, sd, 1)[0] == 2
    below = FakeStream([k | 2**63, second, third - 1000])
    assert rounded_gaussian(below, sd, 1)[0] == -3
    assert not above.left
    assert not below.left


def test_the_extreme_tail_is_refined_and_a_dead_stream_is_refused():
    # k = 0 and then 2^63: p = 2^-65.
    assert rounded_gaussian(FakeStream([0, 2**63]), 1.0, 1)[0] == round(float(stats.norm.isf(2.0**-65)))
    with pytest.raises(RuntimeError, match="broken"):
        rounded_gaussian(FakeStream([0] * 100), 1.0, 1)


@pytest.mark.parametrize("sd", [-1.0, np.nan, np.inf, 1e-5, 2.0**50])
def test_scales_out_of_range_raise(sd):
    with pytest.raises(ValueError, match="grid units"):
        rounded_gaussian(SeededStream(1), sd, 3)


def test_the_ends_of_the_range_are_in_it():
    assert np.abs(rounded_gaussian(SeededStream(1), noise.MAX_SD, 3)).max() > noise.MAX_SD / 10
    assert not rounded_gaussian(SeededStream(1), noise.MIN_SD, 3).any()


def test_words_are_chacha20():
    key = bytes(range(32))
    stream = noise._ChaChaStream(key)
    expected = b"".join(_chacha_block(key, counter) for counter in range(3))
    assert stream.words(24).astype("<u8").tobytes() == expected


def _chacha_block(key: bytes, counter: int) -> bytes:
    """One block of ChaCha20 with a 128-bit counter, straight from its definition (Bernstein, 2008)."""
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        *struct.unpack("<4I", counter.to_bytes(16, "little")),
    ]
    s = list(start)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            mixed = s[z] ^ s[x]
            s[z] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(s, start, strict=True)))


def test_secure_streams_differ_and_seeded_ones_repeat():
    assert not np.array_equal(SecureStream().words(8), SecureStream().words(8))
    assert np.array_equal(SeededStream(5).words(8), SeededStream(5).words(8))
    assert not np.array_equal(SeededStream(5).words(8), SeededStream(6).words(8))
    assert SecureStream().secure
    assert not SeededStream(5).secure


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_draws_other_words():
    stream = SecureStream()
    stream.words(3)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, stream.words(8).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    assert len(theirs) == 64
    assert theirs != stream.words(8).tobytes()


@pytest.mark.parametrize("stream", [SecureStream(), SeededStream(3)])
def test_streams_cannot_be_copied_or_shown(stream):
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            way(stream)
    assert repr(stream) == f"{type(stream).__name__}(secure={stream.secure})"


def test_float_gaussian_is_normal():
    draws = float_gaussian(SeededStream(4), [1.0, 3.0], (100_000, 2))
    assert stats.kstest(draws[:, 0], "norm").pvalue > 1e-6
    assert stats.kstest(draws[:, 1] / 3, "norm").pvalue > 1e-6
    with pytest.raises(ValueError, match="sd must be"):
        float_gaussian(SeededStream(4), -1.0, 2)
