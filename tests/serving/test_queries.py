"""Whole queries on demand: the answers of a table, each source called once for a document, and what is refused."""

import asyncio
import re
from collections import Counter

import numpy as np
import pytest

from cstc import CSTCRanker, Experts
from cstc.serving import OnDemandPredictor, SourceFailed, extractor
from cstc.serving.http.app import create_app
from model_files import random_queries, random_query_tree, random_rows

PRICES = [1.0, 5.0, 5.0, 20.0]


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(100), 10)
    X = rng.normal(size=(1000, 4))
    y = np.clip(np.round(X[:, 0] + 0.7 * X[:, 1] + 0.7 * X[:, 2]), 0, 4)
    options = {"n_weak_learners": 20, "method": Experts(folds=2), "objective": "regression", "n_jobs": 1}
    model = CSTCRanker(costs=PRICES, cost_weight=0.02, whole_queries=True, random_state=0, **options)
    model.fit(X[:800], y[:800], qid=qid[:800])
    assert model.model_.n_nodes > 1
    return model, X[800:], qid[800:]


def sources_of(X, names, calls=None, broken=(), batch=False):
    """A source for each feature, which counts the rows that it is called with."""

    def one(column, name):
        @extractor(provides=[name], batch=batch, name=f"source {name}")
        def fetch(rows):
            for row in rows if batch else [rows]:
                if calls is not None:
                    calls[name, row] += 1
            if name in broken:
                raise OSError("it is down")
            return [[X[row, column]] for row in rows] if batch else [X[rows, column]]

        return fetch

    return [one(column, name) for column, name in enumerate(names)]


def answered_as_in_the_table(model, X, qid, batch):
    """Answers on demand that are those of the table, each source called once for what is bought, and for no more."""
    calls = Counter()
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"], calls, batch=batch)) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid)
        assert predictor.counters.as_dict()["statuses"]["complete"] == len(X)
    scores, cost = model.predict(X, qid=qid, return_cost=True)
    assert [answer.value for answer in answers] == scores.tolist()
    assert [answer.cost for answer in answers] == cost.tolist()
    assert [answer.terminal for answer in answers] == model.apply(X, qid=qid).tolist()
    assert max(calls.values()) == 1
    bought = model.model_.bought_items(X, qid=qid)
    assert {(f"x{item}", row) for row, item in zip(*np.nonzero(bought), strict=True)} == set(calls)
    return answers


@pytest.mark.parametrize("batch", [False, True])
def test_answers_are_those_of_the_table_and_nothing_is_fetched_twice(world, batch):
    answered_as_in_the_table(*world, batch)


def test_the_trail_tells_of_all_nodes(world):
    model, X, qid = world
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"])) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid)
    far = max(answers, key=lambda answer: answer.terminal)
    assert far.terminal > 0
    assert far.path == list(range(far.terminal + 1))
    gates = [step for step in far.trail if step["event"] == "gate"]
    assert [step["to"] for step in gates][:1] == ["node 1"]
    assert sum(step["price"] for step in far.trail if step["event"] == "bought") == pytest.approx(far.cost)
    assert far.items.keys() == {name for step in far.trail if step["event"] == "bought" for name in step["items"]}
    with error("this answer is that of a document among the others of its query, and is not explained by itself"):
        far.explain()


def test_what_is_known_is_not_fetched_and_costs_nothing(world):
    model, X, qid = world
    calls = Counter()
    known = [{"x0": value} for value in X[:, 0].tolist()]
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"], calls)) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid, known=known)
    assert [answer.value for answer in answers] == model.predict(X, qid=qid).tolist()
    assert not any(name == "x0" for name, _ in calls)
    assert all("x0" not in answer.items for answer in answers)


def test_a_source_that_fails_is_called_once_and_answers_come_all_the_same(world):
    model, X, qid = world
    calls = Counter()
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"], calls, broken=["x1"])) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid)
        failed = {row for row, answer in enumerate(answers) if answer.status == "failed"}
        assert failed == {row for name, row in calls if name == "x1"}
        assert len(failed) > 20
        assert all(np.isfinite(answer.value) for answer in answers)
        assert max(calls.values()) == 1
        with pytest.raises(SourceFailed):
            predictor.predict_many(range(len(X)), qid=qid, strict=True)


def test_what_is_down_is_not_asked_for(world):
    model, X, qid = world
    calls = Counter()
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"], calls)) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid, unavailable=["x1"])
    assert not any(name == "x1" for name, _ in calls)
    assert all(np.isfinite(answer.value) for answer in answers)


def test_a_source_of_the_model_may_be_down(world):
    _, X, qid = world
    rng = np.random.default_rng(1)
    y = np.clip(np.round(X[:, 0] + X[:, 1]), 0, 4) + rng.integers(2, size=len(X))
    method = Experts(folds=2, sources={"laboratory": ["x1", "x2"]})
    options = {"n_weak_learners": 10, "method": method, "objective": "regression", "n_jobs": 1, "random_state": 0}
    model = CSTCRanker(costs=PRICES, cost_weight=0.001, whole_queries=True, **options).fit(X, y, qid=qid)
    calls = Counter()
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"], calls)) as predictor:
        predictor.predict_many(range(len(X)), qid=qid)
        assert {name for name, _ in calls} >= {"x0", "x1"}
        calls.clear()
        predictor.predict_many(range(len(X)), qid=qid, unavailable=["laboratory"])
    assert {name for name, _ in calls}.isdisjoint({"x1", "x2"})


def test_names_of_made_columns_are_nobodys(world):
    model, X, qid = world
    sources = sources_of(X, ["x0", "x1", "x2", "x3"])
    unknown = "unknown feature 'gap at node 0'; the model's features are 'x0', 'x1', 'x2', 'x3'"
    with error(f"given= names an {unknown}"):
        OnDemandPredictor(model, sources, given=["gap at node 0"])
    with error(unknown):
        OnDemandPredictor(model, [*sources, extractor(provides=["gap at node 0"])(lambda row: 1.0)])
    with OnDemandPredictor(model, sources) as predictor:
        with error(unknown):
            predictor.predict_many(range(len(X)), qid=qid, known=[{"gap at node 0": 1.0}] * len(X))
        names = "which is no source, item or feature of the model: 'x0', 'x1', 'x2', 'x3'"
        for name in ("gap at node 0", "x9"):
            with error(f"unavailable names '{name}', {names}"):
                predictor.predict_many(range(len(X)), qid=qid, unavailable=[name])
        with error("known is a int; it must be a mapping of feature names to values", TypeError):
            predictor.predict_many(range(len(X)), qid=qid, known=[1] * len(X))


def test_after_the_deadline_nothing_is_bought(world):
    model, X, qid = world
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"])) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid, deadline=0)
    assert {answer.status for answer in answers} == {"deadline"}
    assert {(answer.value, answer.cost, answer.node) for answer in answers} == {(model.model_.constant[0], 0.0, -1)}


def test_after_the_deadline_what_is_known_says_something(grouped):
    model, X, qid = grouped
    known = [{"x0": row[0], "x1": row[1]} for row in X]
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"])) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid, known=known, deadline=0)
    assert {answer.cost for answer in answers} == {0.0}
    stopped = [answer for answer in answers if answer.status == "deadline"]
    assert len(stopped) > 50
    assert len({answer.value for answer in stopped}) > 20
    assert np.corrcoef([answer.value for answer in answers], model.predict(X, qid=qid))[0, 1] > 0.6


@pytest.mark.parametrize("name", ["world", "grouped"])
def test_a_document_that_waits_at_the_deadline_stops_no_other(name, request):
    model, X, qid = request.getfixturevalue(name)
    known = [{f"x{column}": value for column, value in enumerate(row)} for row in X]
    known[7] = {}
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"])) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid, known=known, deadline=0)
    assert [row for row, answer in enumerate(answers) if answer.status != "complete"] == [7]
    elsewhere = qid != qid[7]
    values = np.array([answer.value for answer in answers])
    np.testing.assert_array_equal(values[elsewhere], model.predict(X, qid=qid)[elsewhere])


@pytest.fixture(scope="module")
def grouped():
    """A sign says which of two expensive features counts beside a cheap one."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(170), 12)
    X = rng.normal(size=(len(qid), 4))
    X[:, 0] = np.sign(X[:, 0])
    y = np.clip(np.round(1.5 * X[:, 1] + np.where(X[:, 0] > 0, X[:, 2], X[:, 3]) + 0.5), 0, 4)
    options = {"objective": "regression", "n_weak_learners": 40, "n_jobs": 1, "random_state": 0}
    model = CSTCRanker(costs=[1.0, 2.0, 10.0, 10.0], cost_weight=0.01, whole_queries=True, **options)
    model.fit(X[:1800], y[:1800], qid=qid[:1800])
    assert len(model.model_.chains) > 1
    return model, X[1800:], qid[1800:]


@pytest.mark.parametrize("batch", [False, True])
def test_groups_are_told_apart_on_demand(grouped, batch):
    answers = answered_as_in_the_table(*grouped, batch)
    assert np.mean([{"x2", "x3"} <= answer.items.keys() for answer in answers]) < 0.3  # few need both


def test_what_tells_groups_apart_may_fail(grouped):
    model, X, qid = grouped
    calls = Counter()
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"], calls, broken=["x0"])) as predictor:
        answers = predictor.predict_many(range(len(X)), qid=qid)
        assert {answer.status for answer in answers} == {"failed"}
        assert max(calls.values()) == 1
        values = [answer.value for answer in answers]
        assert len(set(values)) > 20  # and not all the same
        calls.clear()
        down = predictor.predict_many(range(len(X)), qid=qid, unavailable=["x0"])
        assert not any(name == "x0" for name, _ in calls)
    assert [answer.value for answer in down] == values


def test_random_models_answer_as_in_a_table():
    for seed in range(25):
        rng = np.random.default_rng(seed)
        model = random_query_tree(rng, n_groups=1 + seed % 3)
        X, qid = random_rows(rng, model, n=20, missing=False), random_queries(rng, 20)
        names = model.schema.feature_names
        codes = dict(model.schema.categories)
        for name, values in codes.items():
            X[:, names.index(name)] = rng.integers(len(values), size=20)

        @extractor(provides=names, instant=True)
        def table(row, X=X, names=names, codes=codes):
            return {name: _raw(value, codes.get(name)) for name, value in zip(names, X[row].tolist(), strict=True)}

        with OnDemandPredictor(model, [table]) as predictor:
            answers = predictor.predict_many(range(20), qid=qid)
        scores, cost = model.predict(X, qid=qid, return_cost=True)
        assert [answer.value for answer in answers] == scores.tolist()
        np.testing.assert_allclose([answer.cost for answer in answers], cost, rtol=1e-12)
        ends = model.apply(X, qid=qid)
        assert [answer.terminal for answer in answers] == ends.tolist()
        nodes = model.shape.terminal_parents[ends]
        assert [answer.node for answer in answers] == nodes.tolist()
        for answer, node in zip(answers, nodes, strict=True):
            assert answer.path == np.flatnonzero(model.shape.node_paths[node]).tolist()
            gates = [step for step in answer.trail if step["event"] == "gate"]
            assert [step["node"] for step in gates] == answer.path[: len(gates)]
            assert all(step["to"] == f"node {after}" for step, after in zip(gates, answer.path[1:], strict=False))


def _raw(value, categories):
    """A value as a source would give it."""
    return value if categories is None else categories[int(value)]


def test_what_needs_one_row_or_no_queries_is_refused(world):
    model, X, _ = world
    with OnDemandPredictor(model, sources_of(X, ["x0", "x1", "x2", "x3"])) as predictor:
        asks = predictor.predict, lambda row: asyncio.run(predictor.apredict(row)), lambda _: predictor.session()
        for ask in asks:
            with error("this model looks at whole queries, and one row is answered here; predict_many(rows, qid=...)"):
                ask(0)
        with error("this model looks at whole queries, and one row is answered here; call predict_many"):
            asyncio.run(predictor.apredict_many([0], qid=[0]))
        with error("qid is missing; this model looks at whole queries: predict_many(rows, qid=...)"):
            predictor.predict_many(range(3))
        with error("budget is given, and this model looks at whole queries"):
            predictor.predict_many(range(3), qid=[0, 0, 0], budget=3)
        with error("query 0 comes back after other queries"):
            predictor.predict_many(range(3), qid=[0, 1, 0])
        with error("ids must have one entry for each of the 3 rows; it has 1"):
            predictor.predict_many(range(3), qid=[0, 0, 0], ids=["a"])
        with error("this model looks at whole queries, and the service answers rows one by one"):
            create_app(predictor)


def test_queries_of_rows_that_are_answered_alone_are_looked_at(world):
    tree = world[0].model_.tree
    predictor = OnDemandPredictor(tree, [], given=tree.schema.feature_names)
    with predictor:
        with error("query 0 comes back after other queries"):
            predictor.predict_many(range(3), qid=[0, 1, 0])
        with error("query 0 comes back after other queries"):
            asyncio.run(predictor.apredict_many(range(3), qid=[0, 1, 0]))
