"""Experts: for a set of features that is paid for, the best predictor on it, and what it says out of fold.

The paper fine-tunes every node on the features that its path has extracted, because they are free from then on.  An
expert carries that to its end: a boosted ensemble on just these features.  It is grown once for each fold without
that fold.  A training row then has a prediction that never saw it (but for the number of rounds, which is one for all
folds), and that is what gates must learn from; a new row
gets the mean of all members, which is better than one ensemble on all rows and costs no further feature.  Where
evaluating a tree has a price of its own (``e_t``), a new row gets one ensemble on all rows instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import lightgbm
import numpy as np

from .pool import TreePool
from .weak_learners import Boosting, boost, boost_folds, flatten_booster

__all__ = ["Expert", "grow_expert"]


@dataclass(frozen=True, eq=False)
class Expert:
    """A predictor on some columns.

    Attributes
    ----------
    pool : TreePool
        The trees of all members, on the columns of the whole matrix.
    weights : ndarray of shape (n_learners, n_outputs)
        With these the trees add up to the margins, beside `constant`.
    margins : ndarray of shape (n, n_outputs)
        At each training row, the margins of the member that never saw it.
    constant : ndarray of shape (n_outputs,)
        What all members start from.
    """

    pool: TreePool
    weights: np.ndarray
    margins: np.ndarray
    constant: np.ndarray


def grow_expert(
    boosting: Boosting, X: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: np.ndarray, columns: np.ndarray
) -> Expert:
    """Boost one member without each fold; all take the same number of rounds."""
    n_outputs = len(boosting.constant)
    margins = np.tile(boosting.constant, (len(y), 1))
    if not len(columns):
        return Expert(TreePool.identity(0), np.zeros((0, n_outputs)), margins, boosting.constant)
    categorical = set(boosting.categorical)
    local = replace(boosting, categorical=[at for at, column in enumerate(columns) if column in categorical])
    X = X[:, columns]
    boosters, rounds = boost_folds(local, 0.0, X, y, weights, folds)
    members = [_trees(booster, n_outputs, rounds) for booster in boosters]
    for fold, (pool, tree_weights) in zip(np.unique(folds), members, strict=True):
        out = folds == fold
        if boosting.loss_name != "squared":
            # of a class that it never met a member knows nothing: that the others' margins fell is no knowledge
            out &= np.isin(y, y[folds != fold])
        margins[out] += pool.transform(X[out]) @ tree_weights
    if boosting.costs.evaluation:
        members = [_trees(boost(local, 0.0, X, y, weights, rounds, None), n_outputs, rounds)]
    pool = TreePool.concatenate([pool for pool, _ in members]).on_columns(columns)
    weights = np.concatenate([each for _, each in members]) / len(members)
    return Expert(pool, weights, margins, boosting.constant)


def _trees(booster: lightgbm.Booster, n_outputs: int, rounds: int) -> tuple[TreePool, np.ndarray]:
    """The trees of an ensemble, and for each the output that it adds to."""
    pool = flatten_booster(booster, rounds)
    output = np.arange(pool.n_learners) % n_outputs  # LightGBM lists the trees of a round output by output
    real = np.flatnonzero(pool.feature[pool.roots] >= 0)  # a tree of one leaf says nothing
    weights = np.zeros((len(real), n_outputs))
    weights[np.arange(len(real)), output[real]] = 1.0
    return pool.subset(real), weights
