"""Record and replay over options: all pairs of values are covered, and a sample of combinations is kept."""

from itertools import combinations as choose

import numpy as np
import pytest

from dpsep_lab.matrix import combinations, covering, kinds, try_combination

SAMPLE = {name: covering(kind.options, seed=1)[0] for name, kind in kinds().items()}
"""One combination of each kind; `make deep` replays all that `covering` gives."""
FEW = ("logistic", "mixture", "network")
"""Kinds of which `make test` replays theirs: how a combination is tried is the same for all."""


@pytest.mark.parametrize("name", kinds())
def test_every_pair_of_values_is_covered(name: str) -> None:
    options = kinds()[name].options
    chosen = covering(options)
    for one, two in choose(options, 2):
        for first in options[one]:
            for second in options[two]:
                assert any(row[one] == first and row[two] == second for row in chosen)
    assert len(chosen) < np.prod([len(values) for values in options.values()])
    assert all(row in list(combinations(options)) for row in chosen[:3])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.deep) for name in SAMPLE]
)
def test_a_combination_keeps_records_to_the_gate_or_is_refused(name: str) -> None:
    found = try_combination(name, SAMPLE[name], neighbours=4)
    assert found.outcome in ("kept", "refused"), found.evidence
    if found.outcome == "refused":
        assert "cannot" in found.evidence or "needs" in found.evidence or "full" in found.evidence
