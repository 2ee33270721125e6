"""The report of ``dpsep paper theorem``: one Markdown file, with its pictures and rows beside it.

Everything in it, findings included, is computed from the rows of `dpsep_lab.paper.theorem`; nothing is looked
up elsewhere, so a report never says more than its own run showed.

Contract: `write` makes the folder, replaces files whole or not at all, and writes the text last, so that a
text that is there has its pictures.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from dpsep.privacy.checkpoint import atomic_write
from dpsep_lab.paper.theorem_claims import claims
from dpsep_lab.paper.theorem_plots import PICTURES, draw
from dpsep_lab.paper.theorem_rows import only
from dpsep_lab.paper.theorem_text import Row, keys, number, range_of, table

__all__ = ["DATA", "NAME", "summary", "text", "write"]

NAME, DATA = "theorem.md", "theorem.json"
READINGS = ("eigenbasis", "ascending", "descending")
SETTING = """One step of one record, as Theorem 4.1 has it, with sigma_1 = sigma_2 = 2 C sigma / N. Sigma is
calibrated for one pass (T = 1) of one record a step, replace-one, delta = 1e-5, C = 1: a record is in
one step of the pass, so the pass is one Gaussian release for each record, the same as one full batch,
and sigma does not depend on N (2 sigma = 7.46 at epsilon 1). The posterior has eigenvalues from 1 to a
condition number, a random rotation and a mean of length 1; it is fixed, or its precision grows as N /
100. Rho is in units of the smallest eigenvalue l_1. The printed bound belongs to the rule `shift`
(Definition 4.2) and is taken at its best M and with b in the eigenvectors, its favourable reading; the
corrected one to the rule `floor` (what this package does). Simulated values are means over drawn noise
matrices."""


def write(folder: Path, rows: Sequence[Row], *, quick: bool = False) -> list[Path]:
    """Write the pictures, the rows and the report, and return their paths.

    Parameters
    ----------
    folder
        Where they go; made if it is not there.
    rows
        From `dpsep_lab.paper.theorem.rows`.
    quick
        Whether the rows are those of a quick run, which the report then says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = draw(folder, rows)
    atomic_write(folder / DATA, json.dumps(rows, indent=2, allow_nan=False) + "\n")
    atomic_write(folder / NAME, text(rows, quick=quick))
    return [folder / NAME, folder / DATA, *paths]


def text(rows: Sequence[Row], *, quick: bool = False) -> str:
    """Return the report as Markdown.

    Parameters
    ----------
    rows, quick
        As in `write`.
    """
    note = ["A quick run: few cases and draws, one dimension, two of the claims. Not to be compared."]
    bounds, tightness, clipping, signal = (f"![{PICTURES[name][0]}]({name})" for name in PICTURES)
    parts = [
        "# Theorem 4.1 and the claims around it",
        *(note if quick else []),
        SETTING,
        "## What was found",
        "\n".join(f"- {line}" for line in summary(rows)),
        "## 1. Printed and corrected bound against simulation",
        bounds,
        *_bounds(rows),
        tightness,
        "### Rates in N",
        "Exponents fitted to the largest sizes (three at most), epsilon 1. An empty cell: the bound is "
        "undefined.",
        _rates(rows),
        "### Epsilon",
        *_epsilons(rows),
        "## 2. Where the printed bound is undefined or fails",
        *_search(rows),
        "## 3. The corrected bound in random cases",
        *_check(rows),
        "## 4. Step 10 word for word",
        *_literal(rows),
        "## 5. The divergence of clipping",
        clipping,
        *_clipping(rows),
        "## 6. The claims of sections 3 and 4",
        *claims(rows, signal),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(rows: Sequence[Row]) -> list[str]:
    """Return the findings of the theorem's part, one sentence or two each, with the numbers of this run.

    Parameters
    ----------
    rows
        From `dpsep_lab.paper.theorem.rows`.
    """
    found = only(rows, "bounds", epsilon=1.0)
    printed = only(found, source="printed")
    missing = sum(row["mean"] is None for row in printed)
    rate = only(rows, "rate", growth="fixed")
    slopes = {
        name: range_of(only(rate, source=source, method=method, floor=1.0))
        for name, source, method in (
            ("printed", "printed", "shift"),
            ("shift", "simulated", "shift"),
            ("corrected", "corrected", "floor"),
            ("floor", "simulated", "floor"),
        )
    }
    checks, largest = only(rows, "check", metric="violations"), max(row["setting"]["N"] for row in printed)
    cases, failed = sum(row["n"] for row in checks), sum(int(row["mean"]) for row in checks)
    counts = {
        reading: [
            sum(
                int(row["mean"])
                for row in only(rows, "search", rule="shift", reading=reading, metric=f"cases: {what}")
            )
            for what in ("fails", "holds")
        ]
        for reading in READINGS
    }
    below, pairs = _below(rows)
    limits = [row["mean"] for row in only(printed, N=largest, floor=0.5, growth="fixed") if row["mean"]]
    lines = [
        f"The printed bound is undefined in {missing} of {len(printed)} settings of the grid at epsilon 1.",
        f"With rho = l_1 and a fixed posterior the printed bound falls as N to the {slopes['printed']}, "
        f"while the divergence that it bounds falls as N to the {slopes['shift']}. The corrected bound "
        f"falls as N to the {slopes['corrected']}, as does its divergence ({slopes['floor']}).",
        f"With rho below l_1 the printed bound does not go to zero: at N = {largest:,} and rho = l_1 / 2 "
        f"it lies between {number(min(limits))} and {number(max(limits))} nats, because Definition 4.2 "
        "moves the whole spectrum.",
        "In random cases for which the printed bound is defined it failed, under its own rule, in "
        + ", ".join(f"{a} of {a + b} ({reading})" for reading, (a, b) in counts.items())
        + ", by how b is paired with eigenvalues.",
        f"The corrected bound was violated in {failed} of {cases:,} random cases. In the {pairs} settings "
        f"of the grid it lies below the simulated mean by at most {below:.1f} standard errors.",
        "Step 10 read word for word has no finite expected divergence.",
    ]
    return lines


def _below(rows: Sequence[Row]) -> tuple[float, int]:
    """Most standard errors by which the corrected bound lies below a mean, and the number of means."""
    found = only(rows, "bounds")
    means = only(found, source="simulated", method="floor")
    scores = [
        (mean["mean"] - bound["mean"]) / (mean["sd"] / mean["n"] ** 0.5)
        for mean, bound in zip(means, only(found, source="corrected"), strict=True)
    ]
    return max(0.0, *scores), len(scores)


def _bounds(rows: Sequence[Row]) -> list[str]:
    """One table for each growth: d, condition number, rho, and for some N the four figures."""
    parts = []
    names = {"fixed": "A fixed posterior", "grows": "A posterior whose precision grows as N / 100"}
    header = [
        "d",
        "condition",
        "rho / l_1",
        "N",
        "`shift`",
        "printed",
        "ratio",
        "`floor`",
        "corrected",
        "ratio",
    ]
    for growth, name in names.items():
        found = only(rows, "bounds", epsilon=1.0, growth=growth)
        cells = []
        for d, condition, floor, n in keys(found, "d", "condition", "floor", "N"):
            if n in _some(found):
                own = only(found, d=d, condition=condition, floor=floor, N=n)
                cells.append([str(d), f"{condition:g}", f"{floor:g}", f"{n:,}", *_four(own)])
        parts += [f"{name}, epsilon 1. Other N are in `{DATA}`.", table(header, cells)]
    means = only(rows, "bounds", source="simulated", method="floor")
    error = max(row["sd"] / row["n"] ** 0.5 / row["mean"] for row in means)
    note = (
        f"Standard errors of `floor` are at most {100 * error:.1f} % of the mean. Where the bound is tight, "
        "ratios lie on both sides of 1 by chance."
    )
    return [note, *parts]


def _rates(rows: Sequence[Row]) -> str:
    header = ["posterior", "d", "condition", "rho / l_1", "`shift`", "printed", "`floor`", "corrected"]
    found, cells = only(rows, "rate"), []
    for growth, d, condition, floor in keys(found, "growth", "d", "condition", "floor"):
        own = only(found, growth=growth, d=d, condition=condition, floor=floor)
        figures = [
            f"{mean:.2f}" if (mean := only(own, source=source, method=method)[0]["mean"]) is not None else ""
            for source, method in (
                ("simulated", "shift"),
                ("printed", "shift"),
                ("simulated", "floor"),
                ("corrected", "floor"),
            )
        ]
        cells.append([growth, str(d), f"{condition:g}", f"{floor:g}", *figures])
    return table(header, cells)


def _epsilons(rows: Sequence[Row]) -> list[str]:
    found = only(rows, "bounds", N=1_000, condition=10.0, growth="fixed")
    others = {row["epsilon"] for row in found}
    if len(others) < 2:
        return ["Other epsilons are in the full run."]
    cells = []
    for d, floor in keys(found, "d", "floor"):
        for epsilon in sorted(others) if floor != min(row["setting"]["floor"] for row in found) else ():
            own = only(found, d=d, floor=floor, epsilon=epsilon)
            cells.append([str(d), f"{floor:g}", f"{epsilon:g}", *_four(own)])
    header = ["d", "rho / l_1", "epsilon", "`shift`", "printed", "ratio", "`floor`", "corrected", "ratio"]
    return ["N = 1000, condition number 10, fixed posterior.", table(header, cells)]


def _search(rows: Sequence[Row]) -> list[str]:
    cells = []
    found = only(rows, "search")
    for d, rule, reading in keys(found, "d", "rule", "reading"):
        own = only(found, d=d, rule=rule, reading=reading)
        counts = [
            int(only(own, metric=f"cases: {what}")[0]["mean"]) for what in ("undefined", "fails", "holds")
        ]
        used = only(own, metric="room used in the worst case")[0]["mean"]
        cells.append(
            [str(d), f"`{rule}`", reading, *map(str, counts), number(used) if reading == READINGS[0] else ""]
        )
    header = ["d", "rule", "reading", "undefined", "fails", "holds", "room used, worst"]
    known = []
    for (rho,) in keys(only(rows, "known case"), "rho"):
        known.append([f"{rho:g}", *_four(only(rows, "known case", rho=rho))])
    parts = [
        "Random cases at the best M; half of them have noise small enough for the bound to be defined. A "
        "bound fails if it lies below the sample mean by more than four standard errors. The last column "
        "is the share of the room between the bound without noise in the precision and the bound that the "
        "mean uses in the worst case, after climbing; above 1 the bound would fail.",
        table(header, cells),
        "d = 4, N = 1000, eigenvalues 800, 1000, 1200 and 1500, mean (2, -1, 2, 1.5), sigma_1 = sigma_2 = "
        "0.0065:",
        table(["rho", "`shift`", "printed", "ratio", "`floor`", "corrected", "ratio"], known),
        f"Cases with their numbers, rounded here and in full in `{DATA}`. The one made by hand is shown in "
        "all three readings and fails where the bound lies below the simulated mean; the others are the "
        "worst of the random cases, and all fail.",
    ]
    examples = only(rows, "example", source="printed")
    examples.sort(key=lambda row: row["setting"]["case"] != "by hand")
    return [
        *parts,
        table(["case", "numbers", "printed", "simulated"], [_example(row, rows) for row in examples]),
    ]


def _example(row: Row, rows: Sequence[Row]) -> list[str]:
    setting = row["setting"]
    simulated = next(
        other for other in only(rows, "example", source="simulated") if other["setting"] == setting
    )
    error = simulated["sd"] / simulated["n"] ** 0.5
    numbers = ", ".join(f"{key} = {setting[key]:.6g}" for key in ("sigma_1", "sigma_2", "rho"))
    if setting["d"] <= 4:
        eta = " ".join(f"{value:.6g}" for value in setting["eta"])
        matrix = "; ".join(" ".join(f"{value:.6g}" for value in line) for line in setting["precision"])
        numbers = f"eta = ({eta}), Lambda = [{matrix}], {numbers}"
    else:
        numbers += ", eta and Lambda in the file"
    name = f"{setting['case']}, `{setting['rule']}`, {setting['reading']}"
    return [name, numbers, number(row["mean"]), f"{simulated['mean']:.6g} ± {error:.1g}"]


def _check(rows: Sequence[Row]) -> list[str]:
    cells = []
    for row in only(rows, "check", metric="violations"):
        d, draws = row["setting"]["d"], row["setting"]["draws"]
        ratio = only(rows, "check", metric="bound over sample mean", d=d)[0]
        cells.append([str(d), f"{row['n']:,}", str(draws), str(int(row["mean"])), f"{ratio['median']:.3f}"])
    found = only(rows, "check", metric="bound over sample mean, by bucket")
    floors, decades = (sorted({row["setting"][key] for row in found}) for key in ("floor", "decade"))
    grid = []
    for floor in floors:
        line = [f"{floor:g}"]
        for decade in decades:
            own = only(found, floor=floor, decade=decade)
            medians = [row["median"] for row in own]
            worst = max((row["setting"]["largest"] for row in own), default=None)
            line.append(f"{max(medians):.3g} / {worst:.3g}" if medians and worst is not None else "")
        grid.append(line)
    header = ["rho / l_1", *(f"1e{decade} to 1e{decade + 1}" for decade in decades)]
    return [
        "Condition numbers 1 to 1e6, random rotations, four kinds of means. A violation is a bound below the "
        "sample mean by more than four standard errors.",
        table(["d", "cases", "draws a case", "violations", "bound / mean, median"], cells),
        "Bound over sample mean by rho and by sigma_2 / l_1: the largest of the medians over d / the "
        "largest of all. Where the bound is tight, sample means lie on both sides of it by chance, so "
        "ratios just below 1 are no violations.",
        table(header, grid),
    ]


def _literal(rows: Sequence[Row]) -> list[str]:
    cells = []
    for row in only(rows, "step 10", source="simulated"):
        own = row["setting"]
        figures = (own["least"], row["median"], own["largest"])
        cells.append([f"`{row['method']}`", f"{own['draws']:,}", str(row["n"]), *map(number, figures)])
    exact = only(rows, "step 10", metric="E[KL; not 0 < w < c]")
    growth, limit = (
        only(rows, "step 10", metric=name)[0]["mean"]
        for name in ("growth with log(1/c)", "growth, closed form")
    )
    return [
        "Sample means for q = N((1, 0), I), sigma_1 = sigma_2 = 1 and rho = 0.1, d = 2. Under `literal` "
        "(only eigenvalues at or below zero become rho) they do not settle; under `floor` they do.",
        table(["rule", "draws", "runs", "least", "median", "largest"], cells),
        "At d = 1, with precision, mean, sigma_1 and sigma_2 all 1, the expectation without noisy precisions "
        f"between 0 and c, by quadrature. It grows by {growth:.6f} for each unit of log(1/c); the closed "
        f"form (sigma_1^2 + eta^2) / 2 times the density of the noisy precision at zero is {limit:.6f}. So "
        "the whole expectation is infinite.",
        table(
            ["c", *(f"{row['setting']['c']:.0e}" for row in exact)],
            [["E", *(number(r["mean"]) for r in exact)]],
        ),
    ]


def _clipping(rows: Sequence[Row]) -> list[str]:
    cells, gap = [], 0.0
    found = only(rows, "clipping")
    for name, clip in keys(found, "posterior", "C"):
        value = {row["source"]: row["mean"] for row in only(found, posterior=name, C=clip)}
        gap = max(gap, abs(value["corrected"] - value["definition"]) / max(1.0, abs(value["definition"])))
        if abs(math.log10(clip) - round(math.log10(clip))) < 1e-9:
            figures = (value["definition"], value["corrected"], value["printed"])
            cells.append([name, f"{clip:g}", *map(number, figures)])
    sentence = f"The corrected form differs from the definition by at most {gap:.0e}, relative to 1 or more."
    return [sentence, table(["posterior", "C", "definition", "corrected", "printed"], cells)]


def _some(found: Sequence[Row]) -> set[int]:
    """The smallest, a middle and the largest N, to keep a table readable."""
    sizes = sorted({row["setting"]["N"] for row in found})
    return {sizes[0], sizes[len(sizes) // 2], sizes[-1]}


def _four(own: Sequence[Row]) -> list[str]:
    """Simulated and bound with their ratio, for `shift` and `floor`."""
    cells = []
    for bound, rule in (("printed", "shift"), ("corrected", "floor")):
        mean = only(own, source="simulated", method=rule)[0]["mean"]
        above = only(own, source=bound)[0]["mean"]
        ratio = number(above / mean) if above is not None and mean else ""
        cells += [number(mean), "undefined" if above is None else number(above), ratio]
    return cells
