"""Templates: what they are given is text whatever it says, and what they are not given is an error."""

import re
from importlib.resources import files

import pytest
from jinja2 import UndefinedError

from dpsep.report.page.rendering import fill, macro
from dpsep.report.page.svg import Mark

from .checks import Page

PACKAGE = files("dpsep.report.page")
SOURCES = {
    one.name: one.read_text("utf-8") for one in PACKAGE.joinpath("templates").iterdir() if one.is_file()
}
HOSTILE = "\"'><script>{{ 7 * 7 }}</script>\u202e\n\ud800"


def test_values_are_cleaned_and_escaped_in_elements_and_attributes() -> None:
    for text in (
        macro("parts.html", "label", HOSTILE),
        macro("parts.html", "tiles", [(HOSTILE,) * 3]),
        macro("parts.html", "table", HOSTILE, [HOSTILE], [[HOSTILE, HOSTILE]]),
        macro("figures.html", "marks", [Mark("text", {"data-v": HOSTILE}, HOSTILE, HOSTILE)]),
        macro("figures.html", "legend", [(HOSTILE, HOSTILE)]),
    ):
        assert not {"script"} & {name for name, _ in Page(text).elements}
        assert "{{ 7 * 7 }}" in text
        assert not re.search("[\u202e\ud800\n]", text)


def test_a_name_that_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        fill("glossary.html")


def test_line_breaks_of_a_template_are_not_in_the_page() -> None:
    assert macro("parts.html", "tiles", [("a", "b", "c")]) == (
        '<dl class="tiles"><div class="tile"><dt>a</dt><dd class="value">b</dd><dd>c</dd></div></dl>'
    )


@pytest.mark.parametrize("name", SOURCES)
def test_no_template_marks_text_as_safe_or_turns_escaping_off(name: str) -> None:
    source = SOURCES[name]
    assert not re.search(r"\|\s*(safe|xmlattr|urlize|tojson)\b|autoescape|Markup", source)
    assert not re.search(r"\b(style|src|srcset|action|on\w+)\s*=\s*[\"']", source)
    assert len(re.findall("<(script|style)", source)) == (2 if name == "page.html" else 0)
    assert "={{" not in source  # a value of an attribute without quotes could end it by a space


@pytest.mark.parametrize("name", SOURCES)
def test_no_template_shows_an_epsilon_or_a_delta_that_is_not_rounded(name: str) -> None:
    shown = " ".join(re.findall(r"{{.*?}}", SOURCES[name], re.DOTALL))
    amounts = re.findall(r"""(?:\.|\[")(?:epsilon|delta)(?:"\])?(.{0,5})""", shown)
    assert [rest for rest in amounts if not rest.startswith(("|up", "|down"))] == []


def test_markup_is_made_in_few_places_of_python() -> None:
    made = {
        one.name
        for one in PACKAGE.iterdir()
        if one.name.endswith(".py") and "Markup(" in one.read_text("utf-8")
    }
    assert made == {"rendering.py", "page.py", "sections_back.py"}
