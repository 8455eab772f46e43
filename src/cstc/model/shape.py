"""The shape of a CSTC tree: classifier nodes, terminal elements, paths, soft and hard traversal.

Paper, sections "CSTC nodes" and "Soft tree traversal".  Nodes are numbered so that a parent comes before
its children.  Every missing branch ends in a terminal element; a leaf classifier has one terminal for both
of its branches, a pruned inner node has one beside its remaining child and then predicts for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["TreeShape"]


@dataclass(frozen=True, eq=False)
class TreeShape:
    """Who is whose child.

    Attributes
    ----------
    upper, lower : int ndarray of shape (n_nodes,)
        The child that a row is sent to when its margin is above the threshold, or not.  A number of 0 or
        more is a classifier node, a negative one is terminal ``-1 - number``.

    Examples
    --------
    >>> shape = TreeShape.full(depth=2)
    >>> shape.n_nodes, shape.n_terminals
    (3, 2)
    >>> shape.prune(1).paths.astype(int)
    array([[1, 0],
           [1, 1]])
    """

    upper: np.ndarray
    lower: np.ndarray

    @classmethod
    def full(cls, depth: int, max_nodes: int | None = None) -> TreeShape:
        """Full binary tree of `depth` levels of classifiers, cut to the first `max_nodes` by breadth."""
        n_nodes = 2**depth - 1
        if max_nodes is not None:
            n_nodes = min(n_nodes, max_nodes)
        return cls.from_parents([-1] + [(k - 1) // 2 for k in range(1, n_nodes)], [k % 2 == 1 for k in range(n_nodes)])

    @classmethod
    def chain(cls, length: int) -> TreeShape:
        """The cascade: rows above the threshold go on, the others leave (Cronus is trained on this shape)."""
        return cls.from_parents([k - 1 for k in range(length)], [True] * length)

    @classmethod
    def from_parents(cls, parents: Iterable[int], is_upper: Iterable[bool]) -> TreeShape:
        """Build from each node's parent (-1 for the root) and whether it is the parent's upper child."""
        parents, is_upper = list(parents), list(is_upper)
        missing = np.iinfo(np.int64).min
        upper = np.full(len(parents), missing)
        lower = np.full(len(parents), missing)
        for node, (parent, above) in enumerate(zip(parents, is_upper, strict=True)):
            if parent >= 0:
                (upper if above else lower)[parent] = node
        terminal = 0
        for node in range(len(parents)):
            if upper[node] == missing and lower[node] == missing:  # leaf classifier: one terminal for both ways
                upper[node] = lower[node] = -1 - terminal
                terminal += 1
                continue
            for side in (upper, lower):
                if side[node] == missing:
                    side[node] = -1 - terminal
                    terminal += 1
        return cls(upper, lower)

    @property
    def n_nodes(self) -> int:
        return len(self.upper)

    @cached_property
    def n_terminals(self) -> int:
        return int(-min(self.upper.min(), self.lower.min()))

    @cached_property
    def parents(self) -> np.ndarray:
        parents = np.full(self.n_nodes, -1)
        for side in (self.upper, self.lower):
            inner = np.flatnonzero(side >= 0)
            parents[side[inner]] = inner
        return parents

    @cached_property
    def is_leaf(self) -> np.ndarray:
        """Leaf classifiers: no classifier below them, so they route nowhere."""
        return self.upper == self.lower

    @cached_property
    def is_predictive(self) -> np.ndarray:
        """Classifiers with a terminal child: those that make final predictions."""
        return (self.upper < 0) | (self.lower < 0)

    @cached_property
    def terminal_parents(self) -> np.ndarray:
        """The classifier whose prediction each terminal returns."""
        parents = np.empty(self.n_terminals, dtype=int)
        for side in (self.upper, self.lower):
            ends = np.flatnonzero(side < 0)
            parents[-1 - side[ends]] = ends
        return parents

    @cached_property
    def node_paths(self) -> np.ndarray:
        """Bool (n_nodes, n_nodes): ``[k, j]`` says that node j lies on the way to node k, k included."""
        paths = np.eye(self.n_nodes, dtype=bool)
        for node in range(1, self.n_nodes):
            paths[node] |= paths[self.parents[node]]
        return paths

    @cached_property
    def paths(self) -> np.ndarray:
        """Bool (n_terminals, n_nodes): the classifiers ``pi^l`` from the root to each terminal."""
        return self.node_paths[self.terminal_parents]

    @cached_property
    def depths(self) -> np.ndarray:
        """Level of each node; the root is at 0."""
        return self.node_paths.sum(axis=1) - 1

    def traverse_soft(self, gates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Traversal probabilities of nodes and terminals from the gates ``sigmoid(margin - theta)``.

        `gates` has shape (n, n_nodes); returns arrays of shape (n, n_nodes) and (n, n_terminals).
        """
        n = len(gates)
        node_probabilities = np.empty((n, self.n_nodes), dtype=gates.dtype)
        terminal_probabilities = np.empty((n, self.n_terminals), dtype=gates.dtype)
        node_probabilities[:, 0] = 1.0
        for node in range(self.n_nodes):
            reached = node_probabilities[:, node]
            if self.is_leaf[node]:
                terminal_probabilities[:, -1 - self.upper[node]] = reached
                continue
            above = reached * gates[:, node]
            for child, probability in ((self.upper[node], above), (self.lower[node], reached - above)):
                if child >= 0:
                    node_probabilities[:, child] = probability
                else:
                    terminal_probabilities[:, -1 - child] = probability
        return node_probabilities, terminal_probabilities

    def traverse_hard(self, is_above: np.ndarray) -> np.ndarray:
        """The terminal each row reaches, from the bool (n, n_nodes) "margin above threshold"."""
        rows = np.arange(len(is_above))
        position = np.zeros(len(rows), dtype=int)
        for _ in range(int(self.depths.max()) + 1):
            inside = position >= 0
            node = position[inside]
            above = is_above[rows[inside], node]
            position[inside] = np.where(above, self.upper[node], self.lower[node])
        return -1 - position

    def prune(self, node: int) -> TreeShape:
        """The tree without `node` and all below it; what is left keeps its order (see `kept_after`)."""
        return self.keep(self.kept_after(node))

    def kept_after(self, node: int) -> np.ndarray:
        """The nodes that remain when `node` and its descendants are removed."""
        return np.flatnonzero(~self.node_paths[:, node])

    def keep(self, nodes: np.ndarray) -> TreeShape:
        """The tree of the given nodes only.

        A kept node whose parent is left out takes the place of the nearest ancestor that is left out; such an
        ancestor must have no more than one kept node in that place.
        """
        kept = set(map(int, nodes))
        new_number = {old: new for new, old in enumerate(map(int, nodes))} | {-1: -1}
        parents, is_upper = [], []
        for node in map(int, nodes):
            while (parent := int(self.parents[node])) >= 0 and parent not in kept:
                node = parent
            parents.append(new_number[parent])
            is_upper.append(parent >= 0 and bool(self.upper[parent] == node))
        return TreeShape.from_parents(parents, is_upper)
