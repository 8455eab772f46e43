"""A tree under hard routing: exact cost and risk against the reference."""

import numpy as np
import pytest

import reference
from builders import (
    LOSSES,
    SHAPES,
    descendants,
    each_loss,
    each_shape,
    random_costs,
    random_objective,
    random_parameters,
    random_pool,
    random_table,
    random_tree,
    seen_of,
    with_constant_leaves,
)
from cstc.model import TreeShape
from cstc.paper.hard_tree import HardTree


def build(shape, loss, seed=0, n=30, n_items=5, coded=False):
    """A random tree over random columns, and rows for it; Phi is dense, or codes of leaves."""
    rng = np.random.default_rng(seed)
    pool, costs = random_pool(rng), random_costs(rng, n_items)
    if coded:
        pool = with_constant_leaves(pool)
    X = random_table(rng, n, missing=0.0)
    tree = random_tree(rng, shape, pool.n_learners, loss.n_outputs)
    return tree, pool, costs, X, seen_of(rng, pool, costs, X, loss)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("n_items", [5, 70])  # more items than a 64-bit word holds
@each_loss
@each_shape
def test_rows_end_and_pay_as_in_the_reference(shape, loss, n_items, coded):
    tree, pool, costs, X, rows = build(shape, loss, n_items=n_items, coded=coded)
    outcomes = [reference.RowOutcome(tree, pool, costs, x) for x in X]
    assert tree.terminals(rows.phi).tolist() == [row.terminal for row in outcomes]
    np.testing.assert_allclose(tree.margins(rows.phi), [row.margins for row in outcomes], rtol=1e-9, atol=1e-12)
    costs = [row.cost["branch"] for row in outcomes]
    np.testing.assert_allclose(tree.row_costs(rows, tree.terminals(rows.phi)), costs, rtol=1e-12)
    assert tree.mean_cost(rows) == pytest.approx(np.average(costs, weights=rows.weights), rel=1e-12)


@pytest.mark.parametrize("coded", [False, True])
@each_loss
@each_shape
def test_exact_loss_equals_the_reference(shape, loss, coded):
    tree, pool, costs, X, rows = build(shape, loss, seed=1, coded=coded)
    expected = reference.exact_loss(tree, pool, costs, X, rows.y, rows.weights, loss, cost_weight=0.3)
    assert tree.exact_loss(rows, 0.3) == pytest.approx(expected, rel=1e-9)
    assert np.average(tree.row_losses(rows, 0.3), weights=rows.weights) == pytest.approx(expected, rel=1e-9)


@each_shape
def test_columns_on_each_path_equal_the_reference(shape):
    tree, *_ = build(shape, LOSSES["softmax"], seed=2)
    expected = [reference.path_learners(tree, path) for path in reference.paths(shape)]
    assert [np.flatnonzero(used).tolist() for used in tree.used_columns()] == expected


@each_loss
@each_shape
def test_trained_parameters_route_and_predict_as_trained(shape, loss):
    rng = np.random.default_rng(3)
    objective = random_objective(rng, shape, loss)
    parameters = random_parameters(rng, objective)
    tree = HardTree.from_parameters(shape, parameters, loss.n_outputs)
    for row, terminal, margins in zip(
        objective.design.phi, tree.terminals(objective.design.phi), tree.margins(objective.design.phi), strict=True
    ):
        outputs = [reference.node_margins(row, parameters, k) for k in range(shape.n_nodes)]
        expected, path = reference.hard_traversal(shape, lambda k, a=outputs: a[k][-1] > parameters.thresholds[k])
        assert terminal == expected
        np.testing.assert_allclose(margins, outputs[path[-1]][: loss.n_outputs], rtol=1e-12)


def test_a_leaf_pays_for_no_gate():
    objective = random_objective(np.random.default_rng(3), SHAPES["pruned"], LOSSES["softmax"])
    parameters = random_parameters(np.random.default_rng(4), objective)
    tree = HardTree.from_parameters(objective.shape, parameters, 3)
    assert not tree.route_weights[:, objective.shape.is_leaf].any()
    assert tree.route_weights[:, ~objective.shape.is_leaf].all()


@pytest.mark.parametrize(
    ("shape", "node"),
    [*((TreeShape.full(3), node) for node in range(1, 7)), *((TreeShape.chain(4), node) for node in range(1, 4))],
)
def test_without_a_node_its_parent_predicts(shape, node):
    tree, _, _, _, rows = build(shape, LOSSES["squared"], seed=5, n=60)
    smaller = tree.without(node)
    passed = shape.paths[tree.terminals(rows.phi)][:, node]
    parent = shape.parents[node]
    by_parent = rows.phi @ tree.predict_weights[:, parent] + tree.predict_intercepts[parent]
    assert smaller.shape.n_nodes == shape.n_nodes - 1 - len(descendants(shape, node))
    assert not smaller.route_weights[:, smaller.shape.is_leaf].any()
    expected = np.where(passed[:, None], by_parent, tree.margins(rows.phi))
    np.testing.assert_allclose(smaller.margins(rows.phi), expected, rtol=1e-12)


def test_one_node():
    weights, intercepts = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])
    np.testing.assert_allclose(HardTree.single(weights, intercepts).margins(np.array([[1.0, 1.0]])), [[14.0, 26.0]])


@each_shape
def test_soft_traversal_equals_the_reference(shape):
    tree, _, _, _, rows = build(shape, LOSSES["squared"], seed=6)
    nodes, terminals = tree.traverse_soft(rows.phi, slope=1.7)
    for i, row in enumerate(rows.phi):
        scores = row @ tree.route_weights - tree.thresholds
        expected = reference.soft_traversal(shape, [reference.sigmoid(1.7 * score) for score in scores])
        np.testing.assert_allclose(nodes[i], expected[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(terminals[i], expected[1], rtol=1e-9, atol=1e-12)


def test_another_predictor_at_one_node():
    tree, _, _, _, rows = build(TreeShape.full(2), LOSSES["softmax"], seed=7)
    rng = np.random.default_rng(7)
    weights, intercepts = rng.normal(size=tree.predict_weights[:, 1].shape), rng.normal(size=3)
    other = tree.with_predictor(1, weights, intercepts)
    at = tree.shape.terminal_parents[tree.terminals(rows.phi)] == 1
    assert 0 < at.sum() < len(at)
    expected = np.where(at[:, None], rows.phi @ weights + intercepts, tree.margins(rows.phi))
    np.testing.assert_allclose(other.margins(rows.phi), expected, rtol=1e-12)
    assert not (tree.predict_weights[:, 1] == weights).all()  # the first tree is left as it was
