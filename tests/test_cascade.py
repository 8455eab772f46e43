"""The default method: orders of buying, experts, gates by backward induction, and the chain made of them."""

import itertools

import numpy as np
import pytest

from builders import column_sources
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Frontier
from cstc.cascade import folds_of
from cstc.costs import as_cost_model
from cstc.experts import Expert, grow_expert
from cstc.induction import Chain, induce
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from cstc.pool import TreePool
from cstc.purchases import Stage, nested_sets
from cstc.serving import OnDemandPredictor
from cstc.settings import Sample
from cstc.weak_learners import Boosting

LOSSES = (SquaredLoss(), LogisticLoss(), SoftmaxLoss(3))


def boosting(costs, constant=(0.0,), loss="squared", **changes):
    options = {"n_rounds": 30, "depth": 3, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    return Boosting(loss, np.array(constant, dtype=float), costs, (0.0,), **(options | changes))


def resolved(prices, requires=None, evaluation=0.0, n=6):
    names = [f"x{j}" for j in range(n)]
    model = as_cost_model(CostModel(prices, requires or {}, evaluation), n)
    return model.resolve(names)


def table(n=800, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)), rng


def price_of(costs, columns):
    return costs.prices[costs.feature_items[columns].any(axis=0)].sum() if len(columns) else 0.0


# -- what the losses promise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_expected_is_the_mean_risk_up_to_what_no_margin_changes(loss):
    rng = np.random.default_rng(0)
    truth, first, second = rng.normal(size=(3, 1, loss.n_outputs))
    mean = loss.mean(truth)
    if loss.name == "squared":
        labels = truth[0, 0] + rng.normal(size=200_000)
    else:
        share = loss.mean(truth)[0]
        share = [1 - share, share] if loss.name == "logistic" else share
        labels = rng.choice(len(share), p=share, size=200_000)
    observed = [
        loss.value_and_derivative(np.repeat(margins, len(labels), axis=0), labels)[0].mean()
        for margins in (first, second)
    ]
    expected = [loss.expected(margins, mean)[0] for margins in (first, second)]
    assert observed[0] - observed[1] == pytest.approx(expected[0] - expected[1], abs=0.03)


# -- orders of buying ---------------------------------------------------------------------------------------------


def test_stages_are_nested_and_carry_the_exact_bill():
    X, _ = table()
    y = X @ [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]
    bill = {"x0": 1.0, "x1": 2.0, "draw": 5.0, "x2": 1.0, "x3": 0.0, "x4": 3.0, "x5": 7.0}
    costs = resolved(bill, {"x1": ["draw"], "x2": ["draw"]})
    chains = nested_sets(boosting(costs), X, y, np.ones(len(y)), float(np.var(y)))
    for chain in chains:
        assert list(chain[0].columns) == [3]
        assert chain[0].price == 0.0
        for before, after in itertools.pairwise(chain):
            assert set(before.columns) < set(after.columns)
            assert before.price < after.price
        for stage in chain:
            assert stage.price == pytest.approx(price_of(costs, stage.columns))


def test_what_needs_no_further_item_comes_along():
    X, _ = table()
    y = X[:, 0]
    costs = resolved({"panel": 4.0, "x4": 1.0, "x5": 1.0}, {f"x{j}": ["panel"] for j in range(4)})
    chain = nested_sets(boosting(costs), X, y, np.ones(len(y)), 1.0)[0]
    assert {0, 1, 2, 3} <= set(chain[1].columns)
    assert chain[1].price == 4.0


def test_one_order_by_price_and_one_by_worth():
    X, rng = table(2000)
    y = 3.0 * X[:, 5] + X[:, 0] + 0.1 * rng.normal(size=len(X))
    costs = resolved([1.0, 1.0, 1.0, 1.0, 1.0, 50.0])
    by_price, by_worth = nested_sets(boosting(costs), X, y, np.ones(len(y)), float(np.var(y)))
    assert 5 not in by_price[1].columns
    assert 5 in by_worth[1].columns


def test_equal_prices_give_one_order_and_free_features_one_stage():
    X, _ = table()
    y = X[:, 0] + 0.5 * X[:, 1]
    assert len(nested_sets(boosting(resolved(np.ones(6))), X, y, np.ones(len(y)), 1.25)) == 1
    free = nested_sets(boosting(resolved(np.zeros(6))), X, y, np.ones(len(y)), 1.25)
    assert [[len(stage.columns) for stage in chain] for chain in free] == [[6]]


# -- experts ------------------------------------------------------------------------------------------------------


def test_margins_of_a_fold_come_from_members_that_never_saw_it():
    X, _ = table(300)
    y = X[:, 0] + X[:, 1] ** 2
    folds = np.arange(300) % 3
    grow = {"X": X, "weights": np.ones(300), "folds": folds, "columns": np.array([0, 1])}
    model = boosting(resolved(np.ones(6)))
    expert = grow_expert(model, y=y, **grow)
    other = grow_expert(model, y=np.where(folds == 1, -y, y), **grow)
    assert np.array_equal(expert.margins[folds == 1], other.margins[folds == 1])
    assert not np.array_equal(expert.margins[folds == 0], other.margins[folds == 0])


@pytest.mark.parametrize(("loss", "constant"), [("squared", (0.3,)), ("softmax", (0.1, -0.2, 0.1))])
def test_an_expert_is_the_mean_of_its_members_and_stays_on_its_columns(loss, constant):
    X, rng = table(300)
    y = X[:, 2] if loss == "squared" else rng.integers(3, size=300)
    folds = np.arange(300) % 4
    columns = np.array([2, 4])
    expert = grow_expert(boosting(resolved(np.ones(6)), constant, loss), X, y, np.ones(300), folds, columns)
    assert set(np.unique(expert.pool.feature)) <= {-1, 2, 4}
    outputs = expert.pool.transform(X)
    member = np.repeat(np.arange(4), expert.pool.n_learners // 4)
    for fold in range(4):
        alone = outputs[:, member == fold] @ expert.weights[member == fold] * 4 + constant
        assert np.allclose(alone[folds == fold], expert.margins[folds == fold])


def test_an_expert_on_nothing_is_the_constant():
    X, _ = table(50)
    expert = grow_expert(
        boosting(resolved(np.ones(6)), (0.7,)), X, X[:, 0], np.ones(50), np.arange(50) % 2, np.array([], int)
    )
    assert expert.pool.n_learners == 0
    assert np.all(expert.margins == 0.7)


def test_folds_keep_queries_whole_and_classes_even():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(20), 5)
    sample = Sample(np.zeros((100, 1)), np.zeros(100), np.ones(100), qid)
    folds = folds_of(sample, 5, 0)
    assert all(len(np.unique(folds[qid == q])) == 1 for q in range(20))
    assert set(folds) == set(range(5))
    y = rng.permutation(np.repeat([0, 1], [90, 10]))
    folds = folds_of(Sample(np.zeros((100, 1)), y, np.ones(100)), 5, 0, y)
    assert all((y[folds == fold] == 1).sum() == 2 for fold in range(5))


# -- gates --------------------------------------------------------------------------------------------------------


def two_kinds(n=4000, seed=0):
    """Half of the rows are settled by x0, the others need x1; x0 says which."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    needs = X[:, 0] > 0
    return X, needs, rng


def make_chain(X, losses, prices, weights=None):
    nothing = Expert(TreePool.identity(0), np.zeros((0, 1)), np.zeros((len(X), 1)), np.zeros(1))
    stages = [Stage(np.array([], int), 0.0), Stage(np.array([0]), prices[1]), Stage(np.array([0, 1]), prices[2])]
    weights = np.ones(len(X)) if weights is None else weights
    half = np.arange(len(X)) % 2 == 0
    return Chain(stages, [nothing] * 3, losses, np.array(prices), 0.0, X, weights, half, (), 0, 1)


def test_gates_send_on_just_the_rows_that_gain():
    X, needs, _ = two_kinds()
    losses = np.column_stack([np.full(len(X), 2.0), np.where(needs, 1.0, 0.0), np.zeros(len(X))])
    chain = make_chain(X, losses, (0.0, 1.0, 4.0))
    policy = induce(chain, 0.1)  # the last stage costs 0.3 more and is worth 1 to half of the rows
    assert policy.stages == [1, 2]
    assert policy.loss == pytest.approx(0.1 * 1.0 + 0.3 * needs.mean(), rel=0.02)
    assert policy.reached == pytest.approx([1 - needs.mean(), needs.mean()], abs=0.01)


@pytest.mark.parametrize(("cost_weight", "stages"), [(100.0, [0]), (0.9, [1]), (0.1, [1, 2])])
def test_what_no_row_passes_is_cut_off(cost_weight, stages):
    X, needs, _ = two_kinds()
    losses = np.column_stack([np.full(len(X), 2.0), np.where(needs, 1.0, 0.0), np.zeros(len(X))])
    policy = induce(make_chain(X, losses, (0.0, 1.0, 4.0)), cost_weight)
    assert policy.stages == stages
    assert policy.reached.sum() == pytest.approx(1.0)
    assert len(policy.gates) == len(policy.stages) - 1


def test_the_loss_is_that_of_the_best_policy_by_enumeration():
    X, needs, rng = two_kinds()
    base = rng.uniform(0.5, 1.5)
    losses = np.column_stack([np.full(len(X), 3.0), np.where(needs, base, 0.1), np.full(len(X), 0.05)])
    prices = np.array([0.0, 1.0, 3.0])
    for cost_weight in (0.01, 0.1, 0.3, 0.6, 2.0, 5.0):
        totals = losses + cost_weight * prices
        # all policies that know the sign of x0 once it is bought
        never = totals[:, 0].mean()
        after = min(np.where(needs, totals[:, a], totals[:, b]).mean() for a in (1, 2) for b in (1, 2))
        assert induce(make_chain(X, losses, prices), cost_weight).loss == pytest.approx(min(never, after), rel=0.02)


def test_weights_decide():
    X, needs, _ = two_kinds()
    losses = np.column_stack([np.full(len(X), 0.5), np.where(needs, 0.0, 0.5), np.zeros(len(X))])
    heavy = np.where(needs, 1.0, 1e-3)
    # buying x0 for all pays only if the rows that it settles weigh more
    assert induce(make_chain(X, losses, (0.0, 4.0, 9.0), heavy), 0.1).stages == [1]
    assert induce(make_chain(X, losses, (0.0, 4.0, 9.0), np.where(needs, 1e-3, 1.0)), 0.1).stages == [0]


def test_a_gate_is_paid_by_the_rows_that_meet_it():
    X, needs, _ = two_kinds()
    losses = np.column_stack([np.full(len(X), 2.0), np.where(needs, 1.0, 0.0), np.zeros(len(X))])
    for gate_price, stages, loss in ((0.5, [1, 2], 0.1 + 0.3 * needs.mean() + 0.05), (4.0, [2], 0.4)):
        chain = make_chain(X, losses, (0.0, 1.0, 4.0))
        chain.gate_price = gate_price
        policy = induce(chain, 0.1)
        assert policy.stages == stages
        assert policy.loss == pytest.approx(loss, rel=0.02)


def test_what_a_gate_says_of_a_row_it_did_not_learn_from_it():
    X, needs, rng = two_kinds(400)
    chain = make_chain(X, np.zeros((400, 3)), (0.0, 1.0, 2.0))
    gain = np.where(needs, 1.0, -1.0) + rng.normal(size=400)
    _, said = chain.regress(1, gain)
    first = chain.halves[0]
    changed = gain.copy()
    changed[first] *= -1
    _, heard = chain.regress(1, changed)
    assert np.array_equal(said[chain.halves[0]], heard[chain.halves[0]])
    assert not np.array_equal(said[chain.halves[1]], heard[chain.halves[1]])


# -- the whole ----------------------------------------------------------------------------------------------------


def problem(task, n=900):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 5))
    signal = 2.0 * X[:, 0] + np.where(X[:, 0] > 0, 2.0 * X[:, 4], 0.0) + 0.3 * X[:, 1]
    if task == "regression":
        return CSTCRegressor, X, signal + 0.1 * rng.normal(size=n), {}
    if task == "classes":
        return CSTCClassifier, X, (signal > 0.5).astype(int), {}
    if task == "three classes":
        return CSTCClassifier, X, np.searchsorted([-1.0, 1.0], signal), {}
    return CSTCRanker, X, np.clip(np.round(signal), 0, 3), {"qid": np.repeat(np.arange(n // 10), 10)}


TASKS = ("regression", "classes", "three classes", "ranking")
PRICES = [1.0, 2.0, 3.0, 4.0, 10.0]


@pytest.mark.parametrize("task", TASKS)
def test_reported_cost_is_what_fetching_one_by_one_pays(task):
    estimator, X, y, queries = problem(task)
    weight = 0.005
    model = estimator(costs=PRICES, cost_weight=weight, n_weak_learners=30, random_state=0, n_jobs=1)
    model.fit(X[:600], y[:600], **{name: ids[:600] for name, ids in queries.items()})
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


def test_a_row_pays_for_the_dear_feature_only_where_it_matters():
    estimator, X, y, _ = problem("regression", 2000)
    model = estimator(costs=PRICES, cost_weight=0.01, random_state=0, n_jobs=1).fit(X[:1500], y[:1500])
    bought = model.model_.bought_items(X[1500:])[:, 4]
    needs = X[1500:, 0] > 0
    assert bought[needs].mean() > 0.9
    assert bought[~needs].mean() < 0.2


def test_a_frontier_grows_its_experts_once(monkeypatch):
    from cstc import chains

    grown = []
    true = chains.grow_expert
    monkeypatch.setattr(chains, "grow_expert", lambda *given: grown.append(given[-1].tolist()) or true(*given))
    _, X, y, _ = problem("regression", 400)
    estimator = CSTCRegressor(costs=PRICES, n_weak_learners=10, random_state=0, n_jobs=1)
    frontier = Frontier(estimator, cost_weights=[1.0, 0.1, 0.01, 0.0]).fit(X, y)
    assert len(frontier.tried_models_) >= 4
    assert len(grown) == len({tuple(columns) for columns in grown})


@pytest.mark.parametrize("evaluation", [0.0, 0.01])
def test_the_loss_is_what_the_chain_is_expected_to_cost(evaluation):
    """Without noise in the labels the expected risk is near the observed one, and prices are exact."""
    _, X, y, _ = problem("regression", 3000)
    costs = CostModel(PRICES, evaluation=evaluation)
    model = CSTCRegressor(costs=costs, cost_weight=0.02, random_state=0, n_jobs=1).fit(X[:1500], y[:1500])
    cost = model.predict_cost(X[1500:], counting="learner").mean()
    risk = np.mean((model.predict(X[1500:]) - y[1500:]) ** 2)
    assert model.loss_history_[0][-1] == pytest.approx(risk + 0.02 * cost, rel=0.25)


@pytest.mark.parametrize(("offset", "scale"), [(1e9, 1.0), (0.0, 1e12), (-1e6, 1e-3)])
def test_units_of_the_target_do_not_matter(offset, scale):
    _, X, y, _ = problem("regression", 400)
    options = {"costs": PRICES, "n_weak_learners": 10, "random_state": 0, "n_jobs": 1}
    plain = CSTCRegressor(cost_weight=0.01, **options).fit(X, y)
    moved = CSTCRegressor(cost_weight=0.01 * scale**2, **options).fit(X, y * scale + offset)
    assert np.array_equal(plain.predict_cost(X), moved.predict_cost(X))
    assert moved.score(X, y * scale + offset) == pytest.approx(plain.score(X, y), abs=1e-3)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_classes_of_one_row_are_no_knowledge():
    X = np.random.default_rng(0).normal(size=(30, 4))
    model = CSTCClassifier(random_state=0, n_jobs=1).fit(X, np.arange(30))
    assert model.mean_cost_ == 0.0


def test_class_weights_change_no_bill():
    _, X, y, _ = problem("classes", 400)
    model = CSTCClassifier(costs=PRICES, class_weight={0: 1.0, 1: 20.0}, cost_weight=0.02, n_weak_learners=10, n_jobs=1)
    model.set_params(random_state=0).fit(X, y)
    assert model.mean_cost_ == pytest.approx(model.predict_cost(X).mean())


def test_no_cost_weight_means_all_features_and_the_mean_of_all_members():
    _, X, y, _ = problem("regression", 400)
    model = CSTCRegressor(costs=PRICES, cost_weight=0.0, n_weak_learners=10, random_state=0, n_jobs=1).fit(X, y)
    assert model.model_.shape.n_nodes == 1
    assert np.array_equal(model.model_.terminal_items(), np.ones((1, 5), dtype=bool))


def test_evaluation_is_part_of_the_price():
    _, X, y, _ = problem("regression", 400)
    options = {"cost_weight": 0.01, "n_weak_learners": 20, "random_state": 0, "n_jobs": 1}
    dear = CSTCRegressor(costs=CostModel(PRICES, evaluation=1000.0), **options).fit(X, y)
    assert dear.model_.pool.n_learners == 0  # a single tree costs more than all risk
    cheap = CSTCRegressor(costs=CostModel(PRICES, evaluation=1e-6), **options).fit(X, y)
    plain = CSTCRegressor(costs=PRICES, **options).fit(X, y)
    # where a tree has a price, an expert is one ensemble of at most 20 trees and a gate one regression
    assert cheap.model_.predict_learners.sum(axis=1).max() <= 20 < plain.model_.predict_learners.sum(axis=1).max()
    assert cheap.model_.route_learners.sum(axis=1).max() <= 40 < plain.model_.route_learners.sum(axis=1).max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weak_learners": "identity", "method": "experts"}, "method='auto' or 'refined'"),
        ({"cross_fit": 0}, "2 folds or more"),
    ],
)
def test_bad_settings(changes, message):
    X, y = np.eye(4).repeat(5, axis=0), np.arange(20.0)
    with pytest.raises(ValueError, match=message):
        CSTCRegressor(**changes).fit(X, y)
