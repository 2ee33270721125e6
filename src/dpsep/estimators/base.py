"""What all estimators of linear weights share: parameters, the order of a fit, the posterior in table units.

An estimator checks public structure, hands records to `dpsep.estimators.run` and keeps what came back:
`posterior_`, `privacy_`, `coef_`, `intercept_`. With ``private=False`` it is the same method without privacy.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Literal, Self

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpsep.estimators import other_methods
from dpsep.estimators.columns import table_outcome
from dpsep.estimators.documented import inherit_parameters
from dpsep.estimators.input_checks import (
    Structure,
    check_cells,
    check_finite,
    check_numbers,
    coding,
    declared_scaling,
    structure_of,
)
from dpsep.estimators.large import by_pieces, coded, records_of, whole_records
from dpsep.estimators.posterior import Posterior, to_original
from dpsep.estimators.predictive import LinearDraws
from dpsep.estimators.private import UnusableRowsWarning, statement_of
from dpsep.estimators.rows import log_predictive
from dpsep.estimators.run import Result, Task, open_stages, recipe_of
from dpsep.estimators.statement import PrivacyStatement
from dpsep.estimators.summary import Summary
from dpsep.estimators.units import Units
from dpsep.families.columns import Columns
from dpsep.fit import Spend, fit_open
from dpsep.privacy.gate import Records
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.sampling import Sampling
from dpsep.recipe import Recipe
from dpsep.registry import find
from dpsep.theory.glm_defaults import Defaults
from dpsep.theory.planner import doubt_of, plan

Array = NDArray[np.float64]

MANY = 0.1
"""Share of unusable rows from which on they are told of."""


def likelihood_of(kind: Any, parameters: Mapping[str, Any], *, narrow: bool) -> Any:
    """Return a likelihood; those of its fields that are parameters of the estimator take their values.

    Parameters
    ----------
    narrow
        Whether predictors vary by less than one under every cavity, so that the fast quadrature will do.
    """
    names = [field.name for field in fields(kind)]
    known: dict[str, Any] = {name: float(parameters[name]) for name in names if name in parameters}
    if "rule" in names:
        known["rule"] = "fast" if narrow else "robust"
    return kind(**known)


@dataclass(eq=False, repr=False)
class LinearWeights(Units, LinearDraws):
    """Base of the estimators whose predictor is linear in the features.

    A regression is a dataclass: its fields are the constructor's parameters, and these class variables say
    what it is.

    - ``likelihood``: a class of `dpsep.models`; those of its fields that are parameters take their values;
    - ``target``: the kind of its targets (`dpsep.estimators.targets`);
    - ``defaults``: what its fits and their forecasts start from (`dpsep.theory.glm_defaults.Defaults`);
    - ``words``: what a report says of it;
    - ``wire``: the number that its likelihood travels by in a federation, given once and for all.

    Parameters
    ----------
    epsilon, delta
        The privacy budget of one fit.
    private
        False: the same method without privacy. (``epsilon=None`` is an error, not a way to say this.)
    bounds
        Public bounds of the features: a pair (low, high), each a number or one number a column. Cells beyond
        are clamped. Without bounds, location and scale are estimated privately, inside epsilon.
    unit
        Whose privacy is counted: ``"record"`` protects each row by itself; any other word, such as
        ``"person"``, all rows that carry one label of ``fit(X, y, groups=labels)`` together. Intervals then
        allow for rows of a person that go together.
    groups
        The declared labels of persons (or what `unit` names), or their number, for codes 0, 1, ... A row of
        another label counts nowhere. Without privacy they may be left out and are read off the table.
    rows_per_group
        How many rows of a person take part, its first ones; later ones are dropped.
    fit_intercept
        Whether to fit an intercept.
    prior_scale
        Prior standard deviation of the effect of one standard deviation of a column (found privately, inside
        epsilon), on the predictor; of a linear regression in units of the reach of the target's bounds. The
        intercept's is ten times that. It is weakly informative: 2.5 on the log odds multiplies odds by 12.
    relation
        Neighbouring data sets: ``"zero-out"`` or ``"replace-one"``.
    sampling
        ``"full"`` (every record in every release) or a rate in (0, 1] for Poisson sampling.
    method
        ``"sep"``; without privacy also ``"ep"`` and ``"adf"``.
    update
        ``"stable"``, or ``"natural"`` for the paper's own update (Algorithm 3).
    clip
        Cap of a record's score, as a multiple of that of a record with average columns: records above it
        weigh less. None chooses it from released counts, and means no cap without privacy (a number there
        clips local factors at that multiple of their natural size). With the natural update: the paper's C.
    steps
        Releases of the fit's last stage; None chooses it. Without privacy: most iterations.
    gamma
        The paper's damping value; used by the natural update only.
    noise_aware
        Whether the posterior is widened by the known noise of privacy.
    ledger
        A `dpsep.Ledger`, or the path or URL of one; the fit is charged to it before a record is read. A
        search fits many times: with a ledger every fit of it is charged, without one a warning says what they
        cost.
    checkpoint
        A folder for released vectors, so that a run that died can be resumed by fitting again. One folder
        a fit: with that of a finished run its releases are used again; none is made and nothing is charged.
    random_state
        A seed makes a private run reproducible and marks it not for release.
    strict
        Whether leaks outside the guarantee are errors instead of warnings.

    Attributes
    ----------
    posterior_
        Of the coefficients.
    privacy_
        What was spent; None without privacy.
    usable_rows_, usable_rows_sd_
        Released number of rows (of persons, where `unit` is one) that could be used, and its standard
        deviation; None without privacy.
    n_records_
        Number of rows, or persons, that this is of.

    Examples
    --------
    >>> from dpsep import LinearRegression, LogisticRegression
    >>> issubclass(LogisticRegression, LinearWeights)
    True
    >>> sorted(set(LogisticRegression().get_params()) - set(LinearRegression().get_params()))
    ['classes']
    """

    likelihood: ClassVar[Any]
    target: ClassVar[Any]  # pyright: ignore[reportIncompatibleVariableOverride]
    defaults: ClassVar[Defaults] = Defaults()
    wire: ClassVar[int]

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    private: bool = True
    bounds: Any = None
    unit: str = "record"
    groups: Any = None
    rows_per_group: int | None = None
    fit_intercept: bool = True
    prior_scale: float = 2.5
    relation: Relation = "zero-out"
    sampling: Literal["full"] | float = "full"
    method: Literal["sep", "ep", "adf"] = "sep"
    update: Literal["stable", "natural"] = "stable"
    clip: float | None = None
    steps: int | None = None
    gamma: float = 1.0
    noise_aware: bool = True
    ledger: Any = None
    checkpoint: Any = None
    random_state: int | None = None
    strict: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherit_parameters(cls)

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, on_step: Callable[[int, int], None] | None = None
    ) -> Self:
        """Fit the posterior; under privacy, charge first. There are no weights of records.

        Parameters
        ----------
        X
            Features: a NumPy array, a pandas, polars or Arrow table, or columns of a table that is larger
            than memory (`dpsep.data.scan`).
        y
            Target, one value a row.
        groups
            Label of each row: which rows are of one person, where `unit` is not ``"record"``.
        on_step
            Called with the number of releases made and their total, for progress bars.
        """
        if self._by_record:
            shape = structure_of(X, y, private=self.private)
            self._check_parameters()
        else:
            self._check_parameters()
            shape = self._structure(X, y, groups, f"unit={self.unit!r}")
        if self._by_record and groups is not None:
            raise ValueError(
                "fit was given groups, and unit='record' protects each row by itself: to protect all rows of "
                "a group together give unit='person' (or another word), groups and rows_per_group to the "
                "estimator; else leave groups out of fit."
            )
        leaks = self._collect_leaks(lambda: self._warn_of_leaks(shape, y, groups))
        task = self._task(shape)
        self._keep_names(shape)
        if self.private:
            spend = self._fit_private(task, lambda: self._records(X, y, groups), on_step)
            self.privacy_: PrivacyStatement | None = statement_of(spend, leaks)
        else:
            check_cells(X)
            records = self._open_records(X, y)
            self._check_records(*records)
            if not self._by_record:
                records = self._together(records, groups)
            self._keep(self._fit_open(task, records))
            self._keep_path(None, None)
            self.privacy_ = None
        return self

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log predictive density (or probability) of each row's target."""
        check_is_fitted(self)
        return by_pieces(self._log_density, X, coded(y, self._target))

    def _log_density(self, X: Any, y: Array) -> Array:
        mean, variance = self._predictor(X)
        with jax.enable_x64(True):
            return np.asarray(self._log_predictive(mean, variance, y))

    # What a kind of regression fills in.

    def _likelihood(self, *, narrow: bool) -> Any:
        """Return the likelihood; with `narrow`, predictors vary by less than one."""
        return likelihood_of(self.likelihood, self.get_params(deep=False), narrow=narrow)

    def _outcomes(self, *, narrow: bool) -> Any:
        """Return the law of new targets, as it was learned."""
        return self._likelihood(narrow=narrow)

    def _outcome_scaling(self) -> Columns | None:
        return self.target.scaling(self)

    def _target(self, y: Any) -> Array:
        return self.target.convert(y, self)

    def _log_predictive(self, mean: Any, variance: Any, y: Array) -> Any:
        narrow = bool(np.max(variance, initial=0.0) <= 1.0)
        return log_predictive(self._outcomes(narrow=narrow), mean, variance, y)

    def _warn_of_leaks(self, shape: Structure, y: Any, groups: Any = None) -> None:
        """Warn from structure; a classifier also settles its classes here."""
        if not self.target.is_label:
            check_numbers(y)
        self._warn_of_container(y)
        if groups is not None:
            self._warn_of_container(groups)
        self._warn_of_settings(shape)

    def _check_records(self, X: Array, y: Array) -> None:
        """Without privacy, bad cells are errors."""
        check_finite(X, y)
        self.target.check(y)

    # Shared steps.

    def _task(self, shape: Structure) -> Task:
        features = None
        if self.bounds is not None:
            features = declared_scaling(self.bounds, shape.features, "the features")
        # With this many records a weight, predictors vary by less than one under every cavity.
        narrow = shape.records >= 20 * (shape.features + 1)
        likelihood = self._likelihood(narrow=narrow)
        return Task(
            likelihood=likelihood,
            records=shape.records,
            features=shape.features,
            intercept=bool(self.fit_intercept),
            feature_scaling=features,
            outcome_scaling=self._outcome_scaling(),
            prior_scale=float(self.prior_scale),
            clip=self._clip(),
            steps=None if self.steps is None else int(self.steps),
            curvature=float(likelihood.curvature_guess),
            cap=2.0,
            reach=self.defaults.reach,
            spare=self.defaults.spare,
            cut=self.defaults.cut,
            classes=self._coding(),
            offset=self._offset_place(shape),
            unit=self.unit,
            places=0 if self._by_record else self._rows(),
        )

    def _coding(self) -> str:
        """How labels and groups are coded, in words: a resumed run must code them alike."""
        labels = [] if self._by_record else [f"{self.groups_.dtype.str} {self.groups_.tolist()!r}"]
        return " ".join([*labels, *([coding(self)] if self.target.is_label else [])])

    def _offset_place(self, shape: Structure) -> int | None:
        """Place of the column whose coefficient is one, where there is one."""
        del shape
        return None

    def _clip(self) -> float | None:
        """The clip asked for; without privacy an infinite one is none at all, in every block."""
        if self.clip is None or (not self.private and math.isinf(self.clip)):
            return None
        return float(self.clip)

    def _records(self, X: Any, y: Any, groups: Any = None) -> Records:
        records = records_of(X, y, self._target)
        return records if self._by_record else self._together(records, groups)

    def _open_records(self, X: Any, y: Any) -> Records:
        """Records of a fit without privacy, which may need them all at once."""
        if self.method != "sep":
            what = f"method={self.method!r} (method='sep' does not)"
        elif self.update == "natural":
            what = "update='natural' without privacy (update='stable' does not)"
        else:
            return records_of(X, y, self._target)
        return whole_records(what, X, y, self._target)

    def _fit_private(
        self,
        task: Task,
        records: Callable[[], Records],
        on_step: Callable[[int, int], None] | None,
        **changes: Any,
    ) -> Spend:
        """Fit records that are here, or at the sites of a federation, and keep the result."""
        natural = self._natural()
        made = partial(recipe_of, task, natural=natural)

        def recipe(**budget: Any) -> Recipe:
            return made(**budget)._replace(doubt="" if natural is not None else self._doubt(task, **budget))

        result, spend = self._private_fit(recipe, records, on_step, **changes)
        self._keep(result)
        self.n_records_ = task.records if result.usable is None else result.usable[2]
        self._keep_path(spend, self.posterior_.names)
        if self._usable_words():
            warnings.warn(self._usable_words(), UnusableRowsWarning, stacklevel=3)
        return spend

    def _usable_words(self) -> str:
        """Say so where a tenth of the rows or more, and more than noise explains, could not be used."""
        if self.usable_rows_ is None:
            return ""
        records, count, deviation = self.n_records_, max(self.usable_rows_, 0.0), self.usable_rows_sd_
        if records - count <= max(MANY * records, 4.0 * deviation):
            return ""
        unit, others = "row", "in the others"
        if not self._by_record:
            unit, others = self.unit, "in all rows of the others"
        return (
            f"about {count:,.0f} (give or take {deviation:,.0f}) of {records:,} {unit}s could be used: "
            f"{others} a cell is missing or is no number, or the target is not one that was declared. The "
            "number was released inside epsilon; `dpsep check` tells the owner of the table why."
        )

    def summary(self, level: float = 0.9) -> Summary:
        """Return a table of the posterior, and say below it what a reader must know of it.

        Parameters
        ----------
        level
            Of the central intervals.
        """
        found = super().summary(level)
        found.note = " ".join(filter(None, (found.note, *self._notes())))
        return found

    def _notes(self) -> tuple[str, ...]:
        """What is said below a summary."""
        return (self._usable_words(),)

    def _doubt(
        self, task: Task, *, epsilon: float, delta: float, relation: Relation, sampling: Sampling
    ) -> str:
        """Say why too little is to be expected of this budget; nothing where it is enough, or not one."""
        entry = next(filter(None, (find(kind.__name__) for kind in type(self).__mro__)), None)
        if entry is None:
            return ""
        rate = sampling.expected_batch(task.records) / task.records
        try:
            planned = plan(
                entry.name,
                task.records,
                task.features,
                epsilon=epsilon,
                delta=delta,
                relation=relation,
                sampling=rate if rate < 1 else None,
                declared=task.feature_scaling is not None and task.outcome_scaling is not None,
                curve=False,
            )
        except ValueError:  # what is wrong with the call, the fit says itself
            return ""
        return doubt_of(planned)

    def _fit_open(self, task: Task, records: tuple[Array, Array]) -> Result:
        if self.method != "sep" or self.update == "natural":
            return other_methods.fit(
                task, records, method=self.method, natural=self._natural(), seed=self.random_state
            )
        return fit_open(open_stages(task), records)

    def _natural(self) -> float | None:
        """The paper's gamma where its own update is asked for."""
        return float(self.gamma) if self.update == "natural" else None

    def _check_parameters(self) -> None:
        self._check_privacy()
        self._check_units()
        if not self._by_record and (self.update == "natural" or self.method != "sep"):
            raise ValueError(
                f"unit={self.unit!r} needs update='stable' and method='sep'; use these, or unit='record'."
            )
        if self.update not in ("stable", "natural"):
            raise ValueError(f"update must be 'stable' or 'natural', not {self.update!r}.")
        if self.private and self.clip is not None and not math.isfinite(self.clip):
            raise ValueError(f"clip must be a finite number, or None, not {self.clip!r}.")
        if not float(self.prior_scale) > 0:
            raise ValueError(f"prior_scale must be positive, not {self.prior_scale!r}.")

    def _keep(self, result: Result) -> None:
        names = tuple(str(name) for name in getattr(self, "feature_names_in_", ()))
        names = names or tuple(f"x{i}" for i in range(self.n_features_in_))
        if self.fit_intercept:
            names = ("intercept", *names)
        covariance = result.covariance
        if self.noise_aware:
            covariance = covariance + result.noise_covariance
        self.posterior_: Posterior = to_original(
            names,
            result.mean,
            covariance,
            result.noise_covariance,
            result.features,
            table_outcome(self.likelihood, result.outcome),
            result.noise,
            intercept=bool(self.fit_intercept),
            prior=result.prior_deviation,
        )._replace(noise_aware=bool(self.noise_aware))
        self.feature_bounds_ = np.stack([np.asarray(result.features.low), np.asarray(result.features.high)])
        self.n_iter_ = result.steps
        self.usable_rows_, self.usable_rows_sd_ = (result.usable or (None, 0.0))[:2]
        skip = int(self.fit_intercept)
        coef, intercept = self.posterior_.mean[skip:], self.posterior_.mean[:1] if skip else np.zeros(1)
        if self.target.is_label:
            self.coef_, self.intercept_ = coef[None, :], intercept
        else:
            self.coef_, self.intercept_ = coef, float(intercept[0])

    def _predictor(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the linear predictor of each row, in the target's units."""
        return by_pieces(self._moments, X)

    def _moments(self, X: Any) -> tuple[Array, Array]:
        matrix = self._design(X)
        mean = matrix @ self.posterior_.mean
        # Row sums of (X F)^2 with F the covariance's factor: never negative.
        values, vectors = np.linalg.eigh(self.posterior_.covariance)
        spread = matrix @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        return mean, np.sum(spread**2, axis=1)


# What the federation asks of an estimator whose rows are elsewhere.


def prepare(model: LinearWeights, shape: Callable[[], Structure]) -> tuple[str, ...]:
    """Check a model's parameters, then keep the columns' names; return what was warned of."""
    model._check_parameters()
    if not model._by_record:
        raise ValueError(
            f"unit={model.unit!r}: the sites of a federation protect single records; use unit='record', with "
            "one row a person at each site, or fit where all rows are."
        )
    structure = shape()
    leaks = model._collect_leaks(lambda: model._warn_of_leaks(structure, np.empty(0, object)))
    model._keep_names(structure)
    return leaks


def task_of(model: LinearWeights, shape: Structure) -> Task:
    """Return the public description of a model's fit."""
    return model._task(shape)


def fit_task(
    model: LinearWeights,
    task: Task,
    records: Callable[[], Records],
    on_step: Callable[[int, int], None] | None,
    **changes: Any,
) -> Spend:
    """Fit through the gate that the records bring, by a budget with these changes, and keep the result."""
    return model._fit_private(task, records, on_step, **changes)


def keep_result(model: LinearWeights, result: Result) -> None:
    """Keep a result that was made of no releases of this process."""
    model._keep(result)
    model._keep_path(None, None)
