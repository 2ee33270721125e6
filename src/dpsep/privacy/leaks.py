"""Warnings about what a call gives away, raised from its structure and never from values in the data.

Every leak that the package knows of has its text here: what it is, why it is outside the guarantee, and what
to do instead. `warn_leak` warns of it, or refuses where the user asked for `strict`; a fit lists what it
warned of in `privacy_.leaks`.

**Privacy.** The texts are made of parameters, shapes and types. None holds a value of a record.
"""

import warnings
from collections.abc import Sequence

from dpsep.privacy.shown import up

LARGE_EPSILON = 10.0
"""Above this an epsilon promises next to nothing."""


class PrivacyLeakWarning(UserWarning):
    """Something outside the guarantee depends on records, or weakens it; the message says what to do."""


class PrivacyLeakError(ValueError):
    """The same, where the user asked for `strict`."""


def warn_leak(message: str, *, strict: bool) -> None:
    """Warn of a leak, or refuse under `strict`."""
    if strict:
        raise PrivacyLeakError(message)
    warnings.warn(message, PrivacyLeakWarning, stacklevel=3)


# What is promised.


def large_epsilon(epsilon: float) -> str:
    """An epsilon that promises little."""
    return (
        f"epsilon={up(epsilon)} is above {LARGE_EPSILON:.0f}: one record may make a result e^{up(epsilon)} "
        "times as likely, which protects nobody. Choose a smaller epsilon; 1 is usual."
    )


def large_delta(delta: float, records: int) -> str:
    """A delta that publishing a random record would meet."""
    return (
        f"delta={up(delta)} is above 1/N = {1 / records:.3g}: a mechanism that publishes one random record "
        "outright would meet it. Choose a smaller delta."
    )


# Where the noise comes from.


def seeded_noise() -> str:
    """Noise that whoever knows the seed can take off again."""
    return (
        "random_state fixes the noise of a private fit: whoever knows it can undo the noise. Use it for "
        "experiments; the result is marked not for release. Leave it out for a release."
    )


def float_noise() -> str:
    """Noise whose floating-point bits may tell on the sum beneath."""
    return (
        "noise='float' adds floating-point noise: its lowest bits may tell on the sum beneath. Use it for "
        "experiments; the result is marked not for release. Use noise='rounded' for a release."
    )


# What runs inside the gate.


def untested_compiler(backend: str, version: str) -> str:
    """A program of the user's own, on a compiler whose operations were not poisoned one by one."""
    return (
        f"the log-likelihood runs on jaxlib {version} ({backend}), whose operations were not tested one by "
        "one for whether they keep records apart; the program itself was proved and tried on hostile rows. "
        "Use a version that is in dpsep.privacy.isolation.TESTED."
    )


# What is read outside the gate.


def undeclared_classes() -> str:
    """Labels that are read off the target."""
    return (
        "classes are not declared, so they are read off the target outside the privacy guarantee. "
        "Declare them: classes=[negative, positive]."
    )


def unknown_container(what: str, kind: str) -> str:
    """A table or a target that makes an array of itself."""
    return (
        f"{what} is a {kind}, which makes an array of itself: it may choose one type for all records by "
        "looking at each. Give a NumPy array or a frame of pandas, polars or Arrow."
    )


def labelled_records() -> str:
    """A label for every private record."""
    return (
        "fit_predict returns a label for every private record, outside the guarantee; fit, and predict rows "
        "that are not private."
    )


# What stands around the fit.


def learned_upstream(steps: Sequence[str]) -> str:
    """Transformers before the fit that learned from its records."""
    return (
        f"{_listed(steps)} learned from the records before the private fit saw them: each record shows in "
        "the features of all others, outside the guarantee. Leave scaling to this estimator: declare "
        "bounds=, or nothing, and it scales privately inside epsilon. A transformer fitted on public records "
        "can be frozen (sklearn.frozen.FrozenEstimator)."
    )


def undeclared_categories(steps: Sequence[str]) -> str:
    """Encoders before the fit that took their categories from its records."""
    return (
        f"{_listed(steps)} read categories off the records, outside the guarantee: a category of one record "
        "alone becomes a column. Declare them: categories=[[...], ...], one list a column, without "
        "min_frequency and max_categories."
    )


def uncounted_fits(where: str, epsilon: float, delta: float) -> str:
    """A fit of many, which no ledger adds up."""
    return (
        f"{where} fits again and again, and no ledger counts it: each fit spends epsilon={up(epsilon)} and "
        f"delta={up(delta)}, and k of them spend up to k times both. Give ledger=, which charges every fit "
        "and refuses those beyond its budget, or fit once."
    )


def scored_records(where: str, *, stratified: bool) -> str:
    """Scores and predictions of held-out records, by which settings are chosen."""
    folds = " Stratified folds, the default here, depend on labels too: give cv=KFold(...)."
    return (
        f"{where} computes scores or predictions of held-out records without noise: they, and what is chosen "
        "by them, are outside the guarantee, whatever a ledger charges. Choose settings on public records."
        + (folds if stratified else "")
    )


def repeated_records(where: str) -> str:
    """Rows drawn with replacement, so that a record is several rows."""
    return (
        f"{where} draws rows with replacement: a record drawn m times is m rows, and the guarantee is for "
        "one row. Set bootstrap=False."
    )


def _listed(steps: Sequence[str]) -> str:
    return ", ".join(steps[:8]) + (", ..." if len(steps) > 8 else "")
