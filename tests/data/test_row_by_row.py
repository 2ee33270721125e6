"""What stands before the gate works row by row, whatever a table comes in.

One promise, tested in one place: changing one record changes that record's row of what the gate reads (with
groups as units: the rows of the groups that had it and have it) and nothing else. No other row changes by a
bit, no type, no count, no message, no exit code. The gate's arrays are taken where it gets them, after the
charge, from fits by estimators and by the shell.
"""

import gzip
import io
import itertools
import json
import re
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import dpsep
from dpsep.cli.commands import app
from dpsep.data import encode, scan, text
from dpsep.data.cells import category_codes
from dpsep.data.declare import Column, Schema
from dpsep.data.files import find_source, read_stored
from dpsep.data.frames import as_frame
from dpsep.data.text import count_lines, csv_layout, read_lines
from dpsep.estimators.row_scores import row_scores
from dpsep.privacy import reader as reader_module
from dpsep.privacy.ledger import Ledger
from dpsep.privacy.reader import Reader
from dpsep.privacy.record_sources import fetch

pytestmark = pytest.mark.filterwarnings("ignore::dpsep.WeakBudgetWarning")  # of tables of 13 rows

ROWS = 13
PLACES = (0, 6, ROWS - 1)
HOSTILE = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 2.0**70, 7.25, 1e-200)
Table = tuple[list[list[Any]], list[Any]]
Seen = list[list[np.ndarray]]


class Reached(BaseException):
    """The gate has its records, and nothing more is wanted of the fit."""


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every table that a gate was given, as arrays."""
    seen: Seen = []

    class Noted(Reader):
        def __init__(self, records: Any, *rest: Any, **how: Any) -> None:
            seen.append([np.array(array) for array in fetch(records, slice(0, len(records[0])))])
            super().__init__(records, *rest, **how)

    monkeypatch.setattr(reader_module, "Reader", Noted)
    return seen


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The same; the fit ends there."""
    seen: Seen = []

    def noted(records: Any, *_: Any, **__: Any) -> Any:
        seen.append([np.array(array) for array in fetch(records, slice(0, len(records[0])))])
        raise Reached

    monkeypatch.setattr(reader_module, "Reader", noted)
    return seen


def table() -> Table:
    rng = np.random.default_rng(3)
    return [[float(a), float(b)] for a, b in rng.uniform(0, 5, (ROWS, 2)).round(2)], [
        float(value) for value in rng.uniform(0, 5, ROWS).round(2)
    ]


def as_array(cells: list[list[Any]], y: list[Any]) -> Any:
    return np.array(cells, np.float64), np.array(y, np.float64)


def as_float32(cells: list[list[Any]], y: list[Any]) -> Any:
    with np.errstate(over="ignore"):
        return np.array(cells, np.float32), np.array(y, np.float32)


def as_objects(cells: list[list[Any]], y: list[Any]) -> Any:
    X, target = np.empty((len(cells), 2), object), np.empty(len(y), object)
    for row, col in itertools.product(range(len(cells)), range(2)):
        X[row, col] = cells[row][col]
    for row, cell in enumerate(y):
        target[row] = cell
    return X, target


def as_list(cells: list[list[Any]], y: list[Any]) -> Any:
    return np.array(cells, np.float64), list(y)


def as_pandas(cells: list[list[Any]], y: list[Any]) -> Any:
    frame = pd.DataFrame({name: [row[col] for row in cells] for col, name in enumerate("ab")}, dtype=float)
    return frame, pd.Series(y, dtype=float)


def as_nullable(cells: list[list[Any]], y: list[Any]) -> Any:
    frame, target = as_pandas(cells, y)
    return frame.astype("Float64"), target.astype("Float64")


def as_polars(cells: list[list[Any]], y: list[Any]) -> Any:
    frame = pl.DataFrame(
        {name: [row[col] for row in cells] for col, name in enumerate("ab")},
        schema={"a": pl.Float64, "b": pl.Float64},
    )
    return frame, pl.Series(y, dtype=pl.Float64)


def as_lazy(cells: list[list[Any]], y: list[Any]) -> Any:
    frame, target = as_polars(cells, y)
    return frame, target.to_frame("y")


def as_arrow(cells: list[list[Any]], y: list[Any]) -> Any:
    columns = {name: pa.array([row[col] for row in cells], pa.float64()) for col, name in enumerate("ab")}
    return pa.table(columns), pa.array(y, pa.float64())


def stored(name: str, write: Callable[[pa.Table, Path], None]) -> Callable[..., Any]:
    def make(cells: list[list[Any]], y: list[Any], folder: Path) -> Any:
        X, target = as_arrow(cells, y)
        write(X.append_column("y", target), folder / name)
        found = scan(folder / name)
        return found[["a", "b"]], found["y"]

    return make


def as_memmap(cells: list[list[Any]], y: list[Any], folder: Path) -> Any:
    X, target = as_float32(cells, y)
    mapped = np.memmap(folder / "cells", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    return mapped, target


def as_decimals(cells: list[list[Any]], y: list[Any]) -> Any:
    def column(values: list[Any]) -> Any:
        kept = [value if value is not None and abs(value) < 100 else None for value in values]
        return pa.array(
            [None if value is None else Decimal(str(round(value, 18))) for value in kept],
            pa.decimal256(60, 20),
        )

    return pa.table({"a": column([row[0] for row in cells]), "b": column([row[1] for row in cells])}), column(
        y
    )


CONTAINERS: dict[str, Any] = {
    "array": as_array,
    "float32": as_float32,
    "objects": as_objects,
    "list": as_list,
    "pandas": as_pandas,
    "pandas nullable": as_nullable,
    "polars": as_polars,
    "target in a frame": as_lazy,
    "Arrow": as_arrow,
    "Arrow decimals": as_decimals,
    "Parquet": stored("t.parquet", lambda table, path: pyarrow.parquet.write_table(table, path)),
    "Feather": stored("t.feather", lambda table, path: pyarrow.feather.write_feather(table, path)),
    "memory map": as_memmap,
}
TYPED = ("array", "float32", "Parquet", "Feather", "memory map", "Arrow decimals")


def told(fit: Callable[[], Any]) -> tuple[str, list[str]]:
    """How a fit ends, and all it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(Reached) as ended:
            fit()
    return ended.type.__name__, [str(item.message) for item in caught]


def alike(seen: Seen, base: list[np.ndarray], but: set[int]) -> None:
    """The last table that a gate was given is another one, in these rows only."""
    assert len(seen[-1]) == len(base)
    for now, then in zip(seen[-1], base, strict=True):
        assert (now.shape, now.dtype) == (then.shape, then.dtype)
        others = [row for row in range(len(then)) if row not in but]
        assert now[others].tobytes() == then[others].tobytes()


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_record_changes_its_own_row_and_no_message(name: str, tmp_path: Path, stopping: Seen) -> None:
    cells, y = table()
    more = {"folder": tmp_path} if name in ("Parquet", "Feather", "memory map") else {}
    make = CONTAINERS[name]
    model = dpsep.LinearRegression(epsilon=1.0, delta=1e-3, bounds=(0, 5), target_bounds=(0, 5), steps=2)

    def seen_with(row: int | None, column: int, value: Any) -> tuple[str, list[str]]:
        X, target = [list(cell) for cell in cells], list(y)
        if row is not None:
            if column == 2:
                target[row] = value
            else:
                X[row][column] = value
        given = make(X, target, **more)
        return told(lambda: model.fit(*given))

    said = seen_with(None, 0, None)
    base = stopping[-1]
    assert all(np.isfinite(array).all() for array in base)
    hostile: tuple[Any, ...] = HOSTILE if name in TYPED else (*HOSTILE, None)
    if name in ("objects", "list"):
        hostile = (*hostile, "seven", b"\xff", [1.0, 2.0], {}, 1j, Decimal(3), Odd())
    for row, column, value in itertools.product(PLACES, range(3), hostile):
        if name == "list" and column < 2:
            value = value if isinstance(value, float) else np.nan
        assert seen_with(row, column, value) == said
        alike(stopping, base, {row})


class Odd:
    """A cell whose every method fails, with words that would tell on it."""

    def _fails(self, *_: Any) -> Any:
        raise RuntimeError("the patient of bed 7")

    __str__ = __repr__ = __float__ = __len__ = __iter__ = __eq__ = __bool__ = __getitem__ = __index__ = _fails  # pyright: ignore
    __hash__ = _fails  # pyright: ignore


@pytest.mark.parametrize("name", ["list", "objects", "texts", "pandas", "category", "polars", "Arrow"])
def test_a_label_changes_its_own_row_and_no_message(name: str, stopping: Seen) -> None:
    cells, _ = table()
    labels = ["no" if row % 3 else "yes" for row in range(ROWS)]
    makers: dict[str, Callable[[list[Any]], Any]] = {
        "list": list,
        "objects": lambda given: as_objects(cells, given)[1],
        "texts": lambda given: np.array(given, "U20"),
        "pandas": lambda given: pd.Series(given, dtype=object),
        "category": lambda given: pd.Series(given, dtype=pd.CategoricalDtype(["no", "yes", "?"])),
        "polars": lambda given: pl.Series(given, dtype=pl.String),
        "Arrow": lambda given: pa.array(given, pa.string()),
    }
    odd: tuple[Any, ...] = ("yes", "no", "?") if name == "category" else ("yes", "no", "", "NO", "maybe" * 3)
    if name in ("list", "objects", "pandas"):
        odd = (*odd, None, np.nan, 1, 1.5, b"yes", ["yes"], ["yes", "no"], Odd())
    elif name != "texts":
        odd = (*odd, None)
    model = dpsep.LogisticRegression(epsilon=1.0, delta=1e-3, bounds=(0, 5), classes=["no", "yes"], steps=2)
    X = np.array(cells)
    said = told(lambda: model.fit(X, makers[name](labels)))
    base = stopping[-1]
    for row, value in itertools.product(PLACES, odd):
        changed = [*labels]
        changed[row] = value
        given = makers[name](changed)
        assert told(lambda given=given: model.fit(X, given)) == said
        alike(stopping, base, {row})


def test_a_group_changes_its_own_rows(stopping: Seen) -> None:
    cells, y = table()
    groups: list[Any] = [f"w{row % 4}" for row in range(ROWS)]
    names = ["w0", "w1", "w2", "w3"]
    model = dpsep.MixedRegressor(
        epsilon=1.0, delta=1e-3, bounds=(0, 5), target_bounds=(0, 5), unit="group", rows_per_group=3,
        groups=names, steps=2,
    )  # fmt: skip

    def seen_with(row: int, group: Any, X: Any, target: Any) -> tuple[str, list[str]]:
        changed = [*groups]
        changed[row] = group
        return told(lambda: model.fit(X, target, groups=changed))

    said = seen_with(0, "w0", np.array(cells), np.array(y))
    base = stopping[-1]
    assert len(base[0]) == len(names)
    for row in PLACES:
        own = names.index(groups[row])
        for value in HOSTILE:
            X, target = np.array(cells), np.array(y)
            X[row, 1] = value
            assert seen_with(row, groups[row], X, target) == said
            alike(stopping, base, {own})
            X, target = np.array(cells), np.array(y)
            target[row] = value
            assert seen_with(row, groups[row], X, target) == said
            alike(stopping, base, {own})
        for group in ("w1", "other", None, np.nan, 3, ["w1", "w2"], Odd()):
            there = {names.index(group)} if isinstance(group, str) and group in names else set()
            assert seen_with(row, group, np.array(cells), np.array(y)) == said
            alike(stopping, base, {own, *there})


SCHEMA = """
target = "y"
[[columns]]
name = "a"
kind = "number"
bounds = [0, 5]
[[columns]]
name = "ward"
kind = "category"
categories = ["North", "South"]
[[columns]]
name = "y"
kind = "number"
bounds = [0, 5]
"""
ODD_CELLS = ("", "NA", "nan", "inf", "-1e308", "1e400", "5e-324", "East", "North", "2.5", " 2", "=1+1", "π")


def lines(row: int | None = None, column: int = 0, cell: str = "") -> list[list[str]]:
    cells, y = table()
    found = [
        [str(a), "North" if b > 2 else "South", str(value)] for (a, b), value in zip(cells, y, strict=True)
    ]
    if row is not None:
        found[row][column] = cell
    return found


@pytest.mark.parametrize("name", ["mapping", "pandas", "polars", "Arrow"])
def test_encoding_is_row_by_row(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA)
    schema = Schema.read(tmp_path / "s.toml")

    def encoded(row: int | None = None, column: int = 0, cell: str = "") -> tuple[np.ndarray, Any, list[str]]:
        texts = lines(row, column, cell)
        columns = {key: [line[place] for line in texts] for place, key in enumerate(("a", "ward", "y"))}
        numbers = {key: [_number(cell) for cell in columns[key]] for key in ("a", "y")}
        given: Any = numbers | {"ward": columns["ward"]}
        if name == "pandas":
            given = pd.DataFrame(given)
        elif name == "polars":
            given = pl.DataFrame(given)
        elif name == "Arrow":
            given = pa.table(given)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            matrix, names = encode(given, schema)
        return matrix, names, [str(item.message) for item in caught]

    base, names, said = encoded()
    for row, column, cell in itertools.product(PLACES, range(3), ODD_CELLS):
        now, found, heard = encoded(row, column, cell)
        assert (found, heard, now.shape, now.dtype) == (names, said, base.shape, base.dtype)
        assert np.delete(now, row, 0).tobytes() == np.delete(base, row, 0).tobytes()


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def write(kind: str, path: Path, texts: list[list[str]], damage: tuple[int, bytes] | None = None) -> Path:
    if kind in ("csv", "csv.gz"):
        rows = [",".join(line).encode() for line in texts]
        if damage is not None:
            rows[damage[0]] = damage[1]
        content = b"\n".join([b"a,ward,y", *rows, b""])
        path.write_bytes(gzip.compress(content) if kind == "csv.gz" else content)
        return path
    frame = pl.DataFrame(
        {
            "a": [_number(line[0]) for line in texts],
            "ward": [line[1] for line in texts],
            "y": [_number(line[2]) for line in texts],
        }
    )
    if kind == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_ipc(path)
    return path


DAMAGE = (
    b"",
    b"1",
    b"1,North,2,3",
    b'1,"North,2',
    b'1,"No"rth,2',
    b"1,\xff\xfe,2",
    b"1,No\0rth,2",
    b"\r",
    b'"',
)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "arrow"])
def test_the_shell_works_row_by_row(kind: str, tmp_path: Path, reading: Seen) -> None:
    """A file's records, through `dpsep fit`: the arrays, the words, the exit code and the ledger's charge."""
    (tmp_path / "s.toml").write_text(SCHEMA)
    number = itertools.count()

    def fitted(texts: list[list[str]], damage: tuple[int, bytes] | None = None) -> tuple[Any, ...]:
        place = tmp_path / str(next(number))
        place.mkdir()
        path = write(kind, place / f"t.{kind}", texts, damage)
        ledger = Ledger.create(place / "l.db", epsilon=1.0, delta=1e-2)
        words = ("fit", path, "--schema", tmp_path / "s.toml", "--epsilon", 1, "--delta", 1e-2)
        done = CliRunner().invoke(
            app, [str(word) for word in (*words, "--ledger", ledger.path, "--out", place / "run", "--json")]
        )
        assert done.exit_code == 0, done.output
        told = json.loads((place / "run" / "privacy.json").read_text())
        rows = [
            (row.kind, row.epsilon, row.delta, row.event) for row in ledger.rows() if row.kind == "charge"
        ]
        stated = {key: value for key, value in told.items() if key not in ("run", "ledger")}
        return done.exit_code, re.sub(re.escape(str(place)), "", done.stderr), stated, rows

    said = fitted(lines())
    base = reading[-1]
    reads = len(reading)
    odd = itertools.product(PLACES, ((0, "inf"), (1, "East"), (2, ""), (0, "East")))
    for row, (column, cell) in odd:
        assert fitted(lines(row, column, cell)) == said
        alike(reading, base, {row})
    if kind.startswith("csv"):
        for row, damage in zip(itertools.cycle(PLACES), DAMAGE, strict=False):
            assert fitted(lines(), (row, damage)) == said
            alike(reading, base, {row})
            assert not np.isfinite(reading[-1][0][row]).all()
    assert len(reading) % reads == 0


MODELS: dict[str, Any] = {
    "linear": lambda: dpsep.LinearRegression(private=False),
    "poisson": lambda: dpsep.PoissonRegression(private=False),
    "gamma": lambda: dpsep.GammaRegression(private=False),
    "logistic": lambda: dpsep.LogisticRegression(private=False, classes=["no", "yes"]),
    "probit": lambda: dpsep.ProbitRegression(private=False, classes=["no", "yes"]),
    "mixed": lambda: dpsep.MixedRegressor(private=False),
    "network": lambda: dpsep.NetworkRegressor(
        private=False, method="point", hidden=3, steps=20, random_state=0
    ),
    "mixture": lambda: dpsep.GaussianMixture(2, private=False, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_held_out_rows_are_scored_row_by_row(name: str) -> None:
    rng = np.random.default_rng(1)
    X = pl.DataFrame({"a": rng.uniform(0, 2, 40), "b": rng.uniform(0, 2, 40)})
    y: Any = rng.poisson(2.0, 40).astype(float)
    groups: Any = np.array(["u", "v"])[np.arange(40) % 2]
    odd: tuple[Any, ...] = (np.nan, -np.inf, 1e308, 3.5, 4.0)
    if name == "gamma":
        y, odd = y + 0.5, (*odd, 0.0, -2.0)
    if name in ("logistic", "probit"):
        y = np.where(rng.uniform(size=40) < 0.5, "no", "yes")
        odd = ("", "no", "yes", "?")
    if name == "mixture":
        model, y = MODELS[name]().fit(X), None
    elif name == "mixed":
        model = MODELS[name]().fit(X, y, groups=groups)
    else:
        model = MODELS[name]().fit(X, y)
    by_group = {"groups": groups} if name == "mixed" else {}
    base = row_scores(model, X, y, **by_group)
    for row in (0, 39):
        changed: list[Any] = []
        for low, high in ((np.nan, 1.0), (1.0, np.inf), (1e308, -1e308), (5e-324, -0.0), (2.0**70, 7.25)):
            cells = X.to_numpy().copy()
            cells[row] = low, high
            changed.append((pl.DataFrame(cells, schema=X.columns), y, by_group))
        for value in () if y is None else odd:
            target: Any = np.array(y, "U9" if odd[0] == "" else float)
            target[row] = value
            changed.append((X, target, by_group))
        if name == "mixed":
            for label in ("v", "new"):
                others = groups.astype("U9")
                others[row] = label
                changed.append((X, y, {"groups": others}))
        for features, target, more in changed:
            now = row_scores(model, features, target, **more)
            assert now.keys() == base.keys()
            for key, values in now.items():
                assert values.dtype == base[key].dtype
                assert np.delete(values, row).tobytes() == np.delete(base[key], row).tobytes(), key


def test_a_list_of_rows_is_no_table_under_privacy(tmp_path: Path) -> None:
    """Its first record would decide the number of columns, and how all others are read."""
    ledger = Ledger.create(tmp_path / "l.db", epsilon=1.0, delta=1e-2)
    cells, y = table()
    models: list[Any] = [
        dpsep.LinearRegression(epsilon=1.0, delta=1e-3, ledger=ledger),
        dpsep.NetworkRegressor(epsilon=1.0, delta=1e-3, ledger=ledger, target_bounds=(0, 5)),
        dpsep.MixedRegressor(epsilon=1.0, delta=1e-3, ledger=ledger, target_bounds=(0, 5)),
        dpsep.GaussianMixture(2, epsilon=1.0, delta=1e-3, ledger=ledger, bounds=(0, 5)),
    ]
    for model in models:
        said = set()
        for first in ([1.0, 2.0], [1.0], [], None, "text", Odd()):
            with pytest.raises(TypeError, match=r"np.asarray\(X, float\)") as caught:
                model.fit([first, *cells[1:]], y)
            said.add(str(caught.value))
        assert len(said) == 1
    assert [row.kind for row in ledger.rows()] == ["create"]
    dpsep.LinearRegression(private=False).fit(cells, y)


def test_a_table_that_makes_an_array_of_itself_is_a_leak(stopping: Seen) -> None:
    class Own:
        def __init__(self, values: list[Any]) -> None:
            self._values = values

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.array(self._values, dtype)

    cells, y = table()
    model = dpsep.LinearRegression(epsilon=1.0, delta=1e-3, bounds=(0, 5), target_bounds=(0, 5))
    with pytest.warns(dpsep.PrivacyLeakWarning, match="X is a Own"), pytest.raises(Reached):
        model.fit(Own(cells), np.array(y))
    with pytest.raises(dpsep.PrivacyLeakError, match="X is a Own"):
        model.set_params(strict=True).fit(Own(cells), np.array(y))


@pytest.mark.parametrize(
    "kind",
    [pa.month_day_nano_interval(), pa.list_view(pa.int8()), pa.run_end_encoded(pa.int32(), pa.float64())],
)
def test_types_that_cannot_be_held_are_refused_before_the_charge(kind: Any, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.db", epsilon=1.0, delta=1e-2)
    model = dpsep.LinearRegression(epsilon=1.0, delta=1e-3, ledger=ledger)
    with pytest.raises(dpsep.data.TableError, match="column 'a' has type"):
        model.fit(pa.table({"a": pa.nulls(ROWS, kind)}), np.zeros(ROWS))
    assert [row.kind for row in ledger.rows()] == ["create"]


def test_wide_decimals_are_numbers(tmp_path: Path, stopping: Seen) -> None:
    cells, y = table()
    X, target = as_decimals(cells, y)
    model = dpsep.LinearRegression(epsilon=1.0, delta=1e-3, bounds=(0, 5), target_bounds=(0, 5))
    pyarrow.parquet.write_table(X.append_column("y", target), tmp_path / "t.parquet")
    large = scan(tmp_path / "t.parquet")
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(X, buffer)
    for given in ((X, target), (large[["a", "b"]], large["y"]), (X, np.array(y))):
        with pytest.raises(Reached):
            model.fit(*given)
        np.testing.assert_allclose(stopping[-1][0], np.array(cells), rtol=1e-15)
        np.testing.assert_allclose(stopping[-1][1], np.array(y), rtol=1e-15)


# Cells that break what they are read by: found by trying, each once an error or another record's loss.


def parsed(content: bytes) -> list[tuple[Any, ...]]:
    """Records of a CSV file with numbers, line by line."""
    layout = csv_layout(lambda: io.BytesIO(content), "t")
    types = dict.fromkeys(layout.names, pl.Float64())
    found = read_lines(lambda: io.BytesIO(content), layout, types).frame
    assert found.height == count_lines(lambda: io.BytesIO(content), layout)
    return found.rows()


def test_a_mark_of_byte_order_is_a_cell_s_own_wherever_its_line_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = "\ufeff2,1\n".encode()
    for size in (8, 13, 40, 2**20):
        monkeypatch.setattr(text, "BLOCK", size)
        assert parsed(b"a,y\n" + b"1,1\n" + 3 * mark + b"4,5\n") == [(1, 1), *3 * [(None, 1)], (4, 5)]


def test_a_line_too_long_is_damaged_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK", 64)
    monkeypatch.setattr(text, "LONGEST_LINE", 200)
    for long in (b"9" * 5000 + b",1", b'"' + b"x" * 300 + b'",1', b'"' * 400 + b",1"):
        assert parsed(b"a,y\n1,2\n" + long + b"\n3,4\n") == [(1, 2), (None, None), (3, 4)]


def test_lines_that_end_in_a_carriage_return_alone_are_no_table() -> None:
    with pytest.raises(dpsep.data.TableError, match="a carriage return alone"):
        parsed(b"a,y\r1,2\r3,4\r")


def _decimals() -> Any:
    whole = [0, 100, 8_388_607, 250]  # hundredths; the third has a digit too many
    data = b"".join(cell.to_bytes(16, "little", signed=True) for cell in whole)
    return pa.Array.from_buffers(pa.decimal128(5, 2), 4, [None, pa.py_buffer(data)])


BROKEN_CELLS: dict[str, Any] = {
    "text": pa.array([b"a", b"b", b"\xff", b"c"], pa.binary()).view(pa.string()),
    "a view": pa.array([b"a", b"b", b"\xff", b"c"], pa.binary_view()).view(pa.string_view()),
    "a dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int8()),
        pa.array([b"a", b"b", b"\xff", b"c"], pa.binary()).view(pa.string()),
    ),
    "a decimal": _decimals(),
    "a time": pa.array([0, 1, 2**50, 3], pa.int64()).view(pa.time64("us")),
    "a date": pa.array([0, 86_400_000, 5, 86_400_000 * 9], pa.int64()).view(pa.date64()),
}


@pytest.mark.parametrize("name", BROKEN_CELLS)
def test_a_cell_that_is_not_of_its_type_is_missing_and_alone(name: str, tmp_path: Path) -> None:
    column = BROKEN_CELLS[name]
    with (
        pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file,
        pa.ipc.new_file(file, pa.schema([("c", column.type)])) as writer,
    ):
        writer.write_table(pa.table({"c": column}))
    found = read_stored(find_source(tmp_path / "t.arrow"), "arrow", ["c"], lenient=True)["c"]
    assert found.is_null().to_list() == [False, False, True, False]
    if name != "a view":
        large = scan(tmp_path / "t.arrow")["c"].read(slice(None))
        assert large.is_null().to_pylist() == [False, False, True, False]


@pytest.mark.parametrize(
    "cells",
    [
        pl.Series([3, 4, 2**31 - 1, 5], dtype=pl.Int32).cast(pl.Date),
        *(
            pl.Series([3, 4, far, 5], dtype=pl.Int64).cast(pl.Datetime(unit, zone))
            for unit in ("ms", "us", "ns")
            for zone in (None, "UTC", "Europe/Berlin")
            for far in (2**62, 2**63 - 1, -(2**63) + 2)
        ),
    ],
    ids=lambda cells: f"{cells.dtype}",
)
def test_a_date_of_no_calendar_is_missing_and_alone(cells: pl.Series) -> None:
    texts = cells.head(2).cast(pl.String).to_list()
    column = Column("c", "category", categories=tuple(texts))
    codes = category_codes(cells, column).tolist()
    assert codes[:2] == [0, 1]
    assert codes[2] == codes[3] == -1


def test_a_cell_of_pandas_that_fails_is_missing_and_alone() -> None:
    far = pd.Series(pa.array([0, 1, 2**62, 3], pa.timestamp("us")), dtype=pd.ArrowDtype(pa.timestamp("us")))
    for column in (pd.Series(["a", 1, Odd(), "b"], dtype=object), pd.Series(["a", 1, 10**5000, "b"]), far):
        found = as_frame(pd.DataFrame({"c": column}))["c"].to_list()
        assert found[2] is None
        assert all(cell is not None for cell in (*found[:2], found[3]))


def test_masked_cells_are_missing(stopping: Seen) -> None:
    cells, y = table()
    X, target = np.ma.masked_array(cells), np.ma.masked_array(y)
    X[3, 1], target[5] = np.ma.masked, np.ma.masked
    model = dpsep.LinearRegression(epsilon=1.0, delta=1e-3, bounds=(0, 5), target_bounds=(0, 5))
    with pytest.raises(Reached):
        model.fit(X, target)
    assert np.argwhere(np.isnan(stopping[-1][0])).tolist() == [[3, 1]]
    assert np.flatnonzero(np.isnan(stopping[-1][1])).tolist() == [5]
