"""``dpsep demo --table --new``: the demonstration's survey, and people to predict for, to try commands on."""

from pathlib import Path

import pandas as pd

from dpsep.cli.demo import BOUNDS, load
from dpsep.cli.errors import CallError
from dpsep.cli.screen import remark
from dpsep.privacy.checkpoint import atomic_write

__all__ = ["run"]

HEALTH = {"excellent": {}, "good": {"hlthg": 1}, "fair": {"hlthf": 1}, "poor": {"hlthp": 1}}
INSURANCE = {"lncoins": 3.3, "idp": 0, "lpi": 6.1, "fmde": 6.1, "physlm": 0}
"""A coinsurance of a quarter, and what goes with it."""


def run(table: Path, new: Path | None) -> None:
    """Write the survey's table: the number of visits and nine features, one row a person-year.

    Parameters
    ----------
    new
        A second table, of made-up people who are not in the survey: without visits, which are to be
        predicted.
    """
    for path in (table, new):
        if path is not None and path.exists():
            raise CallError(f"{path} exists already and is left as it is; name another file, or remove it.")
    frame = load()[["mdvis", *BOUNDS]].rename(columns={"mdvis": "visits"})
    _write(table, frame)
    remark(
        f"Wrote {table}: {len(frame):,} person-years of the RAND Health Insurance Experiment, a public "
        "survey. 'visits' counts visits to a doctor; the other columns describe the person and the insurance."
    )
    if new is not None:
        people = pd.DataFrame(
            [INSURANCE | {"disea": chronic} | health for health in HEALTH.values() for chronic in (0, 10, 30)]
        )
        people = people.reindex(columns=list(BOUNDS)).fillna(0)
        _write(new, people)
        remark(f"Wrote {new}: {len(people)} people who are made up, to predict their visits.")


def _write(path: Path, frame: pd.DataFrame) -> None:
    atomic_write(path, frame.to_csv(index=False, lineterminator="\n"))
