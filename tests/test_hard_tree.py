"""A tree under hard routing: exact cost and risk against the reference, and the way to the model."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import log_loss, mean_squared_error

import reference
from builders import (
    LOSSES,
    SHAPES,
    each_loss,
    each_shape,
    per_tree,
    random_costs,
    random_learners,
    random_objective,
    random_parameters,
    random_table,
    random_tree,
    rows_of,
    schema,
)
from cstc.hard_tree import HardTree
from cstc.tree import TreeShape


def build(shape, loss, seed=0, n=30, n_items=5):
    """A random tree over random columns, and rows for it."""
    rng = np.random.default_rng(seed)
    learners, costs = random_learners(rng, loss.n_outputs), random_costs(rng, n_items)
    X = random_table(rng, n, missing=0.0)
    tree = random_tree(rng, shape, learners.n_columns, loss.n_outputs)
    return tree, learners, costs, X, rows_of(rng, learners, costs, X, loss)


@pytest.mark.parametrize("n_items", [5, 70])  # more items than a 64-bit word holds
@each_loss
@each_shape
def test_rows_end_and_pay_as_in_the_reference(shape, loss, n_items):
    tree, learners, costs, X, rows = build(shape, loss, n_items=n_items)
    outcomes = [reference.RowOutcome(per_tree(tree, learners), learners.pool, costs, x) for x in X]
    assert tree.terminals(rows.phi).tolist() == [row.terminal for row in outcomes]
    np.testing.assert_allclose(tree.margins(rows.phi), [row.margins for row in outcomes], rtol=1e-9, atol=1e-12)
    costs = [row.cost["branch"] for row in outcomes]
    np.testing.assert_allclose(tree.row_costs(rows, tree.terminals(rows.phi)), costs, rtol=1e-12)
    assert tree.mean_cost(rows) == pytest.approx(np.average(costs, weights=rows.weights), rel=1e-12)


@each_loss
@each_shape
def test_exact_loss_equals_the_reference(shape, loss):
    tree, learners, costs, X, rows = build(shape, loss, seed=1)
    expected = reference.exact_loss(
        per_tree(tree, learners), learners.pool, costs, X, rows.y, rows.weights, loss, cost_weight=0.3
    )
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
    assert smaller.shape.n_nodes == shape.n_nodes - 1 - len(shape.descendants(node))
    assert not smaller.route_weights[:, smaller.shape.is_leaf].any()
    expected = np.where(passed[:, None], by_parent, tree.margins(rows.phi))
    np.testing.assert_allclose(smaller.margins(rows.phi), expected, rtol=1e-12)


def test_one_node():
    weights, intercepts = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])
    np.testing.assert_allclose(HardTree.single(weights, intercepts).margins(np.array([[1.0, 1.0]])), [[14.0, 26.0]])


@each_loss
@each_shape
def test_model_undoes_the_scaling(shape, loss):
    """The tree works on (h - offset) / scale and scaled targets, the model on h and targets as they are."""
    rng = np.random.default_rng(6)
    tree, learners, costs, X, rows = build(shape, loss, seed=6, n=60)
    offset, scale = rng.normal(size=learners.n_columns), rng.uniform(0.5, 2, learners.n_columns)
    y_offset, y_scale = (1.5, 3.0) if loss.name == "squared" else (0.0, 1.0)
    phi = (rows.phi - offset) / scale
    model = tree.to_model(
        learners,
        offset=offset,
        scale=scale,
        y_offset=y_offset,
        y_scale=y_scale,
        constant=np.zeros(loss.n_outputs),
        costs=costs,
        link="identity",
        schema=schema(),
    )
    np.testing.assert_array_equal(model.apply(X), tree.terminals(phi))
    np.testing.assert_allclose(model.decision_function(X), tree.margins(phi) * y_scale + y_offset, rtol=1e-9)
    mean_cost = np.average(model.predict_cost(X), weights=rows.weights)
    assert mean_cost == pytest.approx(tree.mean_cost(replace(rows, phi=phi)), rel=1e-12)
    in_use = (tree.route_weights != 0).any(axis=1) | (tree.predict_weights != 0).any(axis=(1, 2))
    assert model.pool.n_learners == in_use[learners.column].sum()


# ------------------------------------------------------------------------------------------- rows


def test_error_is_the_metric_of_the_task():
    rng = np.random.default_rng(7)
    for name, metric in {"squared": mean_squared_error, "logistic": log_loss, "softmax": log_loss}.items():
        *_, rows = build(TreeShape.full(1), LOSSES[name])
        margins = rng.normal(size=(len(rows.y), LOSSES[name].n_outputs))
        raised = np.exp(margins if name == "softmax" else np.column_stack([np.zeros(len(margins)), margins]))
        answer = margins[:, 0] if name == "squared" else raised / raised.sum(axis=1, keepdims=True)
        assert rows.error(margins) == pytest.approx(metric(rows.y, answer, sample_weight=rows.weights))


def test_error_of_a_ranking_is_one_minus_ndcg():
    *_, rows = build(TreeShape.full(1), LOSSES["squared"])
    rng = np.random.default_rng(8)
    scores, grades, qid = rng.normal(size=(30, 1)), rng.integers(0, 4, 30), rng.integers(0, 5, 30)
    expected = 1 - reference.ndcg(grades, scores[:, 0], qid)
    assert replace(rows, y=grades, qid=qid).error(scores) == pytest.approx(expected)
    # without a relevant document NDCG says nothing, and the squared error is left
    assert replace(rows, y=0 * grades, qid=qid).error(scores) == replace(rows, y=0 * grades).error(scores)


def test_sampled_rows_are_rows():
    *_, rows = build(TreeShape.full(1), LOSSES["squared"])
    rows = replace(rows, qid=np.arange(30) // 3, y=np.arange(30.0))
    assert rows.sampled(30, 0) is rows
    sample = rows.sampled(12, 0)
    at = sample.y.astype(int)
    assert len(np.unique(at)) == 12
    for name in ("phi", "bits", "y", "weights", "qid"):
        np.testing.assert_array_equal(getattr(sample, name), getattr(rows, name)[at])
