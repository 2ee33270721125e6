"""The back of the page: settings, the ledger's rows of its runs, an audit's, how to cite, and a glossary."""

import math
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from markupsafe import Markup, escape

from dpsep.report.page.contents import Value, parameters
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.sections_head import BUDGET, setting
from dpsep.report.page.svg import Axis, Mark, axis_of, dot, drawable, segment, upright
from dpsep.report.page.words import number, unit_words

__all__ = ["audit", "cite", "glossary", "ledger", "settings"]

MOST_LEDGER_ROWS = 100
MOST_AUDITED = 100
_PACKAGES = ("dpsep", "jax", "numpy", "scipy", "scikit-learn", "dp-accounting")


def settings(ctx: Context) -> Value:
    """Return all parameters, and the versions that made the page."""
    shown = {
        name: setting(value)
        for name, value in parameters(ctx.run).items()
        if ctx.verdict.private or name not in BUDGET
    }
    return {"shown": list(shown.items())[:200], "made": [[name, _version(name)] for name in _PACKAGES]}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def ledger(ctx: Context) -> Value:
    """Return the ledger's rows of the runs that the page states something of."""
    if ctx.ledger is None or isinstance(ctx.ledger, Absent):
        return {}
    runs = {one.fit.run for one in ctx.verdict.stated}
    runs |= {str(_metrics_run(one.run.privacy)) for one in ctx.verdict.stated}
    own = [row for row in ctx.ledger["rows"] if row["run"] in runs and row["kind"] != "release"]
    return {"own": own[:MOST_LEDGER_ROWS]}


def _metrics_run(privacy: Any) -> Any:
    metrics = privacy.get("metrics") if isinstance(privacy, dict) else None
    return metrics.get("run") if isinstance(metrics, dict) else None


def audit(ctx: Context) -> Value:
    """Return what was claimed, and what was proved against it, where both are numbers."""
    rows = ctx.audit if isinstance(ctx.audit, list) else []
    keys = ("claimed", "lower_bound")
    drawn = [row for row in rows if len(drawable(row.get(key, math.nan) for key in keys)) == 2]
    drawn = drawn[:MOST_AUDITED]
    claims = [claimed for claimed, _ in map(_ends, drawn)]
    axis = axis_of([*claims, *(min(proved, 3 * max(claims)) for _, proved in map(_ends, drawn))], zero=True)
    return {
        "rows": [
            (f"{row.get('target', '')}, {row.get('attack', '')}", *_ends(row), _marks(axis, row))
            for row in drawn
        ],
        "broken": sum(map(_is_broken, drawn)),
        "axis": axis,
    }


def _is_broken(row: Value) -> bool:
    """Whether more was proved than claimed, or the audit says so; what it says alone is not believed."""
    claimed, proved = _ends(row)
    return proved > claimed or bool(row.get("caught"))


def _ends(row: Value) -> tuple[float, float]:
    return float(row["claimed"]), float(row["lower_bound"])


def _marks(axis: Axis, row: Value) -> list[Mark]:
    claimed, proved = _ends(row)
    kind = "dot-caught" if _is_broken(row) else "dot-run"
    tip = f"claimed {number(claimed)}, proved at least {number(proved)}"
    return [
        segment(axis, 0.0, claimed, 13, "claim"),
        upright(axis, claimed, 26, "stated"),
        dot(axis, proved, 13, kind, tip),
    ]


_BIBTEX = """@article{vinaroz2022dpsep,
  title   = {Differentially Private Stochastic Expectation Propagation},
  author  = {Vinaroz, Margarita and Park, Mijung},
  journal = {Transactions on Machine Learning Research},
  year    = {2022}
}

@software{dpsep,
  title   = {dpsep: Private Bayesian inference by differentially private
             stochastic expectation propagation},
  version = {VERSION},
  license = {Apache-2.0}
}"""


def cite(_: Context) -> Value:
    """Return how to cite the method and the package, in lines."""
    return {"bibtex": Markup(_BIBTEX.replace("VERSION", escape(_version("dpsep"))))}


_TERMS = {
    "posterior": "What is believed about an unknown number after seeing the data: a mean and how sure one "
    "is.",
    "prior": "What was believed before, chosen without the data.",
    "90 % interval": "A range that holds the unknown number with a chance of nine in ten, if the model is "
    "right.",
    "standard deviation (sd)": "The usual size of an error.",
    "manifest": "A list of the run's files with a checksum of each.",
}
_PRIVATE_TERMS = {
    "release": "One noisy sum over the records: the only thing that leaves them.",
    "noise of privacy (DP noise)": "Random numbers of known size that are added to each sum so that no "
    "single UNIT shows. Intervals on this page account for it.",
    "public": "Known or declared without looking at the records: names and bounds of columns, and how many "
    "records there are.",
    "epsilon (ε)": "The most that one UNIT can change the logarithm of how likely any result is. Near 0 "
    "nothing about one UNIT can be learned; 1 is usual; above 10 it promises next to nothing.",
    "delta (δ)": "The chance in which nothing is promised; well below one over the number of UNITs.",
    "zero-out": "Compares the data with the same data in which one UNIT is left blank.",
    "replace-one": "Compares the data with the same data in which one UNIT is any other.",
    "ledger": "The account of all that was spent on a data set; charged before a record is read.",
}


def glossary(ctx: Context) -> Value:
    """Return the words of the page, explained."""
    terms = dict(_TERMS)
    if ctx.verdict.private:
        unit = unit_words(ctx.verdict.stated[0].fit.unit)
        terms |= {term: words.replace("UNIT", unit) for term, words in _PRIVATE_TERMS.items()}
    return {"terms": sorted(terms.items())}
