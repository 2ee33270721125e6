"""One thread for small matrices: more cost what they bring, on matrices of this size."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread while the context lasts."""
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    """Find the libraries once: looking for them costs more than a step."""
    return ThreadpoolController()
