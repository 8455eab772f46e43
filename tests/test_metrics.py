"""NDCG against scikit-learn, ties included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

import reference
from builders import PROPERTY
from cstc.metrics import cost_summary, ndcg


def random_ranking(seed):
    """Queries of different lengths in mixed order; few distinct scores, so many ties; many irrelevant documents."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat([7, 3, 11, 20], rng.integers(2, 12, size=4)))
    grades = rng.integers(0, 5, len(qid)) * (rng.random(len(qid)) < 0.5)
    grades[qid == 11] = 0
    return grades, rng.integers(0, 6, len(qid)) / 2.0, qid


def scikit_learns(grades, scores, qid, k):
    """Its score is linear in the gains that it is given, and 0 for a query without a relevant document."""
    values = []
    for query in np.unique(qid):
        at = qid == query
        if grades[at].any():
            values.append(ndcg_score([2.0 ** grades[at] - 1], [scores[at]], k=k))
    return np.mean(values)


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 5, 50]))
def test_ndcg_equals_scikit_learn_and_the_reference(seed, k):
    grades, scores, qid = random_ranking(seed)
    if not grades.any():
        assert np.isnan(ndcg(grades, scores, qid, k=k))
        return
    assert ndcg(grades, scores, qid, k=k) == pytest.approx(scikit_learns(grades, scores, qid, k), rel=1e-12)
    assert ndcg(grades, scores, qid, k=k) == pytest.approx(reference.ndcg(grades, scores, qid, k), rel=1e-12)


def test_queries_without_a_relevant_document_are_left_out():
    grades, scores, qid = np.array([1, 0, 2]), np.array([0.2, 0.9, 0.1]), np.array([1, 1, 1])
    alone = ndcg(grades, scores, qid)
    others = ndcg(np.append(grades, [0, 0]), np.append(scores, [5.0, 4.0]), np.append(qid, [0, 2]))
    assert 0 < alone == others < 1
    assert np.isnan(ndcg(np.zeros(3), scores, qid))


def test_a_perfect_and_a_worst_ranking():
    grades, qid = np.array([3, 0, 1, 0, 0, 0, 0]), np.zeros(7)
    assert ndcg(grades, grades.astype(float), qid) == pytest.approx(1)
    assert ndcg(grades, -grades.astype(float), qid, k=4) == 0


def test_what_is_no_ranking():
    with pytest.raises(ValueError, match="scores holds NaN, first in row 1"):
        ndcg(np.array([1, 0]), np.array([0.5, np.nan]), np.zeros(2))
    with pytest.raises(ValueError, match="grades holds NaN, first in row 1"):
        ndcg(np.array([1, np.nan]), np.array([0.5, 0.1]), np.zeros(2))
    for n_grades, n_scores, n_ids in ((0, 0, 0), (2, 3, 2), (2, 2, 1)):
        with pytest.raises(ValueError, match=f"{n_grades} grades, {n_scores} scores and {n_ids} query ids"):
            ndcg(np.zeros(n_grades), np.zeros(n_scores), np.zeros(n_ids))
    for k in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"k is {k}; it must be a whole number, 1 or more"):
            ndcg(np.array([1, 0]), np.array([0.5, 0.1]), np.zeros(2), k=k)


def test_order_of_rows_does_not_matter():
    grades, scores, qid = random_ranking(0)
    order = np.random.default_rng(1).permutation(len(qid))
    assert ndcg(grades[order], scores[order], qid[order]) == pytest.approx(ndcg(grades, scores, qid), rel=1e-12)


def test_cost_summary():
    assert cost_summary(np.arange(101.0)) == {"mean": 50.0, "p95": 95.0, "max": 100.0}
