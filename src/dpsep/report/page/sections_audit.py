"""Attacks: what was claimed, and what was proved against it."""

import math

from dpsep.report.page.contents import Value
from dpsep.report.page.context import Context, section
from dpsep.report.page.figure import absent, legend
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import Markup, label, number, tag
from dpsep.report.page.svg import Axis, axis_of, dot, drawable, segment, ticks, upright

__all__ = ["audit"]

MOST = 100
_ENDS = ("claimed", "lower_bound")


def audit(ctx: Context) -> Markup:
    """Return the section of an audit."""
    title, rows = "Audit", ctx.audit
    if not ctx.verdict.private:
        return section("audit", title, absent("A report without a statement of privacy shows no audit."))
    if rows is None:
        how = "'dpsep audit --json FILE' attacks the library; name the file with --audit FILE to see it here."
        return section("audit", title, absent("No audit was given.", how))
    if isinstance(rows, Absent):
        return section("audit", title, absent("The audit is not shown.", rows.why))
    drawn = [row for row in rows if len(drawable(row.get(key, math.nan) for key in _ENDS)) == 2][:MOST]
    if not drawn:
        return section("audit", title, absent("The audit has no row with a lower bound to draw."))
    claims = [float(row["claimed"]) for row in drawn]
    axis = axis_of([*claims, *(min(float(row["lower_bound"]), 3 * max(claims)) for row in drawn)], zero=True)
    caught = sum(map(_is_broken, drawn))
    words = f"{caught} of {len(drawn)} claims were broken." if caught else "No claim was broken."
    return section(
        "audit",
        title,
        tag(
            "p",
            "An attack plants records and tries to tell whether they were there. How well it does proves "
            f"that ε is at least so much. A dot right of its claim would be proof of a leak. {words} The "
            "audit is of the library with made-up tables, not of this run.",
        ),
        legend(
            ("claim", "claimed"), ("dot-run", "proved, at least"), ("dot-caught", "proved, above the claim")
        ),
        _table(drawn, axis),
    )


def _is_broken(row: Value) -> bool:
    """Whether more was proved than claimed, or the audit says so; what it says alone is not believed."""
    return float(row["lower_bound"]) > float(row["claimed"]) or bool(row.get("caught"))


def _table(rows: list[Value], axis: Axis) -> Markup:
    head = [
        tag("th", "target, attack", scope="col"),
        tag(
            "th",
            tag("span", "claimed and proved", class_="unseen"),
            tag("svg", ticks(axis, 2, lines=False), class_="area", height=24, aria_hidden="true"),
            scope="col",
            class_="strip",
        ),
        tag("th", "claimed", scope="col", class_="num"),
        tag("th", "proved", scope="col", class_="num"),
    ]
    body = []
    for row in rows:
        claimed, proved = float(row["claimed"]), float(row["lower_bound"])
        kind = "dot-caught" if _is_broken(row) else "dot-run"
        tip = f"claimed {number(claimed)}, proved at least {number(proved)}"
        marks = [segment(axis, 0.0, claimed, 13, "claim"), upright(axis, claimed, 26, "stated")]
        marks.append(dot(axis, proved, 13, kind, tip))
        inside = tag("svg", marks, class_="inside", width="100%", height=26)
        name = f"{row.get('target', '')}, {row.get('attack', '')}"
        body.append(
            tag(
                "tr",
                tag("th", label(name), scope="row"),
                tag("td", tag("svg", inside, class_="area", height=26, aria_hidden="true"), class_="strip"),
                tag("td", number(claimed), class_="num"),
                tag("td", number(proved), class_="num"),
            )
        )
    inner = tag(
        "table",
        tag("caption", "Claimed and proved epsilon"),
        tag("thead", tag("tr", head)),
        tag("tbody", body),
        class_="audit",
    )
    return tag("div", inner, class_="scroll")
