"""Is a page well formed, safe and accessible in what can be told from its text alone?"""

from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

VOID = ("meta", "br", "input", "hr")


class Page(HTMLParser):
    """Elements of a page: a stack that must end empty, ids, what points to them, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.wanted: list[str] = []
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute of {tag} stands twice"
        self.elements.append((tag, found))
        if found.get("id"):
            self.ids[str(found["id"])] += 1
        for key in ("aria-labelledby", "aria-describedby", "aria-controls", "for"):
            self.wanted += (found.get(key) or "").split()
        if (found.get("href") or "").startswith("#"):
            self.wanted.append(str(found["href"])[1:])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} is closed and not open"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self) -> str:
        """All text that a reader sees."""
        return " ".join(" ".join(self.text).split())


def check_page(text: str) -> Page:
    """Assert what must hold of any page, and return it."""
    page = Page(text)
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert [name for name in page.wanted if name not in page.ids] == []
    kinds = Counter(name for name, _ in page.elements)
    assert kinds["script"] == kinds["style"] == kinds["main"] == kinds["h1"] == 1
    assert not {"iframe", "object", "embed", "link", "base", "form", "img", "foreignobject"} & set(kinds)
    for name, attributes in page.elements:
        assert "style" not in attributes, f"{name} has a style that the policy forbids"
        assert not [key for key in attributes if key.startswith("on") or key in ("src", "srcset", "action")]
        assert str(attributes.get("href", "#")).startswith("#")
    levels = [int(name[1]) for name, _ in page.elements if name in ("h1", "h2", "h3", "h4")]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(text.encode("utf-8")) < 2_000_000
    return page


def says_nothing_of_privacy(page: Page) -> bool:
    """Whether a page carries no statement, number or picture of a guarantee."""
    words = page.words.lower()
    speaks = ("-differentially", "epsilon", "delta", "ε", "δ", "zero-out", "replace-one", "budget")
    figures = {"fig-delta", "fig-releases"} & set(page.ids)
    return "NOT PRIVATE" in page.words and not figures and not any(word in words for word in speaks)
