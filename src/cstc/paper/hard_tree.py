"""A tree under hard routing, on precomputed learner outputs: what pruning and fine-tuning work on.

Training is soft, prediction is not.  From the moment when the support is made exact, every step is judged by
what hard routing does with the rows, and by the exact cost instead of its relaxation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from ..model import TreeShape
from ..model.pool import unpack_items
from .codes import Phi
from .features import Seen
from .objective import NodeParameters

__all__ = ["HardTree"]


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

    def terminals(self, phi: Phi) -> np.ndarray:
        """The terminal that each row reaches."""
        return self.shape.traverse_hard(phi @ self.route_weights > self.thresholds)

    def margins(self, phi: Phi, terminals: np.ndarray | None = None) -> np.ndarray:
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

    def mean_cost(self, rows: Seen) -> float:
        """Exact mean cost by the branches that the rows take."""
        return float(np.average(self.row_costs(rows, self.terminals(rows.phi)), weights=rows.weights))

    def row_costs(self, rows: Seen, terminals: np.ndarray) -> np.ndarray:
        """Exact cost of each row that ends at the given terminal."""
        used = self.used_columns()
        cost = np.empty(len(terminals))
        for terminal in np.unique(terminals):
            at = np.flatnonzero(terminals == terminal)
            columns = np.flatnonzero(used[terminal])
            bought = unpack_items(rows.bought(at, columns), rows.costs.n_items)
            cost[at] = rows.costs.charge(bought, len(columns))
        return cost

    def exact_loss(self, rows: Seen, cost_weight: float) -> float:
        """Risk where the rows end + cost_weight * exact cost of their paths: the loss at test time."""
        return float(np.average(self.row_losses(rows, cost_weight), weights=rows.weights))

    def row_losses(self, rows: Seen, cost_weight: float) -> np.ndarray:
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

    def traverse_soft(self, phi: Phi, slope: float) -> tuple[np.ndarray, np.ndarray]:
        """Soft traversal probabilities of nodes and terminals, with gates of this slope."""
        return self.shape.traverse_soft(expit(slope * (phi @ self.route_weights - self.thresholds)))
