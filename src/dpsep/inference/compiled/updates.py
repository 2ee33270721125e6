r"""A step of stochastic EP in batches, compiled: that of `dpsep.inference.network_diagonal`.

On a processor these steps on a thousand numbers take JAX longer to call than to do.

**Privacy.** Post-processing of sums; no record is read here.
"""

from typing import Any

import numpy as np

from dpsep.inference.compiled.kernels import kept


@kept
def publish(state: Any, place: Any, public: Any, records: float) -> None:
    """Put the cavity's moments, its distance from the mean, deviations and noise in `public`."""
    mean, precision, prior, scalars = state
    cavity_mean, cavity_variance, away, unit, noise = public
    share = 1.0 / records
    for i in range(mean.shape[0]):
        k = place[i]
        p = precision[i] - (precision[i] - prior[i]) * share
        eta = precision[i] * mean[i]
        m = (eta - eta * share) / p
        cavity_mean[k] = m
        cavity_variance[k] = 1.0 / p
        away[k] = m - mean[i]
        unit[k] = 1.0 / np.sqrt(precision[i])
    noise[0] = 0.5 * records - 1.0
    noise[1] = 0.5 * records * scalars[0]


@kept
def update(
    state: Any, blur: Any, average: Any, sums: Any, sizes: Any, steps: Any, limits: Any, deviation: float
) -> None:
    """Move the state by sums over a batch.

    `state` holds means, precisions, prior precisions and four numbers: the noise variance, its average, the
    number of states averaged, the number of steps. `steps` has the rate, the scale-up to all records, N, and
    whether this step is averaged; `limits` the cap, the rate of the noise variance, the prior's shape and
    precision, and the two floors.
    """
    mean, precision, prior, scalars = state
    rate, up, records, on = steps
    cap, noise_rate, shape, level, least_prior, least_noise = limits
    found = np.isfinite(sums[2][0]) and np.isfinite(sums[2][1])
    for i in range(mean.shape[0]):
        found = found and np.isfinite(sums[0][i]) and np.isfinite(sums[1][i])
    if found:
        for i in range(mean.shape[0]):
            root = np.sqrt(precision[i])
            new = (1.0 - rate) * precision[i] + rate * (prior[i] + up * sums[1][i] * precision[i])
            new = max(new, max(prior[i], (1.0 - 2.0 * rate) * precision[i]))
            most = cap / np.sqrt(new)
            move = rate * (up * sums[0][i] * root - prior[i] * mean[i]) / new
            mean[i] += min(max(move, -most), most)
            bent = rate * up * deviation * root / new
            blur[i] = (1.0 - rate) ** 2 * blur[i] + bent * bent
            precision[i] = new
        own = 0.5 * records + min(max(up * sums[2][0], -0.25 * records), 0.25 * records)
        change = 1.0 + noise_rate * (up * sums[2][1] / own - 1.0)
        scalars[0] = max(scalars[0] * min(max(change, 0.75), 1.25), least_noise)
        used = 0
        for size in sizes:
            square = 0.0
            for i in range(used, used + size):
                square += mean[i] * mean[i] + 1.0 / precision[i]
            new = max((shape + 0.5 * size) / (shape / level + 0.5 * square), least_prior)
            for i in range(used, used + size):
                prior[i] = new
            used += size
    if on:
        for i in range(mean.shape[0]):
            average[0][i] += mean[i]
            average[1][i] += precision[i]
        scalars[1] += scalars[0]
        scalars[2] += 1.0
    scalars[3] += 1.0
