"""Decisions in money: what is answered when errors have prices.

With the price ``E[c, d]`` of deciding ``d`` where ``c`` is the truth, and the probabilities ``p`` of a row, deciding
``d`` is expected to cost

    sum over c of p[c] * E[c, d]

and the decision with the least of that is taken; of equal ones, the first.  A decision may be one more than there are
classes, "refer to a person": the answer is None then.

Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Decisions"]


@dataclass(frozen=True, eq=False)
class Decisions:
    """The prices of errors.

    Attributes
    ----------
    costs : ndarray of shape (n_classes, n_classes) or (n_classes, n_classes + 1)
        Rows are the truth, columns the decision, both in the order of the classes; a further column refers.
    """

    costs: np.ndarray

    @property
    def can_refer(self) -> bool:
        return self.costs.shape[1] > self.costs.shape[0]

    def expected(self, shares: np.ndarray) -> np.ndarray:
        """What each decision is expected to cost, (n, n_decisions), by the probabilities of the classes."""
        costs = np.zeros((len(shares), self.costs.shape[1]))
        for share, prices in zip(shares.T, self.costs, strict=True):  # in this order: serving adds up in the same one
            costs += share[:, None] * prices
        return costs

    def taken(self, shares: np.ndarray) -> np.ndarray:
        """The number of the decision of each row; where probabilities are NaN, the first."""
        return self.expected(shares).argmin(axis=1)

    def answers(self, shares: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """The class that each row is taken for, or None where it is referred; then as objects."""
        taken = self.taken(shares)
        if not self.can_refer:
            return classes[taken]
        answers = np.empty(len(taken), dtype=object)
        named = [*classes.tolist(), None]
        answers[:] = [named[number] for number in taken.tolist()]
        return answers

    def of_one(self, shares: list[float]) -> int:
        """The decision of one row, by the same sums: for serving, where arrays take longer."""
        least, taken = float("inf"), 0
        for number, prices in enumerate(self.by_decision):
            cost = 0.0
            for share, price in zip(shares, prices, strict=True):
                cost += share * price
            if cost < least:
                least, taken = cost, number
        return taken

    @cached_property
    def by_decision(self) -> list[list[float]]:
        return self.costs.T.tolist()

    def observed(self, truth: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """What the decisions of some rows cost, whose classes are known by number."""
        return self.costs[truth, self.taken(shares)]
