"""The weak learners of a pool, one by one: what both ways through them are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...model import TreePool

__all__ = ["ZERO", "Leaf", "Split", "Tree", "trees_of"]

ZERO = 1e-35  # LightGBM's: what is not larger than this counts as zero


@dataclass(frozen=True)
class Split:
    """A split, with the range ``first <= leaf < last`` of leaves below it; `middle` is the first on the right."""

    feature: int
    threshold: float
    missing_left: bool
    zero_is_missing: bool
    codes: frozenset[int] | None  # the categories that go left
    first: int
    middle: int
    last: int


@dataclass(frozen=True)
class Leaf:
    """A constant, or a multiple of one column."""

    value: float
    linear_feature: int


@dataclass(frozen=True)
class Tree:
    """One learner: its splits, each behind those below it, and its leaves from left to right."""

    splits: list[Split]
    leaves: list[Leaf]


_COLUMNS = (
    *("feature", "threshold", "left", "right", "missing_left", "zero_is_missing"),
    *("category_start", "category_count", "value", "linear_feature"),
)


def trees_of(pool: TreePool) -> list[Tree]:
    """The learners of a pool, one by one."""
    columns = {name: getattr(pool, name).tolist() for name in _COLUMNS}
    return [_tree(root, columns, pool.category_left) for root in pool.roots.tolist()]


def _tree(root: int, columns: dict[str, list], category_left: np.ndarray) -> Tree:
    """No recursion, because LightGBM's trees may be very deep: a split is visited before, between and after."""
    splits: list[Split] = []
    leaves: list[Leaf] = []
    firsts: dict[int, int] = {}
    middles: dict[int, int] = {}
    waiting = [(root, "before")]
    while waiting:
        at, when = waiting.pop()
        if columns["feature"][at] < 0:
            leaves.append(Leaf(columns["value"][at], columns["linear_feature"][at]))
        elif when == "before":
            firsts[at] = len(leaves)
            waiting += [(at, "between"), (columns["left"][at], "before")]
        elif when == "between":
            middles[at] = len(leaves)
            waiting += [(at, "after"), (columns["right"][at], "before")]
        else:
            start, codes = columns["category_start"][at], None
            if start >= 0:
                codes = frozenset(np.flatnonzero(category_left[start : start + columns["category_count"][at]]).tolist())
            feature, threshold = columns["feature"][at], columns["threshold"][at]
            missing_left, zero_is_missing = columns["missing_left"][at], columns["zero_is_missing"][at]
            leaves_below = (firsts[at], middles[at], len(leaves))
            splits.append(Split(feature, threshold, missing_left, zero_is_missing, codes, *leaves_below))
    return Tree(splits, leaves)
