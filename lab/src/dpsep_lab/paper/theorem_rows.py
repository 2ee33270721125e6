"""Rows of ``dpsep paper theorem``: how they are made and found, and bounds beside a simulation."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dpsep_lab.theorem.cases import Cases
from dpsep_lab.theorem.corrected_bound import corrected_bound
from dpsep_lab.theorem.expected_kl import Rule, expected_kl_batch
from dpsep_lab.theorem.printed_bound import best_M, printed_bound

__all__ = ["RULES", "Row", "compare", "only", "theorem_row"]

Row = dict[str, Any]
RULES: tuple[Rule, Rule] = ("shift", "floor")


def only(rows: Iterable[Row], name: str | None = None, **wanted: Any) -> list[Row]:
    """Return rows of one name whose keys, or whose setting's keys, have these values."""
    return [
        row
        for row in rows
        if name in (None, row["row"])
        and all(
            row[key] == value if key in row else row["setting"].get(key) == value
            for key, value in wanted.items()
        )
    ]


def compare(
    name: str, cases: Cases, settings: Sequence[Row], draws: int, budgets: Sequence[float | None]
) -> list[Row]:
    """Rows of both bounds and of the simulation under both rules."""
    table = []
    found = {rule: expected_kl_batch(*cases, rule=rule, draws=draws) for rule in RULES}
    for place, (setting, epsilon) in enumerate(zip(settings, budgets, strict=True)):
        q, rho = cases.posterior(place), float(cases.rho[place])
        one, two = float(cases.sigma_1[place]), float(cases.sigma_2[place])
        printed = printed_bound(q, one, two, rho=rho, M=best_M(len(cases.eta[place]), two)).total
        corrected = corrected_bound(q, one, two, rho=rho).total
        bounds = [
            theorem_row(name, "printed", "shift", "expected KL", printed, setting=setting),
            theorem_row(name, "corrected", "floor", "expected KL", corrected, setting=setting),
        ]
        for rule, estimate in found.items():
            pairs = estimate.draws // 2
            mean, error = float(estimate.mean[place]), float(estimate.standard_error[place])
            row = theorem_row(name, "simulated", rule, "expected KL", mean, n=pairs, setting=setting)
            bounds.append(row | {"median": None, "sd": error * math.sqrt(pairs)})
        relation = "replace-one" if epsilon is not None else "none"
        table += [row | {"epsilon": epsilon, "relation": relation} for row in bounds]
    return table


def theorem_row(
    name: str,
    source: str,
    method: str,
    metric: str,
    value: float | Sequence[float],
    *,
    n: int | None = None,
    setting: Row | None = None,
) -> Row:
    """One figure, of a number or of several; numbers that are not finite become None."""
    numbers = np.atleast_1d(np.asarray(value, np.float64))
    mean, median = (
        float(part) if math.isfinite(part) else None for part in (numbers.mean(), np.median(numbers))
    )
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
    return {
        "table": "theorem",
        "row": name,
        "source": source,
        "dataset": None,
        "method": method,
        "epsilon": None,
        "relation": "none",
        "metric": metric,
        "mean": mean,
        "median": median,
        "sd": sd,
        "n": len(numbers) if n is None else n,
        "setting": setting or {},
    }
