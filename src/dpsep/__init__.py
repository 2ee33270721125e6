"""Private Bayesian inference by differentially private stochastic expectation propagation (DP-SEP).

Names are imported when they are first used, so that `import dpsep` and the command line start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpsep.registry import ENTRIES

if TYPE_CHECKING:  # what type checkers see of the names that `__getattr__` finds
    from dpsep.estimators.custom import BayesianModel as BayesianModel
    from dpsep.estimators.gamma import GammaRegression as GammaRegression
    from dpsep.estimators.glm import LinearRegression as LinearRegression
    from dpsep.estimators.glm import LogisticRegression as LogisticRegression
    from dpsep.estimators.glm import PoissonRegression as PoissonRegression
    from dpsep.estimators.glm import ProbitRegression as ProbitRegression
    from dpsep.estimators.mixed import MixedClassifier as MixedClassifier
    from dpsep.estimators.mixed import MixedRegressor as MixedRegressor
    from dpsep.estimators.mixture import GaussianMixture as GaussianMixture
    from dpsep.estimators.negative_binomial import NegativeBinomialRegression as NegativeBinomialRegression
    from dpsep.estimators.network import NetworkClassifier as NetworkClassifier
    from dpsep.estimators.network import NetworkRegressor as NetworkRegressor
    from dpsep.estimators.private import UnusableRowsWarning as UnusableRowsWarning
    from dpsep.estimators.student import StudentRegression as StudentRegression
    from dpsep.models.custom import Linear as Linear
    from dpsep.models.custom import Normal as Normal
    from dpsep.privacy.leaks import PrivacyLeakError as PrivacyLeakError
    from dpsep.privacy.leaks import PrivacyLeakWarning as PrivacyLeakWarning
    from dpsep.privacy.ledger import Ledger as Ledger
    from dpsep.privacy.ledger import LedgerError as LedgerError
    from dpsep.privacy.ledger import NewLedgerWarning as NewLedgerWarning
    from dpsep.privacy.ledger import OverBudget as OverBudget
    from dpsep.report import plots as plots
    from dpsep.report.calibration import calibration as calibration
    from dpsep.theory.glm_defaults import WeakBudgetWarning as WeakBudgetWarning
    from dpsep.theory.planner import plan as plan

__version__ = "0.1.0"

_HOMES = {
    **{entry.kind: entry.module for entry in ENTRIES},
    "Linear": "dpsep.models.custom",
    "Normal": "dpsep.models.custom",
    "Ledger": "dpsep.privacy.ledger",
    "LedgerError": "dpsep.privacy.ledger",
    "NewLedgerWarning": "dpsep.privacy.ledger",
    "OverBudget": "dpsep.privacy.ledger",
    "PrivacyLeakError": "dpsep.privacy.leaks",
    "PrivacyLeakWarning": "dpsep.privacy.leaks",
    "UnusableRowsWarning": "dpsep.estimators.private",
    "WeakBudgetWarning": "dpsep.theory.glm_defaults",
    "calibration": "dpsep.report.calibration",
    "plan": "dpsep.theory.planner",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("dpsep.report.plots")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dpsep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
