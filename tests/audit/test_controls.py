"""Each way to break the guarantee is caught by the test that sees it, which is silent about the library."""

import pytest

from dpsep.audit import CONTROLS, run_control
from dpsep.privacy import gate, grid


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_caught(name: str) -> None:
    honest = gate.Gate._noised, gate.Reader.sums, grid._to_grid, gate.rounded_gaussian
    found = run_control(name)
    assert found.caught, found.evidence
    assert found.alarm is None
    assert honest == (gate.Gate._noised, gate.Reader.sums, grid._to_grid, gate.rounded_gaussian)


def test_there_are_eleven() -> None:
    assert len(CONTROLS) == 11
