"""The built site as data: pages with their links, anchors, images and the files that they load."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "video": "src", "audio": "src"}
STYLES = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Image(NamedTuple):
    """A picture's address and its alternative text; None where there is none."""

    source: str
    alt: str | None


class Page(HTMLParser):
    """What a test asks of a page: links, identifiers, pictures, and addresses that a browser would fetch."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.images: list[Image] = []
        self.loads: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag == "img":
            self.images.append(Image(given.get("src") or "", given.get("alt")))
        if tag in LOADS and (address := given.get(LOADS[tag])):
            self.loads.append(address)
        if tag == "link" and given.get("rel") not in ("next", "prev", "canonical", "alternate"):
            self.loads.append(given.get("href") or "")
        if given.get("style"):
            self.loads += styled(str(given["style"]))


def styled(css: str) -> list[str]:
    """Return the addresses that a style sheet fetches."""
    return [a or b for a, b in STYLES.findall(css)]


def pages(site: Path) -> dict[Path, Page]:
    """Return all pages of a site, by path."""
    return {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}


def is_external(address: str) -> bool:
    """Whether an address leaves the site."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ftp")


def broken(page: Page, found: dict[Path, Page]) -> list[str]:
    """Return the links of a page whose file or anchor is not there."""
    wrong = []
    for link in page.links:
        parts = urlsplit(link)
        if is_external(link) or parts.scheme in ("mailto", "data"):
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
        anchor = unquote(parts.fragment)
        known = found.get(target)
        if not target.is_file() or (anchor and known is not None and anchor not in known.ids):
            wrong.append(link)
    return wrong
