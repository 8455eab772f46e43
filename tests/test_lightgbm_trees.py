"""Flat copies of trees of LightGBM, which answer as it does."""

import lightgbm
import numpy as np
import pytest

import reference
from boosted import FEW, MANY, N, each_loss_name, problem, table, target
from builders import LOSSES
from cstc.lightgbm_engine import boost
from cstc.lightgbm_trees import flatten_booster, trees_of
from cstc.model import TreePool


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


@pytest.mark.parametrize("n_items", [1, 7, 130])  # one word of bits, or several
def test_uses_are_what_a_walk_meets(pool, n_items):
    feature_items = np.random.default_rng(0).random((5, n_items)) < 0.4
    X = table(1, n=60)
    uses = pool.position_uses(feature_items)[pool.leaves(X)]
    for t in range(pool.n_learners):
        everything = reference.items_of(reference.learner_features(pool, t), feature_items)
        assert set(np.flatnonzero(pool.learner_uses(feature_items)[t])) == everything
        for i, x in enumerate(X):
            output, features = reference.evaluate_learner(pool, t, x)
            assert set(np.flatnonzero(uses[i, t])) == reference.items_of(features, feature_items)
            np.testing.assert_equal(pool.transform(x[None])[0, t], output)
