"""Each way to break the guarantee is caught by the test that sees it, which is silent about the library."""

import pytest

from dpsep.audit.targets import targets
from dpsep.audit.work import ATTACKS, run_all
from dpsep.cli.audit import _show, _verdict
from dpsep.privacy import gate, grid
from dpsep_lab import controls, matrix
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


def test_rows_of_controls_and_options_are_shown_and_judged(capsys: pytest.CaptureFixture[str]) -> None:
    kept = matrix.row_of("probit", {"bounds": (-1, 1), "relation": "replace-one"})
    assert kept["outcome"] == "kept"
    _show([kept, kept | {"outcome": "caught", "caught": True, "evidence": "a leak"}])
    assert "CAUGHT probit: bounds=(-1, 1), relation=replace-one: a leak" in capsys.readouterr().out

    row = controls.row_of("standardised outside")
    _show([row])
    assert _verdict([row]) == 0
    assert _verdict([row | {"caught": False}]) == 1
    assert _verdict([row | {"false_alarm": "something"}]) == 1
