"""What holds for all systems that the paper compares with: one face, one place where cost is counted, a frontier."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import make_classification

import cstc.baselines._columns
import cstc.baselines.early_exit
import cstc.baselines.soft_cascade
import cstc.baselines.stagewise
from cstc import CostModel, CSTCRegressor, Experts, Frontier, load
from cstc.baselines import (
    CEGB,
    L1,
    CostAwareTree,
    Cronus,
    EarlyExit,
    GreedyMiser,
    HierarchicalMixture,
    SingleClassifier,
    SoftCascade,
    SpeedBoost,
    StageWiseRegression,
)
from cstc.metrics import cost_summary, ndcg
from cstc.serving import OnDemandPredictor, extractor

PRICES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
QUICK = {"n_weak_learners": 20, "weak_learner_depth": 2, "learning_rate": 0.3, "random_state": 0, "n_jobs": 1}
COSTS = CostModel(PRICES, evaluation=0.1)
ONE_THREAD = {name: value for name, value in QUICK.items() if name != "n_jobs"}

SYSTEMS = {
    "stage-wise": StageWiseRegression(costs=COSTS, **QUICK),
    "single": SingleClassifier(costs=COSTS, **QUICK),
    "l1": L1(costs=COSTS, **QUICK),
    "early exit": EarlyExit(costs=COSTS, **QUICK),
    "cronus": Cronus(costs=COSTS, length=3, keep_ratios=(0.3, 0.6), max_iter=60, **QUICK),
    "miser": GreedyMiser(costs=COSTS, **QUICK),
    "cegb lazy": CEGB(costs=COSTS, **QUICK),
    "cegb coupled": CEGB(costs=COSTS, penalty="coupled", **QUICK),
    "speedboost": SpeedBoost(costs=COSTS, **ONE_THREAD),
    "soft cascade": SoftCascade(costs=COSTS, n_stages=5, **QUICK),
    "mixture": HierarchicalMixture(costs=COSTS, depth=1, max_iter=3, **QUICK),
    "cost tree": CostAwareTree(costs=COSTS, max_depth=6, random_state=0),
}
SEVERAL_CLASSES = ("mixture", "cost tree")
each_system = pytest.mark.parametrize("name", SYSTEMS)
TASKS = ("regression", "classification", "ranking")


def rows(task, n=480):
    """X, y and, for ranking, queries of 12 documents."""
    rng = np.random.default_rng(0)
    if task == "classification":
        return *make_classification(n, 6, n_informative=5, n_redundant=0, random_state=1), None
    X = rng.normal(size=(n, 6))
    y = X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=n)
    if task == "regression":
        return X, y, None
    return X, np.searchsorted(np.quantile(y, [0.4, 0.7, 0.9]), y).astype(float), np.repeat(np.arange(n // 12), 12)


def split(task, n=480, n_train=360):
    """Training rows, and validation rows as keyword arguments."""
    X, y, qid = rows(task, n)
    given = {"X_val": X[n_train:], "y_val": y[n_train:]}
    if qid is not None:
        given |= {"qid": qid[:n_train], "qid_val": qid[n_train:]}
    return X[:n_train], y[:n_train], given


def fitting(name, task):
    if name == "early exit" and task != "ranking":
        pytest.skip("early exit ranks")
    return clone(SYSTEMS[name]).set_params(task=task)


@pytest.fixture(scope="module")
def frontiers():
    """Frontiers of all systems and tasks, fitted when first asked for."""
    found = {}

    def frontier(name, task):
        if (name, task) not in found:
            X, y, given = split(task)
            found[name, task] = fitting(name, task).frontier(X, y, **given, n_points=8)
        return found[name, task]

    return frontier


# -- frontiers -----------------------------------------------------------------------------------------------------


@each_system
@pytest.mark.parametrize("task", TASKS)
def test_frontier_rises_and_its_table_says_what_the_models_do(frontiers, name, task):
    if name == "early exit" and task != "ranking":
        pytest.skip("early exit ranks")
    frontier = frontiers(name, task)
    _, _, given = split(task)
    X_val, y_val, qid_val = given["X_val"], given["y_val"], given.get("qid_val")
    costs, qualities = frontier.table_.column("mean_cost"), frontier.table_.column("quality")
    assert (np.diff(costs) > 0).all()
    assert (np.diff(qualities) > 0).all()
    assert len(frontier.models_) == len(frontier.table_) >= 2
    assert len(frontier.tried_models_) == len(frontier.tried_) >= len(frontier.models_)
    for model, row in zip(frontier.models_, frontier.table_, strict=True):
        assert getattr(model, model._varied) == row[model._varied]
        summary = cost_summary(model.predict_cost(X_val, qid=qid_val))
        assert [row[f"{key}_cost"] for key in ("mean", "p95", "max")] == list(summary.values())
        if task == "ranking":
            assert row["quality"] == pytest.approx(ndcg(y_val, model.predict(X_val, qid=qid_val), qid_val))
        elif task == "regression":
            assert row["quality"] == pytest.approx(model.score(X_val, y_val))


@each_system
def test_frontier_goes_from_free_to_good(frontiers, name):
    frontier = frontiers(name, "ranking")
    if name != "early exit":  # which scores every document with the first trees
        assert frontier.table_[0]["mean_cost"] == 0
    assert frontier.table_[-1]["quality"] > (0.7 if name == "cost tree" else 0.8)  # one tree of constants
    assert frontier.best(mean_cost=1e9) is frontier.models_[-1]
    assert frontier.best(quality=frontier.table_[1]["quality"], paired=False) is frontier.models_[1]
    assert frontier.best(quality=frontier.table_[-1]["quality"]) is frontier.models_[-1]


def test_frontiers_are_drawn_beside_ours(frontiers):
    X, y, given = split("regression")
    estimator = CSTCRegressor(costs=COSTS, method=Experts(folds=2), **QUICK)
    ours = Frontier(estimator, cost_weights=[0.01]).fit(X, y, **given)
    others = {name: frontiers(name, "regression") for name in ("stage-wise", "miser")}
    display = ours.plot(others=others, name="tree")
    assert display.names == ["tree", "stage-wise", "miser"]
    np.testing.assert_array_equal(display.costs[1], others["stage-wise"].table_.column("mean_cost"))
    assert frontiers("miser", "regression").plot(mean_cost=10).chosen is not None
    assert "n trees" in repr(others["stage-wise"].table_)


@pytest.mark.parametrize("name", ["stage-wise", "single", "l1", "early exit", "cronus", "soft cascade", "mixture"])
def test_one_ensemble_serves_the_whole_frontier(monkeypatch, name):
    grown = []
    for module in (
        cstc.baselines._columns,
        cstc.baselines.early_exit,
        cstc.baselines.soft_cascade,
        cstc.baselines.stagewise,
    ):
        original = module.boost
        monkeypatch.setattr(module, "boost", lambda *a, f=original, **k: grown.append(1) or f(*a, **k))
    X, y, given = split("ranking")
    frontier = fitting(name, "ranking").frontier(X, y, **given, n_points=5)
    assert len(grown) == 1 < len(frontier.tried_models_)


@each_system
def test_rows_that_choose_teach_nothing(frontiers, name):
    """Other validation labels: the same models."""
    X, y, given = split("ranking")
    frontier = frontiers(name, "ranking")
    values = [row[frontier.models_[0]._varied] for row in frontier.tried_][:3]
    given["y_val"] = given["y_val"][::-1].copy()
    again = fitting(name, "ranking").frontier(X, y, **given, values=values)
    before = {getattr(m, m._varied): m.model_.predict(X) for m in frontier.tried_models_}
    for model in again.tried_models_:
        np.testing.assert_array_equal(model.model_.predict(X), before[getattr(model, model._varied)])


def test_weights_of_rows_in_a_frontier():
    """Rows without weight are not there, neither those that teach nor those that choose."""
    X, y, given = split("classification")
    there, there_val = np.arange(360) % 3 != 0, np.arange(120) % 4 != 0
    system = clone(SYSTEMS["cegb lazy"]).set_params(task="classification")
    values = {"values": [0.0, 0.001, 0.01]}
    weights = {"sample_weight": there.astype(float), "sample_weight_val": there_val.astype(float)}
    whole = system.frontier(X, y, **given, **values, **weights)
    part = {"X_val": given["X_val"][there_val], "y_val": given["y_val"][there_val]}
    for row, other in zip(whole.tried_, system.frontier(X[there], y[there], **part, **values).tried_, strict=True):
        assert row["quality"] == pytest.approx(other["quality"])
        assert row["mean_cost"] == pytest.approx(other["mean_cost"])
    assert len(system.frontier(X, y, **values, sample_weight=np.arange(360.0)).tried_) == 3


def test_the_cheapest_model_is_called_free_only_where_it_is():
    X, y, given = split("regression")
    frontier = SYSTEMS["cegb lazy"].frontier(X, y, **given, values=[0.001])
    for budget in (0.0, 0.1):
        with pytest.warns(UserWarning, match=f"mean cost of {budget:g} or less; this is the cheapest, which costs"):
            assert frontier.best(mean_cost=budget) is frontier.models_[0]


@pytest.mark.parametrize("task", TASKS)
def test_holds_out_rows_that_choose(task):
    X, y, qid = rows(task)
    options = {} if qid is None else {"qid": qid}
    frontier = fitting("miser", task).frontier(X, y, **options, n_points=4)
    assert frontier.table_[-1]["quality"] > 0.3


# -- one model -----------------------------------------------------------------------------------------------------


@each_system
@pytest.mark.parametrize("task", TASKS)
def test_fit_predict_and_costs_in_both_countings(name, task):
    system = fitting(name, task)
    X, y, given = split(task)
    assert system.fit(X, y, **given) is system
    queries = {"qid": given["qid"]} if task == "ranking" else {}
    branch, learner = (system.predict_cost(X, counting, **queries) for counting in ("branch", "learner"))
    assert (branch <= learner + 1e-9).all()
    assert learner.max() <= sum(PRICES) + 0.1 * system.model_.pool.n_learners + 1e-9
    assert system.mean_cost_ == pytest.approx(branch.mean())
    assert system.score(X, y, **queries) > (0.45 if name == "cost tree" else 0.5)
    answers = system.predict(X, **queries)
    if task == "classification":
        assert set(answers) <= set(y)
        np.testing.assert_array_equal(answers, system.predict_proba(X)[:, 1] > 0.5)
    free = system.with_costs(np.zeros(6))
    assert (free.predict_cost(X, **queries) == 0).all()
    np.testing.assert_array_equal(free.predict(X, **queries), answers)


@each_system
def test_estimators_by_the_rules_of_scikit_learn(name):
    system = SYSTEMS[name]
    assert clone(system).get_params() == system.get_params()
    assert is_classifier(clone(system).set_params(task="classification"))
    if name != "early exit":
        assert is_regressor(system)


@each_system
def test_weights_of_zero_are_rows_that_are_not_there(name):
    X, y, given = split("ranking")
    weights = np.repeat(np.arange(30) % 3 != 0, 12).astype(float)
    there = weights > 0
    whole, part = (clone(SYSTEMS[name]).set_params(task="ranking") for _ in range(2))
    whole.fit(X, y, **given, sample_weight=weights)
    qid = given.pop("qid")
    part.fit(X[there], y[there], qid=qid[there], **given)
    np.testing.assert_allclose(whole.predict(X, qid=qid), part.predict(X, qid=qid), rtol=1e-10)


@each_system
@pytest.mark.parametrize("task", TASKS)
def test_models_are_saved_and_served(tmp_path, name, task):
    """All but early exit, which looks at whole queries: its model is the ensemble."""
    X, y, given = split(task)
    system = fitting(name, task).fit(X, y, **given)
    system.model_.save(tmp_path / "model.cstc")
    loaded = load(tmp_path / "model.cstc")
    np.testing.assert_array_equal(loaded.decision_function(X), system.model_.decision_function(X))
    np.testing.assert_array_equal(loaded.predict_cost(X), system.model_.predict_cost(X))
    table = extractor(provides=loaded.schema.feature_names, instant=True)(lambda row: X[row])
    with OnDemandPredictor(loaded, [table]) as predictor:
        answer = predictor.predict(0)
    assert answer.cost == pytest.approx(system.model_.predict_cost(X[:1])[0])
    assert answer.value == pytest.approx(system.model_.predict(X[:1])[0])


@pytest.mark.parametrize("name", SYSTEMS)
def test_several_classes_where_the_idea_allows_it(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 6))
    y = np.array(["a", "b", "c"])[np.where(X[:, 0] < -0.3, 0, np.where(X[:, 1] < 0, 1, 2))]
    system = clone(SYSTEMS[name]).set_params(task="ranking" if name == "early exit" else "classification")
    if name == "early exit":
        pytest.skip("early exit ranks")
    if name not in SEVERAL_CLASSES:
        with pytest.raises(ValueError, match=r"y holds 3 classes; the systems .* but for CostAwareTree and Hierarch"):
            system.fit(X, y)
        return
    system.set_params(cost_weight=1e-4).fit(X[:450], y[:450])
    assert system.score(X[450:], y[450:]) > 0.9
    assert set(system.predict(X)) == {"a", "b", "c"}
    assert system.decision_function(X).shape == system.predict_proba(X).shape == (600, 3)
    np.testing.assert_allclose(system.predict_proba(X).sum(axis=1), 1.0)
    assert system.predict_cost(X).max() < sum(PRICES)
    frontier = system.frontier(X, y, n_points=4)
    assert frontier.table_[0]["mean_cost"] == 0
    assert frontier.table_[-1]["quality"] > frontier.table_[0]["quality"]


def test_tables_with_categories_and_missing_values(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300), "b": rng.choice(["x", "y", "z"], 300)})
    y = frame["a"].to_numpy() + 3.0 * (frame["b"] == "y")
    frame.loc[::7, "a"] = np.nan
    for name in ("stage-wise", "miser", "cronus", "speedboost", "soft cascade", "mixture", "cost tree"):
        system = clone(SYSTEMS[name]).set_params(costs={"a": 1.0, "b": 2.0})
        system.set_params(**{"cost_weight": 1e-4} if "cost_weight" in system.get_params() else {})
        system.fit(frame, y)
        assert system.score(frame, y) > 0.7
        system.model_.save(tmp_path / "model.cstc")
        np.testing.assert_array_equal(load(tmp_path / "model.cstc").predict(frame), system.predict(frame))
        assert list(system.feature_names_in_) == ["a", "b"]
        with pytest.raises(ValueError, match="feature names"):
            system.predict(frame[["b", "a"]])


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("stage-wise", {"task": "clustering"}, "task is 'clustering'; it must be one of"),
        ("stage-wise", {"n_trees": -1}, "n_trees is -1"),
        ("stage-wise", {"n_weak_learners": 0}, "n_weak_learners is 0"),
        ("stage-wise", {"costs": [1.0, 2.0]}, "costs has 2 entries, X has 6 features"),
        ("single", {"cost_weight": -1}, "cost_weight is -1"),
        ("single", {"max_iter": 0}, "max_iter is 0"),
        ("single", {"weak_learners": "stumps"}, "weak_learners is 'stumps'"),
        ("l1", {"l1_weight": np.inf}, "l1_weight is inf"),
        ("early exit", {"task": "regression"}, "early exit compares the documents of a query"),
        ("early exit", {"task": "ranking", "exits": (1.0, 5)}, r"exits is \(1.0, 5\)"),
        ("early exit", {"task": "ranking", "exits": (-1.0, 5, 5)}, "threshold 0 or more"),
        ("early exit", {"task": "ranking", "exits": (1.0, 0, 5)}, "whole numbers, 1 or more"),
        ("cronus", {"length": 0}, "length is 0"),
        ("cronus", {"keep_ratios": (0.5, 1.0)}, "keep_ratios is"),
        ("cronus", {"keep_ratios": ()}, "keep_ratios is"),
        ("miser", {"cost_weight": "much"}, "cost_weight is 'much'"),
        ("cegb lazy", {"penalty": "split"}, "penalty is 'split'"),
        ("speedboost", {"n_trees": 1.5}, "n_trees is 1.5; it must be None or a whole number, 0 or more"),
        ("speedboost", {"learning_rate": 0.0}, "learning_rate is 0.0"),
        ("soft cascade", {"given_up": 1.5}, "given_up is 1.5; it must be a number from 0 to 1"),
        ("soft cascade", {"given_up": "little"}, "given_up is 'little'"),
        ("soft cascade", {"n_stages": 0}, "n_stages is 0; it must be a whole number, 1 or more"),
        ("mixture", {"depth": -1}, "depth is -1; it must be a whole number, 0 or more"),
        ("mixture", {"max_iter": 0}, "max_iter is 0; it must be a whole number, 1 or more"),
        ("mixture", {"weak_learners": "stumps"}, "weak_learners is 'stumps'"),
        ("mixture", {"cost_weight": -1}, "cost_weight is -1"),
        ("cost tree", {"cost_weight": np.nan}, "cost_weight is nan"),
        ("cost tree", {"exponents": ()}, r"exponents is \(\); give a list of finite numbers, 0 or more"),
        ("cost tree", {"exponents": (0.5, -1.0)}, "exponents is"),
        ("cost tree", {"max_depth": 0}, "max_depth is 0; it must be a whole number, 1 or more"),
    ],
)
def test_bad_parameters(name, changes, message):
    X, y, _ = split("regression")
    with pytest.raises(ValueError, match=message):
        clone(SYSTEMS[name]).set_params(**changes).fit(X, y)


def test_bad_rows():
    X, y, qid = rows("ranking")
    system = clone(SYSTEMS["stage-wise"])
    with pytest.raises(ValueError, match="qid is given, and task='regression'"):
        system.fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="qid is missing"):
        clone(system).set_params(task="ranking").fit(X, y)
    with pytest.raises(ValueError, match="y holds 4 classes; the systems"):
        clone(system).set_params(task="classification").fit(X, y)
    with pytest.raises(ValueError, match="n_points is 1"):
        system.frontier(X, y, n_points=1)
    with pytest.raises(ValueError, match="values is empty"):
        system.frontier(X, y, values=[])
    with pytest.raises(ValueError, match="y_val is missing"):
        system.frontier(X, y, X_val=X)
    with pytest.raises(ValueError, match="sample_weight_val belongs to X_val"):
        system.frontier(X, y, sample_weight_val=np.ones(len(y)))
    with pytest.raises(ValueError, match=r"weight zero|non-zero"):
        system.frontier(X, y, X_val=X, y_val=y, sample_weight_val=np.zeros(len(y)))
    with pytest.raises(ValueError, match="not fitted"):
        clone(system).predict(X)
    with pytest.raises(ValueError, match="counting is 'item'"):
        system.fit(X, y).predict_cost(X, "item")
    with pytest.raises(ValueError, match="X has 4 features, but StageWiseRegression is expecting 6 features"):
        system.predict(X[:, :4])


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("cegb lazy", [-1.0, 0.01], "cost_weight is -1.0; it must be a finite number, 0 or more"),
        ("cegb lazy", ["a"], "cost_weight is 'a'"),
        ("cegb lazy", "abc", "values is 'abc'; give a list of values of cost_weight"),
        ("cegb lazy", 0.01, "values is 0.01; give a list"),
        ("l1", [np.nan], "l1_weight is nan"),
        ("stage-wise", [1.5], "n_trees is 1.5"),
        ("speedboost", [-1], "n_trees is -1"),
        ("soft cascade", [0.5, 2.0], "given_up is 2.0"),
    ],
)
def test_values_of_a_frontier_are_checked_like_the_parameter(name, values, message):
    X, y, _ = split("regression")
    with pytest.raises(ValueError, match=message):
        SYSTEMS[name].frontier(X, y, values=values)


def test_rare_classes_that_a_frontier_held_out_itself():
    X, y, _ = split("regression")
    labels = (y == y[0]).astype(int)
    with pytest.raises(ValueError, match=r"the frontier held out .* X_val and y_val with both classes"):
        clone(SYSTEMS["stage-wise"]).set_params(task="classification").frontier(X, labels)
