"""No record moves another, bit for bit: every program of every fit, every slot, eleven hostile values."""

import pytest

from dpsep.privacy.isolation import Program

from .isolated_fits import FITS, mixed, programs_of

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.theory.glm_defaults.WeakBudgetWarning")


def _long(name: str) -> bool:
    """Groups as units with slopes: one family does for `make test`, since the others' slopes are the same."""
    return "by group" in name and name.endswith(("slopes", "correlated")) and "linear" not in name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if _long(name) else name for name in FITS]
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
