"""What money buys: each item with its price, how often it is bought and what that saves; and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._html import bar, figure_text, fold, money, name, percent, plural, short, table, with_error
from ._measured import MOST_JUDGED, ModelSeen, TestRows

__all__ = ["money_part"]

SHOWN = 12  # items before the rest is folded
MOST_IN_PURCHASE = 5
WHICH = ("First", "Second", "Third")


def money_part(seen: ModelSeen, rows: TestRows | None) -> str:
    if not seen.items:
        return "<p>This model buys nothing: it answers every row alike, for nothing.</p>"
    if rows is None:
        note = (
            "Without test rows, this is what paths may buy at most, by the shares of the training rows that took them; "
            "the loss that an item saves is not known."
        )
    elif rows.y is None:
        note = "The loss that an item saves is what was expected of it in training, since the rows have no labels."
    else:
        note = (
            "The loss that an item saves is what the same rows lose more when nothing of it is to be had, with its "
            "standard error; what is not larger than twice that may be noise."
        )
    if rows is not None and len(rows) > MOST_JUDGED:
        note += f" Measured on {MOST_JUDGED:,} of the rows, drawn at random."
    return f"<p>{note}</p>{_items(seen)}{_purchases(seen)}"


def _items(seen: ModelSeen) -> str:
    heads = ["item", "price", "bought by", "spent for each row", "loss saved for each row", "worth in money"]
    known = [
        column
        for column in ("bought", "spent", "loss_saved", "worth")
        if any(r[column] is not None for r in seen.items)
    ]
    columns = ("bought", "spent", "loss_saved", "worth")
    heads = heads[:2] + [head for head, column in zip(heads[2:], columns, strict=True) if column in known]
    most = max((row["spent"] or 0.0 for row in seen.items), default=0.0) or 1.0
    rows = [_row(row, known, most) for row in seen.items]
    told = f"What model {seen.number} buys"
    text = table(told, heads, rows[:SHOWN])
    if len(rows) > SHOWN:
        more = plural(len(rows) - SHOWN, "more item")
        text += fold(more, table(f"{told}: {more}", heads, rows[SHOWN:]))
    return text


def _row(row: dict[str, Any], known: list[str], most: float) -> list[str]:
    cells = [name(row["item"]), money(row["price"])]
    for column in known:
        value = row[column]
        if value is None:
            cells.append("–")
        elif column == "bought":
            cells.append(f"{percent(value)}{bar(value)}")
        elif column == "spent":
            cells.append(f"{figure_text(value)}{bar(value / most, 'spent')}")
        elif column == "loss_saved":
            error = row.get("loss_saved_error")
            cells.append(with_error(_loss(value), error, _loss(error or 0.0)))
        else:
            cells.append(figure_text(value))
    return cells


def _loss(value: float) -> str:
    return figure_text(float(f"{value:.3g}")) if abs(value) >= 0.1 else _small(value)


def _small(value: float) -> str:
    text = f"{value:.4f}"
    return "0" if not text.strip("-0.") else text.replace("-", "\N{MINUS SIGN}")


def _purchases(seen: ModelSeen) -> str:
    """Where the first, the second and the third purchase of a row goes."""
    if seen.buyers is None or seen.purchases is None:
        return ""
    cards = []
    for which, (share, items) in enumerate(zip(seen.buyers.tolist(), seen.purchases, strict=True)):
        if share <= 0:
            break
        names, prices = seen.model.costs.item_names, seen.model.costs.prices
        order = sorted(np.flatnonzero(items).tolist(), key=lambda item: (-items[item] * prices[item], -items[item]))
        lines = "".join(
            f'<li><span>{short(names[item])}</span><span class="n">{percent(items[item] / share)}</span>'
            f"{bar(items[item] / share)}</li>"
            for item in order[:MOST_IN_PURCHASE]
        )
        more = f"<p>and {len(order) - MOST_IN_PURCHASE} more</p>" if len(order) > MOST_IN_PURCHASE else ""
        spent = figure_text(float(items @ prices) / share)
        cards.append(
            f"<li><h5>{WHICH[which]} purchase</h5><p>{percent(share)} of rows, {spent} each</p>"
            f"<ul>{lines}</ul>{more}</li>"
        )
    if not cards:
        return ""
    return (
        "<h4>Where the first purchases go</h4><p>A purchase is all that a row buys at one node. Of the rows that make "
        "it, the bars say how many get an item; where most money goes comes first.</p>"
        f'<ol class="cards">{"".join(cards)}</ol>'
    )
