"""Groups of rows that buy alike: how they are found, and the tree that they become."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

import cstc
from builders import column_sources
from cstc import CostModel, CSTCRegressor, Frontier
from cstc.experts import candidates
from cstc.experts.branches import Groups, tried
from cstc.experts.chain import ChainGrower
from cstc.experts.expert import constant_expert
from cstc.experts.gates import induce
from cstc.needs import Needs
from cstc.parting import part
from cstc.serving import OnDemandPredictor
from experts.cases import OWN_PRICES, TASKS, boosting, needed, own_features, resolved, rows_of

N = 2400
TELLING = np.array([0])
OPTIONS = {"costs": OWN_PRICES, "n_weak_learners": 40, "random_state": 0, "n_jobs": 1}
PRICES = resolved(OWN_PRICES)


# -- groups -------------------------------------------------------------------------------------------------------


def grower_of(costs=PRICES, folds=None, half=None, weights=None):
    _, X, y, _ = own_features()
    folds = np.arange(N) % 3 if folds is None else folds
    half = np.arange(N) % 2 == 0 if half is None else half
    model = boosting(costs, (float(y.mean()),), n_rounds=10, learning_rate=0.3)
    return ChainGrower(rows_of(X, y, weights), model, folds, half, lambda text: None)


def parted_of(grower, cost_weight=0.01):
    """By the kind, at splits on the first column."""
    needs = needs_of(grower)
    found = part(needs, cost_weight, TELLING, ())
    return needs, found[0]


def needs_of(grower, at=slice(None)):
    """Each row loses 1 without its own column, and nothing without the others."""
    rows = grower.rows.take(np.arange(N)[at])
    lost = needed(rows.X).astype(float)
    lost[:, 0] = 0.0
    return Needs(rows, np.arange(len(rows)) % 2 == 0, lost, grower.boosting.costs)


def groups_of(grower):
    return Groups.grow(grower, *parted_of(grower), constant_expert(grower.boosting.constant, N))


def test_why_there_are_no_groups():
    X = own_features()[1]
    kind = X[:, 0].astype(int)
    assert groups_of(grower_of(folds=kind)) == "a group lies in one fold"
    assert groups_of(grower_of(half=kind > 1)) == "a group lies in one fold"


def test_some_rows_tell_the_groups_of_all():
    grower = grower_of()
    free = constant_expert(grower.boosting.constant, N)
    some = needs_of(grower, slice(0, N, 2))
    found = Groups.grow(grower, some, part(some, 0.01, TELLING, ())[0], free)
    assert sorted(np.concatenate(found._rows)) == list(range(N))
    for at, same in zip(found._rows, groups_of(grower)._rows, strict=True):
        np.testing.assert_array_equal(at, same)
    # each group may buy what its own rows among them need
    for chains, others in zip(found._chains, groups_of(grower)._chains, strict=True):
        assert [stage.price for stage in chains.chains[0].stages] == [
            stage.price for stage in others.chains[0].stages
        ]


def test_what_groups_lose_is_tried_on_the_other_half():
    """Each group buys its own column, and its label is 2 * that column, the kind, and noise of 0.1."""
    grower = grower_of()
    needs, parted = parted_of(grower)
    lost = tried(grower, needs, parted, parted.cost_weight) - parted.cost_weight * 10.5
    assert 0.1**2 < lost < 0.2  # of a variance of 5
    # labels that nobody can learn: what is tried on rows that did not teach is no better than their mean
    rng = np.random.default_rng(0)
    noisy = replace(needs, rows=replace(needs.rows, y=rng.normal(size=N)))
    assert tried(grower, noisy, parted, parted.cost_weight) > 0.95 + parted.cost_weight * 10.5


def test_a_group_buys_one_of_those_that_repeat_each_other():
    """By its attributions, nobody needs any of them; a group that is tried buys what pays for it as a whole."""
    grower = grower_of()
    needs, parted = parted_of(grower)
    repeated = replace(needs, lost=0.2 * needs.lost)  # as if four more columns had their share of it
    for factor in (1.0, 40.0):
        cost_weight = factor * parted.cost_weight
        assert tried(grower, repeated, parted, cost_weight) - cost_weight * 10.5 < 0.2
    # at a price above all that is to be gained, nothing but the splits is bought
    variance = [np.var(needs.rows.y[needs.rows.X[:, 0] == kind]) for kind in range(4)]
    lost = tried(grower, needs, parted, 10.0) - 10.0 * 0.5
    assert lost == pytest.approx(np.mean(variance), rel=0.1)


def test_a_group_in_one_half_is_not_judged():
    grower = grower_of()
    needs, parted = parted_of(grower)
    apart = replace(needs, half=needs.rows.X[:, 0] > 1.5)
    assert np.isfinite(tried(grower, apart, parted, parted.cost_weight))


@pytest.mark.parametrize("evaluation", [0.0, 0.001])
def test_what_a_branching_is_expected_to_lose_and_cost_by_hand(evaluation):
    costs = resolved(OWN_PRICES, evaluation=evaluation)
    weights = np.where(own_features()[1][:, 0] == 2, 3.0, 1.0)
    grower = grower_of(costs, weights=weights)
    groups = groups_of(grower)
    found = groups.induce(0.01)
    X = grower.rows.X
    group = found.partition.groups(X)
    value, cost, reached = np.empty(N), 0.0, []
    for number in range(4):
        at = group == number
        chain, policy = found.chosen[number]
        # x0 and the splits on the way come first; then what the group decides for itself
        splits = 0.5 + evaluation * len(found.partition.features[number])
        value[at] = policy.value + 0.01 * splits
        share = weights[at].sum() / weights.sum()
        cost += share * (policy.mean_cost + splits)
        reached += list(share * policy.reached)
        alone = induce(chain, 0.01)
        assert np.array_equal(alone.value, policy.value)
        assert len(policy.value) == at.sum()
    assert np.array_equal(found.value, value)
    assert found.mean_value == pytest.approx(np.average(value, weights=weights))
    assert found.mean_cost == pytest.approx(cost)
    assert found.reached == pytest.approx(reached)
    assert found.reached.sum() == pytest.approx(1.0)


def test_a_group_may_buy_what_its_rows_buy():
    grower = grower_of()
    found = groups_of(grower).induce(0.0)  # nothing is weighed: each group goes to the end
    X = grower.rows.X
    group = found.partition.groups(X)
    for number, (chain, policy) in enumerate(found.chosen):
        own = 1 + int(X[group == number, 0][0])
        assert set(chain.stages[-1].columns) == {0, own}
        assert list(chain.stages[0].columns) == [0]
        assert set(chain.stages[policy.stages[-1]].columns) == {0, own}


# -- the tree -----------------------------------------------------------------------------------------------------


@functools.cache
def fitted(task, cost_weight=0.01, evaluation=0.0):
    estimator, X, y, queries = own_features(task)
    options = OPTIONS | {"costs": CostModel(OWN_PRICES, evaluation=evaluation)}
    return estimator(cost_weight=cost_weight, **options).fit(X, y, **queries), X, y


def is_branched(model):
    shape = model.model_.shape
    return ((shape.upper >= 0) & (shape.lower >= 0)).any()


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_each_group_buys_its_own_features(seed):
    estimator, X, y, _ = own_features(seed=seed)
    model = estimator(cost_weight=0.01, **OPTIONS).fit(X, y)
    _, X, y, _ = own_features(seed=seed + 1)
    assert model.score(X, y) > 0.95
    assert np.array_equal(model.model_.bought_items(X), needed(X))
    assert (model.predict_cost(X) == 10.5).all()
    assert is_branched(model)  # it is a tree, no chain


@pytest.mark.parametrize("task", TASKS)
def test_on_demand_a_branch_pays_what_is_reported(task):
    model, X, _ = fitted(task, cost_weight=0.002 if task == "ranking" else 0.005)
    assert is_branched(model)  # or nothing would be tested
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
    value, cost = model.predict(X[:200], return_cost=True, budget=1.0)
    assert value.tolist() == [answer.value for answer in answers]
    assert cost.tolist() == [answer.cost for answer in answers]
    group = X[:, 0]  # all that was bought; the first split tells only those above 1.5 from the others
    knows_group = np.array([y[group == own].mean() for own in group[:200]])
    knows_split = np.array([y[(group > 1.5) == (own > 1.5)].mean() for own in group[:200]])

    def error(found):
        return np.mean((found - y[:200]) ** 2)

    assert error(value) < 1.1 * error(knows_group)
    assert error(value) < error(knows_split)


@pytest.mark.parametrize("evaluation", [0.0, 0.01])
def test_the_loss_is_what_the_tree_is_expected_to_cost(evaluation):
    model, _, _ = fitted("regression", evaluation=evaluation)
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
    model = CSTCRegressor(cost_weight=0.05, **OPTIONS).fit(X, y)
    known = X[:, 0] == 0
    assert (model.predict_cost(X)[known] == 0.5).all()
    assert np.abs(model.predict(X)[known] - 20.0).max() < 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_a_group_may_hold_one_class_only(classes):
    estimator, X, y, _ = own_features("classes" if classes == 2 else "three classes")
    y = np.where(X[:, 0] == 0, 0, y)
    model = estimator(cost_weight=0.005, **OPTIONS).fit(X, y)
    settled = X[:, 0] == 0
    assert model.predict_cost(X)[settled].mean() < 1.0
    assert (model.predict(X)[settled] == 0).all()
    assert (model.predict_proba(X) > 0).all()


def test_items_that_splits_and_groups_share_are_paid_once():
    _, X, y, _ = own_features()
    bill = {"visit": 0.3, "draw": 6.0} | {f"x{j}": price for j, price in enumerate([0.2, 4.0, 4.0, 10.0, 10.0, 4.0])}
    requires = {"x0": ["visit"], "x1": ["visit", "draw"], "x2": ["visit", "draw"], "x5": ["draw"]}
    costs = CostModel(bill, requires)
    model = CSTCRegressor(cost_weight=0.01, **(OPTIONS | {"costs": costs})).fit(X, y)
    expected = [costs.price_of({"x0", f"x{1 + int(kind)}"}) for kind in X[:200, 0]]
    assert model.predict_cost(X[:200]).tolist() == pytest.approx(expected)


def test_missing_values_may_tell_a_group(tmp_path):
    """scikit-learn parts them with an infinite threshold, which no model file takes."""
    _, X, y, _ = own_features()
    X[X[:, 0] == 3, 0] = np.nan
    model = CSTCRegressor(cost_weight=0.01, **OPTIONS).fit(X, y)
    if parse_version(sklearn.__version__) >= parse_version("1.8"):  # before, its trees overlook some of these splits
        assert (model.predict_cost(X) == 10.5).mean() > 0.9
    model.save(tmp_path / "tree.cstc")
    assert np.array_equal(cstc.load(tmp_path / "tree.cstc").predict(X), model.predict(X))


def test_a_killed_frontier_of_trees_goes_on(tmp_path):
    estimator, X, y, _ = own_features()
    options = OPTIONS | {"n_weak_learners": 20}
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
        patch.setattr(candidates, "induce", lambda *given: stop_after_two() or induce(*given))
        with pytest.raises(Enough):
            frontier(weights).fit(X, y)
    resumed = frontier(weights).fit(X, y)
    for one, two in zip(whole.tried_models_, resumed.tried_models_, strict=True):
        assert np.array_equal(one.predict(X), two.predict(X))
        assert repr(one.candidates_) == repr(two.candidates_)  # by its text: what was not grown has no numbers


def test_a_branched_model_is_saved_whole(tmp_path):
    model, X, _ = fitted("three classes", cost_weight=0.005)
    model.save(tmp_path / "tree.cstc")
    loaded = cstc.load(tmp_path / "tree.cstc")
    assert np.array_equal(loaded.predict_cost(X), model.predict_cost(X))
    assert np.allclose(loaded.predict_proba(X), model.predict_proba(X))


def test_models_do_not_depend_on_what_was_fitted_before():
    estimator, X, y, _ = own_features()
    options = OPTIONS | {"n_weak_learners": 20}
    weights = [0.04, 0.01, 0.002]
    frontier = Frontier(estimator(**options), cost_weights=weights).fit(X, y, X_val=X[:600], y_val=y[:600])
    for model in frontier.tried_models_:
        if model.cost_weight:
            alone = estimator(cost_weight=model.cost_weight, **options).fit(X, y)
            assert np.array_equal(alone.predict(X), model.predict(X))
