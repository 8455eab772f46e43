"""Experts for bad days: sources, what is known of experts, and which fallbacks a model gets."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from cstc import CostModel, CSTCClassifier, CSTCRegressor, Experts
from cstc.experts.fallbacks import LEAST_ROOM, ROOM
from cstc.experts.sources import sources_of
from cstc.model.fallbacks import UNKNOWN, Estimates
from cstc.model.outages import experts_without
from experts.cases import PRICES, TASKS, dear_for_some, own_features, resolved

OPTIONS = {"n_weak_learners": 40, "random_state": 0, "n_jobs": 1}


# -- sources ------------------------------------------------------------------------------------------------------


def test_features_that_share_an_item_are_one_source_and_others_their_own():
    costs = CostModel(
        {"draw": 2.0, "glucose": 5.0, "insulin": 7.0, "age": 0.0}, {"glucose": ["draw"], "insulin": ["draw"]}
    ).resolve(["age", "glucose", "insulin"])
    found = sources_of(None, ["age", "glucose", "insulin"], costs)
    assert dict(zip(found.names, found.columns.tolist(), strict=True)) == {
        "age": [True, False, False],
        "draw": [False, True, True],
    }


def test_sources_can_be_named():
    found = sources_of({"lab": ["x1", 2]}, ["x0", "x1", "x2", "x3"], resolved([1.0, 2.0, 3.0, 4.0]))
    assert found.names == ["lab", "x0", "x3"]
    assert found.columns[0].tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"lab": ["x9"]}, "sources\\['lab'\\] names 'x9', which is no feature"),
        ({"lab": [17]}, "names 17, which is no feature"),
        ({"lab": [True]}, "names True, which is no feature"),
        ({"a": ["x1"], "b": ["x1"]}, "sources has 'x1' twice"),
        ({"x1": ["x2"]}, "sources has 'x1', which is a feature or an item; give the source another name"),
        ({1: ["x1"]}, "sources has the name 1; names of sources are texts: '1'"),
        ({"lab": "x1"}, "sources\\['lab'\\] is 'x1'; it must be a list of features"),
        ({"lab": []}, "it must be a list of features"),
        (["x1"], "sources is \\['x1'\\]; it must map names to lists"),
    ],
)
def test_sources_that_cannot_be(sources, message):
    _, X, y, _ = dear_for_some("regression", n=100)
    with pytest.raises(ValueError, match=message):
        CSTCRegressor(method=Experts(sources=sources), costs=PRICES, **OPTIONS).fit(X, y)


def test_fallbacks_is_true_or_false():
    _, X, y, _ = dear_for_some("regression", n=100)
    with pytest.raises(ValueError, match="fallbacks is 'yes'; it must be True or False"):
        CSTCRegressor(method=Experts(fallbacks="yes"), costs=PRICES, **OPTIONS).fit(X, y)


# -- what is known of the experts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_what_experts_lose_is_what_new_rows_lose(task):
    """Out of fold, the expert of the root and the path as a whole lose about what they do at new rows."""
    kind, X, y, given = dear_for_some(task, n=3000)
    half = slice(None, 1500)
    given = {name: values[half] for name, values in given.items()}
    model = kind(costs=PRICES, cost_weight=0.01, **OPTIONS).fit(X[half], y[half], **given).model_
    known = model.estimates
    assert known.losses.shape == (model.shape.n_nodes, model.expert_weights.shape[1])
    X, y = X[1500:], y[1500:]
    path = observed(model, model.decision_function(X), y)
    assert known.path_losses[0] == pytest.approx(path, rel=0.25)
    root = model.pool.scores(X, model.predict_weights[:, 0]) + model.predict_intercepts[0]
    assert known.losses[0, 0] == pytest.approx(observed(model, root, y), rel=0.25)


def observed(model, margins, y):
    if model.schema.classes is None:
        return np.mean((margins[:, 0] - y) ** 2)
    shares = np.exp(np.column_stack([np.zeros(len(y)), margins]) if margins.shape[1] == 1 else margins)
    return log_loss(y, shares / shares.sum(axis=1, keepdims=True))


def test_groups_know_only_their_own_experts():
    kind, X, y, given = own_features()
    model = kind(costs=[0.5, 10.0, 10.0, 10.0, 10.0, 10.0], cost_weight=0.02, **OPTIONS).fit(X, y, **given).model_
    known = model.estimates
    assert model.shape.n_nodes > 3
    assert (known.losses == UNKNOWN).any()
    assert (np.diag(known.losses[:, : model.shape.n_nodes]) >= 0).all()
    assert np.isfinite(known.losses).all()


def test_the_source_that_matters_hurts():
    kind, X, y, _ = dear_for_some("regression", n=2000)
    model = kind(costs=PRICES, cost_weight=0.001, **OPTIONS).fit(X, y).model_
    known = model.estimates
    last = int(np.argmax(model.expert_features[: model.shape.n_nodes].sum(axis=1)))
    assert known.source_names == ["x0", "x1", "x2", "x3", "x4"]
    assert np.argmax(known.harm[last]) == 0
    assert known.harm[last, 4] > 10 * known.harm[last, 2]


# -- which fallbacks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_fallbacks_take_little_room_and_change_no_answer(task):
    kind, X, y, given = dear_for_some(task, n=1500)
    plain, safe = (
        kind(costs=PRICES, cost_weight=0.01, method=Experts(fallbacks=each), **OPTIONS).fit(X, y, **given).model_
        for each in (False, True)
    )
    assert plain.fallback_weights.shape[1] == 0
    assert safe.pool.n_positions <= plain.pool.n_positions + max(LEAST_ROOM, ROOM * plain.pool.n_positions)
    np.testing.assert_array_equal(plain.decision_function(X), safe.decision_function(X))
    np.testing.assert_array_equal(plain.predict_cost(X), safe.predict_cost(X))


def test_an_outage_costs_some_accuracy_and_not_all_of_it():
    """x5 repeats x0 with noise, for more money: without x0, the model turns to it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    X[:, 5] = X[:, 0] + 0.2 * rng.normal(size=3000)
    y = 2.0 * X[:, 0] + 0.5 * X[:, 1]
    model = CSTCRegressor(costs=[1.0, 1.0, 1.0, 1.0, 1.0, 1.5], cost_weight=0.01, **OPTIONS).fit(X[:2000], y[:2000])
    X, y = X[2000:], y[2000:]

    def r2(answers):
        return 1 - np.mean((answers - y) ** 2) / np.var(y)

    assert r2(model.predict(X)) > 0.95
    answers, cost = model.predict(X, unavailable=["x0"], return_cost=True)
    assert r2(answers) > 0.85
    gone = model.model_.without([0])
    assert not gone.expert_features[:, 0].any()
    assert cost.max() <= 3.0
    assert not gone.bought_items(X)[:, 0].any()


def test_without_estimates_every_node_answers_for_itself():
    kind, X, y, _ = dear_for_some("regression", n=600)
    model = kind(costs=PRICES, cost_weight=0.01, **OPTIONS).fit(X, y).model_
    plain = replace(model, estimates=None, fallback_weights=None, fallback_intercepts=None)
    gone = np.array([True, False, False, False, False])
    experts, idle = experts_without(plain, gone)
    assert experts.tolist() == list(range(model.shape.n_nodes))
    assert not idle.any()


# -- the choice ---------------------------------------------------------------------------------------------------


def estimates(losses, harm, cost_weight):
    n = len(losses[0])
    return Estimates(
        losses=np.array(losses, dtype=float),
        path_losses=np.zeros(len(losses)),
        harm=np.array(harm, dtype=float),
        sets=np.zeros((0, 3), dtype=bool),
        set_harm=np.zeros((n, 0)),
        source_names=["a", "b"],
        source_features=np.array([[True, False, False], [False, True, True]]),
        cost_weight=cost_weight,
    )


def test_the_best_expert_by_hand():
    known = estimates([[1.0, 0.5, UNKNOWN]], [[0.0, 0.0], [0.25, 2.0], [0.0, 0.0]], 0.1)
    features = np.array([[False, False, False], [True, True, False], [True, False, False]])
    nothing, second = np.zeros(3, dtype=bool), np.array([False, False, True])
    assert known.expected(0, features, nothing).tolist() == [1.0, 0.5, np.inf]
    assert known.expected(0, features, second).tolist() == [1.0, 0.5, np.inf]  # no expert looks at the third column
    assert known.expected(0, features, np.array([True, True, False])).tolist() == [1.0, 2.75, np.inf]
    expected = known.expected(0, features, nothing)
    for prices, planned, most, best in [
        ([0.0, 4.0, 0.0], 0.0, np.inf, 1),  # 0.5 + 0.1 * 4 is less than 1
        ([0.0, 6.0, 0.0], 0.0, np.inf, 0),
        ([0.0, 6.0, 0.0], 2.0, np.inf, 1),  # of 6, 2 would have been paid anyway
        ([0.0, 4.0, 0.0], 0.0, 3.0, 0),
        ([5.0, 4.0, 0.0], 0.0, 3.0, None),
    ]:
        assert known.best(expected, np.array(prices), planned, most) == best


def test_two_classes_at_any_budget():
    """More money, better answers; never more than there is."""
    _, X, y, _ = dear_for_some("classes", n=3000)
    model = CSTCClassifier(costs=PRICES, cost_weight=0.002, **OPTIONS).fit(X[:2000], y[:2000])
    X, y = X[2000:], y[2000:]
    losses = []
    for budget in (0.0, 1.0, 3.0, 6.0, 10.0, 20.0):
        shares, cost = model.predict_proba(X, budget=budget, return_cost=True)
        assert (cost <= budget).all()
        np.testing.assert_array_equal(cost, model.predict_cost(X, budget=budget))
        losses.append(log_loss(y, shares))
    assert losses[0] > losses[1] + 0.05
    assert (np.diff(losses) < 0.02).all()
    assert losses[-1] == pytest.approx(log_loss(y, model.predict_proba(X)))
