"""The path of a federated fit, and the schedule in its statement."""

from pathlib import Path
from typing import Any

import pytest

from dpsep.federated import fit
from dpsep.privacy.curve import schedule_of

from .made import federate, logistic, make_sites

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.privacy.leaks.PrivacyLeakWarning")


@pytest.mark.parametrize(
    ("rules", "same"),
    [({"mode": "server"}, True), ({"mode": "server", "sites_per_round": 2}, False), ({"mode": "own"}, True)],
    ids=["server", "turns", "own"],
)
def test_a_federation_states_a_schedule_only_where_it_answers_for_epsilon(
    tmp_path: Path, rules: dict[str, Any], same: bool
) -> None:
    model = fit(logistic(), federate(make_sites(tmp_path, epsilon=20.0), **rules))
    assert model.privacy_ is not None
    assert model.path_ is not None
    assert model.path_["estimates"]["mean"][-1] == pytest.approx(model.posterior_.mean, rel=1e-9)
    schedule = model.privacy_.schedule
    assert (schedule is not None) == same
    if schedule is not None:
        found = schedule_of(schedule).epsilon(model.privacy_.delta)
        assert found == pytest.approx(model.privacy_.epsilon, rel=1e-9)
