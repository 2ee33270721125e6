"""``dpsep demo --table``: the demonstration's survey as a CSV file, to try the other commands on."""

from pathlib import Path

from dpsep.privacy.checkpoint import atomic_write
from dpsep.shell.demo import BOUNDS, load
from dpsep.shell.errors import CallError
from dpsep.shell.screen import remark

__all__ = ["run"]


def run(path: Path) -> None:
    """Write the survey's table: the number of visits and nine features, one row a person-year."""
    if path.exists():
        raise CallError(f"{path} exists already and is left as it is; name another file, or remove it first.")
    frame = load()[["mdvis", *BOUNDS]].rename(columns={"mdvis": "visits"})
    atomic_write(path, frame.to_csv(index=False, lineterminator="\n"))
    remark(
        f"Wrote {path}: {len(frame):,} person-years of the RAND Health Insurance Experiment, a public "
        "survey. 'visits' counts visits to a doctor; the other columns describe the person and the insurance."
    )
