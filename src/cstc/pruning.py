"""Validation pruning (paper, "Tree pruning"), and gates that send everything one way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .hard_tree import HardTree

__all__ = ["drop_idle_gates", "prune"]


def prune(tree: HardTree, judge: Callable[[HardTree], float]) -> HardTree:
    """Remove nodes, each with all below it, as long as the judged error on validation data does not rise.

    The node whose removal leaves the lowest error goes first, so the result does not depend on how nodes are
    numbered.  When a node goes, its parent predicts for its rows.
    """
    error = judge(tree)
    while tree.shape.n_nodes > 1:
        smaller = [tree.without(node) for node in range(1, tree.shape.n_nodes)]
        errors = [judge(candidate) for candidate in smaller]
        best = int(np.argmin(errors))
        if errors[best] > error:
            break
        tree, error = smaller[best], errors[best]
    return tree


def drop_idle_gates(tree: HardTree, phi: np.ndarray) -> HardTree:
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
