"""Tables 2 to 9 of the paper: regression with networks on six UCI sets, as rows.

- 2 the data sets; 3 test RMSE and 4 test log-likelihood of all methods; 5 point estimates; 6 and 7 settings
  of VI and DP-VI; 8 and 9 RMSE and log-likelihood of DP-SEP by clip norm.

Each figure stands beside what is ``printed`` (`dpsep_lab.paper.printed_networks`);
`dpsep_lab.paper.network_cases` says what ``as written``, ``as accounted`` and ``ours`` mean. Tables 3 and 4
end with DP-SEP minus DP-VI on the same splits, with 95 % Student intervals of the mean; splits share records,
so that these are somewhat too narrow.

**Privacy**: none is claimed. Tables are public, scores are measured on them, defaults were looked at on some
of these sets (`dpsep.estimators`).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpsep_lab.paper import fits, network_cases
from dpsep_lab.paper.fits import Job, Store
from dpsep_lab.paper.network_settings import data_rows, settings_rows
from dpsep_lab.paper.networks import Case, Scores, Split, load_all
from dpsep_lab.paper.printed_networks import (
    CLIPS,
    COLUMNS,
    DATASETS,
    REPEATS,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_8,
    TABLE_9,
    Figure,
)
from dpsep_lab.paper.rows import Row, row_of, skipped_row

__all__ = ["SPLITS", "TABLES", "rows"]

Report = Callable[[int, int], None]

TABLES = tuple(f"table{number}" for number in range(2, 10))
SPLITS = {"table3": 10, "table4": 10, "table5": 10, "table8": 5, "table9": 5}
"""As many as the paper has runs, where a set has so many."""
RMSE, LOG_LIKELIHOOD = "test RMSE", "test log-likelihood"
_METRICS = {RMSE: "rmse", LOG_LIKELIHOOD: "log_likelihood"}
_MEASURED: dict[str, tuple[str, Callable[[bool], list[Case]]]] = {
    "table3": (RMSE, network_cases.accuracy_cases),
    "table4": (LOG_LIKELIHOOD, network_cases.accuracy_cases),
    "table5": (RMSE, network_cases.point_cases),
    "table8": (RMSE, network_cases.clip_cases),
    "table9": (LOG_LIKELIHOOD, network_cases.clip_cases),
}
_CLIP_ROWS = tuple(f"C = {clip:g}" for clip in CLIPS)
_PRINTED: dict[str, tuple[dict[str, tuple[Figure, ...]], tuple[str, ...]]] = {
    "table3": (TABLE_3, COLUMNS),
    "table4": (TABLE_4, COLUMNS),
    "table5": (TABLE_5, ("point estimate", "DP-SEP")),
    "table8": (TABLE_8, _CLIP_ROWS),
    "table9": (TABLE_9, _CLIP_ROWS),
}


def rows(
    table: str,
    datasets: Sequence[str] | None = None,
    splits: int | None = None,
    *,
    quick: bool = False,
    store: Store | None = None,
    on_step: Report | None = None,
) -> list[Row]:
    """Return one of the tables, one row a figure.

    Parameters
    ----------
    table
        One of `TABLES`.
    datasets
        Of the paper's sets; all by default, the first two in a quick run. A set that cannot be had gives one
        row whose key ``skipped`` says why.
    splits
        How many of each set's splits; `SPLITS` by default, one in a quick run.
    quick
        Few records, passes, steps and clips.
    store
        Where finished fits are looked for and kept.
    on_step
        Called with the number of fits done and their total.
    """
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}.")
    names = tuple(dict.fromkeys(datasets)) if datasets else DATASETS[:2] if quick else DATASETS
    unknown = [name for name in names if name not in DATASETS]
    if unknown:
        raise ValueError(
            f"there is no data set {unknown[0]!r} in the paper; its sets: {', '.join(DATASETS)}."
        )
    if table == "table2":
        return data_rows(names)
    if table in ("table6", "table7"):
        return settings_rows(table, names)
    count = splits or (1 if quick else SPLITS[table])
    return _measured_rows(table, names, count, quick=quick, store=store or Store(), on_step=on_step)


def _measured_rows(
    table: str, names: Sequence[str], count: int, *, quick: bool, store: Store, on_step: Report | None
) -> list[Row]:
    metric, make = _MEASURED[table]
    loaded, missing = load_all(names)
    jobs = [
        Job(case, name, split)
        for name, one in loaded.items()
        for split in range(min(count, len(one.parts)))
        for case in make(quick)
    ]

    def split_of(name: str, number: int) -> Split:
        split = loaded[name].split(number)
        return split.fewer(network_cases.QUICK_RECORDS) if quick else split

    found = fits.run(jobs, store, split_of, on_step)
    by_case: dict[tuple[str, str], list[tuple[Job, Scores | str]]] = {}
    for job, result in zip(jobs, found, strict=True):
        line = f"{job.case.row}/{job.case.source}/{job.case.relation}/{job.case.scaling}"
        by_case.setdefault((job.dataset, line), []).append((job, result))
    collected = []
    for name in names:
        collected += _printed_rows(table, name, metric)
        if name in missing:
            collected.append(skipped_row(table, name, metric, missing[name]))
        groups = [group for (dataset, _), group in by_case.items() if dataset == name]
        collected += [_case_row(table, metric, group) for group in groups]
        if groups and table in ("table3", "table4"):
            collected += _paired_rows(table, metric, name, groups)
    return [row | {"quick": True} for row in collected] if quick else collected


def _printed_rows(table: str, name: str, metric: str) -> list[Row]:
    figures, labels = _PRINTED[table]
    found = []
    for label, figure in zip(labels, figures[name], strict=True):
        private = label.startswith(("DP-", "C = "))
        method = "DP-SEP" if label.startswith("C = ") else label
        row = row_of(table, label, "printed", name, method, metric, [figure.mean], private=private)
        repeats = 1 if figure.sd is None else REPEATS[table]
        found.append(row | {"median": None, "sd": figure.sd, "n": repeats, "scaling": "public"})
    return found


def _case_row(table: str, metric: str, group: Sequence[tuple[Job, Scores | str]]) -> Row:
    """One case on all splits of a set."""
    job = group[0][0]
    case = job.case
    scores = [one for _, one in group if not isinstance(one, str)]
    values = [getattr(one, _METRICS[metric]) for one in scores]
    row = row_of(table, case.row, case.source, job.dataset, case.method, metric, values, case.relation)
    seconds = float(np.median([one.seconds for one in scores])) if scores else None
    row |= {"epsilon": case.epsilon, "scaling": case.scaling, "seconds": seconds}
    refused = [one for _, one in group if isinstance(one, str)]
    return row | {"skipped": refused[0]} if refused else row


def _paired_rows(
    table: str, metric: str, name: str, groups: Sequence[Sequence[tuple[Job, Scores | str]]]
) -> list[Row]:
    """DP-SEP minus DP-VI, both ours, on the same splits and with public scaling."""
    values: dict[tuple[str, str], dict[int, float]] = {}
    for group in groups:
        case = group[0][0].case
        if case.source == "ours" and case.epsilon is not None and case.scaling == "public":
            values[case.row, case.relation] = {
                job.split: getattr(one, _METRICS[metric]) for job, one in group if not isinstance(one, str)
            }
    found = []
    for relation in network_cases.RELATIONS:
        first, second = values.get(("DP-SEP", relation), {}), values.get(("DP-VI", relation), {})
        difference = [first[split] - second[split] for split in first if split in second]
        label = "DP-SEP minus DP-VI"
        row = row_of(
            table, label, "ours", name, label, f"paired difference of {metric}", difference, relation
        )
        reach = _reach(difference)
        low, high = (None, None) if reach is None else (row["mean"] - reach, row["mean"] + reach)
        found.append(row | {"low": low, "high": high, "scaling": "public"})
    return found


def _reach(values: Sequence[float]) -> float | None:
    """Half the length of the 95 % interval of a mean."""
    from scipy.stats import t

    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return None
    return float(t.ppf(0.975, len(finite) - 1) * np.std(finite, ddof=1) / math.sqrt(len(finite)))
