"""Whether buying anything is worth it, where errors have prices.

With errors in money nobody chooses a cost weight on rows of their own: the model that is expected to cost least is the
answer.  It is the best of many, by rows that have chosen it, so it looks better than it is.  At most stakes that does
no harm.  Where errors cost about as much as the features do, it buys for nothing: a model is taken only if it saves
more than part of a standard error against the one that buys nothing.  What it saves is the mean of what is expected
(precise, and too good) and what was observed out of fold (noisy).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..costs import ResolvedCosts
from .candidates import Candidate, Family
from .gates import Policy

__all__ = ["free_of", "without_idle_purchases"]

HURDLE = 0.75  # standard errors; of 0, 0.5, 0.75 and 1, by the total cost on three sets of 120 to 600 rows


def free_of(family: Family, cost_weight: float) -> Candidate:
    """The expert on free features, for all rows."""
    chain = family.grown.chains[0]
    expert, n = chain.experts[0], len(chain.at)
    value = chain.losses[:, 0] + chain.shifts[0] + cost_weight * chain.prices[0]
    mean = np.array([chain.mean(value)])
    paid = np.full(n, chain.prices[0])
    alone = Policy([0], [], value, mean[0], paid[0], mean, np.ones(1), chain.at, np.zeros(n, dtype=int), paid)
    return Candidate("buys nothing", mean[0], float(paid[0]), "", ([expert], alone), mean)


def without_idle_purchases(
    family: Family, candidates: list[Candidate], taken: Candidate, cost_weight: float
) -> tuple[list[Candidate], Candidate]:
    """All candidates, with the one that buys nothing, and the one to take."""
    free = free_of(family, cost_weight)
    costs = family.grower.boosting.costs
    saved = _values(family, free, costs, cost_weight) - _values(family, taken, costs, cost_weight)
    weights = family.grower.rows.weights[family.grower.teachers]
    expected, observed = np.average(saved, axis=1, weights=weights)
    error = np.sqrt(np.average((saved[1] - observed) ** 2, weights=weights) / saved.shape[1])
    if (expected + observed) / 2 > HURDLE * error:
        return [replace(free, why_not="expected to cost more"), *candidates], taken
    idle = replace(taken, why_not="saves no more than chance would")
    return [free, *(idle if each is taken else each for each in candidates)], free


def _values(family: Family, candidate: Candidate, costs: ResolvedCosts, cost_weight: float) -> np.ndarray:
    """What each row that teaches gates costs in all, expected and as observed: (2, n)."""
    grower, expected = family.grower, family.grown.expected
    at, margins = candidate.nodes(costs).out_of_fold()
    rows, paid = candidate.paid()
    paid = cost_weight * paid[np.argsort(rows, kind="stable")]
    return np.stack([expected(margins, at), grower.stakes.value(margins, grower.rows.y[at])]) + paid
