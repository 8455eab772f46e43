"""The plain LightGBM ensemble, which knows no prices, as a model that predicts and counts cost like ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np

from ..capacity import capacity_for
from ..interop import from_lightgbm
from ..model import FittedTree
from ..rows import Rows, hold_out

__all__ = ["fit_plain"]

ROUNDS = 300  # for 200 of ours
PATIENCE = 20
HELD_OUT = 0.2


def fit_plain(model: Any, X: np.ndarray, y: np.ndarray, qid: np.ndarray | None, random_state: int) -> FittedTree:
    """Fit to the matrix of some rows; a fifth of them, of whole queries for a ranking, says when to stop.

    Of grades it learns the squared error, as our rankers do.  Where errors have prices, it decides by them as the model
    does: its probabilities say which decision is expected to cost least.
    """
    classes, schema = model.schema.classes, model.schema
    target = np.asarray(y, dtype=float) if classes is None else schema.class_numbers(y, len(y))
    queries = None if qid is None else np.unique(qid, return_inverse=True)[1]
    out = hold_out(Rows(X, target, None, queries), HELD_OUT, random_state, by_class=classes is not None)
    n_classes = 1 if classes is None else len(classes)
    parameters: dict[str, Any] = {
        "objective": "regression" if n_classes == 1 else "binary" if n_classes == 2 else "multiclass",
        "learning_rate": 0.1,
        "min_data_in_leaf": max(1, min(20, len(y) // 20)),  # on few rows it could not split otherwise
        "seed": random_state,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    parameters |= {"num_class": n_classes} if n_classes > 2 else {}
    names = [f"x{j}" for j in range(X.shape[1])]  # LightGBM refuses some names
    coded = [j for j, name in enumerate(schema.feature_names) if name in schema.categories]
    rows = lightgbm.Dataset(X[~out], target[~out], feature_name=names, categorical_feature=coded)
    booster = lightgbm.train(
        parameters,
        rows,
        ROUNDS * capacity_for(len(y)).n_rounds // capacity_for(1).n_rounds,
        valid_sets=[rows.create_valid(X[out], target[out])],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    plain = from_lightgbm(booster, classes=None if classes is None else classes.tolist()).with_costs(model.costs)
    return replace(plain, decisions=model.decisions)
