"""The back of the page: settings, files, the ledger's rows of this run, how to cite, and a glossary."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpsep.report.page.contents import Value, parameters
from dpsep.report.page.context import Context, section
from dpsep.report.page.figure import absent
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import Markup, clean, label, number, table, tag
from dpsep.report.page.sections_head import BUDGET, setting
from dpsep.report.page.words import number_down, number_up, unit_words

__all__ = ["cite", "files", "glossary", "ledger", "settings"]

MOST_LEDGER_ROWS = 100
_PACKAGES = ("dpsep", "jax", "numpy", "scipy", "scikit-learn", "dp-accounting")


def settings(ctx: Context) -> Markup:
    """Return all parameters, and the versions that made the page."""
    found = parameters(ctx.run)
    shown = {name: value for name, value in found.items() if ctx.verdict.private or name not in BUDGET}
    rows = [[tag("code", name), label(setting(value), 120)] for name, value in list(shown.items())[:200]]
    made = [[name, _version(name)] for name in _PACKAGES]
    return section(
        "settings",
        "Settings",
        table("Parameters of the estimator", ["parameter", "value"], rows, numeric=9)
        if rows
        else absent("The parameters cannot be read from the posterior."),
        tag(
            "details",
            tag("summary", "Versions that wrote this page"),
            table("Packages", ["package", "version"], made, numeric=9),
            tag("p", "A run does not store the versions that fitted it."),
        ),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def files(ctx: Context) -> Markup:
    """Return the files of all runs, and whether they match their manifests."""
    found = []
    for run in ctx.runs:
        rows = [
            [
                tag("code", label(file.name, 40)),
                "—" if file.size is None else f"{file.size:,}",
                label(file.state, 120),
                tag("code", file.digest or "—", class_="hash"),
            ]
            for file in run.files
        ]
        trouble = [absent(why) for why in run.trouble[:20]]
        name = ["Files of ", label(run.name)]
        found.append(
            table(name, ["file", "bytes", "against the manifest", "SHA-256"], rows, numeric=9)
            if rows
            else absent(name, " cannot be listed.")
        )
        found.append(trouble)
    return section(
        "files",
        "Files",
        tag(
            "p",
            "The manifest holds a checksum of every file of a run. It shows accidents and careless edits; it "
            "is no signature.",
        ),
        found,
    )


def ledger(ctx: Context) -> Markup:
    """Return the ledger's rows of the run."""
    title = "Ledger"
    if not ctx.verdict.private:
        return section("ledger", title, absent("A report without a statement of privacy shows no ledger."))
    document = ctx.ledger
    if document is None:
        how = "Name it with --ledger PATH to see this run's rows, and what is left of the whole budget."
        return section("ledger", title, absent("No ledger was given.", how))
    if isinstance(document, Absent):
        return section("ledger", title, absent("The ledger is not shown.", document.why))
    runs = {one.fit.run for one in ctx.verdict.stated}
    runs |= {str(_metrics_run(one.run.privacy)) for one in ctx.verdict.stated}
    own = [row for row in document["rows"] if row["run"] in runs and row["kind"] != "release"]
    spent, left = document["spent"], document["left"]
    budget = [
        ["allowed", number_down(document["epsilon"]), number_down(document["delta"])],
        ["spent", number_up(spent["epsilon"]), number_up(spent["delta"])],
        ["left", number_down(left["epsilon"]), number_down(left["delta"])],
    ]
    unit = (
        f"for each {clean(document['unit'])[:40]}, relation {document['relation']}, rule {document['rule']}"
    )
    return section(
        "ledger",
        title,
        tag("p", f"The chain of {document['count']:,} rows is whole and unchanged."),
        table(f"The whole budget, {unit}", ["", "ε", "δ"], budget),
        _ledger_rows(own)
        if own
        else absent("This ledger does not know the run: it was charged elsewhere, or not."),
    )


def _metrics_run(privacy: Any) -> Any:
    metrics = privacy.get("metrics") if isinstance(privacy, dict) else None
    return metrics.get("run") if isinstance(metrics, dict) else None


def _ledger_rows(rows: list[Value]) -> Markup:
    cells = [
        [
            number(row["number"]),
            label(row["time"], 40),
            label(row["kind"], 20),
            tag("code", label(row["run"][:12])),
            number_up(row["epsilon"]) if row["epsilon"] else "",
            number_up(row["delta"]) if row["delta"] else "",
            label(row["purpose"], 80),
        ]
        for row in rows[:MOST_LEDGER_ROWS]
    ]
    header = ["row", "time", "kind", "run", "ε", "δ", "what"]
    return table("Rows of the runs on this page", header, cells, numeric=9)


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


def cite(ctx: Context) -> Markup:
    """Return how to cite the method and the package."""
    text = _BIBTEX.replace("VERSION", _version("dpsep"))
    return section(
        "cite",
        "How to cite",
        tag("p", "The method is due to Vinaroz and Park (2022); the package is dpsep."),
        tag("pre", tag("code", text, id="bibtex"), class_="block"),
        tag("div", tag("button", "Copy", type="button", data_copy="bibtex"), class_="controls"),
    )


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


def glossary(ctx: Context) -> Markup:
    """Return the words of the page, explained."""
    terms = dict(_TERMS)
    if ctx.verdict.private:
        unit = unit_words(ctx.verdict.stated[0].fit.unit)
        terms |= {term: words.replace("UNIT", unit) for term, words in _PRIVATE_TERMS.items()}
    items = [tag("div", tag("dt", term), tag("dd", words)) for term, words in sorted(terms.items())]
    return section("glossary", "Glossary", tag("dl", items, class_="glossary"))
