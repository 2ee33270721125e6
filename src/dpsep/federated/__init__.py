"""Federated fits: one posterior from rows that stay at several sites.

The server runs an estimator as it is; where it would sum clipped contributions of its rows, it asks the sites
(`dpsep.federated.gate`). A site keeps its rows, its ledger and a folder of its own, and answers with exact
integer sums on the gate's grid (`dpsep.federated.site`), so that the pooled sum is the number that one table
would have given.

Three modes say who adds the noise:

``"server"``
    The sites send exact sums to a server that they trust; it adds the noise once.
``"sites"``
    Each site adds a share of the noise. What is released has the noise of the whole as long as `honest` sites
    are; a single answer holds less, and whoever sees it is held off only by that.
``"own"``
    Each site adds all the noise that its own guarantee needs, and trusts nobody.

``docs/federated.md`` shows how to run one; ``docs/proofs/federated.md`` and ``distributed-noise.md`` hold the
proofs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsep.federated.federation import Federation
    from dpsep.federated.fitting import fit
    from dpsep.federated.session import RoundFailed
    from dpsep.federated.site import Site
    from dpsep.federated.transport import InProcess, Transport

__all__ = ["Federation", "InProcess", "RoundFailed", "Site", "Transport", "fit"]

_HOMES = {
    "Federation": "federation",
    "InProcess": "transport",
    "RoundFailed": "session",
    "Site": "site",
    "Transport": "transport",
    "fit": "fitting",
}


def __getattr__(name: str) -> Any:
    """Import on first use: a site's process starts for each message, and must start fast."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
