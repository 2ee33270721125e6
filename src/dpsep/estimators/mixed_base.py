"""What both mixed models share: groups, the order of a fit, the posterior in table units, predictions.

**Privacy.** With ``unit="group"`` one unit is a group with all its rows: public are the declared groups and
``rows_per_group``, and the number of rows of the table is not. Errors come from shapes and declarations.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators import mixed_records, multi_predictor_run
from dpsep.estimators.base import likelihood_of
from dpsep.estimators.documented import inherit_parameters
from dpsep.estimators.input_checks import (
    Structure,
    check_cells,
    check_finite,
    check_numbers,
    coding,
    declared_scaling,
)
from dpsep.estimators.large import records_of
from dpsep.estimators.mixed_groups import Components, group_task, noise_gamma, split
from dpsep.estimators.mixed_predict import Groups
from dpsep.estimators.mixed_records import GroupedTask
from dpsep.estimators.mixed_structure import MixedStructure
from dpsep.estimators.posterior import Posterior, to_original
from dpsep.estimators.private import statement_of
from dpsep.estimators.run import Task
from dpsep.estimators.statement import PrivacyStatement
from dpsep.estimators.targets import Target
from dpsep.fit import Spend, fit_open
from dpsep.models.concentrated_noise import ConcentratedNoise
from dpsep.models.glm import Columns
from dpsep.models.mixed import Effects
from dpsep.privacy.gate import Records
from dpsep.privacy.mechanism import Relation
from dpsep.registry import named

Array = NDArray[np.float64]


class Fitted(NamedTuple):
    """A fit, in scaled units.

    Attributes
    ----------
    mean, covariance, noise_covariance
        Of the weights: fixed effects, then (records as units) random effects group by group.
    components
        Posterior of the standard deviations.
    noise
        Shape and rate of the noise precision of a linear model.
    features, outcome
        Maps of the columns.
    steps
        Number of releases.
    """

    mean: Array
    covariance: Array
    noise_covariance: Array
    components: Components
    noise: tuple[float, float] | None
    features: Columns
    outcome: Columns
    steps: int


@dataclass(eq=False, repr=False)
class MixedEstimator(MixedStructure):
    """Base of the mixed models.

    Parameters that are not listed here are those of `dpsep.estimators.base.LinearWeights`.

    Parameters
    ----------
    family
        What the target is: see the class.
    groups
        The declared groups: their labels in a list, or their number, for codes 0, 1, ... A row of another
        group counts nowhere. Without privacy they may be left out and are read off the table.
    slopes
        Names or places of the columns whose slopes vary by group.
    random_intercept
        Whether the intercept varies by group.
    correlated
        Whether the random effects of a group are correlated; with ``unit="group"`` only.
    unit
        Whose privacy is counted: ``"record"``, or ``"group"`` or another word for what a group's rows are of.
    rows_per_group
        With ``unit="group"``: how many rows of a group take part, its first ones; later ones are dropped.

    Attributes
    ----------
    posterior_
        Of the fixed effects, in the units of the table.
    components_
        Of the logarithms of standard deviations: of each random effect per scaled unit of its column (at the
        middle of the columns' bounds), and of the noise; in the units of the target.
    random_effects_
        With ``unit="record"``: mean and standard deviation of every group's random effects, in those units,
        shape (groups, effects, 2). With ``unit="group"`` there are none: they are not released.

    Examples
    --------
    >>> from dpsep import MixedRegressor
    >>> isinstance(MixedRegressor(groups=20), MixedEstimator)
    True
    """

    family: Any = "linear"
    groups: Any = None
    _: KW_ONLY
    slopes: Any = ()
    random_intercept: bool = True
    correlated: bool = False
    unit: str = "record"
    rows_per_group: int | None = None
    epsilon: float = 1.0
    delta: float = 1e-5
    private: bool = True
    bounds: Any = None
    fit_intercept: bool = True
    prior_scale: float = 2.0
    relation: Relation = "zero-out"
    sampling: Literal["full"] | float = "full"
    clip: float | None = None
    steps: int | None = None
    noise_aware: bool = True
    ledger: Any = None
    checkpoint: Any = None
    random_state: int | None = None
    strict: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherit_parameters(cls)

    @property
    def target(self) -> Target:
        """What kind the family's targets are."""
        return self._regression().target

    def _regression(self) -> Any:
        """Return the regression of the family, which declares likelihood, targets and defaults."""
        return named(self.family).load()

    def fit(
        self, X: Any, y: Any, groups: Groups = None, *, on_step: Callable[[int, int], None] | None = None
    ) -> Self:
        """Fit the posterior; under privacy, charge first.

        Parameters
        ----------
        X
            Features: a NumPy array, a pandas or polars frame.
        y
            Target, one value a row.
        groups
            Group of each row. Left out: all rows are of one group. With ``unit="group"`` it is needed;
            without privacy, each row is its own if it is left out.
        on_step
            Called with the number of releases made and their total, for progress bars.
        """
        self._check_parameters()
        shape = self._structure(X, y, groups, "a mixed model")
        effects = self._effects(shape)
        leaks = self._collect_leaks(lambda: self._warn_of_leaks(shape, y, groups))
        self._keep_names(shape)
        if not self.private:
            check_cells(X)

        def records() -> Records:
            matrix, target = records_of(X, y, self._target)
            if not self.private:
                self._check_records(matrix, target)
            if self._by_record:
                return matrix, target, self._codes(groups, len(matrix))
            return self._together((matrix, target), groups)

        if self._by_record:
            fitted, spend = self._fit_records(shape, effects, records, on_step)
        else:
            fitted, spend = self._fit_groups(shape, effects, records, on_step)
        self._keep(fitted, effects)
        self._keep_path(spend, self.posterior_.names)
        self.privacy_: PrivacyStatement | None = None if spend is None else statement_of(spend, leaks)
        return self

    # What the family says.

    def _learned_noise(self) -> bool:
        return self._regression().defaults.learned_noise

    def _likelihood(self, *, narrow: bool) -> Any:
        if self._learned_noise():
            return ConcentratedNoise()
        return likelihood_of(self._regression().likelihood, {}, narrow=narrow)

    def _chance(self, u: Array) -> Array:
        return self._regression()._chance(self, u)

    def _outcome_scaling(self) -> Columns | None:
        return self.target.scaling(self)

    def _target(self, y: Any) -> Array:
        return self.target.convert(y, self)

    def _check_records(self, X: Array, y: Array) -> None:
        """Without privacy, bad cells are errors."""
        check_finite(X, y)
        self.target.check(y)

    def _warn_of_leaks(self, shape: Structure, y: Any, groups: Groups) -> None:
        if not self.target.is_label:
            check_numbers(y)
        self._warn_of_container(y)
        if groups is not None:
            self._warn_of_container(groups)
        self._warn_of_settings(shape)

    # The two kinds of fit.

    def _scaling(self, shape: Structure) -> Columns | None:
        if self.bounds is None:
            return None
        return declared_scaling(self.bounds, shape.features, "the features")

    def _coding(self) -> str:
        labels = f"{self.groups_.dtype.str} {self.groups_.tolist()!r}"
        return f"{labels} {coding(self)}" if self.target.is_label else labels

    def _fit_records(
        self, shape: Structure, effects: Effects, records: Any, on_step: Any
    ) -> tuple[Fitted, Spend | None]:
        wide = len(effects.alone) + len(self.groups_) * effects.random
        narrow = shape.records >= 20 * wide
        likelihood = self._likelihood(narrow=narrow)
        task = Task(
            likelihood=likelihood,
            records=shape.records,
            features=wide,
            intercept=False,
            feature_scaling=self._scaling(shape),
            outcome_scaling=self._outcome_scaling(),
            prior_scale=float(self.prior_scale),
            clip=None if self.clip is None else float(self.clip),
            steps=None if self.steps is None else int(self.steps),
            curvature=float(likelihood.curvature_guess),
            cap=2.0,
            reach=self._regression().defaults.reach,
            room=1.1,
        )
        grouped = GroupedTask(task, effects, len(self.groups_), self._coding())
        if self.private:
            result, spend = self._private_fit(partial(mixed_records.recipe_of, grouped), records, on_step)
        else:
            result, spend = fit_open(mixed_records.open_stages(grouped), records()), None
        spread = result.spread
        components = Components(
            spread.mean, spread.covariance, np.zeros_like(spread.covariance), np.eye(effects.random)
        )
        moments = (result.mean, result.covariance, result.noise_covariance)
        fitted = Fitted(*moments, components, result.noise, result.features, result.outcome, result.steps)
        return fitted, spend

    def _fit_groups(
        self, shape: Structure, effects: Effects, records: Any, on_step: Any
    ) -> tuple[Fitted, Spend | None]:
        task = group_task(
            effects,
            None if self._learned_noise() else self._likelihood(narrow=False),
            groups=shape.records,
            rows=self._rows(),
            features=self._scaling(shape),
            outcome=self._outcome_scaling(),
            prior_scale=float(self.prior_scale),
            clip=None if self.clip is None else float(self.clip),
            steps=None if self.steps is None else int(self.steps),
            reach=self._regression().defaults.reach,
            coding=self._coding(),
            unit=self.unit,
        )
        if self.private:
            result, spend = self._private_fit(partial(multi_predictor_run.recipe_of, task), records, on_step)
        else:
            result, spend = multi_predictor_run.fit_by("sep", task, records()), None
        moments, components = split(result, effects)
        noise = None
        if effects.noise:
            variance = components.covariance[-1, -1] + components.noise_covariance[-1, -1]
            noise = noise_gamma(components.mean[-1], variance)
        fitted = Fitted(*moments, components, noise, result.features, result.outcome, result.steps)
        return fitted, spend

    # The result, in the units of the table.

    def _keep(self, fitted: Fitted, effects: Effects) -> None:
        columns = tuple(str(name) for name in getattr(self, "feature_names_in_", ()))
        columns = columns or tuple(f"x{i}" for i in range(self.n_features_in_))
        names = ("intercept", *columns) if effects.intercept else columns
        fixed = slice(0, effects.fixed)
        covariance = fitted.covariance + fitted.noise_covariance * bool(self.noise_aware)
        self.posterior_: Posterior = to_original(
            names,
            fitted.mean[fixed],
            covariance[fixed, fixed],
            fitted.noise_covariance[fixed, fixed],
            fitted.features,
            fitted.outcome,
            fitted.noise,
            intercept=effects.intercept,
        )._replace(noise_aware=bool(self.noise_aware))
        size = float(fitted.outcome.scale)
        own = fitted.components
        random = [*(["intercept"] if effects.random_intercept else []), *(columns[i] for i in effects.slopes)]
        labels = [f"sd({name})" for name in random]
        if len(own.mean) > effects.random:
            labels.append("sd(noise)")
        self.components_: Posterior = Posterior(
            tuple(labels),
            own.mean + np.log(size),
            own.covariance + own.noise_covariance * bool(self.noise_aware),
            own.noise_covariance,
        )
        spread = np.exp(self.components_.mean + np.diagonal(self.components_.covariance))[: effects.random]
        self.random_covariance_ = np.outer(spread, spread) * own.correlation
        self.weights_mean_, self.weights_covariance_ = size * fitted.mean, size**2 * covariance
        self.column_maps_ = np.stack([np.asarray(part) for part in fitted.features])
        self.feature_bounds_ = self.column_maps_[:2]
        self.outcome_centre_ = float(fitted.outcome.centre)
        self.n_iter_ = fitted.steps
        self._keep_random(effects)
        skip = int(effects.intercept)
        coef, intercept = self.posterior_.mean[skip:], self.posterior_.mean[:1] if skip else np.zeros(1)
        if self.target.is_label:
            self.coef_, self.intercept_ = coef[None, :], intercept
        else:
            self.coef_, self.intercept_ = coef, float(intercept[0])

    def _keep_random(self, effects: Effects) -> None:
        if not self._by_record:
            if hasattr(self, "random_effects_"):
                del self.random_effects_
            return
        sd = np.sqrt(np.diagonal(self.weights_covariance_))
        both = np.stack([self.weights_mean_, sd], -1)[effects.fixed :]
        self.random_effects_ = both.reshape(len(self.groups_), effects.random, 2)
