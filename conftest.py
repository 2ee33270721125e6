"""Compiled programs are dropped when there are many: each holds maps of memory, and a process may have few.

Linux allows a process 65,530 maps by default; beyond that the compiler crashes, and a test run compiles
thousands of programs. For the same reason `make test` runs in three parts.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

MAPS = Path("/proc/self/maps")
MOST = 15_000
"""Maps of memory after which compiled programs are dropped."""


@pytest.fixture(autouse=True)
def _few_compiled_programs() -> Iterator[None]:
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST:
        import jax

        jax.clear_caches()
        gc.collect()
