"""What the place of a document in its query is worth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from cstc.experts.places import Places, worth_of_places
from cstc.rows import Rows, Units

#: Scores on a coarse grid, so that many are equal and some are below 0.
documents = st.lists(st.tuples(st.integers(-4, 16), st.integers(0, 4)), min_size=1, max_size=40)
places = st.integers(1, 8)
errors = st.floats(0.05, 3.0)


def arrays(given_documents):
    scores, queries = np.array(given_documents, dtype=float).T
    return scores / 4, queries


def rows_of(queries, weights=None):
    n = len(queries)
    return Rows(None, np.zeros(n), np.ones(n) if weights is None else weights, np.asarray(queries))


@settings(max_examples=100, deadline=None)
@given(documents, places, errors)
def test_it_is_what_all_pairs_say(given_documents, at, error):
    scores, queries = arrays(given_documents)
    found = worth_of_places(scores, queries, at, error)
    np.testing.assert_allclose(found, reference.worth_of_places(scores, queries, at, error), atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(documents, places, errors, st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_matter(given_documents, at, error, random):
    scores, queries = arrays(given_documents)
    shuffled = np.array(random.sample(range(len(scores)), len(scores)))
    found = worth_of_places(scores, queries, at, error)
    np.testing.assert_allclose(worth_of_places(scores[shuffled], queries[shuffled], at, error), found[shuffled])


@settings(max_examples=50, deadline=None)
@given(documents, documents, places, errors)
def test_no_query_depends_on_another_one(first, second, at, error):
    (scores, queries), (others, their_queries) = arrays(first), arrays(second)
    alone = worth_of_places(scores, queries, at, error)
    both = worth_of_places(
        np.concatenate([others, scores]), np.concatenate([their_queries + 10, queries]), at, error
    )
    np.testing.assert_allclose(both[len(others) :], alone)


@settings(max_examples=50, deadline=None)
@given(documents, places, errors)
def test_documents_of_equal_score_are_worth_the_same(given_documents, at, error):
    scores, queries = arrays(given_documents)
    found = worth_of_places(scores, queries, at, error)
    for query, score in set(zip(queries, scores, strict=True)):
        same = found[(queries == query) & (scores == score)]
        np.testing.assert_allclose(same, same[0])


def test_who_may_reach_the_top_is_worth_more_than_who_cannot():
    scores = np.array([3.0, 2.8, 2.6, 2.4, 0.2, 0.1, 0.0])
    worth = worth_of_places(scores, np.zeros(7), at=2, error=0.3)
    assert worth[:4].min() > 10 * worth[4:].max()


def test_a_query_in_which_nothing_has_a_gain_is_worth_nothing():
    assert not worth_of_places(np.array([-1.0, -2.0, 0.0]), np.zeros(3), at=5, error=1.0).any()


@settings(max_examples=50, deadline=None)
@given(documents, places, st.integers(0, 2**32 - 1))
def test_weights_have_a_mean_of_one_and_none_is_zero(given_documents, at, seed):
    scores, queries = arrays(given_documents)
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, size=len(scores))
    found = Places(at, Units(offset=1.0, scale=0.5)).weights((scores[:, None] - 1.0) / 0.5, rows_of(queries, weights))
    assert np.average(found, weights=weights) == pytest.approx(1.0)
    assert found.min() > 0


def test_scores_are_weighed_in_the_units_of_grades():
    """A gain is a power of the grade: the same order in other units is worth something else."""
    scores, queries = np.array([0.0, 1.0, 2.0, 4.0, 0.5, 3.0]), np.repeat([0, 1], 3)
    found = Places(2, Units(offset=1.0, scale=2.0)).weights((scores[:, None] - 1.0) / 2.0, rows_of(queries))
    np.testing.assert_allclose(found, Places(2, Units()).weights(scores[:, None], rows_of(queries)))
    assert not np.allclose(found, Places(2, Units()).weights(scores[:, None] / 2.0, rows_of(queries)))


def test_where_all_scores_are_one_every_row_weighs_one():
    assert (Places(5, Units()).weights(np.ones((4, 1)), rows_of([0, 0, 1, 1])) == 1).all()


def test_without_a_share_every_row_weighs_one():
    scores = np.array([[0.0], [1.0], [3.0], [2.0]])
    assert (Places(1, Units(), share=0.0).weights(scores, rows_of([0, 0, 0, 1])) == 1).all()
    assert Places(1, Units(), share=0.5).weights(scores, rows_of([0, 0, 0, 1])).min() == 0.5  # alone in its query
