"""Orders of buying: nested stages, what decides the order, and where it is cut."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstc.experts.purchases import LEVELS, Order, Stage, orders_of
from experts.cases import boosting, resolved, rows_of, table

BILL = {"x0": 1.0, "x1": 2.0, "draw": 5.0, "x2": 1.0, "x3": 0.0, "x4": 3.0, "x5": 7.0}
SHARED = {"x1": ["draw"], "x2": ["draw"]}


def orders(costs, X, y, columns=None, paid=None, weights=None):
    columns = np.arange(X.shape[1]) if columns is None else np.array(columns)
    paid = costs.prices == 0 if paid is None else paid
    risk = float(np.average((y - np.average(y, weights=weights)) ** 2, weights=weights))
    return orders_of(boosting(costs), rows_of(X, y, weights), columns, paid, risk)


def price_of(costs, columns, paid=()):
    """By enumeration of the items."""
    items = {item for column in columns for item in np.flatnonzero(costs.feature_items[column])}
    return sum(costs.prices[item] for item in items.difference(paid))


def weighted_sum(X):
    return X @ [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]


def test_steps_are_nested_and_carry_the_exact_bill():
    X, _ = table()
    costs = resolved(BILL, SHARED, n=6)
    for order in orders(costs, X, weighted_sum(X)):
        assert list(order.steps[0].columns) == [3]
        assert order.steps[0].price == 0.0
        for before, after in itertools.pairwise(order.steps):
            assert set(before.columns) < set(after.columns)
            assert before.price < after.price
        for step in order.steps:
            assert step.price == pytest.approx(price_of(costs, step.columns))


def test_what_is_paid_is_free_and_other_columns_are_not_for_sale():
    """As in a group of rows: the splits above it have bought something, and it may buy a part of the rest."""
    X, _ = table()
    costs = resolved(BILL, SHARED, n=6)
    paid = np.array([name in ("draw", "x1", "x3") for name in costs.item_names])
    for order in orders(costs, X, weighted_sum(X), [1, 2, 3, 4], paid):
        assert list(order.steps[0].columns) == [1, 3]
        assert set(order.steps[-1].columns) == {1, 2, 3, 4}
        for step in order.steps:
            assert step.price == pytest.approx(price_of(costs, step.columns, np.flatnonzero(paid)))


def test_what_needs_no_further_item_comes_along():
    X, _ = table()
    costs = resolved({"panel": 4.0, "x4": 1.0, "x5": 1.0}, {f"x{j}": ["panel"] for j in range(4)}, n=6)
    first = orders(costs, X, X[:, 0])[0].steps[1]
    assert {0, 1, 2, 3} <= set(first.columns)
    assert first.price == 4.0


def test_one_order_by_price_and_one_by_gain():
    X, rng = table(2000)
    y = 3.0 * X[:, 5] + X[:, 0] + 0.1 * rng.normal(size=len(X))
    by_price, by_gain = orders(resolved([1.0, 1.0, 1.0, 1.0, 1.0, 50.0]), X, y)
    assert (by_price.name, by_gain.name) == ("by price", "by gain")
    assert 5 not in by_price.steps[1].columns
    assert 5 in by_gain.steps[1].columns


def test_a_feature_that_repeats_another_comes_late():
    X, _ = table(2000)
    y = X[:, 0] + 0.5 * X[:, 1]
    X[:, 2] = X[:, 0]
    stages = orders(resolved([1.0, 1.0, 1.01, 50.0, 50.0, 50.0]), X, y)[0].steps
    entered = [min(k for k, stage in enumerate(stages) if j in stage.columns) for j in (0, 1)]
    assert max(entered) < min([k for k, stage in enumerate(stages) if 2 in stage.columns], default=len(stages))


def test_weights_of_rows_decide_what_enters():
    X, _ = table(1000)
    kind = np.arange(1000) % 2 == 0
    y = np.where(kind, X[:, 0], X[:, 1])
    for heavy, first in ((kind, 0), (~kind, 1)):
        stages = orders(resolved(np.ones(6)), X, y, weights=np.where(heavy, 1.0, 1e-6))[0].steps
        assert list(stages[1].columns) == [first]


def test_equal_prices_give_one_order_and_free_features_one_stage():
    X, _ = table()
    y = X[:, 0] + 0.5 * X[:, 1]
    assert [order.name for order in orders(resolved(np.ones(6)), X, y)] == ["by price"]
    free = orders(resolved(np.zeros(6)), X, y)
    assert [[len(step.columns) for step in order.steps] for order in free] == [[6]]


def test_where_trees_have_a_price_nothing_at_all_is_the_first_stage():
    X, _ = table()
    stages = orders(resolved([0.0, 1.0, 1.0, 1.0, 1.0, 1.0], evaluation=0.1), X, weighted_sum(X))[0].steps
    assert [len(stage.columns) for stage in stages[:2]] == [0, 1]
    assert [stage.price for stage in stages[:2]] == [0.0, 0.0]


def test_prices_of_stages_grow_by_a_factor_and_stages_are_few():
    X, rng = table(1500, 40)
    prices = rng.uniform(0.5, 2.0, size=40)
    for order in orders(resolved(prices), X, X @ rng.uniform(0.5, 1.0, size=40)):
        assert len(order.steps) == 41
        assert len(order.steps[-1].columns) == 40
        cut = order.cut(8)
        assert cut == sorted(set(cut))
        assert (cut[0], cut[1], cut[-1]) == (0, 1, 40)
        assert 6 <= len(cut) <= 9
        bills = np.array([order.steps[step].price for step in cut[1:]])
        for wanted in np.geomspace(bills[0], bills[-1], 8):  # the feature that reaches it ends a stage
            assert bills[bills > wanted * (1 - 1e-6)].min() - wanted < prices.max()


def order_of(prices):
    return Order("by hand", [Stage(np.arange(k), price) for k, price in enumerate(prices)])


def test_an_order_is_cut_finer_where_what_is_lost_falls_most():
    order = order_of([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    assert order.cut_finer({0: 1.0, 1: 0.9, 3: 0.8, 7: 0.2}, 1) == [5]  # halfway by the price, from 4 to 64
    assert order.cut_finer({0: 1.0, 1: 0.9, 3: 0.5, 7: 0.4}, 1) == [2]
    # half of 0.6 on either side: both are larger than what falls elsewhere
    assert order.cut_finer({0: 1.0, 1: 0.9, 3: 0.8, 7: 0.2}, 3) == [4, 5, 6]
    assert order.cut_finer({0: 1.0, 1: 0.9, 3: 0.5, 7: 0.4}, 0) == []


def test_an_order_is_not_cut_finer_where_nothing_falls_or_nothing_lies_between():
    order = order_of([0.0, 1.0, 2.0, 4.0, 8.0])
    assert order.cut_finer({0: 1.0, 1: 0.2, 4: 0.2}, 2) == []
    assert order.cut_finer({0: 1.0, 1: 0.2, 4: 0.3}, 2) == []  # more features may lose more
    assert order.cut_finer({0: 1.0, 1: 0.2, 4: 0.195}, 2) == []  # next to nothing
    assert order.cut_finer(dict.fromkeys(range(5), 1.0), 2) == []
    assert order.cut_finer({0: 1.0, 1: 0.5, 2: 0.4, 3: 0.2, 4: 0.0}, 2) == []


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30), st.integers(1, 9), st.integers(0, 9), st.randoms())
def test_cuts_are_of_steps_that_are_there_each_once(steps, n_first, n_more, random):
    order = order_of(np.cumsum([0.0, *steps]))
    cut = order.cut(n_first)
    finer = order.cut_finer({step: random.random() for step in cut}, n_more)
    assert len(finer) <= n_more
    assert sorted({*cut, *finer}) == sorted([*cut, *finer])
    assert {*cut, *finer} <= set(range(len(order.steps)))


@pytest.mark.parametrize("value", [np.nan, 7.0])
def test_columns_that_say_nothing_are_never_bought(value):
    X, _ = table()
    X[:, :3] = value
    for order in orders(resolved(np.ones(6)), X, X[:, 4]):
        assert not {0, 1, 2} & set(order.steps[-1].columns)
    nothing = orders(resolved(np.ones(6)), np.full((100, 6), value), np.arange(100.0))
    assert [[len(step.columns) for step in order.steps] for order in nothing] == [[0]]


def test_prices_fall():
    assert (np.diff(LEVELS) <= 0).all()
    assert LEVELS[0] / LEVELS[-1] == pytest.approx(1e5)
