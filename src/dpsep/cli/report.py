"""``dpsep report``: a run's folder in, one HTML file out that explains it.

**Privacy.** Reads what a fit has released and declared, and no table; the report says so itself where it may
not be called private.
"""

from collections.abc import Sequence
from pathlib import Path

from dpsep.cli.errors import CallError
from dpsep.cli.ledger import open_ledger
from dpsep.cli.screen import print_json, remark
from dpsep.report.page import write_report

__all__ = ["run"]


def run(
    folder: Path,
    out: Path | None,
    *,
    beside: Sequence[Path] = (),
    ledger: str | None = None,
    audit: Path | None = None,
    title: str | None = None,
    as_json: bool = False,
) -> None:
    """Write the report and say where it is."""
    for one in (folder, *beside):
        if not one.is_dir():
            what = "is a file" if one.exists() else "does not exist"
            raise CallError(f"{one} {what}; name the folder that a fit wrote: dpsep report RUN.")
    if audit is not None and not audit.exists():
        raise CallError(f"there is no file {audit}; 'dpsep audit --json FILE' writes one.")
    written = write_report(
        folder,
        out,
        beside=beside,
        ledger=None if ledger is None else open_ledger(ledger),
        audit=audit,
        title=title,
    )
    size = written.stat().st_size
    if as_json:
        print_json({"run": str(folder), "report": str(written), "bytes": size})
        return
    remark(f"Wrote {written} ({size / 1000:.0f} kB). Open it in any browser; it needs no network.")
