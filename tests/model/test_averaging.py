"""Weak learners without some values: other learners, and single rows, against a plain recursion."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from builders import N_FEATURES, random_pool, random_table
from cstc.model import TreePool
from cstc.model.averaging import averaged_scores, averaged_sums, without


def with_shares(rng, pool):
    return pool._replace(share_left=rng.integers(0, 255, pool.n_positions) / 254)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_all_ways_are_the_plain_average(seed, identity):
    rng = np.random.default_rng(seed)
    pool = with_shares(rng, random_pool(rng, 6, identity=identity))
    if not identity:
        pool = pool._replace(linear_feature=np.full(pool.n_positions, -1))
    X = random_table(rng, 7)
    means = rng.normal(size=N_FEATURES)
    dead = np.flatnonzero(rng.random(N_FEATURES) < 0.4)
    known = set(range(N_FEATURES)) - set(dead.tolist())
    is_known = np.isin(np.arange(N_FEATURES), list(known))
    expected = np.array(
        [[reference.averaged_learner(pool, t, x, known, means) for t in range(pool.n_learners)] for x in X]
    )
    other, owner = without(pool, dead, means)
    assert not np.isin(np.concatenate([other.feature, other.linear_feature]), dead).any()
    assert (np.diff(owner) >= 0).all()
    assert set(owner) == set(range(pool.n_learners))
    found = np.zeros_like(expected)
    outputs = other.transform(X)
    for t, mine in enumerate(owner):
        found[:, mine] += outputs[:, t]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    weights = rng.normal(size=(pool.n_learners, 2))
    if (pool.linear_feature < 0).all():
        nothing = np.zeros(0, dtype=int)
        plain, averaged = averaged_scores(pool, X, [nothing, dead], weights)
        np.testing.assert_allclose(plain, pool.scores(X, weights), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(averaged, expected @ weights, rtol=1e-9, atol=1e-12)
    learners = np.flatnonzero(rng.random(pool.n_learners) < 0.7)
    for x, outputs_of_row in zip(X, expected, strict=True):
        hidden = np.where(is_known, x, 1e9)  # what is not known is not looked at
        np.testing.assert_allclose(
            averaged_sums(pool, hidden, is_known, learners, weights[learners], means),
            outputs_of_row[learners] @ weights[learners],
            rtol=1e-9,
            atol=1e-12,
        )


def test_learners_that_look_at_none_of_the_columns_stay_as_they_are():
    rng = np.random.default_rng(0)
    pool = random_pool(rng, 5)
    same, owner = without(pool, np.zeros(0, dtype=int), np.zeros(N_FEATURES))
    assert same is pool
    assert owner.tolist() == list(range(pool.n_learners))


def test_rows_that_meet_no_dead_split_get_the_same_bits():
    """x0 parts the rows; only its left side looks at x1."""
    pool = TreePool(
        roots=np.array([0]),
        feature=np.array([0, 1, -1, -1, -1]),
        threshold=np.array([0.0, 0.0, 0.0, 0.0, 0.0]),
        left=np.array([1, 2, 2, 3, 4]),
        right=np.array([4, 3, 2, 3, 4]),
        missing_left=np.zeros(5, dtype=bool),
        zero_is_missing=np.zeros(5, dtype=bool),
        category_start=np.full(5, -1),
        category_count=np.zeros(5, dtype=int),
        category_left=np.zeros(0, dtype=bool),
        value=np.array([0.0, 0.0, 1.0, 3.0, 0.1]),
        linear_feature=np.full(5, -1),
        share_left=np.array([0.5, 64 / 254, 0.5, 0.5, 0.5]),
    )
    other, owner = without(pool, np.array([1]), np.zeros(2))
    assert owner.tolist() == [0]  # both leaves under x1 are one number
    X = np.array([[1.0, -1.0], [-1.0, -1.0]])
    assert other.transform(X)[0, 0] == 0.1
    assert other.transform(X)[1, 0] == pytest.approx(64 / 254 * 1.0 + 190 / 254 * 3.0)
