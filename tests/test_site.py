"""The site: every page can be found, every public name is in the reference, and the check of built pages can fail."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PACKAGES = ("cstc", "cstc.baselines", "cstc.datasets", "cstc.frontier", "cstc.metrics", "cstc.plotting", "cstc.serving")
PACKAGES += ("cstc.report", "cstc.serving.http")
#: Constants: their values are said where they are used.
NOT_LISTED = {"cstc.__version__", "cstc.metrics.ERROR_COST", "cstc.plotting.COLOURS"}
NOT_LISTED |= {"cstc.datasets.QUADRANT_COSTS", "cstc.datasets.QUADRANT_FEATURES"}


def listed_pages():
    """The pages that stand in a list of pages, with those that list them."""
    found = {}
    for page in sorted(DOCS.glob("*.md")):
        for body in re.findall(r"^```{toctree}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for line in body.splitlines():
                if line and not line.startswith(":"):
                    found.setdefault(re.sub(r".*<(.*)>", r"\1", line), []).append(page.stem)
    return found


def test_every_page_is_in_one_list():
    listed = listed_pages()
    assert {name for name, lists in listed.items() if len(lists) > 1} == set()
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages - set(listed) == set(), "add each to a list of docs/how-to.md or docs/explanation.md"
    assert set(listed) - pages == {"tutorials/index"}  # made from examples/tutorials


def test_lists_are_read_without_the_site_too():
    """What a list has is also a link on its page, for whoever reads the file itself."""
    for name, (page,) in listed_pages().items():
        if page != "index":
            assert f"]({name}.md)" in (DOCS / f"{page}.md").read_text(encoding="utf-8"), f"{page}.md: {name}"


def test_what_a_newcomer_looks_for_is_two_clicks_away():
    front = {name for name, lists in listed_pages().items() if "index" in lists}
    second = {name for name, lists in listed_pages().items() if set(lists) & front}
    assert {"install", "first-model", "tutorials/index", "reference"} <= front
    assert {"frontier", "serving", "service", "outages", "prices", "errors", "command", "cstc-or-lightgbm"} <= second


def listed_names():
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    module, names = "", []
    for line in text.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split(":: ")[1]
        elif re.fullmatch(r"   [\w.]+", line):
            names.append(f"{module}.{line.strip()}")
    return names


def test_every_public_name_is_in_the_reference():
    public = {f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__} - NOT_LISTED
    names = listed_names()
    listed = set(names)
    assert len(names) == len(listed)
    homes = {"cstc.frontier.Frontier": "cstc.Frontier"}  # one page for a thing with two addresses
    assert {homes.get(name, name) for name in public} - listed == set()
    assert listed - public == {"cstc.from_lightgbm", "cstc.model.FittedTree"} - public


def test_what_pages_import_is_public():
    """A page that says `from cstc.x import y` uses what the reference has, or a module of its own that it explains."""
    explained = {"cstc.model.native"}
    for page in DOCS.glob("*.md"):
        for module, names in re.findall(r"^from (cstc[\w.]*) import ([\w, ]+)", page.read_text("utf-8"), re.MULTILINE):
            for name in names.split(", "):
                assert {f"{module}.{name}"} <= {*listed_names(), *explained}, f"{page.name}: {module}.{name}"


@pytest.fixture
def check_site(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield import_module("check_site")
    sys.modules.pop("check_site")


HEAD = '<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://example.org/">'
WHOLE = {
    "index.html": f'{HEAD}<script src="a.js"></script><a href="b/c.html#there">c</a><a href="https://example.org">far</a>',
    "b/c.html": '<h1 id="there">c</h1><img src="../a.svg"><a href="#there">up</a><a href="../index.html">home</a>',
    "a.css": "body { background: url(a.svg) } i { background: url(data:image/png;base64,aa) }",
    "a.js": 'const home = "https://example.org"; fetch("searchindex.js")',
    "a.svg": "<svg/>",
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_whole_site_passes(check_site, tmp_path, monkeypatch, capsys):
    site = write(tmp_path, WHOLE)
    assert check_site.problems(site) == []
    monkeypatch.setattr(sys, "argv", ["check_site.py", str(site)])
    assert check_site.main() == 0
    assert capsys.readouterr().out == "2 pages: whole, and nothing is loaded from outside\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("b/c.html", '<h1 id="there"></h1><script src="https://cdn.org/x.js"></script>', "b/c.html loads https://cdn.org"),
        ("b/c.html", '<h1 id="there"></h1><script>import("https://cdn.org/x.js")</script>', "b/c.html loads https://cdn"),
        ("b/c.html", '<h1 id="there"></h1><img srcset="../a.svg 1x, //cdn.org/b.png 2x">', "b/c.html loads //cdn.org"),
        ("b/c.html", '<h1 id="there"></h1><link rel="preconnect" href="https://f.org">', "b/c.html loads https://f.org"),
        ("b/c.html", '<h1 id="there" style="background: url(http://f.org/a.png)"></h1>', "b/c.html loads http://f.org"),
        ("b/c.html", "<h1 id='there'></h1><style>@import 'https://f.org/a.css'</style>", "b/c.html loads https://f.org"),
        ("a.css", '@font-face { src: url("https://fonts.org/a.woff2") }', "a.css loads https://fonts.org/a.woff2"),
        ("a.js", "new Worker('https://cdn.org/w.js')", "a.js loads https://cdn.org/w.js"),
        ("b/c.html", '<h1 id="there"></h1><a href="d.html">d</a>', "b/c.html links to d.html, which is not there"),
        ("b/c.html", "<h1>c</h1>", "index.html links to b/c.html#there: the page is there, the place is not"),
    ],
)
def test_what_is_wrong_is_found(check_site, tmp_path, monkeypatch, capsys, name, text, problem):
    site = write(tmp_path, {**WHOLE, name: text})
    (found,) = check_site.problems(site)
    assert found.startswith(problem)
    monkeypatch.setattr(sys, "argv", ["check_site.py", str(site)])
    assert check_site.main() == 1
    assert found in capsys.readouterr().err


def test_a_site_that_was_not_built_is_no_whole_site(check_site, tmp_path):
    assert check_site.problems(tmp_path) == [f"{tmp_path} has no index.html: build the site first, with make docs"]


def test_formulas_that_mathml_cannot_say_are_refused(monkeypatch):
    pytest.importorskip("latex2mathml", reason="the extra `docs` is not installed; make docs checks all formulas")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    pytest.importorskip("sphinx")
    as_mathml = import_module("mathml").as_mathml
    assert as_mathml(r"\lVert x \rVert", block=False).count(">‖<") == 2
    assert "&#x02112;" in as_mathml(r"\mathcal L", block=True)  # ℒ: browsers no longer look at mathvariant
    for formula in (r"\nosuchcommand x", r"\mathbf x"):
        with pytest.raises(ValueError, match="a part of this formula has no MathML"):
            as_mathml(formula, block=False)
