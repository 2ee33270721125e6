"""What stands around a fit: transformers that learned before it, searches that repeat it.

A fit knows its table, not where the table comes from. scikit-learn's pipelines and searches are on the call
stack while they fit, though, so their names, steps and parameters can be read there. What happened before the
call (a scaler fitted by hand) leaves no trace and cannot be found.

A transformer has learned from records if fitting gave it attributes of its own, by scikit-learn's convention
of names that end in an underscore. Exempt are those that say they need no fit (`FunctionTransformer`,
`Normalizer`, any with ``requires_fit=False`` in its tags), those that were frozen, and those whose settings
declare all they would learn, such as `OneHotEncoder` with categories.

**Privacy.** Names of attributes, parameters and modules are read, and no value that was learned. Folds
overlap, so a search spends the sum over all its fits, which is what a ledger adds up. (A search goes on after
a refused fit unless it is told ``error_score="raise"``; nothing is read either way.)
"""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, SplineTransformer
from sklearn.utils import get_tags

from dpsep.privacy import leaks

_REPEAT = ("model_selection", "calibration", "ensemble", "feature_selection", "multiclass", "multioutput")
"""Rooms of scikit-learn that fit an estimator more than once."""
_SCORE = ("model_selection", "calibration", "feature_selection")
"""Those that predict records held out of a fit."""
_CODED = ("decision_function", "predict_proba", "predict_log_proba")
"""Methods for which `cross_val_predict` codes labels."""
_SHAPE = {"n_features_in_", "feature_names_in_", "n_output_features_"}
"""Attributes that follow from a table's shape."""


class Upstream(NamedTuple):
    """What was found around a fit.

    Attributes
    ----------
    learned
        Transformers that learned from the records, as "name (type)".
    encoders
        Those of them that learned categories only.
    repeated, scored
        What repeats the fit, and what scores held-out records: the outermost class or function, or None.
    bootstrap
        What draws rows with replacement, or None.
    """

    learned: tuple[str, ...]
    encoders: tuple[str, ...]
    repeated: str | None
    scored: str | None
    bootstrap: str | None


def upstream() -> Upstream:
    """Return what stands around the fit that calls this."""
    found: list[tuple[str, Any]] = []
    repeated = scored = bootstrap = None
    known: set[int] = set()
    for frame in _frames():
        owner = frame.f_locals.get("self", frame.f_locals.get("ensemble"))
        if id(owner) not in known:
            known.add(id(owner))
            found += _before(frame, owner)
        room = frame.f_globals["__name__"].split(".")[1]
        if room not in _REPEAT:
            continue
        name = frame.f_code.co_name.lstrip("_") if owner is None else type(owner).__name__
        repeated = name
        if room in _SCORE:
            scored = name
        if getattr(owner, "bootstrap", False) is True:
            bootstrap = name
    steps = [(f"{name} ({type(step).__name__})", step) for name, step in found if _learns(step)]
    encoders = tuple(text for text, step in steps if isinstance(step, _ENCODERS))
    learned = tuple(text for text, step in steps if not isinstance(step, _ENCODERS))
    return Upstream(learned, encoders, repeated, scored, bootstrap)


def label_coder() -> str | None:
    """Name what codes labels as 0, 1, ... around the fit that calls this, if anything does."""
    for frame in _frames():
        owner, function = frame.f_locals.get("self"), frame.f_code.co_name
        if isinstance(owner, VotingClassifier | StackingClassifier):
            return type(owner).__name__
        if function in ("cross_val_predict", "_fit_and_predict") and frame.f_locals["method"] in _CODED:
            return "cross_val_predict"
    return None


def upstream_leaks(estimator: Any) -> Iterator[str]:
    """Texts of what leaks around the private fit that calls this."""
    around = upstream()
    if around.learned:
        yield leaks.learned_upstream(around.learned)
    if around.encoders:
        yield leaks.undeclared_categories(around.encoders)
    if around.repeated is not None and estimator.ledger is None:
        yield leaks.uncounted_fits(around.repeated, float(estimator.epsilon), float(estimator.delta))
    if around.scored is not None:
        yield leaks.scored_records(around.scored, stratified=is_classifier(estimator))
    if around.bootstrap is not None:
        yield leaks.repeated_records(around.bootstrap)


def _frames() -> Iterator[FrameType]:
    """The frames of scikit-learn's on the call stack, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("sklearn."):
            yield frame
        frame = frame.f_back


def _before(frame: FrameType, owner: Any) -> list[tuple[str, Any]]:
    """Transformers that this frame's owner has fitted before what it fits now."""
    if isinstance(owner, TransformedTargetRegressor):
        return list(_parts("the target's transformer", getattr(owner, "transformer_", None)))
    if not isinstance(owner, Pipeline):
        return []
    # The last step is fitted by `fit`, all others by `_fit`, which counts them.
    place = frame.f_locals.get("step_idx", len(owner.steps) - 1)
    return [part for name, step in owner.steps[:place] for part in _parts(name, step)]


def _parts(name: str, step: Any) -> Iterator[tuple[str, Any]]:
    """A transformer, or those that it is made of."""
    if isinstance(step, Pipeline):
        inside = step.steps
    elif isinstance(step, FeatureUnion):
        inside = step.transformer_list
    elif isinstance(step, ColumnTransformer):
        inside = [part[:2] for part in getattr(step, "transformers_", step.transformers)]
    else:
        yield name, step
        return
    for inner, part in inside:
        yield from _parts(f"{name}.{inner}", part)


def _learns(step: Any) -> bool:
    if step is None or isinstance(step, str | FrozenEstimator) or not hasattr(step, "__dict__"):
        return False
    if any(isinstance(step, kind) and declares(step) for kind, declares in _DECLARED.items()):
        return False
    return _requires_fit(step) and any(
        name.endswith("_") and not name.startswith("_") for name in set(vars(step)) - _SHAPE
    )


def _requires_fit(step: Any) -> bool:
    try:
        return get_tags(step).requires_fit
    except Exception:  # a step that says nothing of itself; what it has learned is looked for all the same
        return True


def _categories_declared(step: Any) -> bool:
    auto = isinstance(step.categories, str)
    return not auto and step.min_frequency is None and step.max_categories is None


_ENCODERS = (OneHotEncoder, OrdinalEncoder)
_DECLARED: dict[type, Callable[[Any], bool]] = {
    OneHotEncoder: _categories_declared,
    OrdinalEncoder: _categories_declared,
    SplineTransformer: lambda step: not isinstance(step.knots, str),
    SimpleImputer: lambda step: (
        step.strategy == "constant" and step.keep_empty_features and not step.add_indicator
    ),
}
"""Transformers whose settings can declare all that a fit would learn, and when they do."""
