"""A tree under hard routing, on precomputed learner outputs: what pruning and refinement work on.

Training is soft, prediction is not.  From the moment when the support is made exact, every step is judged by
what hard routing does with the rows, and by the exact cost instead of its relaxation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .costs import ResolvedCosts
from .losses import SquaredLoss
from .metrics import ndcg
from .model import FittedTree, Schema
from .objective import NodeParameters
from .tree import TreeShape
from .weak_learners import WeakLearners

__all__ = ["HardTree", "Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the later stages see them: columns of weak learners, targets, weights, and what branches cost.

    Attributes
    ----------
    phi : ndarray of shape (n, n_columns)
    bits : uint64 ndarray of shape (n, n_columns, n_words)
        The items on the branches that a row takes in each column, packed.
    y, weights : ndarray of shape (n,)
    loss : a loss of `cstc.losses`
    prices : ndarray of shape (n_items,)
    evaluation : ndarray of shape (n_columns,)
        Price of evaluating each column.
    qid : ndarray or None
        Queries, where the metric is NDCG@5.
    """

    phi: np.ndarray
    bits: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    loss: Any
    prices: np.ndarray
    evaluation: np.ndarray
    qid: np.ndarray | None = None

    def sampled(self, n: int, random_state: int) -> Rows:
        """At most `n` of the rows, drawn without replacement."""
        if len(self.y) <= n:
            return self
        at = np.sort(np.random.default_rng(random_state).choice(len(self.y), n, replace=False))
        parts = {name: getattr(self, name)[at] for name in ("phi", "bits", "y", "weights")}
        return replace(self, **parts, qid=None if self.qid is None else self.qid[at])

    def risk(self, margins: np.ndarray) -> float:
        """Weighted mean risk of final margins."""
        values = self.loss.value_and_derivative(margins, self.y)[0]
        return float(np.average(values, weights=self.weights))

    def error(self, margins: np.ndarray) -> float:
        """The task's own metric, lower is better: MSE, log loss, or 1 - NDCG@5."""
        if self.qid is not None and isinstance(self.loss, SquaredLoss):
            quality = ndcg(self.y, margins[:, 0], self.qid)
            if not np.isnan(quality):
                return 1.0 - quality
        return self.risk(margins)


@dataclass(frozen=True, eq=False)
class HardTree:
    """Shape, gates and predictors of a tree over the columns of ``Phi``."""

    shape: TreeShape
    route_weights: np.ndarray  # (n_columns, n_nodes), zero at leaf classifiers
    thresholds: np.ndarray  # (n_nodes,)
    predict_weights: np.ndarray  # (n_columns, n_nodes, n_outputs)
    predict_intercepts: np.ndarray  # (n_nodes, n_outputs)

    @classmethod
    def from_parameters(cls, shape: TreeShape, parameters: NodeParameters, n_outputs: int) -> HardTree:
        """Route and predict with the trained weights; the gate's intercept goes into its threshold."""
        route = np.where(shape.is_leaf, 0.0, parameters.weights[:, :, -1])
        return cls(
            shape,
            route,
            parameters.thresholds - parameters.intercepts[:, -1],
            parameters.weights[:, :, :n_outputs],
            parameters.intercepts[:, :n_outputs],
        )

    @classmethod
    def single(cls, weights: np.ndarray, intercepts: np.ndarray) -> HardTree:
        """A tree of one node."""
        return cls(
            TreeShape.full(1), np.zeros((len(weights), 1)), np.zeros(1), weights[:, None, :], intercepts[None, :]
        )

    def terminals(self, phi: np.ndarray) -> np.ndarray:
        """The terminal that each row reaches."""
        return self.shape.traverse_hard(phi @ self.route_weights > self.thresholds)

    def margins(self, phi: np.ndarray, terminals: np.ndarray | None = None) -> np.ndarray:
        """Final margins (n, n_outputs)."""
        if terminals is None:
            terminals = self.terminals(phi)
        node = self.shape.terminal_parents[terminals]
        margins = np.empty((len(phi), self.predict_weights.shape[2]))
        for k in np.unique(node):
            at = node == k
            margins[at] = phi[at] @ self.predict_weights[:, k] + self.predict_intercepts[k]
        return margins

    def used_columns(self) -> np.ndarray:
        """Bool (n_terminals, n_columns): the columns evaluated on the way to each terminal."""
        routed = (self.shape.paths.astype(int) @ (self.route_weights.T != 0).astype(int)) > 0
        return routed | (self.predict_weights != 0).any(axis=2).T[self.shape.terminal_parents]

    def mean_cost(self, rows: Rows) -> float:
        """Exact mean cost by the branches that the rows take."""
        return float(np.average(self.row_costs(rows, self.terminals(rows.phi)), weights=rows.weights))

    def row_costs(self, rows: Rows, terminals: np.ndarray) -> np.ndarray:
        """Exact cost of each row that ends at the given terminal."""
        used = self.used_columns()
        cost = np.empty(len(terminals))
        for terminal in np.unique(terminals):
            at = np.flatnonzero(terminals == terminal)
            columns = np.flatnonzero(used[terminal])
            bits = np.bitwise_or.reduce(rows.bits[np.ix_(at, columns)], axis=1)
            bought = np.unpackbits(bits.view(np.uint8), axis=1, count=len(rows.prices))
            cost[at] = bought @ rows.prices + rows.evaluation[columns].sum()
        return cost

    def exact_loss(self, rows: Rows, cost_weight: float) -> float:
        """Risk where the rows end + cost_weight * exact cost of their paths: the loss at test time."""
        return float(np.average(self.row_losses(rows, cost_weight), weights=rows.weights))

    def row_losses(self, rows: Rows, cost_weight: float) -> np.ndarray:
        """`exact_loss` row by row."""
        terminals = self.terminals(rows.phi)
        risk = rows.loss.value_and_derivative(self.margins(rows.phi, terminals), rows.y)[0]
        return risk + cost_weight * self.row_costs(rows, terminals)

    def without(self, node: int) -> HardTree:
        """The tree without `node` and all below it; its parent predicts for those rows."""
        return self.keep(self.shape.kept_after(node))

    def keep(self, kept: np.ndarray) -> HardTree:
        """The tree of the given nodes (see `TreeShape.keep`)."""
        shape = self.shape.keep(kept)
        return HardTree(
            shape,
            np.where(shape.is_leaf, 0.0, self.route_weights[:, kept]),
            self.thresholds[kept],
            self.predict_weights[:, kept],
            self.predict_intercepts[kept],
        )

    def with_predictor(self, node: int, weights: np.ndarray, intercepts: np.ndarray) -> HardTree:
        """The same tree with other predictive weights at one node."""
        predict_weights, predict_intercepts = self.predict_weights.copy(), self.predict_intercepts.copy()
        predict_weights[:, node] = weights
        predict_intercepts[node] = intercepts
        return replace(self, predict_weights=predict_weights, predict_intercepts=predict_intercepts)

    def to_model(
        self,
        learners: WeakLearners,
        *,
        offset: np.ndarray,
        scale: np.ndarray,
        y_offset: float,
        y_scale: float,
        constant: np.ndarray,
        costs: ResolvedCosts,
        link: str,
        schema: Schema,
    ) -> FittedTree:
        """Undo the centring and scaling of ``Phi`` and of the targets, and weigh trees instead of columns."""
        predict = self.predict_weights / scale[:, None, None]
        route = self.route_weights / scale[:, None]
        intercepts = self.predict_intercepts - np.tensordot(offset, predict, axes=1)
        return FittedTree(
            pool=learners.pool,
            shape=self.shape,
            predict_weights=predict[learners.column] * y_scale,
            predict_intercepts=intercepts * y_scale + y_offset,
            route_weights=route[learners.column],
            thresholds=self.thresholds + offset @ route,
            constant=constant,
            costs=costs,
            link=link,
            schema=schema,
        ).compressed()
