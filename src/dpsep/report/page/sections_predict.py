"""Does it predict well? Metrics, and the histograms behind them where their rows are public or charged."""

import math
from itertools import pairwise
from typing import Any

from dpsep.report.page.calibration import answer, explained
from dpsep.report.page.contents import Value, kind_of
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.svg import HEIGHT, Axis, Figure, Panel, axis_of, bar, dot, drawable, line
from dpsep.report.page.words import clean, number, percent

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


def predicts(ctx: Context) -> Value:
    """Return metrics, and the plots behind them."""
    metrics = ctx.run.metrics
    if isinstance(metrics, Absent):
        return {"metrics": metrics}
    on = clean(metrics.get("on", "rows that are not described"))[:100]
    if not ctx.verdict.private:  # what the folder says of its rows may be a claim
        on = _PLAIN.get(on, "rows that are not described")
    rows = metrics.get("rows")
    found = metrics.get("calibration")
    if not isinstance(found, dict) or found.get("source") not in ("public", "charged"):
        found = None
    return {
        "metrics": metrics,
        "where": on + (f", {rows:,} rows." if isinstance(rows, int) else "."),
        "items": _tiles(ctx, metrics),
        "calibration": found,
        "answer": None if found is None else answer(found),
        "explained": explained(kind_of(ctx.run)),
        "plots": [] if found is None else _plots(ctx, found),
    }


def _tiles(ctx: Context, metrics: Value) -> list[tuple[str, str, str]]:
    values, noise = metrics.get("metrics"), metrics.get("noise_sd")
    values = values if isinstance(values, dict) else {}
    noise = noise if isinstance(noise, dict) else {}
    items = []
    for name, value in list(values.items())[:20]:
        share = name in ("coverage_90", "accuracy")
        spread = noise.get(name)
        words = _MEANING.get(name, "")
        if spread is not None:
            more = percent(spread) if share else number(spread, 2)
            words += f"; noise of privacy ± {more}" if ctx.verdict.private else f"; ± {more}"
        shown = percent(value) if share else number(value)
        items.append((clean(name)[:40].replace("_", " "), shown, words))
    return items


def _plots(ctx: Context, found: Value) -> list[Figure | Absent]:
    pictures = []
    whiskers = "± sd of the noise of privacy" if ctx.verdict.private else "± sd"
    for name, draw in _PLOTS.items():
        if name in found:
            try:
                pictures.append(draw(found[name], whiskers))
            except Exception as error:  # of a damaged document
                words = f"The {name} of the predictions could not be read ({type(error).__name__})."
                pictures.append(Absent(words))
    return pictures


def _pit(part: Value, whiskers: str) -> Figure:
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


def _residuals(part: Value, whiskers: str) -> Figure:
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
) -> Figure:
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
    return Figure(
        name,
        title,
        words,
        x,
        Panel(x, y, marks, f"Histogram of {len(shares)} bars. {words}"),
        axis_words=axis_words,
        keys=keys,
        header=["bin", "share", "expected"],
        rows=rows,
    )


def _coverage(part: Value, whiskers: str) -> Figure:
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


def _reliability(part: Value, whiskers: str) -> Figure:
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
) -> Figure:
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
    return Figure(
        name,
        title,
        words,
        x,
        Panel(x, y, marks, f"{title}: {len(rows)} points against the diagonal."),
        axis_words=f"{names[0]} · {names[1]} upward",
        keys=keys,
        header=names,
        rows=rows,
    )


def _list(values: Any) -> list[float]:
    if not isinstance(values, list) or len(values) > MOST_BINS:
        raise ValueError("not a list of bins.")
    found = [float(value) for value in values]
    if len(drawable(found)) != len(found):
        raise ValueError("not a list of numbers.")
    return found


_PLOTS = {"pit": _pit, "coverage": _coverage, "residuals": _residuals, "reliability": _reliability}
