"""Docstrings of classes that share parameters: each class a user sees lists all of its own."""

import inspect
import re

_SECTION = re.compile(r"Parameters\n-{10}\n(.*?)(?=\n\n\w+\n-{3}|\Z)", re.DOTALL)


def inherit_parameters(kind: type) -> None:
    """Put the parameters that a class inherits before its own, in the section of its docstring.

    Parameters
    ----------
    kind
        Its bases' docstrings are complete, the nearest that lists parameters is taken.

    Examples
    --------
    >>> from dpsep import PoissonRegression
    >>> "epsilon, delta" in PoissonRegression.__doc__, "gamma" in PoissonRegression.__doc__
    (True, True)
    """
    if "__doc__" not in vars(kind) or kind.__doc__ is None:
        return
    own = inspect.cleandoc(kind.__doc__)
    found = (_SECTION.search(inspect.cleandoc(base.__doc__ or "")) for base in kind.__mro__[1:])
    inherited = next((section[1] for section in found if section), None)
    if inherited is None:
        return
    section = _SECTION.search(own)
    if section:
        # What a class says itself of a parameter stands where the parameter stood.
        entries = _entries(inherited) | _entries(section[1])
        kind.__doc__ = own[: section.start(1)] + "\n".join(entries.values()) + own[section.end(1) :]
        return
    head, mark, rest = own.partition("\n\nExamples\n--------\n")
    kind.__doc__ = f"{head}\n\nParameters\n----------\n{inherited}{mark}{rest}\n"


def _entries(section: str) -> dict[str, str]:
    """Take a section apart: each parameter's lines, by the first of them."""
    parts = re.split(r"\n(?=\S)", section.rstrip())
    return {part.partition("\n")[0]: part for part in parts}
