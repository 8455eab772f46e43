"""Experts: for a set of features that is paid for, the best predictor on it, and what it says out of fold.

The paper fine-tunes every node on the features that its path has extracted, because they are free from then on.  An
expert carries that to its end: a boosted ensemble on just these features.  It is grown once for each fold without
that fold.  A training row then has a prediction that never saw it (but for the number of rounds, which is one for all
folds), and that is what gates must learn from.  A new row gets the mean of all members, which is better than one
ensemble on all rows where those are few, and costs no further feature.  From 10,000 rows on (`capacity`), and where
evaluating a tree has a price of its own (``e_t``), a new row gets one ensemble on all rows instead.  Few stages are
nodes in the end, so that ensemble is grown when a model first needs it.  The members are there anyway: below 50,000
rows, where trees have no price, the answer is the mean of that ensemble and of theirs, which is better than either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..binning import ColumnBlocks
from ..boosting import Binned, Boosting, agree_on_rounds, trees_of, work_of
from ..capacity import MANY_ROWS, VERY_MANY_ROWS, rounds_on_all
from ..costs import ResolvedCosts
from ..matrix import cells_at
from ..model import TreePool
from ..model.build import Score
from ..parallel import side_by_side
from ..rows import Rows

__all__ = ["Expert", "constant_expert", "grow_experts", "scores_of", "work_of_expert"]

HEARING = 0.08  # of what growing a member takes, what its trees take to say something of each row
HEARD_ROWS = 1 << 15  # at a time: their columns are copied


class Expert:
    """A predictor on some columns.

    Parameters
    ----------
    score : Score or callable
        What predicts, on the columns of the whole matrix; or what grows it when it is first asked for.
    margins : ndarray of shape (n, n_outputs)
        At each training row, the margins of the member that never saw it.
    work : float
        What growing the score takes, for those who watch.
    members : sequence of Score
        Its members, each alone, or the first of them.
    unseen : sequence of bool ndarray of shape (n,)
        The rows that each of them never saw.
    """

    def __init__(
        self,
        score: Score | Callable[[], Score],
        margins: np.ndarray,
        work: float = 0.0,
        *,
        members: Sequence[Score] = (),
        unseen: Sequence[np.ndarray] = (),
    ):
        self._score = score
        self.margins = margins
        self.work = work
        self.members, self.unseen = members, unseen

    @property
    def is_grown(self) -> bool:
        return isinstance(self._score, Score)

    @property
    def score(self) -> Score:
        if callable(self._score):
            self._score = self._score()  # and with it goes all that it was grown from
        return self._score

    def moved(self, scale: float, shift: np.ndarray) -> Expert:
        """The same with ``scale * margins + shift``."""
        return Expert(
            self.score.moved(scale, shift) if self.is_grown else lambda: self.score.moved(scale, shift),
            scale * self.margins + shift,
            self.work,
            members=[member.moved(scale, shift) for member in self.members],
            unseen=self.unseen,
        )

    def part(self, n_members: int) -> Score:
        """The mean of some of its members: it takes less room than the whole, and is there already."""
        members = self.members[:n_members]
        if not members:
            return self.score
        if len(members) == 1:
            return members[0]
        pool = TreePool.concatenate([member.pool for member in members])
        weights = np.concatenate([member.weights / len(members) for member in members])
        return Score(pool, weights, members[0].intercept)

    def price(self, costs: ResolvedCosts) -> float:
        """Of evaluating its trees; where that costs nothing they need not be there yet."""
        return costs.evaluation * self.score.pool.n_learners if costs.evaluation else 0.0


def scores_of(experts: Sequence[Expert], boosting: Boosting) -> list[Score]:
    """What some experts predict with; those that are not grown yet are grown side by side."""
    growing = list({id(expert): expert for expert in experts if not expert.is_grown}.values())
    if growing:
        boosting.progress.begin("ensembles on all rows", sum(expert.work for expert in growing), len(growing))
    side_by_side([partial(getattr, expert, "score") for expert in growing], boosting.n_jobs)
    return [expert.score for expert in experts]


def constant_expert(constant: np.ndarray, n_rows: int) -> Expert:
    """Says the same of every row, and buys nothing."""
    nothing = Score(TreePool.identity(0), np.zeros((0, len(constant))), constant)
    return Expert(nothing, np.tile(constant, (n_rows, 1)))


def grow_experts(
    wanted: Sequence[tuple[np.ndarray, Boosting]],
    rows: Rows,
    folds: np.ndarray | None = None,
    blocks: ColumnBlocks | None = None,
    *,
    parts: Sequence[np.ndarray] | None = None,
) -> list[Expert]:
    """An expert for each (columns, how to boost), all side by side.

    Each is one member without each fold, all with the same number of rounds; or without each of `parts` (bool).
    """
    n_jobs = wanted[0][1].n_jobs if wanted else None
    binned = side_by_side([partial(_bin, boosting, rows, columns, blocks) for columns, boosting in wanted], n_jobs)
    if parts is None:
        assert folds is not None
        parts = [folds == fold for fold in np.unique(folds)]
    growing = [
        _Growing(boosting, rows, parts, data) for (_, boosting), data in zip(wanted, binned, strict=True)
    ]
    del binned  # each expert lets go of its own when it is finished
    side_by_side([partial(each.member, number) for each in growing for number in each.members], n_jobs)
    return [each.expert for each in growing]


class _Growing:
    """One expert in the making: whoever grows the last of its members finishes it.

    A booster in training holds its rows, their gradients and their scores.  Those of all experts at once would be many
    times the data.
    """

    def __init__(self, boosting: Boosting, rows: Rows, parts: Sequence[np.ndarray], binned: Binned | None):
        self._rows, self._parts, self._binned = rows, parts, binned
        self._boosters: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.members = range(0 if binned is None else len(parts))
        self.expert = constant_expert(boosting.constant, len(rows))

    def member(self, number: int) -> None:
        """Grow the member without one of the folds."""
        assert self._binned is not None
        booster = self._binned.boost_without(self._parts[number])
        with self._lock:
            self._boosters[number] = booster
            if len(self._boosters) < len(self._parts):
                return
        boosters = [self._boosters[each] for each in self.members]
        self.expert = _finish(self._binned, self._rows, self._parts, boosters)
        self._binned, self._boosters = None, {}


def work_of_expert(boosting: Boosting, columns: np.ndarray, rows: Rows, n_folds: int) -> float:
    """For those who watch."""
    member = work_of(len(rows) * (n_folds - 1) // n_folds, len(columns), boosting.n_rounds)
    return member * (n_folds * (1 + HEARING) + bool(boosting.costs.evaluation))


def _bin(boosting: Boosting, rows: Rows, columns: np.ndarray, blocks: ColumnBlocks | None) -> Binned | None:
    return Binned(boosting, rows, columns, blocks) if len(columns) else None


def _finish(binned: Binned, rows: Rows, parts: Sequence[np.ndarray], boosters: list[Any]) -> Expert:
    """What the members say out of fold, and what predicts."""
    boosting, columns = binned.boosting, binned.columns
    n_outputs = len(boosting.constant)
    margins = np.tile(boosting.constant, (len(rows), 1))
    rounds = agree_on_rounds(boosters)
    members = [trees_of(booster, n_outputs, rounds) for booster in boosters]
    for out, (pool, tree_weights) in zip(parts, members, strict=True):
        if boosting.loss.has_classes:
            # of a class that it never met a member knows nothing: that the others' margins fell is no knowledge
            out = out & np.isin(rows.y, rows.y[~out])
        hears = np.flatnonzero(out)
        for at in np.split(hears, range(HEARD_ROWS, len(hears), HEARD_ROWS)):
            margins[at] += pool.scores(cells_at(rows.X, at, columns), tree_weights)
        boosting.progress.did(HEARING * work_of(int((~out).sum()), len(columns), boosting.n_rounds))
    kept = members if len(rows) < MANY_ROWS else members[:1]  # those of many rows would take much memory
    alone: dict[str, Any] = {"unseen": parts[: len(kept)]}
    alone["members"] = [_sum_of([each], np.ones(1), binned) for each in kept]
    if len(rows) >= MANY_ROWS:
        members = [] if boosting.costs.evaluation or len(rows) >= VERY_MANY_ROWS else members
        rounds = rounds_on_all(rounds, max(2, len(parts)))
        work = work_of(len(rows), len(columns), rounds)
        return Expert(partial(_with_all, binned, rounds, members), margins, work, **alone)
    if boosting.costs.evaluation:
        return Expert(_with_all(binned, rounds, []), margins, **alone)
    return Expert(_sum_of(members, np.full(len(members), 1 / len(members)), binned), margins, **alone)


def _with_all(binned: Binned, rounds: int, members: list[tuple[TreePool, np.ndarray]]) -> Score:
    """One ensemble on all rows; with members, the mean of it and of their mean."""
    on_all = trees_of(binned.boost_all(rounds), len(binned.boosting.constant), rounds)
    k = len(members)
    return _sum_of([*members, on_all], np.append(np.full(k, 0.5 / k), 0.5) if k else np.ones(1), binned)


def _sum_of(members: list[tuple[TreePool, np.ndarray]], shares: np.ndarray, binned: Binned) -> Score:
    pool = TreePool.concatenate([pool for pool, _ in members]).on_columns(binned.columns)
    weights = np.concatenate([share * weights for share, (_, weights) in zip(shares, members, strict=True)])
    return Score(pool, weights, binned.boosting.constant)
