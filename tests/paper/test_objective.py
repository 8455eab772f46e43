"""The global loss: its value against the reference, its gradient against central differences."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import (
    LOSSES,
    PROPERTY,
    SHAPES,
    changed,
    each_loss,
    each_shape,
    random_objective,
    random_parameters,
    random_prior,
    random_shape,
    seeds,
    traversal,
)
from cstc.paper.objective import Design, NodeParameters
from cstc.paper.solver import node_problem

# everything that changes the loss, one at a time and together
SETTINGS = {
    "as in the paper": {},
    "sharp": {"sharpness": 3.0},
    "below the floor": {"floor": 20.0, "sharpness": 0.5},
    "no cost": {"cost_weight": 0.0},
    "no l1": {"l1_weight": 0.0},
    "no evaluation cost": {"evaluation": 0.0},
}


def build(shape, loss, seed=0, **changes):
    rng = np.random.default_rng(seed)
    objective = random_objective(rng, shape, loss, **changes)
    return objective, random_parameters(rng, objective)


def slow_loss(objective, parameters):
    phi = objective.design.phi.astype(float)
    y, weights = objective.y.tolist(), objective.row_weights.tolist()
    problem = objective.loss, objective.shape, parameters, objective.penalty, objective.gate_slope, objective.prior
    return reference.global_loss(phi, y, weights, *problem)


def relative_error(gradient, expected):
    return np.linalg.norm(gradient - expected) / np.linalg.norm(expected)


def central_differences(function, at, step=1e-5):
    steps = step * np.eye(len(at))
    return np.array([(function(at + s) - function(at - s)) / (2 * step) for s in steps])


def numerical_gradient(objective, parameters, auxiliaries=None):
    def value(flat):
        return objective.value(parameters.unflatten(flat), auxiliaries)

    gradient = central_differences(value, parameters.flatten())
    if objective.separate_gate:  # the gate's intercept is not learned: the threshold takes its place
        parameters.unflatten(gradient).intercepts[:, -1] = 0.0
    return gradient


@each_loss
@each_shape
def test_gradient_equals_central_differences(shape, loss):
    objective, parameters = build(shape, loss)
    gradient = objective.value_and_gradient(parameters)[1].flatten()
    assert relative_error(gradient, numerical_gradient(objective, parameters)) <= 1e-6


@PROPERTY
@given(seeds, st.sampled_from(list(LOSSES)))
def test_slope_along_any_direction_on_any_tree(seed, loss):
    rng = np.random.default_rng(seed)
    objective = random_objective(rng, random_shape(rng), LOSSES[loss], gate_slope=rng.uniform(0.5, 5))
    parameters = random_parameters(rng, objective)
    direction = random_parameters(rng, objective).flatten()
    direction /= np.linalg.norm(direction)
    slope = objective.value_and_gradient(parameters)[1].flatten() @ direction
    start = parameters.flatten()
    ahead, behind = (objective.value(parameters.unflatten(start + step * direction)) for step in (1e-5, -1e-5))
    assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("loss", [LOSSES["squared"], LOSSES["softmax"]], ids=["squared", "softmax"])
def test_gradient_and_value_under_other_settings(loss, changes):
    objective, parameters = build(SHAPES["pruned"], loss, **changes)
    value, gradient = objective.value_and_gradient(parameters)
    assert relative_error(gradient.flatten(), numerical_gradient(objective, parameters)) <= 1e-6
    assert value == pytest.approx(slow_loss(objective, parameters), rel=1e-8)


@each_loss
def test_gradient_and_value_with_a_prior(loss):
    objective, parameters = build(SHAPES["chain"], loss)
    objective = changed(objective, prior=random_prior(np.random.default_rng(1), objective))
    value, gradient = objective.value_and_gradient(parameters)
    assert relative_error(gradient.flatten(), numerical_gradient(objective, parameters)) <= 1e-6
    assert value == pytest.approx(slow_loss(objective, parameters), rel=1e-8)


@each_loss
def test_gradient_at_fixed_auxiliaries(loss):
    objective, parameters = build(SHAPES["pruned"], loss, sharpness=0.7)
    elsewhere = random_parameters(np.random.default_rng(5), objective)
    auxiliaries = objective.penalty.auxiliaries(elsewhere.weights, objective.shape.paths)
    gradient = objective.value_and_gradient(parameters, auxiliaries)[1].flatten()
    assert relative_error(gradient, numerical_gradient(objective, parameters, auxiliaries)) <= 1e-6


@each_loss
@each_shape
def test_value_equals_the_reference(shape, loss):
    objective, parameters = build(shape, loss)
    assert objective.value(parameters) == pytest.approx(slow_loss(objective, parameters), rel=1e-8)


@each_loss
def test_value_and_gradient_of_a_float32_design(loss):
    objective, parameters = build(SHAPES["full of depth 4"], loss, dtype=np.float32)
    value, gradient = objective.value_and_gradient(parameters)
    assert value == pytest.approx(slow_loss(objective, parameters), rel=1e-4)
    exact = changed(objective, design=Design(objective.design.phi.astype(float)))
    assert relative_error(gradient.flatten(), exact.value_and_gradient(parameters)[1].flatten()) <= 1e-4


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)])
@each_loss
@each_shape
def test_margins_and_traversal_equal_the_reference(shape, loss, dtype, tolerance):
    objective, parameters = build(shape, loss, dtype=dtype)
    phi = objective.design.phi.astype(float)
    margins = [[reference.node_margins(row, parameters, k) for k in range(shape.n_nodes)] for row in phi]
    np.testing.assert_allclose(objective.margins(parameters), margins, rtol=tolerance, atol=tolerance)
    gates = [reference.row_gates(row, shape, parameters, objective.gate_slope) for row in phi]
    expected = [reference.soft_traversal(shape, row) for row in gates]
    nodes, terminals = traversal(objective, parameters)
    np.testing.assert_allclose(nodes, [row[0] for row in expected], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(terminals, [row[1] for row in expected], rtol=tolerance, atol=tolerance)


@each_shape
def test_path_costs_equal_the_reference(shape):
    objective, parameters = build(shape, LOSSES["softmax"], sharpness=0.5)
    expected = [reference.path_cost(parameters.weights, path, objective.penalty) for path in reference.paths(shape)]
    costs = objective.penalty.path_costs(parameters.weights, shape.paths)[0]
    np.testing.assert_allclose(costs, expected, rtol=1e-8)


def test_path_costs_of_learners_that_need_an_item_for_some_rows_only():
    """``F`` may hold shares of rows.  It stands inside the square, so one learner of weight 1 pays its share."""
    objective, parameters = build(SHAPES["pruned"], LOSSES["squared"])
    shares = np.random.default_rng(2).uniform(0, 1, objective.penalty.learner_items.shape)
    penalty = replace(objective.penalty, learner_items=shares)
    expected = [reference.path_cost(parameters.weights, path, penalty) for path in reference.paths(objective.shape)]
    np.testing.assert_allclose(penalty.path_costs(parameters.weights, objective.shape.paths)[0], expected, rtol=1e-8)


@each_loss
@each_shape
def test_gradient_of_one_node_is_a_piece_of_the_whole(shape, loss):
    objective, parameters = build(shape, loss)
    objective = changed(objective, prior=random_prior(np.random.default_rng(1), objective))
    margins = objective.margins(parameters)
    for auxiliaries in (None, objective.penalty.auxiliaries(parameters.weights, shape.paths)):
        value, gradient = objective.value_and_gradient(parameters, auxiliaries)
        for node in range(shape.n_nodes):
            found = objective.node_value_and_gradient(node, parameters, margins, auxiliaries)
            assert found[0] == pytest.approx(value, rel=1e-12)
            np.testing.assert_allclose(found[1], gradient.weights[:, node], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found[2], gradient.intercepts[node], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found[3], gradient.thresholds[node], rtol=1e-9, atol=1e-12)


@each_loss
@each_shape
def test_a_node_alone_costs_what_it_adds_to_its_ancestors(shape, loss):
    """Differences between two weight vectors of a leaf are the same in the whole tree and in its own problem."""
    objective, parameters = build(shape, loss)
    objective = changed(objective, prior=random_prior(np.random.default_rng(1), objective))
    node = int(np.flatnonzero(shape.is_leaf)[-1])
    other = random_parameters(np.random.default_rng(9), objective)
    after = NodeParameters(parameters.weights.copy(), parameters.intercepts.copy(), parameters.thresholds)
    after.weights[:, node], after.intercepts[node] = other.weights[:, node], other.intercepts[node]
    row_weights = objective.row_weights * traversal(objective, parameters)[0][:, node]
    alone = node_problem(objective, parameters, node, row_weights)
    whole = slow_loss(objective, after) - slow_loss(objective, parameters)
    single = alone.value(after.keep([node])) - alone.value(parameters.keep([node]))
    assert single * row_weights.sum() == pytest.approx(whole, rel=1e-8)


@PROPERTY
@given(seeds, st.sampled_from([0.0, 0.5, 4.0]))
def test_auxiliaries_at_their_minimum_give_the_loss_itself(seed, sharpness):
    rng = np.random.default_rng(seed)
    objective = random_objective(rng, random_shape(rng), LOSSES["squared"], floor=0.5, sharpness=sharpness)
    parameters = random_parameters(rng, objective)
    best = objective.penalty.auxiliaries(parameters.weights, objective.shape.paths)
    value, gradient = objective.value_and_gradient(parameters)
    value_at_best, gradient_at_best = objective.value_and_gradient(parameters, best)
    assert value_at_best == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient_at_best.flatten(), gradient.flatten(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sharpness", [0.0, 2.0])
@pytest.mark.parametrize("name", ["learners", "items", "absolutes"])
def test_auxiliaries_are_optimal_by_grid_search(name, sharpness):
    """Lemma 1: no other z at or above the floor gives a lower loss, for any of the square roots."""
    objective, parameters = build(SHAPES["one-sided"], LOSSES["softmax"], floor=0.4, sharpness=sharpness)
    best = objective.penalty.auxiliaries(parameters.weights, objective.shape.paths)
    z = getattr(best, name)
    assert (z >= 0.4).all()
    lowest = objective.value(parameters, best)
    for at in np.ndindex(z.shape):
        values = []
        for candidate in np.linspace(0.4, 4, 13):
            other = z.copy()
            other[at] = candidate
            values.append(objective.value(parameters, replace(best, **{name: other})))
        assert min(values) >= lowest - 1e-12
        assert max(values) > lowest + 1e-6


@PROPERTY
@given(seeds)
def test_zero_weights_cost_nearly_nothing(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    penalty = random_objective(rng, shape, LOSSES["squared"], floor=1e-6).penalty
    costs, _ = penalty.path_costs(np.zeros((5, shape.n_nodes, 1)), shape.paths)
    assert (costs >= 0).all()
    assert (costs <= 1e-6 * (penalty.prices.sum() + penalty.evaluation.sum())).all()


def test_sharpness_approaches_paid_or_not_paid():
    objective, parameters = build(SHAPES["leaf"], LOSSES["squared"], sharpness=1e6, floor=1e-12)
    weights = np.where(np.arange(5)[:, None, None] < 3, parameters.weights, 0.0)
    penalty = objective.penalty
    items = penalty.learner_items[:3].any(axis=0)
    exact = penalty.prices[items].sum() + penalty.evaluation[:3].sum()
    assert penalty.path_costs(weights, objective.shape.paths)[0][0] == pytest.approx(exact, rel=1e-4)


@PROPERTY
@given(seeds, st.sampled_from(list(LOSSES)))
def test_order_of_rows_and_learners_does_not_matter(seed, loss):
    rng = np.random.default_rng(seed)
    objective = random_objective(rng, random_shape(rng, depth=3), LOSSES[loss])
    parameters = random_parameters(rng, objective)
    rows, learners = rng.permutation(objective.design.n_rows), rng.permutation(objective.design.n_learners)
    penalty = replace(
        objective.penalty,
        learner_items=objective.penalty.learner_items[learners],
        evaluation=objective.penalty.evaluation[learners],
    )
    design = Design(objective.design.phi[np.ix_(rows, learners)])
    y, weights = objective.y[rows], objective.row_weights[rows]
    other = changed(objective, design=design, y=y, sample_weight=weights, penalty=penalty)
    value, gradient = objective.value_and_gradient(parameters)
    moved = replace(parameters, weights=parameters.weights[learners])
    other_value, other_gradient = other.value_and_gradient(moved)
    assert other_value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other_gradient.weights, gradient.weights[learners], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(other_gradient.thresholds, gradient.thresholds, rtol=1e-8, atol=1e-12)


@PROPERTY
@given(seeds)
def test_whole_weights_are_repeated_rows(seed):
    rng = np.random.default_rng(seed)
    objective = random_objective(rng, random_shape(rng, depth=3), LOSSES["logistic"])
    parameters = random_parameters(rng, objective)
    times = 1 + np.arange(objective.design.n_rows) % 3
    phi, y = objective.design.phi, objective.y
    weighted = changed(objective, sample_weight=times.astype(float))
    long, ones = Design(phi.repeat(times, axis=0)), np.ones(times.sum())
    repeated = changed(objective, design=long, y=y.repeat(times), sample_weight=ones)
    assert weighted.value(parameters) == pytest.approx(repeated.value(parameters), rel=1e-12)
