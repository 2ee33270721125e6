"""What was spent: what the statement means as odds, and the curves that follow from the same noise."""

import math

import numpy as np

from dpsep.privacy.accounting import Schedule
from dpsep.privacy.curve import epsilon_curve, over_releases
from dpsep.report.page.contents import Value
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.svg import HEIGHT, Axis, Panel, axis_of, dot, drawable, line, upright
from dpsep.report.page.verdict import Stated
from dpsep.report.page.words import CLAIMS, chance_after, number, number_up, odds, one_in, percent, percent_up

__all__ = ["curve", "spent"]


def spent(ctx: Context) -> Value:
    """Return what the statement means as odds, and on what conditions."""
    total = ctx.verdict.total
    if total is None:
        return {}
    fit = ctx.verdict.stated[0].fit
    claims = odds(total.epsilon, total.delta, fit.relation, fit.unit)
    rows = [
        ["odds grow by at most", *(f"×{number_up(math.exp(min(one.exponent, 700.0)), 3)}" for one in claims)]
    ]
    for before in CLAIMS:
        after = [percent_up(chance_after(before, one.exponent)) for one in claims]
        rows.append([f"held {percent(before)} likely before: then at most", *after])
    rows.append(["no promise in", *(one_in(one.beyond) for one in claims)])
    return {"header": ["claim", *(one.claim for one in claims)], "odds": rows, "conditions": _conditions(ctx)}


def _conditions(ctx: Context) -> list[str]:
    """On what conditions the odds hold."""
    found = []
    if not ctx.verdict.secure:
        found.append("the reader has no way to the noise, which was seeded or made by the fast path")
    if any(one.fit.leaks or one.looked for one in ctx.verdict.stated):
        found.append("nothing is learned from what stands outside the guarantee, listed below")
    if any(one.fit.federation is not None for one in ctx.verdict.stated):
        found.append("the reader is one whom the guarantee of the federation is for, as said below")
    return found


def curve(ctx: Context) -> Value:
    """Return epsilon against delta, and over the releases, of the page's own fit."""
    first = ctx.verdict.stated[0] if ctx.verdict.stated else None
    if first is None or isinstance(first.schedule, Absent):
        return {"first": first}
    return {
        "first": first,
        "stated": _pair(first.fit.epsilon, first.fit.delta),
        "deltas": _against_delta(first, first.schedule),
        "releases": _over_releases(first, first.schedule),
    }


def _against_delta(one: Stated, schedule: Schedule) -> Panel:
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
    return Panel(x, y, marks, [[number_up(d, 3), number_up(e)] for d, e in pairs])


def _over_releases(one: Stated, schedule: Schedule) -> Panel:
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
    return Panel(x, y, marks, [[number(done), number_up(spent)] for done, spent in pairs])


def _pair(epsilon: float, delta: float) -> str:
    return f"ε = {number_up(epsilon)} at δ = {number_up(delta, 3)}"
