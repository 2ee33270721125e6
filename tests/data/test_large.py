"""A table on a disk gives the cells that it gives in memory, in every format and whichever rows are read."""

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.data import TableError, as_matrix, large_files, scan
from dpsep.data.large_files import ArrowFile
from dpsep.data.large_table import LargeColumns, LargeTable

ROWS = 1000


def table(rows: int = ROWS) -> pa.Table:
    """Columns of many types, some cells missing."""
    rng = np.random.default_rng(3)
    gone = rng.uniform(size=rows) < 0.1
    words = np.array(["north", "south", "é"])[rng.integers(0, 3, rows)]
    return pa.table(
        {
            "a": rng.standard_normal(rows),
            "b": pa.array(rng.standard_normal(rows), mask=gone),
            "whole": pa.array(rng.integers(-5, 5, rows), pa.int32(), mask=gone),
            "yes": pa.array(rng.uniform(size=rows) < 0.5, mask=gone),
            "small": rng.standard_normal(rows).astype(np.float32),
            "money": pa.array([decimal.Decimal(int(v)) / 100 for v in rng.integers(0, 999, rows)]),
            "word": pa.array(words.tolist(), mask=gone),
            "kind": pa.array(words.tolist(), mask=gone).dictionary_encode(),
            "nothing": pa.nulls(rows),
        }
    )


def write_parquet(path: Path, found: pa.Table) -> Path:
    parquet.write_table(found, path / "t.parquet", row_group_size=170)
    return path / "t.parquet"


def write_folder(path: Path, found: pa.Table) -> Path:
    for number, start in enumerate(range(0, len(found), 400)):
        parquet.write_table(found.slice(start, 400), path / f"part-{number}.parquet", row_group_size=90)
    (path / "notes.txt").write_text("not a table")
    return path


def write_arrow(path: Path, found: pa.Table, compression: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(path / "t.arrow", found.schema, options=options) as file:
        file.write_table(found, max_chunksize=130)
    return path / "t.arrow"


def write_packed(path: Path, found: pa.Table) -> Path:
    return write_arrow(path, found, "zstd")


def write_views(path: Path, found: pa.Table) -> Path:
    place = found.schema.get_field_index("word")
    return write_arrow(path, found.set_column(place, "word", found["word"].cast(pa.string_view())))


FORMATS: list[Callable[[Path, pa.Table], Path]] = [
    *(write_parquet, write_folder, write_arrow, write_packed, write_views)
]


@pytest.fixture(scope="module", params=FORMATS, ids=lambda write: write.__name__.removeprefix("write_"))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LargeTable:
    return scan(request.param(tmp_path_factory.mktemp("table"), table()))


def same(found: pa.Table, wanted: pa.Table) -> bool:
    return found.to_pylist() == wanted.to_pylist()


def test_names_types_and_rows_are_those_of_the_file(opened: LargeTable) -> None:
    assert len(opened) == ROWS
    assert opened.schema.remove_metadata().names == table().schema.names
    kinds = zip(opened.schema.types, table().schema.types, strict=True)
    assert all(found == kind or found == pa.large_string() for found, kind in kinds)
    assert opened.drop("word", "kind").column_names == ["a", "b", "whole", "yes", "small", "money", "nothing"]
    assert opened[["a", "b"]].shape == (ROWS, 2)
    assert (opened["a"].shape, len(opened["a"]), opened["whole"].type) == ((ROWS,), ROWS, pa.int32())


@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(0, 1),
        slice(165, 175),
        slice(399, 801),
        slice(990, 2000),
        slice(5, 5),
        np.arange(0, ROWS, 7),
        np.array([0, 999]),
        np.array([169, 170, 171]),
        np.empty(0, np.int64),
    ],
    ids=str,
)
def test_any_rows_are_those_of_the_table_in_memory(opened: LargeTable, rows: Any) -> None:
    numbers = np.arange(ROWS)[rows]
    for names in (opened.names, ["word", "a"], ["kind"]):
        found = opened.read(rows, names)
        assert found.schema.names == names
        assert same(found, table().select(names).take(numbers))


@settings(max_examples=60, deadline=None)
@given(reads=st.lists(st.sets(st.integers(0, ROWS - 1), max_size=80), min_size=1, max_size=4))
def test_reads_in_any_order_start_anew_where_they_must(opened: LargeTable, reads: list[set[int]]) -> None:
    for rows in reads:
        numbers = np.array(sorted(rows), np.int64)
        assert same(opened.read(numbers, ["a", "word"]), table().select(["a", "word"]).take(numbers))


@settings(max_examples=30, deadline=None)
@given(start=st.integers(0, ROWS), length=st.integers(0, ROWS))
def test_slices_are_those_of_the_table_in_memory(opened: LargeTable, start: int, length: int) -> None:
    assert same(
        opened["b"].table.read(slice(start, start + length), ["b"]), table().select(["b"])[start:][:length]
    )


@pytest.mark.parametrize("rows", [[3, 3], [5, 4], [-1], [ROWS]], ids=str)
def test_rows_that_are_none_or_do_not_rise_are_refused(opened: LargeTable, rows: list[int]) -> None:
    with pytest.raises(TableError, match="rising order"):
        opened.read(np.array(rows), ["a"])


def test_a_matrix_of_it_is_that_of_the_table_in_memory(opened: LargeTable) -> None:
    numbers = [name for name in opened.names if name not in ("word", "kind")]
    found, names = as_matrix(opened[numbers])
    wanted, _ = as_matrix(table().select(numbers))
    assert names == numbers
    np.testing.assert_array_equal(found, wanted)


def test_text_is_no_feature_and_a_name_that_is_none_is_told(opened: LargeTable) -> None:
    with pytest.raises(TableError, match="column 'word' has type String"):
        as_matrix(opened[["a", "word"]])
    for ask in (lambda: opened["aa"], lambda: opened[["a", "aa"]], lambda: opened.drop("aa")):
        with pytest.raises(TableError, match="there is no column 'aa'; the columns are a, b"):
            ask()
    with pytest.raises(TableError, match="more than one column named a"):
        opened[["a", "a"]]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int8, np.uint16, np.bool_, ">f8"])
def test_a_matrix_on_a_disk_or_in_memory_is_a_table(tmp_path: Path, kind: Any) -> None:
    cells = (np.random.default_rng(0).standard_normal((50, 3)) * 3).astype(kind)
    np.save(tmp_path / "m.npy", cells)
    rows = np.array([0, 7, 49])
    for source in (tmp_path / "m.npy", cells, np.asfortranarray(cells)):
        found = scan(source, names=["p", "q", "r"])
        assert (len(found), found.names) == (50, ["p", "q", "r"])
        assert found.read(rows, ["r", "p"]).to_pydict() == {
            "r": cells[rows, 2].tolist(),
            "p": cells[rows, 0].tolist(),
        }
        for names in (["p", "q"], ["r", "p"]):
            places = [found.names.index(name) for name in names]
            direct = found.matrix(slice(3, 9), names, "q")
            assert direct is not None
            np.testing.assert_array_equal(direct[0], cells[3:9][:, places].astype(float))
            assert direct[1] is not None
            assert direct[1].to_pylist() == cells[3:9, 1].tolist()
    assert scan(cells).names == ["x0", "x1", "x2"]


def test_a_matrix_that_is_none_is_refused(tmp_path: Path) -> None:
    for cells in (np.zeros(3), np.zeros((2, 2, 2)), np.array([["a"]]), np.zeros((2, 2), complex)):
        with pytest.raises(TableError, match="a table is a matrix of numbers"):
            scan(cells)
    np.save(tmp_path / "o.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(TableError, match="not a whole file"):
        scan(tmp_path / "o.npy")
    with pytest.raises(TableError, match="has 2 columns, and 1 names are given"):
        scan(np.zeros((3, 2)), names=["a"])
    with pytest.raises(TableError, match="more than one column named a"):
        scan(np.zeros((3, 2)), names=["a", "a"])
    with pytest.raises(TableError, match="names must be a list of texts"):
        scan(np.zeros((3, 1)), names=[1])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather", "t.npy"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n", b"ARROW1\0\0" + b"\xff" * 40], ids=range(4))
def test_files_of_another_format_are_refused_in_words(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match="is not a whole file of the format that its name says"):
        scan(tmp_path / name)


@pytest.mark.parametrize("write", [write_parquet, write_packed], ids=["parquet", "arrow"])
def test_a_file_damaged_in_the_middle_says_so_and_repeats_nothing(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path, table())
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : len(content) // 4 + 2000] = b"secret!!" * 250
    path.write_bytes(content)
    with pytest.raises(TableError, match="is not a whole file") as caught:
        scan(path).read(slice(None), ["a", "b", "word", "small"])
    assert "secret" not in str(caught.value)


def test_files_that_polars_wrote_are_read(tmp_path: Path) -> None:
    found = pl.DataFrame({"a": np.arange(500.0), "word": [f"a long text, number {n}" for n in range(500)]})
    found = found.with_columns(pl.col("word").cast(pl.Categorical).alias("kind"))
    rows = np.arange(3, 500, 11)
    found.write_ipc(tmp_path / "t.arrow")
    found.write_parquet(tmp_path / "t.parquet", row_group_size=100)
    for name in ("t.arrow", "t.parquet"):
        read = scan(tmp_path / name).read(rows, ["word", "a", "kind"])
        assert read.to_pylist() == found[rows].select("word", "a", "kind").to_dicts()


def test_text_that_is_none_is_missing_before_it_reaches_what_would_crash(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(),
        2,
        [None, pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes()), pa.py_buffer(b"\xff\xfe")],
    )
    path = write_arrow(tmp_path, pa.table({"word": broken}))
    assert scan(path).read(slice(None), ["word"]).to_pylist() == [{"word": None}, {"word": None}]


def test_other_files_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no file"):
        scan(tmp_path / "none.parquet")
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(TableError, match="sink_parquet"):
        scan(tmp_path / "t.csv")
    with pytest.raises(TableError, match=r"folder without a \.parquet file"):
        scan(tmp_path)
    with pytest.raises(TableError, match="names its columns itself"):
        scan(write_parquet(tmp_path, table()), names=["a"])
    for memory in (0, 1000, 1.5, float("inf"), 2**80):
        with pytest.raises(TableError, match="memory must be a whole number of bytes"):
            scan(tmp_path / "t.parquet", memory=memory)  # pyright: ignore[reportArgumentType]


def test_a_format_may_be_said_where_the_name_does_not_tell(tmp_path: Path) -> None:
    path = write_arrow(tmp_path, table()).rename(tmp_path / "table")
    assert len(scan(path, format="arrow")) == ROWS
    with pytest.raises(TableError, match="cannot be read row by row"):
        scan(path)


def test_files_of_a_folder_have_one_schema(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1.0]}), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"2\.parquet has other columns or types than .*1\.parquet"):
        scan(tmp_path)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(TableError, match="more than one column named a"):
        scan(write_arrow(tmp_path, twice))


@pytest.mark.parametrize("write", [write_parquet, write_arrow])
def test_a_table_without_rows_is_one(tmp_path: Path, write: Any) -> None:
    found = scan(write(tmp_path, table().slice(0, 0)))
    assert len(found) == 0
    assert found.read(slice(None), ["a", "word"]).num_rows == 0


class Counted:
    """Counts the row groups that are opened and the rows that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[int] = []
        self.rows: list[int] = []
        plain = parquet.ParquetFile.iter_batches

        def counted(file: Any, size: int, row_groups: Any, columns: Any) -> Any:
            self.groups.extend(row_groups)
            for batch in plain(file, size, row_groups=row_groups, columns=columns):
                self.rows.append(batch.num_rows)
                yield batch

        monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)


def test_sampled_rows_open_only_the_row_groups_that_hold_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = scan(write_parquet(tmp_path, table()))  # row groups of 170
    counted = Counted(monkeypatch)
    opened.read(np.array([0, 169, 600, 999]), ["a"])
    assert counted.groups == [0, 3, 5]
    opened.read(np.array([2]), ["a"])
    assert counted.groups == [0, 3, 5, 0]


def test_rows_that_follow_each_other_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = scan(write_parquet(tmp_path, table()))
    counted = Counted(monkeypatch)
    for start in range(0, ROWS, 64):
        opened.read(slice(start, start + 64), ["a", "b"])
    assert counted.groups == [0, 1, 2, 3, 4, 5]
    assert sum(counted.rows) == ROWS


def test_a_batch_stays_within_an_eighth_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = pa.table({f"x{place}": np.zeros(40_000) for place in range(10)})
    parquet.write_table(cells, tmp_path / "t.parquet")  # one row group
    opened = scan(tmp_path / "t.parquet", memory=2**20)
    counted = Counted(monkeypatch)
    opened.read(np.array([39_999]), cells.column_names)
    assert sum(counted.rows) == 40_000
    assert max(counted.rows) * 10 * 8 <= 2**20 // 8


def test_a_row_group_larger_than_the_memory_is_read_page_by_page(tmp_path: Path) -> None:
    cells = pa.table(
        {f"x{place}": np.random.default_rng(place).standard_normal(200_000) for place in range(5)}
    )
    parquet.write_table(
        cells, tmp_path / "t.parquet", row_group_size=200_000, use_dictionary=False, compression="none"
    )
    opened = scan(tmp_path / "t.parquet", memory=2**20)
    before, most = pa.total_allocated_bytes(), 0
    for start in range(0, 200_000, 3000):
        opened.read(slice(start, start + 3000), cells.column_names)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < cells.nbytes / 2


def test_unpacking_leaves_out_columns_that_nobody_asks_for(tmp_path: Path) -> None:
    cells = pa.table({"a": np.zeros(10), **{f"x{place}": np.zeros(100_000)[:10] for place in range(3)}})
    opened = scan(write_packed(tmp_path, cells))
    assert opened.read(slice(0, 2), ["x1"]).column_names == ["x1"]
    assert isinstance(opened, ArrowFile)
    assert opened._reader[0] == ("x1",)
    assert opened._reader[1].schema.names == ["x1"]


def test_columns_say_their_types_as_polars_has_them(opened: LargeTable) -> None:
    found = opened[["a", "whole", "yes"]]
    assert isinstance(found, LargeColumns)
    assert found.types == [("a", pl.Float64), ("whole", pl.Int32), ("yes", pl.Boolean)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), "dictionary"])
def test_a_text_that_is_none_is_missing_and_tells_on_nobody(tmp_path: Path, kind: Any) -> None:
    raw = pa.array([b"yes", b"\xff\xfe", b"no", None], pa.binary())
    if kind == "dictionary":
        values = pa.Array.from_buffers(pa.string(), 3, pa.array([b"yes", b"\xff\xfe", b"no"]).buffers())
        column: Any = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int32()), values)
    else:
        raw = raw.cast(pa.large_binary() if kind == pa.large_string() else pa.binary())
        column = pa.Array.from_buffers(kind, 4, raw.buffers())
    table = pa.table({"answer": column, "x": [1.0, 2.0, 3.0, 4.0]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for rows in (slice(0, 4), np.array([0, 1, 3])):
        found = scan(tmp_path / "t.arrow")["answer"].read(rows).to_pylist()
        assert found == (["yes", None, "no", None] if isinstance(rows, slice) else ["yes", None, None])


def test_after_a_failed_read_rows_are_still_the_right_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl.DataFrame({"x": np.arange(2000.0)}).write_parquet(tmp_path / "t.parquet", row_group_size=2000)
    table = scan(tmp_path / "t.parquet", memory=2**20)
    monkeypatch.setattr(type(table), "batch_rows", lambda self, columns: 256)
    honest, failures = large_files._Cursor._decode, [True]

    def once(self: Any) -> Any:
        if self.start >= 256 and failures:
            failures.pop()
            raise OSError("the disk was away")
        return honest(self)

    monkeypatch.setattr(large_files._Cursor, "_decode", once)
    table["x"].read(np.array([10, 300]))
    with pytest.raises(TableError):
        table["x"].read(np.array([600]))
    assert table["x"].read(np.array([600, 700, 1000])).to_pylist() == [600.0, 700.0, 1000.0]
