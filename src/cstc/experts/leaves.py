"""How small the leaves of a group's experts are.

Labels with noise want leaves that average it out.  Where there is next to none, leaves of 20 rows are the coarsest part
of a prediction, above all in a group (`branches`), which has few rows.  So experts on all columns of the group are
tried with smaller leaves, too, and these are taken for all of its experts where they are clearly better out of fold.
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
CLEARLY = 2.0  # standard errors


def with_leaves(boosting: Boosting, rows: Rows, folds: np.ndarray, columns: np.ndarray) -> Boosting:
    """The same with leaves of the size that suits the rows of a group; of many rows, leaves are small beside them."""
    if len(rows) >= MANY_ROWS or not len(columns):
        return boosting
    wanted = [boosting, replace(boosting, least_leaf=FINE)]
    names = [f"the expert on all features of groups with leaves of {each.least_leaf} rows," for each in wanted]
    experts = grow_experts([(columns, each) for each in wanted], rows, folds, names=names)
    coarse, fine = (boosting.loss.value(expert.margins, rows.y) for expert in experts)
    weights = rows.weights / rows.weights.sum()
    gain = float(weights @ (coarse - fine))
    error = float(np.sqrt(weights**2 @ (coarse - fine - gain) ** 2))
    return wanted[1] if gain > CLEARLY * error else boosting
