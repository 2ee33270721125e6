"""What every estimator here does about privacy: checks its budget, warns of leaks, states what was spent."""

import math
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpsep.data import as_matrix
from dpsep.estimators.input_checks import Structure, check_names, is_known, table_shape
from dpsep.estimators.pipeline_leaks import upstream_leaks
from dpsep.estimators.statement import PrivacyStatement, statement
from dpsep.fit import Spend, fit_private
from dpsep.privacy import hosts
from dpsep.privacy.checkpoint import Checkpoint
from dpsep.privacy.leaks import (
    LARGE_EPSILON,
    PrivacyLeakWarning,
    large_delta,
    large_epsilon,
    seeded_noise,
    unknown_container,
    warn_leak,
)
from dpsep.privacy.ledger import Ledger, as_ledger
from dpsep.privacy.ledger_connection import guarded
from dpsep.privacy.mechanism import Relation
from dpsep.privacy.record_sources import Records
from dpsep.privacy.sampling import FullBatch, PoissonSampling, Sampling
from dpsep.recipe import Recipe
from dpsep.registry import Words
from dpsep.theory.glm_defaults import WeakBudgetWarning

MOST_NUMBER = 1e100
"""Largest number that a parameter may be; smaller ones than its inverse are no clips."""


class UnusableRowsWarning(UserWarning):
    """Many rows of a private fit could not be used, as far as a released number tells."""


class _Unprinted:
    """A parameter that may be a URL: scikit-learn prints parameters, and a password is not for print."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, estimator: object | None, owner: type) -> Any:
        return None if estimator is None else vars(estimator).get(self._name)

    def __set__(self, estimator: object, value: Any) -> None:
        vars(estimator)[self._name] = guarded(value)


class PrivateEstimator(BaseEstimator):
    """Base of all estimators; its parameters are those that concern privacy, named by each of them."""

    words: ClassVar[Words]
    epsilon: float
    delta: float
    private: bool
    sampling: Any
    method: Any
    steps: int | None
    clip: float | None
    relation: Relation
    noise_aware: bool
    ledger: Any = _Unprinted()
    checkpoint: Any
    random_state: int | None
    strict: bool
    _methods = ("sep", "ep", "adf")
    _private_methods = ("sep",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "ledger" in vars(cls):  # the default of a dataclass, which would hide what keeps it from print
            cls.ledger = vars(PrivateEstimator)["ledger"]

    def _check_privacy(self) -> None:
        """Raise ValueError where the budget, the method or the sampling is not one."""
        for name, value in self.get_params(deep=False).items():
            for part in value if isinstance(value, list | tuple) else (value,):
                if isinstance(part, int) and abs(part) > MOST_NUMBER:
                    raise ValueError(
                        f"{name} is beyond {MOST_NUMBER:g}; give a number that a computer counts with."
                    )
        if self.private:
            if self.epsilon is None:
                raise ValueError("epsilon=None is not a budget; give a number, or private=False for none.")
            if not isinstance(self.epsilon, Real) or not 0 < float(self.epsilon) < math.inf:
                raise ValueError(f"epsilon must be a positive number, not {self.epsilon!r}.")
            if not isinstance(self.delta, Real) or not 0 < float(self.delta) < 1:
                raise ValueError(f"delta must lie in (0, 1), not {self.delta!r}; below 1/N is usual.")
            if self.method in self._methods and self.method not in self._private_methods:
                raise ValueError(
                    f"method={self.method!r} cannot be made private: its factors depend on each other's "
                    f"records. Use method={' or '.join(map(repr, self._private_methods))}, or private=False."
                )
        if self.method not in self._methods:
            raise ValueError(f"method must be one of {', '.join(self._methods)}, not {self.method!r}.")
        if self.steps is not None and (not isinstance(self.steps, Integral) or self.steps < 1):
            raise ValueError(f"steps must be a whole number of at least 1, not {self.steps!r}.")
        clip = 1.0 if self.clip is None else float(self.clip)
        if not (clip >= 1 / MOST_NUMBER or (not self.private and clip == 0)):
            raise ValueError(f"clip must be positive, and not below {1 / MOST_NUMBER:g}, not {self.clip!r}.")
        self._sampling()

    def _sampling(self) -> Sampling:
        if isinstance(self.sampling, Sampling):
            return self.sampling
        if self.sampling == "full":
            return FullBatch()
        if isinstance(self.sampling, Real) and 0 < float(self.sampling) <= 1:
            return PoissonSampling(float(self.sampling))
        raise ValueError(
            f"sampling must be 'full', a rate in (0, 1], or a scheme of dpsep.privacy.sampling, "
            f"not {self.sampling!r}."
        )

    def _private_fit(
        self,
        recipe: Callable[..., Recipe],
        records: Callable[[], Records],
        on_step: Callable[[int, int], None] | None,
        **changes: Any,
    ) -> tuple[Any, Spend]:
        """Run a recipe by this estimator's budget, ledger and checkpoint; return its result and its cost.

        Parameters
        ----------
        recipe
            Makes the recipe from a budget: epsilon, delta, relation and sampling.
        changes
            Of the budget.
        """
        if self.checkpoint is not None and hosts.several():
            raise ValueError(
                "a run of several processes cannot be resumed, and checkpoint is given; leave it out. What "
                "such a run is charged stays on the ledger."
            )
        with hosts.together():
            # Of several processes the first has the ledger; the others wait for its word.
            ledger = as_ledger(self.ledger) if hosts.leads() else None
        budget: dict[str, Any] = {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "relation": cast(Relation, self.relation),
            "sampling": self._sampling(),
        }
        made = recipe(**budget | changes)
        if made.doubt:
            warnings.warn(made.doubt, WeakBudgetWarning, stacklevel=4)
        return fit_private(
            made,
            records,
            ledger=cast(Ledger | None, ledger),
            checkpoint=None if self.checkpoint is None else Checkpoint(self.checkpoint),
            seed=self.random_state,
            on_step=on_step,
        )

    def _keep_names(self, shape: Structure) -> None:
        """Keep the number and the names of the columns, as scikit-learn does."""
        self.n_features_in_ = shape.features
        if shape.names is not None:
            self.feature_names_in_ = np.asarray(shape.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _new_rows(self, X: Any) -> NDArray[np.float64]:
        """Return rows to predict, checked against the columns of the fit."""
        check_is_fitted(self)
        table_shape(X)
        matrix, names = as_matrix(X)
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None:
            check_names(list(names), list(known))
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        if not np.isfinite(matrix).all():
            raise ValueError("Input X contains NaN or infinity.")
        return matrix

    def _keep_path(self, spend: Spend | None, names: Sequence[str] | None) -> None:
        """Keep what a private fit released on its way (`release_trace`); None without privacy."""
        self.path_: dict[str, Any] | None = None
        if spend is not None:
            self.path_ = spend.path.described(names, noise_aware=bool(self.noise_aware))

    def _collect_leaks(self, warn: Callable[[], None]) -> tuple[str, ...]:
        """Warn of leaks, and return what was warned of, for the statement."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyLeakWarning)
            warn()
        for item in caught:
            warnings.warn(item.message, item.category, stacklevel=3)
        return tuple(str(item.message) for item in caught if issubclass(item.category, PrivacyLeakWarning))

    def _warn_of_container(self, y: Any) -> None:
        """Warn of a target that becomes an array by its own code."""
        if self.private and not is_known(y):
            warn_leak(unknown_container("the target", type(y).__name__), strict=self.strict)

    def _warn_of_settings(self, shape: Structure) -> None:
        """Warn of a budget that promises little, of seeded noise and of what stands around the fit."""
        if not self.private:
            return
        if shape.container is not None:
            warn_leak(unknown_container("X", shape.container), strict=self.strict)
        if self.epsilon > LARGE_EPSILON:
            warn_leak(large_epsilon(float(self.epsilon)), strict=self.strict)
        if self.delta > 1.0 / shape.records:
            warn_leak(large_delta(float(self.delta), shape.records), strict=self.strict)
        if self.random_state is not None:
            warn_leak(seeded_noise(), strict=self.strict)
        for message in upstream_leaks(self):
            warn_leak(message, strict=self.strict)


def mark_score(tags: Any, *, private: bool) -> Any:
    """Tell scikit-learn's checks not to expect a good score of a private fit of their few records."""
    for part in (tags.classifier_tags, tags.regressor_tags):
        if part is not None:
            part.poor_score = private
    return tags


def statement_of(spend: Spend, leaks: tuple[str, ...]) -> PrivacyStatement:
    """Return the statement of a finished private fit."""
    return statement(
        spend.permit,
        spend.schedule,
        epsilon=spend.epsilon,
        scaling=spend.scaling,
        secure=spend.secure,
        unit=spend.unit,
        names=spend.names,
        leaks=leaks,
        doubt=spend.doubt,
    )


def sampling_of(estimator: PrivateEstimator) -> Sampling:
    """Return the sampling that was asked for, as a scheme."""
    return estimator._sampling()
