"""Which fits the lines of Tables 3 to 5, 8 and 9 ask for.

Every private case is at epsilon = 1 and delta = 1e-5, as in the paper. ``as written`` and ``as accounted``
are Algorithm 3 (`dpsep_lab.paper.network_written`), ``ours`` is `dpsep.NetworkRegressor`: under zero-out and
under the paper's replace-one, with the training part's scaling as public (the paper's protocol) and, for
DP-SEP, scaled privately inside epsilon beside it. SEP with gamma = N, which is SEP as its authors define it,
has a row of its own, and so has assumed density filtering (probabilistic backpropagation). Private fits have
as many hidden units as the estimator chooses, and the paper's beside that; all others have the paper's.
"""

import math
from typing import Any, Literal

from dpsep.privacy.mechanism import Relation
from dpsep_lab.paper import network_written, networks
from dpsep_lab.paper.network_written import FLOOR, NOISY_FLOOR, PASSES, Order
from dpsep_lab.paper.networks import Case
from dpsep_lab.paper.printed_networks import CLIPS
from dpsep_lab.paper.rows import EPSILON

__all__ = ["MULTIPLES", "QUICK_RECORDS", "RELATIONS", "accuracy_cases", "clip_cases", "point_cases"]

MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of our default clip, beside the paper's C."""
RELATIONS: tuple[Relation, ...] = ("zero-out", "replace-one")
QUICK_PASSES, QUICK_STEPS, QUICK_RECORDS = 1, 3, 1000


def accuracy_cases(quick: bool = False) -> list[Case]:
    """Return the cases of Tables 3 and 4, in the order of the paper's columns.

    Parameters
    ----------
    quick
        One pass, three steps, for `QUICK_RECORDS` records: to see that all works, not to compare.
    """
    return [
        _ours("VI", "VI", quick, method="vi"),
        _ours("EP", "EP", quick, method="ep"),
        _ours("ADF (PBP)", "ADF (PBP)", quick, method="adf"),
        _written("SEP", "SEP, gamma = 1", quick),
        _ours("SEP", "SEP", quick, method="sep"),
        _written("SEP, gamma = N (Li et al. 2015)", "SEP, gamma = N", quick, gamma="N"),
        _written("SEP clipped", "clipped SEP, gamma = 1, C = 1", quick, clip=1.0),
        _ours("SEP clipped", "clipped SEP, our default clip", quick, method="sep", clip=1.0),
        *_private_written("DP-SEP", 1.0, quick, RELATIONS),
        *_private("DP-SEP", "sep", quick),
        *_private("DP-SEP", "sep", quick, scaling="private"),
        *_private("DP-SEP, the paper's width", "sep", quick, paper_width=True),
        *_private("DP-VI", "vi", quick),
        *_private("DP-VI, the paper's width", "vi", quick, paper_width=True),
    ]


def point_cases(quick: bool = False) -> list[Case]:
    """Return the cases of Table 5: the point estimate without and with privacy, and DP-SEP beside it.

    Parameters
    ----------
    quick
        As in `accuracy_cases`.
    """
    return [
        _ours("point estimate", "point estimate (Adam)", quick, method="point"),
        *_private("DP point estimate", "point", quick),
        *_private("DP-SEP", "sep", quick),
    ]


def clip_cases(quick: bool = False) -> list[Case]:
    """Return the cases of Tables 8 and 9: the paper's C in its coordinates, multiples of our clip in ours.

    Parameters
    ----------
    quick
        As in `accuracy_cases`; with the first and the last clip only.
    """
    clips, multiples = (CLIPS[::5], MULTIPLES[::4]) if quick else (CLIPS, MULTIPLES)
    cases = [case for clip in clips for case in _private_written(f"C = {clip:g}", clip, quick)]
    for multiple in multiples:
        # The estimator counts its clip in the default one, which itself is left out: that fit is Table 3's.
        scaled: dict[str, Any] = {} if multiple == 1.0 else {"clip": multiple}
        cases += _private(f"our clip x {multiple:g}", "sep", quick, method_name="DP-SEP", **scaled)
    return cases


def _private_written(
    row: str, clip: float, quick: bool, relations: tuple[Relation, ...] = ("replace-one",)
) -> list[Case]:
    """DP-SEP as the paper writes it, and as it accounts for it."""
    cases = []
    for relation in relations:
        cases.append(_written(row, "DP-SEP, gamma = 1", quick, clip=clip, epsilon=EPSILON, relation=relation))
    fresh: dict[str, Any] = {"clip": clip, "epsilon": EPSILON, "order": "fresh"}
    return [*cases, _written(row, "DP-SEP, gamma = 1", quick, **fresh)]


def _written(
    row: str,
    method: str,
    quick: bool,
    *,
    gamma: float | Literal["N"] = 1.0,
    clip: float = math.inf,
    epsilon: float | None = None,
    relation: Relation = "replace-one",
    order: Order = "permuted",
) -> Case:
    passes = QUICK_PASSES if quick else PASSES
    fit = network_written.written(
        passes, gamma=gamma, clip=clip, epsilon=epsilon, relation=relation, order=order
    )
    settings = {
        "algorithm": "Algorithm 3",
        "passes": passes,
        "gamma": gamma,
        "clip": None if clip == math.inf else clip,
        "epsilon": epsilon,
        "relation": "none" if epsilon is None else relation,
        "order": order,
        "floor": FLOOR if epsilon is None else NOISY_FLOOR,
        "records": QUICK_RECORDS if quick else None,
    }
    source = "as accounted" if order == "fresh" else "as written"
    return Case(row, source, method, epsilon, settings["relation"], "public", settings, fit)


def _private(
    row: str,
    method: str,
    quick: bool,
    *,
    scaling: str = "public",
    method_name: str | None = None,
    paper_width: bool = False,
    **parameters: Any,
) -> list[Case]:
    """Private fits under both relations, of the estimator's own width or the paper's."""
    width = {} if paper_width else {"hidden": None}
    parameters = width | parameters
    return [
        _ours(
            *(row, method_name or row, quick),
            **{"method": method, "epsilon": EPSILON, "relation": relation, "scaling": scaling, **parameters},
        )
        for relation in RELATIONS
    ]


def _ours(row: str, name: str, quick: bool, **parameters: Any) -> Case:
    """One fit of our estimator; without an epsilon it is not private."""
    epsilon = parameters.get("epsilon")
    given = parameters if epsilon is not None else parameters | {"private": False}
    if quick:
        given = given | {"steps": QUICK_STEPS}
    relation = parameters["relation"] if epsilon is not None else "none"
    settings = {"estimator": "NetworkRegressor", "records": QUICK_RECORDS if quick else None, **given}
    fit = networks.ours(**given)
    return Case(row, "ours", name, epsilon, relation, str(given.get("scaling", "public")), settings, fit)
