"""Weak learners when some values are not to be had: both branches, averaged by their number of training rows.

At a split on a value that is missing for no reason of its own (a source is down, the budget is spent), a learner says
``share_left * (what it says on the left) + (1 - share_left) * (what it says on the right)``: what it says on average of
the training rows that came so far.  A leaf that passes on a column passes on its mean.

Three ways give the same.  Where the same columns are missing for all rows, `without` makes other learners of a pool,
none of which looks at them; those are walked like any others.  `averaged_sums` is for single rows that each know
something else, and `averaged_scores` for few rows that lack one thing after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import native
from .pool import TreePool

__all__ = ["averaged_scores", "averaged_sums", "without"]


def without(pool: TreePool, columns: np.ndarray, means: np.ndarray) -> tuple[TreePool, np.ndarray]:
    """Learners that look at none of some columns, and for each the learner of `pool` that it stands for.

    The sum of those that stand for a learner is what it says on average.  A split on one of the columns makes two
    learners of one, its sides, with their leaves shrunk by their shares; under any other split the learners of both
    sides are paired, so that there are about as many as one way down has such splits, and one more.
    """
    dead_split, dead_leaf = np.isin(pool.feature, columns), np.isin(pool.linear_feature, columns)
    affected = np.unique(pool.owners[dead_split | dead_leaf])
    affected = affected[affected >= 0]
    if not len(affected):
        return pool, np.arange(pool.n_learners)
    found = native.rewritten(pool, affected, dead_split, dead_leaf, means)
    made, roots, counts = found or _Rewriting(pool, dead_split, dead_leaf, means).learners(affected)
    rewritten, stands_for = _as_pool(pool, made, roots), np.repeat(affected, counts)
    kept = np.setdiff1d(np.arange(pool.n_learners), affected)
    joined = TreePool.concatenate([pool.subset(kept), rewritten])
    owner = np.concatenate([kept, stands_for])
    order = np.argsort(owner, kind="stable")  # the order of the learners is that of all sums
    return joined.subset(order), owner[order]


class _Rewriting:
    """Makes learners without dead splits, position by position; new ones are numbered as they are made.

    `native.rewritten` does the same, position for position.
    """

    def __init__(self, pool: TreePool, dead_split: np.ndarray, dead_leaf: np.ndarray, means: np.ndarray):
        self._roots = pool.roots
        self._feature, self._left, self._right = pool.feature.tolist(), pool.left.tolist(), pool.right.tolist()
        self._share, self._value = pool.share_left.tolist(), pool.value.tolist()
        self._dead_split, self._dead_leaf = dead_split.tolist(), dead_leaf.tolist()
        self._linear, self._means = pool.linear_feature.tolist(), means
        self._made: list[tuple[int, int, int, float]] = []  # of `MADE`

    def learners(self, learners: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        roots, counts = [], []
        for root in self._roots[learners].tolist():
            found, constant = self._visit(root, 1.0)
            if constant or not found:
                found = [*found, self._leaf(constant)]
            roots += found
            counts.append(len(found))
        return np.array(self._made, native.MADE), np.array(roots), np.array(counts)

    def _visit(self, at: int, factor: float) -> tuple[list[int], float]:
        """New positions whose sum is `factor` times what the old one says on average, and a constant beside them."""
        if self._feature[at] < 0:
            if self._linear[at] < 0:
                return [], factor * self._value[at]
            if self._dead_leaf[at]:
                return [], factor * self._value[at] * float(self._means[self._linear[at]])
            return [self._add(at, (-1, -1), factor * self._value[at])], 0.0
        if self._dead_split[at]:
            share = self._share[at]
            found: list[int] = []
            constant = 0.0
            for child, part in ((self._left[at], share), (self._right[at], 1.0 - share)):
                if part > 0:  # where no training row went, nothing is known
                    more, other = self._visit(child, factor * part)
                    found, constant = found + more, constant + other
            return found, constant
        sides = []
        for child in (self._left[at], self._right[at]):
            beyond, left_over = self._visit(child, factor)
            sides.append([*beyond, self._leaf(left_over)] if left_over or not beyond else beyond)
        n = max(map(len, sides))
        pairs = zip(*(side + [self._leaf(0.0) for _ in range(n - len(side))] for side in sides), strict=True)
        return [self._add(at, pair, 0.0) for pair in pairs], 0.0

    def _leaf(self, value: float) -> int:
        return self._add(-1, (-1, -1), value)

    def _add(self, origin: int, children: tuple[int, int], value: float) -> int:
        self._made.append((origin, *children, value))
        return len(self._made) - 1


def _as_pool(pool: TreePool, made: np.ndarray, roots: np.ndarray) -> TreePool:
    """New learners: a position that was made of an old one (`origin`, or -1) splits as that did."""
    origin, here = made["origin"], np.arange(len(made))
    is_split = made["left"] >= 0
    at = np.maximum(origin, 0)

    def split_only(values: np.ndarray, elsewhere: Any) -> np.ndarray:
        return np.where(is_split, values[at], elsewhere).astype(values.dtype)

    return TreePool(
        roots=roots,
        feature=split_only(pool.feature, -1),
        threshold=split_only(pool.threshold, 0.0),
        left=np.where(is_split, made["left"], here),
        right=np.where(is_split, made["right"], here),
        missing_left=split_only(pool.missing_left, False),
        zero_is_missing=split_only(pool.zero_is_missing, False),
        category_start=split_only(pool.category_start, -1),
        category_count=split_only(pool.category_count, 0),
        category_left=pool.category_left,
        value=made["value"].copy(),
        linear_feature=np.where(is_split | (origin < 0), -1, pool.linear_feature[at]),
        share_left=split_only(pool.share_left, 0.5),
    )


def averaged_scores(pool: TreePool, X: np.ndarray, lost: Sequence[np.ndarray], weights: np.ndarray) -> list[np.ndarray]:
    """Weighted sums (n, n_outputs) of some rows without the columns of each of `lost`, for trees with plain leaves.

    Quicker than `without` for few rows and small trees: every position of every tree gets the part of each row that
    comes to it.
    """
    level, levels = pool.roots, []
    while len(level):
        levels.append(level[pool.feature[level] >= 0])
        level = np.concatenate([pool.left[levels[-1]], pool.right[levels[-1]]])
    here = np.arange(pool.n_positions)
    left = pool.goes_left(np.broadcast_to(here, (len(X), len(here))), X[:, np.maximum(pool.feature, 0)]).astype(float)
    leaves = np.flatnonzero(pool.feature < 0)
    values = pool.value[leaves, None] * weights[pool.owners[leaves]]
    found = []
    for columns in lost:
        share = np.where(np.isin(pool.feature, columns), pool.share_left, left)
        part = np.zeros((len(X), len(here)))
        part[:, pool.roots] = 1.0
        for at in levels:
            part[:, pool.left[at]] = part[:, at] * share[:, at]
            part[:, pool.right[at]] = part[:, at] - part[:, pool.left[at]]
        found.append(part[:, leaves] @ values)
    return found


def averaged_sums(
    pool: TreePool, row: np.ndarray, known: np.ndarray, learners: np.ndarray, weights: np.ndarray, means: np.ndarray
) -> np.ndarray:
    """``sum_t weights[t] * h_t`` over some learners for one row of which only some columns are known.

    Parameters
    ----------
    row : ndarray of shape (n_features,)
    known : bool ndarray of shape (n_features,)
    learners : int ndarray
    weights : ndarray of shape (len(learners), n_outputs)
    means : ndarray of shape (n_features,)
    """
    total = np.zeros(weights.shape[1])
    at, owner, mass = pool.roots[learners], np.arange(len(learners)), np.ones(len(learners))
    while len(at):
        feature = pool.feature[at]
        leaf = feature < 0
        if leaf.any():
            column = pool.linear_feature[at[leaf]]
            passed = np.where(known[np.maximum(column, 0)], row[np.maximum(column, 0)], means[np.maximum(column, 0)])
            said = mass[leaf] * pool.value[at[leaf]] * np.where(column >= 0, passed, 1.0)
            total += said @ weights[owner[leaf]]
            at, owner, mass, feature = at[~leaf], owner[~leaf], mass[~leaf], feature[~leaf]
        if not len(at):
            break
        x = row[feature]
        goes_left = pool.goes_left(at, x)
        left = np.where(known[feature], goes_left.astype(float), pool.share_left[at])
        sides = ((pool.left[at], mass * left), (pool.right[at], mass * (1.0 - left)))
        at, mass = (np.concatenate(part) for part in zip(*sides, strict=True))
        owner = np.concatenate([owner, owner])
        going = mass > 0
        at, owner, mass = at[going], owner[going], mass[going]
    return total
