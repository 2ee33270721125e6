"""Networks of independent weights, compiled to machine code by Numba: the same steps, several times as fast.

XLA runs a step on one record as some twenty kernels of a few hundred numbers each, most of whose time is the
calling. Here a pass over the records is one loop. Numba is optional (the extra ``fast``); without it, and for
models that are not covered (`covers`), algorithms run in their JAX form, which is also what tests compare
with. Files: `kernels` has one record's way through a network, `updates` what follows it, `layout` the arrays,
`loops` and `batches` the loops over records.

**Privacy.** Nothing here is private: records are read without a gate.
"""

from functools import cache
from importlib import import_module
from typing import Any

from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.network_model import NetworkRegression

WORTH = 3e7
"""Records visited times weights, from which on compiling (once, then it is kept) is worth its seconds."""


def worth(model: Any, visits: int) -> bool:
    """Whether so many visits of a record are to be compiled: there is a form, and enough to do."""
    return covers(model) and visits * model.size >= WORTH and available()


@cache
def available() -> bool:
    """Whether Numba is installed and loads beside the NumPy that is here."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def covers(model: Any) -> bool:
    """Whether there is a compiled form of this model: rectified regression with concentrated noise.

    Examples
    --------
    >>> covers(NetworkRegression((8, 50, 1), "sigmoid"))
    False
    """
    return (
        isinstance(model, NetworkRegression)
        and model.activation == "relu"
        and type(model.noise_model) is ConcentratedNoise
    )
