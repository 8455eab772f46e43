"""Is the built site whole, and does it ask nobody for anything?

    python docs/check_site.py build/docs/html

Two promises that Sphinx does not check: no page, style sheet or script loads anything from another address (links that
a person clicks are fine), and every link inside of the site leads to a file, and to a place in it, that is there.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes whose address a browser fetches by itself, for each element; `link` only for some of its kinds.
LOADED = {
    "audio": {"src"},
    "embed": {"src"},
    "iframe": {"src"},
    "image": {"href", "xlink:href"},
    "img": {"src", "srcset"},
    "input": {"src"},
    "link": {"href"},
    "object": {"data"},
    "script": {"src"},
    "source": {"src", "srcset"},
    "track": {"src"},
    "use": {"href", "xlink:href"},
    "video": {"src", "poster"},
}
#: Kinds of `link` that only say where something else is.
ONLY_SAID = {"alternate", "author", "canonical", "help", "index", "license", "next", "prev", "search", "top"}
OUTSIDE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
STYLE_LOADS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
#: In scripts: what fetches, with an address that is written out.
SCRIPT_LOADS = re.compile(
    r"""(?:fetch|import|importScripts|Worker|WebSocket|EventSource)\s*\(\s*["'`]((?:[a-z]+:)?//[^"'`]+)"""
)


class Page(HTMLParser):
    """What one page loads, what it links to, and the places in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self._inside = tag if tag in ("style", "script") else ""
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and set(given.get("rel", "").lower().split()) <= ONLY_SAID:
            return
        for name in LOADED.get(tag, set()) & set(given):
            several = given[name].split(",") if name == "srcset" else [given[name]]
            self.loads += [address.split()[0] for address in several if address.strip()]
        self.loads += _in_style(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.loads += _in_style(data)
        elif self._inside == "script":
            self.loads += SCRIPT_LOADS.findall(data)


def _in_style(text: str) -> list[str]:
    return [(one or other).strip() for one, other in STYLE_LOADS.findall(text)]


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _pages(site: Path) -> list[Path]:
    """All but what themes keep among their files for their own use."""
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]


def problems(site: Path) -> list[str]:
    """Everything that is wrong with the site, as sentences."""
    pages = {path: _read(path) for path in _pages(site)}
    if site / "index.html" not in pages:
        return [f"{site} has no index.html: build the site first, with make docs"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name} loads {address}" for address in page.loads if OUTSIDE.match(address)]
        for link in [*page.loads, *page.links]:
            found += _broken(site, path, link, pages)
    for path in sorted(site.rglob("*.css")):
        addresses = _in_style(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {address}" for address in addresses if OUTSIDE.match(address)]
    for path in sorted(site.rglob("*.js")):
        addresses = SCRIPT_LOADS.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {address}" for address in addresses]
    return sorted(set(found))


def _broken(site: Path, path: Path, link: str, pages: dict[Path, Page]) -> list[str]:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return []
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    name = path.relative_to(site)
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return [f"{name} links to {link}, which is not there"]
    place = unquote(parts.fragment)
    if place and target in pages and place not in pages[target].places:
        return [f"{name} links to {link}: the page is there, the place is not"]
    return []


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python docs/check_site.py build/docs/html", file=sys.stderr)
        return 2
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    for problem in found:
        print(problem, file=sys.stderr)
    n_pages = len(_pages(site))
    print(f"{n_pages} pages: " + (f"{len(found)} problems" if found else "whole, and nothing is loaded from outside"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
