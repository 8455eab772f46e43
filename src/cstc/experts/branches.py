"""Branches: groups of rows that need the same features, each with a chain of its own.

A chain has one order of buying for all rows.  Where rows need different features, and cheap ones tell which (`needs`,
`parting`), every group gets chains of its own, with experts and gates that learn from its rows alone (`chain`,
`gates`).  Growing them takes about as long as growing those of all rows.  So a partition is tried first, with two
ensembles for each group, one for each half of some rows.

Where gates see whole queries (`queries`), the documents of a query may lie in several groups.  What is lost by their
order is known when the best scores of all groups are, and rows are walked in all groups at once.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from .order import OrderLoss
from .queries import Beside, Queries, WholeQueries, walk_groups

__all__ = ["Branching", "Groups", "tried", "tried_together"]

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
    partition = parted.partition
    group = partition.groups(needs.rows.X)
    return _observed(grower, needs, group, partition.features, parted.cost_weight, cost_weight)


def tried_together(grower: ChainGrower, needs: Needs, parted: Parted, cost_weight: float) -> float:
    """The same if all rows buy together, as one group."""
    group, nothing = np.zeros(len(needs.rows), dtype=int), np.zeros(0, dtype=int)
    return _observed(grower, needs, group, [nothing], parted.cost_weight, cost_weight)


def _observed(
    grower: ChainGrower,
    needs: Needs,
    group: np.ndarray,
    features: Sequence[np.ndarray],
    shown_at: float,
    cost_weight: float,
) -> float:
    """What is observed of some groups that are told apart by some features each."""
    costs, rows = grower.boosting.costs, needs.rows
    margins, prices = np.empty((len(rows), len(grower.boosting.constant))), np.empty(len(rows))
    boosted_weight = grower.boosted_weight(cost_weight)

    def try_out(number: int, taught: bool) -> None:
        at = group == number
        teach, hear = (np.flatnonzero(at & (needs.half == side)) for side in (taught, not taught))
        if not len(hear):  # where splits tell queries apart, a group may lie in one half
            return
        own, judges = rows.take(teach), rows.take(hear)
        constant = grower.constant_of(own)
        paid, columns = _may_buy(needs, features[number], shown_at, at)
        margins[hear], used = constant, np.zeros(0, dtype=int)
        n_trees = len(features[number])  # the splits on the way
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

    numbers = range(len(features))
    tasks = [partial(try_out, number, taught) for number in numbers for taught in (True, False)]
    side_by_side(tasks, grower.boosting.n_jobs)
    losses = needs.factor * grower.stakes.value(margins, rows.y) + cost_weight * prices
    return float(np.average(losses, weights=rows.weights))


def _may_buy(
    needs: Needs, features: np.ndarray, cost_weight: float, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What a group has paid when it is told from the others, as items, and the columns that it may look at in the end.

    It is told apart by some features; `at` (bool) are its rows, of those of `needs`, which show groups best at this
    cost weight.
    """
    costs = needs.costs
    paid = costs.items_of(features) | (costs.prices == 0)
    worth = needs.worth(at) > NEEDED * cost_weight * costs.prices
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
            paid, columns = _may_buy(needs, partition.features[number], parted.cost_weight, told == number)
            grower.report(f"group {number + 1} of {partition.n_groups}, {len(at)} rows, {len(columns)} features")
            self._chains.append(grower.grow(at, columns, paid))
            n_splits = len(partition.features[number])
            self._prices.append(float(costs.charge(paid[None, :], n_splits)[0]))
        self._shift = 0.0
        if grower.whole_queries is not None:
            self._see_queries(grower, grower.whole_queries)

    def _see_queries(self, grower: ChainGrower, seen: WholeQueries) -> None:
        """Let gates see places, and chains lose what the order of whole queries loses."""
        n = len(grower.rows)
        best, squared = np.empty((n, 1)), np.empty(n)
        for at, chains in zip(self._rows, self._chains, strict=True):
            best[at] = chains.best
            squared[at] = chains.expected(np.tile(grower.boosting.constant, (len(at), 1)))
        order, self._shift = grower.order_loss(best, squared), grower.order_shift(best, squared)
        query = np.unique(grower.rows.qid, return_inverse=True)[1]
        first = [chains.chains[0] for chains in self._chains]
        own = [query[at[chain.at]] for at, chain in zip(self._rows, first, strict=True)]
        queries = []
        for number, mine in enumerate(own):
            others = own[:number] + own[number + 1 :]
            beside = Beside(np.concatenate(others), first[:number] + first[number + 1 :])
            queries.append(Queries(mine, seen, beside))
        self._chains = [
            replace(chains, chains=[_in_queries(chain, at, order, each) for chain in chains.chains])
            for at, chains, each in zip(self._rows, self._chains, queries, strict=True)
        ]

    def induce(self, cost_weight: float) -> Branching:
        """The best policy of each group."""
        expect_gates([chain for chains in self._chains for chain in chains.chains])
        chosen = []
        for chains in self._chains:
            policies = [(chain, induce(chain, cost_weight)) for chain in chains.chains]
            chosen.append(min(policies, key=lambda pair: pair[1].loss))
        if chosen[0][0].queries is not None:
            chosen = _walked_together(chosen, cost_weight)
        value = np.empty(len(self._teacher_weights))
        reached, costs = [], []
        for at, teachers, (_, policy), price in zip(self._rows, self._teachers, chosen, self._prices, strict=True):
            share = float(self._weights[at].sum())
            value[teachers] = policy.value + cost_weight * price + self._shift
            reached.append(share * policy.reached)
            costs.append(share * (policy.mean_cost + price))
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


def _in_queries(chain: Chain, at: np.ndarray, order: OrderLoss | None, queries: Queries) -> Chain:
    """A chain of a group, the rows `at`, whose gates see places, with what the order of whole queries loses."""
    if order is None:
        return replace(chain, queries=queries)
    rows = at[chain.at]
    losses = [
        order.mixed(lost, expert.margins[chain.at], rows)
        for lost, expert in zip(chain.losses.T, chain.experts, strict=True)
    ]
    return replace(chain, losses=np.column_stack(losses), queries=queries)


def _walked_together(chosen: list[tuple[Chain, Policy]], cost_weight: float) -> list[tuple[Chain, Policy]]:
    """Where rows stop when the documents of a query go in step, whatever group they are in.

    Gates have learned beside what others have for the same money, and now see what they have at the same level.  A
    group whose gates do worse with that than one stage for all its rows gets that stage.
    """
    found, worse = list(chosen), True
    while worse:
        walked = walk_groups([(chain, policy.stages, policy.gates) for chain, policy in found])
        worse = False
        for number, steps in enumerate(walked):
            chain, policy = found[number]
            alone = chain.losses + cost_weight * chain.prices
            best = int(np.argmin(chain.weights @ alone))
            paid = chain.prices[steps.stops] + steps.paid
            value = chain.losses[np.arange(len(paid)), steps.stops] + cost_weight * paid
            stages, gates, stops = policy.stages, policy.gates, steps.stops
            if gates and chain.mean(alone[:, best]) <= chain.mean(value):
                worse, stages, gates, stops = True, [best], [], np.full(len(paid), best)
                paid, value = chain.prices[stops], alone[:, best]
            policy = replace(
                policy,
                stages=stages,
                gates=gates,
                value=value,
                mean_value=chain.mean(value),
                mean_cost=chain.mean(paid),
                loss_history=np.append(policy.loss_history, chain.mean(value)),
                reached=np.array([chain.mean(stops == stage) for stage in stages]),
                stops=stops,
                paid=paid,
            )
            found[number] = chain, policy
    return found
