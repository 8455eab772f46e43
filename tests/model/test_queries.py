"""Whole queries: gates that see places, bit for bit as a plain walk of one query after the other."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import PROPERTY, seeds
from cstc import QueryTree
from cstc.costs import span
from cstc.model import Schema, TreeShape
from cstc.model.qids import query_numbers
from cstc.model.queries import N_MADE, gated_nodes, made_columns, made_names, splits_of, with_made_schema
from model_files import random_queries, random_query_tree, random_rows

pytestmark = pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def drawn(seed, n=40):
    """A model of one group, or in two of three cases of several."""
    rng = np.random.default_rng(seed)
    model = random_query_tree(rng, n_groups=1 + seed % 3)
    return model, random_rows(rng, model, n=n, missing=False), random_queries(rng, n)


# -- made columns --------------------------------------------------------------------------------------------------


@PROPERTY
@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=8), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_gaps_and_places_are_those_of_plain_loops(queries, at):
    scores = np.array([score / 2 for each in queries for score in each])
    query = np.repeat(np.arange(len(queries)), [len(each) for each in queries])
    found = made_columns(scores, query, at).tolist()
    wanted = []
    for each in queries:
        halves = [score / 2 for score in each]
        bar = sorted(halves, reverse=True)[min(at, len(halves)) - 1]
        wanted += [[score - bar, sum(other > score for other in halves)] for score in halves]
    assert found == wanted


def test_no_documents_have_no_places():
    assert made_columns(np.zeros(0), np.zeros(0, dtype=int), 5).shape == (0, N_MADE)


def test_a_feature_may_have_the_name_of_a_made_column():
    names = made_names([0], ["place at node 0", "place at node 0'"])
    assert names == ["gap at node 0", "place at node 0''"]


# -- the walk ------------------------------------------------------------------------------------------------------


@PROPERTY
@given(seeds)
def test_whole_queries_are_walked_as_by_plain_loops(seed):
    model, X, qid = drawn(seed)
    margins, cost = model.decision_and_cost(X, qid=qid)
    by_learner = model.predict_cost(X, "learner", qid=qid)
    terminals = model.apply(X, qid=qid)
    bought = {counting: model.bought_items(X, counting, qid=qid) for counting in ("branch", "learner")}
    for query in np.unique(qid):
        at = np.flatnonzero(qid == query)
        plain = reference.QueryOutcome(model.tree, model.tree.pool, model.tree.costs, X[at].tolist(), model.at)
        assert margins[at, 0].tolist() == plain.scores
        assert terminals[at].tolist() == plain.terminals
        for counting, items in bought.items():
            assert [set(np.flatnonzero(row)) for row in items[at]] == [set(each) for each in plain.items[counting]]
        np.testing.assert_allclose(cost[at], plain.costs["branch"], rtol=1e-12)
        np.testing.assert_allclose(by_learner[at], plain.costs["learner"], rtol=1e-12)


@PROPERTY
@given(seeds)
def test_no_order_and_no_other_query_matters(seed):
    model, X, qid = drawn(seed)
    margins, cost = model.decision_and_cost(X, qid=qid)
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.unique(qid))
    turned = np.concatenate([rng.permutation(np.flatnonzero(qid == query)) for query in order])
    again, paid = model.decision_and_cost(X[turned], qid=qid[turned])
    assert np.array_equal(again, margins[turned])
    assert np.array_equal(paid, cost[turned])
    alone = np.flatnonzero(qid == qid[-1])
    again, paid = model.decision_and_cost(X[alone], qid=[f"query {number}" for number in qid[alone]])
    assert np.array_equal(again, margins[alone])
    assert np.array_equal(paid, cost[alone])


@PROPERTY
@given(seeds)
def test_a_sparse_matrix_and_single_precision_answer_the_same(seed):
    model, X, qid = drawn(seed)
    X = X.astype(np.float32)
    margins, cost = model.decision_and_cost(X.astype(float), qid=qid)
    for other in (X, scipy.sparse.csr_matrix(X)):
        again, paid = model.decision_and_cost(other, qid=qid)
        assert np.array_equal(again, margins)
        assert np.array_equal(paid, cost)


def test_python_walks_as_compiled_code_does(monkeypatch):
    for seed in range(20):
        model, X, qid = drawn(seed)
        margins, cost = model.decision_and_cost(X, qid=qid)
        with monkeypatch.context() as patch:
            patch.setattr("cstc.model.native._native", None)
            again, paid = QueryTree(model.tree, model.at).decision_and_cost(X, qid=qid)
        assert np.array_equal(again, margins)
        assert np.array_equal(paid, cost)


def test_a_row_of_its_own_query_is_the_best_of_it():
    model, X, _ = drawn(3)
    everyone = np.arange(len(X))
    together = model.predict(X, qid=everyone)
    assert together.tolist() == [float(model.predict(X[[row]], qid=[0])[0]) for row in everyone]


def test_no_rows_have_no_answers():
    model, X, _ = drawn(3)
    scores, cost = model.predict(X[:0], qid=[], return_cost=True)
    assert scores.shape == cost.shape == (0,)


@PROPERTY
@given(seeds)
def test_without_columns_none_of_them_is_looked_at_or_paid(seed):
    model, X, qid = drawn(seed)
    name = model.schema.feature_names[0]
    answers, cost = model.predict(X, qid=qid, unavailable=[name], return_cost=True)
    other = X.copy()
    other[:, 0] = np.random.default_rng(seed).permutation(X[:, 0]) + 1
    again, paid = model.predict(other, qid=qid, unavailable=[name], return_cost=True)
    assert np.array_equal(answers, again)
    assert np.array_equal(cost, paid)


# -- what else a model does ------------------------------------------------------------------------------------------


def test_other_prices_change_the_bill_and_nothing_else():
    model, X, qid = drawn(8)
    prices = np.arange(1.0, len(model.schema.feature_names) + 1)
    other = model.with_costs(prices)
    assert np.array_equal(other.predict(X, qid=qid), model.predict(X, qid=qid))
    used = other.bought_items(X, qid=qid)
    assert np.array_equal(other.predict_cost(X, qid=qid), used @ prices)


def test_it_travels_without_what_was_worked_out():
    model, X, qid = drawn(5)
    answers = model.predict(X, qid=qid)
    other = pickle.loads(pickle.dumps(model))
    assert vars(other).keys() == {"tree", "at"}
    assert np.array_equal(other.predict(X, qid=qid), answers)


def test_it_says_what_it_is():
    model, _, _ = drawn(5)
    features = "1 feature" if model.n_features == 1 else f"{model.n_features} features"
    assert repr(model).startswith(f"<QueryTree: places by the {model.at} best of a query, {model.n_nodes} nodes, ")
    assert f", {features}, " in repr(model)
    costs = model.terminal_costs()
    assert repr(model).endswith(f", paths cost {span(costs.min(), costs.max())}>")
    shown = model._repr_html_()
    assert f"by the {model.at} best" in shown
    assert f", {features}, " in shown
    assert model.knows_name("x0")
    assert not model.knows_name("gap at node 0")


def test_what_needs_one_row_is_refused():
    model, X, qid = drawn(5)
    with error("qid is missing; this model looks at whole queries: give the query of each row, qid=..."):
        model.predict(X)
    with error("a QueryTree takes no budget: this model looks at whole queries"):
        model.predict(X, qid=qid, budget=3)
    with error("a QueryTree takes no limit: who goes on is decided by all documents of a query"):
        model.with_limit(3.0)
    assert model.with_limit(None) is model
    with error("a QueryTree explains no single row: this model looks at whole queries"):
        model.explain(X[0])
    with error("a QueryTree has no table of items"):
        model.item_importance(X)
    for name in ("gap at node 0", "x99"):
        with error(f"unavailable names {name!r}, which is no source, item or feature of the model: ") as caught:
            model.predict(X, qid=qid, unavailable=[name])
        listed = str(caught.value).partition(" of the model: ")[2]
        assert not re.search("(gap|place) at node", listed)
        assert "'x0'" in listed


def test_query_ids_follow_the_rules_of_a_ranker():
    model, X, qid = drawn(5)
    with error(f"qid has shape (3,), X has {len(X)} rows; give one query id per row"):
        model.predict(X, qid=[1, 2, 3])
    with error("qid holds missing values; give the query of every row"):
        model.predict(X, qid=[None, *qid[1:]])
    with error("query 'a' comes back after other queries; sort the rows by qid"):
        model.predict(X[:3], qid=["a", "b", "a"])
    with error(f"ids has 1 entries, X has {len(X)} rows"):
        model.predict(X, qid=qid, ids=["a"])
    with error("query 'a' comes back after other queries"):  # of no use to one tree, and wrong all the same
        model.tree.predict(np.zeros((3, len(model.tree.schema.feature_names))), qid=["a", "b", "a"])


@pytest.mark.parametrize(
    "qid",
    [
        ["a", float("nan"), "b"],
        ["a", "a", None],
        pd.Series(["a", "a", None], dtype="string"),
        pd.Series([1, None, 2], dtype="Int64"),
        pd.Series(pd.to_datetime(["2026-01-01", None, None])),
        np.array([1, "NaT", 2], dtype="timedelta64[D]"),
    ],
)
def test_a_missing_query_is_said_whatever_ids_are(qid):
    with error("qid holds missing values; give the query of every row"):
        query_numbers(qid, 3)


@pytest.mark.parametrize(
    ("qid", "kinds"),
    [
        (["a", 1, 1], "int and str"),
        (np.array([1, "a", 1], dtype=object), "int and str"),
        ([{}, {"a": 1}, {}], "dict"),
        (pd.Series([np.zeros(2), np.ones(2), np.ones(2)]), "ndarray"),
    ],
)
def test_query_ids_are_of_one_kind(qid, kinds):
    with error(f"qid holds values of type {kinds}; give all ids as text, or all as numbers"):
        query_numbers(qid, 3)


@pytest.mark.parametrize(
    "qid", [[1, 1.0, 2], ["a", "a", "b"], (True, True, False), np.array(["2026", "2026", "2027"], dtype="datetime64")]
)
def test_query_ids_of_one_kind_are_numbered(qid):
    assert query_numbers(qid, 3).tolist() == [0, 0, 1]


def test_a_model_of_whole_queries_is_checked():
    model = random_query_tree(np.random.default_rng(5))
    tree = model.tree
    assert tree.n_nodes > 2
    with error("at is 0; it must be a whole number, 1 or more"):
        QueryTree(tree, 0)
    with error("tree is a QueryTree; a model of whole queries is made of a FittedTree", TypeError):
        QueryTree(model)
    with error("a model of whole queries has no limit and no prices of errors"):
        QueryTree(replace(tree, limit=2.0))
    paid = tree.costs.feature_items.copy()
    paid[-1] = True
    with error("a model of whole queries has made columns that are numbers and require no item"):
        QueryTree(replace(tree, costs=replace(tree.costs, feature_items=paid)))
    looks = np.flatnonzero(tree.learner_features[:, model.n_features :].any(axis=1))
    weights = tree.predict_weights.copy()
    weights[looks[0], 0] = 1.0
    with error("a model of whole queries has experts and splits that look at no made column"):
        QueryTree(replace(tree, predict_weights=weights))
    of_first = np.flatnonzero(tree.learner_features[:, model.n_features : model.n_features + N_MADE].any(axis=1))
    routes = tree.route_weights.copy()
    routes[of_first[0], 1] = 1.0
    with error("a model of whole queries has gates that look at the made columns of their own node only"):
        QueryTree(replace(tree, route_weights=routes))
    with error("a model of whole queries has 2 made columns for each node with a gate, after its features"):
        QueryTree(replace(tree, schema=replace(tree.schema, feature_names=["x0"])))
    with error("a model of whole queries predicts scores"):
        QueryTree(replace(tree, link="logistic"))


def test_splits_come_before_chains_and_see_no_places():
    model = next(model for model in (drawn(3 * k + 2)[0] for k in range(50)) if len(gated_nodes(model.shape)) > 2)
    tree, is_split = model.tree, splits_of(model.shape)
    assert is_split.sum() == 2
    assert len(model.chains) == 3
    assert sorted(node for nodes in model.chains for node in nodes) == np.flatnonzero(~is_split).tolist()
    looks = np.flatnonzero(tree.learner_features[:, model.n_features :].any(axis=1))
    routes = tree.route_weights.copy()
    routes[looks[0], np.flatnonzero(is_split)[0]] = 1.0
    with error("a model of whole queries has experts and splits that look at no made column"):
        QueryTree(replace(tree, route_weights=routes))
    turned = TreeShape(tree.shape.lower, tree.shape.upper)
    with error("a model of whole queries is a chain of nodes, or splits and a chain for each group"):
        QueryTree(replace(tree, shape=turned))


def test_only_the_way_of_a_document_is_paid_for():
    """A learner that a split alone uses costs what it asks for, one of another group nothing."""
    for seed in range(2, 32, 3):
        model, X, qid = drawn(seed)
        group = model.splits.walk(model._matrix(X)).terminals
        nodes = model.shape.terminal_parents[model.apply(X, qid=qid)]
        assert all(node in model.chains[number] for node, number in zip(nodes, group, strict=True))
        own = np.array([model.terminal_learners[end] for end in model.apply(X, qid=qid)])
        uses = model.tree.pool.learner_uses(model.tree.costs.feature_items)
        assert not (model.bought_items(X, qid=qid) & ~((own.astype(int) @ uses.astype(int)) > 0)).any()


def test_made_columns_stand_after_the_features():
    schema = with_made_schema(Schema(["a", "b"], {}, np.array([True, False])), range(2))
    assert schema.feature_names[:2] == ["a", "b"]
    assert len(schema.feature_names) == 2 + 2 * N_MADE
    assert not schema.may_miss[2:].any()
