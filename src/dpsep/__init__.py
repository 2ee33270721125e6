"""Private Bayesian inference by differentially private stochastic expectation propagation (DP-SEP).

Names are imported when they are first used, so that `import dpsep` and the command line start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsep.estimators import (
        BayesianModel,
        GaussianMixture,
        LinearRegression,
        LogisticRegression,
        MixedClassifier,
        MixedRegressor,
        NetworkClassifier,
        NetworkRegressor,
        PoissonRegression,
        ProbitRegression,
    )
    from dpsep.models.custom import Linear, Normal
    from dpsep.privacy.leaks import PrivacyLeakError, PrivacyLeakWarning
    from dpsep.privacy.ledger import Ledger, LedgerError, NewLedgerWarning, OverBudget
    from dpsep.report import plots as plots
    from dpsep.report.calibration import calibration
    from dpsep.theory.glm_defaults import WeakBudgetWarning
    from dpsep.theory.planner import plan

__version__ = "0.1.0"

_HOMES = {
    "BayesianModel": "dpsep.estimators",
    "Linear": "dpsep.models.custom",
    "Normal": "dpsep.models.custom",
    "GaussianMixture": "dpsep.estimators",
    "LinearRegression": "dpsep.estimators",
    "LogisticRegression": "dpsep.estimators",
    "MixedClassifier": "dpsep.estimators",
    "MixedRegressor": "dpsep.estimators",
    "NetworkClassifier": "dpsep.estimators",
    "NetworkRegressor": "dpsep.estimators",
    "PoissonRegression": "dpsep.estimators",
    "ProbitRegression": "dpsep.estimators",
    "Ledger": "dpsep.privacy.ledger",
    "LedgerError": "dpsep.privacy.ledger",
    "NewLedgerWarning": "dpsep.privacy.ledger",
    "OverBudget": "dpsep.privacy.ledger",
    "PrivacyLeakError": "dpsep.privacy.leaks",
    "PrivacyLeakWarning": "dpsep.privacy.leaks",
    "WeakBudgetWarning": "dpsep.theory.glm_defaults",
    "calibration": "dpsep.report.calibration",
    "plan": "dpsep.theory.planner",
}

__all__ = [
    "BayesianModel",
    "GaussianMixture",
    "Ledger",
    "LedgerError",
    "Linear",
    "LinearRegression",
    "LogisticRegression",
    "MixedClassifier",
    "MixedRegressor",
    "NetworkClassifier",
    "NetworkRegressor",
    "NewLedgerWarning",
    "Normal",
    "OverBudget",
    "PoissonRegression",
    "PrivacyLeakError",
    "PrivacyLeakWarning",
    "ProbitRegression",
    "WeakBudgetWarning",
    "calibration",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("dpsep.report.plots")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dpsep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
