"""Rows parted by what they need."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from cstc.needs import Needs
from cstc.parting import MOST_GROUPS, part
from experts.cases import OWN_PRICES, needed, own_features, resolved, rows_of

N = 2400
TELLING = np.array([0])
UNIT = 0.1  # a typical feature, of price 10, costs all that a row loses without its own


def needs(X, lost, prices=OWN_PRICES, weights=None):
    rows = rows_of(X, np.zeros(X.shape[0]), weights)
    return Needs(rows, np.arange(X.shape[0]) % 2 == 0, np.asarray(lost, dtype=float), resolved(prices))


def own(X):
    """Each row loses 1 without the column that its kind names."""
    lost = needed(X).astype(float)
    lost[:, 0] = 0.0
    return lost


def table(n=N):
    return own_features(n=n)[1]


def best(given, columns=TELLING, categorical=()):
    found = part(given, UNIT, columns, categorical)
    assert [each.promise for each in found] == sorted(each.promise for each in found)
    return found[0]


def value(lost, weights, prices, cost_weight, paid):
    """Of a group, as in the formulas of `parting`."""
    worth = np.average(lost, axis=0, weights=weights)
    return np.minimum(np.where(paid, 0.0, cost_weight * prices), worth).sum()


def test_rows_that_need_the_same_come_together():
    X = table()
    found = best(needs(X, own(X)), np.arange(6)).partition
    group = found.groups(X)
    assert found.n_groups == 4
    assert len({(kind, number) for kind, number in zip(X[:, 0], group, strict=True)}) == 4
    assert all(set(features) == {0} for features in found.features)


@pytest.mark.parametrize("weighted", [False, True])
def test_what_a_partition_promises_by_hand(weighted):
    X = table()
    weights = np.where(X[:, 0] == 2, 3.0, 1.0) if weighted else np.ones(N)
    given = needs(X, own(X), weights=weights)
    found = best(given)
    group, prices = found.partition.groups(X), np.array(OWN_PRICES)
    total = 0.0
    for number, features in enumerate(found.partition.features):
        at, paid = group == number, given.costs.items_of(features)
        alone = value(given.lost[at], weights[at], prices, found.cost_weight, paid)
        total += weights[at].sum() / weights.sum() * (alone + found.cost_weight * prices[paid].sum())
    together = value(given.lost, weights, prices, found.cost_weight, np.zeros(6, dtype=bool))
    assert found.promise == pytest.approx(total / together)
    assert found.promise < 0.5


def test_no_groups_where_all_rows_need_the_same():
    X = table()
    assert part(needs(X, np.ones((N, 6))), UNIT, TELLING, ()) == []


def test_signs_that_say_nothing_alone_are_found_among_columns_of_noise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 20))
    X[:, :2] = np.sign(X[:, :2])
    cell = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
    lost = np.zeros((N, 20))
    lost[np.arange(N), 2 + cell] = rng.exponential(size=N)
    found = best(needs(X, lost, [1.0, 1.0, *[10.0] * 4, *[1.0] * 14]), np.arange(20)).partition
    assert found.n_groups == 4
    assert all(set(features) == {0, 1} for features in found.features)


def test_a_selector_of_selectors_comes_first():
    """Rows look at one of two selectors; who begins with one of those pays for three columns instead of two."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4500, 9))
    X[:, 0] = rng.integers(2, size=4500)
    X[:, 1:3] = rng.integers(3, size=(4500, 2))
    cell = (3 * X[:, 0] + np.where(X[:, 0] == 0, X[:, 1], X[:, 2])).astype(int)
    lost = np.full((4500, 9), 0.02)
    lost[:, :3] = 0.0
    lost[np.arange(4500), 3 + cell] = 0.5
    found = best(needs(X, lost, [1.0] * 3 + [10.0] * 6), np.arange(9)).partition
    assert found.n_groups == 6
    assert sorted(set(map(tuple, map(sorted, map(set, found.features))))) == [(0, 1), (0, 2)]


@pytest.mark.parametrize("missing", [False, True])
def test_levels_of_a_category_are_parted(missing):
    """Levels 0 and 5 need one column, 1 and 3 another, whatever their numbers; missing ones need one of their own."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 6))
    X[:, 0] = rng.choice([0.0, 1.0, 3.0, 5.0], size=N)
    kind = np.isin(X[:, 0], [1.0, 3.0]).astype(int)
    if missing:
        X[::4, 0] = np.nan
        kind[::4] = 2
    lost = np.zeros((N, 6))
    lost[np.arange(N), 1 + kind] = 1.0
    found = best(needs(X, lost), categorical=[0]).partition
    group = found.groups(X)
    for one, other in itertools.combinations(np.unique(kind), 2):
        assert not set(group[kind == one]) & set(group[kind == other])
    # levels that nobody has seen go where those go that are missing
    unseen = np.column_stack([[2.0, 4.0, 17.0], rng.normal(size=(3, 5))])
    nothing = unseen.copy()
    nothing[:, 0] = np.nan
    assert np.array_equal(found.groups(unseen), found.groups(nothing))


def test_groups_follow_the_splits_even_where_values_are_missing():
    X = table()
    lost = own(X)
    X[::5, 0] = np.nan
    found = best(needs(X, lost)).partition
    pool = found.splits
    for row, group in zip(X[:200], found.groups(X[:200]), strict=True):
        at = 0
        while at >= 0:
            root = pool.roots[at]
            cell = row[pool.feature[root]]
            left = pool.missing_left[root] if np.isnan(cell) else cell <= pool.threshold[root]
            at = (found.upper if left else found.lower)[at]
        assert group == -1 - at


def test_groups_are_few_and_large():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 12))
    X[:, 0] = rng.integers(11, size=N)
    lost = np.zeros((N, 12))
    lost[np.arange(N), 1 + X[:, 0].astype(int)] = 1.0
    found = best(needs(X, lost, [0.01, *[10.0] * 11])).partition
    assert found.n_groups == MOST_GROUPS
    assert np.bincount(found.groups(X)).min() >= 150


@pytest.mark.parametrize(("price", "worthwhile"), [(1.0, True), (31.0, False)])
def test_what_tells_groups_apart_must_cost_less_than_it_saves(price, worthwhile):
    """All rows need the last column, so that even 31 is a small part of what they spend; a group saves 30."""
    X = table()
    lost = own(X)
    lost[:, 5] = 1e3
    found = part(needs(X, lost, [price, 10.0, 10.0, 10.0, 10.0, 200.0]), UNIT, TELLING, ())
    assert bool(found) == worthwhile


def test_expensive_features_are_not_bought_to_tell_groups_apart():
    X = table()
    assert part(needs(X, own(X)), UNIT, np.arange(1, 6), ()) == []


def test_no_groups_of_few_rows_or_without_columns_to_look_at():
    X = table(200)
    assert part(needs(X, own(X)), UNIT, TELLING, ()) == []
    X = table()
    assert part(needs(X, own(X)), UNIT, np.zeros(0, dtype=int), ()) == []


@pytest.mark.parametrize("cheap", [[0], [0, 1]])
def test_rows_without_weight_make_no_group(cheap):
    X = table()
    lost = own(X)
    weights = (X[:, 0] > 0).astype(float)
    if len(cheap) == 2:  # a second column that says the same, so that either may come first
        X[:, 5] = X[:, 0]
    found = part(needs(X, lost, [0.5, 10, 10, 10, 10, 0.5], weights), UNIT, np.array([0, 5][: len(cheap)]), ())
    assert found
    for each in found:
        group = each.partition.groups(X)
        assert all(weights[group == number].sum() > 0 for number in range(each.partition.n_groups))


def test_parents_lead_from_the_root_to_every_group():
    X = table()
    found = best(needs(X, own(X))).partition
    parents, is_upper = found.parents()
    n_splits = len(found.upper)
    assert parents.count(-1) == 1
    assert len(parents) == len(is_upper) == n_splits + found.n_groups
    for child, (parent, upper) in enumerate(zip(parents, is_upper, strict=True)):
        if parent >= 0:
            assert (found.upper if upper else found.lower)[parent] == (
                child if child < n_splits else n_splits - 1 - child
            )


def test_where_nothing_is_lost_there_are_no_groups():
    X = table()
    assert part(needs(X, np.zeros((N, 6)), [0.0, 10, 10, 10, 10, 10]), UNIT, np.arange(6), ()) == []


def test_values_beyond_single_precision_are_parted_all_the_same():
    X = table()
    lost = own(X)
    X[:, 0] = np.where(X[:, 0] == 3, 1e300, X[:, 0])
    assert best(needs(X, lost)).partition.n_groups == 4


def test_values_that_single_precision_cannot_tell_apart():
    X = table()
    lost = own(X)
    X[:, 0] += 2.0**24
    for found in part(needs(X, lost), UNIT, TELLING, ()):
        assert np.bincount(found.partition.groups(X), minlength=found.partition.n_groups).min() > 0


@pytest.mark.parametrize("missing", [False, True])
def test_of_many_columns_those_are_looked_at_that_tell_most(missing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 120))
    X[:, 70:72] = np.sign(X[:, 70:72])
    cell = (X[:, 70] > 0) * 2 + (X[:, 71] > 0)
    if missing:
        X[X[:, 70] < 0, 70] = np.nan
        X[:, 3] = np.nan
    lost = np.zeros((N, 120))
    lost[np.arange(N), 100 + cell] = rng.exponential(size=N)
    lost[:, 104:] = rng.exponential(scale=0.1, size=(N, 16))  # more targets than directions
    found = best(needs(X, lost, [*[1.0] * 100, *[10.0] * 20]), np.arange(100)).partition
    assert found.n_groups == 4
    assert all(set(features) == {70, 71} for features in found.features)


def test_a_sparse_matrix_is_parted_like_a_dense_one():
    X = table()
    given = needs(X, own(X))
    sparse = needs(scipy.sparse.csr_array(X), own(X))
    found = [best(each).partition.groups(X) for each in (given, sparse)]
    np.testing.assert_array_equal(*found)
