"""Estimators with scikit-learn's face over models and inference; each is imported when it is first used."""

from typing import Any

from dpsep.registry import ENTRIES, find


def __getattr__(name: str) -> Any:
    entry = find(name)
    if entry is None:
        raise AttributeError(f"module 'dpsep.estimators' has no attribute {name!r}")
    return entry.load()


def __dir__() -> list[str]:
    return sorted([*globals(), *(entry.kind for entry in ENTRIES)])
