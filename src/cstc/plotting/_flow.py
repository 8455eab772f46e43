"""Where the rows go in a fitted tree, and what is bought for them at every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..model import FittedTree, check_counting

__all__ = ["Flow", "checked", "trace"]


def checked(estimator: Any, X: Any) -> tuple[FittedTree, np.ndarray]:
    """The fitted model and the encoded rows."""
    if not hasattr(estimator, "predict_cost"):
        raise TypeError(f"{type(estimator).__name__} is no CSTC estimator; give the fitted one, not what contains it")
    check_is_fitted(estimator)
    return estimator.model_, estimator._check_X(X, reset=False)


@dataclass(frozen=True)
class Flow:
    """Where rows go in a tree, and what is bought for them on the way.

    Prices are means over the rows that pass.  A leaf classifier buys for its prediction, any other node for its
    gate; what a pruned inner node needs beyond its gate to predict is bought at its terminal.
    """

    visits: np.ndarray  # bool (n, n_nodes)
    terminals: np.ndarray  # (n,)
    node_items: np.ndarray  # (n_nodes, n_items): share of the rows at a node that buy an item there
    node_prices: np.ndarray  # (n_nodes,)
    terminal_prices: np.ndarray  # (n_terminals,)
    terminal_costs: np.ndarray  # (n_terminals,), NaN where no row ends

    @property
    def node_shares(self) -> np.ndarray:
        return self.visits.mean(axis=0)

    @property
    def terminal_shares(self) -> np.ndarray:
        return np.bincount(self.terminals, minlength=len(self.terminal_costs)) / len(self.terminals)


def trace(model: FittedTree, X: np.ndarray, counting: str) -> Flow:
    """Send rows down a tree and note what is bought where, each item and each learner when it is first needed."""
    check_counting(counting)
    shape, costs = model.shape, model.costs
    node_items = np.zeros((shape.n_nodes, costs.n_items))
    terminal_items = np.zeros((shape.n_terminals, costs.n_items))
    node_learners, terminal_learners = np.zeros(shape.n_nodes), np.zeros(shape.n_terminals)
    by_learner = model.pool.learner_uses(costs.feature_items)
    by_position = model.pool.position_uses(costs.feature_items)
    for run in model.runs(X):
        bought = np.zeros((len(run.terminals), costs.n_items), dtype=bool)
        evaluated = np.zeros((len(run.terminals), model.pool.n_learners), dtype=bool)

        def buy(at, learners, items, counts, place, bought=bought, evaluated=evaluated, run=run):
            before = bought[at]
            for t in np.flatnonzero(learners):
                bought[at] |= by_position[run.leaves[at, t]] if counting == "branch" else by_learner[t]
            items[place] += (bought[at] & ~before).sum(axis=0)
            counts[place] += (learners & ~evaluated[at]).sum()
            evaluated[at] |= learners

        visits = shape.paths[run.terminals]
        for node in range(shape.n_nodes):  # a parent comes before its children
            learners = (model.predict_learners if shape.is_leaf[node] else model.route_learners)[node]
            buy(np.flatnonzero(visits[:, node]), learners, node_items, node_learners, node)
        for terminal, node in enumerate(shape.terminal_parents):
            at = np.flatnonzero(run.terminals == terminal)
            buy(at, model.predict_learners[node], terminal_items, terminal_learners, terminal)
    terminals, cost = model.apply(X), model.predict_cost(X, counting)
    visits = shape.paths[terminals]
    passed, ended = visits.sum(axis=0), np.bincount(terminals, minlength=shape.n_terminals)
    spent = node_items @ costs.prices + costs.evaluation * node_learners
    spent_at_end = terminal_items @ costs.prices + costs.evaluation * terminal_learners
    paid = np.bincount(terminals, weights=cost, minlength=shape.n_terminals)
    return Flow(
        visits=visits,
        terminals=terminals,
        node_items=node_items / np.maximum(passed, 1)[:, None],
        node_prices=spent / np.maximum(passed, 1),
        terminal_prices=spent_at_end / np.maximum(ended, 1),
        terminal_costs=np.where(ended > 0, paid / np.maximum(ended, 1), np.nan),
    )
