"""The page in a real browser: it can be touched, asks nobody for anything, and can be read by everybody.

Needs Debian's chromium, and for `axe` the file of axe-core that `make axe` fetches (`CSTC_AXE` names another).  Without
them these tests are skipped; with ``CSTC_NEED_BROWSER=1`` that is a failure.
"""

import os
import re
from importlib.resources import files
from pathlib import Path

import pytest

import browser as browsers
from cstc.report import write_report

AXE = Path(os.environ.get("CSTC_AXE") or Path(__file__).parents[2] / "build" / "axe" / "axe.min.js")
PAGES = ("cancer", "bare", "diabetes", "money", "hostile")
PHONE, DESK = 390, 1280


def missing(what):
    """A test that cannot run here."""
    if os.environ.get("CSTC_NEED_BROWSER"):
        pytest.fail(f"CSTC_NEED_BROWSER is set, and {what}")
    pytest.skip(what)


@pytest.mark.parametrize(("needed", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_a_skip_says_what_is_skipped_and_is_a_failure_where_a_browser_is_needed(monkeypatch, needed, outcome):
    monkeypatch.setenv("CSTC_NEED_BROWSER", needed)
    with pytest.raises(outcome, match="the page is not tried"):
        missing("the page is not tried")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if os.name != "posix" or browsers.program() is None:
        missing("there is no chromium: the page is not tried in a browser")
    found = browsers.Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, cancer, diabetes, money, hostile):
    folder = tmp_path_factory.mktemp("pages")
    write_report(cancer.saved, folder / "cancer.html", **cancer.test)
    write_report(cancer.frontier, folder / "bare.html")
    for name, each in (("diabetes", diabetes), ("money", money)):
        write_report(each.frontier, folder / f"{name}.html", **each.test)
    write_report(hostile.saved, folder / "hostile.html", **hostile.test)
    return {path.stem: path for path in folder.iterdir()}


def shown(browser):
    """The numbers of the models whose panels are to be seen."""
    return browser.run(
        "[...document.querySelectorAll('[data-panel]')].filter(e => !e.hidden).map(e => +e.dataset.panel)"
    )


def pressed(browser):
    return browser.run("[...document.querySelectorAll('.point[aria-pressed=true]')].map(e => +e.dataset.model)")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_loads_without_a_complaint_or_a_request(browser, pages, page, width):
    browser.open(pages[page], width=width)
    assert browser.errors == []
    assert browser.asked == [pages[page].as_uri()]  # the file itself, and nothing else
    assert len(shown(browser)) == 1
    assert shown(browser) == pressed(browser)
    # nothing sticks out at the side
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.title").endswith("what money buys")


def test_no_request_leaves_the_page_even_if_it_tries(browser, pages):
    browser.open(pages["cancer"])
    tried = "new Promise(done => {const i = new Image(); i.onerror = () => done('refused'); i.src = 'http://127.0.0.1:9/x';})"
    assert browser.run(tried) == "refused"
    assert any("Content Security Policy" in error for error in browser.errors)


def test_the_slider_moves_and_another_model_is_shown(browser, pages):
    browser.open(pages["cancer"])
    move = "(v => {const s = document.getElementById('budget'); s.value = v; s.dispatchEvent(new Event('input'));})"
    browser.run(f"{move}(0)")
    assert shown(browser) == pressed(browser) == [1]
    assert browser.run("document.getElementById('budget-value').textContent") == "0"
    seen = []
    for place in range(0, 101, 5):
        browser.run(f"{move}({place})")
        seen += shown(browser)
        assert shown(browser) == pressed(browser)
    assert seen == sorted(seen)
    assert set(seen) == set(range(1, browser.run("document.querySelectorAll('button.point').length") + 1))
    text = browser.run("document.getElementById('choice').textContent")
    assert text.startswith(f"Model {seen[-1]}: mean cost ")
    assert browser.run("document.getElementById('budget').ariaValueText").endswith(f"model {seen[-1]}")


def test_the_budget_is_the_money_at_its_place(browser, pages):
    """On the place of a point, the budget is its mean cost, on linear and on logarithmic axes."""
    for page, logarithmic in (("cancer", True), ("diabetes", False)):
        browser.open(pages[page])
        assert browser.run("Boolean(document.getElementById('frontier').dataset.log)") == logarithmic
        for number in range(1, browser.run("document.querySelectorAll('button.point').length") + 1):
            browser.run(f"document.querySelector('button[data-model=\"{number}\"]').click()")
            assert shown(browser) == [number]
            budget = float(browser.run("document.getElementById('budget-value').textContent").replace(",", ""))
            label = browser.run(f"document.querySelector('button[data-model=\"{number}\"]').ariaLabel")
            cost = float(re.search(r"mean cost ([\d.,]+)", label)[1].replace(",", ""))
            assert budget == pytest.approx(cost, rel=2e-3, abs=0.011)


def test_where_errors_have_prices_more_money_is_not_always_better(browser, pages, money):
    browser.open(pages["money"])
    browser.run(
        "(() => {const s = document.getElementById('budget'); s.value = 100; s.dispatchEvent(new Event('input'));})()"
    )
    worths = browser.run("[...document.querySelectorAll('button.point')].map(e => +e.dataset.worth)")
    assert shown(browser) == [worths.index(max(worths)) + 1]


def test_a_point_can_be_touched_and_says_what_it_is(browser, pages):
    browser.open(pages["cancer"])
    browser.click('button[data-model="2"]')
    assert shown(browser) == pressed(browser) == [2]
    tip = "getComputedStyle(document.querySelector('button[data-model=\"2\"] .tip')).visibility"
    assert browser.run(tip) == "visible"
    text = browser.run("document.querySelector('button[data-model=\"2\"] .tip').innerText")
    assert re.fullmatch(r"Model 2\nmean cost [\d.]+ ± [\d.]+\nAUC 0\.\d{3} ± 0\.\d{3}", text)
    browser.press("Escape")
    browser.run("document.activeElement.blur()")
    browser.click("h1")
    assert browser.run(tip) == "hidden"


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_what_a_point_says_is_within_the_window(browser, pages, width):
    for page in ("cancer", "hostile"):
        browser.open(pages[page], width=width)
        sides = browser.run(
            "[...document.querySelectorAll('.point')].map(e => {e.focus(); const b = e.querySelector('.tip')"
            ".getBoundingClientRect(); return [b.left, b.right];})"
        )
        assert sides
        assert all(left >= 0 and right <= width for left, right in sides), sides


def test_everything_works_by_keyboard(browser, pages):
    browser.open(pages["cancer"])
    browser.run("document.querySelector('button.point').focus()")
    browser.press("ArrowRight")
    assert shown(browser) == [2]
    browser.press("ArrowLeft")
    assert shown(browser) == [1]
    browser.run("document.getElementById('budget').focus()")
    browser.press("End")
    assert shown(browser) == [4]
    browser.press("Home")
    assert shown(browser) == [1]
    browser.press("End")
    browser.run("document.querySelector('[data-panel]:not([hidden]) .node summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('[data-panel]:not([hidden]) .node details').open")


def test_nodes_open_one_by_one_and_all_at_once(browser, pages):
    browser.open(pages["diabetes"])
    browser.run("document.querySelector('button.point:last-of-type').click()")
    inside = "document.querySelector('[data-panel]:not([hidden]) .node .inside')"
    assert not browser.run(f"{inside}.checkVisibility()")
    browser.click("[data-panel]:not([hidden]) .node summary")
    assert browser.run(f"{inside}.checkVisibility()")
    assert "All rows start here." in browser.run(f"{inside}.innerText")
    count = "[...document.querySelectorAll('[data-panel]:not([hidden]) .node details')].filter(e => {}e.open).length"
    browser.click("[data-panel]:not([hidden]) .open-all")
    assert browser.run(count.format("!")) == 0
    browser.click("[data-panel]:not([hidden]) .open-all")
    assert browser.run(count.format("")) == 0


def test_a_link_to_a_model_shows_it(browser, pages):
    browser.open(pages["cancer"])
    browser.run(
        "new Promise(done => {addEventListener('hashchange', () => setTimeout(done)); location.hash = 'model-2';})"
    )
    assert shown(browser) == [2]
    assert browser.run("document.activeElement.id") == "model-2-head"


def test_on_paper_everything_is_open(browser, pages):
    browser.open(pages["cancer"])
    state = "[...document.querySelectorAll('[data-panel]:not([hidden]) details')].map(e => e.open)"
    assert not any(browser.run(state))
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert all(browser.run(state))
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert not any(browser.run(state))
    assert browser.paper().startswith(b"%PDF")


def test_hostile_names_do_nothing_and_are_seen(browser, pages):
    browser.open(pages["hostile"], width=PHONE)
    assert browser.errors == []
    assert browser.run("document.querySelectorAll('img, b b, script').length") == 1  # our own script
    assert "harm" not in browser.run("document.title")
    assert "<script>document.title='harm'</script>" in browser.run("document.body.innerText")


def test_without_a_script_all_models_are_there(browser, pages, tmp_path):
    path = tmp_path / "plain.html"
    page = pages["cancer"].read_text(encoding="utf-8")
    path.write_text(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL), encoding="utf-8")
    browser.open(path)
    assert shown(browser) == [1, 2, 3, 4]
    assert not browser.run("document.getElementById('budget').checkVisibility()")


# -- for everybody ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def axe():
    if not AXE.exists():
        missing(f"there is no axe-core in {AXE} (make axe fetches it): the page is not checked for accessibility")
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(PHONE, True), (DESK, False)], ids=["phone, dark", "desk, light"])
def test_axe_finds_nothing(browser, pages, axe, page, width, dark):
    """Contrast is all that axe leaves open: of cells that have to be scrolled to, and of texts of one letter.

    Their colours are those that the next test checks.
    """
    browser.open(pages[page], width=width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(each => {each.open = true;})")
    browser.run(f"{axe};0")
    found = browser.run("axe.run({resultTypes: ['violations', 'incomplete']})")
    assert len(found["passes"]) > 20
    told = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]
    assert told == []
    assert {each["id"] for each in found["incomplete"]} <= {"color-contrast"}
    why = {check["message"] for each in found["incomplete"] for node in each["nodes"] for check in node["any"]}
    assert all(("obscured" in text or "overlapped" in text or "too short" in text) for text in why), why


def test_colours_of_text_have_contrast_in_both_schemes():
    """At least 4.5 to 1, as WCAG asks for, wherever text may stand."""
    style = files("cstc.report").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+)", part)) for part in style.split("@media", 2)[:2])
    assert set(light) == set(dark)
    for scheme in (light, dark):
        for text in ("ink", "pale", "accent"):
            for ground in ("paper", "card"):
                assert contrast(scheme[text], scheme[ground]) >= 4.5, (text, ground)


def contrast(one, other):
    """Of two colours, by WCAG's formula."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * letter for letter in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
