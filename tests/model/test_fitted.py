"""The fitted model: answers and bills of every row against the reference."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import (
    N_FEATURES,
    PROPERTY,
    each_shape,
    random_costs,
    random_model,
    random_pool,
    random_shape,
    random_table,
    seeds,
)
from cstc.model import COUNTINGS, TreePool, TreeShape
from cstc.model.fitted import ROW_BLOCK

each_counting = pytest.mark.parametrize("counting", COUNTINGS)


def outcomes(model, X):
    return [reference.RowOutcome(model, model.pool, model.costs, x) for x in X]


def assert_as_in_the_reference(model, X):
    rows = outcomes(model, X)
    assert model.apply(X).tolist() == [row.terminal for row in rows]
    np.testing.assert_allclose(model.decision_function(X), [row.margins for row in rows], rtol=1e-9, atol=1e-12)
    for counting in COUNTINGS:
        bought = [set(np.flatnonzero(items)) for items in model.bought_items(X, counting)]
        assert bought == [row.items[counting] for row in rows]
        cost = model.predict_cost(X, counting)
        np.testing.assert_allclose(cost, [row.cost[counting] for row in rows], rtol=1e-12)
        margins, same_cost = model.decision_and_cost(X, counting)
        np.testing.assert_array_equal(margins, model.decision_function(X))
        np.testing.assert_array_equal(same_cost, cost)


def assert_same_answers(model, other, X):
    np.testing.assert_array_equal(other.apply(X), model.apply(X))
    np.testing.assert_allclose(other.decision_function(X), model.decision_function(X), rtol=1e-12)
    for counting in COUNTINGS:
        np.testing.assert_array_equal(other.bought_items(X, counting), model.bought_items(X, counting))
        np.testing.assert_allclose(other.predict_cost(X, counting), model.predict_cost(X, counting), rtol=1e-12)


# ------------------------------------------------------------------------------ row by row


@pytest.mark.parametrize("n_items", [1, 5, 70])  # 70: more than a 64-bit word holds
@pytest.mark.parametrize("n_outputs", [1, 3])
@each_shape
def test_rows_are_answered_and_billed_as_in_the_reference(shape, n_outputs, n_items):
    rng = np.random.default_rng(0)
    model = random_model(rng, shape, n_outputs, n_items=n_items)
    assert_as_in_the_reference(model, random_table(rng, 40))


@PROPERTY
@given(seeds, st.sampled_from([0.1, 0.5]))
def test_random_models_equal_the_reference(seed, density):
    rng = np.random.default_rng(seed)
    n_outputs = int(rng.choice([1, 4]))
    model = random_model(rng, random_shape(rng), n_outputs, identity=rng.random() < 0.5, density=density)
    assert_as_in_the_reference(model, random_table(rng, 15))


@PROPERTY
@given(seeds)
def test_a_branch_never_costs_more_than_its_learners(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, random_shape(rng))
    X = random_table(rng, 30)
    assert (model.predict_cost(X, "branch") <= model.predict_cost(X, "learner") + 1e-12).all()
    assert (model.bought_items(X, "branch") <= model.bought_items(X, "learner")).all()


@each_shape
def test_terminal_costs_are_the_papers_path_costs(shape):
    model = random_model(np.random.default_rng(1), shape, 2)
    expected = reference.exact_path_costs(model, model.pool, model.costs)
    np.testing.assert_allclose(model.terminal_costs(), expected, rtol=1e-12)
    X = random_table(np.random.default_rng(2), 40)
    np.testing.assert_allclose(model.predict_cost(X, "learner"), np.array(expected)[model.apply(X)], rtol=1e-12)


def test_identity_learners_alone():
    rng = np.random.default_rng(3)
    model = random_model(rng, TreeShape.full(3), n_trees=1)
    n = N_FEATURES - 1
    model = replace(
        model,
        pool=TreePool.identity(n),
        predict_weights=model.predict_weights[:n],
        route_weights=model.route_weights[:n],
    )
    X = random_table(rng, 40)
    assert_as_in_the_reference(model, X)
    np.testing.assert_array_equal(model.predict_cost(X, "branch"), model.predict_cost(X, "learner"))


def test_missing_values_and_categories_by_hand():
    """x0 <= 1 goes left, missing goes right; then category 0 or 2 goes left, anything unknown right."""
    pool = TreePool(
        roots=np.array([0]),
        feature=np.array([0, 1, -1, -1, -1]),
        threshold=np.array([1.0, 0, 0, 0, 0]),
        left=np.array([1, 3, 2, 3, 4]),
        right=np.array([2, 4, 2, 3, 4]),
        missing_left=np.zeros(5, dtype=bool),
        zero_is_missing=np.zeros(5, dtype=bool),
        category_start=np.array([-1, 0, -1, -1, -1]),
        category_count=np.array([0, 3, 0, 0, 0]),
        category_left=np.array([True, False, True]),
        value=np.array([0.0, 0, 10, 20, 30]),
        linear_feature=np.full(5, -1),
    )
    nan = np.nan
    X = np.array([[1, 0], [1, 1], [1, 2], [1, 3], [1, -1], [1, nan], [2, 0], [nan, 0]], dtype=float)
    assert pool.transform(X)[:, 0].tolist() == [20, 30, 20, 30, 30, 30, 10, 10]
    uses = pool.position_uses(np.eye(2, dtype=bool))[pool.leaves(X)[:, 0]]
    assert uses.sum(axis=1).tolist() == [2, 2, 2, 2, 2, 2, 1, 1]
    zero_goes_right = replace(pool, zero_is_missing=np.array([True, False, False, False, False]))
    assert zero_goes_right.transform(np.array([[0.0, 0], [0.5, 0]]))[:, 0].tolist() == [10, 20]


def test_a_category_far_beyond_all_known_ones_goes_right():
    pool = random_pool(np.random.default_rng(4), n_trees=20, identity=False)
    X = random_table(np.random.default_rng(5), 10)
    unknown = X.copy()
    X[:, -1], unknown[:, -1] = 1e3, 1e300
    np.testing.assert_array_equal(pool.leaves(unknown), pool.leaves(X))


# ---------------------------------------------------------------------------------- whole models


def test_more_rows_than_a_block():
    rng = np.random.default_rng(6)
    model = random_model(rng, TreeShape.full(3), 2)
    X = random_table(rng, 97)
    times = ROW_BLOCK // len(X) + 3
    many = np.tile(X, (times, 1))
    assert len(many) > ROW_BLOCK
    np.testing.assert_array_equal(model.apply(many), np.tile(model.apply(X), times))
    np.testing.assert_allclose(
        model.decision_function(many), np.tile(model.decision_function(X), (times, 1)), rtol=1e-12
    )
    for counting in COUNTINGS:
        np.testing.assert_allclose(
            model.predict_cost(many, counting), np.tile(model.predict_cost(X, counting), times), rtol=1e-12
        )


@each_counting
def test_no_rows(counting):
    model = random_model(np.random.default_rng(7), TreeShape.full(2), 2)
    nothing = np.empty((0, N_FEATURES))
    assert model.apply(nothing).shape == (0,)
    assert model.decision_function(nothing).shape == (0, 2)
    assert model.predict_cost(nothing, counting).shape == (0,)
    assert model.bought_items(nothing, counting).shape == (0, model.costs.n_items)


@PROPERTY
@given(seeds)
def test_compression_changes_nothing_but_the_size(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, random_shape(rng), 2, n_trees=10, density=0.08)
    small = model.compressed()
    assert_same_answers(model, small, random_table(rng, 20))
    in_use = {t for path in reference.paths(model.shape) for t in reference.path_learners(model, path)}
    assert small.pool.n_learners >= len(in_use)
    assert ((small.predict_weights != 0).any(axis=(1, 2)) | (small.route_weights != 0).any(axis=1)).all()


@each_shape
def test_other_prices_change_the_bill_and_nothing_else(shape):
    rng = np.random.default_rng(8)
    model = random_model(rng, shape)
    X = random_table(rng, 30)
    before = model.predict_cost(X)
    other = model.with_costs(random_costs(rng, n_items=9, evaluation=0.0))
    assert_as_in_the_reference(other, X)
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(model.predict_cost(X), before)
    assert (other.predict_cost(X) != before).any()


@pytest.mark.parametrize("shape", [TreeShape.full(1), TreeShape.full(3)], ids=["leaf", "tree"])
@pytest.mark.parametrize("compressed", [False, True])
@each_counting
def test_a_constant_model_buys_nothing(counting, compressed, shape):
    rng = np.random.default_rng(9)
    model = random_model(rng, shape, 2, density=0.0)
    if compressed:
        model = model.compressed()
        assert model.pool.n_learners == 0
    X = random_table(rng, 5)
    end = reference.hard_traversal(shape, lambda node: 0 > model.thresholds[node])[1][-1]
    np.testing.assert_array_equal(model.decision_function(X), np.tile(model.predict_intercepts[end], (5, 1)))
    assert not model.predict_cost(X, counting).any()
    assert not model.bought_items(X, counting).any()
    assert not model.terminal_costs().any()


def test_unknown_counting_is_named():
    model = random_model(np.random.default_rng(10), TreeShape.full(1))
    for method in (model.predict_cost, model.bought_items, model.decision_and_cost):
        with pytest.raises(ValueError, match="counting is 'leaf'"):
            method(np.zeros((1, N_FEATURES)), counting="leaf")


# -------------------------------------------------------------------------------- answers, pools


def test_classes_are_the_most_probable():
    rng = np.random.default_rng(12)
    model = random_model(rng, TreeShape.full(2), 3)
    X = random_table(rng, 20, missing=0.0)
    with pytest.raises(ValueError, match="needs a classifier"):
        model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X)[:, 0])
    model = replace(model, schema=replace(model.schema, classes=np.array(["a", "b", "c"])))
    assert model.predict(X).tolist() == ["abc"[k] for k in model.decision_function(X).argmax(axis=1)]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@PROPERTY
@given(seeds)
def test_pools_are_picked_joined_and_scaled_learner_by_learner(seed):
    rng = np.random.default_rng(seed)
    pool, other, X = random_pool(rng), random_pool(rng, n_trees=3), random_table(rng, 10)
    phi = pool.transform(X)
    np.testing.assert_array_equal(phi, [[reference.evaluate_learner(pool, t, x)[0] for t in range(11)] for x in X])
    picked = rng.permutation(11)[:5]
    np.testing.assert_array_equal(pool.subset(picked).transform(X), phi[:, picked])
    np.testing.assert_array_equal(
        TreePool.concatenate([pool, other]).transform(X), np.hstack([phi, other.transform(X)])
    )
    factors = rng.normal(size=11)
    np.testing.assert_allclose(pool.scaled(factors).transform(X), phi * factors, rtol=1e-12)
    uses = pool.learner_uses(np.eye(N_FEATURES, dtype=bool))
    assert [set(np.flatnonzero(row)) for row in uses] == [reference.learner_features(pool, t) for t in range(11)]
    items = rng.random((N_FEATURES, 70)) < 0.2
    at_leaves = pool.position_uses(items)[pool.leaves(X)]
    for i, x in enumerate(X):
        for t in range(11):
            features = reference.evaluate_learner(pool, t, x)[1]
            assert set(np.flatnonzero(at_leaves[i, t])) == reference.items_of(features, items)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_the_answer_and_its_cost_come_from_one_walk(n_outputs, monkeypatch):
    rng = np.random.default_rng(0)
    model = random_model(rng, TreeShape.full(3), n_outputs)
    X = random_table(rng, 50)
    expected = model.predict(X), model.predict_cost(X)
    walks, walk = [], type(model).walk
    monkeypatch.setattr(type(model), "walk", lambda self, *rest, **named: walks.append(1) or walk(self, *rest, **named))
    found = model.predict(X, return_cost=True)
    assert len(walks) == 1
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
