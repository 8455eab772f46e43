"""The global loss of a CSTC tree and its gradient (paper, eq. nodeloss).

With margins ``A = Phi @ B + intercepts``, gates ``S = sigmoid(slope * (A_route - theta))``, traversal
probabilities ``P`` of nodes and ``p`` of terminals,

    loss = sum_k  mean_i P[i,k] * risk(A[i,k], y[i])  +  rho * sum |B|
         + lam * sum_l mean_i p[i,l] * path_cost[l]

    path_cost[l] = sum_t e[t] * sqrt(sum_{j in path l} B[t,j]^2)
                 + sum_r c[r] * sqrt(sum_{j in path l} sum_t (F[r,t] B[t,j])^2)

where a node of several outputs (classes) and its gate share one group.  Only two passes over the data are
needed, ``Phi @ B`` and ``Phi.T @ M``: `Design` has these two methods, for a dense matrix and for codes of leaves
(`codes`), and whatever else has them (a GPU array, blocks of rows) can take its place.

Every square root is smoothed by Lemma 1 with a floor under its auxiliary variable,

    sqrt(g)  ->  min over z >= floor of (g / z + z) / 2  =  sqrt(g), or (g / floor + floor) / 2 below the floor,

which is differentiable everywhere.  `Auxiliaries` holds the ``z`` when the paper's alternation fixes them;
without it they are at their minimum, in closed form, in every evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from ..model import TreeShape
from .codes import Phi

__all__ = ["Auxiliaries", "Design", "Held", "NodeParameters", "Penalty", "Prior", "TreeObjective"]


class Design:
    """``Phi``, dense or as codes of leaves; the only thing that the objective knows of the data."""

    def __init__(self, phi: Phi):
        self.phi = phi
        self.n_rows, self.n_learners = phi.shape

    def matmul(self, weights: np.ndarray) -> np.ndarray:
        """``Phi @ weights``."""
        return self.phi @ weights.astype(self.phi.dtype, copy=False)

    def rmatmul(self, margins: np.ndarray) -> np.ndarray:
        """``Phi.T @ margins``."""
        return self.phi.T @ margins.astype(self.phi.dtype, copy=False)


@dataclass(frozen=True)
class NodeParameters:
    """Everything that is learned, node by node.

    Attributes
    ----------
    weights : ndarray of shape (n_learners, n_nodes, n_columns)
        ``B``.  The columns of a node are its outputs, followed by the gate where routing has one of its own.
    intercepts : ndarray of shape (n_nodes, n_columns)
        Free and unpenalised; zero for a separate gate, whose threshold says the same.
    thresholds : ndarray of shape (n_nodes,)
        ``theta``.
    """

    weights: np.ndarray
    intercepts: np.ndarray
    thresholds: np.ndarray

    @classmethod
    def zeros(cls, n_learners: int, n_nodes: int, n_columns: int) -> NodeParameters:
        return cls(np.zeros((n_learners, n_nodes, n_columns)), np.zeros((n_nodes, n_columns)), np.zeros(n_nodes))

    def flatten(self) -> np.ndarray:
        return np.concatenate([self.weights.ravel(), self.intercepts.ravel(), self.thresholds])

    def unflatten(self, flat: np.ndarray) -> NodeParameters:
        a, b = self.weights.size, self.weights.size + self.intercepts.size
        return NodeParameters(flat[:a].reshape(self.weights.shape), flat[a:b].reshape(self.intercepts.shape), flat[b:])

    def keep(self, nodes: np.ndarray) -> NodeParameters:
        """The parameters of the given nodes only."""
        return NodeParameters(self.weights[:, nodes], self.intercepts[nodes], self.thresholds[nodes])


@dataclass(frozen=True)
class Auxiliaries:
    """The ``z`` of Lemma 1: one for each square root of the loss."""

    learners: np.ndarray  # (n_terminals, n_learners)
    items: np.ndarray  # (n_terminals, n_items)
    absolutes: np.ndarray  # like the weights


@dataclass(frozen=True)
class Penalty:
    """The cost and sparsity terms of the loss.

    Attributes
    ----------
    learner_items : ndarray of shape (n_learners, n_items)
        ``F`` transposed: 1 where a weak learner uses a feature that requires the item; or, for a learner whose
        branches differ, the share of rows for which it does.
    prices : ndarray of shape (n_items,)
        ``c``.
    evaluation : ndarray of shape (n_learners,)
        ``e``.
    cost_weight, l1_weight : float
        ``lam`` and ``rho``.
    floor : float
        Lower bound of the auxiliary variables.
    sharpness : float
        0 is the paper's relaxation, in which an item's share of the cost grows with the norm ``u`` of its
        weights.  A positive value bends it towards the exact cost: ``u * (1 + s) / (1 + s * u)``, which
        still is ``u`` at 0 and 1 but approaches "paid or not paid" as ``s`` grows.
    paid_learners, paid_items : ndarray of shape (n_learners,) and (n_items,), or 0
        Squared norms that nodes outside the problem add to every path: the ancestors, when one node is
        solved alone.
    """

    learner_items: np.ndarray
    prices: np.ndarray
    evaluation: np.ndarray
    cost_weight: float
    l1_weight: float
    floor: float = 1e-3
    sharpness: float = 0.0
    paid_learners: np.ndarray | float = 0.0
    paid_items: np.ndarray | float = 0.0

    @cached_property
    def _squared_items(self) -> np.ndarray:
        return self.learner_items**2

    def squares(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared norms per node: of each learner (n_nodes, n_learners) and of each item (n_nodes, n_items)."""
        by_learner = (weights**2).sum(axis=2).T
        return by_learner, by_learner @ self._squared_items

    def root(self, squares: np.ndarray, z: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The smoothed square root and its derivative, bent by `sharpness`."""
        if z is None:
            z = np.sqrt(np.maximum(squares, self.floor**2))
        u = 0.5 * (squares / z + z)
        derivative = 0.5 / z
        if self.sharpness:
            bend = 1.0 + self.sharpness * u
            return u * (1.0 + self.sharpness) / bend, derivative * (1.0 + self.sharpness) / bend**2
        return u, derivative

    def path_costs(
        self, weights: np.ndarray, paths: np.ndarray, auxiliaries: Auxiliaries | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Relaxed cost of each path, and its derivative (n_paths, n_learners) by a learner's squared norm."""
        by_learner, by_item = self.squares(weights)
        on_path = paths.astype(float)
        value, slope = self.root(on_path @ by_item + self.paid_items, auxiliaries.items if auxiliaries else None)
        costs = value @ self.prices
        derivative = (slope * self.prices) @ self._squared_items.T
        if self.evaluation.any():
            value, slope = self.root(
                on_path @ by_learner + self.paid_learners, auxiliaries.learners if auxiliaries else None
            )
            costs = costs + value @ self.evaluation
            derivative = derivative + slope * self.evaluation
        return costs, derivative

    def absolutes(self, weights: np.ndarray, z: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """``rho * sum |B|`` and its gradient."""
        if not self.l1_weight:
            return 0.0, np.zeros_like(weights)
        squares = weights**2
        if z is None:
            z = np.sqrt(np.maximum(squares, self.floor**2))
        value = 0.5 * (squares / z + z).sum()
        return self.l1_weight * float(value), self.l1_weight * weights / z

    def auxiliaries(self, weights: np.ndarray, paths: np.ndarray) -> Auxiliaries:
        """Lemma 1: the ``z`` that minimise the loss at these weights."""
        by_learner, by_item = self.squares(weights)
        on_path = paths.astype(float)
        return Auxiliaries(
            learners=np.sqrt(np.maximum(on_path @ by_learner + self.paid_learners, self.floor**2)),
            items=np.sqrt(np.maximum(on_path @ by_item + self.paid_items, self.floor**2)),
            absolutes=np.maximum(np.abs(weights), self.floor),
        )


@dataclass(frozen=True)
class Prior:
    """What a node is taken to be before it has seen rows: a pull on all nodes alike.

    Adds ``strength * sum_k (|B_k - weights|^2 + |intercepts_k - intercepts|^2)`` to the loss.  A node that many rows
    reach hardly feels it; one that few rows reach stays near what is known of all rows, and margins stay
    finite where the classes of its rows can be told apart without error.
    """

    weights: np.ndarray  # (n_learners, n_columns)
    intercepts: np.ndarray  # (n_columns,)
    strength: float

    def terms(self, weights: np.ndarray, intercepts: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The value, and its gradient in the weights and the intercepts of all nodes."""
        away, apart = weights - self.weights[:, None, :], intercepts - self.intercepts
        value = self.strength * float((away**2).sum() + (apart**2).sum())
        return value, 2.0 * self.strength * away, 2.0 * self.strength * apart


@dataclass(frozen=True)
class Held:
    """What does not change while one node is solved: gates and risks of all others.  The column of the node is its own.

    Attributes
    ----------
    node : int
    gates, risks : ndarray of shape (n, n_nodes)
    """

    node: int
    gates: np.ndarray
    risks: np.ndarray


class TreeObjective:
    """The loss of a whole tree at given parameters, its gradient, and the pieces that solvers need.

    Parameters
    ----------
    design : Design
    y : ndarray
        Encoded targets.
    sample_weight : ndarray
        Normalised here to sum to 1, so that every mean is a weighted mean.
    loss : a loss of `cstc.losses`
    shape : TreeShape
    penalty : Penalty
    gate_slope : float, default=1.0
        Slope of the sigmoid of the gates; the paper has 1.
    prior : Prior or None, default=None
        A pull of all nodes to common weights; the paper has none.
    """

    def __init__(
        self,
        design,
        y,
        sample_weight,
        loss,
        shape: TreeShape,
        penalty: Penalty,
        gate_slope: float = 1.0,
        prior: Prior | None = None,
    ):
        self.design = design
        self.y = y
        self.row_weights = sample_weight / sample_weight.sum()
        self.loss = loss
        self.shape = shape
        self.penalty = penalty
        self.gate_slope = gate_slope
        self.prior = prior
        self.n_outputs = loss.n_outputs
        self.separate_gate = loss.n_outputs > 1
        self.n_columns = loss.n_outputs + self.separate_gate

    def with_settings(self, *, gate_slope: float | None = None, **penalty_changes) -> TreeObjective:
        """The same problem with another gate slope or other settings of the penalty."""
        slope = self.gate_slope if gate_slope is None else gate_slope
        penalty = replace(self.penalty, **penalty_changes)
        return TreeObjective(self.design, self.y, self.row_weights, self.loss, self.shape, penalty, slope, self.prior)

    def margins(self, parameters: NodeParameters) -> np.ndarray:
        """``A`` of shape (n, n_nodes, n_columns)."""
        flat = self.design.matmul(parameters.weights.reshape(self.design.n_learners, parameters.intercepts.size))
        return flat.reshape(-1, *parameters.intercepts.shape) + parameters.intercepts

    def gates(self, margins: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """``S``: the probability that a row goes from a node to its upper child."""
        return expit(self.gate_slope * (margins[:, :, -1] - thresholds))

    def value(self, parameters: NodeParameters, auxiliaries: Auxiliaries | None = None) -> float:
        """The loss."""
        return self.value_and_gradient(parameters, auxiliaries)[0]

    def value_and_gradient(
        self, parameters: NodeParameters, auxiliaries: Auxiliaries | None = None
    ) -> tuple[float, NodeParameters]:
        """The loss and its gradient in all parameters together."""
        margins = self.margins(parameters)
        costs, by_square = self.penalty.path_costs(parameters.weights, self.shape.paths, auxiliaries)
        value, by_margin, by_threshold, reached = self.margin_terms(margins, parameters.thresholds, costs)
        l1, by_weight = self.penalty.absolutes(parameters.weights, auxiliaries.absolutes if auxiliaries else None)
        by_weight = by_weight + self.cost_gradient(parameters.weights, by_square, reached)
        flat = self.design.rmatmul(by_margin.reshape(len(by_margin), -1))
        by_weight = by_weight + flat.reshape(by_weight.shape)
        pull, pull_weight, pull_intercept = self._prior_terms(parameters)
        by_intercept = self._by_intercept(by_margin) + pull_intercept
        return value + l1 + pull, NodeParameters(by_weight + pull_weight, by_intercept, by_threshold)

    def node_value_and_gradient(
        self,
        node: int,
        parameters: NodeParameters,
        margins: np.ndarray,
        auxiliaries: Auxiliaries | None = None,
        held: Held | None = None,
    ) -> tuple[float, np.ndarray, np.ndarray, float]:
        """Loss and gradient in one node's weights, intercepts and threshold.

        `margins` are those of all nodes, this one's included; one column of the data is touched.  `held` is what is
        known of the other nodes, if their margins and thresholds have not changed since.
        """
        costs, by_square = self.penalty.path_costs(parameters.weights, self.shape.paths, auxiliaries)
        held = self.hold(node, margins, parameters.thresholds) if held is None else held
        value, by_margin, by_threshold, reached = self.margin_terms(margins, parameters.thresholds, costs, held)
        l1, by_weight = self.penalty.absolutes(parameters.weights, auxiliaries.absolutes if auxiliaries else None)
        by_weight = by_weight + self.cost_gradient(parameters.weights, by_square, reached)
        pull, pull_weight, pull_intercept = self._prior_terms(parameters)
        gradient = by_weight[:, node] + self.design.rmatmul(by_margin[:, node]) + pull_weight[:, node]
        by_intercept = self._by_intercept(by_margin) + pull_intercept
        return value + l1 + pull, gradient, by_intercept[node], by_threshold[node]

    def hold(self, node: int, margins: np.ndarray, thresholds: np.ndarray) -> Held:
        """Gates and risks at these margins, while one node is solved."""
        risks = [self.loss.value(margins[:, each, : self.n_outputs], self.y) for each in range(self.shape.n_nodes)]
        return Held(node, self.gates(margins, thresholds), np.column_stack(risks))

    def _prior_terms(self, parameters: NodeParameters) -> tuple[float, np.ndarray, np.ndarray]:
        if self.prior is None:
            return 0.0, np.zeros_like(parameters.weights), np.zeros_like(parameters.intercepts)
        return self.prior.terms(parameters.weights, parameters.intercepts)

    def cost_gradient(self, weights: np.ndarray, by_square: np.ndarray, reached: np.ndarray) -> np.ndarray:
        """Gradient of the cost term in the weights, traversal held fixed."""
        scale = self.penalty.cost_weight * reached
        by_node = self.shape.paths.T.astype(float) @ (scale[:, None] * by_square)  # (n_nodes, n_learners)
        return 2.0 * weights * by_node.T[:, :, None]

    def margin_terms(
        self, margins: np.ndarray, thresholds: np.ndarray, path_costs: np.ndarray, held: Held | None = None
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Risk and expected cost at given margins.

        Returns the value, its derivative by the margins (n, n_nodes, n_columns) and by the thresholds, and
        the weighted mean probability of each terminal.  With `held`, the derivatives of its node only: of the others,
        they are not all worked out.
        """
        shape = self.shape
        if held is None:
            moving, wanted = range(shape.n_nodes), np.ones(shape.n_nodes, dtype=bool)
            gates, risks = self.gates(margins, thresholds), np.empty((len(margins), shape.n_nodes))
        else:
            moving, wanted = range(held.node, held.node + 1), shape.node_paths[:, held.node]  # it and all below it
            gates, risks = held.gates, held.risks
            gates[:, moving] = self.gates(margins[:, moving], thresholds[moving])
        node_probabilities, terminal_probabilities = shape.traverse_soft(gates)
        by_margin = np.zeros(margins.shape)
        share = self.row_weights[:, None] * node_probabilities
        for node in moving:
            risks[:, node], derivative = self.loss.value_and_derivative(margins[:, node, : self.n_outputs], self.y)
            by_margin[:, node, : self.n_outputs] = share[:, node, None] * derivative
        risks = share * risks
        cost_weight = self.penalty.cost_weight
        reached = self.row_weights @ terminal_probabilities
        value = float(risks.sum() + cost_weight * reached @ path_costs)
        # what lies below each branch: risk of every node and cost of every terminal, from the leaves upward
        terminal_terms = self.row_weights[:, None] * terminal_probabilities * (cost_weight * path_costs)
        below = risks.copy()
        by_threshold = np.zeros(shape.n_nodes)
        for node in reversed(np.flatnonzero(wanted).tolist()):
            if shape.is_leaf[node]:
                below[:, node] += terminal_terms[:, -1 - shape.upper[node]]
                continue
            up, down = (
                below[:, child] if child >= 0 else terminal_terms[:, -1 - child]
                for child in (shape.upper[node], shape.lower[node])
            )
            # d log S = slope * (1 - S), d log (1 - S) = -slope * S
            routing = self.gate_slope * ((1.0 - gates[:, node]) * up - gates[:, node] * down)
            by_margin[:, node, -1] += routing
            by_threshold[node] = -routing.sum()
            below[:, node] += up + down
        return value, by_margin, by_threshold, reached

    def _by_intercept(self, by_margin: np.ndarray) -> np.ndarray:
        gradient = by_margin.sum(axis=0)
        if self.separate_gate:
            gradient[:, -1] = 0.0  # the threshold takes its place
        return gradient
