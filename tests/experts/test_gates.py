"""Gates by backward induction: V_k by hand, the best policy by enumeration, and what rows pay under it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstc.experts import gates as module
from cstc.experts.expert import constant_expert
from cstc.experts.gates import Gate, induce, learn_gate
from cstc.experts.lazy import LazyExpert
from experts.cases import make_chain, resolved, rows_of

THREE = ([], [0], [0, 1])  # nothing, x0, x0 and x1


def two_kinds(n=4000, seed=0):
    """Half of the rows are settled by x0, the others need x1; x0 says which."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] > 0, rng


def settled_by_x0(X, needs):
    return np.column_stack([np.full(len(X), 2.0), np.where(needs, 1.0, 0.0), np.zeros(len(X))])


def said(gate, X, n_members=2):
    """What a gate says to new rows."""
    score = gate.score(n_members)
    return score.pool.transform(X) @ score.weights[:, 0] + score.intercept[0]


def walk(chain, policy, X, lazy=None):
    """By hand: where each row stops, and what it pays on the way."""
    stops = np.full(len(X), policy.stages[-1])
    met = np.full(len(X), len(policy.gates))
    going = np.full(len(X), True)
    for number, (stage, gate) in enumerate(zip(policy.stages, policy.gates, strict=False)):
        leaves = going & (said(gate, X) <= 0)
        stops[leaves], met[leaves] = stage, number + 1
        going &= ~leaves
    paid = np.append(chain.prices, np.nan)[stops]
    if lazy is not None:
        before = policy.stages[-2] if policy.gates else None
        came_with = chain.stages[before].columns if policy.gates else np.zeros(0, dtype=int)
        paid = np.where(stops == len(chain.stages), lazy.prices(came_with), paid)
    return stops, paid + chain.gate_price * met


# -- V_k ----------------------------------------------------------------------------------------------------------


def four_cells(n=2000):
    """Every row is one of four cells by the signs of x0 and x1, and losses are the same in a cell."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(n, 3))
    cell = 2 * (X[:, 0] > 0) + (X[:, 1] > 0)
    # stopping with x0 alone, with x0 and x1, and with all three
    losses = np.array([[0.4, 0.4, 0.1], [0.4, 0.4, 0.3], [2.0, 0.5, 0.5], [2.0, 1.9, 0.2]])[cell]
    return X, cell, losses


@pytest.mark.parametrize("gate_price", [0.0, 0.5])
def test_values_are_those_of_the_formula_by_hand(gate_price):
    X, cell, losses = four_cells()
    prices, lam = np.array([1.0, 3.0, 8.0]), 0.1
    weights = np.array([1.0, 2.0, 3.0, 4.0])[cell]
    chain = make_chain(
        X, losses, prices, ([0], [0, 1], [0, 1, 2]), gate_price=gate_price, rows=rows_of(X, losses[:, 0], weights)
    )
    policy = induce(chain, lam)
    # V_2 = l_2 + lam * c_2, in the cells (-, -), (-, +), (+, -), (+, +)
    last = np.array([0.1, 0.3, 0.5, 0.2]) + lam * 8.0
    # G_1 = l_1 + lam * c_1 - V_2 = (0.7, 0.7, 0.8, 2.2) - (0.9, 1.1, 1.3, 1.0): (+, +) goes on, and meets the gate
    middle = np.array([0.7, 0.7, 0.8, 1.0]) + lam * gate_price
    # G_0 = (0.5, 0.5, 2.1, 2.1) - V_1, of which x0 tells the sign: all rows with x0 > 0 go on
    first = np.array([0.5, 0.5, middle[2], middle[3]]) + lam * gate_price
    history = [np.average(value[cell], weights=weights) for value in (last, middle, first)]
    assert policy.loss_history == pytest.approx(history)
    assert policy.loss == pytest.approx(history[-1])
    assert policy.value == pytest.approx(first[cell])
    assert policy.mean_value == pytest.approx(history[-1])
    assert policy.stages == [0, 1, 2]
    share = np.bincount(cell, weights) / weights.sum()
    assert policy.reached == pytest.approx([share[0] + share[1], share[2], share[3]])
    bill = np.array([1.0, 1.0, 3.0, 8.0]) + gate_price * np.array([1, 1, 2, 2])
    assert policy.mean_cost == pytest.approx(share @ bill)


def test_gates_send_on_just_the_rows_that_gain():
    X, needs, _ = two_kinds()
    chain = make_chain(X, settled_by_x0(X, needs), (0.0, 1.0, 4.0), THREE)
    policy = induce(chain, 0.1)  # the last stage costs 0.3 more and is worth 1 to half of the rows
    assert policy.stages == [1, 2]
    assert policy.loss == pytest.approx(0.1 * 1.0 + 0.3 * needs.mean(), rel=0.02)
    assert policy.reached == pytest.approx([1 - needs.mean(), needs.mean()], abs=0.01)


@pytest.mark.parametrize(("cost_weight", "stages"), [(100.0, [0]), (0.9, [1]), (0.1, [1, 2]), (0.0, [2])])
def test_what_no_row_passes_is_cut_off(cost_weight, stages):
    X, needs, _ = two_kinds()
    losses = settled_by_x0(X, needs)
    losses[:, 2] -= 0.01  # at no price all rows go on, and no gate is left
    policy = induce(make_chain(X, losses, (0.0, 1.0, 4.0), THREE), cost_weight)
    assert policy.stages == stages
    assert policy.reached.sum() == pytest.approx(1.0)
    assert len(policy.gates) == len(policy.stages) - 1


@pytest.mark.parametrize(("share", "few", "most"), [(0.002, [1], [2]), (0.02, [1, 2], [1, 2])])
def test_a_gate_that_hardly_any_row_passes_is_no_gate(share, few, most):
    """Nor is one that nearly all rows pass; rows count by their weights."""
    X, needs, _ = two_kinds()
    for goes, stages in ((needs, few), (~needs, most)):
        losses = np.column_stack([np.full(len(X), 90.0), np.where(goes, 20.0, 0.0), np.where(goes, 0.0, 20.0)])
        rows = rows_of(X, losses[:, 0], np.where(needs, share, 1.0))
        assert induce(make_chain(X, losses, (0.0, 1.0, 11.0), THREE, rows=rows), 0.1).stages == stages


def test_weights_decide():
    X, needs, _ = two_kinds()
    losses = np.column_stack([np.full(len(X), 0.5), np.where(needs, 0.0, 0.5), np.zeros(len(X))])
    # buying x0 for all pays only if the rows that it settles weigh more
    for heavy, stages in ((needs, [1]), (~needs, [0])):
        rows = rows_of(X, losses[:, 0], np.where(heavy, 1.0, 1e-3))
        assert induce(make_chain(X, losses, (0.0, 4.0, 9.0), THREE, rows=rows), 0.1).stages == stages


def test_a_gate_is_paid_by_the_rows_that_meet_it():
    X, needs, _ = two_kinds()
    for gate_price, stages, loss in ((0.5, [1, 2], 0.1 + 0.3 * needs.mean() + 0.05), (4.0, [2], 0.4)):
        chain = make_chain(X, settled_by_x0(X, needs), (0.0, 1.0, 4.0), THREE, gate_price=gate_price)
        policy = induce(chain, 0.1)
        assert policy.stages == stages
        assert policy.loss == pytest.approx(loss, rel=0.02)


def test_shifts_change_what_a_policy_is_worth_and_not_what_it_does():
    X, needs, _ = two_kinds()
    chain = make_chain(X, settled_by_x0(X, needs), (0.0, 1.0, 4.0), THREE)
    shifts = np.array([0.0, 7.0, 11.0])
    moved = make_chain(X, settled_by_x0(X, needs), (0.0, 1.0, 4.0), THREE, shifts=shifts)
    plain, shifted = induce(chain, 0.1), induce(moved, 0.1)
    assert plain.stages == shifted.stages == [1, 2]
    assert np.array_equal(plain.loss_history, shifted.loss_history)
    assert shifted.mean_value - plain.mean_value == pytest.approx(shifted.reached @ [7.0, 11.0])
    assert set(np.round(shifted.value - plain.value, 9)) == {7.0, 11.0}


# -- against enumeration ------------------------------------------------------------------------------------------


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
        policy = induce(make_chain(X, losses, prices, THREE), cost_weight)
        assert policy.loss == pytest.approx(min(never, after), rel=0.02)


@pytest.mark.parametrize("gate_price", [0.0, 0.3])
@pytest.mark.parametrize("cost_weight", [0.02, 0.1, 0.2, 0.5])
def test_mean_cost_is_what_rows_pay_by_enumeration(cost_weight, gate_price):
    X, cell, losses = four_cells()
    rows = rows_of(X, losses[:, 0], np.array([1.0, 2.0, 3.0, 4.0])[cell])
    columns = ([0], [0, 1], [0, 1, 2])
    chain = make_chain(X, losses, (1.0, 3.0, 8.0), columns, rows=rows, gate_price=gate_price)
    policy = induce(chain, cost_weight)
    stops, paid = walk(chain, policy, X)
    assert policy.mean_cost == pytest.approx(np.average(paid, weights=rows.weights))
    assert policy.mean_value == pytest.approx(
        np.average(losses[np.arange(len(X)), stops] + cost_weight * paid, weights=rows.weights)
    )
    assert policy.reached == pytest.approx([np.average(stops == k, weights=rows.weights) for k in policy.stages])


def test_mean_cost_counts_what_a_lazy_expert_buys_on_top():
    X, needs, rng = two_kinds()
    X = np.column_stack([X, rng.normal(size=(len(X), 3))])
    chain = make_chain(X, settled_by_x0(X, needs), (0.0, 1.0, 9.0), ([], [0], [0, 1, 2]), gate_price=0.2)
    items = np.zeros((len(X), 5), dtype=bool)
    items[np.arange(len(X)), rng.integers(3, size=len(X))] = True  # x0 too, which the gate has bought already
    costs = resolved([1.0, 4.0, 4.0, 1.0, 1.0])
    lazy = LazyExpert(constant_expert(np.zeros(1), len(X)), np.zeros(len(X)), items, costs)
    policy = induce(chain, 0.1, lazy)
    assert policy.stages == [1, 3]
    _, paid = walk(chain, policy, X, lazy)
    assert policy.mean_cost == pytest.approx(paid.mean(), rel=1e-3)
    bought = items.copy()
    bought[:, 0] = True
    by_hand = np.where(needs, bought @ costs.prices, 1.0) + 0.2
    assert policy.mean_cost == pytest.approx(by_hand.mean(), rel=0.01)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 3.0), st.floats(0.0, 0.5))
def test_no_policy_is_worse_than_stopping_all_rows_at_one_stage(seed, cost_weight, gate_price):
    rng = np.random.default_rng(seed)
    n, n_stages = 300, 4
    X = rng.normal(size=(n, n_stages))
    losses = rng.gamma(1.0, size=(n, n_stages)) + rng.uniform(0, 1, n_stages) * (X > 0)
    prices = np.cumsum(rng.uniform(0, 1, n_stages))
    rows = rows_of(X, np.zeros(n), rng.uniform(0.1, 3.0, n))
    columns = [np.arange(k + 1) for k in range(n_stages)]
    chain = make_chain(X, losses, prices, columns, rows=rows, gate_price=gate_price)
    policy = induce(chain, cost_weight)
    same_for_all = np.average(losses + cost_weight * prices, axis=0, weights=rows.weights)
    assert policy.loss <= same_for_all.min() + 1e-9
    assert np.all(np.diff(policy.loss_history) <= 1e-9)  # no gate makes it worse
    assert policy.mean_value == pytest.approx(np.average(policy.value, weights=rows.weights))
    assert prices[0] - 1e-9 <= policy.mean_cost <= prices[-1] + gate_price * (n_stages - 1) + 1e-9


# -- a gate -------------------------------------------------------------------------------------------------------


def test_what_a_gate_says_of_a_row_it_did_not_learn_from_it():
    X, needs, rng = two_kinds(400)
    chain = make_chain(X, np.zeros((400, 3)), (0.0, 1.0, 2.0), THREE)
    gain = np.where(needs, 1.0, -1.0) + rng.normal(size=400)
    _, before = learn_gate(chain, 1, gain)
    first, second = chain.halves
    changed = gain.copy()
    changed[first] *= -1
    _, after = learn_gate(chain, 1, changed)
    assert np.array_equal(before[first], after[first])
    assert not np.array_equal(before[second], after[second])


def test_a_gate_says_the_mean_of_both_regressions_or_the_first():
    X, _, rng = two_kinds(400)
    chain = make_chain(X, np.zeros((400, 3)), (0.0, 1.0, 2.0), ([], [1], [0, 1]))
    gate, _ = learn_gate(chain, 1, np.where(X[:, 1] > 0, 1.0, -1.0) + 0.1 * rng.normal(size=400))
    one, two = (pool.transform(X[:, [1]]).sum(axis=1) for pool in gate.pools)
    assert not np.array_equal(one, two)
    assert said(gate, X) == pytest.approx((one + two) / 2)
    assert said(gate, X, 1) == pytest.approx(one)
    assert set(np.unique(gate.score(2).pool.feature)) == {-1, 1}


def test_trees_of_one_leaf_are_one_constant():
    X, _, _ = two_kinds(400)
    chain = make_chain(X, np.zeros((400, 3)), (0.0, 1.0, 2.0), THREE)
    gate, heard = learn_gate(chain, 1, np.full(400, 0.7))
    assert gate.score(2).pool.n_learners == 1
    assert said(gate, X) == pytest.approx(np.full(400, 0.7))
    assert heard == pytest.approx(np.full(400, 0.7))


def test_gates_of_other_cost_weights_do_not_change_a_gate():
    """Features are binned once for all of them."""
    X, needs, _ = two_kinds(1000)
    losses = settled_by_x0(X, needs)
    fresh = induce(make_chain(X, losses, (0.0, 1.0, 4.0), THREE), 0.1)
    chain = make_chain(X, losses, (0.0, 1.0, 4.0), THREE)
    for cost_weight in (0.2, 0.05):
        induce(chain, cost_weight)
    again = induce(chain, 0.1)
    assert isinstance(again.gates[0], Gate)
    assert np.array_equal(said(fresh.gates[0], X), said(again.gates[0], X))
    assert np.array_equal(fresh.value, again.value)


# -- gates that are not learned -----------------------------------------------------------------------------------


def rarely_dear(n=2000):
    """x0 settles all rows but one in 200, for which x1 is worth a hundredth of what a row loses."""
    X, _, _ = two_kinds(n)
    dear = np.zeros(n)
    dear[::200] = 0.4
    return X, np.column_stack([np.full(n, 2.0), 1.0 + dear, np.ones(n)])


def learned(monkeypatch):
    """Stages whose gates are learned from now on."""
    stages = []
    monkeypatch.setattr(module, "learn_gate", lambda *given: stages.append(given[1]) or learn_gate(*given))
    return stages


def test_a_gate_is_learned_once_from_the_same_gain(monkeypatch):
    X, needs, _ = two_kinds(400)
    chain = make_chain(X, settled_by_x0(X, needs), (0.0, 1.0, 4.0), THREE)
    stages = learned(monkeypatch)
    for cost_weight, n_learned in ((0.1, 1), (0.1, 1), (0.2, 2), (0.1, 3)):  # only the last gain of a stage is kept
        policy = induce(chain, cost_weight)
        assert (policy.stages, len(stages)) == ([1, 2], n_learned)


@pytest.mark.parametrize("many", [False, True])
def test_of_many_rows_no_gate_is_learned_for_next_to_nothing(many, monkeypatch):
    X, losses = rarely_dear()
    chain = make_chain(X, losses, np.array([0.0, 1.0, 2.0]), THREE)
    stages = learned(monkeypatch)
    if many:
        monkeypatch.setattr(module, "MANY_ROWS", len(X))
    policy = induce(chain, 0.01)
    assert stages == ([] if many else [1])
    assert policy.stages == [1]


def test_of_many_rows_gates_begin_at_the_last_stage_that_could_pay(monkeypatch):
    X, needs, _ = two_kinds()
    prices = np.array([0.0, 1.0, 2.0])
    chain = make_chain(X, settled_by_x0(X, needs), prices, THREE)
    monkeypatch.setattr(module, "MANY_ROWS", len(X))
    for cost_weight, last in ((0.1, 2), (1.5, 1), (5.0, 0)):
        # by enumeration: what the best of the first stages of each row loses on average
        losses = chain.losses + cost_weight * prices
        best = np.array([losses[:, : k + 1].min(axis=1).mean() for k in range(3)])
        assert module.last_worthwhile(chain, cost_weight) == last == np.argmax(best <= best[-1] + 1e-12)
