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
from .pool import TreePool
from .tree import TreeShape

__all__ = ["HardTree", "Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the later stages see them: learner outputs, targets, weights, and what each branch costs.

    Attributes
    ----------
    phi : ndarray of shape (n, n_learners)
    y, weights : ndarray of shape (n,)
    loss : a loss of `cstc.losses`
    leaves : int ndarray of shape (n, n_learners)
        Where each row ends in each learner.
    bits : packed bits (n_positions + 1, n_words)
        The items on the way to each position of the pool (`TreePool.position_bits`).
    prices : ndarray
    evaluation : float
    qid : ndarray or None
        Queries, where the metric is NDCG@5.
    """

    phi: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    loss: Any
    leaves: np.ndarray
    bits: np.ndarray
    prices: np.ndarray
    evaluation: float
    qid: np.ndarray | None = None

    def sampled(self, n: int, random_state: int) -> Rows:
        """At most `n` of the rows, drawn without replacement."""
        if len(self.y) <= n:
            return self
        at = np.sort(np.random.default_rng(random_state).choice(len(self.y), n, replace=False))
        parts = {name: getattr(self, name)[at] for name in ("phi", "y", "weights", "leaves")}
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
    route_weights: np.ndarray  # (n_learners, n_nodes), zero at leaf classifiers
    thresholds: np.ndarray  # (n_nodes,)
    predict_weights: np.ndarray  # (n_learners, n_nodes, n_outputs)
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

    def used_learners(self) -> np.ndarray:
        """Bool (n_terminals, n_learners): the learners evaluated on the way to each terminal."""
        routed = (self.shape.paths.astype(int) @ (self.route_weights.T != 0).astype(int)) > 0
        return routed | (self.predict_weights != 0).any(axis=2).T[self.shape.terminal_parents]

    def mean_cost(self, rows: Rows, terminals: np.ndarray | None = None) -> float:
        """Exact mean cost by the branches that the rows take."""
        if terminals is None:
            terminals = self.terminals(rows.phi)
        used = self.used_learners()
        cost = np.empty(len(terminals))
        for terminal in np.unique(terminals):
            at = np.flatnonzero(terminals == terminal)
            learners = np.flatnonzero(used[terminal])
            bits = np.bitwise_or.reduce(rows.bits[rows.leaves[np.ix_(at, learners)]], axis=1)
            bought = np.unpackbits(bits.view(np.uint8), axis=1, count=len(rows.prices))
            cost[at] = bought @ rows.prices + rows.evaluation * len(learners)
        return float(np.average(cost, weights=rows.weights))

    def exact_loss(self, rows: Rows, cost_weight: float) -> float:
        """Risk where the rows end + cost_weight * exact cost of their paths: the loss at test time."""
        terminals = self.terminals(rows.phi)
        return rows.risk(self.margins(rows.phi, terminals)) + cost_weight * self.mean_cost(rows, terminals)

    def without(self, node: int) -> HardTree:
        """The tree without `node` and all below it; its parent predicts for those rows."""
        kept = self.shape.kept_after(node)
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
        pool: TreePool,
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
        """Undo the centring and scaling of ``Phi`` and of the targets."""
        predict = self.predict_weights / scale[:, None, None]
        route = self.route_weights / scale[:, None]
        intercepts = self.predict_intercepts - np.tensordot(offset, predict, axes=1)
        return FittedTree(
            pool=pool,
            shape=self.shape,
            predict_weights=predict * y_scale,
            predict_intercepts=intercepts * y_scale + y_offset,
            route_weights=route,
            thresholds=self.thresholds + offset @ route,
            constant=constant,
            costs=costs,
            link=link,
            schema=schema,
        ).compressed()
