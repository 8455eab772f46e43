"""Chains: what stopping at each stage is expected to lose and costs, for all rows and for groups of them."""

from dataclasses import replace

import numpy as np
import pytest

from cstc.boosting import GATE_ROUNDS
from cstc.experts import purchases
from cstc.experts.chain import HASTE, OTHERS, ChainGrower, gate_members
from cstc.experts.expert import constant_expert
from cstc.experts.order import SHARE
from cstc.experts.places import Places
from cstc.losses import ErrorLoss, LogisticLoss
from cstc.metrics import ndcg
from cstc.model.decisions import Decisions
from cstc.rows import Units
from experts.cases import PRICES, boosting, dear_for_some, make_chain, resolved, rows_of

N = 600
ALL = np.arange(5)


def grower_of(costs=None, y=None, weights=None, loss=None, constant=(0.0,), **changes):
    _, X, found, _ = dear_for_some("regression", N)
    rows = rows_of(X, found if y is None else y, weights)
    told = []
    model = boosting(costs or resolved(PRICES), constant, loss, n_rounds=10, **changes)
    return ChainGrower(rows, model, np.arange(N) % 3, np.arange(N) % 2 == 0, told.append), told


def free(costs):
    return costs.prices == 0


# -- a chain ------------------------------------------------------------------------------------------------------


def two_stages(**changes):
    X = np.random.default_rng(0).normal(size=(6, 2))
    losses = np.column_stack([np.full(6, 2.0), np.arange(6.0)])
    return make_chain(X, losses, (0.0, 1.0), ([0], [0, 1]), **changes)


def test_means_are_weighted():
    weights = np.array([1.0, 2.0, 0.0, 1.0, 4.0, 2.0])
    chain = two_stages(rows=rows_of(np.zeros((6, 2)), np.zeros(6), weights))
    assert chain.weights.mean() == pytest.approx(1.0)
    assert chain.mean(np.arange(6.0)) == pytest.approx(np.average(np.arange(6.0), weights=weights))


def test_shifted_losses_have_no_shifts_left():
    chain = two_stages(shifts=np.array([0.5, -0.25]))
    shifted = chain.shifted()
    assert np.array_equal(shifted.losses, chain.losses + np.array([0.5, -0.25]))
    assert np.array_equal(shifted.shifts, [0.0, 0.0])
    assert np.array_equal(chain.shifts, [0.5, -0.25])  # what it was made from stays


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (([], [0], [0, 1]), [False, True, True]),  # without a feature nothing can be asked
        (([0], [0], [0, 1]), [False, True, True]),  # the next expert knows no more
    ],
)
def test_a_gate_needs_features_and_an_expert_that_knows_more(columns, expected):
    X = np.zeros((6, 2))
    chain = make_chain(X, np.zeros((6, 3)), (0.0, 1.0, 2.0), columns)
    assert [chain.can_gate(stage) for stage in range(3)] == expected


def test_each_half_of_a_gate_learns_from_its_own_rows():
    chain = two_stages()
    assert np.array_equal(np.sort(np.concatenate(chain.halves)), np.arange(6))
    assert chain.half[chain.halves[0]].all()
    assert not chain.half[chain.halves[1]].any()


@pytest.mark.parametrize(("evaluation", "members"), [(0.0, 2), (0.1, 1)])
def test_where_trees_have_a_price_a_gate_is_one_regression(evaluation, members):
    assert gate_members(resolved(PRICES, evaluation=evaluation)) == members


# -- chains of all rows -------------------------------------------------------------------------------------------


def bill(evaluation=0.0):
    """x1 and x4 share an item."""
    prices = {"kit": 3.0, "x0": 1.0, "x1": 2.0, "x2": 4.0, "x3": 4.0, "x4": 7.0}
    return resolved(prices, {"x1": ["kit"], "x4": ["kit"]}, evaluation, n=5)


@pytest.mark.parametrize("evaluation", [0.0, 0.01])
def test_what_a_stage_costs_is_its_items_and_its_trees(evaluation):
    costs = bill(evaluation)
    grower, _ = grower_of(costs)
    for chain in grower.grow(np.arange(N), ALL, free(costs)).chains:
        assert len(chain.stages) == len(chain.experts) == chain.losses.shape[1] == len(chain.shifts) > 3
        assert chain.gate_price == pytest.approx(evaluation * GATE_ROUNDS)
        for stage, expert, price in zip(chain.stages, chain.experts, chain.prices, strict=True):
            items = {item for j in stage.columns for item in np.flatnonzero(costs.feature_items[j])}
            assert price == pytest.approx(sum(costs.prices[list(items)]) + evaluation * expert.score.pool.n_learners)
            assert set(np.unique(expert.score.pool.feature)) <= {-1, *stage.columns}


def test_losses_are_expected_ones_and_shifts_lead_to_what_was_observed():
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=N)
    grower, _ = grower_of(weights=weights)
    grown = grower.grow(np.arange(N), ALL, free(grower.boosting.costs))
    for chain in grown.chains:
        for stage, expert in enumerate(chain.experts):
            assert np.array_equal(chain.losses[:, stage], grown.expected(expert.margins))
            observed = np.average((expert.margins[:, 0] - grower.rows.y) ** 2, weights=weights)
            assert chain.mean(chain.losses[:, stage]) + chain.shifts[stage] == pytest.approx(observed)
            assert grower.risk(expert.margins) == pytest.approx(observed)


def test_experts_on_the_same_columns_are_grown_once():
    grower, told = grower_of(resolved([50.0, 1.0, 1.0, 1.0, 1.0]))
    grown = grower.grow(np.arange(N), ALL, free(grower.boosting.costs))
    assert [chain.name for chain in grown.chains] == ["by price", "by gain"]
    by_columns = {}
    for chain in grown.chains:
        for stage, expert in zip(chain.stages, chain.experts, strict=True):
            assert by_columns.setdefault(tuple(stage.columns), expert) is expert
    assert by_columns[tuple(ALL)] is grown.everything
    assert grower.n_grown == len(by_columns)
    assert f"experts on up to {len(ALL)} features" in told


def test_where_trees_have_a_price_stages_may_stop_with_few_large_steps():
    costs = bill(evaluation=0.01)
    grower, _ = grower_of(costs, early_stopping=None)
    for chain in grower.grow(np.arange(N), ALL, free(costs)).chains:
        pairs = [stage for stage in chain.stages if len(stage.columns)]
        assert pairs[::2] == pairs[1::2]  # the hasty one first: it is the cheaper one
        trees = [expert.score.pool.n_learners for expert in chain.experts]
        trees = [number for number in trees if number]
        assert set(trees[::2]) == {max(1, 10 // HASTE)}
        assert set(trees[1::2]) == {10}


def test_stages_lie_close_where_experts_differ():
    """Of forty features at 1 each, the eleventh to the fifteenth tell everything."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 40))
    y = X[:, 10:15].sum(axis=1)
    prices = np.full(40, 1.0)
    prices[:10] = 0.01
    X[:, :10] += 0.05 * y[:, None]  # cheap, and good enough to come first
    costs = resolved(prices)
    model = boosting(costs, n_rounds=10)
    grower = ChainGrower(rows_of(X, y), model, np.arange(N) % 3, np.arange(N) % 2 == 0, lambda text: None)
    chain = grower.grow(np.arange(N), np.arange(40), free(costs)).chains[0]
    order = purchases.orders_of(model, grower.rows, np.arange(40), free(costs), float(np.mean(y**2)))[0]
    first = {order.steps[step].columns.tobytes() for step in order.cut(purchases.FIRST_STAGES)}
    added = [stage for stage in chain.stages if stage.columns.tobytes() not in first]
    assert 0 < len(added) <= sum(purchases.FINER)
    assert len(chain.stages) == len(first) + len(added)
    lost = {stage.price: grower.risk(expert.margins) for stage, expert in zip(chain.stages, chain.experts, strict=True)}
    ends = [stage.price for stage in chain.stages if stage.columns.tobytes() in first]
    for stage in added:  # between two of the first stages, of which the cheaper one loses much more
        at = np.searchsorted(ends, stage.price)
        assert lost[ends[at - 1]] - lost[ends[at]] > 0.05 * (max(lost.values()) - min(lost.values()))


# -- chains of a group --------------------------------------------------------------------------------------------


def test_chains_of_a_group_know_its_rows_alone():
    _, X, y, _ = dear_for_some("regression", N)
    group = X[:, 1] > 0
    paid, mine = np.array([True, False, False, False, False]), np.array([0, 2, 4])
    others = y.copy()
    others[~group] = y[~group][::-1]  # the same mean, of which the constant of a group has a little
    chains = [grower_of(y=labels)[0].grow(np.flatnonzero(group), mine, paid).chains for labels in (y, others)]
    for one, two in zip(*chains, strict=True):
        assert len(one.rows) == group.sum()
        assert np.array_equal(one.rows.X, X[group])
        assert list(one.stages[0].columns) == [0]
        assert one.prices[0] == 0.0  # the splits above have paid for x0
        assert set(one.stages[-1].columns) == {0, 2, 4}
        for ours, theirs in zip(one.experts, two.experts, strict=True):
            assert ours.margins == pytest.approx(theirs.margins, abs=1e-6)


def test_losses_of_a_group_are_shifted_to_what_was_observed():
    grower, _ = grower_of()
    at = np.flatnonzero(grower.rows.X[:, 1] > 0)
    for chain in grower.grow(at, ALL, free(grower.boosting.costs)).chains:
        assert not chain.shifts.any()
        for stage, expert in enumerate(chain.experts):
            observed = np.mean((expert.margins[:, 0] - grower.rows.y[at]) ** 2)
            assert chain.mean(chain.losses[:, stage]) == pytest.approx(observed)


def test_the_constant_of_a_group_knows_of_classes_that_it_does_not_hold():
    X = dear_for_some("regression", N)[1]
    y = (X[:, 1] > 0).astype(int)
    grower, _ = grower_of(y=y, loss=LogisticLoss())
    at = np.flatnonzero(y == 0)
    nothing = grower.grow(at, ALL, free(grower.boosting.costs)).chains[0].experts[0]
    share = OTHERS * y.mean() / (len(at) + OTHERS)
    assert nothing.score.intercept == pytest.approx(np.log(share / (1 - share)))


def test_the_cheapest_answer_is_the_better_one_of_two():
    _, X, y, _ = dear_for_some("regression", N)
    y = y - y.mean()
    grower, _ = grower_of(y=y)
    at = np.flatnonzero(X[:, 0] > 0)
    ignorant, knowing = constant_expert(np.zeros(1), N), constant_expert(np.zeros(1), N)
    knowing.margins[:, 0] = y
    own = grower.cheapest(at, ignorant)
    assert own is not ignorant
    assert own.score.pool.n_learners == 0
    assert own.score.intercept == pytest.approx((y[at].sum() + OTHERS * y.mean()) / (len(at) + OTHERS))
    assert grower.cheapest(at, knowing) is knowing


def test_cost_weights_of_money_are_those_of_the_loss_in_its_own_units():
    """A price that is all that the constant loses in money is all that it loses in the loss that is boosted."""
    _, _, found, _ = dear_for_some("regression", N)
    y = (found > np.median(found)).astype(int)
    loss = LogisticLoss()
    plain, _ = grower_of(y=y, loss=loss)
    assert plain.boosted_weight(0.25) == 0.25
    decisions = Decisions(np.array([[0.0, 300.0], [5000.0, 0.0]]))
    grower = ChainGrower(plain.rows, plain.boosting, plain.folds, plain.half, print, ErrorLoss(loss, decisions))
    in_money = 300.0 * np.mean(y == 0)  # with even chances, class 1 is said: that error is the cheaper one
    assert grower.boosted_weight(in_money) == pytest.approx(np.log(2.0))  # the constant is 0: it knows nothing


def test_margins_that_order_documents_worse_are_charged_for_it():
    """By the part of the lift of NDCG that they lose against those of the chains for all rows."""
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, size=N).astype(float)
    grower, _ = grower_of(y=(grades - 1.0) / 2.0)
    assert grower.order_shift(np.zeros((N, 1)), np.ones(N)) == 0.0  # it ranks nothing
    grower.rows = replace(grower.rows, qid=np.repeat(np.arange(N // 10), 10))
    grower.places = Places(5, Units(1.0, 2.0))
    grower.best = (grades + 0.5 * rng.normal(size=N))[:, None]
    worse = (grades + 2.0 * rng.normal(size=N))[:, None]
    quality = [ndcg(grades, scores, grower.rows.qid, 5) for scores in (grower.best[:, 0], worse[:, 0], np.zeros(N))]
    squared = rng.random(N)
    part = (quality[0] - quality[1]) / (quality[0] - quality[2])
    assert 0.1 < part < 0.9
    assert grower.order_shift(worse, squared) == pytest.approx(SHARE * part * squared.mean())
    assert grower.order_shift(grower.best, squared) == 0.0
    grower.rows = replace(grower.rows, y=np.full(N, -0.5))  # no document is relevant
    assert grower.order_shift(worse, squared) == 0.0
