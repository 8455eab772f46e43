"""Predictions on demand: what the sources are called for, in which order, how long it may take."""

import asyncio
import copy
import copyreg
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import N_FEATURES, PROPERTY
from cstc.costs import CostModel
from cstc.model import FittedTree, Schema, TreePool, TreeShape
from cstc.serving import (
    BudgetReached,
    DeadlineReached,
    IncompleteAnswer,
    OnDemandPredictor,
    Session,
    SourceFailed,
    extractor,
    measure_costs,
)
from cstc.serving.walk import bits
from serving.worlds import NAMES, TASKS, Sources, check_answer, expected_items, random_world, used_features

COUNTING = {"branch": "branch", "node": "learner"}
KINDS = {
    "instant": dict(instant=True),
    "told what is wanted": dict(instant=True, told=True),
    "batch": dict(batch=True, instant=True),
}


def check_world(world, answers, sources, counting, known=None, paid=None):
    """Values, paths and bills equal the whole matrix; what was called for is what was needed, once."""
    model = world.model
    known = np.zeros(world.X.shape, dtype=bool) if known is None else known
    paid = np.zeros((len(world.X), model.costs.n_items), dtype=bool) if paid is None else paid
    margins, terminals = model.decision_function(world.X), model.apply(world.X)
    items = expected_items(model, world.X, terminals, counting, known, paid)
    for i, answer in enumerate(answers):
        check_answer(model, answer, margins[i], terminals[i], items[i])
    if not known.any() and not paid.any():
        np.testing.assert_allclose([a.cost for a in answers], model.predict_cost(world.X, counting), rtol=1e-12)
    sources.check(used_features(model, world.X, terminals, counting) & ~known)


@pytest.mark.parametrize("prefetch", COUNTING)
@pytest.mark.parametrize("task", TASKS)
def test_equals_predict_apply_and_cost_with_calls_counted_in_the_sources(task, prefetch, monkeypatch):
    # 8 x 21 models with 60 rows each: 10,080 rows
    rng = np.random.default_rng([11, list(TASKS).index(task), prefetch == "node"])
    for k in range(21):
        monkeypatch.setattr(bits, "FEWEST_LEARNERS", [1, 1000][k // 2 % 2])  # by bits and by pointers
        world = random_world(rng, task)
        sources = Sources(rng, world.rows, **list(KINDS.values())[k % 3])
        n, n_items = len(world.X), world.model.costs.n_items
        known = rng.random((n, N_FEATURES)) < 0.3 * (k % 2)
        paid = rng.random((n, n_items)) < 0.3 * (k % 2)
        with OnDemandPredictor(world.model, sources.extractors, prefetch=prefetch) as predictor:
            answers = [
                predictor.predict(
                    i,
                    known={NAMES[j]: told[NAMES[j]] for j in np.flatnonzero(known[i])},
                    paid=[world.model.costs.item_names[r] for r in np.flatnonzero(paid[i])],
                )
                for i, told in enumerate(world.rows)
            ]
        check_world(world, answers, sources, COUNTING[prefetch], known, paid)


@pytest.mark.parametrize(
    "options", [dict(), dict(timeout=5.0), dict(batch=True), dict(batch=2), dict(asynchronous=True)]
)
def test_threads_batches_and_coroutines_give_the_same(options):
    rng = np.random.default_rng(2)
    for task in TASKS:
        world = random_world(rng, task, 12)
        for prefetch, counting in COUNTING.items():
            sources = Sources(rng, world.rows, **options)
            with OnDemandPredictor(world.model, sources.extractors, prefetch=prefetch) as predictor:
                check_world(world, [predictor.predict(i) for i in range(12)], sources, counting)
            sources = Sources(rng, world.rows, **options)
            with OnDemandPredictor(world.model, sources.extractors, prefetch=prefetch) as predictor:
                check_world(world, predictor.predict_many(range(12)), sources, counting)


@pytest.mark.parametrize("options", [dict(), dict(instant=True), dict(batch=True), dict(asynchronous=True)])
def test_on_an_event_loop(options):
    rng = np.random.default_rng(3)
    world = random_world(rng, "multiclass", 40)
    for prefetch, counting in COUNTING.items():
        one, many = (Sources(rng, world.rows, **options) for _ in range(2))

        async def serve(one=one, many=many, prefetch=prefetch):
            with OnDemandPredictor(world.model, one.extractors, prefetch=prefetch) as predictor:
                answers = await asyncio.gather(*(predictor.apredict(i) for i in range(40)))
            with OnDemandPredictor(world.model, many.extractors, prefetch=prefetch) as predictor:
                return answers, await predictor.apredict_many(range(40))

        answers, many_answers = asyncio.run(serve())
        check_world(world, answers, one, counting)
        check_world(world, many_answers, many, counting)


@PROPERTY
@given(seed=st.integers(0, 10**6))
def test_budgets_hold_for_every_row(seed):
    rng = np.random.default_rng(seed)
    world = random_world(rng, rng.choice(list(TASKS)), 10)
    sources = Sources(rng, world.rows, batch=bool(rng.integers(2)), instant=True)
    budgets = [None, *rng.uniform(0, 1.5 * world.model.predict_cost(world.X).max() + 0.1, size=9)]
    with OnDemandPredictor(world.model, sources.extractors) as predictor:
        together = predictor.predict_many(range(10), budget=budgets)
        alone = [predictor.predict(i, budget=budget) for i, budget in enumerate(budgets)]
    for answer, same, budget in zip(together, alone, budgets, strict=True):
        assert answer.cost <= (np.inf if budget is None else budget)
        assert (answer.status, answer.cost, answer.node) == (same.status, same.cost, same.node)
        assert (answer.status == "complete") == (answer.terminal is not None)


# ---------------------------------------------------------------------------- a model made by hand


def stump(feature, threshold=0.0, low=-1.0, high=1.0):
    """One split; the left leaf first."""
    return dict(feature=feature, threshold=threshold, low=low, high=high)


def pool_of(*stumps):
    rows = []
    for k, s in enumerate(stumps):
        at = 3 * k
        rows += [
            (s["feature"], s["threshold"], at + 1, at + 2, 0.0),
            (-1, 0.0, at + 1, at + 1, s["low"]),
            (-1, 0.0, at + 2, at + 2, s["high"]),
        ]
    feature, threshold, left, right, value = (np.array(column) for column in zip(*rows, strict=True))
    none, off = np.full(len(rows), -1), np.zeros(len(rows), dtype=bool)
    return TreePool(
        roots=np.arange(0, len(rows), 3), feature=feature, threshold=threshold, left=left, right=right, value=value,
        missing_left=off, zero_is_missing=off, category_start=none, category_count=np.zeros(len(rows), dtype=int),
        category_left=np.zeros(0, dtype=bool), linear_feature=none,
    )  # fmt: skip


@pytest.fixture
def clinic():
    """Age decides whether a laboratory is asked; glucose and insulin need one blood draw."""
    costs = CostModel(
        {"age": 1.0, "bmi": 1.0, "draw": 5.0, "glucose": 15.0, "insulin": 20.0},
        {"glucose": ["draw"], "insulin": ["draw"]},
    )
    names = ["age", "bmi", "glucose", "insulin"]
    predict = np.zeros((4, 3, 1))
    predict[[0, 1], 0, 0] = 1.0, 0.5  # age and bmi
    predict[[0, 2, 3], 1, 0] = 1.0, 2.0, 2.0  # age, glucose and insulin
    predict[1, 2, 0] = 3.0  # bmi
    route = np.zeros((4, 3))
    route[0, 0] = 1.0
    return FittedTree(
        pool=pool_of(*(stump(j) for j in range(4))),
        shape=TreeShape.full(2),
        predict_weights=predict,
        predict_intercepts=np.array([[10.0], [100.0], [1000.0]]),
        route_weights=route,
        thresholds=np.zeros(3),
        constant=np.array([7.0]),
        costs=costs.resolve(names),
        link="identity",
        schema=Schema(names, {}, np.zeros(4, dtype=bool)),
    )


OLD = {"age": 1.0, "bmi": 1.0, "glucose": 1.0, "insulin": -1.0}
YOUNG = {"age": -1.0, "bmi": 1.0, "glucose": 1.0, "insulin": 1.0}


def sources_of(calls, **options):
    """One source for each person's features, one for the laboratory; `calls` notes who was called."""

    @extractor(provides=["age", "bmi"], **options)
    def person(row):
        calls.append("person")
        return {"age": row["age"], "bmi": row["bmi"]}

    @extractor(provides=["glucose", "insulin"], **options)
    def lab(row):
        calls.append("lab")
        return [row["glucose"], row["insulin"]]

    return [person, lab]


def test_a_row_pays_for_its_own_path(clinic):
    calls = []
    with OnDemandPredictor(clinic, sources_of(calls)) as predictor:
        young, old = predictor.predict(YOUNG), predictor.predict(OLD)
    assert (young.value, young.cost, list(young.items)) == (1003.0, 2.0, ["age", "bmi"])
    assert (old.value, old.cost, list(old.items)) == (101.0, 41.0, ["age", "draw", "glucose", "insulin"])
    assert calls == ["person", "person", "lab"]  # bmi came along with age, and is bought without another call


def test_known_and_paid(clinic):
    calls = []
    with OnDemandPredictor(clinic, sources_of(calls)) as predictor:
        answer = predictor.predict(OLD, known={"age": 1.0, "insulin": -1.0}, paid=["draw"])
    assert (answer.value, answer.cost, calls) == (101.0, 15.0, ["lab"])


def test_what_was_already_paid_for_serves_an_early_answer(clinic):
    calls = []
    with OnDemandPredictor(clinic, sources_of(calls)) as predictor:
        poor = predictor.predict(OLD, budget=39.99)
        # age counts, and glucose and insulin with their averages, which are 0
        assert (poor.status, poor.cost, poor.node, poor.value) == ("budget", 1.0, 1, 101.0)
        assert poor.basis == "1 of 3 features: the budget of 39.99 does not reach further"
        assert "41" in poor.reason  # the draw is not bought if the rest of the wave does not fit
        known = predictor.predict(OLD, budget=39.99, known={"bmi": 1.0})
        assert (known.status, known.cost, known.node, known.value) == ("budget", 1.0, 0, 11.5)
        nothing = predictor.predict(OLD, budget=0.5)
        assert (nothing.status, nothing.cost, nothing.node, nothing.value) == ("budget", 0.0, -1, 7.0)
    assert "lab" not in calls


def test_calls_of_one_wave_run_in_parallel(clinic):
    together = threading.Barrier(2, timeout=5)

    def part(name):
        @extractor(provides=[name], name=name)
        def fetch(row):
            together.wait()
            return row[name]

        return fetch

    sources = [extractor(provides=["age", "bmi"])(lambda row: row), part("glucose"), part("insulin")]
    with OnDemandPredictor(clinic, sources) as predictor:
        assert predictor.predict(OLD).complete
        assert predictor.predict(OLD, deadline=5.0).complete
        assert asyncio.run(predictor.apredict(OLD)).complete


def test_a_single_call_without_a_time_limit_needs_no_thread(clinic):
    names = set()
    source = extractor(provides=list(OLD))(lambda row: (names.add(threading.current_thread()), row)[1])
    with OnDemandPredictor(clinic, [source]) as predictor:
        assert predictor.predict(OLD).complete
        assert names == {threading.current_thread()}
        assert predictor.n_threads == 0
        predictor.predict(OLD, deadline=10)
        assert len(names) == 2


def test_of_calls_without_a_time_limit_the_longest_is_made_by_the_caller(clinic):
    threads = {}

    def part(name, seconds, **options):
        @extractor(provides=[name], name=name, **options)
        def fetch(row):
            time.sleep(seconds)
            threads[name] = threading.current_thread()
            return row[name]

        return fetch

    here = threading.current_thread()
    for options, by_caller in (({}, {"insulin"}), ({"timeout": 5.0}, set()), ({"retries": 1}, set())):
        sources = [extractor(provides=["age", "bmi"], instant=True)(lambda row: row)]
        sources += [part("glucose", 0.002, **options), part("insulin", 0.01, **options)]
        with OnDemandPredictor(clinic, sources, prefetch="node") as predictor:
            for _ in range(3):  # how long they take is known after the first time
                assert predictor.predict(OLD).complete
            assert {name for name, thread in threads.items() if thread is here} == by_caller
            predictor.predict(OLD, deadline=10)
            assert here not in threads.values()


def test_sources_that_prove_quick_are_called_without_threads(clinic):
    sources = [extractor(provides=[name], name=name)(lambda row, name=name: row[name]) for name in OLD]
    with OnDemandPredictor(clinic, sources, prefetch="node", idle=0.05) as predictor:
        for _ in range(20):
            predictor.predict(OLD)
        time.sleep(0.3)
        predictor.predict(OLD)
        assert predictor.n_threads == 0


def test_batches_take_all_rows_that_need_them(clinic):
    calls = []

    @extractor(provides=["age", "bmi"], batch=True)
    def person(rows):
        calls.append(("person", len(rows)))
        return {"age": np.array([row["age"] for row in rows]), "bmi": [row["bmi"] for row in rows]}

    @extractor(provides=["glucose", "insulin"], batch=3)
    def lab(rows):
        calls.append(("lab", len(rows)))
        return [(row["glucose"], row["insulin"]) for row in rows]

    with OnDemandPredictor(clinic, [person, lab]) as predictor:
        answers = predictor.predict_many([OLD, YOUNG] * 4 + [YOUNG])
    assert [answer.value for answer in answers] == [101.0, 1003.0] * 4 + [1003.0]
    assert sorted(calls) == [("lab", 1), ("lab", 3), ("person", 9)]


def test_many_rows_do_not_keep_the_event_loop(clinic):
    threads = set()

    @extractor(provides=list(OLD), instant=True)
    def table(row):
        threads.add(threading.current_thread())
        time.sleep(0.002)
        return row

    async def main(predictor):
        task = asyncio.create_task(predictor.apredict_many([OLD, YOUNG] * 50))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0.002)
        return turns, await task

    with OnDemandPredictor(clinic, [table]) as predictor:
        turns, answers = asyncio.run(main(predictor))
        assert turns > 10
        assert threading.current_thread() not in threads
        assert [answer.value for answer in answers] == [101.0, 1003.0] * 50
        few = asyncio.run(predictor.apredict_many([OLD, YOUNG]))
        assert [answer.value for answer in few] == [101.0, 1003.0]
        with pytest.raises(BudgetReached):
            asyncio.run(predictor.apredict_many([OLD] * 50, budget=1, strict=True))


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
def test_what_belongs_to_the_caller_passes_through_from_many_rows(clinic, passing):
    @extractor(provides=list(OLD), instant=True)
    def table(row):
        raise passing

    with OnDemandPredictor(clinic, [table]) as predictor, pytest.raises(passing):
        asyncio.run(predictor.apredict_many([OLD] * 50))


def test_a_caller_of_many_rows_may_leave(clinic):
    calls = []

    @extractor(provides=list(OLD), instant=True)
    def table(row):
        calls.append(row)
        time.sleep(0.002)
        return row

    async def leave(predictor):
        tasks = [asyncio.create_task(predictor.apredict_many([OLD] * 50)) for _ in range(4)]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True)
        )

    with OnDemandPredictor(clinic, [table], idle=0.05) as predictor:
        before = threading.active_count()
        asyncio.run(leave(predictor))
        limit = time.perf_counter() + 5.0
        while threading.active_count() > before and time.perf_counter() < limit:
            time.sleep(0.02)
        assert threading.active_count() <= before  # a thread of an earlier test may have ended meanwhile
        assert 0 < len(calls) <= 100  # two threads, and what still waited in line was never begun


def test_one_budget_and_one_mapping_for_each_row(clinic):
    with OnDemandPredictor(clinic, sources_of([])) as predictor:
        answers = predictor.predict_many([OLD] * 3, budget=[None, 5, 0], known=[None, {"age": -1.0}, {}])
        assert [answer.cost for answer in answers] == [41.0, 1.0, 0.0]
        assert predictor.predict_many([]) == []
        with pytest.raises(ValueError, match="known must have one entry for each of the 2 rows"):
            predictor.predict_many([OLD] * 2, known=[{}])
        with pytest.raises(ValueError, match="budget must have one entry"):
            predictor.predict_many([OLD] * 2, budget=[3])


def test_budgets_and_known_features_of_all_kinds(clinic):
    with OnDemandPredictor(clinic, sources_of([])) as predictor:

        def costs(**options):
            return [answer.cost for answer in predictor.predict_many([OLD] * 2, **options)]

        for budget in (np.array([41.0, 1.0]), pd.Series([41.0, 1.0], index=[1, 0]), (41, "1")):
            assert costs(budget=budget) == [41.0, 1.0]
        for budget in ("41", 41, np.float64(41), np.array(41)):
            assert costs(budget=budget) == [41.0, 41.0]
        assert costs(known=iter([{"age": -1.0}, None])) == [1.0, 41.0]
        for wrong in ({1.0, 2.0}, {"a": 1, "b": 2}):
            with pytest.raises(ValueError, match=r"budget is a .*; it must have one entry for each of the 2 rows"):
                costs(budget=wrong)
        for wrong in (5, {"age": 1.0}, "age"):
            with pytest.raises(ValueError, match=r"known is a .*; it must have one entry for each of the 2 rows"):
                costs(known=wrong)
        for wrong in (["age"], 5, "age", {"age"}):
            with pytest.raises(TypeError, match=r"known is a .*; it must be a mapping of feature names to values"):
                predictor.predict(OLD, known=wrong)
        with pytest.raises(TypeError, match="known is a str; it must be a mapping"):
            costs(known=["age", "bmi"])
        assert predictor.predict(OLD, known=pd.Series({"age": -1.0})).cost == 1.0


def test_strict_mode_raises_with_the_answer(clinic):
    calls = []

    @extractor(provides=["glucose", "insulin"])
    def lab(row):
        raise ConnectionError("line is dead")

    person = sources_of(calls)[0]
    with OnDemandPredictor(clinic, [person, lab], strict=True) as predictor:
        assert predictor.predict(YOUNG).complete
        with pytest.raises(SourceFailed, match="failed: lab: ConnectionError: line is dead") as failed:
            predictor.predict(OLD)
        assert isinstance(failed.value.__cause__, ConnectionError)
        assert failed.value.answer.cost == 41.0
        with pytest.raises(BudgetReached, match="above the budget of 3"):
            predictor.predict(OLD, budget=3)
        with pytest.raises(DeadlineReached, match="the deadline came before age"):
            predictor.predict(OLD, deadline=0)
        with pytest.raises(IncompleteAnswer):
            predictor.predict_many([YOUNG, OLD])
        assert predictor.predict(OLD, strict=False).status == "failed"


@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("n", [1, 10])
def test_strict_mode_finishes_and_counts_all_rows(clinic, n, on_loop):
    with OnDemandPredictor(clinic, sources_of([]), strict=True) as predictor:
        rows = [YOUNG, OLD, YOUNG] * n

        def ask():
            if on_loop:
                return asyncio.run(predictor.apredict_many(rows, budget=3))
            return predictor.predict_many(rows, budget=3)

        with pytest.raises(BudgetReached, match=rf"above the budget of 3 \({n} of {3 * n} rows are not") as stopped:
            ask()
        assert [answer.status for answer in stopped.value.answers] == ["complete", "budget", "complete"] * n
        assert stopped.value.answer is stopped.value.answers[1]
        counts = predictor.counters.as_dict()
        assert counts["answers"] == 3 * n
        assert counts["spend"] == sum(answer.cost for answer in stopped.value.answers)
        with pytest.raises(BudgetReached) as one:
            predictor.predict(OLD, budget=3)
        assert one.value.answers == [one.value.answer]


def test_answers_go_through_pickle(clinic, monkeypatch):
    # Dask, once it is imported, has errors pickled with what caused them, by tblib
    monkeypatch.delitem(copyreg.dispatch_table, SourceFailed, raising=False)

    class Connection(OSError):
        def __init__(self, line, number):
            super().__init__(f"{line} {number}")
            self.line = threading.Lock()

    @extractor(provides=["glucose", "insulin"])
    def broken(row):
        raise Connection("line", 3)

    with OnDemandPredictor(clinic, [sources_of([])[0], broken]) as predictor:
        answers = [predictor.predict(YOUNG), predictor.predict(OLD), Session(clinic).answer()]
        for answer in answers:
            for same in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer), copy.copy(answer)):
                again = pickle.loads(pickle.dumps(same))
                for other in (same, again):
                    assert other.to_dict() == answer.to_dict()
                    assert (other.items, other.trail) == (answer.items, answer.trail)
        assert str(pickle.loads(pickle.dumps(answers[1])).error) == "Connection: line 3"
        predictor.counters.count_answer(pickle.loads(pickle.dumps(answers[1])))
        with pytest.raises(SourceFailed) as failed:
            predictor.predict_many([YOUNG, OLD], strict=True)
        loaded = pickle.loads(pickle.dumps(failed.value))
        assert isinstance(loaded, SourceFailed)
        assert str(loaded) == str(failed.value)
        assert [answer.cost for answer in loaded.answers] == [2.0, 41.0]


def test_answers_of_classifiers_go_through_pickle():
    world = random_world(np.random.default_rng(3), "multiclass", 3)
    with OnDemandPredictor(world.model, [], given=NAMES) as predictor:
        answer = predictor.predict(None, known=world.rows[0])
    assert set(answer.to_dict()["probabilities"]) == {"10", "20", "30"}
    assert pickle.loads(pickle.dumps(answer)).to_json() == answer.to_json()


# ---------------------------------------------------------------------------------------- deadlines


def test_a_deadline_is_kept(clinic):
    release = threading.Event()
    calls = []

    @extractor(provides=["glucose", "insulin"])
    def lab(row):
        calls.append("lab")
        release.wait(10)
        return row

    with OnDemandPredictor(clinic, [sources_of([])[0], lab]) as predictor:
        began = time.perf_counter()
        answer = predictor.predict(OLD, deadline=0.2, known={"bmi": 1.0})
        assert time.perf_counter() - began < 1.0
        assert (answer.status, answer.node, answer.value) == ("deadline", 0, 11.5)
        assert answer.cost == 41.0  # the call was made
        many = predictor.predict_many([OLD, YOUNG], deadline=0.2)
        assert [a.status for a in many] == ["deadline", "complete"]
        on_loop = asyncio.run(predictor.apredict(OLD, deadline=0.2))
        assert on_loop.status == "deadline"
        at_once = predictor.predict(OLD, deadline=0.0)
        assert (at_once.status, at_once.cost, at_once.value) == ("deadline", 0.0, 7.0)
        release.set()
    assert calls == ["lab"] * 3


@pytest.mark.parametrize("deadline", [-1, float("nan"), "soon"])
def test_a_deadline_must_be_seconds(clinic, deadline):
    with OnDemandPredictor(clinic, sources_of([])) as predictor, pytest.raises(ValueError, match="deadline is"):
        predictor.predict(OLD, deadline=deadline)


# ------------------------------------------------------------------------------------ ask and tell, costs


def test_sessions_of_a_predictor(clinic):
    with OnDemandPredictor(clinic, sources_of([])) as predictor:
        session = predictor.session(known={"age": 1.0}, budget=100)
        assert isinstance(session, Session)
        assert session.wanted() == ["glucose", "insulin"]
        session.tell({"glucose": 1.0, "insulin": -1.0})
        assert session.answer().cost == 40.0


def test_measured_costs_are_milliseconds(clinic):
    @extractor(provides=["age", "bmi"], instant=True)
    def person(row):
        return OLD

    @extractor(provides=["glucose"])
    async def lab(row):
        await asyncio.sleep(0.004)
        return {"glucose": 3.0}

    @extractor(provides=["insulin"], needs=["glucose", "age"], batch=2)
    def model(rows, inputs):
        assert inputs == [{"glucose": 3.0, "age": 1.0}] * len(rows)
        time.sleep(0.002 * len(rows))
        return [1.0] * len(rows)

    costs = measure_costs([model, person, lab], range(5))
    resolved = costs.resolve(list(OLD))
    assert resolved.item_names == ["person", "lab", "model"]
    assert 4.0 <= costs.price_of(["glucose"]) < 40.0
    assert costs.price_of(["insulin"]) == pytest.approx(costs.price_of(["insulin", "glucose", "age"]))
    assert costs.price_of(["insulin"]) >= 6.0
    with OnDemandPredictor(clinic.with_costs(resolved), [model, person, lab]) as predictor:
        assert predictor.predict(0).complete


def test_measuring_says_what_is_wrong():
    broken = extractor(provides=["a"], name="broken")(lambda row: 1 / 0)
    with pytest.raises(RuntimeError, match="broken failed for row 3: ZeroDivisionError"):
        measure_costs([broken], [3])
    with pytest.raises(ValueError, match="the sample is empty"):
        measure_costs([broken], [])
    needy = extractor(provides=["b"], needs=["c"], name="needy")(lambda row, inputs: 1.0)
    with pytest.raises(ValueError, match=r"needy cannot be called: no extractor provides \['c'\]"):
        measure_costs([needy], [3])


def test_costs_are_measured_inside_a_running_event_loop_too():
    plain = extractor(provides=["a"], name="plain")(lambda row: 1.0)
    threads = set()

    @extractor(provides=["b"], timeout=5.0)
    async def lab(row):
        threads.add(threading.current_thread())
        await asyncio.sleep(0.002)
        return 2.0

    async def notebook(sources):
        return measure_costs(sources, range(3))

    assert set(asyncio.run(notebook([plain])).prices) == {"plain"}
    assert asyncio.run(notebook([plain, lab])).prices["lab"] >= 2.0
    assert len(threads) == 1
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("hangs", [False, True])
def test_measuring_keeps_to_the_time_limits_of_sources(asynchronous, hangs):
    release = threading.Event()

    def slow(row):
        release.wait(5 if hangs else 0.1)
        return 1.0

    async def aslow(row):
        if hangs:
            release.wait(5)  # not even the event loop comes back
        await asyncio.sleep(0.1)
        return 1.0

    source = extractor(provides=["a"], name="lab", timeout=0.03)(aslow if asynchronous else slow)
    began = time.perf_counter()
    with pytest.raises(RuntimeError, match=r"lab failed for row 7: TimeoutError: no answer within 0\.03 s"):
        measure_costs([source], [7])
    assert time.perf_counter() - began < 3.0
    release.set()
    limit = time.perf_counter() + 5.0
    while any(thread.name == "cstc-measure" for thread in threading.enumerate()):
        assert time.perf_counter() < limit
        time.sleep(0.01)


def test_a_sources_own_timeout_is_not_ours():
    @extractor(provides=["a"], name="lab", timeout=5.0)
    async def lab(row):
        raise TimeoutError("upstream")

    with pytest.raises(RuntimeError, match="lab failed for row 0: TimeoutError: upstream"):
        measure_costs([lab], [0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, "n/a"], "a is 'n/a', a text; in an earlier row it was a number"),
        ([[[1.0, 2.0]]], "a is a list; it must be one number or one category"),
        ([float("inf")], "a is inf; it must be finite"),
        ([{}], "returned no 'a'"),
    ],
)
def test_measuring_looks_at_the_values(values, message):
    source = extractor(provides=["a"], name="lab", batch=1)(lambda rows: [values[rows[0]]])
    with pytest.raises(RuntimeError, match=f"lab failed for row {len(values) - 1}: {message}"):
        measure_costs([source], range(len(values)))
    good = [None, 1, np.float32(2), True, float("nan")]
    measure_costs([extractor(provides=["a"], name="lab")(good.__getitem__)], range(len(good)))
    measure_costs([extractor(provides=["a"], name="lab")(["red", None, "blue"].__getitem__)], range(3))


def test_measuring_checks_the_extractors():
    one = extractor(provides=["a"], name="one")(lambda row: 1.0)
    with pytest.raises(ValueError, match="two extractors are called 'one'"):
        measure_costs([one, extractor(provides=["b"], name="one")(lambda row: 1.0)], [0])
    with pytest.raises(ValueError, match="'a' is provided by two extractors, one and two"):
        measure_costs([one, extractor(provides=["a"], name="two")(lambda row: 1.0)], [0])
    with pytest.raises(TypeError, match=r"is no extractor; declare it with @extractor\(provides=\[...\]\)"):
        measure_costs([len], [0])
    with pytest.raises(TypeError, match=r"give a list: \[one\]"):
        measure_costs(one, [0])
    with pytest.raises(TypeError, match="the sample is a int; give a list of rows"):
        measure_costs([one], 5)
    with pytest.raises(ValueError, match="there are no extractors"):
        measure_costs([], [0])


def test_a_source_may_have_the_name_of_another_feature():
    one = extractor(provides=["b"], name="a")(lambda row: 1.0)
    two = extractor(provides=["a", "c"], name="c")(lambda row: (1.0, 2.0))
    costs = measure_costs([one, two], range(3))
    assert set(costs.prices) == {"a (source)", "c"}
    assert costs.price_of(["a"]) == costs.price_of(["a", "c"])


def test_the_example_runs(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "on_demand.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "blood draw 5" in done.stdout
    assert "(budget)" in done.stdout
    assert "saved: " in done.stdout
