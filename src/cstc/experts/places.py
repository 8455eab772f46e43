"""What an error at a document is worth: as much as its place in its query.

Rankings are judged by NDCG: what counts is who stands at the first ``at`` places.  A squared error counts as much at a
document that will never come near them as at one that may be the first or the sixth, and gates that weigh it buy for
hopeless documents.  So, for a ranking, what a prediction is expected to lose at a document (`expectation`) can be
multiplied by what an error there can do to the order.  Whether that pays is a matter of what gates see (`method`).

With the scores ``b`` of the best expert, out of fold and in the units of grades, the place ``r_i`` of each document by
them within its query, the gain ``G`` of a grade and the discount ``D`` of a place,

    G_i = 2^max(b_i, 0) - 1        D(r) = 1 / log2(1 + r) for r <= at, else 0

two documents that change their places change the DCG by ``|G_i - G_j| |D(r_i) - D(r_j)|``.  The nearer their scores,
the sooner an error lets them do so; with errors of the size s at both of them,

    worth_i = sum_j |G_i - G_j| |D(r_i) - D(r_j)| exp(-(b_i - b_j)^2 / (4 s^2)) / sum_j G_j D(r_j)

over the documents j of the same query; the last sum is the DCG of the best order, so that every query counts alike.
Documents of equal score share the discounts of their places.  An error at a document weighs

    1 - share + share * worth_i / mean(worth)

so that its mean over all rows is 1, and cost weights keep their unit.  What experts themselves learn is not weighed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..rows import Rows, Units

__all__ = ["Places", "spread_in_queries", "worth_of_places"]

SHARE = 0.9  # where nobody says otherwise
ERROR = 1.0  # size of an error, in standard deviations of the scores within their queries


def worth_of_places(scores: np.ndarray, qid: np.ndarray, at: int, error: float) -> np.ndarray:
    """What an error at each document can do to NDCG@`at`.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        What is known of the documents, in the units of grades.
    qid : ndarray of shape (n,)
        The query of each document.
    at : int
        Places that count.
    error : float
        Size of a typical error, above 0.

    Returns
    -------
    worth : ndarray of shape (n,)
        0 or more; that of a query depends on its own documents alone.
    """
    # 1. Documents of equal score are one step of the order, best first; `size` says how many they are.
    _, query = np.unique(qid, return_inverse=True)
    order = np.lexsort((-scores, query))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(query[order]) != 0) | (np.diff(scores[order]) != 0)
    first = np.flatnonzero(new)
    size = np.diff(np.append(first, len(order)))
    step_query, b = query[order][first], scores[order][first]
    # 2. The discount of a step is the mean over its places.
    start = np.searchsorted(query[order], np.arange(query.max() + 1))  # of each query
    place = first - start[step_query]  # of the first document of a step, counted from 0
    sums = np.concatenate([[0.0], np.cumsum(_discounts(int(np.bincount(query).max()), at))])
    discount = (sums[place + size] - sums[place]) / size
    gain = 2.0 ** np.maximum(b, 0.0) - 1.0
    # 3. A step with a discount meets all others of its query.  At most `at` steps have one: the k-th of all queries
    # at once.  What two steps do to each other counts once for both; a step without discount meets no other such one.
    first_step = np.searchsorted(step_query, np.arange(query.max() + 1))
    number = np.arange(len(b)) - first_step[step_query]
    is_high = discount > 0
    worth = np.zeros(len(b))
    for k in range(int(number[is_high].max()) + 1):
        other = first_step[step_query] + k
        inside = other < np.append(first_step[1:], len(b))[step_query]
        other = np.where(inside, other, first_step[step_query])
        met = inside & is_high[other]
        near = np.exp(-((b - b[other]) ** 2) / (4.0 * error**2))
        swap = np.where(met, np.abs(gain - gain[other]) * np.abs(discount - discount[other]) * near, 0.0)
        worth += size[other] * swap
        low = np.where(is_high, 0.0, size * swap)
        worth += np.where(number == k, np.bincount(step_query, low, len(first_step))[step_query], 0.0)
    # 4. In parts of the DCG of the best order; where nothing has a gain, nothing is worth anything.
    ideal = np.bincount(step_query, size * gain * discount)[step_query]
    worth = np.divide(worth, ideal, out=np.zeros(len(b)), where=ideal > 0)
    found = np.empty(len(scores))
    found[order] = np.repeat(worth, size)
    return found


def _discounts(n: int, at: int) -> np.ndarray:
    """Of n places."""
    found = np.zeros(n)
    found[:at] = 1.0 / np.log2(np.arange(2, min(at, n) + 2))
    return found


@dataclass(frozen=True)
class Places:
    """How places are worth something.

    Attributes
    ----------
    at : int
        Places that count.
    units : Units
        Of the grades.
    share : float
        Of what an error weighs, the part that the place decides; 0: errors at all documents weigh the same.
    """

    at: int
    units: Units
    share: float = SHARE

    def weights(self, best: np.ndarray, rows: Rows) -> np.ndarray:
        """What errors at documents weigh, by the margins of the best expert out of fold; their mean is 1."""
        scores = self.units.margins(best)[:, 0]
        error = ERROR * spread_in_queries(scores, rows) if self.share else 0.0
        if not error > 0:  # or one score for all: nobody has a place
            return np.ones(len(scores))
        worth = worth_of_places(scores, rows.qid, self.at, error)
        mean = float(np.average(worth, weights=rows.weights))
        return 1.0 - self.share + self.share * worth / mean if mean > 0 else np.ones(len(scores))


def spread_in_queries(scores: np.ndarray, rows: Rows) -> float:
    """Standard deviation of scores within their queries, by the weights of rows."""
    _, query = np.unique(rows.qid, return_inverse=True)
    weight = np.bincount(query, rows.weights)
    mean = np.bincount(query, rows.weights * scores) / np.where(weight > 0, weight, 1.0)
    return float(np.sqrt(np.average((scores - mean[query]) ** 2, weights=rows.weights)))
