"""The public data sets of the paper and of the benchmarks, by name."""

from dpsep_lab.data.fetch import DataError
from dpsep_lab.data.registry import ADULT_SCHEMA, UCI, UCI_NAMES, load_adult, load_uci, splits

__all__ = ["ADULT_SCHEMA", "UCI", "UCI_NAMES", "DataError", "load_adult", "load_uci", "splits"]
