"""A run's report: one HTML file that explains a run to a statistician, an ethics board and a newcomer.

`write_report` reads the folder of a run as a stranger's: capped, regular files only, checked by the manifest.
Each section is built apart from the others; one that cannot be built becomes a sentence that says so.

**Privacy.** A report is made of what a run's folder holds: the released posterior, its statement and declared
structure. No table is read, so a report costs nothing. Where one run of it is not private, or its statement
cannot be trusted, the whole report says NOT PRIVATE and carries no statement of privacy anywhere.
"""

from dpsep.report.page.page import render, write_report

__all__ = ["render", "write_report"]
