"""Folders that somebody who can write them has changed in several places at once, and sealed anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .runs import changed, seal

Change = Callable[[Any], Any]


def restated(folder: Path, change: Change) -> None:
    """Change the statement in both places that hold it."""
    changed(folder, "privacy.json", change)
    restated_inside(folder, change)


def restated_inside(folder: Path, change: Change) -> None:
    """Change the statement in the posterior alone."""

    def inside(content: Any) -> None:
        change(content["learned"]["privacy_"]["statement"])

    changed(folder, "posterior.json", inside)


def recharged(folder: Path, change: Change) -> None:
    """Change the metrics' charge in both places that hold it."""
    for name, key in (("privacy.json", "metrics"), ("metrics.json", "privacy")):
        document = json.loads((folder / name).read_bytes())
        change(document[key])
        (folder / name).write_text(json.dumps(document), "utf-8")
    seal(folder)


def put(**values: Any) -> Change:
    """Return a change that sets entries."""
    return lambda document: document.update(values)


def drop(name: str) -> Change:
    """Return a change that takes an entry away."""
    return lambda document: document.pop(name, None) and None
