"""Exact support, backward elimination and fine-tuning."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import (
    LOSSES,
    PROPERTY,
    learners_of,
    per_tree,
    random_costs,
    random_learners,
    random_shape,
    random_table,
    random_tree,
    rows_of,
    seeds,
)
from cstc.costs import ResolvedCosts
from cstc.hard_tree import HardTree
from cstc.objective import NodeParameters, Prior
from cstc.pool import TreePool
from cstc.refinement import column_sets, drop_small_weights, eliminate, fine_tune
from cstc.tree import TreeShape


def random_case(seed, n=40):
    """A tree over random columns, and rows whose targets it partly explains."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[rng.choice(["squared", "logistic", "softmax"])]
    learners, costs = random_learners(rng), random_costs(rng)
    X = random_table(rng, n, missing=0.0)
    tree = random_tree(rng, random_shape(rng, depth=3), learners.n_columns, loss.n_outputs, density=0.5)
    rows = rows_of(rng, learners, costs, X, loss)
    if loss.name == "squared":
        rows = replace(rows, y=tree.margins(rows.phi)[:, 0] + 0.3 * rows.y)
    return rng, tree, learners, costs, X, rows


def hard_reach(tree, rows):
    """Bool (n, n_nodes): the nodes that each row passes."""
    return tree.shape.paths[tree.terminals(rows.phi)]


# ----------------------------------------------------------------------------- drop_small_weights


def test_small_weights_become_exact_zeros_and_the_others_stay():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(20, 3, 4)) * rng.choice([1e-5, 1.0], (20, 3, 1))
    weights[0, 0] = [0.06, 0.06, 0.06, 0.06]  # each is below the floor, their norm is not
    before = NodeParameters(weights, rng.normal(size=(3, 4)), rng.normal(size=3))
    after = drop_small_weights(before, np.full(len(before.weights), 0.1))
    for learner in range(20):
        for node in range(3):
            kept = np.sqrt(sum(w**2 for w in weights[learner, node])) >= 0.1
            np.testing.assert_array_equal(after.weights[learner, node], weights[learner, node] if kept else 0.0)
    assert (after.weights == 0).any()
    np.testing.assert_array_equal(after.intercepts, before.intercepts)
    np.testing.assert_array_equal(after.thresholds, before.thresholds)


# -------------------------------------------------------------------------------- eliminate


def moves(tree, rows, sets):
    """All trees in which a node, a subtree or all but a subtree has lost one of the sets of columns."""
    reach = hard_reach(tree, rows)
    everything = set(range(tree.shape.n_nodes))
    for columns in sets:
        for top in everything:
            subtree = {top, *map(int, tree.shape.descendants(top))}
            for scope in ({top}, subtree, everything - subtree):
                route, predict = tree.route_weights.copy(), tree.predict_weights.copy()
                thresholds, intercepts = tree.thresholds.copy(), tree.predict_intercepts.copy()
                for node in scope:
                    for t in columns:
                        if reach[:, node].any():
                            mean = np.average(rows.phi[reach[:, node], t], weights=rows.weights[reach[:, node]])
                            thresholds[node] -= mean * route[t, node]
                            intercepts[node] += mean * predict[t, node]
                        route[t, node] = 0.0
                        predict[t, node] = 0.0
                if (route != tree.route_weights).any() or (predict != tree.predict_weights).any():
                    yield HardTree(tree.shape, route, thresholds, predict, intercepts)


@PROPERTY
@given(seeds, st.sampled_from([0.0, 0.02, 0.2]))
def test_elimination_never_raises_the_loss_and_ends_where_no_move_helps(seed, cost_weight):
    _, tree, learners, costs, X, rows = random_case(seed)
    sets = [np.flatnonzero(columns) for columns in learners.column_items(costs).T]
    smaller = eliminate(tree, rows, sets, cost_weight)
    before, after = (
        reference.exact_loss(
            per_tree(t, learners), learners.pool, costs, X, rows.y, rows.weights, rows.loss, cost_weight
        )
        for t in (tree, smaller)
    )
    assert after <= before + 1e-12
    assert all(move.exact_loss(rows, cost_weight) > after - 1e-12 for move in moves(smaller, rows, sets))
    gone = (tree.predict_weights != 0) & (smaller.predict_weights == 0)
    np.testing.assert_array_equal(smaller.predict_weights[~gone], tree.predict_weights[~gone])  # no other change


def test_elimination_when_money_is_everything_and_when_it_is_nothing():
    _, tree, learners, costs, _, rows = random_case(1)
    column_items = learners.column_items(costs)
    paid, sets = column_items.any(axis=1), [np.flatnonzero(columns) for columns in column_items.T]
    broke = eliminate(tree, rows, sets, 1e6)
    assert not broke.route_weights[paid].any()
    assert not broke.predict_weights[paid].any()
    # and a tree that is right about every row gives nothing away for free
    right = HardTree.single(np.ones((learners.n_columns, 1)), np.zeros(1))
    rows = replace(rows, y=right.margins(rows.phi)[:, 0], loss=LOSSES["squared"])
    kept = eliminate(right, rows, sets, 0.0)
    assert kept.used_columns().any()
    np.testing.assert_allclose(kept.margins(rows.phi)[:, 0], rows.y, rtol=1e-12)


def case_by_hand(X, y, prices, weights=None):
    """Columns passed on as they are, one item each, and a squared risk."""
    X, n = np.array(X, dtype=float), len(prices)
    costs = ResolvedCosts([f"item {r}" for r in range(n)], np.array(prices, dtype=float), np.eye(n, dtype=bool))
    weights = np.ones(len(X)) if weights is None else np.array(weights, dtype=float)
    return rows_of(None, learners_of(TreePool.identity(n)), costs, X, LOSSES["squared"], np.array(y), weights)


def two_leaves(route, upper, lower, intercepts=(0.0, 0.0)):
    """A root that only routes, at threshold 0, and the predictors of its two leaves."""
    n = len(route)
    shape = TreeShape.full(2)
    predict = np.stack([np.zeros(n), upper, lower], axis=1)[:, :, None]
    gates = np.stack([route, np.zeros(n), np.zeros(n)], axis=1)
    return HardTree(shape, gates, np.zeros(3), predict, np.array([0.0, *intercepts])[:, None])


def test_what_a_dropped_learner_gave_on_average_stays():
    """The second column explains nothing, and its mean output moves into the intercept."""
    x0, x1 = np.array([1.0, -1, 2, -2]), np.array([4.0, 4, 5, 3])
    rows = case_by_hand(np.column_stack([x0, x1]), x0 + 2.0, prices=[1, 1], weights=[1, 1, 2, 4])
    smaller = eliminate(HardTree.single(np.array([[1.0], [0.5]]), np.zeros(1)), rows, [[0], [1]], 0.01)
    np.testing.assert_array_equal(smaller.predict_weights[:, 0, 0], [1.0, 0.0])
    assert smaller.predict_intercepts[0, 0] == pytest.approx(0.5 * (4 + 4 + 2 * 5 + 4 * 3) / 8)


def test_a_gate_without_a_constant_column_routes_as_before():
    x1 = np.array([-2.0, -1, -4, -5])
    rows = case_by_hand(np.column_stack([np.full(4, 3.0), x1]), np.where(3 + x1 > 0, 1.0, -1.0), prices=[1, 0])
    smaller = eliminate(two_leaves([1, 1], [0, 0], [0, 0], intercepts=(1, -1)), rows, [[0]], 1.0)
    np.testing.assert_array_equal(smaller.route_weights[:, 0], [0, 1])
    assert smaller.thresholds[0] == pytest.approx(-3)


def test_what_is_needed_in_one_round_may_go_in_the_next():
    """x0 makes up for x1, which is not worth its price; without it x0 only does harm."""
    x0 = np.array([1.0, -1, 1, -1])
    rows = case_by_hand(np.column_stack([x0, -x0]), np.zeros(4), prices=[0.1, 10])
    smaller = eliminate(HardTree.single(np.array([[1.0], [1.5]]), np.zeros(1)), rows, [[0], [1]], 0.1)
    assert not smaller.used_columns().any()


def test_nodes_of_a_path_let_go_of_an_item_together():
    """Gate and leaves use the one item: without it in one of them only, it would still have to be paid."""
    x = np.array([1.0, 2, -1, -2])
    tree = two_leaves([1.0], [0.1], [0.2], intercepts=(1, -1))
    rows = case_by_hand(x[:, None], np.where(x > 0, 1 + 0.1 * x, -1 + 0.2 * x), prices=[1])
    smaller = eliminate(tree, rows, [[0]], 10.0)
    assert not smaller.used_columns().any()


def test_an_item_can_be_kept_for_one_branch_only():
    """The dear x0 is worth its price above; gate and lower leaf can do without it, but only both at once help."""
    x0, x1 = np.array([1, -1, 1, -1, 0.02, -0.02]), np.array([1, 1, -1, -1, 0, -1])
    tree = two_leaves([0.5, 10], [5, 0], [0.1, 0])
    above = 0.5 * x0 + 10 * x1 > 0
    rows = case_by_hand(np.column_stack([x0, x1]), np.where(above, 5 * x0, 0.1 * x0), prices=[1, 0])
    smaller = eliminate(tree, rows, [[0], [1]], 1.0)
    np.testing.assert_array_equal(smaller.route_weights[:, 0], [0, 10])
    np.testing.assert_array_equal(smaller.predict_weights[0, :, 0], [0, 5, 0])


def test_rows_that_count_nothing_may_be_alone_at_a_node():
    """A sample weight of 0 is allowed, and the lower leaf sees nothing else."""
    x = np.array([1.0, 2, -1])
    rows = case_by_hand(x[:, None], x, prices=[1], weights=[1, 1, 0])
    smaller = eliminate(two_leaves([1.0], [1.0], [1.0]), rows, [[0]], 10.0)
    assert not smaller.used_columns().any()


def test_sets_to_eliminate_are_those_of_the_dear_items_then_whole_ensembles():
    column_items = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=bool)
    sets = column_sets(column_items, np.array([1.0, 3.0, 2.0, 9.0]), np.array([0, 1, 0]))
    assert [columns.tolist() for columns in sets] == [[1], [0, 1, 2], [0, 2]]  # whole ensembles, none empty, none twice
    sets = column_sets(column_items, np.ones(4), np.full(3, -1))  # no ensembles
    assert [columns.tolist() for columns in sets] == [[0], [1], [0, 1]]


# -------------------------------------------------------------------------------------- fine_tune


@PROPERTY
@given(seeds, st.sampled_from([0.0, 0.05]))
def test_fine_tuning_keeps_support_and_routes_and_never_raises_the_validation_error(seed, l1_weight):
    rng, tree, learners, costs, X, train = random_case(seed)
    some = rng.random(len(X)) < 0.5
    other = random_table(rng, 30, missing=0.0)
    validation = rows_of(rng, learners, costs, other, train.loss)
    reached = hard_reach(tree, train) if some[0] else rng.random((len(X), tree.shape.n_nodes))
    tuned = fine_tune(tree, train, validation, reached, l1_weight=l1_weight)
    unused = ~(tree.predict_weights != 0).any(axis=2)
    assert not tuned.predict_weights[unused].any()
    assert not (tuned.used_columns() & ~tree.used_columns()).any()
    assert tuned.mean_cost(validation) <= tree.mean_cost(validation) + 1e-12
    np.testing.assert_array_equal(tuned.terminals(validation.phi), tree.terminals(validation.phi))
    before, after = (validation.error(t.margins(validation.phi)) for t in (tree, tuned))
    assert after <= before
    idle = ~tree.shape.is_predictive
    np.testing.assert_array_equal(tuned.predict_weights[:, idle], tree.predict_weights[:, idle])


def test_fine_tuning_without_l1_is_least_squares_on_the_support():
    """With one row as much as another to the judge, every leaf ends at the weighted regression on its own rows."""
    rng = np.random.default_rng(3)
    shape = TreeShape.full(2)
    tree = random_tree(rng, shape, 5, density=0.6)
    phi = rng.normal(size=(300, 5))
    y = (phi**2).sum(axis=1) + 3 * phi[:, 0]
    rows = case_by_hand(phi, y, prices=np.ones(5), weights=rng.uniform(0.5, 1.5, 300))
    reached = hard_reach(tree, rows) * rng.uniform(0.5, 1.5, (300, 1))
    judge = replace(rows, weights=rows.weights * reached[:, 0])
    tuned = fine_tune(tree, rows, judge, reached, max_iter=2000)
    for node in np.flatnonzero(shape.is_predictive):
        support = np.flatnonzero(tree.predict_weights[:, node, 0])
        root = np.sqrt(rows.weights * reached[:, node])
        design = np.column_stack([phi[:, support], np.ones(300)])
        expected = np.linalg.lstsq(design * root[:, None], rows.y * root, rcond=None)[0]
        found = [*tuned.predict_weights[support, node, 0], *tuned.predict_intercepts[node]]
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_fine_tuning_leaves_alone_what_nothing_reaches_and_what_is_best_already():
    _, tree, _, _, X, train = random_case(5)
    nothing = fine_tune(tree, train, train, np.zeros((len(X), tree.shape.n_nodes)))
    np.testing.assert_array_equal(nothing.predict_weights, tree.predict_weights)
    perfect = replace(train, loss=LOSSES["squared"], y=tree.margins(train.phi)[:, 0])
    single = replace(
        tree, predict_weights=tree.predict_weights[:, :, :1], predict_intercepts=tree.predict_intercepts[:, :1]
    )
    noisy = replace(perfect, y=perfect.y + np.random.default_rng(0).normal(size=len(X)))
    same = fine_tune(single, noisy, perfect, hard_reach(single, noisy))
    np.testing.assert_array_equal(same.predict_weights, single.predict_weights)


def two_halves():
    """One column for each leaf of a tree that halves the rows; a weight of 0.8 is right in both."""
    x0, x1 = np.tile([1.0, -1.0], 20), np.repeat([1.0, -1.0], 20)
    return case_by_hand(np.column_stack([x0, x1]), 0.8 * x0, prices=[1, 1]), two_leaves([0, 1], [0.1, 0], [0.1, 0])


def test_fine_tuning_pays_the_l1_term():
    """A leaf has half of the rows, and rho is not weighted: its mean risk + 2 rho |a| is what counts."""
    rows, tree = two_halves()
    tuned = fine_tune(tree, rows, rows, hard_reach(tree, rows), l1_weight=0.2)
    np.testing.assert_allclose(tuned.predict_weights[0, 1:, 0], 0.8 - 0.2, atol=1e-4)  # the soft threshold


def test_fine_tuning_is_drawn_to_the_prior():
    """Likewise, mean risk + 2 strength (a - centre)^2."""
    rows, tree = two_halves()
    prior = Prior(np.array([[0.3], [9.0]]), np.zeros(1), strength=0.5)
    tuned = fine_tune(tree, rows, rows, hard_reach(tree, rows), prior=prior)
    np.testing.assert_allclose(tuned.predict_weights[:, 1:, 0], [[(0.8 + 0.3) / 2] * 2, [0, 0]], atol=1e-4)
