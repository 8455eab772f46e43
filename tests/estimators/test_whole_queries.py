"""CSTCRanker(whole_queries=True): fits, frontiers, mean costs, and what refuses models of whole queries."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold

import cstc
from cstc import CSTCRanker, Exact, Experts, Frontier, Paper, QueryTree
from cstc.experts.queries import WholeQueries, whole_queries_of
from cstc.metrics import make_cost_scorer, ndcg
from cstc.plotting import TreeDisplay
from cstc.report import write_report
from cstc.serving import Session

OPTIONS = {"n_weak_learners": 20, "method": Experts(folds=2), "objective": "regression", "n_jobs": 1, "random_state": 0}
PRICES = [1.0, 5.0, 5.0, 20.0]


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def queries(n_queries, seed):
    """Documents whose first feature tells half of their relevance, and whose next two the rest."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(8, 16, size=n_queries))
    X = rng.normal(size=(len(qid), 4))
    return X, np.clip(np.round(X[:, 0] + 0.7 * X[:, 1] + 0.7 * X[:, 2]), 0, 4), qid


@pytest.fixture(scope="module")
def data():
    return queries(120, 0)


@pytest.fixture(scope="module")
def fitted(data):
    X, y, qid = data
    return CSTCRanker(costs=PRICES, cost_weight=0.003, whole_queries=True, **OPTIONS).fit(X, y, qid=qid)


@pytest.fixture(scope="module")
def new():
    return queries(40, 1)


def test_a_model_of_whole_queries_is_fitted(fitted, new):
    X, y, qid = new
    assert isinstance(fitted.model_, QueryTree)
    assert fitted.model_.at == 5
    assert fitted.model_.n_nodes > 1
    scores, cost = fitted.predict(X, qid=qid, return_cost=True)
    assert np.array_equal(fitted.predict_cost(X, qid=qid), cost)
    assert 0 < cost.mean() < sum(PRICES)
    assert fitted.score(X, y, qid=qid) == ndcg(y, scores, qid, 5) > 0.5
    ends = fitted.apply(X, qid=qid)
    assert len(np.unique(ends)) > 1


def test_gates_look_at_places(fitted):
    model = fitted.model_
    looked_at = model.tree.learner_features[:, model.n_features :]
    assert looked_at.any()


def test_what_is_said_of_its_training_is_what_whole_queries_do(fitted, data):
    X, _, qid = data
    assert fitted.mean_cost_ == pytest.approx(fitted.predict_cost(X, qid=qid).mean())
    shares = np.bincount(fitted.apply(X, qid=qid), minlength=fitted.model_.n_terminals) / len(X)
    assert fitted.model_.training.reached == pytest.approx(shares)
    taken = next(row for row in fitted.candidates_ if row.verdict == "taken")
    # out of fold, whole stages are paid for; on their branches rows pay a part of that
    assert 0.4 * taken.mean_cost < fitted.mean_cost_ < 1.3 * taken.mean_cost


def selected(n_queries, seed):
    """A sign says which of two expensive features counts beside a cheap one."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), 12)
    X = rng.normal(size=(len(qid), 4))
    X[:, 0] = np.sign(X[:, 0])
    return X, np.clip(np.round(1.5 * X[:, 1] + np.where(X[:, 0] > 0, X[:, 2], X[:, 3]) + 0.5), 0, 4), qid


@pytest.fixture(scope="module")
def branched():
    X, y, qid = selected(150, 0)
    options = {"objective": "regression", "n_weak_learners": 40, "n_jobs": 1, "random_state": 0}
    return {
        whole: CSTCRanker(costs=[1.0, 2.0, 10.0, 10.0], cost_weight=0.01, whole_queries=whole, **options).fit(
            X, y, qid=qid
        )
        for whole in (False, True)
    }


def test_groups_have_chains_of_their_own_and_places_save_money(branched):
    X, y, qid = selected(100, 1)
    model = branched[True].model_
    assert len(model.chains) > 1
    assert any(len(nodes) > 1 for nodes in model.chains)
    scores, cost = {}, {}
    for whole, ranker in branched.items():
        scores[whole], cost[whole] = ranker.predict(X, qid=qid, return_cost=True)
    assert cost[True].mean() < 0.9 * cost[False].mean()
    assert ndcg(y, scores[True], qid, 5) > ndcg(y, scores[False], qid, 5) - 0.005
    looked_at = model.tree.learner_features[:, model.n_features :]
    assert looked_at.any()


def test_what_is_known_of_groups_out_of_fold_is_what_new_queries_do(branched):
    model = branched[True]
    X, _, qid = selected(100, 1)
    taken = next(row for row in model.candidates_ if row.verdict == "taken")
    assert "branches" in taken.name
    assert model.predict_cost(X, qid=qid).mean() == pytest.approx(taken.mean_cost, rel=0.15)
    shares = np.bincount(model.apply(X, qid=qid), minlength=model.model_.n_terminals) / len(X)
    assert np.abs(shares - model.model_.training.reached).max() < 0.05


def test_models_of_groups_are_saved_and_answer_without_a_source(branched, tmp_path):
    model = branched[True]
    X, _, qid = selected(30, 2)
    model.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert np.array_equal(loaded.predict(X, qid=qid), model.predict(X, qid=qid))
    for lost in ("x0", "x2"):
        scores = model.predict(X, qid=qid, unavailable=[lost])
        assert np.isfinite(scores).all()
        turned = X.copy()
        turned[:, int(lost[1])] = -X[:, int(lost[1])]
        assert np.array_equal(model.predict(turned, qid=qid, unavailable=[lost]), scores)
        assert (model.model_.bought_items(X, qid=qid)[:, int(lost[1])]).any()


def test_new_prices_and_other_forms_of_the_model(fitted, new, tmp_path):
    X, _, qid = new
    other = fitted.with_costs([2.0, 10.0, 10.0, 40.0])
    np.testing.assert_allclose(other.predict_cost(X, qid=qid), 2 * fitted.predict_cost(X, qid=qid))
    fitted.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert np.array_equal(loaded.predict(X, qid=qid), fitted.predict(X, qid=qid))
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X, qid=qid), fitted.predict(X, qid=qid))
    without = fitted.predict(X, qid=qid, unavailable=["x1"])
    turned = np.column_stack([X[:, 0], -X[:, 1], X[:, 2:]])
    assert np.array_equal(without, fitted.predict(turned, qid=qid, unavailable=["x1"]))


def test_tables_are_taken_too(data, new):
    X, y, qid = data
    names = ["a", "b", "c", "d"]
    table = pd.DataFrame(X, columns=names)
    options = {"costs": dict(zip(names, PRICES, strict=True)), "cost_weight": 0.02, "whole_queries": True}
    model = CSTCRanker(**options, **OPTIONS).fit(table.assign(query=qid), y, qid="query")
    scores = model.predict(pd.DataFrame(new[0], columns=names), qid=pd.Series(new[2]))
    assert scores.shape == (len(new[0]),)


def test_the_full_model_and_the_free_one_are_models_of_whole_queries(data, new):
    X, y, qid = data
    for weight, cost in ((0.0, sum(PRICES)), (1e9, 0.0)):
        model = CSTCRanker(costs=PRICES, cost_weight=weight, whole_queries=True, **OPTIONS).fit(X, y, qid=qid)
        assert isinstance(model.model_, QueryTree)
        assert model.predict_cost(new[0], qid=new[2]).mean() <= cost


def test_a_price_of_trees_counts_the_experts_that_are_passed(data):
    X, y, qid = data
    costs = cstc.CostModel(PRICES, evaluation=0.01)
    model = CSTCRanker(costs=costs, cost_weight=0.02, whole_queries=True, **OPTIONS).fit(X, y, qid=qid).model_
    n_learners = model.terminal_learners.sum(axis=1)[model.apply(X, qid=qid)]
    bought = model.bought_items(X, qid=qid)
    np.testing.assert_allclose(model.predict_cost(X, qid=qid), bought @ np.array(PRICES) + 0.01 * n_learners)


def test_parameters_are_checked(data):
    X, y, qid = data
    with error("whole_queries is 'yes'; it must be True or False"):
        CSTCRanker(whole_queries="yes").fit(X, y, qid=qid)
    for method in (Paper(), "paper"):
        with error("whole_queries is True, and Paper looks at rows one by one; leave it out, or take method=Experts()"):
            CSTCRanker(whole_queries=True, method=method).fit(X, y, qid=qid)
    with error("whole_queries is True, and Exact looks at rows one by one"):
        CSTCRanker(whole_queries=True, method=Exact(), weak_learners="identity").fit(X, y, qid=qid)
    assert clone(CSTCRanker(whole_queries=True)).whole_queries is True


def test_predicting_needs_the_queries(fitted, new):
    X, y, qid = new
    for ask in (fitted.predict, fitted.predict_cost, fitted.apply):
        with error("qid is missing; this model looks at whole queries: give the query of each row, qid=..."):
            ask(X)
    with error("a QueryTree takes no budget"):
        fitted.predict(X, qid=qid, budget=3)
    with error("a QueryTree takes no limit"):
        fitted.with_limit(3)
    with error("a QueryTree explains no single row"):
        fitted.explain(X[0])
    with error("a QueryTree has no table of items"):
        fitted.item_importance(X, y)


def test_a_ranker_that_answers_row_by_row_looks_at_queries_too(data, new):
    X, y, qid = data
    model = CSTCRanker(costs=PRICES, **OPTIONS).fit(X, y, qid=qid)
    assert np.array_equal(model.predict(new[0], qid=new[2]), model.predict(new[0]))
    with error("query 0 comes back after other queries; sort the rows by qid"):
        model.predict(new[0], qid=np.arange(len(new[0])) % 2)


def test_what_is_about_single_rows_refuses_them(fitted, new, tmp_path):
    X, _, _ = new
    said = "this model looks at whole queries, and rows are answered here one by one; call its predict(X, qid=...)"
    with error(said):
        Session(fitted)
    with error("this model looks at whole queries, which partitions of rows may cut"):
        cstc.predict_partitions(fitted, [X])
    with error("this model looks at whole queries, and the picture is of rows that go their way alone"):
        TreeDisplay.from_estimator(fitted, X)


def test_a_search_of_scikit_learn_hands_queries_on(data):
    X, y, qid = data
    ranker = CSTCRanker(costs=PRICES, whole_queries=True, **OPTIONS | {"n_weak_learners": 5})
    weights = {"cost_weight": [0.01, 10.0]}
    with error("qid is missing; a ranker is judged by its queries: score(X, y, qid=...), which a search of"):
        GridSearchCV(ranker, weights, cv=2, error_score="raise").fit(X, y, qid=qid)
    with config_context(enable_metadata_routing=True):
        for scoring in (None, make_cost_scorer(cost_weight=0.001).set_score_request(qid=True)):
            asked = clone(ranker).set_fit_request(qid=True)
            asked = asked.set_score_request(qid=True) if scoring is None else asked
            search = GridSearchCV(asked, weights, scoring=scoring, cv=GroupKFold(2), error_score="raise")
            assert search.fit(X, y, qid=qid, groups=qid).best_params_ == {"cost_weight": 0.01}
            assert isinstance(search.best_estimator_.model_, QueryTree)


# -- frontiers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def frontier(data, new):
    X, y, qid = data
    estimator = CSTCRanker(costs=PRICES, whole_queries=True, **OPTIONS)
    given = {"X_val": new[0], "y_val": new[1], "qid_val": new[2]}
    return Frontier(estimator, n_weights=5).fit(X, y, qid=qid, **given)


def test_a_frontier_judges_whole_queries(frontier, new):
    X, y, qid = new
    for row, model in zip(frontier.table_, frontier.models_, strict=True):
        assert isinstance(model.model_, QueryTree)
        assert row["mean_cost"] == pytest.approx(model.predict_cost(X, qid=qid).mean())
        assert row["validation_quality"] == pytest.approx(model.score(X, y, qid=qid))
    best = frontier.best(mean_cost=1000)
    assert best is frontier.models_[-1] or best.score(X, y, qid=qid) > 0.9
    with error("a QueryTree takes no limit"):
        frontier.best(max_cost=8)
    with error("these models look at whole queries, and a page is about rows that go their way alone"):
        write_report(frontier, "page.html")


def test_a_frontier_of_whole_queries_goes_on_from_a_checkpoint(data, new, tmp_path):
    X, y, qid = data
    estimator = CSTCRanker(costs=PRICES, whole_queries=True, **OPTIONS)
    given = {"X_val": new[0], "y_val": new[1], "qid_val": new[2]}
    options = {"cost_weights": [0.02, 0.005], "checkpoint": tmp_path / "folder"}
    first = Frontier(estimator, **options).fit(X, y, qid=qid, **given)
    again = Frontier(estimator, **options).fit(X, y, qid=qid, **given)
    assert list(first.table_) == list(again.table_)
    row_by_row = clone(estimator).set_params(whole_queries=False)
    with error("whole_queries is false here and true in the checkpoint"):
        Frontier(row_by_row, **options).fit(X, y, qid=qid, **given)


def test_refining_makes_no_mixture(frontier, data, new):
    X, y, qid = data
    given = {"qid": qid, "X_val": new[0], "y_val": new[1], "qid_val": new[2]}
    with pytest.warns(UserWarning, match=r"\(whole queries take no mixtures\) is better on"):
        frontier.refine(X, y, mean_cost=0.3, **given)  # no feature is as cheap as that
    assert all(isinstance(model.model_, QueryTree) for model in frontier.tried_models_)


@pytest.mark.filterwarnings("ignore:no cost weight has a mean cost")
def test_a_mean_cost_is_met_without_a_mixture(data):
    X, y, qid = data
    model = CSTCRanker(costs=PRICES, mean_cost=6.0, whole_queries=True, **OPTIONS).fit(X, y, qid=qid)
    assert isinstance(model.model_, QueryTree)
    assert model.mean_cost_ <= 6.0 * 1.05
    assert isinstance(model.cost_weight_, float)


# -- learning ------------------------------------------------------------------------------------------------------


def test_rows_that_teach_are_whole_queries():
    qid = np.repeat(np.arange(50), 7)
    taken = whole_queries_of(qid, 100)
    assert len(taken) == 98
    assert set(np.bincount(qid[taken])) <= {0, 7}
    assert np.array_equal(whole_queries_of(qid, 350), np.arange(350))
    assert len(whole_queries_of(qid, 3)) == 7  # one query at least


def test_gaps_are_in_the_units_of_grades():
    queries = WholeQueries(at=1, scale=2.0).of(np.array(["a", "a", "b"]))
    assert queries.made(np.array([[1.0], [3.0], [5.0]]), 0.0).tolist() == [[-4.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
