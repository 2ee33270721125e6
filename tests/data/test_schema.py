import math
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsep.data.frames import TableError
from dpsep.data.schema import Column, Schema, SchemaError, encode, encode_target, encoded_bounds

AGE = Column("age", "number", (0, 120))
SEX = Column("sex", "category", categories=("F", "M"))
HAIR = Column("hair", "category", categories=("brown", "fair", "red", "?"))
SCHEMA = Schema((AGE, SEX, HAIR))


ages = st.one_of(
    st.none(), st.integers(-200, 200).map(str), st.sampled_from(["", "old", "nan", "inf", " 7 ", "1e3"])
)
sexes = st.one_of(st.none(), st.sampled_from(["F", "M", " M ", "m", "", "other"]))
hairs = st.one_of(st.none(), st.sampled_from(["brown", "fair", "red", "?", "grey"]))
records = st.lists(st.tuples(ages, sexes, hairs), min_size=1, max_size=20)


def frame(rows) -> pl.DataFrame:
    schema = {"age": pl.String, "sex": pl.String, "hair": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def good_number(cell: str | None) -> bool:
    try:
        return cell is not None and math.isfinite(float(cell))
    except ValueError:
        return False


@given(records, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_row_is_nan_exactly_if_a_cell_is_bad_and_one_hot_otherwise(rows, drop_first):
    X, names = encode(frame(rows), SCHEMA, drop_first=drop_first)
    start = int(drop_first)
    assert X.shape == (len(rows), 1 + (2 - start) + (4 - start)) == (len(rows), len(names))
    for row, (age, sex, hair) in zip(X, rows, strict=True):
        fine = (
            good_number(age) and (sex or "").strip() in ("F", "M") and hair in ("brown", "fair", "red", "?")
        )
        if not fine:
            assert np.isnan(row).all()
            continue
        expected = [float(age)]
        expected += [float(sex.strip() == value) for value in ("F", "M")[start:]]
        expected += [float(hair == value) for value in ("brown", "fair", "red", "?")[start:]]
        np.testing.assert_array_equal(row, expected)


@given(records, records)
@settings(max_examples=40, deadline=None)
def test_a_records_row_does_not_depend_on_the_other_records(rows, others):
    alone, names = encode(frame(rows), SCHEMA)
    together, same = encode(frame(rows + others), SCHEMA)
    assert names == same
    np.testing.assert_array_equal(together[: len(rows)], alone)


@given(records)
@settings(max_examples=30, deadline=None)
def test_declared_bounds_cover_what_is_encoded_once_numbers_are_clipped(rows):
    X, names = encode(frame(rows), SCHEMA)
    lower, upper = encoded_bounds(SCHEMA)
    assert lower.shape == upper.shape == (len(names),)
    clipped = np.clip(X, lower, upper)
    np.testing.assert_array_equal(clipped[:, 1:], X[:, 1:])


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda w: w == w.strip()
)
numbers = st.builds(
    lambda name, low, width, share, mark: Column(
        name,
        "number",
        (low, low + width),
        missing="drop" if share is None else {"fill": low + share * width / 2},
        indicator=mark and share is not None,
    ),
    names,
    st.floats(-1e6, 1e6),
    st.floats(1, 1e6),
    st.none() | st.floats(0, 1),
    st.booleans(),
)
categories = st.builds(
    lambda name, values, rule: Column(
        name, "category", categories=tuple(values), missing={"fill": values[0]} if rule == "fill" else rule
    ),
    names,
    st.lists(words, min_size=1, max_size=4, unique=True),
    st.sampled_from(["drop", "category", "fill"]),
)
units = st.fixed_dictionaries(
    {"unit": words},
    optional={
        "groups": st.integers(1, 99) | st.lists(words, min_size=1, max_size=3, unique=True),
        "rows_per_unit": st.integers(1, 9),
        "na": st.lists(words, max_size=3),
        "looked": st.booleans(),
    },
)


@given(
    st.lists(st.one_of(numbers, categories), min_size=1, max_size=4, unique_by=lambda c: c.name),
    st.booleans(),
    st.just({}) | units,
)
@settings(max_examples=80, deadline=None)
def test_a_schema_survives_toml(columns, with_target, whole):
    target = columns[-1].name if with_target and columns[-1].missing == "drop" else None
    if whole.get("unit") == target:
        target = None
    schema = Schema(tuple(columns), target, **whole)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


def test_a_schema_is_read_from_a_file(tmp_path):
    text = """
    target = "sex"
    [[columns]]
    name = "age"
    kind = "number"
    bounds = [0, 120]
    [[columns]]
    name = "sex"
    kind = "category"
    categories = ["F", "M"]
    """
    (tmp_path / "schema.toml").write_text(text)
    assert Schema.read(tmp_path / "schema.toml") == Schema((AGE, SEX), "sex")
    with pytest.raises(SchemaError, match="No such file"):
        Schema.read(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes("# é".encode("latin1"))
    with pytest.raises(SchemaError, match="not UTF-8"):
        Schema.read(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "number"), "name is a text that is not empty"),
        (("age", "integer"), "column 'age' has kind 'integer'; allowed are 'number' and 'category'"),
        (("age", "number", (3, 1)), "column 'age' has bounds 3, 1; give two finite numbers"),
        (("age", "number", (0, float("inf"))), "column 'age' has bounds 0, inf"),
        (("age", "number", (1, 2, 3)), "column 'age' has bounds .*give two numbers"),
        (("age", "number", "low"), "column 'age' has bounds 'low'; give two numbers"),
        (("age", "number", None, ("a",)), "column 'age' is a number and declares categories"),
        (("sex", "category"), "column 'sex' is a category without categories"),
        (("sex", "category", (0, 1), ("F",)), "column 'sex' is a category and declares bounds"),
        (("sex", "category", None, ("F", "F")), "column 'sex' lists the category 'F' more than once"),
        (("sex", "category", None, ("F", " M")), "column 'sex' has the category ' M'"),
        (("sex", "category", None, "FM"), "column 'sex' is a category without categories"),
        (("sex", "category", None, (1.5,)), "1.5 cannot be a category"),
        (("age", "number", None, None, "mean"), "has missing = 'mean'; allowed for a number are \"drop\" or"),
        (("age", "number", None, None, "category"), "allowed for a number are"),
        (("age", "number", None, None, True), "has missing = True"),
        (("age", "number", (0, 9), None, 10), "fills missing cells by 10, which is outside its bounds"),
        (("age", "number", None, None, {"fill": "x"}), "fills missing cells by 'x'; give a finite number"),
        (("age", "number", None, None, math.inf), "fills missing cells by inf; give a finite number"),
        (("sex", "category", None, ("F",), {"fill": "M"}), "by 'M', which is not one of its categories"),
        (("age", "number", None, None, "drop", True), "has an indicator, which marks cells that were filled"),
        (("age", "number", None, None, 3, "yes"), "has indicator = 'yes'; allowed are true and false"),
    ],
)
def test_a_column_that_contradicts_itself_is_refused_by_name(arguments, message):
    with pytest.raises(SchemaError, match=message):
        Column(*arguments)


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({}, "needs 'columns'"),
        ({"columns": []}, "at least one column"),
        ({"columns": ["age"]}, "needs 'columns', a list of tables"),
        ({"colums": []}, "the schema has the key 'colums'; allowed are target, unit, .*columns"),
        ({"columns": [{"name": "age"}]}, "column 'age' declares no 'kind'"),
        ({"columns": [{"kind": "number"}]}, "column 1 declares no 'name'"),
        ({"columns": [{"name": "age", "kind": "number", "min": 0}]}, "column 'age' has the key 'min'"),
        ({"columns": [{"name": "a", "kind": "number"}] * 2}, "column 'a' is declared more than once"),
        ({"columns": [{"name": "a", "kind": "number"}], "target": "y"}, "target 'y' is not declared"),
        ({"columns": [{"name": "a", "kind": "number", "missing": 1}], "target": "a"}, "remove 'missing'"),
        (
            {"columns": [{"name": "a", "kind": "number"}], "target": "a", "unit": "a"},
            "the target and the unit",
        ),
        ({"columns": [{"name": "a", "kind": "number"}], "unit": 3}, "unit is the name of a column, not 3"),
        ({"columns": [{"name": "a", "kind": "number"}], "groups": 3}, "groups says something of units"),
        ({"columns": [{"name": "a", "kind": "number"}], "unit": "u", "groups": 0}, "groups is a number of"),
        ({"columns": [{"name": "a", "kind": "number"}], "unit": "u", "groups": ["x", "x"]}, "list each unit"),
        (
            {"columns": [{"name": "a", "kind": "number"}], "unit": "u", "rows_per_unit": 0},
            "at least 1",
        ),
        ({"columns": [{"name": "a", "kind": "number"}], "na": "NA"}, "na is a list of texts"),
        ({"columns": [{"name": "a", "kind": "number"}], "looked": 1}, "looked is true or false"),
    ],
)
def test_a_declaration_that_cannot_be_understood_is_refused(declaration, message):
    with pytest.raises(SchemaError, match=message):
        Schema.from_dict(declaration)


def test_text_that_is_no_toml_is_refused():
    with pytest.raises(SchemaError, match="not valid TOML"):
        Schema.from_toml("columns = [")


def test_a_schema_gives_and_drops_columns_by_name():
    schema = Schema((AGE, SEX, HAIR), target="sex")
    assert schema["age"] is AGE
    assert schema.features == (AGE, HAIR)
    assert schema.drop("age") == Schema((SEX, HAIR), target="sex")
    assert schema.drop("sex").target is None
    with pytest.raises(SchemaError, match=r"no column 'hiar'.* Did you mean 'hair'"):
        schema.drop("hiar")


def test_a_missing_column_is_an_error_and_an_undeclared_one_is_ignored():
    with pytest.raises(
        TableError, match=r"there is no column 'hair'; the columns are age, sex, hari\. Did you mean"
    ):
        encode({"age": [1], "sex": ["F"], "hari": ["red"]}, SCHEMA)
    X, _ = encode({"id": ["x"], "age": [1], "sex": ["F"], "hair": ["red"]}, SCHEMA)
    np.testing.assert_array_equal(X, [[1, 0, 0, 1, 0]])


def test_a_type_that_cannot_hold_the_declared_kind_is_an_error_by_type():
    dates = pl.DataFrame({"age": [date(2020, 1, 1)], "sex": ["F"], "hair": ["red"]})
    with pytest.raises(TableError, match="column 'age' is declared a number but has type Date"):
        encode(dates, SCHEMA)
    lists = pl.DataFrame({"age": [1], "sex": [["F"]], "hair": ["red"]})
    with pytest.raises(TableError, match=r"column 'sex' is declared a category but has type List"):
        encode(lists, SCHEMA)


@pytest.mark.parametrize(
    ("cells", "declared", "codes"),
    [
        (pl.Series([1, 2, None, 3]), ("1", "2"), [0, 1, np.nan, np.nan]),
        (pl.Series([1.0, 2.0, float("nan"), 1.5]), ("1", "2"), [0, 1, np.nan, np.nan]),
        (pl.Series([True, False, None]), ("False", "True"), [1, 0, np.nan]),
        (pl.Series([True, False]), ("0", "1"), [1, 0]),
        (pl.Series(["1", "2"]), (1, 2), [0, 1]),
        (pl.Series(["True", "FALSE", "true", "yes"]), (False, True), [1, 0, 1, np.nan]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ("b", "a"), [1, 0]),
        (pl.Series([1, 2]), ("one", "2"), [np.nan, 1]),
        (pl.Series([None, None]), ("a",), [np.nan, np.nan]),
    ],
)
def test_categories_are_recognised_whatever_type_the_column_came_in(cells, declared, codes):
    schema = Schema((Column("y", "category", categories=declared),), target="y")
    np.testing.assert_array_equal(encode_target({"y": cells}, schema), codes)


def test_pandas_and_polars_tables_are_encoded_alike():
    cells = {"age": [41, None, 30], "sex": ["M", "F", None], "hair": ["red", "fair", "brown"]}
    expected, _ = encode(pl.DataFrame(cells), SCHEMA)
    tables = [
        pd.DataFrame(cells),
        pd.DataFrame(cells).astype({"age": "Int64", "sex": "category"}),
        pd.DataFrame(cells, dtype=object),
        pl.DataFrame(cells).lazy(),
        pl.DataFrame(cells).to_arrow(),
    ]
    for table in tables:
        np.testing.assert_array_equal(encode(table, SCHEMA)[0], expected)


def test_what_is_no_table_is_refused():
    with pytest.raises(TableError, match="expected a table, got int"):
        encode(3, SCHEMA)
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    with pytest.raises(TableError, match="more than one column named age"):
        encode(twice, SCHEMA)


def test_a_numeric_target_is_parsed_and_a_missing_target_is_an_error():
    schema = Schema((AGE, SEX), target="age")
    np.testing.assert_array_equal(encode_target({"age": ["3", "x"], "sex": ["F", "F"]}, schema), [3, np.nan])
    with pytest.raises(SchemaError, match="has no target"):
        encode_target({"age": [1]}, Schema((AGE,)))


RULES = Schema(
    (
        Column("age", "number", (0, 120), missing=40, indicator=True),
        Column("ward", "category", categories=("A", "B"), missing="category"),
        Column("sex", "category", categories=("F", "M"), missing={"fill": "M"}, indicator=True),
        Column("pay", "number"),
    ),
    na=("-9", "unknown"),
)


def test_missing_cells_follow_the_declared_rules():
    table = {
        "age": ["30", "", None, "-9", "unknown", "old"],
        "ward": ["B", "unknown", None, "A", "-9", "A"],
        "sex": ["F", None, "F", "M", "unknown", "M"],
        "pay": ["1", "2", "3", "4", "-9", "6"],
    }
    X, columns = encode(table, RULES)
    assert columns == ("age", "age=missing", "ward=B", "ward=missing", "sex=M", "sex=missing", "pay")
    expected = [
        [30, 0, 1, 0, 0, 0, 1],
        [40, 1, 0, 1, 1, 1, 2],
        [40, 1, 0, 1, 0, 0, 3],
        [40, 1, 0, 0, 1, 0, 4],
        [np.nan] * 7,  # no rule for pay: its record counts for nothing
        [np.nan] * 7,  # "old" is no number, which is not the same as missing
    ]
    np.testing.assert_array_equal(X, expected)
    lower, upper = encoded_bounds(RULES)
    assert lower.tolist() == [0, 0, 0, 0, 0, 0, -np.inf]
    assert upper.tolist() == [120, 1, 1, 1, 1, 1, np.inf]


def test_missing_cells_of_typed_columns_are_null_nan_or_a_declared_number():
    schema = Schema((Column("age", "number", missing=40.0),), na=("-9",))
    for cells in ([30.0, None, float("nan"), -9.0], pl.Series([30, None, None, -9])):
        np.testing.assert_array_equal(encode({"age": cells}, schema)[0][:, 0], [30, 40, 40, 40])
    infinite = encode({"age": [math.inf]}, schema)[0]
    assert np.isnan(infinite).all()


def test_a_declared_category_is_never_missing():
    schema = Schema((Column("ward", "category", categories=("?", "A"), missing={"fill": "A"}),))
    np.testing.assert_array_equal(encode({"ward": ["?", "A", "NA"]}, schema)[0][:, 0], [0, 1, 1])
    own = Column("ward", "category", categories=("A", "missing"), missing="category")
    X, columns = encode({"ward": ["A", "missing", None]}, Schema((own,)))
    assert columns == ("ward=missing",)
    np.testing.assert_array_equal(X[:, 0], [0, 1, 1])


def test_two_encoded_columns_of_one_name_are_refused():
    schema = Schema((SEX, Column("sex=M", "number")))
    with pytest.raises(SchemaError, match="two columns are called 'sex=M' once they are encoded"):
        encode({"sex": ["F"], "sex=M": [1.0]}, schema)


def test_a_unit_is_no_feature_and_survives_a_drop():
    schema = Schema((AGE, SEX), "sex", unit="patient", groups=("a", "b"), rows_per_unit=3)
    assert schema.features == (AGE,)
    assert schema.groups == ("a", "b")
    numbered = Schema.from_dict(schema.to_dict() | {"groups": [1, 2]})
    assert numbered.groups == ("1", "2")
    declared = Schema((AGE, SEX, Column("patient", "number")), "sex", unit="patient")
    assert declared.features == (AGE,)
    assert declared.drop("patient").unit == "patient"


def test_an_error_in_a_schema_file_names_the_file(tmp_path):
    (tmp_path / "s.toml").write_text('[[columns]]\nname = "age"\nkind = "?"\n')
    with pytest.raises(SchemaError, match=r"s\.toml: column 'age' has kind '\?'"):
        Schema.read(tmp_path / "s.toml")
