"""Splits by histograms, against all splits one by one and against scikit-learn's trees."""

from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.tree import DecisionTreeRegressor

from cstc.baselines._splits import Bins, Entropy, Grown, Squares, best_splits, grow, least_rows, pool_of


def risk(kind, y, weights):
    """Summed risk of the best constant, or summed entropy in bits."""
    if kind == "squares":
        return float(weights @ (y - np.average(y, weights=weights)) ** 2)
    counts = np.bincount(y.astype(int), weights)
    shares = counts[counts > 0] / weights.sum()
    return float(-weights.sum() * (shares * np.log2(shares)).sum())


def all_gains(kind, column, y, weights, least, categorical):
    """The gain of every way to part the rows by this column."""
    missing = np.isnan(column)
    values = np.unique(column[~missing])
    if categorical:
        ways = [np.isin(column, left) for n in range(1, len(values)) for left in combinations(values, n)]
    else:
        below = [column <= value for value in values]
        ways = [way | (missing & to_left) for way in below for to_left in (False, True)]
    for left in ways:
        if min(left.sum(), (~left).sum()) >= least:
            yield risk(kind, y, weights) - sum(risk(kind, y[side], weights[side]) for side in (left, ~left))


def columns(n=150, seed=0):
    """Numbers with ties, numbers with missing values, and categories."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 9, n), rng.normal(size=n).round(1), rng.integers(0, 5, n)]).astype(float)
    X[rng.random(n) < 0.2, 1] = np.nan
    return X, rng


@pytest.mark.parametrize("kind", ["squares", "two classes", "three classes"])
@pytest.mark.parametrize("seed", range(3))
def test_no_split_gains_more_than_the_best(kind, seed):
    X, rng = columns(seed=seed)
    weights = rng.uniform(0.5, 2.0, len(X))
    n_classes = {"squares": 0, "two classes": 2, "three classes": 3}[kind]
    y = rng.integers(0, n_classes, len(X)) if n_classes else X[:, 0] + rng.normal(size=len(X))
    criterion = Entropy(n_classes) if n_classes else Squares()
    bins = Bins.of(X, categorical=[2])
    statistics = criterion.statistics(y, weights)
    found = best_splits(bins, np.arange(len(X)), np.arange(3), statistics, criterion, 10)
    plain = "entropy" if n_classes else "squares"
    for column in range(3):
        gains = list(all_gains(plain, X[:, column], y, weights, 10, column == 2))
        if column == 2 and n_classes == 3:  # of categories and more than two classes, a split that is found quickly
            assert 0 < found.gains[column] <= max(gains) * (1 + 1e-9)
        else:
            assert found.gains[column] == pytest.approx(max(gains), rel=1e-9)
        left = found.split(column).goes_left(bins, np.arange(len(X)))
        assert min(left.sum(), (~left).sum()) >= 10
        gain = risk(plain, y, weights) - sum(risk(plain, y[side], weights[side]) for side in (left, ~left))
        assert gain == pytest.approx(found.gains[column], rel=1e-9)


def test_gains_at_other_rows():
    X, rng = columns(300)
    y = X[:, 0] + rng.normal(size=300)
    weights = rng.uniform(0.5, 2.0, 300)
    taught, judged = np.arange(200), np.arange(200, 300)
    bins = Bins.of(X[taught], categorical=[2])
    others = Bins.of(X[judged], like=bins)
    found = best_splits(bins, taught, np.arange(3), Squares().statistics(y[taught], weights[taught]), Squares(), 10)
    gains = found.gains_elsewhere(others, Squares().statistics(y[judged], weights[judged]))
    for column in range(3):
        split = found.split(column)
        left, left_there = split.goes_left(bins, taught), split.goes_left(others, np.arange(100))
        means = [np.average(y[taught][side], weights=weights[taught][side]) for side in (left, ~left)]
        said = np.where(left_there, *means)
        drop = weights[judged] @ (y[judged] ** 2 - (y[judged] - said) ** 2)
        assert gains[column] == pytest.approx(drop)


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_trees_are_those_of_scikit_learn(depth):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 200, size=(400, 5)).astype(float)
    y = X[:, 0] * (X[:, 1] > 100) + rng.normal(scale=20.0, size=400)
    weights = rng.uniform(0.5, 2.0, 400)
    tree, outputs = grow(Bins.of(X), Squares().statistics(y, weights), np.arange(5), depth, 20)
    other = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=20, random_state=0).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(outputs, other.predict(X), rtol=1e-9)
    np.testing.assert_array_equal(tree.columns, np.unique(other.tree_.feature[other.tree_.feature >= 0]))


def test_flat_trees_say_the_same_of_old_and_new_rows():
    X, _ = columns(400)
    y = X[:, 0] + 3.0 * (X[:, 2] == 1) + 2.0 * np.isnan(X[:, 1])
    bins = Bins.of(X[:300], categorical=[2])
    tree, outputs = grow(bins, Squares().statistics(y[:300], np.ones(300)), np.arange(3), 4, 5)
    stump = Grown.stump(tree.splits[0], 0.5)
    pool = pool_of([tree, stump])
    np.testing.assert_array_equal(pool.transform(X[:300])[:, 0], outputs)
    np.testing.assert_array_equal(pool.transform(X[300:])[:, 0], tree.outputs(Bins.of(X[300:], like=bins)))
    goes_left = tree.splits[0].goes_left(bins, np.arange(300))
    np.testing.assert_array_equal(pool.transform(X[:300])[:, 1], ~goes_left)
    assert set(tree.columns) == {0, 1, 2}
    unknown = X[:3].copy()
    unknown[:, 2] = [7.0, np.nan, 300.0]
    np.testing.assert_array_equal(pool.transform(unknown)[:, 0], tree.outputs(Bins.of(unknown, like=bins)))


def test_many_values_are_cut_at_quantiles_and_sparse_rows_at_the_same_places():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((3000, 3)) < 0.6, 0.0, rng.normal(size=(3000, 3)))
    dense, sparse = Bins.of(X), Bins.of(csr_matrix(X))
    np.testing.assert_array_equal(dense.codes, sparse.codes)
    for column in range(3):
        assert 50 < len(dense.edges[column]) <= 254
        assert not np.isin(dense.edges[column], X[:, column]).any()
        np.testing.assert_array_equal(dense.codes[column], (X[:, [column]] > dense.edges[column]).sum(axis=1))


def test_neighbouring_numbers_are_told_apart():
    low = 1.0
    high = np.nextafter(low, 2.0)
    X = np.array([[low], [high]] * 20)
    found = grow(Bins.of(X), Squares().statistics(X[:, 0] == high, np.ones(40)), np.arange(1), 1, 1)[0]
    np.testing.assert_array_equal(pool_of([found]).transform(X)[:, 0], X[:, 0] == high)


def test_leaves_hold_as_many_rows_as_lightgbm_wants():
    assert [least_rows(n) for n in (5, 100, 1000)] == [1, 10, 20]
