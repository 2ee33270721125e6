"""Estimators with scikit-learn's face over models and inference."""

from dpsep.estimators.glm import LinearRegression, LogisticRegression, PoissonRegression, ProbitRegression
from dpsep.estimators.mixture import GaussianMixture

__all__ = [
    "GaussianMixture",
    "LinearRegression",
    "LogisticRegression",
    "PoissonRegression",
    "ProbitRegression",
]
