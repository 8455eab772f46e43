"""The boosting trick: flat copies that answer as LightGBM does, cross-fitted columns, learners that know prices."""

import lightgbm
import numpy as np
import pytest

import reference
from builders import LOSSES
from cstc.costs import CostModel
from cstc.pool import TreePool
from cstc.weak_learners import Boosting, cross_fit, flatten_booster, grow, identity_weak_learners

OBJECTIVES = {"squared": "regression", "logistic": "binary", "softmax": "multiclass"}
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


def boost(X, y, loss_name, *, rounds=8, categorical=(MANY, FEW), validation=None, **parameters):
    parameters = {"objective": OBJECTIVES[loss_name], "num_leaves": 12, "num_threads": 1, "verbosity": -1} | parameters
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


def problem(loss_name="squared", *, X=None, y=None, prices=(1, 2, 3, 4, 5), **options):
    """How to boost, and the rows to boost on."""
    X = table() if X is None else X
    y = target(X, loss_name) if y is None else y
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X))
    settings = {"strengths": (0.0,), "n_rounds": 10, "depth": 3, "learning_rate": 0.2, "early_stopping": None}
    boosting = Boosting(
        loss_name=loss_name,
        constant=LOSSES[loss_name].constant(y, weights),
        costs=CostModel(prices).resolve("abcde"),
        n_jobs=1,
        **settings | options,
    )
    return boosting, (X, y, weights)


# -- flat copies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss_name", OBJECTIVES)
def test_flat_trees_predict_as_the_booster(loss_name):
    X = table()
    pool = assert_same_outputs(boost(X, target(X, loss_name), loss_name), X)
    assert pool.category_count.max() > 10  # sets of many categories were met
    assert pool.missing_left[pool.feature >= 0].any()


def test_unseen_categories_and_values_beyond_training():
    X = table()
    booster = boost(X, target(X, "squared"), "squared")
    new = 3 * table(1, missing=0.3, categories=90)
    new[:5, MANY] = [-1, -7, 1e6, 39.5, 2.5]
    assert_same_outputs(booster, new)


def test_zero_as_missing():
    X = table()
    pool = assert_same_outputs(boost(X, target(X, "squared"), "squared", zero_as_missing=True), X)
    assert pool.zero_is_missing.any()
    assert_same_outputs(boost(X, target(X, "squared"), "squared", zero_as_missing=True), table(2, missing=0.3))


def test_missing_values_that_training_never_saw_go_with_the_majority():
    X = table(missing=0.0)[:, :1]
    pool = flatten_booster(boost(X, X[:, 0] > 1, "squared", categorical=(), rounds=1, num_leaves=2))
    assert pool.transform(np.array([[np.nan]])) == pool.transform(np.array([[-3.0]]))


def test_early_stopped_booster_is_copied_up_to_its_best_round():
    X = table()
    y = np.random.default_rng(0).normal(size=N)
    booster = boost(X, y, "squared", rounds=50, validation=(table(1), y))
    assert 0 < booster.best_iteration < booster.current_iteration()
    assert assert_same_outputs(booster, X).n_learners == booster.best_iteration


def test_a_booster_may_be_copied_in_part():
    X = table()
    booster = boost(X, target(X, "softmax"), "softmax")
    phi = flatten_booster(booster).transform(X)
    np.testing.assert_array_equal(flatten_booster(booster, 3).transform(X), phi[:, : 3 * 3])


# -- columns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss_name", OBJECTIVES)
def test_columns_are_sums_of_trees_with_the_bill_of_their_branches(loss_name):
    boosting, rows = problem(loss_name, strengths=(0.0, 0.01), categorical=(MANY, FEW))
    X, costs = table(1), boosting.costs
    learners = grow(boosting, *rows)
    phi = learners.transform(X, costs)
    outputs, leaves = learners.pool.transform(X), learners.pool.leaves(X)
    uses = learners.pool.position_uses(costs.feature_items)
    bought = np.unpackbits(phi.bits.view(np.uint8), axis=2, count=costs.n_items).astype(bool)
    for k in range(learners.n_columns):
        trees = np.flatnonzero(learners.column == k)
        np.testing.assert_allclose(phi.values[:, k], outputs[:, trees].sum(axis=1), atol=1e-12)
        np.testing.assert_array_equal(bought[:, k], uses[leaves[:, trees]].any(axis=1))
        items = learners.pool.learner_uses(costs.feature_items)[trees].any(axis=0)
        np.testing.assert_array_equal(learners.column_items(costs)[k], items)
    single = learners.one_column_per_tree()
    assert single.n_columns == learners.pool.n_learners == learners.trees_per_column.sum()
    np.testing.assert_array_equal(single.transform(X, costs).values, outputs)


@pytest.mark.parametrize("per_tree", [False, True])
@pytest.mark.parametrize("loss_name", OBJECTIVES)
def test_an_ensemble_is_the_constant_plus_its_columns(loss_name, per_tree):
    loss = LOSSES[loss_name]
    boosting, (X, y, weights) = problem(loss_name, strengths=(0.0, 0.01), categorical=(MANY, FEW))
    learners = grow(boosting, X, y, weights, per_tree=per_tree)
    assert learners.n_ensembles == 2
    risk = {None: loss.value_and_derivative(np.tile(boosting.constant, (N, 1)), y)[0].mean()}
    for ensemble in range(2):
        margins = learners.transform(X, boosting.costs).values @ learners.anchor(ensemble) + learners.constant
        risk[ensemble] = loss.value_and_derivative(margins, y)[0].mean()
    assert risk[0] < risk[1] < 0.8 * risk[None]


def test_constant_trees_are_left_out():
    boosting, rows = problem(X=np.ones((50, 5)), y=np.arange(50.0))
    learners = grow(boosting, *rows)
    assert learners.pool.n_learners == 0
    assert (learners.transform(rows[0], boosting.costs).values == 0).all()
    assert not learners.column_items(boosting.costs).any()
    y = np.random.default_rng(0).integers(0, 2, N)  # of three classes one never comes: its trees stay constants
    boosting, rows = problem("softmax", y=y)
    learners = grow(boosting, *rows)
    assert learners.trees_per_column.tolist() == [10, 10, 0]
    assert (learners.pool.feature[learners.pool.roots] >= 0).all()


def test_learners_deeper_than_lightgbm_has_leaves():
    boosting, rows = problem(depth=20, n_rounds=1)
    assert 3 < grow(boosting, *rows).pool.depth <= 20


def test_the_same_learners_twice():
    boosting, rows = problem(random_state=3)
    one, two = (grow(boosting, *rows).pool.transform(rows[0]) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_validation_data_stops_boosting():
    y = np.random.default_rng(0).normal(size=N)
    for patience, expected in ((3, range(1, 50)), (None, [50])):
        boosting, rows = problem(y=y, n_rounds=50, early_stopping=patience)
        learners = grow(boosting, *rows, validation=(table(1), y[::-1], np.ones(N)))
        assert learners.pool.n_learners in expected
    assert grow(boosting, *rows, n_rounds=[7]).pool.n_learners == 7


# -- cross-fitted columns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [None, 1, 20])
@pytest.mark.parametrize("loss_name", OBJECTIVES)
def test_cross_fitted_columns_are_grown_without_the_fold(loss_name, patience):
    boosting, rows = problem(loss_name, strengths=(0.0, 0.01), n_rounds=15, early_stopping=patience, learning_rate=0.5)
    folds = np.random.default_rng(0).integers(0, 3, N)
    phi, rounds = cross_fit(boosting, *rows, folds)
    assert len(rounds) == 2
    assert rounds == [15, 15] or patience
    for fold in range(3):
        learners = grow(boosting, *(part[folds != fold] for part in rows), n_rounds=rounds)
        expected = learners.transform(rows[0][folds == fold], boosting.costs)
        np.testing.assert_allclose(phi.values[folds == fold], expected.values, atol=1e-12)
        np.testing.assert_array_equal(phi.bits[folds == fold], expected.bits)


@pytest.mark.parametrize("loss_name", OBJECTIVES)
def test_cross_fitted_columns_do_not_know_their_own_label(loss_name):
    boosting, (X, y, weights) = problem(loss_name)
    folds, changed = np.arange(N) % 4, y.copy()
    changed[10] = y[10] + 5 if loss_name == "squared" else 1 - min(y[10], 1)
    before, after = (cross_fit(boosting, X, labels, weights, folds)[0].values for labels in (y, changed))
    own = folds == folds[10]
    np.testing.assert_array_equal(after[own], before[own])
    assert (after[~own] != before[~own]).any()


def test_cross_fitted_columns_do_not_flatter():
    """On pure noise, learners look useful on their own rows, and useless on others."""
    boosting, rows = problem(y=np.random.default_rng(0).normal(size=N), n_rounds=20)
    own = grow(boosting, *rows).transform(rows[0], boosting.costs).values[:, 0]
    honest = cross_fit(boosting, *rows, np.arange(N) % 5)[0].values[:, 0]
    own_risk, honest_risk = (np.mean((values + boosting.constant - rows[1]) ** 2) for values in (own, honest))
    assert own_risk < 0.8 * rows[1].var()
    assert honest_risk > rows[1].var()


# -- learners that know prices -------------------------------------------------------------------------------------


def test_stronger_prices_buy_less():
    """Mean price of the branches that rows take, all learners of an ensemble together."""
    prices = np.array([20.0, 1.0, 5.0, 5.0, 5.0])
    boosting, rows = problem(strengths=(0.0, 1e-3, 1e-2, 3e-2, 1e-1), prices=prices, n_rounds=20)
    phi = grow(boosting, *rows).transform(rows[0], boosting.costs)
    bought = np.unpackbits(phi.bits.view(np.uint8), axis=2, count=5)
    cost = (bought @ prices).mean(axis=0)
    assert (np.diff(cost) <= 0).all()
    assert 0 == cost[-1] < cost[-2] < 0.9 * cost[0]


def test_a_free_copy_of_a_dear_feature_is_preferred():
    X = table(missing=0.0)
    X[:, 1] = X[:, 0]
    boosting, rows = problem(X=X, y=X[:, 0], strengths=(0.01,), prices=(10, 0, 10, 10, 10))
    assert np.flatnonzero(grow(boosting, *rows).column_items(boosting.costs)[0]).tolist() == [1]


# -- the inputs themselves -----------------------------------------------------------------------------------------


def test_identity_learners_are_the_inputs():
    X = np.random.default_rng(0).normal(size=(20, 4))
    learners = identity_weak_learners(4, n_outputs=3)
    np.testing.assert_array_equal(learners.pool.transform(X), X)
    np.testing.assert_array_equal(learners.pool.learner_uses(np.eye(4, dtype=bool)), np.eye(4, dtype=bool))
    assert learners.n_ensembles == 0
    assert learners.pool.depth == 0
    assert len(learners.constant) == 3


# -- pools of boosted trees ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    X = table()
    boosted = flatten_booster(boost(X, target(X, "squared"), "squared", zero_as_missing=True))
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
