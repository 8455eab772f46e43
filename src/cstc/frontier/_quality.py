"""What models are compared by; higher is better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer, r2_score, roc_auc_score

from ._path import Rows

__all__ = ["quality_of"]


def quality_of(given: Any, estimator: Any) -> tuple[str, Callable[[Any, Rows], float]]:
    """The name of the quality and a function of a fitted model and rows."""
    if given is None:
        if estimator._needs_queries:
            return "NDCG@5", lambda model, rows: model.score(rows.X, rows.y, qid=rows.qid)
        return ("AUC", _auc) if is_classifier(estimator) else ("R²", _r2)
    scorer = get_scorer(given) if isinstance(given, str) else given
    no_queries = hasattr(scorer, "_score_func")  # scikit-learn's own know no queries
    name = given if isinstance(given, str) else getattr(given, "__name__", "quality")

    def judged(model: Any, rows: Rows) -> float:
        options = {} if rows.weights is None else {"sample_weight": rows.weights}
        if estimator._needs_queries and not no_queries:
            options["qid"] = rows.qid
        return float(scorer(model, rows.X, rows.y, **options))

    return name, judged


def _r2(model: Any, rows: Rows) -> float:
    y = model._check_y(rows.y, reset=False)
    if len(y) < 2:
        raise ValueError(f"R² needs at least 2 validation rows; there is {len(y)}")
    return float(r2_score(y, model.predict(rows.X), sample_weight=rows.weights))


def _auc(model: Any, rows: Rows) -> float:
    """AUC for two classes; for more, the mean of one class against all others, over those that the rows have."""
    y = model._check_y(rows.y, reset=False)
    present = np.unique(y if rows.weights is None else y[rows.weights > 0])
    if len(present) < 2:
        raise ValueError(f"the validation rows hold one class, {model.classes_[present].tolist()}; AUC needs two")
    shares = model.predict_proba(rows.X)
    if len(model.classes_) == 2:
        return float(roc_auc_score(y, shares[:, 1], sample_weight=rows.weights))
    return float(np.mean([roc_auc_score(y == k, shares[:, k], sample_weight=rows.weights) for k in present]))
