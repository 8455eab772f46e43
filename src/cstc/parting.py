"""Rows parted by what they need: a few cheap features that tell which expensive ones a row must have.

With ``lost[i, r]``, what row i would lose without item r (`needs`), a group of rows that buys together pays for each
item its price or loses what the item is worth to it, whichever is less.  With ``lam`` for the cost weight,

    value(group)  = sum_r min(lam * price_r, mean of lost[i, r] over the group),      over items that are not paid yet
    promise       = (the values of all groups + lam * the price of the splits on their ways) / value(all rows)

A regression tree whose targets are the roots of ``min(lost[i, r], lam * price_r)`` parts the rows, since greedy steps
along its impurity see which rows differ before a whole group can save anything.  Splits that do not lower the sum are
taken back, from the leaves upward.  Which cost weight shows best that rows differ is not known, so several are tried.

Attributions are shared out among all features that an ensemble looks at, also where a split has settled that they do
not matter: groups are better than they promise.  Who they are good for is tried (`branches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from .matrix import column_at, columns_at, is_sparse, missing_columns
from .model import TreePool
from .needs import Needs
from .rows import Rows

__all__ = ["FEWEST_ROWS", "Parted", "Partition", "part"]

MOST_GROUPS = 8
LEAST_ROWS = 150  # of a group
LEAST_SHARE = 0.04
FEWEST_ROWS = 2 * LEAST_ROWS  # of which there can be groups
WORTHWHILE = 0.9  # a partition must promise no more than this
SLIGHT = 0.005  # part of what all rows lose together that a split must save
CHEAP = (0.05, 0.2)  # part of what a row spends that a feature may cost which tells its group; both are tried
MOST_TARGETS = 32  # items that a tree looks at
MOST_DIRECTIONS = 8  # that they are told apart by
MOST_COLUMNS = 48  # cheap ones that a tree looks at
N_STEPS = 8  # of a column, when those are looked for
MOST_SIGHTS = 2  # cost weights at which other beginnings than the greedy one are looked at
POWERS = tuple(range(-1, -13, -1))  # of two: cost weights that are tried, in units


@dataclass(frozen=True, eq=False)
class Partition:
    """A binary tree of splits.

    Attributes
    ----------
    splits : TreePool
        One stump for each split, parents first: above zero means to the upper side.
    upper, lower : int ndarray of shape (n_splits,)
        Where rows go: a number of 0 or more is a split, a negative one is group ``-1 - number``.
    features : list of int ndarray
        For each group, the column of each split on its way.
    """

    splits: TreePool
    upper: np.ndarray
    lower: np.ndarray
    features: list[np.ndarray]

    @property
    def n_groups(self) -> int:
        return len(self.features)

    def parents(self) -> tuple[list[int], list[bool]]:
        """Of all splits, then all groups: the split that leads there (-1 at the root); whether by its upper side."""
        n_splits = len(self.upper)
        found, is_upper = [-1] * (n_splits + self.n_groups), [True] * (n_splits + self.n_groups)
        for side, above in ((self.upper, True), (self.lower, False)):
            for split, below in enumerate(side.tolist()):
                child = below if below >= 0 else n_splits - 1 - below
                found[child], is_upper[child] = split, above
        return found, is_upper

    def below(self, split: int) -> list[int]:
        """The groups that a split leads to."""
        found: list[int] = []
        waiting = [split]
        while waiting:
            at = waiting.pop()
            if at >= 0:
                waiting += [int(self.upper[at]), int(self.lower[at])]
            else:
                found.append(-1 - at)
        return found

    def groups(self, X: Any) -> np.ndarray:
        """The group of each row."""
        above = self.splits.transform(X) > 0
        at = np.zeros(len(above), dtype=int)
        while (at >= 0).any():
            inside = np.flatnonzero(at >= 0)
            split = at[inside]
            at[inside] = np.where(above[inside, split], self.upper[split], self.lower[split])
        return -1 - at


@dataclass(frozen=True, eq=False)
class Parted:
    """A partition, the cost weight that shows it best, and what it promises there."""

    partition: Partition
    cost_weight: float
    promise: float


def part(needs: Needs, unit: float, columns: np.ndarray, categorical: Sequence[int]) -> list[Parted]:
    """Partitions that promise something, the best one first.  Splits may look at `columns`, if they are cheap."""
    rows, costs = needs.told_rows, needs.costs
    least = max(LEAST_ROWS, int(LEAST_SHARE * len(rows)))
    if len(rows) < FEWEST_ROWS:
        return []
    if is_sparse(rows.X):  # scikit-learn's trees take no missing values of a sparse matrix
        columns = np.setdiff1d(columns[~missing_columns(rows.X)[columns]], categorical)
    steps = _Steps(rows, columns)
    found: dict[bytes, Parted] = {}
    sights: list[tuple[float, _Weighed, _Sight, _Split]] = []  # with what greedy steps promise there
    for power in POWERS:
        weighed = _Weighed(needs, unit * 2.0**power)
        if weighed.by_row >= WORTHWHILE * weighed.together:
            continue  # no partition can do more than parting all rows from each other
        targets = weighed.targets()
        told_by = [columns[costs.feature_prices[columns] <= cheap * weighed.spent] for cheap in CHEAP]
        for seen in {len(each): each for each in told_by if len(each)}.values():
            sight = _Sight(rows, steps.telling(seen, targets), categorical, targets, least)
            grown = sight.grow()
            if grown is not None:
                sights.append((_keep(found, weighed, sight, grown), weighed, sight, grown))
    for _, weighed, sight, grown in sorted(sights, key=lambda each: each[0])[:MOST_SIGHTS]:
        for root in sorted(_places(grown)):
            _keep(found, weighed, sight, sight.grow(root))
    return sorted(found.values(), key=lambda each: each.promise)


def _keep(found: dict[bytes, Parted], weighed: _Weighed, sight: _Sight, tree: _Split | None) -> float:
    """Keep a tree, pruned, if it promises enough and no other one parts the rows alike; what it promises."""
    value, splits = weighed.pruned(tree, sight)
    promise = value / weighed.together
    if splits is not None and promise < WORTHWHILE:
        partition = _as_partition(splits, sight)
        group = partition.groups(sight.rows.X)
        counted = np.bincount(group, sight.rows.weights > 0, minlength=partition.n_groups)
        if counted.min() < sight.least / 2:
            return promise  # rows have no weight, or single precision cannot tell values apart
        first = np.unique(group, return_index=True)[1]
        key = np.argsort(np.argsort(first))[group].tobytes()  # groups by who comes first in them
        if key not in found or promise < found[key].promise:
            found[key] = Parted(partition, weighed.cost_weight, promise)
    return promise


class _Steps:
    """Columns in a few steps each, to find those that tell most of the targets: trees look at no more."""

    def __init__(self, rows: Rows, columns: np.ndarray):
        self._weights, self._few = rows.weights, len(columns) <= MOST_COLUMNS
        self._place = {int(column): place for place, column in enumerate(columns)}
        self._steps = [] if self._few else [_in_steps(column_at(rows.X, int(column))) for column in columns]

    def telling(self, columns: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Some columns, in their order: those whose steps explain most of the variance of the targets."""
        if self._few or len(columns) <= MOST_COLUMNS:
            return columns
        weighed = self._weights[:, None] * (targets - np.average(targets, axis=0, weights=self._weights))
        explained = []
        for column in columns.tolist():
            step = self._steps[self._place[column]]
            n = np.maximum(np.bincount(step, self._weights), 1e-300)
            sums = [np.bincount(step, target) for target in weighed.T]
            explained.append(sum(float((each**2 / n).sum()) for each in sums))
        return columns[np.sort(np.argsort(-np.array(explained), kind="stable")[:MOST_COLUMNS])]


def _in_steps(values: np.ndarray) -> np.ndarray:
    """Numbers of about equally large pieces; missing values are one of their own."""
    missing = np.isnan(values)
    if missing.all():
        return np.zeros(len(values), dtype=int)
    edges = np.unique(np.quantile(values[~missing], np.linspace(0, 1, N_STEPS + 1)[1:-1]))
    return np.where(missing, len(edges) + 1, np.searchsorted(edges, values))


@dataclass(frozen=True, eq=False)
class _Split:
    """A split of a tree in the making: the place of its column, where it cuts, and what lies on both sides."""

    place: int
    threshold: float
    missing_left: bool
    left: _Split | None  # None: a group
    right: _Split | None


def _places(tree: _Split | None) -> set[int]:
    """Of all columns that a tree looks at."""
    return set() if tree is None else {tree.place} | _places(tree.left) | _places(tree.right)


class _Sight:
    """What the splits of a partition may see: cheap columns, those of categories by places in an order of their levels.

    Attributes
    ----------
    rows : Rows
    cells : ndarray or sparse matrix of shape (n, n_columns)
    columns : int ndarray
    levels : dict of int to int ndarray
        The order of the levels of a column of categories.
    least : int
        Rows of a group.
    """

    def __init__(self, rows: Rows, columns: np.ndarray, categorical: Sequence[int], targets: np.ndarray, least: int):
        self.rows, self.columns, self.cells = rows, columns, _in_single_precision(rows.X, columns)
        self.levels: dict[int, np.ndarray] = {}
        self._targets, self.least = targets, least
        for place in np.flatnonzero(np.isin(columns, categorical)):
            order = _order_of_levels(self.cells[:, place], targets, rows.weights)
            self.levels[int(columns[place])] = order
            self.cells[:, place] = _ranked(self.cells[:, place], order)

    def goes_left(self, split: _Split, at: np.ndarray) -> np.ndarray:
        """Of the rows of some numbers."""
        values = column_at(self.cells, split.place)[at]
        return np.where(np.isnan(values), split.missing_left, values <= split.threshold)

    def grow(self, root: int | None = None) -> _Split | None:
        """A tree with the targets of all rows; or with a split on a given column first, as greedy steps might not do.

        Where what a cheap feature says depends on another one, the other must come first to be paid for by few.
        """
        everyone, places = np.arange(self._targets.shape[0]), np.arange(len(self.columns))
        if root is None:
            return self._fit(everyone, places, MOST_GROUPS)
        first = self._fit(everyone, np.array([root]), 2)
        if first is None:
            return None
        left = self.goes_left(first, everyone)
        sides = (self._fit(everyone[side], places, MOST_GROUPS // 2) for side in (left, ~left))
        return replace(first, left=next(sides), right=next(sides))

    def _fit(self, at: np.ndarray, places: np.ndarray, n_leaves: int) -> _Split | None:
        weights = self.rows.weights
        share = weights[at].sum() / weights.sum()
        tree = DecisionTreeRegressor(
            max_leaf_nodes=n_leaves,
            min_samples_leaf=self.least,
            min_weight_fraction_leaf=min(0.5, LEAST_SHARE / 2 / share) if share else 0.5,
            random_state=0,
        )
        tree.fit(self.cells[at][:, places], self._targets[at], weights[at])
        grown = tree.tree_

        def read(node: int) -> _Split | None:
            if grown.children_left[node] < 0:
                return None
            return _Split(
                int(places[grown.feature[node]]),
                float(grown.threshold[node]),
                bool(grown.missing_go_to_left[node]),
                read(int(grown.children_left[node])),
                read(int(grown.children_right[node])),
            )

        return read(0)


class _Weighed:
    """What rows need, in the units of what is lost, at one cost weight."""

    def __init__(self, needs: Needs, cost_weight: float):
        self.cost_weight = cost_weight
        self._lost, self._items = needs.lost, needs.costs.feature_items
        self._prices = cost_weight * needs.costs.prices
        weights = needs.told_rows.weights
        self._weights = weights / weights.sum()
        self.together = float(np.minimum(self._prices, self._weights @ self._lost).sum())
        self.by_row = float((self._weights @ np.minimum(self._prices, self._lost)).sum())
        self.spent = float(self._weights @ (self._lost > self._prices) @ needs.costs.prices)  # if each buys its own

    def targets(self) -> np.ndarray:
        """Of a tree that parts rows, (n, n_targets): the items that would be bought or lost for the largest sums.

        The impurity of several targets is the sum of their variances: of many, a few directions hold most of it.
        """
        found = np.minimum(self._lost, self._prices)
        largest = np.argsort(-(self._weights @ found), kind="stable")[:MOST_TARGETS]
        targets = np.sqrt(np.maximum(found[:, largest[self._prices[largest] > 0]], 0.0))
        if targets.shape[1] <= MOST_DIRECTIONS:
            return targets
        centred = targets - np.average(targets, axis=0, weights=self._weights)
        directions = np.linalg.eigh((self._weights[:, None] * centred).T @ centred)[1]
        return centred @ directions[:, -MOST_DIRECTIONS:]

    def pruned(self, tree: _Split | None, sight: _Sight) -> tuple[float, _Split | None]:
        """The value of the best pruned tree, and the tree."""

        def visit(split: _Split | None, at: np.ndarray, paid: np.ndarray) -> tuple[float, _Split | None]:
            weights = self._weights[at]
            share = float(weights.sum())
            if share == 0:
                return 0.0, None
            left_to_pay = np.where(paid, 0.0, self._prices)
            alone = share * float(np.minimum(left_to_pay, weights @ self._lost[at] / share).sum())
            if split is None:
                return alone, None
            bought = self._items[sight.columns[split.place]]
            left = sight.goes_left(split, at)
            below, left_tree = visit(split.left, at[left], paid | bought)
            above, right_tree = visit(split.right, at[~left], paid | bought)
            value = share * float(left_to_pay @ bought) + below + above
            if value > alone - SLIGHT * self.together:
                return alone, None
            return value, replace(split, left=left_tree, right=right_tree)

        return visit(tree, np.arange(len(self._weights)), self._prices == 0)


def _in_single_precision(X: Any, columns: np.ndarray) -> Any:
    """Some columns as scikit-learn's trees take them; what single precision cannot hold becomes its largest number."""
    largest = np.finfo(np.float32).max
    if is_sparse(X):
        found = columns_at(X, columns).tocsc(copy=True)
        found.data = np.clip(found.data, -largest, largest).astype(np.float32)
        return found
    single = np.empty((len(X), len(columns)), dtype=np.float32, order="F")
    for place, column in enumerate(columns):  # one by one: nothing of X is copied in double precision
        single[:, place] = np.clip(X[:, column], -largest, largest)
    return single


def _order_of_levels(codes: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The levels of a category, those that need the same beside each other: along the main direction of their means."""
    known = codes >= 0  # missing ones are not
    level = np.where(known, codes, 0).astype(int)
    n = np.bincount(level, np.where(known, weights, 0.0))
    sums = [np.bincount(level, np.where(known, weights * target, 0.0)) for target in targets.T]
    seen = np.flatnonzero(n)
    means = np.column_stack(sums)[seen] / n[seen][:, None]
    centred = (means - np.average(means, axis=0, weights=n[seen])) * np.sqrt(n[seen])[:, None]
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    return seen[np.argsort(means @ direction, kind="stable")]


def _ranked(codes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Places in the order instead of levels; missing ones come last, and so go right at every split."""
    place = np.zeros(order.max() + 1, dtype=np.float32)
    place[order] = np.arange(len(order))
    known = codes >= 0
    found = np.full(len(codes), len(order), dtype=np.float32)
    found[known] = place[codes[known].astype(int)]
    return found


def _as_partition(tree: _Split, sight: _Sight) -> Partition:
    """Parents first."""
    splits: list[_Split] = []
    features: list[np.ndarray] = []
    sides: list[list[int]] = []  # of each split, upper and lower; left is up

    def visit(split: _Split | None, on_the_way: tuple[int, ...]) -> int:
        if split is None:
            features.append(np.array(on_the_way, dtype=int))
            return -len(features)
        number = len(splits)
        splits.append(split)
        sides.append([0, 0])
        on_the_way = (*on_the_way, int(sight.columns[split.place]))
        for side, below in enumerate((split.left, split.right)):
            sides[number][side] = visit(below, on_the_way)
        return number

    visit(tree, ())
    n = len(splits)
    feature = sight.columns[[split.place for split in splits]]
    threshold = np.array([split.threshold for split in splits])
    start, count, goes_left = np.full(n, -1), np.zeros(n, dtype=int), [np.zeros(0, dtype=bool)]
    for number, column in enumerate(feature.tolist()):
        if column in sight.levels:
            order = sight.levels[column]
            goes = np.zeros(order.max() + 1, dtype=bool)
            goes[order[: int(np.floor(threshold[number])) + 1]] = True
            start[number], count[number], threshold[number] = sum(map(len, goes_left)), len(goes), 0.0
            goes_left.append(goes)
    leaves = np.arange(3 * n).reshape(n, 3)  # each stump is a root, its left leaf and its right leaf

    def each(root: np.ndarray | float, left: float, right: float, dtype: type) -> np.ndarray:
        return np.column_stack([np.broadcast_to(part, n) for part in (root, left, right)]).astype(dtype).ravel()

    here = leaves.ravel()
    left, right = here.copy(), here.copy()
    left[leaves[:, 0]], right[leaves[:, 0]] = leaves[:, 1], leaves[:, 2]
    stumps = TreePool(
        roots=leaves[:, 0],
        feature=each(feature, -1, -1, int),
        # scikit-learn writes infinity where it parts missing values from all others
        threshold=each(np.minimum(threshold, np.finfo(float).max), 0, 0, float),
        left=left,
        right=right,
        missing_left=each(np.array([split.missing_left for split in splits]), 0, 0, bool),
        zero_is_missing=np.zeros(3 * n, dtype=bool),
        category_start=each(start, -1, -1, int),
        category_count=each(count, 0, 0, int),
        category_left=np.concatenate(goes_left),
        value=each(0.0, 1.0, -1.0, float),
        linear_feature=np.full(3 * n, -1),
    )
    upper, lower = np.array(sides).T
    return Partition(stumps, upper, lower, features)
