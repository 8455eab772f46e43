"""Lazy experts: what they do out of fold, when they are grown at all, and their place behind a chain."""

import numpy as np
import pytest

from cstc import CostModel, CSTCRegressor
from cstc import lazy as module
from cstc.costs import as_cost_model
from cstc.experts import Expert
from cstc.induction import Chain, induce
from cstc.lazy import LazyExpert, LazyExperts
from cstc.losses import SoftmaxLoss, SquaredLoss
from cstc.pool import TreePool
from cstc.purchases import Stage
from cstc.weak_learners import Boosting, grow

NOTHING = Expert(TreePool.identity(0), np.zeros((0, 1)), np.zeros((0, 1)), np.zeros(1))


def resolved(prices, requires=None, evaluation=0.0):
    n = 5
    return as_cost_model(CostModel(prices, requires or {}, evaluation), n).resolve([f"x{j}" for j in range(n)])


def own_features(n=3000, seed=0):
    """A free column sets the level of the label, and which of four dear ones is added to it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 0] = rng.integers(4, size=n)
    return X, 2.0 * X[:, 0] + X[np.arange(n), 1 + X[:, 0].astype(int)]


class Told:
    """Expected losses if the given means were the truth."""

    def __init__(self, loss, mean):
        self.loss, self.mean = loss, mean

    def __call__(self, margins, at):
        return self.loss.expected(margins, self.mean[at])

    def shift(self, margins, at):
        return 0.0


def lazy_experts(X, y, costs, folds, loss=None, constant=(0.0,), mean=None):
    loss = loss or SquaredLoss()
    mean = y if mean is None else mean
    options = {"n_rounds": 40, "depth": 4, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    boosting = Boosting(loss.name, np.array(constant), costs, (0.0,), **options)
    return LazyExperts(boosting, X, y, np.ones(len(y)), folds, 1.0, Told(loss, mean))


def test_losses_and_items_of_a_fold_come_from_ensembles_that_never_saw_it():
    X, y = own_features(600)
    costs, folds = resolved([0.0, 1.0, 1.0, 1.0, 1.0]), np.arange(600) % 3
    told = y.copy()
    one = lazy_experts(X, y, costs, folds, mean=told)._grow(-8)
    two = lazy_experts(X, np.where(folds == 1, -y, y), costs, folds, mean=told)._grow(-8)
    assert np.array_equal(one.items[folds == 1], two.items[folds == 1])
    assert np.array_equal(one.losses[folds == 1], two.losses[folds == 1])
    assert not np.array_equal(one.losses[folds == 0], two.losses[folds == 0])


def test_margins_of_many_outputs_are_the_losses():
    X, y = own_features(600)
    classes, loss = np.digitize(y, [-0.5, 0.5]), SoftmaxLoss(3)
    mean = np.eye(3)[classes]
    experts = lazy_experts(
        X, classes, resolved(np.ones(5)), np.arange(600) % 2, loss, constant=(0.1, -0.1, 0.0), mean=mean
    )
    grown = experts._grow(-9)
    assert np.allclose(grown.losses, loss.value_and_derivative(grown.expert.margins, classes)[0])
    assert np.array_equal(np.count_nonzero(grown.expert.weights, axis=1), np.ones(len(grown.expert.weights)))


def test_prices_are_those_of_all_that_was_bought():
    bill = {"draw": 5.0, "x0": 1.0, "x1": 2.0, "x2": 3.0, "x3": 4.0, "x4": 6.0}
    costs = resolved(bill, {"x0": ["draw"], "x1": ["draw"]}, evaluation=0.5)
    rng = np.random.default_rng(0)
    features = rng.random((20, 5)) < 0.4
    items = (features.astype(int) @ costs.feature_items.astype(int)) > 0
    two_trees = Expert(TreePool.identity(2), np.ones((2, 1)), np.zeros((20, 1)), np.zeros(1))
    expert = LazyExpert(two_trees, np.zeros(20), items, costs)
    for columns in ([], [1], [2, 3], [0, 1, 4]):
        for row, price in enumerate(expert.prices(np.array(columns, dtype=int))):
            needed = {f"x{j}" for j in [*columns, *np.flatnonzero(features[row])]}
            needed |= {"draw"} if needed & {"x0", "x1"} else set()
            assert price == pytest.approx(sum(bill[name] for name in needed) + 2 * 0.5)


def test_without_a_chance_only_every_second_strength_is_screened(monkeypatch):
    X, y = own_features(1000)
    screened = []

    def watched(boosting, *rows, **options):
        screened.append(boosting.strengths[0])
        return grow(boosting, *rows, **options)

    monkeypatch.setattr(module, "grow", watched)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    for power in (-6.0, -5.6, -5.2, -5.0, -4.4):
        assert experts.find(2.0**power, np.full(1000, -1.0)) is None  # what it competes with costs less than nothing
    assert sorted(screened) == [2.0**-6, 2.0**-4]


def test_nothing_has_a_price():
    X, y = own_features(1000)
    experts = lazy_experts(X, y, resolved(np.zeros(5)), np.arange(1000) % 2)
    experts.unit = 0.0
    assert experts.find(1.0, np.ones(1000)) is None


# -- behind a chain -----------------------------------------------------------------------------------------------


def chain_and_lazy(n=4000):
    """x0 settles half of the rows; the others are settled by x1 or by x2, and a lazy expert knows by which."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    needs = X[:, 0] > 0
    costs = resolved([1.0, 4.0, 4.0, 1.0, 1.0])
    stages = [Stage(np.zeros(0, int), 0.0), Stage(np.array([0]), 1.0), Stage(np.array([0, 1, 2]), 9.0)]
    losses = np.column_stack([np.full(n, 2.0), np.where(needs, 1.0, 0.0), np.zeros(n)])
    prices = np.array([stage.price for stage in stages])
    half = np.arange(n) % 2 == 0
    chain = Chain(stages, [NOTHING] * 3, losses, prices, 0.0, X, np.ones(n), half, (), 0, 1)
    items = np.zeros((n, 5), dtype=bool)
    items[np.arange(n), rng.integers(1, 3, size=n)] = True
    return chain, LazyExpert(NOTHING, np.zeros(n), items, costs), needs


def test_a_lazy_expert_may_be_the_end_of_a_chain():
    chain, lazy, needs = chain_and_lazy()
    policy = induce(chain, 0.1, lazy)
    assert policy.stages == [1, 3]
    assert policy.loss == pytest.approx(0.1 * (1.0 + 4.0 * needs.mean()), rel=0.02)
    assert policy.loss < induce(chain, 0.1).loss
    assert policy.loss == pytest.approx(policy.value.mean())


def test_a_lazy_expert_may_be_all_there_is():
    chain, lazy, _ = chain_and_lazy()
    chain.losses[:, 1] = 1.0
    policy = induce(chain, 0.1, lazy)
    assert policy.stages == [3]
    assert policy.loss == pytest.approx(0.4)  # nothing of the stages before it is bought


def test_a_lazy_expert_that_is_no_good_is_left_out():
    chain, lazy, _ = chain_and_lazy()
    lazy.losses[:] = 10.0
    assert 3 not in induce(chain, 0.1, lazy).stages


# -- the whole ----------------------------------------------------------------------------------------------------


def test_rows_that_need_different_features_buy_different_features():
    X, y = own_features(4000)
    costs = [0.0, 10.0, 10.0, 10.0, 10.0]
    model = CSTCRegressor(costs=costs, cost_weight=0.005, random_state=0, n_jobs=1).fit(X[:3000], y[:3000])
    assert model.score(X[3000:], y[3000:]) > 0.9
    assert model.predict_cost(X[3000:]).mean() < 16  # one dear feature of the four, for most
    bought = model.model_.bought_items(X[3000:])
    own = 1 + X[3000:, 0].astype(int)
    assert bought[np.arange(1000), own].mean() > 0.95


@pytest.mark.parametrize("price", [1e-310, 1e-300])
def test_prices_next_to_nothing_are_no_error(price):
    X, y = own_features(200)
    model = CSTCRegressor(costs=[price] * 5, cost_weight=1.0, n_weak_learners=5, random_state=0, n_jobs=1).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
