"""Every promise that the README and the documents make in Python is kept: their blocks run, in order."""

import re
import subprocess
import sys
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


PLAIN_INSTALL = """
import sys

class Extras:
    def find_spec(self, name, path=None, target=None):
        extras = {"matplotlib", "pandas", "polars", "pyarrow", "dask", "starlette", "uvicorn", "click"}
        if name.partition(".")[0] in extras:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Extras())
"""


def test_the_first_snippet_needs_the_plain_install_only(tmp_path):
    first = blocks(PROJECT / "README.md")[0]
    assert first.count("\n") <= 11
    few = first.replace("CSTCClassifier(costs", "CSTCClassifier(n_weak_learners=3, costs")  # what counts is the imports
    assert few != first
    more = "model._repr_html_(), repr(model.model_)\nprint(model.predict_cost(X_test).max() <= sum(prices))\n"
    for extra, fails in (("", False), ("import pandas\n", True)):
        code = PLAIN_INSTALL + extra + few + more
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert (run.returncode != 0) == fails, run.stderr
        assert fails or run.stdout == "True\n"


def test_the_install_lines_name_extras_that_there_are():
    import tomllib

    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r'pip install "\.\[([a-z,]+)\]"', (PROJECT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert set(named[0].split(",")) <= set(extras)


def test_pictures_are_small():
    for picture in (PROJECT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 150_000, picture.name
