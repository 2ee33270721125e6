"""A private fit in one of several processes, on so many devices; prints a hash of the posterior.

Run as a program, since the number of devices and of processes is fixed when JAX starts.
"""

import hashlib
import json
import os
import sys
import warnings
from typing import Any


def main(shards: int, process: int, processes: int, port: int, ledger: str, epsilon: float) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={shards}"
    import jax

    if processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    import numpy as np

    import dpsep

    warnings.simplefilter("ignore")  # the noise is seeded, to be compared
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (20_000, 4))
    y = rng.uniform(size=20_000) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5, 0.0]))
    found: dict[str, object] = {"devices": len(jax.local_devices()), "processes": jax.process_count()}
    if "|" in ledger:
        found["errors"] = [_failure(X, y, path, found) for path in ledger.split("|")]
        print(json.dumps(found), flush=True)
        return
    try:
        for sampling in ("full", 0.02, 0.3):
            model = dpsep.LogisticRegression(
                epsilon=epsilon,
                classes=[False, True],
                random_state=3,
                sampling=sampling,
                ledger=ledger or None,
            ).fit(X, y)
            released = model.posterior_.mean.tobytes() + model.posterior_.covariance.tobytes()
            found[str(sampling)] = hashlib.sha256(released).hexdigest()
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found), flush=True)


def _failure(X: Any, y: Any, ledger: str, found: dict[str, object]) -> str:
    """Fit once, and go on whatever happens."""
    import dpsep

    try:
        dpsep.LogisticRegression(classes=[False, True], random_state=3, ledger=ledger).fit(X, y)
        found["full"] = "fitted"
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:5]]
    main(*numbers, ledger=sys.argv[5], epsilon=float(sys.argv[6]))
