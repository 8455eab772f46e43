"""What a score does to the order of its query."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from cstc.experts.order import SHARE, OrderLoss, order_losses
from cstc.rows import Rows, Units

#: Scores on a coarse grid, so that many are equal and some are below 0; the best expert's, another one, and the query.
documents = st.lists(
    st.tuples(st.integers(-4, 16), st.integers(-4, 16), st.integers(0, 3)), min_size=1, max_size=24
)


def arrays(given_documents):
    best, scores, query = np.array(given_documents, dtype=float).T
    return best / 4, scores / 4, query.astype(int)


@settings(max_examples=60, deadline=None)
@given(documents, st.integers(1, 6), st.floats(0.05, 2.0), st.randoms(use_true_random=False))
def test_it_is_what_all_pairs_say(given_documents, places, smooth, random):
    best, scores, query = arrays(given_documents)
    at = np.array(random.sample(range(len(best)), random.randint(1, len(best))))
    found = order_losses(scores[at], at, best, query, places, smooth)
    np.testing.assert_allclose(found, reference.order_losses(scores[at], at, best, query, places, smooth), atol=1e-12)


def test_who_keeps_its_side_loses_next_to_nothing_and_who_changes_it_does():
    best, query = np.array([4.0, 3.0, 2.0, 1.0, 0.0]), np.zeros(5, dtype=int)
    far, across = (order_losses(np.array([m]), np.array([0]), best, query, 2, 0.05)[0] for m in (3.3, 2.9))
    assert abs(far) < 0.01 < across
    hopeless = order_losses(np.array([1.4]), np.array([4]), best, query, 2, 0.05)[0]
    assert abs(hopeless) < 1e-6  # below all places that count, and still there


def test_nothing_is_gained_beyond_the_own_place():
    """Of many rows, what perfect gates would lose is a bound (`gates`): it must not be below zero."""
    best, query = np.array([2.0, 1.0, 0.0]), np.zeros(3, dtype=int)
    assert order_losses(np.array([9.0, -9.0]), np.array([0, 2]), best, query, 2, 0.5).tolist() == [0.0, 0.0]


def order_of(best, qid, weights=None):
    rows = Rows(None, np.zeros(len(best)), np.ones(len(best)) if weights is None else weights, np.asarray(qid))
    return OrderLoss(best[:, None], np.zeros(1), np.full(len(best), 2.0), rows, 5, Units())


def test_at_the_constant_both_losses_are_the_same_in_the_mean():
    rng = np.random.default_rng(0)
    order = order_of(rng.normal(size=60), np.repeat(np.arange(6), 10))
    found = order.mixed(np.full(60, 2.0), np.zeros((60, 1)), slice(None))
    assert found.mean() == pytest.approx(2.0)
    assert order.rest == pytest.approx(1 - SHARE)


def test_the_weight_of_a_query_is_how_often_it_is_there():
    rng = np.random.default_rng(0)
    best, qid, times = rng.normal(size=60), np.repeat(np.arange(6), 10), np.repeat([1, 2, 0, 3, 1, 1], 10)
    best[qid == 2] *= 50  # weighs nothing
    again = np.concatenate([np.flatnonzero(times > k) for k in range(3)])
    copies = np.concatenate([qid[times > k] + 10 * k for k in range(3)])
    weighed, repeated = order_of(best, qid, times.astype(float)), order_of(best[again], copies)
    margins, losses = rng.normal(size=(60, 1)), rng.random(60)
    found = weighed.mixed(losses, margins, slice(None))
    np.testing.assert_allclose(repeated.mixed(losses[again], margins[again], slice(None)), found[again], rtol=1e-12)
    assert not np.allclose(order_of(best, qid).mixed(losses, margins, slice(None)), found)


def test_where_nobody_has_a_place_losses_stay_as_they_are():
    order = order_of(np.ones(6), [0, 0, 0, 1, 1, 1])
    losses = np.arange(6.0)
    assert np.array_equal(order.mixed(losses, np.zeros((6, 1)), slice(None)), losses)
    assert order.rest == 1.0
