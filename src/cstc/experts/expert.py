"""Experts: for a set of features that is paid for, the best predictor on it, and what it says out of fold.

The paper fine-tunes every node on the features that its path has extracted, because they are free from then on.  An
expert carries that to its end: a boosted ensemble on just these features.  It is grown once for each fold without
that fold.  A training row then has a prediction that never saw it (but for the number of rounds, which is one for all
folds), and that is what gates must learn from.  A new row gets the mean of all members, which is better than one
ensemble on all rows and costs no further feature.  Where evaluating a tree has a price of its own (``e_t``), a new row
gets one ensemble on all rows instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..boosting import Boosting, boost, boost_folds, trees_of
from ..model import TreePool
from ..model.build import Score
from ..rows import Rows

__all__ = ["Expert", "constant_expert", "grow_expert"]


@dataclass(frozen=True, eq=False)
class Expert:
    """A predictor on some columns.

    Attributes
    ----------
    score : Score
        What predicts: the trees of all members, on the columns of the whole matrix.
    margins : ndarray of shape (n, n_outputs)
        At each training row, the margins of the member that never saw it.
    """

    score: Score
    margins: np.ndarray

    @property
    def n_learners(self) -> int:
        return self.score.pool.n_learners


def constant_expert(constant: np.ndarray, n_rows: int) -> Expert:
    """Says the same of every row, and buys nothing."""
    nothing = Score(TreePool.identity(0), np.zeros((0, len(constant))), constant)
    return Expert(nothing, np.tile(constant, (n_rows, 1)))


def grow_expert(boosting: Boosting, rows: Rows, folds: np.ndarray, columns: np.ndarray) -> Expert:
    """Boost one member without each fold; all take the same number of rounds."""
    if not len(columns):
        return constant_expert(boosting.constant, len(rows))
    n_outputs = len(boosting.constant)
    margins = np.tile(boosting.constant, (len(rows), 1))
    local, seen = boosting.on(columns), rows.on(columns)
    boosters, rounds = boost_folds(local, seen, folds)
    members = [trees_of(booster, n_outputs, rounds) for booster in boosters]
    for fold, (pool, tree_weights) in zip(np.unique(folds), members, strict=True):
        out = folds == fold
        if boosting.loss.has_classes:
            # of a class that it never met a member knows nothing: that the others' margins fell is no knowledge
            out &= np.isin(rows.y, rows.y[folds != fold])
        margins[out] += pool.transform(seen.X[out]) @ tree_weights
    if boosting.costs.evaluation:
        members = [trees_of(boost(local, seen, n_rounds=rounds), n_outputs, rounds)]
    pool = TreePool.concatenate([pool for pool, _ in members]).on_columns(columns)
    weights = np.concatenate([each for _, each in members]) / len(members)
    return Expert(Score(pool, weights, boosting.constant), margins)
