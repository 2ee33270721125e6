"""Attacks on ourselves: checks that try to see a record where only released sums may be seen.

`canary_audit` and `one_run_audit` attack the releases of a run, `membership_audit` the posterior that a user
is handed, `replay` whatever reaches a result beside the gate. All of them take any private estimator, a
`BayesianModel` of your own as well, and a made-up table. The laboratory (`dpsep-lab`) breaks the library on
purpose and shows which of them sees it.
"""

from dpsep.audit.bounds import Bound, lower_bound, one_run_bound
from dpsep.audit.canary import Audit, canary_audit
from dpsep.audit.laws import noise_findings, sampling_findings, steps_of
from dpsep.audit.membership import membership_audit
from dpsep.audit.neighbours import Neighbour, group_neighbours_of, neighbours_of
from dpsep.audit.one_run import one_run_audit
from dpsep.audit.replay import Difference, Report, replay

__all__ = [
    "Audit",
    "Bound",
    "Difference",
    "Neighbour",
    "Report",
    "canary_audit",
    "group_neighbours_of",
    "lower_bound",
    "membership_audit",
    "neighbours_of",
    "noise_findings",
    "one_run_audit",
    "one_run_bound",
    "replay",
    "sampling_findings",
    "steps_of",
]
