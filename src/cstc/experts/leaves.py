"""How small leaves are: labels with noise want leaves that average it out, labels without want small ones.

Where rows are few and there is next to no noise, leaves of 20 rows are the coarsest part of a prediction, above all
in a group of them (`branches`).  So experts on all columns are tried with both sizes, without each of two folds, and
small leaves are taken for all experts where they are clearly better at these folds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..boosting import Boosting
from ..capacity import MANY_ROWS
from ..rows import Rows
from .expert import grow_experts

__all__ = ["with_leaves"]

FINE = 5  # rows of a leaf
LEAST_ROWS = 1000
N_FOLDS = 2  # that judge
CLEARLY = 2.0  # standard errors


def with_leaves(boosting: Boosting, rows: Rows, folds: np.ndarray) -> Boosting:
    """The same with leaves of the size that suits the rows.

    Of many rows, leaves are small beside them in any case; of few, two folds say little, and there are no groups.
    """
    if not LEAST_ROWS <= len(rows) < MANY_ROWS or rows.more is not None:
        return boosting
    wanted = [boosting, replace(boosting, least_leaf=FINE)]
    parts = [folds == fold for fold in np.unique(folds)[:N_FOLDS]]
    names = [f"the expert on all features with leaves of {each.least_leaf} rows," for each in wanted]
    columns = np.arange(rows.X.shape[1])
    experts = grow_experts([(columns, each) for each in wanted], rows, parts=parts, names=names)
    out = np.any(parts, axis=0)
    coarse, fine = (boosting.loss.value(expert.margins[out], rows.y[out]) for expert in experts)
    weights = rows.weights[out] / rows.weights[out].sum()
    gain = float(weights @ (coarse - fine))
    error = float(np.sqrt(weights**2 @ (coarse - fine - gain) ** 2))
    return wanted[1] if gain > CLEARLY * error else boosting
