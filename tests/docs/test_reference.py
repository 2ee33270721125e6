"""Every public name is on a page of the reference, has a docstring, and an example that runs."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tools.docs.commands import commands, reference

import dpsep

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference"
NAMES = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
ROOMS = (
    "dpsep",
    "dpsep.audit",
    "dpsep.data",
    "dpsep.estimators.store",
    "dpsep.federated",
    "dpsep.privacy.accounting",
    "dpsep.privacy.curve",
    "dpsep.privacy.ledger",
    "dpsep.report.calibration",
    "dpsep.report.page",
    "dpsep.report.plots",
)
"""Modules whose public names are all in the reference."""
DOCUMENTED = [name for page in sorted(PAGES.glob("*.md")) for name in NAMES.findall(page.read_text("utf-8"))]
ESTIMATORS = [name for name in dpsep.__all__ if hasattr(getattr(dpsep, name), "fit")]
EXERCISED = {"fit", "predict", "summary"}
"""Methods that the example of an estimator shows, where it has them."""


def found(name: str) -> Any:
    """Return what a dotted name stands for."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def explained(name: str) -> list[Any]:
    """Return the classes and functions among documented names: what can have a docstring."""
    value = found(name)
    return [value] if inspect.isclass(value) or inspect.isroutine(value) else []


def is_plain_error(value: Any) -> bool:
    """Whether a class is an error or a warning, which is shown by what raises it."""
    return inspect.isclass(value) and issubclass(value, Exception)


def public_methods(kind: type) -> list[tuple[str, Any]]:
    """Return the public methods of an estimator that are our own."""
    return [
        (name, getattr(kind, name))
        for name, _ in inspect.getmembers(kind)
        if not name.startswith("_")
        and (
            inspect.isroutine(inspect.getattr_static(kind, name))
            or isinstance(inspect.getattr_static(kind, name), property)
        )
        and any(name in vars(base) and base.__module__.startswith("dpsep") for base in kind.__mro__)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_is_in_the_reference(room: str) -> None:
    module = importlib.import_module(room)
    homes = {id(found(name)) for name in DOCUMENTED}
    assert [name for name in module.__all__ if id(getattr(module, name)) not in homes] == []


def test_no_name_is_in_the_reference_twice() -> None:
    assert len(DOCUMENTED) > 100
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_has_a_docstring_and_an_example(name: str) -> None:
    for value in explained(name):
        text = inspect.getdoc(value) or ""
        own = vars(value).get("__doc__") if inspect.isclass(value) else text
        assert own, f"{name} has no docstring"
        assert is_plain_error(value) or ("Examples\n--------" in text and ">>> " in text), (
            f"{name} has no section 'Examples' with '>>>'"
        )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_public_method_of_an_estimator_has_a_docstring(name: str) -> None:
    methods = public_methods(getattr(dpsep, name))
    assert len(methods) > 3
    assert [method for method, value in methods if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_example_of_an_estimator_shows_its_main_methods(name: str) -> None:
    kind = getattr(dpsep, name)
    example = (inspect.getdoc(kind) or "").partition("Examples\n--------")[2]
    wanted = {method for method in EXERCISED if hasattr(kind, method)}
    assert [method for method in sorted(wanted) if f".{method}(" not in example] == []


def test_the_reference_of_the_command_line_names_every_option() -> None:
    text = reference()
    assert len(commands()) > 15
    for name, command in commands():
        assert f"## `{name}`\n" in text
        assert command.help, f"{name} has no help"
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else []:
                assert f"`{option}" in text
