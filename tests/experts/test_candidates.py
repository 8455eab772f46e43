"""The models that compete: their names, what they are expected to lose and cost, and which of them is taken."""

import functools
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cstc import CostModel, CSTCRegressor, Frontier
from cstc.experts import candidates as module
from cstc.experts.candidates import Candidate, Family, Nodes, candidates_for, least_of
from cstc.experts.chain import Chains
from cstc.experts.crossings import cross
from cstc.experts.expert import Expert, constant_expert
from cstc.experts.gates import induce
from cstc.experts.lazy import LazyExpert
from cstc.method import OutOfFold
from cstc.model import TreePool
from cstc.model.build import Score
from experts.cases import (
    OWN_PRICES,
    PRICES,
    TWO_PRICES,
    dear_for_some,
    make_chain,
    own_features,
    resolved,
    two_needs,
)

OPTIONS = {"n_weak_learners": 40, "random_state": 0, "n_jobs": 1}
LOST = "expected to lose more"


def same_for_all(task, n, seed=3):
    """All rows need the same two features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return CSTCRegressor, X, 2.0 * X[:, 0] + X[:, 1] + rng.normal(size=n), {}


#: Data, number of rows, prices, cost weight and rounds of boosting, by what is best there.
WORLDS = {
    "a chain": (dear_for_some, 900, PRICES, 0.05, 150),
    "a chain of many rows": (same_for_all, 1200, PRICES, 0.1, 150),
    "two orders": (two_needs, 900, TWO_PRICES, 0.2, 60),
    "branches": (own_features, 2400, OWN_PRICES, 0.01, 40),
    "a lazy end": (own_features, 2400, [5.0, *OWN_PRICES[1:]], 0.01, 40),  # what tells rows apart is too expensive
}
each_world = pytest.mark.parametrize("world", WORLDS)


@functools.cache
def fitted(world, scale=1.0):
    data, n, prices, cost_weight, rounds = WORLDS[world]
    estimator, X, y, _ = data("regression", n)
    model = estimator(costs=prices, cost_weight=cost_weight * scale**2, **(OPTIONS | {"n_weak_learners": rounds}))
    return model.fit(X, scale * y)


def taken(model):
    (found,) = [row for row in model.candidates_ if row.verdict == "taken"]
    return found


# -- what a fitted estimator shows --------------------------------------------------------------------------------


@each_world
def test_the_taken_one_is_expected_to_lose_least_of_those_in_the_running(world):
    rows = fitted(world).candidates_
    in_the_running = [row for row in rows if row.verdict in ("taken", LOST)]
    assert taken(fitted(world)) == min(in_the_running, key=lambda row: row.expected_loss)
    assert all(row.verdict for row in rows)
    for row in rows:  # what was not grown has no numbers, and is not in the running
        assert math.isnan(row.expected_loss) == math.isnan(row.mean_cost)
        assert not (math.isnan(row.mean_cost) and row in in_the_running)


@pytest.mark.parametrize(
    ("world", "verdicts"),
    [
        (
            "a chain",
            {
                "chain, by price": "taken",
                "two orders": "there is one order alone",
                "branches": "fewer than 1000 rows",
                "lazy end": "fewer than 1000 rows",
            },
        ),
        (
            "two orders",
            {
                "chain, by price": "no better than two orders, before shifts",
                "chain, by gain": "no better than the other order, before shifts",
                "two orders": "taken",
                "branches": "fewer than 1000 rows",
                "lazy end": "fewer than 1000 rows",
            },
        ),
        (
            "a chain of many rows",
            {
                "chain, by price": "taken",
                "chain, by gain": "no better than the other order, before shifts",
                "two orders": "perfect choices between them would save next to nothing",
                "branches": "rows do not seem to need different features",
                "lazy end": "no chance on one fold",
            },
        ),
        (
            "branches",
            {
                "chain, by price": "no better than two orders, before shifts",
                "chain, by gain": "no better than the other order, before shifts",
                "two orders": LOST,
                "4 branches": "taken",
                "lazy end": "no chance on one fold",
            },
        ),
        (
            "a lazy end",
            {
                "chain, by price": LOST,
                "two orders": "there is one order alone",
                "branches": "rows do not seem to need different features",
                "lazy end, by price": "taken",
            },
        ),
    ],
)
def test_names_and_verdicts(world, verdicts):
    assert {row.name: row.verdict for row in fitted(world).candidates_} == verdicts


@pytest.mark.parametrize(
    ("world", "branched"), [("a chain", False), ("two orders", True), ("branches", True), ("a lazy end", False)]
)
def test_the_model_is_what_the_name_says(world, branched):
    model = fitted(world)
    shape = model.model_.shape
    assert ((shape.upper >= 0) & (shape.lower >= 0)).any() == branched
    # what a row buys at its end depends on the row only where the end is lazy
    _, X, _, _ = WORLDS[world][0]("regression", 1000, seed=8)
    terminal, bought = model.apply(X), model.model_.bought_items(X)
    last = terminal == np.argmax(model.model_.terminal_costs())
    assert (len(np.unique(bought[last], axis=0)) > 1) == (world == "a lazy end")


@each_world
def test_cost_and_loss_are_those_of_new_rows(world):
    model = fitted(world)
    data, _, _, cost_weight, _ = WORLDS[world]
    _, X, y, _ = data("regression", 4000, seed=8)
    cost, risk = model.predict_cost(X).mean(), np.mean((model.predict(X) - y) ** 2)
    assert taken(model).mean_cost == pytest.approx(cost, rel=0.06)
    # at each row of a chain, a stage is charged for what its expert lacks at all rows: with gates that is too much
    gated = len(model.loss_history_[0]) > 2 and model.model_.shape.n_nodes > 1
    assert taken(model).expected_loss == pytest.approx(risk + cost_weight * cost, rel=0.25 if gated else 0.1)


@each_world
def test_out_of_fold_rows_are_answered_as_new_rows_are(world):
    """Where each of them stops, and with what: about the loss of new rows, which all members answer together."""
    model, (data, n, *_) = fitted(world), WORLDS[world]
    _, X, y, _ = data("regression", n)
    unseen = model._out_of_fold
    np.testing.assert_array_equal(unseen.rows, np.arange(n))
    assert unseen.margins.shape == (n, 1)
    lost, taught = np.mean((unseen.margins[:, 0] - y) ** 2), np.mean((model.predict(X) - y) ** 2)
    _, X, y, _ = data("regression", 4000, seed=8)
    new = np.mean((model.predict(X) - y) ** 2)
    # out of fold one member answers; with the small leaves of groups, the mean of all is better than one by more
    assert lost == pytest.approx(new, rel=0.35 if world == "branches" else 0.25)
    assert lost > taught


@pytest.mark.parametrize("world", ["a chain", "two orders", "branches", "a lazy end"])
def test_out_of_fold_margins_are_those_of_the_expert_where_a_row_stops(world, monkeypatch):
    seen = []
    told = Nodes.out_of_fold
    monkeypatch.setattr(Nodes, "out_of_fold", lambda nodes: seen.append(nodes) or told(nodes))
    model = fitted.__wrapped__(world, scale=10.0)
    (nodes,) = seen
    assert len(np.unique(nodes.stops)) > 1 or world == "a lazy end"
    found = dict(zip(model._out_of_fold.rows.tolist(), model._out_of_fold.margins[:, 0], strict=True))
    y = 10.0 * WORLDS[world][0]("regression", WORLDS[world][1])[2]
    for row, node in zip(nodes.at.tolist(), nodes.stops.tolist(), strict=True):
        own = nodes.rows[node]
        place = row if own is None else own.tolist().index(row)
        margin = nodes.experts[node].margins[place, 0] * y.std() + y.mean()
        assert found[row] == pytest.approx(margin, rel=1e-5, abs=1e-5)
    assert (np.diff(model._out_of_fold.rows) > 0).all()
    again = OutOfFold.from_json(json.loads(json.dumps(model._out_of_fold.to_json())))
    np.testing.assert_array_equal(again.rows, model._out_of_fold.rows)
    np.testing.assert_array_equal(again.margins, model._out_of_fold.margins)


def test_where_trees_have_a_price_they_are_part_of_the_cost():
    _, X, y, _ = dear_for_some("regression")
    costs = CostModel(PRICES, evaluation=0.02)
    for cost_weight, share, near in [(0.01, 0.15, 0.08), (0.0, 0.03, 1e-9)]:  # gates stop other rows out of fold
        model = CSTCRegressor(costs=costs, cost_weight=cost_weight, **OPTIONS).fit(X, y)
        cost, items = model.predict_cost(X, "learner").mean(), model.model_.bought_items(X, "learner")
        assert cost > model.model_.costs.bills(items).mean() * (1 + share)  # or nothing would be tested
        assert taken(model).mean_cost == pytest.approx(cost, rel=near)


@pytest.mark.parametrize("world", ["a chain", "two orders", "branches"])
def test_losses_are_in_the_units_of_the_target(world):
    plain, scaled = fitted(world), fitted(world, scale=1000.0)
    for ours, theirs in zip(plain.candidates_, scaled.candidates_, strict=True):
        assert (ours.name, ours.verdict) == (theirs.name, theirs.verdict)
        if not math.isnan(ours.mean_cost):
            assert theirs.expected_loss == pytest.approx(1e6 * ours.expected_loss, rel=1e-3)
            assert theirs.mean_cost == pytest.approx(ours.mean_cost)


def test_no_cost_weight_leaves_nothing_to_choose():
    _, X, y, _ = dear_for_some("regression")
    model = CSTCRegressor(costs=PRICES, cost_weight=0.0, **OPTIONS).fit(X, y)
    (only,) = model.candidates_
    assert (only.name, only.verdict) == ("expert on all features", "taken")
    assert only.mean_cost == sum(PRICES) == model.predict_cost(X).max()
    _, X, y, _ = dear_for_some("regression", seed=8)
    assert only.expected_loss == pytest.approx(np.mean((model.predict(X) - y) ** 2), rel=0.2)


def test_without_prices_there_is_one_chain():
    _, X, y, _ = dear_for_some("regression", 1200)
    model = CSTCRegressor(costs=np.zeros(5), cost_weight=0.01, **OPTIONS).fit(X, y)
    assert [(row.name, row.verdict) for row in model.candidates_] == [
        ("chain, by price", "taken"),
        ("two orders", "there is one order alone"),
        ("branches", "no prices to weigh"),
        ("lazy end", "no prices to weigh"),
    ]


def test_all_models_of_a_frontier_show_theirs():
    estimator, X, y, _ = dear_for_some("regression", 400)
    frontier = Frontier(estimator(costs=PRICES, **OPTIONS), cost_weights=[0.1, 0.01, 0.0]).fit(X, y)
    for model in frontier.tried_models_:
        assert taken(model).mean_cost == pytest.approx(model.mean_cost_, rel=0.15, abs=1e-9)


def test_other_methods_have_nothing_to_choose_from():
    _, X, y, _ = dear_for_some("regression", 100)
    assert CSTCRegressor(method="exact", weak_learners="identity", random_state=0).fit(X, y).candidates_ == []


# -- who is asked at all ------------------------------------------------------------------------------------------

N = 1000
ZERO = np.zeros(N)


class Screens:
    """Lazy experts of which none competes, or one."""

    unit = 1.0

    def __init__(self, found="no chance on one fold", matter=True):
        self.found, self.matter, self.values = found, matter, []

    def power(self, cost_weight):
        return float(np.log2(cost_weight))

    def matters(self, cost_weight, value):
        return self.matter

    def find(self, cost_weight, value):
        self.values.append(value)
        return self.found


class Found:
    """Groups that are expected to lose nothing."""

    partition = SimpleNamespace(n_groups=3)

    def induce(self, cost_weight):
        return module.Branching(self.partition, [], [], [], [], ZERO, 0.0, 0.0, np.ones(1))


def simple_chain(loss=1.0, **changes):
    """x0 is bought by all rows for 1 and leaves `loss`."""
    X = np.random.default_rng(0).normal(size=(N, 2))
    losses = np.column_stack([np.full(N, 9.0), np.full(N, loss)])
    return make_chain(X, losses, (0.0, 1.0), ([], [0]), **changes)


def family_of(chains, lazy):
    nothing = SimpleNamespace(categorical=())
    grower = SimpleNamespace(
        rows=chains[0].rows, boosting=nothing, half=None, stakes=None, factor=None, report=print, whole_queries=None
    )
    return Family(grower, Chains(chains, None, None, None), lazy)


def test_orders_are_compared_without_shifts():
    two = simple_chain(1.1, name="two", shifts=np.array([0.0, -0.5]))
    two = replace(two, losses=np.column_stack([np.tile([0.5, 9.0], N // 2), two.losses[:, 1]]))  # gates might help
    chains = [simple_chain(1.0, name="one"), two]
    one, two, *_ = candidates_for(family_of(chains, Screens(matter=False)), 0.1)
    assert [one.name, two.name] == ["chain, one", "chain, two"]
    assert two.loss < one.loss
    assert (one.why_not, two.why_not) == ("", "no better than the other order, before shifts")


def chosen_by_x0(better, shift=0.0):
    """x0 says whether x1 or x2 settles a row; one order buys x1 first, the other one x2, which saves `better` more."""
    X = np.random.default_rng(0).normal(size=(N, 3))
    first = X[:, 0] > 0
    columns = ([0], [0, 1], [0, 1, 2]), ([0], [0, 2], [0, 1, 2])
    settled = first, ~first
    experts = [constant_expert(np.zeros(1), N) for _ in range(4)]
    return [
        make_chain(
            X,
            np.column_stack([np.full(N, 9.0), np.where(settled[k], 1.0 - k * better, 2.0), ZERO + 0.9]),
            (0.0, 1.0, 20.0),
            columns[k],
            name=("one", "two")[k],
            experts=[experts[0], experts[1 + k], experts[3]],
            shifts=np.array([0.0, shift if k == 0 else 0.0, 0.0]),
        )
        for k in range(2)
    ]


def test_two_orders_are_compared_with_one_without_shifts():
    # with the shift of the first order, two orders seem to lose more than the second one alone
    chains = chosen_by_x0(0.1, shift=5.0)
    one, two, both, *_ = candidates_for(family_of(chains, Screens(matter=False)), 0.1)
    share = np.mean(chains[0].rows.X[:, 0] > 0)  # of those for whom the first order is right
    assert (both.name, both.why_not) == ("two orders", "")
    assert both.history == pytest.approx([two.history[-1], 1.0 + 0.1 * share], abs=0.01)
    assert both.cost == pytest.approx(1.0)
    assert both.loss == pytest.approx(1.0 + 5.1 * share, abs=0.02)
    assert both.loss > two.loss
    assert two.why_not == "no better than two orders, before shifts"
    assert one.why_not
    assert least_of([one, two, both]) is both
    # its rows, for who compares it with others
    at, paid = both.paid()
    assert np.array_equal(at, np.arange(N))
    assert paid == pytest.approx(np.ones(N))
    assert both.value.mean() == pytest.approx(both.loss)


def test_two_orders_that_are_worse_than_one_are_out_of_the_running(monkeypatch):
    def worse(chains, cost_weight):
        found = cross(chains, cost_weight)
        return replace(found, loss=found.loss + 9.0)

    monkeypatch.setattr(module, "cross", worse)
    one, two, both, *_ = candidates_for(family_of(chosen_by_x0(0.1), Screens(matter=False)), 0.1)
    assert both.why_not == "no better than one order, before shifts"
    assert not math.isnan(both.loss)
    assert (bool(one.why_not), two.why_not) == (True, "")


@pytest.mark.parametrize(
    ("chains", "why_not"),
    [
        (lambda: chosen_by_x0(0.1)[:1], "there is one order alone"),
        (lambda: [simple_chain(1.0), simple_chain(1.0)], "perfect choices between them would save next to nothing"),
        # each order is right for half of the rows, and nothing tells which
        (
            lambda: [
                make_chain(
                    np.ones((N, 3)),
                    np.column_stack([ZERO + 9.0, np.where(np.arange(N) % 4 < 2, 1.0 + k, 2.0 - k), ZERO]),
                    (0.0, 1.0, 30.0),
                    (([0], [0, 1], [0, 1, 2]), ([0], [0, 2], [0, 1, 2]))[k],
                )
                for k in range(2)
            ],
            "no row would choose",
        ),
    ],
)
def test_why_there_are_no_choices_is_told(chains, why_not):
    chains = chains()
    both = candidates_for(family_of(chains, Screens(matter=False)), 0.1)[len(chains)]
    assert (both.name, both.why_not) == ("two orders", why_not)
    assert both.grown is None


def test_an_order_that_perfect_gates_would_not_save_gets_none(monkeypatch):
    induced = []
    monkeypatch.setattr(module, "induce", lambda chain, *rest: induced.append(chain.name) or induce(chain, *rest))
    chains = [simple_chain(1.1, name="one"), simple_chain(1.0, name="two")]
    one, two, *_ = candidates_for(family_of(chains, Screens(matter=False)), 0.1)
    assert induced == ["two"]
    assert (one.why_not, two.why_not) == ("no better than the other order, even with better gates", "")
    assert np.isnan(one.loss)
    assert one.grown is None


@pytest.mark.parametrize(
    ("many", "saved", "reach"),
    [
        (False, 0.0, 1.0),  # few rows: only perfect gates that would not be enough are a reason
        (True, 0.0, module.LEAST_REACH),
        (True, 0.4, 0.6),  # half again as much as those of the first order
        (True, 0.9, 1.0),
    ],
)
def test_of_many_rows_the_gates_of_one_order_tell_what_to_expect_of_the_other(many, saved, reach, monkeypatch):
    """Two chains whose best stages lose 2 and 2.2."""
    if many:
        monkeypatch.setattr(module, "MANY_ROWS", 1)

    class Stub:
        rows = range(5)

        def __init__(self, without, least):
            self.without, self.least = without, least

        def least_loss(self, cost_weight):
            return self.least

        def best_stage(self, cost_weight, *, shifted=True):
            assert not shifted
            return self.without

        def mean(self, values):
            return values

    def induced(second_least):
        asked = []

        def induce(chain, cost_weight):
            asked.append(chain)
            return SimpleNamespace(loss=chain.without - saved * (chain.without - chain.least))

        monkeypatch.setattr(module, "induce", induce)
        monkeypatch.setattr(module, "expect_gates", lambda chains: None)
        return len(module._policies([Stub(2.0, 1.0), Stub(2.2, second_least)], 0.1))

    least = 2.2 - (2.2 - (2.0 - saved)) / reach  # with gates of that reach it is just as good as the first
    assert induced(least + 1e-6) == 1
    assert induced(least - 1e-6) == 2


def with_groups(monkeypatch, values, grow=lambda *given: Found(), at=0.1):
    """Partitions that lose `values` when they are tried at a cost weight and much at others; what was asked for."""
    asked = SimpleNamespace(needs=0, tried=[], grown=[])

    def needs_of(*given):
        asked.needs += 1

    def tried(grower, needs, parted, cost_weight):
        asked.tried.append((parted.name, cost_weight))
        return values[parted.name] if cost_weight == pytest.approx(at) else 100.0

    def grown(grower, needs, parted, free):
        asked.grown.append(parted.name)
        return grow()

    found = [SimpleNamespace(name=name, cost_weight=0.1) for name in range(len(values))]
    for name, stub in (("needs_of", needs_of), ("part", lambda *given: found), ("tried", tried)):
        monkeypatch.setattr(module, name, stub)
    monkeypatch.setattr(module.Groups, "grow", grown)
    return asked


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([], []),
        ([1.2, 1.11], []),  # the chain loses 1.1
        ([1.2, 0.9, 0.8, 1.0], [2]),
        ([1.2, 1.2, 1.2, 1.2, 0.1], []),  # the first few are tried, which promise most
    ],
)
def test_groups_are_grown_if_they_do_better_than_chains_when_tried(values, grown, monkeypatch):
    asked = with_groups(monkeypatch, values)
    family = family_of([simple_chain()], Screens())
    *_, branches, _ = candidates_for(family, 0.1)
    # the first one at a larger cost weight, too; where it does better, the others are tried
    tried = [(0, 0.1), (0, 0.8), (1, 0.1), (2, 0.1), (3, 0.1)]
    assert asked.tried == [(name, pytest.approx(weight)) for name, weight in tried if name < len(values)]
    assert asked.grown == grown
    if not grown:
        assert (branches.name, branches.why_not) == ("branches", "rows do not seem to need different features")
        return
    assert (branches.name, branches.why_not, branches.loss) == ("3 branches", "", 0.0)
    assert branches.history == pytest.approx([1.1, 0.0])
    candidates_for(family, 0.003)  # all cost weights share them
    assert (asked.needs, asked.grown) == (1, grown)


def test_groups_are_tried_where_prices_are_weighed_more(monkeypatch):
    """At eight times the cost weight that shows them, where the chain loses 1 and pays 0.8."""
    chain = simple_chain()
    asked = with_groups(monkeypatch, [1.9, 1.7, 1.75], at=0.8)
    candidates_for(family_of([chain], Screens()), 0.1)
    assert asked.tried == [(k, pytest.approx(weight)) for k, weight in [(0, 0.1), (0, 0.8), (1, 0.8), (2, 0.8)]]
    assert asked.grown == [1]


def test_where_prices_have_no_part_nobody_asks_what_rows_need(monkeypatch):
    asked = with_groups(monkeypatch, [0.1])
    *_, branches, _ = candidates_for(family_of([simple_chain()], Screens(matter=False)), 0.1)
    assert asked.needs == 0
    assert (branches.name, branches.why_not) == ("branches", "prices play no part")


def test_why_there_are_no_groups_is_told(monkeypatch):
    with_groups(monkeypatch, [0.1], lambda *given: "a group lies in one fold")
    *_, branches, _ = candidates_for(family_of([simple_chain()], Screens()), 0.1)
    assert (branches.name, branches.why_not) == ("branches", "a group lies in one fold")
    assert math.isnan(branches.loss)


def test_a_lazy_end_competes_with_the_best_so_far(monkeypatch):
    lazy = LazyExpert(constant_expert(np.zeros(1), N), ZERO + 0.5, np.zeros((N, 2), dtype=bool), resolved([1.0, 1.0]))
    for values, name in (([0.1], "3 branches"), ([], "lazy end, as given")):
        with_groups(monkeypatch, values)
        screens = Screens(lazy)
        # without its shift the chain would lose 0.4, and no row would go on to what loses 0.5
        found = candidates_for(family_of([simple_chain(0.3, shifts=np.array([0.0, 0.2]))], screens), 0.1)
        assert least_of(found).name == name
        # what it is compared with: the branches, or the chain with its shift
        assert screens.values[0].mean() == pytest.approx(0.0 if values else 0.6)
        assert found[-1].loss == pytest.approx(0.5)
        assert found[-1].cost == 0.0


def test_what_is_out_of_the_running_is_never_taken():
    good, better = Candidate("good", 1.0), Candidate("better", 0.5, why_not="a reason")
    assert least_of([better, good, Candidate("bad", 2.0), Candidate("none", why_not="not grown")]) is good


# -- nodes --------------------------------------------------------------------------------------------------------


def expert_on(column):
    return Expert(Score(TreePool.identity(1).on_columns(np.array([column])), np.ones((1, 1)), np.zeros(1)), None)


@pytest.mark.parametrize(("evaluation", "members"), [(0.0, 2), (0.1, 1)])
def test_nodes_of_a_chain_are_those_of_its_policy(evaluation, members):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    losses = np.column_stack([np.full(N, 9.0), np.where(X[:, 0] > 0, 1.0, 0.0), ZERO])
    chain = make_chain(X, losses, (0.0, 1.0, 4.0), ([], [0], [0, 1]), experts=[expert_on(j) for j in (0, 0, 1)])
    policy = induce(chain, 0.1)
    nodes = Nodes.chain(chain.experts, policy, resolved([1.0, 3.0], evaluation=evaluation))
    assert policy.stages == [1, 2]
    assert nodes.shape.n_nodes == 2
    assert list(nodes.experts) == chain.experts[1:]
    assert nodes.reached is policy.reached
    assert nodes.routes[1] is None
    route = nodes.routes[0]
    said = [pool.transform(X[:, [0]]).sum(axis=1) for pool in policy.gates[0].pools[:members]]
    assert route.pool.transform(X) @ route.weights[:, 0] == pytest.approx(np.mean(said, axis=0))
