import gzip
import io
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsep.data.frames import as_frame
from dpsep.data.schema import Column, Schema
from dpsep.data.table import TableError, as_matrix, read_structure, read_table

TABLE = pl.DataFrame({"age": [41, 30], "weight": [70.5, None], "name": ["Ann", "Bo"]})
CSV = b"age,weight,name\n41,70.5,Ann\n30,,Bo\n"


def read(text: bytes, **options) -> pl.DataFrame:
    return read_table(io.BytesIO(text), **options)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet", "t.arrow", "t.feather", "t.CSV"])
def test_every_format_gives_the_same_table(tmp_path, name):
    path = tmp_path / name
    if "parquet" in name:
        TABLE.write_parquet(path)
    elif name.endswith(("arrow", "feather")):
        pyarrow.feather.write_feather(TABLE.to_arrow(), path)
    else:
        text = CSV.replace(b",", b"\t") if "tsv" in name else CSV
        path.write_bytes(gzip.compress(text) if "gz" in name else text)
    for source in (path, str(path)):
        assert read_table(source).equals(TABLE)


def test_buffers_are_recognised_by_their_first_bytes():
    parquet, arrow, stream = io.BytesIO(), io.BytesIO(), io.BytesIO()
    TABLE.write_parquet(parquet)
    TABLE.write_ipc(arrow, compat_level=pl.CompatLevel.oldest())
    TABLE.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    assert read(parquet.getvalue()).equals(TABLE)
    assert read(arrow.getvalue()).equals(TABLE)
    assert read(stream.getvalue()).equals(TABLE)
    assert read(gzip.compress(parquet.getvalue())).equals(TABLE)
    assert read(gzip.compress(CSV)).equals(TABLE)
    assert read(CSV).equals(TABLE)


def test_a_dash_is_standard_input(monkeypatch):
    class Input:
        buffer = io.BytesIO(CSV)

    monkeypatch.setattr(sys, "stdin", Input())
    assert read_table("-").equals(TABLE)


def test_an_unknown_extension_can_be_overridden_by_the_format(tmp_path):
    (tmp_path / "t.data").write_bytes(CSV)
    assert read_table(tmp_path / "t.data", "csv").equals(TABLE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the buffer is empty"),
        (b" \n\n", "the buffer is empty"),
        (b"a,b\n", "has a header but no rows"),
        (b"a,b", "has a header but no rows"),
        (b"a,b\n1,2\n3\n4,5\n", r"1 row\(s\) do not have the header's 2 columns, the first in line 3 with 1"),
        (b"a,b\n1,2\n3,4,5\n6\n", r"2 row\(s\) .* in line 3 with 3; quote values that hold ','"),
        ("é,b\n1,2\n".encode("latin1"), "not UTF-8 text; save it with the encoding UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16, not CSV text; save the table as CSV, in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "is not text"),
        (b"a,b,a\n1,2,3\n", "more than one column named a; rename them"),
        (b"PAR1 and no more", "not a whole Parquet file"),
        (b'a,b\n1,"2\n3,4\n', "never closed"),
        (b'a,"b\n1,2\n', "quotes that do not close in its first line"),
        (b"a,\n1,2\n", "no name for column 2 of 2; name every column"),
        (b"a,b\n1,\x002\n", "is not text; if it is Parquet or Arrow"),
        (b"a,b\nJos\xe9,2\n", "not UTF-8 text"),
        (b"PK\x03\x04rest", "is a spreadsheet or a zip archive, not CSV text"),
        (b'[{"a": 1}]\n', "is JSON, not CSV text"),
        (b"<!DOCTYPE html>\n<html>\n", "is HTML or XML, not CSV text"),
        (b"\x1f\x8b broken", "not a whole gzip file"),
        (b"ARROW1 and no more", r"not a whole Arrow or Feather \(version 2\) file"),
    ],
)
def test_what_is_no_whole_table_is_refused_in_words(text, message):
    with pytest.raises(TableError, match=message):
        read(text)


def test_a_file_is_read_block_by_block_as_it_is_whole(monkeypatch):
    rows = [f'{i},{i}.25,"é, {i}"' for i in range(200)]
    content = "\n".join(["a,b,c", *rows]).encode()
    whole = read(content)
    monkeypatch.setattr("dpsep.data.text.BLOCK", 100)
    assert read(content).equals(whole)
    assert whole.dtypes == [pl.Int64, pl.Float64, pl.String]
    # One odd cell in a late block decides for all, as it does in a whole file.
    assert read(content + b"\n?,x,y").dtypes == [pl.Int64, pl.String, pl.String]
    with pytest.raises(TableError, match=r"1 row\(s\) .* in line 202 with 2"):
        read(content + b"\n1,2\n")


def test_structure_is_read_without_a_cell(tmp_path):
    assert read_structure(io.BytesIO(b"a, b\n1,x\n3\n")) == {"a": None, "b": None}
    TABLE.write_parquet(tmp_path / "t.parquet")
    TABLE.write_ipc_stream(tmp_path / "t.arrow", compat_level=pl.CompatLevel.oldest())
    for name in ("t.parquet", "t.arrow"):
        assert read_structure(tmp_path / name) == dict(TABLE.schema)


def test_a_unit_is_read_with_the_features_where_it_is_there():
    schema = Schema((Column("age", "number"),), unit="name")
    assert read(CSV, schema=schema).to_dict(as_series=False) == {"age": [41.0, 30.0], "name": ["Ann", "Bo"]}
    assert read(b"age\n41\n", schema=schema).columns == ["age"]


def test_a_column_with_a_rule_for_missing_cells_stays_text_until_it_is_encoded():
    schema = Schema((Column("age", "number", missing=0), Column("weight", "number")))
    assert read(CSV, schema=schema).dtypes == [pl.String, pl.Float64]


def test_errors_never_repeat_a_cell():
    with pytest.raises(TableError) as caught:
        read(b"name,age\nsecret,41\nsecret\n")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_path_that_cannot_be_read_is_refused_in_words(tmp_path, monkeypatch):
    with pytest.raises(TableError, match="there is no file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path)
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(TableError, match=r"extension that is not known; known are \.csv"):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(TableError, match="no table format 'excel'; allowed are csv, parquet and arrow"):
        read_table(tmp_path / "t.xlsx", "excel")
    (tmp_path / "t.csv.gz").write_bytes(b"not packed")
    with pytest.raises(TableError, match="cannot be read"):
        read_table(tmp_path / "t.csv.gz")
    (tmp_path / "closed.csv").write_bytes(CSV)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(TableError, match=r"closed\.csv cannot be read \(Permission denied\)"):
            read_table(tmp_path / "closed.csv")
    with pytest.raises(TableError, match="open it in binary mode"):
        read_table(io.StringIO("a\n1\n"))  # pyright: ignore[reportArgumentType]


def test_duplicate_names_are_refused_in_parquet_and_arrow_too(tmp_path):
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, twice.schema) as writer:
        writer.write_table(twice)
    (tmp_path / "t.arrow").write_bytes(sink.getvalue())
    pyarrow.parquet.write_table(twice, tmp_path / "t.parquet")
    for name in ("t.arrow", "t.parquet"):
        with pytest.raises(TableError, match="more than one column named a"):
            read_table(tmp_path / name)


def test_columns_are_selected_and_unknown_ones_refused_with_a_hint():
    assert read(CSV, columns=["name", "age"]).columns == ["name", "age"]
    with pytest.raises(
        TableError, match=r"no column 'wieght'; the columns are age, weight, name\. Did you mean 'we"
    ):
        read(CSV, columns=["wieght"])


def test_types_are_guessed_from_the_whole_column():
    rows = [f"{i},{i},{i}.5,{i}" for i in range(300)]
    table = read("\n".join(["whole,odd,real,gap", *rows, "300,x,NA,?"]).encode())
    assert table.dtypes == [pl.Int64, pl.String, pl.Float64, pl.Int64]
    assert table.row(300) == (300, "x", None, None)


def test_a_schema_decides_the_types_and_odd_cells_become_missing():
    schema = Schema(
        (
            Column("age", "number"),
            Column("code", "category", categories=("01", "02")),
            Column("y", "number"),
        ),
        target="y",
    )
    table = read(b"id,age,code,y\nx,41,01,1\ny,old,02,2\n", schema=schema)
    assert table.schema == {"age": pl.Float64, "code": pl.String, "y": pl.Float64}
    assert table["age"].to_list() == [41.0, None]
    assert table["code"].to_list() == ["01", "02"]
    assert read(b"age,code\n41,01\n", schema=schema).columns == ["age", "code"]
    with pytest.raises(TableError, match="no column 'code'"):
        read(b"age,y\n41,1\n", schema=schema)


def test_marks_breaks_spaces_and_separators_of_common_programs_are_understood():
    assert read(b"\xef\xbb\xbfa;b\r\n1;2\r\n").to_dict(as_series=False) == {"a": [1], "b": [2]}
    assert read(b"a, b\n1, 2\n").to_dict(as_series=False) == {"a": [1], "b": [2]}
    assert read(b'a,b\n"x, y","two\nlines"\n').to_dict(as_series=False) == {
        "a": ["x, y"],
        "b": ["two\nlines"],
    }


finite = st.floats(allow_nan=False, width=64)


@given(arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=finite))
@settings(max_examples=40, deadline=None)
def test_a_matrix_survives_every_kind_of_frame_and_csv(matrix):
    names = [f"x{i}" for i in range(matrix.shape[1])]
    frame = pl.DataFrame(matrix, schema=names)
    for table in (frame, frame.lazy(), frame.to_arrow(), pd.DataFrame(matrix, columns=names)):
        values, found = as_matrix(table)
        np.testing.assert_array_equal(values, matrix)
        assert found == names
    values, found = as_matrix(matrix)
    np.testing.assert_array_equal(values, matrix)
    assert found is None
    np.testing.assert_array_equal(as_matrix(read(frame.write_csv().encode()))[0], matrix)


def test_as_matrix_takes_numbers_of_every_type_and_what_it_returns_cannot_change_the_table():
    frame = pd.DataFrame(
        {"a": [True, False], "b": pd.array([1, None], dtype="Int64"), "c": np.array([1, 2], np.float32)}
    )
    np.testing.assert_array_equal(as_matrix(frame)[0], [[1, 1, 1], [0, np.nan, 2]])
    decimals = pl.DataFrame({"a": [1, 2], "b": [None, None], "c": [True, False]}).cast(
        {"a": pl.Decimal(10, 2)}
    )
    np.testing.assert_array_equal(as_matrix(decimals)[0], [[1, np.nan, 1], [2, np.nan, 0]])
    given_array = np.ones((2, 2))
    with pytest.raises(ValueError, match="read-only"):
        as_matrix(given_array)[0][:] = 0
    assert given_array.sum() == 4
    assert as_matrix(pd.DataFrame([[1, 2]]))[1] is None


def test_an_object_arrays_odd_cells_become_nan():
    array = np.array([[1, "2"], [None, {"a": 1}], ["x", 10**400]], dtype=object)
    np.testing.assert_array_equal(as_matrix(array)[0], [[1, 2], [np.nan, np.nan], [np.nan, np.nan]])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            pl.DataFrame({"a": [1], "town": ["Oslo"]}),
            r"column 'town' has type String; .*Declare .* categories",
        ),
        (pd.DataFrame({"a": [1], "town": ["Oslo"]}), "column 'town' has type str"),
        (pd.DataFrame({"town": pd.Categorical(["Oslo"])}), "column 'town' has type category"),
        (pl.DataFrame({"day": [date(2020, 1, 1)]}), "column 'day' has type Date"),
        (pd.DataFrame({"day": pd.to_datetime(["2020-01-01"])}), "column 'day' has type datetime"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column named a"),
        (np.array([["a"]]), "X has type <U1"),
        (np.array([[1j]]), "X has type complex128"),
        (np.ones(3), r"X has 1 dimensions, expected 2 .*X.reshape\(-1, 1\)"),
        (scipy.sparse.eye_array(2), r"sparse matrix; make it dense with X.toarray\(\)"),
    ],
)
def test_inputs_that_are_no_matrix_of_numbers_are_refused_by_their_structure(X, message):
    with pytest.raises(TableError, match=message) as caught:
        as_matrix(X)
    assert "Oslo" not in str(caught.value)


def test_a_row_of_a_list_that_is_no_row_like_the_first_is_missing_and_says_nothing():
    class Odd:
        def __iter__(self):
            raise ValueError("secret")

    found = as_matrix([[1, 2], [3], None, Odd(), [1, [2, 3]], [4, 5]])[0]
    assert np.isnan(found[1:4]).all()
    assert np.isnan(found[4, 1])
    np.testing.assert_array_equal(found[[0, 5]], [[1, 2], [4, 5]])


def test_signalling_nans_in_single_precision_are_no_warning():
    bits = np.array([[0x7FA00000, 0x3F800000]], np.uint32)
    for X in (bits.view(np.float32), pd.DataFrame(bits.view(np.float32))):
        assert np.isnan(as_matrix(X)[0][0, 0])


def test_pandas_is_not_imported_by_the_room():
    code = (
        "import sys, dpsep.data, polars; dpsep.data.as_matrix(polars.DataFrame({'a': [1]})); "
        "print('pandas' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_a_header_whose_quotes_do_not_close_never_takes_rows_along():
    for text in (b'id,"name\n1,Alice\n2,"Bob\n', b'id,"name\n1,Alice,,7\n'):
        with pytest.raises(TableError, match="do not close in its first line") as caught:
            read_table(io.BytesIO(text))
        assert "Alice" not in str(caught.value)


def test_how_well_cells_pack_decides_nothing():
    table = pa.table({"a": np.zeros(2_000_000)})
    buffer = io.BytesIO()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    packed = gzip.compress(buffer.getvalue())
    assert len(buffer.getvalue()) > 100 * len(packed)
    assert read_table(io.BytesIO(packed)).height == 2_000_000


ODD = {
    "surrogate": "\ud800",
    "bytes": b"\xff",
    "object": object(),
    "huge": 10**400,
    "list": [1],
    "complex": 1 + 2j,
}


@pytest.mark.parametrize("cell", ODD.values(), ids=list(ODD))
def test_one_odd_cell_of_a_mapping_or_a_pandas_column_is_no_error(cell):
    for table in (
        {"name": ["a", "b", cell]},
        pd.DataFrame({"name": pd.Series(["a", "b", cell], dtype=object)}),
    ):
        assert as_frame(table)["name"].to_list()[:2] == ["a", "b"]
