"""Backward elimination of columns, and gates that send everything one way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import LOSSES, PROPERTY, case_by_hand, descendants, hard_reach, random_case, seeds, two_leaves, with_rows
from cstc.paper.elimination import drop_idle_gates, eliminate, sets_by_item
from cstc.paper.hard_tree import HardTree

# -------------------------------------------------------------------------------------- eliminate


def moves(tree, rows, sets):
    """All trees in which a node, a subtree or all but a subtree has lost one of the sets of columns."""
    reach = hard_reach(tree, rows)
    everything = set(range(tree.shape.n_nodes))
    for columns in sets:
        for top in everything:
            subtree = {top, *map(int, descendants(tree.shape, top))}
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
    _, tree, pool, costs, X, rows = random_case(seed)
    sets = sets_by_item(pool.learner_uses(costs.feature_items), costs.prices)
    smaller = eliminate(tree, rows, sets, cost_weight)
    before, after = (
        reference.exact_loss(t, pool, costs, X, rows.y, rows.weights, rows.loss, cost_weight)
        for t in (tree, smaller)
    )
    assert after <= before + 1e-12
    assert all(move.exact_loss(rows, cost_weight) > after - 1e-12 for move in moves(smaller, rows, sets))
    gone = (tree.predict_weights != 0) & (smaller.predict_weights == 0)
    np.testing.assert_array_equal(smaller.predict_weights[~gone], tree.predict_weights[~gone])  # no other change


def test_elimination_when_money_is_everything_and_when_it_is_nothing():
    _, tree, pool, costs, _, rows = random_case(1)
    column_items = pool.learner_uses(costs.feature_items)
    paid, sets = column_items.any(axis=1), sets_by_item(column_items, costs.prices)
    broke = eliminate(tree, rows, sets, 1e6)
    assert not broke.route_weights[paid].any()
    assert not broke.predict_weights[paid].any()
    # and a tree that is right about every row gives nothing away for free
    right = HardTree.single(np.ones((pool.n_learners, 1)), np.zeros(1))
    rows = replace(with_rows(rows, y=right.margins(rows.phi)[:, 0]), loss=LOSSES["squared"])
    kept = eliminate(right, rows, sets, 0.0)
    assert kept.used_columns().any()
    np.testing.assert_allclose(kept.margins(rows.phi)[:, 0], rows.y, rtol=1e-12)


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
    """The expensive x0 is worth its price above; gate and lower leaf can do without it, but only both at once help."""
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


def test_sets_to_eliminate_are_those_of_the_items_the_expensive_ones_first():
    column_items = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]], dtype=bool)
    sets = sets_by_item(column_items, np.array([1.0, 3.0, 2.0, 9.0, 0.5]))
    assert [columns.tolist() for columns in sets] == [[1], [0, 1], [0]]  # none empty, none twice
    sets = sets_by_item(column_items, np.ones(5))  # equal prices: in the order of the items
    assert [columns.tolist() for columns in sets] == [[0], [1], [0, 1]]


# -------------------------------------------------------------------------------- drop_idle_gates


@PROPERTY
@given(seeds, st.sampled_from([1, 3, 40]))
def test_gates_that_send_everything_one_way_go_and_nothing_else_changes(seed, n):
    _, tree, *_, rows = random_case(seed)
    rows = rows.sampled(n, 0)
    smaller = drop_idle_gates(tree, rows.phi)
    np.testing.assert_allclose(smaller.margins(rows.phi), tree.margins(rows.phi), rtol=1e-9)
    before, after = (t.row_costs(rows, t.terminals(rows.phi)) for t in (tree, smaller))
    assert (after <= before + 1e-12).all()
    shape, ends = smaller.shape, smaller.terminals(rows.phi)
    assert shape.paths[ends].any(axis=0).all()  # every node is reached
    for node in np.flatnonzero(~shape.is_leaf):
        here = rows.phi[shape.paths[ends, node]]
        assert len(np.unique(here @ smaller.route_weights[:, node] > smaller.thresholds[node])) == 2


def test_an_idle_gate_is_paid_by_nobody():
    """All rows go up: what the gate cost is saved, and the upper leaf answers as before."""
    x = np.array([1.0, 2, 3])
    tree, rows = two_leaves([1.0], [0], [0], intercepts=(5, -5)), case_by_hand(x[:, None], x, prices=[4])
    smaller = drop_idle_gates(tree, rows.phi)
    assert smaller.shape.n_nodes == 1
    assert (tree.mean_cost(rows), smaller.mean_cost(rows)) == (4, 0)
    assert smaller.predict_intercepts.tolist() == [[5]]
    down = drop_idle_gates(tree, -rows.phi)
    assert down.predict_intercepts.tolist() == [[-5]]
    mixed = np.array([[1.0], [-1.0]])
    assert drop_idle_gates(tree, mixed) is tree
