"""Groups of rows that buy alike: how they are found, and the tree that they become."""

import numpy as np
import pytest

import cstc
from builders import column_sources
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Frontier
from cstc.chains import ChainGrower
from cstc.costs import as_cost_model
from cstc.groups import Groups, part
from cstc.losses import SquaredLoss
from cstc.serving import OnDemandPredictor
from cstc.settings import Sample
from cstc.weak_learners import Boosting

N = 2400
PRICES = [0.5, 10.0, 10.0, 10.0, 10.0, 10.0]
TELLING = np.array([0])


def own_features(task="regression", n=N, seed=0):
    """A cheap column says which of four dear ones matters; the last one is noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    X[:, 0] = rng.integers(4, size=n)
    signal = X[:, 0] + 2.0 * X[np.arange(n), 1 + X[:, 0].astype(int)]
    if task == "regression":
        return CSTCRegressor, X, signal + 0.1 * rng.normal(size=n), {}
    if task == "classes":
        return CSTCClassifier, X, (signal > 1.5).astype(int), {}
    if task == "three classes":
        return CSTCClassifier, X, np.searchsorted([0.5, 2.5], signal), {}
    return CSTCRanker, X, np.clip(np.round(signal), 0, 4), {"qid": np.repeat(np.arange(n // 12), 12)}


def needed(X):
    """What is bought if each row buys its own column, and all rows the first."""
    bought = np.zeros((len(X), 6), dtype=bool)
    bought[:, 0] = True
    bought[np.arange(len(X)), 1 + X[:, 0].astype(int)] = True
    return bought


def resolved(prices=PRICES, evaluation=0.0):
    return as_cost_model(CostModel(list(prices), evaluation=evaluation), 6).resolve([f"x{j}" for j in range(6)])


# -- the partition ------------------------------------------------------------------------------------------------


def test_rows_that_buy_alike_come_together():
    _, X, _, _ = own_features()
    found = part(X, np.ones(N), [needed(X)], resolved(), np.arange(6))
    group = found.groups(X)
    assert found.n_groups == 4
    assert len({(kind, number) for kind, number in zip(X[:, 0], group, strict=True)}) == 4
    assert all(set(features) == {0} for features in found.features)


def test_groups_follow_the_splits_even_where_values_are_missing():
    _, X, _, _ = own_features()
    bought = needed(X)
    X[::5, 0] = np.nan
    found = part(X, np.ones(N), [bought], resolved(), TELLING)
    pool = found.splits
    for row, group in zip(X[:200], found.groups(X[:200]), strict=True):
        at = 0
        while at >= 0:
            root = pool.roots[at]
            value = row[pool.feature[root]]
            left = pool.missing_left[root] if np.isnan(value) else value <= pool.threshold[root]
            at = (found.upper if left else found.lower)[at]
        assert group == -1 - at


def test_no_groups_where_all_rows_buy_the_same():
    _, X, _, _ = own_features()
    assert part(X, np.ones(N), [np.ones((N, 6), dtype=bool)], resolved(), TELLING) is None


def test_dear_features_are_not_bought_to_tell_groups_apart():
    _, X, _, _ = own_features()
    assert part(X, np.ones(N), [needed(X)], resolved(), np.arange(1, 6)) is None


def test_no_groups_of_few_rows_or_without_columns_to_look_at():
    _, X, _, _ = own_features(n=200)
    assert part(X, np.ones(200), [needed(X)], resolved(), TELLING) is None
    _, X, _, _ = own_features()
    assert part(X, np.ones(N), [needed(X)], resolved(), np.zeros(0, dtype=int)) is None


def test_rows_without_weight_make_no_group():
    _, X, _, _ = own_features()
    weights = (X[:, 0] > 0).astype(float)
    found = part(X, weights, [needed(X)], resolved(), TELLING)
    group = found.groups(X)
    assert all(weights[group == number].sum() > 0 for number in range(found.n_groups))


def test_values_beyond_single_precision_are_parted_all_the_same():
    _, X, _, _ = own_features()
    bought = needed(X)
    X[:, 0] = np.where(X[:, 0] == 3, 1e300, X[:, 0])
    found = part(X, np.ones(N), [bought], resolved(), TELLING)
    assert found.n_groups == 4


def test_groups_that_lie_in_one_fold_are_given_up():
    _, X, y, _ = own_features()
    costs = resolved()
    boosting = Boosting("squared", np.zeros(1), costs, (0.0,), 5, 3, 0.3, None, n_jobs=1)
    sample = Sample(X, y, np.ones(N))
    half = np.arange(N) % 2 == 0
    grower = ChainGrower(sample, SquaredLoss(), boosting, X[:, 0].astype(int), half, None, print)
    assert Groups.find(grower, [needed(X)], None) is None


# -- the tree -----------------------------------------------------------------------------------------------------


def fitted(task, n=N, cost_weight=0.01, prices=PRICES, **options):
    estimator, X, y, queries = own_features(task, n)
    model = estimator(costs=prices, cost_weight=cost_weight, n_weak_learners=40, random_state=0, n_jobs=1, **options)
    return model.fit(X, y, **queries), X, y


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_each_group_buys_its_own_features(seed):
    estimator, X, y, _ = own_features(seed=seed)
    model = estimator(costs=PRICES, cost_weight=0.01, n_weak_learners=40, random_state=0, n_jobs=1).fit(X, y)
    _, X, y, _ = own_features(seed=seed + 1)
    assert model.score(X, y) > 0.95
    assert np.array_equal(model.model_.bought_items(X), needed(X))
    assert (model.predict_cost(X) == 10.5).all()
    shape = model.model_.shape
    assert ((shape.upper >= 0) & (shape.lower >= 0)).any()  # it is a tree, no chain


@pytest.mark.parametrize("task", ["regression", "classes", "three classes", "ranking"])
def test_on_demand_a_branch_pays_what_is_reported(task):
    model, X, _ = fitted(task, cost_weight=0.002 if task == "ranking" else 0.005)
    shape = model.model_.shape
    assert ((shape.upper >= 0) & (shape.lower >= 0)).any()  # or nothing would be tested
    fetched = []
    rows = range(40)
    costs, items = model.predict_cost(X[rows]), model.model_.bought_items(X[rows])
    predictor = OnDemandPredictor(model, column_sources(X, fetched))
    for i in rows:
        answer = predictor.predict(i)
        assert sorted(j for row, j in fetched if row == i) == np.flatnonzero(items[i]).tolist()
        assert answer.cost == costs[i]
        expected = model.predict(X[i : i + 1])[0]
        assert answer.value == (pytest.approx(expected) if task in ("regression", "ranking") else expected)
    assert predictor.predict(0, budget=0.4).status != "complete"  # an answer comes before anything is bought


def test_what_splits_have_bought_is_used_when_the_budget_ends():
    model, X, y = fitted("regression")
    predictor = OnDemandPredictor(model, column_sources(X, []))
    answers = [predictor.predict(i, budget=1.0) for i in range(200)]
    assert {answer.status for answer in answers} == {"budget"}
    assert {answer.cost for answer in answers} == {0.5}
    for i, answer in enumerate(answers):
        alike = (X[:, 0] > 1.5) == (X[i, 0] > 1.5)  # the first split
        assert answer.value == pytest.approx(y[alike].mean(), abs=0.1)


@pytest.mark.parametrize("evaluation", [0.0, 0.01])
def test_the_loss_is_what_the_tree_is_expected_to_cost(evaluation):
    model, _, _ = fitted("regression", prices=CostModel(PRICES, evaluation=evaluation))
    _, X, y, _ = own_features(seed=1)
    assert model.model_.shape.n_nodes > 4
    cost = model.predict_cost(X, counting="learner").mean()
    risk = np.mean((model.predict(X) - y) ** 2)
    assert model.loss_history_[0][-1] == pytest.approx(risk + 0.01 * cost, rel=0.25)


def test_expected_cost_is_that_of_new_rows():
    model, _, _ = fitted("regression")
    _, X, _, _ = own_features(seed=1)
    assert model.model_.shape.n_terminals == 4
    assert model.expected_cost_ == pytest.approx(model.predict_cost(X, counting="learner").mean(), rel=0.05)


def test_where_nothing_is_left_to_learn_a_group_says_its_mean():
    """The split alone settles one kind: its rows buy nothing more, and none is answered with the mean of all."""
    _, X, y, _ = own_features()
    y = np.where(X[:, 0] == 0, 20.0, y)
    model = CSTCRegressor(costs=PRICES, cost_weight=0.05, n_weak_learners=40, random_state=0, n_jobs=1).fit(X, y)
    known = X[:, 0] == 0
    assert (model.predict_cost(X)[known] == 0.5).all()
    assert np.abs(model.predict(X)[known] - 20.0).max() < 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_a_group_may_hold_one_class_only(classes):
    estimator, X, y, _ = own_features("classes" if classes == 2 else "three classes")
    y = np.where(X[:, 0] == 0, 0, y)
    options = {"costs": PRICES, "cost_weight": 0.005, "n_weak_learners": 40, "random_state": 0, "n_jobs": 1}
    model = estimator(**options).fit(X, y)
    settled = X[:, 0] == 0
    assert model.predict_cost(X)[settled].mean() < 1.0
    assert (model.predict(X)[settled] == 0).all()
    assert (model.predict_proba(X) > 0).all()


def test_items_that_splits_and_groups_share_are_paid_once():
    _, X, y, _ = own_features()
    bill = {"visit": 0.3, "draw": 6.0} | {f"x{j}": price for j, price in enumerate([0.2, 4.0, 4.0, 10.0, 10.0, 4.0])}
    requires = {"x0": ["visit"], "x1": ["visit", "draw"], "x2": ["visit", "draw"], "x5": ["draw"]}
    costs = CostModel(bill, requires)
    model = CSTCRegressor(costs=costs, cost_weight=0.01, n_weak_learners=40, random_state=0, n_jobs=1).fit(X, y)
    expected = [costs.price_of({"x0", f"x{1 + int(kind)}"}) for kind in X[:200, 0]]
    assert model.predict_cost(X[:200]).tolist() == pytest.approx(expected)


def test_missing_values_may_tell_a_group(tmp_path):
    """scikit-learn parts them with an infinite threshold, which no model file takes."""
    _, X, y, _ = own_features()
    X[X[:, 0] == 3, 0] = np.nan
    model = CSTCRegressor(costs=PRICES, cost_weight=0.01, n_weak_learners=40, random_state=0, n_jobs=1).fit(X, y)
    assert (model.predict_cost(X) == 10.5).mean() > 0.9
    model.save(tmp_path / "tree.cstc")
    assert np.array_equal(cstc.load(tmp_path / "tree.cstc").predict(X), model.predict(X))


def test_values_that_single_precision_cannot_tell_apart():
    _, X, _, _ = own_features()
    bought = needed(X)
    X[:, 0] += 2.0**24
    found = part(X, np.ones(N), [bought], resolved(), TELLING)
    assert found is None or np.bincount(found.groups(X)).min() > 0


def test_a_killed_frontier_of_trees_goes_on(tmp_path):
    estimator, X, y, _ = own_features()
    options = {"costs": PRICES, "n_weak_learners": 20, "random_state": 0, "n_jobs": 1}
    weights = [0.04, 0.01, 0.002]

    def frontier(weights):
        return Frontier(estimator(**options), cost_weights=weights, checkpoint=tmp_path / "kept")

    class Enough(Exception):
        pass

    def stop_after_two(*_):
        if len(list((tmp_path / "kept").glob("*.cstc"))) >= 2:
            raise Enough

    whole = Frontier(estimator(**options), cost_weights=weights).fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        from cstc import cascade

        grown = cascade.induce
        patch.setattr(cascade, "induce", lambda *given: stop_after_two() or grown(*given))
        with pytest.raises(Enough):
            frontier(weights).fit(X, y)
    resumed = frontier(weights).fit(X, y)
    for one, two in zip(whole.tried_models_, resumed.tried_models_, strict=True):
        assert np.array_equal(one.predict(X), two.predict(X))


def test_a_branched_model_is_saved_whole(tmp_path):
    model, X, _ = fitted("three classes", cost_weight=0.005)
    model.save(tmp_path / "tree.cstc")
    loaded = cstc.load(tmp_path / "tree.cstc")
    assert np.array_equal(loaded.predict_cost(X), model.predict_cost(X))
    assert np.allclose(loaded.predict_proba(X), model.predict_proba(X))


def test_models_do_not_depend_on_what_was_fitted_before():
    estimator, X, y, _ = own_features()
    options = {"costs": PRICES, "n_weak_learners": 20, "random_state": 0, "n_jobs": 1}
    weights = [0.04, 0.01, 0.002]
    frontier = Frontier(estimator(**options), cost_weights=weights).fit(X, y, X_val=X[:600], y_val=y[:600])
    for model in frontier.tried_models_:
        if model.cost_weight:
            alone = estimator(cost_weight=model.cost_weight, **options).fit(X, y)
            assert np.array_equal(alone.predict(X), model.predict(X))
