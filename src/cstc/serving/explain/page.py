"""An explanation as HTML: a table of the steps, for notebooks and as a page of its own.

All is escaped, and nothing is fetched from anywhere.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .words import (
    answer_in_words,
    belief_in_words,
    bought_in_words,
    decision_in_words,
    listed,
    lost_in_words,
    money,
    next_in_words,
    paid_in_words,
    printed,
    speaks_of_worth,
    value_in_words,
    worth_in_words,
)

if TYPE_CHECKING:
    from .explanation import Explanation, Step

__all__ = ["as_html", "as_page"]

MOST = 1000  # features of a step that are named: a page has room
CELL = "text-align:left;vertical-align:top;padding:0.35em 0.8em;border-top:1px solid rgba(128,128,128,0.4)"
RIGHT = CELL.replace("text-align:left", "text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap")


def as_page(explanation: Explanation) -> str:
    """A whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>How the answer came about</title></head>'
        f'<body style="margin:2em auto;max-width:70em;padding:0 1em">{as_html(explanation)}</body></html>\n'
    )


def as_html(explanation: Explanation) -> str:
    """The part of a page that says it."""
    parts = [_said(explanation.taken)] if explanation.taken else []
    if explanation.decisions is not None:
        parts.append(f"<p><strong>{_safe(decision_in_words(explanation))}</strong></p>")
    parts += [
        f"<p><strong>{_safe(answer_in_words(explanation.outcome))}</strong></p>",
        _said(paid_in_words(explanation)),
    ]
    if explanation.given:
        known = [f"{name} = {value_in_words(value)}" for name, value in explanation.given.items()]
        parts.append(_said(f"Known from the start, for nothing: {listed(known, MOST)}."))
    parts.append(_table(explanation))
    parts.append(_said(f"Why it stopped: {explanation.stopped_because}"))
    more = lost_in_words(explanation), next_in_words(explanation), *explanation.warnings
    parts += [_said(text) for text in more if text]
    if speaks_of_worth(explanation):
        parts.append(f'<p style="opacity:0.7;font-size:90%">{_safe(worth_in_words(explanation))}</p>')
    return f'<div style="font-family:system-ui,sans-serif;line-height:1.45">{"".join(parts)}</div>'


def _table(explanation: Explanation) -> str:
    heads = ("step", "bought", "why", "paid so far", "prediction")
    head = "".join(f'<th style="{RIGHT if name == "paid so far" else CELL}">{name}</th>' for name in heads)
    start = ["", "nothing yet", "", money(0.0), belief_in_words(explanation.start)]
    rows = [_row(start), *(_row(_cells(number, step)) for number, step in enumerate(explanation.steps, 1))]
    return f'<table style="border-collapse:collapse;margin:0.8em 0"><tr>{head}</tr>{"".join(rows)}</table>'


def _cells(number: int, step: Step) -> list[str]:
    bought = bought_in_words(step, MOST)
    bought += "".join(f" Did not come: {name} ({why})." for name, why in step.failed.items())
    return [str(number), bought, step.why, money(step.spent), belief_in_words(step.after)]


def _row(cells: list[str]) -> str:
    styles = (CELL, CELL, CELL, RIGHT, CELL)
    found = (f'<td style="{style}">{_safe(cell)}</td>' for style, cell in zip(styles, cells, strict=True))
    return f"<tr>{''.join(found)}</tr>"


def _said(text: str) -> str:
    return f"<p>{_safe(text)}</p>"


def _safe(text: str) -> str:
    return escape(printed(text))
