"""What people read: lines that fit a screen, plain words, and files that exist."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")])
LONGEST = 120

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page):
    """Numbered lines that are neither code, nor a table, a formula or a picture."""
    inside = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = next((mark for mark in ("```", "$$") if line.lstrip().startswith(mark)), "")
        if fence and (not inside or inside == fence):
            closes = bool(inside) or line.strip().count(fence) == 2
            inside = "" if closes else fence
        elif not inside and not line.lstrip().startswith(("|", "![", "<!--")):
            yield number, line


@each_page
def test_lines_of_prose_fit_a_screen(page):
    too_long = [f"{page.name}:{number}" for number, line in prose(page) if len(line) > LONGEST]
    assert not too_long


@each_page
def test_what_costs_much_is_called_expensive(page):
    assert not [number for number, line in prose(page) if re.search(r"\b[Dd]ear(er|est)?\b", line)]


def test_sources_say_expensive_too():
    found = [
        path.relative_to(PROJECT)
        for folder in ("src", "examples", "benchmarks")
        for path in (PROJECT / folder).rglob("*.py")
        if re.search(r"\b[Dd]ear(er|est)?\b", path.read_text(encoding="utf-8"))
    ]
    assert not found


@each_page
def test_files_that_are_named_exist(page):
    """`paper/solver.py`, `benchmarks/paper.py`, docs/maths.md: a path in a page leads somewhere."""
    named = re.findall(r"\b((?:\w+/)+\w+\.(?:py|md|png))\b", page.read_text(encoding="utf-8"))
    roots = (PROJECT, PROJECT / "src" / "cstc", PROJECT / "docs")
    lost = {name for name in named if not any((root / name).exists() for root in roots)}
    assert not {name for name in lost if not name.startswith("out/")}  # those are made by the commands
