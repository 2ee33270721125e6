"""Tables 2 to 9 with fits that are made up, and Table 7's epsilons by the reference accountant."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.special import ndtr

from dpsep_lab.data import UCI, DataError
from dpsep_lab.paper import network_cases, network_written, networks, tables2to9
from dpsep_lab.paper.fits import Store
from dpsep_lab.paper.networks import Loaded, Refused, Scores, Split
from dpsep_lab.paper.printed_networks import DPVI_SETTINGS, TABLE_2, TABLE_3, TABLE_8

Row = dict[str, Any]
KEYS = {
    *("table", "row", "source", "dataset", "method", "epsilon", "relation"),
    *("metric", "mean", "median", "sd", "n"),
}
FITS = {"ours": {"vi": 5.0, "sep": 3.0, "ep": 6.0, "adf": 7.0, "point": 8.0}, "written": 20.0}


def load(name: str) -> Loaded:
    """Power is small and has four splits; every other set is missing."""
    if name != "power":
        raise DataError(f"{name} is not on this machine")
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    parts = [(np.arange(8), np.arange(8, 10))] * 4
    return Loaded(UCI(X, y, ("a", "b"), name), parts)


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fits that give 3 + split for our SEP and so on; returns the list of those that were run."""
    done: list[Any] = []

    def fit_of(level: float, settings: dict[str, Any]) -> Callable[[Split], Scores]:
        def fit(split: Split) -> Scores:
            done.append((split.dataset, split.number, settings))
            if settings.get("method") == "ep":
                raise Refused("too many sites")
            if settings.get("scaling") == "private" and split.number == 1:
                return Scores(math.inf, math.nan, 1.0)
            return Scores(level + split.number**2, -level, 2.0)

        return fit

    monkeypatch.setattr(networks, "load", load)
    monkeypatch.setattr(networks, "ours", lambda **given: fit_of(FITS["ours"][given["method"]], given))
    monkeypatch.setattr(
        network_written,
        "written",
        lambda passes, **given: fit_of(FITS["written"], {"passes": passes, **given}),
    )
    return done


def only(rows: list[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def one(rows: list[Row], **wanted: Any) -> Row:
    (row,) = only(rows, **wanted)
    return row


def test_every_row_has_the_usual_keys_and_is_json(fitted: list[Any]) -> None:
    for table in tables2to9.TABLES:
        rows = tables2to9.rows(table, ["power", "wine"], splits=2)
        assert rows
        for row in rows:
            assert set(row) >= KEYS
            assert row["table"] == table
        assert json.loads(json.dumps(rows, allow_nan=False)) == rows
        assert {row["dataset"] for row in rows} == {"power", "wine"}


def test_a_case_is_averaged_over_its_splits(fitted: list[Any]) -> None:
    rows = tables2to9.rows("table3", ["power"], splits=3)
    row = one(rows, row="SEP", source="ours")
    values = np.array([3.0, 4.0, 7.0])
    assert row["mean"] == pytest.approx(values.mean())
    assert row["sd"] == pytest.approx(values.std(ddof=1))
    assert (row["median"], row["n"], row["seconds"]) == (4.0, 3, 2.0)
    assert (row["metric"], row["epsilon"], row["relation"]) == ("test RMSE", None, "none")
    likely = one(tables2to9.rows("table4", ["power"], splits=3), row="SEP", source="ours")
    assert (likely["metric"], likely["mean"]) == ("test log-likelihood", -3.0)


def test_tables_three_and_four_have_every_source_relation_and_scaling(fitted: list[Any]) -> None:
    rows = tables2to9.rows("table3", ["power"], splits=1)
    found = {
        (row["row"], row["source"], row["relation"], row["scaling"])
        for row in rows
        if row["source"] != "printed" and "paired" not in row["metric"]
    }
    both = ("zero-out", "replace-one")
    expected = {(name, "ours", "none", "public") for name in ("VI", "EP", "SEP", "SEP clipped", "ADF (PBP)")}
    expected |= {("SEP", "as written", "none", "public"), ("SEP clipped", "as written", "none", "public")}
    expected |= {("SEP, gamma = N (Li et al. 2015)", "as written", "none", "public")}
    expected |= {("DP-SEP", "as written", relation, "public") for relation in both}
    expected |= {("DP-SEP", "as accounted", "replace-one", "public")}
    expected |= {
        ("DP-SEP", "ours", relation, scaling) for relation in both for scaling in ("public", "private")
    }
    for name in ("DP-VI", "DP-SEP, the paper's width", "DP-VI, the paper's width"):
        expected |= {(name, "ours", relation, "public") for relation in both}
    assert found == expected
    printed = only(rows, source="printed")
    assert [row["mean"] for row in printed] == [figure.mean for figure in TABLE_3["power"]]
    assert [row["sd"] for row in printed] == [figure.sd for figure in TABLE_3["power"]]
    assert {row["n"] for row in printed} == {10}
    assert {row["row"]: row["epsilon"] for row in printed}["DP-VI"] == 1.0


def test_a_fit_that_diverged_is_counted_and_left_out_of_the_average(fitted: list[Any]) -> None:
    rows = tables2to9.rows("table3", ["power"], splits=3)
    for row in only(rows, row="DP-SEP", scaling="private"):
        assert (row["mean"], row["n"], row["diverged"]) == (5.0, 2, 1)


def test_a_method_that_refuses_a_set_is_a_row_that_says_why(fitted: list[Any]) -> None:
    row = one(tables2to9.rows("table3", ["power"], splits=2), row="EP", source="ours")
    assert (row["mean"], row["n"], row["skipped"]) == (None, 0, "too many sites")


def test_a_set_that_is_not_there_is_a_row_that_says_why_and_the_others_go_on(fitted: list[Any]) -> None:
    for table in ("table2", "table3", "table8"):
        rows = tables2to9.rows(table, ["year", "power"], splits=1)
        (row,) = [row for row in rows if row["dataset"] == "year" and "skipped" in row]
        assert row["skipped"] == "year is not on this machine"
        assert only(rows, dataset="year", source="printed")
        assert only(rows, dataset="power", source="ours")


def test_differences_are_dpsep_minus_dpvi_on_the_same_splits_with_a_students_interval(
    monkeypatch: pytest.MonkeyPatch, fitted: list[Any]
) -> None:
    def ours(**given: Any) -> Callable[[Split], Scores]:
        level = {"sep": (1.0, 2.0, 3.0), "vi": (2.0, 4.0, 6.0)}.get(given["method"], (0.0,) * 3)
        return lambda split: Scores(level[split.number], 0.0)

    monkeypatch.setattr(networks, "ours", ours)
    pairs = [row for row in tables2to9.rows("table3", ["power"], splits=3) if "paired" in row["metric"]]
    assert [row["relation"] for row in pairs] == ["zero-out", "replace-one"]
    reach = 4.302653 / math.sqrt(3)  # the 97.5 % point of Student's t with 2 degrees of freedom
    for row in pairs:
        assert (row["mean"], row["sd"], row["n"]) == (-2.0, 1.0, 3)
        assert row["low"] == pytest.approx(-2.0 - reach, rel=1e-6)
        assert row["high"] == pytest.approx(-2.0 + reach, rel=1e-6)


def test_fits_are_shared_between_tables_and_kept_in_the_folder(fitted: list[Any], tmp_path: Path) -> None:
    store = Store(tmp_path)
    tables2to9.rows("table3", ["power"], splits=2, store=store)
    first = len(fitted)
    tables2to9.rows("table4", ["power"], splits=2, store=store)
    assert len(fitted) == first + 2  # the two refusals of EP are tried again
    tables2to9.rows("table8", ["power"], splits=2, store=Store(tmp_path))
    new = fitted[first + 2 :]
    # C = 1 as written and as accounted, and our own clip, are those of Table 3.
    assert len(new) == 2 * (2 * 5 + 2 * 4)
    assert not [settings for _, _, settings in new if settings.get("clip") == 1.0]


def test_the_clip_tables_have_the_papers_clips_and_multiples_of_ours(fitted: list[Any]) -> None:
    rows = tables2to9.rows("table8", ["power"], splits=1)
    for source in ("printed", "as written", "as accounted"):
        found = [row["row"] for row in only(rows, source=source)]
        assert found == [f"C = {clip}" for clip in (1, 2, 3, 4, 5, 10)]
    assert [row["mean"] for row in only(rows, source="printed")] == [f.mean for f in TABLE_8["power"]]
    multiples = [settings.get("clip", 1.0) for *_, settings in fitted if settings.get("method")]
    assert multiples == [m for m in network_cases.MULTIPLES for _ in range(2)]


def test_a_quick_run_says_so_and_is_small(fitted: list[Any]) -> None:
    rows = tables2to9.rows("table3", ["power"], quick=True)
    assert all(row["quick"] for row in rows)
    assert {number for _, number, _ in fitted} == {0}
    assert {settings["passes"] for *_, settings in fitted if "passes" in settings} == {1}
    assert {settings["steps"] for *_, settings in fitted if "method" in settings} == {3}
    default = tables2to9.rows("table3", quick=True)
    assert {row["dataset"] for row in default} == {"naval", "kin8nm"}


def test_no_more_splits_are_asked_for_than_a_set_has(fitted: list[Any]) -> None:
    calls: list[tuple[int, int]] = []
    tables2to9.rows("table5", ["power"], on_step=lambda *call: calls.append(call))
    total = 4 * 5  # four splits; a point estimate, two private ones and two of DP-SEP
    assert calls == [(done, total) for done in range(1, total + 1)]


def test_table_two_has_the_sizes_printed_and_loaded(fitted: list[Any]) -> None:
    rows = tables2to9.rows("table2", ["power"])
    assert [row["mean"] for row in only(rows, source="printed")] == list(TABLE_2["power"])
    found = {row["metric"]: row["mean"] for row in only(rows, source="ours")}
    assert found == {"records": 10, "features": 2, "splits": 4, "records to train on": 8}


def test_the_settings_are_those_printed() -> None:
    rows = only(tables2to9.rows("table7", ["wine"]), source="printed")
    found = {row["metric"]: row["mean"] for row in rows}
    assert found["sigma"] == DPVI_SETTINGS["wine"].sigma
    assert found["learning rate"] == 1e-2
    assert found["epsilon"] == 1.0
    assert "sigma" not in {row["metric"] for row in tables2to9.rows("table6", ["wine"])}


@pytest.mark.parametrize(("name", "records"), [("kin8nm", 7373), ("wine", 1439), ("year", 463715)])
def test_table_sevens_epsilon_with_poisson_batches_is_that_of_the_reference_accountant(
    name: str, records: int
) -> None:
    setting = DPVI_SETTINGS[name]
    assert setting.sigma is not None
    accountant = PLDAccountant(dpa.NeighboringRelation.REPLACE_SPECIAL)
    step = dpa.PoissonSampledDpEvent(setting.batch_size / records, dpa.GaussianDpEvent(setting.sigma))
    accountant.compose(step, round(setting.epochs * records / setting.batch_size))
    row = one(tables2to9.rows("table7", [name]), row="epsilon, Poisson batches", relation="zero-out")
    assert row["mean"] == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    assert row["source"] == "as accounted"
    if name != "wine":
        assert row["mean"] > 1.9  # the table claims about 1


def test_table_sevens_epsilon_of_shuffled_passes_is_one_gaussian_release_a_pass() -> None:
    setting = DPVI_SETTINGS["kin8nm"]
    assert setting.sigma is not None
    rows = tables2to9.rows("table7", ["kin8nm"])
    for relation, moved in (("zero-out", 1.0), ("replace-one", 2.0)):
        row = one(rows, row="epsilon, shuffled passes", relation=relation)
        mu, epsilon = moved * math.sqrt(setting.epochs) / setting.sigma, row["mean"]
        delta = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert delta == pytest.approx(1e-5, rel=1e-3)


def test_unknown_tables_and_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="no table 'table1'; there are table2"):
        tables2to9.rows("table1")
    with pytest.raises(ValueError, match="no data set 'iris' in the paper; its sets: naval"):
        tables2to9.rows("table3", ["iris"])
