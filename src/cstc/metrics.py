"""Quality and cost in numbers: NDCG for rankings, summaries of cost."""

from __future__ import annotations

import numpy as np

__all__ = ["cost_summary", "ndcg"]


def ndcg(grades: np.ndarray, scores: np.ndarray, qid: np.ndarray, k: int = 5) -> float:
    """Mean NDCG@k over the queries that have a relevant document, with gain ``2^grade - 1``.

    Equal to the mean of scikit-learn's ``ndcg_score(2**grades - 1, scores, k=k)`` over those queries, ties
    included (documents with equal scores share the gain of their places), in one pass over all queries.
    Without any relevant document the result is NaN.  Scores must be finite or infinite, not NaN.

    Examples
    --------
    >>> ndcg(np.array([2, 0, 1, 0]), np.array([0.9, 0.8, 0.1, 0.3]), np.array([1, 1, 1, 2]))
    0.963...
    """
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k is {k!r}; it must be a whole number, 1 or more")
    scores = np.asarray(scores, dtype=float)
    if np.isnan(scores).any():  # sorting would put these documents anywhere
        raise ValueError(
            f"scores holds NaN, first in row {int(np.isnan(scores).argmax())}; every document needs a score"
        )
    grades, qid = np.asarray(grades, dtype=float), np.asarray(qid)
    if not len(grades) == len(scores) == len(qid) or not len(grades):
        raise ValueError(
            f"there are {len(grades)} grades, {len(scores)} scores and {len(qid)} query ids; "
            "each document needs one of each, and at least one document is needed"
        )
    if np.isnan(grades).any():
        raise ValueError(
            f"grades holds NaN, first in row {int(np.isnan(grades).argmax())}; every document needs a grade"
        )
    gains = 2.0**grades - 1.0
    _, query = np.unique(qid, return_inverse=True)
    n_queries = int(query.max()) + 1
    start = np.concatenate([[0], np.cumsum(np.bincount(query))])
    discounts = np.zeros(len(gains) + 1)
    discounts[1 : k + 1] = 1.0 / np.log2(np.arange(2, min(k, len(gains)) + 2))
    cumulated = np.cumsum(discounts)  # sum of the discounts of the first places

    def dcg(order_by: np.ndarray) -> np.ndarray:
        order = np.lexsort((-order_by, query))
        sorted_query, sorted_score = query[order], order_by[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (sorted_query[1:] != sorted_query[:-1]) | (sorted_score[1:] != sorted_score[:-1])
        group = np.cumsum(new) - 1
        first = np.flatnonzero(new)
        size = np.diff(np.append(first, len(order)))
        place = first - start[sorted_query[first]]
        mean_gain = np.bincount(group, gains[order]) / size
        value = mean_gain * (cumulated[place + size] - cumulated[place])
        return np.bincount(sorted_query[first], value, n_queries)

    ideal = dcg(gains)
    relevant = ideal > 0
    if not relevant.any():
        return float("nan")
    return float(np.mean(dcg(scores)[relevant] / ideal[relevant]))


def cost_summary(cost: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """Mean, 95th percentile and maximum of the cost of a set of rows; rows of weight 0 do not count."""
    if weights is None:
        return {"mean": float(np.mean(cost)), "p95": float(np.percentile(cost, 95)), "max": float(np.max(cost))}
    p95 = np.percentile(cost, 95, weights=weights, method="inverted_cdf")  # numpy weighs rows in this one only
    return {
        "mean": float(np.average(cost, weights=weights)),
        "p95": float(p95),
        "max": float(np.max(cost[weights > 0])),
    }
