"""Your own model behind scikit-learn's face: a log-likelihood in, a private posterior out.

**Privacy.** As for every estimator: structure is checked, the ledger is charged, and then records are read
through the gate only (`dpsep.estimators.multi_predictor_run`). Before that the log-likelihood and its
derivatives are traced by JAX, with shapes and no records, into a program that is searched and run
(`dpsep.models.frozen`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import ClassifierTags, RegressorTags

from dpsep.estimators.custom_parts import information, keeps_zero, longest_step, rule_for, to_table
from dpsep.estimators.custom_predict import CustomPredictions
from dpsep.estimators.input_checks import (
    Structure,
    check_cells,
    check_finite,
    check_numbers,
    coding,
    declared_labels,
    declared_scaling,
    no_scaling,
    structure_of,
    structure_of_table,
)
from dpsep.estimators.large import records_of, side_by_side, whole_records
from dpsep.estimators.multi_predictor_run import MOST_WEIGHTS, LinkedResult, LinkedTask, fit_by, recipe_of
from dpsep.estimators.posterior import Posterior
from dpsep.estimators.private import mark_score, statement_of
from dpsep.estimators.statement import PrivacyStatement
from dpsep.families.columns import Columns
from dpsep.inference.release_trace import Table
from dpsep.models.custom import CustomModel, Linear, Place, Record, arrange, check_pure, weight_names
from dpsep.privacy.gate import Records
from dpsep.privacy.isolation import compiler
from dpsep.privacy.leaks import untested_compiler, warn_leak
from dpsep.privacy.mechanism import Relation
from dpsep.registry import Words, register

Array = NDArray[np.float64]

LogLikelihood = Callable[[dict[str, Any], Record], Any]


@register("own")
class BayesianModel(CustomPredictions):
    """A Bayesian model of your own.

    Parameters that are not listed here are those of `dpsep.estimators.base.LinearWeights`.

    Parameters
    ----------
    log_likelihood
        ``fn(params, record)`` in JAX, the log density of one record: ``params`` maps names to what the record
        sees of them, ``record.x`` are its cells and ``record.y`` its target (`dpsep.models.custom`).
    prior
        `dpsep.Normal`, or a standard deviation, by name: of each scaled weight of a link (2 if left out; ten
        times that for its intercept), and of every shared parameter.
    links
        Linear predictors by name, as `dpsep.Linear`.
    mean
        ``fn(params, record)``: the mean of a new target; `predict` needs it (or `sample`, or `classes`).
    sample
        ``fn(key, params, record)``: draws a new target with a JAX random key.
    classes
        Labels of the target, declared; ``record.y`` is then a label's place among them, 0, 1, ...
    factors
        How local factors are found: ``"quadrature"``, ``"qmc"`` or ``"laplace"`` (`dpsep.models.sites`);
        ``"auto"`` is the first for one or two numbers a record, the second up to 16, then the third.
    bounds
        Public bounds of the features: a pair (low, high), each a number or one number a column. Cells beyond
        are clamped. Without bounds, location and scale are estimated privately, inside epsilon.
    method
        ``"sep"``; without privacy also ``"ep"``, ``"adf"`` and ``"nuts"`` (extra ``truth``).

    Examples
    --------
    >>> def log_likelihood(params, record):          # logistic regression
    ...     return jax.nn.log_sigmoid((2 * record.y - 1) * params["u"])
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2)); y = rng.uniform(size=4000) < 1 / (1 + np.exp(-X @ [2.0, -4.0]))
    >>> model = BayesianModel(log_likelihood, links={"u": Linear()}, classes=[False, True], bounds=(-1, 1))
    >>> np.abs(model.fit(X, y).posterior_.mean[1:] - [2.0, -4.0]).max() < 1.5
    np.True_
    >>> model.predict(X[:3]).shape, [row["name"] for row in model.summary()]
    ((3,), ['intercept', 'x0', 'x1'])
    """

    words = Words("model of the user's own")
    _methods = ("sep", "ep", "adf", "nuts")

    def __init__(
        self,
        log_likelihood: LogLikelihood | None = None,
        prior: Mapping[str, Any] | None = None,
        links: Mapping[str, Linear] | None = None,
        *,
        mean: LogLikelihood | None = None,
        sample: Callable[[jax.Array, dict[str, Any], Record], Any] | None = None,
        classes: Any = None,
        factors: Literal["auto", "quadrature", "qmc", "laplace"] = "auto",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        private: bool = True,
        bounds: Any = None,
        relation: Relation = "zero-out",
        sampling: Any = "full",
        method: Literal["sep", "ep", "adf", "nuts"] = "sep",
        clip: float | None = None,
        steps: int | None = None,
        noise_aware: bool = True,
        ledger: Any = None,
        checkpoint: Any = None,
        random_state: int | None = None,
        strict: bool = False,
    ) -> None:
        self.log_likelihood = log_likelihood
        self.prior = prior
        self.links = links
        self.mean = mean
        self.sample = sample
        self.classes = classes
        self.factors = factors
        self.epsilon = epsilon
        self.delta = delta
        self.private = private
        self.bounds = bounds
        self.relation = relation
        self.sampling = sampling
        self.method = method
        self.clip = clip
        self.steps = steps
        self.noise_aware = noise_aware
        self.ledger = ledger
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.strict = strict

    @classmethod
    def from_numpyro(cls, model: Callable[..., Any], columns: int, **settings: Any) -> Self:
        """Make a model of a NumPyro function, where its structure allows (`dpsep.estimators.numpyro_input`).

        Parameters
        ----------
        model
            ``model(X, y)`` with NumPyro's `sample` statements, for any number of rows.
        columns
            Number of columns of X.
        settings
            Other parameters of this class. `mean` and `sample` are taken from the model.
        """
        from dpsep.estimators.numpyro_input import read_model

        return cls(**(read_model(model, columns)._asdict() | settings))

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what is predicted, if anything."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.classes is not None
        if self.classes is not None:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        elif self.mean is not None or self.sample is not None:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return mark_score(tags, private=self.private)

    def fit(self, X: Any, y: Any = None, *, on_step: Callable[[int, int], None] | None = None) -> Self:
        """Fit the posterior; under privacy, charge first.

        Parameters
        ----------
        X
            Features: a NumPy array, a pandas, polars or Arrow table, or columns of a table that is larger
            than memory (`dpsep.data.scan`).
        y
            Target, one value a row; may be left out where the log-likelihood does not use it.
        on_step
            Called with the number of releases made and their total, for progress bars.
        """
        without = y is None and self.classes is None
        shape = (
            structure_of_table(X, private=self.private)
            if without
            else structure_of(X, y, private=self.private)
        )
        self._check_privacy()
        leaks = self._collect_leaks(lambda: self._warn_of_leaks(shape, y))
        model = self._model(shape)
        task = self._task(shape, model)
        self._keep_names(shape)
        records: Records | None = None
        if self.private:
            result, spend = self._private_fit(partial(recipe_of, task), lambda: self._records(X, y), on_step)
            self.privacy_: PrivacyStatement | None = statement_of(spend, leaks)
        else:
            check_cells(X)
            records = self._open_records(X, y)
            check_finite(*records)
            result = fit_by(self.method, task, records, self.random_state)
            self.privacy_ = spend = None
        self._keep(result, model)
        self._keep_path(spend, self.posterior_.names)
        if records is not None:
            self._check_densities(records)
        return self

    def _warn_of_leaks(self, shape: Structure, y: Any) -> None:
        if y is not None:
            if self.classes is None:
                check_numbers(y)
            self._warn_of_container(y)
        self._warn_of_settings(shape)
        backend, version, tested = compiler()
        if self.private and not tested:
            warn_leak(untested_compiler(backend, version), strict=self.strict)
        if self.classes is not None:
            self.classes_ = declared_labels(self.classes)
        elif hasattr(self, "classes_"):
            del self.classes_

    def _model(self, shape: Structure) -> CustomModel:
        if self.log_likelihood is None:
            raise ValueError("log_likelihood is missing: give a function of (params, record) in JAX.")
        layout = arrange(self.links, self.prior, shape.features, shape.names)[0]
        model = CustomModel(self.log_likelihood, layout)
        if model.dimension > MOST_WEIGHTS:
            raise ValueError(
                f"the model has {model.dimension} weights; at most {MOST_WEIGHTS} can be fitted."
            )
        # With this many records a weight, predictors vary by less than one under every cavity (but the first
        # of assumed density filtering, which is the prior).
        narrow = shape.records >= 20 * model.dimension and self.method != "adf"
        rule = "fast" if narrow else "robust"
        return replace(model, factors=rule_for(self.factors, model.numbers), rule=rule)

    def _task(self, shape: Structure, model: CustomModel) -> LinkedTask:
        check_pure(model, shape.features)
        layout, mean, sd = arrange(self.links, self.prior, shape.features, shape.names)
        return LinkedTask(
            model=model,
            records=shape.records,
            prior_mean=mean,
            prior_sd=sd,
            information=information(layout, len(mean)),
            feature_scaling=self._feature_scaling(layout, shape.features),
            outcome_scaling=no_scaling(1),
            clip=None if self.clip is None else float(self.clip),
            steps=None if self.steps is None else int(self.steps),
            step=longest_step(layout, len(mean)),
            keep_zero=keeps_zero(layout),
            coding="" if self.classes is None else coding(self),
            shapes=((shape.features,), ()),
            table=lambda features, _: Table(to_table(layout, features), np.zeros(len(mean))),
        )

    def _feature_scaling(self, layout: tuple[Place, ...], columns: int) -> Columns | None:
        """Scaling by declared bounds; None where it is to be found."""
        if self.bounds is not None:
            return declared_scaling(self.bounds, columns, "the features")
        return no_scaling(columns) if all(place.columns is None for place in layout) else None

    def _records(self, X: Any, y: Any) -> Records:
        if y is None:
            (features,) = records_of(X)
            return features, np.broadcast_to(0.0, len(features))
        return records_of(X, y, self._target)

    def _open_records(self, X: Any, y: Any) -> Records:
        """Records of a fit without privacy, which may need them all at once."""
        if self.method == "sep":
            return self._records(X, y)
        what = f"method={self.method!r} (method='sep' does not)"
        if y is None:
            (features,) = whole_records(what, X)
            return features, np.zeros(len(features))
        return whole_records(what, X, y, self._target)

    def _keep(self, result: LinkedResult, model: CustomModel) -> None:
        columns = [str(name) for name in getattr(self, "feature_names_in_", ())]
        columns = columns or [f"x{i}" for i in range(self.n_features_in_)]
        self._layout = model.places
        matrix = to_table(self._layout, result.features)
        noise = matrix @ result.noise_covariance @ matrix.T
        covariance = matrix @ result.covariance @ matrix.T
        self.posterior_ = Posterior(
            weight_names(self._layout, columns),
            matrix @ result.mean,
            covariance + noise if self.noise_aware else covariance,
            noise,
            noise_aware=bool(self.noise_aware),
        )
        self.feature_bounds_ = np.stack([np.asarray(result.features.low), np.asarray(result.features.high)])
        self.factors_ = model.factors
        self.n_iter_ = result.steps
        if result.draws is not None:
            self.draws_ = result.draws @ matrix.T
        elif hasattr(self, "draws_"):
            del self.draws_

    def _check_densities(self, records: Records) -> None:
        """Without privacy: refuse records that the model cannot have, which a fit leaves out."""
        weights = self.posterior_.mean[None]
        densities = (self._log_likelihoods(weights, *piece) for piece in side_by_side(records))
        bad = sum(int(np.sum(~np.isfinite(found))) for found in densities)
        if bad:
            raise ValueError(
                f"log_likelihood is not finite for {bad} of {len(records[0])} records at the posterior mean; "
                "they do not belong to this model. Remove them, or mend the function."
            )
