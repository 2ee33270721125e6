"""The page's top: the stamp, the tiles, and what was asked of the data."""

import inspect
import math
import statistics
from typing import Any

from dpsep.data.column import Column, Fill
from dpsep.estimators.store import KINDS
from dpsep.report.page.contents import Run, kind_of, parameters
from dpsep.report.page.context import Context, about, records_of, section, target_of
from dpsep.report.page.figure import absent
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import Markup, clean, label, number, percent, table, tag
from dpsep.report.page.words import number_up, one_in, relation_words, unit_words

__all__ = ["asked", "header", "noise_shares", "setting", "tiles"]

MOST_COLUMNS = 300
"""Columns of a schema that are listed."""
MOST_CAUTIONS = 20
BUDGET = ("epsilon", "delta", "private", "relation", "noise_aware")
"""Parameters that speak of privacy: not shown on a page that makes no statement."""


def header(ctx: Context) -> Markup:
    """Return title, model, date and the stamp."""
    title = clean(ctx.title).strip() if ctx.title else ""
    return tag(
        "header",
        tag("p", "dpsep report", class_="eyebrow"),
        tag("h1", title[:200] or about(ctx.run)),
        tag(
            "p",
            [tag("span", about(ctx.run)), " · "] if title else None,
            "run ",
            label(ctx.run.name),
            [[" · beside it ", label(one.name)] for one in ctx.beside],
            f" · written {ctx.written}",
            class_="byline",
        ),
        _stamp(ctx),
        class_="top",
    )


def _stamp(ctx: Context) -> Markup:
    verdict = ctx.verdict
    if not verdict.private:
        return tag(
            "div",
            tag("p", "NOT PRIVATE", class_="stamp-word"),
            tag("p", "This report makes no statement of privacy."),
            tag("ul", [tag("li", reason) for reason in verdict.reasons]),
            tag(
                "p",
                "Titles and names on this page are as the user gave them, and state nothing.",
                class_="fine",
            ),
            class_="stamp open",
        )
    total = verdict.total
    numbers = "each run by its own statement"
    if total is not None:
        numbers = f"(ε = {number_up(total.epsilon)}, δ = {number_up(total.delta)})"
    first = verdict.stated[0]
    words = f"For each {unit_words(first.fit.unit)}, {relation_words(first.fit.relation, first.fit.unit)}."
    if total is None:
        words = "The runs protect different units, or compare different tables, and do not add up."
    elif len(verdict.stated) > 1:
        words += " All runs on this page together, if they read the same records."
    elif first.metrics is not None:
        words += " Fit and metrics together."
    cautions = verdict.cautions[:MOST_CAUTIONS]
    kind = "private" if verdict.secure and not cautions else "unsafe"
    return tag(
        "div",
        tag(
            "p",
            "PRIVATE, ",
            tag("span", numbers, class_="numbers"),
            ", with a caution" if len(cautions) == 1 else None,
            f", with {len(verdict.cautions)} cautions" if len(cautions) > 1 else None,
            class_="stamp-word",
        ),
        tag("p", words),
        tag("ul", [tag("li", clean(caution)[:600]) for caution in cautions], class_="cautions")
        if cautions
        else None,
        None
        if verdict.secure
        else tag(
            "p",
            "NOT FOR RELEASE: the noise of a run was seeded or made by the fast floating-point path. Whoever "
            "knows the seed can take it off.",
            class_="not-for-release",
        ),
        class_=f"stamp {kind}",
    )


def tiles(ctx: Context) -> Markup | None:
    """Return the numbers to see first."""
    verdict = ctx.verdict
    found: list[tuple[str, Any, Any]] = []
    if verdict.private:
        first = verdict.stated[0]
        total = first.total
        whose = "the smaller, the safer" if first.metrics is None else "fit and metrics"
        whose = "of this run alone" if ctx.beside else whose
        found += [
            ("Epsilon ε", number_up(total.epsilon), whose),
            ("Delta δ", number_up(total.delta), f"no promise in {one_in(total.delta)}"),
            ("Protected", f"each {unit_words(first.fit.unit)}", f"relation: {first.fit.relation}"),
            ("Releases", number(first.fit.steps), "noisy sums of the fit"),
        ]
        records = records_of(ctx)
        if records is not None:
            unit = unit_words(first.fit.unit)
            found.append(
                (f"{unit[:1].upper()}{unit[1:]}s in the fit", f"{records:,}", "their number is public")
            )
    shares = noise_shares(ctx.run)
    if verdict.private and shares:
        found.append(("DP noise", percent(statistics.median(shares)), "of the variance, median"))
    if not verdict.private and not isinstance(ctx.run.rows, Absent):
        found.append(("Rows", f"{len(ctx.run.rows):,}", "in the posterior's summary"))
    items = [
        tag("div", tag("dt", name), tag("dd", value, class_="value"), tag("dd", words), class_="tile")
        for name, value, words in found
    ]
    return tag("dl", items, class_="tiles") if items else None


def noise_shares(run: Run) -> list[float]:
    """Return the shares of noise in the variances, those that are numbers."""
    if isinstance(run.rows, Absent):
        return []
    shares = [row.get("noise_share") for row in run.rows]
    return [share for share in shares if isinstance(share, float) and math.isfinite(share)]


def asked(ctx: Context) -> Markup:
    """Return the section on what was asked."""
    run, kind = ctx.run, kind_of(ctx.run)
    target = target_of(run)
    words = [tag("p", tag("strong", about(run)), ". ", KINDS[kind].words.coefficient if kind else "")]
    if ctx.beside:
        more = "Runs beside it stand in the stamp, in what was spent, in what was found and among the files."
        words.append(tag("p", "This page is about the run ", label(run.name), f". {more}"))
    if target is not None:
        words.append(
            tag("p", "Predicted: ", label(target), ". Everything else that is declared predicts it.")
        )
    return section("asked", "What was asked", words, _columns(ctx), _looked(ctx), _changed(ctx))


def _looked(ctx: Context) -> list[Markup]:
    """Which of the runs have a schema that was read off the data."""
    found = []
    for run in ctx.runs:
        if not isinstance(run.schema, Absent) and run.schema.looked:
            whose = ["The declarations of ", label(run.name)] if ctx.beside else "These declarations"
            more = ", which no guarantee covers." if ctx.verdict.private else "."
            found.append(absent([whose, f" were read off the data{more}"]))
    return found


def _columns(ctx: Context) -> Markup:
    schema = ctx.run.schema
    if isinstance(schema, Absent):
        return absent(
            "The declared columns are not shown.",
            schema.why,
            "'dpsep fit' writes a schema beside the posterior.",
        )
    shown = schema.columns[:MOST_COLUMNS]
    rules = any(column.missing != "drop" for column in shown)
    rows: list[list[Any]] = [[label(column.name), column.kind, _declared(column)] for column in shown]
    header = ["column", "kind", "declared"]
    if rules:
        header.append("missing cells")
        rows = [[*row, _missing(column)] for row, column in zip(rows, shown, strict=True)]
    note = None
    if len(schema.columns) > len(shown):
        note = absent(f"The first {len(shown)} of {len(schema.columns)} columns are listed.")
    claim = ctx.verdict.private and not schema.looked
    public = "What was declared of the columns is public. " if claim else ""
    return tag(
        "div",
        tag("p", f"{public}Cells beyond their bounds were clamped to them."),
        table("Declared columns", header, rows, class_="data wide", numeric=9),
        None if rules else tag("p", "A record with a missing cell counts for nothing."),
        None if schema.unit is None else tag("p", "Rows of one ", label(schema.unit), " belong together."),
        note,
    )


def _declared(column: Column) -> Any:
    if column.kind == "category":
        levels = column.categories or ()
        shown = [[", " if place else "", label(level, 30)] for place, level in enumerate(levels[:12])]
        return [f"{len(levels)} values: ", shown, ", …" if len(levels) > 12 else ""]
    if column.bounds is None:
        return "no bounds: found by the fit"
    return f"{number(column.bounds[0])} to {number(column.bounds[1])}"


def _missing(column: Column) -> Any:
    if isinstance(column.missing, Fill):
        return ["filled with ", label(column.missing.value, 30)]
    return "a level of their own" if column.missing == "category" else "the record counts for nothing"


def _changed(ctx: Context) -> Markup:
    """Settings that are not the defaults."""
    kind = kind_of(ctx.run)
    if kind is None:
        return absent("The settings cannot be told from the defaults of a model that is not known here.")
    defaults = inspect.signature(KINDS[kind].__init__).parameters
    rows = []
    for name, value in parameters(ctx.run).items():
        if name in BUDGET or name in ("bounds", "target_bounds", "classes") or name not in defaults:
            continue
        if setting(value) != setting(defaults[name].default):
            rows.append(
                [tag("code", name), label(setting(value), 80), label(setting(defaults[name].default), 80)]
            )
    if not rows:
        more = ", which follow from public numbers." if ctx.verdict.private else "."
        return tag("p", f"All other settings are the defaults{more}")
    return table("Settings that differ from the defaults", ["setting", "here", "default"], rows, numeric=9)


def setting(value: Any) -> str:
    """Return a parameter's value as short text.

    Examples
    --------
    >>> setting(None), setting((1.0, 2.5)), setting("full")
    ('none', '(1, 2.5)', 'full')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return number(value, 6)
    if isinstance(value, list | tuple) and len(value) <= 24:
        return "(" + ", ".join(setting(part) for part in value) + ")"
    return clean(value)[:200]
