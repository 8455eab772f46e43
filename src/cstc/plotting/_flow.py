"""Where the rows go in a fitted tree, and what is bought for them at every node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..model import FittedTree, TreeShape, check_counting
from ..model.mixture import Mixture
from ..model.queries import QueryTree

__all__ = ["Flow", "check_is_ours", "checked", "ended", "trace"]

N_PURCHASES = 3  # the first, the second and the third are told apart


def checked(estimator: Any, X: Any) -> tuple[FittedTree, np.ndarray]:
    """The fitted model and the encoded rows."""
    check_is_ours(estimator)
    check_is_fitted(estimator)
    if isinstance(estimator.model_, Mixture):
        raise ValueError(
            "this model is a mixture of two trees, and the picture is of one; draw that of an estimator with one of "
            f"its cost weights, {estimator.cost_weight_[0]:g} or {estimator.cost_weight_[1]:g}"
        )
    if isinstance(estimator.model_, QueryTree):
        raise ValueError(
            "this model looks at whole queries, and the picture is of rows that go their way alone; a Frontier draws "
            "its cost and quality, and apply(X, qid=...) tells where rows end"
        )
    return estimator.model_, estimator._check_X(X, reset=False)


def check_is_ours(estimator: Any) -> None:
    if not hasattr(estimator, "predict_cost"):
        raise TypeError(f"{type(estimator).__name__} is no CSTC estimator; give the fitted one, not what contains it")


@dataclass(frozen=True)
class Flow:
    """Where rows go in a tree, and what is bought for them on the way.

    Prices are means over the rows that pass.  A leaf classifier buys for its prediction, any other node for its
    gate; what a pruned inner node needs beyond its gate to predict is bought at its terminal.
    """

    visits: np.ndarray  # bool (n, n_nodes)
    terminals: np.ndarray  # (n,)
    node_items: np.ndarray  # (n_nodes, n_items): share of the rows at a node that buy an item there
    node_prices: np.ndarray | None  # (n_nodes,); None where it is not known what is bought
    terminal_items: np.ndarray  # (n_terminals, n_items): share of the rows that end there that buy an item there
    terminal_prices: np.ndarray  # (n_terminals,)
    terminal_costs: np.ndarray  # (n_terminals,), NaN where no row ends
    buyers: np.ndarray  # (N_PURCHASES,): share of all rows that buy a first, a second, a third time
    purchases: np.ndarray  # (N_PURCHASES, n_items): share of all rows that get an item by that purchase

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
    buyers, purchases = np.zeros(N_PURCHASES), np.zeros((N_PURCHASES, costs.n_items))
    by_learner = model.pool.learner_uses(costs.feature_items)
    by_position = model.pool.position_uses(costs.feature_items)
    for run in model.runs(X):
        bought = np.zeros((len(run.terminals), costs.n_items), dtype=bool)
        evaluated = np.zeros((len(run.terminals), model.pool.n_learners), dtype=bool)
        n_bought = np.zeros(len(run.terminals), dtype=int)  # how many times a row has bought something

        def buy(at, learners, items, counts, place, bought=bought, evaluated=evaluated, n_bought=n_bought, run=run):
            before = bought[at]
            for t in np.flatnonzero(learners):
                bought[at] |= by_position[run.leaves[at, t]] if counting == "branch" else by_learner[t]
            new = bought[at] & ~before
            items[place] += new.sum(axis=0)
            buys = new.any(axis=1)
            for which in range(N_PURCHASES):
                mine = buys & (n_bought[at] == which)
                buyers[which] += mine.sum()
                purchases[which] += new[mine].sum(axis=0)
            n_bought[at] += buys
            counts[place] += (learners & ~evaluated[at]).sum()
            evaluated[at] |= learners

        visits = shape.paths[run.terminals]
        for node in range(shape.n_nodes):  # a parent comes before its children
            learners = (model.predict_learners if shape.is_leaf[node] else model.route_learners)[node]
            buy(np.flatnonzero(visits[:, node]), learners, node_items, node_learners, node)
        for terminal, node in enumerate(shape.terminal_parents):
            at = np.flatnonzero(run.terminals == terminal)
            buy(at, model.predict_learners[node], terminal_items, terminal_learners, terminal)
    terminals = model.apply(X)
    passed = np.maximum(shape.paths[terminals].sum(axis=0), 1)
    n_ended = np.maximum(np.bincount(terminals, minlength=shape.n_terminals), 1)
    spent = node_items @ costs.prices + costs.evaluation * node_learners
    spent_at_end = terminal_items @ costs.prices + costs.evaluation * terminal_learners
    return replace(
        ended(shape, terminals, model.predict_cost(X, counting)),
        node_items=node_items / passed[:, None],
        node_prices=spent / passed,
        terminal_items=terminal_items / n_ended[:, None],
        terminal_prices=spent_at_end / n_ended,
        buyers=buyers / len(terminals),
        purchases=purchases / len(terminals),
    )


def ended(shape: TreeShape, terminals: Any, costs: Any) -> Flow:
    """Where rows go that end at these terminals, at these costs; what they buy on the way is not known."""
    terminals, costs = np.asarray(terminals), np.asarray(costs, dtype=float)
    if terminals.ndim != 1 or not len(terminals) or terminals.dtype.kind not in "iu":
        raise ValueError("terminals needs one whole number for each row, as `apply` gives them")
    if terminals.min() < 0 or terminals.max() >= shape.n_terminals:
        raise ValueError(
            f"terminals range from {terminals.min()} to {terminals.max()}; the tree has 0 to {shape.n_terminals - 1}"
        )
    if costs.shape != terminals.shape:
        raise ValueError(f"costs has shape {costs.shape}, there are {len(terminals)} terminals; give one for each row")
    n_ended = np.bincount(terminals, minlength=shape.n_terminals)
    paid = np.bincount(terminals, weights=costs, minlength=shape.n_terminals)
    return Flow(
        visits=shape.paths[terminals],
        terminals=terminals,
        node_items=np.zeros((shape.n_nodes, 0)),
        node_prices=None,
        terminal_items=np.zeros((shape.n_terminals, 0)),
        terminal_prices=np.zeros(shape.n_terminals),
        terminal_costs=np.where(n_ended > 0, paid / np.maximum(n_ended, 1), np.nan),
        buyers=np.zeros(N_PURCHASES),
        purchases=np.zeros((N_PURCHASES, 0)),
    )
