"""Each way to break the guarantee is caught by the test that sees it, which is silent about the library."""

import pytest

from dpsep.audit.targets import targets
from dpsep.audit.work import ATTACKS, run_all
from dpsep.privacy import gate, grid
from dpsep_lab.controls import CONTROLS, run_control


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_caught(name: str) -> None:
    honest = gate.Gate._noised, gate.Reader.sums, grid._to_grid, gate.rounded_gaussian
    found = run_control(name)
    assert found.caught, found.evidence
    assert found.alarm is None
    assert honest == (gate.Gate._noised, gate.Reader.sums, grid._to_grid, gate.rounded_gaussian)


def test_there_are_twelve() -> None:
    assert len(CONTROLS) == 12


def test_the_default_audit_attacks_a_model_that_mixes_records_and_finds_it_refused() -> None:
    """The control shows that the same attack, with fewer runs, catches it where nothing is proved."""
    work = [row for _, _, row in run_all(["own"], [0.5], attacks=["mixing"], jobs=1)]
    assert [row["caught"] for row in work] == [False]
    assert "refused before anything was charged" in work[0]["evidence"]
    assert "mixing" in ATTACKS
    assert "own" in targets()
