"""Validation pruning (paper, "Tree pruning")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .hard_tree import HardTree

__all__ = ["prune"]


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
