"""What the stamp, the tiles and the odds say of real statements and of weakened ones."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsep.report.page.contents import read_run
from dpsep.report.page.context import Context
from dpsep.report.page.page import part
from dpsep.report.page.verdict import Verdict, judge

from .checks import Page

Runs = Callable[[str], Path]


@pytest.fixture
def context(whole: Runs) -> Context:
    """Return what a page of a run is made from that nothing can be said against."""
    run = read_run(whole("linear"))
    (one,) = judge((run,)).stated
    stated = one._replace(fit=dataclasses.replace(one.fit, leaks=()))
    verdict = Verdict((stated,), (), stated.total)
    return Context(run=run, beside=(), verdict=verdict, title=None, written="2026-01-01")


def words(name: str, context: Context) -> str:
    return Page(part(name, context)).words


def with_statement(context: Context, **fields: Any) -> Context:
    """Return the context of a run that states something else."""
    (one,) = context.verdict.stated
    fit = dataclasses.replace(one.fit, **fields)
    return context._replace(verdict=context.verdict._replace(stated=(one._replace(fit=fit),)))


def stamp_kind(context: Context) -> str:
    page = Page(part("header", context))
    (kind,) = [
        str(found["class"]) for _, found in page.elements if "stamp" in str(found.get("class")).split()
    ]
    return kind


def test_cautions_stand_in_the_stamp_and_make_it_amber(context: Context) -> None:
    assert stamp_kind(context) == "stamp private"
    assert "caution" not in words("header", context)
    one = context._replace(verdict=context.verdict._replace(cautions=("Delta is <b>weak</b>.",)))
    assert stamp_kind(one) == "stamp unsafe"
    assert "with a caution" in words("header", one)
    assert "Delta is <b>weak</b>." in words("header", one)
    two = context._replace(verdict=context.verdict._replace(cautions=("First.", "Second.")))
    assert "with 2 cautions" in words("header", two)
    assert "First. Second." in words("header", two)


def test_what_does_not_add_up_is_not_said_to_be_of_one_unit(context: Context) -> None:
    verdict = Verdict(context.verdict.stated * 2, (), None)
    text = words("header", context._replace(verdict=verdict))
    assert "each run by its own statement" in text
    assert "do not add up" in text
    assert "For each record" not in text


def test_the_odds_hold_without_condition_only_where_nothing_stands_outside(context: Context) -> None:
    assert "but only if" not in words("spent", context)
    text = words("spent", with_statement(context, leaks=("a thing",)))
    assert "but only if nothing is learned from what stands outside the guarantee" in text
    text = words("spent", with_statement(context, secure=False))
    assert "but only if the reader has no way to the noise" in text
    text = words("spent", with_statement(context, federation={"text": "Three sites."}))
    assert "whom the guarantee of the federation is for" in text


def test_every_run_whose_columns_were_read_off_the_data_is_named(context: Context) -> None:
    schema: Any = context.run.schema
    looked = dataclasses.replace(schema, looked=True)
    other = context.run._replace(name="other", schema=looked)
    stated = context.verdict.stated[0]
    both = context._replace(
        beside=(other,), verdict=Verdict((stated, stated._replace(run=other)), (), stated.total)
    )
    assert "The declarations of other were read off the data" in words("asked", both)
    outside = "Run other . Outside the guarantee: declarations that were read off the data"
    assert outside in words("spent", both)
    one = context._replace(run=other, verdict=judge((other,)))
    assert "These declarations were read off the data" in words("asked", one)
    assert "is public" not in words("asked", one)


def test_the_unit_is_named_and_no_person_is_promised_anything(context: Context) -> None:
    for unit in ("record", "group"):
        of = with_statement(context, unit=unit)
        for name in ("header", "tiles", "spent", "glossary"):
            text = words(name, of).replace("whether or not a person takes part", "")
            text = text.replace("such as a person with several records", "")
            assert "person" not in text, name
        assert f"What a reader can learn about one {unit}" in words("spent", of)
        assert f"{unit.title()}s in the fit 400" in words("tiles", of)
    assert "The rows of this group say one thing, and not another" in words("spent", of)
    assert "one group is left blank" in words("glossary", of)


def test_bounds_are_rounded_up_wherever_they_are_shown(context: Context) -> None:
    (one,) = context.verdict.stated
    weak = one._replace(fit=dataclasses.replace(one.fit, epsilon=1.46511, delta=1.23411e-6))
    of = context._replace(verdict=context.verdict._replace(stated=(weak,), total=weak.total))
    for name in ("header", "tiles"):
        assert "1.466" in words(name, of)
        assert "1.235e−6" in words(name, of)
    # e^1.46511 = 4.32802..., and odds of one to one become 4.328 to 1, a chance of 0.81231...
    assert "×4.33" in words("spent", of)
    assert "82 %" in words("spent", of)


def test_the_answer_on_calibration_stands_above_its_plots(context: Context) -> None:
    text = words("predicts", context)
    assert "Intervals: " in text
    assert "points are not counted" in text or "Chance alone" in text


def test_the_part_called_noise_is_not_taken_for_the_noise_of_privacy(whole: Runs) -> None:
    run = read_run(whole("network"))
    of = Context(run=run, beside=(), verdict=judge((run,)), title=None, written="")
    text = words("path", of)
    assert "Released: scatter of the targets" in text
    assert "“noise”" not in text
    assert "released noise of privacy" in text
