r"""Stochastic EP for models of several numbers a unit (`dpsep.models.multi_predictor`), in its stable form.

The update is that of `dpsep.inference.sep_newton`; this file stands between it and the gate. It hands
contributions their public values, puts released triangles together to matrices, and leads likelihoods that
are not log-concave: on the way, negative parts of local factors are dropped, which shortens steps and keeps
the geometry positive; near the fixed point they count, so that the fixed point is SEP's own.

**Privacy.** Post-processing of what a gate released. This file sees no record.
The proof is in docs/proofs/own-model.md.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.inference import sep_newton
from dpsep.inference.gate_protocol import Summed
from dpsep.models.multi_predictor import LinkedPublic, from_triangle

Array = NDArray[np.float64]

NEAR = 0.05
"""Without noise: a step this short, in posterior standard deviations, is near the fixed point."""


class Matrices:
    """A gate whose released triangles are matrices, by the interface of `Summed`.

    Parameters
    ----------
    gate
        Releases ``mean`` and the triangle ``precision``.
    dimension
        Number of weights.

    Attributes
    ----------
    positive
        Whether negative parts of local factors are dropped in the next release.
    """

    def __init__(self, gate: Summed, dimension: int) -> None:
        self._gate = gate
        self._dimension = dimension
        self.positive = True
        self.records = gate.records
        self.expected_batch = gate.expected_batch
        self.deviations = gate.deviations

    def release(self, public: Any) -> dict[str, Array]:
        """Return one step's sums, by block name."""
        released = self._gate.release(LinkedPublic(public, np.asarray(self.positive)))  # pyright: ignore[reportArgumentType]
        return released | {"precision": from_triangle(released["precision"], self._dimension)}


def run(
    gate: Summed,
    settings: sep_newton.Settings,
    steps: int,
    tolerance: float = 0.0,
    watch: Callable[[sep_newton.State], None] | None = None,
) -> sep_newton.State:
    """Take `steps` steps; stop earlier only where nothing is private and the mean rests.

    Parameters
    ----------
    tolerance
        In posterior standard deviations; ignored where the gate adds noise.
    watch
        Called with the state after each step.
    """
    matrices = Matrices(gate, len(settings.prior_mean))
    noisy = any(value > 0 for value in matrices.deviations.values())
    state = sep_newton.init(settings)
    for number in range(steps):
        if noisy:
            matrices.positive = number < settings.warmup
        state, info = sep_newton.step(matrices, settings, state)
        if watch is not None:
            watch(state)
        if noisy:
            continue
        if not matrices.positive and info.moved < tolerance:
            break
        matrices.positive = matrices.positive and info.moved > NEAR
    return state
