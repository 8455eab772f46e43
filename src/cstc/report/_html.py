"""What all parts of the page share: text that stays text, names, numbers, tables.

Whatever a user named (features, items, classes, files) goes through `safe` or `name`, and through nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..serving.explain.words import class_name, money, percent, printed

__all__ = ["bar", "class_text", "count", "figure_text", "fold", "money", "name", "percent", "plural", "quality_text"]
__all__ += ["safe", "short", "table", "with_error"]

SHORT = 40  # letters of a name where many stand side by side; all of them are shown where a node is open


def safe(text: Any) -> str:
    """Text for HTML, in elements and in attributes; what does not print is a space."""
    return escape(printed(str(text)))


def name(text: Any) -> str:
    """A name that a user gave: it may be of any length, and of a script that runs the other way."""
    return f"<bdi>{safe(text)}</bdi>"


def short(text: Any) -> str:
    """The beginning of a name, whole where it is short."""
    text = printed(str(text))
    return name(text if len(text) <= SHORT else text[: SHORT - 1] + "…")


def class_text(value: Any) -> str:
    """A class, as text that is not escaped yet."""
    return class_name(value.item() if hasattr(value, "item") else value)


def count(number: int) -> str:
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def figure_text(value: float | None, decimals: int | None = None) -> str:
    """A number with a real minus sign; a dash where it is not known."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.{decimals}f}" if decimals is not None else money(value)
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "\N{MINUS SIGN}")


def quality_text(value: float | None, in_money: bool = False) -> str:
    """A quality: in money with cents, else with three digits behind the point."""
    return figure_text(value, 2 if in_money else 3)


def with_error(text: str, error: float | None, form: str) -> str:
    """A figure and its standard error, where that is known and there is one."""
    return f"{text} ± {form}" if error and math.isfinite(error) else text


def bar(share: float, look: str = "") -> str:
    """A bar beside its number; the number says it all."""
    width = min(100.0, max(0.0, 100.0 * share))
    return f'<span class="bar{" " + look if look else ""}" aria-hidden="true"><i style="width:{width:.1f}%"></i></span>'


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1, hide_caption: bool = True
) -> str:
    """A table that scrolls by itself where it is too wide; the first `words` columns hold text, the others numbers.

    Heads and cells are HTML already; the first cell of each row is its head.
    """
    look = ["" if at < words else ' class="n"' for at in range(len(heads))]
    head = "".join(f'<th scope="col"{cls}>{text}</th>' for cls, text in zip(look, heads, strict=True))
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td{cls}>{text}</td>" for cls, text in zip(look[1:], others, strict=True))
        + "</tr>"
        for first, *others in rows
    )
    hidden = ' class="unseen"' if hide_caption else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption{hidden}>{caption}'
        f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def fold(summary: str, content: str, look: str = "") -> str:
    """What is there for those who open it."""
    cls = f' class="{look}"' if look else ""
    return f"<details{cls}><summary>{summary}</summary><div>{content}</div></details>"
