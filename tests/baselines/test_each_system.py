"""Each system against a plain account of what it is."""

from functools import partial

import lightgbm
import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone

import cstc.baselines._boosting
import cstc.baselines.cronus
import cstc.baselines.single
from cstc import CostModel, CSTCClassifier, CSTCRegressor, Paper
from cstc.baselines import CEGB, L1, Cronus, EarlyExit, GreedyMiser, SingleClassifier, StageWiseRegression
from cstc.baselines._columns import columns_of
from cstc.baselines.cronus import start_of_chain
from cstc.baselines.greedy_miser import rounds_by_loss
from cstc.boosting import Boosting
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.lightgbm_engine import boost
from cstc.lightgbm_trees import trees_of
from cstc.losses import SquaredLoss
from cstc.model import TreeShape
from cstc.rows import Rows

PRICES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
COSTS = CostModel(PRICES, evaluation=1.0)
QUICK = {"costs": COSTS, "n_weak_learners": 15, "weak_learner_depth": 2, "random_state": 0, "n_jobs": 1}


def regression(n=500):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    return X, X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=n)


def given(n_train=400):
    X, y = regression()
    return X[:n_train], y[:n_train], {"X_val": X[n_train:], "y_val": y[n_train:]}


def queries():
    X, y = regression(480)
    return X, np.searchsorted(np.quantile(y, [0.4, 0.7, 0.9]), y).astype(float), np.repeat(np.arange(40), 12)


# -- stage-wise regression -----------------------------------------------------------------------------------------


def test_stage_wise_is_lightgbm_cut_after_some_trees():
    X, y, val = given()
    parameters = {"objective": "regression", "max_depth": 2, "num_leaves": 4, "learning_rate": 0.1, "num_threads": 1}
    parameters |= {"min_data_in_leaf": 20, "verbosity": -1, "force_row_wise": True}
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, (y - y.mean()) / y.std()), 15)
    system = StageWiseRegression(**QUICK, early_stopping=None).fit(X, y, **val)
    for cut in (1, 4, 15):
        expected = booster.predict(X, num_iteration=cut) * y.std() + y.mean()
        np.testing.assert_allclose(
            clone(system).set_params(n_trees=cut).fit(X, y, **val).predict(X), expected, atol=1e-5
        )


def test_stage_wise_pays_for_every_tree_and_every_feature_so_far():
    X, y, val = given()
    for cut in (0, 1, 3, 9):
        system = StageWiseRegression(**QUICK, n_trees=cut).fit(X, y, **val)
        pool = system.model_.pool
        used = np.unique(pool.feature[pool.feature >= 0])
        np.testing.assert_array_equal(system.predict_cost(X, "learner"), cut + PRICES[used].sum())


def test_rounds_known_the_ensemble_grows_on_all_rows(monkeypatch):
    X, y, _ = given()
    sizes = []
    original = cstc.baselines._boosting.train_booster

    def spy(boosting, rows, **options):
        sizes.append(len(rows))
        return original(boosting, rows, **options)

    monkeypatch.setattr(cstc.baselines._boosting, "train_booster", spy)
    StageWiseRegression(**QUICK).fit(X, y)
    SingleClassifier(**QUICK).fit(X, y)
    assert sizes == [320, 400, 320]  # weights are not learned on rows that the columns know, and judged on others


# -- CEGB and Greedy Miser -----------------------------------------------------------------------------------------


def test_cegb_lazy_is_one_ensemble_with_lazy_prices():
    X, y, val = given()
    system = CEGB(**QUICK, cost_weight=0.01, early_stopping=None).fit(X, y, **val)
    boosting = Boosting(
        loss=SquaredLoss(),
        costs=system.costs_,
        n_rounds=15,
        depth=2,
        learning_rate=0.1,
        early_stopping=None,
        random_state=0,
        n_jobs=1,
    )
    rows = Rows(X, (y - y.mean()) / y.std(), np.ones(len(y)))
    pool, _ = trees_of(boost(boosting, rows, cost_weight=0.01 / y.var(), penalty="lazy"), 1)
    expected = pool.transform(X).sum(axis=1) * y.std() + y.mean()
    np.testing.assert_allclose(system.predict(X), expected, atol=1e-9)


def test_units_of_the_penalties(monkeypatch):
    """Lazy: per row. Coupled: times the rows. Shared items: divided. LightGBM's gain is twice the drop of log loss."""
    seen = []
    original = lightgbm.train
    monkeypatch.setattr(lightgbm, "train", lambda p, *a, **k: seen.append(p) or original(p, *a, **k))
    X, y, val = given()
    shared = CostModel({"draw": 6.0, "x4": 3.0}, requires={f"x{j}": ["draw"] for j in (0, 1, 2, 3, 5)})
    options = QUICK | {"costs": shared, "cost_weight": 0.01}
    CEGB(**options).fit(X, y, **val)
    CEGB(**options, penalty="coupled").fit(X, y, **val)
    GreedyMiser(**options).fit(X, y, **val)
    lazy, coupled, miser = seen
    prices = np.array([1.2, 1.2, 1.2, 1.2, 3.0, 1.2])
    np.testing.assert_allclose(lazy["cegb_penalty_feature_lazy"], 0.01 * prices / y.var())
    np.testing.assert_allclose(coupled["cegb_penalty_feature_coupled"], 400 * 0.01 * prices / y.var())
    assert miser["cegb_penalty_feature_coupled"] == coupled["cegb_penalty_feature_coupled"]
    assert "cegb_penalty_feature_lazy" not in coupled
    labels = y > 0
    CEGB(**options, task="classification").fit(X, labels, X_val=val["X_val"], y_val=val["y_val"] > 0)
    np.testing.assert_allclose(seen[-1]["cegb_penalty_feature_lazy"], 2 * 0.01 * prices)


@pytest.mark.parametrize("kind", [CEGB, GreedyMiser])
def test_prices_make_models_cheaper(kind):
    X, y, val = given()
    costs = [kind(**QUICK, cost_weight=w).fit(X, y, **val).predict_cost(X).mean() for w in (0.0, 0.003, 0.03, 10.0)]
    assert costs[0] > costs[1] > costs[2] > costs[3] == 0


def test_miser_stops_where_a_tree_is_not_worth_its_price():
    X, y, val = given()
    system = GreedyMiser(**QUICK, cost_weight=0.002)
    setting = system._set_up(X, y, val["X_val"], val["y_val"], None, None, None, None)
    pool = StageWiseRegression(**QUICK, early_stopping=None)._share(setting)
    rows, losses = setting.validation, []
    for n in range(pool.n_learners + 1):
        used = pool.learner_uses(np.eye(6, dtype=bool))[:n].any(axis=0)
        margins = pool.transform(rows.X)[:, :n].sum(axis=1) + setting.constant[0]
        losses.append(np.mean((margins - rows.y) ** 2) + 0.002 / y.var() * (n + PRICES[used].sum()))
    assert rounds_by_loss(setting, pool, 0.002) == np.argmin(losses)
    assert rounds_by_loss(setting, pool, 100.0) == 0
    stopped = GreedyMiser(**QUICK, cost_weight=0.1).fit(X, y, **val).model_.pool.n_learners
    assert 0 < stopped < CEGB(**QUICK, cost_weight=0.1, penalty="coupled").fit(X, y, **val).model_.pool.n_learners


# -- weights over trees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_single_classifier_is_one_node_of_the_papers_tree(task):
    X, y, val = given()
    kind = CSTCRegressor
    if task == "classification":
        y, val["y_val"], kind = y > 0, val["y_val"] > 0, CSTCClassifier
    method = Paper(depth=1, fine_tuning=False, solver="joint", tol=1e-6)
    node = kind(**QUICK, method=method, cost_weight=0.003).fit(X, y, **val)
    single = SingleClassifier(**QUICK, task=task, cost_weight=0.003).fit(X, y, **val)
    assert 0 < single.predict_cost(X).mean() < StageWiseRegression(**QUICK).fit(X, y, **val).predict_cost(X).mean()
    np.testing.assert_allclose(single.decision_function(X), node._margins(X)[:, 0], atol=0.01)


def test_lasso_fulfils_its_optimality_conditions():
    X, y, val = given()
    weight = 0.05
    system = L1(**QUICK, l1_weight=weight)
    setting = system._set_up(X, y, val["X_val"], val["y_val"], None, None, None, None)
    columns = columns_of(setting, "boosted")
    model = system.fit(X, y, **val).model_
    phi = columns.pool.transform(X) * y.std()  # in the units of y
    gradient = 2.0 * (phi - phi.mean(axis=0)).T @ (model.predict(X) - y) / len(y)
    used = model.pool.transform(X)
    kept = [t for t in range(phi.shape[1]) if any(np.array_equal(phi[:, t] / y.std(), column) for column in used.T)]
    assert 0 < len(kept) < phi.shape[1]
    assert np.abs(gradient).max() <= weight / y.std() * y.std() * 1.01
    np.testing.assert_allclose(np.abs(gradient[kept]), weight, rtol=1e-2)


def test_l1_of_classes_keeps_fewer_trees_when_it_weighs_more():
    X, y, val = given()
    val["y_val"] = val["y_val"] > 0
    kept = [
        L1(**QUICK, task="classification", l1_weight=w).fit(X, y > 0, **val).model_.pool.n_learners
        for w in (1e-4, 1e-2, 1.0)
    ]
    assert kept[0] > kept[1] > kept[2] == 0


def test_l1_of_classes_fulfils_its_optimality_conditions():
    """No gradient above the weight, and the weight itself where a column is kept: l2 knows no such bound."""
    X, y, val = given()
    y, val["y_val"], weight = y > 0, val["y_val"] > 0, 0.13
    system = L1(costs=COSTS, task="classification", l1_weight=weight, weak_learners="identity", random_state=0)
    columns = columns_of(system._set_up(X, y, val["X_val"], val["y_val"], None, None, None, None), "identity").train
    errors = expit(system.fit(X, y, **val).decision_function(X)) - y
    gradient = columns.phi.T @ (columns.weights * errors) / columns.weights.sum()
    kept = system.model_.pool.linear_feature[system.model_.pool.linear_feature >= 0]
    assert 0 < len(kept) < 6
    assert np.abs(gradient).max() <= weight * 1.001
    np.testing.assert_allclose(np.abs(gradient[kept]), weight, rtol=1e-3)


def test_plain_inputs_as_columns():
    X, y = make_quadrants(600, random_state=0)
    options = {"costs": QUADRANT_COSTS, "weak_learners": "identity", "random_state": 0}
    for system in (SingleClassifier(**options, cost_weight=1e-3), L1(**options), Cronus(**options, length=2)):
        assert system.fit(X[:500], y[:500]).score(X[500:], y[500:]) > 0.6
    with pytest.raises(ValueError, match="NaN"):
        SingleClassifier(**options).fit(np.where(X > 2, np.nan, X), y)


# -- Cronus --------------------------------------------------------------------------------------------------------


def chain_problem(length=3, cost_weight=0.001):
    X, y, val = given()
    system = Cronus(**QUICK, length=length, cost_weight=cost_weight)
    setting = system._set_up(X, y, val["X_val"], val["y_val"], None, None, None, None)
    columns = columns_of(setting, "boosted")
    weight = setting.units.standard_weight(cost_weight)
    return columns, columns.objective(TreeShape.chain(length), weight, gate_slope=setting.units.scale)


def test_a_cascade_of_one_stage_is_the_single_classifier(monkeypatch):
    for module in (cstc.baselines.cronus, cstc.baselines.single):  # to the optimum, whenever SciPy would stop
        exactly = partial(lambda solve, *given, **options: solve(*given, **options | {"tol": 1e-10}), module.solve)
        monkeypatch.setattr(module, "solve", exactly)
    X, y, val = given()
    chain = Cronus(**QUICK, length=1, cost_weight=0.003, max_iter=5000).fit(X, y, **val)
    single = SingleClassifier(**QUICK, cost_weight=0.003, max_iter=5000).fit(X, y, **val)
    np.testing.assert_allclose(chain.predict(X), single.predict(X), atol=0.002)


@pytest.mark.parametrize("ratio", [0.2, 0.6])
def test_a_stage_passes_on_its_share_of_the_rows_at_the_start(ratio):
    columns, objective = chain_problem()
    parameters = start_of_chain(objective, ratio, 50)
    margins = objective.margins(parameters)[:, :, 0]
    assert np.mean(margins[:, 0] > parameters.thresholds[0]) == pytest.approx(ratio, abs=0.02)
    reached = expit(columns.units.scale * (margins[:, 0] - parameters.thresholds[0]))
    passed = reached[margins[:, 1] > parameters.thresholds[1]].sum() / reached.sum()
    assert passed == pytest.approx(ratio, abs=0.05)


def test_who_leaves_early_does_not_pay_for_later_stages():
    X, y, val = given()
    system = Cronus(**QUICK, length=4, cost_weight=0.002, keep_ratios=(0.3, 0.5)).fit(X, y, **val)
    model = system.model_
    assert system.keep_ratio_ in (0.3, 0.5)
    assert (model.shape.lower < 0).all()  # a chain: the lower branch always leaves
    terminals, cost = model.apply(X), system.predict_cost(X, "learner")
    for terminal in np.unique(terminals):
        stages = np.flatnonzero(model.shape.paths[terminal])
        learners = (model.route_weights[:, stages] != 0).any(axis=1)
        learners |= model.predict_weights[:, stages[-1], 0] != 0
        items = model.pool.learner_uses(np.eye(6, dtype=bool))[learners].any(axis=0)
        np.testing.assert_allclose(cost[terminals == terminal], learners.sum() + items @ PRICES)


def test_a_cascade_buys_the_dear_feature_for_half_of_the_rows():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.choice([-1.0, 1.0], 1500), rng.normal(size=1500)])
    y = np.where(X[:, 0] > 0, 6.0 + 2.0 * X[:, 1], 0.0)  # rows below need no more than the cheap feature
    options = {"costs": [1.0, 20.0], "cost_weight": 0.12, "weak_learners": "identity", "random_state": 0}
    chain, single = (kind(**options).fit(X, y) for kind in (Cronus, SingleClassifier))
    assert chain.predict_cost(X).mean() == pytest.approx(1.0 + 20.0 * np.mean(X[:, 0] > 0))
    assert chain.score(X, y) > single.score(X, y) + 0.05
    assert single.predict_cost(X).mean() == 1.0


# -- early exit ----------------------------------------------------------------------------------------------------


def plain_early_exit(partial, qid, cuts, threshold, k):
    """Document by document: the cut after which it leaves, and its rank within the query (0 is best)."""
    left, rank = np.full(len(qid), cuts[-1]), np.zeros(len(qid), dtype=int)
    for query in np.unique(qid):
        there = list(np.flatnonzero(qid == query))
        order = []
        for cut in cuts[:-1]:
            scores = sorted((partial[cut][d] for d in there), reverse=True)
            if len(scores) < k:
                break
            out = [d for d in there if partial[cut][d] < scores[k - 1] - threshold]
            for document in out:
                left[document] = cut
            order = sorted(out, key=lambda d: -partial[cut][d]) + order
            there = [d for d in there if d not in out]
        order = sorted(there, key=lambda d: -partial[cuts[-1]][d]) + order
        rank[order] = np.arange(len(order))
    return left, rank


@pytest.mark.parametrize("exits", [(0.1, 3, 2), (0.5, 5, 4), (0.0, 1, 1), (5.0, 2, 3)])
def test_early_exit_document_by_document(exits):
    X, y, qid = queries()
    system = EarlyExit(**QUICK, exits=exits).fit(X, y, qid=qid)
    whole = EarlyExit(**QUICK).fit(X, y, qid=qid)
    n_trees = whole.model_.pool.n_learners
    outputs = whole.model_.pool.transform(X) * whole.model_.predict_weights[:, 0, 0]
    partial = {cut: outputs[:, :cut].sum(axis=1) for cut in range(n_trees + 1)}
    left, rank = plain_early_exit(partial, qid, [*range(exits[2], n_trees, exits[2]), n_trees], exits[0], exits[1])
    uses = whole.model_.pool.learner_uses(np.eye(6, dtype=bool))
    expected = [cut + uses[:cut].any(axis=0) @ PRICES for cut in left]
    np.testing.assert_allclose(system.predict_cost(X, "learner", qid=qid), expected)
    scores = system.predict(X, qid=qid)
    for query in np.unique(qid):
        at = np.flatnonzero(qid == query)
        np.testing.assert_array_equal(at[np.argsort(-scores[at], kind="stable")], at[np.argsort(rank[at])])
    if exits[0] < 1:
        assert (left < n_trees).any()


def test_early_exit_without_exits_is_stage_wise_regression():
    X, y, qid = queries()
    whole = StageWiseRegression(**QUICK, task="ranking").fit(X, y, qid=qid)
    for exits in (None, (1e9, 5, 2)):
        system = EarlyExit(**QUICK, exits=exits).fit(X, y, qid=qid)
        np.testing.assert_allclose(system.predict(X, qid=qid), whole.predict(X), rtol=1e-12)
        np.testing.assert_array_equal(system.predict_cost(X, qid=qid), whole.predict_cost(X))


def test_early_exit_a_few_queries_at_a_time(monkeypatch):
    X, y, qid = queries()
    system = EarlyExit(**QUICK, exits=(0.1, 3, 2)).fit(X, y, qid=qid)
    scores, cost = system.predict(X, qid=qid), system.predict_cost(X, qid=qid)
    for rows in (1, 25, len(X)):  # one query at least
        monkeypatch.setattr(cstc.baselines.early_exit, "ROWS", rows)
        np.testing.assert_array_equal(system.predict(X, qid=qid), scores)
        np.testing.assert_array_equal(system.predict_cost(X, qid=qid), cost)


def test_early_exit_needs_whole_queries():
    X, y, qid = queries()
    system = EarlyExit(**QUICK, exits=(0.1, 3, 2)).fit(X, y, qid=qid)
    for method in (system.predict, system.predict_cost):
        with pytest.raises(ValueError, match="early exit needs whole queries"):
            method(X)
        with pytest.raises(ValueError, match="comes back after other queries"):
            method(X, qid=np.arange(len(X)) % 7)
    others = np.concatenate([system.predict(X[at], qid=qid[at]) for at in (qid < 20, qid >= 20)])
    np.testing.assert_allclose(others, system.predict(X, qid=qid), rtol=1e-12)
