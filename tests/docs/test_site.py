"""The site builds without a warning, all its links lead somewhere, and it needs no network."""

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .site import Page, broken, is_external, pages, styled

HERE = Path(__file__).resolve().parent
LISTED = (HERE / "external_links.txt").read_text("utf-8").split()
"""All addresses outside the site that pages link to; nothing is fetched, so look at them when you add one."""
LEFT = ("landmark-unique",)  # the theme's script makes a nameless landmark for each button that copies code


@pytest.fixture(scope="module")
def found(site: Path) -> dict[Path, Page]:
    return pages(site)


def test_all_links_and_anchors_within_the_site_resolve(found: dict[Path, Page]) -> None:
    assert len(found) > 50
    assert sum(len(page.links) for page in found.values()) > 1000
    # The page for addresses that do not exist is read from any of them: its links start at the root.
    read = [page for page in found.values() if page.path.name != "404.html"]
    wrong = {page.path.name: links for page in read if (links := broken(page, found))}
    assert wrong == {}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#there">y</a><a href="c.html">z</a>'
    )
    (tmp_path / "b.html").write_text('<p id="here">')
    made = pages(tmp_path)
    assert broken(made[(tmp_path / "a.html").resolve()], made) == ["b.html#there", "c.html"]


def test_nothing_is_loaded_from_elsewhere(site: Path, found: dict[Path, Page]) -> None:
    loaded = {address for page in found.values() for address in page.loads}
    assert loaded
    assert [address for address in sorted(loaded) if is_external(address)] == []
    sheets = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert sheets
    assert [address for sheet in sheets for address in styled(sheet) if is_external(address)] == []


def test_every_picture_says_what_is_to_be_seen(found: dict[Path, Page]) -> None:
    pictures = [(page.path.name, image) for page in found.values() for image in page.images]
    assert pictures
    assert [(name, image.source[:60]) for name, image in pictures if not (image.alt or "").strip()] == []


def test_links_that_leave_the_site_are_listed_and_well_formed(found: dict[Path, Page]) -> None:
    used = {link for page in found.values() for link in page.links if is_external(link)}
    assert sorted(used) == sorted(LISTED)
    for link in LISTED:
        parts = urlsplit(link)
        assert parts.scheme == "https", link
        assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), link


def test_formulas_are_drawn_and_none_is_left_as_latex(found: dict[Path, Page]) -> None:
    drawn = {page.path.name for page in found.values() if "<math" in page.path.read_text("utf-8")}
    left = {page.path.name for page in found.values() if "arithmatex" in page.path.read_text("utf-8")}
    assert "ep.html" in drawn
    assert left == set()


def test_readers_do_not_see_what_tests_set_up(found: dict[Path, Page]) -> None:
    assert [page.path.name for page in found.values() if "<!-- setup" in page.path.read_text("utf-8")] == []


def test_the_reference_shows_inherited_methods(found: dict[Path, Page], site: Path) -> None:
    regressions = found[(site / "reference" / "regressions.html").resolve()]
    shown = {
        f"dpsep.LinearRegression.{name}" for name in ("fit", "predict", "summary", "posterior_predictive")
    }
    assert shown <= regressions.ids


@pytest.fixture(scope="module")
def browser():
    """A chromium, or the reason why there is none."""
    import os

    path = os.environ.get("DPSEP_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium is installed, and DPSEP_CHROMIUM names none")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        started = player.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


def test_search_works_from_disk_and_nothing_else_is_asked_for(site: Path, browser) -> None:
    page = browser.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").first.press_sequentially("ledger")
    page.wait_for_selector(".md-search-result__item", timeout=30_000)
    assert page.locator(".md-search-result__item").count() > 3
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert wrong == []
    page.close()


@pytest.mark.parametrize("name", ["index.html", "reference/regressions.html", "explain/ep.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_can_be_read_by_everybody(site: Path, browser, name: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(color_scheme=scheme)
    page.goto((site / name).as_uri())
    found = [one for one in Axe().run(page).response["violations"] if one["id"] not in LEFT]
    told = [(one["id"], one["help"], [node["target"] for node in one["nodes"][:3]]) for one in found]
    page.close()
    assert told == []
