"""Flat copies of XGBoost's trees: the same leaf for every row, thresholds to the last bit, categories, stumps."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstc.xgboost_trees import at_most, flatten_xgboost, with_values_of_stumps

xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install xgboost-cpu")

MANY, FEW = 3, 4  # categorical columns: one with 40 categories, which are split as sets, and one with 3
CODES = {MANY: 40, FEW: 3}
N = 400
OBJECTIVES = {"squared": "reg:squarederror", "logistic": "binary:logistic", "softmax": "multi:softprob"}
each_loss = pytest.mark.parametrize("loss", list(OBJECTIVES))


def table(seed=0, n=N, *, missing=0.1, categories=40):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 5)), 1)
    X[:, MANY], X[:, FEW] = rng.integers(0, categories, n), rng.integers(0, 3, n)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def target(X, loss, seed=0):
    rng = np.random.default_rng(seed)
    effect = rng.normal(size=40)[np.nan_to_num(X[:, MANY]).astype(int)]
    score = np.nan_to_num(X[:, 0], nan=1.0) + effect + (X[:, FEW] == 1) + 0.3 * rng.normal(size=len(X))
    if loss == "squared":
        return score
    return (score > 0).astype(int) if loss == "logistic" else np.digitize(score, [-0.5, 0.8])


def train(X, y, loss="squared", *, rounds=8, types=("q", "q", "q", "c", "c"), **options):
    parameters = {"objective": OBJECTIVES[loss], "max_depth": 5, "nthread": 1, "tree_method": "hist"}
    parameters |= {"num_class": 3} if loss == "softmax" else {}
    data = xgboost.DMatrix(X, y, feature_types=list(types), enable_categorical=True, nthread=1)
    booster = xgboost.Booster(parameters | options, [data])
    for number in range(rounds):
        booster.update(data, number)
    return booster


def as_xgboost(X, types=("q", "q", "q", "c", "c"), **options):
    return xgboost.DMatrix(X, feature_types=list(types), enable_categorical=True, nthread=1, **options)


def sums_of(pool, X, n_outputs):
    phi = pool.transform(X)
    return np.stack([phi[:, k::n_outputs].sum(axis=1) for k in range(n_outputs)], axis=1)


def assert_the_same(booster, X, loss="squared", **options):
    """The same leaves, and margins that are XGBoost's own but for the precision in which it adds."""
    pool, n_outputs = flatten_xgboost(booster, n_categories=CODES, **options), 3 if loss == "softmax" else 1
    data = as_xgboost(X, base_margin=np.zeros(len(X) * n_outputs))
    leaves = booster.predict(data, pred_leaf=True).reshape(len(X), -1)
    np.testing.assert_array_equal(pool.leaves(X) - pool.roots, leaves)
    own = booster.predict(data, output_margin=True).reshape(len(X), n_outputs)
    np.testing.assert_allclose(sums_of(pool, X, n_outputs), own, rtol=0, atol=1e-6 * max(1.0, np.abs(own).max()))
    return pool


# -- the same leaves -----------------------------------------------------------------------------------------------


@each_loss
@pytest.mark.parametrize("policy", [{}, {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0}])
def test_every_row_reaches_the_leaf_that_it_reaches_in_xgboost(loss, policy):
    X = table()
    pool = assert_the_same(train(X, target(X, loss), loss, **policy), X, loss)
    splits = pool.feature >= 0
    assert pool.category_count.max() > 10  # sets of many categories were met
    assert 0 < pool.missing_left[splits].mean() < 1
    assert_the_same(train(X, target(X, loss), loss, **policy), table(1, missing=0.3), loss)


@pytest.mark.parametrize("onehot", [1, 100])
def test_categories_one_by_one_and_as_sets(onehot):
    X = table()
    pool = assert_the_same(train(X, target(X, "squared"), max_cat_to_onehot=onehot), X)
    assert (pool.category_start >= 0).any()


def test_both_sides_of_a_split_on_categories_may_take_the_missing_ones():
    X = table(missing=0.3)
    y = target(X, "squared") + 5.0 * np.isnan(X[:, MANY]) - 5.0 * np.isnan(X[:, FEW])
    booster = train(X, y, rounds=30)
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    sides = {
        tree["default_left"][node] for tree in model["trees"] for node in tree["categories_nodes"]
    }
    assert sides == {0, 1}
    assert_the_same(booster, X)


def test_a_category_that_training_did_not_see_goes_as_a_missing_one():
    X = table(missing=0.3)
    y = target(X, "squared") + 5.0 * np.isnan(X[:, MANY])
    pool = flatten_xgboost(train(X, y, rounds=30), n_categories=CODES)
    new, missing = table(1), table(1)
    new[:, MANY], missing[:, MANY] = 40, np.nan
    np.testing.assert_array_equal(pool.leaves(new), pool.leaves(missing))


def test_a_missing_value_that_training_did_not_see_goes_with_the_majority():
    X = table(missing=0.0)
    booster = train(X, (X[:, 0] > 1).astype(float), types=("q",) * 5, rounds=1, max_depth=1)
    lost = np.full((1, 5), np.nan)
    low = np.full((1, 5), -3.0)
    seldom = flatten_xgboost(booster, may_miss=np.zeros(5, dtype=bool))
    assert seldom.transform(lost) == seldom.transform(low)  # four rows of five are low
    assert seldom.share_left[0] > 0.7
    X[:100, 0] = np.nan  # they are all like the high ones
    booster = train(X, np.where(np.isnan(X[:, 0]), 1.0, X[:, 0] > 1), types=("q",) * 5, rounds=1, max_depth=1)
    often = flatten_xgboost(booster, may_miss=np.ones(5, dtype=bool))
    assert often.transform(lost) != often.transform(low)


def test_weights_are_in_the_trees():
    X, rng = table(), np.random.default_rng(0)
    y = target(X, "squared")
    data = as_xgboost(X)
    data.set_info(label=y, weight=rng.uniform(0.1, 5.0, N))
    booster = xgboost.Booster({"max_depth": 4, "nthread": 1, "tree_method": "hist"}, [data])
    for number in range(5):
        booster.update(data, number)
    pool = assert_the_same(booster, X)
    plain = assert_the_same(train(X, y, rounds=5, max_depth=4), X)
    assert not np.allclose(pool.transform(X), plain.transform(X))


@each_loss
@pytest.mark.parametrize("start", [None, 0.25])
def test_whatever_xgboost_starts_from_is_not_in_the_trees(loss, start):
    """Its versions write a base score as a number, or as a list, and guess it where nobody gives one."""
    X = table()
    options = {} if start is None else {"base_score": start}
    booster = train(X, target(X, loss), loss, **options)
    pool, n_outputs = flatten_xgboost(booster, n_categories=CODES), 3 if loss == "softmax" else 1
    own = booster.predict(as_xgboost(X), output_margin=True).reshape(N, n_outputs)
    away = own - sums_of(pool, X, n_outputs)
    np.testing.assert_allclose(away, np.broadcast_to(away[0], away.shape), atol=1e-5)


@each_loss
def test_a_booster_may_be_copied_in_part(loss):
    X, n_outputs = table(), 3 if loss == "softmax" else 1
    booster = train(X, target(X, loss), loss)
    whole = flatten_xgboost(booster, n_categories=CODES)
    assert whole.n_learners == 8 * n_outputs
    first = flatten_xgboost(booster, 3, n_categories=CODES)
    assert first.n_learners == 3 * n_outputs
    np.testing.assert_array_equal(first.transform(X), whole.transform(X)[:, : 3 * n_outputs])


def test_nothing_but_missing_values_may_part():
    """The threshold of such a split lies above or below all values."""
    X = np.ones((60, 1))
    X[::3] = np.nan
    booster = train(X, np.isnan(X[:, 0]).astype(float), types=("q",), rounds=2, max_depth=2)
    pool = flatten_xgboost(booster)
    assert (pool.feature >= 0).any()
    data = xgboost.DMatrix(X, nthread=1)
    np.testing.assert_array_equal(pool.leaves(X) - pool.roots, booster.predict(data, pred_leaf=True).reshape(60, -1))


# -- thresholds ----------------------------------------------------------------------------------------------------

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(SINGLE)
def test_a_threshold_is_the_last_double_that_rounds_to_less(t):
    t = np.float32(t)
    if t == np.finfo(np.float32).min:
        return  # nothing of single precision is less
    found = at_most(t)
    with np.errstate(over="ignore"):
        assert np.float32(found) < t
        assert not np.float32(np.nextafter(found, np.inf)) < t


@given(SINGLE, st.integers(-3, 3))
def test_values_around_a_threshold_go_as_in_single_precision(t, steps):
    """Its neighbours of single precision, their middles, and the doubles beside those."""
    t = np.float32(t)
    with np.errstate(over="ignore"):
        around = [t, np.nextafter(t, np.float32(np.inf)), np.nextafter(t, np.float32(-np.inf))]
    around = [float(each) for each in around if np.isfinite(each)]
    middles = [float(Fraction(one) / 2 + Fraction(other) / 2) for one in around for other in around]
    for x in {*around, *middles}:
        for _ in range(abs(steps)):
            x = float(np.nextafter(x, np.sign(steps) * np.inf))
        with np.errstate(over="ignore"):
            assert (x <= at_most(t)) == bool(np.float32(x) < t)


def test_thresholds_at_the_ends():
    largest = np.finfo(np.float32).max
    assert at_most(np.float32(np.inf)) == np.finfo(float).max  # all values are less
    assert at_most(np.float32(-np.inf)) == -np.finfo(float).max
    assert at_most(np.float32(0.0)) < 0.0  # zero is not less than zero
    assert at_most(largest) < float(largest)


def test_values_that_single_precision_cannot_tell_apart():
    """Doubles beside the middle of two neighbours of single precision, in a real booster."""
    rng = np.random.default_rng(0)
    singles = np.unique(rng.normal(size=300).astype(np.float32))
    y = rng.normal(size=len(singles))
    booster = train(singles[:, None].astype(float), y, types=("q",), max_bin=512, max_depth=8)
    pool = flatten_xgboost(booster)
    doubles = singles.astype(float)
    below = np.nextafter(singles, np.float32(-np.inf)).astype(float)
    middles = (doubles + below) / 2
    X = np.concatenate([doubles, below, middles, np.nextafter(middles, 9.0), np.nextafter(middles, -9.0)])[:, None]
    leaves = booster.predict(xgboost.DMatrix(X, nthread=1), pred_leaf=True)
    np.testing.assert_array_equal(pool.leaves(X) - pool.roots, leaves)


# -- trees of one leaf ---------------------------------------------------------------------------------------------


def test_what_trees_of_one_leaf_add_is_kept():
    """A demand that only some rounds meet: with few rows of few in sight, not every round finds a split."""
    X = table(missing=0.0)
    booster = train(X, target(X, "squared"), rounds=40, subsample=0.3, gamma=6.0, seed=3)
    pool = flatten_xgboost(booster, n_categories=CODES)
    stumps = pool.feature[pool.roots] < 0
    assert stumps.any()
    assert not stumps.all()
    assert pool.value[pool.roots[stumps]].any()
    moved = with_values_of_stumps(pool, 1)
    assert not moved.value[pool.roots[stumps]].any()
    np.testing.assert_allclose(moved.transform(X).sum(axis=1), pool.transform(X).sum(axis=1), atol=1e-12)
    kept = moved.subset(np.flatnonzero(~stumps))
    np.testing.assert_allclose(kept.transform(X).sum(axis=1), pool.transform(X).sum(axis=1), atol=1e-12)


def test_stumps_of_an_output_go_into_its_own_trees():
    X = table(missing=0.0)
    booster = train(X, target(X, "softmax"), "softmax", rounds=40, subsample=0.3, gamma=3.0)
    pool = flatten_xgboost(booster, n_categories=CODES)
    stumps = pool.feature[pool.roots] < 0
    assert stumps.any()
    before, after = sums_of(pool, X, 3), sums_of(with_values_of_stumps(pool, 3), X, 3)
    np.testing.assert_allclose(after, before, atol=1e-12)


def test_where_nothing_splits_nothing_is_learned():
    X = np.ones((50, 5))
    booster = train(X, np.arange(50.0), types=("q",) * 5, rounds=3, base_score=0.0)
    pool = flatten_xgboost(booster)
    assert pool.value[pool.roots].all()
    assert not with_values_of_stumps(pool, 1).transform(X).any()
