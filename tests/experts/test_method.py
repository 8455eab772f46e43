"""The default method as a whole: its parameter, what it refuses, and the models that come out."""

import functools
import itertools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from builders import column_sources
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Frontier
from cstc.experts import chain as chain_module
from cstc.experts.expert import grow_experts
from cstc.serving import OnDemandPredictor
from experts.cases import OWN_PRICES, PRICES, TASKS, dear_for_some, own_features

OPTIONS = {"costs": PRICES, "random_state": 0, "n_jobs": 1}
QUICK = OPTIONS | {"n_weak_learners": 10}


# -- its parameter ------------------------------------------------------------------------------------------------


def test_it_nests_as_scikit_learn_nests_estimators():
    model = CSTCRegressor(method=Experts())
    assert model.get_params()["method__folds"] is None
    assert model.set_params(method__folds=3) is model
    assert model.method.folds == 3
    copy = clone(model)
    assert copy.method is not model.method
    assert copy.get_params()["method__folds"] == 3
    copy.set_params(method__folds=4)
    assert model.method.folds == 3


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_each_fold_makes_a_member_of_every_expert(folds):
    _, X, y, _ = dear_for_some("regression", 300)
    method = Experts(folds=folds, fallbacks=False)
    model = CSTCRegressor(method=method, cost_weight=0.0, **(QUICK | {"early_stopping": None}))
    assert model.fit(X, y).model_.pool.n_learners == 10 * folds


def test_its_name_means_five_folds():
    _, X, y, _ = dear_for_some("regression", 300)
    models = [
        CSTCRegressor(cost_weight=0.01, method=method, **QUICK).fit(X, y)
        for method in ("auto", "experts", Experts(), Experts(folds=5), Experts(folds=4))
    ]
    same = [np.array_equal(models[0].predict(X), model.predict(X)) for model in models]
    assert same == [True, True, True, True, False]


def test_fitting_changes_no_parameter():
    _, X, y, _ = dear_for_some("regression", 300)
    method = Experts(folds=3)
    model = CSTCRegressor(method=method, **QUICK).fit(X, y)
    assert model.method is method
    assert vars(method) == {
        "folds": 3, "rows_per_fit": None, "fallbacks": True, "sources": None, "engine": None
    }


def test_a_grid_search_over_folds():
    _, X, y, _ = dear_for_some("regression", 200)
    grid = {"method__folds": [2, 4], "cost_weight": [0.0, 0.01]}
    search = GridSearchCV(CSTCRegressor(method=Experts(), **QUICK), grid, cv=2).fit(X, y)
    assert search.best_params_["method__folds"] in (2, 4)
    assert search.best_estimator_.method.folds == search.best_params_["method__folds"]
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 4
    assert len(set(scores)) > 2  # folds do change the model


@pytest.mark.parametrize("folds", [1, 0, -5, 2.5, "five", True])
def test_folds_are_two_or_more(folds):
    _, X, y, _ = dear_for_some("regression", 50)
    with pytest.raises(ValueError, match=r"folds is .*; it must be None or a whole number, 2 or more"):
        CSTCRegressor(method=Experts(folds=folds)).fit(X, y)


@pytest.mark.parametrize("task", ["regression", "classes"])
def test_more_folds_than_rows(task):
    estimator, X, y, _ = dear_for_some(task, 12)
    with pytest.raises(ValueError, match=r"12 training rows are fewer than the 13 folds .*method=Experts\(folds="):
        estimator(method=Experts(folds=13), **QUICK).fit(X, y)
    assert np.isfinite(estimator(method=Experts(folds=12), **QUICK).fit(X, y).mean_cost_)


def test_a_ranker_needs_two_queries():
    _, X, y, _ = dear_for_some("ranking", 40)
    with pytest.raises(ValueError, match="folds of whole queries, and the data has too few of them; give more"):
        CSTCRanker(method=Experts(folds=3), **QUICK).fit(X, y, qid=np.zeros(40))


# -- what it refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "experts", Experts(folds=2)])
@pytest.mark.parametrize("task", TASKS)
def test_validation_rows_are_refused_with_a_sentence(task, method):
    estimator, X, y, queries = dear_for_some(task, 200)
    given = {name: ids[:100] for name, ids in queries.items()}
    held_out = {"X_val": X[100:], "y_val": y[100:]} | {f"{name}_val": ids[100:] for name, ids in queries.items()}
    with pytest.raises(ValueError, match=r"X_val and y_val are given, and Experts has no use for them.*Frontier"):
        estimator(method=method, **QUICK).fit(X[:100], y[:100], **given, **held_out)


def test_validation_rows_of_a_frontier_choose_and_do_not_teach():
    estimator, X, y, _ = dear_for_some("regression", 400)
    answers = []
    for sign in (1.0, -1.0):
        frontier = Frontier(estimator(**QUICK), cost_weights=[0.1, 0.01])
        frontier.fit(X[:300], y[:300], X_val=X[300:], y_val=sign * y[300:])
        answers.append({model.cost_weight: model.predict(X) for model in frontier.tried_models_})
    shared = answers[0].keys() & answers[1].keys()
    assert {0.1, 0.01} <= shared
    assert all(np.array_equal(answers[0][weight], answers[1][weight]) for weight in shared)


@pytest.mark.parametrize("method", ["experts", Experts()])
@pytest.mark.parametrize("estimator", [CSTCRegressor, CSTCClassifier])
def test_plain_inputs_are_refused(estimator, method):
    X, y = np.eye(4).repeat(5, axis=0), np.arange(20) % 2
    message = "method Experts is for weak_learners='boosted', not for 'identity'; take method='auto', or 'paper'"
    with pytest.raises(ValueError, match=message):
        estimator(weak_learners="identity", method=method).fit(X, y)


# -- the whole ----------------------------------------------------------------------------------------------------


@functools.cache
def gated(task):
    estimator, X, y, queries = dear_for_some(task)
    model = estimator(cost_weight=0.005, **(OPTIONS | {"n_weak_learners": 30}))
    return model.fit(X[:600], y[:600], **{name: ids[:600] for name, ids in queries.items()}), X


@pytest.mark.parametrize("task", TASKS)
def test_reported_cost_is_what_fetching_one_by_one_pays(task):
    model, X = gated(task)
    assert len(set(model.predict_cost(X))) > 1  # or nothing would be tested
    fetched = []
    predictor = OnDemandPredictor(model, column_sources(X, fetched))
    rows = range(600, 660)
    costs, items = model.predict_cost(X[rows]), model.model_.bought_items(X[rows])
    for i in rows:
        answer = predictor.predict(i)
        paid = sorted(j for row, j in fetched if row == i)
        assert paid == np.flatnonzero(items[i - 600]).tolist()
        assert answer.cost == pytest.approx(costs[i - 600]) == pytest.approx(sum(PRICES[j] for j in paid))
        expected = model.predict(X[i : i + 1])[0]
        assert answer.value == (pytest.approx(expected) if task in ("regression", "ranking") else expected)


def test_shares_of_rows_are_those_of_new_rows():
    model, X = gated("regression")
    reached = np.bincount(model.apply(X[600:]), minlength=model.model_.shape.n_terminals) / 300
    assert model._reached.sum() == pytest.approx(1.0)
    assert model._reached == pytest.approx(reached, abs=0.05)
    assert model.expected_cost_ == pytest.approx(model.predict_cost(X[600:], "learner").mean(), rel=0.05)


def test_a_row_pays_for_the_expensive_feature_only_where_it_matters():
    estimator, X, y, _ = dear_for_some("regression", 2000)
    model = estimator(cost_weight=0.02, **OPTIONS).fit(X[:1500], y[:1500])
    bought = model.model_.bought_items(X[1500:])[:, 4]
    needs = X[1500:, 0] > 0
    assert bought[needs].mean() > 0.9
    assert bought[~needs].mean() < 0.2


def test_a_frontier_grows_its_experts_once(monkeypatch):
    grown = []

    def watched(wanted, rows, folds, blocks, **options):
        grown.extend(tuple(columns) for columns, _ in wanted)
        return grow_experts(wanted, rows, folds, blocks, **options)

    monkeypatch.setattr(chain_module, "grow_experts", watched)
    _, X, y, _ = dear_for_some("regression", 400)
    frontier = Frontier(CSTCRegressor(**QUICK), cost_weights=[1.0, 0.1, 0.01, 0.0]).fit(X, y)
    assert len(frontier.tried_models_) >= 4
    assert len(grown) == len(set(grown)) == frontier.n_ensembles_ > 2


@pytest.mark.parametrize("evaluation", [0.0, 0.01])
def test_the_loss_is_what_the_chain_is_expected_to_cost(evaluation):
    """Without noise in the labels the expected risk is near the observed one, and prices are exact."""
    _, X, y, _ = dear_for_some("regression", 3000)
    costs = CostModel(PRICES, evaluation=evaluation)
    model = CSTCRegressor(cost_weight=0.02, **(OPTIONS | {"costs": costs})).fit(X[:1500], y[:1500])
    cost = model.predict_cost(X[1500:], counting="learner").mean()
    risk = np.mean((model.predict(X[1500:]) - y[1500:]) ** 2)
    assert model.loss_history_[0][-1] == pytest.approx(risk + 0.02 * cost, rel=0.25)


@pytest.mark.parametrize(("offset", "scale"), [(1e9, 1.0), (0.0, 1e12), (-1e6, 1e-3)])
def test_units_of_the_target_do_not_matter(offset, scale):
    _, X, y, _ = dear_for_some("regression", 400)
    plain = CSTCRegressor(cost_weight=0.01, **QUICK).fit(X, y)
    moved = CSTCRegressor(cost_weight=0.01 * scale**2, **QUICK).fit(X, y * scale + offset)
    assert np.array_equal(plain.predict_cost(X), moved.predict_cost(X))
    assert moved.score(X, y * scale + offset) == pytest.approx(plain.score(X, y), abs=1e-3)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_classes_of_one_row_are_no_knowledge():
    X = np.random.default_rng(0).normal(size=(30, 4))
    model = CSTCClassifier(random_state=0, n_jobs=1).fit(X, np.arange(30))
    assert model.mean_cost_ == 0.0


def test_class_weights_change_no_bill():
    _, X, y, _ = dear_for_some("classes", 900)
    model = CSTCClassifier(class_weight={0: 1.0, 1: 5.0}, cost_weight=0.002, **QUICK).fit(X, y)
    assert np.ptp([model.predict_cost(X[y == label]).mean() for label in (0, 1)]) > 1.0  # or nothing would be tested
    assert model.mean_cost_ == pytest.approx(model.predict_cost(X).mean())


def test_no_cost_weight_means_all_features_and_the_mean_of_all_members():
    _, X, y, _ = dear_for_some("regression", 400)
    model = CSTCRegressor(cost_weight=0.0, method=Experts(fallbacks=False), **QUICK).fit(X, y)
    assert model.model_.shape.n_nodes == 1
    assert np.array_equal(model.model_.terminal_items(), np.ones((1, 5), dtype=bool))
    assert model.model_.predict_weights == pytest.approx(np.std(y) / 5)  # in the units of y


def test_evaluation_is_part_of_the_price():
    _, X, y, _ = dear_for_some("regression", 400)
    options = OPTIONS | {"cost_weight": 0.01, "n_weak_learners": 20}
    dear, cheap, plain = (
        CSTCRegressor(**(options | {"costs": CostModel(PRICES, evaluation=price)})).fit(X, y)
        for price in (1000.0, 1e-6, 0.0)
    )
    assert dear.model_.pool.n_learners == 0  # a single tree costs more than all risk
    # where a tree has a price, an expert is one ensemble of at most 20 trees and a gate one regression
    assert cheap.model_.predict_learners.sum(axis=1).max() <= 20 < plain.model_.predict_learners.sum(axis=1).max()
    assert cheap.model_.route_learners.sum(axis=1).max() <= 40 < plain.model_.route_learners.sum(axis=1).max()


def test_it_says_what_it_is_doing(capsys):
    _, X, y, _ = dear_for_some("regression", 200)
    CSTCRegressor(verbose=2, **QUICK).fit(X, y)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "[CSTCRegressor] orders of buying"
    assert told[1].endswith("experts on up to 5 features")
    assert told[-1] == "[CSTCRegressor] gates"


# -- before a tree is built ----------------------------------------------------------------------------------------


def test_a_preview_says_what_the_candidate_costs_and_builds_what_train_returns(monkeypatch):
    """For chains and branches: row by row it adds up to the mean cost that the candidate was weighed with."""
    looks, preview = [], Experts.preview

    def kept(self, problem):
        looks.append(preview(self, problem))
        return looks[-1]

    monkeypatch.setattr(Experts, "preview", kept)
    taken = set()
    for (case, prices), weight in itertools.product(((dear_for_some, PRICES), (own_features, OWN_PRICES)), (0.0, 0.03)):
        estimator, X, y, _ = case("regression")
        model = estimator(cost_weight=weight, **QUICK | {"costs": prices}).fit(X, y)
        (row,) = [row for row in model.candidates_ if row.verdict == "taken"]
        assert np.average(looks[-1].costs, weights=looks[-1].rows.weights) == pytest.approx(row.mean_cost)
        assert len(looks[-1].costs) == len(looks[-1].rows.y) == len(y)
        again = looks[-1].build().model
        assert np.array_equal(again.decision_function(X), model.model_.decision_function(X))
        taken.add(row.name.partition(",")[0])
    assert {name.split()[-1] for name in taken} >= {"chain", "branches"}, taken
