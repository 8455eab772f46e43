"""The order in which features are bought: nested sets of features, from free to all that is worth anything.

One ensemble is boosted while the prices fall.  A feature enters with the first split whose gain on all rows pays its
whole price at the level that prices have reached by then, so what is left to explain decides, and a feature that only
repeats an earlier one comes late.  The order in which features enter is cut into stages: first by prices that grow by
a constant factor, then, when experts tell what is lost at each of them, finer where that falls most (`chain`).

Which order is best depends on who will buy: if rows may stop on the way, an expensive feature that settles most of them
is a better beginning than a cheap one that settles few.  So there are two orders: by the prices, and by what features
explain alone.  The expected loss decides between them (`gates`), or each row does (`crossings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from ..boosting import Boosting
from ..costs import ResolvedCosts
from ..lightgbm_engine import boost_while_prices_fall
from ..lightgbm_trees import flatten_booster
from ..matrix import varying_columns
from ..parallel import side_by_side
from ..rows import Rows, some_of

__all__ = ["Order", "Stage", "orders_of"]

LEVELS = np.repeat(np.geomspace(1.0, 1e-5, 40), 6)  # six rounds at each level of the prices
BY_PRICE = {"by price": 1.0}
EXPONENTS = BY_PRICE | {"by gain": 0.0}  # of the prices, one order for each
FIRST_STAGES = 7  # that are not free, of an order; others are added where they tell most
FINER = (3, 2)  # so many, one after the other
MOST_STAGES = FIRST_STAGES + sum(FINER)
LEAST_FALL = 0.01  # part of what all stages together lose less, under which nothing is added between two of them
MOST_ROWS = 20_000  # that an order is found from


@dataclass(frozen=True, eq=False)
class Stage:
    """A set of features, and the price of having bought what they require."""

    columns: np.ndarray
    price: float


@dataclass(frozen=True, eq=False)
class Order:
    """Steps, one for each price that the order comes to, each holding the features of the one before.

    The first one is free; where evaluation costs, so are the first two, of which the first one has no features.
    """

    name: str
    steps: list[Stage]

    def cut(self, n: int) -> list[int]:
        """The steps that are free, and at most `n` others, whose prices grow by a constant factor."""
        prices = np.array([step.price for step in self.steps])
        n_free = int(np.count_nonzero(prices == 0))
        paid = prices[n_free:]
        wanted = np.geomspace(paid[0], paid[-1], n) * (1 - 1e-9) if len(paid) else paid
        return [*range(n_free), *(n_free + np.unique(np.searchsorted(paid, wanted))).tolist()]

    def cut_finer(self, known: Mapping[int, float], n: int) -> list[int]:
        """At most `n` further steps to cut at, where what is lost falls most, given what it is at `known` steps.

        Each lies halfway, by the price, between two steps that are known or taken before it.  Of what is lost less
        there, half is expected on either side.
        """
        gaps = [(known[low] - known[high], low, high) for low, high in pairwise(sorted(known))]
        least = LEAST_FALL * (max(known.values()) - min(known.values()))
        found: list[int] = []
        while len(found) < n:
            gaps = [gap for gap in gaps if gap[2] - gap[1] > 1 and gap[0] > least]
            if not gaps:
                break
            fall, low, high = gap = max(gaps)
            prices = np.log([step.price for step in self.steps[low : high + 1]])  # what is free has no gap after it
            middle = low + 1 + int(np.argmin(np.abs(prices[1:-1] - (prices[0] + prices[-1]) / 2)))
            gaps.remove(gap)
            gaps += [(fall / 2, low, middle), (fall / 2, middle, high)]
            found.append(middle)
        return sorted(found)


def orders_of(
    boosting: Boosting,
    rows: Rows,
    columns: np.ndarray,
    paid: np.ndarray,
    risk: float,
    exponents: Mapping[str, float] = EXPONENTS,
) -> list[Order]:
    """The orders of buying some columns, without repetitions.

    `paid` (bool, n_items) is at hand already; `risk` is that of the constant prediction.
    """
    local = replace(boosting.on(columns), costs=boosting.costs.left_to_pay(paid, columns))
    seen = rows if len(rows) <= MOST_ROWS else rows.take(some_of(np.arange(len(rows)), MOST_ROWS))
    seen = seen.on(columns)
    orders: list[Order] = []
    tasks = [partial(_entering, local, seen, risk, exponent) for exponent in exponents.values()]
    for name, entering in zip(exponents, side_by_side(tasks, boosting.n_jobs), strict=True):
        steps = [Stage(columns[step.columns], step.price) for step in _steps(entering, local.costs)]
        order = Order(name, steps)
        if not any(_same(order, other) for other in orders):
            orders.append(order)
    return orders


def _entering(boosting: Boosting, rows: Rows, risk: float, exponent: float) -> list[int]:
    """Columns in the order in which they enter while prices fall from "all risk for a typical feature"."""
    prices = boosting.costs.divided_prices
    priced = prices > 0
    if not (priced & varying_columns(rows.X)).any():
        return []
    prices = np.where(priced, risk * (prices / boosting.costs.typical_price) ** exponent, 0.0)
    booster = boost_while_prices_fall(boosting, rows, prices, LEVELS)
    return flatten_booster(booster, len(LEVELS)).feature_order()


def _steps(order: list[int], costs: ResolvedCosts) -> list[Stage]:
    """One for each price that is reached; what needs no further item comes along for nothing."""
    bought = costs.prices == 0
    steps = [bought]
    for column in order:
        bought = bought | costs.feature_items[column]
        steps.append(bought)
    prices, first = np.unique(costs.bills(np.array(steps)), return_index=True)
    # a column can be had from the step on at which the last of its items is bought
    since = len(steps) - np.sum(steps, axis=0)
    there = np.where(costs.feature_items, since, 0).max(axis=1, initial=0)
    found = [Stage(np.flatnonzero(there <= at), float(price)) for price, at in zip(prices, first, strict=True)]
    none = [Stage(np.zeros(0, dtype=int), 0.0)]  # where evaluation costs, even free features have a price
    return none + found if costs.evaluation and len(found[0].columns) else found


def _same(order: Order, other: Order) -> bool:
    return len(order.steps) == len(other.steps) and all(
        np.array_equal(ours.columns, theirs.columns) for ours, theirs in zip(order.steps, other.steps, strict=True)
    )
