"""Experts: for a set of features that is paid for, the best predictor on it, and what it says out of fold.

The paper fine-tunes every node on the features that its path has extracted, because they are free from then on.  An
expert carries that to its end: a boosted ensemble on just these features.  It is grown once for each fold without
that fold.  A training row then has a prediction that never saw it (but for the number of rounds, which is one for all
folds), and that is what gates must learn from.  A new row gets the mean of all members, which is better than one
ensemble on all rows and costs no further feature.  Where evaluating a tree has a price of its own (``e_t``), a new row
gets one ensemble on all rows instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..boosting import Binned, Boosting, agree_on_rounds, trees_of, work_of
from ..model import TreePool
from ..model.build import Score
from ..parallel import side_by_side
from ..rows import Rows

__all__ = ["Expert", "constant_expert", "grow_experts", "work_of_expert"]

HEARING = 0.08  # of what growing a member takes, what its trees take to say something of each row


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


def grow_experts(wanted: Sequence[tuple[np.ndarray, Boosting]], rows: Rows, folds: np.ndarray) -> list[Expert]:
    """An expert for each (columns, how to boost), all side by side.

    Each is one member without each fold, all with the same number of rounds.
    """
    n_jobs = wanted[0][1].n_jobs if wanted else None
    binned = side_by_side([partial(_bin, boosting, rows, columns) for columns, boosting in wanted], n_jobs)
    parts = [folds == fold for fold in np.unique(folds)]
    tasks = [partial(data.boost_without, out) for data in binned if data is not None for out in parts]
    grown = iter(side_by_side(tasks, n_jobs))
    members = [None if data is None else [next(grown) for _ in parts] for data in binned]
    finish = [
        partial(_finish, boosting, rows, columns, parts, data, boosters)
        for (columns, boosting), data, boosters in zip(wanted, binned, members, strict=True)
    ]
    return side_by_side(finish, n_jobs)


def work_of_expert(boosting: Boosting, columns: np.ndarray, rows: Rows, n_folds: int) -> float:
    """For those who watch."""
    member = work_of(len(rows) * (n_folds - 1) // n_folds, len(columns), boosting.n_rounds)
    return member * (n_folds * (1 + HEARING) + bool(boosting.costs.evaluation))


def _bin(boosting: Boosting, rows: Rows, columns: np.ndarray) -> Binned | None:
    return Binned(boosting.on(columns), rows.on(columns)) if len(columns) else None


def _finish(
    boosting: Boosting,
    rows: Rows,
    columns: np.ndarray,
    parts: list[np.ndarray],
    binned: Binned | None,
    boosters: list[Any] | None,
) -> Expert:
    """What the members say out of fold, and what predicts."""
    if binned is None or boosters is None:
        return constant_expert(boosting.constant, len(rows))
    n_outputs = len(boosting.constant)
    margins = np.tile(boosting.constant, (len(rows), 1))
    rounds = agree_on_rounds(boosters)
    members = [trees_of(booster, n_outputs, rounds) for booster in boosters]
    for out, (pool, tree_weights) in zip(parts, members, strict=True):
        if boosting.loss.has_classes:
            # of a class that it never met a member knows nothing: that the others' margins fell is no knowledge
            out = out & np.isin(rows.y, rows.y[~out])
        margins[out] += pool.scores(binned.rows.X[out], tree_weights)
        boosting.progress.did(HEARING * work_of(int((~out).sum()), len(columns), boosting.n_rounds))
    if boosting.costs.evaluation:
        members = [trees_of(binned.boost_all(rounds), n_outputs, rounds)]
    pool = TreePool.concatenate([pool for pool, _ in members]).on_columns(columns)
    weights = np.concatenate([each for _, each in members]) / len(members)
    return Expert(Score(pool, weights, boosting.constant), margins)
