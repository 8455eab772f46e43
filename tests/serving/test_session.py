"""The state machine of one row: equal to the whole matrix in value, path and bill, whatever fails on the way."""

import json
import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

import cstc.model.native as native
import reference
from builders import N_FEATURES
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Paper
from cstc.costs import CostModel
from cstc.model import TreePool, TreeShape
from cstc.serving import OnDemandPredictor, Session, extractor
from cstc.serving.walk import bits
from serving.worlds import (
    COUNTING,
    NAMES,
    TASKS,
    ask_and_tell,
    chain_model,
    check_answer,
    expected_items,
    items_of,
    linear_model,
    random_world,
    without_features,
)


@pytest.mark.parametrize("prefetch", COUNTING)
@pytest.mark.parametrize("task", TASKS)
def test_equals_predict_apply_and_cost(task, prefetch, monkeypatch):
    rng = np.random.default_rng([3, list(TASKS).index(task), prefetch == "node"])
    found = native._native
    for k in range(9):
        monkeypatch.setattr(native, "_native", [found, None, None][k % 3])  # by compiled code, by bits and by pointers
        monkeypatch.setattr(bits, "FEWEST_LEARNERS", [1, 1, 1000][k % 3])
        world = random_world(rng, task)
        model = world.model
        margins, terminals = model.decision_function(world.X), model.apply(world.X)
        items = model.bought_items(world.X, COUNTING[prefetch])
        cost = model.predict_cost(world.X, COUNTING[prefetch])
        for i, told in enumerate(world.rows):
            answer = ask_and_tell(Session(model, prefetch=prefetch), told)
            check_answer(model, answer, margins[i], terminals[i], items[i])
            assert answer.cost == pytest.approx(cost[i], rel=1e-12)


@pytest.mark.parametrize("prefetch", COUNTING)
@pytest.mark.parametrize("task", TASKS)
def test_known_features_and_paid_items_are_free(task, prefetch):
    rng = np.random.default_rng([5, list(TASKS).index(task), prefetch == "node"])
    for _ in range(4):
        world = random_world(rng, task, 30)
        model = world.model
        margins, terminals = model.decision_function(world.X), model.apply(world.X)
        known = rng.random(world.X.shape) < 0.3
        paid = rng.random((len(world.X), model.costs.n_items)) < 0.3
        items = expected_items(model, world.X, terminals, COUNTING[prefetch], known, paid)
        for i, told in enumerate(world.rows):
            session = Session(
                model,
                known={NAMES[j]: told[NAMES[j]] for j in np.flatnonzero(known[i])},
                paid=[model.costs.item_names[r] for r in np.flatnonzero(paid[i])],
                prefetch=prefetch,
            )
            check_answer(model, ask_and_tell(session, told), margins[i], terminals[i], items[i])


def test_values_that_came_along_are_bought_only_when_the_path_needs_them():
    rng = np.random.default_rng(8)
    for _ in range(20):
        world = random_world(rng, "multiclass", 20)
        model = world.model
        margins, terminals = model.decision_function(world.X), model.apply(world.X)
        items = model.bought_items(world.X)
        for i, told in enumerate(world.rows):
            session = Session(model)
            session.tell(told)  # all of it at once
            assert session.finished
            check_answer(model, session.answer(), margins[i], terminals[i], items[i])


@pytest.fixture(scope="module")
def trained():
    """One small trained estimator of every task, with rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6))
    X[rng.random(X.shape) < 0.05] = np.nan
    signal = np.nan_to_num(X[:, 0]) + 2 * (np.nan_to_num(X[:, 1]) > 0.3) * np.nan_to_num(X[:, 2])
    costs = CostModel({**{f"x{j}": 1.0 + j for j in range(6)}, "draw": 2.0}, {"x1": ["draw"], "x2": ["draw"]}, 0.01)
    options = dict(costs=costs, cost_weight=0.003, random_state=0, n_jobs=1)
    options |= dict(n_weak_learners=8, weak_learner_depth=2)
    paper = Paper(depth=2, max_iter=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 10 steps are enough here
        return X, [
            CSTCRegressor(**options).fit(X, signal),
            CSTCRegressor(method=paper, **options).fit(X, signal),
            CSTCClassifier(**options).fit(X, signal > 0.5),
            CSTCClassifier(method=paper, **options).fit(X, np.digitize(signal, [-0.5, 0.8])),
            CSTCRanker(**options).fit(X, np.clip(np.round(signal + 1), 0, 4), qid=np.repeat(np.arange(24), 10)),
        ]


@pytest.mark.parametrize("prefetch", COUNTING)
def test_trained_estimators(trained, prefetch):
    X, estimators = trained
    for estimator in estimators:
        predictions, cost = estimator.predict(X), estimator.predict_cost(X, COUNTING[prefetch])
        terminals = estimator.apply(X)
        for i in range(0, len(X), 3):
            told = {f"x{j}": X[i, j] for j in range(6)}
            answer = ask_and_tell(Session(estimator, prefetch=prefetch), told)
            assert (answer.status, answer.terminal) == ("complete", terminals[i])
            assert answer.value == pytest.approx(predictions[i], rel=1e-9)
            assert answer.cost == pytest.approx(cost[i], rel=1e-12)
            if answer.probabilities is not None:
                assert answer.probabilities == pytest.approx(estimator.predict_proba(X[i : i + 1])[0], rel=1e-9)


# ---------------------------------------------------------------------------------------- ask and tell


@pytest.fixture
def world():
    """A world whose rows need more than one wave."""
    rng = np.random.default_rng(0)
    while True:
        world = random_world(rng, "binary", 4, n_trees=12, missing=False)
        session = Session(world.model)
        if len(session.wanted()) > 1:
            session.tell({name: world.rows[0][name] for name in session.wanted()})
            if session.wanted():
                return world


def test_values_may_come_one_by_one(world):
    model, told = world.model, world.rows[0]
    session = Session(model)
    while wanted := session.wanted():
        session.tell({wanted[0]: told[wanted[0]]})
        assert wanted[0] not in session.wanted()
    margins, terminals, items = model.decision_function(world.X), model.apply(world.X), model.bought_items(world.X)
    check_answer(model, session.answer(), margins[0], terminals[0], items[0])


def test_what_a_wave_will_cost_is_known_before(world):
    session = Session(world.model)
    while session.wanted():
        before, offer = session.cost, session.wanted_items()
        session.tell({name: world.rows[0][name] for name in session.wanted()})
        assert set(offer) <= set(session.answer().items)
        assert session.cost >= before + sum(offer.values()) - 1e-9


def test_an_answer_before_the_end_says_stopped_and_the_session_goes_on(world):
    session = Session(world.model)
    first = session.answer()
    assert (first.status, first.cost, first.node) == ("stopped", 0.0, -1)
    assert first.margins == world.model.constant.tolist()
    assert ask_and_tell(session, world.rows[0]).status == "complete"
    assert first.trail == []


def check_without(world, answer, gone, paid_for, i=0):
    """A row that went on without some features, held to plain loops; `paid_for` are features of calls that failed."""
    path, margins, items = without_features(world.model, world.X[i], gone)
    assert answer.path == path
    assert answer.node == path[-1]
    assert answer.terminal is None
    np.testing.assert_allclose(answer.margins, margins, rtol=1e-9, atol=1e-9)
    assert set(answer.items) == items | items_of(world.model, paid_for)
    assert answer.cost == pytest.approx(
        sum(answer.items.values()) + world.model.costs.evaluation * answer.n_evaluated, rel=1e-12
    )


def test_a_row_goes_on_without_a_failed_source_which_is_charged(world):
    session = Session(world.model)
    wanted, offer = session.wanted(), session.wanted_items()
    session.fail(wanted, "the laboratory is closed")
    assert not set(session.wanted()) & set(wanted)
    answer = ask_and_tell(session, world.rows[0])
    assert (answer.status, answer.reason) == ("failed", "the laboratory is closed")
    assert set(answer.items) >= set(offer)
    check_without(world, answer, wanted, wanted)
    assert answer.trail[0]["outcome"] == "failed: the laboratory is closed"
    assert answer.trail[0]["items"] == offer
    assert answer.basis.endswith(f"features: {', '.join(wanted)} failed")
    assert answer.expected_loss is None


def test_a_call_that_was_never_made_is_not_charged(world):
    session = Session(world.model)
    wanted = session.wanted()
    session.fail(wanted, "no thread", charged=False)
    assert session.answer().items == {}
    answer = ask_and_tell(session, world.rows[0])
    assert answer.status == "failed"
    check_without(world, answer, wanted, [])


def test_only_wanted_features_can_fail(world):
    session = Session(world.model)
    unwanted = next(name for name in NAMES if name not in session.wanted())
    with pytest.raises(ValueError, match=f"'{unwanted}' is not wanted now; wanted: "):
        session.fail([unwanted], "why not")


def test_a_row_goes_on_as_soon_as_a_failure_decides_the_node(world):
    for act in (lambda s, name: s.fail([name], "closed"), lambda s, name: s.tell({name: [1, 2]})):
        session = Session(world.model)
        first, *others = session.wanted()
        assert others
        act(session, first)
        assert first not in session.wanted()
        assert set(session.answer().items) == items_of(world.model, [first])  # so far
        answer = ask_and_tell(session, world.rows[0])
        assert answer.status == "failed"
        check_without(world, answer, [first], [first])


def test_what_was_fetched_in_the_same_wave_is_still_charged(world):
    session = Session(world.model)
    first, second, *_ = wanted = session.wanted()
    session.fail([first], "closed")
    for _ in range(2):  # the second time it changes nothing
        session.tell({second: world.rows[0][second]})
        assert set(session.answer().items) == items_of(world.model, [first, second])
    session.tell({name: world.rows[0][name] for name in wanted if name != first})  # the rest of the wave
    assert set(session.answer().items) == items_of(world.model, wanted)
    ask_and_tell(session, world.rows[0])
    before = session.answer()
    assert before.status == "failed"
    check_without(world, before, [first], wanted)
    session.tell(world.rows[0])  # values that nobody asked for
    assert session.answer().items == before.items
    with pytest.raises(ValueError, match=f"'{first}' is not wanted now; the session is finished"):
        session.fail([first], "again")


def test_what_comes_after_the_end_is_charged_if_it_was_asked_for():
    names = ["a", "b", "c"]
    model = linear_model(CostModel({"a": 1.0, "b": 2.0, "c": 4.0}), names)
    session = Session(model)
    session.fail(["a"], "closed")
    session.tell({"c": 3.0})
    session.fail(["b"], "closed too")  # of the wave before, and wanted again
    assert session.finished
    assert session.answer().value == 3.0
    session = Session(model, prefetch="node")
    session.fail(["a"], "closed")
    session.stop("stopped", "enough")
    assert session.cost == 1.0
    session.tell({"b": 1.0})
    session.fail(["c"], "closed", charged=False)
    assert session.cost == 3.0
    assert session.answer().status == "stopped"


def test_later_failures_of_the_same_wave_are_charged_too(world):
    session = Session(world.model)
    wanted = session.wanted()
    for name in wanted:
        session.fail([name], f"no {name}")
    assert set(session.answer().items) == items_of(world.model, wanted)
    answer = ask_and_tell(session, world.rows[0])
    assert answer.reason.startswith(f"no {wanted[0]}")
    check_without(world, answer, [name for name in wanted if f"no {name}" in answer.reason], wanted)


def test_a_row_may_lose_one_source_after_the_other():
    """a fails, and b, asked for with it, is wanted still; c comes along unasked, and d fails further down."""
    prices = {"a": 5.0, "b": 5.0, "c": 5.0, "d": 5.0}
    tree = chain_model(CostModel(prices), ["a", "b", "c", "d"], [["a", "b"], ["c"], ["d"]])
    session = Session(tree)
    assert session.wanted() == ["a", "b"]
    session.fail(["a"], "no a")
    session.tell({"c": 1.0})
    assert session.answer().items == {"a": 5.0}  # c was not asked for; it is put aside
    assert session.wanted() == ["b"]
    session.tell({"b": 1.0})
    assert session.answer().items == {"a": 5.0, "b": 5.0, "c": 5.0}
    session.fail(["d"], "no d")
    assert session.finished
    assert (session.cost, session.answer().reason) == (20.0, "no a; no d")


def test_the_budget_holds_when_a_source_fails():
    """The call for a is paid when it fails, and b was asked for with it: c cannot be had."""
    tree = chain_model(CostModel({"a": 5.0, "b": 5.0, "c": 5.0}), ["a", "b", "c"], [["a", "b"], ["c"]])
    for prefetch in COUNTING:
        session = Session(tree, budget=10.0, prefetch=prefetch)
        assert session.wanted() == ["a", "b"]
        session.fail(["a"], "closed")
        while wanted := session.wanted():
            session.tell(dict.fromkeys(wanted, 1.0))
        session.tell({"b": 1.0})
        answer = session.answer()
        assert (answer.status, answer.cost) == ("budget", 10.0)
        assert answer.reason.startswith("closed; with 'c' the cost would be 15, above the budget of 10")
        assert answer.basis == "1 of 3 features: a failed, the budget of 10 does not reach further"


def test_with_the_whole_node_fetched_a_row_goes_on_without_what_decides():
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(100):
        world = random_world(rng, "regression", 1)
        session = Session(world.model, prefetch="node")
        certain = Session(world.model).wanted()  # what the first branches look at
        if len(session.wanted()) > 1:
            session.fail(certain[:1], "closed")
            assert certain[0] not in session.wanted()
            answer = ask_and_tell(session, world.rows[0])
            assert answer.status == "failed"
            path, margins, items = without_features(world.model, world.X[0], certain[:1])
            assert answer.path == path
            np.testing.assert_allclose(answer.margins, margins, rtol=1e-9, atol=1e-9)
            assert set(answer.items) >= items | items_of(world.model, certain[:1])
            decided += 1
    assert decided > 10


def test_many_sources_that_fail_one_after_the_other():
    """In turn, as calls do, and all at once, as values that came along and cannot be used."""
    n = 300
    names = [f"x{j}" for j in range(n)]
    model = linear_model(CostModel(dict.fromkeys(names, 1.0)), names)
    # one learner that looks at the next column only if the one before is positive
    chain = np.arange(n)
    pool = TreePool(
        roots=np.array([0]),
        feature=np.concatenate([chain, np.full(n + 1, -1)]),
        threshold=np.zeros(2 * n + 1),
        left=np.concatenate([n + chain, n + np.arange(n + 1)]),
        right=np.concatenate([chain[1:], [2 * n], n + np.arange(n + 1)]),
        missing_left=np.zeros(2 * n + 1, dtype=bool),
        zero_is_missing=np.zeros(2 * n + 1, dtype=bool),
        category_start=np.full(2 * n + 1, -1),
        category_count=np.zeros(2 * n + 1, dtype=int),
        category_left=np.zeros(0, dtype=bool),
        value=np.concatenate([np.zeros(n), -np.ones(n), [1.0]]),
        linear_feature=np.full(2 * n + 1, -1),
        share_left=np.full(2 * n + 1, 0.5),
    )
    model = replace(
        model,
        pool=pool,
        shape=TreeShape.full(1),
        predict_weights=np.ones((1, 1, 1)),
        route_weights=np.zeros((1, 1)),
        fallback_weights=None,
    )
    few = 60
    session = Session(model)
    for k in range(few):
        assert session.wanted() == [f"x{k}"]
        session.fail([f"x{k}"], "down")
    session.tell({f"x{few}": -1.0})
    answer = session.answer()
    assert (answer.status, answer.cost) == ("failed", few + 1.0)
    expected = reference.averaged_learner(pool, 0, [0.0] * few + [-1.0], {few}, np.zeros(n))
    assert answer.value == pytest.approx(expected)
    with sources_down(model, names[:few]) as predictor:
        served = [predictor.predict(0), *predictor.predict_many([0])]
    assert [(each.status, each.cost, each.value) for each in served] == [("failed", few + 1.0, answer.value)] * 2
    session = Session(model)
    session.tell(dict.fromkeys(names, "down"))
    answer = session.answer()
    assert (answer.status, answer.cost) == ("failed", float(n))
    assert answer.value == model.constant[0]  # nothing is known at all


def sources_down(model, down):
    def source(name):
        def fetch(row):
            if name in down:
                raise OSError("down")
            return -1.0

        return extractor(provides=[name], name=name, instant=True)(fetch)

    return OnDemandPredictor(model, [source(name) for name in model.schema.feature_names])


def test_with_the_whole_node_fetched_a_fault_that_no_branch_needs_does_no_harm():
    rng = np.random.default_rng(1)
    harmless = 0
    for _ in range(100):
        world = random_world(rng, "regression", 1)
        session = Session(world.model, prefetch="node")
        needed = expected_items_by_feature(world)
        failed = False
        while wanted := session.wanted():
            bad = [name for name in wanted if not needed[NAMES.index(name)]]
            failed |= bool(bad)
            if bad:
                session.fail(bad, "no matter")
            good = [name for name in wanted if name not in bad]
            if good:
                session.tell({name: world.rows[0][name] for name in good})
        answer = session.answer()
        assert answer.status == "complete"
        assert answer.cost == pytest.approx(world.model.predict_cost(world.X, "learner")[0])
        harmless += failed
    assert harmless > 10


def expected_items_by_feature(world):
    features = replace(
        world.model.costs, feature_items=np.eye(N_FEATURES, dtype=bool), prices=np.ones(N_FEATURES), item_names=NAMES
    )
    return world.model.with_costs(features).bought_items(world.X)[0]


def test_arguments_of_the_wrong_kind(world):
    session = Session(world.model)
    for wrong in (["x0"], "x0", 5, None, dict):
        with pytest.raises(TypeError, match=r"values is a .*; it must be a mapping of feature names to values"):
            session.tell(wrong)
        with pytest.raises(TypeError, match="values is a "):
            session.check(wrong)
    with pytest.raises(TypeError, match="known is a list; it must be a mapping"):
        Session(world.model, known=["x0"])
    name = session.wanted()[0]
    with pytest.raises(ValueError, match=rf"features is the text '{name}'; give a list of names: \['{name}'\]"):
        session.fail(name, "closed")
    assert not session.finished
    assert session.cost == 0.0


def test_unknown_names_are_errors(world):
    model = world.model
    with pytest.raises(ValueError, match="unknown feature 'age'; the model's features are 'x0', 'x1'"):
        Session(model, known={"age": 3})
    with pytest.raises(ValueError, match="unknown item 'age'; the model's items are "):
        Session(model, paid=["age"])
    with pytest.raises(ValueError, match="unknown feature 'age'"):
        Session(model).tell({"age": 3})
    with pytest.raises(ValueError, match="give a list of names"):
        Session(model, paid="item 0")
    with pytest.raises(ValueError, match="prefetch is 'all'"):
        Session(model, prefetch="all")
    with pytest.raises(TypeError, match="model is a int"):
        Session(3)
    with pytest.raises(ValueError, match="this CSTCRegressor is not fitted yet"):
        Session(CSTCRegressor())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (math.nan, "'x0' is missing, where training saw no missing values and the model needs the number itself"),
        (None, "'x0' is missing, where training saw no missing values and the model needs the number itself"),
        ("high", "x0 is the text 'high'; it must be a number"),
        (b"3", "x0 is the text b'3'; it must be a number"),
        ([1.0, 2.0], r"x0 is \[1.0, 2.0\], which is not one number"),
        (np.ones(1), r"x0 is array\(\[1.\]\), which is not one number"),
        (math.inf, "x0 is inf; it must be finite"),
        (10**400, "x0 is 1000.*; it must be a number"),
        (1j, "x0 is 1j, a complex; it must be a number"),
        (object(), "a object; it must be a number"),
    ],
)
def test_nonsense_is_a_fault(world, raw, message):
    session = Session(world.model)
    with pytest.raises(ValueError, match=message):
        session.check({"x0": raw})
    with pytest.raises(ValueError, match=message):
        Session(world.model, known={"x0": raw})
    bad = [name for name in session.wanted() if name != "x5"]
    assert bad
    session.tell(dict.fromkeys(bad, raw))
    assert not set(session.wanted()) & set(bad)
    assert set(session.answer().items) == items_of(world.model, bad)
    answer = ask_and_tell(session, world.rows[0])
    assert answer.status == "failed"
    assert re.search(message.replace("x0", bad[0]), answer.reason)
    check_without(world, answer, bad, bad)


@pytest.mark.parametrize("raw", [1, 1.0, True, np.float32(1), np.int64(1), np.array(1.0)])
def test_all_kinds_of_numbers_are_taken(raw):
    world = random_world(np.random.default_rng(2), "regression", 1, missing=False)
    world.X[:] = 1.0
    told = dict.fromkeys(NAMES, raw) | {"x5": "kind 1"}
    assert ask_and_tell(Session(world.model), told).value == pytest.approx(world.model.predict(world.X)[0])


def test_a_missing_value_is_paid_where_training_saw_some():
    rng = np.random.default_rng(9)
    world = random_world(rng, "regression", 30)
    X = np.full_like(world.X, np.nan)
    answer = ask_and_tell(Session(world.model), dict.fromkeys(NAMES))
    assert answer.status == "complete"
    assert answer.terminal == world.model.apply(X)[0]
    assert answer.cost == pytest.approx(world.model.predict_cost(X)[0])


# ------------------------------------------------------------------------------------------ the trail


def test_the_trail_says_why_each_item_was_bought():
    rng = np.random.default_rng(12)
    routed = 0
    for _ in range(30):
        world = random_world(rng, "binary", 5)
        for told in world.rows:
            session = Session(world.model)
            while wanted := session.wanted():
                session.tell({name: told[name] for name in wanted}, source="someone", seconds=0.25)
            answer = session.answer()
            trail = json.loads(answer.to_json())["trail"]
            items = [item for entry in trail if entry["event"] == "bought" for item in entry["items"]]
            assert sorted(items) == sorted(answer.items)  # each once
            margin = threshold = None
            for entry in trail:
                node = entry["node"]
                assert node in answer.path
                if entry["event"] == "gate":
                    margin, threshold = entry["margin"], entry["threshold"]
                    child = (world.model.shape.upper if margin > threshold else world.model.shape.lower)[node]
                    assert entry["to"] == (f"node {child}" if child >= 0 else f"terminal {-1 - child}")
                    continue
                assert (entry["margin"], entry["threshold"]) == (margin, threshold)
                assert entry["price"] == pytest.approx(sum(entry["items"].values()))
                assert (entry["source"], entry["latency"], entry["outcome"]) == ("someone", 0.25, "ok")
                routed += margin is not None
    assert routed > 20


def test_json_of_an_answer(world):
    answer = ask_and_tell(Session(world.model), world.rows[0])
    data = json.loads(answer.to_json(indent=1))
    assert data["value"] in ("no", "yes")
    assert sum(data["probabilities"].values()) == pytest.approx(1.0)
    assert set(data["probabilities"]) == {"no", "yes"}
    assert data["cost"] == answer.cost
    assert answer.complete
