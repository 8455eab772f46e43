"""The tree of classifiers with labels, purchases and costs (paper, figure "jaccard", left)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from ._drawing import (
    CLASS_COLOURS,
    EDGE,
    INK,
    PALE,
    as_number,
    as_percent,
    children,
    connect,
    layout,
    pyplot,
    wide,
    with_minus,
    wrapped,
    write,
)
from ._flow import checked, ended, trace

__all__ = ["TreeDisplay"]

STEP, HIGH = 1.75, 1.05  # inches from a node to the next, to the right and down; more where texts need more lines
ABOVE, BELOW = 0.27, 0.43  # inches from the middle of a node to its label, and to the names of what it buys
LABEL_LINE, NAME_LINE = 0.14, 0.11  # inches
BESIDE, APART = 0.16, 0.09  # inches from the middle of a terminal to its texts: to the right, and up or down
GAP = 0.05  # inches between texts at least
LABEL, SMALL = 9.0, 7.0  # points: letters of labels, and of names and notes
ROOM = 1.6  # inches for the texts of a node
LABEL_LINES, NAME_LINES = 2, 3
ONE_NODE = 1.5  # a tree of one node is drawn larger: there is room
NO_COLOUR = -1  # in the legend: classes that are the most frequent at no node
MOST_REST = 4  # of these that are named
LARGEST = 1.6  # times full size: texts do not grow beyond it with the size of given axes


class TreeDisplay:
    """The tree of classifiers: circles that classify, squares where rows leave.

    The upper child of a node stands above its lower one.  Above a node stands the average label of the rows that
    pass it (for classes, the most frequent one), below it what the node newly buys, that on which most is spent first,
    and the mean price of that; beside a terminal the cost of the path, as a mean over the rows that end there.  The
    thickness of a line is the share of rows that take it.  A node has the colour of its average label; of more than
    two classes, that of the most frequent one, which the legend names; it also says which classes are the most frequent
    at no node, and so have no colour.

    Parameters are the numbers shown; use `from_estimator` or `from_predictions`.

    Examples
    --------
    >>> from cstc import CSTCRegressor
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> from cstc.plotting import TreeDisplay
    >>> X, y = make_quadrants(1000, random_state=0)
    >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    >>> display = TreeDisplay.from_estimator(model.fit(X, y), X, y)
    >>> display.figure_.savefig("tree.png")  # doctest: +SKIP
    """

    def __init__(self, *, shape, flow, labels, values, label_name, item_names, prices, counting, classes=None):
        self.shape = shape
        self.flow = flow
        self.labels = labels
        self.label_name = label_name
        self.values = values
        self.item_names = item_names
        self.prices = prices
        self.counting = counting
        self.classes = classes

    @classmethod
    def from_estimator(cls, estimator, X, y=None, *, counting="branch", ax=None, caption=True) -> TreeDisplay:
        """Send rows down a fitted tree and draw it.

        Parameters
        ----------
        estimator : fitted CSTCRegressor, CSTCClassifier or CSTCRanker
        X : array-like or table of shape (n, n_features)
            Rows whose shares, labels and costs are shown: training data or any other.
        y : array-like of shape (n,), optional
            Their labels; without them the nodes show none.
        counting : {"branch", "learner"}, default="branch"
            How cost is counted, as in `predict_cost`.
        ax : matplotlib axes, optional
            Drawn into a new figure of fitting size otherwise.  In axes that are too small for that, rows of nodes come
            closer first, and then all of it becomes smaller, its texts too.
        caption : bool, default=True
            Whether to say below the tree how to read it.
        """
        model, X = checked(estimator, X)
        flow = trace(model, X, counting)
        if y is not None:
            y = estimator._check_y(y, reset=False)
            check_consistent_length(X, y)
        bill = model.costs.item_names, model.costs.prices
        return cls._of(model.shape, flow, y, model.schema.classes, bill, counting).plot(ax, caption=caption)

    @classmethod
    def from_predictions(
        cls, shape, terminals, costs, y=None, *, node_items=None, items=None, ax=None, caption=True
    ) -> TreeDisplay:
        """Draw a tree whose rows went their ways already.

        Parameters
        ----------
        shape : TreeShape
        terminals : int array-like of shape (n,)
            The terminal that each row reached, as `apply` gives it.
        costs : array-like of shape (n,)
            What each row paid.
        y : array-like of shape (n,), optional
            Labels: of numbers the average is shown, of texts the most frequent one.
        node_items : array-like of shape (n_nodes, n_items), optional
            The share of the rows at a node that buy an item there; without it the nodes show no purchases.
        items : mapping of str to float, optional
            Names and prices of the items, for `node_items`.
        ax, caption
            As in `from_estimator`.

        Examples
        --------
        >>> from cstc.plotting import TreeDisplay
        >>> from cstc.model import TreeShape
        >>> display = TreeDisplay.from_predictions(
        ...     TreeShape.full(2), [0, 0, 1], [5.0, 5.0, 1.0], ["ill", "ill", "well"],
        ...     node_items=[[1, 0], [0, 1], [0, 0]], items={"weight": 1, "blood": 4},
        ... )
        >>> display.labels
        ['ill: 67%', 'ill: 100%', 'well: 100%']
        """
        flow = ended(shape, terminals, costs)
        bill: tuple[list[str], np.ndarray] = list(items or {}), np.array(list((items or {}).values()), dtype=float)
        if node_items is not None:
            node_items = np.asarray(node_items, dtype=float)
            if node_items.shape != (shape.n_nodes, len(bill[0])):
                raise ValueError(
                    f"node_items has shape {node_items.shape}; the tree has {shape.n_nodes} nodes, and there are "
                    f"{len(bill[0])} items"
                )
            flow = replace(flow, node_items=node_items, node_prices=node_items @ bill[1])
        classes = None
        if y is not None:
            y = np.asarray(y)
            check_consistent_length(flow.terminals, y)
            if y.dtype.kind not in "fiu":
                classes, y = np.unique(y, return_inverse=True)
        return cls._of(shape, flow, y, classes, bill, None).plot(ax, caption=caption)

    @classmethod
    def _of(cls, shape, flow, y, classes, bill, counting) -> TreeDisplay:
        labels, values = (None, None) if y is None else _average_labels(classes, y, flow.visits)
        return cls(
            shape=shape,
            flow=flow,
            labels=labels,
            values=values,
            label_name="average label" if classes is None else "most frequent class",
            item_names=bill[0],
            prices=bill[1],
            counting=counting,
            classes=None if classes is None or y is None or len(classes) <= 2 else [_named(each) for each in classes],
        )

    def plot(self, ax=None, *, caption=True) -> TreeDisplay:
        """Draw the tree into `ax`, or into a new figure."""
        plt = pyplot()
        places, ends = layout(self.shape)
        texts = self._texts()
        # one unit of the axes is one inch at full size, so that circles and text keep their proportions
        n_names, n_labels = max(len(names) for _, names in texts), max(len(label) for label, _ in texts)
        x_limits = (-max(0.75, 0.1 + max(map(_width, texts)) / 2), STEP * ends[:, 0].max() + 1.35)
        width = x_limits[1] - x_limits[0]
        note = self._caption(width) if caption else ""
        keys, n_rows = self._legend(width)
        head, foot = 0.42 + LABEL_LINE * n_labels, 0.14 * len(note.splitlines()) + 0.22 * n_rows
        foot += BELOW + NAME_LINE * n_names + 0.15
        high = HIGH + NAME_LINE * max(0, n_names - 2) + LABEL_LINE * max(0, n_labels - 1)
        last = ends[:, 1].max()
        self._scale = ONE_NODE if self.shape.n_nodes == 1 else 1.0
        if ax is None:
            _, ax = plt.subplots(figsize=(self._scale * width, self._scale * (head + last * high + foot)))
            ax.set_position((0, 0, 1, 1))
        else:
            given = _inches(ax)
            as_flat = (width * given[1] / given[0] - head - foot) / max(1, last)  # then the width is all used
            high = min(high, max(as_flat, self._closest(places, ends, texts)))
            self._scale = float(min(LARGEST, *given / (width, head + last * high + foot)))
        nodes, terminals = places * (STEP, -high), ends * (STEP, -high)
        y_limits = (-last * high - foot, head)
        ax.set(xlim=x_limits, ylim=y_limits, aspect="equal")
        ax.axis("off")
        for node in range(self.shape.n_nodes):
            for child in children(self.shape, node):
                end = nodes[child] if child >= 0 else terminals[-1 - child]
                share = self.flow.node_shares[child] if child >= 0 else self.flow.terminal_shares[-1 - child]
                connect(ax, nodes[node], end, share, self._scale)
        self._draw_nodes(ax, nodes, texts)
        self._draw_terminals(ax, terminals)
        left, bottom = x_limits[0] + 0.15, y_limits[0] + 0.1
        self._write(ax, left, bottom, note, fontsize=SMALL, color=PALE, ha="left", va="bottom")
        self._draw_legend(ax, keys, left, bottom + 0.14 * len(note.splitlines()) + 0.08)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _texts(self) -> list[tuple[list[str], list[str]]]:
        """For each node the lines above it, and those of the names of what it buys."""
        found = []
        for node in range(self.shape.n_nodes):
            label = [] if self.labels is None else wrapped(self.labels[node], ROOM, LABEL * 1.1, LABEL_LINES)
            names: list[str] = []
            if self.flow.node_shares[node] > 0 and self.flow.node_prices is not None:
                names = _shopping_list(self.item_names, self.flow.node_items[node], self.prices)
            found.append((label, names))
        return found

    def _closest(self, places: np.ndarray, ends: np.ndarray, texts: list[tuple[list[str], list[str]]]) -> float:
        """Inches from row to row at least, so that no node or terminal with its texts covers another one."""
        around = []  # of each: to the left, to the right, up, down
        for label, names in texts:
            half = max(2 * ABOVE, _width((label, names))) / 2
            around.append((half, half, ABOVE + LABEL_LINE * len(label), BELOW + NAME_LINE * len(names)))
        for terminal in range(len(ends)):
            cost, note = self._terminal_texts(terminal)
            side = BESIDE + max(wide(cost, LABEL * 1.1), wide(note, SMALL))
            around.append((APART, side, 2 * APART, 2 * APART))
        left, right, up, down = np.array(around).T
        x, row = np.concatenate([places, ends]).T
        left, right = STEP * x - left, STEP * x + right
        beside = (left[:, None] >= right) | (left >= right[:, None])
        rows_below = row - row[:, None]  # of the second, below the first
        needed = (down[:, None] + GAP + up) / np.where(rows_below > 0, rows_below, np.inf)
        return float(needed[~beside].max())

    def _write(self, ax: Any, x: float, y: float, text: str, **options: Any) -> None:
        write(ax, x, y, text, **options | {"fontsize": self._scale * options.get("fontsize", LABEL)})

    def _legend(self, width: float) -> tuple[list[tuple[int, float, int, str]], int]:
        """The classes that colour some node: their numbers, places (inches from the left, row) and names.

        Last stand, with the number `NO_COLOUR`, those that colour none: a class must not be missed without a word.
        """
        if self.classes is None:
            return [], 0
        shown = sorted({int(value) for value in self.values if np.isfinite(value)})
        entries = [(value, self.classes[value]) for value in shown]
        rest = [name for value, name in enumerate(self.classes) if value not in shown]
        if rest:
            more = f" and {len(rest) - MOST_REST} more" if len(rest) > MOST_REST else ""
            entries.append((NO_COLOUR, f"most frequent nowhere: {', '.join(rest[:MOST_REST])}{more}"))
        found: list[tuple[int, float, int, str]] = []
        x, row = 0.0, 0
        for value, text in entries:
            (name,) = wrapped(text, width - 0.6, SMALL, 1) or [""]
            needed = 0.35 + wide(name, SMALL)
            if found and x + needed > width - 0.25:
                x, row = 0.0, row + 1
            found.append((value, x, row, name))
            x += needed
        return found, row + 1

    def _draw_legend(self, ax: Any, keys: list[tuple[int, float, int, str]], left: float, bottom: float) -> None:
        from matplotlib.patches import Circle

        n_rows = max((row for _, _, row, _ in keys), default=0) + 1
        for value, x, row, name in keys:
            y = bottom + 0.22 * (n_rows - 1 - row) + 0.08
            if value != NO_COLOUR:
                ax.add_patch(Circle((left + x + 0.06, y), 0.06, fc=_class_colour(value), ec=INK, lw=0.6, zorder=3))
            indent = 0.0 if value == NO_COLOUR else 0.17
            self._write(ax, left + x + indent, y, name, fontsize=SMALL, color=PALE, ha="left")

    def _caption(self, width: float) -> str:
        """How to read the picture, in lines for so many inches."""
        above = f"Above a node: {self.label_name} of its rows. " if self.labels is not None else ""
        below = "Below a node: what it newly buys. " if self.flow.node_prices is not None else ""
        how = {"branch": ", counted by the branches taken", "learner": ", counted by all items of every used learner"}
        note = f"{above}{below}Lines: share of rows. Cost: mean of the path{how.get(self.counting, '')}."
        return fill(note, width=int(width / 0.058))

    def _draw_nodes(self, ax: Any, places: np.ndarray, texts: list[tuple[list[str], list[str]]]) -> None:
        from matplotlib.patches import Circle

        colour = _label_colours(self.values, self.classes is not None)
        for node, ((x, y), (label, names)) in enumerate(zip(places, texts, strict=True)):
            face, ink = colour(node)
            rim = INK if self.flow.node_shares[node] > 0 else EDGE
            ax.add_patch(Circle((x, y), 0.22, fc=face, ec=rim, lw=1.3, zorder=3))
            size = {"fontsize": 10 * self._scale, "color": ink, "zorder": 5}
            ax.text(x, y, f"$v^{{{node}}}$", ha="center", va="center", **size)
            if label:
                self._write(ax, x, y + ABOVE, "\n".join(label), fontweight="bold", va="bottom", linespacing=1.05)
            if self.flow.node_shares[node] > 0 and self.flow.node_prices is not None:
                price = self.flow.node_prices[node]
                self._write(ax, x, y - 0.33, f"+{as_number(price)}" if names or price else "buys nothing", color=PALE)
                self._write(ax, x, y - BELOW, "\n".join(names), fontsize=SMALL, color=PALE, va="top", linespacing=1.0)

    def _draw_terminals(self, ax: Any, places: np.ndarray) -> None:
        from matplotlib.patches import Rectangle

        for terminal, (x, y) in enumerate(places):
            share = self.flow.terminal_shares[terminal]
            ax.add_patch(Rectangle((x - 0.07, y - 0.07), 0.14, 0.14, fc=INK if share else EDGE, ec="none", zorder=3))
            cost, note = self._terminal_texts(terminal)
            if not share:
                self._write(ax, x + BESIDE, y, cost, ha="left", color=PALE)
                continue
            self._write(ax, x + BESIDE, y + APART, cost, ha="left", fontweight="bold")
            self._write(ax, x + BESIDE, y - APART, note, ha="left", fontsize=SMALL, color=PALE)

    def _terminal_texts(self, terminal: int) -> tuple[str, str]:
        """What stands first beside a terminal, the cost of its path, and what stands below that."""
        share, extra = self.flow.terminal_shares[terminal], self.flow.terminal_prices[terminal]
        if not share:
            return "no rows", ""
        note = f"{as_percent(share)} of rows" + (f", +{as_number(extra)} here" if extra else "")
        return f"cost {as_number(self.flow.terminal_costs[terminal])}", note


def _inches(ax: Any) -> np.ndarray:
    """Width and height of given axes, as they are after the figure's own layout, which would only come with drawing."""
    ax.axis("off")  # ticks would take room
    figure = ax.figure.figure  # the whole one, where the axes are of a part of it
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    return ax.get_window_extent().size / figure.dpi


def _width(texts: tuple[list[str], list[str]]) -> float:
    """Inches of the label of a node and of the names below it."""
    label, names = texts
    return max([wide(line, LABEL * 1.1) for line in label] + [wide(line, SMALL) for line in names], default=0.0)


def _average_labels(classes: np.ndarray | None, y: np.ndarray, visits: np.ndarray) -> tuple[list[str], np.ndarray]:
    """What to write above each node, and a number to colour it by: NaN where there is none.

    Of more than two classes, the number is that of the most frequent one.
    """
    texts, values = [], np.full(visits.shape[1], np.nan)
    spread = float(y.std()) or 1.0
    decimals = max(0, 2 - int(np.floor(np.log10(spread))))  # three digits of the spread
    for node in range(visits.shape[1]):
        here = y[visits[:, node]]
        if not len(here):
            texts.append("no rows")
            continue
        if classes is None or len(classes) == 2:
            values[node] = here.mean()
        else:
            values[node] = np.bincount(here, minlength=len(classes)).argmax()
        if classes is None:
            texts.append(with_minus(f"{here.mean():.{decimals}f}"))
            continue
        share = np.bincount(here, minlength=len(classes)) / len(here)
        texts.append(f"{_named(classes[share.argmax()])}: {share.max():.0%}")
    return texts, values


def _named(value: Any) -> str:
    """A class; one that is a number is called so."""
    return f"class {value}" if isinstance(value, int | float | np.number) else str(value)


def _shopping_list(names: Sequence[str], shares: np.ndarray, prices: np.ndarray) -> list[str]:
    """The items on which most is spent at a node, in lines: as many whole names as find room, and how many others."""
    bought = np.flatnonzero(shares)
    order = bought[np.lexsort((bought, -(shares * prices)[bought]))]
    lines: list[str] = []
    for shown in range(len(order), 0, -1):
        lines = wrapped(", ".join(names[item] for item in order[:shown]), ROOM, SMALL, NAME_LINES + 1)
        if len(lines) <= NAME_LINES:
            return lines + ([f"and {len(order) - shown} more"] if len(order) > shown else [])
    if not lines:
        return []
    # not even the first one has room
    lines = wrapped(names[order[0]], ROOM, SMALL, NAME_LINES)
    return lines + ([f"and {len(order) - 1} more"] if len(order) > 1 else [])


def _class_colour(number: int) -> str:
    """Of a class: each has its own while there are enough."""
    return CLASS_COLOURS[number] if number < len(CLASS_COLOURS) else EDGE


def _label_colours(values: np.ndarray | None, are_classes: bool):
    """A function from node to the colours of its disc and of its name."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    if values is None or not np.isfinite(values).any():
        return lambda node: ("white", INK)
    low, high = np.nanmin(values), np.nanmax(values)

    def colour(node: int) -> tuple[Any, str]:
        if not np.isfinite(values[node]):
            return "white", INK
        if are_classes:
            face = _class_colour(int(values[node]))
            return face, "white" if np.dot(to_rgb(face), (0.3, 0.59, 0.11)) < 0.5 else INK
        part = (values[node] - low) / (high - low) if high > low else 0.5
        return colormaps["cividis"](0.1 + 0.85 * part), "white" if part < 0.55 else INK

    return colour
