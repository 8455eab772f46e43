"""What models are compared by; higher is better.

A frontier chooses by it, and a picture of quality against cost measures with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer, r2_score, roc_auc_score

from ..estimators._labels import check_queries
from ..metrics import ndcg
from ..model import probabilities

__all__ = ["MeasuredRows", "Quality", "quality_of"]

#: Of a fitted model, rows with X, y, weights and qid, and the model's margins there, if they are known already.
Quality = Callable[[Any, Any, np.ndarray | None], float]


class MeasuredRows(NamedTuple):
    """Rows that a quality is measured on."""

    X: Any
    y: Any
    weights: Any = None
    qid: Any = None


def quality_of(given: Any, estimator: Any) -> tuple[str, Quality]:
    """The name of the quality and the function."""
    if given is None:
        if estimator._needs_queries:
            return "NDCG@5", _ndcg
        return ("AUC", _auc) if is_classifier(estimator) else ("R²", _r2)
    scorer = get_scorer(given) if isinstance(given, str) else given
    no_queries = hasattr(scorer, "_score_func")  # scikit-learn's own know no queries
    name = given if isinstance(given, str) else getattr(given, "__name__", "quality")

    def judged(model: Any, rows: Any, margins: np.ndarray | None = None) -> float:
        options = {} if rows.weights is None else {"sample_weight": rows.weights}
        if estimator._needs_queries and not no_queries:
            options["qid"] = rows.qid
        return float(scorer(model, rows.X, rows.y, **options))

    return name, judged


def _ndcg(model: Any, rows: Any, margins: np.ndarray | None = None) -> float:
    if margins is None:
        return model.score(rows.X, rows.y, qid=rows.qid)
    y = model._check_y(rows.y, reset=False)
    return ndcg(y, margins[:, 0], check_queries(rows.qid, y, "qid"), k=5)


def _r2(model: Any, rows: Any, margins: np.ndarray | None = None) -> float:
    y = model._check_y(rows.y, reset=False)
    if len(y) < 2:
        raise ValueError(f"R² needs at least 2 validation rows; there is {len(y)}")
    predicted = model.predict(rows.X) if margins is None else margins[:, 0]
    return float(r2_score(y, predicted, sample_weight=rows.weights))


def _auc(model: Any, rows: Any, margins: np.ndarray | None = None) -> float:
    """AUC for two classes; for more, the mean of one class against all others, over those that the rows have."""
    y = model._check_y(rows.y, reset=False)
    present = np.unique(y if rows.weights is None else y[rows.weights > 0])
    if len(present) < 2:
        raise ValueError(f"the validation rows hold one class, {model.classes_[present].tolist()}; AUC needs two")
    shares = model.predict_proba(rows.X) if margins is None else probabilities(margins, model.model_.link)
    if len(model.classes_) == 2:
        return float(roc_auc_score(y, shares[:, 1], sample_weight=rows.weights))
    return float(np.mean([roc_auc_score(y == k, shares[:, k], sample_weight=rows.weights) for k in present]))
