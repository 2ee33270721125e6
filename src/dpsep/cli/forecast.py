"""A word before the charge, where the planner expects a posterior that cannot be relied on.

Mixed and own models warn of a weak budget themselves (`dpsep.theory.glm_defaults`), networks and mixtures are
not judged here.

**Privacy.** The planner sees the number of records, the declared columns and the budget: public numbers.
"""

from typing import Any

from dpsep.cli.table import Inputs
from dpsep.data import encoded_bounds
from dpsep.registry import named

__all__ = ["weak_budget"]


def weak_budget(request: Any, inputs: Inputs) -> str | None:
    """Return a warning where the planner calls a regression's budget weak or too small, else None.

    Parameters
    ----------
    request
        With its epsilon, delta and relation.
    inputs
        What is to be fitted; of its rows only their number is asked for.
    """
    from dpsep.theory.planner import plan

    if not request.private or inputs.unit is not None or not named(inputs.model).is_regression:
        return None
    declared = inputs.bounds is not None and (
        not named(inputs.model).has_target_bounds or inputs.target_bounds is not None
    )
    counts = [len(one.levels) - 1 for one in inputs.schema.features if one.kind == "category"]
    try:
        planned = plan(
            inputs.model,
            len(inputs.features),
            len(encoded_bounds(inputs.schema)[0]),
            epsilon=request.epsilon,
            delta=request.delta,
            relation=request.relation,
            levels=tuple(count for count in counts if count > 1),
            declared=declared,
        )
    except ValueError:  # what is wrong with the call, the fit says itself
        return None
    if planned.verdict not in ("weak", "impossible"):
        return None
    why = f": {planned.reasons[0].rstrip('.')}" if planned.reasons else ""
    remedies = f" What would help: {', or '.join(planned.remedies)}." if planned.remedies else ""
    said = "weak" if planned.verdict == "weak" else "too small"
    return f"the budget is {said} for this table{why}. Intervals may be too narrow.{remedies}"
