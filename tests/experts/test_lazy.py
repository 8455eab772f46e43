"""Lazy experts: what they do out of fold, when they are grown at all, and their place behind a chain."""

import numpy as np
import pytest

from cstc import CSTCRegressor
from cstc.capacity import rounds_on_all
from cstc.experts import lazy as module
from cstc.experts.expert import Expert, constant_expert
from cstc.experts.gates import induce
from cstc.experts.lazy import LEAST_ROWS, LazyExpert, LazyExperts
from cstc.lightgbm_engine import boost
from cstc.losses import SoftmaxLoss, SquaredLoss
from cstc.model import TreePool
from cstc.model.build import Score
from experts.cases import boosting, make_chain, resolved, rows_of

DEAR = [0.0, 10.0, 10.0, 10.0, 10.0]
NO_COLUMNS = np.zeros(0, dtype=int)


def own_levels(n=3000, seed=0):
    """The first column sets the level of the label, and which of four others is added to it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 0] = rng.integers(4, size=n)
    return X, 2.0 * X[:, 0] + X[np.arange(n), 1 + X[:, 0].astype(int)]


class Told:
    """Expected losses if the given means were the truth."""

    def __init__(self, loss, mean):
        self.loss, self.mean = loss, mean

    def __call__(self, margins, at=slice(None)):
        return self.loss.expected(margins, self.mean[at])

    def shift(self, margins, at=slice(None)):
        return 0.25


def lazy_experts(X, y, costs, folds, loss=None, constant=(0.0,), mean=None, unit=1.0, **changes):
    loss = loss or SquaredLoss()
    told = Told(loss, y if mean is None else mean)
    model = boosting(costs, constant, loss, n_rounds=40, depth=4, **changes)
    return LazyExperts(model, rows_of(X, y), folds, unit, told)


# -- out of fold --------------------------------------------------------------------------------------------------


def test_losses_and_items_of_a_fold_come_from_ensembles_that_never_saw_it():
    X, y = own_levels(600)
    costs, folds = resolved([0.0, 1.0, 1.0, 1.0, 1.0]), np.arange(600) % 3
    told = y.copy()
    one = lazy_experts(X, y, costs, folds, mean=told)._grow(-8)
    two = lazy_experts(X, np.where(folds == 1, -y, y), costs, folds, mean=told)._grow(-8)
    assert np.array_equal(one.items[folds == 1], two.items[folds == 1])
    assert np.array_equal(one.losses[folds == 1], two.losses[folds == 1])
    assert not np.array_equal(one.losses[folds == 0], two.losses[folds == 0])


def test_margins_of_many_outputs_are_the_losses():
    X, y = own_levels(600)
    classes, loss = np.digitize(y, [-0.5, 0.5]), SoftmaxLoss(3)
    mean = np.eye(3)[classes]
    experts = lazy_experts(
        X, classes, resolved(np.ones(5)), np.arange(600) % 2, loss, constant=(0.1, -0.1, 0.0), mean=mean
    )
    grown = experts._grow(-9)
    weights = grown.expert.score.weights
    assert np.allclose(grown.losses, loss.value_and_derivative(grown.expert.margins, classes)[0] + 0.25)
    assert np.array_equal(np.count_nonzero(weights, axis=1), np.ones(len(weights)))


def test_new_rows_get_one_ensemble_on_all_rows():
    X, y = own_levels(600)
    experts = lazy_experts(X, y, resolved([0.0, 1.0, 1.0, 1.0, 1.0]), np.arange(600) % 3)
    score = experts._grow(-8).expert.score
    assert 0 < score.pool.n_learners <= 40
    assert np.mean((score.pool.transform(X) @ score.weights[:, 0] + score.intercept[0] - y) ** 2) < 0.2 * np.var(y)


def test_strong_prices_buy_less():
    X, y = own_levels(1000)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    bought = [experts._grow(k).items.sum() for k in (-10, -4, 0, 6)]
    assert bought[0] > bought[1] > bought[2] > bought[3] == 0


def test_prices_are_those_of_all_that_was_bought():
    bill = {"draw": 5.0, "x0": 1.0, "x1": 2.0, "x2": 3.0, "x3": 4.0, "x4": 6.0}
    costs = resolved(bill, {"x0": ["draw"], "x1": ["draw"]}, evaluation=0.5, n=5)
    rng = np.random.default_rng(0)
    features = rng.random((20, 5)) < 0.4
    items = (features.astype(int) @ costs.feature_items.astype(int)) > 0
    two_trees = Expert(Score(TreePool.identity(2), np.ones((2, 1)), np.zeros(1)), np.zeros((20, 1)))
    expert = LazyExpert(two_trees, np.zeros(20), items, costs)
    for columns in ([], [1], [2, 3], [0, 1, 4]):
        for row, price in enumerate(expert.prices(np.array(columns, dtype=int))):
            needed = {f"x{j}" for j in [*columns, *np.flatnonzero(features[row])]}
            needed |= {"draw"} if needed & {"x0", "x1"} else set()
            assert price == pytest.approx(sum(bill[name] for name in needed) + 2 * 0.5)


# -- when they are grown ------------------------------------------------------------------------------------------


def test_without_a_chance_only_every_second_strength_is_screened(monkeypatch):
    X, y = own_levels(1000)
    screened = []

    def watched(*given, cost_weight, **options):
        screened.append(cost_weight)
        return boost(*given, cost_weight=cost_weight, **options)

    monkeypatch.setattr(module, "boost", watched)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    for power in (-6.0, -5.6, -5.2, -5.0, -4.4):
        # what it competes with costs less than nothing
        assert experts.find(2.0**power, np.full(1000, -1.0)) == "no chance on one fold"
    assert sorted(screened) == [2.0**-6, 2.0**-4]
    assert experts.n_grown == 2


def test_with_a_chance_it_is_grown_once_for_cost_weights_around_a_power_of_two():
    X, y = own_levels(1000)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    found = [experts.find(2.0**power, np.full(1000, 3.0)) for power in (-3.9, -4.0, -4.2, -4.6)]
    assert all(isinstance(lazy, LazyExpert) for lazy in found)
    assert found[0] is found[1] is found[2] is not found[3]
    assert experts.n_grown == 2 + 2  # screens of -4 and of -5; both are grown


@pytest.mark.parametrize(("worse", "competes"), [(0.2, True), (-0.2, False), (0.0, False)])
def test_it_competes_if_it_is_better_by_more_than_a_standard_error(worse, competes):
    X, y = own_levels(1000)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    screen = experts._screen(-4)
    value = np.full(1000, np.nan)  # only the first fold is looked at
    value[::3] = screen.losses + 2.0**-4 * screen.prices + worse
    assert experts.competes(-4, 2.0**-4, value) is competes
    noise = np.random.default_rng(0).normal(size=334)
    value[::3] = screen.losses + 2.0**-4 * screen.prices + 0.5 * (noise - noise.mean()) / noise.std() * 18 + 0.4
    assert not experts.competes(-4, 2.0**-4, value)  # 9 / sqrt(334) is more than 0.4


def test_what_prices_have_no_part_in_does_not_compete():
    X, y = own_levels(1000)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    assert not experts.competes(-20, 2.0**-20, np.full(1000, 9.0))
    assert experts.n_grown == 0  # known before anything is grown
    assert not experts._screen(6).prices.any()
    assert not experts.competes(6, 0.5, np.full(1000, 99.0))  # better, and not because of what it buys


def test_prices_matter_if_all_purchases_together_could_weigh_something():
    X, y = own_levels(1000)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 3)
    value = np.full(1000, np.nan)  # only the first fold is looked at
    value[::3] = 1.0
    assert experts.matters(0.0021, value)  # five features for 1 each, and a hundredth of the loss
    assert not experts.matters(0.0019, value)
    assert experts.n_grown == 0


def test_of_many_rows_a_sample_is_screened(monkeypatch):
    monkeypatch.setattr(module, "MOST_SCREENED", 200)
    monkeypatch.setattr(module, "MANY_ROWS", 1500)
    X, y = own_levels(1500)
    folds = np.arange(1500) % 3
    sizes = []

    def watched(model, rows, *, validation=None, **options):
        sizes.append((len(rows), len(validation)))
        return boost(model, rows, validation=validation, **options)

    monkeypatch.setattr(module, "boost", watched)
    experts = lazy_experts(X, y, resolved(np.ones(5)), folds)
    screen = experts._screen(-4)
    assert sizes == [(200, 200)]
    assert len(screen.losses) == len(screen.prices) == 200
    assert (folds[experts._judges] == 0).all()
    assert (folds[experts._pupils] != 0).all()
    value = np.full(1500, np.nan)
    value[experts._judges] = 99.0
    assert experts.competes(-4, 1.0, value)


def test_of_few_rows_all_are_screened(monkeypatch):
    monkeypatch.setattr(module, "MOST_SCREENED", 200)
    X, y = own_levels(1500)
    folds = np.arange(1500) % 3
    experts = lazy_experts(X, y, resolved(np.ones(5)), folds)
    assert np.array_equal(experts._judges, np.flatnonzero(folds == 0))
    assert np.array_equal(experts._pupils, np.flatnonzero(folds != 0))


def test_one_ensemble_on_many_rows_has_more_rounds(monkeypatch):
    X, y = own_levels(600)
    costs, folds = resolved([0.0, 1.0, 1.0, 1.0, 1.0]), np.arange(600) % 3
    few = lazy_experts(X, y, costs, folds)._grow(-8).expert
    monkeypatch.setattr(module, "MANY_ROWS", 600)
    many = lazy_experts(X, y, costs, folds)._grow(-8).expert
    assert few.score.pool.n_learners == 40
    assert many.score.pool.n_learners == rounds_on_all(40, 3) == 49
    assert np.array_equal(few.margins, many.margins)


@pytest.mark.parametrize(
    ("n", "unit", "cost_weight", "why"),
    [
        (LEAST_ROWS, 0.0, 1.0, "no prices to weigh"),
        (LEAST_ROWS, 1e-300, 1e300, "no prices to weigh"),
        (LEAST_ROWS - 1, 1.0, 1.0, f"fewer than {LEAST_ROWS} rows"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_where_nothing_is_to_be_said_the_reason_is(n, unit, cost_weight, why):
    X, y = own_levels(n)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(n) % 2, unit=unit)
    assert experts.power(cost_weight) is None
    assert experts.find(cost_weight, np.ones(n)) == why == experts.why_none()
    assert experts.n_grown == 0


def test_strengths_are_powers_of_two_in_units():
    X, y = own_levels(1000)
    experts = lazy_experts(X, y, resolved(np.ones(5)), np.arange(1000) % 2, unit=0.5)
    assert experts.power(4.0) == pytest.approx(3.0)


# -- behind a chain -----------------------------------------------------------------------------------------------


def chain_and_lazy(n=4000, middle=None, lazy_loss=0.0):
    """x0 settles half of the rows; the others are settled by x1 or by x2, and a lazy expert knows by which."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    needs = X[:, 0] > 0
    middle = np.where(needs, 1.0, 0.0) if middle is None else np.full(n, middle)
    losses = np.column_stack([np.full(n, 2.0), middle, np.zeros(n)])
    chain = make_chain(X, losses, (0.0, 1.0, 9.0), ([], [0], [0, 1, 2]))
    items = np.zeros((n, 5), dtype=bool)
    items[np.arange(n), rng.integers(1, 3, size=n)] = True
    nothing = constant_expert(np.zeros(1), n)
    return chain, LazyExpert(nothing, np.full(n, lazy_loss), items, resolved([1.0, 4.0, 4.0, 1.0, 1.0])), needs


def test_a_lazy_expert_may_be_the_end_of_a_chain():
    chain, lazy, needs = chain_and_lazy()
    policy = induce(chain, 0.1, lazy)
    assert policy.stages == [1, 3]
    assert policy.loss == pytest.approx(0.1 * (1.0 + 4.0 * needs.mean()), rel=0.02)
    assert policy.loss < induce(chain, 0.1).loss
    assert policy.loss == pytest.approx(policy.value.mean())


def test_a_lazy_expert_may_be_all_there_is():
    chain, lazy, _ = chain_and_lazy(middle=1.0)
    policy = induce(chain, 0.1, lazy)
    assert policy.stages == [3]
    assert policy.loss == pytest.approx(0.4)  # nothing of the stages before it is bought
    assert policy.mean_cost == pytest.approx(4.0) == lazy.prices(NO_COLUMNS).mean()


def test_a_lazy_expert_that_is_no_good_is_left_out():
    chain, lazy, _ = chain_and_lazy(lazy_loss=10.0)
    assert 3 not in induce(chain, 0.1, lazy).stages


# -- the whole ----------------------------------------------------------------------------------------------------


def test_rows_that_need_different_features_buy_different_features():
    X, y = own_levels(4000)
    model = CSTCRegressor(costs=DEAR, cost_weight=0.005, random_state=0, n_jobs=1).fit(X[:3000], y[:3000])
    assert model.score(X[3000:], y[3000:]) > 0.9
    assert model.predict_cost(X[3000:]).mean() < 16  # one expensive feature of the four, for most
    bought = model.model_.bought_items(X[3000:])
    own = 1 + X[3000:, 0].astype(int)
    assert bought[np.arange(1000), own].mean() > 0.95


@pytest.mark.parametrize("price", [1e-310, 1e-300])
def test_prices_next_to_nothing_are_no_error(price):
    X, y = own_levels(200)
    model = CSTCRegressor(costs=[price] * 5, cost_weight=1.0, n_weak_learners=5, random_state=0, n_jobs=1).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
