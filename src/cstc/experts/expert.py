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

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..boosting import Boosting, work_of
from ..capacity import MANY_ROWS, VERY_MANY_ROWS, rounds_on_all
from ..cluster import Samples
from ..costs import ResolvedCosts
from ..engines import Shared
from ..model import TreePool
from ..model.build import Score
from ..parallel import side_by_side
from ..rows import Rows
from .members import HEARING, Members, Trees, Wanted, grow_members, grow_on_samples

__all__ = ["Expert", "constant_expert", "grow_experts", "grow_on_samples_of", "scores_of", "work_of_expert"]


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
    n_jobs = boosting.n_jobs if boosting.workers is None else len(growing)  # who waits for workers needs no core
    side_by_side([partial(getattr, expert, "score") for expert in growing], n_jobs)
    return [expert.score for expert in experts]


def constant_expert(constant: np.ndarray, n_rows: int) -> Expert:
    """Says the same of every row, and buys nothing."""
    nothing = Score(TreePool.identity(0), np.zeros((0, len(constant))), constant)
    return Expert(nothing, np.tile(constant, (n_rows, 1)))


def grow_experts(
    wanted: Sequence[tuple[np.ndarray, Boosting]],
    rows: Rows,
    folds: np.ndarray | None = None,
    blocks: Shared | None = None,
    *,
    parts: Sequence[np.ndarray] | None = None,
    names: Sequence[str] | None = None,
) -> list[Expert]:
    """An expert for each (columns, how to boost), all side by side.

    Each is one member without each fold, all with the same number of rounds; or without each of `parts` (bool).
    Who reads of a failure finds them by their `names`.
    """
    names = ["the expert"] * len(wanted) if names is None else names
    if parts is None:
        assert folds is not None
        parts = [folds == fold for fold in np.unique(folds)]
    asked = [
        Wanted(columns, boosting, parts, name=name)
        for (columns, boosting), name in zip(wanted, names, strict=True)
        if len(columns)
    ]
    members = iter(grow_members(asked, rows, blocks))
    return [
        _finish(next(members), rows) if len(columns) else constant_expert(boosting.constant, len(rows))
        for columns, boosting in wanted
    ]


def grow_on_samples_of(
    wanted: Sequence[tuple[np.ndarray, Boosting]], rows: Rows, more: Samples, n_members: int, names: Sequence[str]
) -> list[Expert]:
    """An expert for each (columns, how to boost), whose members learn from samples of further rows.

    No member ever saw one of `rows`: what predicts, the mean of all members, is known at all of them.
    """
    named = [(each, name) for each, name in zip(wanted, names, strict=True) if len(each[0])]
    asked, own_names = [each for each, _ in named], [name for _, name in named]
    members = iter(grow_on_samples(asked, rows, more, n_members, own_names)) if named else iter(())
    found = []
    for columns, boosting in wanted:
        if not len(columns):
            found.append(constant_expert(boosting.constant, len(rows)))
            continue
        trees = next(members)
        score = _sum_of(trees, np.full(n_members, 1 / n_members), columns, boosting)
        margins = boosting.constant + score.pool.scores(rows.X, score.weights)
        first = _sum_of(trees[:1], np.ones(1), columns, boosting)
        found.append(Expert(score, margins, members=[first], unseen=[np.full(len(rows), True)]))
    return found


def work_of_expert(boosting: Boosting, columns: np.ndarray, rows: Rows, n_folds: int) -> float:
    """For those who watch."""
    member = work_of(len(rows) * (n_folds - 1) // n_folds, len(columns), boosting.n_rounds)
    return member * (n_folds * (1 + HEARING) + bool(boosting.costs.evaluation))


def _finish(members: Members, rows: Rows) -> Expert:
    """What the members say out of fold, and what predicts."""
    boosting, parts, trees = members.boosting, members.parts, members.trees
    margins = np.tile(boosting.constant, (len(rows), 1))
    for out, heard in zip(parts, members.heard, strict=True):
        known = np.full(len(heard.scores), True)
        if boosting.loss.has_classes:
            # of a class that it never met a member knows nothing: that the others' margins fell is no knowledge
            known = np.isin(rows.y[out], rows.y[~out])
        margins[np.flatnonzero(out)[known]] += heard.scores[known]
    members = replace(members, heard=[])
    kept = trees if len(rows) < MANY_ROWS else trees[:1]  # those of many rows would take much memory
    alone: dict[str, Any] = {"unseen": parts[: len(kept)]}
    columns = members.columns
    alone["members"] = [_sum_of([each], np.ones(1), columns, boosting) for each in kept]
    rounds = members.rounds
    if len(rows) >= MANY_ROWS:
        trees = [] if boosting.costs.evaluation or len(rows) >= VERY_MANY_ROWS else trees
        rounds = rounds_on_all(rounds, max(2, len(parts)))
        work = work_of(len(rows), len(members.columns), rounds)
        return Expert(partial(_with_all, members, rounds, trees), margins, work, **alone)
    if boosting.costs.evaluation:
        return Expert(_with_all(members, rounds, []), margins, **alone)
    return Expert(_sum_of(trees, np.full(len(trees), 1 / len(trees)), columns, boosting), margins, **alone)


def _with_all(members: Members, rounds: int, trees: list[Trees]) -> Score:
    """One ensemble on all rows; with trees of members, the mean of it and of their mean."""
    k = len(trees)
    shares = np.append(np.full(k, 0.5 / k), 0.5) if k else np.ones(1)
    return _sum_of([*trees, members.on_all(rounds)], shares, members.columns, members.boosting)


def _sum_of(trees: list[Trees], shares: np.ndarray, columns: np.ndarray, boosting: Boosting) -> Score:
    pool = TreePool.concatenate([pool for pool, _ in trees]).on_columns(columns)
    weights = np.concatenate([share * weights for share, (_, weights) in zip(shares, trees, strict=True)])
    return Score(pool, weights, boosting.constant)
