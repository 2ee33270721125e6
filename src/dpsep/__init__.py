"""Private Bayesian inference by differentially private stochastic expectation propagation (DP-SEP)."""

__version__ = "0.1.0"
