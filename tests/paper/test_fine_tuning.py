"""Fine-tuning: predictors are optimised again on what is paid for, and stopped on validation data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstc.paper.fine_tuning
from builders import (
    LOSSES,
    PROPERTY,
    case_by_hand,
    hard_reach,
    random_case,
    random_table,
    random_tree,
    seeds,
    seen_of,
    two_leaves,
    with_rows,
)
from cstc.model import TreeShape
from cstc.paper.fine_tuning import fine_tune
from cstc.paper.hard_tree import HardTree
from cstc.paper.objective import Prior


@PROPERTY
@given(seeds, st.sampled_from([0.0, 0.05]), st.booleans())
def test_fine_tuning_keeps_support_and_routes_and_never_raises_the_validation_error(seed, l1_weight, coded):
    rng, tree, pool, costs, X, train = random_case(seed, coded=coded)
    other = random_table(rng, 30, missing=0.0)
    validation = seen_of(rng, pool, costs, other, train.loss)
    reached = hard_reach(tree, train) if rng.random() < 0.5 else rng.random((len(X), tree.shape.n_nodes))
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
    judge = with_rows(rows, weights=rows.weights * reached[:, 0])
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
    perfect = replace(with_rows(train, y=tree.margins(train.phi)[:, 0]), loss=LOSSES["squared"])
    single = replace(
        tree, predict_weights=tree.predict_weights[:, :, :1], predict_intercepts=tree.predict_intercepts[:, :1]
    )
    noisy = with_rows(perfect, y=perfect.y + np.random.default_rng(0).normal(size=len(X)))
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


@pytest.mark.parametrize(("n_worse", "taken"), [(4, True), (5, False)])
def test_fine_tuning_ends_after_five_steps_without_a_better_error(monkeypatch, n_worse, taken):
    """Steps that are worse, then one that is better than the start: it counts if it comes in time."""
    x = np.tile([1.0, -1.0], 20)
    rows = case_by_hand(x[:, None], x, prices=[1])
    tree = HardTree.single(np.array([[0.5]]), np.zeros(1))

    def steps(objective, start, *, watch, **options):
        for weight in [*([0.2] * n_worse), 0.9]:
            if watch(replace(start, weights=np.full((1, 1, 1), weight))):
                return

    monkeypatch.setattr(cstc.paper.fine_tuning, "solve", steps)
    tuned = fine_tune(tree, rows, rows, np.ones((40, 1)))
    assert tuned.predict_weights.item() == (0.9 if taken else 0.5)
