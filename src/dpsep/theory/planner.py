r"""What does epsilon cost me, and how much data do I need? Answers from public quantities alone.

`plan` takes a model, a shape and a budget (or a wanted error), and returns the settings that the estimators
will fit by (`dpsep.theory.weighted_defaults`, `mixtures`, `networks`: the same code), what they are expected
to cost (`dpsep.theory.forecast`), the epsilon and the number of records that would do, and a curve over
epsilon.

*Targets.* ``widening`` is the wanted width of intervals over that without privacy, ``excess_risk`` the wanted
loss of log predictive density in nats a record. With a target, epsilon or the number of records may be left
open. What is found is the least one from which on the target is met (of epsilon, at least 0.001).

*Requests that cannot be met* are answered, not refused: ``verdict`` is "impossible", ``reasons`` say what
stands against it, ``remedies`` what would make it possible.

**Privacy.** Public numbers in, public numbers out. Nothing here takes a table.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from dpsep.privacy.mechanism import Relation
from dpsep.privacy.shown import up
from dpsep.registry import named
from dpsep.theory.forecast import HOPELESS, Forecast
from dpsep.theory.request import MOST_BUDGET, MOST_RECORDS, Request, check_request, number_within
from dpsep.theory.runs import (
    FEWEST_A_WEIGHT,
    MOST_EPSILON,
    Met,
    Settings,
    feasible,
    least_epsilon,
    least_records,
    most_features,
    network_settings,
    run,
    try_forecast,
)

Verdict = Literal["nearly free", "good", "costly", "weak", "impossible", "not forecast"]
"""What to expect of a fit."""

NEARLY_FREE = 1.05
"""Widening up to which privacy is called nearly free."""
COSTLY = 1.5
"""Widening beyond which it is called costly."""
ALL_HIDDEN = 1.0
"""Noise of a mixture's counts, relative to them, from which on all is hidden."""
EPSILONS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""Budgets of the curve."""


@dataclass(frozen=True)
class Planned:
    """An answer of the planner.

    Attributes
    ----------
    request
        The question, with what was left open filled in.
    settings
        How the fit will be done; the estimators' defaults. None where there is nothing to fit.
    forecast
        What it is expected to cost; None where that cannot be said.
    verdict, reasons, remedies
        In a word, why, and what would help.
    found
        What was left open and was found: "epsilon", "records", or nothing.
    free_records
        Records from which on privacy is nearly free at this epsilon; None where unknown or beyond all reach.
    curve
        Forecasts over epsilon, for the same table.

    Examples
    --------
    >>> answer = plan("logistic", 20_000, 10, epsilon=1.0)
    >>> answer.verdict, answer.settings.steps, answer.found
    ('nearly free', 6, '')
    """

    request: Request
    settings: Settings | None
    forecast: Forecast | None
    verdict: Verdict
    reasons: tuple[str, ...]
    remedies: tuple[str, ...]
    found: str
    free_records: int | None
    curve: tuple[tuple[float, Forecast], ...]

    @property
    def estimator(self) -> str:
        """Name of the estimator that fits by this plan."""
        return named(self.request.model).kind

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of that estimator: ``dpsep.LogisticRegression(**planned.parameters, bounds=...)``."""
        request = self.request
        chosen: dict[str, Any] = {"epsilon": request.epsilon, "delta": request.delta}
        chosen["relation"] = request.relation
        if request.sampling is not None:
            chosen["sampling"] = request.sampling
        if request.model == "mixture":
            chosen["n_components"] = request.components
        if request.hidden is not None:
            chosen["hidden"] = request.hidden
        return chosen

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists, ready for JSON."""
        request = {name: _plain(getattr(self.request, name)) for name in Request.__dataclass_fields__}
        return {
            "request": request | {"dimension": self.request.dimension},
            "estimator": self.estimator,
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
            "settings": _fields(self.settings),
            "forecast": _fields(self.forecast),
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "remedies": list(self.remedies),
            "found": self.found,
            "free_records": self.free_records,
            "curve": [{"epsilon": epsilon} | (_fields(one) or {}) for epsilon, one in self.curve],
        }


def plan(
    model: str,
    records: int | None,
    features: int,
    *,
    epsilon: float | None = None,
    delta: float = 1e-5,
    relation: Relation = "zero-out",
    widening: float | None = None,
    excess_risk: float | None = None,
    components: int | None = None,
    levels: tuple[int, ...] = (),
    declared: bool = True,
    sampling: float | None = None,
    hidden: tuple[int, ...] | None = None,
    curve: bool = True,
) -> Planned:
    """Return the settings of a private fit and what it is expected to cost, from public numbers.

    Parameters
    ----------
    model
        Its name in the shell: linear, logistic, mixture and so on (`dpsep.registry`).
    records
        N; None to find it from epsilon and a target.
    features
        Columns of the design, indicators of categories counted one by one.
    epsilon, delta
        The budget; epsilon None to find it from a target.
    relation
        Whose privacy.
    widening, excess_risk
        The target: most widening of intervals, or most loss of log predictive density, nats a record.
    components
        Of a mixture.
    levels
        Indicators of each category among the features: its values less one.
    declared
        Whether bounds of the columns will be declared; otherwise a tenth of the budget finds them.
    sampling
        Rate of Poisson sampling; None for the estimator's default.
    hidden
        Hidden units of a network; None for the default.
    curve
        Whether forecasts over epsilon are made too.

    Examples
    --------
    >>> answer = plan("logistic", 5000, 10, epsilon=1.0)
    >>> answer.verdict, round(answer.forecast.widening, 1), answer.settings.steps
    ('good', 1.1, 6)
    >>> plan("linear", 5000, 5, widening=1.2).request.epsilon < 4
    True
    >>> plan("linear", 1, 5, epsilon=1.0).verdict
    'impossible'
    """
    if epsilon is None and widening is None and excess_risk is None:
        raise ValueError("give epsilon, or a target to find it from: widening or excess_risk.")
    if records is None and (epsilon is None or (widening is None and excess_risk is None)):
        raise ValueError("to find the number of records, give epsilon and a target: widening or excess_risk.")
    request = check_request(
        model, records, features, epsilon, delta, relation, components, levels, declared, sampling, hidden
    )
    met = _target(widening, excess_risk)
    if request.is_network and not (widening is None and excess_risk is None):
        raise ValueError(
            f"what privacy does to the predictions of a {model} cannot be forecast from public numbers, so "
            "there is no answer to a target. Give epsilon and records alone; the settings will be told."
        )
    found, open_end = "", ""
    if records is None:
        found = "records"
        count = least_records(request, met)
        request = replace(request, records=count or MOST_RECORDS)
        open_end = "" if count else f"no number of records up to {MOST_RECORDS:.0e} reaches the target."
    elif epsilon is None:
        found = "epsilon"
        least = least_epsilon(request, met) if feasible(request) else None
        request = replace(request, epsilon=least or MOST_EPSILON)
        open_end = "" if least else f"no epsilon up to {MOST_EPSILON:g} reaches the target."
    return _answer(request, met, found, open_end, curve=curve)


def doubt_of(planned: Planned) -> str:
    """Say why a fit by this plan cannot be relied on, and what would help; nothing where it can.

    Examples
    --------
    >>> doubt_of(plan("logistic", 20_000, 10, epsilon=1.0))
    ''
    >>> doubt_of(plan("logistic", 300, 10, epsilon=0.1))[:67]
    'the budget is too small for this table: with this noise 300 records'
    """
    if planned.verdict not in ("weak", "impossible"):
        return ""
    why = f": {planned.reasons[0].rstrip('.')}" if planned.reasons else ""
    remedies = f" What would help: {', or '.join(planned.remedies)}." if planned.remedies else ""
    said = "weak" if planned.verdict == "weak" else "too small"
    return f"the budget is {said} for this table{why}.{remedies}"


def _answer(request: Request, met: Met, found: str, open_end: str, *, curve: bool) -> Planned:
    """Settings, forecast, verdict and what would help."""
    if request.records == 1 or request.is_network:
        return _without_forecast(request, met, found)
    try:
        settings, forecast = run(request)
    except ValueError as error:
        remedies = _remedies(request, met)
        if request.sampling is not None:
            remedies = ("full batches: leave out sampling", *remedies)
        return Planned(request, None, None, "impossible", (str(error),), remedies, found, None, ())
    reasons = [open_end] if open_end else []
    crowded = request.records < FEWEST_A_WEIGHT * request.dimension
    if crowded:
        reasons.append(
            f"{request.records} records say little of {request.dimension} unknown numbers, private or not: "
            "the posterior is mostly its prior."
        )
    if forecast.of_prior > HOPELESS:
        reasons.append(
            f"with this noise {request.records} records say so little of {request.dimension} unknown numbers "
            f"that the posterior is mostly its prior: the credible interval of a typical coefficient is "
            f"{forecast.of_prior:.0%} as wide."
        )
    elif request.model == "mixture" and forecast.hidden > ALL_HIDDEN:
        reasons.append(
            f"the noise of privacy is {forecast.hidden:.2g} times what {request.records} records say of "
            f"{request.dimension} numbers."
        )
    if not open_end and not met(forecast):
        reasons.append("the target is not met at this epsilon with this number of records.")
    verdict: Verdict = "nearly free" if forecast.widening <= NEARLY_FREE else "good"
    if forecast.widening > COSTLY:
        verdict = "costly"
    if forecast.is_rough:
        verdict = "weak"
    if reasons:
        verdict = "impossible"
    elif verdict == "weak":
        reasons.append(
            f"intervals are forecast {forecast.widening:.2g} times as wide as without privacy, and "
            f"{forecast.of_prior:.0%} as wide as the prior's, which is heard; forecasts are rough here."
        )
    remedies: tuple[str, ...] = ()
    if verdict == "costly":
        reasons.append(f"intervals are forecast {forecast.widening:.2g} times as wide as without privacy.")
        remedies = _remedies(request, lambda one: met(one) and one.widening <= COSTLY)
    elif verdict in ("weak", "impossible"):
        remedies = _remedies(request, met)
    tried = [(each, try_forecast(replace(request, epsilon=each))) for each in EPSILONS] if curve else []
    points = tuple((each, one) for each, one in tried if one is not None)
    free = least_records(request, lambda one: one.widening <= NEARLY_FREE) if curve else None
    return Planned(request, settings, forecast, verdict, tuple(reasons), remedies, found, free, points)


def _target(widening: float | None, excess_risk: float | None) -> Met:
    for name, value, least in (("widening", widening, 1.0), ("excess_risk", excess_risk, 0.0)):
        if value is not None:
            number_within(name, value, least, MOST_BUDGET)

    def met(forecast: Forecast) -> bool:
        wide = widening is None or forecast.widening <= widening
        return wide and (excess_risk is None or forecast.excess_risk <= excess_risk)

    return met


def _remedies(request: Request, met: Met) -> tuple[str, ...]:
    """What would make a request possible: more budget, more records, fewer columns."""
    found: list[str] = []
    if feasible(request):
        epsilon = least_epsilon(request, met)
        if epsilon is not None and epsilon > request.epsilon:
            found.append(f"epsilon {up(epsilon)} with these records")
    records = least_records(request, met)
    if records is not None and records > request.records:
        found.append(f"{records:,} records at epsilon {up(request.epsilon)}")
    features = most_features(request, met)
    if features is not None and features < request.features:
        noun = "feature" if features == 1 else "features"
        found.append(f"at most {features} {noun} with these records at epsilon {up(request.epsilon)}")
    return tuple(found) or ("a looser target: none of more budget, more records or fewer columns reaches it",)


def _without_forecast(request: Request, met: Met, found: str) -> Planned:
    """Answer for one record, which nothing can be said of, or for a network, whose settings can be told."""
    if request.records == 1:
        reason = "one record cannot be described and hidden at once: whatever is said is said of it."
        count = None if request.is_network or found else least_records(request, met)
        remedy = f"{count:,} records at epsilon {up(request.epsilon)}" if count else "many more records"
        return Planned(request, None, None, "impossible", (reason,), (remedy,), found, None, ())
    try:
        settings = network_settings(request)
    except ValueError as error:
        remedies = ("another epsilon, delta or relation",)
        return Planned(request, None, None, "impossible", (str(error),), remedies, found, None, ())
    reasons: list[str] = []
    if request.records < request.dimension:
        reasons.append(f"{request.records} records for {request.dimension} weights: expect little.")
    reasons.append(
        "what noise does to a network's predictions is not known in closed form: no widening or risk is "
        "forecast. The settings are those that the estimator will use."
    )
    remedies = ("measuring on public or made data of this shape (`dpsep bench`)",)
    return Planned(request, settings, None, "not forecast", tuple(reasons), remedies, found, None, ())


def _fields(part: Any) -> dict[str, Any] | None:
    return None if part is None else {name: _plain(value) for name, value in part._asdict().items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
