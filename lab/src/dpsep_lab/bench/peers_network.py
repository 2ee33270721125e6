r"""DP-Adam by Opacus on a network of one hidden layer of rectified units, squared error.

Opacus gives the gradient of each record (`GradSampleModule`), clips and noises their sum (`DPOptimizer`);
Adam does the rest, with a learning rate that falls by half a cosine or stays. Batches are Poisson samples.
The noise is calibrated by our accountant. Our own default has sine units and direct inputs beside them, which
are part of the method that is compared; `ours-relu` and `gate-sine` (`dpsep_lab.bench.frontier_people`) stand
between the two.

`DEFAULTS` is one setting for every table. `dpsep_lab.bench.frontier_search` chose it on the made tables, with
the least mean of log RMSE at epsilon 1; its rows are kept in docs/benchmarks/frontier_search.json.

**Privacy.** Relation zero-out, sampled Gaussian releases of sensitivity `clip`, accounted by
`dpsep.privacy.accounting`. The noise is PyTorch's and seeded: for measurements, not for release.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsep.privacy.accounting import calibrate
from dpsep.privacy.sampling import PoissonSampling

__all__ = ["DEFAULTS", "Settings", "dp_adam"]

Array = NDArray[np.float64]


class Settings(NamedTuple):
    """Public constants of DP-Adam.

    Attributes
    ----------
    rate, steps
        Of Poisson sampling, and how often.
    learning_rate
        Of Adam.
    clip
        Of a record's gradient.
    cosine
        Whether the learning rate falls by half a cosine.
    reach
        Records times epsilon below which the learning rate is smaller, in proportion: noise, which Adam
        normalises like a gradient, is then most of what it sees.
    """

    rate: float
    steps: int
    learning_rate: float
    clip: float
    cosine: bool
    reach: float = 0.0

    def learning_rate_of(self, records: int, epsilon: float) -> float:
        """Learning rate at the start.

        Examples
        --------
        >>> Settings(0.1, 1000, 0.03, 0.1, True, reach=5000.0).learning_rate_of(2500, 0.5)
        0.0075
        """
        share = min(1.0, records * epsilon / self.reach) if self.reach else 1.0
        return self.learning_rate * share


DEFAULTS = Settings(rate=0.1, steps=1000, learning_rate=0.03, clip=0.03, cosine=True, reach=5000.0)
"""For every table."""


def dp_adam(
    X: Array,
    y: Array,
    *,
    hidden: int,
    epsilon: float,
    delta: float,
    seed: int,
    settings: Settings = DEFAULTS,
) -> Callable[[Array], Array]:
    """Fit a network by DP-Adam and return its predictions as a function.

    Parameters
    ----------
    X, y
        Standardised by public numbers.
    hidden
        Units of the hidden layer.
    epsilon, delta
        The budget.
    seed
        Of the start, the batches and the noise.
    settings
        Public constants.
    """
    import torch  # pyright: ignore[reportMissingImports]

    noise = calibrate(
        epsilon, delta, PoissonSampling(settings.rate), "zero-out", steps=settings.steps, records=len(y)
    )
    torch.set_num_threads(1)  # small layers: more threads cost more than they give
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # of Opacus: of hooks on inputs, and that its noise is not secure
        torch.manual_seed(seed)
        settings = settings._replace(learning_rate=settings.learning_rate_of(len(y), epsilon))
        model, optimizer = _parts(X.shape[1], hidden, noise, settings, len(y), seed)
        _train(model, optimizer, X, y, settings, np.random.default_rng([seed, 5]))

    def predict(rows: Array) -> Array:
        with torch.no_grad():
            return model(torch.as_tensor(rows, dtype=torch.float32))[:, 0].numpy().astype(np.float64)

    return predict


def _parts(
    inputs: int, hidden: int, noise: float, settings: Settings, records: int, seed: int
) -> tuple[Any, Any]:
    """Make the network and the optimiser, both Opacus'."""
    import torch  # pyright: ignore[reportMissingImports]
    from opacus.grad_sample import GradSampleModule  # pyright: ignore[reportMissingImports]
    from opacus.optimizers import DPOptimizer  # pyright: ignore[reportMissingImports]

    layers = (torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
    model = GradSampleModule(torch.nn.Sequential(*layers), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.Adam(model.parameters(), lr=settings.learning_rate),
        noise_multiplier=noise,
        max_grad_norm=settings.clip,
        expected_batch_size=max(1, round(settings.rate * records)),
        generator=torch.Generator().manual_seed(seed),
    )
    return model, optimizer


def _train(
    model: Any, optimizer: Any, X: Array, y: Array, settings: Settings, rng: np.random.Generator
) -> None:
    """Make the steps, each with a Poisson sample of the records."""
    import torch  # pyright: ignore[reportMissingImports]

    rows = torch.as_tensor(X, dtype=torch.float32)
    target = torch.as_tensor(y, dtype=torch.float32)
    for step in range(settings.steps):
        batch = torch.as_tensor(np.flatnonzero(rng.random(len(y)) < settings.rate))
        if settings.cosine:
            share = 0.5 * (1 + math.cos(math.pi * step / settings.steps))
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * max(share, 0.01)
        optimizer.zero_grad()
        error = model(rows[batch])[:, 0] - target[batch]
        (0.5 * error.square()).sum().backward()
        optimizer.step()
