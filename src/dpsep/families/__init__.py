"""Exponential families as pytrees of natural parameters: full and diagonal Gaussian, Gamma."""

from dpsep.families.diagonal import DiagonalGaussian
from dpsep.families.gamma import Gamma
from dpsep.families.gaussian import Gaussian
from dpsep.families.natural import clip, divide, multiply, norm, power, zeros_like

__all__ = [
    "DiagonalGaussian",
    "Gamma",
    "Gaussian",
    "clip",
    "divide",
    "multiply",
    "norm",
    "power",
    "zeros_like",
]
