"""Makes ``queries-v5.cstc``, a file of version 5, and in JSON what its model answers.

It ran once, and so did those that made the files of versions 1 to 4, of the models below.  The files stay as they are,
and every later version of cstc must read them and answer the same:

    python tests/golden/make_golden.py
"""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from cstc.costs import ResolvedCosts
from cstc.model import Decisions, FittedTree, Schema, Training, TreePool, TreeShape
from cstc.model.fallbacks import Estimates
from cstc.model.file import save
from cstc.model.mixture import Mixture
from cstc.model.queries import QueryTree, with_made_costs, with_made_schema

HERE = Path(__file__).parent


def golden_model():
    """Three classes, four weak learners (numbers, categories, zero as missing, a plain column), a shared item."""
    pool = TreePool(
        roots=np.array([0, 5, 8, 11]),
        #                 0: tree of depth 2          5: categories      8: zero is missing  11: the column itself
        feature=np.array([0, 1, -1, -1, -1, 2, -1, -1, 3, -1, -1, -1]),
        threshold=np.array([0.5, -1.25, 0, 0, 0, 0, 0, 0, 0.1, 0, 0, 0]),
        left=np.array([1, 2, 2, 3, 4, 6, 6, 7, 9, 9, 10, 11]),
        right=np.array([4, 3, 2, 3, 4, 7, 6, 7, 10, 9, 10, 11]),
        missing_left=np.array([1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], dtype=bool),
        zero_is_missing=np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], dtype=bool),
        category_start=np.array([-1, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1, -1]),
        category_count=np.array([0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]),
        category_left=np.array([True, False, True]),
        value=np.array([0, 0, 1.5, -0.5, 0.25, 0, 2.0, -1.0, 0, 0.75, -0.125, 0.5]),
        linear_feature=np.array([-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 4]),
    )
    shape = TreeShape.full(2).prune(2)  # a root with one child above and a terminal below
    predict_weights = np.zeros((4, 2, 3))
    predict_weights[0, 0] = [1.0, -0.5, 0.0]
    predict_weights[1, 1] = [0.25, 0.0, -1.0]
    predict_weights[2, 1] = [0.0, 2.0, 0.5]
    predict_weights[3, 1] = [-1.0, 0.125, 1.0]
    route_weights = np.zeros((4, 2))
    route_weights[0, 0] = 1.0
    return FittedTree(
        pool=pool,
        shape=shape,
        predict_weights=predict_weights,
        predict_intercepts=np.array([[0.1, 0.2, 0.3], [-0.1, 0.0, 0.05]]),
        route_weights=route_weights,
        thresholds=np.array([0.0, 0.0]),
        constant=np.array([0.5, -0.25, 0.0]),
        costs=ResolvedCosts(
            item_names=["age", "blood draw", "glucose", "history", "scan"],
            prices=np.array([0.0, 2.1, 15.51, 1.0, 120.0]),
            feature_items=np.array(
                [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=bool
            ),
            evaluation=0.01,
        ),
        link="softmax",
        schema=Schema(
            feature_names=["age", "glucose", "smoker", "insulin", "größe"],
            categories={"smoker": ["never", "now", "once"]},
            may_miss=np.array([False, True, False, True, False]),
            classes=np.array(["ill", "unclear", "well"]),
        ),
    )


def golden_model_2():
    """The same with all that version 2 adds."""
    model = golden_model()
    shares = np.array([100, 50, 127, 127, 127, 200, 127, 127, 30, 127, 127, 127]) / 254
    fallback_weights = np.zeros((4, 2, 3))
    fallback_weights[1, 0] = [0.5, -0.25, 0.0]
    return replace(
        model,
        pool=model.pool._replace(share_left=shares),
        schema=replace(
            model.schema, booleans=frozenset(["insulin"]), means=np.array([0.0, 0.0, 0.0, 0.0, 1.75])
        ),
        fallback_weights=fallback_weights,
        fallback_intercepts=np.array([[0.0, 0.1, 0.0], [0.5, -0.25, 0.0]]),
        estimates=Estimates(
            losses=np.array([[0.5, 0.25, 0.75, 1.0], [0.625, 0.375, -1.0, 1.125]]),
            path_losses=np.array([0.3125, 0.375]),
            harm=np.array([[0.125, 0.0], [0.0625, 0.5], [0.0, 0.03125], [0.0, 0.0]]),
            sets=np.array([[1, 0, 0, 0, 0], [0, 0, 1, 1, 0]], dtype=bool),
            set_harm=np.array([[0.25, -1.0], [-1.0, 0.125], [-1.0, -1.0], [-1.0, -1.0]]),
            source_names=["laboratory", "größe"],
            source_features=np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 1]], dtype=bool),
            cost_weight=0.001953125,
        ),
        training=Training(rows=442, mean_cost=61.25, reached=np.array([0.375, 0.625]), trained="2026-11-16"),
    )


def golden_model_3():
    """The same with all that version 3 adds."""
    errors = np.array([[0.0, 300.0, 20.0, 60.0], [5000.0, 0.0, 10.0, 60.0], [0.5, 250.25, 1.0, 60.0]])
    return replace(golden_model_2(), limit=40.5, decisions=Decisions(errors))


def golden_mixture():
    """Two models that differ in their gates, and in what they say before anything is bought."""
    model = golden_model_2()
    other = replace(model, thresholds=np.array([-2.0, 0.0]), constant=np.array([0.0, 0.5, 0.0]))
    return Mixture(model, other, share=0.375, seed=7)


def golden_queries():
    """A chain of two nodes whose gate looks at an age, at the gap and at the place."""
    pool = TreePool(
        roots=np.array([0, 3, 6, 9]),
        #                 0: an expert  3: the other   6: by the gap   9: by the place, then by age
        feature=np.array([0, -1, -1, 1, -1, -1, 2, -1, -1, 3, 0, -1, -1, -1]),
        threshold=np.array([0.5, 0, 0, -1.25, 0, 0, -0.25, 0, 0, 1.5, 2.0, 0, 0, 0]),
        left=np.array([1, 1, 2, 4, 4, 5, 7, 7, 8, 10, 11, 11, 12, 13]),
        right=np.array([2, 1, 2, 5, 4, 5, 8, 7, 8, 13, 12, 11, 12, 13]),
        missing_left=np.zeros(14, dtype=bool),
        zero_is_missing=np.zeros(14, dtype=bool),
        category_start=np.full(14, -1),
        category_count=np.zeros(14, dtype=int),
        category_left=np.zeros(0, dtype=bool),
        value=np.array([0, 0.25, 1.5, 0, -0.5, 2.0, 0, -1.0, 0.5, 0, 0, 0.75, -0.125, -0.25]),
        linear_feature=np.full(14, -1),
        share_left=np.array([100, 127, 127, 50, 127, 127, 200, 127, 127, 30, 64, 127, 127, 127]) / 254,
    )
    predict_weights, route_weights = np.zeros((4, 2, 1)), np.zeros((4, 2))
    predict_weights[0, 0] = predict_weights[1, 1] = 1.0
    predict_weights[0, 1] = 0.5
    route_weights[2:, 0] = 1.0
    costs = ResolvedCosts(["age", "größe"], np.array([1.0, 20.5]), np.eye(2, dtype=bool), 0.01)
    tree = FittedTree(
        pool=pool,
        shape=TreeShape.chain(2),
        predict_weights=predict_weights,
        predict_intercepts=np.array([[0.1], [-0.2]]),
        route_weights=route_weights,
        thresholds=np.array([-0.125, 0.0]),
        constant=np.array([0.5]),
        costs=with_made_costs(costs, 1),
        link="identity",
        schema=with_made_schema(Schema(["age", "größe"], {}, np.array([False, True])), range(1)),
        training=Training(rows=442, mean_cost=11.25, reached=np.array([0.375, 0.625]), trained="2026-11-16"),
    )
    return QueryTree(tree, at=2)


def golden_chains():
    """The same chain for those who are older, and one node for all others."""
    model = golden_queries()
    tree = model.tree
    predict_weights, route_weights = np.zeros((4, 4, 1)), np.zeros((4, 4))
    predict_weights[:, 1:3], predict_weights[0, 3] = tree.predict_weights, 2.0
    route_weights[:, 1:3], route_weights[0, 0] = tree.route_weights, 1.0
    return QueryTree(
        replace(
            tree,
            shape=TreeShape.from_parents([-1, 0, 1, 0], [True, True, True, False]),
            predict_weights=predict_weights,
            predict_intercepts=np.array([[0.0], [0.1], [-0.2], [0.75]]),
            route_weights=route_weights,
            thresholds=np.array([1.0, -0.125, 0.0, 0.0]),
            schema=with_made_schema(model.schema, [1]),
            training=Training(rows=442, mean_cost=11.25, reached=np.array([0.25, 0.5, 0.25]), trained="2026-11-18"),
        ),
        at=2,
    )


QUERY_ROWS = [[0.0, -2.0], [1.0, 0.0], [1.0, -3.0], [2.5, None], [0.0, 1.0], [3.0, 1.0], [0.5, -1.25]]


def query_answers(model):
    X, qid = np.array(QUERY_ROWS, dtype=float), ["a", "a", "a", "a", "b", "b", "c"]
    return {
        "predict": model.predict(X, qid=qid).tolist(),
        "apply": model.apply(X, qid=qid).tolist(),
        "cost by branch": model.predict_cost(X, qid=qid).tolist(),
        "cost by learner": model.predict_cost(X, "learner", qid=qid).tolist(),
        "without age": model.predict(X, unavailable=["age"], qid=qid).tolist(),
    }


ROWS = [
    [0.0, -2.0, 0.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0, 2.0],
    [1.0, 0.0, 2.0, 0.05, -1.0],
    [2.0, -3.0, 7.0, None, 0.5],
    [None, None, None, 0.3, 0.0],
    [None, -5.0, 2.0, -1.0, 3.0],
    [0.5, -1.25, 1.0, 0.1, -2.5],
]


def answers(model):
    """Everything that the test compares; some rows lack what training always saw."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _answers(model, np.array(ROWS, dtype=float))


def _answers(model, X):
    return {
        "rows": ROWS,
        "predict": model.predict(X).tolist(),
        "decision_function": model.decision_function(X).tolist(),
        "predict_proba": model.predict_proba(X).tolist(),
        "apply": model.apply(X).tolist(),
        "cost by branch": model.predict_cost(X, "branch").tolist(),
        "cost by learner": model.with_limit(None).predict_cost(X, "learner").tolist(),
        "items by branch": model.bought_items(X).astype(int).tolist(),
        "without glucose": model.without([1]).decision_function(X).tolist(),
        "cost without glucose": model.without([1]).predict_cost(X).tolist(),
    }


def mixture_answers(mixture):
    """Which rows take the more expensive model, by ids of all kinds, and what the rows cost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ids = ["a", "ä", "7", 7, 7.0, -1, "patient 17"]
        X = np.array(ROWS, dtype=float)
        return {
            "coins": mixture.takes_costlier(len(ids), ids).tolist() + mixture.takes_costlier(40).tolist(),
            "cost": mixture.predict_cost(X, ids=ids).tolist(),
        }


if __name__ == "__main__":
    save(golden_chains(), HERE / "queries-v5.cstc")
    (HERE / "queries-v5.json").write_text(json.dumps(query_answers(golden_chains()), indent=1) + "\n")
