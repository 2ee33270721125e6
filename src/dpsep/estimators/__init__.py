"""Estimators with scikit-learn's face over models and inference."""

from dpsep.estimators.custom import BayesianModel
from dpsep.estimators.glm import LinearRegression, LogisticRegression, PoissonRegression, ProbitRegression
from dpsep.estimators.mixed import MixedClassifier, MixedRegressor
from dpsep.estimators.mixture import GaussianMixture
from dpsep.estimators.network import NetworkClassifier, NetworkRegressor

__all__ = [
    "BayesianModel",
    "GaussianMixture",
    "LinearRegression",
    "LogisticRegression",
    "MixedClassifier",
    "MixedRegressor",
    "NetworkClassifier",
    "NetworkRegressor",
    "PoissonRegression",
    "ProbitRegression",
]
