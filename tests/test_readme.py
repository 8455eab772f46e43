"""Every promise that the README and the documents make in Python is kept: their blocks run, in order."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib").use("Agg")
    names: dict = {"__name__": "__main__"}
    for block in blocks(page):
        exec(compile(block, f"{page.name}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text) + re.findall(r'src="(?!https?://)([^"]+)"', text)
    assert all((page.parent / link).exists() for link in links), links


def test_readme_shows_code():
    assert len(blocks(PROJECT / "README.md")) >= 3


def test_pictures_are_small():
    for picture in (PROJECT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 150_000, picture.name
