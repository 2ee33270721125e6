"""Templates filled with values: all of them are escaped, so that no name becomes a tag.

All markup is in ``templates/``; Python gives it plain values and marks of pictures. A text of a folder is
never a template, every value is cleaned (`dpsep.report.page.words.clean`) and then escaped, and a name that
is not given is an error. Line breaks and indents of a template are not in the page: beside a tag they are
nothing, inside a sentence a space. No ``style`` attribute and no script is ever made: the policy forbids it.
"""

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from dpsep.report.page import words
from dpsep.report.page.files import Absent

__all__ = ["fill", "macro"]

_BESIDE_A_TAG = re.compile(r"(?:(?<=>)|(?<=[%#]}))\s*\n\s*|\s*\n\s*(?=<|{[%#])|(?<=}})\s*\n\s*(?={{)")
_IN_A_SENTENCE = re.compile(r"\s*\n\s*")


class _OneLine(Extension):
    """Takes line breaks out of a template, where they would be seen as spaces, and make it 15 % longer."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _IN_A_SENTENCE.sub(" ", _BESIDE_A_TAG.sub("", source.strip()))


def _shown(value: Any) -> Any:
    """What stands in the page for a value: nothing for None, and clean text for all that is no markup."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else words.clean(value)


_ENVIRONMENT = Environment(
    loader=PackageLoader("dpsep.report.page"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    extensions=[_OneLine],
    auto_reload=False,
)
_ENVIRONMENT.filters |= {
    "clean": words.clean,
    "short": words.shortened,
    "number": words.number,
    "percent": words.percent,
    "up": words.number_up,
    "down": words.number_down,
    "one_in": words.one_in,
    "unit": words.unit_words,
}
_ENVIRONMENT.globals["relation_words"] = words.relation_words
_ENVIRONMENT.tests["absent"] = lambda value: isinstance(value, Absent)


def fill(template: str, **values: Any) -> Markup:
    """Return a template filled with values."""
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def macro(template: str, name: str, *values: Any) -> Markup:
    """Return one macro of a template filled with values."""
    return getattr(_ENVIRONMENT.get_template(template).module, name)(*values)
