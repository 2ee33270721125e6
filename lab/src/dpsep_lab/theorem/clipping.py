"""Divergence between the posteriors of SEP and of SEP with clipped natural parameters (appendix A).

Clipping divides: `eta_p = eta / max(1, |eta| / C)` and `Lambda_p = Lambda / c`, `c = max(1, |Lambda|_F / C)`.
With `b = c / max(1, |eta| / C) - 1` the means differ by `b Lambda^-1 eta`, and

    printed     (d c - d + d log max(1, |Sigma|_F / C) + (b^2 / c) eta' Lambda^-1 eta) / 2
    corrected   (d / c - d + d log c                   + (b^2 / c) eta' Lambda^-1 eta) / 2

The printed form has two slips: `Tr(Lambda_p Lambda^-1)` is `d / c` and not `d c`, and the determinant of
`Lambda_p^-1` has the norm of Lambda in it and not that of Sigma.

Contract: `general` computes the divergence from the two densities and is the judge of the other two.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from dpsep.families import Gaussian
from dpsep_lab.theorem.expected_kl import Setting, read_setting

Form = Literal["general", "printed", "corrected"]
FORMS = get_args(Form)


def clipping_kl(
    q: Gaussian, C: float, *, form: Form = "corrected", C_precision: float | None = None
) -> float:
    """KL(q || p) in nats, p being q with its natural parameters clipped.

    Parameters
    ----------
    q
        Posterior of SEP.
    C
        Clip of eta, and of the precision too if it has none of its own.
    form
        `corrected`, `printed`, or `general`: from the definition of the divergence.
    C_precision
        Clip of the precision, if it is another.

    Examples
    --------
    >>> q = Gaussian.isotropic(4, 3.0)
    >>> [round(clipping_kl(q, 2.0, form=form), 4) for form in ("general", "corrected", "printed")]
    [0.8639, 0.8639, 4.0]
    """
    if form not in FORMS:
        raise ValueError(f"form {form!r} is unknown; use one of {', '.join(map(repr, FORMS))}")
    bounds = (C, C if C_precision is None else C_precision)
    for name, bound in zip(("C", "C_precision"), bounds, strict=True):
        if not bound > 0.0:
            raise ValueError(f"{name} is {bound}; it must be above zero")
    setting = read_setting(q, 0.0, 0.0)
    by_eta = max(1.0, float(np.linalg.norm(setting.eta)) / bounds[0])
    c = max(1.0, float(np.linalg.norm(setting.precision)) / bounds[1])
    if form == "general":
        return _general(setting, by_eta, c)
    d, b = len(setting.eta), c / by_eta - 1.0
    last = b**2 / c * float(setting.eta @ setting.mean)
    if form == "printed":
        by_covariance = max(1.0, float(np.linalg.norm(setting.covariance)) / bounds[1])
        return float(0.5 * (d * c + last - d + d * np.log(by_covariance)))
    # d / c - d + d log c is d (x - log(1 + x)) at x = 1 / c - 1.
    x = 1.0 / c - 1.0
    return float(0.5 * (d * (x - np.log1p(x)) + last))


def _general(setting: Setting, by_eta: float, by_precision: float) -> float:
    with jax.enable_x64(True):
        q = Gaussian(jnp.asarray(setting.eta), jnp.asarray(setting.precision))
        return float(q.kl(Gaussian(q.eta / by_eta, q.precision / by_precision)))
