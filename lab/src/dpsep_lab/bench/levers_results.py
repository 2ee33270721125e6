"""What an ablation's lines say: paired differences to the committed method, their errors, tables of them.

A line is one lever on one table: its name, the table's, and lists of RMSE and log-likelihood, one of each a
seed. Differences are taken seed by seed, so that what is hard about a table or a start is hard for both.

**Privacy.** Figures on made and public tables.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from dpsep_lab.bench.levers import DEFAULT, Lever

__all__ = ["ALONE", "Change", "Results", "held_table", "own_table", "table_of", "verdict"]

ALONE = "engine"
"""A table without noise: how far a fit gets there is worth nats, so that means are shown without it, too."""
REAL = "private fit"
"""Name under which fits through the gate are kept."""


class Change(NamedTuple):
    """Mean difference to the committed method, its standard error, by table, and how many fits failed."""

    mean: float
    error: float
    tables: dict[str, float]
    failed: int

    @property
    def clear(self) -> str:
        """Better or worse by more than two standard errors; else nothing."""
        if abs(self.mean) <= 2.0 * self.error:
            return ""
        return "better" if self.mean > 0 else "worse"


class Results:
    """Kept lines, and the difference that a lever makes.

    Parameters
    ----------
    kept
        Lines, one a lever and table.
    about
        Budget and settings of the committed method when it was measured.
    """

    def __init__(self, kept: Sequence[dict[str, Any]], about: dict[str, Any] | None = None) -> None:
        self.about = about or {}
        self.lines = {(line["lever"], line["table"]): line for line in kept}
        self.tables = list(dict.fromkeys(line["table"] for line in kept if line["lever"] == DEFAULT.name))

    def differences(self, lever: str, metric: str) -> dict[str, list[float]]:
        """Paired differences to the committed method by table: of LL, or of the logarithm of RMSE."""
        found = {}
        for table in self.tables:
            if (lever, table) not in self.lines:
                continue
            pair = [self.lines[name, table][metric] for name in (lever, DEFAULT.name)]
            if metric == "rmse":
                pair = [[math.log(value) if value > 0 else math.nan for value in one] for one in pair]
            found[table] = [new - old for new, old in zip(*pair, strict=True)]
        return found

    def change(self, lever: str, metric: str = "log_likelihood", without: str = "") -> Change | None:
        """Mean over tables of the difference, with its standard error over tables and seeds."""
        found = self.differences(lever, metric)
        found.pop(without, None)
        every = [value for values in found.values() for value in values]
        good = [value for value in every if math.isfinite(value)]
        if len(good) < 2:
            return None
        means = {}
        for table, values in found.items():
            kept = [value for value in values if math.isfinite(value)]
            if kept:
                means[table] = statistics.fmean(kept)
        return Change(
            statistics.fmean(means.values()),
            statistics.stdev(good) / math.sqrt(len(good)),
            means,
            len(every) - len(good),
        )


def table_of(results: Results, levers: Sequence[Lever]) -> str:
    """Return a table of levers, the best first."""
    rows = []
    for lever in levers:
        ll, rmse = results.change(lever.name), results.change(lever.name, "rmse")
        if ll is None or rmse is None:
            rows.append((-math.inf, f"| {lever.name} | not measured | | | | | |"))
            continue
        rest = results.change(lever.name, without=ALONE)
        worst, low = min((value, name) for name, value in ll.tables.items())
        cells = [
            lever.name + (f" (not finite in {ll.failed} fits)" if ll.failed else ""),
            f"{ll.mean:+.4f} ± {ll.error:.4f}",
            f"{rest.mean:+.4f} ± {rest.error:.4f}" if rest else "",
            f"{100 * rmse.mean:+.2f} ± {100 * rmse.error:.2f} %",
            f"{sum(value > 0 for value in ll.tables.values())} of {len(ll.tables)}",
            f"{low} {worst:+.3f}",
            verdict(ll, rest),
        ]
        rows.append((ll.mean, "| " + " | ".join(cells) + " |"))
    names = ("change", "LL", f"LL without {ALONE}", "RMSE", "better on", "worst table", "verdict")
    head = "| " + " | ".join(names) + " |\n|" + " --- |" * len(names)
    return "\n".join([head, *(text for _, text in sorted(rows, key=lambda one: -one[0]))])


def verdict(change: Change, rest: Change | None) -> str:
    """In words: what is within two standard errors is no clear difference."""
    if change.clear or rest is None or not rest.clear:
        return change.clear or "no clear difference"
    return f"{rest.clear} without {ALONE}"


def own_table(results: Results) -> str:
    """Return the committed method's own figures on every table."""
    rows = ["| table | LL | RMSE |", "| --- | --- | --- |"]
    for table in results.tables:
        line = results.lines[DEFAULT.name, table]
        cells = [_mean(line[metric]) for metric in ("log_likelihood", "rmse")]
        rows.append(f"| {table} | {cells[0]} | {cells[1]} |")
    return "\n".join(rows)


def held_table(results: Results) -> str:
    """Return simulated fits beside real private ones, where there are any."""
    rows = [
        "| table | LL, private fits | LL, simulated | RMSE, private fits | RMSE, simulated |",
        "|" + " --- |" * 5,
    ]
    for table in results.tables:
        if (REAL, table) not in results.lines:
            continue
        cells = [
            _mean(results.lines[name, table][metric])
            for metric in ("log_likelihood", "rmse")
            for name in (REAL, DEFAULT.name)
        ]
        rows.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values) / len(values) ** 0.5:.3f}"
