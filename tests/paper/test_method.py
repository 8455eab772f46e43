"""The paper's procedure from data to model: every parameter is checked, and every one changes the model."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

import cstc.paper.features
import cstc.paper.method
import reference
from builders import LOSSES, problem_of
from cstc import Exact, Paper
from cstc.datasets import QUADRANT_COSTS, QUADRANT_FEATURES, make_quadrants
from cstc.model import Schema
from cstc.paper.features import learn_columns
from cstc.paper.hard_tree import HardTree
from cstc.paper.solver import Solution, initialise
from cstc.rows import Rows

SMALL = {"depth": 2, "tol": 1e-3}
each_loss_name = pytest.mark.parametrize("loss_name", list(LOSSES))


@cache
def case(loss_name="squared", weak_learners="boosted", cost_weight=None):
    """A problem on which a method takes a moment; the columns are learned once, as for a frontier."""
    usual = {"squared": 1.0, "logistic": 0.005, "softmax": 0.005}[loss_name]
    weight = usual if cost_weight is None else cost_weight
    return problem_of(loss_name, weak_learners=weak_learners, n=200, n_rounds=8, cost_weight=weight)


def trained(problem, **parameters):
    return Paper(**SMALL | parameters).train(problem)


def margins(model, problem):
    return model.decision_function(problem.rows.X)


# -- parameters ----------------------------------------------------------------------------------------------------

NUMBER = "it must be a finite number, 0 or more"
COUNT = "it must be a whole number, 1 or more"
BOTH = {
    "depth": ([0, -1, 1.5, "two", None], COUNT),
    "max_nodes": ([0, -1, 1.5, "two"], "it must be None or a whole number, 1 or more"),
    "l1_weight": ([-0.1, np.nan, np.inf, "much", None], NUMBER),
    "solver": (["newton", None, ["joint"]], "it must be one of ('joint', 'cyclic')"),
    "max_iter": ([0, 2.5, None], COUNT),
    "tol": ([-1e-9, np.nan, "small"], NUMBER),
    "validation_fraction": ([0, 1, 1.2, "half", None], "it must be above 0 and below 1"),
    "dtype": (["float16", float, None], "it must be one of ('float64', 'float32')"),
}
ONLY_PAPER = {
    "gate_slope": ([0, -1, np.inf, np.nan, "steep", None], "it must be a finite number above 0"),
    "pruning": ([None, 1, "yes"], "it must be True or False"),
    "fine_tuning": ([None, 0, "no"], "it must be True or False"),
}
WRONG = [
    (method, name, value, message)
    for method, names in ((Paper, BOTH | ONLY_PAPER), (Exact, BOTH))
    for name, (values, message) in names.items()
    for value in values
]


@pytest.mark.parametrize(("method", "name", "value", "message"), WRONG)
def test_a_wrong_parameter_is_named_with_what_would_be_right(method, name, value, message):
    with pytest.raises(ValueError, match="^" + re.escape(f"{name} is {value!r}; {message}") + "$"):
        method(**{name: value}).check()


@pytest.mark.parametrize(("method", "names"), [(Paper, BOTH | ONLY_PAPER), (Exact, BOTH)])
def test_every_parameter_is_tried_here(method, names):
    assert set(method().get_params()) == set(names)


@pytest.mark.parametrize("method", [Paper, Exact])
def test_right_parameters_of_other_types(method):
    method().check()
    method(depth=np.int64(2), max_nodes=None, l1_weight=0, tol=np.float32(0.1)).check()
    method(validation_fraction=np.float64(0.5)).check()
    Paper(gate_slope=3, pruning=np.True_, fine_tuning=np.False_).check()


@pytest.mark.parametrize("method", [Paper(depth=2, dtype="float32"), Exact(max_nodes=4)])
def test_a_method_is_cloned_and_changed_as_scikit_learn_does_it(method):
    other = clone(method).set_params(tol=0.5)
    assert other.get_params() == method.get_params() | {"tol": 0.5}


def test_fewer_rows_than_nodes():
    message = "48 training rows are fewer than the 63 nodes of the tree; give more rows, "
    message += "or a smaller depth or max_nodes"
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Paper(depth=6, max_nodes=None).train(problem_of(n=60))
    assert str(error.value) == message


# -- each parameter changes the model --------------------------------------------------------------------------------


def test_depth_and_nodes_are_those_of_the_tree():
    for parameters, n_nodes in (({}, 3), ({"depth": 3}, 7), ({"depth": 3, "max_nodes": 4}, 4), ({"depth": 1}, 1)):
        model = trained(case(), pruning=False, solver="joint", **parameters).model
        assert model.shape.n_nodes == n_nodes
    four = trained(case(), pruning=False, solver="joint", depth=4, max_nodes=None, max_iter=3).model
    assert four.shape.n_nodes == 15


def test_single_precision_is_nearly_the_same_and_not_the_same():
    double, single = (margins(trained(case(), dtype=dtype).model, case()) for dtype in ("float64", "float32"))
    assert (double != single).any()
    np.testing.assert_allclose(single, double, rtol=0.01)


def test_l1_weight_shrinks_the_weights_and_is_in_the_units_of_the_user():
    free = case(cost_weight=0.0)
    options = {"pruning": False, "fine_tuning": False, "solver": "joint", "max_iter": 3000, "tol": 1e-8, "depth": 1}
    sums = [np.abs(trained(free, l1_weight=l1, **options).solution.weights).sum() for l1 in (0.0, 0.5, 2.0, 1e4)]
    assert sums[0] > 1.1 * sums[1] > 1.1**2 * sums[2]
    assert sums[3] < 0.05
    # rho * scale^2 of standard targets: with targets in other units, the square of the unit belongs to the weight
    other = replace(free, rows=replace(free.rows, y=10 * free.rows.y), shared={})
    scaled = np.abs(trained(other, l1_weight=200.0, **options).solution.weights).sum()
    assert scaled == pytest.approx(sums[2], rel=1e-3)


def test_l1_weight_counts_in_fine_tuning_too():
    """One node that costs nothing is where it should be already, though the rows that judge would have it go on."""
    problem = replace(case(cost_weight=0.0), validation=case().rows, shared={})
    options = {"depth": 1, "l1_weight": 2.0, "solver": "joint", "tol": 1e-10}
    before, after = (
        margins(trained(problem, fine_tuning=flag, **options).model, problem)[:, 0] for flag in (False, True)
    )
    free = margins(trained(problem, **options | {"l1_weight": 0.0}).model, problem)[:, 0]
    assert np.abs(after - before).max() < 0.05 * np.abs(free - before).max()


def test_the_gate_slope_is_in_the_units_of_the_target(monkeypatch):
    """sigmoid(gate_slope * (margin of the user - threshold)), for the shares of terminals and for fine-tuning."""
    told, real = [], cstc.paper.method.fine_tune
    monkeypatch.setattr(
        cstc.paper.method, "fine_tune", lambda *args, **options: told.append(args[3]) or real(*args, **options)
    )
    problem = case()
    columns = learn_columns(problem, 0.2)
    for slope in (0.05, 0.5):
        found = trained(problem, gate_slope=slope, pruning=False)
        model, train = found.model, columns.train.rows
        phi, share = model.pool.transform(train.X), np.zeros(len(found.reached))
        for i in range(len(train)):
            scores = columns.units.scale * (phi[i] @ model.route_weights - model.thresholds)
            gates = [reference.sigmoid(slope * score) for score in scores]
            nodes, terminals = reference.soft_traversal(model.shape, gates)
            np.testing.assert_allclose(told[-1][i], nodes, rtol=1e-6)
            share += train.weights[i] * np.array(terminals)
        np.testing.assert_allclose(found.reached, share / train.weights.sum(), rtol=1e-6)
    steep = trained(problem, gate_slope=5.0).model
    assert not np.allclose(margins(steep, problem), margins(trained(problem, gate_slope=0.05).model, problem))


@pytest.mark.parametrize("weak_learners", ["boosted", "identity"])
def test_other_units_of_the_target_give_the_same_model_in_those_units(weak_learners):
    """y -> 4 y, with weights of cost and l1 times 16, and a slope of a quarter.

    Weights of plain inputs say how much of the target one unit of an input is worth, so the inputs grow along.
    """
    problem = case("squared", weak_learners)
    rows = replace(problem.rows, y=4 * problem.rows.y, X=problem.rows.X * (4 if weak_learners == "identity" else 1))
    other = replace(problem, rows=rows, cost_weight=16 * problem.cost_weight, shared={})
    first = trained(problem, l1_weight=0.1, gate_slope=0.4)
    second = trained(other, l1_weight=1.6, gate_slope=0.1)
    np.testing.assert_allclose(margins(second.model, other), 4 * margins(first.model, problem), rtol=1e-6)
    np.testing.assert_allclose(second.loss_history[0], 16 * first.loss_history[0], rtol=1e-6)
    np.testing.assert_array_equal(second.model.predict_cost(other.rows.X), first.model.predict_cost(problem.rows.X))


def test_solvers_steps_and_tolerance():
    joint, cyclic = (trained(case(), solver=solver, tol=1e-5) for solver in ("joint", "cyclic"))
    assert (margins(joint.model, case()) != margins(cyclic.model, case())).any()
    assert joint.loss_history[0][-1] == pytest.approx(cyclic.loss_history[0][-1], rel=0.2)
    assert joint.converged
    short = trained(case(), solver="joint", max_iter=2)
    assert not short.converged
    assert len(short.loss_history[0]) == 3
    rough, fine = (trained(case(), solver="joint", tol=tol) for tol in (0.1, 1e-6))
    assert len(rough.loss_history[0]) < len(fine.loss_history[0])
    assert (np.diff(fine.loss_history[0]) <= 1e-12 * fine.loss_history[0][0]).all()


@each_loss_name
def test_without_pruning_the_tree_is_full_and_with_it_every_node_helps_the_rows_that_judge(loss_name):
    problem = case(loss_name)
    options = {"solver": "joint", "fine_tuning": False}
    assert trained(problem, pruning=False, **options).model.shape.n_nodes == 3
    columns = learn_columns(problem, 0.2)
    for given in (columns.validation.rows, noise(columns.validation.rows)):
        judged = replace(problem, validation=in_user_units(columns, given), shared={})
        model = trained(judged, **options).model
        errors = error_after_each_removal(learn_columns(judged, 0.2), model)
        assert all(error > errors[0] for error in errors[1:])
    assert model.shape.n_nodes < 3  # for rows of noise, something was in the way


def noise(rows):
    return replace(rows, y=np.random.default_rng(1).permutation(rows.y))


def in_user_units(columns, rows):
    y = columns.units.offset + columns.units.scale * rows.y
    return rows if columns.loss.has_classes else replace(rows, y=y)


def error_after_each_removal(columns, model):
    """Errors of the rows that judge: of the model, and of what is left when each node is gone with all below it."""
    tree = HardTree(
        model.shape, model.route_weights, model.thresholds, model.predict_weights, model.predict_intercepts
    )
    rows, phi = columns.validation.rows, model.pool.transform(columns.validation.rows.X)
    y = columns.units.offset + columns.units.scale * rows.y if not columns.loss.has_classes else rows.y
    candidates = [tree, *(tree.without(node) for node in range(1, tree.shape.n_nodes))]
    return [columns.loss.risk(candidate.margins(phi), y, rows.weights) for candidate in candidates]


@each_loss_name
def test_fine_tuning_keeps_the_routes_and_the_bills_and_lowers_the_error_of_the_rows_that_judge(loss_name):
    problem = replace(case(loss_name), validation=case(loss_name).rows, shared={})
    plain, tuned = (trained(problem, solver="joint", fine_tuning=flag).model for flag in (False, True))
    np.testing.assert_array_equal(plain.apply(problem.rows.X), tuned.apply(problem.rows.X))
    np.testing.assert_array_equal(plain.predict_cost(problem.rows.X), tuned.predict_cost(problem.rows.X))
    columns = learn_columns(problem, 0.2)
    before, after = (error_after_each_removal(columns, model)[0] for model in (plain, tuned))
    assert after < before


def test_given_validation_data_judges_and_the_fraction_is_held_out_without_it():
    problem = case()
    assert len(learn_columns(replace(problem, shared={}), 0.4).validation.rows) == 80
    fifth, half = (trained(replace(problem, shared={}), validation_fraction=part).model for part in (0.2, 0.5))
    assert (margins(fifth, problem) != margins(half, problem)).any()
    own = replace(problem, validation=problem.rows.take(np.arange(50)), shared={})
    assert (margins(trained(own).model, problem) != margins(fifth, problem)).any()
    same = trained(replace(own, shared={}), validation_fraction=0.5).model  # nothing is held out
    np.testing.assert_array_equal(margins(same, problem), margins(trained(own).model, problem))


# -- columns, starts and supports ------------------------------------------------------------------------------------


def test_columns_are_grown_once_for_all_cost_weights(monkeypatch):
    grown, real = [], cstc.paper.features.grow
    monkeypatch.setattr(
        cstc.paper.features, "grow", lambda *args, **options: grown.append(1) or real(*args, **options)
    )
    problem = replace(case(), shared={})
    assert Paper().n_ensembles(problem.shared) == 0
    models = [trained(replace(problem, cost_weight=weight)).model for weight in (0.1, 30.0)]
    assert len(grown) == Paper().n_ensembles(problem.shared) == 1
    assert models[0].predict_cost(problem.rows.X).mean() > models[1].predict_cost(problem.rows.X).mean()
    alone = trained(replace(problem, cost_weight=30.0, shared={})).model
    assert len(grown) == 2
    np.testing.assert_array_equal(margins(alone, problem), margins(models[1], problem))


def test_plain_inputs_are_no_ensemble():
    problem = replace(case(weak_learners="identity"), shared={})
    trained(problem, depth=1)
    assert "columns" in problem.shared
    assert Paper().n_ensembles(problem.shared) == 0


def test_a_solution_is_where_the_next_cost_weight_starts():
    problem = case()
    first = trained(problem, solver="joint", tol=1e-6)
    again = trained(replace(problem, start=first.solution), solver="joint", tol=1e-6)
    assert again.loss_history[0][0] == pytest.approx(first.loss_history[0][-1])
    assert len(again.loss_history[0]) < len(first.loss_history[0])


@each_loss_name
def test_without_a_start_the_tree_is_learned_from_the_top_down(loss_name):
    problem = case(loss_name)
    found = trained(problem, solver="joint", gate_slope=0.3, l1_weight=0.01)
    columns = learn_columns(problem, 0.2)
    weights = [columns.units.standard_weight(weight) for weight in (problem.cost_weight, 0.01)]
    shape = trained(problem, solver="joint", pruning=False).model.shape
    objective = columns.objective(shape, weights[0], l1_weight=weights[1], gate_slope=0.3 * columns.units.scale)
    start = initialise(objective, solver="joint", max_iter=1000, tol=1e-3)
    assert found.loss_history[0][0] == pytest.approx(columns.units.risk(objective.value(start)))
    end = columns.units.risk(objective.value(found.solution))
    assert found.loss_history[0][-1] == pytest.approx(end)


def test_where_nothing_costs_every_contribution_counts(monkeypatch):
    """Small weights become exact zeros only where a price or the l1 term made them small."""
    problem = case(cost_weight=0.0)
    columns = learn_columns(problem, 0.2)
    start = trained(problem, solver="joint", max_iter=1).solution
    start = replace(start, weights=np.where(np.arange(columns.n_columns)[:, None, None] < 3, 1e-9, start.weights))
    solution = Solution(start, np.zeros(1), converged=True)
    monkeypatch.setattr(cstc.paper.method, "solve", lambda *args, **options: solution)
    for weights, n_learners in (((0.0, 0.0), 8), ((1e-9, 0.0), 5), ((0.0, 1e-9), 5)):
        method = Paper(**SMALL, pruning=False, fine_tuning=False, l1_weight=weights[1])
        assert method.train(replace(problem, cost_weight=weights[0])).model.pool.n_learners == n_learners


@each_loss_name
def test_when_money_is_everything_nothing_is_bought(loss_name):
    problem = case(loss_name, cost_weight=1e6)
    model = trained(problem, solver="joint").model
    assert not model.predict_cost(problem.rows.X, "learner").any()
    constant = LOSSES[loss_name].mean(model.constant[None])
    np.testing.assert_allclose(LOSSES[loss_name].mean(margins(model, problem)[:1]), constant, rtol=0.1, atol=0.05)


def test_a_ranking_is_pruned_by_its_own_metric():
    """Scores that are wrong by a constant rank as well as others: the squared error would tell, NDCG does not."""
    problem = problem_of(n=240, n_rounds=8, cost_weight=0.3, qid=np.arange(240) // 8)
    grades = np.clip(np.round((problem.rows.y - 95) / 5), 0, 4)
    problem = replace(problem, rows=replace(problem.rows, y=grades))
    columns = learn_columns(problem, 0.2)
    model = trained(problem, solver="joint", fine_tuning=False).model
    rows = columns.validation.rows
    tree = HardTree(
        model.shape, model.route_weights, model.thresholds, model.predict_weights, model.predict_intercepts
    )
    phi, y = model.pool.transform(rows.X), columns.units.offset + columns.units.scale * rows.y
    scores = [
        reference.ndcg(np.round(y, 6), candidate.margins(phi)[:, 0], rows.qid)
        for candidate in [tree, *(tree.without(node) for node in range(1, tree.shape.n_nodes))]
    ]
    assert all(score < scores[0] for score in scores[1:])


# -- the paper's experiment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [1, 2])
def test_the_papers_procedure_solves_the_papers_experiment(state):
    """Quadrants far enough apart for gates of slope 1: both signs and one label for each row, and no error.

    Of some cost weights, the one of least cost whose error on new rows is next to nothing.
    """
    names, means = list(QUADRANT_FEATURES), (60, 20, -20, -60)
    X, y = make_quadrants(1000, means=means, random_state=state)
    problem = replace(
        problem_of(weak_learners="identity", n=30),
        rows=Rows(X, y, np.ones(1000)),
        costs=QUADRANT_COSTS.resolve(names),
        schema=Schema(names, {}, np.zeros(6, dtype=bool)),
    )
    models = [Paper().train(replace(problem, cost_weight=weight)).model for weight in (0.1, 0.12, 0.14, 0.16)]
    new, truth = make_quadrants(500, means=means, random_state=9)
    right = [model for model in models if np.mean((model.predict(new) - truth) ** 2) < 0.01]
    cheapest = min(right, key=lambda model: model.predict_cost(new).mean())
    np.testing.assert_array_equal(cheapest.predict_cost(new), 12.0)


@pytest.mark.parametrize("method", [Paper, Exact])
def test_a_tree_far_too_large_is_refused_before_it_is_built(method):
    with pytest.raises(ValueError, match="training rows are fewer than the 1073741823 nodes of the tree"):
        method(depth=30, max_nodes=None).train(problem_of(weak_learners="identity", n=60))
