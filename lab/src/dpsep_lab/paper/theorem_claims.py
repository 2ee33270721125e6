"""The paper's claims in the report of ``dpsep paper theorem``: a table and a sentence for each.

Sentences are computed from rows of `dpsep_lab.paper.claims_all`, as `dpsep_lab.paper.theorem` hands them on.
"""

import math
from collections.abc import Sequence
from typing import Any

from dpsep_lab.paper.theorem_rows import only
from dpsep_lab.paper.theorem_text import Row, keys, number, table

__all__ = ["claims"]


def claims(rows: Sequence[Row], picture: str) -> list[str]:
    """Return the parts of the section on the claims."""
    parts = []
    makers = {
        "Proposition 1": _proposition,
        "1/N beats 1/B, one step": _one_step,
        "1/N beats 1/B, whole run": _whole_run,
        "sigma_1 = sigma_2 = 2 C sigma / N": _sigmas,
        "clipping stabilises SEP": _stability,
    }
    for claim, make in makers.items():
        found = only(rows, claim)
        if found:
            finding, table = make(found)
            parts += [f"### {claim}", finding, *([picture] if claim.endswith("one step") else []), table]
        else:
            parts += [f"### {claim}", "Only in the full run."]
    return parts


def _proposition(found: Sequence[Row]) -> tuple[str, str]:
    def most(**wanted: Any) -> float:
        return max(
            (row["mean"] for row in only(found, **wanted) if row["mean"] is not None), default=math.nan
        )

    cells = []
    for (case,) in keys(found, "case"):
        step = {"case": case, "what": "one step", "relation": "replace-one"}
        figures = [most(**step, clipping=clipping) for clipping in ("joint", "each", "none")]
        figures += [most(case=case, steps=steps) for steps in (2, 8)]
        figures.append(most(case=case, metric="epsilon at delta 1e-5"))
        cells.append([case, *map(number, figures)])
    header = [
        "model",
        "one joint clip",
        "each parameter clipped",
        "no clip",
        "2 steps",
        "8 steps",
        "epsilon spent",
    ]
    joint, each = (most(what="one step", relation="replace-one", clipping=kind) for kind in ("joint", "each"))
    holds = "the claim held in every search" if joint < 1.0 + 1e-6 else "the claim does not hold"
    sentence = (
        f"The largest move found with one joint clip was {joint:.3f} of 2 gamma C / N: {holds}. With each "
        f"natural parameter clipped to C it was {each:.2f}. Figures are the largest moves over 2 gamma C / "
        "N; the last column is what noise for epsilon 1 in each natural parameter spends."
    )
    return sentence, table(header, cells)


def _one_step(found: Sequence[Row]) -> tuple[str, str]:
    ratios, cells, gap = only(found, metric="signal over noise"), [], 0.0
    for case, records, batch in keys(ratios, "case", "records", "batch"):
        own = only(ratios, case=case, records=records, batch=batch)
        values = [only(own, method=method)[0]["mean"] for method in ("DP-SEP", "DP-SGD")]
        gap = max(gap, abs(values[0] / values[1] - 1.0))
        if case == "linear":
            cells.append([f"{records:,}", f"{batch:,}", *map(number, values)])
    sentence = (
        f"Signal over noise of a step is the same for both, to {gap:.0e}: gamma and N scale signal and "
        "noise alike, and what tells is B. Linear model, sigma = 1 over 2C."
    )
    return sentence, table(["N", "B", "DP-SEP", "DP-SGD"], cells)


def _whole_run(found: Sequence[Row]) -> tuple[str, str]:
    shares = only(found, metric="signal over noise, as a share of full batches'")
    batches, sizes = (sorted({row["setting"][key] for row in shares}) for key in ("batch", "records"))
    cells = []
    for records in sizes:
        own = [only(shares, records=records, batch=batch) for batch in batches]
        cells.append([f"{records:,}", *(f"{part[0]['mean']:.3f}" if part else "" for part in own)])
    ones = [f"{row['mean']:.2f} (N = {row['setting']['records']:,})" for row in only(shares, batch=1)]
    sentence = (
        "At the same epsilon and passes one record a step holds less of the signal over noise of full "
        f"batches the larger N is: {', '.join(ones)}. Epsilon 1, delta = 1e-5, zero-out, Poisson, ten passes."
    )
    return sentence, table(["N", *(f"B = {batch:,}" for batch in batches)], cells)


def _sigmas(found: Sequence[Row]) -> tuple[str, str]:
    names = ("sigma", "C sigma / N, noise of one step", "C sigma sqrt(T / N), noise of a run")
    cells, exponents = [], []
    for case, relation in dict.fromkeys((row["setting"]["case"], row["relation"]) for row in found):
        own = only(found, case=case, relation=relation)
        values = [only(own, metric=f"exponent in N of {name}")[0]["mean"] for name in names]
        exponents.append(values)
        cells.append([case, relation, *(f"{value:.2f}" for value in values)])
    low, high = (pick(values[2] for values in exponents) for pick in (min, max))
    sentence = (
        f"The noise of one step falls about as 1/N, that of a whole run only as N to the {low:.2f} to "
        f"{high:.2f}, because a run adds up T N steps. Exponents in N at epsilon 1 and ten passes of one "
        "record a step."
    )
    return sentence, table(["sampling", "relation", *names], cells)


def _stability(found: Sequence[Row]) -> tuple[str, str]:
    lost = ("share of runs that lose positive definiteness", "share of runs that diverge")
    middle = ("error, median", "test error, median")
    cells, better, unstable = [], 0, 0.0
    for case, speed in keys(found, "case", "gamma_over_n"):
        own = only(found, case=case, gamma_over_n=speed)
        errors = {row["setting"]["clip"]: row["mean"] for row in own if row["metric"] in middle}
        shares = {row["setting"]["clip"]: row["mean"] for row in own if row["metric"] in lost}
        clipped = {clip: value for clip, value in errors.items() if clip is not None and value is not None}
        best = min(clipped, key=lambda clip: clipped[clip])
        without = errors[None]
        better += without is None or clipped[best] < without
        unstable = max(unstable, shares[None] if speed == 1.0 else 0.0)
        kept = max(value for clip, value in shares.items() if clip is not None)
        figures = (shares[None], kept, without, clipped[best])
        cells.append([case, f"{speed:.3g}", *map(number, figures), f"{best:g}"])
    sentence = (
        f"With gamma = N the share of runs without a clip that became unstable was {unstable:g}. The best "
        f"clip, chosen afterwards, lowered the median error in {better} of {len(cells)} cases."
    )
    header = ["case", "gamma / N", "unstable, no clip", "unstable, clipped (most)", "error, no clip"]
    return sentence, table([*header, "error, best clip", "best C"], cells)
