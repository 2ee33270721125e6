"""Exponential families as pytrees of natural parameters: Gaussian (full, diagonal, sets of them), Gamma."""

from dpsep.families.diagonal import DiagonalGaussian
from dpsep.families.gamma import Gamma
from dpsep.families.gaussian import Gaussian
from dpsep.families.gaussian_set import GaussianSet
from dpsep.families.natural import clip, divide, multiply, norm, power, zeros_like

__all__ = [
    "DiagonalGaussian",
    "Gamma",
    "Gaussian",
    "GaussianSet",
    "clip",
    "divide",
    "multiply",
    "norm",
    "power",
    "zeros_like",
]
