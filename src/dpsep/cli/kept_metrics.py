"""Private metrics of a run that can die: released once and kept, or counted as often as they may have been.

Before held-out rows are scored, the run's unfinished folder notes that a release begins; afterwards it keeps
what was released. A resumed run takes the kept one, and where none was kept (the run died in between) the
release is made and charged again, and the statement counts every one that was begun.

**Privacy.** What is kept was released and paid for. *Charge before touch* is `dpsep.cli.metrics`'s. Each
begun release counts with its whole epsilon and delta, whether it was made or not; the sum is a valid
guarantee by composition. The proof is in docs/proofs/metrics.md.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dpsep.cli.errors import CallError
from dpsep.cli.metrics import Metrics
from dpsep.cli.screen import warn
from dpsep.privacy.checkpoint import atomic_write
from dpsep.privacy.ledger import OverBudget

__all__ = ["kept_metrics"]


class _State(NamedTuple):
    """What is known of a run's metrics.

    Attributes
    ----------
    epsilon, delta
        Of one release.
    begun
        Releases that may have been made.
    kept
        What the last one gave; None where it is not known.
    """

    epsilon: float
    delta: float
    begun: int = 0
    kept: dict[str, Any] | None = None


def kept_metrics(path: Path, epsilon: float, delta: float, make: Callable[[], Metrics]) -> Metrics | None:
    """Return the metrics that were kept, or make, keep and return them.

    Parameters
    ----------
    path
        Where they are kept, in the folder of the unfinished run.
    epsilon, delta
        Budget of one release.
    make
        Charges, releases and returns metrics.

    Returns
    -------
    metrics
        With the charges of all releases that were begun; None where the first one does not fit the budget.
    """
    state = _read(path, epsilon, delta)
    if state.kept is not None:
        return _counted(state.kept, state)
    begun = state._replace(begun=state.begun + 1)
    _write(path, begun)
    try:
        made = make()
    except OverBudget as error:  # another process has spent what was there when the fit began
        _write(path, state)  # nothing was charged, so nothing was read
        warn(f"no metrics: {error}")
        return _lost(state) if state.begun else None
    state = begun._replace(kept=made.document)
    _write(path, state)
    return _counted(made.document, state)


def _counted(document: dict[str, Any], state: _State) -> Metrics:
    """Return metrics with the charges of all releases begun."""
    charge = document["privacy"]
    if state.begun > 1:
        both = {name: state.begun * charge[name] for name in ("epsilon", "delta")}
        charge = charge | both | {"releases": state.begun}
    return Metrics(document | {"privacy": charge}, charge)


def _lost(state: _State) -> Metrics:
    """Return the charges of releases that were begun and whose numbers are lost."""
    charge = {"epsilon": state.begun * state.epsilon, "delta": state.begun * state.delta}
    charge |= {"releases": state.begun, "rows": 0}
    return Metrics({"on": "held-out rows, privately", "rows": 0, "metrics": {}, "privacy": charge}, charge)


def _read(path: Path, epsilon: float, delta: float) -> _State:
    if not path.exists():
        return _State(epsilon, delta)
    try:
        state = _State(**json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise CallError(
            f"{path} cannot be read: the unfinished run is damaged; restore its folder."
        ) from error
    if state.begun and (state.epsilon, state.delta) != (epsilon, delta):
        raise CallError(
            f"the unfinished run's metrics were begun with --metrics-epsilon {state.epsilon}; give the same."
        )
    return state


def _write(path: Path, state: _State) -> None:
    atomic_write(path, json.dumps(state._asdict(), allow_nan=False) + "\n")
