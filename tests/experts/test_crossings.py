"""Two orders in one tree: values by hand, the best policy by enumeration, the unfolded tree against the graph."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstc import CostModel, CSTCClassifier, CSTCRegressor, load, save
from cstc.experts import crossings as module
from cstc.experts.candidates import Nodes
from cstc.experts.crossings import could_choose, cross
from cstc.experts.expert import Expert, constant_expert
from cstc.experts.gates import induce
from cstc.model import TreePool
from cstc.model.build import Score, build_tree
from cstc.model.schema import Schema
from cstc.serving import OnDemandPredictor, extractor
from experts.cases import TWO_PRICES, make_chain, resolved, rows_of, two_needs

OPTIONS = {"n_weak_learners": 60, "random_state": 0, "n_jobs": 1}

CORNERS = (([0], [0, 1], [0, 1, 2]), ([0], [0, 2], [0, 1, 2]))  # x0, then x1 or x2, then both


def two_orders(X, columns, losses, prices, **changes):
    """Chains over the same rows; losses and prices by the set of columns, as tuples."""
    experts = {own: constant_expert(np.zeros(1), len(X)) for own in losses}
    return [
        make_chain(
            X,
            np.column_stack([losses[tuple(own)] for own in order]),
            [prices[tuple(own)] for own in order],
            order,
            **({"name": name, "experts": [experts[tuple(own)] for own in order]} | changes),
        )
        for name, order in zip(("by price", "by gain"), columns, strict=True)
    ]


def told_by_x0(n=3000, seed=0):
    """Rows with x0 above 0 are settled by x2, the others by x1."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    needs_x2 = X[:, 0] > 0
    losses = {(0,): np.ones(n), (0, 1): 1.0 * needs_x2, (0, 2): 1.0 * ~needs_x2, (0, 1, 2): np.zeros(n)}
    prices = {(0,): 0.0, (0, 1): 2.0, (0, 2): 4.0, (0, 1, 2): 6.0}
    return X, needs_x2, losses, prices


def said(gate, X):
    """What a gate says to new rows."""
    score = gate.score(2)
    return score.pool.transform(X) @ score.weights[:, 0] + score.intercept[0]


# -- where it is right to cross -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gate_price", [0.0, 0.3])
def test_a_free_feature_says_which_order_is_right(gate_price):
    X, needs_x2, losses, prices = told_by_x0()
    chains = two_orders(X, CORNERS, losses, prices, gate_price=gate_price)
    found = cross(chains, 0.1)
    assert found.parents == [-1, 0, 0]
    assert found.chooses
    assert found.loss == pytest.approx(np.where(needs_x2, 0.4, 0.2).mean() + 0.1 * gate_price, rel=1e-3)
    assert found.loss < min(induce(chain, 0.1).loss for chain in chains) - 0.05
    assert found.paid == pytest.approx(np.where(needs_x2, 4.0, 2.0) + gate_price, abs=0.1)
    assert found.mean_cost == pytest.approx(found.paid.mean())
    assert (found.gates[0] is None, found.gates[1], found.gates[2]) == (False, None, None)
    # who goes where, out of fold, and as shares of the two ends
    upper = found.is_upper.index(True, 1)
    assert found.experts[upper] in (chains[0].experts[1], chains[1].experts[1])
    is_for_x2 = found.experts[upper] is chains[1].experts[1]
    assert np.mean((found.stops == upper) == (needs_x2 if is_for_x2 else ~needs_x2)) > 0.99
    assert found.reached.sum() == pytest.approx(1.0)


def test_a_cheap_feature_that_both_orders_begin_with_says_it():
    """Nothing is free: all rows buy x0, which no gate can decide about, and choose then."""
    X, needs_x2, losses, prices = told_by_x0()
    losses[()], prices = np.full(len(X), 2.0), {own: price + 1.0 for own, price in prices.items()} | {(): 0.0}
    found = cross(two_orders(X, [[[], *order] for order in CORNERS], losses, prices), 0.1)
    assert found.parents == [-1, 0, 0]
    assert found.loss == pytest.approx(np.where(needs_x2, 0.5, 0.3).mean(), rel=1e-3)


def test_rows_that_are_settled_stop_before_they_choose():
    X, needs_x2, losses, prices = told_by_x0()
    settled = np.abs(X[:, 0]) < 0.5
    losses[(0,)] = np.where(settled, 0.0, 1.0)
    found = cross(two_orders(X, CORNERS, losses, prices), 0.1)
    assert found.parents == [-1, 0, 1, 1]  # the gate, the choice below it, and both ways
    assert found.experts[0] is found.experts[1]
    assert found.is_upper[:2] == [True, True]
    assert found.loss == pytest.approx(np.where(settled, 0.0, np.where(needs_x2, 0.4, 0.2)).mean(), rel=0.05)
    assert len(found.reached) == 3  # nobody stops at the choice
    assert found.reached[0] == pytest.approx(settled.mean(), abs=0.03)
    assert set(np.unique(found.stops)) == {0, 2, 3}


def test_a_row_crosses_over_to_the_cheapest_stage_that_holds_what_it_has():
    """x1 says whether x2 settles a row: by price x3 would come next, and the other order has x1 and x2."""
    X = np.random.default_rng(0).normal(size=(3000, 4))
    helps = X[:, 1] > 0
    n, orders = len(X), (([], [1], [1, 3], [0, 1, 2, 3]), ([], [2], [1, 2], [0, 1, 2, 3]))
    one, none = np.ones(n), np.zeros(n)
    losses = {(): 3 * one, (1,): one, (2,): 2 * one, (1, 3): 1.0 * helps, (1, 2): 1.0 * ~helps, (0, 1, 2, 3): none}
    prices = {(): 0.0, (1,): 1.0, (2,): 2.0, (1, 3): 4.0, (1, 2): 5.0, (0, 1, 2, 3): 50.0}
    found = cross(two_orders(X, orders, losses, prices), 0.1)
    assert found.loss == pytest.approx(np.where(helps, 0.5, 0.4).mean(), rel=0.01)
    assert found.parents == [-1, 0, 0]
    assert (found.paid >= 4.0).all()


def test_shifts_change_what_it_is_worth_and_not_what_it_does():
    X, _, losses, prices = told_by_x0()
    plain = cross(two_orders(X, CORNERS, losses, prices), 0.1)
    chains = two_orders(X, CORNERS, losses, prices)
    for chain, shift in zip(chains, (7.0, 11.0), strict=True):
        chain.shifts[1] = shift
    moved = cross(chains, 0.1)
    assert moved.loss == plain.loss
    assert moved.value - plain.value == pytest.approx(np.where(moved.paid > 3.0, 11.0, 7.0))
    assert moved.mean_value == pytest.approx(moved.value.mean())


def test_weights_count():
    X, needs_x2, losses, prices = told_by_x0()
    rows = rows_of(X, np.zeros(len(X)), np.where(needs_x2, 3.0, 1.0))
    found = cross(two_orders(X, CORNERS, losses, prices, rows=rows), 0.1)
    share = 3 * needs_x2.sum() / rows.weights.sum()
    assert found.loss == pytest.approx(0.4 * share + 0.2 * (1 - share), rel=1e-3)
    assert sorted(found.reached) == pytest.approx(sorted([share, 1 - share]), abs=1e-3)
    rare = rows_of(X, np.zeros(len(X)), np.where(needs_x2, 1e-3, 1.0))  # for whom nobody makes a choice
    assert not cross(two_orders(X, CORNERS, losses, prices, rows=rare), 0.1).chooses


# -- where it is not ----------------------------------------------------------------------------------------------


def test_where_rows_need_the_same_nobody_chooses():
    X, _, losses, prices = told_by_x0()
    losses[(0, 1)] = np.zeros(len(X))
    chains = two_orders(X, CORNERS, losses, prices)
    assert not could_choose(chains, 0.1)
    assert not cross(chains, 0.1).chooses


@pytest.mark.parametrize(
    ("base", "cost_weight", "pays"), [(0.0, 0.1, True), (0.0, 10.0, False), (1.0, 0.1, True), (1.0, 1e-3, False)]
)
def test_perfect_choices_are_told_from_none(base, cost_weight, pays):
    X, _, losses, prices = told_by_x0()
    chains = two_orders(X, CORNERS, {own: base + each for own, each in losses.items()}, prices)
    assert could_choose(chains, cost_weight) == pays
    # by enumeration: the best stage of each row, in one order and in both
    best = [np.min(chain.losses + cost_weight * chain.prices, axis=1) for chain in chains]
    assert (np.minimum(*best).mean() < 0.997 * min(each.mean() for each in best)) == pays


def test_where_a_stage_holds_the_other_there_is_nothing_to_choose():
    X, _, losses, prices = told_by_x0()
    nested = (([0], [0, 1], [0, 1, 2]), ([0], [0, 1, 2]))
    assert cross(two_orders(X, nested, losses, prices), 0.1) is None


def test_a_better_expert_on_the_same_features_comes_before_all_ways():
    """As where trees have a price: a stage is there twice, with few trees and with all."""
    X, _, losses, prices = told_by_x0()
    hasty, full = constant_expert(np.zeros(1), len(X)), constant_expert(np.zeros(1), len(X))
    chains = []
    for chain in two_orders(X, CORNERS, losses, prices):
        twice = [0, 0, 1, 2]
        chains.append(
            make_chain(
                X,
                np.column_stack([chain.losses[:, 0] + 0.5, chain.losses]),
                chain.prices[twice] + [0.0, 0.2, 0.2, 0.2],
                [chain.stages[k].columns for k in twice],
                experts=[hasty, full, *chain.experts[1:]],
            )
        )
    states = module._states(chains, [3, 3])
    assert [state.ways for state in states] == [[1], [2, 3], [4], [4], []]
    assert [state.can_gate for state in states] == [False, True, True, True, True]
    assert cross(chains, 0.1).parents == [-1, 0, 0]


# -- against enumeration ------------------------------------------------------------------------------------------


def least_by_enumeration(X, losses, prices, cost_weight):
    """The best of all policies on `CORNERS` that see the signs of what is bought."""
    cell = 4 * (X[:, 0] > 0) + 2 * (X[:, 1] > 0) + (X[:, 2] > 0)
    share = np.bincount(cell, minlength=8) / len(X)
    total = {
        own: np.bincount(cell, losses[own] + cost_weight * prices[own], minlength=8) / np.bincount(cell, minlength=8)
        for own in losses
    }
    first, second, third = np.arange(8) // 4, np.arange(8) // 2 % 2, np.arange(8) % 2
    least = np.inf
    for x1_goes, x2_goes in itertools.product(itertools.product([False, True], repeat=4), repeat=2):
        by_x1 = np.where(np.array(x1_goes)[2 * first + second], total[0, 1, 2], total[0, 1])
        by_x2 = np.where(np.array(x2_goes)[2 * first + third], total[0, 1, 2], total[0, 2])
        ways = np.stack([total[(0,)], by_x1, by_x2])
        for actions in itertools.product(range(3), repeat=2):
            least = min(least, float(share @ ways[np.array(actions)[first], np.arange(8)]))
    return least


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.02, 0.1, 0.3]))
def test_the_loss_is_that_of_the_best_policy_by_enumeration(seed, cost_weight):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(2000, 3))
    cell = 4 * (X[:, 0] > 0) + 2 * (X[:, 1] > 0) + (X[:, 2] > 0)
    losses = {own: rng.integers(6, size=8)[cell] / (1.0 + len(own)) for own in ((0,), (0, 1), (0, 2), (0, 1, 2))}
    prices = {(0,): 0.0, (0, 1): 1.0, (0, 2): 2.0, (0, 1, 2): 4.0}
    chains = two_orders(X, CORNERS, losses, prices)
    least = least_by_enumeration(X, losses, prices, cost_weight)
    found = cross(chains, cost_weight)
    assert found.loss == pytest.approx(least, rel=0.02)
    assert found.loss >= least - 1e-9
    assert found.loss <= min(induce(chain, cost_weight).loss for chain in chains) + 0.02 * least


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0), st.floats(0.0, 0.2))
def test_values_bills_and_shares_belong_together(seed, cost_weight, gate_price):
    rng = np.random.default_rng(seed)
    n = 300
    X = rng.normal(size=(n, 5))
    orders = [[np.sort(order[:k]).tolist() for k in range(1, 6)] for order in ([0, 1, 2, 3, 4], [0, 4, 3, 2, 1])]
    sets = {tuple(own) for order in orders for own in order}
    losses = {own: rng.gamma(1.0, size=n) + np.sum(X[:, [k for k in range(5) if k not in own]] > 0, axis=1)
              for own in sorted(sets)}
    prices = {own: float(np.sum(own)) for own in sets}
    rows = rows_of(X, np.zeros(n), rng.uniform(0.1, 3.0, n))
    chains = two_orders(X, orders, losses, prices, rows=rows, gate_price=gate_price)
    found = cross(chains, cost_weight)
    assert len(found.parents) <= module.MOST_NODES
    assert found.reached.sum() == pytest.approx(1.0)
    assert found.mean_value == pytest.approx(np.average(found.value, weights=rows.weights)) == pytest.approx(found.loss)
    assert found.mean_cost == pytest.approx(np.average(found.paid, weights=rows.weights))
    # what each row loses is that of the state where it stops, and it pays for that state and for each gate on its way
    place = {id(expert): own for order, chain in zip(orders, chains, strict=True)
             for own, expert in zip(map(tuple, order), chain.experts, strict=True)}
    ends = [place[id(expert)] for expert in found.experts]
    for row in range(0, n, 7):
        end = int(found.stops[row])
        on_path, node = 0, end
        while node >= 0:
            on_path += found.gates[node] is not None
            node = found.parents[node]
        assert found.paid[row] == pytest.approx(prices[ends[end]] + gate_price * on_path)
        assert found.value[row] == pytest.approx(losses[ends[end]][row] + cost_weight * found.paid[row])


# -- the tree -----------------------------------------------------------------------------------------------------


def diamonds(n_levels, n=6000, shares=None):
    """Sets that grow by two features at a time, one order with the first of them first and one with the second.

    The free x0 says how far a row must go, and which of the two features it needs there.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 1 + 2 * n_levels))
    level, side = rng.choice(n_levels, size=n, p=shares), rng.integers(2, size=n)
    X[:, 0] = 2 * level + side
    orders, losses, prices = [[[0]], [[0]]], {(0,): np.ones(n)}, {(0,): 0.0}
    for k in range(n_levels):
        for which, order in enumerate(orders):
            own = (*range(2 * k + 1), 2 * k + 1 + which)
            order.append(list(own))
            losses[own] = 1.0 * ((level > k) | ((level == k) & (side != which)))
            prices[own] = 2 * k + 1.0
        own = tuple(range(2 * k + 3))
        for order in orders:
            order.append(list(own))
        losses[own], prices[own] = 1.0 * (level > k), 2 * k + 2.0
    return X, level, two_orders(X, orders, losses, prices)


def states_of(found, chains):
    """The columns of the stage that each node belongs to."""
    place = {}
    for chain in chains:
        place |= {id(expert): stage.columns for expert, stage in zip(chain.experts, chain.stages, strict=True)}
    return [tuple(place[id(expert)].tolist()) for expert in found.experts]


def test_a_state_that_is_reached_by_two_ways_is_two_nodes_with_the_same_gates():
    _, _, chains = diamonds(2)
    found = cross(chains, 0.02)
    assert found.loss == pytest.approx(0.02 * (1.0 + 3.0) / 2, rel=0.1)
    states = states_of(found, chains)
    twice = [node for node, own in enumerate(states) if own == (0, 1, 2)]
    assert len(twice) == 2
    assert found.experts[twice[0]] is found.experts[twice[1]]
    assert found.gates[twice[0]] is found.gates[twice[1]] is not None
    nodes = Nodes.crossing(found, resolved(np.ones(5)))
    assert nodes.routes[twice[0]] is nodes.routes[twice[1]]  # one copy of the trees


def unfolded(monkeypatch):
    """Trees that are made from now on."""
    trees, kind = [], module._Tree

    def unfold(*given):
        trees.append(kind(*given))
        return trees[-1]

    monkeypatch.setattr(module, "_Tree", unfold)
    return trees


def test_the_tree_has_at_most_64_nodes_and_loses_the_choices_that_matter_least(monkeypatch):
    _, _, chains = diamonds(6)
    trees = unfolded(monkeypatch)
    found = cross(chains, 0.02)
    assert len(trees[0].nodes) > 64 >= len(found.parents)
    assert [len(tree.nodes) > 64 for tree in trees] == [True] * (len(trees) - 1) + [False]
    assert found.chooses
    assert trees[0].crossing(0.02).loss < found.loss < min(induce(chain, 0.02).loss for chain in chains)
    for before, after in itertools.pairwise(trees):
        left, right = ({(node.state, node.turns): node.gain for node in tree.nodes if not node.ends}
                       for tree in (before, after))
        assert min(left, key=left.get) not in right
        assert max(left, key=left.get) in right


def expert_of(columns):
    """Buys all of its columns, and says their sum."""
    own = np.array(columns, dtype=int)
    return Expert(Score(TreePool.identity(len(own)).on_columns(own), np.ones((len(own), 1)), np.zeros(1)), np.zeros(1))


def walk_the_graph(tree, row):
    """By hand, from state to state: the one where a row stops; None if it meets a choice that the tree leaves out."""
    number, turns = 0, ()
    kept = {(node.state, node.turns, node.gate) for node in tree.nodes}
    while True:
        decision = tree._decided[number]
        all_stop = (number, turns, None) in kept  # as those do that come by this way
        has_gate = (number, turns, decision.gate) in kept
        if all_stop or (has_gate and said(decision.gate, row[None, :])[0] <= 0):
            return tree._states[number]
        turn = 0
        if decision.choice is not None:
            if (number, turns, decision.choice) not in kept:
                return None
            turn = 0 if said(decision.choice, row[None, :])[0] > 0 else 1
            turns = (*turns, turn)
        number = decision.ways[turn]


@pytest.mark.parametrize("seed", range(4))
def test_predictions_and_costs_are_those_of_walking_the_graph(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    n, k = 1500, 5
    X = rng.normal(size=(n, k))
    orders = [[np.sort([0, *order[:j]]).tolist() for j in range(k)] for order in ([1, 2, 3, 4], [4, 3, 2, 1])]
    sets = sorted({tuple(own) for order in orders for own in order})
    # the sign of x0 says which pair of columns a row needs, and the first of the pair whether it needs the other
    first = X[:, 0] > 0
    own = np.where(first, X[:, 1], X[:, 4]) > 0
    needs = np.zeros((n, k))
    needs[first, 1] = needs[~first, 4] = needs[first & own, 2] = needs[~first & own, 3] = 1.0
    losses = {own: needs[:, [j for j in range(k) if j not in own]].sum(axis=1) for own in sets}
    column_prices = np.array([0.0, 1.0, 2.0, 2.0, 1.0])
    prices = {own: float(column_prices[list(own)].sum()) for own in sets}
    chains = two_orders(X, orders, losses, prices)
    experts = {own: expert_of(own) for own in sets}
    chains = [
        make_chain(X, chain.losses, chain.prices, order, experts=[experts[tuple(own)] for own in order])
        for chain, order in zip(chains, orders, strict=True)
    ]
    trees = unfolded(monkeypatch)
    found = cross(chains, 0.15)
    assert found.chooses
    costs = resolved(column_prices)
    nodes = Nodes.crossing(found, costs)
    model = build_tree(
        nodes.shape,
        [expert.score for expert in nodes.experts],
        nodes.routes,
        constant=np.zeros(1),
        costs=costs,
        link="identity",
        schema=Schema([f"x{j}" for j in range(k)], {}, np.zeros(k, dtype=bool)),
    )
    assert nodes.shape.n_terminals == len(found.reached)
    new = rng.normal(size=(400, k))
    ends = [walk_the_graph(trees[-1], row) for row in new]
    at = [i for i, state in enumerate(ends) if state is not None]
    bought = [ends[i].chain.stages[ends[i].stage].columns for i in at]
    assert len(at) > 380
    assert len({tuple(own.tolist()) for own in bought}) == 4
    sums = [new[i, own].sum() for i, own in zip(at, bought, strict=True)]
    assert model.decision_function(new[at])[:, 0] == pytest.approx(sums)
    assert model.predict_cost(new[at]) == pytest.approx([column_prices[own].sum() for own in bought])
    # training rows, out of fold, are sent down the same tree by the halves that did not learn from them
    assert np.mean(found.stops == nodes.shape.terminal_parents[model.apply(X)]) > 0.9


# -- fitted models ------------------------------------------------------------------------------------------------


@functools.cache
def fitted(kind=CSTCRegressor, evaluation=0.0):
    """A model that takes two orders, and new rows."""
    _, X, y, _ = two_needs(n=1400)
    y = y if kind is CSTCRegressor else (y > 0).astype(int)
    costs = CostModel(TWO_PRICES, evaluation=evaluation)
    model = kind(costs=costs, cost_weight=0.2 if kind is CSTCRegressor else 0.02, **OPTIONS).fit(X[:900], y[:900])
    return model, X[900:]


def is_taken(model):
    return [row.name for row in model.candidates_ if row.verdict == "taken"] == ["two orders"]


def sources_of(X, down=None):
    """One for each column, which takes the number of a row; one of them may fail."""

    def source(j):
        @extractor(provides=[f"x{j}"], name=f"source of x{j}")
        def fetch(row):
            if j == down:
                raise RuntimeError("down")
            return X[row, j]

        return fetch

    return [source(j) for j in range(X.shape[1])]


def test_a_saved_model_answers_the_same(tmp_path):
    model, X = fitted()
    assert is_taken(model)
    save(model, tmp_path / "model.cstc")
    again = load(tmp_path / "model.cstc")
    assert np.array_equal(again.decision_function(X), model.model_.decision_function(X))
    assert np.array_equal(again.predict_cost(X), model.predict_cost(X))
    # a choice has a node on either side
    assert ((again.shape.upper >= 0) & (again.shape.lower >= 0)).any()
    assert model.model_.training.reached.sum() == pytest.approx(1.0)
    new = np.bincount(model.apply(X), minlength=again.shape.n_terminals) / len(X)
    assert model.model_.training.reached == pytest.approx(new, abs=0.08)


def test_fetching_one_by_one_pays_what_is_reported():
    model, X = fitted()
    assert is_taken(model)
    predictor = OnDemandPredictor(model, sources_of(X))
    answers = [predictor.predict(row) for row in range(60)]
    assert [answer.value for answer in answers] == pytest.approx(model.predict(X[:60]))
    assert [answer.cost for answer in answers] == pytest.approx(model.predict_cost(X[:60]))
    assert len({answer.cost for answer in answers}) > 1
    # with a budget, or a source that is down, rows are answered all the same
    within = predictor.predict(0, budget=5.0)
    assert within.cost <= 5.0
    failed = OnDemandPredictor(model, sources_of(X, down=2)).predict(0)
    assert failed.status == "failed"
    assert np.isfinite([within.value, failed.value]).all()


def test_explanations_name_the_choice_and_add_up():
    model, X = fitted()
    assert is_taken(model)
    said = set()
    for row in range(30):
        explanation = model.explain(X[row])
        assert sum(step.price for step in explanation.steps) == pytest.approx(model.predict_cost(X[row : row + 1])[0])
        said |= {"this is what cases like this one need" in step.why for step in explanation.steps}
    assert said == {True, False}


def test_where_trees_have_a_price_gates_and_choices_are_paid():
    model, X = fitted(evaluation=0.01)
    assert is_taken(model)
    (row,) = [row for row in model.candidates_ if row.verdict == "taken"]
    cost, items = model.predict_cost(X, "learner"), model.model_.bought_items(X, "learner")
    assert cost.mean() > model.model_.costs.bills(items).mean() * 1.02  # or nothing would be tested
    assert row.mean_cost == pytest.approx(cost.mean(), rel=0.06)


def test_errors_in_money_weigh_two_orders_too():
    _, X, y, _ = two_needs("classes", n=900)
    model = CSTCClassifier(costs=TWO_PRICES, error_costs=[[0.0, 60.0], [60.0, 0.0]], **OPTIONS).fit(X, y)
    rows = {row.name: row for row in model.candidates_}
    assert np.isfinite(rows["two orders"].expected_loss)
    assert rows["two orders"].verdict in ("taken", "saves less, expected and observed")
