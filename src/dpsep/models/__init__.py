"""What a record means: one file a likelihood, each with its local factor and its predictive distribution."""

from dpsep.models.base import (
    GLM,
    Likelihood,
    Model,
    Predictive,
    Site,
    Tilted,
    local_factor,
    predictor_moments,
    site,
)
from dpsep.models.gaussian_mean import GaussianMean
from dpsep.models.linear import GaussianLikelihood, LearnedNoise, WeightsAndNoise
from dpsep.models.logistic import LogisticLikelihood
from dpsep.models.mixture import KnownMixture, labelled_posterior
from dpsep.models.poisson import PoissonLikelihood
from dpsep.models.probit import ProbitLikelihood

__all__ = [
    "GLM",
    "GaussianLikelihood",
    "GaussianMean",
    "KnownMixture",
    "LearnedNoise",
    "Likelihood",
    "LogisticLikelihood",
    "Model",
    "PoissonLikelihood",
    "Predictive",
    "ProbitLikelihood",
    "Site",
    "Tilted",
    "WeightsAndNoise",
    "labelled_posterior",
    "local_factor",
    "predictor_moments",
    "site",
]
