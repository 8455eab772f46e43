"""The tree with predictions and weights at every node (paper, figure "CSTC on synthetic data")."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from ..model import FittedTree, probabilities
from ._drawing import COLOURS, EDGE, INK, as_number, as_percent, children, connect, layout, plain, pyplot, quiet, write
from ._flow import checked, ended

__all__ = ["NodePredictionsDisplay"]

MANY = 7  # names of features that stand side by side below the weights


class NodePredictionsDisplay:
    """The tree with every node's predictions and, below them, its weights.

    The paper's figure "CSTC on synthetic data", for models with ``weak_learners="identity"``, whose weights are
    weights of features.  Each panel shows the rows that pass the node: what it predicts for them against
    their true labels.

    Parameters are the numbers shown; use `from_estimator` or `from_predictions`.

    Examples
    --------
    >>> from cstc import CSTCRegressor
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> from cstc.plotting import NodePredictionsDisplay
    >>> X, y = make_quadrants(1000, random_state=0)
    >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    >>> display = NodePredictionsDisplay.from_estimator(model.fit(X, y), X, y)
    """

    def __init__(self, *, shape, flow, y, predictions, weights, prices, feature_names, groups):
        self.shape = shape
        self.flow = flow
        self.y = y
        self.predictions = predictions
        self.weights = weights
        self.prices = prices
        self.feature_names = feature_names
        self.groups = groups
        if groups is not None:
            self._group_names, self._group_numbers = np.unique(groups, return_inverse=True)

    @classmethod
    def from_estimator(cls, estimator, X, y, *, groups=None, feature_names=None, figure=None) -> NodePredictionsDisplay:
        """Send rows down a fitted tree and draw what every node makes of them.

        Parameters
        ----------
        estimator : fitted CSTCRegressor or CSTCClassifier of two classes, with weak_learners="identity"
        X : array-like or table of shape (n, n_features)
        y : array-like of shape (n,)
        groups : array-like of shape (n,), optional
            A group for each row, shown as colours with a legend.
        feature_names : sequence of str, optional
            Names below the weights; the model's own otherwise.
        figure : matplotlib Figure or SubFigure, optional
            Drawn into a new figure of fitting size otherwise.
        """
        model, X = checked(estimator, X)
        y = estimator._check_y(y, reset=False)
        check_consistent_length(X, y, groups)
        if (model.pool.linear_feature[model.pool.roots] < 0).any() or model.n_outputs > 1:
            raise ValueError(
                "NodePredictionsDisplay shows one weight per feature and one prediction per node: it needs "
                "weak_learners='identity' and at most two classes; TreeDisplay draws every tree"
            )
        names = list(model.schema.feature_names if feature_names is None else feature_names)
        if len(names) != X.shape[1]:
            raise ValueError(f"feature_names has {len(names)} entries, X has {X.shape[1]} features")
        weights, predictions = _node_predictions(model, X)
        return cls.from_predictions(
            model.shape,
            model.apply(X),
            model.predict_cost(X),
            y,
            predictions,
            weights,
            model.costs.feature_prices,
            groups=groups,
            feature_names=names,
            figure=figure,
        )

    @classmethod
    def from_predictions(
        cls,
        shape,
        terminals,
        costs,
        y,
        predictions,
        weights,
        prices,
        *,
        groups=None,
        feature_names=None,
        figure=None,
    ) -> NodePredictionsDisplay:
        """Draw what the nodes of a tree predicted for rows that went their ways already.

        Parameters
        ----------
        shape : TreeShape
        terminals : int array-like of shape (n,)
            The terminal that each row reached, as `apply` gives it.
        costs : array-like of shape (n,)
            What each row paid.
        y : array-like of shape (n,)
        predictions : array-like of shape (n, n_nodes)
            Of every node for every row; shown for the rows that pass the node.
        weights : array-like of shape (n_features, n_nodes)
        prices : array-like of shape (n_features,)
            Shown as the colours of the weights.
        groups, feature_names, figure
            As in `from_estimator`.

        Examples
        --------
        >>> import numpy as np
        >>> from cstc.plotting import NodePredictionsDisplay
        >>> from cstc.model import TreeShape
        >>> X = np.random.default_rng(0).normal(size=(200, 2))
        >>> y = np.where(X[:, 0] > 0, X[:, 1], 0.0)
        >>> weights = np.array([[0.3, 0, 0], [0, 1, 0]])  # the root looks at x0, its upper child at x1
        >>> terminals, costs = np.where(X[:, 0] > 0, 0, 1), np.where(X[:, 0] > 0, 6, 1)
        >>> display = NodePredictionsDisplay.from_predictions(
        ...     TreeShape.full(2), terminals, costs, y, X @ weights, weights, prices=[1, 5]
        ... )
        """
        flow = ended(shape, terminals, costs)
        y, prices = np.asarray(y, dtype=float), np.asarray(prices, dtype=float)
        predictions, weights = np.asarray(predictions, dtype=float), np.asarray(weights, dtype=float)
        check_consistent_length(flow.terminals, y, groups)
        if predictions.shape != (len(y), shape.n_nodes) or weights.shape != (len(prices), shape.n_nodes):
            raise ValueError(
                f"predictions has shape {predictions.shape} and weights {weights.shape}; with {len(y)} rows, "
                f"{shape.n_nodes} nodes and {len(prices)} prices they must have {(len(y), shape.n_nodes)} and "
                f"{(len(prices), shape.n_nodes)}"
            )
        names = [f"x{j}" for j in range(len(prices))] if feature_names is None else list(feature_names)
        if len(names) != len(prices):
            raise ValueError(f"feature_names has {len(names)} entries, there are {len(prices)} prices")
        return cls(
            shape=shape,
            flow=flow,
            y=y,
            predictions=predictions,
            weights=weights,
            prices=prices,
            feature_names=names,
            groups=None if groups is None else np.asarray(groups),
        ).plot(figure)

    def plot(self, figure=None) -> NodePredictionsDisplay:
        """Draw into `figure`, or into a new one."""
        plt = pyplot()
        places, terminals = layout(self.shape)
        n_columns, n_rows = places[:, 0].max() + 1, terminals[:, 1].max() + 1
        wide, high, foot = 3.15, 2.3, 0.45  # inches of a cell, and of the legends at the bottom
        size = np.array([wide * n_columns + 0.6, high * n_rows + foot])
        if figure is None:
            figure = plt.figure(figsize=tuple(size))
        canvas = figure.add_axes((0, 0, 1, 1))
        canvas.set(xlim=(0, size[0]), ylim=(0, size[1]))
        canvas.axis("off")

        def corners(places: np.ndarray) -> np.ndarray:
            """Lower left corners, in inches, of the cells at places of the layout."""
            return np.column_stack([wide * places[:, 0], size[1] - high * (places[:, 1] + 1)])

        cells = corners(places)
        middle = cells + np.array([0.0, 1.44])  # left end of the middle line of the panel with the predictions
        ends = corners(terminals) + np.array([0.45, 1.44])
        leaf = self.shape.is_leaf[self.shape.terminal_parents]
        ends[leaf] = middle[self.shape.terminal_parents[leaf]] + np.array([2.95, 0.0])
        for node, (x, y) in enumerate(cells):
            self._draw_branches(canvas, node, middle, ends)
            left, width = (x + 0.45) / size[0], 2.15 / size[0]
            self._draw_predictions(figure.add_axes((left, (y + 0.86) / size[1], width, 1.15 / size[1])), node)
            self._draw_weights(figure.add_axes((left, (y + 0.22) / size[1], width, 0.45 / size[1])), node)
        self._draw_legends(canvas)
        self.figure_ = figure
        return self

    def _draw_branches(self, canvas: Any, node: int, middle: np.ndarray, ends: np.ndarray) -> None:
        from matplotlib.patches import Rectangle

        start = middle[node] + np.array([2.65, 0.0])
        for child in children(self.shape, node):
            if child >= 0:
                connect(canvas, start, middle[child] + np.array([0.12, 0.0]), self.flow.node_shares[child])
                continue
            x, y = ends[-1 - child]
            share, cost = self.flow.terminal_shares[-1 - child], self.flow.terminal_costs[-1 - child]
            connect(canvas, start, (x, y), share)
            canvas.add_patch(Rectangle((x - 0.07, y - 0.07), 0.14, 0.14, fc=INK if share else EDGE, lw=0, zorder=3))
            note = f"cost {as_number(cost)}" if share else "no rows"
            if self.shape.is_leaf[node]:
                write(canvas, x, y - 0.2, note, fontsize=8)
            else:
                write(canvas, x + 0.15, y, note, fontsize=8, ha="left")

    def _draw_predictions(self, ax: Any, node: int) -> None:
        here = np.flatnonzero(self.flow.visits[:, node])
        seen = np.concatenate([self.y, self.predictions[self.flow.visits]])
        low, high = np.quantile(seen, [0.002, 0.998])
        limits = (low - 0.08 * (high - low), high + 0.08 * (high - low))
        ax.plot(limits, limits, color=EDGE, lw=1, zorder=1)
        colours = np.array(COLOURS)[0 if self.groups is None else self._group_numbers[here] % len(COLOURS)]
        dot: dict[str, Any] = {"s": 6, "lw": 0, "alpha": 0.7, "zorder": 2, "rasterized": True}
        ax.scatter(self.y[here], self.predictions[here, node], c=colours, **dot)
        ax.set(xlim=limits, ylim=limits)
        ax.set_title(f"$v^{{{node}}}$   {as_percent(len(here) / len(self.y))} of rows", fontsize=8, pad=3, color=INK)
        quiet(ax)
        ax.tick_params(labelsize=6)
        if node == 0:
            ax.text(0.99, 0.03, "true label", fontsize=7, ha="right", va="bottom", transform=ax.transAxes)
            ax.set_ylabel("prediction", fontsize=7, labelpad=1)

    def _draw_weights(self, ax: Any, node: int) -> None:
        # of many features, only those that some node uses
        shown = np.flatnonzero(self.weights.any(axis=1) | (len(self.weights) <= MANY))
        place, weights = np.arange(len(shown)), self.weights[shown, node]
        used = weights != 0
        ax.axhline(0, color=EDGE, lw=0.8, zorder=1)
        colours = [_price_colour(self.prices, price) for price in self.prices[shown][used]]
        ax.bar(place[used], weights[used], color=colours, zorder=2)
        ax.scatter(place[~used], np.zeros((~used).sum()), s=5, color=EDGE, zorder=2)
        reach = 1.15 * np.abs(self.weights).max() or 1.0
        low, high = min(self.weights.min(), 0.0), max(self.weights.max(), 0.0)
        ax.set(ylim=(1.15 * low - 0.1 * reach, 1.15 * high + 0.1 * reach), xlim=(-0.6, len(place) - 0.4))
        names = [plain(self.feature_names[feature]) for feature in shown]
        ax.set_xticks(place, names, fontsize=6, rotation=0 if len(names) <= MANY else 90)
        ax.tick_params(axis="y", labelsize=6)
        quiet(ax)
        ax.spines["bottom"].set_visible(False)
        ax.tick_params(axis="x", length=0)
        if node == 0:
            ax.set_ylabel("weight", fontsize=7, labelpad=1)

    def _draw_legends(self, canvas: Any) -> None:
        from matplotlib.lines import Line2D

        handles = []
        if self.groups is not None:
            for place, group in enumerate(self._group_names):
                colour = COLOURS[place % len(COLOURS)]
                handles.append(Line2D([], [], marker="o", ls="", ms=5, color=colour, label=plain(group)))
        prices = np.unique(self.prices)
        for price in prices if len(prices) <= 5 else prices[[0, len(prices) // 2, -1]]:
            colour = _price_colour(self.prices, price)
            handles.append(Line2D([], [], marker="s", ls="", ms=7, color=colour, label=f"price {as_number(price)}"))
        canvas.legend(handles=handles, loc="lower left", ncols=len(handles), fontsize=8, frameon=False)


def _node_predictions(model: FittedTree, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of features (n_features, n_nodes) and predictions (n, n_nodes) of a model of plain inputs.

    A node that predicts nothing any more, because all its rows go on, shows the weights that it routes with.
    """
    root = model.pool.roots
    weights, intercepts = model.predict_weights[:, :, 0].copy(), model.predict_intercepts[:, 0].copy()
    only_routes = ~model.predict_learners.any(axis=1) & model.route_learners.any(axis=1) & ~model.shape.is_predictive
    weights[:, only_routes] = model.route_weights[:, only_routes]
    by_feature = np.zeros((X.shape[1], model.shape.n_nodes))
    np.add.at(by_feature, model.pool.linear_feature[root], model.pool.value[root][:, None] * weights)
    margins = X @ by_feature + intercepts
    if model.link == "logistic":
        margins = probabilities(margins.reshape(-1, 1), model.link)[:, 1].reshape(margins.shape)
    return by_feature, margins


def _price_colour(prices: np.ndarray, price: float) -> Any:
    """Cheap features light, expensive ones dark, by the rank of the price; no hue, which is left to the groups."""
    distinct = np.unique(prices)
    return str(0.72 - 0.57 * np.searchsorted(distinct, price) / max(len(distinct) - 1, 1))
