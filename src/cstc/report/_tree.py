"""The tree of a model with rows flowing through it: one line for each node, and each line opens.

Lines and lanes are those of the picture in notebooks (`model.sketch.layout`): the larger part of the tree goes straight
down, the smaller one branches off to the right.  A band is as wide as the share of rows that take it.  What a node
says is text beside the bands, so that names of any length find room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.sketch import layout
from ._html import bar, class_text, figure_text, money, name, percent, safe, short, table
from ._measured import ModelSeen, TestRows, TreeSeen

__all__ = ["colour_of", "tree_part"]

LINE = 60  # pixels: height of the picture beside a node; below it, bands go on as far as its text reaches
WIDEST = 26.0  # of a band that all rows take
THINNEST = 2.0
FEW_NAMES = 3
MOST_COLOURS = 10


def colour_of(place: int, n: int) -> str:
    """The style class of a class: each has its own colour while there are enough, then the last are one."""
    return f"class{place if n <= MOST_COLOURS or place < MOST_COLOURS - 1 else MOST_COLOURS - 1}"


def tree_part(seen: ModelSeen, rows: TestRows | None) -> str:
    """The tree, or both trees of a mixture."""
    parts = []
    for which, tree in enumerate(seen.trees):
        if len(seen.trees) == 2:
            of = ("cheaper", "more expensive")[which]
            parts.append(f"<h4>The {of} tree: {percent(tree.part)} of rows take it</h4>")
        parts.append(_tree(tree, rows, f"Tree of model {seen.number}"))
    return f"{_how_to_read(seen, rows)}{_legend(seen.trees[0], rows)}{''.join(parts)}"


def _how_to_read(seen: ModelSeen, rows: TestRows | None) -> str:
    text = (
        "Rows come in at the top. A band is as wide as the share of rows that take it; at each node they buy what it "
        "needs, and go on or leave with an answer (to the right). Open a node to see all that it buys."
    )
    if rows is None:
        known = any(tree.node_shares is not None for tree in seen.trees)
        text += (
            " Shares are those of the training rows, and what is bought is the most that a path may need."
            if known
            else " This model does not remember where its training rows went; what is bought is the most that a path "
            "may need."
        )
    if seen.model.limit is not None:
        text += (
            f" No row pays more than {money(seen.model.limit)}: one whose path would is stopped before, which this "
            "picture does not show."
        )
    return f"<p>{text}</p>"


def _legend(tree: TreeSeen, rows: TestRows | None) -> str:
    """The classes and their colours."""
    classes = tree.tree.schema.classes
    if tree.classes is None or classes is None:
        return ""
    n = len(classes)
    shown = n if n <= MOST_COLOURS else MOST_COLOURS - 1
    entries = [
        f'<li><span class="swatch {colour_of(place, n)}"></span>{short(class_text(classes[place]))}</li>'
        for place in range(shown)
    ]
    if shown < n:
        entries.append(f'<li><span class="swatch {colour_of(shown, n)}"></span>{n - shown} other classes</li>')
    of = "true classes" if rows is not None and rows.y is not None else "classes, as predicted,"
    head = f'<p class="legend-head">Bars: the {of} of the rows that come to a node</p>'
    return f'{head}<ul class="legend">{"".join(entries)}</ul>'


# -- the picture beside the nodes ------------------------------------------------------------------------------


class _Gutter:
    """Where bands run, line by line."""

    def __init__(self, seen: TreeSeen):
        self.seen, shape = seen, seen.tree.shape
        self.lines, self.lanes = layout(shape)
        n_lanes = int(self.lanes.max()) + 1
        self.pitch = 34.0 if n_lanes <= 3 else 24.0
        self.widest = min(WIDEST, 0.75 * self.pitch)
        self.width = self.pitch * (n_lanes + 1)
        self.order = np.argsort(self.lines)
        #: for each line, the lanes in which bands go on below it, and how wide they are
        self.below: list[list[tuple[int, float, str]]] = [[] for _ in self.order]
        self.above: list[list[tuple[int, float, str]]] = [[] for _ in self.order]
        for child in range(1, shape.n_nodes):
            start, end = self.lines[shape.parents[child]], self.lines[child]
            band = int(self.lanes[child]), self.wide(child), self._look(child)
            for line in range(start, end):
                self.below[line].append(band)
                self.above[line + 1].append(band)

    def x(self, lane: int) -> float:
        return self.pitch * (lane + 0.5)

    def wide(self, node: int, *, end: bool = False) -> float:
        shares = self.seen.ends if end else self.seen.node_shares
        share = 0.3 if shares is None else float(shares[node])
        # even numbers, so that both edges lie between pixels, in the picture and below it
        return max(THINNEST, 2.0 * round(self.widest * share / 2.0))

    def picture(self, node: int) -> str:
        """The bands beside one node, and those that run on below it while its text goes on."""
        shape, line, lane = self.seen.tree.shape, int(self.lines[node]), int(self.lanes[node])
        x, middle = self.x(lane), LINE / 2
        parts = []
        for other, wide, look in self.above[line]:
            if other != lane:
                parts.append(_band(f"M{self.x(other):g} 0V{LINE}", wide, look))
        parts.append(_band(f"M{x:g} 0V{middle:g}", self.wide(node), self._look(node)))
        if (shape.upper[node] < 0) or (shape.lower[node] < 0):
            out = self.x(lane + 1)
            empty = self.seen.ends is not None and not self.seen.ends[node]
            look = "end none" if empty else "end"
            wide = self.wide(node, end=True)
            high = max(10.0, wide + 2.0)
            parts.append(_band(f"M{x:g} {middle:g}H{out:g}", wide, look))
            parts.append(
                f'<rect class="stop" x="{out - 4:g}" y="{middle - high / 2:g}" width="8" height="{high:g}" rx="2"/>'
            )
        for child in {int(shape.upper[node]), int(shape.lower[node])}:
            if child >= 0:
                to = self.x(int(self.lanes[child]))
                bend = f"C{x:g} {LINE - 8} {to:g} {LINE - 22} {to:g} {LINE}" if to != x else f"V{LINE}"
                parts.append(_band(f"M{x:g} {middle:g}{bend}", self.wide(child), self._look(child)))
        size = max(8.0, self.wide(node) / 2)  # it covers the corners of what comes and goes
        parts.append(f'<circle class="spot {self._colour(node)}" cx="{x:g}" cy="{middle:g}" r="{size:g}"/>')
        on = "".join(
            f'<i class="{look}" style="left:{self.x(other) - wide / 2:g}px;width:{wide:g}px"></i>'
            for other, wide, look in self.below[line]
        )
        return (
            f'<span class="flow" aria-hidden="true"><svg width="{self.width:g}" height="{LINE}" '
            f'viewBox="0 0 {self.width:g} {LINE}">{"".join(parts)}</svg>{on}</span>'
        )

    def _look(self, node: int) -> str:
        """Whether any row comes to a node."""
        return "none" if self.seen.node_shares is not None and not self.seen.node_shares[node] else ""

    def _colour(self, node: int) -> str:
        """Of more than two classes, that of the most frequent one."""
        shares = self.seen.classes
        if shares is None or shares.shape[1] <= 2 or not shares[node].any():
            return ""
        return colour_of(int(shares[node].argmax()), shares.shape[1])


def _band(path: str, wide: float, look: str = "") -> str:
    return f'<path class="band {look}" d="{path}" stroke-width="{wide:g}"/>'


# -- the nodes -------------------------------------------------------------------------------------------------


def _tree(seen: TreeSeen, rows: TestRows | None, told: str) -> str:
    gutter = _Gutter(seen)
    nodes = "".join(
        f'<li class="node">{gutter.picture(node)}<details><summary>{_summary(seen, node)}</summary>'
        f'<div class="inside">{_inside(seen, node, rows)}</div></details></li>'
        for node in gutter.order.tolist()
    )
    opens = ""
    if seen.tree.shape.n_nodes > 1:
        opens = (
            '<p class="tools"><button type="button" class="open-all" aria-pressed="false">Open all nodes</button></p>'
        )
    return f'{opens}<ol class="tree" style="--flow:{gutter.width:g}px" aria-label="{told}">{nodes}</ol>'


def _summary(seen: TreeSeen, node: int) -> str:
    reached = seen.node_shares is None or seen.node_shares[node] > 0
    items = _by_money(seen, seen.node_items[node])
    price = f'<span class="price">+{figure_text(float(seen.node_prices[node]))}</span>' if items else ""
    buys = _names(seen, items) if items else "buys nothing new"
    facts = []
    if seen.node_shares is not None:
        facts.append(f"{percent(float(seen.node_shares[node]))} of rows" if reached else "no row comes here")
    if seen.means is not None and np.isfinite(seen.means[node]):
        facts.append(f"mean target {_value(seen.means, node)}")
    leaves = seen.ends is not None and seen.ends[node] > 0
    if leaves and seen.ends is not None:
        facts.append(f"{percent(float(seen.ends[node]))} leave, having paid {figure_text(float(seen.end_costs[node]))}")
    elif seen.ends is None and np.isfinite(seen.end_costs[node]):
        facts.append(f"rows that leave have paid {figure_text(float(seen.end_costs[node]))} at most")
    if seen.leaving is not None and seen.leaving[node]:
        facts.append(seen.leaving[node].split(" (")[0])
    shares = _class_bar(seen, node) if seen.classes is not None and reached else ""
    return (
        f'<span class="node-head"><b>v{node}</b> <span class="buys">{buys}</span> {price}</span>'
        f'<span class="facts">{"<span> · </span>".join(f"<span>{fact}</span>" for fact in facts)}</span>{shares}'
    )


def _value(means: np.ndarray, node: int) -> str:
    """A mean target, in the digits that tell nodes apart."""
    spread = float(np.nanstd(means)) or abs(float(means[node])) / 10 or 1.0
    return figure_text(float(means[node]), max(0, 2 - int(np.floor(np.log10(spread)))))


def _by_money(seen: TreeSeen, shares: np.ndarray) -> list[int]:
    """Items that are bought, those that most is spent on first."""
    spent = shares * seen.tree.costs.prices
    return sorted(np.flatnonzero(shares).tolist(), key=lambda item: (-spent[item], -shares[item], item))


def _names(seen: TreeSeen, items: Sequence[int]) -> str:
    names = seen.tree.costs.item_names
    shown = ", ".join(short(names[item]) for item in items[:FEW_NAMES])
    return shown + (f" and {len(items) - FEW_NAMES} more" if len(items) > FEW_NAMES else "")


def _class_bar(seen: TreeSeen, node: int) -> str:
    """The classes of the rows that come to a node, as one bar; opened, the node has the numbers."""
    assert seen.classes is not None
    shares = seen.classes[node]
    parts = "".join(
        f'<i class="{colour_of(place, len(shares))}" style="width:{100 * share:.2f}%"></i>'
        for place, share in enumerate(shares.tolist())
        if share > 0
    )
    most = int(shares.argmax())
    assert seen.tree.schema.classes is not None
    told = f"most frequent: {class_text(seen.tree.schema.classes[most])}, {percent(float(shares[most]))}"
    return f'<span class="classes" role="img" aria-label="{safe(told)}">{parts}</span>'


def _inside(seen: TreeSeen, node: int, rows: TestRows | None) -> str:
    parts = [f"<p>{_way(seen, node)}</p>"]
    facts = []
    if seen.passing is not None and seen.passing[node]:
        facts.append(f"<li>Answers of all rows that come here: {seen.passing[node]}.</li>")
    if seen.leaving is not None and seen.leaving[node]:
        facts.append(f"<li>Answers of those that leave here: {seen.leaving[node]}.</li>")
    parts.append(f"<ul>{''.join(facts)}</ul>" if facts else "")
    parts.append(_bought(seen, seen.node_items[node], f"Bought at node v{node}", measured=rows is not None))
    if seen.end_items[node].any():
        parts.append("<p>Rows that leave here also buy, for their answer:</p>")
        parts.append(
            _bought(seen, seen.end_items[node], f"Bought for the answer of v{node}", measured=rows is not None)
        )
    if seen.classes is not None and seen.classes[node].any():
        parts.append(_class_table(seen, node))
    return "".join(parts)


def _way(seen: TreeSeen, node: int) -> str:
    shape = seen.tree.shape
    way = "All rows start here."
    if node:
        parent = int(shape.parents[node])
        side = "above" if shape.upper[parent] == node else "not above"
        way = f"Rows come from v{parent}, where their score is {side} its threshold."
    ends = [which for which in ("upper", "lower") if getattr(shape, which)[node] < 0]
    below = [int(getattr(shape, which)[node]) for which in ("upper", "lower") if getattr(shape, which)[node] >= 0]
    if len(ends) == 2:
        return f"{way} All of them leave here with an answer."
    there = " and ".join(f"v{child}" for child in below)
    return (
        f"{way} They go on to {there}." if not ends else f"{way} They go on to {there}, or leave here with an answer."
    )


def _bought(seen: TreeSeen, shares: np.ndarray, caption: str, *, measured: bool) -> str:
    items, costs = _by_money(seen, shares), seen.tree.costs
    if not items:
        return "<p>Nothing new is bought here.</p>"
    if not measured:
        rows = [[name(costs.item_names[item]), money(float(costs.prices[item]))] for item in items]
        return table(caption, ["may buy", "price"], rows)
    rows = [
        [
            name(costs.item_names[item]),
            money(float(costs.prices[item])),
            f"{percent(float(shares[item]))}{bar(float(shares[item]))}",
            figure_text(float(shares[item] * costs.prices[item])),
        ]
        for item in items
    ]
    return table(caption, ["buys", "price", "of the rows here", "spent for each row here"], rows)


def _class_table(seen: TreeSeen, node: int) -> str:
    assert seen.classes is not None
    assert seen.tree.schema.classes is not None
    shares, classes = seen.classes[node], seen.tree.schema.classes
    order = sorted(range(len(shares)), key=lambda place: -shares[place])
    rows = [
        [
            f'<span class="swatch {colour_of(place, len(shares))}"></span>{name(class_text(classes[place]))}',
            percent(float(shares[place])),
        ]
        for place in order
        if shares[place] > 0
    ]
    return table(f"Classes of the rows at node v{node}", ["class", "of the rows here"], rows)
