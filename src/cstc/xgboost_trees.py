"""Trees of XGBoost as flat trees that send every row the same way, whatever XGBoost wrote them.

XGBoost rounds a value to single precision and goes left if that is *less than* a threshold; flat trees go left if the
value itself, in double precision, is *at most* one.  With ``t`` the threshold, ``p`` the number of single precision
below it and ``m = (p + t) / 2``, what is below ``m`` rounds to ``p`` or less, what is above it to ``t`` or more, and
``m`` itself to whichever of the two is even:

    float32(x) < t   <=>   x <= m, or x <= the double below m where t is the even one

At a split on categories, XGBoost sends those of a set right, and all others, new ones among them, left; flat trees send
those of a set left, and all others right.  Missing values go where the split says.  So the set of a flat split holds
the categories of the side to which missing values do not go: new ones then go as missing ones do, which is the rule of
`model/unseen`, too.

A tree of one leaf buys nothing, and whoever takes the trees apart leaves it out; its value goes into the leaves of a
neighbour that adds to the same output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from .model import TreePool
from .model.pool import in_steps

__all__ = ["at_most", "flatten_xgboost", "with_values_of_stumps"]

LARGEST = np.finfo(float).max
BY_CATEGORY = 1  # a type of splits


def at_most(less_than: np.ndarray) -> np.ndarray:
    """For each threshold ``t`` of single precision, the largest double that rounds to less than it."""
    t = np.asarray(less_than, dtype=np.float32)
    with np.errstate(over="ignore"):  # below the smallest number comes minus infinity
        below = np.nextafter(t, np.float32(-np.inf))
    middle = (below.astype(float) + t.astype(float)) / 2
    takes_ties = (below.view(np.uint32) & 1) == 0
    found = np.where(takes_ties, middle, np.nextafter(middle, -np.inf))
    return np.clip(found, -LARGEST, LARGEST)  # infinite where missing values part from all others


def flatten_xgboost(
    booster: Any,
    n_rounds: int | None = None,
    *,
    may_miss: np.ndarray | None = None,
    n_categories: Mapping[int, int] | None = None,
) -> TreePool:
    """Copy the trees of a booster into a pool: those of the first rounds, or all.

    The positions of a tree are XGBoost's nodes, in their order.

    Parameters
    ----------
    booster : xgboost.Booster
        Of trees with one output each; where there are several outputs, each round has a tree for each.
    n_rounds : int, optional
    may_miss : bool ndarray of shape (n_columns,), optional
        The columns in which training saw missing values.  In the others a missing value goes with the majority; all
        have some, if nothing is said.
    n_categories : mapping of int to int, optional
        How many codes there are in each column of categories; needed where there is one.
    """
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    trees, rounds = model["trees"], model["iteration_indptr"]
    trees = trees if n_rounds is None else trees[: rounds[min(n_rounds, len(rounds) - 1)]]
    sizes = np.array([len(tree["left_children"]) for tree in trees], dtype=int)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    n, here = int(starts[-1]), np.arange(int(starts[-1]))

    def field(name: str, dtype: type) -> np.ndarray:
        return np.fromiter(chain.from_iterable(tree[name] for tree in trees), dtype=dtype, count=n)

    left, right = field("left_children", int), field("right_children", int)
    leaf = left < 0
    start_of = np.repeat(starts[:-1], sizes)
    left, right = np.where(leaf, here, start_of + left), np.where(leaf, here, start_of + right)
    feature = np.where(leaf, -1, field("split_indices", int))
    given = field("split_conditions", np.float32)  # at a leaf, its value
    cover = field("sum_hessian", float)
    rows = cover[left] + cover[right]
    share = np.where(leaf | ~(rows > 0), 0.5, cover[left] / np.where(rows > 0, rows, 1.0))
    missing_left = field("default_left", int).astype(bool) & ~leaf
    if may_miss is not None:
        seen = np.append(may_miss, True)[feature]
        missing_left = np.where(seen, missing_left, (share >= 0.5) & ~leaf)
    by_category = (field("split_type", int) == BY_CATEGORY) & ~leaf
    sets = _sets(trees, starts)
    start, count, pieces, used = np.full(n, -1), np.zeros(n, dtype=int), [np.zeros(0, dtype=bool)], 0
    for position in np.flatnonzero(by_category).tolist():
        goes_right = np.zeros((n_categories or {})[int(feature[position])], dtype=bool)
        goes_right[sets[position]] = True
        if missing_left[position]:  # the set is what goes right: sides change
            left[position], right[position] = right[position], left[position]
            share[position] = 1.0 - share[position]
            piece = goes_right
        else:
            piece = ~goes_right
        start[position], count[position] = used, len(piece)
        pieces.append(piece)
        used += len(piece)
    return TreePool(
        roots=starts[:-1],
        feature=feature,
        threshold=np.where(leaf | by_category, 0.0, at_most(np.where(by_category, np.float32(0.0), given))),
        left=left,
        right=right,
        missing_left=missing_left & ~by_category,
        zero_is_missing=np.zeros(n, dtype=bool),
        category_start=start,
        category_count=count,
        category_left=np.concatenate(pieces),
        value=np.where(leaf, given.astype(float), 0.0),
        linear_feature=np.full(n, -1),
        share_left=in_steps(share),
    )


def _sets(trees: list[dict[str, Any]], starts: np.ndarray) -> dict[int, np.ndarray]:
    """By the position of a split, the categories that go right."""
    found = {}
    for tree, start in zip(trees, starts.tolist(), strict=False):
        own = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
        for node, begin, size in own:
            found[start + node] = np.array(tree["categories"][begin : begin + size], dtype=int)
    return found


def with_values_of_stumps(pool: TreePool, n_outputs: int) -> TreePool:
    """What trees of one leaf add goes into the leaves of the tree before them, or of the first one that splits.

    Where no tree of an output splits, nothing was learned, and nothing is added.
    """
    value, owners = pool.value.copy(), pool.owners
    splits = pool.feature[pool.roots] >= 0
    for output in range(n_outputs):
        own = np.arange(output, pool.n_learners, n_outputs)
        real, stumps = own[splits[own]], own[~splits[own]]
        taken_by = real[np.maximum(np.searchsorted(real, stumps) - 1, 0)] if len(real) else np.zeros(0, dtype=int)
        added = np.bincount(taken_by, value[pool.roots[stumps]][: len(taken_by)], minlength=pool.n_learners)
        leaves = np.flatnonzero((pool.feature < 0) & (owners >= 0))
        leaves = leaves[np.isin(owners[leaves], real)]
        value[leaves] += added[owners[leaves]]
        value[pool.roots[stumps]] = 0.0
    return replace(pool, value=value)
