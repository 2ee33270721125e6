"""The page in a browser: nothing leaves it, nothing complains, and all of it can be reached and used."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

KINDS = ("linear", "logistic", "mixture", "network")
WIDTHS = (360, 768, 1440)
Reports = Callable[..., Path]
NUMBER_CONTROLS = """(() => {
  const all = Array.from(document.querySelectorAll("button, summary, select, input, a, .stage"));
  const shown = all.filter((one) => one.getClientRects().length);
  shown.forEach((one, place) => { one.dataset.seen = place; });
  return shown.length;
})()"""
DOTS = "Array.from(document.querySelectorAll('#forest circle')).map((one) => one.getBoundingClientRect().x)"
NAMES = """Array.from(document.querySelectorAll("#forest tbody tr:not([hidden]) th"))
  .map((one) => one.textContent)"""


@contextmanager
def opened(browser: Any, path: Path, width: int = 1440, **options: Any) -> Iterator[Any]:
    """Open a page; at the end it must have asked for nothing but itself and complained of nothing."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    yield page
    assert complaints == []
    assert requests == [path.as_uri()]
    context.close()


def overflow(page: Any) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def violations(page: Any) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    answer = axe.Axe().run(page).response
    assert len(answer["passes"]) > 20, "axe has looked at next to nothing"
    found = answer["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found]


def open_all(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize(
    "kind", ["network", *(pytest.param(kind, marks=pytest.mark.deep) for kind in KINDS if kind != "network")]
)
def test_a_page_fits_every_width_and_every_control_works(browser: Any, report: Reports, kind: str) -> None:
    for width in WIDTHS:
        with opened(browser, report(kind), width, reduced_motion="reduce") as page:
            assert overflow(page) <= 0
            for button in page.locator("button:visible").all():
                button.click()
            for box in page.locator("input[type=checkbox]:visible").all():
                box.click()
                box.click()
            for summary in page.locator("summary:visible").all():
                summary.click()
            assert page.locator("details:not([open])").count() == 0
            assert overflow(page) <= 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_with_everything_open(
    browser: Any, report: Reports, kind: str, scheme: str
) -> None:
    with opened(browser, report(kind), 1440, color_scheme=scheme, reduced_motion="reduce") as page:
        open_all(page)
        assert violations(page) == []
    with opened(browser, report(kind), 360, color_scheme=scheme, reduced_motion="reduce") as page:
        assert violations(page) == []


def test_axe_finds_nothing_in_a_page_that_is_not_private(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear", "open"), reduced_motion="reduce") as page:
        assert violations(page) == []


def test_every_control_is_reached_by_the_tab_key(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear")) as page:
        wanted = page.evaluate(NUMBER_CONTROLS)
        reached = set()
        for _ in range(wanted + 40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.dataset.seen"))
        assert {str(place) for place in range(wanted)} <= reached


def test_arrow_keys_show_tips_and_escape_hides_them(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear")) as page:
        page.focus("#fig-delta .stage")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#tip").startswith("ε = ")
        page.keyboard.press("Escape")
        assert page.is_hidden("#tip")
        page.hover("#fig-forest tbody tr:nth-child(2) circle")
        assert "90 % interval" in page.inner_text("#tip")


def test_zoom_moves_marks_and_reset_brings_them_back(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear")) as page:
        before = page.evaluate(DOTS)
        page.click("#fig-forest [data-zoom=in]")
        assert page.evaluate(DOTS) != before
        page.click("#fig-forest [data-zoom=reset]")
        assert page.evaluate(DOTS) == pytest.approx(before, abs=0.6)
        page.focus("#fig-forest .stage")
        page.keyboard.press("+")
        page.keyboard.press("Shift+ArrowRight")
        assert page.evaluate(DOTS) != before
        page.keyboard.press("0")
        assert page.evaluate(DOTS) == pytest.approx(before, abs=0.6)
        page.hover("#fig-forest .strip >> nth=1")
        page.keyboard.down("Control")
        page.mouse.wheel(0, -200)
        page.keyboard.up("Control")
        page.wait_for_function("document.querySelector('#fig-forest .stage').classList.contains('zoomed')")


def test_the_forest_sorts_filters_and_shows_the_prior(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear")) as page:
        assert page.evaluate(NAMES) == ["intercept", "a", "b"]
        page.select_option("#fig-forest select", "name")
        assert page.evaluate(NAMES) == ["a", "b", "intercept"]
        page.fill("#fig-forest input[type=search]", "inter")
        assert page.evaluate(NAMES) == ["intercept"]
        page.fill("#fig-forest input[type=search]", "")
        assert page.locator("#forest .prior").first.is_hidden()
        page.check("#fig-forest [data-show=prior]")
        assert page.evaluate("getComputedStyle(document.querySelector('#forest .prior')).display") != "none"


def test_scaled_effects_change_numbers_tips_and_marks_and_come_back(browser: Any, wide: Path) -> None:
    """Column a is declared from -4 to 4, so its reach is 4."""
    cells = "Array.from(document.querySelectorAll('#forest .mean')).map((one) => one.textContent)"
    tip = "document.querySelector('#forest tbody tr:nth-child(2) circle').dataset.tip"
    with opened(browser, wide) as page:
        before, said = page.evaluate(cells), page.evaluate(tip)
        page.check("#fig-forest [data-scaled]")
        after = page.evaluate(cells)
        assert (after[0], after[2]) == (before[0], before[2])
        assert _value(after[1]) == pytest.approx(4 * _value(before[1]), rel=2e-3)
        assert page.evaluate(tip).startswith(f"a: {after[1]}, 90 % interval")
        assert "reach" in page.inner_text("#fig-forest .axis-words")
        page.uncheck("#fig-forest [data-scaled]")
        assert (page.evaluate(cells), page.evaluate(tip)) == (before, said)


def _value(text: str) -> float:
    return float(text.replace("−", "-"))


def test_bars_that_are_cut_off_have_arrows_in_every_view(browser: Any, wide: Path) -> None:
    """The intercept's prior is ten times as wide as the others, and does not fit any axis."""
    ends = """(() => {
      const bar = document.querySelectorAll("#forest line.prior")[ROW];
      return [parseFloat(bar.getAttribute("x1")) < 0, parseFloat(bar.getAttribute("x2")) > 100];
    })()"""
    arrows = "document.querySelectorAll('#forest .inside')[ROW].querySelectorAll('.of-prior').length"
    with opened(browser, wide) as page:
        assert page.locator("#forest .of-prior:visible").count() == 0
        for boxes in ([], ["prior"], ["prior", "scaled"]):
            for name in boxes:
                page.check(f"#fig-forest [data-{'scaled' if name == 'scaled' else 'show=prior'}]")
            for row in range(3):
                cut = page.evaluate(ends.replace("ROW", str(row)))
                if boxes:
                    assert page.evaluate(arrows.replace("ROW", str(row))) == sum(cut)
                    assert sum(cut) == (2 if row == 0 else 0)


def test_the_odds_fit_a_narrow_screen_and_wider_tables_say_that_they_go_on(
    browser: Any, report: Reports
) -> None:
    with opened(browser, report("linear"), 360) as page:
        odds = page.locator(".scroll:has(.odds)")
        assert odds.count() == 1
        assert odds.evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0
        files = page.locator("#files .scroll").first
        assert files.evaluate("(box) => box.scrollWidth > box.clientWidth")
        assert "scroll sideways" in files.evaluate("(box) => getComputedStyle(box, '::before').content")
        assert "scroll sideways" not in odds.evaluate("(box) => getComputedStyle(box, '::before').content")


def test_the_theme_button_changes_the_paper(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear"), color_scheme="light") as page:
        colour = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(colour)
        page.click("#theme")
        assert page.evaluate(colour) != before


def test_everything_is_there_without_scripts(browser: Any, report: Reports) -> None:
    with opened(browser, report("linear"), java_script_enabled=False) as page:
        assert page.locator(".controls:visible").count() == 0
        assert page.locator("#forest tbody tr:visible").count() == 3
        assert page.locator("figure:visible").count() >= 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_prints(browser: Any, report: Reports, kind: str) -> None:
    with opened(browser, report(kind)) as page:
        assert page.pdf(format="A4")[:5] == b"%PDF-"
        page.emulate_media(media="print")
        assert page.is_visible(".stamp")
        assert page.is_hidden("nav")
