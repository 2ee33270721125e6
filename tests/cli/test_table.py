from pathlib import Path

import polars as pl
import pytest

from dpsep.cli.errors import CallError
from dpsep.cli.overlay import Leaks, parse_bounds
from dpsep.cli.table import read_inputs
from dpsep.data import Column, Schema
from dpsep.privacy.leaks import PrivacyLeakError

from .help import some, write_csv


def private() -> Leaks:
    return Leaks(private=True, strict=False)


def test_a_boolean_target_declares_its_classes_by_its_type(tmp_path: Path) -> None:
    pl.DataFrame({"a": [0.0, 1.0, 2.0], "up": [True, None, False]}).write_parquet(tmp_path / "t.parquet")
    leaks = private()
    inputs = read_inputs(str(tmp_path / "t.parquet"), leaks, target="up")
    assert inputs.model == "logistic"
    assert inputs.classes == ["false", "true"]
    assert list(inputs.cells()[1]) == ["true", "", "false"]
    assert leaks.found == []


def test_numbers_serve_as_labels_by_value(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", {"a": [1, 2, 3], "up": [0, 1, 2]})
    inputs = read_inputs(str(table), private(), target="up", classes="1,0")
    assert list(inputs.cells()[1]) == ["0", "1", ""]


def test_more_labels_than_two_are_no_classes(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", {"a": [1, 2, 3, 4], "up": [" ", "no", "yes", "perhaps"]})
    with pytest.raises(CallError, match="exactly two classes"):
        read_inputs(str(table), private(), target="up")


def test_one_unbounded_column_leaves_scaling_to_the_fit(tmp_path: Path) -> None:
    table = str(write_csv(tmp_path / "t.csv", some("a b y")))
    half = read_inputs(table, private(), target="y", bounds=["a=-1:1"])
    assert half.bounds is None
    assert half.unbounded == ("b",)
    whole = read_inputs(table, private(), target="y", bounds=["-1:1", "b=-2:2", "y=0:5"])
    assert whole.bounds == ([-1.0, -2.0], [1.0, 2.0])
    assert whole.target_bounds == (0.0, 5.0)


def test_a_schema_may_be_given_another_target(tmp_path: Path) -> None:
    schema = Schema((Column("a", "number"), Column("b", "number"), Column("y", "number")), "y")
    (tmp_path / "s.toml").write_text(schema.to_toml())
    table = str(write_csv(tmp_path / "t.csv", some("a b y")))
    inputs = read_inputs(table, private(), target="a", schema=tmp_path / "s.toml", drop=["y"])
    assert inputs.schema.target == "a"
    assert inputs.columns == ["b"]


def test_a_category_has_no_bounds() -> None:
    schema = Schema((Column("sex", "category", categories=("F", "M")),))
    with pytest.raises(CallError, match="only numbers have bounds"):
        parse_bounds(["sex=0:1"], schema)


def test_leaks_count_under_privacy_only() -> None:
    open_leaks = Leaks(private=False, strict=True)
    open_leaks.add("everything", "Nothing.")
    assert open_leaks.found == []
    with pytest.raises(PrivacyLeakError, match="outside the privacy guarantee"):
        Leaks(private=True, strict=True).add("everything was read", "Close the door.")
