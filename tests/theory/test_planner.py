"""Plans answer what was asked, and say what the estimators then do."""

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsep
import dpsep_lab
from dpsep import plan
from dpsep.estimators.input_checks import no_scaling
from dpsep.estimators.network_releases import moment_plan, sampling_of
from dpsep.estimators.network_run import recipe_of
from dpsep.estimators.network_task import Task
from dpsep.privacy.mechanism import Relation
from dpsep.registry import named, names, regressions
from dpsep.theory.networks import noise_share, sep_plan
from dpsep.theory.planner import Planned

BEFORE = Path(dpsep_lab.__file__).parent / "bench" / "before_planner.json"
MODELS: Any = {name: {"components": 3} if name == "mixture" else {} for name in names()}
REGRESSIONS: Any = tuple(entry.name for entry in regressions())
ROWS, COLUMNS = 400, 2


@cache
def before() -> dict[str, Any]:
    return json.loads(BEFORE.read_text(encoding="utf-8"))["networks"]


def met(planned: Planned, target: dict[str, float]) -> bool:
    assert planned.forecast is not None
    found = {"widening": planned.forecast.widening, "excess_risk": planned.forecast.excess_risk}
    return all(found[name] <= most for name, most in target.items())


TARGETS: Any = [{"widening": 1.2}, {"excess_risk": 1e-3}, {"widening": 1.3, "excess_risk": 1e-4}]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: "+".join(target))
@pytest.mark.parametrize("model", [*REGRESSIONS, "mixture"])
def test_the_epsilon_that_is_found_meets_the_target_and_less_does_not(model: Any, target: Any) -> None:
    shape = (model, 5000, 6)
    found = plan(*shape, **target, **MODELS[model], curve=False)
    assert found.found == "epsilon"
    assert found.verdict in ("nearly free", "good", "costly")
    assert met(found, target)
    less = plan(*shape, epsilon=0.8 * found.request.epsilon, **MODELS[model], curve=False)
    assert not met(less, target) or less.verdict in ("weak", "impossible")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: "+".join(target))
@pytest.mark.parametrize("model", [*REGRESSIONS, "mixture"])
def test_the_records_that_are_found_meet_the_target_and_fewer_do_not(model: Any, target: Any) -> None:
    found = plan(model, None, 6, epsilon=1.0, **target, **MODELS[model], curve=False)
    assert found.found == "records"
    assert found.verdict in ("nearly free", "good", "costly")
    assert met(found, target)
    count = int(0.8 * found.request.records)
    fewer = plan(model, count, 6, epsilon=1.0, **MODELS[model], curve=False)
    assert not met(fewer, target) or fewer.verdict in ("weak", "impossible")


def test_what_a_remedy_names_is_enough() -> None:
    asked = plan("poisson", 5000, 10, epsilon=1.0, curve=False)
    assert asked.verdict == "costly"
    epsilon = float(asked.remedies[0].removeprefix("epsilon ").split()[0])
    records = int(asked.remedies[1].split()[0].replace(",", ""))
    assert epsilon > 1.0
    assert records > 5000
    assert plan("poisson", 5000, 10, epsilon=epsilon, curve=False).verdict == "good"
    assert plan("poisson", records, 10, epsilon=1.0, curve=False).verdict == "good"


@pytest.mark.parametrize(
    ("verdict", "arguments", "options"),
    [
        ("nearly free", ("logistic", 10**6, 10), {"epsilon": 2.0}),
        ("good", ("logistic", 5000, 10), {"epsilon": 1.0}),
        ("costly", ("linear", 1000, 10), {"epsilon": 1.0}),
        ("weak", ("logistic", 1000, 10), {"epsilon": 0.25}),
        ("impossible", ("linear", 1000, 10), {"epsilon": 0.02}),
        ("impossible", ("logistic", 20_000, 10), {"epsilon": 1e-6}),
        ("impossible", ("logistic", 1, 10), {"epsilon": 1.0}),
        ("impossible", ("network", 1, 10), {"epsilon": 1.0}),
        ("impossible", ("linear", 20, 30), {"epsilon": 1.0}),
        ("impossible", ("linear", 20, 30), {"widening": 1.2}),
        ("impossible", ("linear", 1000, 10), {"epsilon": 1.0, "widening": 1.2}),
        ("not forecast", ("network", 20_000, 10), {"epsilon": 1.0}),
    ],
    ids=lambda part: "-".join(str(one) for one in part) if isinstance(part, tuple) else None,
)
def test_verdicts_come_with_reasons_and_remedies(verdict: str, arguments: Any, options: Any) -> None:
    found = plan(*arguments, **options, curve=False)
    assert found.verdict == verdict
    assert bool(found.reasons) == bool(found.remedies) == (verdict not in ("nearly free", "good"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "ridge"}, "model must be one of linear, .*not 'ridge'"),
        ({"records": 0}, "records must be a whole number"),
        ({"records": -5}, "records"),
        ({"records": 2.5}, "records"),
        ({"records": "many"}, "records"),
        ({"records": None}, "give epsilon and a target"),
        ({"features": 0}, "features must be a whole number from 1"),
        ({"features": -1}, "features"),
        ({"features": float("nan")}, "features"),
        ({"epsilon": 0.0}, "epsilon must be a number above 0"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": None}, "give epsilon, or a target"),
        ({"delta": 0.0}, "delta must be a number above 1e-100"),
        ({"delta": 1.0}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"relation": "add-one"}, "relation must be one of zero-out, replace-one"),
        ({"widening": 0.9}, "widening must be a number above 1"),
        ({"widening": float("nan")}, "widening"),
        ({"excess_risk": 0.0}, "excess_risk must be a number above 0"),
        ({"levels": (9,)}, "levels name 9 indicators"),
        ({"levels": (0,)}, "levels must be a whole number"),
        ({"components": 3}, "components is for a mixture"),
        ({"model": "mixture"}, "components is for a mixture, which needs it"),
        ({"sampling": 1.5}, "sampling must be a number above 0 and at most 1"),
        ({"hidden": (5,)}, "hidden is for networks"),
        ({"epsilon": 10**400}, "epsilon must be a number above 0 and below 10000"),
        ({"epsilon": True}, "epsilon"),
        ({"delta": 1e-320}, "delta"),
        ({"widening": 10**400}, "widening"),
        ({"levels": (5000,), "features": 5000}, "at most 3000"),
        ({"levels": "7"}, "levels must be a whole number or several"),
        ({"model": "network", "hidden": (5000,)}, "at most 2000000 weights and layers of 4000"),
        ({"model": "network", "widening": 1.2}, "cannot be forecast"),
        ({"model": "network", "epsilon": None, "widening": 1.2}, "cannot be forecast"),
        ({"model": "network", "records": None, "widening": 1.2}, "cannot be forecast"),
    ],
    ids=str,
)
def test_nonsense_is_refused_by_name(changed: Any, words: str) -> None:
    right: Any = {"model": "logistic", "records": 1000, "features": 5, "epsilon": 1.0, "curve": False}
    with pytest.raises(ValueError, match=words):
        plan(**(right | changed))


@pytest.mark.parametrize(
    "chosen", [{"relation": "replace-one"}, {"sampling": 0.5}], ids=lambda one: "".join(one)
)
@pytest.mark.parametrize("model", MODELS)
def test_the_parameters_build_the_estimator_that_is_named(model: Any, chosen: Any) -> None:
    more: Any = {"hidden": (7,)} if model.startswith("network") else {}
    found = plan(model, 100_000, 2, epsilon=1.0, **chosen, **MODELS[model], **more, curve=False)
    built = getattr(dpsep, found.estimator)(**found.parameters)
    wanted = {"epsilon": 1.0, "delta": 1e-5, "relation": "zero-out"} | chosen | more
    assert {name: getattr(built, name) for name in wanted} == wanted
    assert getattr(built, "n_components", 3) == 3


def table(model: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (ROWS, COLUMNS))
    u = x @ np.array([1.0, -0.5])
    target = named(model).target
    if target == "number":
        return x, u + 0.3 * rng.standard_normal(ROWS)
    if target == "positive":
        return x, rng.exponential(np.exp(u))
    if target == "count":
        return x, rng.poisson(np.exp(u)).astype(float)
    if target == "none":
        return x, None
    return x, np.where(rng.logistic(size=ROWS) < u, "yes", "no")


def declared_of(model: str) -> dict[str, Any]:
    """Bounds that leave nothing to be found."""
    targets = {"number": {"target_bounds": (-3.0, 3.0)}, "positive": {"target_bounds": (0.1, 20.0)}}
    return {"bounds": (-1.0, 1.0)} | targets.get(named(model).target, {})


def fitted(model: str, planned: Planned, *, declared: bool = True) -> Any:
    """Fit by a plan: its parameters, and what the plan supposes to be declared."""
    more: dict[str, Any] = declared_of(model) if declared else {}
    if named(model).target == "label":
        more["classes"] = ["no", "yes"]
    estimator = getattr(dpsep, planned.estimator)(**planned.parameters, **more, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded noise, and a budget that is weak for a table so small
        return estimator.fit(*table(model))


@pytest.mark.parametrize("model", [model for model in MODELS if model != "network-classifier"])
def test_an_estimator_does_what_its_plan_says(model: Any) -> None:
    more: Any = {"hidden": (2,)} if model == "network" else {}
    planned = plan(model, ROWS, COLUMNS, epsilon=4.0, delta=1e-4, **MODELS[model], **more, curve=False)
    assert planned.settings is not None
    estimator = fitted(model, planned)
    privacy = estimator.privacy_
    assert (estimator.n_iter_ if model in REGRESSIONS else privacy.steps) == planned.settings.steps
    assert privacy.sigma == pytest.approx(planned.settings.sigma, rel=1e-12)
    assert privacy.accountant == planned.settings.accountant
    assert privacy.epsilon == pytest.approx(4.0, rel=1e-3)


def test_a_classifiers_schedule_is_the_planned_one() -> None:
    # Its releases are designed as those of the network of numbers, which is fitted above.
    task = network_task({"records": ROWS, "features": COLUMNS, "hidden": (2,)})._replace(
        outcome="classification"
    )
    sampling = sampling_of(task, None, "zero-out")
    schedule = recipe_of(task, epsilon=4.0, delta=1e-4, relation="zero-out", sampling=sampling).schedule
    planned = plan("network-classifier", ROWS, COLUMNS, epsilon=4.0, delta=1e-4, hidden=(2,), curve=False)
    assert planned.settings is not None
    assert planned.settings.sigma == pytest.approx(schedule.parts[-1].sigma, rel=1e-12)
    assert planned.settings.clip == sep_plan(task).clip != sep_plan(task._replace(outcome="regression")).clip


@pytest.mark.parametrize("model", ["linear", "mixture"])
def test_a_plan_with_declared_bounds_is_not_that_of_a_fit_without(model: Any) -> None:
    shape = (model, ROWS, COLUMNS)
    options = MODELS[model] | {"epsilon": 4.0, "delta": 1e-4, "curve": False}
    declared, found = plan(*shape, **options), plan(*shape, **options, declared=False)
    assert declared.settings is not None
    assert found.settings is not None
    sigma = fitted(model, found, declared=False).privacy_.sigma
    assert sigma == pytest.approx(found.settings.sigma, rel=1e-12)
    assert sigma > 1.02 * declared.settings.sigma


@pytest.mark.parametrize("model", MODELS)
def test_an_answer_survives_json(model: Any) -> None:
    found = plan(model, 5000, 4, epsilon=1.0, **MODELS[model])
    document = found.to_dict()
    back = json.loads(json.dumps(document, allow_nan=False))
    assert back == document
    assert back["verdict"] == found.verdict
    assert back["request"]["records"] == 5000
    if found.forecast is not None:
        assert back["forecast"]["widening"] == found.forecast.widening
        assert [point["epsilon"] for point in back["curve"]] == [epsilon for epsilon, _ in found.curve]


def network_task(frozen: dict[str, Any]) -> Task:
    """A regression with declared scalings, as the frozen settings were taken from."""
    columns, hidden = frozen["features"], tuple(frozen["hidden"])
    scalings = (no_scaling(columns), no_scaling(1))
    return Task(
        frozen["records"],
        columns,
        hidden,
        "relu",
        "regression",
        "sep",
        "kronecker",
        *scalings,
        True,
        None,
        None,
    )


def settings_now(
    frozen: dict[str, Any], relation: Relation, steps: int | None = None, *, direct: bool = False
) -> dict[str, Any]:
    """Today's settings of the network that frozen ones are of; it had no direct inputs."""
    task = network_task(frozen)._replace(steps=steps, direct=direct)
    sampling = sampling_of(task, None, relation)
    chosen = sep_plan(task)
    recipe = recipe_of(task, epsilon=1.0, delta=1e-5, relation=relation, sampling=sampling)
    return {
        "records": task.records,
        "features": task.features,
        "hidden": list(task.hidden),
        "rate": sampling.expected_batch(task.records) / task.records,
        "steps": chosen.steps,
        "clip": chosen.clip,
        "cap": chosen.cap,
        "damping": chosen.damping,
        "step_size": chosen.rate,
        "last": chosen.last,
        "tail": chosen.tail,
        "start": chosen.start,
        "noise_share": noise_share(task.records),
        "moment_looks": moment_plan(task)[1],
        "sigmas": [part.sigma for part in recipe.schedule.parts],
    }


FROZEN = [(name, case) for name in before() for case in before()[name]]


@pytest.mark.parametrize(("name", "case"), FROZEN, ids=[f"{name}-{case}" for name, case in FROZEN])
def test_networks_are_fitted_as_they_were_before_the_planner(name: str, case: str) -> None:
    """But for the share of the budget that their moments have, and its releases."""
    frozen = before()[name][case]
    relation: Relation = "replace-one" if case.endswith("replace-one") else "zero-out"
    now = settings_now(frozen, relation)
    assert now.keys() == frozen.keys()
    assert now.pop("sigmas") == pytest.approx(frozen["sigmas"], rel=1e-9)
    assert now.pop("hidden") == frozen["hidden"]
    rest = {key: frozen[key] for key in now}
    assert now == pytest.approx(rest, rel=1e-12)
    hidden = None if case.startswith("default") else tuple(frozen["hidden"])
    planned = plan(
        "network", frozen["records"], frozen["features"], epsilon=1.0, relation=relation, hidden=hidden
    )
    assert planned.settings is not None
    # A plan is for today's default, whose direct inputs are weights, too: a large table is sampled less.
    today = settings_now(frozen, relation, direct=True)
    assert planned.settings.sigma == pytest.approx(today["sigmas"][-1], rel=1e-9)
    assert planned.settings.sampling == pytest.approx(today["rate"], rel=1e-12)
    if frozen["rate"] == 1.0:
        assert today["sigmas"] == pytest.approx(frozen["sigmas"], rel=1e-9)
    else:
        assert 0.98 * frozen["rate"] < today["rate"] < frozen["rate"]
    assert planned.settings.hidden == tuple(frozen["hidden"])
    assert (planned.settings.steps, planned.settings.clip) == (frozen["steps"], frozen["clip"])


def test_other_settings_would_not_pass_for_the_frozen_ones() -> None:
    frozen = before()["wine"]["default, zero-out"]
    other = settings_now(frozen, "zero-out", steps=frozen["steps"] + 1)
    assert other["sigmas"] != pytest.approx(frozen["sigmas"], rel=1e-9)
    assert settings_now(frozen, "replace-one")["sigmas"] != pytest.approx(frozen["sigmas"], rel=1e-9)


def test_what_no_accountant_answers_for_is_an_answer() -> None:
    found = plan("logistic", 1000, 4, epsilon=0.5, relation="replace-one", sampling=0.5)
    assert found.verdict in ("impossible", "weak", "costly", "good")
    assert all(each > 0 for each, _ in found.curve)


def test_one_number_does_for_several() -> None:
    assert plan("network", 5000, 5, epsilon=1.0, hidden=20).settings.hidden == (20,)  # pyright: ignore
    assert plan("linear", 5000, 8, epsilon=1.0, levels=5, curve=False).request.levels == (5,)  # pyright: ignore


def test_a_number_that_cannot_be_printed_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="a number of thousands of digits"):
        plan("linear", 1000, 5, epsilon=10**9999)
