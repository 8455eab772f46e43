"""NDCG against scikit-learn, ties included; summaries of cost; what models are compared by; a scorer with costs."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss, make_scorer, ndcg_score, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import reference
from builders import PROPERTY
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts
from cstc.metrics import cost_summary, make_cost_scorer, ndcg, quality_of
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


# -- a scorer that knows costs ---------------------------------------------------------------------------------------


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def searched(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, 1.0, 1.0] + 0.1 * rng.normal(size=n)


QUICK = {"costs": [1.0, 10.0, 100.0], "n_weak_learners": 15, "random_state": 0, "n_jobs": 1}
QUICK["method"] = Experts(folds=2, fallbacks=False)


@pytest.mark.parametrize("kind", [CSTCRegressor, CSTCClassifier, CSTCRanker])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_cost_scorer_weighs_quality_and_mean_cost(kind, weighted):
    model, rows = fitted(kind)
    weights = rows.weights if weighted else None
    queries = {"qid": rows.qid} if kind is CSTCRanker else {}
    quality = quality_of(None, model)[1](model, Rows(rows.X, rows.y, weights, rows.qid))
    cost = float(np.average(model.predict_cost(rows.X), weights=weights))
    assert 0 < cost
    scored = make_cost_scorer(cost_weight=0.3)(model, rows.X, rows.y, weights, **queries)
    assert scored == pytest.approx(quality - 0.3 * cost)
    scored = make_cost_scorer(mean_cost=cost)(model, rows.X, rows.y, sample_weight=weights, **queries)
    assert scored == pytest.approx(quality)
    scored = make_cost_scorer(mean_cost=cost - 0.25)(model, rows.X, rows.y, weights, **queries)
    assert scored == pytest.approx(-1e6 - 0.25, abs=1e-8)


def test_a_cost_scorer_takes_any_quality():
    model, rows = fitted(CSTCClassifier)
    cost = model.predict_cost(rows.X).mean()
    expected = -log_loss(rows.y, model.predict_proba(rows.X))
    assert make_cost_scorer("neg_log_loss", cost_weight=0.1)(model, rows.X, rows.y) == pytest.approx(
        expected - 0.1 * cost
    )
    awful = make_cost_scorer(lambda model, X, y: -1e12, mean_cost=1e9)
    assert awful(model, rows.X, rows.y) == -1e6  # still above all that is too expensive


def test_a_search_by_cost():
    X, y = searched()
    weights = {"cost_weight": [1.0, 0.03, 0.0]}
    found = {}
    for scorer in (make_cost_scorer(mean_cost=20), make_cost_scorer(cost_weight=1e-9), make_cost_scorer(mean_cost=0.5)):
        search = GridSearchCV(CSTCRegressor(**QUICK), weights, scoring=scorer, cv=2).fit(X, y)
        found[str(scorer)] = search.best_params_["cost_weight"]
        assert (search.cv_results_["mean_test_score"] <= 1).all()
    assert list(found.values()) == [0.03, 0.0, 1.0]
    tight = make_cost_scorer(mean_cost=2)
    only = GridSearchCV(CSTCRegressor(**QUICK), {"cost_weight": [0.0, 0.03]}, scoring=tight, cv=2)
    assert only.fit(X, y).best_params_["cost_weight"] == 0.03  # nothing is within it: what is nearest
    assert only.best_score_ < -1e6
    assert clone(only).scoring.mean_cost == 2


def test_a_cost_scorer_in_a_pipeline():
    X, y = searched()
    scorer = make_cost_scorer(cost_weight=0.001)
    piped = make_pipeline(StandardScaler(), CSTCRegressor(cost_weight=0.03, **QUICK)).fit(X, y)
    alone = piped[-1]
    assert scorer(piped, X, y) == scorer(alone, piped[0].transform(X), y)
    assert scorer(make_pipeline(alone), X, y) == scorer(alone, X, y)
    own = make_cost_scorer(lambda model, X, y: float(model is piped), cost_weight=0.0)
    assert own(piped, X, y) == 1.0  # a function of the user sees what it would see without costs
    scores = cross_val_score(piped, X, y, scoring=scorer, cv=2)
    assert (scores > 0.3).all()


def test_a_cost_scorer_of_rankings_is_told_the_queries(routing):
    X, y = searched()
    y, qid = np.clip(np.round(y), 0, 4), np.repeat(np.arange(30), 10)
    scorer = make_cost_scorer(cost_weight=0.001).set_score_request(qid=True)
    ranker = CSTCRanker(**QUICK).set_fit_request(qid=True)
    search = GridSearchCV(ranker, {"cost_weight": [1.0, 0.01]}, scoring=scorer, cv=GroupKFold(2))
    search.fit(X, y, qid=qid, groups=qid)
    train, test = next(GroupKFold(2).split(X, y, qid))
    model = CSTCRanker(cost_weight=0.01, **QUICK).fit(X[train], y[train], qid=qid[train])
    expected = model.score(X[test], y[test], qid=qid[test]) - 0.001 * model.predict_cost(X[test]).mean()
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(expected)
    weighted = make_cost_scorer(cost_weight=0.001).set_score_request(sample_weight=True)
    regressor = CSTCRegressor(cost_weight=0.03, **QUICK).set_fit_request(sample_weight=True)
    given = {"sample_weight": np.linspace(0.1, 2, 300)}
    plain = cross_val_score(regressor, X, y, scoring=make_cost_scorer(cost_weight=0.001), cv=2)
    assert (cross_val_score(regressor, X, y, scoring=weighted, cv=2, params=given) != plain).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either cost_weight= or mean_cost="),
        ({"cost_weight": 1, "mean_cost": 1}, "give either cost_weight= or mean_cost="),
        ({"cost_weight": -1}, "cost_weight is -1; it must be a finite number, 0 or more"),
        ({"mean_cost": "40"}, "mean_cost is '40'; it must be a finite number, 0 or more"),
        ({"mean_cost": np.nan}, "mean_cost is nan"),
        ({"quality": 3, "mean_cost": 1}, "quality is 3; give None, a name of scikit-learn's scorers or a function"),
        ({"quality": "best", "mean_cost": 1}, "'best'"),
    ],
)
def test_a_cost_scorer_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        make_cost_scorer(**options)


def test_a_cost_scorer_refuses_what_has_no_costs_or_no_queries():
    X, y = searched()
    for stranger in (LinearRegression(), make_pipeline(StandardScaler(), LinearRegression())):
        with pytest.raises(ValueError, match="LinearRegression has no costs to know of; give an estimator of cstc"):
            make_cost_scorer(cost_weight=1)(stranger.fit(X, y), X, y)
    model, rows = fitted(CSTCRanker)
    with pytest.raises(ValueError, match=r"judged by its queries, .*set_score_request\(qid=True\)"):
        make_cost_scorer(cost_weight=1)(model, rows.X, rows.y)
