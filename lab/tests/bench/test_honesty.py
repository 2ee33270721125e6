"""The survey of honesty: designs are what they say, the list is fixed, figures and verdicts are right."""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import kurtosis, skew

from dpsep.registry import ENTRIES
from dpsep_lab.bench.honesty import pool, results, survey
from dpsep_lab.bench.honesty.cells import CELLS, QUICK, Cell, matching, named_cell, open_twin, with_twins
from dpsep_lab.bench.honesty.designs import CHOOSE, DESIGNS, JUDGE
from dpsep_lab.bench.honesty.floor import floor
from dpsep_lab.bench.honesty.others import adassp_interval
from dpsep_lab.bench.honesty.targets import TARGETS, Absent, Table, made, make
from dpsep_lab.bench.honesty.work import line, program

from .honesty_answers import KILLER, answer

ROWS = 40_000


def of(design: str, target: str = "logistic", rows: int = ROWS) -> Table:
    return made(target, design, rows, 0)


@pytest.mark.parametrize("design", DESIGNS)
def test_cells_of_every_design_lie_within_its_bounds_and_effects_have_a_class(design: str) -> None:
    table = of(design, rows=2000)
    assert np.array_equal(np.clip(table.X, table.low, table.high), table.X)
    assert table.X.shape[1] in (4, 7)
    assert len(table.truth) == len(table.classes) == table.X.shape[1] + 1
    assert table.classes[0] == "intercept"
    assert np.allclose(table.truth[0] + table.X @ table.truth[1:], table.predictor)
    # Predictors stay where labels and counts are ordinary.
    assert np.abs(table.predictor - np.median(table.predictor)).max() < 5


@pytest.mark.parametrize("design", DESIGNS)
def test_columns_are_centred_where_the_design_says(design: str) -> None:
    drawn = DESIGNS[design].draw(ROWS, np.random.default_rng(0))
    spread = drawn.columns.std(axis=0)
    assert (np.abs(drawn.columns.mean(axis=0) - drawn.centre) < 0.08 * spread).all()


def test_rare_columns_are_as_rare_as_they_say() -> None:
    for design, target in product(("rare", "one-hot", "interactions", "nested", "two-rare"), ("logistic",)):
        table = of(design, target)
        rare = np.array([name == "rare" for name in table.classes[1:]])
        shares = table.X[:, rare].mean(axis=0)
        assert set(np.unique(table.X[:, rare])) == {0.0, 1.0}
        assert (shares > 0.012).all()
        assert (shares < 0.06).all()
    rare = of("rare")
    assert rare.X[:, -1].mean() == pytest.approx(0.015, abs=0.002)
    assert rare.truth[-1] == -0.8
    assert of("rare", "poisson").truth[-1] == -0.8


def test_each_design_is_hard_in_the_way_it_says() -> None:
    hot = of("one-hot").X
    assert set(np.unique(hot.sum(axis=1))) == {0.0, 1.0}
    assert 0.015 < hot.mean(axis=0).min() < 0.021
    money = of("skewed").X[:, -1]
    assert skew(money) > 2.5
    assert np.asarray(np.corrcoef(of("collinear").X[:, :2].T))[0, 1] == pytest.approx(0.98, abs=0.005)
    loose, plain = of("loose"), of("plain")
    assert np.allclose(loose.high - loose.low, 10 * (plain.high - plain.low))
    assert of("few-positives").y.mean() == pytest.approx(0.03, abs=0.006)
    nested = of("nested").X[:, :4]
    assert (np.diff(nested, axis=1) <= 0).all()
    both = of("two-rare").X[:, 2:].sum(axis=1)
    assert np.mean(both == 2) == pytest.approx(0.005, abs=0.0015)
    assert np.mean(of("zero-inflated").X[:, -1] == 0) == pytest.approx(0.9, abs=0.01)
    assert set(np.unique(of("ordinal").X[:, 0])) == {1.0, 2.0, 3.0, 4.0, 5.0}
    scales = np.ptp(of("mixed-scales").X, axis=0)
    assert scales.max() / scales.min() > 1e6
    persons = of("persons")
    assert persons.groups is not None
    assert (np.bincount(persons.groups) == 4).all()
    assert np.ptp(persons.X[:, 0].reshape(-1, 4), axis=1).max() == 0


def test_outcomes_follow_their_laws() -> None:
    table = of("plain", "linear")
    assert np.std(table.y - table.predictor) == pytest.approx(0.5, rel=0.02)
    table = of("plain", "logistic")
    assert table.y.mean() == pytest.approx(expit(table.predictor).mean(), abs=0.01)
    table = of("plain", "poisson")
    mean = np.exp(table.predictor)
    assert np.mean((table.y - mean) ** 2 / mean) == pytest.approx(1.0, abs=0.05)
    for target in ("poisson", "negative-binomial"):
        table = of("overdispersed", target)
        mean = np.exp(table.predictor)
        assert np.mean((table.y - mean) ** 2 / (mean + mean**2 / 0.7)) == pytest.approx(1.0, abs=0.1)
    table = of("heavy-tails", "linear")
    assert kurtosis((table.y - table.predictor) / 0.5) > 3
    table = of("plain", "gamma")
    assert np.mean(table.y / np.exp(table.predictor)) == pytest.approx(1.0, abs=0.03)
    table = of("plain", "mixed-linear")
    assert table.groups is not None
    means = np.bincount(table.groups, table.y - table.predictor) / np.bincount(table.groups)
    assert 0.2 < means.std() < 1.0


def test_a_table_is_that_of_its_seed_and_truths_are_drawn_only_where_that_is_said() -> None:
    first, again, other = (made("linear", "rare", 300, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
    assert np.array_equal(first.truth, other.truth)
    loose, plain = made("linear", "loose", 300, 1), made("linear", "plain", 300, 1)
    assert np.array_equal(loose.X, plain.X)
    assert np.array_equal(loose.y, plain.y)
    assert not np.array_equal(made("linear", "drawn", 300, 1).truth, made("linear", "drawn", 300, 2).truth)


def test_the_list_is_fixed_and_says_beforehand_what_is_for_judging() -> None:
    names = [cell.name for cell in CELLS]
    assert 380 <= len(names) <= 520
    assert len(set(names)) == len(names)
    assert {cell.design for cell in CELLS} == set(DESIGNS)
    assert {cell.target for cell in CELLS} == set(TARGETS)
    for cell in CELLS:
        assert cell.role == ("judge" if cell.design in JUDGE else "choose")
        assert cell.who != "dpsep" or open_twin(cell).name in names
        assert named_cell(cell.name) == cell
    assert not set(CHOOSE) & set(JUDGE)
    # Few kinds of programs: fits are to be cheap.
    assert len({program(cell) for cell in CELLS}) < 120
    assert len(matching(QUICK)) == 4


def test_cells_are_named_by_patterns_beginnings_and_roles() -> None:
    assert len(matching("judge")) + len(matching("choose")) == len(CELLS)
    found = matching("logistic/rare/n10000/eps1/zero-out/full")
    assert [cell.name for cell in found] == [
        f"logistic/rare/n10000/eps1/zero-out/full/{word}" for word in ("bounds", "no-bounds")
    ]
    assert all(cell.target == "poisson" for cell in matching("poisson/*/*/eps1"))
    assert matching("nothing") == []
    assert [cell.epsilon for cell in with_twins(found)] == [None, 1.0, None, 1.0]


def test_a_model_is_right_where_its_law_is_the_table_s() -> None:
    assert Cell("poisson", "rare").right
    assert not Cell("poisson", "overdispersed").right
    assert Cell("negative-binomial", "overdispersed").right
    assert Cell("student", "heavy-tails").right
    assert not Cell("linear", "heavy-tails").right


def test_the_floor_is_what_the_whole_budget_on_one_score_gives() -> None:
    # 150 rare records of information 0.21 each; mu = 0.237 at epsilon 1 and delta 1e-6; a label's score is
    # bounded by one: 1 / I + (1 / (mu I))^2.
    table = made("logistic", "rare", 10_000, 0)
    rare = table.X[:, -1] == 1
    information = (expit(table.predictor) * expit(-table.predictor))[rare].sum()
    found = floor(Cell("logistic", "rare"), table)[-1]
    assert found == pytest.approx(1 / information + (1 / (0.2367 * information)) ** 2, rel=0.1)
    assert floor(Cell("logistic", "rare", epsilon=None), table)[-1] == pytest.approx(1 / information, rel=0.1)
    replaced = floor(Cell("logistic", "rare", relation="replace-one"), table)
    assert (replaced > floor(Cell("logistic", "rare"), table)).all()
    person = Cell("logistic", "persons", by_person=True)
    table = made("logistic", "persons", 10_000, 0)
    assert (floor(person, table) > floor(person._replace(by_person=False), table)).all()


def test_an_estimator_that_is_not_there_is_absent_and_others_are_made() -> None:
    table = made("linear", "plain", 300, 0)
    names = {entry.name for entry in ENTRIES}
    for target in TARGETS:
        table = made(target, "plain", 300, 0)
        if TARGETS[target].estimator in names:
            model, more = make(target, table, bounded=True, by_person=False, epsilon=1.0)
            assert model.bounds is not None
            assert set(more) == ({"groups"} if TARGETS[target].family else set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TARGETS, "linear", TARGETS["linear"]._replace(estimator="no such"))
        with pytest.raises(Absent, match="no such"):
            make("linear", table, bounded=True, by_person=False)


def fake(name: str, z: Any, sd: float = 0.1, **more: Any) -> dict[str, Any]:
    """A line whose errors are these multiples of the standard deviation, one row a table."""
    z = np.asarray(z, float)
    count = z.shape[1]
    classes = ["intercept", *["common"] * (count - 2), "rare"]
    fits = [
        {
            "seed": seed,
            "truth": [0.0] * count,
            "mean": (sd * row).tolist(),
            "sd": [sd] * count,
            "bare": [more.get("bare", sd)] * count,
            "prior": [more.get("prior", 1.0)] * count,
            "weak": more.get("weak", False),
            "seconds": 0.1,
            "region": 0.5,
            "tarp": 0.5,
        }
        for seed, row in enumerate(z)
    ]
    out = {"cell": name, "code": "x", "classes": classes, "floor": [more.get("floor", 0.001)] * count}
    return out | {"fits": fits, "failed": more.get("failed", {})}


PRIVATE = "logistic/rare/n10000/eps1/zero-out/full/bounds"
OPEN = KILLER


def scored(*lines: dict[str, Any]) -> dict[tuple[str, str], results.Score]:
    return {(score.cell.name, score.kind): score for score in results.scores(results.joined(lines))}


def test_coverage_errors_and_widths_are_those_of_the_fits() -> None:
    # Of two common coefficients one is outside in a table of four; the rare one is off by two sds always.
    z = [[0, 0, 0, 2], [0, 1, -1, 2], [0, 3, 1, 2], [0, 0, 0, 2]]
    found = scored(fake(PRIVATE, z, 0.2, bare=0.15), fake(OPEN, np.ones((4, 4)), 0.1))
    common = found[PRIVATE, "common"]
    assert common.coverage == pytest.approx(7 / 8)
    assert common.error == pytest.approx(np.std([1, 1, 0.5, 1], ddof=1) / 2)
    assert (common.tables, common.coefficients) == (4, 2)
    assert common.bias == pytest.approx(0.2 * 4 / 8)
    assert common.rmse == pytest.approx(0.2 * math.sqrt(12 / 8))
    assert common.against_open == pytest.approx(common.rmse / 0.1)
    assert common.width == pytest.approx(1.5)
    rare = found[PRIVATE, "rare"]
    assert (rare.coverage, rare.z_mean, rare.z_sd) == (0.0, pytest.approx(2.0), pytest.approx(0.0))
    assert rare.verdict == "far too low"
    assert found[PRIVATE, "intercept"].verdict == "high"
    assert rare.of_prior == pytest.approx(0.2)


def test_errors_that_are_to_be_reached_are_held_against_their_limits() -> None:
    open_bounds = "logistic/rare/n10000/eps3/zero-out/full/no-bounds"
    bounds = "logistic/rare/n10000/eps3/zero-out/full/bounds"
    lines = [
        fake(PRIVATE, np.full((3, 4), 4.5)),
        fake(bounds, np.ones((3, 4))),
        fake(open_bounds, np.full((3, 4), 1.2)),
    ]
    lines += [
        fake(f"linear/{name}/n10000/eps1/zero-out/full/bounds", np.ones((3, 4)))
        for name in ("plain", "loose")
    ]
    found = results.aims(results.scores(results.joined(lines)))
    by_what = {(item["cell"], item["kind"], item["what"]): item for item in found}
    first = by_what[PRIVATE, "rare", "RMSE"]
    assert (first["value"], first["limit"], first["holds"]) == (pytest.approx(0.45), 0.40, False)
    assert by_what[bounds, "rare", "RMSE"]["holds"]
    without = by_what[open_bounds, "rare", "RMSE over that with bounds"]
    assert (without["value"], without["holds"]) == (pytest.approx(1.2), True)
    assert sum("tight" in item["what"] for item in found) == 3


def test_ratios_are_of_the_tables_that_both_have() -> None:
    lines = fake(PRIVATE, np.full((3, 3), 2.0)), fake(OPEN, [[1, 1, 1], [1, 1, 1]])
    assert scored(*lines)[PRIVATE, "rare"].against_open == pytest.approx(2.0)
    assert math.isnan(scored(lines[0])[PRIVATE, "rare"].against_open)


def score(**changes: Any) -> results.Score:
    usual: dict[str, Any] = dict.fromkeys(results.Score._fields, 0.1)
    usual |= {"cell": named_cell(PRIVATE), "kind": "rare", "coverage": 0.9, "failed": 0.0}
    return results.Score(**(usual | changes))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "holds"),
        ({"coverage": 0.86}, "holds"),
        ({"coverage": 0.85}, "low"),
        ({"coverage": 0.81}, "far too low"),
        ({"coverage": 0.97}, "high"),
        ({"coverage": 0.97, "of_prior": 0.6}, "holds"),
        ({"coverage": 0.5, "warned": 1.0, "floor": 0.3}, "excused"),
        ({"coverage": 0.5, "warned": 0.0, "floor": 0.3}, "far too low"),
        ({"coverage": 0.5, "warned": 1.0, "floor": 0.2}, "far too low"),
        ({"coverage": 0.5, "cell": Cell("poisson", "overdispersed")}, "wrong model"),
        ({"coverage": math.nan}, "no interval"),
        ({"failed": 0.1}, "failed"),
    ],
)
def test_a_verdict_follows_the_rules(changes: dict[str, Any], word: str) -> None:
    assert results.verdict(score(**changes)) == word


def test_only_private_fits_of_the_right_model_count() -> None:
    assert results.counted(score(verdict="low"))
    assert not results.counted(score(verdict="excused"))
    assert not results.counted(score(verdict="holds", cell=named_cell(OPEN)))
    huge = named_cell("logistic/rare/n10000/eps1000/zero-out/full/bounds")
    assert not results.counted(score(verdict="holds", cell=huge))


def test_a_huge_budget_is_compared_with_none() -> None:
    huge = "logistic/rare/n10000/eps1000/zero-out/full/bounds"
    truth = np.random.default_rng(0).standard_normal((20, 4))
    near = results.joined([fake(huge, truth + 0.05), fake(OPEN, truth)])
    (item,) = results.consistency(near)
    assert item["gap"] == pytest.approx(0.05)
    assert item["holds"]
    far = truth + np.array([0, 0, 0, 0.5])
    (item,) = results.consistency(results.joined([fake(huge, far), fake(OPEN, truth)]))
    assert item["worst"] == pytest.approx(0.5)
    assert not item["holds"]


def test_more_budget_that_is_worse_is_seen_on_the_same_tables() -> None:
    more = "logistic/rare/n10000/eps3/zero-out/full/bounds"
    z = np.random.default_rng(0).standard_normal((100, 4))
    worse = {
        item["kind"]: item for item in results.steps(results.joined([fake(PRIVATE, z), fake(more, 2 * z)]))
    }
    assert worse["rare"]["ratio"] == pytest.approx(2.0)
    assert worse["rare"]["bound"] == pytest.approx(2.0)  # the errors are in proportion: no doubt is left
    assert not worse["rare"]["holds"]
    better = results.steps(results.joined([fake(PRIVATE, z), fake(more, 0.5 * z)]))
    assert all(item["holds"] for item in better)
    # Where the prior speaks at the smaller budget, nothing is asked.
    assert results.steps(results.joined([fake(PRIVATE, z, prior=0.15), fake(more, z)])) == []


def test_ranks_are_uniform_where_a_posterior_is_calibrated_and_not_where_it_is_narrow() -> None:
    name = "logistic/drawn/n10000/eps1/zero-out/full/bounds"
    z = np.random.default_rng(1).standard_normal((200, 5))
    (right,) = results.ranks(results.joined([fake(name, z)]))
    (narrow,) = results.ranks(results.joined([fake(name, 2 * z)]))
    assert right["ranks"] > 0.001 > narrow["ranks"]
    assert sum(right["histogram"]) == 1000


def test_a_fit_s_line_has_all_that_is_said_of_it() -> None:
    cell = named_cell("linear/plain/n300/eps8/zero-out/full/bounds")
    found = json.loads(json.dumps(line(cell, range(2))))
    assert [fit["seed"] for fit in found["fits"]] == [0, 1]
    assert not found["failed"]
    fits = results.joined([found])[cell.name]
    assert fits.mean.shape == (2, 5)
    assert np.isfinite(fits.sd).all()
    assert np.isfinite(fits.prior).all()
    assert (fits.bare <= fits.sd * (1 + 1e-4)).all()
    assert ((fits.tarp >= 0) & (fits.tarp <= 1)).all()
    again = line(cell, range(1))["fits"][0]
    assert {**again, "seconds": 0} == {**found["fits"][0], "seconds": 0}


def test_the_peer_s_interval_covers() -> None:
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (20_000, 3))
        truth = np.array([0.1, 0.2, -0.1, 0.15])
        y = np.clip(truth[0] + X @ truth[1:] + 0.1 * rng.standard_normal(len(X)), -1, 1)
        mean, covariance = adassp_interval(X, y, 3.0, 1e-6, rng=rng)
        inside.append(np.abs(mean - truth) <= 1.645 * np.sqrt(np.diagonal(covariance)))
    assert 0.8 <= np.mean(inside) <= 0.99


def test_a_run_goes_on_where_it_was_and_survives_a_process_that_dies(tmp_path: Path) -> None:
    path = tmp_path / "fits.jsonl"
    cells = [named_cell(name) for name in (PRIVATE, OPEN)]
    cells += matching("student/rare/n10000/none")

    def left(seeds: int) -> pool.Todo:
        return pool.Todo(cells, seeds, pool.kept(path, "x"), program, piece=1)

    said = []
    pool.run(left(3), path, 2, lambda *what: said.append(what), serve=answer)
    # A process that died has its own line, of this version of the code.
    text = path.read_text().splitlines()
    dead = [json.loads(item) for item in text if '"failed": {"1"' in item]
    assert [item["cell"] for item in dead] == [OPEN]
    assert "code 3" in dead[0]["failed"]["1"]
    done = {(item["cell"], fit["seed"]) for item in pool.kept(path) for fit in item["fits"]}
    assert done == {(PRIVATE, 0), (PRIVATE, 1), (PRIVATE, 2), (OPEN, 0), (OPEN, 2)}
    assert said[-1][0] == said[-1][1]
    # More seeds: only those that are missing; an absent estimator is not asked again.
    path.write_text(path.read_text().replace(json.dumps(dead[0]["code"]), '"x"') + '{"cell": "cut o')
    assert left(3).left == 0
    assert left(5).left == 4
    pool.run(left(5), path, 1, serve=answer)
    assert left(5).left == 0
    # Another version of the code begins anew.
    assert pool.Todo(cells, 5, pool.kept(path, "y"), program).left == 15


def test_no_work_is_begun_after_the_time_is_up(tmp_path: Path) -> None:
    todo = pool.Todo([named_cell(PRIVATE)], 3, [], program)
    pool.run(todo, tmp_path / "fits.jsonl", 1, minutes=0.0, serve=answer)
    assert todo.left == 3


def test_work_is_shared_by_programs() -> None:
    cells = matching("linear/plain/n10000/eps1/zero-out/full,poisson/plain/n10000/eps1/zero-out/full")
    cells += matching("linear/rare/n10000/eps1/zero-out/full/bounds")
    todo = pool.Todo(cells, 4, [], program, piece=2)
    first, second = todo.take(None), todo.take(None)
    assert first is not None
    assert second is not None
    assert program(named_cell(first[0])) != program(named_cell(second[0]))
    again = todo.take(first[0])
    assert again == (first[0], range(2, 4))
    following = todo.take(first[0])
    assert following is not None
    assert program(named_cell(following[0])) == program(named_cell(first[0]))


def test_the_command_lists_cells_and_shows_what_is_there(tmp_path: Path, capsys: Any) -> None:
    assert survey.main(["--list", "--cells", "judge"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(matching("judge"))
    assert survey.main(["--cells", "nothing"]) == 2
    text = survey.shown(results.joined([fake(PRIVATE, np.zeros((2, 4))), fake(OPEN, np.zeros((2, 4)))]))
    assert "choose: 3 of 3 outside, 0 of them by more than two standard errors, 0 far too low" in text
    rows = survey.rows(results.joined([fake(PRIVATE, np.zeros((2, 4)))]))
    assert {row["note"] for row in rows if "coverage" in row["metric"]} == {"high"}
