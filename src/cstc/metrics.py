"""Quality and cost in numbers: NDCG for rankings, summaries of cost, and what models are compared by.

A frontier chooses by a quality, and a picture of quality against cost measures with it; higher is better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer, r2_score, roc_auc_score

from .model import probabilities
from .rows import Rows, check_queries

__all__ = ["Quality", "cost_summary", "ndcg", "quality_of"]


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


#: Of a fitted model, rows as the user gave them, and the model's margins there, if they are known already.
Quality = Callable[[Any, Rows, np.ndarray | None], float]


def quality_of(given: Any, estimator: Any) -> tuple[str, Quality]:
    """The name of the quality and the function."""
    if given is None:
        if estimator._needs_queries:
            return "NDCG@5", _ndcg
        return ("AUC", _auc) if is_classifier(estimator) else ("R²", _r2)
    scorer = get_scorer(given) if isinstance(given, str) else given
    no_queries = hasattr(scorer, "_score_func")  # scikit-learn's own know no queries
    name = given if isinstance(given, str) else getattr(given, "__name__", "quality")

    def judged(model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
        options = {} if rows.weights is None else {"sample_weight": rows.weights}
        if estimator._needs_queries and not no_queries:
            options["qid"] = rows.qid
        return float(scorer(model, rows.X, rows.y, **options))

    return name, judged


def _ndcg(model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
    if margins is None:
        return model.score(rows.X, rows.y, qid=rows.qid)
    y = model._check_y(rows.y, reset=False)
    return ndcg(y, margins[:, 0], check_queries(rows.qid, y, "qid"), k=5)


def _r2(model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
    y = model._check_y(rows.y, reset=False)
    if len(y) < 2:
        raise ValueError(f"R² needs at least 2 validation rows; there is {len(y)}")
    predicted = model.predict(rows.X) if margins is None else margins[:, 0]
    return float(r2_score(y, predicted, sample_weight=rows.weights))


def _auc(model: Any, rows: Rows, margins: np.ndarray | None = None) -> float:
    """AUC for two classes; for more, the mean of one class against all others, over those that the rows have."""
    y = model._check_y(rows.y, reset=False)
    present = np.unique(y if rows.weights is None else y[rows.weights > 0])
    if len(present) < 2:
        raise ValueError(f"the validation rows hold one class, {model.classes_[present].tolist()}; AUC needs two")
    shares = model.predict_proba(rows.X) if margins is None else probabilities(margins, model.model_.link)
    if len(model.classes_) == 2:
        return float(roc_auc_score(y, shares[:, 1], sample_weight=rows.weights))
    return float(np.mean([roc_auc_score(y == k, shares[:, k], sample_weight=rows.weights) for k in present]))
