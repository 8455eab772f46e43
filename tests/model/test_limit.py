"""A hard limit that belongs to a model: no row pays more, wherever it is answered, and the file keeps it."""

import re

import numpy as np
import pytest

import cstc
from cstc import CSTCClassifier, Experts
from cstc.serving import OnDemandPredictor, Session, extractor
from serving.outages import random_worlds

PRICES = [1.0, 2.0, 4.0, 8.0, 16.0]


def error(message):
    return pytest.raises(ValueError, match=re.escape(message))


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = (X.sum(axis=1) + 0.3 * rng.normal(size=300) > 0).astype(int)
    options = {"n_weak_learners": 20, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}
    return CSTCClassifier(costs=PRICES, cost_weight=0.002, **options).fit(X, y), X, y


@pytest.mark.parametrize("limit", [0, 1.0, 3, 7.0, 20.0, 100])
def test_a_limit_is_a_budget_of_every_call(fitted, limit):
    estimator, X, _ = fitted
    limited = estimator.with_limit(limit)
    assert limited.model_.limit == float(limit)
    assert estimator.model_.limit is None  # it was not touched
    expected = estimator.predict_proba(X, return_cost=True, budget=limit)
    found = limited.predict_proba(X, return_cost=True)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])
    assert (found[1] <= limit).all()
    assert np.array_equal(limited.predict_proba(X), expected[0])
    assert np.array_equal(limited.predict(X), estimator.predict(X, budget=limit))
    assert np.array_equal(limited.predict_cost(X), expected[1])
    assert np.array_equal(limited.decision_function(X), limited.model_.decision_and_cost(X)[0][:, 0])
    np.testing.assert_allclose(limited.model_.bought_items(X) @ PRICES, expected[1])


def test_the_smaller_one_of_limit_and_budget_counts(fitted):
    estimator, X, _ = fitted
    limited = estimator.with_limit(7)
    assert np.array_equal(limited.predict_cost(X, budget=3), estimator.predict_cost(X, budget=3))
    assert np.array_equal(limited.predict_cost(X, budget=15), estimator.predict_cost(X, budget=7))
    down = {"unavailable": ["x0"]}
    assert np.array_equal(limited.predict_cost(X, **down), estimator.predict_cost(X, budget=7, **down))
    again = limited.with_limit(None)
    assert np.array_equal(again.predict_cost(X), estimator.predict_cost(X))
    assert again.model_.limit is None


def test_a_limit_is_kept_on_demand_and_in_the_file(fitted, tmp_path):
    estimator, X, _ = fitted
    limited = estimator.with_limit(7)
    limited.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert loaded.limit == 7.0
    names = estimator.model_.schema.feature_names

    @extractor(provides=names, instant=True)
    def table(row):
        return X[row]

    expected = limited.predict_cost(X[:40])
    with OnDemandPredictor(loaded, [table]) as predictor:
        answers = [predictor.predict(row) for row in range(40)]
        assert [answer.cost for answer in answers] == pytest.approx(expected)
        assert max(predictor.predict(row, budget=2).cost for row in range(40)) <= 2
        assert max(predictor.predict(row, budget=50).cost for row in range(40)) <= 7
    assert "budget" in {answer.status for answer in answers}
    session = Session(loaded)
    while wanted := session.wanted():
        session.tell({name: X[0, int(name[1:])] for name in wanted})
    assert session.cost <= 7
    explanation = limited.explain(X[int(np.argmax(estimator.predict_cost(X)))])
    assert explanation.cost <= 7
    assert "the budget of 7" in explanation.stopped_because


def test_random_models_keep_their_limits():
    rng = np.random.default_rng(3)
    n_early = 0
    for world in random_worlds(rng, 40):
        model = world.model
        limit = float(rng.random() * model.terminal_costs().max())
        limited = model.with_limit(limit)
        cost = limited.predict_cost(world.X)
        assert (cost <= limit).all()
        assert np.array_equal(cost, model.predict_cost(world.X, budget=limit))
        assert np.array_equal(limited.decision_function(world.X), limited.decision_and_cost(world.X)[0], equal_nan=True)
        n_early += (cost != model.predict_cost(world.X)).sum()
    assert n_early > 40


def test_importance_is_that_of_what_a_limit_leaves(fitted):
    estimator, X, y = fitted
    limited = estimator.with_limit(7)
    found = {row["item"]: row for row in limited.item_importance(X, y)}
    bought = limited.model_.bought_items(X).mean(axis=0)
    assert [found[f"x{j}"]["bought"] for j in range(5) if f"x{j}" in found] == pytest.approx(
        [bought[j] for j in range(5) if f"x{j}" in found]
    )
    assert sum(row["spent"] for row in found.values()) == pytest.approx(limited.predict_cost(X).mean())
    assert all(row["loss_saved"] is None for row in limited.item_importance(X))  # of rows that are stopped nobody knows
    assert any(row["loss_saved"] is not None for row in estimator.item_importance(X))


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf"), "much", True])
def test_what_is_no_limit(fitted, limit):
    with error(f"limit is {limit!r}; it must be a finite number, 0 or more, or None for no limit"):
        fitted[0].with_limit(limit)


def test_a_limit_is_counted_by_branches(fitted):
    estimator, X, _ = fitted
    with error("counting is 'learner'; the model's limit of 7 is counted by branches: counting='branch'"):
        estimator.with_limit(7).predict_cost(X, "learner")


def test_a_limited_model_says_so_and_does_not_say_what_training_paid(fitted):
    limited = fitted[0].with_limit(7)
    assert "limit 7" in repr(limited.model_)
    assert not hasattr(limited, "mean_cost_")
    assert limited.model_.training.mean_cost is None
