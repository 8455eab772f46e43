"""Both solvers go downhill, reach known solutions and meet the optimality conditions."""

import numpy as np
import pytest

from builders import (
    LOSSES,
    SHAPES,
    changed,
    descendants,
    each_loss,
    random_objective,
    random_parameters,
    random_prior,
    traversal,
)
from cstc.model import TreeShape
from cstc.paper.objective import Design, NodeParameters, Penalty, TreeObjective
from cstc.paper.solver import SOLVERS, initialise, solve

each_solver = pytest.mark.parametrize("solver", SOLVERS)

LEAF = TreeShape.full(1)


def build(shape, loss, seed=0, **changes):
    rng = np.random.default_rng(seed)
    objective = random_objective(rng, shape, loss, n=40, **changes)
    return objective, random_parameters(rng, objective)


# ---------------------------------------------------------------------------------- steps downhill


@each_loss
@pytest.mark.parametrize("name", ["full of depth 2", "pruned", "chain"])
def test_joint_steps_never_raise_the_loss(name, loss):
    objective, start = build(SHAPES[name], loss, sharpness=0.5)
    values = [objective.value(start)]
    found = solve(objective, start, max_iter=40, watch=lambda now: values.append(objective.value(now)))
    assert len(values) > 5
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    np.testing.assert_allclose(found.loss_history, values, rtol=1e-12)  # the history is what really happened
    assert objective.value(found.parameters) == pytest.approx(values[-1], rel=1e-12)


@each_loss
@pytest.mark.parametrize("name", ["full of depth 2", "pruned", "chain"])
def test_cyclic_sweeps_never_raise_the_loss(name, loss):
    objective, parameters = build(SHAPES[name], loss, sharpness=0.5)
    values = [objective.value(parameters)]
    for _ in range(4):  # a sweep remembers nothing of the one before, so single sweeps show every step
        found = solve(objective, parameters, solver="cyclic", max_iter=1)
        parameters = found.parameters
        values.append(objective.value(parameters))
        np.testing.assert_allclose(found.loss_history, values[-2:], rtol=1e-12)
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[1] < values[0] - 1e-3


@each_solver
def test_start_is_left_as_it_was(solver):
    objective, start = build(SHAPES["chain"], LOSSES["squared"])
    before = start.flatten().copy()
    solve(objective, start, solver=solver, max_iter=3)
    np.testing.assert_array_equal(start.flatten(), before)


@each_solver
def test_one_step_is_not_convergence(solver):
    objective, start = build(SHAPES["full of depth 2"], LOSSES["squared"])
    assert not solve(objective, start, solver=solver, max_iter=1).converged
    assert solve(objective, start, solver=solver, max_iter=2000, tol=1e-3).converged


@each_solver
def test_converged_solution_stays_where_it_is(solver):
    objective, start = build(LEAF, LOSSES["squared"], floor=0.1)
    found = solve(objective, start, solver=solver, max_iter=2000, tol=1e-12)
    again = solve(objective, found.parameters, solver=solver, max_iter=2000, tol=1e-12)
    np.testing.assert_allclose(again.parameters.flatten(), found.parameters.flatten(), atol=1e-4)


@pytest.mark.parametrize("unit", [1.0, 1e-3])
@each_solver
def test_tolerance_is_relative_to_the_loss(solver, unit):
    """Least squares in metres and in millimetres: convergence means the same."""
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(200, 5))
    y = unit * (phi @ [1, 2, -1, 0.5, 0] + 0.1 * rng.normal(size=200))
    penalty = Penalty(np.eye(5), np.ones(5), np.zeros(5), cost_weight=0.0, l1_weight=0.0)
    objective = TreeObjective(Design(phi), y, np.ones(200), LOSSES["squared"], LEAF, penalty)
    found = solve(objective, NodeParameters.zeros(5, 1, 1), solver=solver, tol=1e-6)
    design = np.column_stack([phi, np.ones(200)])
    best = np.mean((design @ np.linalg.lstsq(design, y, rcond=None)[0] - y) ** 2)
    assert found.converged
    assert found.loss_history[-1] == pytest.approx(best, rel=1e-3)


def test_watching_ends_the_joint_solver():
    objective, start = build(SHAPES["chain"], LOSSES["squared"])
    assert len(solve(objective, start, watch=lambda parameters: True).loss_history) == 2


def test_unknown_solver_is_named():
    objective, start = build(LEAF, LOSSES["squared"])
    with pytest.raises(ValueError, match="'newton'; it must be one of"):
        solve(objective, start, solver="newton")


# --------------------------------------------------------------------------------- known solutions


@pytest.mark.parametrize("priced", ["l1", "item", "evaluation", "all"])
@pytest.mark.parametrize("correlation", [0.8, -0.8, 0.05])
@each_solver
def test_one_feature_is_soft_thresholding(solver, correlation, priced):
    """mean (a x - y)^2 + p |a| has its minimum at the soft threshold of mean(x y) by p / 2."""
    floor, price = 1e-3, 0.3
    x = np.tile([1.0, 1.0, -1.0, -1.0], 5)
    y = correlation * x + np.tile([0.4, -0.4], 10) + 2.0  # the intercept is free
    shares = {"l1": (1, 0, 0), "item": (0, 1, 0), "evaluation": (0, 0, 1), "all": (0.2, 0.3, 0.5)}[priced]
    penalty = Penalty(
        learner_items=np.ones((1, 1)),
        prices=np.array([shares[1] * price / 2.0]),
        evaluation=np.array([shares[2] * price / 2.0]),
        cost_weight=2.0,
        l1_weight=shares[0] * price,
        floor=floor,
    )
    objective = TreeObjective(Design(x[:, None]), y, np.ones(20), LOSSES["squared"], LEAF, penalty)
    found = solve(objective, NodeParameters.zeros(1, 1, 1), solver=solver, max_iter=1000, tol=1e-14).parameters
    exact = np.sign(correlation) * max(abs(correlation) - price / 2, 0)
    smoothed = 2 * correlation / (2 + price / floor)  # where the exact answer is 0: the minimum below the floor
    assert found.weights[0, 0, 0] == pytest.approx(exact or smoothed, abs=1e-5)
    assert found.intercepts[0, 0] == pytest.approx(2.0, abs=1e-5)


def convex_problem(loss, floor):
    return build(LEAF, loss, floor=floor, cost_weight=0.02, l1_weight=0.01, n_learners=8)[0]


@each_loss
def test_solvers_agree_on_a_convex_problem(loss):
    objective = convex_problem(loss, floor=1e-2)
    start = random_parameters(np.random.default_rng(3), objective)
    losses = [solve(objective, start, solver=solver, max_iter=500, tol=1e-12).loss_history[-1] for solver in SOLVERS]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@each_solver
@each_loss
def test_solution_meets_the_optimality_conditions(loss, solver):
    """Above the floor the risk's pull balances the penalty; below it the pull is too weak for the price."""
    floor = 1e-2
    objective = convex_problem(loss, floor)
    penalty, phi = objective.penalty, objective.design.phi
    start = random_parameters(np.random.default_rng(3), objective)
    found = solve(objective, start, solver=solver, max_iter=2000, tol=1e-14).parameters
    weights = found.weights[:, 0]
    derivative = loss.value_and_derivative(objective.margins(found)[:, 0, : loss.n_outputs], objective.y)[1]
    derivative = objective.row_weights[:, None] * derivative
    np.testing.assert_allclose(derivative.sum(axis=0), 0, atol=2e-5)  # the intercepts pay nothing
    item_norms = [np.linalg.norm(weights[penalty.learner_items[:, r] > 0]) for r in range(len(penalty.prices))]
    dropped = 0
    for t, weight in enumerate(weights):
        price = penalty.evaluation[t] / max(np.linalg.norm(weight), floor)
        for r, norm in enumerate(item_norms):
            price += penalty.learner_items[t, r] * penalty.prices[r] / max(norm, floor)
        push = penalty.cost_weight * price * weight
        push += penalty.l1_weight * weight / np.maximum(np.abs(weight), floor)
        pull = np.zeros_like(weight)
        pull[: loss.n_outputs] = phi[:, t] @ derivative
        np.testing.assert_allclose(pull + push, 0, atol=2e-5)
        if np.linalg.norm(weight) < floor:
            dropped += 1
            most = penalty.cost_weight * (penalty.evaluation[t] + penalty.learner_items[t] @ penalty.prices)
            most += penalty.l1_weight * np.sqrt(loss.n_outputs)
            assert np.linalg.norm(pull) <= most + 2e-5
    assert 0 < dropped < len(weights)


# ------------------------------------------------------------------------------------- initialise


def tight_start(objective, solver="joint"):
    return initialise(objective, solver=solver, max_iter=5000, tol=1e-14)


@each_solver
@each_loss
@pytest.mark.parametrize("name", ["full of depth 2", "pruned", "chain"])
def test_every_node_starts_optimal_as_a_leaf(name, loss, solver):
    """Cut off what lies below a node, and the loss of the remaining tree has no slope left in its weights."""
    objective, _ = build(SHAPES[name], loss, floor=0.05, cost_weight=0.02, l1_weight=0.01)
    objective = changed(objective, prior=random_prior(np.random.default_rng(1), objective, strength=0.01))
    parameters = tight_start(objective, solver)
    shape = objective.shape
    for node in range(shape.n_nodes):
        kept = np.setdiff1d(np.arange(shape.n_nodes), descendants(shape, node))
        here = list(kept).index(node)
        cut, alone = changed(objective, shape=shape.keep(kept)), parameters.keep(kept)
        assert cut.shape.is_leaf[here]
        weights = alone.weights.copy()
        if objective.separate_gate:
            weights[:, here, -1] = 0.0  # a leaf has no gate to pay for
        gradient = cut.value_and_gradient(NodeParameters(weights, alone.intercepts, alone.thresholds))[1]
        np.testing.assert_allclose(gradient.weights[:, here], 0, atol=2e-5)
        np.testing.assert_allclose(gradient.intercepts[here], 0, atol=2e-5)


@each_loss
def test_thresholds_start_at_the_mean_margin_of_the_rows_that_arrive(loss):
    objective, _ = build(SHAPES["full of depth 2"], loss, gate_slope=3.0, cost_weight=0.02)
    parameters = initialise(objective)
    margins = objective.margins(parameters)[:, :, -1]
    reached = objective.row_weights[:, None] * traversal(objective, parameters)[0]
    for node in np.flatnonzero(~objective.shape.is_leaf):
        assert parameters.thresholds[node] == pytest.approx(np.average(margins[:, node], weights=reached[:, node]))


@each_loss
def test_thresholds_may_start_at_the_median_instead(loss):
    """At most half of the weight that arrives lies below it, and at most half above."""
    objective, _ = build(SHAPES["full of depth 2"], loss, gate_slope=3.0, cost_weight=0.02)
    parameters = initialise(objective, threshold="median")
    margins = objective.margins(parameters)[:, :, -1]
    reached = objective.row_weights[:, None] * traversal(objective, parameters)[0]
    for node in np.flatnonzero(~objective.shape.is_leaf):
        apart = margins[:, node] - parameters.thresholds[node]
        for side in (apart < -1e-12, apart > 1e-12):
            assert 0 < reached[side, node].sum() <= 0.5 * reached[:, node].sum()


def test_separate_gate_starts_along_the_widest_direction_of_the_class_margins():
    objective, _ = build(SHAPES["full of depth 2"], LOSSES["softmax"], cost_weight=0.01)
    margins = objective.margins(initialise(objective))[:, 0]
    outputs, gate = margins[:, :3], margins[:, 3]
    weights = objective.row_weights
    spread = np.sqrt(np.average((gate - np.average(gate, weights=weights)) ** 2, weights=weights))
    for direction in np.random.default_rng(0).normal(size=(200, 3)):
        along = outputs @ direction / np.linalg.norm(direction)
        assert np.sqrt(np.average((along - np.average(along, weights=weights)) ** 2, weights=weights)) <= spread + 1e-9


def test_a_node_that_nothing_reaches_starts_like_its_parent():
    phi = np.array([[1.0], [-1.0], [-1.0], [-1.0]])
    sample_weight = np.array([1.0, 1e-8, 1e-8, 1e-8])  # so the mean margin is just below that of the first row
    penalty = Penalty(np.ones((1, 1)), np.ones(1), np.zeros(1), cost_weight=0.0, l1_weight=0.0)
    objective = TreeObjective(
        Design(phi),
        np.array([5.0, 1.0, 1.0, 1.0]),
        sample_weight,
        LOSSES["squared"],
        TreeShape.full(2),
        penalty,
        gate_slope=1e20,
    )
    parameters = tight_start(objective)
    assert parameters.weights[0, 0, 0] != 0
    starved = 2 if parameters.weights[0, 0, 0] > 0 else 1
    assert traversal(objective, parameters)[0][0, starved] == 0
    np.testing.assert_array_equal(parameters.weights[:, starved], 0)
    np.testing.assert_array_equal(parameters.intercepts[starved], parameters.intercepts[0])
