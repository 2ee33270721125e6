"""The paper's own numbers, as printed: nothing in this file was measured by this project.

Table 1 of Vinaroz and Park (TMLR 2022), *Accuracy of the posterior distribution (Mixture-of-Gaussian with
Synthetic data)*: averages of five runs, delta = 1e-5, 100 passes over 1000 records. The text calls its errors
F-norms, the L2 distance between flattened parameters; the reference code prints squared distances, averaged
over components (see `dpsep_lab.paper.clusters.Errors`). The average is the mean of the two columns before it.
"""

from typing import NamedTuple

__all__ = ["SOURCE", "TABLE_1", "Printed"]

SOURCE = "printed"
"""What the rows of a table that come from here are marked with."""


class Printed(NamedTuple):
    """One row of Table 1.

    Attributes
    ----------
    method
        As the table names it, without its parameters.
    epsilon
        The epsilon that the row claims; None without privacy.
    clip
        The clip norm C: that of the row, or of the text (1 for DP-SEP); None where there is none.
    mean, covariance, average
        The three columns of errors.
    """

    method: str
    epsilon: float | None
    clip: float | None
    mean: float
    covariance: float
    average: float


TABLE_1 = (
    Printed("SEP", None, None, 0.0020, 0.0004, 0.0012),
    Printed("SEP-clipped", None, 20.0, 0.0263, 0.0004, 0.0134),
    Printed("SEP-clipped", None, 10.0, 1.4950, 0.0005, 0.7477),
    Printed("SEP-clipped", None, 1.0, 2.2065, 0.0459, 1.1262),
    Printed("DP-EM", 50.0, None, 5.3769, 1.3189, 3.3479),
    Printed("DP-EM", 5.0, None, 10.4548, 3.7573, 7.1060),
    Printed("DP-EM", 1.0, None, 7.5166, 57.8665, 32.6916),
    Printed("DP-SEP", 50.0, 1.0, 2.2411, 0.0358, 1.1385),
    Printed("DP-SEP", 5.0, 1.0, 12.1623, 1.0655, 6.6139),
    Printed("DP-SEP", 1.0, 1.0, 82.9746, 5.0777, 44.0262),
)
"""Table 1, in its order."""
