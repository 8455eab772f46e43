"""Validation pruning never raises the error and does not depend on how nodes are numbered."""

import numpy as np
import pytest
from hypothesis import given

from builders import (
    LOSSES,
    PROPERTY,
    random_costs,
    random_pool,
    random_shape,
    random_table,
    random_tree,
    renumbered,
    seeds,
    seen_of,
)
from cstc.model import TreeShape
from cstc.paper.hard_tree import HardTree
from cstc.paper.pruning import prune


def random_case(seed):
    """A tree, validation rows, and their judgement of a tree."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[rng.choice(["squared", "logistic", "softmax"])]
    pool = random_pool(rng)
    tree = random_tree(rng, random_shape(rng), pool.n_learners, loss.n_outputs)
    rows = seen_of(rng, pool, random_costs(rng), random_table(rng, 60, missing=0.0), loss)
    return rng, tree, rows, lambda candidate: rows.error(candidate.margins(rows.phi))


@PROPERTY
@given(seeds)
def test_pruning_never_raises_the_error_and_stops_when_every_removal_would(seed):
    _, tree, _, judge = random_case(seed)
    pruned = prune(tree, judge)
    assert judge(pruned) <= judge(tree)
    assert all(judge(pruned.without(node)) > judge(pruned) for node in range(1, pruned.shape.n_nodes))


@PROPERTY
@given(seeds)
def test_pruning_does_not_depend_on_the_order_of_the_nodes(seed):
    rng, tree, rows, judge = random_case(seed)
    shape, old = renumbered(rng, tree.shape)
    other = HardTree(
        shape,
        tree.route_weights[:, old],
        tree.thresholds[old],
        tree.predict_weights[:, old],
        tree.predict_intercepts[old],
    )
    np.testing.assert_allclose(other.margins(rows.phi), tree.margins(rows.phi), rtol=1e-9)
    pruned, other_pruned = prune(tree, judge), prune(other, judge)
    assert sorted(pruned.predict_intercepts[:, 0]) == sorted(other_pruned.predict_intercepts[:, 0])  # the same nodes
    np.testing.assert_allclose(other_pruned.margins(rows.phi), pruned.margins(rows.phi), rtol=1e-9)


def by_hand(*predictions):
    """Root and two children over one learner, whose sign routes; each node predicts a constant."""
    shape = TreeShape.full(2)
    return HardTree(
        shape,
        np.where(shape.is_leaf, 0.0, np.ones((1, 3))),
        np.zeros(3),
        np.zeros((1, 3, 1)),
        np.array(predictions, dtype=float)[:, None],
    )


@pytest.mark.parametrize(
    ("predictions", "left"),
    [
        ((0, 1, -1), [0, 1, -1]),  # both children are right
        ((0, 1, 5), [0, 1]),  # the lower child is worse than the root
        ((0, 3, 5), [0]),  # both are
        ((1, 1, 1), [1]),  # a child that changes nothing goes too
    ],
)
def test_nodes_that_do_not_help_are_removed(predictions, left):
    phi = np.array([[2.0], [1.0], [-1.0], [-2.0]])
    target = np.sign(phi[:, 0])
    pruned = prune(by_hand(*predictions), lambda tree: float(np.mean((tree.margins(phi)[:, 0] - target) ** 2)))
    assert pruned.predict_intercepts[:, 0].tolist() == left


def test_best_removal_goes_first():
    """Either child may go, but not both: the one that leaves the lower error does."""
    errors = {3: 1.0, 2: None, 1: 2.0}

    def judge(tree):
        if tree.shape.n_nodes == 2:
            return 0.5 if 7.0 in tree.predict_intercepts else 0.9
        return errors[tree.shape.n_nodes]

    for predictions in ((0, 7, 8), (0, 8, 7)):
        assert prune(by_hand(*predictions), judge).predict_intercepts[:, 0].tolist() == [0, 7]
