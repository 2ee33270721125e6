"""What tests run in: one cache of compiled programs, a temporary folder in memory, bounded processes.

Settings are made here, before JAX is imported, and in the environment, so that the workers of a run and the
processes that tests start have them, too.
"""

import ctypes
import functools
import gc
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
CACHE = ROOT / "build" / "compiled"
"""Programs that were compiled, kept between runs: `make clean` drops them."""
BYTECODE = ROOT / "build" / "bytecode"
MOST_CACHED = 2**31
"""Bytes of programs beyond which the cache begins anew."""
MOST_MAPS = 15_000
"""Maps of memory after which a process drops its programs: beyond 65,530 Linux lets the compiler crash."""
MOST_MEMORY = 2**31
"""Bytes of memory after which a process drops its programs."""
MORE_MEMORY = 2**28
"""Bytes more than it then holds after which it does so again."""


def _share_compiled_programs() -> None:
    """Programs are compiled once a run, whichever process asks first, and not again in the next run."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def _keep_bytecode() -> None:
    """Where Python may keep no bytecode beside sources, it is kept here.

    Without any, each process that tests start compiles all of JAX, pandas and scikit-learn: four seconds.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))


def _settle_threads_and_traces() -> None:
    """One thread of linear algebra a process, and programs that do not remember where they were written.

    Two workers share two cores and their matrices are small; to each the other's spinning threads were load.
    """
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")


def _work_in_memory() -> None:
    """Ledgers and checkpoints sync every row; on a disk that is a quarter of the time of some tests."""
    memory = Path("/dev/shm")
    usable = "TMPDIR" not in os.environ and memory.is_dir() and os.access(memory, os.W_OK)
    if usable and shutil.disk_usage(memory).free > 2**32:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


_share_compiled_programs()
_keep_bytecode()
_settle_threads_and_traces()
_work_in_memory()
# Tracing leaves many objects, and by Python's own thresholds a quarter of the time went into looking at them.
gc.set_threshold(100_000, 50, 100)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shuffle SEED``: files in random order, and the tests of each."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, shuffled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle where that is asked for; a file stays together, since its tests share what fixtures made."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    coin = random.Random(seed)
    shuffled = list(files.values())
    coin.shuffle(shuffled)
    for tests in shuffled:
        coin.shuffle(tests)
    items[:] = [item for tests in shuffled for item in tests]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the programs of a thread share a context of MLIR; making one for each is most of lowering them."""
    if session.items:
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context
        _context_of = functools.cache(lambda _: make())
        mlir.make_ir_context = lambda: _context_of(threading.get_ident())
        _caches.append(_context_of.cache_clear)


def pytest_configure(config: pytest.Config) -> None:
    """Begin a cache that grew too large anew; one process of a run does."""
    if hasattr(config, "workerinput") or not CACHE.is_dir():
        return
    if sum(path.stat().st_size for path in CACHE.iterdir() if path.is_file()) > MOST_CACHED:
        shutil.rmtree(CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def _leaves_no_figure_open() -> Iterator[None]:
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def _few_compiled_programs() -> Iterator[None]:
    yield
    _bounds["tests"] += 1
    # Counting maps takes ten milliseconds, and no ten tests add as many as there is room for.
    if _memory() > _bounds["memory"] or (_bounds["tests"] % 10 == 0 and _maps() > MOST_MAPS):
        import jax

        from dpsep.privacy import isolation

        isolation.forget()
        jax.clear_caches()
        for forget in _caches:
            forget()
        gc.collect()
        _give_back()
        # What the process keeps all the same is no reason to drop its programs after each test.
        _bounds["memory"] = max(MOST_MEMORY, _memory() + MORE_MEMORY)


_caches: list[Callable[[], None]] = []
_bounds = {"memory": MOST_MEMORY, "tests": 0}


def _give_back() -> None:
    """Return memory that was freed to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _maps() -> int:
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


def _memory() -> int:
    """Bytes that this process holds now."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0
