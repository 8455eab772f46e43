"""What a model answers with when something of its path is not to be had.

A model has experts: those of its nodes, and *fallbacks*, which no row comes to as long as all goes well.  What each of
them loses on average is known from training, out of fold, for the rows that come to each node; and so is what it loses
more when a source is down, or when only some cheap columns are known, and its learners are averaged over both branches
(`averaging`).  Whoever cannot go on asks
`Estimates.best` for the expert with the least expected loss,

    losses[node, e] + sum of harm[e, s] over sources s that are gone + cost_weight * max(0, price(e) - planned)

within a budget, if there is one.  What an expert still needs costs ``price(e)``, and what the row was about to pay,
``planned``, may be spent on other things.  Models that nobody knows this of (LightGBM's, the paper's) average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["UNKNOWN", "Estimates"]

UNKNOWN = -1.0  # instead of a loss: the expert is not for these rows


@dataclass(frozen=True, eq=False)
class Estimates:
    """What is known of the experts of a model; those of its nodes come first, then the fallbacks.

    Attributes
    ----------
    losses : ndarray of shape (n_nodes, n_experts)
        What each expert loses at the rows that come to a node, or `UNKNOWN`.
    path_losses : ndarray of shape (n_nodes,)
        What those rows lose where they stop.
    harm : ndarray of shape (n_experts, n_sources)
        What an expert loses more when a source is down.
    sets : bool ndarray of shape (n_sets, n_features)
        Columns that may be bought instead of all that an expert asks for.
    set_harm : ndarray of shape (n_experts, n_sets)
        What an expert loses more when nothing but a set is known and it is averaged over the rest, or `UNKNOWN`.
    source_names : list of str
    source_features : bool ndarray of shape (n_sources, n_features)
        The columns that come from a source.
    cost_weight : float
        Loss that one unit of cost is worth.
    """

    losses: np.ndarray
    path_losses: np.ndarray
    harm: np.ndarray
    sets: np.ndarray
    set_harm: np.ndarray
    source_names: list[str]
    source_features: np.ndarray
    cost_weight: float

    def expected(self, node: int, expert_features: np.ndarray, gone: np.ndarray) -> np.ndarray:
        """What each expert is expected to lose at a node without some columns; infinite where it is not for them."""
        lost = (expert_features & gone).astype(int) @ self.source_features.T.astype(int) > 0  # (n_experts, n_sources)
        losses = self.losses[node]
        return np.where(losses >= 0, losses + (self.harm * lost).sum(axis=1), math.inf)

    def best(self, expected: np.ndarray, prices: np.ndarray, planned: float, most: float = math.inf) -> int | None:
        """The expert to answer with, by what each is expected to lose and what it still needs; None if there is none.

        `planned` is what would have been paid, and `most` what may be.
        """
        value = expected + self.cost_weight * np.maximum(0.0, prices - planned)
        value[prices > most] = math.inf
        best = int(np.argmin(value))
        return best if value[best] < math.inf else None

    def expected_instead(self, node: int, expert_features: np.ndarray, gone: np.ndarray) -> np.ndarray:
        """The same for rows that stop at a node, where its own expert lacks something.

        `losses` are those of all rows that come to a node.  Rows that stop there are those for which more was not worth
        its price: no expert gets credit for being better than the node's own is with all that it asks for.
        """
        harm = self.expected(node, expert_features, gone) - np.where(self.losses[node] >= 0, self.losses[node], 0.0)
        return np.maximum(self.losses[node], self.losses[node, node]) + harm

    def without(self, node_experts: np.ndarray, expert_features: np.ndarray, gone: np.ndarray) -> Estimates:
        """What is known of the same experts without some columns, where nodes answer with those of `node_experts`."""
        n_nodes = len(self.losses)
        losses = np.array([self.expected(node, expert_features, gone) for node in range(n_nodes)])
        losses = np.where(np.isfinite(losses), losses, UNKNOWN)
        now = np.concatenate([node_experts, np.arange(n_nodes, self.losses.shape[1])])
        return replace(
            self, losses=losses[:, now], harm=self.harm[now], sets=self.sets & ~gone, set_harm=self.set_harm[now]
        )
