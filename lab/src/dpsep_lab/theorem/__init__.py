"""Theorem 4.1 as code: expected divergence, the bound as printed, a corrected bound, the cost of clipping."""

from dpsep_lab.theorem.cases import Cases, Check, Search, check_corrected, random_cases, search_printed
from dpsep_lab.theorem.clipping import clipping_kl
from dpsep_lab.theorem.corrected_bound import CorrectedBound, GoodPart, corrected_bound, good_part
from dpsep_lab.theorem.expected_kl import Estimate, expected_kl, expected_kl_batch
from dpsep_lab.theorem.noise_matrix import mean_bound, noise_draws, series_variance, tail, variance_statistic
from dpsep_lab.theorem.printed_bound import PrintedBound, best_M, limits, printed_bound

__all__ = [
    "Cases",
    "Check",
    "CorrectedBound",
    "Estimate",
    "GoodPart",
    "PrintedBound",
    "Search",
    "best_M",
    "check_corrected",
    "clipping_kl",
    "corrected_bound",
    "expected_kl",
    "expected_kl_batch",
    "good_part",
    "limits",
    "mean_bound",
    "noise_draws",
    "printed_bound",
    "random_cases",
    "search_printed",
    "series_variance",
    "tail",
    "variance_statistic",
]
