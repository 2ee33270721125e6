r"""Noise for releases: secure streams of random words, and rounded Gaussian noise drawn with its exact law.

A release is an integer vector on a public grid plus integer noise. The noise is a *rounded Gaussian*,
:math:`K = \lfloor X + 1/2 \rfloor` with :math:`X \sim N(0, s^2)` and :math:`s` in grid units. It is drawn by
inverting the normal tail at a 64-bit uniform in double precision with an error bound, and the rare draws that
the bound leaves undecided are settled in multiple precision with further random bits, so that the law of the
integer is exact whatever floating point does (Mironov, 2012, shows what goes wrong otherwise).

**Privacy.** *Why Gaussian accounting holds exactly.* For an integer :math:`a` and real :math:`x`,
:math:`\lfloor a + x + 1/2 \rfloor = a + \lfloor x + 1/2 \rfloor`. So :math:`a + K` has the law of
:math:`\mathrm{round}(a + X)`: a function, the same for all data, of the continuous Gaussian release
:math:`a + X`. By post-processing every guarantee of the continuous Gaussian mechanism (full batch or
subsampled, one step or a composition) holds for the integer release, coordinate by coordinate and jointly.
*Assumptions.* The sums are integers (the gate's duty); the words are uniform and secret, that is, ChaCha20
with a 256-bit key from the operating system is indistinguishable from random. Only results of a stream
whose ``secure`` is true may be released. *Why the law is exact.* Write a word as a sign bit and :math:`k <
2^{63}`. With further bits unread, :math:`p = (k + U) / 2^{64}`, :math:`U` uniform on (0, 1), is uniform on
(0, 1/2), and :math:`x = \Phi^{-1}(1 - p)` is a half-normal. By the mean value theorem and Mills' ratio
:math:`p / \varphi(x) \le \min(\sqrt{\pi/2}, 1/x)`, moving :math:`U` from 1/2 to anywhere in (0, 1) moves
:math:`x` by at most :math:`1 / (2 k \max(x, \sqrt{2/\pi})) \le 1 / ((k + 1/2) \max(x, 1/2))` for :math:`k
\ge 1`. The computed inverse errs by at most :math:`2^{-47} \max(1, x)` (its peak error is about eight times
smaller; a test holds it to a quarter). If the sum of these, times :math:`s` and plus the rounding of the
product, does not reach the next half-integer, the integer is decided; otherwise, and always for :math:`k =
0`, more bits of the *same* :math:`p` are read and compared with the normal tail at the half-integers.
The proof is in docs/proofs/gate.md.
"""

import math
import os
import threading
import weakref
from hashlib import sha256
from typing import Any, Protocol

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray
from randomgen import ChaCha
from scipy.special import ndtri, ndtri_exp

MIN_SD = 2.0**-10
"""Smallest positive noise scale, in grid units, that `rounded_gaussian` accepts."""
MAX_SD = 2.0**44
"""Largest noise scale, in grid units, that `rounded_gaussian` accepts."""

INVERSE_ERROR = 2.0**-47  # of the computed normal quantile x, in units of max(1, x)
_CHUNK = 1 << 14  # draws a pass: some arrays of 128 kB stay in the second-level cache
_MAX_ROUNDS = 64  # 4096 bits undecided: impossible for a working stream
_INT64_LIMIT = 1 << 63


class WordStream(Protocol):
    """A source of independent uniform 64-bit words."""

    secure: bool
    """Whether results made from this stream may be released."""

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` words."""
        ...


class _ChaChaStream:
    """ChaCha20 words under a 256-bit key; the state is never shown, copied or written."""

    secure: bool = False

    def __init__(self, key: bytes) -> None:
        self._rekey(key)

    def _rekey(self, key: bytes) -> None:
        self._lock = threading.Lock()
        self._generator = ChaCha(key=int.from_bytes(key, "little"), rounds=20)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` uniform 64-bit words."""
        with self._lock:
            return np.asarray(self._generator.random_raw(n), dtype=np.uint64)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: its state would let a reader of the copy "
            "remove the noise. Make a new stream in the process that needs one."
        )

    def __reduce_ex__(self, protocol: object) -> str | tuple[object, ...]:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secure={self.secure})"


class SecureStream(_ChaChaStream):
    """ChaCha20 keyed with 256 bits from the operating system; reseeds itself in a forked process.

    **Privacy.** Its words are computationally indistinguishable from uniform to whoever does not hold the
    key, which exists only in this process's memory. A fork would repeat the noise of its parent, so every
    stream takes a new key in the child before the child can draw from it.

    Examples
    --------
    >>> stream = SecureStream()
    >>> stream
    SecureStream(secure=True)
    >>> stream.words(3).dtype, bool((stream.words(4) == SecureStream().words(4)).any())
    (dtype('uint64'), False)
    """

    secure: bool = True

    def __init__(self) -> None:
        super().__init__(os.urandom(32))
        self._pid = os.getpid()
        _SECURE_STREAMS.add(self)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next ``n`` uniform 64-bit words."""
        if os.getpid() != self._pid:  # a fork that bypassed the interpreter's hook
            self._reseed()
        return super().words(n)

    def _reseed(self) -> None:
        self._rekey(os.urandom(32))
        self._pid = os.getpid()


class SeededStream(_ChaChaStream):
    """ChaCha20 under a key made from a seed: for tests and experiments that must repeat, not for release.

    Parameters
    ----------
    seed
        Any integer; the key is its SHA-256.

    Examples
    --------
    >>> bool((SeededStream(7).words(4) == SeededStream(7).words(4)).all()), SeededStream(7).secure
    (True, False)
    """

    secure: bool = False

    def __init__(self, seed: int) -> None:
        super().__init__(sha256(f"dpsep seeded stream {int(seed)}".encode()).digest())


_SECURE_STREAMS: "weakref.WeakSet[SecureStream]" = weakref.WeakSet()


def _reseed_after_fork() -> None:
    for stream in list(_SECURE_STREAMS):
        stream._reseed()


if hasattr(os, "register_at_fork"):  # absent where processes cannot fork
    os.register_at_fork(after_in_child=_reseed_after_fork)


def rounded_gaussian(stream: WordStream, sd: ArrayLike, size: int | tuple[int, ...]) -> NDArray[np.int64]:
    r"""Draw integers with the exact law of :math:`\mathrm{round}(N(0, s^2))`.

    Parameters
    ----------
    stream
        Source of words; one word a draw, and more for the few draws that need refining.
    sd
        Standard deviation in grid units, broadcast to ``size``: zero, or between `MIN_SD` and `MAX_SD`. The
        double given is taken as an exact real number.
    size
        Shape of the result.

    Returns
    -------
        Integers; independent, zero where ``sd`` is zero.

    Notes
    -----
    **Privacy.** Adding the result to integers of L2 sensitivity :math:`\Delta` (grid units, all coordinates
    with the same ``sd``) is the Gaussian mechanism with noise multiplier :math:`s / \Delta`, post-processed:
    see the module's notes for the proof. Needs a stream whose ``secure`` is true.

    Examples
    --------
    >>> rounded_gaussian(SeededStream(1), 2.5, 6).shape
    (6,)
    >>> rounded_gaussian(SeededStream(1), [0.0, 0.0], 2)
    array([0, 0])
    """
    scale = np.asarray(sd, dtype=np.float64)
    if not np.all((scale == 0) | ((scale >= MIN_SD) & (scale <= MAX_SD))):
        raise ValueError(
            f"sd must be 0 or between {MIN_SD:g} and {MAX_SD:g} grid units everywhere; choose a finer or "
            "coarser grid so that the noise lies in this range."
        )
    out = np.empty(size, dtype=np.int64)
    flat = out.reshape(-1)
    scalar = scale.ndim == 0
    scales = scale if scalar else np.broadcast_to(scale, out.shape).reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        part[:] = _rounded_chunk(
            stream, stream.words(part.size), scales if scalar else scales[start : start + _CHUNK]
        )
    return out


def float_gaussian(stream: WordStream, sd: ArrayLike, size: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Draw Gaussian noise in floating point. Not for release.

    **Privacy.** None is claimed: the low bits of a floating-point sum can reveal the number that was added,
    and the tails are those of a 64-bit uniform. For experiments only, whose results are marked so.

    Parameters
    ----------
    stream
        Source of words, one a draw.
    sd
        Standard deviation, not negative, broadcast to ``size``.
    size
        Shape of the result.

    Examples
    --------
    >>> float_gaussian(SeededStream(1), 1.0, (2, 3)).shape
    (2, 3)
    """
    scale = np.asarray(sd, dtype=np.float64)
    if not np.all((scale >= 0) & np.isfinite(scale)):
        raise ValueError("sd must be finite and not negative.")
    out = np.empty(size, dtype=np.float64)
    flat = out.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        words = stream.words(part.size)
        part[:] = np.copysign(_tail_quantile(_tail_bits(words)), words.view(np.int64))
    out *= scale
    return out


def _tail_bits(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the 63 bits below the sign bit, as integers."""
    return words.view(np.int64) & np.int64(_INT64_LIMIT - 1)


def _tail_quantile(k: NDArray[np.int64]) -> NDArray[np.float64]:
    r"""Return :math:`\Phi^{-1}(1 - (k + 1/2) / 2^{64})`, within `INVERSE_ERROR` times max(1, itself)."""
    tail = k.astype(np.float64)
    tail += 0.5
    tail *= 2.0**-64
    quantile = ndtri(tail)
    return np.negative(quantile, out=quantile)


def _rounded_chunk(
    stream: WordStream, words: NDArray[np.uint64], sd: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Round the half-normals of ``words``, refine the undecided, put the signs on."""
    k = _tail_bits(words)
    x = _tail_quantile(k)
    bound = np.maximum(x, 1.0)
    bound *= INVERSE_ERROR
    bound += 1.0 / ((k + 0.5) * np.maximum(x, 0.5))
    # The product sd * x, this bound and the last sum are rounded too, by some 2^-52 of x, or of 1/2 when it
    # matters (then sd * x >= 1/2): half an INVERSE_ERROR more covers that sixteen times over.
    bound += INVERSE_ERROR / 2 * x
    bound *= sd
    y = np.multiply(x, sd, out=x)
    nearest = np.rint(y)
    off = np.abs(y - nearest)
    off += bound
    undecided = np.flatnonzero((off >= 0.5) | (k == 0))
    magnitude = nearest.astype(np.int64)
    scales = np.broadcast_to(sd, k.shape)
    for i in undecided:
        word, scale = int(k[i]), float(scales[i])
        if word > 0 and bound[i] < 0.25:
            magnitude[i] = _side(stream, word, scale, math.floor(y[i]))
        else:
            magnitude[i] = _refine(stream, word, scale)
    return np.where(words.view(np.int64) < 0, -magnitude, magnitude)


def _side(stream: WordStream, k: int, sd: float, below: int) -> int:
    """Decide between ``below`` and the next integer: on which side of the half-integer between them is x?

    The computed product lies in [below, below + 1] and errs by less than 1/4, so that the true one lies less
    than 3/4 from the half-integer, and no third integer is in question. `_refine` needs no such bound, and
    several tail probabilities instead of one.
    """
    tail, bits = k, 64
    for _ in range(_MAX_ROUNDS):
        tail = (tail << 64) | int(stream.words(1)[0])
        bits += 64
        mp = thread_precision(bits + 64)
        boundary = _tail_at(mp.mpf(below) + 0.5, sd, mp)
        doubt = _doubt(mp)
        if mp.ldexp(tail, -bits) >= boundary * (1 + doubt):
            return below
        if mp.ldexp(tail + 1, -bits) <= boundary * (1 - doubt):
            return below + 1
    raise _broken()


def _refine(stream: WordStream, k: int, sd: float) -> int:
    """Decide one draw exactly: extend the bits of its tail probability until they determine the integer."""
    if sd == 0.0:
        return 0
    tail, bits = k, 64
    for _ in range(_MAX_ROUNDS):
        tail = (tail << 64) | int(stream.words(1)[0])
        bits += 64
        if tail == 0:
            continue
        decided = _decide(tail, bits, sd)
        if decided is not None:
            if decided >= _INT64_LIMIT:
                raise OverflowError(
                    "a noise draw does not fit 64-bit integers; the stream of words is broken."
                )
            return decided
    raise _broken()


def _broken() -> RuntimeError:
    return RuntimeError(
        f"{64 * _MAX_ROUNDS} random bits did not decide one draw; the stream of words is broken. "
        "Release nothing made with it."
    )


def _decide(tail: int, bits: int, sd: float) -> int | None:
    """Return the integer if every p in [tail, tail + 1] / 2^bits gives the same one, else None."""
    mp = thread_precision(bits + 64)
    low, high = mp.ldexp(tail, -bits), mp.ldexp(tail + 1, -bits)
    quantile = -float(ndtri_exp(float(mp.log(low))))  # a double is enough to name three candidates
    guess = int(mp.floor(mp.mpf(sd) * mp.mpf(quantile) + 0.5))
    for candidate in (guess, guess - 1, guess + 1):
        if candidate >= 0 and _all_round_to(candidate, low, high, sd, mp):
            return candidate
    return None


def _all_round_to(candidate: int, low: Any, high: Any, sd: float, mp: Any) -> bool:
    """Whether all tail probabilities in [low, high] surely round to ``candidate``."""
    doubt = _doubt(mp)
    if low < _tail_at(mp.mpf(candidate) + 0.5, sd, mp) * (1 + doubt):
        return False
    return candidate == 0 or high <= _tail_at(mp.mpf(candidate) - 0.5, sd, mp) * (1 - doubt)


def _tail_at(boundary: Any, sd: float, mp: Any) -> Any:
    """Return the probability that a Gaussian of this deviation lies above ``boundary``."""
    return mp.erfc(boundary / (mp.mpf(sd) * mp.sqrt(2))) / 2


def _doubt(mp: Any) -> Any:
    """Return a relative error far above that of erfc at this precision."""
    return mp.ldexp(1, 32 - mp.prec)


_THREAD = threading.local()


def thread_precision(precision: int) -> Any:
    """Return this thread's own multiple-precision context: the library's shared one can change under us."""
    mp: Any = getattr(_THREAD, "mp", None)
    if mp is None:
        mp = _THREAD.mp = mpmath.MPContext()
    mp.prec = precision
    return mp
