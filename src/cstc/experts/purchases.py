"""The order in which features are bought: nested sets of features, from free to all that is worth anything.

One ensemble is boosted while the prices fall.  A feature enters with the first split whose gain on all rows pays its
whole price at the level that prices have reached by then, so what is left to explain decides, and a feature that only
repeats an earlier one comes late.  The order in which features enter is cut into stages whose prices grow by a
constant factor.

Which order is best depends on who will buy: if rows may stop on the way, an expensive feature that settles most of them
is a better beginning than a cheap one that settles few.  So there are two orders: by the prices, and by what features
explain alone.  The expected loss decides between them (`gates`), or each row does (`crossings`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

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
EXPONENTS = {"by price": 1.0, "by gain": 0.0}  # of the prices, one order for each
MOST_STAGES = 12
MOST_ROWS = 20_000  # that an order is found from


@dataclass(frozen=True, eq=False)
class Stage:
    """A set of features, and the price of having bought what they require."""

    columns: np.ndarray
    price: float


@dataclass(frozen=True, eq=False)
class Order:
    """Stages, each holding the features of the one before; the first one is free."""

    name: str
    stages: list[Stage]


def orders_of(boosting: Boosting, rows: Rows, columns: np.ndarray, paid: np.ndarray, risk: float) -> list[Order]:
    """The orders of buying some columns, without repetitions.

    `paid` (bool, n_items) is at hand already; `risk` is that of the constant prediction.
    """
    costs = boosting.costs
    prices = np.where(paid, 0.0, costs.prices)
    bill = replace(costs, prices=prices, feature_items=costs.feature_items[columns])
    local = replace(boosting.on(columns), costs=bill)
    seen = rows if len(rows) <= MOST_ROWS else rows.take(some_of(np.arange(len(rows)), MOST_ROWS))
    seen = seen.on(columns)
    orders: list[Order] = []
    tasks = [partial(_entering, local, seen, risk, exponent) for exponent in EXPONENTS.values()]
    for name, entering in zip(EXPONENTS, side_by_side(tasks, boosting.n_jobs), strict=True):
        stages = _stages(entering, local.costs)
        order = Order(name, [Stage(columns[stage.columns], stage.price) for stage in stages])
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


def _stages(order: list[int], costs: ResolvedCosts) -> list[Stage]:
    """Cut the order where the price has grown enough; what needs no further item comes along for nothing."""
    bought = costs.prices == 0
    steps = [bought]
    for column in order:
        bought = bought | costs.feature_items[column]
        steps.append(bought)
    prices = costs.bills(np.array(steps))
    paid = np.unique(prices[prices > 0])
    ends = [0]
    if len(paid):
        wanted = np.geomspace(paid[0], paid[-1], MOST_STAGES) * (1 - 1e-9)
        ends += [int(np.searchsorted(prices, paid[k])) for k in np.unique(np.searchsorted(paid, wanted))]
    stages = [Stage(costs.at_hand(steps[end]), float(prices[end])) for end in ends]
    none = [Stage(np.zeros(0, dtype=int), 0.0)]  # where evaluation costs, even free features have a price
    return none + stages if costs.evaluation and len(stages[0].columns) else stages


def _same(order: Order, other: Order) -> bool:
    return len(order.stages) == len(other.stages) and all(
        np.array_equal(ours.columns, theirs.columns) for ours, theirs in zip(order.stages, other.stages, strict=True)
    )
