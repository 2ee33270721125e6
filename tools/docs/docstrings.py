"""Docstrings as Python has them, for classes that complete theirs when they are made.

`griffe` reads source, where a regression lists its own parameters only; those that it inherits are put into
its docstring by `dpsep.estimators.documented`. This extension takes the docstrings of registered estimators
from the classes themselves.
"""

import inspect
from typing import Any

import griffe

from dpsep.registry import find


class Completed(griffe.Extension):
    """Replace the docstring of every registered estimator by the completed one."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Take the docstring from the class."""
        entry = find(cls.name)
        if entry is not None and cls.docstring is not None and cls.path == f"{entry.module}.{entry.kind}":
            cls.docstring.value = inspect.getdoc(entry.load()) or ""
