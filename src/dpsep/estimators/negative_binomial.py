"""Negative binomial regression with log link: counts that vary more than Poisson counts."""

from dataclasses import dataclass

from dpsep.estimators.glm import Counts
from dpsep.models.poisson import NegativeBinomialLikelihood
from dpsep.registry import Words, register


@register("negative-binomial")
@dataclass(eq=False, repr=False, kw_only=True)
class NegativeBinomialRegression(Counts):
    """Bayesian negative binomial regression of overdispersed counts, log link.

    A count has mean mu = exp(predictor) and variance mu + dispersion mu^2. The dispersion is learned with the
    coefficients (`dispersion_`). Compared with `PoissonRegression`, which widens its intervals for
    overdispersion, records with a large mean count less, as they should where their counts scatter more.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2)); mu = np.exp(1 + X @ [0.5, -0.5])
    >>> y = rng.poisson(mu * rng.gamma(2.0, 0.5, 5000))
    >>> model = NegativeBinomialRegression(epsilon=1.0, bounds=(-1, 1)).fit(X, y)
    >>> bool(np.abs(model.coef_ - [0.5, -0.5]).max() < 0.5), bool(0.2 < model.dispersion_ < 1.0)
    (True, True)
    >>> model.predict(X[:3]).shape
    (3,)
    >>> [row["name"] for row in model.summary()]
    ['intercept', 'x0', 'x1']
    """

    likelihood = NegativeBinomialLikelihood
    words = Words(
        "negative binomial regression",
        "A coefficient is by how much the logarithm of the expected count changes when its column grows by "
        "one: e to the coefficient multiplies the count.",
    )
    wire = 46
