"""From nodes to a model: what each node says of each row, and what that costs, in plain loops."""

import numpy as np
import pytest
from hypothesis import given

import reference
from builders import N_FEATURES, PROPERTY, random_costs, random_pool, random_shape, random_table, schema, seeds
from cstc.model import TreePool, TreeShape
from cstc.model.build import Score, build_tree


def random_score(rng, pool, n_outputs, density=0.5):
    weights = rng.normal(size=(pool.n_learners, n_outputs)) * (rng.random((pool.n_learners, 1)) < density)
    return Score(pool, weights, rng.normal(size=n_outputs))


def built(shape, predictors, routes, costs, **units):
    n_outputs = len(predictors[0].intercept)
    options = {"constant": np.arange(n_outputs) + 2.0, "link": "identity", "schema": schema()} | units
    return build_tree(shape, predictors, routes, costs=costs, **options)


def value(score, x):
    """The outputs of one score for one row."""
    outputs = [reference.evaluate_learner(score.pool, t, x)[0] for t in range(score.pool.n_learners)]
    in_use = [t for t in range(score.pool.n_learners) if score.weights[t].any()]  # 0 * nan would be nan
    return score.intercept + sum((outputs[t] * score.weights[t] for t in in_use), np.zeros(len(score.intercept)))


def walk(shape, predictors, routes, costs, x):
    """The terminal of one row, its margins, and the cost of the branches: a learner of a pool is evaluated once."""
    terminal, path = reference.hard_traversal(shape, lambda node: value(routes[node], x)[0] > 0)
    asked = [routes[node] for node in path if not shape.is_leaf[node]] + [predictors[path[-1]]]
    evaluated = {(id(score.pool), t): score.pool for score in asked for t in np.flatnonzero(score.weights.any(axis=1))}
    features = set().union(*(reference.evaluate_learner(pool, t, x)[1] for (_, t), pool in evaluated.items()), set())
    items = reference.items_of(features, costs.feature_items)
    return terminal, value(predictors[path[-1]], x), sum(costs.prices[r] for r in items) + 0.7 * len(evaluated)


def assert_as_walked(model, shape, predictors, routes, costs, X, offset=0.0, scale=1.0):
    walks = [walk(shape, predictors, routes, costs, x) for x in X]
    assert model.apply(X).tolist() == [terminal for terminal, _, _ in walks]
    margins = [margins * scale + offset for _, margins, _ in walks]
    np.testing.assert_allclose(model.decision_function(X), margins, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict_cost(X), [cost for _, _, cost in walks], rtol=1e-12)


@PROPERTY
@given(seeds)
def test_rows_are_routed_answered_and_billed_as_the_scores_say(seed):
    """Some nodes share a pool and others have their own; a pool may be without a learner."""
    rng = np.random.default_rng(seed)
    shape, costs, n_outputs = random_shape(rng), random_costs(rng), int(rng.choice([1, 3]))
    pools = [random_pool(rng, n_trees=2 + j, identity=j == 0) for j in range(3)]
    pools.append(pools[0].subset(np.zeros(0, dtype=int)))
    nodes = range(shape.n_nodes)
    predictors = [random_score(rng, pools[rng.integers(4)], n_outputs) for _ in nodes]
    routes = [None if shape.is_leaf[k] else random_score(rng, pools[rng.integers(4)], 1) for k in nodes]
    X = random_table(rng, 20)
    units = {"offset": 3.0, "scale": 2.5}
    model = built(shape, predictors, routes, costs, **units)
    assert_as_walked(model, shape, predictors, routes, costs, X, **units)


def two_leaves(pools, weights):
    """A root that routes by the first column, and leaves over the given pools."""
    shape, inputs = TreeShape.full(2), TreePool.identity(N_FEATURES)
    first = np.eye(N_FEATURES)[:, :1]
    predictors = [Score(pool, np.array(w, dtype=float), np.zeros(1)) for pool, w in zip(pools, weights, strict=True)]
    return shape, predictors, [Score(inputs, first, np.array([-0.25])), None, None]


def test_a_shared_pool_is_there_once_and_equal_pools_as_often_as_they_come():
    rng = np.random.default_rng(0)
    pool, costs, X = random_pool(rng, n_trees=3, identity=False), random_costs(rng), random_table(rng, 30)
    weights = [np.ones((3, 1)), -np.ones((3, 1)), 2 * np.ones((3, 1))]
    for pools, n_learners in (([pool] * 3, 4), ([pool, pool, pool.subset(np.arange(3))], 7)):
        case = two_leaves(pools, weights)
        model = built(*case, costs)
        assert model.pool.n_learners == n_learners
        assert_as_walked(model, *case, costs, X)


def test_learners_that_no_node_uses_are_left_out():
    rng = np.random.default_rng(1)
    pool, costs = random_pool(rng, n_trees=5, identity=False), random_costs(rng)
    case = two_leaves([pool] * 3, [np.zeros((5, 1)), np.eye(5)[:, [1]], np.eye(5)[:, [3]]])
    model = built(*case, costs)
    X = random_table(rng, 30)
    assert model.pool.n_learners == 3  # two trees, and the first column
    np.testing.assert_array_equal(
        model.pool.transform(X), np.column_stack([pool.transform(X)[:, [1, 3]], X[:, 0]])
    )
    assert_as_walked(model, *case, costs, X)


def test_a_row_at_the_threshold_goes_down():
    """Upper is where the score is above zero; units of the target do not move the threshold."""
    rng = np.random.default_rng(2)
    shape, inputs = TreeShape.full(2), TreePool.identity(N_FEATURES)
    predictors = [Score(inputs, np.zeros((N_FEATURES, 1)), np.array([m])) for m in (0.0, 1.0, -1.0)]
    route = Score(inputs, 2 * np.eye(N_FEATURES)[:, :1], np.array([-3.0]))
    model = built(shape, predictors, [route, None, None], random_costs(rng), offset=10.0, scale=5.0)
    X = np.zeros((3, N_FEATURES))
    X[:, 0] = [1.4, 1.5, 1.6]
    assert model.thresholds.tolist() == [3.0, 0.0, 0.0]
    assert model.decision_function(X)[:, 0].tolist() == [5.0, 5.0, 15.0]


def test_the_constant_and_the_intercepts_are_in_the_units_of_the_user():
    pool = random_pool(np.random.default_rng(3))
    weights = np.ones((pool.n_learners, 2))
    predictor = Score(pool, weights, np.array([1.0, -1.0]))
    model = built(TreeShape.full(1), [predictor], [None], random_costs(np.random.default_rng(3)), offset=7.0, scale=2.0)
    np.testing.assert_array_equal(model.constant, [2 * 2 + 7, 3 * 2 + 7])
    np.testing.assert_array_equal(model.predict_intercepts, [[9, 5]])
    np.testing.assert_array_equal(model.predict_weights[:, 0], 2 * weights)
    np.testing.assert_array_equal(predictor.weights, weights)  # what was given is left alone


def test_no_threshold_is_negative_zero():
    """A file would keep the sign, and two models that are equal would have different files."""
    pool = TreePool.identity(N_FEATURES)
    shape, predictors, _ = two_leaves([pool] * 3, [np.zeros((N_FEATURES, 1))] * 3)
    for zero in (0.0, -0.0):
        routes = [Score(pool, np.ones((N_FEATURES, 1)), np.array([zero])), None, None]
        assert not np.signbit(built(shape, predictors, routes, random_costs(np.random.default_rng(4))).thresholds).any()


@pytest.mark.parametrize("link", ["identity", "logistic", "softmax"])
def test_what_goes_with_the_tree_is_kept(link):
    rng = np.random.default_rng(5)
    pool, costs, own = random_pool(rng), random_costs(rng), schema()
    model = build_tree(
        TreeShape.full(1),
        [random_score(rng, pool, 1)],
        [None],
        constant=np.zeros(1),
        costs=costs,
        link=link,
        schema=own,
    )
    assert (model.costs, model.schema, model.link) == (costs, own, link)
