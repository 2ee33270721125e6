"""What was spent: the statement in plain words, what it means as odds, what it does not cover, its curve."""

import math
from typing import Any

import numpy as np

from dpsep.privacy.accounting import Schedule
from dpsep.privacy.curve import epsilon_curve, over_releases
from dpsep.report.page.context import Context, section
from dpsep.report.page.figure import absent, figure, legend
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import Markup, label, number, percent, table, tag
from dpsep.report.page.svg import HEIGHT, Axis, axis_of, dot, drawable, line, panel, upright
from dpsep.report.page.verdict import Stated
from dpsep.report.page.words import CLAIMS, chance_after, number_up, odds, one_in, percent_up, unit_words

__all__ = ["curves", "spent"]

_NOTHING = "This report makes no statement of privacy, so there is nothing to show here."


def spent(ctx: Context) -> Markup:
    """Return the section on what was spent."""
    if not ctx.verdict.private:
        return section(
            "spent",
            "What was spent",
            absent(_NOTHING),
            tag("ul", [tag("li", reason) for reason in ctx.verdict.reasons]),
            tag(
                "p",
                "Numbers on this page may give away single records. Do not pass it on as if it were private.",
            ),
        )
    stated = ctx.verdict.stated
    return section(
        "spent",
        "What was spent",
        [_statement(one, many=len(stated) > 1) for one in stated],
        _odds(ctx),
        _not_covered(ctx),
    )


def _statement(one: Stated, *, many: bool) -> Markup:
    text = one.fit.sentence()
    if one.metrics is not None:
        total = one.total
        text += (
            f" Its metrics cost ({number_up(one.metrics.epsilon)}, {number_up(one.metrics.delta)}) more; "
            f"both together count as ({number_up(total.epsilon)}, {number_up(total.delta)}), the sum."
        )
    return tag(
        "blockquote",
        tag("p", tag("strong", "Run ", label(one.run.name), ". "), text) if many else tag("p", text),
    )


def _odds(ctx: Context) -> Any:
    total, first = ctx.verdict.total, ctx.verdict.stated[0]
    if total is None:
        return absent(
            "The runs protect different units, or compare different tables, so that no one number says what "
            "all of them tell."
        )
    unit = unit_words(first.fit.unit)
    claims = odds(total.epsilon, total.delta, first.fit.relation, first.fit.unit)
    rows: list[list[Any]] = [
        ["odds grow by at most", *(f"×{number_up(math.exp(min(one.exponent, 700.0)), 3)}" for one in claims)]
    ]
    for before in CLAIMS:
        after = [percent_up(chance_after(before, one.exponent)) for one in claims]
        rows.append([f"held {percent(before)} likely before: then at most", *after])
    rows.append(["no promise in", *(one_in(one.beyond) for one in claims)])
    return [
        tag("h3", f"What a reader can learn about one {unit}"),
        tag("p", _promise(ctx, unit)),
        table(
            "The most that this result can do to a chance",
            ["claim", *(one.claim for one in claims)],
            rows,
            class_="data odds",
        ),
        tag(
            "p",
            "How it is computed: odds are chance / (1 − chance); the result multiplies them by at most the "
            "factor in the table, e",
            tag("sup", "ε"),
            " for tables that the guarantee compares directly, e",
            tag("sup", "2ε"),
            f" for two values of a {unit} that are each compared with a blank. The last row is what δ "
            "leaves open: the run behaves like one that always keeps the bound, but for a chance of at most "
            "that much, in which nothing is promised. What is learned about people in general, such as that "
            "smoking harms, is the purpose of a study, holds whether or not a person takes part, and is not "
            "counted.",
            class_="fine",
        ),
    ]


def _promise(ctx: Context, unit: str) -> str:
    """What the table of odds says, and on what conditions where there are any."""
    words = (
        f"Suppose someone knows every other {unit} and holds a claim about one {unit} to be true with some "
        "chance. Seeing this result can move that chance no further than the table says, whatever the reader "
        "knows and however clever the attack"
    )
    conditions = []
    if not ctx.verdict.secure:
        conditions.append("the reader has no way to the noise, which was seeded or made by the fast path")
    if any(one.fit.leaks or _looked(one) for one in ctx.verdict.stated):
        conditions.append("nothing is learned from what stands outside the guarantee, listed below")
    if any(one.fit.federation is not None for one in ctx.verdict.stated):
        conditions.append("the reader is one whom the guarantee of the federation is for, as said below")
    if not conditions:
        return f"{words}."
    return f"{words}, but only if {'; and if '.join(conditions)}."


def _looked(one: Stated) -> bool:
    return not isinstance(one.run.schema, Absent) and one.run.schema.looked


def _not_covered(ctx: Context) -> list[Any]:
    items: list[Any] = []
    unit = unit_words(ctx.verdict.stated[0].fit.unit)
    several = ", such as a person with several records" if unit == "record" else ""
    for one in ctx.verdict.stated:
        whose = ["Run ", label(one.run.name), ". "] if ctx.beside else None
        items += [[whose, "Outside the guarantee: ", label(leak, 600)] for leak in one.fit.leaks[:50]]
        if _looked(one) and not one.fit.leaks:
            items.append([whose, "Outside the guarantee: declarations that were read off the data."])
        if not one.fit.secure:
            items.append(
                [
                    whose,
                    tag("strong", "NOT FOR RELEASE. "),
                    "The noise was seeded or made by the fast floating-point path.",
                ]
            )
        if one.fit.federation is not None:
            items.append([whose, "Federation: ", label(one.fit.federation["text"], 1500)])
    items += [
        "Other results from the same records, a schema that was found privately among them: they add up. A "
        "ledger counts them; this page counts what it shows.",
        f"Anything about more than one {unit} at a time{several}: for ten together ε counts ten times, and δ "
        "more than that.",
        "The table itself, backups of it and whoever can read it.",
        "Whoever can change the run's folder: its manifest shows accidents, and is no signature.",
    ]
    return [tag("h3", "What is not covered"), tag("ul", [tag("li", item) for item in items])]


def curves(ctx: Context) -> Markup:
    """Return the section of the privacy curves."""
    title = "How the privacy loss adds up"
    if not ctx.verdict.private:
        return section("curve", title, absent(_NOTHING))
    first = ctx.verdict.stated[0]
    schedule = first.schedule
    if isinstance(schedule, Absent):
        return section(
            "curve",
            title,
            absent(schedule.why, "" if first.fit.federation else "A fit by this version stores it."),
        )
    whose = tag("p", "Of the fit of run ", label(first.run.name), " alone.") if ctx.beside else None
    return section("curve", title, whose, _against_delta(first, schedule), _over_releases(first, schedule))


def _against_delta(one: Stated, schedule: Schedule) -> Markup:
    stated = math.log10(one.fit.delta)
    powers = np.linspace(min(-10.0, math.floor(stated)), max(-2.0, math.ceil(stated)), 33)
    powers = np.unique(np.append(powers, stated))
    epsilons = epsilon_curve(schedule, 10.0**powers)
    pairs = [(float(10.0**power), float(epsilon)) for power, epsilon in zip(powers, epsilons, strict=True)]
    pairs = [pair for pair in pairs if drawable(pair) == list(pair)]
    x = Axis(float(powers[0]), float(powers[-1]), log=True)
    y = axis_of([epsilon for _, epsilon in pairs], zero=True)
    marks = [
        upright(x, one.fit.delta, HEIGHT, "stated"),
        line(x, y, pairs, "curve"),
        *(
            dot(x, delta, HEIGHT * (1 - y.share(epsilon)), "dot-quiet", _pair(epsilon, delta), r=3)
            for delta, epsilon in pairs
        ),
        dot(
            x,
            one.fit.delta,
            HEIGHT * (1 - y.share(one.fit.epsilon)),
            "dot-stated",
            f"stated: {_pair(one.fit.epsilon, one.fit.delta)}",
            r=5,
        ),
    ]
    words = f"Epsilon falls as delta grows; as stated it is {_pair(one.fit.epsilon, one.fit.delta)}."
    return figure(
        "fig-delta",
        "Epsilon against delta",
        "One run keeps many promises at once: a smaller chance δ of no promise at the price of a larger ε. "
        "The stated pair is one point of this curve; the rest follows from the same noise.",
        panel(x, y, marks, words=words),
        table("Epsilon at each delta", ["δ", "ε"], [[number_up(d, 3), number_up(e)] for d, e in pairs]),
        axis=x,
        axis_words="δ (logarithmic) · ε upward",
        keys=legend(("curve", "the fit"), ("dot-stated", "as stated")),
    )


def _over_releases(one: Stated, schedule: Schedule) -> Markup:
    pairs = [(float(done), float(spent)) for done, spent in over_releases(schedule, one.fit.delta)]
    pairs = [pair for pair in pairs if drawable(pair) == list(pair)]
    x, y = axis_of([0.0, *(done for done, _ in pairs)], room=0.02), axis_of([e for _, e in pairs], zero=True)
    marks = [
        line(x, y, [(0.0, 0.0), *pairs], "curve"),
        *(
            dot(
                x,
                done,
                HEIGHT * (1 - y.share(spent)),
                "dot-run",
                f"after {number(done)} releases: ε = {number_up(spent)}",
                r=3,
            )
            for done, spent in pairs
        ),
    ]
    words = (
        f"Epsilon after each release, rising to {number_up(one.fit.epsilon)} after {number(pairs[-1][0])}."
    )
    return figure(
        "fig-releases",
        "Epsilon over the releases",
        f"What a reader of the first releases alone would learn, at δ = {number_up(one.fit.delta)}. It grows "
        "more and more slowly: a later release costs less than an earlier one with the same noise. The whole "
        "was charged before the first one; a run that stops early has still spent all of it.",
        panel(x, y, marks, words=words),
        table(
            "Epsilon after so many releases", ["releases", "ε"], [[number(d), number_up(e)] for d, e in pairs]
        ),
        axis=x,
        axis_words="releases · ε upward",
    )


def _pair(epsilon: float, delta: float) -> str:
    return f"ε = {number_up(epsilon)} at δ = {number_up(delta, 3)}"
