"""Boosted trees: flat copies that answer as LightGBM does, folds, learners that know prices, gates."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

import reference
from builders import LOSSES
from cstc.boosting import (
    GATE_ROUNDS,
    Binned,
    Boosting,
    GainRegression,
    Lambdarank,
    bin_blocks,
    boost,
    boost_while_prices_fall,
    flatten_booster,
    rounds_of,
    trees_of,
)
from cstc.costs import CostModel
from cstc.model import TreePool
from cstc.parallel import side_by_side
from cstc.rows import Rows, Units

each_loss_name = pytest.mark.parametrize("loss_name", list(LOSSES))
MANY, FEW = 3, 4  # categorical columns: one with 40 categories, which LightGBM splits as sets, and one with 3
N = 400


def table(seed=0, n=N, *, missing=0.1, categories=40):
    """Three columns of numbers with zeros among them, two of categories, and missing values in all."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 5)), 1)
    X[:, MANY], X[:, FEW] = rng.integers(0, categories, n), rng.integers(0, 3, n)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def target(X, loss_name, seed=0):
    rng = np.random.default_rng(seed)
    effect = rng.normal(size=40)[np.nan_to_num(X[:, MANY]).astype(int)]
    score = np.nan_to_num(X[:, 0], nan=1.0) + effect + (X[:, FEW] == 1) + 0.3 * rng.normal(size=len(X))
    if loss_name == "squared":
        return score - score.mean()
    return (score > 0).astype(int) if loss_name == "logistic" else np.digitize(score, [-0.5, 0.8])


def train(X, y, loss_name, *, rounds=8, categorical=(MANY, FEW), validation=None, **parameters):
    parameters = {
        "objective": LOSSES[loss_name].objective,
        "num_leaves": 12,
        "num_threads": 1,
        "verbosity": -1,
    } | parameters
    if loss_name == "softmax":
        parameters["num_class"] = 3
    data = lightgbm.Dataset(X, y, categorical_feature=list(categorical))
    if validation is None:
        return lightgbm.train(parameters, data, rounds)
    stop = lightgbm.early_stopping(2, verbose=False)
    options = {"valid_sets": [data.create_valid(*validation)], "callbacks": [stop], "keep_training_booster": True}
    return lightgbm.train(parameters, data, rounds, **options)


def assert_same_outputs(booster, X):
    pool = flatten_booster(booster)
    expected = booster.predict(X, raw_score=True)
    n_outputs = booster.num_model_per_iteration()
    phi = pool.transform(X)
    sums = np.stack([phi[:, k::n_outputs].sum(axis=1) for k in range(n_outputs)], axis=1)
    np.testing.assert_allclose(sums.reshape(expected.shape), expected, rtol=0, atol=1e-10)
    return pool


def problem(loss_name="squared", *, X=None, y=None, prices=(1, 2, 3, 4, 5), weights=None, **options):
    """How to boost, from the best constant on, and the rows to boost on."""
    X = table() if X is None else X
    y = target(X, loss_name) if y is None else y
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weights is None else weights
    rows = Rows(X, y, weights)
    settings = {"n_rounds": 10, "depth": 3, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    costs = CostModel(prices).resolve("abcde"[: len(prices)])
    return Boosting(loss=LOSSES[loss_name], costs=costs, **settings | options).starting_at(rows), rows


# -- flat copies ---------------------------------------------------------------------------------------------------


@each_loss_name
def test_flat_trees_predict_as_the_booster(loss_name):
    X = table()
    pool = assert_same_outputs(train(X, target(X, loss_name), loss_name), X)
    assert pool.category_count.max() > 10  # sets of many categories were met
    assert pool.missing_left[pool.feature >= 0].any()


def test_unseen_categories_and_values_beyond_training():
    X = table()
    booster = train(X, target(X, "squared"), "squared")
    new = 3 * table(1, missing=0.3, categories=90)
    new[:5, MANY] = [-1, -7, 1e6, 39.5, 2.5]
    assert_same_outputs(booster, new)


def test_zero_as_missing():
    X = table()
    pool = assert_same_outputs(train(X, target(X, "squared"), "squared", zero_as_missing=True), X)
    assert pool.zero_is_missing.any()
    assert_same_outputs(train(X, target(X, "squared"), "squared", zero_as_missing=True), table(2, missing=0.3))


def test_missing_values_that_training_never_saw_go_with_the_majority():
    X = table(missing=0.0)[:, :1]
    pool = flatten_booster(train(X, X[:, 0] > 1, "squared", categorical=(), rounds=1, num_leaves=2))
    assert pool.transform(np.array([[np.nan]])) == pool.transform(np.array([[-3.0]]))


def test_early_stopped_booster_is_copied_up_to_its_best_round():
    X = table()
    y = np.random.default_rng(0).normal(size=N)
    booster = train(X, y, "squared", rounds=50, validation=(table(1), y))
    assert 0 < booster.best_iteration < booster.current_iteration()
    assert assert_same_outputs(booster, X).n_learners == booster.best_iteration


def test_a_booster_may_be_copied_in_part():
    X = table()
    booster = train(X, target(X, "softmax"), "softmax")
    phi = flatten_booster(booster).transform(X)
    np.testing.assert_array_equal(flatten_booster(booster, 3).transform(X), phi[:, : 3 * 3])


# -- ensembles -----------------------------------------------------------------------------------------------------


def margins_of(boosting, booster, X, n_rounds=None):
    """The constant plus all trees."""
    pool, weights = trees_of(booster, len(boosting.constant), n_rounds)
    return pool.transform(X) @ weights + boosting.constant


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


@each_loss_name
def test_boosting_starts_at_the_best_constant_of_some_rows(loss_name):
    boosting, rows = problem(loss_name)
    some = rows.take(np.arange(50))
    other = boosting.starting_at(some, n_rounds=7)
    np.testing.assert_array_equal(other.constant, LOSSES[loss_name].constant(some.y, some.weights))
    assert (other.n_rounds, other.depth) == (7, boosting.depth)
    far = replace(boosting, constant=boosting.constant + np.arange(1, len(boosting.constant) + 1))
    start, moved = (trees_of(boost(each, rows), len(each.constant))[0].transform(rows.X) for each in (boosting, far))
    assert not np.allclose(start, moved)  # the trees make up for another start


@each_loss_name
def test_lightgbm_starts_from_the_constant_of_each_class(loss_name):
    """Its own metric before anything was learned is the risk of the constant."""
    boosting, rows = problem(loss_name)
    found = {}
    data = boosting.dataset(rows)
    parameters = boosting.parameters(N) | {"learning_rate": 1e-12}
    lightgbm.train(parameters, data, 1, valid_sets=[data], callbacks=[lightgbm.record_evaluation(found)])
    (metric,) = found["training"].values()
    expected = LOSSES[loss_name].risk(np.tile(boosting.constant, (N, 1)), rows.y, rows.weights)
    assert metric[0] == pytest.approx(expected, rel=1e-5)


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


def test_constant_trees_are_left_out():
    boosting, rows = problem(X=np.ones((50, 5)), y=np.arange(50.0))
    pool, weights = trees_of(boost(boosting, rows), 1)
    assert pool.n_learners == len(weights) == 0
    y = np.random.default_rng(0).integers(0, 2, N)  # of three classes one never comes: its trees stay constants
    boosting, rows = problem("softmax", y=y)
    pool, weights = trees_of(boost(boosting, rows), 3)
    assert weights.sum(axis=0).tolist() == [10, 10, 0]
    assert (pool.feature[pool.roots] >= 0).all()


def test_learners_deeper_than_lightgbm_has_leaves():
    boosting, rows = problem(depth=20, n_rounds=1)
    assert 3 < flatten_booster(boost(boosting, rows)).depth <= 20


@pytest.mark.parametrize(("n", "least"), [(400, 20), (60, 6), (8, 1)])
def test_a_leaf_holds_enough_rows_and_a_small_sample_can_be_split(n, least):
    X = np.arange(float(n))[:, None]
    boosting, rows = problem(X=X, y=X[:, 0], prices=(1,), depth=12, n_rounds=1)
    pool = flatten_booster(boost(boosting, rows))
    counts = np.unique(pool.leaves(X)[:, 0], return_counts=True)[1]
    assert len(counts) > 1
    assert least <= counts.min() < 2 * least + 1


@pytest.mark.parametrize(
    "option", [{"depth": 1}, {"learning_rate": 0.5}, {"l2": 50.0}, {"feature_fraction": 0.4}, {"row_fraction": 0.5}]
)
def test_each_parameter_of_boosting_reaches_lightgbm(option):
    boosting, rows = problem()
    usual, other = (margins_of(each, boost(each, rows), rows.X) for each in (boosting, replace(boosting, **option)))
    assert not np.allclose(usual, other)


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
    monkeypatch.setattr("cstc.boosting.VERY_MANY_ROWS", len(rows))
    for one, other in zip(usual, trees(3), strict=True):
        for name, values in vars(one).items():
            if isinstance(values, np.ndarray):
                np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)
    assert [parameters["num_threads"] for parameters in given[2:]] == [3, 3]
    side_by_side([lambda: trees(3)] * 2, 2)
    assert {parameters["num_threads"] for parameters in given[4:]} == {1}


def test_categories_follow_their_columns():
    boosting, rows = problem(categorical=(MANY, FEW))
    columns = np.array([FEW, 0, MANY])
    some = boosting.on(columns)
    assert list(some.categorical) == [0, 2]
    pool = flatten_booster(boost(some, rows.on(columns)))
    assert set(pool.feature[pool.category_start >= 0]) <= {0, 2}
    assert (pool.category_start >= 0).any()


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


# -- pools of boosted trees ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    X = table()
    boosted = flatten_booster(train(X, target(X, "squared"), "squared", zero_as_missing=True))
    return TreePool.concatenate([boosted, TreePool.identity(5)])


def test_subsets_joined_and_scaled_pools_keep_their_outputs(pool):
    X = table(1, categories=60)
    phi = pool.transform(X)
    picked = np.array([7, 2, 9, 0])
    np.testing.assert_array_equal(pool.subset(picked).transform(X), phi[:, picked])
    joined = TreePool.concatenate([pool.subset(picked), pool.subset(np.array([], dtype=int)), pool])
    np.testing.assert_array_equal(joined.transform(X), np.hstack([phi[:, picked], phi]))
    factors = np.linspace(-2, 2, pool.n_learners)
    np.testing.assert_allclose(pool.scaled(factors).transform(X), phi * factors, rtol=1e-12)


def test_uses_are_what_a_walk_meets(pool):
    feature_items = np.random.default_rng(0).random((5, 7)) < 0.4
    X = table(1, n=60)
    uses = pool.position_uses(feature_items)[pool.leaves(X)]
    for t in range(pool.n_learners):
        everything = reference.items_of(reference.learner_features(pool, t), feature_items)
        assert set(np.flatnonzero(pool.learner_uses(feature_items)[t])) == everything
        for i, x in enumerate(X):
            output, features = reference.evaluate_learner(pool, t, x)
            assert set(np.flatnonzero(uses[i, t])) == reference.items_of(features, feature_items)
            np.testing.assert_equal(pool.transform(x[None])[0, t], output)


# -- for the order of documents --------------------------------------------------------------------------------------

SIZES = np.array([7, 3, 12, 8, 10])


def documents(n_copies=20):
    """Grades by the first column, in queries of different sizes; targets in standard units."""
    rng = np.random.default_rng(0)
    sizes = np.tile(SIZES, n_copies)
    X = rng.normal(size=(sizes.sum(), 3))
    units = Units(offset=1.0, scale=0.5)
    grades = np.clip(np.round(X[:, 0] + 0.3 * rng.normal(size=len(X)) + 1), 0, 4)
    qid = np.repeat(np.arange(len(sizes)), sizes)
    return Rows(X, (grades - 1.0) / 0.5, np.ones(len(X)), qid), grades, units


def for_order(rows, units, **changes):
    boosting, _ = problem(X=rows.X, y=rows.y, weights=rows.weights, prices=(1, 2, 3), **changes)
    return replace(boosting, lambdarank=Lambdarank.of(rows, 3, units))


def test_queries_and_grades_of_some_rows():
    rows, grades, units = documents(1)
    ranking = Lambdarank.of(rows, 3, units)
    np.testing.assert_array_equal(ranking.sizes, SIZES)
    at = np.flatnonzero(np.isin(rows.qid, [0, 2, 3]))
    data = ranking.put_into(lightgbm.Dataset(rows.X[at]), rows, at)
    np.testing.assert_array_equal(data.get_label(), grades[at])
    np.testing.assert_array_equal(data.get_group(), SIZES[[0, 2, 3]])


def test_of_many_rows_whole_queries_stop_boosting():
    rows, _, units = documents(20)
    ranking = Lambdarank.of(rows, 3, units)
    out = np.flatnonzero(rows.qid % 2 == 0)
    some = ranking.some_of(out, 150)
    assert 75 < len(some) <= 250
    for query in np.unique(rows.qid[some]):
        assert np.isin(np.flatnonzero(rows.qid == query), some).all()
    np.testing.assert_array_equal(ranking.some_of(out, len(out)), out)


@pytest.mark.parametrize("binned_once", [False, True])
def test_trees_grow_for_the_order_of_documents(binned_once, monkeypatch):
    """The same trees as LightGBM's own, from rows that are binned once or anew."""
    if binned_once:
        monkeypatch.setattr("cstc.boosting.MANY_ROWS", 10)
    rows, grades, units = documents()
    boosting = for_order(rows, units, early_stopping=3)
    columns, out = np.arange(3), rows.qid % 4 == 0
    plain = replace(boosting, lambdarank=None)
    blocks = bin_blocks(plain, rows, [columns])
    assert (blocks is not None) == binned_once
    binned = Binned(boosting, rows, columns, blocks)
    without, whole = binned.boost_without(out), binned.boost_all(4)
    parameters = boosting.parameters((~out).sum())
    assert (parameters["objective"], parameters["eval_at"], parameters["lambdarank_truncation_level"]) == (
        "lambdarank",
        [3],
        30,
    )
    sizes = np.bincount(rows.qid)
    if not binned_once:
        train = lightgbm.Dataset(rows.X[~out], grades[~out], group=sizes[np.unique(rows.qid[~out])])
        judges = train.create_valid(rows.X[out], grades[out], group=sizes[np.unique(rows.qid[out])])
        stop = lightgbm.early_stopping(3, verbose=False)
        own = lightgbm.train(parameters, train, boosting.n_rounds, valid_sets=[judges], callbacks=[stop])
        np.testing.assert_allclose(without.predict(rows.X, num_iteration=rounds_of(without)), own.predict(rows.X))
    for booster in (without, whole):
        assert reference.ndcg(grades, booster.predict(rows.X), rows.qid, 3) > 0.8
    # what was binned for the loss is still that
    again = Binned(plain, rows, columns, blocks).boost_all(4)
    fresh = Binned(plain, rows, columns, bin_blocks(plain, rows, [columns])).boost_all(4)
    np.testing.assert_array_equal(again.predict(rows.X), fresh.predict(rows.X))
