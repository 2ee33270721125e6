"""Are the predictions as sure as they should be? One plain answer from the histograms of a run's metrics.

*Numbers and counts.* Two shares are compared with what they should be: targets inside the central interval of
a level near 80 %, and targets above the middle of their predictions (half). *Labels.* Two differences between
what was observed and what was predicted, over all bins: their mean, which should be 0, and their mean with
the sign of how the bin lies to the mean prediction, which is negative where chances are too extreme.

A difference counts if it is beyond `TOLERANCE` and beyond two standard deviations of chance and noise. Where
those alone reach `BLIND`, nothing is said.
"""

import math
from typing import Any, NamedTuple

from dpsep.registry import find
from dpsep.report.page.contents import Value
from dpsep.report.page.words import number, percent

__all__ = ["Answer", "answer", "explained"]

TOLERANCE = 0.03
"""Differences that are too small to matter."""
COARSE = 0.05
"""The same where a bin's predictions are known by their bin only: half its width."""
BLIND = 0.15
LEVEL = 0.8
"""Level of the interval that is looked at, or the nearest to it."""


class Answer(NamedTuple):
    """The answer in a word or two, and the numbers behind it in a sentence."""

    word: str
    sentence: str


def answer(found: Value) -> Answer | None:
    """Return the answer, None where the histograms are not there or cannot be read.

    Parameters
    ----------
    found
        ``calibration`` of a run's metrics.

    Examples
    --------
    >>> pit = {"edges": [0.0, 0.5, 1.0], "share": [0.5, 0.5], "noise_sd": None, "rows": 4000}
    >>> coverage = {"level": [0.8], "share": [0.6], "noise_sd": None, "rows": 4000}
    >>> print(answer({"pit": pit, "coverage": coverage}).word)
    too narrow
    """
    try:
        if "reliability" in found:
            return _of_labels(found["reliability"], charged=found.get("source") == "charged")
        return _of_numbers(found["pit"], found["coverage"])
    except Exception:  # a stranger's document
        return None


def _of_numbers(pit: Value, coverage: Value) -> Answer | None:
    rows = int(pit["rows"])
    levels = [float(level) for level in coverage["level"]]
    place = min(range(len(levels)), key=lambda one: abs(levels[one] - LEVEL))
    level, inside = levels[place], float(coverage["share"][place])
    spreads = coverage.get("noise_sd")
    spread = float(spreads[place]) if isinstance(spreads, list) else 0.0
    upper = [share for edge, share in zip(pit["edges"], pit["share"], strict=False) if edge >= 0.5 - 1e-9]
    above = math.fsum(upper)
    noise = pit.get("noise_sd")
    noise = 0.0 if noise is None else float(noise)
    width = _margin(level * (1 - level) / rows + spread**2, TOLERANCE)
    shift = _margin(0.25 / rows + len(upper) * noise**2, TOLERANCE)
    if not all(map(math.isfinite, (inside, above, width, shift))):
        return None
    numbers = (
        f"{percent(inside)} of the targets lie inside their {percent(level)} interval, and {percent(above)} "
        f"above the middle of their predictions, where {percent(level)} and {percent(0.5)} are right."
    )
    words = []
    # What is shifted misses on one side alone; too narrow is what misses on both.
    sided = abs(above - 0.5) > shift and _lesser_tail(pit, (1 - level) / 2) < (1 - level - width) / 2
    if inside < level - width and not sided:
        words.append("too narrow")
    elif inside > level + width:
        words.append("too wide")
    if abs(above - 0.5) > shift:
        words.append("shifted: targets lie too " + ("high" if above > 0.5 else "low"))
    return _put(words, numbers, width, shift)


def _lesser_tail(pit: Value, part: float) -> float:
    """Return the smaller of the shares of ranks below this part and above one less it."""
    edges, shares = pit["edges"], pit["share"]
    lower = [share for edge, share in zip(edges[1:], shares, strict=True) if edge <= part + 1e-9]
    upper = [share for edge, share in zip(edges[:-1], shares, strict=True) if edge >= 1 - part - 1e-9]
    return min(math.fsum(lower), math.fsum(upper))


def _of_labels(part: Value, *, charged: bool) -> Answer | None:
    spreads = part.get("noise_sd") or [None] * len(part["predicted"])
    bins = [
        (float(predicted), float(observed), int(rows), float(spread or 0.0))
        for predicted, observed, rows, spread in zip(
            part["predicted"], part["observed"], part["rows"], spreads, strict=True
        )
        if observed is not None and predicted is not None and rows
    ]
    total = sum(rows for _, _, rows, _ in bins)
    predicted = sum(rows * p for p, _, rows, _ in bins) / total
    observed = sum(rows * o for _, o, rows, _ in bins) / total
    # How much less often than said the likely came, and how much more often the unlikely.
    sure = sum(rows * math.copysign(1.0, p - predicted) * (p - o) for p, o, rows, _ in bins) / total
    variance = sum(
        (rows / total) ** 2 * (max(p * (1 - p), 0.0) / rows + spread**2) for p, _, rows, spread in bins
    )
    margin = _margin(variance, COARSE if charged else TOLERANCE)
    if not all(map(math.isfinite, (predicted, observed, sure, margin))):
        return None
    numbers = (
        f"The second class came in {percent(observed)} of the rows, predicted {percent(predicted)}; chances "
        f"lie {_points(abs(sure))} too {'far from' if sure > 0 else 'near to'} their mean."
    )
    words = []
    if sure > margin:
        words.append("too sure")
    elif sure < -margin:
        words.append("too timid")
    if abs(observed - predicted) > margin:
        words.append(
            "shifted: the second class is given too " + ("little" if observed > predicted else "much")
        )
    return _put(words, numbers, margin, margin)


def _margin(variance: float, least: float) -> float:
    return max(least, 2 * math.sqrt(variance))


def _put(words: list[str], numbers: str, *margins: float) -> Answer:
    if max(margins) > BLIND:
        return Answer("cannot be told", f"{numbers} Chance alone may move these by {_points(max(margins))}.")
    rest = f" Differences up to {_points(max(margins))} are not counted."
    return Answer(", and ".join(words) or "good", numbers + rest)


def _points(share: float) -> str:
    return f"{number(100 * share, 2)} points"


def explained(kind: Any) -> str:
    """Return why a metric and a plot may differ, for targets that are counts."""
    entry = find(kind)
    if entry is None or entry.target != "count":
        return ""
    return (
        " Targets here are counts, which come in jumps. An interval of whole counts holds more than its "
        "level asks for, so the tile of the 90 % interval is the kinder number. For the plots a count is "
        "ranked at a random place within its jump, which makes flat the right shape."
    )
