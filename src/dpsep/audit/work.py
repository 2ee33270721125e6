"""The work of `dpsep audit`: attacks as rows of a table, each in a process that starts clean.

A row has the keys ``target, attack, claimed, lower_bound, confidence, caught``; others follow. ``caught`` is
true where a mechanism was shown to cost more than it claims, or a replay found a difference: for the library
as it is that must never be, for a control it must.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dpsep.audit.canary import Audit, canary_audit
from dpsep.audit.membership import membership_audit
from dpsep.audit.neighbours import neighbours_of
from dpsep.audit.one_run import one_run_audit
from dpsep.audit.replay import replay
from dpsep.audit.taps import seeded
from dpsep.audit.targets import Target, targets, trials_for
from dpsep.privacy.isolation import IsolationError

Row = dict[str, Any]
ATTACKS = ("canary", "membership", "one run", "replay", "mixing")
"""What can be done to a target."""


def find_target(name: str) -> Target:
    """Return a target of ours, or that of a file, ``FILE.py:FUNCTION``.

    The function takes nothing and returns a private estimator and a made-up table for it: ``(estimator, X,
    y)``, or ``(estimator, X)`` where there is no outcome. The file is Python and is run.

    Examples
    --------
    >>> find_target("linear").canaries
    64
    >>> find_target("cubic")
    Traceback (most recent call last):
        ...
    ValueError: there is no target 'cubic'; there are linear, logistic, ... own, and FILE.py:FUNCTION.
    """
    known = targets()
    if name in known:
        return known[name]
    path, colon, function = name.rpartition(":")
    if not colon:
        raise ValueError(f"there is no target {name!r}; there are {', '.join(known)}, and FILE.py:FUNCTION.")
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}; a target of your own is FILE.py:FUNCTION.")
    spec = importlib.util.spec_from_file_location("dpsep_audit_target", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file; a target of your own is FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise ValueError(f"{path} has no function {function!r}.")
    found = getattr(module, function)()
    if not isinstance(found, tuple) or len(found) not in (2, 3) or not hasattr(found[0], "fit"):
        raise ValueError(f"{function} must return a private estimator and its table: (estimator, X, y).")
    estimator, X, *y = found
    X = np.asarray(X, np.float64)

    def make(epsilon: float) -> Any:
        return seeded(estimator, 0).set_params(epsilon=epsilon)

    return Target(name, make, X, np.asarray(y[0], np.float64) if y else None, min(16, X.shape[1] + 1))


def attack(name: str, kind: str, epsilon: float, scale: float = 1.0) -> Row:
    """Attack a target once and return the row.

    Parameters
    ----------
    name
        Of the target.
    kind
        One of `ATTACKS`.
    epsilon
        What the estimator shall claim.
    scale
        Of the number of runs.
    """
    target = find_target(name)
    if kind == "mixing":
        return _mixed(target, epsilon, max(20, round(100 * scale)))
    estimator = target.make(epsilon)
    if kind == "replay":
        return _replayed(target, estimator, max(4, round(16 * scale)))
    if kind == "canary":
        runs = max(4, round(2 * scale * trials_for(epsilon) / target.canaries))
        found = canary_audit(estimator, target.X, target.y, canaries=target.canaries, runs=runs)
    elif kind == "membership":
        found = membership_audit(estimator, target.X, target.y, runs=max(20, round(100 * scale)))
    else:
        target = targets(widen=4).get(name, target)
        # Its bound pays delta for every canary.
        small = seeded(target.make(epsilon), 0).set_params(delta=min(estimator.delta, 1e-6))
        found = one_run_audit(small, target.X, target.y, canaries=target.canaries)
    return row_of(name, kind, found)


def row_of(name: str, kind: str, found: Audit) -> Row:
    """Return an audit as a row."""
    return {
        "target": name,
        "attack": kind,
        "claimed": found.claimed,
        "lower_bound": found.epsilon,
        "confidence": found.bound.confidence,
        "caught": found.caught,
        "delta": found.delta,
        "assumption_free": found.bound.epsilon,
        "power": None if np.isnan(found.power) else found.power,
        "reach": None if np.isnan(found.reach) else found.reach,
        "trials": found.counts.members + found.counts.others,
        "runs": found.runs,
        "evidence": found.attack,
    }


def run_all(
    names: Sequence[str],
    epsilons: Sequence[float],
    *,
    attacks: Sequence[str] = ATTACKS,
    more: Sequence[Callable[[], Row]] = (),
    scale: float = 1.0,
    jobs: int | None = None,
) -> Iterator[tuple[int, int, Row]]:
    """Attack targets, in processes of their own; yield how many are done, of how many, and each row.

    Canaries are tried at every epsilon, the other attacks at the largest, where they see most; mixing, which
    breaks what it breaks by far, at the smallest, where few runs prove it. ``more`` is other work of this
    kind, such as the laboratory's controls.
    """
    work: list[Callable[[], Row]] = []
    for name in names:
        if "canary" in attacks:
            work += [partial(attack, name, "canary", epsilon, scale) for epsilon in sorted(epsilons)]
        once = [kind for kind in attacks if kind not in ("canary", "mixing")]
        work += [partial(attack, name, kind, max(epsilons), scale) for kind in once]
        if "mixing" in attacks and find_target(name).hostile is not None:
            work.append(partial(attack, name, "mixing", min(epsilons), scale))
    work += more
    if not work:
        return
    count = min(jobs or os.cpu_count() or 1, len(work))
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(one) for one in work]
        for done, future in enumerate(as_completed(futures), 1):
            yield done, len(work), future.result()


def _mixed(target: Target, epsilon: float, runs: int) -> Row:
    """Tell from posteriors whether a record was there, by a model that lets it silence all others."""
    if target.hostile is None:
        raise ValueError(f"an attacker writes no part of {target.name!r}; mixing is for models of one's own.")
    estimator, X, y = target.hostile(epsilon)
    try:
        return row_of(target.name, "mixing", membership_audit(estimator, X, y, runs=runs))
    except IsolationError:
        return {
            "target": target.name,
            "attack": "mixing",
            "claimed": epsilon,
            "lower_bound": None,
            "confidence": None,
            "caught": False,
            "evidence": "refused before anything was charged: the model could mix records",
        }


def _replayed(target: Target, estimator: Any, neighbours: int) -> Row:
    y = np.zeros(len(target.X)) if target.y is None else target.y
    report = replay(partial(seeded, estimator, 1), target.X, y, neighbours_of(target.X, y, neighbours))
    evidence = f"{report.neighbours} neighbours, {report.releases} releases, farthest {report.farthest:.3f}"
    if report.differences:
        first = report.differences[0]
        evidence = f"{len(report.differences)} differences, the first: {first.what} ({first.neighbour})"
    return {
        "target": target.name,
        "attack": "replay",
        "claimed": estimator.epsilon,
        "lower_bound": None,
        "confidence": None,
        "caught": bool(report.differences),
        "evidence": evidence,
    }
