"""Columns of ``Phi``: their bills, the exact support of what is learned on them, and the way back to user's units."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import log_loss, mean_squared_error

import reference
from builders import (
    LOSSES,
    N_FEATURES,
    PROPERTY,
    columns_of,
    each_loss,
    each_shape,
    problem_of,
    random_costs,
    random_parameters,
    random_pool,
    random_rows,
    random_shape,
    random_table,
    random_tree,
    seeds,
    seen_of,
    with_constant_leaves,
    with_rows,
)
from cstc.lightgbm_engine import boost
from cstc.lightgbm_trees import trees_of
from cstc.matrix import MOST_ROWS
from cstc.model import TreePool, TreeShape
from cstc.model.pool import unpack_items
from cstc.paper.codes import as_array
from cstc.paper.features import FLOOR, learn_columns
from cstc.paper.hard_tree import HardTree
from cstc.paper.objective import NodeParameters
from cstc.rows import Rows, Units, hold_out


def some_seen(loss, n=30):
    rng = np.random.default_rng(0)
    return seen_of(rng, random_pool(rng), random_costs(rng), random_table(rng, n, missing=0.0), loss)


def some_columns(loss, seed=0, n=60, n_items=5, scale=1.0, coded=False):
    rng = np.random.default_rng(seed)
    pool, costs = random_pool(rng), random_costs(rng, n_items)
    if coded:
        pool = with_constant_leaves(pool)
    train, validation = (random_rows(rng, random_table(rng, m, missing=0.0), loss) for m in (n, 25))
    return columns_of(pool, train, validation, loss, costs, scale=scale), train, validation


# -- rows as a tree sees them --------------------------------------------------------------------------------------


def test_error_is_the_metric_of_the_task():
    rng = np.random.default_rng(7)
    for name, metric in {"squared": mean_squared_error, "logistic": log_loss, "softmax": log_loss}.items():
        rows = some_seen(LOSSES[name])
        margins = rng.normal(size=(len(rows.y), LOSSES[name].n_outputs))
        raised = np.exp(margins if name == "softmax" else np.column_stack([np.zeros(len(margins)), margins]))
        answer = margins[:, 0] if name == "squared" else raised / raised.sum(axis=1, keepdims=True)
        assert rows.error(margins) == pytest.approx(metric(rows.y, answer, sample_weight=rows.weights))


def test_error_of_a_ranking_is_one_minus_ndcg():
    rows, rng = some_seen(LOSSES["squared"]), np.random.default_rng(8)
    scores, grades, qid = rng.normal(size=(30, 1)), rng.integers(0, 4, 30), rng.integers(0, 5, 30)
    expected = 1 - reference.ndcg(grades, scores[:, 0], qid)
    ranked = with_rows(rows, y=grades, qid=qid)
    assert ranked.error(scores) == pytest.approx(expected)
    assert replace(ranked, at=2).error(scores) == pytest.approx(1 - reference.ndcg(grades, scores[:, 0], qid, 2))
    # without a relevant document NDCG says nothing, and the squared error is left
    none = 0 * grades
    assert with_rows(rows, y=none, qid=qid).error(scores) == with_rows(rows, y=none).error(scores)


def test_sampled_rows_are_rows():
    rows = with_rows(some_seen(LOSSES["squared"]), qid=np.arange(30) // 3, y=np.arange(30.0))
    assert rows.sampled(30, 0) is rows
    sample = rows.sampled(12, 0)
    at = sample.y.astype(int)
    assert len(np.unique(at)) == 12
    for name in ("phi", "codes", "y", "weights"):
        np.testing.assert_array_equal(getattr(sample, name), getattr(rows, name)[at])
    for name in ("X", "qid"):
        np.testing.assert_array_equal(getattr(sample.rows, name), getattr(rows.rows, name)[at])
    assert (rows.sampled(12, 1).y != sample.y).any()


# -- columns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [5, 70])  # more items than a 64-bit word holds
@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("coded", [False, True])
def test_columns_are_centred_outputs_with_the_bill_of_their_branches(coded, scale, n_items):
    columns, train, validation = some_columns(LOSSES["squared"], n_items=n_items, scale=scale, coded=coded)
    pool, costs = columns.pool, columns.costs
    outputs = np.array([[reference.evaluate_learner(pool, t, x)[0] for t in range(pool.n_learners)] for x in train.X])
    mean = train.weights @ outputs / train.weights.sum()
    np.testing.assert_allclose(columns.offset, mean, atol=1e-12)
    for seen, rows in ((columns.train, train), (columns.validation, validation)):
        phi = as_array(seen.phi)
        for i, x in enumerate(rows.X):
            for t in range(pool.n_learners):
                output, features = reference.evaluate_learner(pool, t, x)
                assert phi[i, t] == pytest.approx((output - mean[t]) / scale, abs=1e-12)
                bought = unpack_items(seen.bought(np.array([i]), np.array([t])), costs.n_items)[0]
                assert set(np.flatnonzero(bought)) == reference.items_of(features, costs.feature_items)
    for t in range(pool.n_learners):
        everything = reference.items_of(reference.learner_features(pool, t), costs.feature_items)
        assert set(np.flatnonzero(columns.column_items[t])) == everything
    assert columns.n_columns == pool.n_learners


def test_more_rows_than_a_block():
    rng, loss = np.random.default_rng(1), LOSSES["squared"]
    pool, costs, X = random_pool(rng), random_costs(rng), random_table(rng, 97, missing=0.0)
    rows = random_rows(rng, X, loss)
    many = rows.take(np.arange(MOST_ROWS + 50) % 97)
    columns = columns_of(pool, rows, many, loss, costs)
    at = np.arange(MOST_ROWS + 50) % 97
    np.testing.assert_array_equal(columns.validation.phi, columns.train.phi[at])
    np.testing.assert_array_equal(columns.validation.codes, columns.train.codes[at])


def test_the_floor_is_a_small_part_of_the_target_through_a_typical_column():
    columns, train, _ = some_columns(LOSSES["squared"])
    spread = np.sqrt(np.average((columns.train.phi) ** 2, axis=0, weights=train.weights))
    np.testing.assert_allclose(columns.spread, spread)
    assert columns.floor == pytest.approx(FLOOR / np.median(spread))
    silent = columns.train.phi * (np.arange(columns.n_columns) > 4)  # columns that say nothing are not typical
    some = replace(columns, train=replace(columns.train, phi=silent))
    assert some.floor == pytest.approx(FLOOR / np.median(spread[5:]))
    nothing = replace(columns, train=replace(columns.train, phi=np.zeros_like(columns.train.phi)))
    assert nothing.floor == FLOOR


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("coded", [False, True])
@each_loss
def test_the_objective_is_that_of_the_columns(loss, coded, dtype):
    columns, train, _ = some_columns(loss, coded=coded)
    phi = as_array(columns.train.phi)
    shape = TreeShape.full(2)
    objective = columns.objective(shape, 0.3, gate_slope=1.7, l1_weight=0.05, dtype=dtype)
    assert objective.design.phi.dtype == dtype
    parameters = random_parameters(np.random.default_rng(2), objective)
    expected = reference.global_loss(
        phi, columns.train.y, train.weights, loss, shape, parameters, objective.penalty, 1.7
    )
    assert objective.value(parameters) == pytest.approx(expected, rel=1e-9 if dtype is np.float64 else 1e-5)
    penalty = objective.penalty
    np.testing.assert_array_equal(penalty.learner_items, columns.column_items)
    np.testing.assert_array_equal(penalty.prices, columns.costs.prices)
    np.testing.assert_array_equal(penalty.evaluation, np.full(columns.n_columns, 0.7))
    assert (penalty.cost_weight, penalty.l1_weight, penalty.floor) == (0.3, 0.05, columns.floor)


def test_contributions_that_do_not_count_become_exact_zeros_and_the_others_stay():
    """A contribution is the norm of a learner's weights at a node, times the deviation of its column."""
    columns, _, _ = some_columns(LOSSES["softmax"])
    rng, n = np.random.default_rng(0), columns.n_columns
    weights = rng.normal(size=(n, 3, 4)) * rng.choice([1e-5, 1.0], (n, 3, 1))
    spread = np.where(columns.spread > 0, columns.spread, 1.0)
    at = int(np.argmax(columns.spread))
    weights[at, 0] = 0.6 * FLOOR / spread[at]  # each is below the floor, their norm is not
    weights[at, 1] = 0.4 * FLOOR / spread[at]
    before = NodeParameters(weights, rng.normal(size=(3, 4)), rng.normal(size=3))
    after = columns.exact_support(before)
    for t in range(n):
        for node in range(3):
            kept = np.sqrt(sum(w**2 for w in weights[t, node])) * spread[t] >= FLOOR
            np.testing.assert_array_equal(after.weights[t, node], weights[t, node] if kept else 0.0)
    assert after.weights[at, 0].all()
    assert not after.weights[at, 1].any()
    np.testing.assert_array_equal(after.intercepts, before.intercepts)
    np.testing.assert_array_equal(after.thresholds, before.thresholds)


# -- back to the units of the user -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("coded", [False, True])
@each_loss
@each_shape
def test_the_model_undoes_centring_and_scaling(shape, loss, coded, scale):
    columns, train, _ = some_columns(loss, seed=6, scale=scale, coded=coded)
    tree = random_tree(np.random.default_rng(6), shape, columns.n_columns, loss.n_outputs)
    model, phi, units = columns.to_model(tree), columns.train.phi, columns.units
    assert (units == Units()) == loss.has_classes
    np.testing.assert_array_equal(model.apply(train.X), tree.terminals(phi))
    np.testing.assert_allclose(model.decision_function(train.X), units.margins(tree.margins(phi)), rtol=1e-9)
    costs = tree.row_costs(columns.train, tree.terminals(phi))
    np.testing.assert_allclose(model.predict_cost(train.X), costs, rtol=1e-12)
    np.testing.assert_allclose(model.constant, loss.constant(train.y, train.weights))
    in_use = (tree.route_weights != 0).any(axis=1) | (tree.predict_weights != 0).any(axis=(1, 2))
    assert model.pool.n_learners == in_use.sum()
    assert (model.link, model.costs) == (loss.link, columns.costs)


@PROPERTY
@given(seeds)
def test_random_models_answer_in_the_units_of_the_user(seed):
    rng = np.random.default_rng(seed)
    columns, _, validation = some_columns(LOSSES["squared"], seed=seed)
    tree = random_tree(rng, random_shape(rng), columns.n_columns)
    margins = columns.units.margins(tree.margins(columns.validation.phi))
    np.testing.assert_allclose(columns.to_model(tree).decision_function(validation.X), margins, rtol=1e-8, atol=1e-9)


# -- learning them ---------------------------------------------------------------------------------------------------


def test_plain_inputs_are_columns_in_units_of_the_target():
    case = problem_of(weak_learners="identity")
    columns = learn_columns(case, 0.2)
    train = case.rows.take(~hold_out(case.rows, 0.2, case.random_state))
    units = Units.of(case.rows, case.loss)
    assert columns.units == units
    assert columns.scale == units.scale
    centred = train.X - np.average(train.X, axis=0, weights=train.weights)
    np.testing.assert_allclose(columns.train.phi, centred / units.scale, atol=1e-12)
    np.testing.assert_array_equal(columns.column_items, case.costs.feature_items)
    single = HardTree.single(np.ones((N_FEATURES, 1)), np.zeros(1))
    slopes = columns.to_model(single).predict_weights[:, 0, 0]
    np.testing.assert_allclose(slopes, 1.0)  # a weight is the target's change for one unit of the input


@pytest.mark.parametrize("loss_name", list(LOSSES))
def test_boosted_columns_are_the_trees_of_an_ensemble_blind_to_cost(loss_name):
    case = problem_of(loss_name)
    columns = learn_columns(case, 0.2)
    judges = hold_out(case.rows, 0.2, case.random_state, by_class=case.loss.has_classes)
    units = Units.of(case.rows, case.loss)
    rows = units.standard(case.rows)
    train = rows.take(~judges)
    constant = case.loss.constant(rows.y, rows.weights)
    pool, weights = trees_of(boost(replace(case.boosting, constant=constant), train), len(constant))
    np.testing.assert_allclose(as_array(columns.train.phi) + columns.offset, pool.transform(train.X), atol=1e-12)
    np.testing.assert_array_equal(columns.train.y, train.y)
    np.testing.assert_array_equal(columns.validation.y, rows.y[judges])
    np.testing.assert_allclose(columns.constant, constant)
    assert columns.n_columns == 12 * len(constant)
    # the ensemble is the constant plus its columns, and knows more than the constant
    margins = columns.validation.phi @ weights + columns.offset @ weights + constant
    alone = case.loss.risk(np.tile(constant, (judges.sum(), 1)), rows.y[judges])
    assert case.loss.risk(margins, rows.y[judges]) < 0.8 * alone


def test_the_rows_that_judge_are_a_fraction_of_whole_queries():
    qid = np.arange(300) // 6
    columns = learn_columns(problem_of(qid=qid), 0.3)
    assert len(np.unique(columns.validation.rows.qid)) == 15
    assert not set(columns.validation.rows.qid) & set(columns.train.rows.qid)


def test_given_validation_rows_judge_and_all_others_teach():
    given = problem_of(seed=1).rows.take(np.arange(40))
    case = problem_of(validation=given)
    columns = learn_columns(case, 0.2)
    assert len(columns.train.rows) == 300
    np.testing.assert_allclose(columns.units.margins(columns.validation.y), given.y)
    np.testing.assert_array_equal(columns.validation.weights, given.weights)


def test_the_rows_that_judge_stop_boosting():
    rng = np.random.default_rng(9)
    case = problem_of(n_rounds=60, early_stopping=3)
    judge = Rows(case.rows.X, rng.permutation(case.rows.y), case.rows.weights)
    noise = learn_columns(replace(case, validation=judge), 0.2)
    own = learn_columns(replace(case, validation=case.rows, shared={}), 0.2)
    assert noise.n_columns < 10 < own.n_columns
    never = problem_of(n_rounds=60)
    assert learn_columns(replace(never, validation=judge), 0.2).n_columns == 60


def test_columns_are_learned_once_for_all_cost_weights():
    case = problem_of()
    first = learn_columns(case, 0.2)
    assert case.shared["columns"] is first
    assert learn_columns(replace(case, cost_weight=9.0), 0.2) is first
    assert learn_columns(replace(case, shared={}), 0.2) is not first


def test_a_target_without_a_pattern_leaves_no_columns():
    case = problem_of()
    columns = learn_columns(replace(case, rows=replace(case.rows, y=np.full(300, 0.1))), 0.2)
    assert columns.n_columns == 0
    assert isinstance(columns.pool, TreePool)
    single = HardTree.single(np.zeros((0, 1)), columns.constant)
    np.testing.assert_allclose(columns.to_model(single).decision_function(case.rows.X), 0.1)
