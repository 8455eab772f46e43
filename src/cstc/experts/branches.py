"""Branches: groups of rows that need the same features, each with a chain of its own.

A chain has one order of buying for all rows.  What a row needs is known from an ensemble that buys on its branches
(`lazy`): rows on which it buys alike belong together.  So a few cheap features are looked for that tell what a row
will buy.  A regression tree on them, with the purchases as its targets, each weighted by its price, parts the rows: its
impurity is the money that is wasted if all rows of a group buy what any of them needs.  Every group then gets chains
of its own, with experts and gates that learn from its rows alone (`chain`, `gates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from ..costs import ResolvedCosts
from ..matrix import columns_at, is_sparse, missing_columns
from ..model import TreePool
from ..rows import Rows
from .chain import Chain, ChainGrower, Chains
from .expert import Expert
from .gates import Policy, expect_gates, induce

__all__ = ["MOST_ROWS", "Branching", "Groups", "Partition", "part"]

MOST_GROUPS = 8
LEAST_ROWS = 150  # of a group
LEAST_SHARE = 0.04
NEEDED = 0.1  # a group may buy what at least this share of its rows buys
WORTHWHILE = 0.8  # part of the waste that may be left
CHEAP = (0.01, 0.05)  # part of what a row spends that a feature may cost which tells its group; both are tried
MOST_TARGETS = 64  # purchases that the partition looks at
MOST_ROWS = 50_000  # that tell groups apart: the smallest one has 2,000 of them


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


def part(
    X: Any, weights: np.ndarray, bought: Sequence[np.ndarray], costs: ResolvedCosts, columns: np.ndarray
) -> Partition | None:
    """The partition that wastes least, the price of its own features included; None if it would not save much.

    Each of `bought` is a table of items, (n, n_items), as bought at another strength of the prices: strong ones show
    best which rows differ, weak ones in what.  Splits may look at `columns`, if they are cheap.
    """
    needs = _Needs(np.hstack(bought), weights, costs, len(bought))
    waste = needs.wasted()
    targets = np.argsort(-waste, kind="stable")[: MOST_TARGETS * len(bought)]
    targets = targets[waste[targets] > 1e-9 * needs.bill]  # not only rounding
    n = X.shape[0]
    least = max(LEAST_ROWS, int(LEAST_SHARE * n))
    if not len(targets) or n < 2 * least:
        return None
    money = needs.bought[:, targets] * np.sqrt(needs.prices[targets])
    if is_sparse(X):  # scikit-learn's trees take no missing values of a sparse matrix
        columns = columns[~missing_columns(X)[columns]]
    best, least_waste = None, WORTHWHILE * float(waste.sum())
    for cheap in CHEAP:
        told_by = columns[costs.feature_prices[columns] <= cheap * needs.bill]
        if not len(told_by):
            continue
        tree = DecisionTreeRegressor(
            max_leaf_nodes=MOST_GROUPS,
            min_samples_leaf=least,
            min_weight_fraction_leaf=LEAST_SHARE / 2,
            random_state=0,
        )
        tree.fit(_in_single_precision(X, told_by), money, needs.weights)
        if tree.tree_.node_count == 1:
            continue
        found = _as_partition(tree.tree_, told_by)
        group = found.groups(X)
        if np.bincount(group, weights > 0, minlength=found.n_groups).min() < least / 2:
            continue  # values that single precision cannot tell apart
        left = float(sum(needs.wasted(group == g, on_the_way).sum() for g, on_the_way in enumerate(found.features)))
        if left < least_waste:
            best, least_waste = found, left
    return best


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


class _Needs:
    """What rows buy, and what they would waste if they bought together."""

    def __init__(self, bought: np.ndarray, weights: np.ndarray, costs: ResolvedCosts, n_tables: int):
        self.bought = bought
        self.weights = weights / weights.sum()
        self.prices = np.tile(costs.prices, n_tables) / n_tables
        self.bill = float(self.weights @ bought @ self.prices)
        self._items = np.tile(costs.feature_items, n_tables)

    def wasted(self, at: Any = slice(None), on_the_way: Any = ()) -> np.ndarray:
        """For each item, what a row of these pays on average that does not need it, times their share of all rows.

        What the splits `on_the_way` look at all of them buy; else only as many as need it, but they may be others.
        """
        weights = self.weights[at]
        share = np.average(self.bought[at], axis=0, weights=weights)
        all_buy = self._items[list(on_the_way)].any(axis=0)
        return weights.sum() * np.where(all_buy, 1.0, share) * (1 - share) * self.prices


def _as_partition(tree, columns: np.ndarray) -> Partition:
    """From scikit-learn's arrays, in which parents come first too."""
    inner = np.flatnonzero(tree.children_left >= 0)
    split_of = {int(node): split for split, node in enumerate(inner)}
    features: list[np.ndarray] = []
    sides = np.empty((2, len(inner)), dtype=int)

    def visit(node: int, on_the_way: tuple[int, ...]) -> int:
        if node not in split_of:
            features.append(np.array(on_the_way, dtype=int))
            return -len(features)
        split, column = split_of[node], int(columns[tree.feature[node]])
        for side, children in enumerate((tree.children_left, tree.children_right)):
            sides[side, split] = visit(int(children[node]), (*on_the_way, column))
        return split

    visit(0, ())
    n = len(inner)
    leaves = np.arange(3 * n).reshape(n, 3)  # each stump is a root, its left leaf and its right leaf

    def each(root: np.ndarray | float, left: float, right: float, dtype: type) -> np.ndarray:
        return np.column_stack([np.broadcast_to(part, n) for part in (root, left, right)]).astype(dtype).ravel()

    here = leaves.ravel()
    left, right = here.copy(), here.copy()
    left[leaves[:, 0]], right[leaves[:, 0]] = leaves[:, 1], leaves[:, 2]
    stumps = TreePool(
        roots=leaves[:, 0],
        feature=each(columns[tree.feature[inner]], -1, -1, int),
        # scikit-learn writes infinity where it parts missing values from all others
        threshold=each(np.minimum(tree.threshold[inner], np.finfo(float).max), 0, 0, float),
        left=left,
        right=right,
        missing_left=each(tree.missing_go_to_left[inner], 0, 0, bool),
        zero_is_missing=np.zeros(3 * n, dtype=bool),
        category_start=np.full(3 * n, -1),
        category_count=np.zeros(3 * n, dtype=int),
        category_left=np.zeros(0, dtype=bool),
        value=each(0.0, 1.0, -1.0, float),
        linear_feature=np.full(3 * n, -1),
    )
    return Partition(stumps, sides[0], sides[1], features)


@dataclass(frozen=True, eq=False)
class Branching:
    """A policy for each group, for one cost weight.

    Attributes
    ----------
    partition : Partition
    answers : list of Expert
        What each split answers with, where the features of its group are not to be had.
    chosen : list of (Chain, Policy)
        One for each group.
    rows : list of int ndarray
        The training rows of each group.
    prices : list of float
        What the splits cost on the way to each group.
    value : ndarray of shape (n,)
        Expected risk + cost_weight * price at each row that teaches gates, out of fold; splits included.
    mean_value, mean_cost : float
        Over the rows.
    reached : ndarray
        Share of the training rows that stops at each stage of each group, out of fold.
    """

    partition: Partition
    answers: list[Expert]
    chosen: list[tuple[Chain, Policy]]
    rows: list[np.ndarray]
    prices: list[float]
    value: np.ndarray
    mean_value: float
    mean_cost: float
    reached: np.ndarray


class Groups:
    """The groups of a partition, and chains for each; made once for all cost weights."""

    @classmethod
    def find(cls, grower: ChainGrower, told_by: Rows, bought: Sequence[np.ndarray], free: Expert) -> Groups | str:
        """Groups of rows that buy alike; or why there are none.

        `bought` is what some of the rows, `told_by`, buy.  Of its first table each group may buy its part; `free` is
        the expert on free features.
        """
        rows, boosting = grower.rows, grower.boosting
        columns = np.setdiff1d(np.arange(rows.X.shape[1]), boosting.categorical)  # its trees know numbers only
        partition = part(told_by.X, told_by.weights, bought, boosting.costs, columns)
        if partition is None:
            return "no groups that buy alike"
        group = partition.groups(rows.X)
        for number in range(partition.n_groups):  # where splits tell queries apart, a group may lie in one fold
            at = group == number
            teaches = np.intersect1d(np.flatnonzero(at), grower.teachers)
            if len(np.unique(grower.folds[at])) < 2 or len(np.unique(grower.half[teaches])) < 2:
                return "a group lies in one fold"
        return cls(grower, partition, group, told_by, bought[0], free)

    def __init__(
        self,
        grower: ChainGrower,
        partition: Partition,
        group: np.ndarray,
        told_by: Rows,
        bought: np.ndarray,
        free: Expert,
    ):
        costs, weights = grower.boosting.costs, grower.rows.weights
        self.partition = partition
        self._weights = weights / weights.sum()
        taught = group[grower.teachers]
        self._teachers = [np.flatnonzero(taught == number) for number in range(partition.n_groups)]
        self._teacher_weights = weights[grower.teachers] / weights[grower.teachers].sum()
        self._rows = [np.flatnonzero(group == number) for number in range(partition.n_groups)]
        self._answers = [
            grower.cheapest(np.flatnonzero(np.isin(group, partition.below(split))), free)
            for split in range(partition.splits.n_learners)
        ]
        self._chains: list[Chains] = []
        self._prices: list[float] = []
        told = partition.groups(told_by.X)
        for number, (at, features) in enumerate(zip(self._rows, partition.features, strict=True)):
            paid = costs.items_of(features) | (costs.prices == 0)
            own = told == number
            needed = paid | (np.average(bought[own], axis=0, weights=told_by.weights[own]) >= NEEDED)
            columns = costs.at_hand(needed)
            grower.report(f"group {number + 1} of {partition.n_groups}, {len(at)} rows, {len(columns)} features")
            self._chains.append(grower.grow(at, columns, paid))
            self._prices.append(float(costs.charge(paid[None, :], len(features))[0]))

    def induce(self, cost_weight: float) -> Branching:
        """The best policy of each group."""
        expect_gates([chain for chains in self._chains for chain in chains.chains])
        value = np.empty(len(self._teacher_weights))
        chosen, reached, costs = [], [], []
        for at, teachers, chains, price in zip(self._rows, self._teachers, self._chains, self._prices, strict=True):
            policies = [(chain, induce(chain, cost_weight)) for chain in chains.chains]
            chain, policy = min(policies, key=lambda pair: pair[1].loss)
            share = float(self._weights[at].sum())
            value[teachers] = policy.value + cost_weight * price
            reached.append(share * policy.reached)
            costs.append(share * (policy.mean_cost + price))
            chosen.append((chain, policy))
        return Branching(
            partition=self.partition,
            answers=self._answers,
            chosen=chosen,
            rows=self._rows,
            prices=self._prices,
            value=value,
            mean_value=float(self._teacher_weights @ value),
            mean_cost=sum(costs),
            reached=np.concatenate(reached),
        )
