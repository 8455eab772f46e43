"""The shape of a tree: paths, soft and hard traversal, pruning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import PROPERTY, descendants, each_shape, random_shape, renumbered, seeds
from cstc.model import TreeShape


def paths_as_lists(shape):
    return [np.flatnonzero(path).tolist() for path in shape.paths]


def random_gates(rng, shape, n=6):
    return 1 / (1 + np.exp(-2 * rng.normal(size=(n, shape.n_nodes))))


@pytest.mark.parametrize(
    ("shape", "n_nodes", "n_terminals"),
    [
        (TreeShape.full(1), 1, 1),
        (TreeShape.full(3), 7, 4),  # the paper's figure 1: v0 to v6, and terminals v7 to v10
        (TreeShape.full(4, max_nodes=10), 10, 6),  # node 4 has one child, and a terminal beside it
        (TreeShape.full(4, max_nodes=9), 9, 5),
        (TreeShape.full(3, max_nodes=100), 7, 4),
        (TreeShape.chain(4), 4, 4),
        (TreeShape.full(3).prune(6), 6, 4),  # a pruned inner node predicts beside its remaining child
    ],
)
def test_sizes(shape, n_nodes, n_terminals):
    assert (shape.n_nodes, shape.n_terminals) == (n_nodes, n_terminals)


def test_paths_of_the_papers_figure():
    shape = TreeShape.full(3)
    assert sorted(paths_as_lists(shape)) == [[0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 2, 6]]
    assert (shape.upper[:3].tolist(), shape.lower[:3].tolist()) == ([1, 3, 5], [2, 4, 6])
    assert shape.is_leaf.tolist() == [False, False, False, True, True, True, True]
    assert shape.depths.tolist() == [0, 1, 1, 2, 2, 2, 2]
    assert descendants(shape, 2).tolist() == [5, 6]


def test_chain_goes_on_above_and_leaves_below():
    shape = TreeShape.chain(3)
    assert shape.upper[:2].tolist() == [1, 2]
    assert (shape.lower < 0).all()
    assert shape.is_predictive.all()


@each_shape
def test_paths_equal_the_reference(shape):
    assert paths_as_lists(shape) == reference.paths(shape)
    assert shape.terminal_parents.tolist() == [path[-1] for path in reference.paths(shape)]
    assert set(np.flatnonzero(shape.is_predictive)) == set(shape.terminal_parents)


@each_shape
def test_soft_traversal_equals_the_reference(shape):
    gates = random_gates(np.random.default_rng(0), shape)
    nodes, terminals = shape.traverse_soft(gates)
    expected = [reference.soft_traversal(shape, row) for row in gates]
    np.testing.assert_allclose(nodes, [row[0] for row in expected], rtol=1e-12)
    np.testing.assert_allclose(terminals, [row[1] for row in expected], rtol=1e-12)


@each_shape
def test_hard_traversal_equals_the_reference(shape):
    is_above = np.random.default_rng(1).random((40, shape.n_nodes)) < 0.5
    expected = [reference.hard_traversal(shape, row.__getitem__)[0] for row in is_above]
    assert shape.traverse_hard(is_above).tolist() == expected


@PROPERTY
@given(seeds)
def test_probabilities_are_conserved(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    nodes, terminals = shape.traverse_soft(random_gates(rng, shape))
    assert ((terminals >= 0) & (terminals <= 1)).all()
    np.testing.assert_allclose(terminals.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(terminals @ shape.paths, nodes, rtol=1e-12)  # a node is all terminals below it


@PROPERTY
@given(seeds)
def test_steep_gates_route_like_hard_ones(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    beyond = rng.choice([-1, 1], (10, shape.n_nodes)) * rng.uniform(0.01, 2, (10, shape.n_nodes))
    steep = np.array([[reference.sigmoid(1e4 * a) for a in row] for row in beyond])
    terminals = shape.traverse_soft(steep)[1]
    np.testing.assert_allclose(terminals, np.eye(shape.n_terminals)[shape.traverse_hard(beyond > 0)], atol=1e-30)


@PROPERTY
@given(seeds)
def test_numbering_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    other, old = renumbered(rng, shape)
    gates = random_gates(rng, shape)
    np.testing.assert_array_equal(other.traverse_soft(gates[:, old])[0], shape.traverse_soft(gates)[0][:, old])


@PROPERTY
@given(seeds)
def test_pruning_removes_a_node_and_all_below_it(seed):
    rng = np.random.default_rng(seed)
    shape = TreeShape.full(4) if rng.random() < 0.5 else TreeShape.chain(4)
    node = int(rng.integers(1, shape.n_nodes))
    kept = shape.kept_after(node)
    smaller = shape.prune(node)
    assert set(range(shape.n_nodes)) - set(kept) == {node, *descendants(shape, node)}
    # each remaining node is reached as before; what lay below the removed node ends in one terminal of its parent
    gates = random_gates(rng, shape)
    nodes, _ = shape.traverse_soft(gates)
    smaller_nodes, smaller_terminals = smaller.traverse_soft(gates[:, kept])
    np.testing.assert_allclose(smaller_nodes, nodes[:, kept], rtol=1e-12)
    np.testing.assert_allclose(smaller_terminals.sum(axis=1), 1, rtol=1e-12)
    parent = list(kept).index(shape.parents[node])
    if not smaller.is_leaf[parent]:
        end = -1 - (smaller.upper if shape.upper[shape.parents[node]] == node else smaller.lower)[parent]
        np.testing.assert_allclose(smaller_terminals[:, end], nodes[:, node], rtol=1e-12)


@PROPERTY
@given(seeds, st.booleans())
def test_a_node_left_out_alone_is_replaced_by_its_child(seed, upward):
    """As if its gate sent every row the way of that child."""
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    inner = np.flatnonzero((shape.upper if upward else shape.lower) >= 0)
    if not len(inner):
        return
    node = int(rng.choice(inner))
    other = int((shape.lower if upward else shape.upper)[node])
    kept = np.setdiff1d(np.arange(shape.n_nodes), [node] if other < 0 else [node, other, *descendants(shape, other)])
    gates = random_gates(rng, shape)
    smaller = shape.keep(kept).traverse_soft(gates[:, kept])[0]
    gates[:, node] = float(upward)
    np.testing.assert_allclose(smaller, shape.traverse_soft(gates)[0][:, kept], rtol=1e-12)
