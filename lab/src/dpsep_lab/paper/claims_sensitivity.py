r"""Proposition 1 put to the test: how far one record can move theta in one step of Algorithm 3.

The proposition says that :math:`\theta_{new} = \theta + (\gamma / N) (\theta_{f_n} - \theta_f)` (equation 4)
moves by at most :math:`2 \gamma C / N` where one record is replaced, with :math:`\theta_{f_n}` clipped to
norm C. Where a record's contribution is left out instead (zero-out), half of that. Here the largest move is
*searched for* with the steps of `dpsep.inference.sep` themselves (`dpsep_lab.paper.claims_search`) and given
as a multiple of the claim. A search finds a lower bound of the truth, so a multiple above 1 refutes, and one
near 1 says that no smaller claim would do.

Three things beside it:

- *Without the clip* there is no bound for a linear model or a mixture: the multiple grows with the range that
  is searched. A probit factor is bounded by itself.
- *A clip of each natural parameter.* "The norm clipping applied to each natural parameter" (section 3.1), to
  C each, allows a joint move of up to :math:`\sqrt L` times the claim for L natural parameters. So noise of
  the claimed size in each of them pays for one of L releases.
- *The whole path.* The proof holds :math:`\theta_f` fixed. The map from the records to theta after several
  steps without noise is another one: a later record's factor depends on the cavity that the replaced record
  moved, and the move may exceed the claim. That is no flaw of DP-SEP, which releases every step with noise:
  adaptive composition conditions on the released theta, so that :math:`\theta_f` *is* the same in both
  worlds. It does mean that the noise of one step, added once after several steps without, would be too
  little. (A linear model's factors do not depend on the cavity; there the move only fades.)

**Privacy**: none. Records are made up, and nothing is released.
"""

import math
from collections.abc import Iterable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.inference import sep
from dpsep.privacy.accounting import gaussian_epsilon, gaussian_mu
from dpsep_lab.paper.claims_search import (
    CASES,
    FULL,
    LONGEST,
    QUICK,
    Bounds,
    Case,
    Effort,
    climb,
    path_moves,
    step_moves,
)

__all__ = ["CASES", "CLIPS", "FULL", "PATHS", "QUICK", "largest_move", "path_move", "rows"]

Clipping = Literal["joint", "each", "none"]
Relation = Literal["replace-one", "zero-out"]
Row = dict[str, Any]

CLIPS = (0.3, 1.0, 3.0)
PATHS = (1, 2, 4, 8)
"""Steps of a path, of which the replaced record is the first."""


def rows(cases: Iterable[Case] = CASES, clips: Iterable[float] = CLIPS, effort: Effort = FULL) -> list[Row]:
    """Return what the searches found, one row a figure.

    Parameters
    ----------
    cases
        Likelihoods.
    clips
        Values of C.
    effort
        `FULL`, or `QUICK` for a glance.
    """
    table: list[Row] = []
    clippings: tuple[Clipping, ...] = ("joint", "each", "none")
    relations: tuple[Relation, ...] = ("replace-one", "zero-out")
    values = tuple(clips)
    for case in cases:
        for clip in values:
            for clipping in clippings:
                for relation in relations:
                    found = largest_move(case, clip, clipping, relation, effort=effort)
                    table.append(_move_row(case, "one step", clip, clipping, relation, found, effort.points))
        for steps in PATHS:
            found = path_move(case, 1.0, steps, effort=effort)
            what = f"theta after {steps} steps without noise"
            row = _move_row(case, what, 1.0, "joint", "replace-one", found, effort.points)
            table.append(row | {"steps": steps})
        table.append(_epsilon_row(case))
    return table


def largest_move(
    case: Case,
    clip: float,
    clipping: Clipping = "joint",
    relation: Relation = "replace-one",
    *,
    records: int = 20,
    gamma: float = 1.0,
    passes: int = 1,
    effort: Effort = FULL,
    seed: int = 0,
) -> float:
    """Return the largest move of theta found for one step, over Proposition 1's bound.

    The bound is 2 gamma C / N for ``"replace-one"`` and gamma C / N for ``"zero-out"``.

    Parameters
    ----------
    case
        The likelihood.
    clip
        C.
    clipping
        ``"joint"`` (one norm of all natural parameters), ``"each"`` or ``"none"``, which still divides by C.
    relation
        How neighbours differ.
    records, gamma
        N and the damping.
    passes
        Of clipped SEP over made records, before the step that is looked at: how theta_f came about.
    effort, seed
        Of the search.

    Examples
    --------
    >>> found = largest_move(CASES[0], 1.0, effort=QUICK)
    >>> 0.99 < found <= 1.0 + 1e-9
    True
    """
    bounds = {
        "joint": Bounds(clip, math.inf),
        "each": Bounds(math.inf, clip),
        "none": Bounds(math.inf, math.inf),
    }
    weights = {"replace-one": 1.0, "zero-out": 0.0}
    if clipping not in bounds or relation not in weights:
        raise ValueError(
            f"clipping must be one of {list(bounds)} and relation one of {list(weights)}, not "
            f"{clipping!r} and {relation!r}."
        )
    with jax.enable_x64(True):
        settings = _settings(case, clip, records, gamma)
        state = _visited(case, settings, passes, seed)
        bound = Bounds(*map(jnp.asarray, bounds[clipping]))  # pyright: ignore[reportArgumentType]
        other = jnp.asarray(weights[relation])
        move = climb(
            lambda z: np.asarray(step_moves(case, settings, state, bound, other, z)),
            2 * case.size,
            effort,
            seed,
        )
    return move / (gamma * clip / records * (1.0 + weights[relation]))


def path_move(
    case: Case,
    clip: float,
    steps: int,
    *,
    records: int = 20,
    gamma: float | None = None,
    effort: Effort = FULL,
    seed: int = 0,
) -> float:
    """Return the largest move of theta found after several steps without noise, over the bound of one step.

    The first step's record is replaced; the later ones are the same in both worlds, and are searched too.

    Parameters
    ----------
    case, clip, records, effort, seed
        As in `largest_move`; every step is one of clipped SEP, steps 10 to 12 of Algorithm 3 included.
    steps
        Length of the path, from 1 to `LONGEST`.
    gamma
        The damping; N, which is SEP's, where it is left out.
    """
    if not 1 <= steps <= LONGEST:
        raise ValueError(f"steps must lie between 1 and {LONGEST}, not {steps}.")
    damping = float(records) if gamma is None else gamma
    with jax.enable_x64(True):
        settings, count = _settings(case, clip, records, damping), jnp.asarray(steps)
        move = climb(
            lambda z: np.asarray(path_moves(case, settings, count, z)),
            (LONGEST + 1) * case.size,
            effort,
            seed,
        )
    return move / (2 * damping * clip / records)


def _settings(case: Case, clip: float, records: int, gamma: float) -> sep.Settings:
    if not 0 < clip < math.inf or not 0 < gamma < math.inf or records < 2:
        raise ValueError(
            "clip and gamma must be positive and finite and records at least 2, not "
            f"{clip}, {gamma} and {records}."
        )
    return sep.Settings(case.prior(), records, jnp.asarray(gamma), jnp.asarray(clip))  # pyright: ignore


def _visited(case: Case, settings: sep.Settings, passes: int, seed: int) -> sep.State:
    """Return a state that a run could really be in: after clipped SEP over made records of moderate size."""
    generator = np.random.default_rng(seed)
    points = jnp.asarray(generator.standard_normal((settings.records, case.size)))
    order = np.tile(np.arange(settings.records), passes)
    return sep.run(case.model, settings, jax.vmap(case.record)(points), order)


def _move_row(
    case: Case, what: str, clip: float, clipping: str, relation: str, value: float, count: int
) -> Row:
    bound = "2 gamma C / N" if relation == "replace-one" else "gamma C / N"
    return {
        "claim": "Proposition 1",
        "case": case.name,
        "what": what,
        "clip": clip,
        "clipping": clipping,
        "relation": relation,
        "quantity": f"largest move found, over {bound}",
        "value": value,
        "standard_error": None,
        "n": count,
    }


def _epsilon_row(case: Case) -> Row:
    """Return what is spent where each natural parameter gets the noise of one release at epsilon 1."""
    with jax.enable_x64(True):
        leaves = len(jax.tree.leaves(case.prior()))
    spent = gaussian_epsilon(math.sqrt(leaves) * gaussian_mu(1.0, 1e-5), 1e-5)
    return {
        "claim": "Proposition 1",
        "case": case.name,
        "what": f"one release of {leaves} natural parameters, each with the noise of epsilon 1 alone",
        "clip": None,
        "clipping": "each",
        "relation": "replace-one",
        "quantity": "epsilon at delta 1e-5",
        "value": spent,
        "standard_error": None,
        "n": 1,
    }
