"""Which candidate to take where errors have prices, and whether buying anything is worth it.

What a candidate saves against the model that buys nothing is the mean of what is expected (precise, and too good) and
what was observed out of fold (noisy); the one that saves most is the best.

With errors in money nobody chooses a cost weight on rows of their own: the model that seems to cost least is the
answer.  It is the best of many, by rows that have chosen it, so it looks better than it is.  At most stakes that does
no harm.  Where errors cost about as much as the features do, it buys for nothing: so it is taken only if it saves more
than part of a standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .candidates import Candidate, Family
from .gates import Policy

__all__ = ["free_of", "weighed_in_money"]

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


def weighed_in_money(
    family: Family, candidates: Sequence[Candidate], cost_weight: float
) -> tuple[list[Candidate], Candidate]:
    """All candidates, with the one that buys nothing, and the one to take."""
    free = free_of(family, cost_weight)
    nothing = _values(family, free, cost_weight)
    weights = family.grower.rows.weights[family.grower.teachers]
    saved = {
        id(each): nothing - _values(family, each, cost_weight) for each in candidates if each.grown is not None
    }
    means = {key: np.average(found, axis=1, weights=weights).mean() for key, found in saved.items()}
    best = max((each for each in candidates if id(each) in means), key=lambda each: means[id(each)])
    noise = saved[id(best)][1]
    spread = np.average((noise - np.average(noise, weights=weights)) ** 2, weights=weights)
    error = np.sqrt(spread * (weights**2).sum()) / weights.sum()
    pays = means[id(best)] > HURDLE * error
    taken = best if pays else free
    found = []
    for each in (free, *candidates):
        why_not = each.why_not
        if each is taken:
            why_not = ""
        elif each is best:
            why_not = "saves no more than chance would"
        elif each.grown is not None:
            why_not = "saves less, expected and observed"
        found.append(replace(each, why_not=why_not))
    return found, next(each for each in found if each.name == taken.name)


def _values(family: Family, candidate: Candidate, cost_weight: float) -> np.ndarray:
    """What each row that teaches gates costs in all, expected and as observed: (2, n)."""
    grower, expected = family.grower, family.grown.expected
    at, margins = candidate.nodes(grower.boosting.costs).out_of_fold()
    rows, paid = candidate.paid()
    paid = cost_weight * paid[np.argsort(rows, kind="stable")]
    return np.stack([expected(margins, at), grower.observed(margins, at)]) + paid
