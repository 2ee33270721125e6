"""The data sets of the paper and of the benchmarks, by name.

Five of the regression sets are those of Hernández-Lobato and Adams (2015), with the twenty (protein: five)
random 90/10 splits that the PBP, SEP and dropout papers report on; the sixth is YearPredictionMSD with its
fixed split, and Adult is the census-income table of the classification benchmarks. All are public: nothing
here is private data and nothing here is accounted. `dpsep_lab.data.fetch` says where the files are looked
for.
"""

import gzip
import zipfile
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsep.data import Column, Schema
from dpsep_lab.data.fetch import DataError, advice, locate, own_file

__all__ = ["ADULT_SCHEMA", "UCI", "UCI_NAMES", "DataError", "load_adult", "load_uci", "splits", "survey"]

SPLIT_SEED = 20240
"""Seed of the 90/10 splits made where a set comes without index files."""


class UCI(NamedTuple):
    """A regression set: inputs (N, d), targets (N,), the inputs' names and the set's name.

    Examples
    --------
    >>> made = UCI(np.zeros((3, 1)), np.zeros(3), ("a",), "made")
    >>> made.name, made.X.shape
    ('made', (3, 1))
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    feature_names: tuple[str, ...]
    name: str


class _Spec(NamedTuple):
    """What is known of a set beforehand: its shape, its target column and its customary splits."""

    rows: int
    columns: int
    target: int
    features: tuple[str, ...]
    n_splits: int
    train_rows: int | None = None


_SPECS = {
    "naval": _Spec(
        rows=11934,
        columns=18,
        target=16,  # the compressor's decay; column 17, the turbine's, is left out as in the literature
        features=(
            *("lever position", "ship speed", "turbine shaft torque", "turbine speed", "generator speed"),
            *("starboard propeller torque", "port propeller torque", "turbine exit temperature"),
            *("compressor inlet temperature", "compressor outlet temperature", "turbine exit pressure"),
            *("compressor inlet pressure", "compressor outlet pressure", "exhaust pressure"),
            *("injection control", "fuel flow"),
        ),
        n_splits=20,
    ),
    "kin8nm": _Spec(
        rows=8192, columns=9, target=8, features=tuple(f"theta{i}" for i in range(1, 9)), n_splits=20
    ),
    "power": _Spec(rows=9568, columns=5, target=4, features=("AT", "V", "AP", "RH"), n_splits=20),
    "wine": _Spec(
        rows=1599,
        columns=12,
        target=11,
        features=(
            *("fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides"),
            *("free sulfur dioxide", "total sulfur dioxide", "density", "pH", "sulphates", "alcohol"),
        ),
        n_splits=20,
    ),
    "protein": _Spec(
        rows=45730, columns=10, target=9, features=tuple(f"F{i}" for i in range(1, 10)), n_splits=5
    ),
    "year": _Spec(
        rows=515345,
        columns=91,
        target=0,
        features=(
            *(f"timbre mean {i}" for i in range(1, 13)),
            *(f"timbre covariance {i}" for i in range(1, 79)),
        ),
        n_splits=1,
        train_rows=463715,  # no artist is in both parts
    ),
}

UCI_NAMES = tuple(_SPECS)
"""The names that `load_uci` and `splits` take."""

_ADULT_ROWS = {"train": 32561, "test": 16281}
_ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    "income",
)


def load_uci(name: str) -> UCI:
    """Load one of the paper's regression sets, unscaled and in the file's order.

    Parameters
    ----------
    name
        One of `UCI_NAMES`: naval, kin8nm, power, wine, protein, year.

    Returns
    -------
    Inputs, targets, the inputs' names and the set's name.

    Examples
    --------
    >>> load_uci("power").X.shape  # doctest: +SKIP
    (9568, 4)
    """
    spec = _spec(name)
    try:
        table = _read_year() if name == "year" else np.loadtxt(locate(f"uci/{name}/data.txt"), ndmin=2)
    except (ValueError, KeyError, pl.exceptions.PolarsError, zipfile.BadZipFile) as error:
        raise DataError(f"the file found for {name} is no table of numbers. {advice(name)}") from error
    if table.shape != (spec.rows, spec.columns):
        raise DataError(
            f"the file found for {name} has {table.shape[0]} rows of {table.shape[1]} columns, expected "
            f"{spec.rows} of {spec.columns}. {advice(name)}"
        )
    first = 1 if spec.target == 0 else 0
    X = np.ascontiguousarray(table[:, first : first + len(spec.features)])
    return UCI(X, table[:, spec.target].copy(), spec.features, name)


def splits(name: str) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the train and test row numbers of every customary split of a set.

    Year has its one fixed split: the first 463715 rows train. The others have the splits of the literature,
    read from their ``index_test_K.txt`` files; the training part is every other row, in order. Where a user's
    own data folder holds ``data.txt`` without index files, splits of the same number and size are drawn
    instead: test part K is the first tenth of ``default_rng([SPLIT_SEED, K]).permutation(rows)`` (NumPy's).

    Parameters
    ----------
    name
        One of `UCI_NAMES`.

    Returns
    -------
    A list of ``(train_rows, test_rows)``.

    Examples
    --------
    >>> train, test = splits("power")[0]  # doctest: +SKIP
    >>> len(train) + len(test)  # doctest: +SKIP
    9568
    """
    spec = _spec(name)
    if spec.train_rows is not None:
        return [(np.arange(spec.train_rows), np.arange(spec.train_rows, spec.rows))]
    data = own_file(f"uci/{name}/data.txt")
    if data is None:
        paths = [locate(f"uci/{name}/index_test_{k}.txt") for k in range(spec.n_splits)]
    else:
        paths = sorted(
            data.parent.glob("index_test_*.txt"), key=lambda path: int(path.stem.rsplit("_", 1)[1])
        )
    if paths:
        tests = [np.loadtxt(path, ndmin=1).astype(np.int64) for path in paths]
    else:
        seeds = range(spec.n_splits)
        size = round(spec.rows / 10)
        tests = [np.random.default_rng([SPLIT_SEED, k]).permutation(spec.rows)[:size] for k in seeds]
    return [(np.setdiff1d(np.arange(spec.rows), test), test) for test in tests]


def load_adult(part: Literal["train", "test"] = "train") -> pl.DataFrame:
    """Load the Adult census-income table, as UCI publishes it.

    Parameters
    ----------
    part
        ``"train"`` (32561 rows) or ``"test"`` (16281 rows).

    Returns
    -------
    The fourteen named columns and ``income``, ``"<=50K"`` or ``">50K"`` (the test part's trailing dots go).
    Unknown values stay ``"?"``, as `ADULT_SCHEMA` declares them.

    Examples
    --------
    >>> load_adult("test").shape  # doctest: +SKIP
    (16281, 15)
    """
    if part not in _ADULT_ROWS:
        raise DataError(f"there is no part {part!r} of adult; the parts are 'train' and 'test'")
    file = "adult.data" if part == "train" else "adult.test"
    path = own_file(f"adult/{file}.gz") or locate(f"adult/{file}")
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    frame = pl.read_csv(
        text,
        has_header=False,
        skip_rows=1 if part == "test" else 0,  # UCI's test file opens with a line that is no record
        new_columns=list(_ADULT_COLUMNS),
        infer_schema=False,
    )
    frame = frame.drop_nulls().with_columns(pl.all().str.strip_chars())
    if frame.shape != (_ADULT_ROWS[part], len(_ADULT_COLUMNS)):
        raise DataError(
            f"the file found for adult ({part}) has {frame.height} rows of {frame.width} columns, expected "
            f"{_ADULT_ROWS[part]} of {len(_ADULT_COLUMNS)}. {advice('adult')}"
        )
    return frame.with_columns(
        pl.col(_ADULT_NUMBERS).cast(pl.Int64), pl.col("income").str.strip_chars_end(".")
    )


def _spec(name: str) -> _Spec:
    if name not in _SPECS:
        raise DataError(f"there is no data set {name!r}; the names are {', '.join(UCI_NAMES)}")
    return _SPECS[name]


def _read_year() -> NDArray[np.float64]:
    """Read YearPredictionMSD from its text or from UCI's archive of it."""
    path = own_file("uci/year/YearPredictionMSD.txt") or locate("uci/year/YearPredictionMSD.txt.zip")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            source = archive.read("YearPredictionMSD.txt")
    else:
        source = path
    frame = pl.read_csv(source, has_header=False, infer_schema_length=1, schema_overrides=[pl.Float64] * 91)
    return frame.to_numpy()


def survey(name: str) -> tuple[pl.DataFrame, Schema]:
    """Return a table for the demonstration of a federation, ``"adult"`` or ``"power"``, and its schema."""
    if name == "adult":
        schema = ADULT_SCHEMA.drop("native-country")
        return load_adult("train").select([column.name for column in schema.columns]), schema
    power = load_uci("power")
    names = [f"x{place}" for place in range(power.X.shape[1])]
    table = pl.DataFrame(power.X, schema=names).with_columns(pl.Series("output", power.y))
    return table, Schema(tuple(Column(name, "number") for name in (*names, "output")), "output")


_WORKCLASS = (
    *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay"),
    *("Never-worked", "?"),
)
_MARITAL_STATUS = (
    *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent"),
    "Married-AF-spouse",
)
_OCCUPATION = (
    *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty"),
    *("Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving"),
    *("Priv-house-serv", "Protective-serv", "Armed-Forces", "?"),
)
_RELATIONSHIP = ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")
_RACE = ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")
_NATIVE_COUNTRY = (
    *(
        "United-States",
        "Cambodia",
        "England",
        "Puerto-Rico",
        "Canada",
        "Germany",
        "Outlying-US(Guam-USVI-etc)",
    ),
    *(
        "India",
        "Japan",
        "Greece",
        "South",
        "China",
        "Cuba",
        "Iran",
        "Honduras",
        "Philippines",
        "Italy",
        "Poland",
    ),
    *(
        "Jamaica",
        "Vietnam",
        "Mexico",
        "Portugal",
        "Ireland",
        "France",
        "Dominican-Republic",
        "Laos",
        "Ecuador",
    ),
    *(
        "Taiwan",
        "Haiti",
        "Columbia",
        "Hungary",
        "Guatemala",
        "Nicaragua",
        "Scotland",
        "Thailand",
        "Yugoslavia",
    ),
    *("El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands", "?"),
)

ADULT_SCHEMA = Schema(
    columns=(
        Column("age", "number", (17, 90)),
        Column("workclass", "category", categories=_WORKCLASS),
        Column("education-num", "number", (1, 16)),
        Column("marital-status", "category", categories=_MARITAL_STATUS),
        Column("occupation", "category", categories=_OCCUPATION),
        Column("relationship", "category", categories=_RELATIONSHIP),
        Column("race", "category", categories=_RACE),
        Column("sex", "category", categories=("Female", "Male")),
        Column("capital-gain", "number", (0, 99999)),
        Column("capital-loss", "number", (0, 4356)),
        Column("hours-per-week", "number", (1, 99)),
        Column("native-country", "category", categories=_NATIVE_COUNTRY),
        Column("income", "category", categories=("<=50K", ">50K")),
    ),
    target="income",
)
"""UCI's Adult table: twelve features and the income bracket. The categories are those of UCI's
description, with ``"?"`` for what was not answered; the bounds are the published ranges of this public
table. ``fnlwgt``, a survey weight, and ``education``, which repeats ``education-num``, are left out.
Encoded it has 84 columns; without ``native-country`` (``ADULT_SCHEMA.drop("native-country")``) 43.
"""
