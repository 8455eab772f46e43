"""How small leaves are: labels with noise want leaves that average it out, labels without want small ones.

Where rows are few and there is next to no noise, leaves of 20 rows are the coarsest part of a prediction, above all
in a group of them (`branches`).  So experts on all columns are tried with both sizes, and small leaves are taken for
all experts where they are clearly better out of fold.  Of all rows two folds judge, which is quick; of a group all do,
since few rows say little.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..boosting import Boosting
from ..capacity import MANY_ROWS
from ..rows import Rows
from .expert import grow_experts

__all__ = ["leaves_for_all", "leaves_for_group"]

FINE = 5  # rows of a leaf
LEAST_ROWS = 1000  # of fewer, which are no group, nothing can be said
N_FOLDS = 2
CLEARLY = 2.0  # standard errors


def leaves_for_all(boosting: Boosting, rows: Rows, folds: np.ndarray) -> Boosting:
    """The same with leaves of the size that suits all rows; of many, leaves are small beside them in any case."""
    if not LEAST_ROWS <= len(rows) < MANY_ROWS or rows.more is not None:
        return boosting
    return _tried(boosting, rows, folds, np.arange(rows.X.shape[1]), N_FOLDS)


def leaves_for_group(boosting: Boosting, rows: Rows, folds: np.ndarray, columns: np.ndarray) -> Boosting:
    """The same for a group of rows that may look at some columns."""
    if boosting.least_leaf == FINE or len(rows) >= MANY_ROWS or not len(columns):
        return boosting
    return _tried(boosting, rows, folds, columns, len(np.unique(folds)))


def _tried(boosting: Boosting, rows: Rows, folds: np.ndarray, columns: np.ndarray, n_folds: int) -> Boosting:
    wanted = [boosting, replace(boosting, least_leaf=FINE)]
    parts = [folds == fold for fold in np.unique(folds)[:n_folds]]
    names = [f"the expert on all features with leaves of {each.least_leaf} rows," for each in wanted]
    experts = grow_experts([(columns, each) for each in wanted], rows, parts=parts, names=names)
    out = np.any(parts, axis=0)
    coarse, fine = (boosting.loss.value(expert.margins[out], rows.y[out]) for expert in experts)
    weights = rows.weights[out] / rows.weights[out].sum()
    gain = float(weights @ (coarse - fine))
    error = float(np.sqrt(weights**2 @ (coarse - fine - gain) ** 2))
    return wanted[1] if gain > CLEARLY * error else boosting
