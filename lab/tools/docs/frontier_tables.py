"""Tables of docs/frontier.md, made from the kept results of the accuracy benchmark."""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpsep_lab.bench.frontier_data import UCI
from dpsep_lab.bench.frontier_people import PEOPLE
from dpsep_lab.data import shipped

TARGETS = {
    "kin8nm": (0.110, 0.78),
    "power": (4.08, -2.83),
    "wine": (0.645, -0.98),
    "naval": (0.0020, 4.9),
    "protein": (4.70, -2.97),
}
"""RMSE and log-likelihood that the private network was to reach at epsilon 1."""
PBP_2015 = {"kin8nm": 0.873, "power": -2.812, "wine": -0.962, "naval": 3.739, "protein": -2.969}
"""Log-likelihood of the authors' C implementation of PBP, without privacy (100 units on protein)."""
MISSING = "missing"
NAMES = {"rmse": "RMSE", "log_likelihood": "mean test log-likelihood"}


class Estimate(NamedTuple):
    """Mean of a metric over splits, its standard error (None of one split) and the number of splits."""

    mean: float
    error: float | None
    splits: int

    def __str__(self) -> str:
        if self.error is None or self.error == 0 or not math.isfinite(self.error):
            return f"{self.mean:.4g}"
        if self.error >= abs(self.mean) and self.error > 10:
            return f"{self.mean:.2g} ± {self.error:.1g}"
        places = min(max(1 - math.floor(math.log10(self.error)), 0), 6)
        return f"{self.mean:.{places}f} ± {self.error:.{places}f}"


class Results:
    """The kept fits.

    Parameters
    ----------
    document
        As `packed` makes it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._fits = {(fit["dataset"], fit["who"], fit["epsilon"]): fit for fit in document["fits"]}

    def values(self, dataset: str, who: str, metric: str, epsilon: float = 1.0) -> dict[int, float]:
        """Metric of each split that did not fail."""
        budget = epsilon if PEOPLE[who].private else None
        fit = self._fits.get((dataset, who, budget), {"splits": [], metric: []})
        pairs = zip(fit["splits"], fit[metric], strict=True)
        return {number: value for number, value in pairs if value is not None}

    def estimate(self, dataset: str, who: str, metric: str, epsilon: float = 1.0) -> Estimate | None:
        """Mean over splits; None where there is none."""
        return estimate(list(self.values(dataset, who, metric, epsilon).values()))

    def paired(
        self, dataset: str, who: str, metric: str, *, against: str, relative: bool = False
    ) -> Estimate | None:
        """Mean over common splits of the difference, or of the ratio less one in per cent."""
        first, second = (self.values(dataset, name, metric) for name in (who, against))
        common = sorted(first.keys() & second.keys())
        if relative:
            return estimate([100 * (first[k] / second[k] - 1) for k in common])
        return estimate([first[k] - second[k] for k in common])

    def epsilons(self, dataset: str, who: str) -> list[float]:
        """Budgets of which there are fits."""
        known = self._fits
        return sorted(budget for name, person, budget in known if (name, person) == (dataset, who) and budget)

    def people(self, datasets: Sequence[str]) -> list[str]:
        """Who was measured at epsilon 1, or without privacy, on any of these."""
        return [who for who in PEOPLE if any(self.values(name, who, "rmse") for name in datasets)]


def packed(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Join lines of single fits: one entry a table, person and budget, and the versions that occur.

    Parameters
    ----------
    lines
        As `dpsep_lab.bench.frontier.kept` returns them.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    versions: list[dict[str, str]] = []
    for line in lines:
        groups.setdefault((line["dataset"], line["who"], line["epsilon"]), []).append(line)
        if line["versions"] not in versions:
            versions.append(line["versions"])
    fits = []
    for (dataset, who, epsilon), found in sorted(groups.items(), key=str):
        found.sort(key=lambda line: line["split"])
        fit: dict[str, Any] = {"dataset": dataset, "who": who, "epsilon": epsilon}
        fit |= {name: found[0][name] for name in ("records", "columns")}
        fit["splits"] = [line["split"] for line in found]
        for metric in ("rmse", "log_likelihood", "coverage", "calibration"):
            fit[metric] = [line[metric] for line in found]
        fit["seconds"] = statistics.median(line["seconds"] for line in found)
        failed = {str(line["split"]): line["failed"] for line in found if "failed" in line}
        fits.append(fit | ({"failed": failed} if failed else {}))
    return {"versions": versions, "fits": fits}


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of values and its standard error."""
    if not values:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), error, len(values))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def targets(results: Results) -> str:
    """Each target beside what was measured."""
    rows = []
    for name, goals in TARGETS.items():
        for metric, goal, sign in zip(("rmse", "log_likelihood"), goals, (-1, 1), strict=True):
            found = results.estimate(name, "ours", metric)
            rows.append([name, NAMES[metric], f"{goal:g}", _cell(found), _met(found, goal, sign)])
    return table(["set", "figure", "target", "measured", ""], rows)


def ahead(results: Results) -> str:
    """Ours against the best of the private peers on each set, and on how many of them it is ahead."""
    rows = []
    wins = {"rmse": 0, "log_likelihood": 0}
    private = [who for who, person in PEOPLE.items() if person.private and not who.startswith("ours")]
    for name in UCI:
        row = [name]
        for metric, sign in (("log_likelihood", 1), ("rmse", -1)):
            ours = results.estimate(name, "ours", metric)
            found = {who: results.estimate(name, who, metric) for who in private}
            known = {who: value for who, value in found.items() if value is not None}
            if ours is None or not known:
                row += [MISSING] * 3
                continue
            best = max(known, key=lambda who: sign * known[who].mean)
            first = sign * ours.mean >= sign * known[best].mean
            wins[metric] += first
            row += [str(ours), f"{known[best]} ({PEOPLE[best].label})", "ahead" if first else "**behind**"]
        rows.append(row)
    head = ["set", "LL, dpsep", "best private peer", "", "RMSE, dpsep", "best private peer", ""]
    said = (
        f"\nAhead in log-likelihood on {wins['log_likelihood']} of {len(UCI)} sets (target: all), in RMSE on "
        f"{wins['rmse']} (target: at least 4).\n"
    )
    return table(head, rows) + said


def dream(results: Results) -> str:
    """Private ours against PBP without privacy: as published code gave it, and in the same run."""
    rows = []
    for name, goal in PBP_2015.items():
        ours = results.estimate(name, "ours", "log_likelihood")
        beside = results.estimate(name, "pbp", "log_likelihood")
        gap = results.paired(name, "ours", "log_likelihood", against="pbp")
        verdict = MISSING if gap is None else ("met" if gap.mean >= 0 else "not met")
        rows.append([name, _cell(ours), f"{goal:g}", _met(ours, goal, 1), _cell(beside), _cell(gap), verdict])
    head = ["set", "dpsep, epsilon 1", "PBP's C code", "", "PBP in the same run", "paired difference", ""]
    return table(head, rows)


def scores(results: Results, datasets: Sequence[str], metric: str) -> str:
    """One metric of everyone; the best private figure of a set is bold."""
    people = results.people(datasets)
    sign = -1 if metric == "rmse" else 1
    best, most = {}, {}
    for name in datasets:
        most[name] = max((len(results.values(name, who, metric)) for who in people), default=0)
        found = {who: results.estimate(name, who, metric) for who in people if PEOPLE[who].private}
        known = {who: value.mean for who, value in found.items() if value is not None}
        best[name] = max(known, key=lambda who: sign * known[who], default="")
    rows = []
    for who in people:
        cells = [_counted(results.estimate(name, who, metric), most[name]) for name in datasets]
        marked = [
            f"**{cell}**" if who == best[name] else cell for name, cell in zip(datasets, cells, strict=True)
        ]
        rows.append([PEOPLE[who].label, *marked])
    return table(["", *datasets], rows)


def differences(results: Results, datasets: Sequence[str]) -> str:
    """Paired differences of ours from everyone else."""
    parts = []
    for metric, relative in (("log_likelihood", False), ("rmse", True)):
        rows = [
            [
                PEOPLE[who].label,
                *(
                    _cell(results.paired(name, "ours", metric, against=who, relative=relative))
                    for name in datasets
                ),
            ]
            for who in results.people(datasets)
            if who != "ours"
        ]
        head = "RMSE, ours over theirs less one, in %" if relative else "log-likelihood, ours less theirs"
        parts.append(table([head, *datasets], rows))
    return "\n".join(parts)


def calibration(results: Results, datasets: Sequence[str]) -> str:
    """Coverage of 90 % intervals and calibration error of everyone."""
    rows = []
    for who in results.people(datasets):
        cells = []
        for name in datasets:
            pair = [results.estimate(name, who, metric) for metric in ("coverage", "calibration")]
            known = [f"{value.mean:.3f}" for value in pair if value is not None]
            cells.append(" / ".join(known) if known else MISSING)
        rows.append([PEOPLE[who].label, *cells])
    return table(["coverage / calibration error", *datasets], rows)


def curve(results: Results, datasets: Sequence[str]) -> str:
    """Log-likelihood and RMSE of ours at each epsilon, and without privacy."""
    parts = []
    for metric in ("log_likelihood", "rmse"):
        rows = []
        for name in datasets:
            budgets = sorted({budget for other in datasets for budget in results.epsilons(other, "ours")})
            found = [results.estimate(name, "ours", metric, budget) for budget in budgets]
            found.append(results.estimate(name, "sep", metric))
            most = max((one.splits for one in found if one is not None), default=0)
            rows.append([name, *(_counted(one, most) for one in found)])
        head = [NAMES[metric], *(f"epsilon {budget:g}" for budget in budgets), "none (SEP)"]
        parts.append(table(head, rows))
    return "\n".join(parts)


def who(results: Results) -> str:
    """Where everyone's predictive standard deviation is from, and how long a fit took."""
    rows = []
    for name, person in PEOPLE.items():
        fits = [
            fit
            for fit in results.document["fits"]
            if fit["who"] == name and fit["epsilon"] == (1.0 if person.private else None)
        ]
        seconds = statistics.median(fit["seconds"] for fit in fits) if fits else None
        tables = {fit["dataset"] for fit in fits}
        splits = max((len(fit["splits"]) for fit in fits), default=0)
        took = MISSING if seconds is None else f"{seconds:.1f}"
        rows.append([person.label, person.spread, took, str(len(tables)), str(splits)])
    return table(["", "standard deviation from", "seconds a fit, median", "tables", "splits, at most"], rows)


def sets(results: Results) -> str:
    """Training records and columns of every table."""
    found = {fit["dataset"]: fit for fit in results.document["fits"]}
    order = [name for name in (*UCI, *shipped.HELD_OUT) if name in found]
    return table(
        ["", *order],
        [
            [label, *(str(found[name][key]) for name in order)]
            for label, key in (("records to train on", "records"), ("columns", "columns"))
        ],
    )


def failures(results: Results) -> str:
    """Fits that did not give a figure."""
    rows = [
        [fit["dataset"], PEOPLE[fit["who"]].label, str(fit["epsilon"]), split, reason.replace("|", "/")]
        for fit in results.document["fits"]
        for split, reason in fit.get("failed", {}).items()
    ]
    if not rows:
        return "No fit failed.\n"
    return table(["table", "who", "epsilon", "split", "reason"], rows)


def versions(results: Results) -> str:
    """Versions under which the fits were made."""
    found = results.document["versions"]
    names = list(dict.fromkeys(name for one in found for name in one))
    return table(
        ["", *(f"environment {k}" for k in range(1, len(found) + 1))],
        [[name, *(one.get(name, "not there") for one in found)] for name in names],
    )


def search(path: Path) -> str:
    """The settings of DP-Adam that were tried, the best first."""
    if not path.is_file():
        return f"{MISSING.capitalize()}.\n"
    rows = sorted(json.loads(path.read_text("utf-8")), key=lambda row: row["loss"])
    names = list(rows[0]["settings"])
    lines = [[*(str(row["settings"][name]) for name in names), f"{row['loss']:.4f}"] for row in rows]
    return table([*(name.replace("_", " ") for name in names), "mean log RMSE"], lines)


def blocks(results: Results, searched: Path) -> dict[str, Callable[[], str]]:
    """Every block of the page by its name."""
    held = shipped.HELD_OUT
    return {
        "targets": lambda: targets(results),
        "ahead": lambda: ahead(results),
        "dream": lambda: dream(results),
        "uci_ll": lambda: scores(results, UCI, "log_likelihood"),
        "uci_rmse": lambda: scores(results, UCI, "rmse"),
        "uci_differences": lambda: differences(results, UCI),
        "uci_calibration": lambda: calibration(results, UCI),
        "held_out_ll": lambda: scores(results, held, "log_likelihood"),
        "held_out_rmse": lambda: scores(results, held, "rmse"),
        "held_out_differences": lambda: differences(results, held),
        "held_out_calibration": lambda: calibration(results, held),
        "curve": lambda: curve(results, UCI),
        "who": lambda: who(results),
        "sets": lambda: sets(results),
        "search": lambda: search(searched),
        "failures": lambda: failures(results),
        "versions": lambda: versions(results),
    }


def _cell(found: Estimate | None) -> str:
    return MISSING if found is None else str(found)


def _counted(found: Estimate | None, splits: int) -> str:
    """Say how many splits a figure is of, where others have more."""
    if found is None or found.splits >= splits:
        return _cell(found)
    return f"{found} ({found.splits} of {splits} splits)"


def _met(found: Estimate | None, goal: float, sign: int) -> str:
    if found is None:
        return MISSING
    return "met" if sign * found.mean >= sign * goal else "**not met**"
