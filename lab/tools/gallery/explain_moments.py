"""Cavity, likelihood, tilted density, and the Gaussian with the same moments, for one record.

A probit likelihood with one weight w: P(y = 1 | w) = Phi(2 w). `dpsep.models` gives the local factor; it is
checked against the moments of the tilted density on a grid before anything is drawn.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from explain_common import BLUE, GREY, ORANGE, main
from scipy.special import ndtr

from dpsep.families import Gaussian, multiply
from dpsep.models import GLM, ProbitLikelihood

MEAN, SD, SLOPE = -1.0, 1.5, 2.0


def draw() -> Any:
    """Return the figure."""
    from matplotlib import pyplot

    w = np.linspace(-12, 12, 2401)
    with jax.enable_x64(True):
        cavity = Gaussian.from_moments(jnp.array([MEAN]), jnp.array([[SD**2]]))
        factor = GLM(ProbitLikelihood()).local_factor(cavity, (jnp.array([SLOPE]), jnp.array(1.0)))
        matched = multiply(cavity, factor)
        mean, variance = float(matched.mean[0]), float(matched.variance[0])
        pull, precision = float(factor.eta[0]), float(factor.precision[0, 0])
    likelihood = ndtr(SLOPE * w)
    before = np.exp(-((w - MEAN) ** 2) / (2 * SD**2)) / np.sqrt(2 * np.pi * SD**2)
    after = np.exp(-((w - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    tilted = before * likelihood
    tilted /= np.trapezoid(tilted, w)
    found = np.trapezoid(w * tilted, w)
    spread = np.trapezoid((w - found) ** 2 * tilted, w)
    if not np.allclose((mean, variance), (found, spread), rtol=1e-5):
        raise AssertionError("the local factor does not give the moments of the tilted density.")

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.2, 3.5), layout="constrained")
    left.plot(w, before, color=GREY, linestyle="--", label="cavity")
    left.fill_between(w, tilted, color=BLUE, alpha=0.22, linewidth=0)
    left.plot(w, tilted, color=BLUE, label="tilted: cavity times likelihood")
    left.plot(w, after, color=ORANGE, linewidth=2.2, label="Gaussian with its mean and variance")
    left.set(xlim=(-5.5, 4.5), ylim=(0, 0.98), xlabel="weight w", ylabel="density", title="Moment matching")
    left.legend(loc="upper left")
    left.plot([mean, mean], [0, after.max()], color=ORANGE, linewidth=0.8, linestyle=":")
    left.annotate(
        f"mean {mean:.2f}\nsd {np.sqrt(variance):.2f}",
        (mean + 0.5, 0.7 * after.max()),
        (1.9, 0.45),
        fontsize=9,
    )
    site = np.exp(pull * w - 0.5 * precision * w**2)
    # A factor has no scale of its own: drawn so that cavity times factor integrates to the evidence.
    site *= np.trapezoid(before * likelihood, w) / np.trapezoid(before * site, w)
    right.plot(w, likelihood, color=GREY, linestyle="--", label="likelihood of the record")
    right.plot(w, site, color=ORANGE, linewidth=2.2, label="its local factor")
    right.set(
        xlim=(-5.5, 4.5), ylim=(0, 1.55), xlabel="weight w", title="The local factor: matched minus cavity"
    )
    right.legend(loc="upper left")
    right.text(-5.3, 0.72, f"precision {precision:.3f}\nmean part {pull:.3f}", fontsize=9, color="black")
    return figure


if __name__ == "__main__":
    main("moments", draw, __doc__)
