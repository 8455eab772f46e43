"""NDCG against scikit-learn, ties included; summaries of cost; what models are compared by."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, make_scorer, ndcg_score, r2_score, roc_auc_score

import reference
from builders import PROPERTY
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Exact
from cstc.metrics import cost_summary, ndcg, quality_of
from cstc.rows import Rows


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


def test_cost_summary_counts_a_row_as_often_as_its_weight_says():
    cost, weights = np.array([1.0, 2.0, 3.0, 9.0]), np.array([3, 0, 16, 1])
    assert cost_summary(cost, weights) == cost_summary(np.repeat(cost, weights)) | {"p95": 3.0}
    assert cost_summary(cost, np.array([1, 1, 1, 0]))["max"] == 3.0  # a row of weight 0 is not there


# -- what models are compared by -------------------------------------------------------------------------------------


@cache
def fitted(kind, n_classes=2):
    """A small model of plain inputs, and rows to judge it by."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    score = X @ [2.0, 1.0, 0.0] + rng.normal(size=300)
    y = {
        CSTCRegressor: score,
        CSTCClassifier: np.array(["a", "b", "c"])[np.digitize(score, [0.0] if n_classes == 2 else [-1.0, 1.0])],
        CSTCRanker: np.clip(np.round(score), 0, 4),
    }[kind]
    qid = np.arange(300) // 10
    model = kind(cost_weight=0.001, weak_learners="identity", method=Exact(depth=1), random_state=0)
    model.fit(X[:200], y[:200], **{"qid": qid[:200]} if kind is CSTCRanker else {})
    rows = Rows(X[200:], y[200:], rng.integers(1, 4, 100).astype(float), qid[200:])
    return model, rows


def test_values_are_judged_by_r2():
    model, rows = fitted(CSTCRegressor)
    name, quality = quality_of(None, model)
    expected = r2_score(rows.y, model.predict(rows.X), sample_weight=rows.weights)
    assert name == "R²"
    assert 0.5 < expected < 1
    for margins in (None, model.predict(rows.X)[:, None]):
        assert quality(model, rows, margins) == pytest.approx(expected)
    with pytest.raises(ValueError, match="R² needs at least 2 validation rows; there is 1"):
        quality(model, rows.take(np.arange(1)), None)


def test_rankings_are_judged_by_ndcg():
    model, rows = fitted(CSTCRanker)
    name, quality = quality_of(None, model)
    expected = reference.ndcg(rows.y, model.predict(rows.X), rows.qid, 5)
    assert name == "NDCG@5"
    assert 0.5 < expected < 1
    for margins in (None, model.predict(rows.X)[:, None]):
        assert quality(model, rows, margins) == pytest.approx(expected)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_are_judged_by_auc(n_classes):
    """Of more than two, the mean of one class against all others, over the classes that the rows have."""
    model, rows = fitted(CSTCClassifier, n_classes)
    name, quality = quality_of(None, model)
    assert name == "AUC"
    shares = model.predict_proba(rows.X)
    margins = model.decision_function(rows.X).reshape(100, -1)
    for at in (np.arange(100), np.flatnonzero(rows.y != "c")):
        some = rows.take(at)
        present = [k for k, label in enumerate(model.classes_) if label in some.y]
        each = [roc_auc_score(some.y == model.classes_[k], shares[at, k], sample_weight=some.weights) for k in present]
        expected = each[1] if n_classes == 2 else np.mean(each)
        assert 0.5 < expected < 1
        for known in (None, margins[at]):
            assert quality(model, some, known) == pytest.approx(expected)
    one = rows.take(np.flatnonzero(rows.y == "b"))
    with pytest.raises(ValueError, match=r"the validation rows hold one class, \['b'\]; AUC needs two"):
        quality(model, one, None)


def test_a_scorer_of_scikit_learn_is_given_the_weights():
    model, rows = fitted(CSTCClassifier)
    name, quality = quality_of("neg_log_loss", model)
    expected = -log_loss(rows.y, model.predict_proba(rows.X), sample_weight=rows.weights)
    assert name == "neg_log_loss"
    assert quality(model, rows, None) == pytest.approx(expected)
    plain = -log_loss(rows.y, model.predict_proba(rows.X))
    assert quality(model, Rows(rows.X, rows.y), None) == pytest.approx(plain)
    assert expected != pytest.approx(plain)


def test_a_function_of_the_user_is_given_the_queries_of_a_ranking():
    model, rows = fitted(CSTCRanker)
    told = {}

    def own(estimator, X, y, **options):
        told.update(options)
        return float(len(y))

    name, quality = quality_of(own, model)
    assert (name, quality(model, rows, None)) == ("own", 100.0)
    np.testing.assert_array_equal(told["qid"], rows.qid)
    np.testing.assert_array_equal(told["sample_weight"], rows.weights)
    scorer = quality_of(make_scorer(r2_score), model)[1]  # scikit-learn's own know no queries
    assert scorer(model, rows, None) == pytest.approx(
        r2_score(rows.y, model.predict(rows.X), sample_weight=rows.weights)
    )
    told.clear()
    regressor, values = fitted(CSTCRegressor)
    quality_of(own, regressor)[1](regressor, Rows(values.X, values.y), None)
    assert told == {}
