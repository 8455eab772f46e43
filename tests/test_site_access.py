"""The check that everybody can read the site (docs/check_access.py) can fail, and says what it does not check.

`make docs` runs it on the built pages.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
GOOD = """<!doctype html><html lang="en"><head><title>a</title>
<meta name="viewport" content="width=device-width"></head>
<body><main><h1>a</h1><p>b</p>{}</main></body></html>"""


@pytest.fixture
def check_access(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield import_module("check_access")
    sys.modules.pop("check_access")


@pytest.fixture
def browser(check_access, tmp_path):
    lost = check_access.lacks()
    if lost is not None:
        what = f"{lost}: the check of the site is not tried"
        if os.environ.get("CSTC_NEED_BROWSER"):
            pytest.fail(f"CSTC_NEED_BROWSER is set, and {what}")
        pytest.skip(what)
    found = check_access.browsers.Browser(tmp_path / "browser")
    yield found
    found.close()


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ("", None),
        ('<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">', "image-alt: <img"),
        ('<p style="color: #999; background: #fff">pale</p>', "color-contrast: <p"),
        ("<table><tr><th></th><th>x</th></tr><tr><td>1</td><td>2</td></tr></table>", "empty-table-header: <th"),
        ('<div style="width: 700px">wide</div>', "it is 708 wide in a window of 390"),
    ],
)
def test_what_some_readers_cannot_read_is_found(check_access, browser, tmp_path, part, complaint):
    page = tmp_path / "page.html"
    page.write_text(GOOD.format(part), encoding="utf-8")
    found = check_access.complaints(browser, page, check_access.PHONE, dark=False)
    if complaint is None:
        assert found == []
    else:
        assert [each[: len(complaint)] for each in found] == [complaint]


def test_pages_of_each_kind_are_looked_at_in_four_ways(check_access, tmp_path):
    for name in [*check_access.KINDS, "other"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.html").write_text("")
    views = check_access.views(tmp_path)
    four = [(390, False), (390, True), (1280, False), (1280, True)]
    assert [view[1:] for view in views if view[0] == "maths"] == four
    assert [view for view in views if view[0] == "other"] == [("other", 1280, False)]
    (tmp_path / "maths.html").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no maths\.html: build the site first"):
        check_access.views(tmp_path)


@pytest.mark.parametrize(("needed", "status"), [("", 0), ("1", 1)])
def test_without_a_browser_it_says_what_is_not_checked(check_access, monkeypatch, capsys, needed, status):
    monkeypatch.setenv("CSTC_NEED_BROWSER", needed)
    monkeypatch.setattr(check_access.browsers, "program", lambda: None)
    monkeypatch.setattr(sys, "argv", ["check_access.py", "build/docs/html"])
    assert check_access.main() == status
    assert capsys.readouterr().out == "there is no chromium: the pages are not checked for accessibility\n"
