r"""Names, numbers and odds as a reader without statistics is shown them.

*Names.* Characters that a browser would obey instead of show (controls, marks that turn the direction of
text, halves of characters) are replaced, and text stands on one line, so that no name makes a line of its
own.

*Odds.* Let the reader know all other records, and let him hold a claim about one of them to be true with
chance p before he sees the result. Pure epsilon-DP bounds the ratio of the result's likelihoods under two
neighbouring tables by e^epsilon, so by Bayes his odds grow at most by that factor:

    p' <= f p / (f p + 1 - p),        f = e^epsilon.

Which f depends on the claim. Under *replace-one* "the record says A" and "it says B" are neighbours: f =
e^epsilon. Under *zero-out* the neighbours are "the record is there" and "it is blank": f = e^epsilon for
that claim. Two values A and B are each a neighbour of the blank, two hops apart: f = e^(2 epsilon).

*Delta.* (epsilon, delta)-DP of two laws means that there are two others, within delta of them in total
variation, whose likelihood ratio keeps within e^epsilon (Dwork and Roth 2014, lemma 3.17). So the run
behaves like one that keeps the bound always, but for a chance of at most delta, in which nothing is promised;
over two hops delta is (1 + e^epsilon) delta.

*Rounding.* Numbers that bound something from above are rounded up, so that none is shown smaller than it is.
"""

import math
import re
from typing import Any, NamedTuple

from dpsep.privacy.shown import ROUNDINGS, rounded

__all__ = [
    "CLAIMS",
    "Odds",
    "chance_after",
    "clean",
    "number",
    "number_down",
    "number_up",
    "odds",
    "one_in",
    "percent",
    "percent_up",
    "relation_words",
    "shortened",
    "unit_words",
]

CLAIMS = (0.01, 0.1, 0.5)
"""Chances before that are shown."""
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)


class Odds(NamedTuple):
    """How much a reader may learn about one kind of claim.

    Attributes
    ----------
    claim
        What is claimed, in words.
    exponent
        The odds grow by at most e to this.
    beyond
        Chance in which nothing is promised.
    """

    claim: str
    exponent: float
    beyond: float


def clean(text: Any) -> str:
    """Return text on one line, with the characters replaced that a browser would obey.

    Examples
    --------
    >>> clean("a\\u202eb"), clean("a\\n\\tb")
    ('a\ufffdb', 'a  b')
    """
    text = str(text)
    if text.isprintable():  # most are, and this is the fastest to ask
        return text
    return _OBEYED.sub("\ufffd", text).replace("\n", " ").replace("\t", " ")


def shortened(name: Any, longest: int = 60) -> str:
    """Return a name of a folder, cleaned, and cut off where it is long.

    Examples
    --------
    >>> shortened("age"), shortened("x" * 99, 5)
    ('age', 'xxxx…')
    """
    text = clean(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def number(value: Any, digits: int = 4) -> str:
    """Return a number as it is read: a true minus, no needless zeros, words where it is none.

    Examples
    --------
    >>> number(-0.05312), number(12345678.0), number(float("nan")), number(1e-7), number(20190)
    ('−0.05312', '1.235e7', 'not a number', '1e−7', '20190')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not a number"
    try:
        value = float(value)
    except OverflowError:
        return "too large"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{int(value)}" if value.is_integer() and abs(value) < 1e6 else f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−")


def percent(value: Any) -> str:
    """Return a share in percent.

    Examples
    --------
    >>> percent(0.613), percent(0.0012), percent(None)
    ('61 %', '0.12 %', 'not a number')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "not a number"
    shown = f"{100 * value:.0f}" if abs(value) >= 0.0995 or value == 0 else f"{100 * value:.2g}"
    return f"{shown} %".replace("-", "−")


def chance_after(before: float, exponent: float) -> float:
    """Return the most that a chance can become when its odds grow by e to the exponent.

    Examples
    --------
    >>> round(chance_after(0.5, 1.0), 3), chance_after(0.1, 0.0)
    (0.731, 0.1)
    """
    if exponent > 700:
        return 1.0
    grown = before * math.exp(exponent)
    return grown / (grown + 1 - before)


def odds(epsilon: float, delta: float, relation: str, unit: str) -> list[Odds]:
    """Return what a statement means for claims about one unit.

    Examples
    --------
    >>> [(one.exponent, round(one.beyond, 7)) for one in odds(1.0, 1e-6, "zero-out", "record")]
    [(1.0, 1e-06), (2.0, 3.7e-06)]
    """
    whose, used, say = f"This {unit_words(unit)}", "was used", "says"
    if unit != "record":
        whose, used, say = f"The rows of this {unit_words(unit)}", "were used", "say"
    took_part = f"{whose} {used}, and not left blank"
    says = f"{whose} {say} one thing, and not another"
    if relation == "replace-one":
        return [Odds(says, epsilon, delta)]
    twice = min((1 + math.exp(min(epsilon, 700.0))) * delta, 1.0)
    return [Odds(took_part, epsilon, delta), Odds(says, 2 * epsilon, twice)]


def one_in(chance: float) -> str:
    """Return a small chance as one in so many, rounded so that it is never understated.

    Examples
    --------
    >>> one_in(1e-5), one_in(0.0), one_in(3.7e-6)
    ('1 in 100,000', 'none', '1 in 270,000')
    """
    if not chance > 0:
        return "none"
    if chance >= 0.5:
        return "near certainty"
    count = 1 / chance
    step = 10 ** max(math.floor(math.log10(count)) - 1, 0)
    shown = math.floor(count / step * (1 + 1e-12)) * step
    return f"1 in {shown:,.0f}" if shown < 1e12 else f"1 in {number(float(shown), 2)}"


def number_up(value: float, digits: int = 4) -> str:
    """Return a bound as a number that is not below it.

    Examples
    --------
    >>> number_up(1.46512), number_up(0.1 + 0.2), number_up(2.71828, 3), number_up(1.0), number_up(1.2e-6)
    ('1.466', '0.3', '2.72', '1', '1.2e−6')
    """
    whole = not (0 < value < math.inf) or (float(value).is_integer() and value < 1e6)
    return number(value if whole else rounded(float(value), digits), digits)


def number_down(value: float, digits: int = 4) -> str:
    """Return what is left or allowed as a number that is not above it.

    Examples
    --------
    >>> number_down(0.99999), number_down(2.0)
    ('0.9999', '2')
    """
    return number(rounded(float(value), digits, upwards=False), digits)


def percent_up(value: float) -> str:
    """Return a bound on a chance in percent, not below it.

    Examples
    --------
    >>> percent_up(0.7311), percent_up(0.02672), percent_up(0.9999), percent_up(0.5)
    ('74 %', '2.7 %', '100 %', '50 %')
    """
    if not 0 < value < 1:
        return f"{number(100 * value, 3)} %"
    percents = 100 * value * (1 - ROUNDINGS)
    return f"{math.ceil(percents)} %" if percents >= 9.9 else f"{number_up(percents, 2)} %"


def unit_words(unit: str) -> str:
    """Return what is protected, in a word that a folder cannot make long."""
    return clean(unit)[:40]


def relation_words(relation: str, unit: str) -> str:
    """Return what two tables are compared, in words."""
    if relation == "replace-one":
        return f"compared with the same table with one {unit_words(unit)} replaced by any other"
    return (
        f"compared with the same table with one {unit_words(unit)} left blank; how many there are is public"
    )
