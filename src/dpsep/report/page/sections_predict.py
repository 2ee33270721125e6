"""Does it predict well? Metrics, and the histograms behind them where their rows are public or charged."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from dpsep.report.page.calibration import answer, explained
from dpsep.report.page.contents import Value, kind_of
from dpsep.report.page.context import Context
from dpsep.report.page.files import Absent
from dpsep.report.page.svg import HEIGHT, Axis, Panel, axis_of, bar, dot, drawable, line
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


class Plot(NamedTuple):
    """A picture, and whether whiskers for noise are in it."""

    panel: Panel
    noise: bool


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
        "plots": {} if found is None else _plots(found),
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


def _plots(found: Value) -> dict[str, Plot | Absent]:
    pictures: dict[str, Plot | Absent] = {}
    for name, draw in _PLOTS.items():
        if name in found:
            try:
                pictures[name] = draw(found[name])
            except Exception as error:  # of a damaged document
                words = f"The {name} of the predictions could not be read ({type(error).__name__})."
                pictures[name] = Absent(words)
    return pictures


def _pit(part: Value) -> Plot:
    """Ranks of the targets within their predictions: each bin should hold its width."""
    expected = 1 / (part["edges"][-1] - part["edges"][0])
    return _histogram(part, lambda low, high: expected * (high - low))


def _residuals(part: Value) -> Plot:
    """Standardised errors: bins should hold a normal distribution's shares, the outermost all beyond."""

    def normal(low: float, high: float) -> float:
        first, last = low <= part["edges"][0], high >= part["edges"][-1]
        below = 0.0 if first else _below(low)
        return (1.0 if last else _below(high)) - below

    return _histogram(part, normal)


def _below(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def _histogram(part: Value, expected: Callable[[float, float], float]) -> Plot:
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
        row = [f"{number(low, 3)} to {number(high, 3)}", percent(share), percent(right)]
        top = HEIGHT * (1 - y.share(max(share, 0.0)))
        tip = f"{row[0]}: {row[1]}, expected {row[2]}"
        marks.append(bar(x, low, high, top, HEIGHT * (1 - y.share(0.0)), "bar-run", tip))
        middle = (low + high) / 2
        if noise:
            marks.append(line(x, y, [(middle, share - noise), (middle, share + noise)], "whisker"))
        marks.append(dot(x, middle, HEIGHT * (1 - y.share(right)), "dot-expected", r=3))
        rows.append(row)
    return Plot(Panel(x, y, marks, rows), bool(noise))


def _coverage(part: Value) -> Plot:
    """How many targets lie inside intervals of each level."""
    pairs = list(zip(_list(part["level"]), _list(part["share"]), strict=True))
    return _diagonal(pairs, part.get("noise_sd"), "level", "targets inside")


def _reliability(part: Value) -> Plot:
    """Of rows that were given a chance, how many had the second class."""
    predicted, observed, spread = part["predicted"], part["observed"], part.get("noise_sd")
    kept = [i for i in range(len(predicted)) if predicted[i] is not None and observed[i] is not None]
    pairs = [(float(predicted[i]), float(observed[i])) for i in kept]
    noise = [spread[i] for i in kept] if isinstance(spread, list) and len(spread) == len(predicted) else None
    return _diagonal(pairs, noise, "predicted chance", "observed")


def _diagonal(pairs: list[tuple[float, float]], noise: Any, at_words: str, words: str) -> Plot:
    x, y = Axis(0.0, 1.0), Axis(0.0, 1.0)
    spreads = noise if isinstance(noise, list) and len(noise) == len(pairs) else [None] * len(pairs)
    marks = [line(x, y, [(0.0, 0.0), (1.0, 1.0)], "ideal"), line(x, y, pairs, "curve")]
    rows = []
    for (at, share), spread in zip(pairs, spreads, strict=True):
        if drawable([at, share]) != [at, share]:
            continue
        more = ""
        if isinstance(spread, int | float) and math.isfinite(spread) and spread > 0:
            marks.append(line(x, y, [(at, share - spread), (at, share + spread)], "whisker"))
            more = f" ± {percent(spread)}"
        tip = f"{at_words} {percent(at)}: {percent(share)}{more} {words}"
        marks.append(dot(x, at, HEIGHT * (1 - y.share(share)), "dot-run", tip))
        rows.append([percent(at), percent(share) + more])
    return Plot(Panel(x, y, marks, rows), any(isinstance(spread, int | float) for spread in spreads))


def _list(values: Any) -> list[float]:
    if not isinstance(values, list) or len(values) > MOST_BINS:
        raise ValueError("not a list of bins.")
    found = [float(value) for value in values]
    if len(drawable(found)) != len(found):
        raise ValueError("not a list of numbers.")
    return found


_PLOTS = {"pit": _pit, "coverage": _coverage, "residuals": _residuals, "reliability": _reliability}
