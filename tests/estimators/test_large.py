"""Fits of tables that are read as they go: the releases of a fit in memory, bit for bit, in little memory."""

import warnings
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

from dpsep import (
    BayesianModel,
    GaussianMixture,
    Ledger,
    Linear,
    LinearRegression,
    LogisticRegression,
    MixedRegressor,
    NetworkClassifier,
    NetworkRegressor,
    OverBudget,
    PoissonRegression,
    ProbitRegression,
)
from dpsep.data import scan
from dpsep.data.large import LargeTable
from dpsep.estimators.input_checks import numbers, signs
from dpsep.estimators.large import TableRows, by_pieces, coded, pieces, records_of
from dpsep.privacy.grid import Block
from dpsep.privacy.open_gate import OpenGate

ROWS = 3000
FEATURES = ["a", "b", "c"]


def table(rows: int = ROWS) -> pa.Table:
    """Features in [-1, 1], some cells missing, and a target of every kind."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (rows, 3))
    u = 0.3 + x @ [1.0, -0.8, 0.0]
    gone = rng.uniform(size=rows) < 0.02
    return pa.table(
        {
            "a": x[:, 0],
            "b": pa.array(x[:, 1], mask=gone),
            "c": x[:, 2].astype(np.float32),
            "y": u + 0.3 * rng.standard_normal(rows),
            "ill": pa.array(np.where(rng.logistic(size=rows) < u, "yes", "no").tolist(), mask=gone[::-1]),
            "sign": rng.logistic(size=rows) < u,
            "visits": rng.poisson(np.exp(u)),
        }
    )


def whole(found: pa.Table) -> pa.Table:
    """The rows without a missing cell."""
    return found.drop_null()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> LargeTable:
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    parquet.write_table(table(), path, row_group_size=700)
    return scan(path, memory=2**20)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> LargeTable:
    path = tmp_path_factory.mktemp("table") / "t.arrow"
    with pa.ipc.new_file(path, table().schema) as file:
        file.write_table(whole(table()), max_chunksize=400)
    return scan(path, memory=2**20)


def logistic(params: dict[str, Any], record: Any) -> Any:
    return jax.nn.log_sigmoid((2 * record.y - 1) * params["u"])


def flat(params: dict[str, Any], record: Any) -> Any:
    return -0.5 * (record.x[0] - params["m"]) ** 2


OWN: dict[str, Any] = {"log_likelihood": logistic, "links": {"u": Linear()}, "classes": ["no", "yes"]}
LABELS: dict[str, Any] = {"classes": ["no", "yes"]}
BOUNDS: dict[str, Any] = {"bounds": (-1, 1)}
CASES: dict[str, tuple[Any, str | None]] = {
    "linear": (LinearRegression(), "y"),
    "linear sampled": (LinearRegression(**BOUNDS, target_bounds=(-3, 3), sampling=0.05), "y"),
    "logistic": (LogisticRegression(**BOUNDS, **LABELS), "ill"),
    "logistic sampled": (LogisticRegression(**LABELS, sampling=0.02), "ill"),
    "probit": (ProbitRegression(**BOUNDS, classes=[False, True]), "sign"),
    "natural": (LogisticRegression(**BOUNDS, **LABELS, update="natural", steps=3, clip=0.5), "ill"),
    "poisson": (PoissonRegression(**BOUNDS, relation="replace-one"), "visits"),
    "poisson sampled": (PoissonRegression(**BOUNDS, sampling=0.3), "visits"),
    "network": (NetworkRegressor(**BOUNDS, hidden=3, steps=3), "y"),
    "network sampled": (NetworkClassifier(**LABELS, hidden=3, steps=3, method="vi", sampling=0.1), "ill"),
    "mixture": (GaussianMixture(2, steps=2), None),
    "mixture sampled": (GaussianMixture(2, **BOUNDS, steps=2, sampling=0.1), None),
    "own": (BayesianModel(**OWN, **BOUNDS), "ill"),
    "own sampled": (BayesianModel(**OWN, sampling=0.1), "ill"),
    "own without a target": (BayesianModel(flat, {"m": 1.0}, steps=3), None),
}


def fitted(model: Any, X: Any, y: Any = None, **changes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fresh: Any = clone(model)
        return fresh.set_params(**changes).fit(X, *([] if y is None else [y]))


def moments(model: Any) -> list[bytes]:
    found = model.posterior_
    parts = [found.means, found.mean_covariances] if hasattr(found, "means") else [found.mean]
    parts += [found.covariance] if hasattr(found, "covariance") else []
    return [np.asarray(part).tobytes() for part in parts]


@cache
def in_memory(case: str, seed: int = 3) -> Any:
    model, target = CASES[case]
    return fitted(model, table().select(FEATURES), target and table()[target], random_state=seed)


def test_another_seed_gives_other_releases() -> None:
    assert moments(in_memory("linear sampled")) != moments(in_memory("linear sampled", 4))


@pytest.mark.parametrize("case", CASES)
def test_private_releases_are_those_of_the_table_in_memory(case: str, opened: LargeTable) -> None:
    model, target = CASES[case]
    large = fitted(model, opened[FEATURES], target and opened[target], random_state=3)
    assert moments(large) == moments(in_memory(case))
    assert large.feature_names_in_.tolist() == FEATURES


OPEN: dict[str, tuple[Any, str | None]] = {
    "linear": (LinearRegression(), "y"),
    "poisson": (PoissonRegression(clip=1.0), "visits"),
    "logistic": (LogisticRegression(**LABELS, fit_intercept=False), "ill"),
    "mixture": (GaussianMixture(2, steps=4), None),
    "own": (BayesianModel(**OWN), "ill"),
}


@pytest.mark.parametrize("case", OPEN)
def test_fits_without_privacy_read_pieces_too(case: str, sound: LargeTable) -> None:
    model, target = OPEN[case]
    large = fitted(model, sound[FEATURES], target and sound[target], private=False)
    known = whole(table())
    memory = fitted(model, known.select(FEATURES), target and known[target], private=False)
    for name in ("mean", "means", "covariance"):
        if hasattr(large.posterior_, name):
            np.testing.assert_allclose(
                getattr(large.posterior_, name), getattr(memory.posterior_, name), rtol=1e-8, atol=1e-12
            )


@pytest.mark.parametrize("case", OPEN)
def test_bad_cells_are_errors_without_privacy(case: str, opened: LargeTable) -> None:
    model, target = OPEN[case]
    with pytest.raises(ValueError, match="Input X contains NaN or infinity"):
        fitted(model, opened[FEATURES], target and opened[target], private=False)


def test_negative_counts_of_a_large_table_are_refused(sound: LargeTable) -> None:
    with pytest.raises(ValueError, match="negative values"):
        fitted(PoissonRegression(private=False), sound[FEATURES], sound["y"])


def test_records_that_a_model_cannot_have_are_counted_over_all_pieces(sound: LargeTable) -> None:
    def positive(params: dict[str, Any], record: Any) -> Any:
        return jax.numpy.where(record.y > 0, -0.5 * (record.y - params["m"]) ** 2, -jax.numpy.inf)

    bad = int((whole(table())["y"].to_numpy() <= 0).sum())
    with pytest.raises(ValueError, match=f"not finite for {bad} of {len(sound)} records"):
        fitted(BayesianModel(positive, {"m": 1.0}, private=False), sound[FEATURES], sound["y"])


REFUSED: dict[str, Any] = {
    "method='ep' ": LogisticRegression(**LABELS, private=False, method="ep"),
    "method='adf' ": BayesianModel(**OWN, private=False, method="adf"),
    "update='natural'": LogisticRegression(**LABELS, private=False, update="natural"),
    "method='nuts'": BayesianModel(**OWN, private=False, method="nuts"),
    "private=True does not": NetworkClassifier(**LABELS, private=False),
    "a mixed model": MixedRegressor(groups=3, private=False),
    "a mixed model, ": MixedRegressor(groups=3, unit="group", rows_per_group=3),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_needs_all_records_at_once_says_what_to_do(words: str, opened: LargeTable) -> None:
    target = "y" if words.startswith("a mixed") else "ill"
    with pytest.raises(ValueError, match=r"needs all records at once.*read_table") as caught:
        fitted(REFUSED[words], opened[FEATURES], opened[target])
    assert words in str(caught.value)


def test_a_mixture_by_ep_needs_all_records_at_once(opened: LargeTable) -> None:
    model = GaussianMixture(
        2, private=False, method="adf", weights="uniform", noise_scale=1.0, mean_prior=[[0] * 3, [1] * 3]
    )
    with pytest.raises(ValueError, match=r"method='adf'.*needs all records at once"):
        fitted(model, opened[FEATURES])


def test_groups_of_a_large_table_are_refused() -> None:
    codes = scan(np.arange(20.0)[:, None] // 10)["x0"]
    x = np.linspace(-1, 1, 20)[:, None]
    with pytest.raises(ValueError, match="gathers the rows of each group"):
        MixedRegressor(groups=2).fit(x, x[:, 0], groups=codes)


def test_classes_are_declared_and_types_are_told_before_the_charge(
    opened: LargeTable, tmp_path: Path
) -> None:
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-4)
    cases = [
        (LogisticRegression(ledger=ledger), FEATURES, "ill", "declare them with classes="),
        (LinearRegression(ledger=ledger), FEATURES, "ill", "the target has type string"),
        (LinearRegression(ledger=ledger), ["a", "ill"], "y", "column 'ill' has type String"),
    ]
    for model, names, target, words in cases:
        with pytest.raises(ValueError, match=words):
            model.fit(opened[names], opened[target])
    assert [row.kind for row in ledger.rows()] == ["create"]


def test_no_row_is_read_before_the_charge(
    opened: LargeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: Any) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(type(opened), "read", touched)
    ledger = Ledger.create(tmp_path / "small.db", epsilon=0.5, delta=1e-4)
    for case in ("linear", "network", "mixture", "own"):
        model, target = CASES[case]
        with pytest.raises(OverBudget):
            fitted(model, opened[FEATURES], target and opened[target], ledger=ledger)
    with pytest.raises(AssertionError, match="rows were read"):
        LinearRegression().fit(opened[FEATURES], opened["y"])


def test_a_file_that_is_damaged_after_the_charge_leaves_it_standing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(table(), path, row_group_size=700)
    opened = scan(path)
    content = bytearray(path.read_bytes())
    content[5000:9000] = bytes(4000)
    path.write_bytes(content)
    ledger = Ledger.create(tmp_path / "study.db", epsilon=3.0, delta=1e-4)
    with pytest.raises(ValueError, match="is not a whole file"):
        LinearRegression(ledger=ledger).fit(opened[FEATURES], opened["y"])
    assert [row.kind for row in ledger.rows()] == ["create", "charge", "failed"]


def cells(public: Any, chunk: Any) -> Any:
    """Contribute a record's own cells."""
    return (jax.numpy.concatenate([chunk[0], public * chunk[1][:, None]], axis=1),)


def test_missing_cells_and_undeclared_labels_contribute_zero(opened: LargeTable) -> None:
    def code(y: Any) -> Any:
        return signs(y, np.array(["no", "yes"]))

    def released(X: Any, y: Any) -> list[float]:
        return OpenGate(records_of(X, y, code), [Block("all", 4, 3.0)], cells).release(1.0)["all"].tolist()

    known = whole(table())
    found = released(opened[FEATURES], opened["ill"])
    assert found == released(known.select(FEATURES), known["ill"])
    assert len(known) < ROWS
    assert np.abs(found).min() > 0


@pytest.mark.parametrize(
    ("column", "code"),
    [
        (pa.array([1, None, 3], pa.int16()), numbers),
        (pa.array([True, None, False]), numbers),
        (pa.array([1.5, None, np.nan], pa.float32()), numbers),
        (pa.array([1, None, 0], pa.int64()), lambda y: signs(y, np.array([0, 1]))),
        (pa.array([2**53 + 1, None, 2**53]), lambda y: signs(y, np.array([2**53, 2**53 + 1]))),
        (pa.array([True, None, False]), lambda y: signs(y, np.array([False, True]))),
        (pa.array(["n", None, "other"]), lambda y: signs(y, np.array(["n", "y"]))),
        (pa.array(["n", None, "y"], pa.large_string()), lambda y: signs(y, np.array(["n", "y"]))),
        (pa.array(["n", None, "y"]).dictionary_encode(), lambda y: signs(y, np.array(["n", "y"]))),
        (pa.nulls(3), numbers),
    ],
    ids=[f"case {number}" for number in range(10)],
)
def test_targets_of_every_type_are_coded_as_in_memory(tmp_path: Path, column: pa.Array, code: Any) -> None:
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.schema([("y", column.type)])) as file:
        file.write_table(pa.table({"y": column}), max_chunksize=2)
    found = coded(scan(tmp_path / "t.arrow")["y"], code)
    np.testing.assert_array_equal(found, code(column))


def test_labels_are_coded_whoever_wrote_the_file(tmp_path: Path) -> None:
    words = np.array(["n"] * 150 + ["y"] * 150 + ["n", "y", "other"] * 50)
    frame = pl.DataFrame({"y": words.tolist()})
    kind = frame.select(pl.col("y").cast(pl.Categorical))
    frame.write_ipc(tmp_path / "text.arrow", record_batch_size=64)
    kind.write_ipc(tmp_path / "kind.arrow", record_batch_size=64)
    kind.write_parquet(tmp_path / "kind.parquet", row_group_size=90)
    halves = [pa.array(part.tolist()).dictionary_encode() for part in (words[:150], words[150:])]
    packed = pa.table({"y": pa.chunked_array(halves)})  # each half has a dictionary of its own
    parquet.write_table(packed, tmp_path / "halves.parquet", row_group_size=100)
    for path in sorted(tmp_path.iterdir()):
        found = coded(scan(path)["y"], lambda y: signs(y, np.array(["n", "y"])))
        np.testing.assert_array_equal(found, signs(words, np.array(["n", "y"])), err_msg=path.name)


def test_features_and_targets_may_come_from_different_places(opened: LargeTable, tmp_path: Path) -> None:
    known = table()
    x = np.stack([known[name].to_numpy() for name in FEATURES], axis=1)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", known["y"].to_numpy()[:, None])
    features, target = scan(tmp_path / "x.npy"), scan(tmp_path / "y.npy")
    model = LinearRegression(random_state=1, bounds=(-1, 1), target_bounds=(-3, 3))
    wanted = moments(fitted(model, x, known["y"]))
    for X, y in [
        (features[["x0", "x1", "x2"]], target["x0"]),
        (opened[FEATURES], known["y"]),
        (x, opened["y"]),
        (np.load(tmp_path / "x.npy", mmap_mode="r"), known["y"]),
    ]:
        assert moments(fitted(model, X, y)) == wanted


def test_a_table_of_one_column_is_a_target(opened: LargeTable) -> None:
    model = LinearRegression(random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.warns(DataConversionWarning):
            found = model.fit(opened[FEATURES], opened[["y"]])
    assert moments(found) == moments(fitted(model, opened[FEATURES], opened["y"]))


def test_a_mapped_matrix_of_another_type_is_converted_as_it_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (500, 2)).astype(np.int16)
    y = x @ [0.1, -0.2] + 0.1 * rng.standard_normal(500)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    private = LinearRegression(random_state=1)
    assert moments(fitted(private, mapped, y)) == moments(fitted(private, x, y))
    swept = LinearRegression(private=False, method="ep")
    assert moments(fitted(swept, mapped, y)) == moments(fitted(swept, x, y))


PREDICTED = ["linear", "logistic", "poisson", "network", "network sampled", "mixture", "own"]
METHODS = ("predict", "predict_proba", "decision_function", "score_samples")


@pytest.mark.parametrize("case", PREDICTED)
def test_predictions_are_those_of_rows_in_memory_and_read_in_pieces(
    case: str, sound: LargeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, found, target = whole(table()), in_memory(case), CASES[case][1]
    most = len(sound) // 4
    monkeypatch.setattr("dpsep.estimators.large._piece_rows", lambda memory, columns: most)
    read: list[int] = []
    plain = type(sound).read

    def counted(self: Any, rows: slice, names: Any) -> Any:
        read.extend([rows.stop - rows.start] if list(names) == FEATURES else [])
        return plain(self, rows, names)

    monkeypatch.setattr(type(sound), "read", counted)
    for name in METHODS:
        if hasattr(found, name):
            predicted = getattr(found, name)(sound[FEATURES])
            wanted = getattr(found, name)(known.select(FEATURES))
            if predicted.dtype.kind == "U":
                assert predicted.tolist() == wanted.tolist()
            else:
                np.testing.assert_allclose(predicted, wanted, rtol=1e-9, atol=1e-12)
    if target is not None:
        density = found.log_predictive_density(sound[FEATURES], sound[target])
        wanted = found.log_predictive_density(known.select(FEATURES), known[target])
        np.testing.assert_allclose(density, wanted, rtol=1e-9)
        with pytest.raises(ValueError, match="one target a row"):
            found.log_predictive_density(sound[FEATURES], known[target][:7])
    assert len(read) >= 5
    assert max(read) <= most


def test_what_a_function_finds_of_pieces_is_joined() -> None:
    found = by_pieces(lambda rows: rows.num_rows * np.ones(rows.num_rows), scan(np.zeros((9, 1)))[["x0"]])
    assert found.tolist() == [9.0] * 9
    empty = by_pieces(lambda rows: (np.empty(rows.num_rows),), scan(np.zeros((0, 1)))[["x0"]])
    assert [part.shape for part in empty] == [(0,)]


class Watched:
    """Bytes of decoded rows that are alive, and the row groups that were opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alive = self.most = self.rows = 0
        self.groups: list[int] = []
        self.asked: list[np.ndarray] = []
        convert, iterate = TableRows._converted, parquet.ParquetFile.iter_batches

        def converted(source: Any, rows: Any, parts: Any) -> Any:
            self.asked.append(np.arange(len(source))[rows])
            found = convert(source, rows, parts)
            self.rows += len(found[0])
            for array in found:
                self._watch(array if array.base is None else array.base)
            return found

        def batches(file: Any, size: int, row_groups: Any, columns: Any) -> Any:
            self.groups.extend(row_groups)
            yield from iterate(file, size, row_groups=row_groups, columns=columns)

        monkeypatch.setattr(TableRows, "_converted", converted)
        monkeypatch.setattr(parquet.ParquetFile, "iter_batches", batches)

    def _watch(self, array: Any) -> None:
        size = array.nbytes
        self.alive += size
        self.most = max(self.most, self.alive)
        weakref.finalize(array, self._gone, size)

    def _gone(self, size: int) -> None:
        self.alive -= size


def wide(path: Path, rows: int = 20_000, group: int = 1000) -> LargeTable:
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (rows, 10))
    columns = {f"x{place}": x[:, place] for place in range(10)} | {"y": x[:, 0] > 0}
    parquet.write_table(pa.table(columns), path / "wide.parquet", row_group_size=group)
    return scan(path / "wide.parquet", memory=2**20)


def test_rows_that_are_held_stay_within_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = wide(tmp_path)  # 1.7 MB as doubles, where 1 MB may be held
    watched = Watched(monkeypatch)
    model = LogisticRegression(bounds=(-1, 1), classes=[False, True], steps=4)
    model.fit(opened.drop("y"), opened["y"])
    assert 0 < watched.most <= 2**20
    assert model.privacy_ is not None
    assert model.privacy_.schedule is not None
    releases = sum(part["steps"] for part in model.privacy_.schedule["parts"])
    assert watched.rows == releases * 20_000  # every release reads all rows, each once
    assert len(watched.groups) == releases * 20


def test_a_table_that_has_room_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide(tmp_path)
    opened = scan(tmp_path / "wide.parquet", memory=2**23)
    watched = Watched(monkeypatch)
    model = LogisticRegression(bounds=(-1, 1), classes=[False, True], steps=4)
    model.fit(opened.drop("y"), opened["y"])
    assert watched.rows == 20_000


def test_a_sample_opens_only_the_row_groups_that_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = wide(tmp_path, group=100)
    watched = Watched(monkeypatch)
    model = LogisticRegression(bounds=(-1, 1), classes=[False, True], steps=3, sampling=0.001)
    model.fit(opened.drop("y"), opened["y"])
    wanted = [number for rows in watched.asked for number in dict.fromkeys((rows // 100).tolist())]
    assert watched.groups == wanted
    assert model.privacy_ is not None
    assert model.privacy_.schedule is not None
    releases = sum(part["steps"] for part in model.privacy_.schedule["parts"])
    assert 0 < len(watched.groups) < releases * 60  # about 20 rows a release, in 200 row groups


def test_pieces_of_an_array_in_memory_are_itself() -> None:
    x = np.zeros((4, 2))
    assert [piece is x for piece in pieces(x)] == [True]
