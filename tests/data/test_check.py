from datetime import date

import numpy as np
import polars as pl
import pytest

from dpsep.data.check import Finding, check_table, render_findings
from dpsep.data.schema import Column, Schema, encode

SCHEMA = Schema(
    (
        Column("age", "number", (0, 120)),
        Column("sex", "category", categories=("F", "M")),
        Column("score", "number"),
    )
)
CLEAN = {"age": ["41", "30", "22"], "sex": ["M", "F", "F"], "score": [0.5, 1.5, -1.0]}


def found(table, schema: Schema | None = SCHEMA) -> dict[tuple[str, str], Finding]:
    return {(finding.column, finding.problem): finding for finding in check_table(table, schema)}


def test_a_clean_table_gives_no_findings():
    assert check_table(CLEAN, SCHEMA) == []
    assert check_table(CLEAN) == []


def test_each_kind_of_bad_value_is_counted_with_its_first_rows():
    age = ["41", None, " ", "old", "inf", "-1", "130", "20"]
    sex = ["M", None, "x", "F", "F", "M", "m", "F"]
    score = [1.0, float("nan"), None, float("inf"), 2.0, 3.0, 4.0, 5.0]
    findings = found({"age": age, "sex": sex, "score": score})
    rows = {key: (finding.count, finding.rows) for key, finding in findings.items()}
    assert rows == {
        ("age", "missing"): (2, (2, 3)),
        ("age", "unparsable"): (2, (4, 5)),
        ("age", "out of bounds"): (2, (6, 7)),
        ("sex", "missing"): (1, (2,)),
        ("sex", "undeclared"): (2, (3, 7)),
        ("score", "missing"): (2, (2, 3)),
        ("score", "unparsable"): (1, (4,)),
    }


def test_bad_rows_but_for_bounds_are_those_that_encode_sets_to_nan():
    table = {"age": ["41", "x", "300", "7"], "sex": ["M", "F", "F", "?"], "score": [1.0, 2.0, 3.0, None]}
    bad = {
        row
        for finding in check_table(table, SCHEMA)
        if finding.problem != "out of bounds"
        for row in finding.rows
    }
    X, _ = encode(table, SCHEMA)
    assert bad == set((np.flatnonzero(np.isnan(X).any(axis=1)) + 1).tolist())


def test_only_the_first_rows_are_listed():
    finding = found({**CLEAN, "age": ["x"] * 3})[("age", "unparsable")]
    assert finding.rows == (1, 2, 3)
    many = {"age": ["x"] * 50, "sex": ["F", "M"] * 25, "score": list(range(50))}
    finding = found(many)[("age", "unparsable")]
    assert (finding.count, finding.rows) == (50, (1, 2, 3, 4, 5))
    assert "50 of 50 rows that are no finite number (rows 1, 2, 3, 4, 5, ...)" in render_findings([finding])


def test_constant_and_duplicated_columns_are_found():
    table = {"a": [1, 2, 3], "b": [5, 5, 5], "c": [1, 2, 3], "d": [1.0, 2.0, 3.0], "e": ["x", "y", None]}
    findings = found(table, None)
    assert set(findings) == {("b", "constant"), ("c", "duplicate"), ("e", "missing")}
    assert "'a'" in findings[("c", "duplicate")].detail


def test_one_row_is_not_called_constant():
    assert check_table({"a": [1]}) == []


def test_an_absent_column_and_a_wrong_type_are_findings_not_errors():
    dates = pl.DataFrame({"age": [date(2020, 1, 1), date(2020, 1, 2)], "score": [1, 2]})
    findings = found(dates)
    assert findings[("sex", "absent")].detail.startswith("there is no column 'sex'")
    assert "has type Date" in findings[("age", "wrong type")].detail


@pytest.mark.parametrize("table", [CLEAN, {**CLEAN, "age": ["x"] * 3}])
def test_the_rendering_says_first_that_it_is_not_private(table):
    text = render_findings(check_table(table, SCHEMA))
    assert text.startswith("NOT PRIVATE")
    assert text.count("\n") >= 1


def test_missing_cells_are_told_with_their_rule():
    schema = Schema(
        (
            Column("age", "number", (0, 120), missing=40),
            Column("sex", "category", categories=("F", "M"), missing="category"),
        ),
        na=("-9",),
    )
    findings = found({"age": ["41", "-9", "7"], "sex": ["F", "", "M"]}, schema)
    assert {key: finding.rows for key, finding in findings.items()} == {
        ("age", "missing"): (2,),
        ("sex", "missing"): (2,),
    }
    assert "filled by 40" in findings[("age", "missing")].detail
    assert "the level 'missing'" in findings[("sex", "missing")].detail
