import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dpsep.data import encode, encode_target, encoded_bounds
from dpsep_lab.data import registry
from dpsep_lab.data.registry import ADULT_SCHEMA, UCI_NAMES, DataError, load_adult, load_uci, splits

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
with_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the data folder {SHARED} is not there")

# Rows, features and split sizes as the PBP paper and UCI print them.
PUBLISHED = {
    "naval": (11934, 16, 20),
    "kin8nm": (8192, 8, 20),
    "power": (9568, 4, 20),
    "wine": (1599, 11, 20),
    "protein": (45730, 9, 5),
}


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.setenv("DPSEP_DATA", str(SHARED))


def small(monkeypatch, name: str, rows: int, train_rows: int | None = None) -> None:
    """Make the registry expect a set of few rows."""
    spec = registry._SPECS[name]._replace(rows=rows, train_rows=train_rows)
    monkeypatch.setitem(registry._SPECS, name, spec)


@with_shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_each_set_has_its_published_shape_and_finite_values(shared, name):
    rows, features, _ = PUBLISHED[name]
    data = load_uci(name)
    assert data.name == name
    assert data.X.shape == (rows, features)
    assert data.y.shape == (rows,)
    assert len(data.feature_names) == len(set(data.feature_names)) == features
    assert data.X.dtype == data.y.dtype == np.float64
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()


@with_shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_split_is_a_partition_with_a_tenth_for_testing(shared, name):
    rows, _, count = PUBLISHED[name]
    found = splits(name)
    assert len(found) == count
    for train, test in found:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(rows))
        assert abs(len(test) - rows / 10) <= 1


@with_shared
def test_the_first_rows_are_those_of_the_files(shared):
    power = load_uci("power")
    np.testing.assert_array_equal(power.X[0], [8.34, 40.77, 1010.84, 90.01])
    assert power.y[0] == 480.48
    wine = load_uci("wine")
    assert wine.feature_names[-1] == "alcohol"
    assert wine.X[0, -1] == 9.4
    assert wine.y[0] == 5
    naval = load_uci("naval")
    assert naval.y[0] == 0.95  # the compressor's decay, not the turbine's 0.975
    np.testing.assert_array_equal(splits("wine")[0][1][:3], [505, 1445, 1255])


@with_shared
def test_adult_has_its_published_sizes_and_incomes(shared):
    train, test = load_adult("train"), load_adult("test")
    assert train.shape == (32561, 15)
    assert test.shape == (16281, 15)
    # UCI's description: 30162 and 15060 records without unknown values; above 50K are 23.93% of all records
    # and 24.78% of those without unknown values.
    both = pl.concat([train, test])
    known = both.filter(~pl.any_horizontal(pl.col(pl.String) == "?"))
    assert known.height == 30162 + 15060
    for table, percent in ((both, 23.93), (known, 24.78)):
        above = (table["income"] == ">50K").sum() / table.height
        assert 100 * above == pytest.approx(percent, abs=0.005)
    assert set(test["income"].unique()) == set(train["income"].unique()) == {"<=50K", ">50K"}
    assert train["age"].dtype == pl.Int64
    assert train.row(0) == (
        *(39, "State-gov", 77516, "Bachelors", 13, "Never-married", "Adm-clerical", "Not-in-family", "White"),
        *("Male", 2174, 0, 40, "United-States", "<=50K"),
    )


def test_ucis_own_files_of_adult_are_read_as_the_packed_ones(monkeypatch, tmp_path):
    row = "39, State-gov, 77516, Bachelors, 13, Divorced, Sales, Unmarried, White, Male, 0, 0, 40, ?"
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.test").write_text(f"|1x3 Cross validator\n{row}, <=50K.\n{row}, >50K.\n\n")
    monkeypatch.setenv("DPSEP_DATA", str(tmp_path))
    monkeypatch.setitem(registry._ADULT_ROWS, "test", 2)
    assert load_adult("test")["income"].to_list() == ["<=50K", ">50K"]
    assert load_adult("test")["native-country"].to_list() == ["?", "?"]


@pytest.mark.parametrize("packed", [False, True])
def test_year_is_read_from_its_text_and_from_its_archive(monkeypatch, tmp_path, packed):
    rows = np.random.default_rng(0).integers(0, 100, (12, 91)) / 4
    folder = tmp_path / "uci" / "year"
    folder.mkdir(parents=True)
    np.savetxt(folder / "YearPredictionMSD.txt", rows, delimiter=",", fmt="%.4f")
    if packed:
        with zipfile.ZipFile(folder / "YearPredictionMSD.txt.zip", "w") as archive:
            archive.write(folder / "YearPredictionMSD.txt", "YearPredictionMSD.txt")
        (folder / "YearPredictionMSD.txt").unlink()
    monkeypatch.setenv("DPSEP_DATA", str(tmp_path))
    small(monkeypatch, "year", rows=12, train_rows=9)
    data = load_uci("year")
    np.testing.assert_array_equal(data.X, rows[:, 1:])
    np.testing.assert_array_equal(data.y, rows[:, 0])
    ((train, test),) = splits("year")
    assert train.tolist() == list(range(9))
    assert test.tolist() == [9, 10, 11]


def test_year_is_split_after_the_463715th_row():
    ((train, test),) = splits("year")
    assert (train[0], train[-1], test[0], test[-1]) == (0, 463714, 463715, 515344)


def test_a_folder_without_index_files_gets_the_documented_seeded_splits(monkeypatch, tmp_path):
    folder = tmp_path / "uci" / "power"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", np.zeros((40, 5)))
    monkeypatch.setenv("DPSEP_DATA", str(tmp_path))
    small(monkeypatch, "power", rows=40)
    found = splits("power")
    assert len(found) == 20
    for k, (train, test) in enumerate(found):
        expected = np.random.default_rng([registry.SPLIT_SEED, k]).permutation(40)[:4]
        np.testing.assert_array_equal(test, expected)
        assert set(train) == set(range(40)) - set(test)


def test_a_name_that_is_not_registered_is_refused_with_the_names_that_are():
    for call in (load_uci, splits):
        with pytest.raises(
            DataError, match="'boston'; the names are naval, kin8nm, power, wine, protein, year"
        ):
            call("boston")
    with pytest.raises(DataError, match="'train' and 'test'"):
        load_adult("validation")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("text", ["1 2 3\n4 5 6\n", "no numbers here\n"])
def test_a_file_that_is_not_the_set_is_refused(monkeypatch, tmp_path, text):
    (tmp_path / "uci" / "kin8nm").mkdir(parents=True)
    (tmp_path / "uci" / "kin8nm" / "data.txt").write_text(text)
    monkeypatch.setenv("DPSEP_DATA", str(tmp_path))
    with pytest.raises(DataError, match="the file found for kin8nm"):
        load_uci("kin8nm")


def test_the_names_are_the_papers():
    assert UCI_NAMES == ("naval", "kin8nm", "power", "wine", "protein", "year")


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the data folder {SHARED} is not there")
@pytest.mark.parametrize(("part", "above"), [("train", 7841), ("test", 3846)])
def test_adults_schema_declares_every_value_of_adult(monkeypatch, part, above):
    monkeypatch.setenv("DPSEP_DATA", str(SHARED))
    table = load_adult(part)
    X, names = encode(table, ADULT_SCHEMA)
    lower, upper = encoded_bounds(ADULT_SCHEMA)
    assert X.shape == (table.height, 84)
    assert (lower <= X).all()
    assert (upper >= X).all()
    assert X[:, names.index("sex=Male")].sum() == (table["sex"] == "Male").sum()
    assert encode_target(table, ADULT_SCHEMA).sum() == above  # UCI's counts of ">50K"
    assert encode(table, ADULT_SCHEMA.drop("native-country"))[0].shape == (table.height, 43)
