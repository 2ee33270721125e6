"""Tables of docs/honesty.md, made from the kept results of the survey."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from dpsep_lab.bench.honesty.cells import Cell, named_cell
from dpsep_lab.bench.honesty.designs import DESIGNS
from dpsep_lab.bench.honesty.results import Score, outside

NOTHING = "None."
CLASSES = {
    "common": "common",
    "rare": "rare 0/1",
    "hard": "what the design is about",
    "intercept": "intercept",
}


class Kept:
    """The kept results.

    Parameters
    ----------
    document
        As `dpsep_lab`'s survey and `honesty.packed` make it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.scores = [_score(item) for item in document["scores"]]

    def of(self, **wanted: Any) -> list[Score]:
        """Scores of dpsep whose cells have these attributes."""
        wanted = {"who": "dpsep"} | wanted
        return [
            score
            for score in self.scores
            if all(getattr(score.cell, name) == value for name, value in wanted.items())
        ]


def _score(item: dict[str, Any]) -> Score:
    known: dict[str, Any] = {
        name: math.nan if item[name] is None else item[name] for name in Score._fields if name != "cell"
    }
    return Score(cell=named_cell(item["cell"]), **known)


def blocks(kept: Kept) -> dict[str, Callable[[], str]]:
    """Return what makes each block of the page."""
    return {
        "setting": lambda: _setting(kept),
        "verdicts": lambda: _verdicts(kept),
        "designs": lambda: _designs(kept),
        "outside": lambda: _outside(kept),
        "consistency": lambda: _consistency(kept),
        "steps": lambda: _steps(kept),
        "aims": lambda: _aims(kept),
        "ranks": lambda: _ranks(kept),
        "peers": lambda: _peers(kept),
    }


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return NOTHING
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float, places: int = 2) -> str:
    return "" if math.isnan(value) else f"{value:.{places}f}"


def _short(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"


def _setting(kept: Kept) -> str:
    tables = sorted(score.tables for score in kept.scores if score.tables)
    cells = {score.cell.name for score in kept.scores}
    absent = sorted({score.cell.target for score in kept.scores if score.verdict == "absent"})
    words = f"{len(cells)} cells, {tables[len(tables) // 2]} tables each (at least {tables[0]}); "
    words += f"dpsep {', '.join(kept.document['versions'])}."
    rows = [
        (f"`{name}`", "choose" if score.cell.role == "choose" else "judge", design.about)
        for name, design in DESIGNS.items()
        for score in kept.of(design=name)[:1]
    ]
    if absent:
        words += f" This version has no estimator for: {', '.join(absent)}."
    return words + "\n\n" + _table(("design", "for", "what is hard"), rows)


def _verdicts(kept: Kept) -> str:
    rows = []
    for role in ("choose", "judge"):
        found = outside(kept.scores, role)
        judged = max(found["judged"], 1)
        excused = sum(score.verdict == "excused" for score in kept.of(role=role))
        share = f"{found['outside']} ({100 * found['outside'] / judged:.0f} %)"
        more = (str(found["surely"]), str(found["far"]), str(excused))
        rows.append((role, str(found["judged"]), share, *more))
    header = ("designs", "classes", "outside", "by more than two standard errors", "below 0.82", "excused")
    return _table(header, rows)


def _plain(cell: Cell) -> bool:
    usual = cell.relation == "zero-out" and cell.sampling == "full" and cell.bounded and not cell.by_person
    return usual and cell.who == "dpsep" and (cell.epsilon or 0) < 100


def _designs(kept: Kept) -> str:
    scores = [score for score in kept.scores if _plain(score.cell) and score.tables]
    budgets = sorted({score.cell.epsilon for score in scores if score.cell.epsilon is not None})
    places: dict[tuple[str, str, int, str], dict[float | None, Score]] = {}
    for score in scores:
        cell = score.cell
        key = (cell.target, cell.design, cell.records, score.kind)
        places.setdefault(key, {})[cell.epsilon] = score
    parts = []
    for target in dict.fromkeys(key[0] for key in places):
        mine = {key: value for key, value in places.items() if key[0] == target}
        shown = [budget for budget in budgets if any(budget in value for value in mine.values())]
        rows = []
        for (_, design, records, kind), found in mine.items():
            cells = [_cell(found.get(budget)) for budget in (None, *shown)]
            rows.append((f"`{design}`", f"{records:,}", CLASSES[kind], *cells))
        header = ("design", "rows", "coefficients", "none", *(f"epsilon {budget:g}" for budget in shown))
        parts.append(f"### {target}\n\n{_table(header, rows)}")
    return "\n\n".join(parts)


def _cell(score: Score | None) -> str:
    if score is None or math.isnan(score.coverage):
        return ""
    text = _number(score.coverage)
    if score.cell.epsilon is not None and not math.isnan(score.against_open):
        text += f" ({score.against_open:.2g})"
    bad = score.verdict in ("low", "far too low", "high")
    return f"**{text}**" if bad and score.cell.epsilon is not None else text


def _outside(kept: Kept) -> str:
    bad = [
        score
        for score in kept.scores
        if score.verdict in ("low", "far too low", "failed")
        and score.sure | (score.verdict == "failed")
        and score.cell.epsilon is not None
    ]
    rows = [
        (
            f"`{score.cell.name}`",
            CLASSES.get(score.kind, score.kind),
            f"{_number(score.coverage)} ± {_number(score.error)}",
            *(_number(value) for value in (score.z_mean, score.z_sd, score.of_prior)),
            score.verdict,
        )
        for score in sorted(bad, key=lambda score: score.coverage)
    ]
    header = ("cell", "coefficients", "coverage", "z mean", "z sd", "sd / prior's", "verdict")
    words = "Too low by more than two standard errors, or failed; z is the error over the stated deviation."
    return f"{words}\n\n{_table(header, rows)}"


def _consistency(kept: Kept) -> str:
    rows = [
        (
            f"`{item['cell']}`",
            _number(item["gap"], 3),
            _number(item["worst"], 3),
            "" if item["holds"] else "no",
        )
        for item in kept.document["consistency"]
    ]
    return _table(("cell", "distance", "worst class", "holds"), rows)


def _steps(kept: Kept) -> str:
    found = kept.document["steps"]
    bad = [item for item in found if not item["holds"]]
    rows = [
        (
            f"`{item['cell']}`",
            f"{item['from']:g}",
            CLASSES[item["kind"]],
            _number(item["ratio"]),
            _number(item["bound"]),
        )
        for item in sorted(bad, key=lambda item: -item["bound"])
    ]
    header = ("cell", "from epsilon", "coefficients", "ratio", "bound")
    return f"{len(bad)} of {len(found)} pairs.\n\n{_table(header, rows)}"


def _aims(kept: Kept) -> str:
    rows = []
    for item in kept.document["aims"]:
        reached = (f"{item['value']:.3g}", f"{item['limit']:g}", "" if item["holds"] else "no")
        rows.append((f"`{item['cell']}`", CLASSES[item["kind"]], item["what"], *reached))
    return _table(("cell", "coefficients", "error", "measured", "at most", "holds"), rows)


def _ranks(kept: Kept) -> str:
    rows = []
    for item in kept.document["ranks"]:
        values = (math.nan if item[name] is None else item[name] for name in _TESTS)
        rows.append((f"`{item['cell']}`", str(item["tables"]), *(_number(value, 3) for value in values)))
    return _table(("cell", "tables", "ranks", "ellipsoid", "TARP", "largest gap of TARP"), rows)


_TESTS = ("ranks", "region", "tarp", "gap")


def _peers(kept: Kept) -> str:
    rows = []
    for score in kept.scores:
        cell = score.cell
        if cell.who == "dpsep" or not score.tables:
            continue
        ours = [
            item for item in kept.of() if item.cell == cell._replace(who="dpsep") and item.kind == score.kind
        ]
        for item in (score, *ours):
            setting = (f"`{cell.target}/{cell.design}`", f"{cell.epsilon:g}", CLASSES[score.kind])
            covered = _number(item.coverage) or "no interval"
            rows.append((*setting, item.cell.who, covered, _short(item.rmse)))
    return _table(("table", "epsilon", "coefficients", "who", "coverage", "RMSE"), list(dict.fromkeys(rows)))
