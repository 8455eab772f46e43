"""The tree of classifiers with labels, purchases and costs (paper, figure "jaccard", left)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from ._drawing import EDGE, INK, PALE, as_number, as_percent, children, connect, layout, pyplot, with_minus, write
from ._flow import checked, ended, trace

__all__ = ["TreeDisplay"]

LINE_LENGTH = 22  # letters of the names of items below a node


class TreeDisplay:
    """The tree of classifiers: circles that classify, squares where rows leave.

    The upper child of a node stands above its lower one.  Above a node stands the average label of the rows that
    pass it (for classes, the most frequent one), below it what the node newly buys and the mean price of that;
    beside a terminal the cost of the path, as a mean over the rows that end there.  The thickness of a
    line is the share of rows that take it.

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

    def __init__(self, *, shape, flow, labels, values, label_name, item_names, prices, counting):
        self.shape = shape
        self.flow = flow
        self.labels = labels
        self.label_name = label_name
        self.values = values
        self.item_names = item_names
        self.prices = prices
        self.counting = counting

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
            Drawn into a new figure of fitting size otherwise.
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
        )

    def plot(self, ax=None, *, caption=True) -> TreeDisplay:
        """Draw the tree into `ax`, or into a new figure."""
        plt = pyplot()
        nodes, terminals = layout(self.shape)
        # one unit of the axes is one inch at full size, so that circles and text keep their proportions
        wide, high = 1.75, 1.05
        nodes, terminals = nodes * (wide, -high), terminals * (wide, -high)
        x_limits = (-0.75, terminals[:, 0].max() + 1.35)
        note = self._caption(x_limits[1] - x_limits[0]) if caption else ""
        y_limits = (terminals[:, 1].min() - 0.75 - 0.14 * len(note.splitlines()), 0.6)
        if ax is None:
            _, ax = plt.subplots(figsize=(x_limits[1] - x_limits[0], y_limits[1] - y_limits[0]))
            ax.set_position((0, 0, 1, 1))
        ax.set(xlim=x_limits, ylim=y_limits, aspect="equal")
        ax.axis("off")
        for node in range(self.shape.n_nodes):
            for child in children(self.shape, node):
                end = nodes[child] if child >= 0 else terminals[-1 - child]
                share = self.flow.node_shares[child] if child >= 0 else self.flow.terminal_shares[-1 - child]
                connect(ax, nodes[node], end, share)
        self._draw_nodes(ax, nodes)
        self._draw_terminals(ax, terminals)
        ax.text(
            x_limits[0] + 0.15,
            y_limits[0] + 0.1,
            note,
            fontsize=7,
            color=PALE,
            ha="left",
            va="bottom",
            parse_math=False,
        )
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _caption(self, width: float) -> str:
        """How to read the picture, in lines for so many inches."""
        above = f"Above a node: {self.label_name} of its rows. " if self.labels is not None else ""
        below = "Below a node: what it newly buys. " if self.flow.node_prices is not None else ""
        how = {"branch": ", counted by the branches taken", "learner": ", counted by all items of every used learner"}
        note = f"{above}{below}Lines: share of rows. Cost: mean of the path{how.get(self.counting, '')}."
        return fill(note, width=int(width / 0.058))

    def _draw_nodes(self, ax: Any, places: np.ndarray) -> None:
        from matplotlib.patches import Circle

        colour = _label_colours(self.values)
        for node, (x, y) in enumerate(places):
            face, ink = colour(node)
            rim = INK if self.flow.node_shares[node] > 0 else EDGE
            ax.add_patch(Circle((x, y), 0.22, fc=face, ec=rim, lw=1.3, zorder=3))
            ax.text(x, y, f"$v^{{{node}}}$", ha="center", va="center", fontsize=10, color=ink, zorder=5)
            if self.labels is not None:
                write(ax, x, y + 0.34, self.labels[node], fontweight="bold")
            if self.flow.node_shares[node] > 0 and self.flow.node_prices is not None:
                names = _shopping_list(self.item_names, self.flow.node_items[node], self.prices)
                price = self.flow.node_prices[node]
                write(ax, x, y - 0.33, f"+{as_number(price)}" if names or price else "buys nothing", color=PALE)
                write(ax, x, y - 0.43, names, fontsize=7, color=PALE, va="top", linespacing=1.0)

    def _draw_terminals(self, ax: Any, places: np.ndarray) -> None:
        from matplotlib.patches import Rectangle

        for terminal, (x, y) in enumerate(places):
            cost, share = self.flow.terminal_costs[terminal], self.flow.terminal_shares[terminal]
            ax.add_patch(Rectangle((x - 0.07, y - 0.07), 0.14, 0.14, fc=INK if share else EDGE, ec="none", zorder=3))
            if not share:
                write(ax, x + 0.16, y, "no rows", ha="left", color=PALE)
                continue
            extra = self.flow.terminal_prices[terminal]
            write(ax, x + 0.16, y + 0.09, f"cost {as_number(cost)}", ha="left", fontweight="bold")
            note = f"{as_percent(share)} of rows" + (f", +{as_number(extra)} here" if extra else "")
            write(ax, x + 0.16, y - 0.09, note, ha="left", fontsize=7, color=PALE)


def _average_labels(classes: np.ndarray | None, y: np.ndarray, visits: np.ndarray) -> tuple[list[str], np.ndarray]:
    """What to write above each node, and a number to colour it by: NaN where there is none."""
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
        if classes is None:
            texts.append(with_minus(f"{here.mean():.{decimals}f}"))
            continue
        share = np.bincount(here, minlength=len(classes)) / len(here)
        name = classes[share.argmax()]
        texts.append(f"{f'class {name}' if np.issubdtype(classes.dtype, np.number) else name}: {share.max():.0%}")
    return texts, values


def _shopping_list(names: Sequence[str], shares: np.ndarray, prices: np.ndarray) -> str:
    """The items on which most is spent at a node, as many names as fit a line; how many others there are."""
    bought = np.flatnonzero(shares)
    order = bought[np.lexsort((bought, -(shares * prices)[bought]))]
    line, n_shown = "", 0
    for item in order:
        longer = line + (", " if line else "") + names[item]
        if n_shown and len(longer) > LINE_LENGTH:
            break
        line, n_shown = longer if len(longer) <= LINE_LENGTH else longer[: LINE_LENGTH - 1] + "…", n_shown + 1
    return line + (f"\nand {len(order) - n_shown} more" if len(order) > n_shown else "")


def _label_colours(values: np.ndarray | None):
    """A function from node to the colours of its disc and of its name."""
    from matplotlib import colormaps

    if values is None or not np.isfinite(values).any():
        return lambda node: ("white", INK)
    low, high = np.nanmin(values), np.nanmax(values)

    def colour(node: int) -> tuple[Any, str]:
        if not np.isfinite(values[node]):
            return "white", INK
        part = (values[node] - low) / (high - low) if high > low else 0.5
        return colormaps["cividis"](0.1 + 0.85 * part), "white" if part < 0.55 else INK

    return colour
