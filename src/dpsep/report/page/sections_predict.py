"""Does it predict well? Metrics, and the histograms behind them where their rows are public or charged."""

import math
from itertools import pairwise
from typing import Any

from dpsep.report.page.calibration import answer, explained
from dpsep.report.page.contents import Value, kind_of
from dpsep.report.page.context import Context, section
from dpsep.report.page.figure import absent, figure, legend
from dpsep.report.page.files import Absent
from dpsep.report.page.markup import Markup, clean, number, percent, table, tag
from dpsep.report.page.svg import HEIGHT, Axis, axis_of, bar, dot, drawable, line, panel

__all__ = ["predicts"]

_MEANING = {
    "log_density": "log predictive density, larger is better",
    "rmse": "root mean squared error, smaller is better",
    "coverage_90": "targets inside their 90 % interval",
    "accuracy": "labels that are predicted right",
}
MOST_BINS = 200
_PLAIN = {
    "held-out rows, privately": "held-out rows",
    "a table declared public": "a table that was given for it",
}
"""Rows in words that claim nothing."""


def predicts(ctx: Context) -> Markup:
    """Return the section on predictions."""
    title, metrics = "Does it predict well?", ctx.run.metrics
    if isinstance(metrics, Absent):
        return section("predicts", title, absent("There are no metrics in this run.", _how(ctx)))
    return section("predicts", title, _tiles(ctx, metrics), _histograms(ctx, metrics))


def _how(ctx: Context) -> str:
    words = "Fit with --public-test TABLE, to score rows that you declare public"
    if not ctx.verdict.private:
        return words + "."
    return (
        f"To compute them from the table that was fitted would read private rows without a charge. {words}, "
        "or with --metrics-epsilon E, to hold rows out and score them for a charge."
    )


def _tiles(ctx: Context, metrics: Value) -> list[Any]:
    values, noise = metrics.get("metrics"), metrics.get("noise_sd")
    values = values if isinstance(values, dict) else {}
    noise = noise if isinstance(noise, dict) else {}
    items = []
    for name, value in list(values.items())[:20]:
        shown = percent(value) if name in ("coverage_90", "accuracy") else number(value)
        spread = noise.get(name)
        words = _MEANING.get(name, "")
        if spread is not None:
            more = percent(spread) if name in ("coverage_90", "accuracy") else number(spread, 2)
            words += f"; noise of privacy ± {more}" if ctx.verdict.private else f"; ± {more}"
        items.append(
            tag(
                "div",
                tag("dt", clean(name)[:40].replace("_", " ")),
                tag("dd", shown, class_="value"),
                tag("dd", words),
                class_="tile",
            )
        )
    on, rows = clean(metrics.get("on", "rows that are not described"))[:100], metrics.get("rows")
    if not ctx.verdict.private:  # what the folder says of its rows may be a claim
        on = _PLAIN.get(on, "rows that are not described")
    where = f"Computed on {on}" + (f", {rows:,} rows." if isinstance(rows, int) else ".")
    return [tag("p", where), tag("dl", items, class_="tiles") if items else absent("No metric can be read.")]


def _histograms(ctx: Context, metrics: Value) -> Any:
    found = metrics.get("calibration")
    if not isinstance(found, dict) or found.get("source") not in ("public", "charged"):
        return absent("There are no calibration plots in this run.", _how(ctx))
    pictures = []
    whiskers = "± sd of the noise of privacy" if ctx.verdict.private else "± sd"
    for name, draw in _PLOTS.items():
        if name in found:
            try:
                pictures.append(draw(found[name], whiskers))
            except Exception as error:  # of a damaged document
                words = f"The {name} of the predictions could not be read ({type(error).__name__})."
                pictures.append(absent(words))
    source = "rows declared public" if ctx.verdict.private else "a table that was given for it"
    if found["source"] == "charged":
        source = "held-out rows"
        if ctx.verdict.private:
            source += ", by noisy counts that were charged"
    return [
        _answer(found),
        tag("p", f"The plots below come from {source}.{explained(kind_of(ctx.run))}"),
        tag("div", pictures, class_="pair"),
    ]


def _answer(found: Value) -> Markup | None:
    """The plain answer on calibration."""
    given = answer(found)
    if given is None:
        return None
    what = "Chances" if "reliability" in found else "Intervals"
    return tag("p", tag("strong", f"{what}: {given.word}."), f" {given.sentence}", class_="answer")


def _pit(part: Value, whiskers: str) -> Markup:
    expected = 1 / len(part["share"])
    return _histogram(
        "fig-pit",
        "Where targets fall in their predictions (PIT)",
        "Each target is ranked within its own predictive distribution. Flat is right; a hill means intervals "
        "that are too wide, a valley too narrow, a slope predictions that are off to one side.",
        part,
        "rank within the prediction · share of rows upward",
        lambda low, high: (
            expected * (high - low) * len(part["share"]) / (part["edges"][-1] - part["edges"][0])
        ),
        whiskers,
    )


def _residuals(part: Value, whiskers: str) -> Markup:
    def normal(low: float, high: float) -> float:
        first, last = low <= part["edges"][0], high >= part["edges"][-1]
        below = 0.0 if first else _below(low)
        return (1.0 if last else _below(high)) - below

    return _histogram(
        "fig-residuals",
        "Errors in units of their predicted size",
        "Target minus predicted mean, over the predicted standard deviation. Dots are a normal "
        "distribution's; the outermost bars hold all that lies beyond.",
        part,
        "standardised error · share of rows upward",
        normal,
        whiskers,
    )


def _below(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def _histogram(
    name: str, title: str, words: str, part: Value, axis_words: str, expected: Any, whiskers: str
) -> Markup:
    edges, shares = _list(part["edges"]), _list(part["share"])
    if len(edges) != len(shares) + 1:
        raise ValueError("edges and shares do not fit together.")
    spread = part.get("noise_sd")
    x = Axis(edges[0], edges[-1])
    wanted = [expected(low, high) for low, high in pairwise(edges)]
    noise = spread if isinstance(spread, int | float) else 0.0
    y = axis_of([*(share + noise for share in shares), *wanted], zero=True)
    marks, rows = [], []
    for low, high, share, right in zip(edges[:-1], edges[1:], shares, wanted, strict=True):
        top = HEIGHT * (1 - y.share(max(share, 0.0)))
        tip = f"{number(low, 3)} to {number(high, 3)}: {percent(share)}, expected {percent(right)}"
        marks.append(bar(x, low, high, top, HEIGHT * (1 - y.share(0.0)), "bar-run", tip))
        middle = (low + high) / 2
        if noise:
            ends = [(middle, share - noise), (middle, share + noise)]
            marks.append(line(x, y, ends, "whisker"))
        marks.append(dot(x, middle, HEIGHT * (1 - y.share(right)), "dot-expected", r=3))
        rows.append([f"{number(low, 3)} to {number(high, 3)}", percent(share), percent(right)])
    keys = [("bar-run", "share of rows"), ("dot-expected", "expected")]
    if noise:
        keys.append(("whisker", whiskers))
    return figure(
        name,
        title,
        words,
        panel(x, y, marks, words=f"Histogram of {len(shares)} bars. {words}"),
        table(title, ["bin", "share", "expected"], rows),
        axis=x,
        axis_words=axis_words,
        keys=legend(*keys),
    )


def _coverage(part: Value, whiskers: str) -> Markup:
    pairs = list(zip(_list(part["level"]), _list(part["share"]), strict=True))
    words = (
        "How often targets lie inside intervals of each level. On the line is right; below it intervals are "
        "too narrow, above too wide."
    )
    return _diagonal(
        "fig-coverage",
        "Coverage of intervals",
        words,
        pairs,
        part.get("noise_sd"),
        ("level", "targets inside"),
        whiskers,
    )


def _reliability(part: Value, whiskers: str) -> Markup:
    predicted, observed, spread = part["predicted"], part["observed"], part.get("noise_sd")
    kept = [i for i in range(len(predicted)) if predicted[i] is not None and observed[i] is not None]
    pairs = [(float(predicted[i]), float(observed[i])) for i in kept]
    noise = [spread[i] for i in kept] if isinstance(spread, list) and len(spread) == len(predicted) else None
    words = (
        "Of rows that were given a chance, how many had the second class. On the line is right: what is said "
        "to happen in 30 % of cases does."
    )
    return _diagonal(
        "fig-reliability",
        "Reliability of probabilities",
        words,
        pairs,
        noise,
        ("predicted chance", "observed"),
        whiskers,
    )


def _diagonal(
    name: str,
    title: str,
    words: str,
    pairs: list[tuple[float, float]],
    noise: Any,
    names: tuple[str, str],
    whiskers: str,
) -> Markup:
    x, y = Axis(0.0, 1.0), Axis(0.0, 1.0)
    spreads = noise if isinstance(noise, list) and len(noise) == len(pairs) else [None] * len(pairs)
    marks = [line(x, y, [(0.0, 0.0), (1.0, 1.0)], "ideal"), line(x, y, pairs, "curve")]
    keys = [("dot-run", "this run"), ("ideal", "right")]
    if any(isinstance(spread, int | float) for spread in spreads):
        keys.append(("whisker", whiskers))
    rows = []
    for (at, share), spread in zip(pairs, spreads, strict=True):
        if drawable([at, share]) != [at, share]:
            continue
        more = ""
        if isinstance(spread, int | float) and math.isfinite(spread) and spread > 0:
            marks.append(line(x, y, [(at, share - spread), (at, share + spread)], "whisker"))
            more = f" ± {percent(spread)}"
        tip = f"{names[0]} {percent(at)}: {percent(share)}{more} {names[1]}"
        marks.append(dot(x, at, HEIGHT * (1 - y.share(share)), "dot-run", tip))
        rows.append([percent(at), percent(share) + more])
    return figure(
        name,
        title,
        words,
        panel(x, y, marks, words=f"{title}: {len(rows)} points against the diagonal."),
        table(title, [names[0], names[1]], rows),
        axis=x,
        axis_words=f"{names[0]} · {names[1]} upward",
        keys=legend(*keys),
    )


def _list(values: Any) -> list[float]:
    if not isinstance(values, list) or len(values) > MOST_BINS:
        raise ValueError("not a list of bins.")
    found = [float(value) for value in values]
    if len(drawable(found)) != len(found):
        raise ValueError("not a list of numbers.")
    return found


_PLOTS = {"pit": _pit, "coverage": _coverage, "residuals": _residuals, "reliability": _reliability}
