"""Tables 2, 6 and 7 of the paper: sizes of the sets, and settings of VI and DP-VI.

*Table 7's epsilon.* The printed noise, batch and epochs by a valid accountant, at N T / batch steps: with
Poisson batches of that size, and with fixed-size batches drawn afresh (what the text accounts for), ``as
accounted``; with passes over shuffled batches, one release a pass for each record, ``as written``. N is the
training part, nine tenths of the records. As the text has it, the noise's standard deviation is sigma C.
"""

import math
from collections.abc import Sequence

from dpsep.privacy.accounting import Mechanism, Relation
from dpsep.privacy.sampling import FixedSizeSampling, PoissonSampling, Sampling, ShuffledEpochs
from dpsep_lab.paper.networks import DELTA, load_all
from dpsep_lab.paper.printed_networks import DPVI_SETTINGS, TABLE_2, VI_SETTINGS
from dpsep_lab.paper.rows import Row, row_of, skipped_row

__all__ = ["data_rows", "settings_rows"]


def data_rows(names: Sequence[str]) -> list[Row]:
    """Return Table 2: sizes as printed and as loaded.

    Parameters
    ----------
    names
        Of the sets.
    """
    found = []
    for name in names:
        printed = zip(("records", "features"), TABLE_2[name], strict=True)
        for metric, value in printed:
            found.append(row_of("table2", metric, "printed", name, "data", metric, [value]) | {"sd": None})
        loaded, missing = load_all([name])
        if name in missing:
            found.append(skipped_row("table2", name, "records", missing[name]))
            continue
        table, parts = loaded[name]
        sizes = {"records": len(table.y), "features": table.X.shape[1], "splits": len(parts)}
        sizes["records to train on"] = len(parts[0][0])
        for metric, value in sizes.items():
            found.append(row_of("table2", metric, "ours", name, "data", metric, [value]) | {"sd": None})
    return found


def settings_rows(table: str, names: Sequence[str]) -> list[Row]:
    """Return Table 6 or 7: settings as printed and ours, for DP-VI with the epsilon of the printed ones.

    Parameters
    ----------
    table
        ``"table6"`` or ``"table7"``.
    names
        Of the sets.
    """
    printed = VI_SETTINGS if table == "table6" else DPVI_SETTINGS
    method = "VI" if table == "table6" else "DP-VI"
    found = []
    for name in names:
        for metric, value in printed[name]._asdict().items():
            if value is not None:
                label = metric.replace("_", " ")
                found.append(row_of(table, label, "printed", name, method, label, [value]) | {"sd": None})
        for label, value in _our_settings(table).items():
            found.append(row_of(table, label, "ours", name, method, label, [value]) | {"sd": None})
        if table == "table7":
            found += _epsilon_rows(name)
    return found


def _our_settings(table: str) -> dict[str, float]:
    """Our defaults for VI, the same for every set, by the names of the printed ones where they agree."""
    from dpsep.inference import descent

    known = descent.OPEN_DEFAULTS if table == "table6" else descent.PRIVATE_DEFAULTS
    defaults = known["variational"]._asdict() if "variational" in known else {}
    names = {"batch": "batch size", "rate": "sampling rate"}
    if table == "table6":
        names["steps"] = "epochs"
    return {
        names.get(key, key.replace("_", " ")): float(value)
        for key, value in defaults.items()
        if value is not None and math.isfinite(value)
    }


def _epsilon_rows(name: str) -> list[Row]:
    """The printed epsilon, and what the printed settings give."""
    setting = DPVI_SETTINGS[name]
    size, sigma = setting.batch_size, setting.sigma
    assert sigma is not None
    records = 463715 if name == "year" else round(0.9 * TABLE_2[name][0])
    steps = round(setting.epochs * records / size)
    passes = setting.epochs * ShuffledEpochs(size).steps_per_pass(records)
    poisson, fixed, shuffled = PoissonSampling(size / records), FixedSizeSampling(size), ShuffledEpochs(size)
    schemes: tuple[tuple[str, str, Sampling, Relation, int], ...] = (
        ("Poisson batches", "as accounted", poisson, "zero-out", steps),
        ("Poisson batches", "as accounted", poisson, "replace-one", steps),
        ("fixed-size batches drawn afresh", "as accounted", fixed, "replace-one", steps),
        ("shuffled passes", "as written", shuffled, "zero-out", passes),
        ("shuffled passes", "as written", shuffled, "replace-one", passes),
    )
    found = [
        row_of("table7", "epsilon", "printed", name, "DP-VI", "epsilon", [1.0], private=True) | {"sd": None}
    ]
    for label, source, sampling, relation, count in schemes:
        epsilon = Mechanism(sampling, relation, count, sigma, records).epsilon(DELTA)
        row = row_of("table7", f"epsilon, {label}", source, name, "DP-VI", "epsilon", [epsilon], relation)
        found.append(row | {"epsilon": epsilon, "sd": None})
    return found
