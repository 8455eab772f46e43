"""Branches: groups of rows that need the same features, each with a chain of its own.

A chain has one order of buying for all rows.  Where rows need different features, and cheap ones tell which (`needs`,
`parting`), every group gets chains of its own, with experts and gates that learn from its rows alone (`chain`,
`gates`).  Growing them takes about as long as growing those of all rows.  So a partition is tried first, with two
ensembles for each group, one for each half of some rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..lightgbm_engine import boost
from ..lightgbm_trees import trees_of
from ..matrix import dense
from ..needs import Needs
from ..parallel import side_by_side
from ..parting import Parted, Partition
from .chain import Chain, ChainGrower, Chains
from .expert import Expert
from .gates import Policy, expect_gates, induce

__all__ = ["Branching", "Groups", "tried"]

NEEDED = 1 / 8  # a group may buy what would pay for its rows at this part of the cost weight that shows groups best


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


def tried(grower: ChainGrower, needs: Needs, parted: Parted, cost_weight: float) -> float:
    """Risk + cost_weight * cost, as it was observed, if each group buys what pays for it as a whole, and nobody stops.

    One ensemble with coupled prices for each group and half of the rows of `needs`, which is quick; the other half
    judges.  What the attributions say of a group only narrows down what it may buy: features that repeat
    each other share what they are worth, and nobody would buy any of them for its own part.
    """
    costs, rows = grower.boosting.costs, needs.rows
    group = parted.partition.groups(rows.X)
    margins, prices = np.empty((len(rows), len(grower.boosting.constant))), np.empty(len(rows))
    boosted_weight = grower.boosted_weight(cost_weight)

    def try_out(number: int, taught: bool) -> None:
        at = group == number
        teach, hear = (np.flatnonzero(at & (needs.half == side)) for side in (taught, not taught))
        if not len(hear):  # where splits tell queries apart, a group may lie in one half
            return
        own, judges = rows.take(teach), rows.take(hear)
        constant = grower.constant_of(own)
        paid, columns = _may_buy(needs, parted, number, at)
        margins[hear], used = constant, np.zeros(0, dtype=int)
        n_trees = len(parted.partition.features[number])  # the splits on the way
        if len(columns) and len(teach):
            boosting = replace(
                grower.boosting.on(columns),
                constant=constant,
                costs=costs.left_to_pay(paid, columns),
                feature_fraction=1.0,  # with samples, every tree would buy something else
                row_fraction=1.0,
            )
            booster = boost(
                boosting,
                own.on(columns),
                cost_weight=boosted_weight,
                penalty="coupled",
                validation=judges.on(columns),
            )
            pool, weights = trees_of(booster, len(constant))
            margins[hear] += pool.scores(dense(judges.on(columns).X), weights)
            used, n_trees = columns[pool.feature_order()], n_trees + pool.n_learners
        prices[hear] = costs.charge((paid | costs.items_of(used))[None, :], n_trees)[0]

    numbers = range(parted.partition.n_groups)
    tasks = [partial(try_out, number, taught) for number in numbers for taught in (True, False)]
    side_by_side(tasks, grower.boosting.n_jobs)
    losses = needs.factor * grower.stakes.value(margins, rows.y) + cost_weight * prices
    return float(np.average(losses, weights=rows.weights))


def _may_buy(needs: Needs, parted: Parted, number: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a group has paid when it is told from the others, as items, and the columns that it may look at in the end.

    `at` (bool) are the rows of the group, of those of `needs`.
    """
    costs = needs.costs
    paid = costs.items_of(parted.partition.features[number]) | (costs.prices == 0)
    worth = needs.worth(at) > NEEDED * parted.cost_weight * costs.prices
    return paid, costs.at_hand(paid | worth)


class Groups:
    """The groups of a partition, and chains for each; made once for all cost weights."""

    @classmethod
    def grow(cls, grower: ChainGrower, needs: Needs, parted: Parted, free: Expert) -> Groups | str:
        """Chains for each group; or why there are none.  `free` is the expert on free features."""
        group = parted.partition.groups(grower.rows.X)
        for number in range(parted.partition.n_groups):  # where splits tell queries apart, a group may lie in one fold
            at = group == number
            teaches = np.intersect1d(np.flatnonzero(at), grower.teachers)
            if len(np.unique(grower.folds[at])) < 2 or len(np.unique(grower.half[teaches])) < 2:
                return "a group lies in one fold"
        return cls(grower, parted, group, needs, free)

    def __init__(self, grower: ChainGrower, parted: Parted, group: np.ndarray, needs: Needs, free: Expert):
        costs, weights = grower.boosting.costs, grower.rows.weights
        partition = self.partition = parted.partition
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
        told = partition.groups(needs.rows.X)
        for number, at in enumerate(self._rows):
            paid, columns = _may_buy(needs, parted, number, told == number)
            grower.report(f"group {number + 1} of {partition.n_groups}, {len(at)} rows, {len(columns)} features")
            self._chains.append(grower.grow(at, columns, paid))
            n_splits = len(partition.features[number])
            self._prices.append(float(costs.charge(paid[None, :], n_splits)[0]))

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
