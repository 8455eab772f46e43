"""A fitted tree as a picture for notebooks: one line for each classifier, lanes for the branches.

The longest part of the tree goes straight down and the others branch off to the right, so that a tree of n nodes needs
no more than log2(n) + 1 lanes: a chain of 64 is as readable as a full tree.  All is drawn in the colour of the
surrounding text, for light and for dark pages.

Only numpy and the standard library are imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .fitted import FittedTree
    from .shape import TreeShape

__all__ = ["layout", "letter_width", "sketch"]

LINE, LANE, LETTER, MARGIN = 26, 22, 13, 14  # pixels: height of a line, width of a lane, size of letters, left of all
NAMES_WIDTH = 340  # at most, of the names of what a node buys
MOST_NAMES = 40  # in the text that appears when the mouse rests on a node
NODE, TERMINAL = "#3b82c4", "#e07b1a"  # seen on white and on black


@dataclass(frozen=True)
class Purchases:
    """What is bought at each node, in the paper's counting, and what a row has paid by then.

    A leaf classifier buys for its prediction, any other node for its gate; what an inner node needs beyond its gate to
    predict is bought by the rows that leave there.
    """

    node_items: np.ndarray  # bool (n_nodes, n_items): newly bought
    node_costs: np.ndarray  # (n_nodes,): all that was paid when the node has what it needs
    terminal_items: np.ndarray  # bool (n_terminals, n_items): newly bought
    terminal_costs: np.ndarray  # (n_terminals,)

    @classmethod
    def of(cls, model: FittedTree) -> Purchases:
        shape, paths = model.shape, model.shape.node_paths
        own = np.where(shape.is_leaf[:, None], model.predict_learners, model.route_learners)
        learners = (paths.astype(int) @ own.astype(int)) > 0
        uses = model.pool.learner_uses(model.costs.feature_items).astype(int)
        items = (learners.astype(int) @ uses) > 0
        before = np.zeros_like(items)
        before[1:] = items[shape.parents[1:]]
        return cls(
            node_items=items & ~before,
            node_costs=model.costs.charge(items, learners.sum(axis=1)),
            terminal_items=model.terminal_items() & ~items[shape.terminal_parents],
            terminal_costs=model.terminal_costs(),
        )


def sketch(model: FittedTree, told: str = "") -> str:
    """The tree as HTML with an inline SVG: what each node newly buys, what was paid so far, what ends cost.

    What is `told` of it, its repr if nothing is given, stands above it and is read aloud instead of it.
    """
    bought = Purchases.of(model)
    lines, lanes = layout(model.shape)
    names = [_by_price(model, items) for items in bought.node_items]
    columns = _Columns(MARGIN + LANE * (int(lanes.max()) + 1), names, bought)
    height = LINE * (model.shape.n_nodes + 1) + 8
    parts = [*_heads(columns), *_edges(model.shape, lines, lanes)]
    for node in range(model.shape.n_nodes):
        x, y = _place(lanes[node], lines[node])
        parts += _node(model, bought, node, names[node], x, y, columns)
        parts += _terminal(model, bought, node, y, columns)
    told = escape((told or repr(model)).strip("<>"))
    return (
        f'<div style="font-size:{LETTER}px;opacity:0.65;margin:0.4em 0">{told}</div>'
        '<div style="max-height:34em;overflow:auto">'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{told}" '
        f'width="{columns.right}" height="{height}" viewBox="0 0 {columns.right} {height}" fill="currentColor" '
        f'font-family="system-ui, sans-serif" font-size="{LETTER}">{"".join(parts)}</svg></div>'
    )


def layout(shape: TreeShape) -> tuple[np.ndarray, np.ndarray]:
    """The line and the lane of each node: the child with the larger subtree stays in the lane, and comes last."""
    sizes = shape.node_paths.sum(axis=0)
    lines, lanes = np.zeros(shape.n_nodes, dtype=int), np.zeros(shape.n_nodes, dtype=int)
    waiting, line = [0], 0
    while waiting:
        node = waiting.pop()
        lines[node] = line
        line += 1
        below = sorted((child for child in _children(shape, node)), key=lambda child: (-sizes[child], child))
        waiting += below  # the smaller one is on top: it is drawn first, and to the right
        for aside, child in enumerate(below):
            lanes[child] = lanes[node] + aside
    return lines, lanes


def _children(shape: TreeShape, node: int) -> list[int]:
    return [int(side[node]) for side in (shape.upper, shape.lower) if side[node] >= 0]


class _Columns:
    """Where texts and numbers stand."""

    def __init__(self, left: int, names: list[list[str]], bought: Purchases):
        items = max(_width(text) for text in ["newly buys", *map(_fitting, names)])
        widest = max(_width(_number(cost)) for cost in [*bought.node_costs, *bought.terminal_costs])
        self.name = left
        self.items = left + 38
        self.paid = self.items + round(items + max(widest, _width("paid so far"))) + 24  # right end
        self.end = self.paid + 28  # the square of a terminal
        self.right = self.end + 14 + round(max(widest, _width("leaves with"))) + 14


def _heads(columns: _Columns) -> list[str]:
    y = LINE // 2
    return [
        _text(columns.items, y, "newly buys", pale=True),
        _text(columns.paid, y, "paid so far", pale=True, anchor="end"),
        _text(columns.end + 12, y, "leaves with", pale=True),
    ]


def _edges(shape: TreeShape, lines: np.ndarray, lanes: np.ndarray) -> list[str]:
    """Straight down in the same lane, in a bend to the next one."""
    found = []
    for node in range(1, shape.n_nodes):
        parent = int(shape.parents[node])
        (x0, y0), (x1, y1) = (_place(lanes[at], lines[at]) for at in (parent, node))
        middle = y0 + LINE // 2
        bend = f"C{x0} {middle} {x1} {middle} {x1} {y0 + LINE}V{y1}" if x1 > x0 else f"V{y1}"
        found.append(
            f'<path d="M{x0} {y0} {bend}" fill="none" stroke="currentColor" stroke-opacity="0.45" stroke-width="1.5"/>'
        )
    return found


def _node(
    model: FittedTree, bought: Purchases, node: int, names: list[str], x: int, y: int, columns: _Columns
) -> list[str]:
    way = ""
    if node:
        parent = int(model.shape.parents[node])
        side = "above" if model.shape.upper[parent] == node else "at or below"
        way = f" takes rows whose margin at v{parent} is {side} its threshold;"
    told = f"v{node}{way} newly buys {_listed(names)}; paid so far {_number(bought.node_costs[node])}"
    return [
        f"<g><title>{escape(told)}</title>",
        f'<rect x="0" y="{y - LINE // 2}" width="{columns.paid}" height="{LINE}" fill-opacity="0"/>',
        f'<circle cx="{x}" cy="{y}" r="6" fill="{NODE}"/>',
        _text(columns.name, y, f"v{node}", pale=True),
        _text(columns.items, y, _fitting(names), pale=not names),
        _text(columns.paid, y, _number(bought.node_costs[node]), anchor="end"),
        "</g>",
    ]


def _terminal(model: FittedTree, bought: Purchases, node: int, y: int, columns: _Columns) -> list[str]:
    ends = np.flatnonzero(model.shape.terminal_parents == node)
    if not len(ends):
        return []
    terminal = int(ends[0])  # the terminals of one node cost the same: they ask the same learners
    more = _by_price(model, bought.terminal_items[terminal])
    cost = _number(bought.terminal_costs[terminal])
    extra = f", for which they newly buy {_listed(more)}" if more else ""
    told = f"rows that leave at v{node} get its prediction{extra}; they pay {cost}"
    return [
        f"<g><title>{escape(told)}</title>",
        f'<rect x="{columns.end - 10}" y="{y - 5}" width="10" height="10" fill="{TERMINAL}"/>',
        _text(columns.end + 12, y, cost, bold=True),
        "</g>",
    ]


def _place(lane: int, line: int) -> tuple[int, int]:
    return MARGIN + LANE * int(lane), LINE * (int(line) + 1) + LINE // 2


def _text(x: int, y: int, text: str, *, pale: bool = False, bold: bool = False, anchor: str = "start") -> str:
    look = ' fill-opacity="0.65"' if pale else ""
    look += ' font-weight="600"' if bold else ""
    look += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x}" y="{y + 4.5:g}"{look}>{escape(text)}</text>'


def _by_price(model: FittedTree, items: np.ndarray) -> list[str]:
    """Names of items, the expensive ones first."""
    at = np.flatnonzero(items)
    return [model.costs.item_names[item] for item in at[np.argsort(-model.costs.prices[at], kind="stable")]]


def _fitting(names: list[str]) -> str:
    """As many names as fit into their column, and how many there are beside them."""
    text, more = "" if names else "nothing new", ""
    for shown, name in enumerate(names, 1):
        longer = text + (", " if text else "") + _printed(name)
        others = f" and {len(names) - shown} more" if shown < len(names) else ""
        if text and _width(longer + others) > NAMES_WIDTH:
            break
        text, more = longer, others
    while _width(text + more) > NAMES_WIDTH:  # the first name alone is too long
        text = text.removesuffix("…")[:-1] + "…"
    return text + more


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(_printed, names[:MOST_NAMES])) + more if names else "nothing"


def _printed(name: str) -> str:
    """A name without what does not print: line ends, and characters that SVG does not allow."""
    return "".join(letter if letter.isprintable() else " " for letter in name)


def _width(text: Iterable[str]) -> float:
    """About the width of a text in pixels, rather more than less: fonts differ."""
    return LETTER * sum(map(letter_width, text))


def letter_width(letter: str) -> float:
    """About the width of a letter, in units of the size of letters."""
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in "fijlrtI.,;:'|!()[] ":
        return 0.36
    if letter in "mwMWQ@%…—" or ord(letter) > 0x24F:
        return 0.95
    return 0.72 if letter.isupper() else 0.6


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 1e7 and (value >= 0.1 or not value) else f"{value:.3g}"
