"""Can everybody read the built site?

    python docs/check_access.py build/docs/html

axe-core looks at the pages in a real browser (tests/browser.py): every page that a person wrote once, and a page of
each kind on a phone and on a desk, light and dark.  Nothing may stick out at the side, either.  Needs Debian's chromium
and the file that `make axe` fetches (`CSTC_AXE` names another); without them it says so and passes, and with
``CSTC_NEED_BROWSER=1`` that is a failure.

No violation of the theme is left: its search field, whose name differs from the text that is seen, is a button here
(`navbar_persistent` in conf.py), and links of the gallery have their text back (site.css).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

import browser as browsers  # noqa: E402

PHONE, DESK = 390, 1280
#: One page of each kind, without its ending.
KINDS = {
    "index": "the front, with cards",
    "install": "a page without a list of pages at its side",
    "command": "a page with code, tables and both lists at its sides",
    "maths": "formulas",
    "report": "a large picture",
    "reference": "tables of names",
    "api/cstc.CSTCClassifier": "a class",
    "api/cstc.load": "a function",
    "tutorials/index": "the gallery",
    "tutorials/laboratory_tests": "a tutorial",
    "changelog": "a file from elsewhere",
    "genindex": "the index",
    "search": "the search",
}
#: Colours that are on their way from one to another have no contrast that could be measured.
AT_REST = "const s = document.createElement('style'); s.textContent = '* {transition: none !important}';"
RUN = "axe.run({resultTypes: ['violations']}).then(found => found.violations)"


def lacks() -> str | None:
    """What is missing to check anything; None if all is there."""
    if os.name != "posix" or browsers.program() is None:
        return "there is no chromium"
    if not _axe().exists():
        return f"there is no axe-core in {_axe()} (make axe fetches it)"
    return None


def _axe() -> Path:
    return Path(os.environ.get("CSTC_AXE") or ROOT / "build" / "axe" / "axe.min.js")


def complaints(browser: Any, page: Path, width: int, dark: bool) -> list[str]:
    """What is wrong with a page for some readers, as sentences."""
    browser.open(page, width=width, dark=dark)
    browser.run(f"(() => {{{AT_REST} document.head.append(s);}})()")
    browser.run(f"{_axe().read_text(encoding='utf-8')};0")
    found = [f"{each['id']}: {node['html'][:200]}" for each in browser.run(RUN) for node in each["nodes"]]
    wide = browser.run("document.documentElement.scrollWidth")
    return found + ([f"it is {wide} wide in a window of {width}"] if wide > width else [])


def views(site: Path) -> list[tuple[str, int, bool]]:
    """The pages that are looked at: name, width of the window, and whether it is dark."""
    lost = [name for name in KINDS if not (site / f"{name}.html").exists()]
    if lost:
        raise FileNotFoundError(f"{site} has no {lost[0]}.html: build the site first, with make docs")
    each = [(name, width, dark) for name in KINDS for width in (PHONE, DESK) for dark in (False, True)]
    return each + [(page.stem, DESK, False) for page in sorted(site.glob("*.html")) if page.stem not in KINDS]


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python docs/check_access.py build/docs/html", file=sys.stderr)
        return 2
    lost = lacks()
    if lost is not None:
        print(f"{lost}: the pages are not checked for accessibility")
        return 1 if os.environ.get("CSTC_NEED_BROWSER") else 0
    site, n_found = Path(sys.argv[1]).resolve(), 0
    try:
        looked_at = views(site)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = browsers.Browser(folder)
        for name, width, dark in looked_at:
            for complaint in complaints(browser, site / f"{name}.html", width, dark):
                n_found += 1
                print(f"{name}.html, {width} wide, {'dark' if dark else 'light'}: {complaint}", file=sys.stderr)
        browser.close()
    print(f"{len(looked_at)} views of pages: " + (f"{n_found} violations" if n_found else "axe-core finds nothing"))
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main())
