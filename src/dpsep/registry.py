"""Every estimator by name: the one table of them, which everything that serves all estimators reads.

The shell's ``--model``, the planner, the store, the report, the federation, `dpsep`'s own names and the
laboratory look here. A row says where a class is and what its target is, and loads nothing, so that
`dpsep --help` stays quick; all else is declared on the class (`words`, and of a regression `likelihood`,
`target`, `defaults`, `wire`) and is read there once `Entry.load` has imported it.

A new regression is a file and a row: CONTRIBUTING shows one.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar

__all__ = ["ENTRIES", "Entry", "Words", "find", "named", "names", "register", "regressions"]

TargetName = Literal["number", "positive", "count", "label", "none", "any"]
Class = TypeVar("Class", bound=type)


class Words(NamedTuple):
    """What an estimator is called in a report, and what one of its coefficients says there."""

    report: str
    coefficient: str = ""


class Entry(NamedTuple):
    """One estimator.

    Attributes
    ----------
    name
        In the shell and the planner, and of a mixed model's family.
    module, kind
        Where its class is.
    target
        What is predicted: a number, a positive number, a count, one of two labels, nothing; ``"any"`` where
        it depends on parameters.
    is_regression
        Whether it has one linear predictor a record (`dpsep.estimators.base.LinearWeights`). Such a model is
        planned, forecast and fitted by a federation.
    mixed
        The class of its mixed form, with effects by unit; empty where there is none.
    in_shell
        Whether ``--model`` knows it.
    """

    name: str
    module: str
    kind: str
    target: TargetName
    is_regression: bool = False
    mixed: str = ""
    in_shell: bool = True

    @property
    def has_target_bounds(self) -> bool:
        """Whether it takes bounds of its target, and scales it privately where none are declared."""
        return self.target in ("number", "positive")

    def load(self) -> Any:
        """Import the class."""
        return getattr(import_module(self.module), self.kind)


def _regression(name: str, home: str, target: TargetName, mixed: str = "") -> Entry:
    module, kind = home.split(":")
    return Entry(name, module, kind, target, is_regression=True, mixed=mixed)


ENTRIES: tuple[Entry, ...] = (
    _regression("linear", "dpsep.estimators.glm:LinearRegression", "number", "MixedRegressor"),
    _regression("logistic", "dpsep.estimators.glm:LogisticRegression", "label", "MixedClassifier"),
    _regression("probit", "dpsep.estimators.glm:ProbitRegression", "label", "MixedClassifier"),
    _regression("poisson", "dpsep.estimators.glm:PoissonRegression", "count", "MixedRegressor"),
    _regression(
        "negative-binomial", "dpsep.estimators.negative_binomial:NegativeBinomialRegression", "count"
    ),
    _regression("gamma", "dpsep.estimators.gamma:GammaRegression", "positive"),
    _regression("student", "dpsep.estimators.student:StudentRegression", "number"),
    Entry("network", "dpsep.estimators.network", "NetworkRegressor", "number"),
    Entry("network-classifier", "dpsep.estimators.network", "NetworkClassifier", "label"),
    Entry("mixture", "dpsep.estimators.mixture", "GaussianMixture", "none"),
    Entry("mixed-regressor", "dpsep.estimators.mixed", "MixedRegressor", "any", in_shell=False),
    Entry("mixed-classifier", "dpsep.estimators.mixed", "MixedClassifier", "label", in_shell=False),
    Entry("own", "dpsep.estimators.custom", "BayesianModel", "any", in_shell=False),
)
_BY_NAME = {entry.name: entry for entry in ENTRIES}
_BY_KIND = {entry.kind: entry for entry in ENTRIES}


def register(name: str) -> Callable[[Class], Class]:
    """Hold a class to its row of `ENTRIES`; a decorator.

    Examples
    --------
    >>> register("mixture")(int)
    Traceback (most recent call last):
    ValueError: dpsep.registry has dpsep.estimators.mixture:GaussianMixture for 'mixture', not builtins:int.
    """

    def held(kind: Class) -> Class:
        entry = named(name)
        if (entry.module, entry.kind) != (kind.__module__, kind.__qualname__):
            raise ValueError(
                f"dpsep.registry has {entry.module}:{entry.kind} for {name!r}, "
                f"not {kind.__module__}:{kind.__qualname__}."
            )
        return kind

    return held


def named(name: str) -> Entry:
    """Return the estimator of a name.

    Examples
    --------
    >>> named("poisson").kind, named("poisson").target
    ('PoissonRegression', 'count')
    """
    if name not in _BY_NAME:
        raise ValueError(f"no estimator is named {name!r}; there are {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]


def find(kind: str | None) -> Entry | None:
    """Return the estimator whose class has this name, or None."""
    return _BY_KIND.get(kind or "")


def names(*targets: TargetName) -> tuple[str, ...]:
    """Return the names that the shell and the planner take; with targets, of those that predict such.

    Examples
    --------
    >>> names("label")
    ('logistic', 'probit', 'network-classifier')
    """
    return tuple(
        entry.name for entry in ENTRIES if entry.in_shell and (not targets or entry.target in targets)
    )


def regressions() -> tuple[Entry, ...]:
    """Return the regressions: estimators with one linear predictor a record."""
    return tuple(entry for entry in ENTRIES if entry.is_regression)
