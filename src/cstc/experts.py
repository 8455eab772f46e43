"""Experts: for a set of features that is paid for, the best predictor on it, and what it says out of fold.

The paper fine-tunes every node on the features that its path has extracted, because they are free from then on.  An
expert carries that to its end: a boosted ensemble on just these features.  It is grown once for each fold without
that fold.  A training row then has a prediction that never saw it, which is what gates must learn from, and a new row
gets the mean of all members, which is better than one ensemble on all rows and costs no further feature.  Where
evaluating a tree has a price of its own (``e_t``), a new row gets one ensemble on all rows instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import lightgbm
import numpy as np

from .pool import TreePool
from .weak_learners import Boosting, boost, flatten_booster, rounds_of

__all__ = ["Expert", "grow_expert"]


@dataclass(frozen=True, eq=False)
class Expert:
    """A predictor on some columns.

    Attributes
    ----------
    pool : TreePool
        The trees of all members, on the columns of the whole matrix.
    weights : ndarray of shape (n_learners, n_outputs)
        With these the trees add up to the margins, beside the constant.
    margins : ndarray of shape (n, n_outputs)
        At each training row, the margins of the member that never saw it.
    """

    pool: TreePool
    weights: np.ndarray
    margins: np.ndarray


def grow_expert(
    boosting: Boosting, X: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: np.ndarray, columns: np.ndarray
) -> Expert:
    """Boost one member without each fold, stopped early on that fold."""
    n_outputs = len(boosting.constant)
    margins = np.tile(boosting.constant, (len(y), 1))
    pools = [TreePool.identity(0)]
    tree_weights = [np.zeros((0, n_outputs))]
    categorical = set(boosting.categorical)
    local = replace(boosting, categorical=[at for at, column in enumerate(columns) if column in categorical])
    numbers = np.unique(folds)
    rounds = []
    for fold in numbers if len(columns) else []:
        kept, out = folds != fold, folds == fold
        X_out = X[np.ix_(out, columns)]
        held_out = (X_out, y[out], weights[out])
        booster = boost(local, 0.0, X[np.ix_(kept, columns)], y[kept], weights[kept], local.n_rounds, held_out)
        rounds.append(rounds_of(booster))
        pool, member = _trees(booster, n_outputs)
        margins[out] += pool.transform(X_out) @ member
        pools.append(pool.on_columns(columns))
        tree_weights.append(member / len(numbers))
    if boosting.costs.evaluation and len(columns):
        booster = boost(local, 0.0, X[:, columns], y, weights, max(1, round(float(np.mean(rounds)))), None)
        pool, member = _trees(booster, n_outputs)
        return Expert(pool.on_columns(columns), member, margins)
    return Expert(TreePool.concatenate(pools), np.concatenate(tree_weights), margins)


def _trees(booster: lightgbm.Booster, n_outputs: int) -> tuple[TreePool, np.ndarray]:
    """The trees of an ensemble, and for each the output that it adds to."""
    pool = flatten_booster(booster)
    output = np.arange(pool.n_learners) % n_outputs  # LightGBM lists the trees of a round output by output
    real = np.flatnonzero(pool.feature[pool.roots] >= 0)  # a tree of one leaf says nothing
    weights = np.zeros((len(real), n_outputs))
    weights[np.arange(len(real)), output[real]] = 1.0
    return pool.subset(real), weights
