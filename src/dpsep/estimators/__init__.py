"""Estimators with scikit-learn's face over models and inference."""

from dpsep.estimators.glm import LinearRegression, LogisticRegression, PoissonRegression, ProbitRegression

__all__ = ["LinearRegression", "LogisticRegression", "PoissonRegression", "ProbitRegression"]
