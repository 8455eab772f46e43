"""Ensembles of LightGBM: what they are of, who stops them, learners that know prices, gates."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from boosted import FEW, MANY, N, each_loss_name, margins_of, problem, table
from builders import LOSSES
from cstc.boosting import GATE_ROUNDS, rounds_of
from cstc.costs import CostModel
from cstc.lightgbm_engine import Binned, GainRegression, boost, boost_while_prices_fall
from cstc.lightgbm_trees import flatten_booster, trees_of
from cstc.parallel import side_by_side
from cstc.rows import Rows


@each_loss_name
def test_an_ensemble_is_the_constant_plus_its_trees(loss_name):
    boosting, rows = problem(loss_name, categorical=(MANY, FEW))
    booster, loss = boost(boosting, rows), LOSSES[loss_name]
    pool, weights = trees_of(booster, loss.n_outputs)
    raw = booster.predict(rows.X, raw_score=True).reshape(N, -1)  # knows nothing of the scores that it started from
    np.testing.assert_allclose(pool.transform(rows.X) @ weights, raw, atol=1e-10)
    np.testing.assert_array_equal(weights.sum(axis=1), 1)  # each tree adds to one output
    alone = loss.risk(np.tile(boosting.constant, (N, 1)), rows.y, rows.weights)
    assert loss.risk(margins_of(boosting, booster, rows.X), rows.y, rows.weights) < 0.8 * alone
    np.testing.assert_array_equal(
        trees_of(booster, loss.n_outputs, 3)[0].transform(rows.X), pool.transform(rows.X)[:, : 3 * loss.n_outputs]
    )


@pytest.mark.parametrize("penalty", ["lazy", "coupled"])
def test_weights_of_rows_count_and_their_sum_does_not(penalty):
    """Nor for what a price is compared with."""
    boosting, rows = problem()

    def answers(weights):
        booster = boost(boosting, replace(rows, weights=weights), cost_weight=0.02, penalty=penalty)
        return margins_of(boosting, booster, rows.X)

    first = answers(rows.weights)
    np.testing.assert_allclose(answers(64 * rows.weights), first, atol=1e-9)
    assert not np.allclose(answers(rows.weights[::-1]), first)


def test_seed_gives_the_same_trees_twice_and_others_give_others():
    """Whatever the number of threads."""
    boosting, rows = problem(random_state=3, feature_fraction=0.5)
    one, two, other = (
        margins_of(each, boost(each, rows), rows.X)
        for each in (boosting, replace(boosting, n_jobs=2), replace(boosting, random_state=4))
    )
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


@pytest.mark.parametrize("cost_weight", [0.0, 0.01])
def test_a_fit_of_very_many_rows_takes_all_threads_for_the_same_trees(cost_weight, monkeypatch):
    boosting, rows = problem(random_state=3, feature_fraction=0.5, row_fraction=0.8)
    given = []
    train = lightgbm.train

    def watched(parameters, *others, **options):
        given.append(parameters)
        return train(parameters, *others, **options)

    monkeypatch.setattr(lightgbm, "train", watched)
    columns = np.arange(rows.X.shape[1])

    def trees(n_jobs):
        each = replace(boosting, n_jobs=n_jobs)
        whole = Binned(each, rows, columns, None).boost_all(5)
        return [flatten_booster(booster) for booster in (boost(each, rows, cost_weight=cost_weight), whole)]

    usual = trees(3)
    assert [parameters["num_threads"] for parameters in given] == [1, 1]
    monkeypatch.setattr("cstc.lightgbm_engine.VERY_MANY_ROWS", len(rows))
    for one, other in zip(usual, trees(3), strict=True):
        for name, values in vars(one).items():
            if isinstance(values, np.ndarray):
                np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)
    assert [parameters["num_threads"] for parameters in given[2:]] == [3, 3]
    side_by_side([lambda: trees(3)] * 2, 2)
    assert {parameters["num_threads"] for parameters in given[4:]} == {1}


def test_validation_data_stops_boosting():
    y = np.random.default_rng(0).normal(size=N)
    judge = Rows(table(1), y[::-1], np.ones(N))
    for patience, expected in ((3, range(1, 50)), (None, [50])):
        boosting, rows = problem(y=y, n_rounds=50, early_stopping=patience)
        booster = boost(boosting, rows, validation=judge)
        assert rounds_of(booster) == trees_of(booster, 1)[0].n_learners
        assert rounds_of(booster) in expected
    assert rounds_of(boost(boosting, rows, n_rounds=7)) == 7


# -- learners that know prices -------------------------------------------------------------------------------------


def mean_price(boosting, booster, X, prices):
    """Of the branches that rows take, all trees together."""
    pool, _ = trees_of(booster, 1)
    return (pool.bought_items(X, boosting.costs.feature_items) @ prices).mean()


@pytest.mark.parametrize("penalty", ["lazy", "coupled"])
def test_higher_cost_weights_buy_less(penalty):
    prices = np.array([20.0, 1.0, 5.0, 5.0, 5.0])
    boosting, rows = problem(prices=prices, n_rounds=20)
    cost = [
        mean_price(boosting, boost(boosting, rows, cost_weight=weight, penalty=penalty), rows.X, prices)
        for weight in (0.0, 1e-3, 1e-2, 3e-2, 1.0)
    ]
    assert (np.diff(cost) <= 0).all()
    assert 0 == cost[-1] < cost[-2] < 0.9 * cost[0]


def binary_steps():
    """One column that lowers the mean squared risk by 1 for all rows; nothing else does."""
    x = np.tile([1.0, -1.0], 200)
    X = np.column_stack([x, np.zeros((400, 4))])
    return X, x


@pytest.mark.parametrize("penalty", ["lazy", "coupled"])
@pytest.mark.parametrize("price", [0.5, 2.0])
def test_a_split_is_bought_just_when_it_lowers_the_risk_by_more_than_its_price(price, penalty):
    """Risk falls by 1 a row: with ``cost_weight * price`` a little below, the split is made; above, it is not."""
    X, y = binary_steps()
    boosting, rows = problem(X=X, y=y, prices=(price, 1, 1, 1, 1), n_rounds=1, weights=np.ones(400))
    for factor, expected in ((0.98, 1), (1.02, 0)):
        booster = boost(boosting, rows, cost_weight=factor / price, penalty=penalty)
        assert trees_of(booster, 1)[0].n_learners == expected


@pytest.mark.parametrize("penalty", ["lazy", "coupled"])
def test_the_price_of_a_split_is_in_units_of_the_log_loss_too(penalty):
    """A sign moves the share of a class from 0.6 to 0.4."""
    X, x = binary_steps()
    y = np.where(np.arange(400) % 10 < 6, x > 0, x < 0).astype(int)  # right in 6 of 10 rows of each sign
    boosting, rows = problem("logistic", X=X, y=y, prices=(1,) * 5, n_rounds=1, weights=np.ones(400))
    shares = np.where(x > 0, y[x > 0].mean(), y[x < 0].mean())
    loss = LOSSES["logistic"]
    told = loss.risk(np.log(shares / (1 - shares))[:, None], y)
    drop = loss.risk(np.tile(boosting.constant, (400, 1)), y) - told
    assert drop > 0.01
    for factor, expected in ((0.9, 1), (1.1, 0)):
        booster = boost(boosting, rows, cost_weight=factor * drop, penalty=penalty)
        assert trees_of(booster, 1)[0].n_learners == expected


def test_features_that_share_an_item_pay_for_it_together():
    """Five features share a call of price 2, so each pays 0.4; a split that is worth more than that is made."""
    X, y = binary_steps()
    shared = CostModel({"call": 2.0}, {name: ["call"] for name in "abcde"}).resolve("abcde")
    boosting, rows = problem(X=X, y=y, n_rounds=1, weights=np.ones(400))
    boosting = replace(boosting, costs=shared)
    for factor, expected in ((0.98, 1), (1.02, 0)):
        assert trees_of(boost(boosting, rows, cost_weight=factor * 5 / 2.0), 1)[0].n_learners == expected


def test_a_free_copy_of_an_expensive_feature_is_preferred():
    X = table(missing=0.0)
    X[:, 1] = X[:, 0]
    boosting, rows = problem(X=X, y=X[:, 0], prices=(10, 0, 10, 10, 10))
    pool, _ = trees_of(boost(boosting, rows, cost_weight=0.01), 1)
    assert set(pool.feature[pool.feature >= 0]) == {1}


def test_a_lazy_price_is_paid_by_the_rows_that_a_split_sees_and_a_coupled_one_by_all():
    """Half of the rows gain from the second column: 0.5 in the mean over all, 1 in the mean over their own."""
    first, second = np.repeat([1.0, -1.0], 200), np.tile([1.0, -1.0], 200)
    X = np.column_stack([first, second, np.zeros((400, 3))])
    y = 10 * first + np.where(first > 0, second, 0)
    boosting, rows = problem(X=X, y=y, prices=(0, 1, 1, 1, 1), n_rounds=1, depth=2, weights=np.ones(400))
    for penalty, weight, expected in (("lazy", 0.9, {0, 1}), ("lazy", 1.1, {0}), ("coupled", 0.45, {0, 1})):
        pool, _ = trees_of(boost(boosting, rows, cost_weight=weight, penalty=penalty), 1)
        assert set(pool.feature[pool.feature >= 0]) == expected
    pool, _ = trees_of(boost(boosting, rows, cost_weight=0.55, penalty="coupled"), 1)
    assert set(pool.feature[pool.feature >= 0]) == {0}


def test_features_enter_in_the_order_of_gain_for_price_while_prices_fall():
    """Three signs lower the risk by 4, 1 and 1; the price of each is paid once that is worth it."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (N, 5))
    effects, prices = np.array([2.0, 1.0, 1.0, 0.0, 0.0]), np.array([1.0, 4.0, 0.5, 1.0, 1.0])
    boosting, rows = problem(X=X, y=X @ effects, depth=1, learning_rate=0.3)
    levels = np.repeat(np.geomspace(50.0, 0.01, 60), 2)

    def order(prices, levels):
        """Features in the order in which they enter; a round without a split leaves no tree."""
        pool = flatten_booster(boost_while_prices_fall(boosting, rows, prices, levels), len(levels))
        asked = pool.feature[pool.roots]
        return list(dict.fromkeys(asked[asked >= 0].tolist()))

    assert order(prices, levels)[:3] == [0, 2, 1]
    assert order(prices[[0, 2, 1, 3, 4]], levels)[:3] == [0, 1, 2]
    assert order(prices, levels[:20]) == []  # where the level stays this high, nothing is worth its price


# -- gates ---------------------------------------------------------------------------------------------------------


def test_gates_learn_one_target_after_another_from_the_same_columns():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(600, 2)), rng.integers(0, 4, 600)])
    weights = rng.uniform(0.5, 2, 600)
    boosting, _ = problem(categorical=(2,))
    columns, at = np.array([2, 0]), np.arange(600)
    regression = GainRegression(boosting, Rows(X, np.zeros(600), weights), at, columns, None)
    targets = [np.sign(X[:, 0]), np.where(np.isin(X[:, 2], [0, 3]), 1.0, -1.0), X[:, 1]]
    errors, boosters = [], []
    for target in targets:
        booster = regression.fit(target)
        boosters.append(booster)
        pool = flatten_booster(booster)
        assert pool.n_learners == GATE_ROUNDS
        predicted = pool.on_columns(columns).transform(X).sum(axis=1)
        errors.append(np.average((predicted - target) ** 2, weights=weights) / np.average(target**2, weights=weights))
        assert set(pool.feature[pool.category_start >= 0]) <= {0}  # the categories stand first among these columns
    assert max(errors[:2]) < 0.1
    assert errors[2] > 0.5  # it is not told this column
    again = GainRegression(boosting, Rows(X, np.zeros(600), weights), at, columns, None).fit(targets[0])
    np.testing.assert_array_equal(
        flatten_booster(again).transform(X[:, columns]), flatten_booster(boosters[0]).transform(X[:, columns])
    )


def test_gates_weigh_their_rows():
    rng = np.random.default_rng(0)
    X, target = rng.normal(size=(400, 1)), np.repeat([1.0, -1.0], 200)
    boosting, _ = problem()
    means = []
    for weights in (np.ones(400), np.repeat([9.0, 1.0], 200)):
        regression = GainRegression(boosting, Rows(X, target, weights), np.arange(400), np.array([0]), None)
        booster = regression.fit(target)
        means.append(flatten_booster(booster).transform(X).sum(axis=1).mean())
    assert abs(means[0]) < 0.2 < means[1]
