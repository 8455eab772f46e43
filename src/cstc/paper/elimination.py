"""From a relaxed solution to what is paid and used: columns and gates that are not worth their price leave the tree.

Both steps are judged under hard routing, elimination by the exact cost too.
"""

from __future__ import annotations

import numpy as np

from ..parallel import stop_if_asked
from .codes import Phi, means
from .features import Seen
from .hard_tree import HardTree

__all__ = ["drop_idle_gates", "eliminate", "sets_by_item"]


def eliminate(tree: HardTree, rows: Seen, column_sets: list[np.ndarray], cost_weight: float) -> HardTree:
    """Backward elimination: drop columns while risk + cost_weight * exact cost does not rise.

    `column_sets` are the columns that leave together, such as all that need one item.  A move takes one set away
    from some nodes (see `_scopes`), and its mean output goes into their intercepts and thresholds.  Judged under
    hard routing.  Sets are visited in the order given, and the best move of each is taken, until a whole round
    finds none.
    """
    loss = tree.exact_loss(rows, cost_weight)
    improved = True
    while improved:
        improved = False
        for columns in column_sets:
            while True:
                stop_if_asked()
                moves = [_without_columns(tree, rows, columns, nodes) for nodes in _scopes(tree, columns)]
                losses = [move.exact_loss(rows, cost_weight) for move in moves]
                if not moves or min(losses) > loss:
                    break
                tree, loss, improved = moves[int(np.argmin(losses))], min(losses), True
    return tree


def sets_by_item(column_items: np.ndarray, prices: np.ndarray) -> list[np.ndarray]:
    """What elimination may take away together: the columns that need an item, expensive items first."""
    by_item = [column_items[:, item] for item in np.argsort(-prices, kind="stable")]
    distinct = dict.fromkeys(tuple(np.flatnonzero(members)) for members in by_item)
    return [np.array(columns) for columns in distinct if columns]


def _scopes(tree: HardTree, columns: np.ndarray) -> list[np.ndarray]:
    """Sets of nodes to take columns from: a node alone, a node with all below it, or all but those.

    An item that several nodes of a path use is paid until the last one lets go, so single nodes are not enough;
    the third kind keeps an item for one branch of the tree only.
    """
    in_use = (tree.route_weights[columns] != 0).any(axis=0) | (tree.predict_weights[columns] != 0).any(axis=(0, 2))
    below = tree.shape.node_paths.T  # [k, j]: node j lies in the subtree of k
    scopes = [*(below & in_use), *(~below & in_use), *(np.eye(len(in_use), dtype=bool) & in_use)]
    return [np.flatnonzero(scope) for scope in np.unique(scopes, axis=0) if scope.any()]


def _without_columns(tree: HardTree, rows: Seen, columns: np.ndarray, nodes: np.ndarray) -> HardTree:
    terminals = tree.terminals(rows.phi)
    route, thresholds = tree.route_weights.copy(), tree.thresholds.copy()
    predict, intercepts = tree.predict_weights.copy(), tree.predict_intercepts.copy()
    for node in nodes:
        here = np.isin(terminals, np.flatnonzero(tree.shape.paths[:, node]))
        if rows.weights[here].sum() > 0:
            mean = means(rows.phi[np.ix_(here, columns)], rows.weights[here])
            thresholds[node] -= mean @ route[columns, node]
            intercepts[node] += mean @ predict[columns, node]
        route[columns, node] = 0.0
        predict[columns, node] = 0.0
    return HardTree(tree.shape, route, thresholds, predict, intercepts)


def drop_idle_gates(tree: HardTree, phi: Phi) -> HardTree:
    """Take out every gate that sends all of the given rows one way: they go on without paying for it.

    A node whose rows all take one branch is replaced by what is on that branch, and what no row reaches goes too.
    """
    node = 0
    while node < tree.shape.n_nodes:
        shape = tree.shape
        here = shape.paths[tree.terminals(phi), node]  # the rows that pass this node
        if not shape.is_leaf[node]:
            above = phi[here] @ tree.route_weights[:, node] > tree.thresholds[node]
            if above.all() or not above.any():
                taken, idle = (shape.upper, shape.lower) if above.all() else (shape.lower, shape.upper)
                gone = (
                    shape.node_paths[:, idle[node]].copy() if idle[node] >= 0 else np.zeros(shape.n_nodes, dtype=bool)
                )
                if taken[node] >= 0:
                    gone[node] = True  # its child takes its place
                if gone.any():
                    tree, node = tree.keep(np.flatnonzero(~gone)), 0
                    continue
        node += 1
    return tree
