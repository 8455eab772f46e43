"""The exact form of the paper's loss: what it solves, and that every step and every parameter counts."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import cstc.paper.exact
import reference
from builders import LOSSES, problem_of
from cstc import Exact
from cstc.datasets import QUADRANT_COSTS, QUADRANT_FEATURES, make_quadrants
from cstc.model import Schema, TreeShape
from cstc.paper.exact import PRIOR_ROWS, STAGES, STARTS, _prior
from cstc.paper.features import learn_columns
from cstc.paper.hard_tree import HardTree
from cstc.rows import Rows

each_loss_name = pytest.mark.parametrize("loss_name", list(LOSSES))


@cache
def case(loss_name="squared", cost_weight=None):
    """A small problem of plain inputs; its columns are learned once."""
    usual = {"squared": 0.5, "logistic": 0.002, "softmax": 0.002}[loss_name]
    weight = usual if cost_weight is None else cost_weight
    return problem_of(loss_name, weak_learners="identity", n=200, cost_weight=weight)


def trained(problem, **parameters):
    return Exact(**{"depth": 2, "tol": 1e-4} | parameters).train(problem)


def margins(model, problem):
    return model.decision_function(problem.rows.X)


def quadrants(n=400, cost_weight=0.03, state=0):
    names = list(QUADRANT_FEATURES)
    X, y = make_quadrants(n, random_state=state)
    return replace(
        problem_of(weak_learners="identity", n=30, cost_weight=cost_weight),
        rows=Rows(X, y, np.ones(n)),
        costs=QUADRANT_COSTS.resolve(names),
        schema=Schema(names, {}, np.zeros(6, dtype=bool)),
    )


# -- what it solves ------------------------------------------------------------------------------------------------


def test_the_papers_experiment_is_solved_with_means_that_overlap():
    """Both signs and one label for each row, no error: with means 2 apart, where gates of slope 1 leak."""
    model = Exact().train(quadrants()).model
    new, truth = make_quadrants(500, random_state=7)
    np.testing.assert_array_equal(model.predict_cost(new), 12.0)
    assert np.mean((model.predict(new) - truth) ** 2) < 1e-6


@pytest.mark.parametrize(("cost_weight", "most"), [(0.5, 2.0), (100.0, 0.0)])
def test_what_is_not_worth_its_price_is_not_bought(cost_weight, most):
    """A label lowers the risk by 1 and costs 10; the signs lower it by 5 for 2."""
    found = Exact().train(quadrants(cost_weight=cost_weight))
    X, y = make_quadrants(500, random_state=7)
    cost = found.model.predict_cost(X)
    np.testing.assert_array_equal(cost, most)
    risk = np.mean((found.model.predict(X) - y) ** 2)
    assert risk < 1.2 * (1.0 if most else y.var())


@each_loss_name
def test_noise_is_answered_by_the_constant_for_nothing(loss_name):
    problem = case(loss_name)
    rows = replace(problem.rows, y=np.random.default_rng(5).permutation(problem.rows.y))
    found = trained(replace(problem, rows=rows, shared={}))
    assert found.model.shape.n_nodes == 1
    assert not found.model.predict_cost(rows.X).any()
    np.testing.assert_allclose(margins(found.model, problem), np.tile(found.model.constant, (200, 1)))
    np.testing.assert_allclose(found.reached, [1.0])


@pytest.mark.parametrize(("loss_name", "cost_weight"), [("squared", 0.5), ("logistic", 0.002), ("softmax", 0.005)])
def test_a_tree_is_clearly_better_than_the_constant_for_the_rows_that_judge(loss_name, cost_weight):
    problem = problem_of(loss_name, weak_learners="identity", n=500, cost_weight=cost_weight)
    model, loss = trained(problem).model, LOSSES[loss_name]
    columns = learn_columns(problem, 0.2)
    rows = columns.validation.rows
    y = columns.units.offset + columns.units.scale * rows.y if loss_name == "squared" else rows.y
    gain = [
        reference.risk(loss.name, model.constant, y[i])
        - reference.risk(loss.name, model.decision_function(x[None])[0], y[i])
        - cost_weight * model.predict_cost(x[None])[0]
        for i, x in enumerate(rows.X)
    ]
    assert model.pool.n_learners > 0
    weights = rows.weights / rows.weights.sum()
    mean = weights @ gain
    assert mean > 2 * np.sqrt(weights**2 @ (gain - mean) ** 2)


def test_a_lucky_tree_is_not_taken():
    """Two standard errors of the paired difference: few rows that judge are not enough to be sure."""
    problem = case("squared")
    own = trained(problem).model
    few = replace(problem, validation=problem.rows.take(np.arange(3)), shared={})
    assert own.pool.n_learners > 0
    assert trained(few).model.pool.n_learners == 0


def test_margins_stay_finite_where_classes_are_told_apart_without_error():
    problem = case("logistic", 0.0)
    rows = replace(problem.rows, y=(problem.rows.X[:, 0] > 0.2).astype(int))
    model = trained(replace(problem, rows=rows, shared={})).model
    assert np.abs(margins(model, problem)).max() < 30
    assert ((margins(model, problem)[:, 0] > 0) == rows.y).mean() > 0.98


# -- the prior -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss_name", "n_columns"), [("logistic", 1), ("softmax", 4)])
def test_the_prior_is_the_constant_as_if_some_rows_had_confirmed_it(loss_name, n_columns):
    columns = learn_columns(case(loss_name), 0.2)
    prior, weights = _prior(columns), columns.train.weights
    n_outputs = LOSSES[loss_name].n_outputs
    assert prior.weights.shape == (columns.n_columns, n_columns)
    assert not prior.weights.any()
    np.testing.assert_array_equal(prior.intercepts[:n_outputs], columns.constant)
    assert not prior.intercepts[n_outputs:].any()
    n_effective = weights.sum() ** 2 / (weights**2).sum()
    assert prior.strength == pytest.approx(PRIOR_ROWS / n_effective * LOSSES[loss_name].curvature / 2)
    same = replace(columns, train=replace(columns.train, rows=replace(columns.train.rows, weights=9 * weights)))
    assert _prior(same).strength == pytest.approx(prior.strength)  # weights say how rows compare, not how many


def test_values_need_no_prior():
    assert _prior(learn_columns(case("squared"), 0.2)) is None


# -- steps and parameters ------------------------------------------------------------------------------------------


@each_loss_name
def test_the_loss_never_rises_within_a_stage_of_any_start(loss_name):
    found = trained(case(loss_name))
    assert len(found.loss_history) == len(STARTS) * len(STAGES)
    for stage in found.loss_history:
        assert (np.diff(stage) <= 1e-9 * abs(stage[0])).all()
    assert found.converged
    assert found.solution is None
    assert not found.candidates
    assert found.reached.sum() == pytest.approx(1)


def test_of_the_starts_the_one_with_the_least_exact_loss_is_taken(monkeypatch):
    """Trees stand in for what each start ends with; the exact loss at the training rows chooses."""
    problem = case()
    columns = learn_columns(problem, 0.2)
    made, taken = [], []
    real, pruned = Exact._made_exact, cstc.paper.exact.prune

    def make_exact(self, *arguments):
        made.append(real(self, *arguments))
        return made[-1]

    monkeypatch.setattr(Exact, "_made_exact", make_exact)
    monkeypatch.setattr(cstc.paper.exact, "prune", lambda tree, judge: taken.append(tree) or pruned(tree, judge))
    trained(problem)
    weight = columns.units.standard_weight(problem.cost_weight)
    losses = [tree.exact_loss(columns.train, weight) for tree in made]
    assert len(losses) == len(STARTS)
    assert taken[0] is made[int(np.argmin(losses))]


def made(monkeypatch, problem, tree):
    """Train with this tree in place of the solved ones."""
    monkeypatch.setattr(Exact, "_relaxed", lambda self, *arguments: (None, [np.zeros(2)], True))
    monkeypatch.setattr(Exact, "_made_exact", lambda self, *arguments: tree)
    return Exact().train(problem)


def linear_tree(columns, gate, threshold, supports):
    """Root and two leaves; each node is the regression of all training rows on its columns."""
    shape, n = TreeShape.full(2), columns.n_columns
    route, predict, intercepts = np.zeros((n, 3)), np.zeros((n, 3, 1)), np.zeros((3, 1))
    route[gate, 0] = 1.0
    for node, support in enumerate(supports):
        design = np.column_stack([columns.train.phi[:, support], np.ones(len(columns.train.y))])
        *weights, intercept = np.linalg.lstsq(design, columns.train.y, rcond=None)[0]
        predict[support, node, 0], intercepts[node] = weights, intercept
    return HardTree(shape, route, np.array([threshold, 0.0, 0.0]), predict, intercepts)


def test_a_gate_that_all_rows_pass_one_way_is_not_paid(monkeypatch):
    """All go up, where the prediction needs the first column; the gate's own goes."""
    problem = case("squared", 0.01)
    columns = learn_columns(problem, 0.2)
    tree = linear_tree(columns, 4, -1e9, [[], [0], [1]])
    found = made(monkeypatch, problem, tree)
    assert found.model.shape.n_nodes == 1
    expected = problem.costs.bill(np.flatnonzero(problem.costs.items_of([0]))) + 0.7
    np.testing.assert_allclose(found.model.predict_cost(problem.rows.X), expected)


@pytest.mark.parametrize(("share", "n_nodes"), [(0.1, 3), (10.0, 1)])
def test_a_node_stays_when_it_lowers_the_risk_by_more_than_it_costs(monkeypatch, share, n_nodes):
    """The leaves know four columns more than the root, which the rows that end there pay for."""
    monkeypatch.setattr(cstc.paper.exact, "_beats", lambda *arguments: True)
    problem = case("squared", 0.0)
    columns = learn_columns(problem, 0.2)
    judges = columns.validation
    tree = linear_tree(columns, 0, 0.0, [[0], [0], [0]])
    above, left = judges.phi[:, 0] > 0, judges.y - tree.margins(judges.phi)[:, 0]
    for node, at in ((1, above), (2, ~above)):
        weights = tree.predict_weights[:, node].copy()
        weights[1:5, 0] = np.linalg.lstsq(judges.phi[at, 1:5], left[at], rcond=None)[0]
        tree = tree.with_predictor(node, weights, tree.predict_intercepts[node])
    root = tree.keep(np.array([0]))
    gain = root.exact_loss(judges, 0.0) - tree.exact_loss(judges, 0.0)
    price = tree.mean_cost(judges) - root.mean_cost(judges)
    assert min(gain, price) > 0
    found = made(monkeypatch, replace(problem, cost_weight=columns.units.risk(share * gain / price)), tree)
    assert found.model.shape.n_nodes == n_nodes
    assert found.model.pool.n_learners == (5 if n_nodes == 3 else 1)


def test_other_units_give_the_same_model_in_those_units():
    """Inputs and targets times 4, cost and l1 weights times 16."""
    problem = case()
    rows = replace(problem.rows, y=4 * problem.rows.y, X=4 * problem.rows.X)
    other = replace(problem, rows=rows, cost_weight=16 * problem.cost_weight, shared={})
    first, second = trained(problem, l1_weight=0.1), trained(other, l1_weight=1.6)
    np.testing.assert_allclose(margins(second.model, other), 4 * margins(first.model, problem), rtol=1e-6)
    for stage, same in zip(second.loss_history, first.loss_history, strict=True):
        np.testing.assert_allclose(stage, 16 * same, rtol=1e-6)


def test_depth_and_nodes_bound_the_tree():
    problem = case("squared", 0.01)
    nodes = {
        name: trained(problem, **parameters).model.shape.n_nodes
        for name, parameters in {
            "one": {"depth": 1},
            "two": {"depth": 3, "max_nodes": 2},
            "three": {"depth": 2},
            "more": {"depth": 3, "max_nodes": None},
        }.items()
    }
    assert nodes["one"] == 1
    assert nodes["two"] <= 2
    assert nodes["three"] <= 3 < nodes["more"] <= 7


@pytest.mark.parametrize(
    "changes",
    [
        {"l1_weight": 2.0},
        {"solver": "cyclic"},
        {"max_iter": 2},
        {"tol": 0.1},
        {"validation_fraction": 0.5},
        {"dtype": "float32"},
        {"depth": 3},
        {"max_nodes": 2},
    ],
    ids=str,
)
def test_each_parameter_changes_the_model(changes):
    problem = replace(case("squared", 0.01), shared={})
    usual, other = (trained(replace(problem, shared={}), **more).model for more in ({}, changes))
    assert (margins(usual, problem) != margins(other, problem)).any()


def test_single_precision_is_nearly_the_same_and_not_the_same():
    """In one node, where the loss has one minimum."""
    options = {"depth": 1, "tol": 1e-9}
    double, single = (trained(case("squared", 0.01), dtype=dtype, **options) for dtype in ("float64", "float32"))
    assert not np.array_equal(double.loss_history[0], single.loss_history[0])
    np.testing.assert_allclose(margins(single.model, case()), margins(double.model, case()), rtol=1e-3)


def test_too_few_steps_are_told():
    assert not trained(case(), max_iter=2).converged


def test_l1_weight_shrinks_the_weights():
    sums = [np.abs(trained(case("squared", 0.0), l1_weight=l1).model.predict_weights).sum() for l1 in (0.0, 3.0)]
    assert sums[1] < 0.95 * sums[0]


def test_given_validation_data_prunes_and_stops():
    problem = case("squared", 0.01)
    noise = np.random.default_rng(2).permutation(problem.rows.y)
    true, false = (
        trained(replace(problem, validation=replace(problem.rows, y=y), shared={})).model
        for y in (problem.rows.y, noise)
    )
    assert true.shape.n_nodes > 1
    assert false.shape.n_nodes == 1
    assert not false.predict_cost(problem.rows.X).any()


def test_for_plain_inputs_only():
    assert Exact.takes == ("identity",)
    assert Exact().uses_validation
