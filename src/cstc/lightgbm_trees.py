"""Trees of LightGBM as flat trees that send every row the same way: nothing after `fit` calls a booster.

LightGBM writes a model as lines of numbers, one line for each field of each tree.  The lines of a field are read
together, for all trees at once.  A tree of one leaf buys nothing and says nothing, so it is left out where weights are
given to trees.

Ensembles of another engine copy themselves (`xgboost_trees`); whoever asks here need not know which one it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np

from .boosting import rounds_of
from .model import TreePool
from .model.pool import in_steps

__all__ = ["flatten_booster", "trees_of", "without_stumps"]


def trees_of(booster: Any, n_outputs: int, n_rounds: int | None = None) -> tuple[TreePool, np.ndarray]:
    """The trees of an ensemble, and weights (n_trees, n_outputs): 1 for the output that a tree adds to.

    Rounds up to the best one, if none are given.
    """
    return without_stumps(flatten_booster(booster, n_rounds), n_outputs)


def without_stumps(
    pool: TreePool, n_outputs: int, n_rounds: int | None = None
) -> tuple[TreePool, np.ndarray]:
    """The trees of the first rounds, or of all, that split at all, and their weights as in `trees_of`."""
    output = np.arange(pool.n_learners) % n_outputs  # LightGBM lists the trees of a round output by output
    splits = pool.feature[pool.roots] >= 0  # a tree of one leaf says nothing
    real = np.flatnonzero(splits if n_rounds is None else splits[: n_rounds * n_outputs])
    weights = np.zeros((len(real), n_outputs))
    weights[np.arange(len(real)), output[real]] = 1.0
    return pool.subset(real), weights


def flatten_booster(
    booster: Any, n_rounds: int | None = None, *, unseen_is_zero: bool = False
) -> TreePool:
    """Copy the trees of a booster into a pool: the first rounds, or those up to its best iteration.

    Where training saw no missing value, one goes with the majority of the rows; or as zero does, as in LightGBM.

    The splits of a tree come first, then its leaves.
    """
    n_rounds = n_rounds or rounds_of(booster)
    if not isinstance(booster, lightgbm.Booster):  # of another engine (`engines`)
        return booster.flatten(n_rounds)
    fields = _fields(booster.model_to_string(num_iteration=n_rounds))
    n_leaves = fields("num_leaves", int)
    n_splits = n_leaves - 1
    starts = np.concatenate([[0], np.cumsum(n_splits + n_leaves)])
    tree = np.repeat(np.arange(len(n_leaves)), n_splits)  # of each split
    splits = starts[tree] + _count_up(n_splits)
    leaves = np.repeat(starts[:-1] + n_splits, n_leaves) + _count_up(n_leaves)
    n = int(starts[-1])

    def at_splits(values: Any, elsewhere: Any, dtype: type) -> np.ndarray:
        found: np.ndarray = np.full(n, elsewhere, dtype=dtype)
        found[splits] = values
        return found

    def child(name: str) -> np.ndarray:
        number = fields(name, int)  # of a split, or ~number of a leaf
        found = np.arange(n)
        found[splits] = starts[tree] + np.where(number >= 0, number, n_splits[tree] + ~number)
        return found

    decision, threshold = fields("decision_type", int), fields("threshold", float)
    threshold = np.minimum(threshold, np.finfo(float).max)  # infinite where missing values part from all others
    by_category = (decision & 1) > 0
    missing = (decision >> 2) & 3  # 0: training saw none, 1: zero is missing, 2: NaN is
    left, right = child("left_child"), child("right_child")
    counts = np.zeros(n)
    counts[splits], counts[leaves] = fields("internal_count", float), fields("leaf_count", float)
    unseen = threshold >= 0.0 if unseen_is_zero else counts[left[splits]] >= counts[right[splits]]
    goes_left = np.where(missing == 0, unseen, (decision & 2) > 0) & ~by_category
    start, count, category_left = _categories(fields, by_category, threshold, tree)
    values = np.zeros(n)
    values[leaves] = fields("leaf_value", float)
    rows = counts[left[splits]] + counts[right[splits]]  # 0 in a model that was written without counts
    share = np.where(rows > 0, counts[left[splits]] / np.maximum(rows, 1), 0.5)
    return TreePool(
        roots=starts[:-1],
        feature=at_splits(fields("split_feature", int), -1, int),
        threshold=at_splits(np.where(by_category, 0.0, threshold), 0.0, float),
        left=left,
        right=right,
        missing_left=at_splits(goes_left, False, bool),
        zero_is_missing=at_splits((missing == 1) & ~by_category, False, bool),
        category_start=at_splits(start, -1, int),
        category_count=at_splits(count, 0, int),
        category_left=category_left,
        value=values,
        linear_feature=np.full(n, -1),
        share_left=in_steps(at_splits(share, 0.5, float)),
    )


def _fields(text: str) -> Callable[[str, type], np.ndarray]:
    """The numbers of a field of all trees, one tree after the other."""
    lines: dict[str, list[str]] = {}
    begin, end = text.find("\nTree="), text.find("\nend of trees")
    for line in text[begin:end].splitlines():
        name, _, value = line.partition("=")
        lines.setdefault(name, []).append(value)

    def numbers(name: str, dtype: type) -> np.ndarray:
        return np.array(" ".join(lines.get(name, [])).split(), dtype=dtype)

    return numbers


def _count_up(sizes: np.ndarray) -> np.ndarray:
    """0, 1, .. for each of some sizes, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _categories(
    fields: Callable[[str, type], np.ndarray], by_category: np.ndarray, threshold: np.ndarray, tree: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each split, where its categories begin and how many there are; and which of them go left.

    LightGBM keeps a set of categories as words of 32 bits; the threshold of a split is the number of its set in the
    tree.
    """
    start, count = np.full(len(tree), -1), np.zeros(len(tree), dtype=int)
    if not by_category.any():
        return start, count, np.zeros(0, dtype=bool)
    n_sets = fields("num_cat", int)
    words = fields("cat_threshold", np.int64).astype(np.uint32)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
    # the bounds of a tree's sets begin at 0, and trees without categories have none
    bounds, first, at = fields("cat_boundaries", int), {}, 0
    base, place = 0, 0
    for number in np.flatnonzero(n_sets):
        first[number] = (place, base)
        place += n_sets[number] + 1
        base += bounds[place - 1]
    pieces = []
    for split in np.flatnonzero(by_category):
        place, base = first[tree[split]]
        own = place + int(threshold[split])
        begin, end = (32 * (base + bounds[own + side]) for side in (0, 1))
        goes = bits[begin:end]
        goes = goes[: np.flatnonzero(goes).max(initial=-1) + 1]
        start[split], count[split] = at, len(goes)
        pieces.append(goes)
        at += len(goes)
    return start, count, np.concatenate(pieces)
