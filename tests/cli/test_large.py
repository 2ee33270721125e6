"""``dpsep fit --memory``: rows are encoded as the fit goes, and give what a table in memory gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dpsep.cli.large import parse_size
from dpsep.cli.table import Leaks, read_inputs
from dpsep.data import large_encoded
from dpsep.estimators.store import load

from .help import assert_refused, call, columns, write_csv

ROWS = 3000
SCHEMA = """
target = "{target}"
[[columns]]
name = "a"
kind = "number"
bounds = [-1, 1]
[[columns]]
name = "b"
kind = "number"
bounds = [-1, 1]
missing = {{ fill = 0 }}
indicator = true
[[columns]]
name = "sex"
kind = "category"
categories = ["F", "M"]
missing = "category"
{outcome}
"""
OUTCOMES = {
    "y": '[[columns]]\nname = "y"\nkind = "number"\nbounds = [-4, 4]',
    "visits": '[[columns]]\nname = "visits"\nkind = "number"',
    "ill": '[[columns]]\nname = "ill"\nkind = "category"\ncategories = ["no", "yes"]',
}


def frame() -> pl.DataFrame:
    """A table with missing cells, an undeclared category and an undeclared label in some rows."""
    found = pl.DataFrame(columns(ROWS)).with_row_index("n")
    gone = pl.col("n") % 97 == 0
    return found.with_columns(
        pl.when(gone).then(None).otherwise(pl.col("b")).alias("b"),
        pl.when(pl.col("n") % 89 == 0).then(pl.lit("X")).otherwise(pl.col("sex")).alias("sex"),
        pl.when(pl.col("n") % 83 == 0).then(pl.lit("maybe")).otherwise(pl.col("ill")).alias("ill"),
    ).drop("n")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("table")
    found = frame()
    found.write_parquet(place / "t.parquet", row_group_size=400)
    found.write_ipc(place / "t.arrow")
    (place / "parts").mkdir()
    for number in range(3):
        found[1000 * number : 1000 * (number + 1)].write_parquet(place / "parts" / f"{number}.parquet")
    write_csv(place / "t.csv", columns(ROWS))
    return {
        "parquet": place / "t.parquet",
        "arrow": place / "t.arrow",
        "folder": place / "parts",
        "csv": place / "t.csv",
    }


def schema(place: Path, target: str, *more: str) -> Path:
    text = SCHEMA.format(target=target, outcome=OUTCOMES[target])
    (place / "schema.toml").write_text("\n".join(more) + text)
    return place / "schema.toml"


def inputs(table: Path, **settings: Any) -> Any:
    return read_inputs(str(table), Leaks(True, True), target=None, **settings)


@pytest.mark.parametrize("target", OUTCOMES)
@pytest.mark.parametrize("kind", ["parquet", "arrow", "folder"])
def test_encoded_rows_are_those_of_the_table_in_memory(
    tmp_path: Path, tables: dict[str, Path], kind: str, target: str
) -> None:
    path = schema(tmp_path, target)
    large = inputs(tables[kind], schema=path, memory=2**20)
    known = inputs(tables["parquet"], schema=path)
    assert large.columns == known.columns == ["a", "b", "b=missing", "sex=M", "sex=missing"]
    assert (large.bounds, large.classes, large.schema) == (known.bounds, known.classes, known.schema)
    assert large.features.shape == known.features.shape
    frame, labels, _ = known.cells()
    for rows in (slice(None), slice(390, 410), np.arange(0, ROWS, 83)):
        found = large.features.read(rows)
        np.testing.assert_array_equal(
            np.stack([column.to_numpy() for column in found.columns], axis=1), frame.to_numpy()[rows]
        )
        answers = large.target.read(rows).to_pylist()
        wanted = [None if label == "" else label for label in labels[rows].tolist()]
        assert answers == wanted
    both = large.features.table.matrix(slice(5, 9), ["sex=M", "a"], large.target.name)
    np.testing.assert_array_equal(both[0], frame[5:9].select("sex=M", "a").to_numpy())


@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("y", ["--model", "linear"]),
        ("ill", []),
        ("visits", ["--model", "poisson"]),
        ("ill", ["--model", "network-classifier", "--hidden", "2"]),
        ("y", ["--model", "mixture", "--components", "2", "--drop", "sex"]),
    ],
    ids=["linear", "logistic", "poisson", "network", "mixture"],
)
def test_a_large_table_is_fitted_and_charged(
    tmp_path: Path, tables: dict[str, Path], target: str, more: list[str]
) -> None:
    done = call(
        *(
            "fit",
            tables["parquet"],
            "--schema",
            schema(tmp_path, target),
            "--epsilon",
            1,
            "--out",
            tmp_path / "run",
        ),
        *("--memory", "1MiB", "--json", "--strict", *more),
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["privacy"]["epsilon"] <= 1.0
    assert document["warnings"] == []
    estimator: Any = load(tmp_path / "run")
    names = ["a", "b", "b=missing"] + ([] if "--components" in more else ["sex=M", "sex=missing"])
    assert estimator.feature_names_in_.tolist() == names
    assert (tmp_path / "run" / "schema.toml").read_text().count("[[columns]]") >= 2


def test_no_piece_that_is_encoded_is_larger_than_the_memory_allows(
    tmp_path: Path, tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = large_encoded.encode

    def counted(table: Any, declared: Any) -> Any:
        found = plain(table, declared)
        sizes.append(found[0].nbytes)
        return found

    monkeypatch.setattr(large_encoded, "encode", counted)
    done = call(
        *(
            "fit",
            tables["parquet"],
            "--schema",
            schema(tmp_path, "ill"),
            "--epsilon",
            1,
            "--out",
            tmp_path / "run",
        ),
        *("--memory", "1MiB"),
    )
    assert done.exit_code == 0, done.output
    assert 0 < max(sizes) <= 2**20 // 16
    assert sum(sizes) >= ROWS * 5 * 8  # all rows went through it


def test_a_fit_without_privacy_is_that_of_the_table_in_memory(
    tmp_path: Path, tables: dict[str, Path]
) -> None:
    clean = frame().filter(pl.col("sex") != "X", pl.col("ill") != "maybe")
    clean.write_parquet(tmp_path / "clean.parquet", row_group_size=300)
    path = schema(tmp_path, "ill")
    found = []
    for name, more in (("large", ["--memory", "2MB"]), ("known", [])):
        done = call(
            "fit",
            tmp_path / "clean.parquet",
            "--schema",
            path,
            "--no-private",
            "--out",
            tmp_path / name,
            *more,
        )
        assert done.exit_code == 0, done.output
        estimator: Any = load(tmp_path / name)
        found.append(estimator.posterior_.mean)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_types_of_the_file_make_a_schema_where_none_is_given(tmp_path: Path, tables: dict[str, Path]) -> None:
    dropped = [word for name in ("ill", "sex", "visits") for word in ("--drop", name)]
    done = call(
        *(
            "fit",
            tables["parquet"],
            "--target",
            "y",
            "--epsilon",
            1,
            "--bounds",
            "-1:1",
            "--bounds",
            "y=-4:4",
        ),
        *("--out", tmp_path / "run", "--memory", "2GiB", "--strict", "--quiet", *dropped),
    )
    assert done.exit_code == 0, done.output
    assert_refused(
        call(
            "fit",
            tables["parquet"],
            "--target",
            "y",
            "--epsilon",
            1,
            "--out",
            tmp_path / "r",
            "--memory",
            "2GiB",
        ),
        "columns 'ill', 'sex' hold no numbers",
    )


def test_public_rows_score_a_fit_of_a_large_table(tmp_path: Path, tables: dict[str, Path]) -> None:
    done = call(
        *(
            "fit",
            tables["parquet"],
            "--schema",
            schema(tmp_path, "y"),
            "--epsilon",
            1,
            "--out",
            tmp_path / "run",
        ),
        *("--memory", "1MiB", "--public-test", tables["csv"], "--quiet"),
    )
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["rows"] == ROWS


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("500MB", 5 * 10**8), ("1.5 gb", 15 * 10**8), ("3000000", 3 * 10**6), ("1mib", 2**20)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("size", ["", "x", "GB", "2QB", "-1GB", "1kB", "1e9", "nan", "9999999TiB", "1..5GB"])
def test_what_is_no_size_is_refused(tmp_path: Path, tables: dict[str, Path], size: str) -> None:
    done = call(
        "fit", tables["parquet"], "--target", "y", "--epsilon", 1, "--out", tmp_path / "r", f"--memory={size}"
    )
    assert_refused(done, "is no size", "500MB or 2GiB")


def test_what_needs_all_rows_is_refused_with_advice(tmp_path: Path, tables: dict[str, Path]) -> None:
    def fit(table: Any, *more: Any, target: str = "y") -> Any:
        return call(
            *("fit", table, "--schema", schema(tmp_path, target), "--epsilon", 1, "--out", tmp_path / "r"),
            *("--memory", "1GiB", *more),
        )

    assert_refused(fit(tables["csv"]), "is for Parquet and Arrow files", "sink_parquet")
    assert_refused(fit("-"), "standard input")
    assert_refused(
        fit(tables["parquet"], "--metrics-epsilon", 1), "--metrics-epsilon holds rows out", "--public-test"
    )
    assert_refused(fit(tmp_path / "none.parquet"), "there is no file")
    (tmp_path / "t.parquet.gz").write_bytes(b"\x1f\x8b")
    assert_refused(fit(tmp_path / "t.parquet.gz"), "is for Parquet and Arrow files")
    frame()[:0].write_parquet(tmp_path / "empty.parquet")
    assert_refused(fit(tmp_path / "empty.parquet"), "has a header but no rows")
    no_classes = [word for name in ("sex", "y", "visits") for word in ("--drop", name)]
    done = call(
        *("fit", tables["parquet"], "--target", "ill", "--epsilon", 1, "--out", tmp_path / "r"),
        *("--memory", "1GiB", *no_classes),
    )
    assert_refused(done, "--classes NEGATIVE,POSITIVE")
    frame().rename({"a": "aa"}).write_parquet(tmp_path / "other.parquet")
    assert_refused(fit(tmp_path / "other.parquet"), "there is no column 'a'")
    frame().with_columns(pl.lit(b"x").alias("a")).write_parquet(tmp_path / "bytes.parquet")
    assert_refused(fit(tmp_path / "bytes.parquet"), "declared a number but has type Binary")
    assert not (tmp_path / "r").exists()


def test_effects_by_unit_need_the_whole_table(tmp_path: Path, tables: dict[str, Path]) -> None:
    path = schema(tmp_path, "y", 'unit = "visits"', "groups = 5", "rows_per_unit = 3")
    done = call(
        *("fit", tables["parquet"], "--schema", path, "--epsilon", 1, "--out", tmp_path / "r"),
        *("--memory", "1GiB"),
    )
    assert_refused(done, "effects by 'visits' need all rows", "leave it out")


def test_a_target_named_like_an_encoded_column_is_kept_apart(tmp_path: Path) -> None:
    found = pl.DataFrame({"sex": ["F", "M", "M", "F"], "sex=M": [1.0, 2.0, 3.0, 4.0]})
    found.write_parquet(tmp_path / "t.parquet")
    (tmp_path / "s.toml").write_text(
        'target = "sex=M"\n[[columns]]\nname = "sex"\nkind = "category"\ncategories = ["F", "M"]\n'
        '[[columns]]\nname = "sex=M"\nkind = "number"\nbounds = [0, 5]\n'
    )
    large = inputs(tmp_path / "t.parquet", schema=tmp_path / "s.toml", memory=2**20)
    assert large.features.read(slice(None)).to_pydict() == {"sex=M": [0.0, 1.0, 1.0, 0.0]}
    assert large.target.read(slice(None)).to_pylist() == [1.0, 2.0, 3.0, 4.0]
