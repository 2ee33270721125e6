"""No record moves another, bit for bit: every program of every fit, every slot, eleven hostile values."""

import re

import pytest

from dpsep.privacy.isolation import Program

from .isolated_fits import FITS, mixed, programs_of

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.theory.glm_defaults.WeakBudgetWarning")


SELDOM = re.compile(
    "mixed linear by group slopes|mixed (poisson|probit) by group.*|mixed logistic by group .+"
    "|mixture (sep|vi) spherical|(logistic|poisson|gamma|probit) no intercept|network not direct"
    "|network labels sep (kronecker (relu|sine)|diagonal sigmoid)"
    "|network sep (kronecker sigmoid|diagonal (relu|sine))"
)
"""Fits for `make deep`: what they are made of is in others, by kind, method, activation and family."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep if SELDOM.fullmatch(name) else ()) for name in FITS]
)
def test_a_record_moves_no_bit_of_another_in_any_slot(name: str) -> None:
    programs = programs_of(name, 13)
    assert programs
    for program, public in programs:
        if program not in _done:
            assert list(mixed(program, public, single=True)) == []
            _done.append(program)


_done: list[Program] = []
"""Programs that passed: some fits, such as those that differ in their sampling, run the same."""
